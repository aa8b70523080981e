"""The decoder of every architecture that is modelled here, written from docs/numerics.md and transformers' modeling files; shares no
code with the engine. It has the order of the ops; the ops themselves are those of an arithmetic: f64 (llama_f64.py) or the numeric
contract bit for bit (tools/verifier/model.py).

A layer is a mixer, which lets positions see each other, and feed-forwards, whose outputs are added. A new kind of either is a
function of a Step and the normed residual stream, and its choice in layers_of().

Shapes: T tokens of the call, D = d_model, H query heads, G KV heads, Dh = head_dim.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hparams import Family, HParams

LayerTap = Callable[[int, str, np.ndarray], None]
GlobalTap = Callable[[str, np.ndarray], None]


def _ignore(*_args) -> None:
    """The tap of callers that want logits only."""


class Text:
    """Keys and values of a text's tokens so far, and states."""

    def __init__(self, hparams: HParams):
        self.keys: list = [None] * hparams.n_layers
        self.values: list = [None] * hparams.n_layers
        self.n_past = 0  # the position that the next token gets
        if width := hparams.conv_width:
            self.inputs = [np.zeros((width - 1, hparams.d_model))] * hparams.n_layers
        if d := hparams.delta:
            self.inputs = [np.zeros((d.width - 1, d.channels))] * hparams.n_layers  # rows before the next, of the convolution
            self.states = [np.zeros((d.v_heads, d.k_dim, d.v_dim))] * hparams.n_layers

    def extend(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stores those of new tokens, [T, heads, width]. Returns all of the layer's."""
        for stored, new in ((self.keys, k), (self.values, v)):
            stored[layer] = new if stored[layer] is None else np.concatenate([stored[layer], new])
        return self.keys[layer], self.values[layer]


@dataclass(frozen=True)
class Step:
    """One layer of one call: what its blocks read."""

    ops: object  # the arithmetic
    layer: int
    segments: list[tuple[Text, slice]]  # each text with its rows
    positions: np.ndarray  # [T]
    turns: object  # of ops.turns(), of this layer's RoPE
    inputs: np.ndarray | None  # [T, d_input], of this layer
    layer_tap: LayerTap

    @property
    def hp(self) -> HParams:
        return self.ops.hparams

    @property
    def family(self) -> Family:
        return self.ops.family

    @property
    def n(self) -> int:
        return len(self.positions)

    def tap(self, name: str, value: np.ndarray) -> np.ndarray:
        value = self.ops.passed_on(value)
        self.layer_tap(self.layer, name, value)
        return value

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return self.ops.norm(x, f"blk.{self.layer}.{name}.weight")

    def bias(self, name: str) -> np.ndarray | None:
        bias = f"blk.{self.layer}.{name}.bias"
        return self.ops.vector(bias) if name in self.family.biases and self.ops.has(bias) else None

    def product(self, name: str, x: np.ndarray) -> np.ndarray:
        out, bias = self.ops.product(x, f"blk.{self.layer}.{name}.weight"), self.bias(name)
        return out if bias is None else out + bias

    def products(self, x: np.ndarray, *names: str) -> list[np.ndarray]:
        """Of matrices that are one in some files."""
        whole = next((whole for whole, parts in self.family.fused.items() if parts == names), None)
        if whole is None:
            return [self.product(name, x) for name in names]
        widths = (self.hp.n_heads * self.hp.head_dim, self.hp.n_kv_heads * self.hp.head_dim) if len(names) == 3 else (self.hp.d_ff,)
        return np.split(self.product(whole, x), np.cumsum(widths), axis=-1)

    def of_experts(self, name: str, values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The product of values[t, i] with the matrix of expert chosen[t, i]."""
        biases, out = self.bias(name), None
        for expert in np.unique(chosen):
            rows = self.ops.product(values[chosen == expert], f"blk.{self.layer}.{name}.weight", expert)
            out = np.empty((*chosen.shape, rows.shape[-1])) if out is None else out
            out[chosen == expert] = rows if biases is None else rows + biases[expert]
        return out


def attention(step: Step, normed: np.ndarray) -> np.ndarray:
    """Causal grouped-query attention with RoPE."""
    hp, ops, n = step.hp, step.ops, step.n

    def turned(name: str, value: np.ndarray) -> np.ndarray:
        if step.family.row_norm:
            value = step.norm(f"attn_{name}_norm", value)
        heads = value.reshape(n, -1, hp.head_dim_of(step.layer))
        of_heads = step.family.head_norm and not step.family.row_norm and step.ops.has(f"blk.{step.layer}.attn_{name}_norm.weight")
        if of_heads and not step.family.rotates_first:
            heads = step.norm(f"attn_{name}_norm", heads)
        heads = ops.turned(heads, step.turns)
        if of_heads and step.family.rotates_first:
            heads = step.norm(f"attn_{name}_norm", heads)
        if name == "q" and step.hp.rope_of(step.layer).query_growth:
            heads = heads * step.hp.rope_of(step.layer).query_scales(step.positions)[:, None, None]
        return heads.reshape(n, -1)

    if step.family.value_norm:
        return attention_by_values(step, normed, turned)
    q, k, v = step.products(normed, "attn_q", "attn_k", "attn_v")
    if step.family.output_gate:
        q, gate = (part.reshape(n, -1) for part in np.split(q.reshape(n, hp.n_heads, -1), 2, axis=-1))
    q, k, v = map(step.tap, "qkv", (q, k, v))
    if step.family.output_gate:
        gate = step.tap("attn_gate", gate)
    if step.family.softplus_gate:
        gate = step.tap("attn_gate", step.product("attn_gate", normed))
    q, k = step.tap("q_rope", turned("q", q)), step.tap("k_rope", turned("k", k))
    q, k, v = q.reshape(n, hp.heads[step.layer], -1), *(ops.cached(x).reshape(n, hp.n_kv_heads, -1) for x in (k, v))
    sinks = ops.vector(f"blk.{step.layer}.attn_sinks.weight") if step.family.sinks else None
    context = attended(step, q, lambda text, own: text.extend(step.layer, k[own], v[own]), sinks)
    if step.family.output_gate:
        context = step.tap("attn_gated", ops.gated(context, gate))
    if step.family.softplus_gate:
        context = step.tap("attn_gated", ops.softplus_gated(context, gate))
    return step.tap("attn_out", step.product("attn_output", context))


def attended(step: Step, q: np.ndarray, keys_and_values: Callable, sinks: np.ndarray | None) -> np.ndarray:
    """Contexts of q [T, H, Dh] over all keys and values of each text."""
    contexts = []
    for text, own in step.segments:
        context, probs = step.ops.attend(step.layer, q[own], *keys_and_values(text, own), step.positions[own], sinks)
        contexts.append(context)
    if len(step.segments) == 1 and probs is not None:
        step.tap("probs", probs)
    return step.tap("attn_ctx", np.concatenate(contexts).reshape(step.n, -1))


def attention_by_values(step: Step, normed: np.ndarray, turned: Callable) -> np.ndarray:
    """Attention whose values are normed, and may be made of keys' products; some layers read an earlier one's."""
    hp, ops, n, layer = step.hp, step.ops, step.n, step.layer
    head_dim, source = hp.head_dim_of(layer), hp.kv_layer(layer)
    q = step.tap("q", step.product("attn_q", normed))
    if source == layer:
        k = step.tap("k", step.product("attn_k", normed))
        v = step.tap("v", step.product("attn_v", normed) if ops.has(f"blk.{layer}.attn_v.weight") else k)
    q = step.tap("q_rope", turned("q", q)).reshape(n, hp.n_heads, -1)
    if source != layer:
        context = attended(step, q, lambda text, _own: (text.keys[source], text.values[source]), None)
        return step.tap("attn_out", step.product("attn_output", context))
    k = step.tap("k_rope", turned("k", k))
    v = step.tap("v_norm", ops.head_norm(v.reshape(n, -1, head_dim)).reshape(n, -1))
    k, v = (ops.cached(x).reshape(n, -1, head_dim) for x in (k, v))
    context = attended(step, q, lambda text, own: text.extend(layer, k[own], v[own]), None)
    return step.tap("attn_out", step.product("attn_output", context))


def delta_net(step: Step, normed: np.ndarray) -> np.ndarray:
    """A state that each token changes in place of attention, behind a convolution over a few tokens."""
    ops, layer, block = step.ops, step.layer, f"blk.{step.layer}"
    qkv, z = step.product("attn_qkv", normed), step.product("attn_gate", normed)
    if "ssm_ba" in step.family.fused:  # of each key head
        both = step.product("ssm_ba", normed).reshape(step.n, step.hp.delta.k_heads, 2, -1)
        beta, alpha = (both[:, :, i].reshape(step.n, -1) for i in range(2))
    else:
        beta, alpha = step.product("ssm_beta", normed), step.product("ssm_alpha", normed)
    qkv, z, beta, alpha = map(step.tap, ("qkv", "z", "beta", "alpha"), (qkv, z, beta, alpha))
    parts = []
    for text, own in step.segments:
        part, text.inputs[layer] = ops.convolved(qkv[own], text.inputs[layer], f"{block}.ssm_conv1d.weight")
        parts.append(ops.silu(part))
    qkv, parts = step.tap("qkv_conv", np.concatenate(parts)), []
    for text, own in step.segments:
        part, text.states[layer] = ops.delta_rule(qkv[own], beta[own], alpha[own], block, text.states[layer])
        parts.append(part)
    heads, gates = (x.reshape(step.n, step.hp.delta.v_heads, -1) for x in (step.tap("delta", np.concatenate(parts)), z))
    out = step.tap("delta_norm", ops.gated_norm(heads, f"{block}.ssm_norm.weight", gates).reshape(step.n, -1))
    return step.tap("attn_out", step.product("ssm_out", out))


def mamba(step: Step, normed: np.ndarray) -> np.ndarray:
    """A state that each token is added to, behind a convolution over a few tokens."""
    ops, layer, block, d = step.ops, step.layer, f"blk.{step.layer}", step.hp.delta
    z, xbc, steps = np.split(step.product("ssm_in", normed), [d.v_width, d.v_width + d.channels], axis=-1)
    xbc, z, steps = map(step.tap, ("qkv", "z", "alpha"), (xbc, z, steps))
    parts, bias = [], step.bias("ssm_conv1d")
    for text, own in step.segments:
        part, text.inputs[layer] = ops.convolved(xbc[own], text.inputs[layer], f"{block}.ssm_conv1d.weight")
        parts.append(ops.silu(part if bias is None else part + bias))
    xbc, parts = step.tap("qkv_conv", np.concatenate(parts)), []
    for text, own in step.segments:
        part, text.states[layer] = ops.scan(xbc[own], steps[own], block, text.states[layer])
        parts.append(part)
    out = step.tap("delta", np.concatenate(parts)) * ops.silu(z)
    groups = ops.norm(out.reshape(step.n, d.k_heads, -1), f"{block}.ssm_norm.weight")
    return step.tap("attn_out", step.product("ssm_out", step.tap("delta_norm", groups.reshape(step.n, -1))))


def short_conv(step: Step, normed: np.ndarray) -> np.ndarray:
    """A convolution over a few tokens between two gates."""
    ops, layer = step.ops, step.layer
    b, c, x = np.split(step.product("shortconv.in_proj", normed), 3, axis=-1)
    b, c, x = map(step.tap, ("conv_b", "conv_c", "conv_x"), (b, c, x))
    gated, parts = step.tap("conv_bx", b * x), []
    for text, own in step.segments:
        part, text.inputs[layer] = ops.convolved(gated[own], text.inputs[layer], f"blk.{layer}.shortconv.conv.weight")
        parts.append(part)
    out = step.tap("conv_gated", step.tap("conv", np.concatenate(parts)) * c)
    return step.tap("attn_out", step.product("shortconv.out_proj", out))


def feed_forward(step: Step, normed: np.ndarray) -> np.ndarray:
    gate, up = map(step.tap, ("gate", "up"), step.products(normed, "ffn_gate", "ffn_up"))
    return step.tap("ffn_out", step.product("ffn_down", step.tap("ffn_act", step.ops.activated(gate, up))))


def experts(step: Step, normed: np.ndarray, router: np.ndarray) -> np.ndarray:
    """Some of many feed-forwards, by the router's choice, summed by its weights."""
    n, used = step.n, step.hp.n_experts_used
    bias = f"blk.{step.layer}.exp_probs_b.bias"
    has_bias = step.family.expert_bias and step.ops.has(bias)
    chosen, weights = step.ops.route(step.tap("router", router), step.ops.vector(bias).reshape(-1) if has_bias else None)
    repeated = np.repeat(normed[:, None], used, axis=1)
    if "ffn_gate_up_exps" in step.family.fused:
        both = np.split(step.of_experts("ffn_gate_up_exps", repeated, chosen), 2, axis=-1)
    else:
        both = (step.of_experts(f"ffn_{name}_exps", repeated, chosen) for name in ("gate", "up"))
    gate, up = (step.tap(name, part.reshape(n, -1)) for name, part in zip(("gate", "up"), both, strict=True))
    act = step.tap("ffn_act", step.ops.activated(gate, up)).reshape(n, used, -1)
    out = step.tap("ffn_out", step.of_experts("ffn_down_exps", act, chosen).reshape(n, -1))
    return step.tap("ffn_mix", np.einsum("te,ted->td", weights, out.reshape(n, used, -1)))


def of_every_token(step: Step, normed: np.ndarray, ending: str) -> np.ndarray:
    """The feed-forward that every token goes through besides the experts, of tensors with that ending."""
    gate, up = (step.tap(f"shared_{name}", step.product(f"ffn_{name}{ending}", normed)) for name in ("gate", "up"))
    return step.tap("shared_out", step.product(f"ffn_down{ending}", step.tap("shared_act", step.ops.activated(gate, up))))


def mixture(step: Step, normed: np.ndarray) -> np.ndarray:
    """Experts, and one of every token where the model has it."""
    mixed = experts(step, normed, step.product("ffn_gate_inp", normed))
    if not step.hp.d_shared:
        return mixed
    out = of_every_token(step, normed, "_shexp")
    if step.family.plain_shared:
        return step.tap("ffn_sum", mixed + out)
    weight = step.tap("shared_weight", normed @ step.ops.vector(f"blk.{step.layer}.ffn_gate_inp_shexp.weight").reshape(-1, 1))
    return step.tap("ffn_sum", mixed + step.ops.gated(out, weight))


def beside_experts(step: Step, x: np.ndarray) -> np.ndarray:
    """The same with a norm before and after each; the router has one of its own. Reads x before any norm."""
    scaled = step.tap("router_norm", step.ops.norm(x, f"blk.{step.layer}.ffn_gate_inp.scale"))
    router = step.product("ffn_gate_inp", scaled) / float(np.float32(np.sqrt(step.hp.d_model)))
    mixed = experts(step, step.tap("experts_norm", step.norm("pre_ffw_norm_2", x)), router)
    mixed = step.tap("mix_norm", step.norm("post_ffw_norm_2", mixed))
    out = of_every_token(step, step.tap("ffn_norm", step.norm("ffn_norm", x)), "")
    return step.tap("ffn_sum", mixed + step.tap("shared_norm", step.norm("post_ffw_norm_1", out)))


Block = Callable[[Step, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Layer:
    mixer: Block
    feed_forwards: tuple[Block, ...]

    def run(self, step: Step, x: np.ndarray) -> np.ndarray:
        """The residual stream [T, D] after the layer."""

        def added(value: np.ndarray) -> np.ndarray:
            return step.ops.passed_on(value * step.hp.residual_scale)

        def normed(name: str, tap: str) -> np.ndarray:
            return step.tap(tap, step.norm(name, x)) if step.family.pre_norms else x

        out = self.mixer(step, normed("attn_norm", "attn_norm"))
        if step.family.post_norms:
            out = step.tap("attn_post", step.norm("post_attention_norm", out))
        x = step.tap("ffn_inp", x + added(out))
        read = x if step.family.beside else normed(step.family.ffn_norm, "ffn_norm")
        out, *others = (of(step, read) for of in self.feed_forwards)
        for other in others:
            out = step.ops.passed_on(out + other)
        if step.family.post_norms:
            out = step.tap("ffn_post", step.norm("post_ffw_norm", out))
        x = step.tap("l_out", x + added(out))
        if step.inputs is not None:
            gate = step.tap("pl_gate", step.product("inp_gate", x))
            act = step.tap("pl_act", step.ops.activated(gate, step.inputs))
            x = step.tap("pl_sum", x + step.tap("pl_post", step.norm("post_norm", step.tap("pl_out", step.product("proj", act)))))
        if step.family.output_scale:
            x = step.tap("l_scaled", x * step.ops.vector(f"blk.{step.layer}.layer_output_scale.weight"))
        return x


def layers_of(hp: HParams, family: Family) -> list[Layer]:
    of_experts, recurrent = beside_experts if family.beside else mixture, short_conv if hp.conv_width else mamba if family.mamba else delta_net
    return [Layer(recurrent if hp.is_recurrent(layer) else attention, (of_experts if hp.has_experts(layer) else feed_forward,))
            for layer in range(hp.n_layers)]


class Decoder:
    """A model and one text. Prefill and decode are the same call with more or fewer tokens."""

    def __init__(self, ops):
        self.ops, self.hparams = ops, ops.hparams
        self.layers = layers_of(ops.hparams, ops.family)
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
        return self.logits(self.hidden(feeds, layer_tap, global_tap, last_only), global_tap)

    def hidden(self, feeds: list[tuple[Text, list[int]]], layer_tap: LayerTap = _ignore, global_tap: GlobalTap = _ignore,
               last_only: bool = False) -> np.ndarray:
        """What forward_all() makes logits of: the rows after the last norm."""
        ids = np.concatenate([np.asarray(tokens, dtype=np.int64) for _, tokens in feeds])
        ends = np.cumsum([len(tokens) for _, tokens in feeds])
        segments = [(text, slice(end - len(tokens), end)) for (text, tokens), end in zip(feeds, ends, strict=True)]
        positions = np.concatenate([np.arange(text.n_past, text.n_past + len(tokens)) for text, tokens in feeds])
        turns = {rope: self.ops.turns(rope, positions) for rope in map(self.hparams.rope_of, range(self.hparams.n_layers))}
        x = self._tap(global_tap, "embd", self.ops.embedding(ids) * self.hparams.embedding_scale)  # [T, D]
        inputs = self._layer_inputs(ids, x, global_tap) if self.hparams.d_input else [None] * len(self.layers)
        for i, layer in enumerate(self.layers):
            x = layer.run(Step(self.ops, i, segments, positions, turns[self.hparams.rope_of(i)], inputs[i], layer_tap), x)
        for text, tokens in feeds:
            text.n_past += len(tokens)
        x = x[ends - 1] if last_only else x
        return self._tap(global_tap, "result_norm", self.ops.norm(x, f"{self.ops.family.final_norm}.weight"))

    def _layer_inputs(self, ids: np.ndarray, x: np.ndarray, global_tap: GlobalTap) -> list[np.ndarray]:
        """What the tokens, and their rows x of the embedding, give each layer."""
        factor = float(np.float32(np.sqrt(self.hparams.d_input)))
        embedded = self._tap(global_tap, "pl_embd", self.ops.embedding(ids, "per_layer_token_embd.weight") * factor)
        projected = self._tap(global_tap, "pl_proj", self.ops.product(x, "per_layer_model_proj.weight"))
        inputs = self._tap(global_tap, "pl_inputs", self.ops.layer_inputs(embedded, projected))
        return np.split(inputs, self.hparams.n_layers, axis=1)

    def logits(self, normed: np.ndarray, global_tap: GlobalTap = _ignore) -> np.ndarray:
        """Of rows of hidden()."""
        head = "output.weight" if self.ops.has("output.weight") else "token_embd.weight"  # tied embeddings
        logits, cap = self.ops.passed_on(self.ops.product(normed, head)) / self.hparams.logit_scale, self.hparams.logit_cap
        return self._tap(global_tap, "logits", cap * np.tanh(logits / cap) if cap else logits)

    def _tap(self, global_tap: GlobalTap, name: str, value: np.ndarray) -> np.ndarray:
        value = self.ops.passed_on(value)
        global_tap(name, value)
        return value
