#!/usr/bin/env python3
"""Converts a Hugging Face checkpoint to a GGUF; docs/convert.md says of which models.

    python tools/convert/hf_to_gguf.py CHECKPOINT_DIR -o MODEL.gguf
    python tools/convert/hf_to_gguf.py CHECKPOINT_DIR -o MODEL.gguf --type f16

Needs numpy and gguf, and sentencepiece for a tokenizer.model; no torch. One tensor is in memory at a time.
"""

import argparse
import os
import sys
from pathlib import Path

import gguf
import numpy as np

from hf_checkpoint import Checkpoint, ConversionError, f32_to_bf16
from hf_family import family_of
from hf_hparams import read_hparams, write_hparams
from hf_model import Planned, halves_to_pairs, plan_tensors
from hf_tokenizer import write_tokenizer

TYPES = {"F32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
         "F16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
         "BF16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
         "MXFP4": (gguf.GGMLQuantizationType.MXFP4, gguf.LlamaFileType.MOSTLY_MXFP4_MOE)}


def stored_type(planned: Planned, wanted: str) -> str:
    """F32 for vectors, also of experts, and routers; for matrices what is wanted, or the checkpoint's own type."""
    if len(planned.source.shape) == 1 or planned.name.endswith((".bias", "ffn_gate_inp.weight")):
        return "F32"
    return planned.source.dtype if wanted == "auto" else wanted.upper()


def to_f16(name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    if np.isinf(half).any() and np.isfinite(x).all():
        raise ConversionError(f"{name} holds {np.abs(x).max():.4g}, beyond F16's 65504; give --type bf16 or f32")
    return half


def encoded(planned: Planned, kind: str) -> np.ndarray:
    """The tensor's elements as `kind`, in the GGUF's order of rows; BF16 as u16, MXFP4 as its bytes."""
    source = planned.source
    if source.dtype == kind:
        value = np.asarray(source.raw())
    elif kind == "BF16":
        value = f32_to_bf16(source.f32())
    else:
        value = source.f32() if kind == "F32" else to_f16(source.name, source.f32())
    if planned.offset:
        value = value + np.float32(planned.offset)
    return np.ascontiguousarray(halves_to_pairs(value, planned.pair_heads) if planned.pair_heads else value)


def convert(directory: Path, output: Path, *, kind: str = "auto", context: int | None = None, name: str | None = None,
            note=lambda text: None) -> None:
    """Writes `output`. Raises ConversionError for what is not converted, before anything is written, and OSError."""
    checkpoint = Checkpoint(directory)
    family = family_of(checkpoint.config)
    hp = read_hparams(checkpoint, context)
    plan = plan_tensors(checkpoint, family, hp)
    kinds = [stored_type(planned, kind) for planned in plan]
    part = output.with_name(output.name + ".part")
    writer = gguf.GGUFWriter(part, family.architecture)
    writer.add_name(name or directory.resolve().name)
    writer.add_file_type(TYPES[next(k for k, p in zip(kinds, plan) if len(p.source.shape) > 1)][1])
    write_hparams(writer, hp)
    note(f"{family.architecture}, {hp.n_layers} layers; {write_tokenizer(writer, checkpoint, hp.n_vocab)}")
    for tensor, value in hp.rope.tensors.items():
        writer.add_tensor_info(tensor, value.shape, value.dtype, value.nbytes)
    for planned, stored in zip(plan, kinds):
        size = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(np.uint16),
                "MXFP4": np.dtype(np.uint8)}[stored]
        shape = planned.source.shape
        if stored == "MXFP4":
            shape = gguf.quant_shape_to_byte_shape(shape, gguf.GGMLQuantizationType.MXFP4)
        writer.add_tensor_info(planned.name, shape, size, int(np.prod(shape)) * size.itemsize, raw_dtype=TYPES[stored][0])
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for value in hp.rope.tensors.values():
            writer.write_tensor_data(value)
        for planned, stored in zip(plan, kinds):
            writer.write_tensor_data(encoded(planned, stored))
            note(f"{planned.name} {stored}")
        writer.close()
        os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="directory with config.json, *.safetensors and a tokenizer")
    parser.add_argument("-o", "--output", type=Path, required=True, help="GGUF to write; an older one is replaced")
    parser.add_argument("--type", choices=("auto", "f32", "f16", "bf16"), default="auto",
                        help="of matrices (default: the checkpoint's own); vectors are F32")
    parser.add_argument("--context", type=int, metavar="N", help="positions of the model: fewer than it was trained for, or up to those that YaRN gives it")
    parser.add_argument("--name", help="general.name (default: the directory's)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is written")
    args = parser.parse_args(argv)
    try:
        convert(args.checkpoint, args.output, kind=args.type, context=args.context, name=args.name,
                note=print if args.verbose else lambda text: None)
    except (ConversionError, OSError) as error:
        print(f"hf_to_gguf.py: error: {args.checkpoint}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
