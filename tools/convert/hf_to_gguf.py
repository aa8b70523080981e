#!/usr/bin/env python3
"""Converts a Hugging Face checkpoint to a GGUF by llama.cpp's converter, and puts back what that drops (docs/convert.md).

    ./dev convert CHECKPOINT_DIR -o MODEL.gguf
    ./dev convert CHECKPOINT_DIR -o MODEL.gguf --type f16

`./dev convert` runs it in an environment with the packages of requirements.txt beside it.
"""

import argparse
import collections
import math
import os
import sys
import traceback
from pathlib import Path
from typing import Iterator

import llama_cpp
from errors import ConversionError

MATRIX_TYPES = ("auto", "f32", "f16", "bf16")


def tensors_of(directory: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Name, type and shape of each tensor of a checkpoint. @throws ConversionError"""
    from safetensors import SafetensorError, safe_open

    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        pickled = sorted(path.name for path in directory.glob("pytorch_model*.bin"))
        raise ConversionError(f"no safetensors: {pickled[0]} is a pickle, which can run code and is not read; save the model with "
                              "save_pretrained of transformers" if pickled else "no safetensors: need model.safetensors, or its "
                              "parts and model.safetensors.index.json")
    for path in files:
        try:
            with safe_open(path, "numpy") as tensors:
                for name in tensors.keys():
                    part = tensors.get_slice(name)
                    yield name, part.get_dtype(), part.get_shape()
        except SafetensorError as error:
            raise ConversionError(f"{path.name} is not a safetensors file, or is truncated ({error})") from error


def convert(directory: Path, output: Path, *, kind: str = "auto", context: int | None = None, name: str | None = None,
            verbose: bool = False) -> None:
    """Writes `output`. @throws ConversionError, llama_cpp.Unavailable, OSError, and what the converter throws; no file is left then"""
    if not (directory / "config.json").is_file():
        raise ConversionError("no config.json; need the directory of a Hugging Face checkpoint")
    tensors = list(tensors_of(directory))
    elements = collections.Counter()
    for _, dtype, shape in tensors:
        elements[dtype] += math.prod(shape) if len(shape) > 1 else 0
    if kind == "auto" and elements.most_common(1)[0][0] == "F32":  # which the converter would cut to F16
        kind = "f32"
    mtp = any(tensor.removeprefix("model.").startswith("mtp.") for tensor, _, _ in tensors)
    llama_cpp.load(verbose)
    import gguf
    import torch

    import run

    part = output.with_name(output.name + ".part")
    kinds = {"auto": gguf.LlamaFileType.GUESSED, "f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16,
             "bf16": gguf.LlamaFileType.MOSTLY_BF16}
    try:
        with torch.inference_mode():
            run.write(directory, part, kinds[kind], context, name or directory.resolve().name, mtp=mtp, verbose=verbose)
        os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)


def explained(error: Exception) -> str:
    """Our own errors are sentences; those of the converter get their place in it."""
    if isinstance(error, (ConversionError, llama_cpp.Unavailable, OSError)):
        return str(error)
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"llama.cpp's converter ends with {type(error).__name__} in {Path(at.filename).name}:{at.lineno}: {error or at.line}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hf_to_gguf.py", description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="directory with config.json, *.safetensors and a tokenizer")
    parser.add_argument("-o", "--output", type=Path, required=True, help="GGUF to write; an older one is replaced")
    parser.add_argument("--type", choices=MATRIX_TYPES, default="auto",
                        help="of matrices (default: the checkpoint's own); vectors are F32")
    parser.add_argument("--context", type=int, metavar="N",
                        help="positions of the model: fewer than it was trained for, or up to those that YaRN gives it")
    parser.add_argument("--name", help="general.name (default: the directory's)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is written")
    args = parser.parse_args(argv)
    try:
        convert(args.checkpoint, args.output, kind=args.type, context=args.context, name=args.name, verbose=args.verbose)
    except Exception as error:  # the converter has no error type of its own
        print(f"hf_to_gguf.py: error: {args.checkpoint}: {explained(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
