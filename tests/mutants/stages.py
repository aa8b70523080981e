#!/usr/bin/env python3
"""Plants a bug for each stage of `llmcheck --stages` and looks whether that stage is the first to fail.

    tests/mutants/stages.py MUTANTS_BIN CLEAN_BIN WORK_DIR

As kill_matrix.py. Exit code 1 when another stage, or none, fails first, or when a stage fails without a bug.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import STEPS, TIMEOUT, Bench

# What is planted, into which file, and the check that must be the only FAIL.
PLANTED = (
    ("", "F16", ""),
    ("uninitialized_row", "F16", "stage 1, embedding"),
    ("rope_theta", "F16", "stage 2, layer 0"),
    ("layer_weights", "F16", "stage 3, all layers"),
    ("decode_position", "Q4_K_M", "stage 4, second token (KV cache)"),
    ("tensor:role=output.weight:takes=token_embd.weight", "F16", "stage 5, logits"),
    ("logits_row", "F16", "stage 6, text"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("mutants_bin", "clean_bin", "work_dir"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    bench = Bench(options.mutants_bin.resolve(), options.clean_bin.resolve(), options.work_dir.resolve())
    bench.prepare({(kind, STEPS) for _, kind, _ in PLANTED})
    report = bench.work / "stages.json"
    wrong = 0
    for planted, kind, stage in PLANTED:
        report.unlink(missing_ok=True)
        subprocess.run([str(bench.planted / "llmcheck"), str(bench.model(kind)), "-q", "-t", "1", "--stages",
                        str(bench.reference(kind)), "--report", str(report)], capture_output=True, check=False,
                       timeout=TIMEOUT, env=dict(os.environ, LLM_MUTANT=planted))
        checks = json.loads(report.read_text(encoding="utf-8"))["checks"] if report.exists() else []
        failed = [check["name"] for check in checks if check["verdict"] == "FAIL"]
        right = bool(checks) and failed == ([stage] if stage else [])
        wrong += not right
        words = next((check["detail"] for check in checks if check["verdict"] == "FAIL"), "every stage passes")
        print(f"{planted or 'no bug'}: {', '.join(failed) or '-'}: {words}" + ("" if right else f"\n    need {stage or 'none'}"))
    print(f"{'FAIL' if wrong else 'PASS'}: {len(PLANTED) - wrong} of {len(PLANTED)} stages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
