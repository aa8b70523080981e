"""Checkpoints that would become a GGUF of another model without anyone noticing: what config.json and the tokenizer say, no key and
no tensor of the GGUF does, and the converter passes over. What a GGUF does say is judged by who loads it."""

import math
from dataclasses import dataclass

import gguf
import numpy as np

from errors import ConversionError
from mends import Checkpoint, old_layer_types, value_of


@dataclass(frozen=True)
class Class:
    """What a model_type of transformers must be: values of config.json, and which layers are unlike the others."""

    needed: dict[str, tuple] | None = None
    activations: tuple[str, ...] = ("silu", "swish")
    window_period: int = 0  # each layer but every so many has the window; 0: the GGUF's keys say it, or no layer has one
    no_rope_period: int = 0  # of so many layers the last has no RoPE; 0: all have it
    partial_rope: bool = False
    ropes: tuple[str, ...] = ("default", "linear", "llama3", "yarn")
    plain_windows: bool = False  # RoPE of layers with a window is never scaled
    whole_yarn: bool = True  # YaRN's `truncate`
    multipliers: tuple[str, ...] = ()  # that must be above 0
    wide_layers: int = 0  # a model of so many layers scales scores by the root of d_model / n_heads, not of head_dim


MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
EVERY_LAYER = {"decoder_sparse_step": (1, None), "mlp_only_layers": ([], None)}  # has experts
NO_GROUPS = {"n_group": (1, None), "topk_group": (1, None)}  # of experts
CLASSES = {
    "llama": Class(), "mistral": Class(), "ministral3": Class(ropes=("yarn",)), "qwen2": Class(), "qwen3": Class(),
    "ernie4_5": Class({"use_bias": (False, None)}),
    "hunyuan_v1_dense": Class({"attention_bias": (False,)}, ropes=("default", "linear", "dynamic")),
    "glm4": Class(partial_rope=True), "exaone4": Class(), "seed_oss": Class({"attention_bias": (True,), "attention_out_bias": (False,), "mlp_bias": (False,)}),
    "olmo2": Class({"attention_bias": (False,)}), "olmo3": Class({"attention_bias": (False,)}, plain_windows=True),
    "qwen3_moe": Class({"norm_topk_prob": (True,)}),
    "qwen2_vl_text": Class(), "qwen2_5_vl_text": Class(), "qwen3_vl_text": Class({"attention_bias": (False,)}),
    "qwen3_vl_moe_text": Class({"attention_bias": (False,)} | EVERY_LAYER),
    "qwen2_moe": Class({"norm_topk_prob": (False,), "qkv_bias": (True, None)} | EVERY_LAYER),
    "olmoe": Class({"norm_topk_prob": (False,), "clip_qkv": (None,), "attention_bias": (False,), "rms_norm_eps": (1e-5,)}),
    "ernie4_5_moe": Class({"use_bias": (False, None), "moe_layer_interval": (1,)}),
    "glm4_moe": Class(NO_GROUPS, partial_rope=True), "dots1": Class({"attention_bias": (False,)} | NO_GROUPS),
    "laguna": Class({"attention_bias": (False,), "moe_router_logit_softcapping": (0.0, None), "moe_apply_router_weight_on_input": (False, None)},
                    partial_rope=True, plain_windows=True),
    "minimax_m2": Class(partial_rope=True), "hunyuan_v1_moe": Class({"attention_bias": (False,)}, ropes=("default", "linear", "dynamic")),
    "gpt_oss": Class({"swiglu_limit": (7.0, None), "swiglu_alpha": (1.702, None)}, window_period=2, whole_yarn=False),
    "qwen3_5_text": Class({"attention_bias": (False,)}, partial_rope=True, ropes=("default",)),
    "qwen3_5_moe_text": Class({"attention_bias": (False,)}, partial_rope=True, ropes=("default",)),
    "qwen3_next": Class({"attention_bias": (False, None), "norm_topk_prob": (True,), **EVERY_LAYER},
                        partial_rope=True, ropes=("default",)),
    "smollm3": Class(no_rope_period=4),
    "gemma2": Class({"use_bidirectional_attention": (False, None), "attention_bias": (False,), "tie_word_embeddings": (True, None)}, ("gelu_pytorch_tanh",), window_period=2,
                    ropes=("default",), wide_layers=46),
    "gemma3_text": Class({"use_bidirectional_attention": (False, None)}, ("gelu_pytorch_tanh",), window_period=6, wide_layers=62),
    "gemma4_text": Class({"use_bidirectional_attention": ("vision", None), "attention_bias": (False,)},
                         ("gelu_pytorch_tanh",), partial_rope=True, ropes=("proportional",), plain_windows=True),
    "lfm2": Class({"conv_bias": (False,)}), "lfm2_moe": Class({"conv_bias": (False,), "norm_topk_prob": (True,)}),
    "granite": Class(multipliers=MULTIPLIERS), "granitemoe": Class(multipliers=MULTIPLIERS), "granitemoeshared": Class(multipliers=MULTIPLIERS),
    "granitemoehybrid": Class({"attention_bias": (False,), "mamba_proj_bias": (False,), "normalization_function": ("rmsnorm", None),
                               "time_step_limit": ([0.0, math.inf], [0.0, {"__float__": "Infinity"}], None)}, multipliers=MULTIPLIERS),
    "phi3": Class(partial_rope=True, ropes=("default", "longrope", "su"))}


