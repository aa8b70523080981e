"""The arithmetic of docs/numerics.md in numpy: every function gives the bits that the page defines."""

import decimal
from decimal import Decimal

import numpy as np

F32, F64 = np.float32, np.float64
LANES, CHUNK = 16, 256
HALF_WAY = 0x10000000  # of the 29 bits that f64 has and f32 has not
TINY = F32(2.0 ** -126)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of f32 (a and b may be f64 that hold f32), rounded once. The product is exact in f64. The sum is rounded there
    first, which can only matter where it then lies half-way between two f32, and among denormals, where half-way is elsewhere."""
    product = np.multiply(a, b, dtype=F64)
    total = product + c
    result = total.astype(F32)
    doubtful = (total.view(np.int64) & 0x1FFFFFFF) == HALF_WAY
    doubtful |= np.abs(result) <= TINY
    if doubtful.any():
        where = np.nonzero(doubtful)
        result[where] = _rounded_to_odd(product[where], np.broadcast_to(c, total.shape)[where].astype(F64)).astype(F32)
    return result


def _rounded_to_odd(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c in f64 such that rounding it again gives what one rounding gives: an inexact sum ends in a 1."""
    total = p + c
    back = total - p
    error = (p - (total - back)) + (c - back)
    bits = total.view(np.int64)
    even = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    away = (error > 0) == (total > 0)
    return np.where(even, bits + np.where(away, 1, -1), bits).view(F64)


def exp(x: np.ndarray) -> np.ndarray:
    """The contract's exp of f32."""
    with np.errstate(all="ignore"):
        x = np.minimum(np.maximum(x.astype(F32), F32(-104)), F32(89))
        magic = F32(1.5 * 2.0 ** 23)
        n = fma(x, F32(float.fromhex("0x1.715476p+0")), magic) - magic
        r = fma(n, F32(-float.fromhex("0x1.63p-1")), x)
        r = fma(n, F32(float.fromhex("0x1.bd0106p-13")), r)
        p = np.full_like(r, F32(float.fromhex("0x1.6d110ap-10")))
        for c in ("0x1.120b6ep-7", "0x1.55551ap-5", "0x1.5554dcp-3", "0x1p-1"):
            p = fma(p, r, F32(float.fromhex(c)))
        p = fma(p, r * r, r) + F32(1)
        half = np.floor(n / 2)
        return p * np.exp2(half).astype(F32) * np.exp2(n - half).astype(F32)


def sum16(x: np.ndarray, add=np.add) -> np.ndarray:
    """The 16-lane sum over the last axis: lanes = add(lanes, 16 elements)."""
    steps = -(-x.shape[-1] // LANES)
    padded = np.zeros((*x.shape[:-1], steps * LANES), F32)
    padded[..., :x.shape[-1]] = x
    lanes = np.zeros((*x.shape[:-1], LANES), F32)
    for step in range(steps):
        lanes = add(lanes, padded[..., step * LANES:(step + 1) * LANES])
    for width in (8, 4, 2, 1):
        lanes = lanes[..., :width] + lanes[..., width:2 * width]
    return lanes[..., 0]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: np.float32) -> np.ndarray:
    mean = sum16(x, lambda lanes, part: fma(part, part, lanes)) / F32(x.shape[-1])
    s = F32(1) / np.sqrt(mean + eps) + (mean - mean)
    return (x * s[..., None]) * weight


def swiglu(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (x / (F32(1) + exp(-x))) * u


def rope_tables(positions: int, dims: int, theta: float, scale: float, divisors: np.ndarray, magnitude: float) -> np.ndarray:
    """(2, positions, dims / 2): cos and sin. Angles are f64; their functions are exact here and rounded to f64."""
    with decimal.localcontext() as context:
        context.prec = 60
        powers = [float(Decimal(theta) ** Decimal(-2.0 * i / dims)) for i in range(dims // 2)]
    f = [power / scale / float(divisor) for power, divisor in zip(powers, divisors)]
    table = [[cos_sin(float(position) * fi) for fi in f] for position in range(positions)]
    return (np.array(table, F64) * magnitude).astype(F32).transpose(2, 0, 1)


BITS = 192


def _arctan_of_inverse(n: int) -> int:
    total, term, k = 0, (1 << BITS) // n, 1
    while term:
        total += term // k if k % 4 == 1 else -(term // k)
        term //= n * n
        k += 2
    return total


TWO_PI = 8 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))


def cos_sin(angle: float) -> tuple[float, float]:
    """Both in whole numbers with 192 bits behind the point, by Taylor's series."""
    numerator, denominator = angle.as_integer_ratio()
    x = (numerator << BITS) // denominator % TWO_PI
    parts, term, k = [0, 0], 1 << BITS, 0
    while term:
        parts[k % 2] += -term if k & 2 else term
        k += 1
        term = (term * x >> BITS) // k
    return parts[0] / (1 << BITS), parts[1] / (1 << BITS)
