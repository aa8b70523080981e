#!/usr/bin/env python3
"""Keeps pages equal to what the tools print: docs/cli.md's option tables (--help-markdown), and docs/fields.md.

    scripts/cli_page.py BIN_DIR            rewrites the pages
    scripts/cli_page.py --check BIN_DIR    exits 1 and names what is out of date

Each tool's part stands between the lines `<!-- begin TOOL -->` and `<!-- end TOOL -->`. Every tool in BIN_DIR has one; a
new tool's is put at the end of the page.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"
FIELDS = ROOT / "docs" / "fields.md"
PART = re.compile(r"(<!-- begin ([\w ]+) -->\n)(.*?)(<!-- end \2 -->\n)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("bin_dir", type=pathlib.Path)
    arguments = parser.parse_args()
    outdated = []

    def printed(tool: str, option: str) -> str:
        return subprocess.run([arguments.bin_dir / tool.split()[0], *tool.split()[1:], option], check=True, capture_output=True, text=True).stdout

    def current(match: re.Match) -> str:
        begin, tool, old, end = match.groups()
        new = printed(tool, "--help-markdown")
        if new != old:
            outdated.append(f"docs/cli.md: the part of {tool}")
        return begin + new + end

    text = PAGE.read_text(encoding="utf-8")
    known = {match.group(2) for match in PART.finditer(text)}
    for main_unit in sorted(ROOT.glob("tools/*/main.cpp")):
        tool = main_unit.parent.name
        if tool not in known and (arguments.bin_dir / tool).exists():
            text += f"\n<!-- begin {tool} -->\n<!-- end {tool} -->\n"
    page = PART.sub(current, text)
    fields = printed("llmserve", "--fields")
    if fields != FIELDS.read_text(encoding="utf-8"):
        outdated.append("docs/fields.md")
    if arguments.check:
        for part in outdated:
            print(f"{part} is out of date; run scripts/cli_page.py {arguments.bin_dir}", file=sys.stderr)
        return 1 if outdated else 0
    PAGE.write_text(page, encoding="utf-8")
    FIELDS.write_text(fields, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