def refuse(found: str, needed: str) -> None:
    raise ConversionError(f"{found}; need {needed}")


def check_config(of: Checkpoint) -> None:
    """Values of the classes of CLASSES; of others nothing is checked."""
    config, rope = of.config, of.rope
    known = CLASSES.get(config.get("model_type"))
    if known is None:
        return
    allowed = {key: known.activations for key in ("hidden_act", "hidden_activation") if key in config} | (known.needed or {})
    for key, values in allowed.items():
        if config.get(key) not in values:
            refuse(f"config.json: {key} is {config.get(key)!r}", repr(values[0]))
    if config["model_type"] == "granitemoehybrid":
        needed = ("nope", None) if "mamba" in old_layer_types(config.get("layer_types", [])) else ("rope",)
        if config.get("position_embedding_type") not in needed:
            refuse(f"config.json: position_embedding_type is {config.get('position_embedding_type')!r}", repr(needed[0]))
    if config["model_type"] == "ernie4_5_moe" and config.get("moe_layer_end_index") not in (-1, None, config["num_hidden_layers"] - 1):
        refuse(f"config.json: moe_layer_end_index is {config['moe_layer_end_index']}", "that of the last layer, or -1")
    dense = ["dense" == kind for kind in config.get("mlp_layer_types") or ()]
    if config["model_type"] == "laguna" and dense != sorted(dense, reverse=True):
        refuse(f"config.json: mlp_layer_types is {config['mlp_layer_types']}", "layers without experts before all others")
    for key in known.multipliers:
        if not isinstance(config.get(key), (int, float)) or not 0 < config[key] < math.inf:
            refuse(f"config.json: {key} is {config.get(key)!r}", "a number above 0")
    if rope["rope_type"] not in known.ropes:
        refuse(f"config.json: RoPE scaling is {rope['rope_type']!r}", f"one of {', '.join(known.ropes)}")
    if rope["rope_type"] == "dynamic" and not rope.get("alpha"):
        refuse("config.json: RoPE scaling is 'dynamic' without alpha, whose base grows with the text", "alpha")
    if rope["rope_type"] == "proportional" and (rope.get("factor") or 1.0) != 1.0:
        refuse(f"config.json: factor of proportional RoPE is {rope['factor']}", "1")
    of_windows = (config.get("rope_parameters") or {}).get("sliding_attention") or {}
    if known.plain_windows and of_windows.get("rope_type") != "default":
        refuse(f"config.json: RoPE scaling of windows is {of_windows.get('rope_type')!r}", "'default'")
    if not known.partial_rope and (rope.get("partial_rotary_factor") or 1.0) != 1.0:
        refuse(f"config.json: partial_rotary_factor is {rope['partial_rotary_factor']}", "1")
    if rope["rope_type"] == "yarn" and bool(rope.get("truncate", True)) != known.whole_yarn:
        refuse(f"config.json: truncate of YaRN is {rope.get('truncate', True)}", str(known.whole_yarn))
    check_layers(config, known)
    wide = known.wide_layers and config["num_hidden_layers"] == known.wide_layers
    wanted = config["hidden_size"] / config["num_attention_heads"] if wide else config.get("head_dim")
    if known.wide_layers and config.get("query_pre_attn_scalar") != wanted:
        refuse(f"config.json: query_pre_attn_scalar is {config.get('query_pre_attn_scalar')}",
               f"{'hidden_size / num_attention_heads' if wide else 'the head dim'}, {wanted:g}")


