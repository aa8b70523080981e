#!/usr/bin/env python3
"""Makes quant/formats/codebooks.cpp: the codebooks of IQ1, IQ2 and IQ3, whose values are those of the `gguf` package.

    python tests/golden/make_codebooks.py [--check]

An entry holds 8 indices of 2 bits, or 4 of 3 bits, the first one lowest. What an index stands for is in
quant/formats/codebook_blocks.h, in the order of VALUES here. `--check` makes nothing and exits 1 if the committed file differs.
"""

import sys

import gguf
import numpy as np

from golden_io import HERE, emit

IQ2, IQ1 = (8, 25, 43), (-1, 0, 1)
VALUES = {"IQ2_XXS": IQ2, "IQ2_XS": IQ2, "IQ2_S": IQ2, "IQ1_S": IQ1,
          "IQ3_XXS": (4, 12, 20, 28, 36, 44, 52, 62), "IQ3_S": (1, 3, 5, 7, 9, 11, 13, 15)}
NAMES = {"IQ2_XXS": "kIq2XxsBook", "IQ2_XS": "kIq2XsBook", "IQ2_S": "kIq2SBook", "IQ1_S": "kIq1Book",
         "IQ3_XXS": "kIq3XxsBook", "IQ3_S": "kIq3SBook"}
PER_LINE = 12


def entries(kind: str) -> np.ndarray:
    """The codebook of a type, an integer for each entry."""
    traits = getattr(gguf.quants, kind)
    traits.init_grid()
    grid = traits.grid.reshape(traits.grid_shape)
    values = np.array(VALUES[kind], dtype=np.float32)
    assert np.isin(grid, values).all()
    bits = 16 // grid.shape[1] if len(values) == 3 else 3
    indices = np.searchsorted(values, grid).astype(np.uint32)
    return (indices << (bits * np.arange(grid.shape[1], dtype=np.uint32))).sum(axis=1)


def table(kind: str) -> str:
    """The definition of a codebook in C++."""
    words = [f"0x{entry:04X}" for entry in entries(kind)]
    lines = [", ".join(words[i:i + PER_LINE]) for i in range(0, len(words), PER_LINE)]
    body = ",\n    ".join(lines)
    return f"const std::uint16_t {NAMES[kind]}[{len(words)}] = {{\n    {body}}};\n"


def main() -> int:
    head = ('#include "quant/formats/codebooks.h"\n\n'
            "// Made by tests/golden/make_codebooks.py. The order of entries is part of the formats.\n\n"
            "namespace llm {\n\n")
    text = head + "\n".join(table(kind) for kind in NAMES) + "\n}  // namespace llm\n"
    return emit(HERE.parent.parent / "quant" / "formats", {"codebooks.cpp": text.encode()}, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
