#!/usr/bin/env python3
"""What an audit of a receipt costs (docs/receipts.md), against making the text and against a replay.

    python3 tests/public_models/audit.py BIN_DIR MODEL.gguf [-t THREADS] [--runs N]

Prints for texts of 64, 256 and 1024 tokens the median and the spread of seconds, taken in turns: of making (prefill and decode, without loading), a replay and
an audit (both as they report it; `packed`: of
weights that are not packed first, but mapped from a packed cache), of the whole processes, and of the maker's two prefills. Exit code 1 where an audit failed. Figures are of this machine and its load.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LENGTHS = (64, 256, 1024)


def run(*command) -> tuple[str, float]:
    """What it printed, and the seconds it took."""
    started = time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout, time.monotonic() - started


def made_in(stdout: str) -> float:
    stats = json.loads(stdout)["stats"]
    return stats["prefill_ms"] / 1000 + stats["decode_tokens"] / stats["decode_tokens_per_s"]


def reported(stdout: str, fact: str) -> float:
    return float(re.search(rf"^{fact} .* in ([0-9.]+) s", stdout, re.M)[1])


def arguments(description: str, runs: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=runs)
    return parser.parse_args()


def main() -> None:
    args = arguments(__doc__, 7)
    check = (args.bin / "llmcheck", args.model, "-t", args.threads)
    with tempfile.TemporaryDirectory() as folder:
        receipt, opening = Path(folder, "r.json"), Path(folder, "o.bin")
        run(*check, "-p", "a", "--dump", Path(folder, "d.npz"), "--packed-cache", folder)  # makes the cache
        for n in LENGTHS:
            seconds: dict[str, list[float]] = {}
            for i in range(args.runs):
                make = (args.bin / "llmrun", args.model, "-p", "Once upon a time", "-n", n, "-s", "7", "--temp", "0.8", "--ignore-eos", "-q", "--json",
                        "-t", args.threads)
                audit = (*check, "--audit", receipt, "--challenge", os.urandom(16).hex())
                out, process = run(*make)
                _, with_rows = run(*make, "--receipt", receipt, "--receipt-rows")
                _, opened = run(*audit, "--make-opening", opening)
                replay, _ = run(*check, "--replay", receipt)
                audited, audit_process = run(*audit, "--opening", opening)
                packed, _ = run(*audit, "--opening", opening, "--packed-cache", folder)
                for name, value in (("making", made_in(out)), ("audit", reported(audited, "audited")),
                                    ("audit, packed", reported(packed, "audited")), ("replay", reported(replay, "replayed")),
                                    ("llmrun", process), ("llmcheck --audit", audit_process), ("llmrun --receipt-rows", with_rows),
                                    ("llmcheck --make-opening", opened)):
                    seconds.setdefault(name, []).append(value)
            print(f"{n} tokens, opening of {opening.stat().st_size / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}")
            for name, values in seconds.items():
                print(f"  {name:24} {statistics.median(values):.4f} s  ({min(values):.4f} to {max(values):.4f})")
            for one, other in (("audit", "making"), ("audit, packed", "making"), ("replay", "making"), ("llmcheck --audit", "llmrun")):
                ratio = statistics.median(seconds[one]) / statistics.median(seconds[other])
                print(f"  {one} / {other}: {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
