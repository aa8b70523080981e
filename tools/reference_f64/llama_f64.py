"""The ops of a decoder in f64, from the equations. What they round on the way, if anything, an arithmetic of contract.py says.

Shapes: T tokens of the call, H query heads, G KV heads, Dh = head_dim, P = cached positions including those of the call.
"""

import numpy as np

import q8_cache
from contract import Arithmetic
from decoder import Decoder
from delta_net import convolved, delta_rule, scan, silu
from gguf_model import GgufModel
from q8_cache import capped
from rope import Rope, rotate


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def swiglu_oai(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """gate * sigmoid(1.702 gate) * (up + 1), the gate at most 7 and up from -7 to 7."""
    gate, up = np.minimum(gate, OAI_LIMIT), np.clip(up, -OAI_LIMIT, OAI_LIMIT)
    return silu(OAI_SLOPE * gate) / OAI_SLOPE * (up + 1.0)


OAI_LIMIT, OAI_SLOPE = 7.0, float(np.float32(1.702))
# What a gate and what it lets through give, by Family.activation.
ACTIVATIONS = {"silu": lambda gate, up: silu(gate) * up, "gelu_tanh": lambda gate, up: gelu_tanh(gate) * up,
               "swiglu_oai": swiglu_oai}


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray,
              window: int, scale: float, cap: float, sinks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Causal grouped-query attention.

    q [T, H, Dh] at absolute `positions`; k [P, G, Dh] and v [P, G, Dv] hold positions 0..P-1. Query head h reads
    KV head h // (H / G). A token sees the last `window` positions, its own among them; 0: all. Scores are multiplied by
    `scale`, and then capped by cap * tanh(score / cap) where `cap` is not 0. `sinks` [H] are scores that take weight from the keys' and have no value. Returns (context
    [T, H, Dv], probabilities [H, T, P]).
    """
    tokens, heads, width = q.shape
    keys, values = k.transpose(1, 2, 0), v.transpose(1, 0, 2)  # [G, Dh, P], [G, P, Dv]
    grouped = q.reshape(tokens, k.shape[1], -1, width)  # [T, G, H / G, Dh]
    sink = np.full((k.shape[1], heads // k.shape[1], 1), -np.inf) if sinks is None else sinks.reshape(k.shape[1], -1, 1)
    context = np.empty((tokens, heads, v.shape[2]))
    probs = np.zeros((heads, tokens, k.shape[0]))
    for t, position in enumerate(positions):
        # Keys after it and before the window take no part, finite or not.
        seen = slice(max(0, position + 1 - window) if window else 0, position + 1)
        scores = capped(grouped[t] @ keys[..., seen] * scale, cap)  # [G, H / G, seen]
        most = np.maximum(scores.max(axis=-1, keepdims=True), sink)
        weights = np.exp(scores - most)
        weights /= weights.sum(axis=-1, keepdims=True) + np.exp(sink - most)
        context[t] = (weights @ values[:, seen]).reshape(heads, -1)
        probs[:, t, seen] = weights.reshape(heads, -1)
    return context, probs


def route(router: np.ndarray, used: int, kind: str = "softmax", bias: np.ndarray | None = None,
          add_up: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Of each row of logits [T, experts] the ids of the `used` most probable by softmax or sigmoid, with `bias` added for the choice, ascending,
    and their probabilities, divided by their sum where they shall `add_up`. Of equal ones the lower id comes first."""
    with np.errstate(over="ignore"):
        parts = np.exp(router - router.max(axis=-1, keepdims=True)) if kind == "softmax" else 1.0 / (1.0 + np.exp(-router))
    whole = parts.sum(axis=-1, keepdims=True) if kind == "softmax" else 1.0
    keys = router if bias is None else parts / whole + bias
    chosen = np.sort(np.argsort(-keys, axis=-1, kind="stable")[:, :used], axis=-1)
    weights = np.take_along_axis(parts, chosen, axis=-1)
    return chosen, weights / (weights.sum(axis=-1, keepdims=True) if add_up else whole)


