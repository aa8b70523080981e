"""The numeric contract's arithmetic for the decoder of tools/reference_f64, bit for bit (docs/numerics.md): f32, all positions of a
text at once."""

from collections.abc import Iterator

import numpy as np
from decoder import Decoder, Text
from gguf_model import GgufModel
from hparams import UnsupportedModel

from .contract import CHUNK, F32, F64, exp, fma, rms_norm, rope_tables, sum16, swiglu
from .formats import Matrix, read_matrix

LOGIT_ROWS = 64  # positions whose logits are in memory at once


class Contract:
    """The ops that a Decoder asks for, over the weights of a GGUF."""

    def __init__(self, model: GgufModel, kv: str, compute: str):
        if model.architecture != "llama" or kv not in ("f16", "f32"):
            raise UnsupportedModel(f"architecture {model.architecture} with kv {kv}; there is llama with f16 and f32")
        if model.hparams.rope.yarn:
            raise UnsupportedModel("RoPE scaled other than linearly")
        self.model, self.kv, self.compute, self.has = model, kv, compute, model.has
        self.hparams, self.family = model.hparams, model.family

    def matrix(self, name: str) -> Matrix:
        matrix = read_matrix(self.model, name)
        return matrix.as_floats() if self.compute == "f32" else matrix

    def vector(self, name: str) -> np.ndarray:
        return read_matrix(self.model, name).dequantized()[0]

    def embedding(self, ids: np.ndarray) -> np.ndarray:
        embedding = self.matrix("token_embd.weight")
        if not ((0 <= ids) & (ids < len(embedding.q))).all():
            raise IndexError(f"an id is not in 0..{len(embedding.q) - 1}")
        return embedding.dequantized()[ids]

    def norm(self, x: np.ndarray, weight: str) -> np.ndarray:
        return rms_norm(x, self.vector(weight), F32(self.hparams.eps))

    def product(self, x: np.ndarray, weight: str) -> np.ndarray:
        return self.matrix(weight).product(x) * F32(self.model.scale(weight))

    def passed_on(self, x: np.ndarray) -> np.ndarray:
        return x

    def cached(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float16).astype(F32) if self.kv == "f16" else x

    def activated(self, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return swiglu(gate, up)

    def turns(self, rope, positions: np.ndarray) -> np.ndarray:
        divisors = self.model.rope_divisors()
        divisors = np.ones(rope.dims // 2) if divisors is None else divisors
        return rope_tables(len(positions), rope.dims, rope.theta, rope.scale, divisors, rope.magnitude)

    def turned(self, x: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """RoPE on neighbouring pairs of (T, heads, dims)."""
        cos, sin = turns[:, :, None]
        out = x.copy()
        x0, x1 = x[..., 0:2 * cos.shape[-1]:2], x[..., 1:2 * cos.shape[-1]:2]
        out[..., 0:2 * cos.shape[-1]:2] = fma(x0, cos, -(x1 * sin))
        out[..., 1:2 * cos.shape[-1]:2] = fma(x0, sin, x1 * cos)
        return out

    def attend(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray, sinks) -> tuple:
        """q (T, heads, dims), k and v (T, kv heads, dims) to (T, heads, dims), of a text from its first position on."""
        window, n = self.hparams.window_of(layer), len(positions)
        q = q.transpose(1, 0, 2)
        k, v = (np.repeat(a.transpose(1, 0, 2), len(q) // a.shape[1], axis=0) for a in (k, v))
        m, total, out = (np.full(q.shape[:2], F32(-np.inf)), np.zeros(q.shape[:2], F32), np.zeros(q.shape, F32))
        for first in range(0, n, CHUNK):
            last = min(first + CHUNK, n)
            queries = slice(first, min(last - 1 + window, n) if window else n)
            part = chunk(q[:, queries], k[:, first:last], v[:, first:last], window)
            have = [x[:, queries] for x in (m, total, out)]
            m[:, queries], total[:, queries], out[:, queries] = merged(*have, *part)
        return (out / total[..., None]).transpose(1, 0, 2), None


def logits(model: GgufModel, kv: str, compute: str, ids: list[int]) -> Iterator[np.ndarray]:
    """Rows of logits of every position, some positions at a time."""
    decoder = Decoder(Contract(model, kv, compute))
    x = decoder.hidden([(Text(decoder.hparams), ids)])
    for first in range(0, len(ids), LOGIT_ROWS):
        yield decoder.logits(x[first:first + LOGIT_ROWS])


def chunk(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m and l (heads, queries), o (heads, queries, dims), where the first query is at the first key's position."""
    distance = np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])
    takes_part = (distance >= 0) & (distance < (window or len(distance)))
    scores = np.zeros(q.shape[:2] + k.shape[1:2], F32)
    for d in range(q.shape[2]):
        scores = fma(q[:, :, None, d], k[:, None, :, d], scores)
    scores = scores * F32(1 / np.sqrt(F64(q.shape[2])))
    m = np.where(takes_part, scores, F32(-np.inf)).max(axis=2)
    e = np.where(takes_part, exp(scores - m[..., None]), F32(0))
    out = np.zeros_like(q)
    for j in range(k.shape[1]):
        rows = slice(j, j + window if window else None)
        out[:, rows] = fma(e[:, rows, j, None], v[:, None, j], out[:, rows])
    return m, sum16(e), out


def merged(m1, l1, o1, m2, l2, o2):
    """Two chunks of the same queries. A first one without keys counts as absent."""
    m, absent = np.maximum(m1, m2), np.isneginf(m1)
    with np.errstate(invalid="ignore"):
        a, b = exp(m1 - m), exp(m2 - m)
        total, out = fma(l2, b, l1 * a), fma(o2, b[..., None], o1 * a[..., None])
    return m, np.where(absent, l2, total), np.where(absent[..., None], o2, out)
