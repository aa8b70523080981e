"""Tests that need Python packages run again under LLM_PYTHON, which has them (./dev test sets it)."""

import os
import sys


def run_again(error: ImportError) -> None:
    """Replaces this process by one of LLM_PYTHON; where there is none, or it lacks the package too, the test is skipped."""
    python = os.environ.get("LLM_PYTHON")
    if not python or "LLM_TEST_AGAIN" in os.environ:
        print(f"SKIPPED: {error} (set LLM_PYTHON)")
        sys.exit(0)
    os.environ["LLM_TEST_AGAIN"] = "1"
    os.execv(python, [python, "-B", *sys.argv])
