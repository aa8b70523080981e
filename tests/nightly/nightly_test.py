#!/usr/bin/env python3
"""Every test of this folder, as one program; in the interpreter of LLM_PYTHON when this one has no pytest."""

import importlib.util
import os
import sys
import unittest
from pathlib import Path


def main() -> int:
    if importlib.util.find_spec("pypi_simple") is None:
        python = os.environ.get("LLM_PYTHON")
        if not python or os.environ.get("NIGHTLY_TEST_CHILD"):
            print("SKIPPED: needs pypi-simple, pytest and huggingface_hub (LLM_PYTHON, an interpreter with tests/golden/requirements.txt)")
            return 0
        os.environ["NIGHTLY_TEST_CHILD"] = "1"
        os.execv(python, [python, "-B", __file__, *sys.argv[1:]])
    tests = unittest.defaultTestLoader.discover(str(Path(__file__).parent), pattern="*_test.py")
    return 0 if unittest.TextTestRunner(buffer=True).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
