"""What the tests of the nightly job share: a small source tree with models, fake tools, a hub."""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(HERE)]

from hub import Hub  # noqa: E402
from nightly import history, lock, run  # noqa: E402
from nightly.checks import CHECKS  # noqa: E402
from nightly.manifest import Manifest, Model, load  # noqa: E402
from nightly.fetch import File, Place, Source, resolve  # noqa: E402

HUB_FILES = {"maker/models/b-q4.gguf": bytes(range(256)) * 4000, "maker/models/b-q8.gguf": b"big" * 300000}


class Tree(unittest.TestCase):
    """A tree in a temporary folder, with one local model and two on the hub."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="nightly-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "tree"
        (self.root / "models").mkdir(parents=True)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for tool in ("llmcheck", "llmgguf", "llmbench", "llmrun", "llmtok"):
            shutil.copy(HERE / "fake_tool.sh", self.bin / tool)
        self.hub = Hub(dict(HUB_FILES))
        self.addCleanup(self.hub.close)
        self.manifest = self.make_manifest()

    def make_manifest(self) -> Manifest:
        (self.root / "text.txt").write_text("Once upon a time")
        (self.root / "models/a.gguf").write_bytes(b"local model")
        (self.root / "ref.json").write_text("{}")
        reference = {"path": "root/ref.json"}
        local = Model("a", "a", path="models/a.gguf", references={"verify": reference, "quality": reference},
                      figures={"ppl": {"perplexity": 1.25}})
        remote = [Model(f"b-{t}", "b", repository="maker/models", revision="main", file=f"b-{t}.gguf",
                        size=len(HUB_FILES[f"maker/models/b-{t}.gguf"]),
                        sha256=hashlib.sha256(HUB_FILES[f"maker/models/b-{t}.gguf"]).hexdigest()) for t in ("q4", "q8")]
        Manifest(self.root / "models.lock", "text.txt", {"b": "b-q8"}, [local, *remote]).save()
        return load(self.root / "models.lock")

    def place(self, state: str = "state") -> Place:
        return Place(self.root, self.bin, self.folder / state)

    def options(self, **changes) -> run.Options:
        values = {"models": self.manifest.models, "checks": list(CHECKS), "source": self.source(), "threads": 1,
                  "timeout": 60.0, **changes}
        return run.Options(**values)

    def run_once(self, state: str = "state", **changes) -> tuple[int, history.RunRecord]:
        """A whole run in this process: exit code and record."""
        code = run.run(self.manifest, self.place(state), self.options(**changes))
        return code, history.load(self.folder / state / "history.jsonl")[-1]

    def fault(self, check: str, code: str) -> None:
        (self.bin / f"fault-{check}").write_text(code)

    def spawn(self, *arguments: str, state: str = "state") -> subprocess.Popen:
        command = [sys.executable, "-m", "nightly", "--root", self.root, "--lock", self.root / "models.lock", "--bin", self.bin,
                   "--state", self.folder / state, "--hub", self.hub.url, *arguments]
        return subprocess.Popen(command, cwd=ROOT / "tools", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def nightly(self, *arguments: str, state: str = "state") -> tuple[int, str]:
        """The exit code and all that is printed."""
        process = self.spawn(*arguments, state=state)
        words = process.communicate()[0]
        return process.returncode, words

    def locker(self, update: bool = False) -> lock.Locker:
        return lock.Locker(self.place(), self.source(), update)

    def source(self, offline: bool = False) -> Source:
        return Source(self.hub.url, offline, tries=1)

    def resolved(self, offline: bool = False) -> dict[str, File]:
        return resolve(self.manifest, self.place(), self.source(offline))

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def result_json(self, state: str = "state") -> dict:
        return json.loads((self.folder / state / "result.json").read_text())
