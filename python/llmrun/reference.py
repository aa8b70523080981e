"""Makes a reference of a GGUF: every activation, computed in numpy and f64 by code that shares nothing with the engine.

    python -m llmrun.reference ORIGINAL.gguf --ids-random 64 -o ref.npz
    llmcheck FILE.gguf --layer-diff ref.npz

Options are those of tools/reference_f64/from_gguf.py (--help). Needs the package gguf: pip install "llmrun[reference]".
"""

from __future__ import annotations

import sys
from pathlib import Path


def _folder() -> Path:
    """The oracle: in the package, or in the checkout that this file is in."""
    here = Path(__file__).resolve().parent
    return next(folder for folder in (here / "reference_f64", here.parents[1] / "tools/reference_f64") if folder.is_dir())


def main(argv: list[str] | None = None) -> int:
    sys.path.insert(0, str(_folder()))
    try:
        import from_gguf
    except ModuleNotFoundError as error:
        print(f"llmrun.reference: error: Python has no package {error.name}, need it: pip install 'llmrun[reference]'", file=sys.stderr)
        return 2
    return from_gguf.main(argv)


if __name__ == "__main__":
    sys.exit(main())
