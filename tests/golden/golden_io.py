"""Writing or checking of golden files, shared by the make_*.py scripts of this folder."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def emit(folder: Path, files: dict[str, bytes], argv: list[str]) -> int:
    """Writes `files` into `folder`, or with `--check` only compares. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    return emit_or_check(folder, files, parser.parse_args(argv).check)


def emit_or_check(folder: Path, files: dict[str, bytes], check: bool) -> int:
    """As `emit`, for scripts that parse their own arguments."""
    if not check:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        print(f"{folder.name}: {len(files)} files, {sum(map(len, files.values()))} bytes", file=sys.stderr)
        return 0
    stale = [name for name, data in files.items()
             if not (folder / name).is_file() or (folder / name).read_bytes() != data]
    for name in stale:
        print(f"{folder.name}/{name}: differs from what this script makes", file=sys.stderr)
    return 1 if stale else 0
