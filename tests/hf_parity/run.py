#!/usr/bin/env python3
"""Runs the tools over the corpus of foreign models (make.py); standard library only.

    tests/hf_parity/run.py CORPUS_DIR --bin build/release/bin [--quick] [--jobs N] [--only REGEX] [--reports DIR]

A line for each case of `llmcheck --layer-diff`, with the tap nearest to its limit (the figure, and its limit). Files with a
greedy text by transformers are continued by llmrun: the same tokens in f32, and one hash of all logits however they are
computed. Exit code 1 if anything FAILs.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 1800
UNQUANTIZED = ("F32", "F16")  # types that hold the checkpoint's own weights
VERDICTS = {0: "PASS", 1: "FAIL"}
ISAS = ("scalar", "avx2", "avx512", "avxvnni", "avx512vnni", "amx")
SPLITS = ((1, 512), (2, 1), (3, 7))  # threads and batch
HASHED_TOKENS = 8
UNSUPPORTED = 6  # exit code: an instruction set that this CPU lacks


@dataclass(frozen=True)
class Outcome:
    case: dict
    verdict: str  # PASS, FAIL, or what kept llmcheck from a verdict
    words: str  # the tap that is nearest to, or farthest beyond, one of its limits, or stderr
    sections: tuple[str, ...]  # those that FAIL


def nearest_of(report: dict) -> str:
    """Over all taps that are judged. Metrics are smaller when better; a limit of 0 (equal bits) counts if broken."""
    nearest, words = -1.0, ""
    for section in report["layer_diffs"]:
        for row in section["rows"]:
            for limit in row["limits"] if row["verdict"] != "shown" else ():
                figure, bound = row.get(limit["metric"]), limit["limit"]
                if figure is None or bound is None or (bound == 0 and figure == 0):
                    continue
                if (share := figure / (bound or sys.float_info.min)) > nearest:
                    place = "G" if row["layer"] is None else f"L{row['layer']:03}"
                    nearest, words = share, f"{section['name']} {place}/{row['tap']} {limit['metric']} {figure:.2e} of {bound:.2e}"
    return words


def layer_diff(binary: Path, corpus: Path, case: dict, reports: Path) -> Outcome:
    report = reports / f"{case['name']}.json"
    report.unlink(missing_ok=True)
    run = subprocess.run(
        [str(binary), str(corpus / case["model"]), "--layer-diff", str(corpus / case["reference"]), "-q", "-t", "1",
         "--report", str(report)], capture_output=True, text=True, timeout=TIMEOUT)
    verdict = VERDICTS.get(run.returncode, f"exit code {run.returncode}")
    if not report.exists():
        return Outcome(case, verdict, run.stderr.strip(), ())
    content = json.loads(report.read_text(encoding="utf-8"))
    failing = tuple(s["name"] for s in content["layer_diffs"] if s["verdict"] == "FAIL")
    return Outcome(case, verdict, nearest_of(content) or run.stderr.strip(), failing)


def print_outcome(outcome: Outcome) -> None:
    case = outcome.case
    tokens = f"{case['tokens'] - case['single']}+{case['single']}" if case["single"] else str(case["tokens"])
    print(f"{case['shape']['name']:<15} {case['variation']:<16} {case['type']:<7} {tokens:>6}  {outcome.verdict:<4}  {outcome.words}"
          + (f"  [{', '.join(outcome.sections)}]" if outcome.sections else ""), flush=True)


def print_totals(outcomes: list[Outcome]) -> None:
    """Passes by variation and by type, then over all."""
    for of in ("variation", "type"):
        groups: dict[str, list[bool]] = {}
        for outcome in outcomes:
            groups.setdefault(outcome.case[of], []).append(outcome.verdict == "PASS")
        print(f"by {of}: " + ", ".join(f"{name} {sum(good)}/{len(good)}" for name, good in sorted(groups.items())))
    sections = collections.Counter(section for outcome in outcomes for section in outcome.sections)
    if sections:
        print("runs that FAIL: " + ", ".join(f"{name} {count}" for name, count in sorted(sections.items())))


def continue_text(binary: Path, model: Path, prompt: str, n: int, *options: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(binary), str(model), "-p", prompt, "-n", str(n), "--temp", "0", "--ignore-eos",
                           *map(str, options)], capture_output=True, text=True, timeout=TIMEOUT)


def greedy_fault(binary: Path, model: Path, expected: dict) -> str:
    """How the tokens differ from transformers', or an empty text."""
    n = len(expected["greedy"])
    run = continue_text(binary, model, expected["prompt"], n, "--compute", "f32", "--kv", "f32", "-t", 1, "--json")
    if run.returncode != 0:
        return run.stderr.strip()
    out = json.loads(run.stdout)
    for what, found in (("prompt_ids", out["prompt_ids"]), ("greedy", out["ids"])):
        needed = expected[what]
        if found != needed:
            at = next((i for i, pair in enumerate(zip(found, needed)) if pair[0] != pair[1]), min(len(found), len(needed)))
            return f"{what} differ from transformers' at {at}: {found[at:at + 4]}, need {needed[at:at + 4]}"
    return ""


