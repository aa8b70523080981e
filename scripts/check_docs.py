#!/usr/bin/env python3
"""Checks the Markdown pages: every link and anchor leads somewhere, every page of docs/ can be reached from README.md, and the files that
README, ARCHITECTURE, CONTRIBUTING and docs/start_here.md name exist.

    scripts/check_docs.py

Exit code 1 when something is wrong, each named as FILE:LINE.
"""

import functools
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
GUIDES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/start_here.md")  # whose file names are checked
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
NAME = re.compile(r"`([\w./-]+\.(?:h|cpp|py|md|txt|cmake|json|lock))`")


def lines_of(page: pathlib.Path) -> list[str]:
    """The page's lines, those of code blocks empty."""
    is_code, lines = False, []
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = line.lstrip().startswith("```")
        lines.append("" if fence or is_code else line)
        is_code ^= fence
    return lines


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    """Of the page's headings, as GitHub makes them."""
    heads = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()) for line in lines_of(page) if re.match("#+ ", line))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def main() -> int:
    files = set()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in (".git", "build", "__pycache__") and not name.startswith(".cache")]
        files |= {pathlib.Path(folder, name) for name in names}
    wrong, links = [], {}
    for page in sorted(path for path in files if path.suffix == ".md"):
        links[page] = set()
        for number, line in enumerate(lines_of(page), 1):
            where = f"{page.relative_to(ROOT)}:{number}"
            for target, anchor in LINK.findall(line):
                found = (page.parent / target).resolve() if target else page
                links[page].add(found)
                if not found.exists():
                    wrong.append(f"{where}: there is no {target}")
                elif anchor and anchor not in anchors(found):
                    wrong.append(f"{where}: {found.name} has no heading #{anchor}")
            if str(page.relative_to(ROOT)) in GUIDES:
                wrong += [f"{where}: there is no {name}" for name in NAME.findall(line)
                          if not any(path.match(name) for path in files)]
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page not in reached:
            reached.add(page)
            queue += links.get(page, ())
    wrong += [f"docs/{page.name}: no link leads here from README.md" for page in sorted((ROOT / "docs").glob("*.md")) if page not in reached]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
