#!/usr/bin/env python3
"""Makes dequant/<TYPE>.blocks.bin and <TYPE>.expected.bin: block bytes and the f32 weights the `gguf` package gives.

    python tests/golden/make_dequant.py [--check]

Every type gets edge blocks (each special scale with each payload pattern in turn) and then seeded random blocks.
Scales are finite and no expected value is NaN, so the files may be compared as bits. `--check` makes nothing and exits
1 if the committed files differ.
"""

import sys
from dataclasses import dataclass

import gguf
import numpy as np

from golden_io import HERE, emit

SEED = 20240607
FOLDER = HERE / "dequant"


@dataclass(frozen=True)
class Layout:
    """Where a block keeps its f16 scales; everything else in the block is payload that may hold any byte."""

    scale_offsets: tuple[int, ...]
    blocks: int


# Byte offsets of the f16 fields d, m, dmin in ggml's block structs.
LAYOUTS = {
    "Q4_0": Layout((0,), 64), "Q4_1": Layout((0, 2), 64), "Q5_0": Layout((0,), 64), "Q5_1": Layout((0, 2), 64),
    "Q8_0": Layout((0,), 64), "Q2_K": Layout((80, 82), 24), "Q3_K": Layout((108,), 24), "Q4_K": Layout((0, 2), 24),
    "Q5_K": Layout((0, 2), 24), "Q6_K": Layout((208,), 24), "IQ4_NL": Layout((0,), 64), "IQ4_XS": Layout((0,), 24),
    # Types of codebooks and of three values, which have few scales and many codes.
    "IQ2_XXS": Layout((0,), 96), "IQ2_XS": Layout((0,), 96), "IQ2_S": Layout((0,), 96), "IQ3_XXS": Layout((0,), 96),
    "IQ3_S": Layout((0,), 96), "IQ1_S": Layout((0,), 96), "TQ1_0": Layout((52,), 24), "TQ2_0": Layout((64,), 24),
}

# f16 bit patterns: +-0, the least and greatest denormals, the least normal, +-65504, +-1, 1/3 rounded.
F16_EDGES = (0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x3555)
F32_EDGES = (0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7BFFFFFF,
             0xFBFFFFFF, 0x3EAAAAAB, 0x00012345, 0x3C010204)  # 0x7BFFFFFF * 128 stays finite


