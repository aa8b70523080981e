"""Where the numeric contract (docs/numerics.md) rounds: activations to int8 codes, keys and values to the cache's type.

Written from that page alone. An `Arithmetic` says what a forward pass in f64 rounds, and where; the sums between two roundings
stay in f64, so that an engine that computes the same op on the same f32 inputs differs by the rounding of its own sums only.
"""

from dataclasses import dataclass

import numpy as np

# Activations that share a scale in products with every type of the contract's table; 1: they stay in f32.
BLOCK = {"Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q5_1": 32, "Q8_0": 32, "IQ4_NL": 32, "MXFP4": 32, "NVFP4": 32, "Q1_0": 32, "Q2_0": 32,
         "Q2_K": 256, "Q3_K": 256, "Q4_K": 256, "Q5_K": 256, "Q6_K": 256, "Q8_K": 256, "IQ4_XS": 256,
         "IQ1_S": 256, "IQ1_M": 256, "IQ2_XXS": 256, "IQ2_XS": 256, "IQ2_S": 256, "IQ3_XXS": 256, "IQ3_S": 256,
         "TQ1_0": 256, "TQ2_0": 256, "F32": 1, "F16": 1, "BF16": 1}


def to_f32(x: np.ndarray) -> np.ndarray:
    """x rounded to f32 (nearest, ties to even; overflow gives Inf), held in f64."""
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(np.float32).astype(np.float64)


def to_f16(x: np.ndarray) -> np.ndarray:
    """x rounded to f16 (nearest, ties to even; overflow gives Inf), held in f64."""
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(np.float16).astype(np.float64)


def quantize(x: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Int8 codes of f32 activations and the f32 scale of every `block` of them, both by the rules of the contract.

    x is [..., n], n a multiple of block. Returns codes, i8 [..., n / block, block], and scales, f32 [..., n / block].
    """
    x = np.ascontiguousarray(x, dtype=np.float32)
    x = x.reshape(*x.shape[:-1], -1, block)
    one = np.float32(127)
    amax = (x.view(np.uint32) & np.uint32(0x7FFFFFFF)).max(axis=-1).view(np.float32)  # by bits: NaN > Inf > numbers
    with np.errstate(all="ignore"):
        scale, inverse = amax / one, one / amax
        vanishing = np.isinf(inverse)  # of 0 and of denormals
        codes = np.rint(x * inverse[..., None])  # f32 throughout; rint takes ties to even
    scale = np.where(vanishing, np.float32(0), scale)
    codes = np.where((vanishing | ~np.isfinite(amax))[..., None], np.float32(0), codes)
    return codes.astype(np.int8), scale


def dequantize(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """codes * scale as [..., n]. Arithmetic in f64; 0 * Inf and 0 * NaN are NaN, which is how a fault stays visible."""
    with np.errstate(invalid="ignore"):
        value = codes.astype(np.float64) * scale.astype(np.float64)[..., None]
    return value.reshape(*codes.shape[:-2], -1)


class Arithmetic:
    """Rounds nothing: the mathematics of the model in f64 (R0)."""

    name, compute, kv = "R0", "f64", "f64"

    def passed_on(self, tap: np.ndarray) -> np.ndarray:
        """What the ops after a tap see of it."""
        return tap

    def operand(self, x: np.ndarray, weight_type: str) -> np.ndarray:
        """What a product with weights of that type sees of its activations x, [T, inputs]."""
        return x

    def cached(self, x: np.ndarray) -> np.ndarray:
        """Keys or values as attention reads them back from the cache."""
        return x


@dataclass(frozen=True)
class Contract(Arithmetic):
    """Rounds where the contract does (R2). Every tap is rounded to f32 before it flows on, so a dump holds exactly the
    inputs of each op; so is what a scale of granite is applied to or gives between two taps.

    A product takes codes * scale, which f64 holds exactly, times weights as the `gguf` package dequantizes them to f32
    (each within 2^-24 of its exact value). isum and msum of the contract never appear: regrouping them is the engine's
    business, the value is the same.
    """

    compute: str = "int8"  # or f32
    kv: str = "f16"  # or f32; q8: q8_cache.py
    name = "R2"

    def passed_on(self, tap: np.ndarray) -> np.ndarray:
        return to_f32(tap)

    def operand(self, x: np.ndarray, weight_type: str) -> np.ndarray:
        block = BLOCK[weight_type]
        return x if block == 1 or self.compute == "f32" else dequantize(*quantize(x, block))

    def cached(self, x: np.ndarray) -> np.ndarray:
        return to_f16(x) if self.kv == "f16" else x  # q8: rounded by the attention, which knows heads
