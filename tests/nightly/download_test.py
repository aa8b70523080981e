"""Downloads against a hub that misbehaves in every way that is named in hub.py."""

import dataclasses
import hashlib
import unittest
from unittest import mock

from support import HUB_FILES, QUICK, Tree
from nightly import download, resolve

NAME = "maker/models/b-q4.gguf"
DATA = HUB_FILES[NAME]
SHA = hashlib.sha256(DATA).hexdigest()


class DownloadTest(Tree):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.want = download.Wanted(f"{self.hub.url}/maker/models/resolve/main/b-q4.gguf", "b-q4.gguf", len(DATA), SHA)

    def fetch(self, *faults: str, want: download.Wanted | None = None):
        self.hub.faults[NAME] = list(faults)
        return download.fetch(download.Client(QUICK), want or self.want, self.cache)

    def ranges(self) -> list[str]:
        return [wanted for _, wanted in self.hub.requests]

    def leftovers(self) -> list[str]:
        return [p.name for p in (self.cache / "partial").iterdir() if p.suffix != ".lock"]

    def test_whole_by_redirect_and_then_from_the_cache(self):
        path = self.fetch()
        self.assertEqual((path.read_bytes(), path), (DATA, self.cache / "sha256" / SHA / "b-q4.gguf"))
        self.fetch()
        self.assertEqual((len(self.hub.requests), self.leftovers()), (1, []))

    def test_what_passes_is_tried_again(self):
        """A cut connection is continued where it broke; after a part that was not asked for, all is fetched; without a hash
        nothing is continued."""
        unpinned = dataclasses.replace(self.want, sha256=None)
        for faults, want, ranges in ((("cut:100000", "cut:5000"), self.want, ["", "bytes=100000-", "bytes=105000-"]),
                                     (("500", "429", "500"), self.want, [""] * 4), (("slow",), self.want, [""]),
                                     (("cut:1000", "no-range"), self.want, ["", "bytes=1000-"]),
                                     (("cut:1000", "shifted"), self.want, ["", "bytes=1000-", ""]),
                                     (("cut:1000", "cut:5000"), unpinned, ["", "", ""])):
            with self.subTest(faults=faults):
                self.cache = self.folder / "-".join(faults)
                self.hub.requests.clear()
                self.assertEqual(self.fetch(*faults, want=want).read_bytes(), DATA)
                self.assertEqual(self.ranges(), ranges)

    def test_another_version_is_not_appended(self):
        """The parts are not of one file, so all of the new one is fetched, and it is not what was promised."""
        with self.assertRaisesRegex(download.WrongContent, "SHA-256: found"):
            self.fetch("cut:1000", "changed")
        self.assertEqual(next((self.cache / "quarantine").iterdir()).read_bytes(), bytes(reversed(DATA)))

    def test_wrong_bytes_are_quarantined_and_named(self):
        with self.assertRaisesRegex(download.WrongContent, f"need {SHA}; kept as .*quarantine"):
            self.fetch("wrong")
        self.assertFalse((self.cache / "sha256" / SHA).exists())
        self.assertEqual(self.leftovers(), [])

    def test_damaged_parts_are_fetched_once_more(self):
        """Also those that are as long as the file, of which the server has no rest."""
        for size in (1000, len(DATA)):
            self.cache = self.folder / str(size)
            with self.assertRaises(download.Unreachable):
                self.fetch("cut:1000", *["500"] * 20)
            next((self.cache / "partial").glob("*.part")).write_bytes(bytes(size))
            self.assertEqual(self.fetch().read_bytes(), DATA)

    def test_another_size_is_wrong_content(self):
        want = dataclasses.replace(self.want, size=len(DATA) - 10)
        with self.assertRaisesRegex(download.WrongContent, "size: found"):
            self.fetch(want=want)

    def test_a_dead_server_is_given_up_and_its_part_kept(self):
        with self.assertRaisesRegex(download.Unreachable, "500"):
            self.fetch("cut:1000", *["500"] * 20)
        self.assertEqual(next((self.cache / "partial").glob("*.part")).read_bytes(), DATA[:1000])
        self.assertEqual(self.fetch().read_bytes(), DATA)
        self.assertEqual(self.ranges()[-1], "bytes=1000-")

    def test_a_missing_file_is_named(self):
        want = download.Wanted(f"{self.hub.url}/maker/models/resolve/main/none", "none", 1, SHA)
        with self.assertRaisesRegex(download.Unreachable, "404"):
            self.fetch(want=want)

    def test_a_full_disk_is_found_before_anything_is_asked(self):
        with mock.patch("shutil.disk_usage", return_value=mock.Mock(free=len(DATA))):
            with self.assertRaisesRegex(download.NoSpace, f"{len(DATA)} bytes free, need {len(DATA)}"):
                self.fetch()
        self.assertEqual(self.hub.requests, [])


class ResolveTest(Tree):
    def statuses(self, client=True) -> dict:
        return {name: file.status for name, file in self.resolved(client).items()}

    def test_parallel_then_offline(self):
        self.assertEqual(set(self.statuses(client=False).values()), {"ready", "missing"})
        self.assertEqual(set(self.statuses().values()), {"ready"})
        self.hub.close()
        self.assertEqual(set(self.statuses(client=False).values()), {"ready"})

    def test_a_cached_file_that_rotted_is_fetched_anew(self):
        self.statuses()
        path = download.cached(resolve.wanted(self.manifest.model("b-q4"), self.hub.url), self.place().cache)
        path.write_bytes(bytes(len(DATA)))
        self.assertEqual(self.statuses(client=False)["b-q4"], "wrong")
        self.assertEqual(self.statuses()["b-q4"], "ready")
        self.assertEqual(path.read_bytes(), DATA)

    def test_without_a_pinned_hash_nothing_is_fetched(self):
        self.manifest.model("b-q4").sha256 = None
        self.assertEqual(self.statuses()["b-q4"], "missing")
        self.assertNotIn(NAME, [name for name, *_ in self.hub.requests])

    def test_a_file_of_the_tree_is_what_it_is(self):
        """git pins it: its hash goes into the results' keys, and is in no lock that a change of it must not forget."""
        for content in (b"local model", b"another model"):
            (self.root / "models/a.gguf").write_bytes(content)
            file = self.resolved(client=False)["a"]
            self.assertEqual((file.status, file.size, file.sha256),
                             ("ready", len(content), hashlib.sha256(content).hexdigest()))


if __name__ == "__main__":
    unittest.main()
