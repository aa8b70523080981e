#!/usr/bin/env python3
"""Checks that every folder includes only itself and what lies below it (ARCHITECTURE.md).

Fails on an include upwards or sideways, on one of a folder that is internal to others, on a folder with sources
that is not in the table, and on two headers that define a type of one name.
"""

import graphlib
import pathlib
import re
import sys

# Each folder with the folders it stands on. It may include those and all that they stand on.
STANDS_ON = {
    "base": [],
    "cmake": ["base"],  # a program that CMake asks
    "quant/numerics": ["base"],
    "quant/formats": ["quant/numerics"],
    "quant/formats/reference": ["quant/formats"],
    "quant/formats/quantize": ["quant/formats"],
    "quant/kernels/simd": ["quant/formats"],
    "quant/kernels": ["quant/kernels/simd"],
    "tokenizer": ["base"],
    "engine/gguf": ["quant/formats"],
    "engine/model": ["engine/gguf", "quant/kernels", "tokenizer"],
    "engine/state": ["engine/model"],
    "engine/forward": ["engine/state"],
    "engine/forward/reference": ["engine/forward", "quant/formats/reference"],
    "engine": ["engine/forward/reference"],
    "engine/sampler": ["quant/kernels", "tokenizer"],
    # The one folder that knows xgrammar.
    "engine/grammar": ["tokenizer"],
    "engine/chat": ["base"],
    "engine/generation": ["engine", "engine/chat", "engine/sampler", "engine/grammar"],
    "engine/batching": ["engine/generation"],
    "validate/reference": ["engine"],
    "validate/report": ["validate/reference"],
    "validate/selftest": ["validate/report", "engine/generation"],
    "validate/outputs": ["validate/selftest"],
    "validate/gguf_lint": ["engine/generation"],
    "validate/provenance": ["validate/report", "engine/generation"],
    "validate/remote_server": ["validate/report", "engine/generation"],
    "bench": ["engine", "quant/formats/quantize"],
    "tools/common": ["engine/model", "engine/sampler"],
    # Models of the Hugging Face hub.
    "tools/hub": ["tools/common"],
    "tools/llmgguf": ["tools/common", "validate/gguf_lint", "validate/reference", "quant/formats/quantize"],
    "tools/llmquant": ["tools/common", "engine/model", "quant/formats/quantize"],
    # The scheduler with arrivals, lengths and a clock, real or virtual.
    "tools/llmload": ["tools/hub", "engine/sampler", "engine/batching"],
    "tools/llmrun": ["tools/hub", "engine/generation", "validate/provenance"],
    "tools/llmserve/http": ["base"],
    "tools/llmserve/conversations": ["engine/generation", "tools/common"],
    "tools/llmserve/api": ["tools/llmserve/http", "tools/llmserve/conversations", "tools/hub", "engine/batching", "validate/provenance"],
    "tools/llmserve/models": ["tools/llmserve/api"],
    "tools/llmserve/page": [],
    "tools/llmserve": ["tools/llmserve/models", "tools/llmserve/page"],
    # The package for Python has llmserve's requests and answers.
    "python": ["tools/llmserve", "validate/selftest"],
    "tools/llmtok": ["tools/hub", "engine/model"],
    # The comparison with reference token ids is llmcheck --tokenizer as well.
    "tools/llmcheck": ["tools/hub", "tools/llmtok", "validate/outputs", "validate/provenance",
                       "validate/remote_server"],
    # A synthetic model's tensors get their types from llmquant's recipes.
    "tools/llmsynth": ["tools/llmquant"],
    # Measures synthetic models, and relates its figures to the machine's peaks.
    "tools/llmbench": ["tools/hub", "tools/llmsynth", "engine", "bench"],
}
# Parts of another folder, which alone may include them; they include what it may.
INTERNAL = {
    "engine/chat/jinja": "engine/chat",
    "tokenizer/byte_bpe": "tokenizer",
    "tokenizer/sentencepiece": "tokenizer",
}
# The definitions are for those that prove or replay: everybody else uses the fast paths.
SEEN_BY = {
    "quant/formats/reference": ["engine/forward/reference", "validate/selftest"],
    "engine/forward/reference": ["engine", "validate/provenance", "validate/reference", "validate/selftest"],
}
# A folder in one of these is a part of it, which all of it may include.
ROOMS = "validate/"
UNCHECKED = {"build", "tests"}  # tests may include everything
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def closures() -> dict[str, set[str]]:
    """Every folder with itself and all that lies below it. Raises graphlib.CycleError."""
    below: dict[str, set[str]] = {}
    for folder in graphlib.TopologicalSorter(STANDS_ON).static_order():
        below[folder] = {folder}.union(*(below[lower] for lower in STANDS_ON[folder]))
    return below


def layer_of(folder: str) -> str:
    """The row of the table that a folder stands in: its own, but its room's in validate/."""
    return "/".join(folder.split("/")[:2]) if folder.startswith(ROOMS) else folder


def fault(folder: str, target: str, below: dict[str, set[str]]) -> str | None:
    """What is wrong with an include of `target` in `folder`, or None."""
    layer = INTERNAL.get(folder, folder)
    target = layer_of(target)
    if target in INTERNAL:
        return None if INTERNAL[target] == layer else f"it is internal to {INTERNAL[target]}"
    if target not in STANDS_ON:
        return "no such folder; write includes from the project's root"
    if target not in below[layer]:
        return f"{layer} does not stand on {target}"
    if target in SEEN_BY and layer not in (target, *SEEN_BY[target]):
        return f"only {', '.join(SEEN_BY[target])} may see {target}"
    return None


def violations(root: pathlib.Path):
    """Yields one message for each include, or folder, that breaks a rule."""
    below = closures()
    unknown = set()
    for path in sorted(root.glob("[!.]*/**/*")):
        folder = layer_of(str(path.relative_to(root).parent))
        if path.suffix not in (".h", ".cpp") or folder.split("/")[0] in UNCHECKED:
            continue
        if folder not in STANDS_ON and folder not in INTERNAL:
            if folder not in unknown:
                yield f"{folder}: not in the table of scripts/check_layers.py"
            unknown.add(folder)
            continue
        for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
            wrong = fault(folder, str(pathlib.PurePosixPath(included).parent), below)
            if wrong:
                yield f"{path.relative_to(root)}: includes {included}: {wrong}"


def names_given_twice(root: pathlib.Path):
    """Yields one message for each type of a namespace that two headers define: in a program that has both, one's functions
    are taken for the other's (the one-definition rule), which no linker says."""
    seen: dict[tuple[str, ...], str] = {}
    for path in sorted(root.glob("[!.]*/**/*.h")):
        text = path.read_text(encoding="utf-8")
        namespaces = tuple(re.findall(r"^namespace ([\w:]+) \{", text, re.MULTILINE))
        if path.relative_to(root).parts[0] in UNCHECKED or re.search(r"^namespace \{", text, re.MULTILINE):
            continue
        for name in re.findall(r"^(?:struct|class|enum class) (\w+)\b(?!<)[^;\n]*\{", text, re.MULTILINE):
            other = seen.setdefault((*namespaces, name), str(path.relative_to(root)))
            if other != str(path.relative_to(root)):
                yield f"{path.relative_to(root)}: {name}: {other} has one of that name"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    found = [*violations(root), *names_given_twice(root)]
    for message in found:
        print(message, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
