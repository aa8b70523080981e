"""The Llama forward pass in f64, written from the equations; shares no code with the engine.

Shapes: T tokens of the call, D = d_model, H query heads, G KV heads, Dh = head_dim, P = cached positions
including those of the call.
"""

from collections.abc import Callable

import numpy as np

from gguf_model import GgufModel

LayerTap = Callable[[int, str, np.ndarray], None]
GlobalTap = Callable[[str, np.ndarray], None]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x); exp may overflow to inf for very negative x, which gives the right limit -0."""
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def rope_angles(positions: np.ndarray, rope_dim: int, theta: float, scale: float = 1.0,
                freq_factors: np.ndarray | None = None) -> np.ndarray:
    """Angle of pair i at position p: p / scale * theta^(-2i / rope_dim) / freq_factors[i]. Shape [T, rope_dim / 2]."""
    frequencies = theta ** (-np.arange(0, rope_dim, 2, dtype=np.float64) / rope_dim)
    if freq_factors is not None:
        frequencies = frequencies / freq_factors
    return np.outer(np.asarray(positions, dtype=np.float64) / scale, frequencies)


def rope(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Rotates the pairs (2i, 2i + 1) of each head by angles[t, i]; dims from rope_dim on pass through.

    x is [T, heads, Dh]. Interleaved pairs are the layout of llama GGUFs (HF's half-split rows are
    permuted on conversion).
    """
    rope_dim = 2 * angles.shape[1]
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    even, odd = x[..., 0:rope_dim:2], x[..., 1:rope_dim:2]
    y = x.copy()
    y[..., 0:rope_dim:2] = even * cos - odd * sin
    y[..., 1:rope_dim:2] = even * sin + odd * cos
    return y


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Causal grouped-query attention.

    q [T, H, Dh] at absolute `positions`; k [P, G, Dh] and v [P, G, Dv] hold positions 0..P-1. Query head h reads
    KV head h // (H / G). Returns (context [T, H, Dv], probabilities [H, T, P]).
    """
    group = q.shape[1] // k.shape[1]
    keys = np.repeat(k, group, axis=1).transpose(1, 2, 0)  # [H, Dh, P]
    values = np.repeat(v, group, axis=1).transpose(1, 0, 2)  # [H, P, Dv]
    scores = q.transpose(1, 0, 2) @ keys / np.sqrt(q.shape[2])  # [H, T, P]
    future = np.arange(k.shape[0])[None, :] > np.asarray(positions)[:, None]
    scores = np.where(future[None], -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probs = weights / weights.sum(axis=-1, keepdims=True)
    return (probs @ values).transpose(1, 0, 2), probs


def _ignore(*_args) -> None:
    """The tap of callers that want logits only."""


class LlamaF64:
    """A model with its KV cache (f64). Prefill and decode are the same call with more or fewer tokens."""

    def __init__(self, model: GgufModel):
        self.model = model
        self.hparams = model.hparams
        self.reset()

    @property
    def n_past(self) -> int:
        """Positions in the cache = the position the next token gets."""
        return self._keys[0].shape[0]

    def reset(self) -> None:
        """Empties the cache."""
        hp = self.hparams
        self._keys = [np.empty((0, hp.n_kv_heads, hp.head_dim)) for _ in range(hp.n_layers)]
        self._values = [np.empty((0, hp.n_kv_heads, hp.value_dim)) for _ in range(hp.n_layers)]

    def forward(self, ids, layer_tap: LayerTap = _ignore, global_tap: GlobalTap = _ignore) -> np.ndarray:
        """Feeds `ids` at positions n_past.. and returns logits [T, vocab]. Every tap is called with a 2-D array, but
        `probs`, which is [head, token, key]."""
        ids = np.asarray(ids, dtype=np.int64)
        positions = np.arange(self.n_past, self.n_past + len(ids))
        freqs = self.model.weight("rope_freqs.weight") if self.model.has("rope_freqs.weight") else None
        hp = self.hparams
        angles = rope_angles(positions, hp.rope_dim, hp.rope_theta, hp.rope_scale, freqs)

        x = self.model.embedding_rows(ids)  # [T, D]
        global_tap("embd", x)
        for layer in range(hp.n_layers):
            x = self._block(layer, x, positions, angles, lambda tap, value: layer_tap(layer, tap, value))
        normed = rms_norm(x, self.model.weight("output_norm.weight"), hp.eps)
        global_tap("result_norm", normed)
        head = "output.weight" if self.model.has("output.weight") else "token_embd.weight"  # tied embeddings
        logits = normed @ self.model.weight(head).T
        global_tap("logits", logits)
        return logits

    def _block(self, layer: int, x: np.ndarray, positions: np.ndarray, angles: np.ndarray, tap) -> np.ndarray:
        def w(name: str) -> np.ndarray:
            return self.model.weight(f"blk.{layer}.{name}.weight")

        hp, t = self.hparams, len(positions)
        normed = rms_norm(x, w("attn_norm"), hp.eps)
        tap("attn_norm", normed)
        q, k, v = normed @ w("attn_q").T, normed @ w("attn_k").T, normed @ w("attn_v").T
        tap("q", q)
        tap("k", k)
        tap("v", v)
        q_heads = rope(q.reshape(t, hp.n_heads, hp.head_dim), angles)
        k_heads = rope(k.reshape(t, hp.n_kv_heads, hp.head_dim), angles)
        tap("q_rope", q_heads.reshape(t, -1))
        tap("k_rope", k_heads.reshape(t, -1))
        self._keys[layer] = np.concatenate([self._keys[layer], k_heads])
        self._values[layer] = np.concatenate([self._values[layer], v.reshape(t, hp.n_kv_heads, hp.value_dim)])
        context, probs = attention(q_heads, self._keys[layer], self._values[layer], positions)
        tap("probs", probs)
        tap("attn_ctx", context.reshape(t, -1))
        attn_out = context.reshape(t, -1) @ w("attn_output").T
        tap("attn_out", attn_out)
        ffn_inp = x + attn_out
        tap("ffn_inp", ffn_inp)

        normed = rms_norm(ffn_inp, w("ffn_norm"), hp.eps)
        tap("ffn_norm", normed)
        gate, up = normed @ w("ffn_gate").T, normed @ w("ffn_up").T
        tap("gate", gate)
        tap("up", up)
        act = silu(gate) * up
        tap("ffn_act", act)
        ffn_out = act @ w("ffn_down").T
        tap("ffn_out", ffn_out)
        l_out = ffn_inp + ffn_out
        tap("l_out", l_out)
        return l_out
