"""The checks: what each runs, reads and calls red. docs/nightly.md has the table for people."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .fetch import Place
from .results import ERROR, FAIL, INFO, PASS, SKIP, Result, Task

PPL_MAY_RISE = 0.002  # as the documents' gate of --quality (docs/quality.md)
KLD_MAY_RISE = 0.10
DETAIL_LINES = 40


@dataclass(frozen=True)
class Outcome:
    verdict: str
    message: str
    figures: dict
    details: str = ""


@dataclass
class Run:
    """One task on one machine, with its scratch folder."""

    task: Task
    place: Place
    threads: int
    timeout: float  # seconds for each program
    folder: Path

    def path(self, role: str) -> str:
        return str(self.place.path(self.task.inputs[role][0]))

    def program(self, tool: str, *arguments: str) -> subprocess.CompletedProcess:
        """Runs a tool; it ends with this process, however that ends. @throws subprocess.TimeoutExpired"""
        command = [str(self.place.bin / tool), *arguments]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=self.timeout,
                              stdin=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})

    def llmcheck(self, *arguments: str, need: str | None = "PASS") -> tuple[Outcome, dict]:
        """llmcheck on the model: what its exit code and report say, and the report."""
        report = self.folder / "report.json"
        done = self.program("llmcheck", self.path("model"), *arguments, "-t", str(self.threads), "-q",
                            "--report", str(report))
        try:
            document = json.loads(report.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            document = {}
        return judge("llmcheck", done, document, need), document


def _what_failed(output: str, report: dict) -> str:
    """The failed checks of a report, else the lines that say FAIL below the verdict, or in their middle with a name before it."""
    failed = [f"{c['name']}: {c['detail']}" for c in report.get("checks", []) if c["verdict"] == "FAIL"]
    lines = [" ".join(line.split()[1:]) for line in output.splitlines() if line.startswith("FAIL")]
    named = [line for line in output.splitlines() if ": FAIL: " in line]
    return "; ".join((failed or named or lines[1:] or lines or ["a verdict failed"])[:3])


def judge(tool: str, done: subprocess.CompletedProcess, report: dict | None = None,
          need: str | None = "PASS") -> Outcome:
    """A verdict from an exit code (docs/exit_codes.md) and, where the tool wrote one, its report. `need`: the report's verdict
    that goes with exit code 0; None of a report that has figures only."""
    code, error = done.returncode, done.stderr.strip().splitlines()
    last = error[-1] if error else ""
    details = "\n".join((done.stdout + done.stderr).splitlines()[:DETAIL_LINES])
    if code == 0 and (report is None or report.get("verdict", "no report") == need):
        return Outcome(PASS, "", {})
    if code == 0:
        return Outcome(ERROR, f"{tool} ended with 0, but its report says {report.get('verdict', 'nothing')}", {}, details)
    if code == 1:
        return Outcome(FAIL, _what_failed(done.stdout, report or {}), {}, details)
    if code == -signal.SIGKILL:
        return Outcome(ERROR, f"{tool} was killed (out of memory?)", {}, details)
    if code < 0:
        return Outcome(FAIL, f"{tool} crashed: {signal.Signals(-code).name}", {}, details)
    if code in (3, 6, 7, 8):  # a pinned file that was accepted before
        return Outcome(FAIL, f"exit code {code}: {last}", {}, details)
    word = "undecided" if code == 9 else "could not run"
    return Outcome(ERROR, f"{word}, exit code {code}: {last}", {}, details)


def _table(report: dict, name: str) -> list[dict]:
    return next((table["rows"] for table in report.get("figures", []) if table["name"] == name), [])


def _frozen(outcome: Outcome, task: Task, figures: dict, figure: str, may_rise: float) -> Outcome:
    """Holds one figure against its frozen value; by itself it would pass anything."""
    if outcome.verdict != PASS:
        return outcome
    value = figures.get(figure)
    if value is None or not math.isfinite(value):
        return Outcome(FAIL, f"{figure}: found {value}, need a finite number", figures)
    if figure not in task.frozen:
        return Outcome(INFO, f"{figure} has no frozen value in models.lock", figures)
    before = task.frozen[figure]
    text = f"{figure} {value:.6g}, frozen {before:.6g}, limit +{may_rise:.1%}"
    return Outcome(FAIL if value > before * (1 + may_rise) else PASS, text, figures)


def integrity(run: Run) -> Outcome:
    hashed = run.program("llmgguf", "hash", run.path("model"), "--json")
    outcome = judge("llmgguf hash", hashed)
    if outcome.verdict != PASS:
        return outcome
    facts = json.loads(hashed.stdout)
    for field in ("sha256", "root"):
        need = run.task.inputs["model"][1] if field == "sha256" else run.task.inputs.get("root", ["", None])[1]
        if need and facts.get(field) != need:
            return Outcome(FAIL, f"{field}: found {facts.get(field)}, need {need} (models.lock)", {})
    outcome = judge("llmgguf verify", run.program("llmgguf", "verify", run.path("model"), "--strict"))
    if outcome.verdict == PASS:
        outcome = judge("llmgguf doctor", run.program("llmgguf", "doctor", run.path("model")))
    if outcome.verdict == PASS and "manifest" in run.task.inputs:
        outcome = judge("llmgguf verify --manifest",
                        run.program("llmgguf", "verify", run.path("model"), "--manifest", run.path("manifest")))
    return outcome


def self_check(run: Run) -> Outcome:
    outcome, report = run.llmcheck("--self")
    return Outcome(outcome.verdict, outcome.message, {"checks": len(report.get("checks", []))}, outcome.details)


def verify(run: Run) -> Outcome:
    outcome, report = run.llmcheck("--verify", run.path("verify"))
    figures = {}
    for row, key in zip(_table(report, "verify-errors"), ("NMSE f32", "NMSE int8")):
        figures[key] = row["NMSE"]
    rows = _table(report, "verify")
    if rows:
        figures |= {"near ties": sum(r["near ties"] for r in rows), "misses": sum(r["misses"] for r in rows)}
    return Outcome(outcome.verdict, outcome.message, figures, outcome.details)


def layer_diff(run: Run) -> Outcome:
    outcome, report = run.llmcheck("--layer-diff", run.path("layer-diff"))
    figures = {}
    for question in report.get("layer_diffs", []):
        worst = [row["nmse"] for row in question["rows"] if isinstance(row.get("nmse"), float)]
        if question["name"] in ("f32-ops", "f32-run", "int8-ops") and worst:
            figures[f"{question['name']}, worst NMSE"] = max(worst)
    return Outcome(outcome.verdict, outcome.message, figures, outcome.details)


def equivalence(run: Run) -> Outcome:
    return run.llmcheck("--equivalence", run.path("equivalence"))[0]


def quality(run: Run) -> Outcome:
    return run.llmcheck("--quality", run.path("text"), "--baseline", run.path("quality"))[0]


def ppl(run: Run) -> Outcome:
    outcome, report = run.llmcheck("--ppl", run.path("text"), "--ppl-documents", need=None)
    figures = {"perplexity": row["perplexity"] for row in _table(report, "perplexity")[:1]}
    return _frozen(outcome, run.task, figures, "perplexity", PPL_MAY_RISE)


def kld(run: Run) -> Outcome:
    outcome, report = run.llmcheck("--ppl", run.path("text"), "--ppl-documents", "--kld", run.path("family"), need=None)
    figures = {name: row[column] for row in _table(report, "kld")[:1]
               for name, column in (("KL mean", "mean"), ("KL p99", "p99"), ("same top %", "same top %"))}
    return _frozen(outcome, run.task, figures, "KL mean", KLD_MAY_RISE)


def bench(run: Run) -> Outcome:
    done = run.program("llmbench", run.path("model"), "-p", "64", "-n", "16", "-r", "3", "--no-peaks",
                       "-t", str(run.threads), "-q", "-o", "json")
    outcome = judge("llmbench", done)
    if outcome.verdict != PASS:
        return Outcome(INFO, outcome.message, {}, outcome.details)
    rows = [row for row in json.loads(done.stdout) if "tokens_per_s" in row]
    return Outcome(INFO, "information only", {f"{r['test']} tokens/s": r["tokens_per_s"]["median"] for r in rows})


def script(run: Run, *arguments: str) -> Outcome:
    done = run.program(sys.executable, "-B", run.path("script"), str(run.place.bin), run.path("model"), *arguments)
    return judge(Path(run.path("script")).name, done)


def real(run: Run) -> Outcome:
    return script(run, run.path("real"), "-t", str(run.threads))


@dataclass(frozen=True)
class Check:
    """`needs`: references of the model without which it is skipped; `folder`: of a folder of vocabularies, not of a model; `script`:
    what it runs, for Place.path."""

    run: Callable[[Run], Outcome]
    needs: tuple[str, ...] = ()
    folder: bool = False
    script: str = ""


CHECKS = {
    "integrity": Check(integrity),
    "self": Check(self_check),
    "verify": Check(verify, ("verify",)),
    "layer-diff": Check(layer_diff, ("layer-diff",)),
    "equivalence": Check(equivalence, ("equivalence",)),
    "quality": Check(quality, ("quality",)),
    "ppl": Check(ppl),
    "kld": Check(kld),
    "real": Check(real, ("real",), script="root/tests/public_models/check.py"),
    "vocabularies": Check(script, folder=True, script="root/tests/public_models/vocabularies.py"),
    "bench": Check(bench),
}


def _expected_refusal(run: Run) -> Outcome | None:
    """What comes of a model that is known not to be supported yet; nothing when its check can run."""
    done = run.program("llmgguf", "verify", run.path("model"))
    if done.returncode == 6:
        reason = done.stderr.strip().rpartition(f"{run.path('model')}: ")[2]
        return Outcome(SKIP, f"not supported yet: {reason}", {})
    if run.task.check == "integrity":
        rule = f"need 6: the model was refused; ./dev nightly lock --models {run.task.model}"
        return Outcome(FAIL, f"llmgguf verify: found exit code {done.returncode}, {rule}", {}, done.stderr)
    return None


def perform(task: Task, place: Place, threads: int, timeout: float, machine: str) -> Result:
    """Runs a task here and now. Never throws for what a program or a file does."""
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="nightly-") as folder:
        try:
            run = Run(task, place, threads, timeout, Path(folder))
            outcome = (_expected_refusal(run) if task.refused else None) or CHECKS[task.check].run(run)
        except subprocess.TimeoutExpired:
            outcome = Outcome(ERROR, f"not done after {timeout:.0f} s", {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            outcome = Outcome(ERROR, f"{type(error).__name__}: {error}", {})
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    figures = {name: value for name, value in outcome.figures.items() if math.isfinite(value)}  # JSON has no others
    return Result(task.model, task.check, outcome.verdict, outcome.message, figures, outcome.details, machine,
                  stamp, round(time.time() - started, 3))
