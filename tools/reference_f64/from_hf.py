#!/usr/bin/env python3
"""HF oracle: runs a model of the Llama family in transformers (f32, eager attention) and dumps its activations (dump.py).

    python tools/reference_f64/from_hf.py CHECKPOINT_DIR --ids 1,403,407 -o ref.npz
    python tools/reference_f64/from_hf.py MODEL.gguf     --ids 1,403,407 -o ref.npz
    python tools/reference_f64/from_hf.py MODEL.gguf --config CHECKPOINT_DIR --ids 1,403,407 -o ref.npz

A checkpoint directory (Llama, Mistral, Qwen2, Qwen3, Qwen3 MoE, Qwen2-VL, Qwen3-VL, Qwen3-Next, Qwen3.5, gpt-oss, Gemma 3, Gemma 4, Granite, Phi-3, Ministral 3,
ERNIE 4.5) is run as it is. A GGUF is
dequantized by the `gguf` package into the class of its architecture, q and k of a llama put back into HF's order of rows, so that
the same weights run through code that nobody here wrote. With --config, the hyper-parameters are the checkpoint's instead of the
GGUF's: a converter's mistake shows, and llama3's RoPE scaling, of which a GGUF has only the resulting divisors, is computed by
transformers. The memory needed is that of the weights in f32 and of what is dumped. Needs torch and transformers; numpy and gguf
for GGUFs.

Queries and keys come in the class's layout, in most `qk_layout` half: the two halves of a head rotate against each other.
"""

import argparse
import functools
import re
import sys
from pathlib import Path
from typing import Iterable

import gguf
import numpy as np
import torch
import transformers
from transformers import AutoConfig, Mxfp4Config, PretrainedConfig, PreTrainedModel

from dump import ActivationDump
from from_gguf import add_run_options, chosen_ids
from gguf_model import GgufModel
from hf_config import PAIRED, class_of, config_of, decoder_of, for_context, head_dim_of, theta_of
from hf_hooks import Hooks
from hparams import DeltaNet, UnsupportedModel

VERSION = "1"


def to_half(rows: np.ndarray, heads: int, rope_dim: int) -> np.ndarray:
    """Rows of a q or k matrix from GGUF's pairs to HF's halves: hf[j * rope_dim/2 + i] = gguf[2 i + j] in each head."""
    split = rows.reshape(heads, -1, rows.shape[-1]).copy()
    pairs = split[:, :rope_dim].reshape(heads, rope_dim // 2, 2, -1)
    split[:, :rope_dim] = pairs.swapaxes(1, 2).reshape(heads, rope_dim, -1)
    return split.reshape(rows.shape)


# Tensors with a matrix or a number for each expert, or of their router, and transformers' parameters. The class has gate and up of an
# expert in one matrix, gate's rows first, or, of gpt-oss, columns of both in turn.
EXPERTS = {"ffn_gate_exps.weight": "mlp.experts.gate_up_proj", "ffn_gate_exps.bias": "mlp.experts.gate_up_proj_bias",
           "ffn_down_exps.weight": "mlp.experts.down_proj", "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
           "ffn_gate_inp.weight": "mlp.router.weight", "ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale", "exp_probs_b.bias": "mlp.expert_bias",
           "attn_gate.weight": "self_attn.g_proj.weight"}
UNKNOWN = {"laguna": "dots1"}  # to the `gguf` package, and who has tensors of the same names
# Of a layer, transformers' names of what EXPERTS has under another.
NAMES = {"block_sparse_moe|feed_forward": "mlp", r"mlp\.(gate\.)?(moe_statics\.)?e_score_correction_bias": "mlp.expert_bias"}


def tensor_names(source: GgufModel, n_layers: int, parameters: Iterable[str]) -> dict[str, str]:
    """Names of the file's tensors by those of transformers' parameters, as the `gguf` package pairs them, and EXPERTS."""
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == UNKNOWN.get(source.architecture, source.architecture))
    known, out = gguf.get_tensor_name_map(arch, n_layers), {}
    for parameter in parameters:
        plain = parameter.replace("model.language_model.", "model.")
        layer, part = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)", plain).groups()
        common = functools.reduce(lambda name, row: re.sub(*row, name), NAMES.items(), part)
        experts = [f"blk.{layer}.{name}" for name, hf_name in EXPERTS.items() if hf_name == common]
        named = plain.replace(".dt_bias", ".dt_proj.bias")
        name = (experts or [known.get_name(named, (".weight", ".bias")) or ""])[0].replace("ssm_in", "ssm_in" if source.family.mamba else "attn_qkv")
        if part.startswith("shared_mlp"):
            kind = "_shexp" if source.hparams.d_shared else ""
            name = f"blk.{layer}.ffn_{'gate' if 'input' in part else 'down'}{kind}"
        choices = (name, name + ".weight", name + ".bias", "token_embd.weight" if parameter == "lm_head.weight" else "")
        out |= {parameter: choice for choice in reversed(choices) if source.has(choice)}
    return out


