#!/usr/bin/env python3
"""Checks that docs/bad_input.md has every row of its numbering, each with a test that exists, and prints how many.

    scripts/check_bad_input.py

A test is a TEST_CASE under tests/, or a gate named as `./dev COMMAND`. Exit code 1 when a row or its test is missing.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS = 90  # all of them; there are later ones, with gaps
ROW = re.compile(r"^\| (\d+)(?:, (\d+))? \|.*\| ([^|]+) \|$", re.MULTILINE)
CASE = re.compile(r'TEST_CASE(?:_METHOD)?\(\s*(?:\w+,\s*)?"((?:[^"\\]|\\.)*)"')


def main() -> int:
    cases = {
        name.replace('\\"', '"')
        for path in ROOT.glob("tests/**/*.cpp")
        for name in CASE.findall(path.read_text(encoding="utf-8"))
    }
    commands = set(re.findall(r"^cmd_(\w+)\(\)", (ROOT / "dev").read_text(encoding="utf-8"), re.MULTILINE))
    found = {}
    for first, second, test in ROW.findall((ROOT / "docs" / "bad_input.md").read_text(encoding="utf-8")):
        command = re.fullmatch(r"`\./dev ([\w-]+)`", test)
        known = command[1].replace("-", "_") in commands if command else test in cases
        for row in filter(None, (first, second)):
            found[int(row)] = known or f"no test is called {test!r}"
    rows = found.keys() | set(range(1, ROWS + 1))
    wrong = {row: found.get(row, "is missing") for row in sorted(rows) if found.get(row) is not True}
    for row, reason in wrong.items():
        print(f"docs/bad_input.md: row {row}: {reason}", file=sys.stderr)
    print(f"{len(rows) - len(wrong)}/{len(rows)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
