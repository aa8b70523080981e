#!/usr/bin/env python3
"""Runs `llmcheck --layer-diff` over the corpus of foreign models (make.py); standard library only.

    tests/foreign/run.py CORPUS_DIR --bin build/release/bin [--quick] [--jobs N] [--only REGEX] [--reports DIR]

Clean cases: a line for each, with the tap nearest to its limit (the figure, and its limit), and exit code 1 if any
FAILs. Files with a greedy text by transformers are continued by llmrun (families.py).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from families import check_families

TIMEOUT = 1800
VERDICTS = {0: "PASS", 1: "FAIL"}


@dataclass(frozen=True)
class Nearest:
    """The tap of a report that is nearest to, or farthest beyond, one of its limits."""

    name: str
    metric: str
    figure: float
    limit: float

    @property
    def share(self) -> float:
        return self.figure / self.limit

    def __str__(self) -> str:
        return f"{self.name} {self.metric} {self.figure:.2e} of {self.limit:.2e}"


@dataclass(frozen=True)
class Outcome:
    case: dict
    verdict: str  # PASS, FAIL, or what kept llmcheck from a verdict
    nearest: Nearest | None
    sections: tuple[str, ...]  # those that FAIL
    words: str  # stderr


def nearest_of(report: dict) -> Nearest | None:
    """Over all taps that are judged. Metrics are smaller when better; a limit of 0 (equal bits) counts if broken."""
    found = []
    for section in report["layer_diffs"]:
        for row in section["rows"]:
            if row["verdict"] == "shown":
                continue
            place = "G" if row["layer"] is None else f"L{row['layer']:03}"
            for limit in row["limits"]:
                figure, bound = row.get(limit["metric"]), limit["limit"]
                if figure is None or bound is None or (bound == 0 and figure == 0):
                    continue
                found.append(Nearest(f"{section['name']} {place}/{row['tap']}", limit["metric"], figure,
                                     bound or sys.float_info.min))
    return max(found, key=lambda nearest: nearest.share, default=None)


def run_case(binary: Path, corpus: Path, case: dict, reports: Path) -> Outcome:
    report = reports / f"{case['name']}.json"
    report.unlink(missing_ok=True)
    run = subprocess.run(
        [str(binary), str(corpus / case["model"]), "--layer-diff", str(corpus / case["reference"]), "-q", "-t", "1",
         "--report", str(report)], capture_output=True, text=True, timeout=TIMEOUT)
    verdict = VERDICTS.get(run.returncode, f"exit code {run.returncode}")
    if not report.exists():
        return Outcome(case, verdict, None, (), run.stderr.strip())
    content = json.loads(report.read_text(encoding="utf-8"))
    failing = tuple(s["name"] for s in content["layer_diffs"] if s["verdict"] == "FAIL")
    return Outcome(case, verdict, nearest_of(content), failing, run.stderr.strip())


def line_of(outcome: Outcome) -> str:
    case = outcome.case
    tokens = f"{case['tokens'] - case['single']}+{case['single']}" if case["single"] else str(case["tokens"])
    return (f"{case['shape']['name']:<15} {case['variation']:<16} {case['type']:<7} {tokens:>6}  {outcome.verdict:<4}  "
            f"{outcome.nearest or outcome.words}" + (f"  [{', '.join(outcome.sections)}]" if outcome.sections else ""))


def print_totals(outcomes: list[Outcome]) -> None:
    """Passes by variation and by type, then over all."""
    for of in ("variation", "type"):
        groups: dict[str, list[bool]] = {}
        for outcome in outcomes:
            groups.setdefault(outcome.case[of], []).append(outcome.verdict == "PASS")
        print(f"by {of}: " + ", ".join(f"{name} {sum(good)}/{len(good)}" for name, good in sorted(groups.items())))
    sections: dict[str, int] = {}
    for outcome in outcomes:
        for section in outcome.sections:
            sections[section] = sections.get(section, 0) + 1
    if sections:
        print("runs that FAIL: " + ", ".join(f"{name} {count}" for name, count in sorted(sections.items())))


def clean(binary: Path, corpus: Path, chosen: list[dict], jobs: int, reports: Path) -> bool:
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(lambda case: run_case(binary, corpus, case, reports), chosen):
            outcomes.append(outcome)
            print(line_of(outcome), flush=True)
    print()
    print_totals(outcomes)
    failed = sum(outcome.verdict != "PASS" for outcome in outcomes)
    print(f"clean cases that FAIL: {failed}/{len(outcomes)} (need 0)")
    return failed == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--bin", type=Path, required=True, help="directory of llmcheck")
    parser.add_argument("--quick", action="store_true", help="one case of each shape")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="cases whose name has a match")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep the JSON reports there")
    args = parser.parse_args()
    cases = json.loads((args.corpus / "corpus.json").read_text(encoding="utf-8"))["cases"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        reports = args.reports or Path(scratch)
        reports.mkdir(parents=True, exist_ok=True)
        chosen = [case for case in cases if (case["quick"] or not args.quick)
                  and (args.only is None or args.only.search(case["name"]))]
        good = clean(args.bin / "llmcheck", args.corpus, chosen, args.jobs, reports) and bool(chosen)
        good = check_families(args.bin / "llmrun", args.corpus, chosen, args.jobs) and good
    print(f"{'PASS' if good else 'FAIL'} ({time.monotonic() - started:.0f} s)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
