"""Finds the commit that turned a check red: builds between a good and a bad commit, in a work tree of its own."""

import dataclasses
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import files
from .checks import perform
from .output import say
from .plan import TOOLS, build_of, git, machine_id
from .resolve import Place
from .results import FAIL, INFO, PASS, Result, Store, Task

BUILD = f"cmake --preset release && cmake --build --preset release --target {' '.join(TOOLS)}"
GOOD, BAD, UNTESTABLE = "good", "bad", "skip"  # as `git bisect` calls them


class BisectError(Exception):
    """The question cannot be answered; the text says why."""


@dataclass(frozen=True)
class Bisection:
    """The task and its files come from `place`, the tree at hand; only the programs are those of each commit."""

    task: Task
    place: Place
    build: str  # shell command, in the work tree; leaves the tools in `bin` there
    bin: str = "build/release/bin"
    threads: int = 1
    timeout: float = 6 * 3600.0

    @property
    def tree(self) -> Path:
        return self.place.state / "bisect" / "tree"

    def prepare(self) -> None:
        """The work tree; its build folder stays from commit to commit and from bisection to bisection."""
        if not (self.tree / ".git").exists():
            git(self.place.root, "worktree", "prune")
            git(self.place.root, "worktree", "add", "--detach", str(self.tree), "HEAD")

    def try_commit(self, commit: str) -> tuple[str, str]:
        """GOOD, BAD or UNTESTABLE, and why. The result is kept, so that a bisection that was interrupted goes on from there."""
        git(self.tree, "checkout", "-q", "--force", "--detach", commit)
        done = subprocess.run(["bash", "-c", self.build], cwd=self.tree, capture_output=True, text=True, errors="replace")
        here = dataclasses.replace(self.place, bin=self.tree / self.bin)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            return UNTESTABLE, f"does not build: {last}"
        try:
            build = dataclasses.replace(build_of(here), commit=commit)
        except OSError as error:
            return UNTESTABLE, f"has no programs: {error}"
        store, machine = Store(self.place.state / "results"), machine_id()
        key = self.task.key(build, machine)
        result = store.get(key) or perform(self.task, here, self.threads, self.timeout, machine)
        store.put(key, result)
        return self._word(result), result.message

    @staticmethod
    def _word(result: Result) -> str:
        return {PASS: GOOD, INFO: GOOD, FAIL: BAD}.get(result.verdict, UNTESTABLE)


def _subject(root: Path, commit: str) -> str:
    return git(root, "log", "-1", "--format=%h %s", commit).strip()


def _try(bisection: Bisection, commit: str, root: Path) -> str:
    word, why = bisection.try_commit(commit)
    say(f"{word:4}  {_subject(root, commit)}{f'  ({why})' if why and word != GOOD else ''}")
    return word


def find(bisection: Bisection, good: str, bad: str) -> int:
    """Prints the first bad commit, or those it may be when neighbours cannot be built. Exit code 0 when there is one answer,
    2 when several commits remain.

    @throws BisectError when GOOD is not good or BAD not bad
    """
    root = bisection.place.root
    with files.locked(bisection.place.state / "bisect" / "lock", wait=False):
        try:
            good, bad = (git(root, "rev-parse", "--verify", f"{c}^{{commit}}").strip() for c in (good, bad))
        except subprocess.CalledProcessError as error:
            raise BisectError(error.stderr.strip()) from error
        bisection.prepare()
        for commit, want in ((good, GOOD), (bad, BAD)):
            if (word := _try(bisection, commit, root)) != want:
                raise BisectError(f"{commit[:12]}: found {word}, need {want} for {bisection.task.name}")
        tree = bisection.tree
        git(tree, "bisect", "reset")
        git(tree, "bisect", "start", "--no-checkout", bad, good)
        try:
            output = ""
            while "first bad commit" not in output and "could be any of" not in output:
                commit = git(tree, "rev-parse", "BISECT_HEAD").strip()
                word = _try(bisection, commit, root)
                step = subprocess.run(["git", "-C", str(tree), "bisect", word, commit], capture_output=True, text=True)
                output = step.stdout + step.stderr  # with only skipped commits left, git ends with 2
                if step.returncode not in (0, 2):
                    raise BisectError(output.strip())
        finally:
            git(tree, "bisect", "reset")
            git(tree, "checkout", "-q", "--force", "--detach", bad)
        return _answer(output, root, bisection.task)


def _answer(output: str, root: Path, task: Task) -> int:
    lines = output.splitlines()
    for line in lines:
        if line.endswith("is the first bad commit"):
            print(f"{task.name} is red since\n  {_subject(root, line.split()[0])}")
            return 0
    print(f"{task.name} is red since one of these; those between could not be tested:")
    for line in lines:
        if len(line) == 40 and set(line) <= set("0123456789abcdef"):
            print(f"  {_subject(root, line)}")
    return 2
