#!/usr/bin/env python3
"""Judges the checks by generated mutants (generate.py): who finds which class of faults, and who names them.

    tests/mutants/score.py MUTANTS_BIN CLEAN_BIN WORK_DIR [--sample N | --all] [--score] [--seed TEXT] [--jobs N]

MUTANTS_BIN holds llmcheck (with --score, the test programs too) built from the copy that plant.py writes, CLEAN_BIN the
tools built from the tree. A mutant is found when a check fails that passes without it, and named when what the check
says matches the mutant's expression. Without --score a mutant that one check has found is not shown to the next; with it
every check judges every mutant. Results are kept in WORK_DIR/generated.json, so that a run that was stopped goes on;
they are dropped when llmcheck changes. Exit code 1 below 97 % found or 90 % named, of what survivors.txt does not list.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import LONG_TOKENS, ROOT, STEPS, TEXT, TIMEOUT, VERIFY_STEPS, Bench, names_in
from generate import CLASSES, Mutant, generate, missing_isa, sample

FOUND_NEEDED = 0.97
NAMED_NEEDED = 0.90
HELDOUT = ROOT / "models/heldout.txt"
LONG_STEPS = f"{LONG_TOKENS - 1},1"
UNSUPPORTED = 6
MORE_NAMES = 12  # kept of a failing check
# In the order in which they are asked: first the check that needs no reference.
CHECKS = ("layer-diff", "tokenizer", "self", "verify", "quality")
SEED = "7151a05"  # a change is judged by the same sample as the one before it; other runs take others
UNIT_TESTS = ("kernels_test", "kernel_check_test", "quant_test", "executor_test", "engine_test", "sampler_test",
              "generate_test", "tokenizer_tests")


class NotRun(Exception):
    """No earlier run has kept this result."""


class Scorer:
    """Runs checks on mutants and keeps what they said."""

    def __init__(self, bench: Bench, threads: str, kept_only: bool):
        self.bench, self.threads, self.kept_only = bench, threads, kept_only
        self.file = bench.work / "generated.json"
        llmcheck = hashlib.sha256((bench.planted / "llmcheck").read_bytes()).hexdigest()
        kept = json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}
        self.results = kept if kept.get("llmcheck") == llmcheck else {"llmcheck": llmcheck, "runs": {}}
        self.lock = threading.Lock()
        self.making: dict[Path, threading.Lock] = {}  # of files

    def save(self) -> None:
        partial = self.file.with_suffix(".part")
        partial.write_text(json.dumps(self.results, indent=1), encoding="utf-8")
        partial.replace(self.file)

    def ensure(self, path: Path, make: Callable[[], object]) -> Path:
        """A file that exists, made by programs without bugs when it is first needed."""
        with self.lock:
            making = self.making.setdefault(path, threading.Lock())
        with making:
            if not path.exists():
                make()
        return path

    def model(self, kind: str) -> Path:
        return self.ensure(self.bench.model(kind), lambda: self.bench.quantize(kind))

    def arguments(self, mutant: Mutant, check: str) -> list[object]:
        kind, steps, work = mutant.file, LONG_STEPS if mutant.long else STEPS, self.bench.work
        model = self.model(kind)
        if check == "self":
            return ["--self", "--fail-fast", "-p", TEXT]
        if check == "tokenizer":
            return ["--tokenizer", work / "tokens.jsonl"]
        if check == "layer-diff":
            return ["--layer-diff", self.ensure(self.bench.reference(kind, steps), lambda: self.bench.refer(kind, steps))]
        if check == "verify":
            reference = work / f"{kind}-verify.json"
            return ["--verify", self.ensure(reference, lambda: self.bench.python(
                "tools/oracle/verify_reference.py", model, "-q", "--steps", VERIFY_STEPS, "-o", reference))]
        baseline = work / f"{kind}-baseline"
        return ["--quality", HELDOUT, "--baseline", self.ensure(baseline, lambda: self.freeze(model, baseline))]

    def freeze(self, model: Path, baseline: Path) -> None:
        partial = baseline.with_suffix(".part")
        partial.mkdir(exist_ok=True)
        self.bench.clean_tool("llmcheck", model, "-q", "-t", 1, "--quality", HELDOUT, "--baseline", partial,
                              "--update-baseline", "before mutants")
        partial.rename(baseline)

    def run(self, mutant: Mutant, check: str) -> dict:
        """One check of one mutant, or what an earlier run kept of it."""
        key = f"{check} {mutant.file} {'long ' if mutant.long else ''}{mutant.id}"
        with self.lock:
            if key in self.results["runs"]:
                return self.results["runs"][key]
        if self.kept_only:
            raise NotRun
        result = self.run_tests(mutant) if check == "unit tests" else self.run_check(mutant, check)
        with self.lock:
            self.results["runs"][key] = result
            self.save()
        return result

    def run_check(self, mutant: Mutant, check: str) -> dict:
        arguments = [self.model(mutant.file), "-q", *self.arguments(mutant, check)]
        label = hashlib.sha256(f"{check}{mutant}".encode()).hexdigest()[:16]
        report, trace = self.bench.work / f"{label}.json", self.bench.work / f"{label}.trace"
        report.unlink(missing_ok=True)
        trace.unlink(missing_ok=True)
        started = time.monotonic()
        try:
            run = subprocess.run([str(self.bench.planted / "llmcheck"), *map(str, arguments), "--report", str(report),
                                  "-t", self.threads],
                                 env=self.environment(mutant, trace), capture_output=True, text=True, timeout=TIMEOUT)
            code, words = run.returncode, run.stderr
        except subprocess.TimeoutExpired:
            code, words = -1, "error: no end after the time limit"
        names = names_in(json.loads(report.read_text(encoding="utf-8"))) if report.exists() else []
        result = {"code": code, "names": (names or re.findall(r"error: .*", words))[:MORE_NAMES], "reached": trace.exists(),
                  "seconds": round(time.monotonic() - started, 1)}
        report.unlink(missing_ok=True)
        trace.unlink(missing_ok=True)
        return result

    def run_tests(self, mutant: Mutant) -> dict:
        """The first test program that fails."""
        trace = self.bench.work / f"{hashlib.sha256(mutant.id.encode()).hexdigest()[:16]}.tests"
        started = time.monotonic()
        failed = []
        for name in UNIT_TESTS:
            program = self.bench.planted / name
            if failed or not program.exists():
                continue
            run = subprocess.run([str(program)], env=self.environment(mutant, trace), capture_output=True,
                                 text=True, timeout=TIMEOUT, cwd=self.bench.planted)
            if run.returncode != 0:
                failed.append(name)
        reached = trace.exists()
        trace.unlink(missing_ok=True)
        return {"code": 1 if failed else 0, "names": failed, "reached": reached,
                "seconds": round(time.monotonic() - started, 1)}

    @staticmethod
    def environment(mutant: Mutant, trace: Path) -> dict[str, str]:
        return dict(os.environ, LLM_MUTANT=mutant.id, LLM_MUTANT_TRACE=str(trace))

    def judge(self, mutant: Mutant, checks: tuple[str, ...], all_checks: bool) -> dict[str, dict]:
        """What each check said; without all_checks, up to the one that found it."""
        verdicts = {}
        for check in checks:
            if check == "tokenizer" and not mutant.id.startswith("tokenizer"):
                continue
            try:
                verdicts[check] = self.verdict(mutant, check)
            except NotRun:
                continue
            if verdicts[check]["found"] and not all_checks:
                break
        return verdicts

    def verdict(self, mutant: Mutant, check: str) -> dict:
        result = self.run(mutant, check)
        if result["code"] in (0, UNSUPPORTED):
            return {**result, "found": False, "named": False, "skipped": result["code"] == UNSUPPORTED}
        # What fails without the mutant says nothing of it. --self compares bits: kill_matrix.py has its benign variants.
        control = {"code": 0, "names": []} if check == "self" else self.run(replace(mutant, id="none"), check)
        new = [name for name in result["names"] if name not in control["names"]]
        found = bool(new) or result["code"] != control["code"]
        named = found and (check == "unit tests" or any(re.fullmatch(mutant.names, name) for name in new))
        return {**result, "names": new, "found": found, "named": named, "skipped": False}


def known_survivors() -> dict[str, str]:
    """Mutants that no check is expected to find yet, and why."""
    lines = (ROOT / "tests/mutants/survivors.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("  ", 1) for line in lines if line and not line.startswith("#"))


def print_matrix(judged: dict[Mutant, dict[str, dict]], checks: tuple[str, ...]) -> None:
    """Class x check: found / named of those that the check saw."""
    print(f"\n{'class':<56} {'mutants':>7} " + " ".join(f"{check:>14}" for check in (*checks, "any")))
    for kind in (*CLASSES, ""):
        of_kind = {m: v for m, v in judged.items() if kind in (m.kind, "")}
        if not of_kind:
            continue
        cells = []
        for check in checks:
            seen = [v[check] for v in of_kind.values() if check in v and not v[check]["skipped"]]
            found, named = sum(v["found"] for v in seen), sum(v["named"] for v in seen)
            cells.append(f"{found:>4}/{named:>3} of {len(seen):>3}" if seen else f"{'-':>14}")
        found = sum(any(v["found"] for v in verdicts.values()) for verdicts in of_kind.values())
        named = sum(any(v["named"] for v in verdicts.values()) for verdicts in of_kind.values())
        cells.append(f"{found:>4}/{named:>3} of {len(of_kind):>3}")
        print(f"{kind + ' ' + CLASSES[kind] if kind else 'all':<56} {len(of_kind):>7} " + " ".join(cells))
    print("found / named of those shown to the check")


def print_misses(judged: dict[Mutant, dict[str, dict]]) -> None:
    for mutant, verdicts in judged.items():
        if not any(v["found"] for v in verdicts.values()):
            reached = [check for check, v in verdicts.items() if v["reached"]]
            print(f"SURVIVED  {mutant.kind}  {mutant.file:<10} {mutant.id}  "
                  f"({'reached by ' + ', '.join(reached) if reached else 'never reached'})")
    for mutant, verdicts in judged.items():
        found = {check: v for check, v in verdicts.items() if v["found"]}
        if found and not any(v["named"] for v in found.values()):
            names = "; ".join(f"{check}: {', '.join(v['names'][:3]) or v['code']}" for check, v in found.items())
            print(f"NOT NAMED  {mutant.kind}  {mutant.file:<10} {mutant.id}  ({names})")


def passes(judged: dict[Mutant, dict[str, dict]]) -> bool:
    """Prints the totals; whether the bars are met by what is not a known survivor."""
    known = known_survivors()
    stale = [m.id for m, v in judged.items() if m.id in known and any(x["found"] for x in v.values())]
    if stale:
        print(f"listed in survivors.txt, yet found: {', '.join(stale)}")
    counted = {m: v for m, v in judged.items()
               if m.id not in known and not all(x["skipped"] for x in v.values())}
    found = sum(any(v["found"] for v in verdicts.values()) for verdicts in counted.values())
    named = sum(any(v["named"] for v in verdicts.values()) for verdicts in counted.values())
    n = max(1, len(counted))
    print(f"generated mutants found: {found}/{len(counted)} (need {FOUND_NEEDED:.0%}); named: {named}/{len(counted)} "
          f"(need {NAMED_NEEDED:.0%}); known survivors not counted: {sum(m.id in known for m in judged)}")
    return found >= FOUND_NEEDED * n and named >= NAMED_NEEDED * n and not stale


def choose(options: argparse.Namespace) -> list[Mutant]:
    mutants = generate()
    if options.only:
        mutants = [m for m in mutants if any(text == m.kind if text in CLASSES else text in m.id for text in options.only)]
    elif not options.all:
        print(f"{options.sample} of {len(mutants)} generated mutants, --seed {options.seed}")
        mutants = sample(mutants, options.sample, options.seed)
    return without_missing_isas(mutants)


def without_missing_isas(mutants: list[Mutant]) -> list[Mutant]:
    """Those that this CPU can run; prints how many it cannot."""
    flags = set(re.findall(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)[0].split())
    missing = Counter(missing_isa(m, flags) for m in mutants)
    for isa in filter(None, sorted(missing)):
        print(f"skipped: {missing[isa]} of {isa}, which this CPU lacks")
    return [m for m in mutants if not missing_isa(m, flags)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutants_bin", type=Path)
    parser.add_argument("clean_bin", type=Path)
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--sample", type=int, default=60, metavar="N", help="so many, drawn by class (default 60)")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="a class, or part of an id; repeatable")
    parser.add_argument("--score", action="store_true", help="every check judges every mutant, unit tests too")
    parser.add_argument("--checks", default=",".join(CHECKS), help=f"which of {', '.join(CHECKS)}, unit tests")
    parser.add_argument("--seed", default=SEED, help=f"of the sample (default: {SEED})")
    parser.add_argument("--kept", action="store_true", help="run nothing: the table of what earlier runs have kept")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default 2)")
    options = parser.parse_args()
    checks = tuple(options.checks.split(","))
    if options.score and "unit tests" not in checks and (options.mutants_bin / UNIT_TESTS[0]).exists():
        checks += ("unit tests",)
    bench = Bench(options.mutants_bin.resolve(), options.clean_bin.resolve(), options.work_dir.resolve())
    scorer = Scorer(bench, "1" if options.jobs > 1 else "2", options.kept)
    mutants = choose(options)
    started = time.monotonic()
    if not options.kept:
        bench.prepare(set())
    done = []

    def judge(mutant: Mutant) -> dict[str, dict]:
        verdicts = scorer.judge(mutant, checks, options.score)
        done.append(mutant)
        if options.kept:
            return verdicts
        print(f"[{len(done)}/{len(mutants)}, {time.monotonic() - started:.0f} s] {mutant.id}: "
              + (", ".join(c for c, v in verdicts.items() if v["found"]) or "SURVIVED"), file=sys.stderr, flush=True)
        return verdicts

    # In no order, so that a run that is stopped has seen some of each class.
    order = random.Random(1).sample(mutants, len(mutants))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        verdicts = dict(zip(order, pool.map(judge, order)))
    judged = {m: verdicts[m] for m in mutants if verdicts[m]}
    print_matrix(judged, checks)
    print_misses(judged)
    good = passes(judged)
    print(f"{'PASS' if good else 'FAIL'} ({time.monotonic() - started:.0f} s)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
