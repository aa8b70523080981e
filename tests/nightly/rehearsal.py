#!/usr/bin/env python3
"""The whole job with the real programs, as it will run on TinyLlama: models of llmsynth in TinyLlama's widths (2 layers), served
by a local hub, locked, with references, held against each other; then a damaged file, then a hub with other bytes.

    build/nightly-venv/bin/python tests/nightly/rehearsal.py [--folder DIR] [--shape tinyllama]

LLM_PYTHON is an interpreter with tests/golden/requirements.txt. Takes minutes.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from support import ROOT, Hub, Manifest, Model

BIN = ROOT / "build/release/bin"
TYPES = ("Q4_0", "Q8_0")
CHECKS = "integrity,verify,layer-diff,ppl,kld,bench"


class Rehearsal:
    def __init__(self, folder: Path, shape: str):
        self.folder, self.lock = folder, folder / "models.lock"
        served = {}
        for kind in TYPES:
            path = folder / "hub/maker/tiny" / f"tiny-{kind}.gguf"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                subprocess.run([BIN / "llmsynth", path, "--shape", shape, "--type", kind, "-q"], check=True)
            served[f"maker/tiny/{path.name}"] = path
        self.hub = Hub(served)
        self.sizes = {name: path.stat().st_size for name, path in served.items()}
        text = ROOT / "tests/nightly/short.txt"
        models = [Model(f"tiny-{k.lower()}", "tiny", repository="maker/tiny", revision="main", file=f"tiny-{k}.gguf")
                  for k in TYPES]
        Manifest(self.lock, str(text.relative_to(ROOT)), {"tiny": "tiny-q8_0"}, models).save()

    def nightly(self, *arguments: str, need: int = 0) -> None:
        command = [sys.executable, "-m", "nightly", *arguments, "--lock", self.lock, "--state", self.folder / "state", "--hub",
                   self.hub.url, "--threads", "1", "--backoff", "0.1"]
        print("$", *arguments, flush=True)
        code = subprocess.run(command, cwd=ROOT / "tools").returncode
        if code != need:
            sys.exit(f"FAIL: {arguments} ended with {code}, need {need}")

    def play(self) -> None:
        first, second = sorted(self.sizes)
        self.nightly("--checks", "integrity", need=2)  # nothing is pinned, so nothing runs
        self.hub.faults = {first: ["500", f"cut:{self.sizes[first] // 3}", "429"], second: ["cut:4096", "no-range"]}
        self.nightly("lock")
        self.nightly("--checks", CHECKS)  # no references yet: skips, integrity passes
        for kind in TYPES:
            self.nightly("references", f"tiny-{kind.lower()}", "--only", "verify,layer-diff,figures", "--steps", "1")
        self.nightly("--checks", CHECKS, "--offline")
        cached = next((self.folder / "state/cache/sha256").glob("*/tiny-Q4_0.gguf"))
        with open(cached, "rb+") as file:  # one bit, at two thirds of the weights
            file.seek(cached.stat().st_size * 2 // 3)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x10]))
        self.nightly("--checks", CHECKS, "--offline", need=1)
        self.hub.faults = {first: ["wrong"]}
        self.nightly("--checks", CHECKS, need=1)  # fetched anew, and the hub has other bytes too
        self.hub.faults = {}
        self.nightly("--checks", CHECKS)
        print(f"PASS: the report is {self.folder / 'state/report.html'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build/nightly-rehearsal")
    parser.add_argument("--shape", default="tinyllama-2l")
    args = parser.parse_args()
    Rehearsal(args.folder.resolve(), args.shape).play()


if __name__ == "__main__":
    main()
