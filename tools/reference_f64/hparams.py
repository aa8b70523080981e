"""Hyper-parameters of a GGUF of the Llama family, and in what its architectures differ.

What the oracle does not compute is refused, so that an agreement with it can never rest on both sides ignoring the same
part of a file.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from rope import Rope, Yarn


class UnsupportedModel(Exception):
    """The file is readable, but needs something this oracle does not compute."""


QKV_BIASES = ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True)
class Family:
    """In what an architecture differs from the others, by transformers' modeling_llama, modeling_qwen2, modeling_qwen3,
    modeling_qwen3_moe, modeling_qwen2_vl, modeling_qwen3_vl, modeling_qwen3_vl_moe, modeling_qwen3_5, modeling_qwen3_next, modeling_gpt_oss, modeling_smollm3, modeling_gemma3, modeling_gemma4, modeling_granite, modeling_phi3,
    modeling_ministral3, modeling_ernie4_5, modeling_olmo2, modeling_olmo3, modeling_exaone4,
    modeling_seed_oss, modeling_hunyuan_v1_dense, modeling_hunyuan_v1_moe, modeling_glm4, modeling_glm4_moe, modeling_dots1, modeling_ernie4_5_moe,
    modeling_laguna, modeling_minimax_m2, modeling_qwen2_moe, modeling_olmoe, modeling_granitemoeshared, modeling_gemma2, modeling_lfm2, modeling_lfm2_moe, modeling_granitemoehybrid."""

    qk_layout: str  # dims of a head that RoPE pairs: neighbours ("interleaved") or halves of the head ("half")
    biases: tuple[str, ...] = ()  # products with one
    may_lack_biases: bool = False  # or with none
    head_norm: bool = False  # RMSNorm of each head of q and k before RoPE
    may_lack_head_norm: bool = False  # where the file has it
    rotates_first: bool = False  # head_norm is after RoPE
    row_norm: bool = False  # head_norm is of all heads at once
    pre_norms: bool = True  # RMSNorm of what attention and feed-forward read
    post_norms: bool = False  # RMSNorm of what attention and feed-forward add
    ffn_norm: str = "ffn_norm"  # the file's name of the norm before the feed-forward
    activation: str = "silu"  # of llama_f64.ACTIVATIONS
    scaled_embedding: bool = False  # by the root of d_model
    attention_scale: float = 0.0  # of scores; 0: the root of the head dim divides them
    score_cap: float = 0.0  # of scores, where the file does not say; 0: none
    logit_cap: float = 0.0  # and of logits
    value_norm: bool = False  # RMSNorm of each head of v, without a weight; a layer without attn_v has the product of attn_k
    output_scale: bool = False  # a layer ends with a multiplication
    own: tuple[str, ...] = ()  # keys that are refused elsewhere
    theta: float = 10000.0  # RoPE's, where the file does not say
    window_period: int = 0  # each layer but every so many has the sliding window; 1: all; 0: there is none
    full_first: bool = False  # of so many layers the first is without it, not the last
    window: int = 0  # where the file does not say
    window_rope: str = "same"  # RoPE's in layers with a window; "unscaled": without scaling; "alone": the others have none
    window_theta: float | None = None  # the unscaled one's, where the file does not say; None: the others'
    no_rope_period: int = 0  # of so many layers the last has no RoPE; 0: all have it
    whole_yarn: bool = True  # Yarn.whole
    long_rope: bool = False  # there may be divisors of frequencies for long and for short runs
    output_gate: bool = False  # attention's context is multiplied by the sigmoid of a second q
    softplus_gate: bool = False  # or by the softplus of a product of its own, of each value or of each head
    full_period: int = 0  # all layers but each so many are Gated DeltaNets, where the file does not say; 0: none is
    grouped: bool = False  # DeltaNet.grouped
    short_conv: bool = False  # layers without KV heads are short convolutions
    mamba: bool = False  # layers without KV heads are Mamba-2; the file says whether the others have RoPE
    final_norm: str = "output_norm"
    sinks: bool = False  # each head has a score of no key
    experts: bool = False  # the feed-forward is a mixture of some of many
    expert_width: str = "expert_feed_forward_length"  # the key of an expert's width
    dense_first: bool = False  # but for the file's first layers
    router: str = "softmax"  # or "sigmoid": what weighs experts
    expert_bias: bool = False  # of the choice of experts, where the file has it
    adds_up: bool = True  # weights of experts are divided by their sum, where the file does not say
    shared_expert: bool = False  # and of one more that every token goes through, times a sigmoid
    plain_shared: bool = False  # or without it
    counts_shared: bool = False  # it is as wide as expert_shared_count experts
    beside: bool = False  # and of one more, each with norms before and after it; the router has a norm, too
    scales: bool = False  # the file has those of the embedding, scores, residuals and logits
    needs_scales: bool = False  # all but that of scores
    wide_layers: int = 0  # a model of so many layers scales scores by the root of d_model / n_heads, not of head_dim
    fused: dict[str, tuple[str, ...]] = field(default_factory=dict)  # tensors whose rows are those of several, in turn


GPT_OSS_BIASES = (*QKV_BIASES, "attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
MAMBA_IN = {"ssm_in": ("attn_gate", "attn_qkv", "ssm_alpha")}  # z; x, B and C; the time steps
SHORT_CONV = {"shortconv.in_proj": ("shortconv.b", "shortconv.c", "shortconv.x")}
# One shared expert, as wide as so many others, and leading layers without any.
COUNTED = {"experts": True, "shared_expert": True, "plain_shared": True, "counts_shared": True, "dense_first": True,
           "own": ("expert_shared_count", "leading_dense_block_count")}
VISION = ("rope.dimension_sections", "n_deepstack_layers")  # of images: a text's positions are equal, and no layer gets more than the one before gives
FAMILIES = {"llama": Family("interleaved", window_period=1), "smollm3": Family("interleaved", no_rope_period=4),
            "mistral3": Family("interleaved", window_period=1, own=("attention.temperature_scale", "rope.scaling.yarn_log_multiplier")),
            "ernie4_5": Family("interleaved"),
            "ernie4_5-moe": Family("interleaved", expert_bias=True, **COUNTED),
            "qwen2": Family("half", biases=QKV_BIASES), "qwen3": Family("half", head_norm=True),
            "qwen2vl": Family("half", biases=QKV_BIASES, own=("rope.dimension_sections",)), "qwen3vl": Family("half", head_norm=True, own=VISION),
            "qwen3vlmoe": Family("half", head_norm=True, experts=True, own=VISION),
            "qwen35": Family("half", head_norm=True, ffn_norm="post_attention_norm", output_gate=True, full_period=4),
            "qwen35moe": Family("half", head_norm=True, ffn_norm="post_attention_norm", output_gate=True, full_period=4, experts=True,
                                shared_expert=True),
            "qwen3next": Family("half", head_norm=True, ffn_norm="post_attention_norm", output_gate=True, full_period=4, experts=True,
                                shared_expert=True, grouped=True, fused={"ssm_ba": ("ssm_beta", "ssm_alpha")}),
            "qwen3moe": Family("half", head_norm=True, experts=True),
            "qwen2moe": Family("half", biases=QKV_BIASES, experts=True, adds_up=False, shared_expert=True, own=("expert_shared_count",)),
            "olmoe": Family("half", head_norm=True, row_norm=True, experts=True, expert_width="feed_forward_length", adds_up=False),
            "dots1": Family("half", head_norm=True, router="sigmoid", expert_bias=True, adds_up=False, **COUNTED),
            "laguna": Family("half", head_norm=True, softplus_gate=True, window_period=4, full_first=True, window_rope="unscaled", router="sigmoid",
                             expert_bias=True, adds_up=False, experts=True, shared_expert=True, plain_shared=True, dense_first=True,
                             own=("expert_shared_count", "leading_dense_block_count")),
            "minimax-m2": Family("half", head_norm=True, row_norm=True, experts=True, router="sigmoid", expert_bias=True),
            "glm4moe": Family("half", biases=QKV_BIASES, may_lack_biases=True, head_norm=True, may_lack_head_norm=True,
                              ffn_norm="post_attention_norm", router="sigmoid", expert_bias=True, adds_up=False,
                              **(COUNTED | {"own": (*COUNTED["own"], "rope.dimension_sections")})),
            "hunyuan-moe": Family("half", head_norm=True, rotates_first=True, experts=True, shared_expert=True, plain_shared=True,
                                  own=("expert_shared_count",)),
            "gpt-oss": Family("half", biases=GPT_OSS_BIASES, ffn_norm="post_attention_norm", activation="swiglu_oai",
                              theta=150000.0, window_period=2, whole_yarn=False, sinks=True, experts=True),
            "gemma2": Family("half", post_norms=True, activation="gelu_tanh", scaled_embedding=True, window_period=2, window=4096, wide_layers=46,
                             score_cap=50.0, logit_cap=30.0, own=("attn_logit_softcapping", "final_logit_softcapping")),
            "gemma3": Family("half", head_norm=True, post_norms=True, activation="gelu_tanh", scaled_embedding=True,
                             theta=1000000.0, window_period=6, window_rope="unscaled", window_theta=10000.0, wide_layers=62),
            "gemma4": Family("half", head_norm=True, post_norms=True, activation="gelu_tanh", scaled_embedding=True, attention_scale=1.0,
                             value_norm=True, output_scale=True, theta=1000000.0, window_period=6, window_rope="unscaled", window_theta=10000.0,
                             own=("final_logit_softcapping", "attention.shared_kv_layers", "embedding_length_per_layer_input")),
            "olmo2": Family("half", head_norm=True, row_norm=True, pre_norms=False, post_norms=True, window_period=4, window_rope="unscaled"),
            "exaone4": Family("half", head_norm=True, pre_norms=False, post_norms=True, window_period=4, window_rope="alone"),
            "seed_oss": Family("half", biases=QKV_BIASES, ffn_norm="post_attention_norm"),
            "hunyuan-dense": Family("half", head_norm=True, rotates_first=True),
            "glm4": Family("interleaved", biases=QKV_BIASES, may_lack_biases=True, post_norms=True, fused={"ffn_up": ("ffn_gate", "ffn_up")}),
            "lfm2": Family("half", head_norm=True, theta=1000000.0, short_conv=True, final_norm="token_embd_norm", fused=SHORT_CONV),
            "lfm2moe": Family("half", head_norm=True, theta=1000000.0, short_conv=True, final_norm="token_embd_norm", fused=SHORT_CONV,
                              experts=True, dense_first=True, router="sigmoid", expert_bias=True, own=("leading_dense_block_count",)),
            "granite": Family("interleaved", scales=True), "minicpm": Family("interleaved", scales=True, needs_scales=True),
            "internlm2": Family("interleaved"),
            "granitemoe": Family("interleaved", scales=True, experts=True, expert_width="feed_forward_length", shared_expert=True,
                                 plain_shared=True),
            "granitehybrid": Family("interleaved", scales=True, mamba=True, fused=MAMBA_IN, biases=("ssm_conv1d",), may_lack_biases=True,
                                    own=("expert_shared_feed_forward_length",)),
            "phi3": Family("half", window_period=1, long_rope=True, fused={"attn_qkv": ("attn_q", "attn_k", "attn_v"),
                                                                           "ffn_up": ("ffn_gate", "ffn_up")})}


# A name's models with experts, where it has others.
WITH_EXPERTS = {"granitehybrid": replace(FAMILIES["granitehybrid"], experts=True, expert_width="feed_forward_length", shared_expert=True,
                                         plain_shared=True),
                "gemma4": replace(FAMILIES["gemma4"], experts=True, beside=True, fused={"ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps")})}


def family_of(arch: str, n_experts: int) -> Family:
    return WITH_EXPERTS[arch] if arch in WITH_EXPERTS and n_experts else FAMILIES[arch]


@dataclass(frozen=True)
class DeltaNet:
    """Sizes of a Gated DeltaNet, or of a Mamba-2, whose B and C are k and q and whose x is v."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    width: int  # of the convolution
    grouped: bool  # value heads of one key head are neighbours; else value head i has key head i % k_heads

    @property
    def k_width(self) -> int:
        return self.k_heads * self.k_dim

    @property
    def v_width(self) -> int:
        return self.v_heads * self.v_dim

    @property
    def channels(self) -> int:
        return 2 * self.k_width + self.v_width


