#!/usr/bin/env python3
"""Validates the validator: plants every bug of mutants.json in turn and looks whether llmcheck notices and names it.

    tests/mutants/kill_matrix.py BIN_DIR WORK_DIR [--only ID] [--benign-only]

BIN_DIR holds tools built with LLM_BUILD_MUTANTS (`./dev mutants` does both). Needs nothing but the standard library;
the f64 references are made by tools/reference/from_gguf.py under the interpreter in LLM_PYTHON (numpy and gguf).
Exit code 1 unless all classic bugs are killed and located, 95 % of all are killed, 90 % are named exactly, and no
benign variant raises an alarm.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models" / "fable-3m-f16.gguf"
TOKENS = 21  # no multiple of 16, so that tails are real; the last three are fed one at a time
STEPS = "18,1,1,1"
TEXT = "Once upon a time, there was a little fox named Pip. He lost his red ball near the old mill and asked"
TYPES = ("F16", "Q4_0", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K")
LOAD_ERRORS = (3, 5, 7)  # malformed, resource, non-finite or integrity: the file was refused


@dataclass
class Outcome:
    """What one run of a tool found."""

    code: int
    named: list[str] = field(default_factory=list)
    words: str = ""


class Bench:
    """Tools, models and references of one matrix."""

    def __init__(self, bin_dir: Path, work: Path):
        self.bin = bin_dir
        self.work = work
        work.mkdir(parents=True, exist_ok=True)

    def tool(self, name: str, *args: object, mutant: str = "", check: bool = False) -> subprocess.CompletedProcess:
        environment = dict(os.environ, LLM_MUTANT=mutant)
        return subprocess.run([str(self.bin / name), *map(str, args)], env=environment, capture_output=True, text=True,
                              check=check, timeout=600)

    def model(self, kind: str) -> Path:
        return MODEL if kind == "F16" else self.work / f"{kind}.gguf"

    def reference(self, kind: str) -> Path:
        return self.work / f"{kind}.npz"

    def prepare(self) -> None:
        """Quantizes the embedded model and makes a reference for each type, with prefill and decode steps."""
        python = os.environ.get("LLM_PYTHON", sys.executable)
        ids = self.tool("llmtok", MODEL, "--ids", "-p", TEXT, check=True).stdout.split()[:TOKENS]
        if len(ids) != TOKENS:
            raise RuntimeError(f"the text gives {len(ids)} tokens, need {TOKENS}")

        def make(kind: str) -> None:
            if kind != "F16":
                self.tool("llmquant", MODEL, self.model(kind), kind, check=True)
            subprocess.run([python, ROOT / "tools/reference/from_gguf.py", self.model(kind), "--ids", ",".join(ids),
                            "--steps", STEPS, "-o", self.reference(kind)], check=True)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(make, TYPES))
        lines = (ROOT / "models/heldout.txt").read_text(encoding="utf-8").split("\n")
        texts = [line for line in lines if line][:40] + ["  two  spaces", "naïve café ☃", "a\nb"]
        with open(self.work / "tokens.jsonl", "w", encoding="utf-8") as out:
            for text in texts:
                # Frozen by the build without a mutant; that build is held to SentencePiece by tokenizer tests.
                found = self.tool("llmtok", MODEL, "--json", "-p", text, check=True).stdout
                out.write(json.dumps({"text": text, "ids": json.loads(found)["ids"]}) + "\n")

    def check(self, kind: str, check: str, mutant: str = "", args: tuple = ()) -> Outcome:
        """One check of one file; `named` is what it says is at fault."""
        if check == "load":
            run = self.tool("llmgguf", "verify", self.model(kind), mutant=mutant)
            return Outcome(run.returncode, re.findall(r"error: .*", run.stderr)[:1], run.stderr)
        report = self.work / f"report-{mutant or 'none'}-{kind}-{check}-{'-'.join(map(str, args))}.json"
        report.unlink(missing_ok=True)
        what = {"layer-diff": ["--layer-diff", self.reference(kind)], "self": ["--self", "-p", TEXT],
                "tokenizer": ["--tokenizer", self.work / "tokens.jsonl"]}[check]
        run = self.tool("llmcheck", self.model(kind), *what, "--report", report, *args, mutant=mutant)
        named = names_in(json.loads(report.read_text())) if report.exists() else re.findall(r"error: .*", run.stderr)
        return Outcome(run.returncode, named, run.stdout + run.stderr)


def names_in(report: dict) -> list[str]:
    """Everything a report says is at fault, in order and without repetition."""
    names = [check["name"] for check in report["checks"] if check["verdict"] != "PASS"]
    for section in report["layer_diffs"]:
        located = section["locate"]
        names += [f"problem: {text}" for text in section["problems"]]
        names += [f"preflight: {text}" for text in located["preflight"]]
        names += [f"missing {row_name(row)}" for row in section["rows"] if row["verdict"] == "MISSING"]
        for finding in located["findings"]:
            names.append(f"{finding['tap']} [{finding['weight_type']}]".replace(" []", ""))
    return list(dict.fromkeys(names))


def row_name(row: dict) -> str:
    return f"G/{row['tap']}" if row["layer"] is None else f"L{row['layer']:03}/{row['tap']}"


def judge(bench: Bench, mutant: dict) -> dict:
    """Runs a mutant's check. Killed: the tool says no. Exact: it names something, and only what is expected."""
    started = time.monotonic()
    args = tuple(mutant.get("args", ()))
    if mutant.get("harness"):
        control = bench.check(mutant["file"], mutant["check"], mutant["control"], args)
        spoiled = bench.check(mutant["file"], mutant["check"], f"{mutant['id']},{mutant['control']}", args)
        killed = control.code == 1 and (spoiled.code, spoiled.named) != (control.code, control.named)
        return result(mutant, killed, killed, ["the control is no longer killed as it was"] if killed else [], started)
    outcome = bench.check(mutant["file"], mutant["check"], mutant["id"], args)
    killed = outcome.code == 1 or outcome.code in LOAD_ERRORS
    exact = killed and bool(outcome.named) and all(re.fullmatch(mutant["expect"], n) for n in outcome.named)
    return result(mutant, killed, exact, outcome.named or [outcome.words.strip()[-80:]], started)


