#!/usr/bin/env python3
"""Plants faults in turn, on each model, and scores which check finds which (docs/testing.md, "Planted faults").

    run.py LLMFAULTS [--model MODEL.gguf REFERENCE.npz N]... [--list] [--only REGEX] [--sample N] [--seed S] [--jobs N] [-v]

REFERENCE.npz has f64's activations of the model's first layers; N faults are drawn for the model, or 0: all. Exit code 1 where a
check complains without a fault, or too few faults were found, named or in reach.
"""

import argparse
import math
import queue
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOUND_NEEDED, NAMED_NEEDED = 0.97, 0.90
STRUCK_NEEDED = 0.5  # of a class, all of it, on the first model
CLASSES = {
    "a": "position beyond a chunk, a page, a batch", "b": "number of tokens modulo a tile", "c": "rows or columns modulo 16, 32, 256",
    "d": "one instruction set", "e": "one type's last sub-block", "f": "one number of threads, a share, a missing barrier",
    "g": "extreme values", "h": "one compute mode or cache type", "i": "tensors of equal shape exchanged, wrong orders and sizes",
    "j": "definition and engine wrong alike", "k": "text: tokenizer, sampler, context shift, proposals", "l": "the checks themselves"}


@dataclass(frozen=True)
class Row:
    """A fault and the checks that must find it, in the order in which they are asked."""

    kind: str  # of CLASSES
    checks: tuple[str, ...]
    id: str  # what is planted (fault.h)
    names: str  # a regular expression of what a complaint says that names the place
    needs: str = ""  # a part that the model must have
    of: str = ""  # the architecture that has what is made wrong; "": every other
    control: str = ""  # of the checks themselves: the fault that the first check no longer finds as it did

    @property
    def needs_no_model(self) -> bool:
        """Whether it is looked for first in the checks' own data."""
        first = self.checks[0]
        return first in ("kernels", "shares", "sampler") or (first == "definition" and not self.id.startswith(("angle", "rope")))


def choices(fault: str, names: str, sets: dict, at: int = 0, total: int = 0, group: int = 1):
    """What {a, b} and [a, b] of a pattern, from `at` on, stand for; `total` is the sum of the choices before (faults.txt)."""
    if not (found := re.compile(r"\{([^}]*)\}|\[([^\]]*)\]").search(fault, at)):
        yield fault, names
        return
    in_turn = found[1] is None
    words = sets.get(found[1]) or (found[2] if in_turn else found[1]).split(", ")
    for i in [total % len(words)] if in_turn else range(len(words)):
        word, _, name = words[i].partition("~")
        chosen, at = fault[:found.start()] + word + fault[found.end():], found.start() + len(word)
        if in_turn:
            yield from choices(chosen, names, sets, at, total, group)
        else:
            yield from choices(chosen, names.replace(f"${group}", name or word), sets, at, total + i, group + 1)


def all_faults() -> list[Row]:
    rows, sets = [], {}
    for line in (Path(__file__).parent / "faults.txt").read_text().splitlines():
        columns = line.split("; ")
        if line.startswith("#") or not line:
            continue
        if len(columns) == 1:
            name, _, words = line.partition(" = ")
            sets[name] = words.split(", ")
            continue
        more = dict([columns[4].split(" ")] if len(columns) > 4 else [])
        for fault, names in choices(columns[2], columns[3], sets):
            planted = ",".join(filter(None, (fault, more.get("control"))))
            rows.append(Row(columns[0], tuple(columns[1].split(" ")), planted, names, **more))
    return sorted(rows, key=lambda row: row.kind)


@dataclass
class Outcome:
    """What one check said with one fault."""

    complaints: list[str]
    struck: bool
    end: str  # "", or how the process ended

    @property
    def words(self) -> str:
        return self.end + "".join(self.complaints[:1])[:300]


