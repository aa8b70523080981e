"""Finds the commit that turned a check red: `git bisect run` between a good and a bad commit, in a work tree of its own."""

import re
import subprocess
from pathlib import Path

from . import files
from .output import say
from .plan import TOOLS, git

BUILD = f"cmake --preset release && cmake --build --preset release --target {' '.join(TOOLS)}"
UNTESTABLE = 125  # of `git bisect run`
WORDS = {0: "good", 1: "bad", UNTESTABLE: "skip"}


class BisectError(Exception):
    """The question cannot be answered; the text says why."""


def find(root: Path, tree: Path, command: str, good: str, bad: str) -> int:
    """Prints the first commit of which `command`, in the work tree `tree`, ends with 1 and not 0, or those that it may be when
    neighbours end with UNTESTABLE. The tree's build folder stays from commit to commit and from bisection to bisection.

    @returns the exit code: 0 when there is one answer, 2 when several commits remain
    @throws BisectError when GOOD is not good or BAD not bad
    """
    with files.locked(tree.with_name("lock"), wait=False):
        try:
            good, bad = (git(root, "rev-parse", "--verify", f"{c}^{{commit}}").strip() for c in (good, bad))
        except subprocess.CalledProcessError as error:
            raise BisectError(error.stderr.strip()) from error
        if not (tree / ".git").exists():
            git(root, "worktree", "prune")
            git(root, "worktree", "add", "--detach", str(tree), "HEAD")
        git(tree, "bisect", "reset")
        for commit, want in ((good, 0), (bad, 1)):
            git(tree, "checkout", "-q", "--force", "--detach", commit)
            if (code := subprocess.run(["bash", "-c", command], cwd=tree, stdout=subprocess.DEVNULL).returncode) != want:
                raise BisectError(f"{commit[:12]}: found {WORDS.get(code, f'exit code {code}')}, need {WORDS[want]}")
        git(tree, "bisect", "start", bad, good)
        try:
            done = subprocess.run(["git", "bisect", "run", "bash", "-c", command], cwd=tree, stdout=subprocess.PIPE, text=True)
        finally:
            git(tree, "checkout", "-q", "--force", "--detach", bad)
            git(tree, "bisect", "reset", bad)
    say(done.stdout)
    if first := re.search(r"^([0-9a-f]{40}) is the first bad commit$", done.stdout, re.M):
        print(f"red since\n  {subject(root, first[1])}")
        return 0
    candidates = re.findall(r"^([0-9a-f]{40})$", done.stdout, re.M)
    if not candidates:
        raise BisectError(f"git bisect run ended with {done.returncode}, see above")
    print("red since one of these; those between could not be tested:")
    for commit in candidates:
        print(f"  {subject(root, commit)}")
    return 2


def subject(root: Path, commit: str) -> str:
    return git(root, "log", "-1", "--format=%h %s", commit).strip()
