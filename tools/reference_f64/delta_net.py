"""Gated DeltaNet and Mamba-2 in f64, from the equations (Yang et al. 2024, arXiv 2412.06464; Dao and Gu 2024, arXiv 2405.21060) and
transformers' modeling_qwen3_5 and modeling_granitemoehybrid.

T tokens of one text, C channels of the convolution: q, k and v, one after the other.
"""

import numpy as np

from hparams import DeltaNet

EPS = 1e-6  # of the length of a head


def silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def convolved(rows: np.ndarray, before: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each channel's causal convolution. rows [T, C]; before [width - 1, C] the rows before them; weights [C, width].
    Returns it, and the rows before the next ones."""
    x = np.concatenate([before, rows])
    total = sum(x[j:j + len(rows)] * weights[:, j] for j in range(weights.shape[1]))
    return total, x[len(rows):]


def delta_rule(qkv: np.ndarray, beta: np.ndarray, alpha: np.ndarray, slope: np.ndarray, dt: np.ndarray, sizes: DeltaNet,
               state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """qkv [T, C] after the convolution; beta, alpha [T, v_heads] as products give them; slope, dt [v_heads]; state
    [v_heads, k_dim, v_dim]. Returns [T, v_heads * v_dim] and the state after the last token."""
    heads = qkv[:, :2 * sizes.k_width].reshape(len(qkv), 2, sizes.k_heads, sizes.k_dim)
    each = sizes.v_heads // sizes.k_heads
    heads = heads / np.sqrt((heads * heads).sum(-1, keepdims=True) + EPS)
    q, k = (heads[:, i, np.arange(sizes.v_heads) // each if sizes.grouped else np.arange(sizes.v_heads) % sizes.k_heads] for i in range(2))
    q = q * sizes.k_dim**-0.5
    v = qkv[:, 2 * sizes.k_width:].reshape(len(qkv), sizes.v_heads, sizes.v_dim)
    with np.errstate(over="ignore"):
        rate = 1.0 / (1.0 + np.exp(-beta))
    decay = np.exp(slope * np.logaddexp(0.0, alpha + dt))
    out = np.empty_like(v)
    for t in range(len(qkv)):
        state = state * decay[t, :, None, None]
        found = np.einsum("hi,hic->hc", k[t], state)
        state = state + np.einsum("hi,hc->hic", k[t], (v[t] - found) * rate[t, :, None])
        out[t] = np.einsum("hi,hic->hc", q[t], state)
    return out.reshape(len(qkv), -1), state


def scan(xbc: np.ndarray, steps: np.ndarray, slope: np.ndarray, dt: np.ndarray, past: np.ndarray, sizes: DeltaNet,
         state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mamba-2. xbc [T, C] after the convolution: x, B and C; steps [T, v_heads] as the product gives them; slope, dt, past [v_heads];
    state as above. Returns [T, v_heads * v_dim] and the state after the last token."""
    n = len(xbc)
    x, b, c = np.split(xbc, [sizes.v_width, sizes.v_width + sizes.k_width], axis=-1)
    x = x.reshape(n, sizes.v_heads, sizes.v_dim)
    b, c = (np.repeat(part.reshape(n, sizes.k_heads, sizes.k_dim), sizes.v_heads // sizes.k_heads, axis=1) for part in (b, c))
    steps = np.logaddexp(0.0, steps + dt)
    out = x * past[:, None]
    for t in range(n):
        state = state * np.exp(steps[t] * slope)[:, None, None] + np.einsum("hi,hc->hic", b[t], x[t] * steps[t, :, None])
        out[t] += np.einsum("hi,hic->hc", c[t], state)
    return out.reshape(n, -1), state
