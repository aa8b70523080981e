#!/usr/bin/env python3
"""Runs the commands of a page and writes what they print into it.

    scripts/page_outputs.py PAGE [--skip N]

A page has commands in ```sh blocks; a ```text block right after one is what it prints (stdout). All run in one shell, from
the current directory, in order; --skip leaves out the first N blocks, such as a build that was made.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n(?P<printed>```text\n.*?```\n)?", re.S)
END = "-- end of a block --"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="blocks not to run")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(page))[options.skip:]
    script = "".join(f"{block['commands']}\necho '{END}'\n" for block in blocks)
    run = subprocess.run(["bash"], input=script, capture_output=True, text=True)
    outputs = run.stdout.split(f"{END}\n")
    if len(outputs) != len(blocks) + 1:
        sys.exit(f"page_outputs.py: error: {options.page}: the shell ended early\n{run.stderr}")
    for block, output in reversed(list(zip(blocks, outputs))):
        if block["printed"]:
            page = page[:block.start("printed")] + f"```text\n{output}```\n" + page[block.end("printed"):]
    options.page.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
