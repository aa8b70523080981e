"""What a checkpoint's config.json and tensors are in a GGUF: hyper-parameters, names, the order of rows.

Facts: transformers' modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3, modeling_qwen3_moe, modeling_smollm3,
modeling_gemma3 and modeling_granite; keys and tensor names of the GGUF specification (ggml's docs/gguf.md).
"""

import math
from dataclasses import dataclass, field

import gguf
import numpy as np

from hf_checkpoint import Checkpoint, ConversionError, Rows, Stack, Tensor


@dataclass(frozen=True)
class Family:
    """What the converter must know of a class of transformers."""

    architecture: str  # of the GGUF
    pairs: bool = False  # rows of q and k go from HF's halves to GGUF's neighbours
    vectors: dict[str, str] = field(default_factory=dict)  # of a layer, beyond the norms that all have
    activations: tuple[str, ...] = ("silu", "swish")  # of config.json, those that the architecture computes
    norm_offset: float = 0.0  # added to the weights of norms
    window_period: int = 1  # in config.json each layer but every so many has the window, 1: all
    tied: bool = False  # whether the embedding is the output where config.json does not say
    window_theta: float | None = None  # RoPE's in layers with a window, where the GGUF does not say it
    no_rope_period: int = 0  # of so many layers the last has no RoPE; 0: all have it
    experts: bool = False  # the feed-forward of every layer is a mixture
    scales: bool = False  # those of SCALES
    wide_layers: int = 0  # a model of so many layers scales scores by the root of d_model / n_heads, not of head_dim


BIASES = {f"self_attn.{x}_proj.bias": f"attn_{x}.bias" for x in "qkv"}
HEAD_NORMS = {f"self_attn.{x}_norm.weight": f"attn_{x}_norm.weight" for x in "qk"}
# Gemma's post_attention_layernorm is no norm before the feed-forward.
POST_NORMS = {"post_attention_layernorm.weight": "post_attention_norm.weight",
              "pre_feedforward_layernorm.weight": "ffn_norm.weight",
              "post_feedforward_layernorm.weight": "post_ffw_norm.weight"}
ROUTER = {"mlp.gate.weight": "ffn_gate_inp.weight"}
FAMILIES = {
    "LlamaForCausalLM": Family("llama", pairs=True),
    "MistralForCausalLM": Family("llama", pairs=True),
    "Qwen2ForCausalLM": Family("qwen2", vectors=BIASES),
    "Qwen3ForCausalLM": Family("qwen3", vectors=HEAD_NORMS),
    "Qwen3MoeForCausalLM": Family("qwen3moe", vectors=HEAD_NORMS, experts=True),
    "SmolLM3ForCausalLM": Family("smollm3", pairs=True, tied=True, no_rope_period=4),
    "Gemma3ForCausalLM": Family("gemma3", vectors=HEAD_NORMS | POST_NORMS, activations=("gelu_pytorch_tanh",),
                                norm_offset=1.0, tied=True, window_period=6, window_theta=10000.0, wide_layers=62),
    "GraniteForCausalLM": Family("granite", pairs=True, scales=True),
}
LAYER = {
    "input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight"}
# Values of config.json that would change the result and are not computed by the engine.
NEEDED = {"mlp_bias": (False, None), "quantization_config": (None,), "pretraining_tp": (1, None),
          "partial_rotary_factor": (1, 1.0, None), "attn_logit_softcapping": (None,), "final_logit_softcapping": (None,),
          "use_bidirectional_attention": (False, None)}
# Multipliers of config.json by their keys of the GGUF, where 0 means that there is none.
SCALES = {"embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
          "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale"}
# Of mixtures also those that must be there.
NEEDED_OF_EXPERTS = {"norm_topk_prob": (True,), "decoder_sparse_step": (1, None), "mlp_only_layers": ([], None),
                     "shared_expert_intermediate_size": (0, None), "attention_bias": (False, None)}


@dataclass(frozen=True)
class HParams:
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    context: int
    window: int
    eps: float
    theta: float
    window_theta: float | None
    rope: dict
    tied: bool
    n_experts: int = 0  # 0: the feed-forward is no mixture
    n_experts_used: int = 0  # by a token
    d_expert: int = 0
    scales: dict[str, float] = field(default_factory=dict)  # by key of the GGUF


def family_of(config: dict) -> Family:
    names = config.get("architectures") or ["none"]
    if names[0] not in FAMILIES:
        raise ConversionError(f"config.json: architectures is {names[0]}; need one of {', '.join(FAMILIES)}")
    return FAMILIES[names[0]]


