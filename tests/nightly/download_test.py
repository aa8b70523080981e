"""Models of the hub, by huggingface_hub, and files of the tree."""

import hashlib
import unittest

from support import HUB_FILES, Tree
from nightly import fetch, pypi

NAME = "maker/models/b-q4.gguf"
DATA = HUB_FILES[NAME]


class ResolveTest(Tree):
    def statuses(self, offline: bool = False) -> dict:
        return {name: file.status for name, file in self.resolved(offline).items()}

    def test_fetched_then_offline(self):
        self.assertEqual(set(self.statuses(offline=True).values()), {"ready", "missing"})
        self.assertEqual(set(self.statuses().values()), {"ready"})
        self.assertEqual(fetch.cached(self.manifest.model("b-q4"), self.place().cache).read_bytes(), DATA)
        self.assertEqual([p.name for p in (self.place().cache / "partial").iterdir()], [])
        self.hub.close()
        self.assertEqual(set(self.statuses(offline=True).values()), {"ready"})

    def test_a_cached_file_that_rotted_is_fetched_again(self):
        self.statuses()
        path = fetch.cached(self.manifest.model("b-q4"), self.place().cache)
        for data, offline, status in ((bytes(len(DATA)), True, "wrong"), (bytes(len(DATA)), False, "ready")):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            self.assertEqual(self.statuses(offline)["b-q4"], status)
        self.assertEqual(path.read_bytes(), DATA)

    def test_other_bytes_are_wrong_and_named(self):
        self.hub.files[NAME] = bytes(reversed(DATA))
        file = self.resolved()["b-q4"]
        self.assertEqual(file.status, "wrong")
        self.assertIn("SHA-256: found ", file.reason)
        self.hub.files[NAME] = DATA + b"x"
        self.assertIn("size: found ", self.resolved()["b-q4"].reason)

    def test_a_file_that_the_hub_has_not_is_named(self):
        del self.hub.files[NAME]
        self.assertIn("the hub cannot be reached: ", self.resolved()["b-q4"].reason)
        with self.assertRaisesRegex(pypi.Unreachable, "found no file"):
            fetch.hub_facts(self.manifest.model("b-q4"), self.hub.url)

    def test_without_a_pinned_hash_nothing_is_fetched(self):
        self.manifest.model("b-q4").sha256 = None
        self.assertEqual(self.statuses()["b-q4"], "missing")
        self.assertNotIn(NAME, [name for name, *_ in self.hub.requests])

    def test_a_file_of_the_tree_is_what_it_is(self):
        """git pins it: its hash goes into the results' keys, and is in no lock that a change of it must not forget."""
        for content in (b"local model", b"another model"):
            (self.root / "models/a.gguf").write_bytes(content)
            file = self.resolved(offline=True)["a"]
            self.assertEqual((file.status, file.sha256), ("ready", hashlib.sha256(content).hexdigest()))


if __name__ == "__main__":
    unittest.main()
