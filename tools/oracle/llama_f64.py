"""The forward pass of the Llama family in f64, written from the equations; shares no code with the engine. What it rounds on the way,
if anything, an arithmetic of contract.py says.

Shapes: T tokens of the call, D = d_model, H query heads, G KV heads, Dh = head_dim, P = cached positions
including those of the call.
"""

from collections.abc import Callable

import numpy as np

import q8_cache
from contract import Arithmetic
from gguf_model import GgufModel
from hparams import HParams
from rope import rotate

LayerTap = Callable[[int, str, np.ndarray], None]
GlobalTap = Callable[[str, np.ndarray], None]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x); exp may overflow to inf for very negative x, which gives the right limit -0."""
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


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
              window: int = 0, scale: float | None = None,
              sinks: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Causal grouped-query attention.

    q [T, H, Dh] at absolute `positions`; k [P, G, Dh] and v [P, G, Dv] hold positions 0..P-1. Query head h reads
    KV head h // (H / G). A token sees the last `window` positions, its own among them; 0: all. Scores are multiplied by
    `scale`, by default 1 / sqrt(Dh). `sinks` [H] are scores that take weight from the keys' and have no value. Returns (context
    [T, H, Dv], probabilities [H, T, P]).
    """
    tokens, heads, width = q.shape
    scale = width ** -0.5 if scale is None else scale
    keys, values = k.transpose(1, 2, 0), v.transpose(1, 0, 2)  # [G, Dh, P], [G, P, Dv]
    grouped = q.reshape(tokens, k.shape[1], -1, width)  # [T, G, H / G, Dh]
    sink = np.full((k.shape[1], heads // k.shape[1], 1), -np.inf) if sinks is None else sinks.reshape(k.shape[1], -1, 1)
    context = np.empty((tokens, heads, v.shape[2]))
    probs = np.zeros((heads, tokens, k.shape[0]))
    for t, position in enumerate(positions):
        # Keys after it and before the window take no part, finite or not.
        seen = slice(max(0, position + 1 - window) if window else 0, position + 1)
        scores = grouped[t] @ keys[..., seen] * scale  # [G, H / G, seen]
        most = np.maximum(scores.max(axis=-1, keepdims=True), sink)
        weights = np.exp(scores - most)
        weights /= weights.sum(axis=-1, keepdims=True) + np.exp(sink - most)
        context[t] = (weights @ values[:, seen]).reshape(heads, -1)
        probs[:, t, seen] = weights.reshape(heads, -1)
    return context, probs


def route(router: np.ndarray, used: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each row of logits [T, experts] the ids of the `used` largest, ascending, and the softmax over these alone. Of equal
    logits the lower id comes first."""
    chosen = np.sort(np.argsort(-router, axis=-1, kind="stable")[:, :used], axis=-1)
    weights = np.exp(np.take_along_axis(router, chosen, axis=-1) - router.max(axis=-1, keepdims=True))
    return chosen, weights / weights.sum(axis=-1, keepdims=True)


def _ignore(*_args) -> None:
    """The tap of callers that want logits only."""


class Text:
    """Keys and values of a text's tokens so far."""

    def __init__(self, hparams: HParams):
        layers, heads = range(hparams.n_layers), hparams.n_kv_heads
        self.keys = [np.empty((0, heads, hparams.head_dim)) for _ in layers]
        self.values = [np.empty((0, heads, hparams.value_dim)) for _ in layers]

    @property
    def n_past(self) -> int:
        """The position that the next token gets."""
        return self.keys[-1].shape[0]

    def extend(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stores those of new tokens, [T, heads, width]. Returns all of the layer's."""
        self.keys[layer] = np.concatenate([self.keys[layer], k])
        self.values[layer] = np.concatenate([self.values[layer], v])
        return self.keys[layer], self.values[layer]


class LlamaF64:
    """A model and one text. Prefill and decode are the same call with more or fewer tokens."""

    def __init__(self, model: GgufModel, arithmetic: Arithmetic = Arithmetic(), context: int | None = None):
        """`context`: as GgufModel.rope_divisors has it."""
        self.model = model
        self._divisors = model.rope_divisors(context)
        self.arithmetic = arithmetic
        self.hparams = model.hparams
        self._text = Text(self.hparams)

    @property
    def n_past(self) -> int:
        """Tokens of the text = the position the next token gets."""
        return self._text.n_past

    def forward(self, ids, layer_tap: LayerTap = _ignore, global_tap: GlobalTap = _ignore) -> np.ndarray:
        """Feeds `ids` at positions n_past.. and returns logits [T, vocab]. Every tap is called with a 2-D array, but
        `probs`, which is [head, token, key]."""
        return self.forward_all([(self._text, ids)], layer_tap, global_tap)

    def forward_all(self, feeds: list[tuple[Text, list[int]]], layer_tap: LayerTap = _ignore,
                    global_tap: GlobalTap = _ignore, last_only: bool = False) -> np.ndarray:
        """Feeds several texts at once, a layer for all of them before the next, and returns their logits: of every token,
        text after text, or of each text's last one. Taps are called with the rows of all texts; `probs` only for one text."""
        ids = np.concatenate([np.asarray(tokens, dtype=np.int64) for _, tokens in feeds])
        ends = np.cumsum([len(tokens) for _, tokens in feeds])
        segments = [(text, slice(end - len(tokens), end)) for (text, tokens), end in zip(feeds, ends, strict=True)]
        positions = np.concatenate([np.arange(text.n_past, text.n_past + len(tokens)) for text, tokens in feeds])
        hp = self.hparams
        turns = {kind: kind.turns(positions, self._divisors) for kind in map(hp.rope_of, range(hp.n_layers))}

        def tap(name: str, value: np.ndarray) -> np.ndarray:
            value = self.arithmetic.passed_on(value)
            global_tap(name, value)
            return value

        x = tap("embd", self.model.embedding_rows(ids) * hp.embedding_scale)  # [T, D]
        for layer in range(hp.n_layers):
            x = self._block(layer, x, segments, positions, turns[hp.rope_of(layer)], layer_tap)
        if last_only:
            x = x[ends - 1]
        normed = tap("result_norm", rms_norm(x, self.model.weight("output_norm.weight"), hp.eps))
        head = "output.weight" if self.model.has("output.weight") else "token_embd.weight"  # tied embeddings
        return tap("logits", self.arithmetic.passed_on(self._product(normed, head)) / hp.logit_scale)

    def _product(self, x: np.ndarray, weight: str, expert: int = 0) -> np.ndarray:
        return self.model.product(self.arithmetic.operand(x, self.model.type_name(weight)), weight, expert)

    def _attention(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray,
                   positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hp, family = self.hparams, self.model.family
        sinks = self.model.weight(f"blk.{layer}.attn_sinks.weight") if family.sinks else None
        more = hp.window_of(layer), hp.attention_scale, sinks
        if self.arithmetic.kv != "q8":
            return attention(q, k, v, positions, *more)
        order = q8_cache.packed_order(hp.head_dim, hp.rope.dims, family.qk_layout)
        return q8_cache.attention(q, k, v, positions, order, *more)

    def _block(self, layer: int, x: np.ndarray, segments: list[tuple[Text, slice]], positions: np.ndarray,
               turns: np.ndarray, layer_tap: LayerTap) -> np.ndarray:
        hp, t, family = self.hparams, len(positions), self.model.family
        activation = ACTIVATIONS[family.activation]

        def tap(name: str, value: np.ndarray) -> np.ndarray:
            value = self.arithmetic.passed_on(value)
            layer_tap(layer, name, value)
            return value

        def norm(name: str, value: np.ndarray) -> np.ndarray:
            return rms_norm(value, self.model.weight(f"blk.{layer}.{name}.weight"), hp.eps)

        def product(name: str, value: np.ndarray) -> np.ndarray:
            bias = self.model.weight(f"blk.{layer}.{name}.bias") if name in family.biases else 0.0
            return self._product(value, f"blk.{layer}.{name}.weight") + bias

        def products(value: np.ndarray, *names: str) -> list[np.ndarray]:
            """Of matrices that are one in some files."""
            whole = next((whole for whole, parts in family.fused.items() if parts == names), None)
            if whole is None:
                return [product(name, value) for name in names]
            widths = (hp.n_heads * hp.head_dim, hp.n_kv_heads * hp.head_dim) if len(names) == 3 else (hp.d_ff,)
            return np.split(product(whole, value), np.cumsum(widths), axis=-1)

        def turned(name: str, value: np.ndarray) -> np.ndarray:
            heads = value.reshape(t, -1, hp.head_dim)
            if family.head_norm:
                heads = norm(f"attn_{name}_norm", heads)
            return rotate(heads, turns, family.qk_layout).reshape(t, -1)

        def of_experts(name: str, values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
            """The product of values[t, i] with the matrix of expert chosen[t, i]."""
            biases = self.model.weight(f"blk.{layer}.{name}.bias") if name in family.biases else np.zeros((hp.n_experts, 1))
            out = {expert: self._product(values[chosen == expert], f"blk.{layer}.{name}.weight", expert) + biases[expert]
                   for expert in np.unique(chosen)}
            found = np.empty((*chosen.shape, out[chosen[0, 0]].shape[-1]))
            for expert, rows in out.items():
                found[chosen == expert] = rows
            return found

        def mixture(normed: np.ndarray) -> np.ndarray:
            chosen, weights = route(tap("router", product("ffn_gate_inp", normed)), hp.n_experts_used)
            repeated = np.repeat(normed[:, None], hp.n_experts_used, axis=1)
            gate, up = (tap(name, of_experts(f"ffn_{name}_exps", repeated, chosen).reshape(t, -1)) for name in ("gate", "up"))
            act = tap("ffn_act", activation(gate, up)).reshape(t, hp.n_experts_used, -1)
            out = tap("ffn_out", of_experts("ffn_down_exps", act, chosen).reshape(t, -1))
            return tap("ffn_mix", np.einsum("te,ted->td", weights, out.reshape(t, hp.n_experts_used, -1)))

        def feed_forward(normed: np.ndarray) -> np.ndarray:
            gate, up = map(tap, ("gate", "up"), products(normed, "ffn_gate", "ffn_up"))
            return tap("ffn_out", product("ffn_down", tap("ffn_act", activation(gate, up))))

        def stored(value: np.ndarray) -> np.ndarray:
            return self.arithmetic.cached(value).reshape(t, hp.n_kv_heads, -1)

        def added(value: np.ndarray) -> np.ndarray:
            return self.arithmetic.passed_on(value * hp.residual_scale)

        normed = tap("attn_norm", norm("attn_norm", x))
        q, k, v = map(tap, "qkv", products(normed, "attn_q", "attn_k", "attn_v"))
        q = tap("q_rope", turned("q", q))
        k = tap("k_rope", turned("k", k))
        q, k, v = q.reshape(t, hp.n_heads, hp.head_dim), stored(k), stored(v)
        context = np.empty((t, hp.n_heads, hp.value_dim))
        for text, own in segments:
            context[own], probs = self._attention(layer, q[own], *text.extend(layer, k[own], v[own]), positions[own])
        if len(segments) == 1:
            tap("probs", probs)
        attn_out = tap("attn_out", product("attn_output", tap("attn_ctx", context.reshape(t, -1))))
        if family.post_norms:
            attn_out = tap("attn_post", norm("post_attention_norm", attn_out))
        x = tap("ffn_inp", x + added(attn_out))

        normed = tap("ffn_norm", norm(family.ffn_norm, x))
        ffn_out = mixture(normed) if family.experts else feed_forward(normed)
        if family.post_norms:
            ffn_out = tap("ffn_post", norm("post_ffw_norm", ffn_out))
        return tap("l_out", x + added(ffn_out))