def rope_of(config: dict) -> tuple[float, dict]:
    """Theta and what scales the positions: rope_parameters of transformers 5, rope_theta and rope_scaling before. Of layers
    without a window, where they differ."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    rope = {**rope, "rope_type": rope.get("rope_type") or rope.get("type") or "default"}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ConversionError("config.json: partial_rotary_factor is not 1: RoPE on part of a head is not converted")
    wanted = {"default": (), "linear": ("factor",),
              "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")}
    if rope["rope_type"] not in wanted:
        raise ConversionError(f"config.json: RoPE scaling {rope['rope_type']!r} is not computed by the engine; need one of "
                              f"{', '.join(wanted)}")
    for key in wanted[rope["rope_type"]]:
        if not isinstance(rope.get(key), (int, float)):
            raise ConversionError(f"config.json: RoPE scaling {rope['rope_type']!r} needs a number {key}")
    return theta, rope


def window_theta_of(config: dict, family: Family) -> float | None:
    """RoPE's theta in layers with a window, where the architecture has another there."""
    if family.window_theta is None:
        return None
    rope = (config.get("rope_parameters") or {}).get("sliding_attention", {})
    if rope.get("rope_type", "default") != "default":
        raise ConversionError("config.json: RoPE of sliding_attention is scaled, which is not converted")
    return float(rope.get("rope_theta") or config.get("rope_local_base_freq") or family.window_theta)


def window_of(config: dict, context: int, family: Family) -> int:
    """The positions that layers with a window attend to; 0: no layer has one. One that no position reaches over is none,
    unless these layers differ in more."""
    window = config.get("sliding_window")
    if config.get("use_sliding_window", True) is False or window is None:
        return 0
    if not isinstance(window, int) or window < 1:
        raise ConversionError(f"config.json: sliding_window is {window!r}; need a whole number above 0")
    if window >= context and family.window_theta is None:
        return 0
    period, layers = family.window_period, config.get("layer_types", ())
    found = ["sliding" in kind for kind in layers]
    wanted = [period == 1 or (i + 1) % period != 0 for i in range(len(layers))]
    if found != wanted or config.get("max_window_layers", 0) or config.get("sliding_window_pattern", period) != period:
        raise ConversionError(f"config.json: sliding_window is {window} of {context} positions in some layers only, which is "
                              f"not converted; give --context {window} for a model of that many positions")
    return window


def check_no_rope(config: dict, family: Family) -> None:
    """The GGUF does not say which layers have no RoPE."""
    found, period = config.get("no_rope_layers"), family.no_rope_period  # transformers' list has a 1 where there is RoPE
    if found is None:
        found = [int((i + 1) % config.get("no_rope_layer_interval", period or 4) != 0)
                 for i in range(config["num_hidden_layers"])] if period else []
    wanted = [int(not period or (i + 1) % period != 0) for i in range(len(found))]
    if found != wanted:
        raise ConversionError(f"config.json: no_rope_layers is {found}, which is not converted; need {wanted}")


def scales_of(config: dict, family: Family) -> dict[str, float]:
    """The multipliers by their keys of the GGUF. In transformers each is 1 where config.json says nothing, that of scores too."""
    scales = {}
    for key, name in SCALES.items() if family.scales else ():
        value = config.get(key, 1.0)
        if not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ConversionError(f"config.json: {key} is {value!r}; need a number above 0")
        scales[name] = float(value)
    return scales


def check_score_scale(config: dict, family: Family, head_dim: int) -> None:
    """The GGUF does not say by what root scores are scaled: query_pre_attn_scalar's of config.json."""
    wide = family.wide_layers and config["num_hidden_layers"] == family.wide_layers
    wanted = config["hidden_size"] / config["num_attention_heads"] if wide else head_dim
    if config.get("query_pre_attn_scalar", wanted) != wanted:
        raise ConversionError(f"config.json: query_pre_attn_scalar is {config['query_pre_attn_scalar']}, which is not converted; "
                              f"need {'hidden_size / num_attention_heads' if wide else 'the head dim'}, {wanted:g}")