class Server:
    """llmfaults with a loaded model."""

    def __init__(self, program: str, model: str, reference: str):
        self.process = subprocess.Popen([program, model, reference], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        errors="replace")
        self.checks, self.parts, self.architecture, self.isas = (self.process.stdout.readline().split() for _ in range(4))
        if not self.checks:
            raise SystemExit(self.process.wait())

    def ask(self, check: str, fault: str, part: str = "") -> Outcome | None:
        """None where the check has nothing to compare with."""
        self.process.stdin.write(f"{check}\t{fault}\t{part}\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.process.stdout.readline()).startswith("== end "):
            if not line:
                raise SystemExit(f"llmfaults ended with {self.process.wait()}")
            lines.append(line.rstrip("\n"))
        end = line.removeprefix("== end ").strip()
        if end == "nothing to compare with":
            return None
        marks = [i for i, line in enumerate(lines) if line in ("== struck", "== quiet")]
        complaints = lines if end else lines[marks[0] + 1:]
        return Outcome([text for text in complaints if text], bool(end) or lines[marks[0]] == "== struck", end)


@dataclass
class Judgement:
    """A fault, the check that found it or "", and what that check or the last one said."""

    row: Row
    check: str
    outcome: Outcome | None
    struck: bool
    seconds: float

    @property
    def named(self) -> bool:
        return bool(self.check) and (bool(self.row.control) or any(re.search(self.row.names, c) for c in self.outcome.complaints))


class Bench:
    """`jobs` servers of a model."""

    def __init__(self, args: argparse.Namespace, model: str, reference: str):
        self.jobs, self.verbose, self.idle = args.jobs, args.verbose, queue.SimpleQueue()
        servers = [Server(args.llmfaults, model, reference) for _ in range(self.jobs)]
        self.checks, self.parts, self.isas, self.architecture = (
            getattr(servers[0], what) for what in ("checks", "parts", "isas", "architecture"))
        for server in servers:
            self.idle.put(server)

    def end(self) -> None:
        for _ in range(self.jobs):
            self.idle.get().process.communicate()

    def judge(self, row: Row) -> Judgement:
        server, started, struck, outcome = self.idle.get(), time.monotonic(), bool(row.control), None
        try:
            control = server.ask(row.checks[0], row.control) if row.control else None
            for check in row.checks:
                if (outcome := server.ask(check, row.id, row.needs)) is None:
                    continue
                struck |= outcome.struck
                found = outcome.complaints != control.complaints if control else outcome.struck and (outcome.complaints or outcome.end)
                if found:
                    return Judgement(row, check, outcome, struck, time.monotonic() - started)
            return Judgement(row, "", outcome, struck, time.monotonic() - started)
        finally:
            self.idle.put(server)

    def judge_all(self, rows: list[Row]) -> list[Judgement]:
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(self.judge, rows))

    def is_quiet(self, is_first: bool) -> bool:
        """Whether no check complains without a fault. What needs no model is run with the first."""
        ways = [Row("-", (check,), "none:effect=none", "") for check in self.checks]
        ways = [way for way in ways if is_first or not way.needs_no_model]
        ways += [Row("-", ("paths",), "none:effect=none", "", part) for part in self.parts]
        how = [f"isa={isa}" for isa in self.isas if is_first] + [f"threads={threads}" for threads in (2, 3, 7)]
        ways += [Row("-", ("layers",), f"none:{word}", "") for word in how]
        judged = [j for j in self.judge_all(ways) if j.outcome]
        alarms = [j for j in judged if j.outcome.complaints or j.outcome.end]
        for j in judged if self.verbose else alarms:
            print(f"{'ALARM' if j in alarms else 'quiet'}  {j.row.checks[0]} {j.row.id} {j.row.needs}: {j.seconds:.2f} s {j.outcome.words}")
        print(f"alarms without a fault: {len(alarms)} in {len(judged)} ways to run", flush=True)
        return not alarms