def hash_fault(binary: Path, model: Path, expected: dict) -> str:
    """Which way to compute gives other logits than the first, or an empty text."""
    first = None
    for isa in ISAS:
        for threads, batch in SPLITS:
            run = continue_text(binary, model, expected["prompt"], HASHED_TOKENS, "--isa", isa, "-t", threads, "-b", batch,
                                "--logits-hash")
            if run.returncode == UNSUPPORTED:
                break
            hashes = [line for line in run.stderr.splitlines() if "logits-sha256" in line]
            if run.returncode != 0 or not hashes:
                return run.stderr.strip()
            first = first or hashes
            if hashes != first:
                return f"--isa {isa} -t {threads} -b {batch} gives other logits"
    return ""


def text_faults(binary: Path, corpus: Path, case: dict) -> list[str]:
    expected = json.loads((corpus / case["greedy"]).read_text(encoding="utf-8"))
    model = corpus / case["model"]
    faults = [hash_fault(binary, model, expected)]
    if case["type"] in UNQUANTIZED:
        faults.append(greedy_fault(binary, model, expected))
    return [f"{case['name']}: {fault}" for fault in faults if fault]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--bin", type=Path, required=True, help="directory of llmcheck and llmrun")
    parser.add_argument("--quick", action="store_true", help="one case of each shape")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="cases whose name has a match")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep the JSON reports there")
    args = parser.parse_args()
    cases = [case for case in json.loads((args.corpus / "corpus.json").read_text(encoding="utf-8"))["cases"]
             if (case["quick"] or not args.quick) and (args.only is None or args.only.search(case["name"]))]
    texts = [case for case in cases if case["greedy"]]
    started, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(args.jobs) as pool:
        reports = args.reports or Path(scratch)
        reports.mkdir(parents=True, exist_ok=True)
        for outcome in pool.map(lambda case: layer_diff(args.bin / "llmcheck", args.corpus, case, reports), cases):
            outcomes.append(outcome)
            print_outcome(outcome)
        print()
        print_totals(outcomes)
        failed = sum(outcome.verdict != "PASS" for outcome in outcomes)
        print(f"clean cases that FAIL: {failed}/{len(outcomes)} (need 0)")
        found = pool.map(lambda case: text_faults(args.bin / "llmrun", args.corpus, case), texts)
        faults = [fault for of_case in found for fault in of_case]
    print(*faults, sep="\n")
    greedy = sum(case["type"] in UNQUANTIZED for case in texts)
    print(f"texts of 64 tokens and logits hashes: {greedy} and {len(texts)} files, {len(faults)} faults (need 0)")
    good = bool(cases) and not failed and not faults
    print(f"{'PASS' if good else 'FAIL'} ({time.monotonic() - started:.0f} s)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