def read_hparams(checkpoint: Checkpoint, context: int | None) -> HParams:
    config = checkpoint.config

    def number(key: str) -> int:
        value = config.get(key)
        if not isinstance(value, int) or value < 1:
            raise ConversionError(f"config.json: {key} is {value!r}; need a whole number above 0")
        return value

    family = family_of(config)
    for key, allowed in (NEEDED | {"hidden_act": family.activations, "hidden_activation": family.activations}).items():
        if key in config and config[key] not in allowed:
            raise ConversionError(f"config.json: {key} is {str(config[key])[:60]}, which is not converted; need {allowed[0]}")
    for key, allowed in NEEDED_OF_EXPERTS.items() if family.experts else ():
        if config.get(key) not in allowed:
            raise ConversionError(f"config.json: {key} is {config.get(key)}, which is not converted; need {allowed[0]}")
    if config.get("attention_bias") and not family.vectors:
        raise ConversionError("config.json: attention_bias is true, which is not converted for this architecture")
    n_heads, d_model = number("num_attention_heads"), number("hidden_size")
    trained = number("max_position_embeddings")
    check_no_rope(config, family)
    if context is not None and not 0 < context <= trained:
        raise ConversionError(f"--context {context}: need 1 to max_position_embeddings, {trained}")
    theta, rope = rope_of(config)
    if not isinstance(config.get("rms_norm_eps"), float):
        raise ConversionError(f"config.json: rms_norm_eps is {config.get('rms_norm_eps')!r}; need a number")
    head_dim = config.get("head_dim") or d_model // n_heads
    check_score_scale(config, family, head_dim)
    window = window_of(config, context or trained, family)
    experts = {}
    if family.experts:
        if window:
            raise ConversionError(f"config.json: sliding_window is {window}, which is not converted for this architecture; "
                                  f"give --context {window} for a model of that many positions")
        experts = {"n_experts": number("num_experts" if "num_experts" in config else "num_local_experts"),
                   "n_experts_used": number("num_experts_per_tok"), "d_expert": number("moe_intermediate_size")}
        if experts["n_experts_used"] > experts["n_experts"]:
            raise ConversionError(f"config.json: num_experts_per_tok is {experts['n_experts_used']} of "
                                  f"{experts['n_experts']} experts")
    return HParams(
        n_layers=number("num_hidden_layers"), d_model=d_model, d_ff=number("intermediate_size"), n_heads=n_heads,
        n_kv_heads=config.get("num_key_value_heads") or n_heads, head_dim=head_dim,
        n_vocab=number("vocab_size"), context=context or trained, window=window,
        eps=config["rms_norm_eps"], theta=theta, window_theta=window_theta_of(config, family), rope=rope,
        tied=bool(config.get("tie_word_embeddings", family.tied)), scales=scales_of(config, family), **experts)


def write_hparams(writer: gguf.GGUFWriter, hp: HParams) -> None:
    writer.add_vocab_size(hp.n_vocab)
    writer.add_context_length(hp.context)
    writer.add_embedding_length(hp.d_model)
    writer.add_block_count(hp.n_layers)
    writer.add_feed_forward_length(hp.d_ff)
    if hp.n_experts:
        writer.add_expert_count(hp.n_experts)
        writer.add_expert_used_count(hp.n_experts_used)
        writer.add_expert_feed_forward_length(hp.d_expert)
    writer.add_head_count(hp.n_heads)
    writer.add_head_count_kv(hp.n_kv_heads)
    writer.add_key_length(hp.head_dim)
    writer.add_value_length(hp.head_dim)
    writer.add_layer_norm_rms_eps(hp.eps)
    writer.add_rope_dimension_count(hp.head_dim)
    writer.add_rope_freq_base(hp.theta)
    if hp.window:
        writer.add_sliding_window(hp.window)
        if hp.window_theta not in (None, 10000.0):  # what gemma3 files mean where they say nothing
            writer.add_float32(f"{writer.arch}.rope.freq_base_swa", hp.window_theta)
    for key, scale in hp.scales.items():
        writer.add_float32(f"{writer.arch}.{key}", scale)
    if hp.rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(hp.rope["factor"])


def llama3_divisors(hp: HParams) -> np.ndarray:
    """What divides the frequency of each pair under Llama 3's scaling (transformers' modeling_rope_utils): those that turn
    more than high_freq_factor times within the original context stay, those that turn less than low_freq_factor times are
    divided by factor, and between the two the frequency is interpolated in the number of turns."""
    rope = hp.rope
    frequency = hp.theta ** (-np.arange(0, hp.head_dim, 2, dtype=np.float64) / hp.head_dim)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / (kept + (1.0 - kept) / rope["factor"])).astype(np.float32)