def check_layers(config: dict, known: Class) -> None:
    """Which layers have a window and which have no RoPE, where the architecture alone says it."""
    for key, period, found in (
            ("layer_types", known.window_period, ["sliding" in kind for kind in config.get("layer_types") or ()]),
            ("no_rope_layers", known.no_rope_period, [bool(x) for x in config.get("no_rope_layers") or ()])):
        wanted = [not period or (i + 1) % period != 0 for i in range(len(found))]
        if (period or key == "no_rope_layers") and found != wanted:
            refuse(f"config.json: {key} is {config[key]}", f"another kind in each layer whose number {period} divides")


def check_tokenizer(of: Checkpoint) -> None:
    """What tokenizers do to a text that no key says."""
    path = of.directory / "tokenizer.model"
    if path.is_file():
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2 as pb

        try:
            proto = pb.ModelProto.FromString(path.read_bytes())
        except DecodeError as error:
            raise ConversionError(f"tokenizer.model is not a SentencePiece model: {error}") from error
        rules = proto.normalizer_spec
        if proto.trainer_spec.model_type != pb.TrainerSpec.BPE:
            refuse("tokenizer.model is not BPE", "BPE")
        if rules.precompiled_charsmap or rules.remove_extra_whitespaces:
            refuse(f"tokenizer.model normalizes texts ({rules.name}, extra whitespace "
                   f"{'removed' if rules.remove_extra_whitespaces else 'kept'})", "identity")
        return
    tokenizer = of.json("tokenizer.json")
    kind = (tokenizer.get("normalizer") or {}).get("type")
    if kind not in (None, "NFC") and not (tokenizer.get("model") or {}).get("byte_fallback"):
        refuse(f"tokenizer.json: the normalizer is {kind!r}", "none, or NFC")
    for token in tokenizer.get("added_tokens") or ():
        if token.get("lstrip") or token.get("rstrip") or token.get("single_word"):
            refuse(f"tokenizer.json: added token {token['content']!r} also removes the spaces around it (lstrip, rstrip, single_word)",
                   "one that does not")


def check_window(writer: gguf.GGUFWriter, of: Checkpoint, context: int) -> None:
    """A window that the GGUF does not state, shorter than its texts."""
    if of.window and of.window < context and not value_of(writer, "{arch}.attention.sliding_window"):
        refuse(f"config.json: sliding_window is {of.window} of {context} positions, which the GGUF would not say",
               f"--context {of.window}, for a model of that many positions")


def check_divisors(writer: gguf.GGUFWriter, of: Checkpoint) -> None:
    """The scaling llama3 is a tensor, which the converter writes of some classes only."""
    if of.rope["rope_type"] == "llama3" and not any("rope_freqs.weight" in tensors for tensors in writer.tensors):
        refuse(f"config.json: RoPE scaling is 'llama3', which the GGUF of a {of.config.get('model_type')} would not say", "another one, or none")


def check_long_rope(of: Checkpoint, context: int) -> None:
    """The engine takes LongRoPE's long divisors for every text."""
    original = of.rope.get("original_max_position_embeddings")
    if of.rope["rope_type"] in ("longrope", "su") and context <= original:
        refuse(f"a model of {context} positions has the short divisors of LongRoPE, which the engine does not use",
               f"more than original_max_position_embeddings, {original}")


def check_finite(model) -> None:
    """F16 of the finished file: a value beyond it has become infinite."""
    for tensor in gguf.GGUFReader(model).tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.F16 and not np.isfinite(tensor.data).all():
            raise ConversionError(f"{tensor.name} holds values beyond F16's 65504, or none that are finite; give --type bf16 or f32")
