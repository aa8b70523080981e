#!/usr/bin/env python3
"""A public model against what transformers computes with it (tests/golden/real/make_real.py): token ids, greedy texts with
logits, perplexity; and against our own hashes of all logits, for both kinds of activations.

    python3 tests/public_models/check.py BIN_DIR MODEL.gguf FOLDER [-t THREADS] [--freeze]

Prints a line for each, `PASS` or `FAIL`. Exit code 0, 1 when one failed, 2 when the folder is no reference. --freeze writes our
hashes into the folder's facts.json instead of checking them: for a new version of the numeric contract only.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PERPLEXITY_MAY_DIFFER = 1e-4  # relative; f32 sums in another order
HASHED = ("Once upon a time", "16")  # prompt, tokens
COMPUTE = ("int8", "f32")


class Checks:
    def __init__(self, args: argparse.Namespace):
        self.bin, self.model, self.folder, self.threads = args.bin, str(args.model), args.folder, str(args.threads)
        self.facts = json.loads((args.folder / "facts.json").read_text())
        self.failed = False

    def tool(self, name: str, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(self.bin / name), self.model, *arguments], capture_output=True, text=True, errors="replace")

    def say(self, good: bool, what: str, started: float) -> None:
        self.failed |= not good
        print(f"{'PASS' if good else 'FAIL'} {what}  ({time.monotonic() - started:.1f} s)", flush=True)

    def exit_code(self, what: str, name: str, *arguments: str) -> None:
        """A check that the tool itself judges."""
        started = time.monotonic()
        done = self.tool(name, *arguments)
        lines = (done.stderr if done.returncode > 1 else done.stdout).strip().splitlines()
        reason = "" if done.returncode == 0 else f": exit code {done.returncode}: " + "; ".join(
            line for line in lines if done.returncode > 1 or "FAIL" in line or "differ" in line)[:500]
        self.say(done.returncode == 0, what + reason, started)

    def perplexity(self) -> None:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            done = self.tool("llmcheck", "--ppl", str(self.folder / "text.txt"), "--ppl-window", str(self.facts["window"]),
                             "--compute", "f32", "-t", self.threads, "-q", "--report", str(report))
            rows = []
            if done.returncode == 0:
                tables = json.loads(report.read_text())["figures"]
                rows = next((table["rows"] for table in tables if table["name"] == "perplexity"), [])
        if not rows:
            return self.say(False, f"perplexity: exit code {done.returncode}: {done.stderr.strip()}", started)
        found, need, tokens = rows[0]["perplexity"], self.facts["perplexity"], rows[0]["tokens"]
        good = abs(found / need - 1) <= PERPLEXITY_MAY_DIFFER and tokens == self.facts["tokens"]
        self.say(good, f"perplexity in f32: found {found:.6f} of {tokens} tokens, transformers {need:.6f} of {self.facts['tokens']}",
                 started)

    def logits_hash(self, compute: str) -> str:
        """The hash, or what went wrong."""
        done = self.tool("llmrun", "-p", HASHED[0], "-n", HASHED[1], "--temp", "0", "--compute", compute, "--logits-hash",
                         "-t", self.threads, "-q")
        match = re.search(r"^logits-sha256: ([0-9a-f]{64})$", done.stderr, re.M)
        return match[1] if match else f"exit code {done.returncode}: {done.stderr.strip()}"

    def hashes(self, freeze: bool) -> None:
        for compute in COMPUTE:
            started = time.monotonic()
            found = self.logits_hash(compute)
            need = self.facts.setdefault("logits_hash", {}).get(compute)
            if freeze and len(found) == 64:
                self.facts["logits_hash"][compute] = need = found
            self.say(found == need, f"all logits, {compute}: {found if found == need else f'found {found}, need {need}'}", started)
        if freeze:
            (self.folder / "facts.json").write_text(json.dumps(self.facts, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--freeze", action="store_true")
    args = parser.parse_args()
    try:
        checks = Checks(args)
    except (OSError, ValueError) as error:
        print(f"check.py: error: {args.folder}: {error}", file=sys.stderr)
        return 2
    checks.exit_code("token ids of texts", "llmtok", "--check", str(args.folder / "tokens.jsonl"))
    checks.exit_code("greedy texts and logits", "llmcheck", "--verify", str(args.folder / "verify.json"), "-t", checks.threads, "-q")
    checks.perplexity()
    checks.hashes(args.freeze)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