def halves_to_pairs(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of q or k from HF's order, where RoPE turns the halves of a head against each other, to that of llama GGUFs,
    where it turns neighbours: gguf[2 i + j] = hf[j * head_dim / 2 + i]."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


@dataclass(frozen=True)
class Planned:
    """A tensor of the GGUF and where it comes from."""

    name: str
    source: Tensor
    pair_heads: int = 0  # heads whose rows halves_to_pairs reorders; 0: none
    offset: float = 0.0  # added to each element


def plan_tensors(checkpoint: Checkpoint, family: Family, hp: HParams) -> list[Planned]:
    """Every tensor in the order of the data flow. Raises ConversionError for those that lack, are left over or have
    another shape."""
    q, kv = hp.n_heads * hp.head_dim, hp.n_kv_heads * hp.head_dim
    shapes = {"attn_norm.weight": (hp.d_model,), "ffn_norm.weight": (hp.d_model,), "attn_q.weight": (q, hp.d_model),
              "attn_k.weight": (kv, hp.d_model), "attn_v.weight": (kv, hp.d_model), "attn_output.weight": (hp.d_model, q),
              "ffn_gate.weight": (hp.d_ff, hp.d_model), "ffn_up.weight": (hp.d_ff, hp.d_model),
              "ffn_down.weight": (hp.d_model, hp.d_ff), "attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,),
              "attn_q_norm.weight": (hp.head_dim,), "attn_k_norm.weight": (hp.head_dim,),
              "post_attention_norm.weight": (hp.d_model,), "post_ffw_norm.weight": (hp.d_model,),
              "ffn_gate_inp.weight": (hp.n_experts, hp.d_model)}
    of_layer = LAYER | family.vectors
    if family.experts:
        of_layer = {source: name for source, name in of_layer.items() if not source.startswith("mlp.")} | ROUTER
    heads = {"attn_q.weight": hp.n_heads, "attn_k.weight": hp.n_kv_heads} if family.pairs else {}
    left = dict(checkpoint.tensors)

    def take(source: str, name: str, shape: tuple[int, ...], pair_heads: int = 0) -> Planned:
        if source not in left:
            raise ConversionError(f"the checkpoint has no tensor {source}")
        tensor = left.pop(source)
        if tensor.shape != shape:
            raise ConversionError(f"{source} has shape {list(tensor.shape)}; config.json needs {list(shape)}")
        return Planned(name, tensor, pair_heads, family.norm_offset if name.endswith("norm.weight") else 0.0)

    def take_experts(layer: int) -> list[Planned]:
        source, n = f"model.layers.{layer}.mlp.experts", hp.n_experts
        up, down = (hp.d_expert, hp.d_model), (hp.d_model, hp.d_expert)
        if f"{source}.gate_up_proj" in left:  # as the class has them
            both = take(f"{source}.gate_up_proj", "", (n, 2 * hp.d_expert, hp.d_model)).source
            found = {"gate": Rows(both, 0, hp.d_expert), "up": Rows(both, hp.d_expert, hp.d_expert),
                     "down": take(f"{source}.down_proj", "", (n, *down)).source}
        else:
            found = {part: Stack(f"{source}.{part}_proj",
                                 [take(f"{source}.{e}.{part}_proj.weight", "", shape).source for e in range(n)])
                     for part, shape in (("gate", up), ("up", up), ("down", down))}
        return [Planned(f"blk.{layer}.ffn_{part}_exps.weight", tensor) for part, tensor in found.items()]

    table = (hp.n_vocab, hp.d_model)
    plan = [take("model.embed_tokens.weight", "token_embd.weight", table)]
    for i in range(hp.n_layers):
        plan += [take(f"model.layers.{i}.{source}", f"blk.{i}.{name}", shapes[name], heads.get(name, 0))
                 for source, name in of_layer.items()]
        if family.experts:
            plan += take_experts(i)
    plan.append(take("model.norm.weight", "output_norm.weight", (hp.d_model,)))
    if not hp.tied:
        plan.append(take("lm_head.weight", "output.weight", table))
    left.pop("lm_head.weight", None)  # tied: transformers takes the embedding, whatever stands here
    unknown = [name for name in left if not name.endswith("rotary_emb.inv_freq")]  # of older files; follows from theta
    if unknown:
        raise ConversionError(f"the checkpoint has tensors that would be lost: {', '.join(unknown[:3])}"
                              + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""))
    return plan
