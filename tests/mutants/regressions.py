#!/usr/bin/env python3
"""Plants regressions (regressions.json) and prints which gate turns red, and with which words.

    tests/mutants/regressions.py MUTANTS_BIN CLEAN_BIN WORK_DIR [NAME...]

MUTANTS_BIN holds llmcheck and llmquant built from the copy that plant.py writes, CLEAN_BIN the tools of the tree
(`./dev regressions` does all). For each regression and gate regressions.json has null, green, or a regular expression
for some line of what a red gate says, whose first is printed; a gate that is not named may be either, by chance. Exit code 1 when a gate is not as expected. NAME: only regressions whose name contains
it. Standard library only.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models/fable-3m-q4_k_m.gguf"
MODEL_F16 = ROOT / "models/fable-3m-f16.gguf"
HELDOUT = ROOT / "models/heldout.txt"
GATES = {
    "equivalence": ("--equivalence", ROOT / "validate/text/equivalence/fable-3m-q4_k_m.json"),
    "quality": ("--quality", HELDOUT, "--baseline", ROOT / "validate/text/quality/baselines"),
    "self": ("--self", "--fail-fast"),
}
INTEGRITY = "integrity"
PARALLEL = 2
TIMEOUT = 1800
FLIPPED_BIT = 0x04


@dataclass
class Answer:
    """What a gate said of a regression."""

    red: bool
    words: str  # every failed check's, a line each; of a green gate the last check's


class Workshop:
    """Makes the files and runs the gates."""

    def __init__(self, planted: Path, clean: Path, work: Path):
        self.planted, self.clean, self.work = planted, clean, work
        work.mkdir(parents=True, exist_ok=True)
        self.manifest = work / "embedded.manifest"
        subprocess.run([str(clean / "llmgguf"), "hash", str(MODEL), "-o", str(self.manifest)], check=True, timeout=TIMEOUT,
                       stdout=subprocess.DEVNULL)

    def model(self, regression: dict) -> Path:
        """The file that the regression leaves: the embedded model unless it is about the file."""
        kind = regression.get("file", "")
        if not kind:
            return MODEL
        path = self.work / f"regression-{kind}.gguf"
        if kind == "quantized":
            subprocess.run([str(self.planted / "llmquant"), str(MODEL_F16), str(path), "Q4_K_M", "-q"], check=True,
                           timeout=TIMEOUT, stdout=subprocess.DEVNULL, env=dict(os.environ, LLM_MUTANT=regression["plant"]))
        elif kind == "flipped":
            content = bytearray(MODEL.read_bytes())
            content[len(content) * 3 // 4] ^= FLIPPED_BIT
            path.write_bytes(content)
        else:
            raise ValueError(f"unknown kind of file {kind!r}")
        return path

    def ask(self, regression: dict, gate: str) -> Answer:
        if gate == INTEGRITY:
            run = subprocess.run([str(self.clean / "llmgguf"), "verify", str(regression["path"]), "--manifest", str(self.manifest)],
                                 capture_output=True, text=True, timeout=TIMEOUT, check=False)
            return Answer(run.returncode != 0, first_line(run.stderr if run.returncode else run.stdout))
        report = self.work / f"regression-{regression['index']}-{gate}.json"
        report.unlink(missing_ok=True)
        run = subprocess.run([str(self.planted / "llmcheck"), str(regression["path"]), "-q", "-t", "1", *map(str, GATES[gate]),
                              "--report", str(report)], capture_output=True, text=True, timeout=TIMEOUT, check=False,
                             env=dict(os.environ, LLM_MUTANT=regression["plant"]))
        if not report.exists():
            return Answer(True, first_line(run.stderr))
        checks = json.loads(report.read_text(encoding="utf-8"))["checks"]
        wrong = [check for check in checks if check["verdict"] != "PASS"]
        # The last check of --quality is the one with the smallest difference it sees.
        shown = wrong or checks[-1:]
        return Answer(run.returncode != 0, "\n".join(f"{check['name']}: {check['detail']}" for check in shown))


def first_line(text: str) -> str:
    return text.strip().split("\n")[0]


def problem(expected: str | None, answer: Answer) -> str:
    """What is wrong with an answer; empty when it is as expected."""
    if not answer.red:
        return "" if expected is None else f"green, need red with {expected}"
    if expected is None:
        return "red, need green"
    return "" if re.search(expected, answer.words) else f"red for another reason, need {expected}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutants_bin", type=Path)
    parser.add_argument("clean_bin", type=Path)
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("name", nargs="*", help="only regressions whose name contains it")
    options = parser.parse_args()
    data = json.loads((ROOT / "tests/mutants/regressions.json").read_text(encoding="utf-8"))
    regressions = [r for r in data["regressions"] if not options.name or any(word in r["name"] for word in options.name)]
    if not regressions:
        sys.exit("regressions.py: error: no regression has such a name")
    workshop = Workshop(options.mutants_bin.resolve(), options.clean_bin.resolve(), options.work_dir.resolve())
    for index, regression in enumerate(regressions):
        regression.update(index=index, path=workshop.model(regression))
    gates = [*GATES, INTEGRITY]
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        jobs = {(r["index"], gate): pool.submit(workshop.ask, r, gate) for r in regressions for gate in gates}
        answers = {key: job.result() for key, job in jobs.items()}
    width = max(len(r["name"]) for r in regressions)
    print(f"{'regression':<{width}}  " + "  ".join(f"{gate:<11}" for gate in gates))
    for r in regressions:
        print(f"{r['name']:<{width}}  "
              + "  ".join(f"{'red' if answers[r['index'], gate].red else 'green':<11}" for gate in gates))
    print()
    wrong = 0
    for r in regressions:
        for gate in gates:
            answer = answers[r["index"], gate]
            fault = problem(r["gates"][gate], answer) if gate in r["gates"] else ""
            wrong += bool(fault)
            print(f"{r['name']} / {gate}: {'red' if answer.red else 'green'}: {first_line(answer.words)}")
            if fault:
                print(f"    UNEXPECTED: {fault}")
    print(f"{'FAIL' if wrong else 'PASS'}: {len(answers) - wrong} of {len(answers)} answers are as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