def result(mutant: dict, killed: bool, exact: bool, named: list[str], started: float) -> dict:
    return {"mutant": mutant, "killed": killed, "exact": exact, "named": named,
            "seconds": time.monotonic() - started}


def benign(bench: Bench) -> list[tuple[str, str, str, tuple]]:
    """Variants that must raise no alarm: every file and instruction set, threads, and all paths of --self."""
    isas = [isa for isa in ("scalar", "avx2", "avx512", "avx512vnni")
            if bench.tool("llmcheck", MODEL, "--layer-diff", bench.reference("F16"), "--isa", isa).returncode != 5]
    variants = [(f"{kind} {isa}", kind, "layer-diff", ("--isa", isa)) for kind in TYPES for isa in isas]
    variants += [(f"{kind} {n} threads", kind, "layer-diff", ("-t", n)) for kind in ("F16", "Q4_K_M", "Q6_K")
                 for n in (2, 3, 7)]
    variants += [("Q4_K_M self: batches, threads, cache", "Q4_K_M", "self", ()),
                 ("tokenizer", "F16", "tokenizer", ())]
    return [(name, kind, check, args) for name, kind, check, args in variants]


def short(names: list[str], width: int) -> str:
    text = "; ".join(names[:2]) + (f"; +{len(names) - 2}" if len(names) > 2 else "")
    return text if len(text) <= width else text[:width - 3] + "..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=Path)
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a mutant's id; may be repeated")
    parser.add_argument("--benign-only", action="store_true")
    options = parser.parse_args()
    bench = Bench(options.bin_dir.resolve(), options.work_dir.resolve())
    mutants = json.loads((ROOT / "tests/mutants/mutants.json").read_text(encoding="utf-8"))["mutants"]
    if options.only:
        mutants = [m for m in mutants if m["id"] in options.only]
    started = time.monotonic()
    bench.prepare()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        quiet = [] if options.only else benign(bench)
        alarms = list(pool.map(lambda v: (v, bench.check(v[1], v[2], "", v[3])), quiet))
        results = [] if options.benign_only else list(pool.map(lambda m: judge(bench, m), mutants))

    print(f"{'mutant':<22} {'check':<11} {'file':<7} {'verdict':<9} {'named':<58} expected")
    for r in results:
        m = r["mutant"]
        verdict = "exact" if r["exact"] else "killed" if r["killed"] else "SURVIVED"
        print(f"{m['id'] + ('*' if m.get('classic') else ''):<22} {m['check']:<11} {m['file']:<7} {verdict:<9} "
              f"{short(r['named'], 58):<58} {m.get('expect', 'as control ' + m.get('control', ''))}")
    loud = [(variant, outcome) for variant, outcome in alarms if outcome.code != 0]
    for variant, outcome in loud:
        print(f"ALARM {variant[0]}: {short(outcome.named, 90)} {outcome.words.strip()[-200:]}")
    return verdict_of(results, alarms, loud, options, time.monotonic() - started)


def verdict_of(results: list[dict], alarms: list, loud: list, options: argparse.Namespace, seconds: float) -> int:
    """Prints the totals; 0 when every bar is met."""
    killed, exact = sum(r["killed"] for r in results), sum(r["exact"] for r in results)
    classic = [r for r in results if r["mutant"].get("classic")]
    located = sum(r["exact"] for r in classic)
    print(f"\n* classic. classic killed and located {located}/{len(classic)}; killed {killed}/{len(results)}; named exactly "
          f"{exact}/{len(results)}; alarms on benign variants {len(loud)}/{len(alarms)}; {seconds:.0f} s")
    good = located == len(classic) and killed >= 0.95 * len(results) and exact >= 0.90 * len(results) and not loud
    if not options.only and not options.benign_only:
        groups = {r["mutant"]["classic"] for r in classic}
        good = good and len(groups) == 7 and len(alarms) >= 30
        print(f"classic bugs {len(groups)}/7, benign variants {len(alarms)} of at least 30")
    print("PASS" if good else "FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
