"""What the settings of a receipt draw from a row of logits (docs/sampling.md)."""

from dataclasses import dataclass

import numpy as np

from .contract import F32, exp, sum16

WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Settings:
    seed: int
    sequence: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    sampler_order: str
    presence_penalty: float = 0
    frequency_penalty: float = 0


# Values of a setting that might be the run's.
OTHERS = {"temperature": [i / 20 for i in range(41)], "top_p": [i / 100 for i in range(50, 101)],
          "min_p": [0, 0.01, 0.02, 0.05, 0.1, 0.2], "top_k": [0, 1, 5, 10, 20, 30, 40, 50, 64, 80, 100],
          "repeat_penalty": [1, 1.05, 1.1, 1.15, 1.2, 1.3], "repeat_last_n": [0, 16, 32, 64, 128, 256],
          "presence_penalty": [0, 0.5, 1, 1.5, 2], "frequency_penalty": [0, 0.1, 0.2, 0.5, 1],
          "sampler_order": ["hf", "llamacpp"], "sequence": range(16), "seed": range(10_000)}


def philox(key: int, low: int, high: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 of a counter of two 64-bit numbers."""
    c = [low & WORD, low >> 32, high & WORD, high >> 32]
    k0, k1 = key & WORD, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & WORD, p0 >> 32 ^ c[3] ^ k1, p0 & WORD]
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return tuple(c)


def uniform(seed: int, sequence: int, position: int) -> float:
    words = philox(seed, position, sequence)
    return ((words[1] << 32 | words[0]) >> 11) * 2.0 ** -53


def penalized(row: np.ndarray, past: list[int], s: Settings, n_generated: int) -> np.ndarray:
    row = repeat_penalized(row, past, s)
    counted = past[len(past) - min(len(past), n_generated):]
    if (s.presence_penalty == 0 and s.frequency_penalty == 0) or not counted:
        return row
    row, (ids, counts) = row.copy(), np.unique(counted, return_counts=True)
    row[ids] -= counts.astype(F32) * F32(s.frequency_penalty) + F32(s.presence_penalty)
    return row


def repeat_penalized(row: np.ndarray, past: list[int], s: Settings) -> np.ndarray:
    recent = past if s.repeat_last_n < 0 else past[len(past) - min(len(past), s.repeat_last_n):]
    if s.repeat_penalty == 1 or not recent:
        return row
    row, ids, x = row.copy(), np.unique(recent), F32(s.repeat_penalty)
    row[ids] = np.where(row[ids] > 0, row[ids] / x, row[ids] * x)
    return row


def kept(logits: np.ndarray, s: Settings) -> int:
    """How many of the descending logits the filters leave."""
    count = min(s.top_k or len(logits), len(logits))
    if s.top_p < 1:
        w = exp(logits[:count] - logits[0])
        before = np.concatenate([[F32(0)], np.cumsum(w, dtype=F32)[:-1]])
        stay = before < F32(s.top_p) * sum16(w)
        stay[0] = True
        count = int(np.argmin(stay)) if not stay.all() else count
    if s.min_p > 0:
        stay = exp(logits[:count] - logits[0]) >= F32(s.min_p)
        stay[0] = True
        count = int(np.count_nonzero(stay))
    return count


def distribution(row: np.ndarray, past: list[int], s: Settings, n_generated: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that may follow `past`, in descending order, and their cumulated probabilities.
    @param n_generated  of the tokens at its end, which are the text's own
    @pre no NaN and no +Inf in the row, and one finite logit"""
    row = penalized(row, past, s, n_generated)
    if s.temperature == 0 or np.isinf(row.max()):
        return np.array([np.argmax(row)]), np.ones(1)
    temperature = F32(s.temperature)
    with np.errstate(over="ignore"):
        if s.sampler_order == "hf" and temperature != 1:
            row = (row - row.max()) / temperature
        order = np.argsort(-row, kind="stable")
        logits = row[order]
        logits = logits[:kept(logits, s)]
        if s.sampler_order != "hf" and temperature != 1:
            logits = (logits - logits[0]) / temperature
    w = exp(logits - logits[0])
    return order[:len(w)], np.cumsum((w / sum16(w)).astype(np.float64))


def draw(among: tuple[np.ndarray, np.ndarray], number: float) -> int:
    ids, cumulated = among
    return int(ids[np.argmax(cumulated > number)])
