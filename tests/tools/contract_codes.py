#!/usr/bin/env python3
"""Codes and scales of activations by tools/reference_f64/contract.py, for oracle_test.

    python tests/tools/contract_codes.py BLOCK OUT.npz
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "reference_f64"))

from contract import quantize  # noqa: E402


def edge_blocks(n: int) -> np.ndarray:
    """Blocks of n activations, f32 [blocks, n]: of every size, with ties and almost ties, zeros, denormals, on both sides
    of where 127 / amax overflows, the largest number, and at the end ten blocks with NaN or Inf."""
    rng = np.random.default_rng(20)
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    edge = np.float32(127) / np.finfo(np.float32).max  # 127 / amax overflows just below
    halves = np.arange(n - 1) % 63 + 0.5

    def ended(values: np.ndarray, amax: float) -> np.ndarray:
        return np.append(values, amax)

    blocks = [rng.normal(size=n) * 10.0 ** rng.uniform(-40, 37) for _ in range(300)]
    blocks += [ended(halves, -127), ended(-halves, 127), ended(halves / 64, 127 / 64)]
    for amax in rng.uniform(1, 1000, 50).astype(np.float32):  # so close to ties that the roundings of f32 decide
        blocks += [ended(halves * amax / 127, amax), ended(halves * -amax / 127, amax)]
    blocks += [ended(rng.normal(size=n - 1), amax) for amax in (1e3, 1e30, -1e30, np.finfo(np.float32).max)]
    blocks += [np.zeros(n), -np.zeros(n), np.full(n, 1e-45), ended(np.zeros(n - 1), -1e-45), np.full(n, 1e-38)]
    for amax in (np.nextafter(edge, np.float32(0)), edge, np.nextafter(edge, inf), np.float32(4e-37)):
        blocks += [ended(rng.uniform(-1, 1, n - 1) * amax, -amax)]
    for bad in (nan, -nan, inf, -inf):
        blocks += [ended(rng.normal(size=n - 1), bad), ended(np.zeros(n - 1), bad)]
    blocks += [np.append(rng.normal(size=n - 2), pair) for pair in ([inf, nan], [nan, -inf])]
    return np.array(blocks, dtype=np.float32)


if __name__ == "__main__":
    x = edge_blocks(int(sys.argv[1]))
    codes, scale = quantize(x, x.shape[1])
    np.savez(sys.argv[2], x=x, codes=codes.astype(np.int32), scale=scale)
