#!/usr/bin/env python3
"""Validates the validator: plants every bug of mutants.json in turn and looks whether llmcheck notices and names it.

    tests/mutants/kill_matrix.py MUTANTS_BIN CLEAN_BIN WORK_DIR [--only ID] [--benign-only] [--sample N [--seed S]]

MUTANTS_BIN holds llmcheck built from the copy that plant.py writes, CLEAN_BIN the tools built from the tree itself
(`./dev mutants` does all). Needs nothing but the standard library; the f64 references are made by
tools/oracle/from_gguf.py under the interpreter in LLM_PYTHON (numpy and gguf). Exit code 1 unless all classic bugs are
killed and located, 95 % of all are killed, 90 % are named exactly, and no benign variant raises an alarm.
"""

import argparse
import concurrent.futures
import json
import random
import re
import resource
import sys
import time
from pathlib import Path

from benign import Variant, variants
from bench import LOAD_ERRORS, PARALLEL, ROOT, STEPS, Bench

CLASSIC_BUGS = 7
BENIGN_NEEDED = 30
KILLED_NEEDED = 0.95
EXACT_NEEDED = 0.90


def judge(bench: Bench, mutant: dict) -> dict:
    """Runs a mutant's check. Killed: llmcheck says no. Exact: it names something, and only what is expected."""
    args = tuple(mutant.get("args", ()))

    def run(planted: str):
        return bench.check(mutant["file"], mutant["check"], mutant=planted, args=args)

    if mutant.get("harness"):
        control, spoiled = run(mutant["control"]), run(f"{mutant['id']},{mutant['control']}")
        killed = control.code == 1 and (spoiled.code, spoiled.named) != (control.code, control.named)
        named = [f"{mutant['control']} is no longer killed as it was"] if killed else []
        return {"mutant": mutant, "killed": killed, "exact": killed, "named": named}
    outcome = run(mutant["id"])
    killed = outcome.code == 1 or outcome.code in LOAD_ERRORS
    exact = killed and bool(outcome.named) and all(re.fullmatch(mutant["expect"], n) for n in outcome.named)
    return {"mutant": mutant, "killed": killed, "exact": exact, "named": outcome.named or [outcome.words.strip()[-80:]]}


def short(names: list[str], width: int) -> str:
    more = f"; +{len(names) - 2}" if len(names) > 2 else ""
    text = re.sub(r"error: .*\.gguf: ", "error: ", "; ".join(names[:2]))
    return text + more if len(text + more) <= width else text[:width - 3 - len(more)] + "..." + more


def print_mutants(results: list[dict]) -> None:
    print(f"{'mutant':<22} {'check':<11} {'file':<7} {'verdict':<9} {'what llmcheck named':<72} bug")
    for r in results:
        m = r["mutant"]
        verdict = "located" if r["exact"] else "killed" if r["killed"] else "SURVIVED"
        print(f"{m['id'] + ('*' if m.get('classic') else ''):<22} {m['check']:<11} {m['file']:<7} {verdict:<9} "
              f"{short(r['named'], 72):<72} {m['bug']}")
    for r in results:
        if not r["exact"]:
            wrong = [n for n in r["named"] if not re.fullmatch(r["mutant"].get("expect", ""), n)]
            print(f"{r['mutant']['id']}: expected {r['mutant'].get('expect', 'another outcome than the control')}; "
                  f"found {'; '.join(wrong[:6])}")
    print()


def print_benign(quiet: list[Variant]) -> None:
    print(f"{'benign variant':<44} verdict")
    for variant in quiet:
        print(f"{variant.name:<44} {variant.verdict}")
    print()


def judge_mutants(results: list[dict]) -> bool:
    """Prints the totals of the mutants; whether every bar is met."""
    killed, exact = sum(r["killed"] for r in results), sum(r["exact"] for r in results)
    bugs: dict[str, bool] = {}
    for r in results:
        if bug := r["mutant"].get("classic"):
            bugs[bug] = bugs.get(bug, True) and r["exact"]
    n = len(results)
    print(f"classic bugs killed and located: {sum(bugs.values())}/{len(bugs)} (need all); mutants killed: {killed}/{n} "
          f"(need {KILLED_NEEDED:.0%}); located exactly: {exact}/{n} (need {EXACT_NEEDED:.0%})")
    return all(bugs.values()) and killed >= KILLED_NEEDED * n and exact >= EXACT_NEEDED * n