class F64:
    """The ops that a Decoder asks for, over the weights of a GGUF."""

    def __init__(self, model: GgufModel, arithmetic: Arithmetic, context: int | None):
        self.model, self.arithmetic, self.hparams, self.family = model, arithmetic, model.hparams, model.family
        self.passed_on, self.cached = arithmetic.passed_on, arithmetic.cached
        self._divisors = model.rope_divisors(context)
        self.has = model.has

    def embedding(self, ids: np.ndarray, name: str = "token_embd.weight") -> np.ndarray:
        return self.model.embedding_rows(ids, name)

    def head_norm(self, heads: np.ndarray) -> np.ndarray:
        """Without a weight."""
        return rms_norm(heads, np.ones(heads.shape[-1]), self.hparams.eps)

    def layer_inputs(self, embedded: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """[T, layers * d_input] of both, scaled."""
        hp = self.hparams
        heads = (projected / np.sqrt(hp.d_model)).reshape(len(projected), hp.n_layers, hp.d_input)
        return (self.norm(heads, "per_layer_proj_norm.weight").reshape(embedded.shape) + embedded) / np.sqrt(2.0)

    def norm(self, x: np.ndarray, weight: str) -> np.ndarray:
        return rms_norm(x, self.model.weight(weight), self.hparams.eps)

    def product(self, x: np.ndarray, weight: str, expert: int = 0) -> np.ndarray:
        return self.model.product(self.arithmetic.operand(x, self.model.type_name(weight)), weight, expert)

    def vector(self, name: str) -> np.ndarray:
        return self.model.weight(name)

    def turns(self, rope: Rope, positions: np.ndarray) -> np.ndarray:
        return rope.turns(positions, self._divisors)

    def turned(self, heads: np.ndarray, turns: np.ndarray) -> np.ndarray:
        return rotate(heads, turns, self.family.qk_layout)

    def attend(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray,
               sinks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        hp = self.hparams
        more = hp.window_of(layer), hp.attention_scale, hp.score_cap, sinks
        if self.arithmetic.kv != "q8":
            return attention(q, k, v, positions, *more)
        return q8_cache.attention(q, k, v, positions, q8_cache.packed_order(hp.head_dim_of(layer), hp.rope_of(layer).dims or hp.rope.dims, self.family.qk_layout), *more)

    def activated(self, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return ACTIVATIONS[self.family.activation](gate, up)

    def gated(self, x: np.ndarray, gate: np.ndarray) -> np.ndarray:
        """x times the sigmoid of the gate."""
        with np.errstate(over="ignore"):
            return x / (1.0 + np.exp(-gate))

    def gated_norm(self, heads: np.ndarray, weight: str, gate: np.ndarray) -> np.ndarray:
        return self.norm(heads, weight) * silu(gate)

    def convolved(self, rows: np.ndarray, before: np.ndarray, weight: str) -> tuple[np.ndarray, np.ndarray]:
        return convolved(rows, before, self.model.weight(weight))

    def softplus_gated(self, x: np.ndarray, gate: np.ndarray) -> np.ndarray:
        """Of gates of each value, or of as many values beside each other as there are for one."""
        return (x.reshape(*gate.shape, -1) * np.logaddexp(0.0, gate)[..., None]).reshape(x.shape)

    def silu(self, x: np.ndarray) -> np.ndarray:
        return silu(x)

    def delta_rule(self, qkv: np.ndarray, beta: np.ndarray, alpha: np.ndarray, block: str,
                   state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slope, dt = self.model.weight(f"{block}.ssm_a"), self.model.weight(f"{block}.ssm_dt.bias")
        return delta_rule(qkv, beta, alpha, slope, dt, self.hparams.delta, state)

    def scan(self, xbc: np.ndarray, steps: np.ndarray, block: str, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slope, past = (self.model.weight(f"{block}.{name}").reshape(-1) for name in ("ssm_a", "ssm_d"))
        return scan(xbc, steps, slope, self.model.weight(f"{block}.ssm_dt.bias"), past, self.hparams.delta, state)

    def route(self, router: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        chosen, weights = route(router, self.hparams.n_experts_used, self.family.router, bias, self.hparams.experts_add_up)
        return chosen, weights * self.hparams.experts_scale


class LlamaF64(Decoder):
    """A model in f64, and one text."""

    def __init__(self, model: GgufModel, arithmetic: Arithmetic = Arithmetic(), context: int | None = None):
        """`context`: as GgufModel.rope_divisors has it."""
        super().__init__(F64(model, arithmetic, context))
