#!/usr/bin/env python3
"""Freezes what transformers computes for the embedded model, so that CI compares with it without torch.

    python tests/validate/reference/freeze_hf.py

Writes tests/validate/reference/npz/embedded_hf.npz: tools/oracle/from_hf.py on models/fable-3m-f16.gguf, three steps, deflated.
Run it again whenever the model changes. Needs torch, transformers, numpy and gguf.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
IDS = "1,520,549,261,447"  # <s> "Once upon a time", to be made again with llmtok for another vocabulary


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "plain.npz"
        subprocess.run([sys.executable, ROOT / "tools/oracle/from_hf.py", ROOT / "models/fable-3m-f16.gguf",
                        "--ids", IDS, "--steps", "3,1,1", "-o", plain], check=True)
        np.savez_compressed(ROOT / "tests/validate/reference/npz/embedded_hf.npz", **np.load(plain))


if __name__ == "__main__":
    main()
