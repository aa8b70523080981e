#!/usr/bin/env python3
"""-hf against a hub on this machine: hub_test.py BIN_DIR."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/nightly"))

from hub import COMMIT, Hub  # noqa: E402

BIN = Path(sys.argv.pop(1)).resolve()
MODEL = (ROOT / "models/fable-3m-q4_k_m.gguf").read_bytes()
OTHER = MODEL[:-1] + bytes([MODEL[-1] ^ 1])  # loads as well: a weight differs
REPO = "maker/tiny-GGUF"
FILE = f"{REPO}/tiny-Q4_K_M.gguf"  # what is fetched where no other is named
FILES = {"README.md": b"words", "mmproj-Q4_K_M.gguf": b"no model", "a/tiny.Q8_0.gguf": OTHER, "tiny-IQ4_K_M.gguf": b"no model",
         "tiny-Q4_K_M.gguf": MODEL, "tiny-UD-Q4_K_XL.gguf": OTHER}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class HubTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="hub-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.hub = Hub({f"{REPO}/{name}": data for name, data in FILES.items()})
        self.addCleanup(self.hub.close)
        self.cache = self.folder / "hub"
        self.repo = self.cache / "models--maker--tiny-GGUF"

    def start(self, name: str, *words: str, tool: str = "llmtok", **variables: str) -> subprocess.Popen:
        rest = {"llmtok": ["-p", "Once"], "llmrun": ["Once", "-n", "1", "--temp", "0"], "llmbench": ["-p", "4", "-n", "0", "-r", "1", "--no-peaks"],
                "llmload": ["--requests", "2", "--mode", "real"], "llmcheck": ["--ppl", ROOT / "models/README.md"],
                "llmserve": ["--port", "0"]}[tool]
        environment = {**os.environ, "HF_HUB_CACHE": str(self.cache), "HF_ENDPOINT": self.hub.url, "HF_TOKEN": "",
                       "HF_HUB_OFFLINE": "", "no_proxy": "*", **variables}
        return subprocess.Popen([BIN / tool, "-hf", name, *rest, *words], env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start_slowly(self) -> tuple[subprocess.Popen, Path]:
        """A process that has fetched a part of the file, and that part."""
        self.hub.faults[FILE] = ["slow"]
        process = self.start(REPO)
        part = self.repo / f"blobs/{digest(MODEL)}.incomplete"
        while not part.exists() or part.stat().st_size < 300000:
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        return process, part

    def run_tool(self, name: str, code: int, *said: str, **options: str) -> str:
        """What stands on stderr after exit code `code`, seen to have the words `said`."""
        process = self.start(name, "-v", **options)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, err)
        self.assertEqual(bool(out), code == 0)
        for words in said:
            self.assertIn(words, err)
        return err

    def fetched(self) -> list[str]:
        return [name.removeprefix(f"{REPO}/") for name, _ in self.hub.requests]

    def blobs(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self.repo.glob("blobs/*")}

    def test_whole_file_once_in_the_hubs_layout(self):
        self.run_tool(REPO, 0, "downloading", tool="llmrun")
        link = self.repo / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf"
        self.assertEqual(os.readlink(link), f"../../blobs/{digest(MODEL)}")
        self.assertEqual(link.read_bytes(), MODEL)
        self.assertEqual((self.repo / "refs/main").read_text(), COMMIT)
        self.assertEqual(self.blobs(), {digest(MODEL): len(MODEL)})
        self.assertNotIn("downloading", self.run_tool(REPO, 0, str(link)))
        self.assertEqual(self.fetched(), ["tiny-Q4_K_M.gguf"])

    def verb(self, code: int, *words: str) -> str:
        """What `llmrun WORDS` prints; of an error, what it says."""
        environment = {**os.environ, "HF_HUB_CACHE": str(self.cache), "HF_ENDPOINT": self.hub.url, "HF_TOKEN": "", "HF_HUB_OFFLINE": "",
                       "no_proxy": "*"}
        run = subprocess.run([BIN / "llmrun", *words], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=300)
        self.assertEqual(run.returncode, code, run.stderr)
        return run.stdout if code == 0 else run.stderr

    def test_verbs_of_ollama(self):
        self.assertEqual(self.verb(0, "list"), "")
        self.assertIn("found nothing of it in the cache", self.verb(4, "show", REPO))
        link = self.repo / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf"
        self.assertEqual(self.verb(0, "pull", REPO), f"{link}\n")
        self.verb(0, "pull", f"{REPO}:Q8_0")
        self.assertEqual([line.split()[0] for line in self.verb(0, "list").splitlines()],
                         [f"{REPO}:a/tiny.Q8_0.gguf", f"{REPO}:tiny-Q4_K_M.gguf"])
        self.assertIn("2.", self.verb(0, "list"))
        self.assertIn("general.architecture", self.verb(0, "show", REPO))
        options = ["--chat-template", "zephyr", "-n", "4", "--temp", "0"]
        answer = self.verb(0, "run", REPO, "Once", *options)
        self.assertEqual(answer, self.verb(0, str(link), "--chat", "-p", "Once", *options))
        self.assertEqual(answer, self.verb(0, "run", str(link), "Once", *options))
        (self.folder / "list").write_bytes(MODEL)  # a file of that name is a model
        self.assertTrue(self.verb(0, "list", "-p", "Once", "-n", "2"))
        (self.folder / "list").unlink()
        self.verb(0, "rm", REPO)
        self.assertEqual([line.split()[0] for line in self.verb(0, "list").splitlines()], [f"{REPO}:a/tiny.Q8_0.gguf"])
        self.assertEqual(self.blobs(), {digest(OTHER): len(OTHER)})
        self.verb(0, "rm", f"{REPO}:Q8_0")
        self.assertEqual((self.verb(0, "list"), self.blobs()), ("", {}))
        self.assertIn("llmrun: error", self.verb(4, "rm", REPO))
        for verb in ("pull", "run"):
            self.assertIn("MODEL", self.verb(2, verb))

    def test_quantizations(self):
        for name, file in ((":q8_0", "a/tiny.Q8_0.gguf"), (":Q4_K_M", "tiny-Q4_K_M.gguf"), (":ud-q4_k_xl", "tiny-UD-Q4_K_XL.gguf"),
                           (":tiny-q4_k_m.gguf", "tiny-Q4_K_M.gguf")):
            self.run_tool(REPO + name, 0, str(self.repo / "snapshots" / COMMIT / file))
        for missing in (":Q4_K", ":Q2_K", ":MMPROJ"):
            self.run_tool(REPO + missing, 2, REPO, f"found no {missing[1:]} there", "a/tiny.Q8_0.gguf, ")
        self.hub.files = {f"{REPO}/b-Q5_K_M.gguf": MODEL, f"{REPO}/a-Q6_K.gguf": OTHER}
        self.run_tool(REPO, 0, "a-Q6_K.gguf")  # the first where there is no Q4_K_M
        self.hub.files = {f"{REPO}/README.md": b"words"}
        self.run_tool(REPO, 2, "found no *.gguf there")

    def test_every_tool_that_takes_a_model(self):
        for tool in ("llmbench", "llmcheck", "llmload", "llmrun", "llmtok"):
            self.run_tool(REPO, 0, "tiny-Q4_K_M.gguf", tool=tool)
            self.run_tool("x", 2, "-hf: found", tool=tool)
        server = self.start(REPO, tool="llmserve")
        self.assertIn("http://", server.stdout.readline())
        server.terminate()
        self.assertIn("tiny-Q4_K_M:", server.communicate(timeout=300)[1])
        self.assertEqual(self.fetched(), ["tiny-Q4_K_M.gguf"])

    def test_names(self):
        for name in ("x", "/x", "x/", "a/b/c", "a/../b", "a/b:", "a/b:../c", "a b/c", "a/.b", "https://x/y"):
            self.run_tool(name, 2, "-hf: found", "need owner/repo or owner/repo:QUANT")
        self.assertEqual(self.hub.tokens["front"], [])
        process = self.start(REPO, "-m", "x.gguf")
        self.assertIn("-hf: found together with a different model, need only one", process.communicate()[1])
        self.assertEqual(process.returncode, 2)

    def test_cut_connections_go_on_by_range(self):
        self.hub.faults[FILE] = ["cut:700000", "500", "cut:300000", "429"]
        self.run_tool(REPO, 0)
        self.assertEqual([wanted for _, wanted in self.hub.requests],
                         ["", "bytes=700000-", "bytes=700000-", "bytes=1000000-", "bytes=1000000-"])
        self.assertEqual(self.blobs(), {digest(MODEL): len(MODEL)})

    def test_killed_process_goes_on_by_range(self):
        process, part = self.start_slowly()
        process.kill()
        process.communicate()
        size = part.stat().st_size
        self.assertLess(size, len(MODEL))
        self.run_tool(REPO, 0)
        self.assertEqual(self.hub.requests[-1][1], f"bytes={size}-")
        self.assertEqual(self.blobs(), {digest(MODEL): len(MODEL)})

    def test_parts_of_something_else_are_fetched_anew(self):
        part = self.repo / f"blobs/{digest(MODEL)}.incomplete"
        part.parent.mkdir(parents=True)
        for content, faults, requests in ((b"x" * 1000, [], 2), (MODEL[:1000], ["no-range"], 1), (b"x" * len(MODEL), [], 1),
                                          (MODEL + b"x", [], 1)):
            self.hub.requests.clear()
            self.hub.faults[FILE] = list(faults)
            part.write_bytes(content)
            self.run_tool(REPO, 0)
            self.assertEqual(self.blobs(), {digest(MODEL): len(MODEL)})
            self.assertEqual(len(self.hub.requests), requests)
            (part.with_suffix("")).unlink()

    def test_wrong_content_is_refused_and_removed(self):
        self.hub.faults[FILE] = ["wrong"]
        for begin in (b"", b"x" * 1000):
            if begin:
                (self.repo / f"blobs/{digest(MODEL)}.incomplete").write_bytes(begin)
            self.run_tool(REPO, 8, "SHA-256: found ", f"need {digest(MODEL)}")
            self.assertEqual(self.blobs(), {})
            self.assertFalse((self.repo / "snapshots").exists())
        self.assertEqual(len(self.hub.requests), 3)  # what was resumed is fetched once more

    def test_refusals(self):
        self.run_tool("maker/nothing", 4, "/api/models/maker/nothing/revision/main", "found status 404", "no such repository")
        self.hub.gated.add(REPO)
        self.run_tool(REPO, 4, "found status 401 (GatedRepo)", f"agree to its terms at {self.hub.url}/{REPO}", "HF_TOKEN")
        self.run_tool(REPO, 4, "found status 403 (GatedRepo)", HF_TOKEN="other")
        self.assertEqual(self.blobs(), {})
        self.hub.tokens["front"].clear()
        self.run_tool(REPO, 0, HF_TOKEN="secret")
        self.assertEqual(self.hub.tokens, {"front": [True, True], "content": [False]})  # never to another host
        self.run_tool(REPO, 2, "HF_ENDPOINT: found", HF_ENDPOINT="file:///etc")

    def test_bodies_and_headers_without_end_are_not_read(self):
        for status, words in (("404", "found status 404"), ("401", "found status 401"), ("503", "found status 503"),
                              ("200", "need at most 67108864"),
                              ("302", "found status 404")):  # followed, and its body left
            self.hub.front_faults = [f"endless:{status}"]
            self.run_tool(REPO, 4, "/api/models/", words)
        self.hub.front_faults = ["headers"]
        self.run_tool(REPO, 4, "bytes of headers or more, need at most 262144")
        self.assertEqual(self.fetched(), [])
        for status in ("404", "403"):
            self.hub.faults[FILE] = [f"endless:{status}"]
            self.run_tool(REPO, 4, f"found status {status}")
        self.hub.faults[FILE] = ["endless:200"]
        self.run_tool(REPO, 8, f"bytes or more, need {len(MODEL)}")
        self.assertEqual(self.blobs(), {})

    def test_downloads_that_do_not_go_on_end(self):
        # More bytes each time, and never more than the next time begins anew for.
        for more in (7, 200000):
            self.hub.requests.clear()
            self.hub.dripped = 1000
            self.hub.faults[FILE] = [f"drip:{more}"]
            err = self.run_tool(REPO, 4, f"bytes, need {len(MODEL)}")
            self.assertIn(f"no try made progress: found {self.hub.dripped} bytes", err)
            self.assertLessEqual(len(self.hub.requests), 6)
            shutil.rmtree(self.repo)
        # The same by ranges: a try that brings little is none.
        self.hub.faults[FILE] = ["cut:10"] * 50
        self.run_tool(REPO, 4, f"found 40 bytes, need {len(MODEL)}")
        self.hub.faults[FILE] = ["short"]
        self.run_tool(REPO, 4, f"found {len(MODEL) - 5} bytes, need {len(MODEL)}")

    def test_what_a_killed_process_leaves_is_taken_up(self):
        link = self.repo / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf"
        link.parent.mkdir(parents=True)
        left = Path(f"{link}.llm.tmp")
        left.symlink_to("../../blobs/0")
        kept = Path(f"{link}.tmp")
        kept.write_bytes(b"theirs")
        self.run_tool(REPO, 0)
        self.assertFalse(left.is_symlink())
        self.assertEqual(kept.read_bytes(), b"theirs")
        self.assertEqual(link.read_bytes(), MODEL)

    def test_the_beginning_of_what_the_hub_lists_no_more_is_removed(self):
        process, part = self.start_slowly()
        process.send_signal(signal.SIGSTOP)  # it lives, and holds its lock
        theirs = self.repo / f"blobs/{digest(b'x')}.incomplete"
        theirs.write_bytes(b"x")
        (self.cache / f".locks/models--maker--tiny-GGUF/{digest(b'x')}.lock").write_bytes(b"")
        del self.hub.files[FILE]
        self.run_tool(f"{REPO}:Q8_0", 0)
        self.assertTrue(part.exists())
        process.kill()
        process.communicate()
        self.run_tool(f"{REPO}:Q8_0", 0)
        self.assertEqual(self.blobs(), {digest(OTHER): len(OTHER), theirs.name: 1})

    def test_listings_that_lie_are_refused(self):
        for listing, words in ((b"[" * 3000000, "found a response that is not that of a hub"),
                               (b'{"sha":"' + COMMIT.encode() + b'","siblings":[{"rfilename":"a.gguf","lfs":{"size":-1,"sha256":"' + b"a" * 64 +
                                b'"}}]}', "size: found -1 of a.gguf, need an integer from 0 on"),
                               (b'{"sha":"' + COMMIT.encode() + b'","siblings":[{"rfilename":"a.gguf","lfs":{"size":1e300,"sha256":"' +
                                b"a" * 64 + b'"}}]}', "size: found 1e+300 of a.gguf")):
            self.hub.front_faults = [listing]
            self.run_tool(REPO, 3, words)
        self.assertEqual(self.fetched(), [])

    def test_answers_that_name_places_outside_of_the_cache(self):
        self.hub.files[f"{REPO}/../../../../evil-Q3_K.gguf"] = MODEL
        self.run_tool(f"{REPO}:Q3_K", 2, "found no Q3_K there")
        self.assertEqual(list(self.folder.rglob("*evil*")), [])

    def test_split(self):
        parts = self.folder / "parts"
        parts.mkdir()
        source = ROOT / "models/fable-3m-q4_k_m.gguf"
        subprocess.run([BIN / "llmgguf", "split", source, parts / "big-Q5_K_M", "--parts", "3"], check=True, capture_output=True)
        self.hub.files = {f"{REPO}/Q5_K_M/{path.name}": path.read_bytes() for path in parts.iterdir()}
        self.run_tool(f"{REPO}:Q5_K_M", 0, "big-Q5_K_M-00001-of-00003.gguf", tool="llmrun")
        self.assertEqual(sorted(self.blobs()), sorted(digest(data) for data in self.hub.files.values()))
        self.run_tool(REPO, 0, "00001-of-00003", HF_HUB_OFFLINE="1")
        del self.hub.files[f"{REPO}/Q5_K_M/big-Q5_K_M-00002-of-00003.gguf"]
        self.run_tool(REPO, 3, "Q5_K_M/big-Q5_K_M-00002-of-00003.gguf: found no such part")

    def test_without_the_hub(self):
        self.run_tool(REPO, 2, "found HF_HUB_OFFLINE set and no such model in the cache", HF_HUB_OFFLINE="1")
        self.run_tool(f"{REPO}:Q8_0", 0)
        asked = len(self.hub.tokens["front"])
        self.run_tool(REPO, 0, "a/tiny.Q8_0.gguf", HF_HUB_OFFLINE="1")
        self.assertEqual(len(self.hub.tokens["front"]), asked)
        self.run_tool(f"{REPO}:Q8_0", 0, "warning", "; using ", "a/tiny.Q8_0.gguf", HF_ENDPOINT="http://127.0.0.1:9")
        self.run_tool(f"{REPO}:Q4_K_M", 4, "http://127.0.0.1:9/api/models", HF_ENDPOINT="http://127.0.0.1:9")

    def test_two_processes_fetch_once(self):
        self.hub.faults[FILE] = ["slow"]
        both = [self.start(REPO) for _ in range(2)]
        said = [process.communicate(timeout=300)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        self.assertEqual(len(self.hub.requests), 1)
        self.assertEqual(sum("another process downloads tiny-Q4_K_M.gguf" in text for text in said), 1)


if __name__ == "__main__":
    unittest.main(buffer=True)