def weight_of(source: GgufModel, name: str, head_dim: int) -> np.ndarray:
    """A tensor of the GGUF as the class has it; of experts' gates, with up."""
    weight, part, hp = source.weight(name, np.float32), name.split(".", 2)[-1], source.hparams
    if part.startswith("ffn_gate_exps"):
        up = source.weight(name.replace("gate", "up"), np.float32)
        if source.architecture == "gpt-oss":
            weight = np.stack([weight, up], axis=2).reshape(len(weight), -1, *weight.shape[2:])
        else:
            weight = np.concatenate([weight, up], axis=1)
    if source.architecture == "gpt-oss" and weight.ndim == 3:
        weight = weight.swapaxes(1, 2)
    if source.family.qk_layout != "half" and source.architecture not in PAIRED and part in ("attn_q.weight", "attn_k.weight"):
        weight = to_half(weight, hp.n_heads if part == "attn_q.weight" else hp.n_kv_heads, head_dim)
    if source.architecture in ("gemma2", "gemma3", "qwen35", "qwen35moe", "qwen3next") and name.endswith("norm.weight") and part != "ssm_norm.weight":
        weight = weight - np.float32(1)  # a GGUF has what the class adds
    if part == "shortconv.conv.weight":
        weight = weight[:, None]
    if part == "exp_probs_b.bias" and source.architecture == "ernie4_5-moe":
        weight = weight.reshape(1, -1)
    if part == "ffn_gate_inp_shexp.weight":
        weight = weight.reshape(1, -1)
    if source.architecture == "qwen3next" and part == "attn_qkv.weight":  # the class has those of each key head together
        d, z = hp.delta, source.weight(name.replace("qkv", "gate"), np.float32)
        parts = np.split(weight, [d.k_width, 2 * d.k_width]) + [z]
        return np.concatenate([x.reshape(d.k_heads, -1, x.shape[1]) for x in parts], axis=1).reshape(-1, weight.shape[1])
    if source.family.mamba:
        return mamba_weight_of(source, name, part, weight)
    if source.family.scales and part == "ffn_gate_shexp.weight":
        return np.concatenate([weight, source.weight(name.replace("gate", "up"), np.float32)])
    return delta_weight_of(hp.delta, part, weight) if hp.delta else weight


def mamba_weight_of(source: GgufModel, name: str, part: str, weight: np.ndarray) -> np.ndarray:
    """A tensor of Granite's hybrids as the class has it; of feed-forwards beside experts, and without them, gate and up are one."""
    if part in ("ffn_gate.weight", "ffn_gate_shexp.weight"):
        return np.concatenate([weight, source.weight(name.replace("gate", "up"), np.float32)])
    if part == "ssm_conv1d.weight":
        return weight[:, None]
    if part == "ssm_a":
        return np.log(-weight.reshape(-1))
    return weight.reshape(-1) if part in ("ssm_d", "ssm_norm.weight") else weight


