"""Attention over keys and values in q8 (docs/numerics.md, "Keys and values in q8"), written from that page alone.

Codes, scales and weights of keys are exactly those of the page, given the scores; scores and the sums over chunks are in f64.
"""

import numpy as np

from contract import quantize

GROUP = 32  # dims of a head that share a scale
CHUNK = 256  # keys whose weights are relative to each other
MOST = np.float32(32767)  # the largest weight


def packed_order(width: int, rope_dim: int, qk_layout: str) -> np.ndarray:
    """The dims of a head in the order in which q and k are grouped: pairs as neighbours, whatever the file has."""
    order = np.arange(width)
    if qk_layout == "half":
        order[:rope_dim] = np.arange(rope_dim).reshape(2, -1).T.reshape(-1)
    return order


def groups(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes, i64 [..., groups, 32], and scales, f32 [..., groups], of heads x [..., width]. Zeros fill up the last group:
    they have code 0 and are no largest magnitude."""
    missing = -x.shape[-1] % GROUP
    codes, scale = quantize(np.concatenate([x, np.zeros((*x.shape[:-1], missing))], axis=-1), GROUP)
    return codes.astype(np.int64), scale


def weights(e: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of keys as integers [heads, keys, groups] and the step of each group [groups].

    e is [heads, keys], exp of the scores; scale the values' f32 [keys, groups].
    """
    largest = scale.max(axis=0)  # NaN wins
    with np.errstate(all="ignore"):
        inverse = MOST / largest
        ratio = (scale * inverse).astype(np.float32)
        step = np.where(np.isfinite(largest) & ~np.isfinite(inverse), np.float32(0), largest / MOST)
    ratio = np.where(np.isfinite(largest) & np.isfinite(inverse), ratio, np.float32(0))
    return np.rint(e[..., None] * ratio.astype(np.float64)), step.astype(np.float64)


def capped(scores: np.ndarray, cap: float) -> np.ndarray:
    return cap * np.tanh(scores / cap) if cap else scores


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray,
              order: np.ndarray, window: int, scale: float, cap: float, sinks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """As llama_f64.attention; `order` is that of packed_order for q and k."""
    tokens, heads, _ = q.shape
    n_kv = k.shape[1]
    q_codes, q_scale = groups(q[..., order])
    k_codes, k_scale = groups(k[..., order])
    v_codes, v_scale = groups(v)
    sink = np.full((heads, 1), -np.inf) if sinks is None else sinks[:, None]
    context = np.empty((tokens, heads, v.shape[2]))
    probs = np.zeros((heads, tokens, k.shape[0]))
    for t, position in enumerate(positions):
        for kv in range(n_kv):
            own = slice(kv * heads // n_kv, (kv + 1) * heads // n_kv)
            first = max(0, position + 1 - window) if window else 0
            seen = slice(first, position + 1)
            sums = np.einsum("hgd,jgd->hjg", q_codes[t, own], k_codes[seen, kv])
            with np.errstate(invalid="ignore"):
                unit = q_scale[t, own, None].astype(np.float64) * k_scale[None, seen, kv]
                scores = capped((sums * unit).sum(axis=-1) * scale, cap)
                most = np.maximum(scores.max(axis=-1, keepdims=True), sink[own])
                e = np.exp(scores - most)
                probs[own, t, seen] = e / (e.sum(axis=-1, keepdims=True) + np.exp(sink[own] - most))
                context[t, own] = weighted(scores, sink[own], v_codes[seen, kv], v_scale[seen, kv], first)[:, :v.shape[2]]
    return context, probs


def weighted(scores: np.ndarray, sink: np.ndarray, codes: np.ndarray, scale: np.ndarray, first: int) -> np.ndarray:
    """The context [heads, dims] of scores [heads, keys] and [heads, 1], chunk by chunk; the keys are those from position
    `first` on."""
    most = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    total, out = np.exp(sink - most), 0.0
    for begin in range(first // CHUNK * CHUNK, first + scores.shape[1], CHUNK):
        chunk = slice(max(begin - first, 0), begin + CHUNK - first)
        top = scores[:, chunk].max(axis=-1, keepdims=True)
        e = np.exp(scores[:, chunk] - top)
        p, step = weights(e, scale[chunk])
        o = np.einsum("hjg,jgd->hgd", p, codes[chunk].astype(np.float64)) * step[:, None]
        share = np.exp(top - most)
        total = total + share * e.sum(axis=-1, keepdims=True)
        out = out + share * o.reshape(len(scores), -1)
    return out / total
