#!/usr/bin/env python3
"""Checks that folders include only what lies below them (ARCHITECTURE.md).

Two rules: a layer may include only the layers listed for it, and other top-level folders see only the headers
at a layer's root or in one of its public sub-folders, never `internal/`.
"""

import pathlib
import re
import sys

ALLOWED = {
    "base": {"base"},
    "quant": {"quant", "base"},
    "tokenizer": {"tokenizer", "base"},
    "engine": {"engine", "quant", "tokenizer", "base"},
    "validate": {"validate", "engine", "quant", "tokenizer", "base"},
    "tools": {"tools", "bench", "validate", "engine", "quant", "tokenizer", "base"},
    "bench": {"bench", "engine", "quant", "tokenizer", "base"},
}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def violations(root: pathlib.Path):
    """Yields one message for each include that breaks a rule."""
    for layer, allowed in ALLOWED.items():
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                target = included.split("/")[0]
                where = f"{path.relative_to(root)}: includes {included}"
                if target in ALLOWED and target not in allowed:
                    yield f"{where}; {layer} may include only {', '.join(sorted(allowed))}"
                elif target in ALLOWED and target != layer and "/internal/" in included:
                    yield f"{where}, which is internal to {target}"
                elif target not in ALLOWED:
                    yield f"{where}; write includes from the project's root"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    for message in found:
        print(message, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