def payload_pattern(index: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Pattern number `index` of the edge blocks: all 0x00, all 0xFF, 0x0F, 0xF0, a ramp, random."""
    kind = index % 6
    if kind < 4:
        return np.full(size, (0x00, 0xFF, 0x0F, 0xF0)[kind], dtype=np.uint8)
    if kind == 4:
        return np.arange(size, dtype=np.uint32).astype(np.uint8)
    return rng.integers(0, 256, size, dtype=np.uint8)


def finite_f16(rng: np.random.Generator) -> int:
    """Any finite f16 bit pattern, uniformly; one in 32 is zero or denormal."""
    while True:
        bits = int(rng.integers(0, 0x10000))
        if bits & 0x7C00 != 0x7C00:
            return bits


def make_blocks(name: str, layout: Layout) -> np.ndarray:
    """Block bytes, [blocks, type size]: two rounds of edge scales where they fit, the rest random."""
    rng = np.random.default_rng([SEED, gguf.GGMLQuantizationType[name].value])
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, (layout.blocks, size), dtype=np.uint8)
    n_edges = len(F16_EDGES) if layout.blocks < 32 else 2 * len(F16_EDGES)
    for i in range(layout.blocks):
        if i < n_edges:
            # Shifting the pattern by the round pairs a scale with other bytes the second time.
            blocks[i] = payload_pattern(i + i // len(F16_EDGES), size, rng)
        for field, offset in enumerate(layout.scale_offsets):
            bits = F16_EDGES[(i + 5 * field) % len(F16_EDGES)] if i < n_edges else finite_f16(rng)
            blocks[i, offset:offset + 2] = np.frombuffer(np.uint16(bits).tobytes(), dtype=np.uint8)
    return blocks


def make_mxfp4() -> np.ndarray:
    """MXFP4, whose blocks begin with the exponent of a power of two: each of the 256 once, then others."""
    rng = np.random.default_rng([SEED, gguf.GGMLQuantizationType.MXFP4.value])
    blocks = rng.integers(0, 256, (256 + 64, 17), dtype=np.uint8)
    for i in range(len(blocks)):
        blocks[i] = payload_pattern(i, 17, rng)
        blocks[i, 0] = i if i < 256 else rng.integers(0, 256)
    return blocks


def make_iq1_m() -> np.ndarray:
    """IQ1_M, whose f16 scale lies in the high four bits of the four half-words at the end."""
    rng = np.random.default_rng([SEED, gguf.GGMLQuantizationType.IQ1_M.value])
    blocks = rng.integers(0, 256, (96, 56), dtype=np.uint8)
    for i in range(len(blocks)):
        if i < 2 * len(F16_EDGES):
            blocks[i] = payload_pattern(i + i // len(F16_EDGES), 56, rng)
        bits = F16_EDGES[i] if i < len(F16_EDGES) else finite_f16(rng)
        for half in range(4):
            high = 48 + 2 * half + 1
            blocks[i, high] = blocks[i, high] & 15 | (bits >> 4 * half & 15) << 4
    return blocks


def make_nvfp4() -> np.ndarray:
    """NVFP4, 64 weights with four scales UE4M3 before the codes: each of the 256 bytes as a scale, then random ones."""
    rng = np.random.default_rng([SEED, gguf.GGMLQuantizationType.NVFP4.value])
    blocks = rng.integers(0, 256, (96, 36), dtype=np.uint8)
    blocks[:64, :4] = np.arange(256).reshape(64, 4)
    for i in range(36):
        blocks[i, 4:] = payload_pattern(i, 32, rng)
    return blocks


def make_q8_k() -> tuple[np.ndarray, np.ndarray]:
    """Q8_K, which the gguf package does not dequantize, by its definition: f32 d, int8 qs[256], int16 bsums[16]
    (292 bytes); weight = d * qs, one f32 rounding. bsums are the true sums of 16, as a reader may check them."""
    rng = np.random.default_rng([SEED, gguf.GGMLQuantizationType.Q8_K.value])
    blocks, expected = [], []
    for i in range(24):
        if i < len(F32_EDGES):
            d = np.array(F32_EDGES[i], dtype="<u4").view("<f4")
            qs = payload_pattern(i, 256, rng).view(np.int8)
        else:
            d = np.array(np.ldexp(rng.uniform(-1, 1), rng.integers(-20, 8)), dtype="<f4")
            qs = rng.integers(-127, 128, 256).astype(np.int8)
        bsums = qs.reshape(16, 16).sum(axis=1, dtype=np.int32).astype("<i2")
        blocks.append(np.frombuffer(d.tobytes() + qs.tobytes() + bsums.tobytes(), dtype=np.uint8))
        expected.append(d * qs.astype(np.float32))
    return np.stack(blocks), np.stack(expected)


def make_packed_bits(kind: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Q1_0 and Q2_0, which the gguf package does not dequantize, by their definition: f16 d, then 16 bytes of codes of
    so many bits, the low bits first; weight = d * (2 q - 1) or d * (q - 1). Blocks as those of LAYOUTS."""
    rng = np.random.default_rng([SEED, kind])
    blocks = rng.integers(0, 256, (96, 18), dtype=np.uint8)
    for i in range(len(blocks)):
        if i < 2 * len(F16_EDGES):
            blocks[i] = payload_pattern(i + i // len(F16_EDGES), 18, rng)
        scale = F16_EDGES[i % len(F16_EDGES)] if i < 2 * len(F16_EDGES) else finite_f16(rng)
        blocks[i, :2] = np.frombuffer(np.uint16(scale).tobytes(), dtype=np.uint8)
    d = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    q = blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2 ** bits - 1)
    q = q.reshape(len(blocks), -1).astype(np.float32)
    return blocks, d * (2 * q - 1 if bits == 1 else q - 1)


def make_float16(name: str) -> np.ndarray:
    """2048 half-width floats as bytes: edges, infinities, and random finite patterns. No NaN: its
    payload is not defined."""
    rng = np.random.default_rng([SEED, gguf.GGMLQuantizationType[name].value])
    exponent = 0x7C00 if name == "F16" else 0x7F80
    edges = [*F16_EDGES, exponent, exponent | 0x8000, exponent - 1, (exponent - 1) | 0x8000, 0x0080, 0x007F, 0x3F80]
    bits = rng.integers(0, 0x10000, 4096).astype("<u2")
    bits = np.concatenate([np.array(edges, dtype="<u2"), bits[bits & exponent != exponent]])[:2048]
    return bits.view(np.uint8)


def main() -> int:
    files: dict[str, bytes] = {}

    def add(name: str, blocks: np.ndarray, expected: np.ndarray) -> None:
        expected = np.ascontiguousarray(expected, dtype="<f4")
        assert not np.isnan(expected).any(), name
        files[f"{name}.blocks.bin"] = blocks.tobytes()
        files[f"{name}.expected.bin"] = expected.tobytes()

    made = {name: make_blocks(name, layout) for name, layout in LAYOUTS.items()}
    made |= {"MXFP4": make_mxfp4(), "IQ1_M": make_iq1_m(), "NVFP4": make_nvfp4()}
    made |= {name: make_float16(name) for name in ("F16", "BF16")}
    for name, blocks in made.items():
        with np.errstate(over="ignore"):  # MXFP4's large ones are infinite
            add(name, blocks, gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]))
    add("Q8_K", *make_q8_k())
    add("Q1_0", *make_packed_bits(41, 1))
    add("Q2_0", *make_packed_bits(42, 2))
    return emit(FOLDER, files, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
