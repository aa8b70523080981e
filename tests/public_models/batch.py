#!/usr/bin/env python3
"""What it costs to check 64 receipts at once (docs/receipts.md), against making them one by one.

    python3 tests/public_models/batch.py BIN_DIR MODEL.gguf [-t THREADS] [--runs N]

Prompts of 14 to 50 words, texts of 64 to 128 tokens, half of them greedy. Prints for each run, and as medians, the seconds of making (prefill and decode,
without loading), of `llmcheck --replay` as it reports it, and of the whole processes. Exit code 1 where one does not pass. Figures are of this machine and its load.
"""

import random
import statistics
import tempfile
from pathlib import Path

from audit import arguments, made_in, reported, run

WORDS = "the river old town small fox mountain letter winter garden music stone bread night lamp road friend story window sea".split()


def main() -> None:
    args = arguments(__doc__, 5)
    chance = random.Random(1)
    texts = [(" ".join(chance.choices(WORDS, k=chance.randint(14, 50))), chance.randint(64, 128)) for _ in range(64)]
    ratios = []
    for _ in range(args.runs):
        making = processes = 0.0
        with tempfile.TemporaryDirectory() as folder:
            for i, (prompt, n) in enumerate(texts):
                drawn = ("-s", i) if i % 2 else ("--temp", "0")
                out, seconds = run(args.bin / "llmrun", args.model, "-q", "--json", "-p", prompt, "-n", n, "--ignore-eos", *drawn, "-t", args.threads,
                                   "--receipt", Path(folder, f"{i:02}.json"))
                making, processes = making + made_in(out), processes + seconds
            out, seconds = run(args.bin / "llmcheck", args.model, "--replay", folder, "-t", args.threads)
        checked = reported(out, "replayed")
        ratios.append((checked / making, seconds / processes))
        print(f"made in {making:.2f} s, checked in {checked:.2f} s: {ratios[-1][0]:.3f}; processes {processes:.2f} s and {seconds:.2f} s: {ratios[-1][1]:.3f}", flush=True)
    for name, values in zip(("checking / making", "processes"), zip(*ratios)):
        print(f"{name}: {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
