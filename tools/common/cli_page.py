#!/usr/bin/env python3
"""Keeps the option tables in docs/cli.md equal to what the tools print for --help-markdown.

    tools/common/cli_page.py BIN_DIR            rewrites the page
    tools/common/cli_page.py --check BIN_DIR    exits 1 and names the tools whose part is out of date

Each tool's part stands between the lines `<!-- begin TOOL -->` and `<!-- end TOOL -->`.
"""

import argparse
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md"
PART = re.compile(r"(<!-- begin (\w+) -->\n)(.*?)(<!-- end \2 -->\n)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("bin_dir", type=pathlib.Path)
    arguments = parser.parse_args()
    outdated = []

    def current(match: re.Match) -> str:
        begin, tool, old, end = match.groups()
        new = subprocess.run(
            [arguments.bin_dir / tool, "--help-markdown"], check=True, capture_output=True, text=True
        ).stdout
        if new != old:
            outdated.append(tool)
        return begin + new + end

    page = PART.sub(current, PAGE.read_text(encoding="utf-8"))
    if arguments.check:
        for tool in outdated:
            print(f"docs/cli.md: the part of {tool} is out of date; run tools/common/cli_page.py", file=sys.stderr)
        return 1 if outdated else 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
