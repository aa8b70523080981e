#!/usr/bin/env python3
"""Writes a copy of the source tree with every bug of mutants.json and regressions.json, and every fault point of
generate.py, planted in it.

    tests/mutants/plant.py SOURCE_ROOT DESTINATION

The copy holds the files that git tracks, as they are now. Where edits.toml and faults.toml say so, the right text is
replaced by the wrong one; the environment variable LLM_MUTANT chooses among the bugs when a program of the copy runs
(planted.h, planted_fault.h).
A file is written only if its content changes, so that a second build finds nothing to do; files that left the tree leave
the copy. If an edit's text does not stand in its file exactly once, every such edit is named, nothing is written, and the
exit code is 1.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

SWITCH = re.compile(r'PLANTED\("(\w+)"\)')
SITE = re.compile(r'(?:PLANTED_FAULT\(|PlantedSite \w+\()"(\w+)"')
SITE_SEPARATOR = ":"  # between a fault point and its conditions
INCLUDE = '#include "tests/mutants/planted.h"\n'
FILES = "planted_files.txt"  # in the copy: the names of its files


@dataclass
class Edit:
    """A text of a file, and its wrong version."""

    text: str
    wrong: str

    def ids(self) -> list[str]:
        return list(dict.fromkeys(SWITCH.findall(self.wrong)))

    def name(self) -> str:
        """What to call it: its ids, or the sites of its fault points."""
        return ", ".join(self.ids() or dict.fromkeys(SITE.findall(self.wrong))) or "no id"

    def is_switched(self) -> bool:
        """Whether something decides at run time that it is wrong; the includes and names of such things count."""
        return bool(re.search("planted", self.wrong, re.IGNORECASE))

    def problem(self, file: str, what: str) -> str:
        return f"{self.name()}: {file}: {what}:\n" + quoted(self.text)


def quoted(text: str) -> str:
    return "".join(f"    | {line}\n" for line in text.splitlines())


def plant(file: str, source: str, edits: list[Edit]) -> tuple[str, list[str]]:
    """The file with its edits made, and what is wrong with them."""
    problems = []
    places = []
    for edit in edits:
        if not edit.text or not edit.is_switched():
            problems.append(edit.problem(file, 'an edit needs a text, and PLANTED("id") in its wrong version'))
            continue
        found = [match.start() for match in re.finditer(f"(?={re.escape(edit.text)})", source)]
        if len(found) != 1:
            lines = ", ".join(str(source.count("\n", 0, begin) + 1) for begin in found)
            where = f" (lines {lines})" if found else ""
            problems.append(edit.problem(file, f"{len(found)} matches{where}, need exactly 1"))
            continue
        places.append((found[0], edit))
    places.sort(key=lambda place: place[0])
    for (begin, edit), (next_begin, other) in zip(places, places[1:]):
        if begin + len(edit.text) > next_begin:
            problems.append(edit.problem(file, f"overlaps the edit of {other.name()}"))
    for begin, edit in reversed(places):
        source = source[:begin] + edit.wrong + source[begin + len(edit.text):]
    return INCLUDE + source, problems


def listed_ids(data: Path) -> set[str]:
    """The bugs of mutants.json, and those of regressions.json that are no fault point's."""
    def read(name: str, key: str) -> list[dict]:
        return json.loads((data / name).read_text(encoding="utf-8"))[key]

    planted = {regression["plant"] for regression in read("regressions.json", "regressions")}
    return {mutant["id"] for mutant in read("mutants.json", "mutants")} | {
        id for id in planted if id and SITE_SEPARATOR not in id}


def compare_ids(edits: dict[str, list[Edit]], listed: set[str]) -> list[str]:
    """What edits.toml and the lists do not have in common."""
    planted = {id for of_file in edits.values() for edit in of_file for id in edit.ids()}
    return ([f"{id}: no edit plants it\n" for id in sorted(listed - planted)]
            + [f"{id}: planted by edits.toml, not listed in mutants.json or regressions.json\n" for id in sorted(planted - listed)])


def read_edits(data: Path) -> dict[str, list[Edit]]:
    """The edits of each file, of both lists."""
    edits: dict[str, list[Edit]] = {}
    for name in ("edits.toml", "faults.toml"):
        for file, of_file in tomllib.loads((data / name).read_text(encoding="utf-8")).items():
            edits.setdefault(file, []).extend(Edit(**edit) for edit in of_file)
    return edits


def planted_sites(data: Path) -> set[str]:
    """The sites where faults of generate.py can strike."""
    texts = [edit.wrong for of_file in read_edits(data).values() for edit in of_file]
    texts += [path.read_text(encoding="utf-8") for path in data.glob("planted_*.h")]
    return {site for text in texts for site in SITE.findall(text)}


def tracked_files(root: Path) -> list[str]:
    names = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    return [name for name in names.split("\0") if name and (root / name).is_file()]


def planted_tree(root: Path) -> tuple[dict[str, bytes], list[str]]:
    """Content of every file of the copy, and what is wrong with the edits."""
    data = root / "tests/mutants"
    edits = read_edits(data)
    problems = compare_ids(edits, listed_ids(data))
    tree = {name: (root / name).read_bytes() for name in tracked_files(root)}
    for file, of_file in edits.items():
        if file not in tree:
            problems += [edit.problem(file, "git tracks no such file") for edit in of_file]
            continue
        source, found = plant(file, tree[file].decode(), of_file)
        tree[file] = source.encode()
        problems += found
    tree[FILES] = "".join(f"{name}\n" for name in tree).encode()
    return tree, problems


def write_changed(tree: dict[str, bytes], destination: Path) -> int:
    """Writes the files whose content differs from what is there and removes those of earlier copies; returns how many
    were written."""
    files = destination / FILES
    earlier = files.read_text(encoding="utf-8").splitlines() if files.is_file() else []
    for name in set(earlier) - tree.keys():
        (destination / name).unlink(missing_ok=True)
    written = 0
    for name, content in tree.items():
        path = destination / name
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written += 1
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source_root", type=Path)
    parser.add_argument("destination", type=Path)
    options = parser.parse_args()
    if (options.destination / ".git").exists():
        sys.exit(f"plant.py: error: {options.destination} is a checkout; bugs belong into a copy")
    tree, problems = planted_tree(options.source_root)
    if problems:
        sys.exit("".join(f"plant.py: error: {problem}" for problem in problems)
                 + f"plant.py: {len(problems)} edits to bring up to date in tests/mutants/*.toml; nothing was written")
    written = write_changed(tree, options.destination)
    print(f"{options.destination}: {written} of {len(tree)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