@dataclass(frozen=True)
class HParams:
    """Hyper-parameters of a decoder, as the file states them (f32 values widened to f64)."""

    n_layers: int
    d_model: int
    d_ff: int  # of one expert, where there are any
    n_heads: int  # the most of a layer
    heads: tuple[int, ...]  # by layer
    n_kv_heads: int
    head_dim: int  # width of one query or key head
    value_dim: int  # width of one value head
    rope: Rope  # of layers that are not said to have another
    window: int  # positions that a token attends to, its own the last; 0 = all
    eps: float
    context_length: int
    original_context: int  # positions that short divisors of LongRoPE are for
    window_period: int
    window_rope: Rope | None  # of layers with a window, where it is another
    rope_in_windows: bool  # and in no other layers
    no_rope_period: int
    n_experts: int  # 0: the feed-forward is no mixture
    n_experts_used: int  # by a token
    d_shared: int  # of the expert that every token goes through; 0: there is none
    d_beside: int  # of the feed-forward beside the experts; 0: there is none
    attention_scale: float  # scores are multiplied by it
    embedding_scale: float  # and a row of the embedding by this
    residual_scale: float  # and what attention and feed-forward add
    logit_scale: float  # logits are divided by it
    delta: DeltaNet | None  # of the layers that are recurrent
    recurrent: tuple[bool, ...]  # by layer; empty: none is
    d_ffs: tuple[int, ...]  # d_ff by layer
    conv_width: int  # of short convolutions, in layers that are recurrent; 0: there is none
    n_dense: int  # the first layers without experts
    experts_scale: float  # experts' weights are multiplied by it
    experts_add_up: bool  # and divided by their sum before
    kv_heads: tuple[int, ...]  # n_kv_heads by layer
    windowed: tuple[bool, ...] = ()  # by layer, in place of window_period
    window_head_dim: int = 0  # of layers with a window; 0: head_dim
    n_shared: int = 0  # the last layers, which have the keys and values of the last one before them that is like them
    d_input: int = 0  # of each layer, what the token gives it
    logit_cap: float = 0.0
    score_cap: float = 0.0

    def is_recurrent(self, layer: int) -> bool:
        return bool(self.recurrent) and self.recurrent[layer]

    def has_experts(self, layer: int) -> bool:
        return self.n_experts > 0 and layer >= self.n_dense

    def head_dim_of(self, layer: int) -> int:
        return self.window_head_dim if self.window_head_dim and self.window_of(layer) else self.head_dim

    def kv_layer(self, layer: int) -> int:
        """Whose keys and values a layer reads."""
        own = self.n_layers - self.n_shared
        return layer if layer < own else max(i for i in range(own) if self.window_of(i) == self.window_of(layer))

    def window_of(self, layer: int) -> int:
        """Of that layer, or 0."""
        if self.windowed:
            return self.window if self.windowed[layer] else 0
        return self.window if self.window_period == 1 or (layer + 1) % self.window_period else 0

    def rope_of(self, layer: int) -> Rope:
        if self.no_rope_period and (layer + 1) % self.no_rope_period == 0 or self.rope_in_windows and not self.window_of(layer):
            return Rope(0, self.rope.theta)
        return self.window_rope if self.window_rope and self.window_of(layer) else self.rope