def judge_benign(quiet: list[Variant], needed: int) -> bool:
    skipped = sum(v.verdict.startswith("skipped") for v in quiet)
    alarms = sum(v.verdict.startswith("ALARM") for v in quiet)
    ran = len(quiet) - skipped
    print(f"alarms on benign variants: {alarms}/{ran} (need 0 of at least {needed}); skipped: {skipped}")
    return alarms == 0 and ran >= needed


def choose_mutants(only: list[str]) -> list[dict]:
    mutants = json.loads((ROOT / "tests/mutants/mutants.json").read_text(encoding="utf-8"))["mutants"]
    unknown = set(only) - {m["id"] for m in mutants}
    if unknown:
        sys.exit(f"kill_matrix.py: error: no such mutant: {', '.join(sorted(unknown))}")
    if not only and len({m["classic"] for m in mutants if "classic" in m}) != CLASSIC_BUGS:
        sys.exit(f"kill_matrix.py: error: mutants.json must cover {CLASSIC_BUGS} classic bugs")
    return [m for m in mutants if not only or m["id"] in only]


def sample(mutants: list[dict], quiet: list[Variant], n: int, seed: str) -> tuple[list[dict], list[Variant]]:
    """The classic bugs, n of the others and as many benign variants, in their old order; drawn by the seed."""
    draw = random.Random(seed)
    others = [m["id"] for m in mutants if not m.get("classic")]
    chosen = set(draw.sample(others, min(n, len(others))))
    kept = set(draw.sample(range(len(quiet)), min(n, len(quiet))))
    print(f"a sample, seed {seed}: the classic bugs, {len(chosen)} of {len(others)} others, {len(kept)} of {len(quiet)} benign variants")
    return ([m for m in mutants if m.get("classic") or m["id"] in chosen], [v for i, v in enumerate(quiet) if i in kept])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mutants_bin", type=Path)
    parser.add_argument("clean_bin", type=Path)
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="this mutant alone; repeatable")
    parser.add_argument("--benign-only", action="store_true", help="no mutants")
    parser.add_argument("--sample", type=int, metavar="N", help="the classic bugs, N others and N benign variants")
    parser.add_argument("--seed", default="1", metavar="S", help="draws another sample (a number or a commit)")
    options = parser.parse_args()
    bench = Bench(options.mutants_bin.resolve(), options.clean_bin.resolve(), options.work_dir.resolve())
    mutants = [] if options.benign_only else choose_mutants(options.only)
    quiet = [] if options.only else variants(bench)
    benign_needed = BENIGN_NEEDED
    if options.sample is not None:
        mutants, quiet = sample(mutants, quiet, options.sample, options.seed)
        benign_needed = len(quiet) // 2  # the rest may be of instruction sets that this CPU lacks
    started = time.monotonic()
    bench.prepare({(m["file"], STEPS if m["check"] == "layer-diff" else "") for m in mutants}
                  | {(v.kind, v.steps if v.check == "layer-diff" else "") for v in quiet})
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        # The long ones first, so that no CPU idles at the end.
        jobs = {m["id"]: pool.submit(judge, bench, m) for m in sorted(mutants, key=lambda m: m["check"] != "self")}
        list(pool.map(lambda v: v.judge(bench), sorted(quiet, key=lambda v: v.check != "self")))
        results = [jobs[m["id"]].result() for m in mutants]
    good = True
    if results:
        print_mutants(results)
    if quiet:
        print_benign(quiet)
    if results:
        good = judge_mutants(results)
    if quiet:
        good = judge_benign(quiet, benign_needed) and good
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{'PASS' if good else 'FAIL'} ({time.monotonic() - started:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
