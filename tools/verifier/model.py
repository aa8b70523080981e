"""All logits of a text: a Llama evaluated at all positions at once (docs/numerics.md)."""

from collections.abc import Iterator

import numpy as np

from .contract import CHUNK, F32, F64, exp, fma, rms_norm, rope_tables, sum16, swiglu
from .formats import Matrix, read_matrix
from .gguf import GGUF, Unsupported

LOGIT_ROWS = 64  # positions whose logits are in memory at once


class Llama:
    def __init__(self, file: GGUF, kv: str, compute: str):
        self.file, self.kv, self.compute = file, kv, compute
        architecture = file.keys["general.architecture"].decode()
        if architecture != "llama" or kv not in ("f16", "f32") or file.model_key("expert_count", 0):
            raise Unsupported(f"architecture {architecture} with kv {kv}; there is llama with f16 and f32")
        if file.keys.get("llama.rope.scaling.type", b"linear") not in (b"linear", b"none"):
            raise Unsupported("RoPE scaled other than linearly")
        self.layers, self.heads = file.model_key("block_count"), file.model_key("attention.head_count")
        self.kv_heads = file.model_key("attention.head_count_kv", self.heads)
        self.head_dim = file.model_key("attention.key_length", file.model_key("embedding_length") // self.heads)
        self.window = file.model_key("attention.sliding_window", 0)
        self.eps = F32(file.model_key("attention.layer_norm_rms_epsilon"))

    def matrix(self, name: str) -> Matrix:
        matrix = read_matrix(self.file, name + ".weight")
        return matrix.as_floats() if self.compute == "f32" else matrix

    def vector(self, name: str) -> np.ndarray:
        return read_matrix(self.file, name + ".weight").dequantized()[0]

    def logits(self, ids: list[int]) -> Iterator[np.ndarray]:
        """Rows of logits of every position, some positions at a time."""
        embedding = self.matrix("token_embd")
        if not all(0 <= i < len(embedding.q) for i in ids):
            raise IndexError(f"an id is none of 0..{len(embedding.q) - 1}")
        x = embedding.dequantized()[ids]
        rope = self.rope(len(ids))
        for layer in range(self.layers):
            x = self.layer(f"blk.{layer}.", x, rope)
        x = rms_norm(x, self.vector("output_norm"), self.eps)
        output = self.matrix("output") if "output.weight" in self.file.tensors else embedding
        for first in range(0, len(ids), LOGIT_ROWS):
            yield output.product(x[first:first + LOGIT_ROWS])

    def rope(self, positions: int) -> np.ndarray:
        dims = self.file.model_key("rope.dimension_count", self.head_dim)
        linear = self.file.keys.get("llama.rope.scaling.type") != b"none"
        scale = self.file.model_key("rope.scaling.factor", self.file.model_key("rope.scale_linear", 1.0)) if linear else 1.0
        divisors = self.vector("rope_freqs") if "rope_freqs.weight" in self.file.tensors else np.ones(dims // 2)
        return rope_tables(positions, dims, self.file.model_key("rope.freq_base", 10000.0), scale, divisors,
                           self.file.model_key("rope.scaling.attn_factor", 1.0))

    def layer(self, name: str, x: np.ndarray, rope: np.ndarray) -> np.ndarray:
        h = rms_norm(x, self.vector(name + "attn_norm"), self.eps)
        products = [self.matrix(name + part).product(h) for part in ("attn_q", "attn_k", "attn_v")]
        q, k, v = (product.reshape(len(x), -1, self.head_dim) for product in products)
        if (q.shape[1], k.shape[1], v.shape[1]) != (self.heads, self.kv_heads, self.kv_heads):
            raise Unsupported(f"{name}attn_*: heads contradict the metadata")
        q, k = turned(q, rope), turned(k, rope)
        if self.kv == "f16":
            k, v = k.astype(np.float16).astype(F32), v.astype(np.float16).astype(F32)
        x = x + self.matrix(name + "attn_output").product(self.attention(q, k, v).reshape(len(x), -1))
        h = rms_norm(x, self.vector(name + "ffn_norm"), self.eps)
        h = swiglu(self.matrix(name + "ffn_gate").product(h), self.matrix(name + "ffn_up").product(h))
        return x + self.matrix(name + "ffn_down").product(h)

    def attention(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """q (T, heads, dims), k and v (T, kv heads, dims) to (T, heads, dims)."""
        positions = len(q)
        q = q.transpose(1, 0, 2)
        k, v = (np.repeat(a.transpose(1, 0, 2), self.heads // self.kv_heads, axis=0) for a in (k, v))
        m, total, out = (np.full(q.shape[:2], F32(-np.inf)), np.zeros(q.shape[:2], F32), np.zeros(q.shape, F32))
        for first in range(0, positions, CHUNK):
            last = min(first + CHUNK, positions)
            queries = slice(first, min(last - 1 + self.window, positions) if self.window else positions)
            part = self.chunk(q[:, queries], k[:, first:last], v[:, first:last])
            have = [x[:, queries] for x in (m, total, out)]
            m[:, queries], total[:, queries], out[:, queries] = merged(*have, *part)
        return (out / total[..., None]).transpose(1, 0, 2)

    def chunk(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """m and l (heads, queries), o (heads, queries, dims), where the first query is at the first key's position."""
        distance = np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])
        takes_part = (distance >= 0) & (distance < (self.window or len(distance)))
        scores = np.zeros(q.shape[:2] + k.shape[1:2], F32)
        for d in range(q.shape[2]):
            scores = fma(q[:, :, None, d], k[:, None, :, d], scores)
        scores = scores * F32(1 / np.sqrt(F64(self.head_dim)))
        m = np.where(takes_part, scores, F32(-np.inf)).max(axis=2)
        e = np.where(takes_part, exp(scores - m[..., None]), F32(0))
        out = np.zeros_like(q)
        for j in range(k.shape[1]):
            rows = slice(j, j + self.window if self.window else None)
            out[:, rows] = fma(e[:, rows, j, None], v[:, None, j], out[:, rows])
        return m, sum16(e), out


def merged(m1, l1, o1, m2, l2, o2):
    """Two chunks of the same queries. A first one without keys counts as absent."""
    m, absent = np.maximum(m1, m2), np.isneginf(m1)
    with np.errstate(invalid="ignore"):
        a, b = exp(m1 - m), exp(m2 - m)
        total, out = fma(l2, b, l1 * a), fma(o2, b[..., None], o1 * a[..., None])
    return m, np.where(absent, l2, total), np.where(absent[..., None], o2, out)


def turned(x: np.ndarray, rope: np.ndarray) -> np.ndarray:
    """RoPE on neighbouring pairs of (T, heads, dims)."""
    cos, sin = rope[:, :, None]
    out = x.copy()
    x0, x1 = x[..., 0:2 * cos.shape[-1]:2], x[..., 1:2 * cos.shape[-1]:2]
    out[..., 0:2 * cos.shape[-1]:2] = fma(x0, cos, -(x1 * sin))
    out[..., 1:2 * cos.shape[-1]:2] = fma(x0, sin, x1 * cos)
    return out