def report(judged: list[Judgement], is_whole: bool, verbose: bool, scale: float) -> bool:
    """@param scale  how many times as many faults a run without --sample has"""
    struck = [j for j in judged if j.struck]
    for j in judged if verbose else ():
        by = f"{j.check or 'SURVIVED':<10} {'named' if j.named else '-'}" if j.struck else "never struck"
        print(f"{j.row.kind}  {j.row.id:<70} {by} {j.seconds:.2f} s")
    for j in struck:
        if not j.check:
            print(f"SURVIVED   {j.row.kind}  {j.row.id}")
    for j in struck:
        if j.check and not j.named:
            print(f"NOT NAMED  {j.row.kind}  {j.row.id}: {j.check}: need {j.row.names}: {j.outcome.words}")
    print(f"\n{'class':<58} faults  found  named")
    all_reached = True
    for kind, what in CLASSES.items():
        of_class = [j for j in judged if j.row.kind == kind]
        mine = [j for j in of_class if j.struck]
        if mine:
            print(f"{kind} {what:<56} {len(mine):>6} {sum(bool(j.check) for j in mine):>6} {sum(j.named for j in mine):>6}")
        if is_whole and len(mine) < STRUCK_NEEDED * len(of_class):
            print(f"SITES LOST {kind}  {len(of_class) - len(mine)} of {len(of_class)} faults never struck")
            all_reached = False
    by_check, names = Counter(j.check for j in struck if j.check), Counter(j.check for j in struck if j.named)
    print("\nfirst found by: " + " ".join(f"{check} {n} ({names[check]} named)" for check, n in sorted(by_check.items())))
    found, named, n = by_check.total(), names.total(), len(struck)
    print(f"never struck here: {len(judged) - n}\nfaults found: {found}/{n} (need {FOUND_NEEDED:.0%}), "
          f"named: {named}/{n} (need {NAMED_NEEDED:.0%})", flush=True)

    def enough(count: int, needed: float) -> bool:
        """A sample may miss more by chance: two standard deviations, but no more than a run of all may."""
        most = (1 - needed) * n
        return n - count <= min(most * scale, most + 2 * math.sqrt(most * needed))

    return all_reached and enough(found, FOUND_NEEDED) and enough(named, NAMED_NEEDED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llmfaults")
    parser.add_argument("--model", nargs=3, action="append", default=[], metavar=("MODEL.gguf", "REFERENCE.npz", "N"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--sample", type=int, default=0, help="faults drawn of all")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=3)  # some checks sleep
    parser.add_argument("-v", dest="verbose", action="store_true")
    args = parser.parse_args()
    rows = [row for row in all_faults() if re.search(args.only, row.id)]

    def drawn(some: list[Row], n: int) -> list[Row]:
        return [some[i] for i in sorted(random.Random(args.seed).sample(range(len(some)), n))] if 0 < n < len(some) else some

    if args.list:
        print(*(f"{row.kind}  {row.id}  ({' '.join(row.checks)})" for row in rows), f"{len(rows)} faults", sep="\n")
        return 0
    good, started = True, time.monotonic()
    for model, reference, n in args.model:
        bench, is_first = Bench(args, model, reference), model == args.model[0][0]
        if is_first:
            lacking = [isa[1] for row in rows if (isa := re.search(r":isa=(\w+)", row.id)) and isa[1] not in bench.isas]
            for isa, count in sorted(Counter(lacking).items()):
                print(f"skipped: {count} of {isa}, which this CPU lacks")
            here = [row for row in rows if not (isa := re.search(r":isa=(\w+)", row.id)) or isa[1] in bench.isas]
            rows = drawn(here, args.sample)
            scale = len(here) / max(len(rows), 1)
        else:
            print(f"{sum(row.needs_no_model for row in rows)} faults that need no model were tried with the first")
            rows = [row for row in rows if not row.needs_no_model]
        print(f"== {model}", flush=True)
        good &= bench.is_quiet(is_first)
        own = "".join({row.of for row in rows} & set(bench.architecture))
        of_model = [row for row in rows if row.of == own]
        tried = drawn(of_model, int(n))
        if len(tried) < len(of_model):
            print(f"{len(tried)} of {len(of_model)} faults, drawn by seed {args.seed}")
        good &= report(bench.judge_all(tried), is_first and not args.only and not args.sample, args.verbose, scale)
        bench.end()
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    print(f"{'PASS' if good else 'FAIL'} ({time.monotonic() - started:.0f} s, {cpu:.0f} s of CPU)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