def layer_shapes(hp: HParams, family: Family, layer: int) -> dict[str, tuple[int, ...]]:
    """Of the tensors of a layer, by the names after blk.N."""
    head_dim, kv_heads, d_ff = hp.head_dim_of(layer), hp.kv_heads[layer], hp.d_ffs[layer]
    value_dim = head_dim if hp.window_head_dim else hp.value_dim
    n_heads = hp.heads[layer]
    q_width, kv_width, v_width = n_heads * head_dim, kv_heads * head_dim, kv_heads * value_dim
    matrices = {"attn_q": ((1 + family.output_gate) * q_width, hp.d_model), "attn_k": (kv_width, hp.d_model), "attn_v": (v_width, hp.d_model),
                "attn_output": (hp.d_model, n_heads * value_dim)}
    if family.softplus_gate:
        matrices["attn_gate"] = (n_heads, hp.d_model)
    recurrent = {}
    if hp.is_recurrent(layer) and hp.conv_width:
        matrices = {f"shortconv.{name}": (hp.d_model, hp.d_model) for name in ("b", "c", "x", "out_proj")}
        recurrent = {"shortconv.conv.weight": (hp.d_model, hp.conv_width)}
    elif hp.is_recurrent(layer) and family.mamba:
        d = hp.delta
        matrices = {"attn_gate": (d.v_width, hp.d_model), "attn_qkv": (d.channels, hp.d_model), "ssm_alpha": (d.v_heads, hp.d_model),
                    "ssm_out": (hp.d_model, d.v_width)}
        recurrent = {"ssm_conv1d.weight": (d.channels, d.width), "ssm_a": (d.v_heads, 1), "ssm_d": (d.v_heads, 1),
                     "ssm_dt.bias": (d.v_heads,), "ssm_norm.weight": (d.k_heads, d.v_width // d.k_heads)}
    elif hp.is_recurrent(layer):
        d = hp.delta
        matrices = {"attn_qkv": (d.channels, hp.d_model), "attn_gate": (d.v_width, hp.d_model), "ssm_beta": (d.v_heads, hp.d_model),
                    "ssm_alpha": (d.v_heads, hp.d_model), "ssm_out": (hp.d_model, d.v_width)}
        recurrent = {"ssm_conv1d.weight": (d.channels, d.width), "ssm_a": (d.v_heads,), "ssm_dt.bias": (d.v_heads,),
                     "ssm_norm.weight": (d.v_dim,)}
    ffn = {"ffn_gate": (d_ff, hp.d_model), "ffn_up": (d_ff, hp.d_model), "ffn_down": (hp.d_model, d_ff)}
    if hp.has_experts(layer):
        ffn = {f"{name}_exps": (hp.n_experts, *shape) for name, shape in ffn.items()}
        ffn["ffn_gate_inp"] = (hp.n_experts, hp.d_model)
    if hp.d_shared and hp.has_experts(layer):
        ffn |= {"ffn_gate_shexp": (hp.d_shared, hp.d_model), "ffn_up_shexp": (hp.d_shared, hp.d_model),
                "ffn_down_shexp": (hp.d_model, hp.d_shared)} | ({} if family.plain_shared else {"ffn_gate_inp_shexp": (hp.d_model,)})
    beside = {}
    if hp.d_beside:
        ffn |= {"ffn_gate": (hp.d_beside, hp.d_model), "ffn_up": (hp.d_beside, hp.d_model), "ffn_down": (hp.d_model, hp.d_beside)}
        beside = {"ffn_gate_inp.scale": (hp.d_model,)} | {f"{name}.weight": (hp.d_model,) for name in (
            "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")}
    matrices |= ffn
    for whole, parts in family.fused.items():
        if shapes := [matrices.pop(part) for part in parts if part in matrices]:
            matrices[whole] = (*shapes[0][:-2], sum(shape[-2] for shape in shapes), shapes[0][-1])
    vectors = {"attn_norm": (hp.d_model,), family.ffn_norm: (hp.d_model,)} if family.pre_norms else {}
    if family.head_norm and not recurrent:
        vectors |= {"attn_q_norm": (q_width if family.row_norm else head_dim,), "attn_k_norm": (kv_width if family.row_norm else head_dim,)}
    if hp.kv_layer(layer) != layer:
        for name in ("attn_k", "attn_v"):
            del matrices[name]
        del vectors["attn_k_norm"]
    if hp.d_input:
        matrices |= {"inp_gate": (hp.d_input, hp.d_model), "proj": (hp.d_model, hp.d_input)}
        vectors["post_norm"] = (hp.d_model,)
    if family.output_scale:
        vectors["layer_output_scale"] = (1,)
    if family.post_norms:
        vectors |= {"post_attention_norm": (hp.d_model,), "post_ffw_norm": (hp.d_model,)}
    if family.sinks:
        vectors["attn_sinks"] = (hp.n_heads,)
    return (recurrent | beside | {f"{name}.weight": shape for name, shape in (matrices | vectors).items()}
            | {f"{name}.bias": matrices[name][:-1] for name in family.biases if name in matrices}
            | ({"ssm_conv1d.bias": (hp.delta.channels,)} if "ssm_conv1d.weight" in recurrent and "ssm_conv1d" in family.biases else {}))


_SCALE_KEYS = ("logit_scale", "residual_scale", "embedding_scale", "attention.scale")  # of families with scales
# The values that change nothing.
_REFUSED_KEYS = {"attention.clamp_kqv": (), "attention.temperature_scale": (0.0,), "attn_logit_softcapping": (), "final_logit_softcapping": (),
                 "rope.dimension_sections": (), "n_deepstack_layers": (0,), "rope.scaling.yarn_ext_factor": (1.0, -1.0),
                 "rope.scaling.yarn_log_multiplier": ()}
_EXPERT_KEYS = {"expert_shared_count": (0,), "expert_shared_feed_forward_length": (0,), "leading_dense_block_count": (0,),
                "expert_gating_func": (1,),
                "expert_group_count": (0, 1), "interleave_moe_layer_step": (0, 1)}


class Reader:
    """Reads the hyper-parameters. `value(key, default)` is the file's metadata."""

    def __init__(self, value: Callable):
        self._value = value
        self.arch = value("general.architecture", None)
        if self.arch not in FAMILIES:
            raise UnsupportedModel(f"architecture {self.arch!r}, only {', '.join(FAMILIES)} are modelled")
        self.family = family_of(self.arch, self._value(f"{self.arch}.expert_count", 0))

    def _number(self, key: str, default=None):
        """A metadata number of the architecture; a per-layer array is accepted if all its entries agree."""
        value = self._value(f"{self.arch}.{key}", default)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise UnsupportedModel(f"{self.arch}.{key} differs between layers")
            value = value[0]
        if value is None:
            raise UnsupportedModel(f"{self.arch}.{key} is missing")
        return value

    def _check(self) -> None:
        arch, family = self.arch, self.family
        refused = _REFUSED_KEYS | ({} if family.scales else dict.fromkeys(_SCALE_KEYS, ()))
        refused |= {key: () if key in family.own else (0,) for key in ("attention.shared_kv_layers", "embedding_length_per_layer_input")}
        refused = {key: harmless for key, harmless in refused.items() if key not in family.own}
        if family.full_period:  # all positions of a token of text are equal
            del refused["rope.dimension_sections"]
        experts = _EXPERT_KEYS if family.experts else {}
        if family.router == "sigmoid":
            experts = experts | {"expert_gating_func": (2,)}
        experts = {key: harmless for key, harmless in experts.items() if key not in family.own}
        if family.shared_expert:
            experts = {key: harmless for key, harmless in experts.items() if key != "expert_shared_feed_forward_length"}
        for key, harmless in (refused | experts).items():
            found = self._value(f"{arch}.{key}", None)
            if found is not None and found not in harmless:
                raise UnsupportedModel(f"{arch}.{key} is not modelled")
        if family.scales and not family.mamba and not self._value(f"{arch}.rope.scaling.finetuned", True):
            raise UnsupportedModel(f"{arch}.rope.scaling.finetuned is false: a model without RoPE is not modelled")
        if not family.experts and self._value(f"{arch}.expert_count", 0):
            raise UnsupportedModel("mixture of experts is not modelled")
        if not family.window_period and 0 < self._value(f"{arch}.attention.sliding_window", 0) < self._number("context_length"):
            raise UnsupportedModel("a sliding window is not modelled")

    def _numbers(self, key: str, n: int, default=None) -> tuple[int, ...]:
        """A number of each layer."""
        value = self._value(f"{self.arch}.{key}", default)
        return tuple(value[:n]) if isinstance(value, list) else (self._number(key, default),) * n

    def read(self) -> HParams:
        self._check()
        family, number = self.family, self._number
        d_model = number("embedding_length")
        n_layers = number("block_count") - number("nextn_predict_layers", 0)  # the blocks behind only guess
        heads = self._numbers("attention.head_count", n_layers)
        n_heads = max(heads)
        head_dim = number("attention.key_length", d_model // n_heads)
        rope = self._rope(number("rope.dimension_count", head_dim))
        if family.mamba and not self._value(f"{self.arch}.rope.scaling.finetuned", True):
            rope = Rope(0, rope.theta)
        by_kv_heads = family.short_conv or family.mamba  # what tells recurrent layers from others
        if growth := number("attention.temperature_scale", 0.0):
            rope = replace(rope, query_growth=float(growth), query_period=number("rope.scaling.original_context_length"))
        wide = n_layers == family.wide_layers
        d_ffs = self._numbers(family.expert_width if family.experts else "feed_forward_length", n_layers)
        n_dense = number("leading_dense_block_count", 0) if family.dense_first else 0
        d_ffs = self._numbers("feed_forward_length", n_layers)[:n_dense] + d_ffs[n_dense:]
        kv_heads = self._numbers("attention.head_count_kv", n_layers, n_heads)
        pattern = self._value(f"{self.arch}.attention.sliding_window_pattern", None)
        pattern = tuple(map(bool, pattern)) if isinstance(pattern, list) else ()
        if family.full_first and not pattern:
            pattern = tuple(i % number("attention.sliding_window_pattern", family.window_period) != 0 for i in range(n_layers))
        hp = HParams(
            n_layers=n_layers,
            d_model=d_model,
            d_ff=d_ffs[-1],
            d_ffs=d_ffs,
            n_dense=n_dense,
            conv_width=number("shortconv.l_cache") if family.short_conv else 0,
            experts_scale=float(number("expert_weights_scale", 0.0)) or 1.0,
            experts_add_up=bool(number("expert_weights_norm", family.adds_up)),
            n_heads=n_heads,
            heads=heads,
            n_kv_heads=max(kv_heads) if by_kv_heads else kv_heads[0],
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=number("attention.value_length", d_model // n_heads),
            rope=rope,
            window=number("attention.sliding_window", family.window) if family.window_period else 0,
            windowed=pattern,
            window_period=0 if pattern else number("attention.sliding_window_pattern", family.window_period) or 1,
            window_rope=Rope(number("rope.dimension_count_swa", rope.dims), float(number("rope.freq_base_swa", family.window_theta or rope.theta)),
                             divided=False) if family.window_rope == "unscaled" else None,
            rope_in_windows=family.window_rope == "alone" and number("attention.sliding_window", 0) > 0,
            window_head_dim=number("attention.key_length_swa", 0),
            n_shared=number("attention.shared_kv_layers", 0) if family.own else 0,
            d_input=number("embedding_length_per_layer_input", 0) if family.own else 0,
            logit_cap=float(number("final_logit_softcapping", family.logit_cap)),
            score_cap=float(number("attn_logit_softcapping", family.score_cap)),
            no_rope_period=family.no_rope_period,
            n_experts=number("expert_count") if family.experts else 0,
            n_experts_used=number("expert_used_count") if family.experts else 0,
            d_shared=self._d_shared(d_ffs[-1]),
            d_beside=number("feed_forward_length") if family.beside else 0,
            attention_scale=self._scale("attention.scale", family.attention_scale or (d_model / n_heads if wide else head_dim) ** -0.5),
            embedding_scale=self._scale("embedding_scale", float(np.float32(np.sqrt(d_model))) if family.scaled_embedding else 1.0),
            residual_scale=self._scale("residual_scale", 1.0),
            logit_scale=self._scale("logit_scale", 1.0),
            delta=self._delta() if family.full_period or family.mamba else None,
            recurrent=self._recurrent(n_layers) if family.full_period else tuple(n == 0 for n in kv_heads) if by_kv_heads else (),
            eps=float(number("attention.layer_norm_rms_epsilon")),
            context_length=number("context_length"),
            original_context=number("rope.scaling.original_context_length", 0),
        )
        if family.experts and not 0 < hp.n_experts_used <= hp.n_experts:
            raise UnsupportedModel(f"{hp.n_experts_used} of {hp.n_experts} experts")
        if any(n == 0 and not by_kv_heads or n and of_layer % n for of_layer, n in zip(heads, hp.kv_heads, strict=True)):
            raise UnsupportedModel(f"{heads} heads cannot share {hp.kv_heads} KV heads")
        if rope.dims % 2 or not (0 if family.mamba else 1) <= rope.dims <= hp.head_dim:
            raise UnsupportedModel(f"rope.dimension_count {rope.dims} with head_dim {hp.head_dim}")
        return hp

    def _delta(self) -> DeltaNet:
        inner, v_heads = self._number("ssm.inner_size"), self._number("ssm.time_step_rank")
        return DeltaNet(self._number("ssm.group_count"), v_heads, self._number("ssm.state_size"), inner // v_heads,
                        self._number("ssm.conv_kernel"), self.family.grouped or self.family.mamba)

    def _d_shared(self, d_expert: int) -> int:
        if not self.family.shared_expert:
            return 0
        if self.family.counts_shared:
            return self._number("expert_shared_count", 0) * d_expert
        return self._number("expert_shared_feed_forward_length", 0 if self.family.plain_shared else None)

    def _recurrent(self, n_layers: int) -> tuple[bool, ...]:
        stated = self._value(f"{self.arch}.attention.recurrent_layers", None)
        period = self._number("full_attention_interval", self.family.full_period)
        return tuple(bool(stated[i]) if stated else (i + 1) % period != 0 for i in range(n_layers))

    def _scale(self, key: str, absent: float) -> float:
        """A number of families with scales, or `absent`; 0 means "not set" in files written by llama.cpp."""
        unset = None if self.family.needs_scales and key != "attention.scale" else 0.0
        return float(self._number(key, unset) if self.family.scales else 0.0) or absent

    def _rope(self, dims: int) -> Rope:
        kind, factor = self._value(f"{self.arch}.rope.scaling.type", "linear"), self._number("rope.scaling.factor", 1.0)
        stated = self._number("rope.scaling.yarn_attn_factor", 1.0)  # by some files, what is computed anyway
        if stated != 1.0 and not (kind == "yarn" and factor > 1.0 and abs(stated - 0.1 * math.log(factor) - 1.0) < 1e-5):
            raise UnsupportedModel(f"{self.arch}.rope.scaling.yarn_attn_factor is not modelled")
        if kind not in ("none", "linear", "yarn") and not (kind == "longrope" and self.family.long_rope):
            raise UnsupportedModel(f"rope scaling {kind!r} is not modelled")
        theta = float(self._number("rope.freq_base", self.family.theta))
        magnitude = float(self._number("rope.scaling.attn_factor", 1.0))
        if kind not in ("linear", "yarn"):
            return Rope(dims, theta, magnitude=magnitude)
        # Older files name it rope.scale_linear; 0 means "not set" in files written by llama.cpp.
        scale = float(self._number("rope.scaling.factor", self._number("rope.scale_linear", 1.0))) or 1.0
        if kind == "linear":
            return Rope(dims, theta, scale, magnitude=magnitude)
        yarn = Yarn(self._number("rope.scaling.original_context_length"),
                    float(self._number("rope.scaling.yarn_beta_fast", 32.0)),
                    float(self._number("rope.scaling.yarn_beta_slow", 1.0)), self.family.whole_yarn)
        if scale > 1.0:
            magnitude *= (0.1 * math.log(scale) + 1.0) / (0.1 * self._number("rope.scaling.yarn_log_multiplier", 0.0) * math.log(scale) + 1.0)
        return Rope(dims, theta, scale, yarn, magnitude)
