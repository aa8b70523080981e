#!/usr/bin/env python3
"""Keeps the table of docs/models.md equal to the facts: what each family of models was compared with.

    scripts/models_page.py            rewrites the last three columns
    scripts/models_page.py --check    exits 1 and names what is out of date

A golden belongs to the row with its class and architecture, a random model (tests/hf_parity/shapes.py) to that of the golden whose name
begins its own, published weights to that of their class. Every architecture that loads has a row.
"""

import argparse
import collections
import json
import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "hf_parity"))

from shapes import FAMILY_SHAPES, SHAPES  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
GOLDENS = ROOT / "tests" / "golden" / "architectures"
ASSISTANTS = GOLDENS.parent / "assistant"  # drafts that read the keys and values of a golden
HEAD = ("| family | sizes | share of downloads | transformers' class | `general.architecture` | special features | golden | random models "
        "| published weights |", "|" + 9 * "---|")
PUBLISHED = {"smollm2-135m-instruct": "LlamaForCausalLM", "gemma-3-270m": "Gemma3ForCausalLM"}  # families of models.lock with a reference `real`
QUOTED = re.compile(r"`([^`]+)`")


def architecture_of(golden: pathlib.Path) -> str:
    """A GGUF's first value."""
    with open(golden, "rb") as file:
        (key,) = struct.unpack("<24xQ", file.read(32))
        if file.read(key) != b"general.architecture":
            raise ValueError(f"{golden.name} does not begin with its architecture")
        (size,) = struct.unpack("<4xQ", file.read(12))
        return file.read(size).decode()


def facts() -> tuple[dict, collections.Counter, dict]:
    """Goldens, the number of random models and published files, by class and architecture, or by class. @throws ValueError"""
    goldens, row_of = collections.defaultdict(list), {}
    for path in sorted(GOLDENS.glob("*.gguf")):
        (kind,) = json.loads((GOLDENS / path.stem / "config.json").read_text(encoding="utf-8"))["architectures"]
        row_of[path.stem] = kind, architecture_of(path)
        goldens[row_of[path.stem]].append(path.stem)
    for path in sorted(ASSISTANTS.glob("*.gguf")):
        goldens["Gemma4AssistantForCausalLM", architecture_of(path)].append(path.stem)
    shapes = collections.Counter({("LlamaForCausalLM", "llama"): len(SHAPES)})
    for shape in FAMILY_SHAPES:
        shapes[row_of[max((name for name in row_of if shape.name.startswith(f"{name}-")), key=len)]] += 1
    files = collections.defaultdict(list)
    for model in json.loads((ROOT / "models" / "models.lock").read_text(encoding="utf-8"))["models"]:
        if "real" in model.get("references", {}):
            files[PUBLISHED[model["family"]]].append(model["file"].removesuffix(".gguf"))
    return goldens, shapes, files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    goldens, shapes, files = facts()
    text = PAGE.read_text(encoding="utf-8")
    start = text.index("| family |")
    _, _, *rows = text[start:text.index("\n\n", start)].splitlines()
    lines, named = [*HEAD], set()
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")][:6]
        (architecture,) = QUOTED.findall(cells[4])
        keys = [(kind, architecture) for kind in QUOTED.findall(cells[3])]
        named |= {architecture}
        own = sorted(golden for key in keys for golden in goldens.pop(key, ()))
        published = [name for kind, _ in keys for name in files.pop(kind, ())]
        lines.append("| " + " | ".join((*cells, ", ".join(f"`{name}`" for name in own) or "none", str(sum(shapes.pop(key, 0) for key in keys)),
                                        ", ".join(published) or "none")) + " |")
    loaded = set(re.findall(r'\.name = "([^"]+)"', (ROOT / "engine" / "model" / "architecture.cpp").read_text(encoding="utf-8")))
    wrong = [f"docs/models.md: no row has {what}" for what in (*goldens, *shapes, *files)]
    wrong += [f"docs/models.md: {name} does not load, or has no row" for name in sorted(loaded ^ named)]
    page = text[:start] + "\n".join(lines) + text[text.index("\n\n", start):]
    if arguments.check and page != text:
        wrong.append("docs/models.md is out of date; run scripts/models_page.py")
    if not arguments.check:
        PAGE.write_text(page, encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
