"""RoPE in f64, with linear scaling, YaRN and divisors of frequencies (Llama 3, LongRoPE).

Written from transformers' modeling_rope_utils.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Yarn:
    """Which pairs YaRN slows down: those that turn less than beta_slow times within the original positions wholly, those that
    turn more than beta_fast times not."""

    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    whole: bool = True  # the pairs between which it mixes are rounded outwards

    def shares(self, dims: int, theta: float) -> np.ndarray:
        """How much of the slower frequency each pair gets."""

        def pair_of(turns: float) -> float:
            return dims * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low, high = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        if low == high:
            high += 0.001
        return np.clip((np.arange(dims // 2) - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True)
class Rope:
    """How a layer turns q and k."""

    dims: int  # leading dims of each head that are rotated, even; 0: none
    theta: float
    scale: float = 1.0  # frequencies are divided by it
    yarn: Yarn | None = None  # those of slow pairs only
    magnitude: float = 1.0  # of what is turned
    divided: bool = True  # by the file's divisors
    query_growth: float = 0.0  # of the scale of q with positions
    query_period: int = 1  # positions that share one

    def frequencies(self, divisors: np.ndarray | None = None) -> np.ndarray:
        """Of each pair: the angle that it turns from one position to the next. Shape [dims / 2]."""
        full = self.theta ** (-np.arange(0, self.dims, 2, dtype=np.float64) / self.dims) if self.dims else np.empty(0)
        slow = full / self.scale
        share = self.yarn.shares(self.dims, self.theta) if self.yarn else 1.0
        mixed = slow * share + full * (1.0 - share)
        return mixed if divisors is None or not self.dims or not self.divided else mixed / divisors

    def query_scales(self, positions: np.ndarray) -> np.ndarray:
        """What q is multiplied by after it is turned, [T]."""
        return 1.0 + self.query_growth * np.log1p(np.asarray(positions) // self.query_period)

    def turns(self, positions: np.ndarray, divisors: np.ndarray | None = None) -> np.ndarray:
        """What each pair is multiplied by as a complex number, [T, dims / 2]."""
        angles = np.outer(np.asarray(positions, dtype=np.float64), self.frequencies(divisors))
        return self.magnitude * (np.cos(angles) + 1j * np.sin(angles))


def rotate(x: np.ndarray, turns: np.ndarray, qk_layout: str = "interleaved") -> np.ndarray:
    """Multiplies pair i of each head by turns[t, i]; dims from dims on pass through. x is [T, heads, Dh].

    Pair i is (2 i, 2 i + 1) in llama GGUFs (interleaved; HF's rows are permuted on conversion), and
    (i, i + dims / 2) in others, as in HF's checkpoints (half).
    """
    dims = 2 * turns.shape[1]
    cos, sin = turns.real[:, None, :], turns.imag[:, None, :]
    if qk_layout == "interleaved":
        first, second = slice(0, dims, 2), slice(1, dims, 2)
    else:
        first, second = slice(0, dims // 2), slice(dims // 2, dims)
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y
