"""Hyper-parameters of a checkpoint's config.json, and as keys of a GGUF (ggml's docs/gguf.md)."""

import math
from dataclasses import dataclass, field

import gguf

from hf_checkpoint import Checkpoint, ConversionError
from hf_family import NEEDED, SCALES, Family, family_of
from hf_rope import Rope, rope_of, window_theta_of


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
    window_theta: float | None
    rope: Rope
    tied: bool
    n_experts: int = 0  # 0: the feed-forward is no mixture
    n_experts_used: int = 0  # by a token
    d_expert: int = 0
    scales: dict[str, float] = field(default_factory=dict)  # by key of the GGUF


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
    wanted = [period <= 1 or (i + 1) % period != 0 for i in range(len(layers))]
    if not period or found != wanted or config.get("max_window_layers", 0) or config.get("sliding_window_pattern", period) != period:
        where = "some layers only" if period else "this architecture"
        raise ConversionError(f"config.json: sliding_window is {window} of {context} positions in {where}, which is "
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


def check_values(config: dict, family: Family) -> None:
    """Raises ConversionError for what the engine would compute otherwise."""
    stated = {key: allowed for key, allowed in NEEDED.items() if key in config}
    stated |= {key: family.activations for key in ("hidden_act", "hidden_activation") if key in config}
    for key, allowed in (stated | family.needed).items():
        if config.get(key) not in allowed:
            raise ConversionError(f"config.json: {key} is {str(config.get(key))[:60]}, which is not converted; need {allowed[0]}")
    if config.get("attention_bias") and not family.name_of("attn_q.bias"):
        raise ConversionError("config.json: attention_bias is true, which is not converted for this architecture")
    packed = config.get("quantization_config")
    if packed is not None and (packed.get("quant_method") != "mxfp4" or family.architecture != "gpt-oss"):
        raise ConversionError(f"config.json: quantization_config is {str(packed)[:60]}, which is not converted; need none, or mxfp4 "
                              "of GptOssForCausalLM")


def read_hparams(checkpoint: Checkpoint, context: int | None) -> HParams:
    config = checkpoint.config

    def number(key: str) -> int:
        value = config.get(key)
        if not isinstance(value, int) or value < 1:
            raise ConversionError(f"config.json: {key} is {value!r}; need a whole number above 0")
        return value

    family = family_of(config)
    check_values(config, family)
    check_no_rope(config, family)
    n_heads, d_model, trained = (number(key) for key in ("num_attention_heads", "hidden_size", "max_position_embeddings"))
    head_dim = config.get("head_dim") or d_model // n_heads
    rope = rope_of(config, family, head_dim)
    most = max(trained, rope.positions)
    if context is not None and not 0 < context <= most:
        raise ConversionError(f"--context {context}: need 1 to {most}, " + (
            "max_position_embeddings" if most == trained else "to which YaRN stretches the original positions"))
    if rope.tensors and rope.keys.get("original_context_length", 0) >= (context or trained):
        raise ConversionError(f"a model of {context or trained} positions has the short divisors of LongRoPE, which the engine does not "
                              f"use; need more than original_max_position_embeddings, {rope.keys['original_context_length']}")
    if not isinstance(config.get("rms_norm_eps"), float):
        raise ConversionError(f"config.json: rms_norm_eps is {config.get('rms_norm_eps')!r}; need a number")
    check_score_scale(config, family, head_dim)
    experts = {}
    if family.d_expert:
        experts = {"n_experts": number("num_experts" if "num_experts" in config else "num_local_experts"),
                   "n_experts_used": number("num_experts_per_tok"), "d_expert": number(family.d_expert)}
        if experts["n_experts_used"] > experts["n_experts"]:
            raise ConversionError(f"config.json: num_experts_per_tok is {experts['n_experts_used']} of "
                                  f"{experts['n_experts']} experts")
    return HParams(
        n_layers=number("num_hidden_layers"), d_model=d_model, d_ff=number("intermediate_size"), n_heads=n_heads,
        n_kv_heads=config.get("num_key_value_heads") or n_heads, head_dim=head_dim,
        n_vocab=number("vocab_size"), context=context or trained, window=window_of(config, context or trained, family),
        eps=config["rms_norm_eps"], window_theta=window_theta_of(config, family), rope=rope,
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
    writer.add_rope_dimension_count(hp.rope.dims)
    writer.add_rope_freq_base(hp.rope.theta)
    if hp.window:
        writer.add_sliding_window(hp.window)
        if hp.window_theta not in (None, 10000.0):  # what gemma3 files mean where they say nothing
            writer.add_float32(f"{writer.arch}.rope.freq_base_swa", hp.window_theta)
    for key, scale in hp.scales.items():
        writer.add_float32(f"{writer.arch}.{key}", scale)
    for key, value in hp.rope.keys.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(f"{writer.arch}.rope.scaling.{key}", value)
