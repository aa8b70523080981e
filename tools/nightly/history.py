"""Past runs, one JSON line each, and what they say together with the one at hand."""

import json
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import files
from .plan import git
from .results import ERROR, FAIL, INFO, PASS, SKIP, Result

GREEN, RED, NOT_RUN = "PASS", "FAIL", "NOT RUN"
EXIT = {GREEN: 0, RED: 1, NOT_RUN: 2}
SHOWN_COMMITS = 100


@dataclass
class RunRecord:
    """A whole run."""

    id: str
    started: str  # UTC, ISO 8601
    commit: str
    tools: str
    machine: str
    strict: bool = False  # a skipped check is then one that could not run
    results: list[Result] = field(default_factory=list)

    def of(self, verdict: str) -> list[Result]:
        return [r for r in self.results if r.verdict == verdict]

    @property
    def verdict(self) -> str:
        """Red when a gate is red. Green only when every check ran that should, and one at least passed."""
        if self.of(FAIL):
            return RED
        if self.of(ERROR) or not self.of(PASS) or (self.strict and self.of(SKIP)):
            return NOT_RUN
        return GREEN

    @property
    def summary(self) -> str:
        names = ((PASS, "passed"), (FAIL, "failed"), (ERROR, "could not run"), (SKIP, "SKIPPED, which is not a pass"),
                 (INFO, "for information"))
        return ", ".join(f"{len(self.of(v))} {text}" for v, text in names if self.of(v))

    def result(self, model: str, check: str) -> Result | None:
        return next((r for r in self.results if (r.model, r.check) == (model, check)), None)


def skipped(run: RunRecord) -> dict[str, list[str]]:
    """What each reason kept from running."""
    by_reason: dict[str, list[str]] = {}
    for result in run.of(SKIP):
        by_reason.setdefault(result.message, []).append(result.name)
    return by_reason


def load(path: Path) -> list[RunRecord]:
    """Oldest first; lines that are damaged are left out."""
    runs = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            value = json.loads(line)
            value["results"] = [Result(**r) for r in value["results"]]
            runs.append(RunRecord(**value))
        except (ValueError, TypeError, KeyError):
            continue
    return sorted(runs, key=lambda r: (r.started, r.id))


def add(path: Path, run: RunRecord) -> None:
    """Writes `run`, once however often it is added."""
    runs = [r for r in load(path) if r.id != run.id] + [run]
    files.write_atomically(path, "".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in runs))


def commits_between(root: Path, good: str, bad: str) -> list[tuple[str, str]]:
    """(short hash, subject) of what `bad` has and `good` has not, newest first; empty when git cannot say."""
    good, bad = good.partition("+")[0], bad.partition("+")[0]
    if not good or not bad or good == bad:
        return []
    try:
        log = git(root, "log", f"-n{SHOWN_COMMITS}", "--format=%h%x09%s", f"{good}..{bad}")
    except (OSError, subprocess.CalledProcessError):
        return []
    return [tuple(line.split("\t", 1)) for line in log.splitlines()]


def _last(runs: list[RunRecord], result: Result, verdict: str) -> RunRecord | None:
    return next((r for r in reversed(runs)
                 if (old := r.result(result.model, result.check)) and old.verdict == verdict), None)


def _apart(old: float, new: float) -> str:
    """Both with as many digits, from 4 on, as show the difference."""
    digits = next(d for d in range(4, 18) if f"{old:.{d}g}" != f"{new:.{d}g}")
    return f"{old:.{digits}g} to {new:.{digits}g}"


def _red(past: list[RunRecord], run: RunRecord, result: Result) -> str:
    good = _last(past, result, PASS)
    if not good:
        return "never green in the history"
    reds = [r for r in past if r.started > good.started and (old := r.result(result.model, result.check))
            and old.verdict == FAIL]
    since = (reds[0] if reds else run)
    return (f"green on {good.started[:10]} at {good.commit[:12]}, red since {since.started[:10]} at {since.commit[:12]} "
            "(git bisect run: docs/nightly.md)")


def changes(past: list[RunRecord], run: RunRecord) -> list[str]:
    """Every red with its beginning, then verdicts and gates' figures that differ from the last green run's."""
    found = [f"FAIL  {r.name}: {_red(past, run, r)}" for r in run.of(FAIL)]
    green = next((r for r in reversed(past) if r.verdict == GREEN), None)
    for result in run.results if green else []:
        old = green.result(result.model, result.check)
        if result.verdict == FAIL or result.verdict == INFO:
            continue
        moved = [f"{k} {_apart(old.figures[k], v)}" for k, v in result.figures.items()
                 if k in old.figures and old.figures[k] != v] if old else []
        if old is None:
            found.append(f"{result.name}: new")
        elif old.verdict != result.verdict:
            found.append(f"{result.name}: {old.verdict} then, {result.verdict} now")
        elif moved:
            found.append(f"{result.name}: {', '.join(moved)}")
    return found


def since_green(past: list[RunRecord], run: RunRecord, root: Path) -> list[str]:
    """Lines for people: what is other than in the last green run, and the commits since then."""
    found, green = changes(past, run), next((r for r in reversed(past) if r.verdict == GREEN), None)
    commits = commits_between(root, green.commit, run.commit) if green else []
    head = [f"Since the last green run, {green.started[:10]} at {green.commit[:12]}:"] if green and (found or commits) else []
    return head + found + [f"  {short} {subject}" for short, subject in commits]