def delta_weight_of(sizes: DeltaNet, part: str, weight: np.ndarray) -> np.ndarray:
    """A tensor of a Gated DeltaNet as the class has it: value heads of one key head side by side."""
    def grouped(x: np.ndarray, axis: int = 0) -> np.ndarray:
        if sizes.grouped:
            return x
        shape = x.shape[:axis] + (sizes.v_heads // sizes.k_heads, sizes.k_heads, -1) + x.shape[axis + 1:]
        return x.reshape(shape).swapaxes(axis, axis + 1).reshape(x.shape)

    if part in ("attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight", "ssm_dt.bias"):
        return grouped(weight)
    if part in ("attn_qkv.weight", "ssm_conv1d.weight"):
        qk = 2 * sizes.k_width
        weight = np.concatenate([weight[:qk], grouped(weight[qk:])])
        return weight if part == "attn_qkv.weight" else weight[:, None]
    if part == "ssm_a":
        return np.log(-grouped(weight))
    return grouped(weight, 1) if part == "ssm_out.weight" else weight


def from_gguf(path: str, config: PretrainedConfig | None = None, context: int | None = None) -> tuple[PreTrainedModel, dict]:
    """The GGUF's dequantized weights in the class of `config` (default: the GGUF's own hyper-parameters), and its part
    of the metadata. `context` is for_context's."""
    source = GgufModel(path)
    config = for_context(config or config_of(source), context)
    config._attn_implementation = config._experts_implementation = "eager"
    with torch.device("meta"):  # parameters without memory
        model = class_of(config).from_config(config)
    decoder, config = decoder_of(model), config.get_text_config()
    for name in [name for name, part in model.model.named_children() if decoder not in (part, model.model)]:
        delattr(model.model, name)  # what reads images
    rotary = next(name for name in ("rotary_emb", "pos_emb") if hasattr(decoder, name))
    if getattr(decoder, rotary) is not None:
        setattr(decoder, rotary, type(getattr(decoder, rotary))(config=config))  # its frequencies are no parameters
    if hasattr(decoder.embed_tokens, "embed_scale"):
        decoder.embed_tokens.embed_scale = torch.tensor(config.hidden_size**0.5)
    if getattr(decoder, "hidden_size_per_layer_input", 0):
        decoder.embed_tokens_per_layer.embed_scale = torch.tensor(config.hidden_size_per_layer_input**0.5)

    @functools.cache  # parameters of one name share it
    def read(name: str) -> torch.Tensor:
        value = torch.from_numpy(np.require(weight_of(source, name, source.hparams.head_dim), requirements=["C", "W"]))
        source.release()
        return value

    state = {hf_name: read(name) for hf_name, name in tensor_names(source, config.num_hidden_layers, model.state_dict()).items()}
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:  # names and shapes that do not fit
        raise UnsupportedModel(str(error)) from error
    return model, {"model_sha256": source.sha256(), "model_name": source.name,
                   "tokenizer_hash": source.tokenizer_hash(), "merges_hash": source.merges_hash()}


def from_checkpoint(path: str, context: int | None = None) -> tuple[PreTrainedModel, dict]:
    """A checkpoint directory, in f32. It is no GGUF, so there is no hash of one. `context` is for_context's."""
    config = for_context(AutoConfig.from_pretrained(path, local_files_only=True), context)
    config._attn_implementation = config._experts_implementation = "eager"
    more = {"quantization_config": Mxfp4Config(dequantize=True)} if hasattr(config, "quantization_config") else {}
    model, found = class_of(config).from_pretrained(path, config=config, dtype=torch.float32, local_files_only=True,
                                                    use_safetensors=True, output_loading_info=True, **more)
    left = {what: [name for name in names if not str(name).endswith("rotary_emb.inv_freq")] for what, names in found.items()}
    if wrong := {what: names for what, names in left.items() if names}:  # inv_freq of older files follows from theta
        raise UnsupportedModel(f"the class and the checkpoint differ: {str(wrong)[:200]}")
    return model.float(), {"model_sha256": "", "model_name": Path(path).name, "tokenizer_hash": ""}


@torch.no_grad()
def run(model: PreTrainedModel, ids: list[int], steps: list[int], probs: bool = False) -> ActivationDump:
    """Feeds `ids` in calls of `steps` tokens with HF's own KV cache."""
    model.eval()
    dump = ActivationDump()
    hooks = Hooks(model, dump, probs)
    cache = None
    begin = 0
    try:
        for size in steps:
            dump.begin_step(ids[begin:begin + size], range(begin, begin + size))
            out = model(torch.tensor([ids[begin:begin + size]]), past_key_values=cache, use_cache=True)
            dump.globals_("logits", out.logits[0].numpy())
            cache = out.past_key_values
            begin += size
    finally:
        hooks.remove()
    return dump


def metadata(config: PretrainedConfig, source: dict) -> dict:
    """The dump's `__meta__` for this producer."""
    config = config.get_text_config()
    if hasattr(config, "per_layer_config"):
        config.allow_global_per_layer_attribute_access = True  # layers differ: the numbers of those with a window
    head_dim = head_dim_of(config)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    rope_dim = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    more = {}
    if rope["rope_type"] == "proportional":  # all of a head rotates, part of it by nothing
        dims = [config.per_layer_config[i].head_dim for i in range(config.num_hidden_layers)]
        head_dim = rope_dim = max(dims)
        more = {"head_dims": dims}
    elif of_windows := config.rope_parameters.get("sliding_attention"):
        parts = [of_windows if kind == "sliding_attention" else rope for kind in config.layer_types]
        dims = [int(head_dim * part.get("partial_rotary_factor", 1.0)) for part in parts]
        more = {"rope_dims": dims} if len(set(dims)) > 1 else {}
    return {
        "producer": "from_hf.py",
        "producer_version": f"{VERSION}, transformers {transformers.__version__}, torch {torch.__version__}",
        **source, "oracle": "hf", "compute": "f32", "kv": "f32", "eps": config.rms_norm_eps,
        "rope_theta": theta_of(config), "qk_layout": "interleaved" if config.model_type in PAIRED else "half",
        "hparams": {"n_layers": config.num_hidden_layers, "n_heads": config.num_attention_heads,
                    "n_kv_heads": config.num_key_value_heads, "head_dim": head_dim, "rope_dim": rope_dim, **more},
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="checkpoint directory, or GGUF of the Llama family")
    add_run_options(parser)
    parser.add_argument("--config", help="checkpoint directory whose config.json replaces a GGUF's hyper-parameters")
    args = parser.parse_args(argv)
    try:
        if Path(args.model).is_dir():
            model, source = from_checkpoint(args.model, args.context)
        else:
            config = AutoConfig.from_pretrained(args.config, local_files_only=True) if args.config else None
            model, source = from_gguf(args.model, config, args.context)
        dump = run(model, *chosen_ids(args, model.config.get_text_config().vocab_size), args.probs)
        dump.write(args.output, metadata(model.config, source), n_layers=len(decoder_of(model).layers), probs=args.probs,
                   compress=args.compress)
    except (UnsupportedModel, ValueError, OSError) as error:
        print(f"from_hf.py: error: {args.model}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
