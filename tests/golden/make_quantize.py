#!/usr/bin/env python3
"""Makes quantize/input.bin (f32) and quantize/<TYPE>.blocks.bin: what the `gguf` package's quantizers give for it.

    python tests/golden/make_quantize.py [--check]

The input is rows of 32 values: zeros, signed zeros, exact ties of each rounding rule, f32 denormals, tiny and huge
scales, f16 rounding ties and overflow, then seeded normals of many magnitudes. No case needs 1 / d to overflow: there
the quantizers divide into infinity, and converting the result to an integer is undefined in C.
"""

import sys

import gguf
import numpy as np

from golden_io import HERE, emit

SEED = 20240607
FOLDER = HERE / "quantize"
BLOCK = 32
TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "MXFP4")


def edge_rows(rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of 32, each aimed at one rule."""
    k = np.arange(BLOCK, dtype=np.float64)
    smallest = 2.0 ** -149
    spread = rng.uniform(-1, 1, BLOCK)
    last_large = spread * 1e-3
    last_large[-1] = -1.0
    return [
        np.zeros(BLOCK),
        np.full(BLOCK, -0.0),
        np.where(k == 7, 1.0, 0.0),  # one weight, the rest zero
        np.where(k == 7, -1.0, 0.0),
        np.ones(BLOCK),  # min equals max: Q4_1 and Q5_1 get d = 0
        -np.ones(BLOCK),
        np.where(k == 0, -8.0, (k - 16) / 2),  # Q4_0: d = 1 after the sign rule, values k + 0.5 tie
        np.where(k == 31, 8.0, (k - 16) / 2),  # +8 and -8 equally large: the first one decides the sign of d
        np.where(k == 0, 8.0, (k - 16) / 2),
        np.where(k == 0, -16.0, k - 15.5),  # Q5_0: ties at d = 1
        np.where(k == 0, 127.0, k - 15.5),  # Q8_0: ties at d = 1, rounded away from zero
        np.where(k == 0, -127.0, 15.5 - k),
        np.where(k < 16, k, k - 16) + np.where(k < 15, 0.5, 0.0) * (k > 0),  # Q4_1: min 0, max 15, ties
        np.where(k == 31, 31.0, k * 1.0 + 0.5 * (k > 0)),  # Q5_1: min 0, max 31, ties
        np.where(k == 3, 1.0, k * smallest),  # f32 denormals beside a normal maximum
        np.where(k == 3, 2.0 ** -14, 2.0 ** -24 * k),
        spread * 5e-37 / np.abs(spread).max(),  # d is an f32 denormal for Q8_0, and 0 in f16 for all
        spread * 2.0 ** -22,  # d is an f16 denormal
        spread * 2.0 ** -17,
        spread * 60000.0 / np.abs(spread).max(),  # large, every f16 scale still finite
        np.where(k % 2 == 0, 60000.0, -60000.0),
        1.0 + k * 2.0 ** -11,  # f16 ties to even
        1.0 + k * 2.0 ** -8,  # bf16 ties to even
        (2 * k + 1) * 2.0 ** -25,  # f16 denormal ties
        np.where(k < 16, 65519.0, 65520.0),  # the last value that rounds to 65504, and the first that overflows f16
        k - 16,
        last_large,
    ]


def make_input() -> np.ndarray:
    """The f32 input, [rows, 32]."""
    rng = np.random.default_rng(SEED)
    rows = edge_rows(rng)
    for exponent in range(-12, 13):
        rows.append(rng.normal(size=BLOCK) * 2.0 ** exponent)
    for _ in range(28):
        rows.append(rng.normal(size=BLOCK) * 0.02)  # as weights are
    return np.stack(rows).astype("<f4")


def check_defined(x: np.ndarray) -> None:
    """Asserts that no quantizer of TYPES meets an infinite 1 / d, see the module text."""
    peak, width = np.abs(x).max(axis=1), x.max(axis=1) - x.min(axis=1)
    for d in (peak / 8, peak / 16, peak / 127, width / 15, width / 31):
        d = d.astype(np.float32)
        assert np.isfinite(np.float32(1) / d[d != 0]).all()


def packed_bits(x: np.ndarray, bits: int) -> np.ndarray:
    """Q1_0 and Q2_0, which the gguf package does not make, by their definition: f16 d, then 16 bytes of codes of so many
    bits, the low bits first. d is the mean magnitude (a sum in f32 in ascending order) or the largest one; a code says
    whether the weight has no sign, or is 1 + x / d, rounded half away from 0."""
    x = x.reshape(-1, 128 // bits)
    if bits == 1:
        d = np.add.accumulate(np.abs(x), axis=1)[:, -1] / np.float32(128)
        q = x >= 0
    else:
        d = np.abs(x).max(axis=1)
        inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d > 0)
        scaled = x * inverse[:, None]
        q = 1 + np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)
    q = q.astype(np.uint8).reshape(len(x), 16, -1) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.concatenate([d.astype("<f2").view(np.uint8).reshape(-1, 2), q.sum(axis=-1, dtype=np.uint8)], axis=1)


def main() -> int:
    x = make_input()
    check_defined(x)
    files = {"input.bin": x.tobytes()}
    with np.errstate(over="ignore"):  # 65520 is meant to overflow f16
        for name in TYPES:
            blocks = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
            files[f"{name}.blocks.bin"] = np.ascontiguousarray(blocks).tobytes()
        files |= {f"Q{bits}_0.blocks.bin": packed_bits(x, bits).tobytes() for bits in (1, 2)}
    return emit(FOLDER, files, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
