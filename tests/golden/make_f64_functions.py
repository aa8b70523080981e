#!/usr/bin/env python3
"""Makes f64_functions/: arguments of cos, sin, log and power with their values by mpmath, and RoPE's f32 from these.

    python tests/golden/make_f64_functions.py [--check]

A value is two f64: the one nearest to it, and the one nearest to what is left. `--check` makes nothing and exits 1 if the
committed files differ.
"""

import random
import struct
import sys

import mpmath
import numpy as np

from golden_io import HERE, emit

SEED = 20261124
THETAS = (1e4, 1.5e5, 5e5, 1e6)
DIMS = (64, 80, 96, 128, 256)
POSITIONS = 1_000_000
MAX_EXPONENT = 40  # of the largest angle, 2^40
HARDEST = 600
mpmath.mp.prec = 400


def two_parts(value: mpmath.mpf) -> tuple[float, float]:
    high = float(value)
    return high, float(value - mpmath.mpf(high))


def nearest_f32(value: mpmath.mpf) -> np.float32:
    """Rounded once, where float32(float(value)) rounds twice."""
    near = np.float32(float(value))
    around = (near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf)))
    return min(around, key=lambda x: abs(mpmath.mpf(float(x)) - value))


def exponent(pair: int, dims: int) -> float:
    return -2.0 * pair / dims


def frequency(theta: float, dims: int, pair: int) -> float:
    return float(mpmath.mpf(theta) ** mpmath.mpf(exponent(pair, dims)))


def rope_cases(rng: random.Random) -> list[tuple[float, int, int, int]]:
    """(theta, dims, pair, position): each pair at a short and at a long position."""
    return [(theta, dims, pair, rng.randint(1, most)) for theta in THETAS for dims in DIMS for pair in range(dims // 2)
            for most in (4096, POSITIONS)]


def tie_distance(values: np.ndarray) -> np.ndarray:
    """How far values, |v| <= 1, are from the middle of two f32, in units of f32's last place."""
    _, exponents = np.frexp(values)
    scaled = np.abs(values) * np.exp2(24.0 - exponents)
    return np.abs(scaled - np.floor(scaled) - 0.5)


def hardest_angles() -> list[float]:
    """Angles of RoPE whose cosine or sine is closest to the middle of two f32. numpy only proposes them."""
    proposed = []
    for theta in THETAS:
        for dims in DIMS:
            for pair in range(1, dims // 2):
                angles = np.arange(1, POSITIONS, 97, dtype=np.float64) * frequency(theta, dims, pair)
                least = np.minimum(tie_distance(np.cos(angles)), tie_distance(np.sin(angles)))
                proposed += angles[least < 1e-4].tolist()

    def distance(x: float) -> mpmath.mpf:
        def of(value: mpmath.mpf) -> mpmath.mpf:
            scaled = abs(value) * mpmath.mpf(2) ** (24 - mpmath.frexp(value)[1])
            return abs(scaled - mpmath.floor(scaled) - mpmath.mpf("0.5"))
        return min(of(mpmath.cos(x)), of(mpmath.sin(x)))

    with mpmath.workprec(150):
        return sorted(set(proposed), key=lambda x: (distance(x), x))[:HARDEST]


def near_quarter_turns(rng: random.Random) -> list[float]:
    """The f64 of each power of two that are nearest to a multiple of pi / 2, by continued fractions; and of any multiples."""
    found = []
    for power in range(1, MAX_EXPONENT):
        ratio = mpmath.pi / 2 / mpmath.mpf(2) ** (power - 52)  # m is near k * ratio for m * 2^(power - 52) near k * pi / 2
        before, now, rest = (1, 0), (int(ratio), 1), ratio - int(ratio)
        while now[0] < 2**53:
            rest = 1 / rest
            before, now = now, tuple(int(rest) * b + a for a, b in zip(before, now, strict=True))
            rest -= int(rest)
            found += [float(times * now[0]) * 2.0 ** (power - 52) for times in (1, 2, 3)
                      if 2**52 <= times * now[0] < 2**53]
    for power in range(MAX_EXPONENT - 1):
        for _ in range(4):
            x = float(rng.randint(2**power, 2 ** (power + 1)) * mpmath.pi / 2)
            found += [x, float(np.nextafter(x, 0.0))]
    return found


def angles(rng: random.Random, cases: list[tuple[float, int, int, int]]) -> list[float]:
    of_rope = [position * frequency(theta, dims, pair) for theta, dims, pair, position in cases]
    odd = [0.0, -0.0, 5e-324, 2.0**-1022, 1e-300, 2.0**-30, 2.0**-10, 0.5, 1.0, -1.0, -2.0, 2.0**MAX_EXPONENT, -2.0**MAX_EXPONENT]
    odd += [float(np.nextafter(np.pi / 4, side)) for side in (0.0, np.pi / 4, 1.0)]
    anywhere = [rng.choice((-1, 1)) * 2.0 ** rng.uniform(-30, MAX_EXPONENT) for _ in range(500)]
    return of_rope + hardest_angles() + near_quarter_turns(rng) + odd + anywhere


def angle_record(x: float) -> bytes:
    cos, sin = mpmath.cos(mpmath.mpf(x)), mpmath.sin(mpmath.mpf(x))
    if x == 0:
        return struct.pack("<5d2f", x, 1.0, 0.0, x, 0.0, 1.0, x)
    return struct.pack("<5d2f", x, *two_parts(cos), *two_parts(sin), nearest_f32(cos), nearest_f32(sin))


def rope_record(theta: float, dims: int, pair: int, position: int) -> bytes:
    x = mpmath.mpf(position * frequency(theta, dims, pair))
    return struct.pack("<f3I2f", theta, dims, pair, position, nearest_f32(mpmath.cos(x)), nearest_f32(mpmath.sin(x)))


def powers(rng: random.Random) -> bytes:
    cases = [(theta, exponent(pair, dims)) for theta in THETAS for dims in DIMS for pair in range(dims // 2)]
    cases += [(float(np.float32(10 ** rng.uniform(-37, 38))), rng.uniform(-7, 7)) for _ in range(500)]
    cases += [(1.0, -0.5), (2.0, 1009.0), (2.0, -1009.0), (0.5, 0.0), (5e-324, -0.9), (float(np.nextafter(1.0, 0.0)), 1e16)]
    return b"".join(struct.pack("<4d", x, y, *two_parts(mpmath.mpf(x) ** mpmath.mpf(y))) for x, y in cases)


def logarithms(rng: random.Random) -> bytes:
    arguments = [10 ** rng.uniform(-300, 300) for _ in range(500)] + [1 + rng.uniform(-0.5, 1) * 2.0**-i for i in range(53)]
    arguments += [1.0, 2.0, 0.5, 5e-324, 2.0**-1022, sys.float_info.max, *(float(np.nextafter(2**0.5, i)) for i in (0, 2)),
                  *THETAS, 4.0, 32.0, *(n / (turns * 2 * np.pi) for n in (4096, 32768) for turns in (1, 32))]
    return b"".join(struct.pack("<3d", x, *two_parts(mpmath.log(mpmath.mpf(x)))) for x in arguments)


def main() -> int:
    rng = random.Random(SEED)
    cases = rope_cases(rng)
    files = {
        "rope.bin": b"".join(rope_record(*case) for case in cases),
        "cos_sin.bin": b"".join(angle_record(x) for x in angles(rng, cases)),
        "power.bin": powers(rng),
        "log.bin": logarithms(rng),
    }
    return emit(HERE / "f64_functions", files, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
