#!/usr/bin/env python3
"""HF oracle: runs a model of the Llama family in transformers (f32, eager attention) and dumps its activations (dump.py).

    python tools/oracle/from_hf.py CHECKPOINT_DIR --ids 1,403,407 -o ref.npz
    python tools/oracle/from_hf.py MODEL.gguf     --ids 1,403,407 -o ref.npz
    python tools/oracle/from_hf.py MODEL.gguf --config CHECKPOINT_DIR --ids 1,403,407 -o ref.npz

A checkpoint directory (Llama, Mistral, Qwen2, Qwen3, Qwen3 MoE, gpt-oss, Gemma 3, Granite, Phi-3) is run as it is. A GGUF is dequantized by the
`gguf` package into the class of its architecture, q and k of a llama put back into HF's order of rows, so that the same
weights run through code that nobody here wrote. With --config, the
hyper-parameters are the checkpoint's instead of the GGUF's: a converter's mistake shows, and llama3's RoPE scaling, of
which a GGUF has only the resulting divisors, is computed by transformers. Weights are read tensor by tensor into the model,
so the memory needed is theirs in f32, one tensor more and what is dumped. Needs torch and transformers; numpy and gguf
for GGUFs.

Queries and keys come in HF's layout (`qk_layout` half): the two halves of a head rotate against each other.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from dump import ActivationDump
from from_gguf import parse_ids, split_steps
from gguf_model import GgufModel
from hf_config import config_of, for_context, head_dim_of
from hf_hooks import Hooks
from hparams import UnsupportedModel

VERSION = "1"


def to_half(rows: np.ndarray, heads: int, rope_dim: int) -> np.ndarray:
    """Rows of a q or k matrix from GGUF's pairs to HF's halves: hf[j * rope_dim/2 + i] = gguf[2 i + j] in each head."""
    split = rows.reshape(heads, -1, rows.shape[-1]).copy()
    pairs = split[:, :rope_dim].reshape(heads, rope_dim // 2, 2, -1)
    split[:, :rope_dim] = pairs.swapaxes(1, 2).reshape(heads, rope_dim, -1)
    return split.reshape(rows.shape)


# Names of a layer's tensors by those of transformers' parameters.
NAMES = {"attn_norm.weight": "input_layernorm.weight", "attn_output.weight": "self_attn.o_proj.weight",
         "ffn_norm.weight": "post_attention_layernorm.weight", "ffn_gate_inp.weight": "mlp.gate.weight"}
NAMES |= {f"attn_{x}.{kind}": f"self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")}
NAMES |= {f"attn_{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"}
NAMES |= {f"ffn_{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")}
# Tensors with a matrix for each expert. The class has gate and up of an expert in one matrix, gate's rows first, or, of gpt-oss,
# columns of both in turn.
NAMES |= {"ffn_gate_exps.weight": "mlp.experts.gate_up_proj", "ffn_down_exps.weight": "mlp.experts.down_proj"}
NAMES_OF = {
    "gemma3": {"post_attention_norm.weight": "post_attention_layernorm.weight",
               "ffn_norm.weight": "pre_feedforward_layernorm.weight",
               "post_ffw_norm.weight": "post_feedforward_layernorm.weight"},
    "gpt-oss": {"post_attention_norm.weight": "post_attention_layernorm.weight", "attn_sinks.weight": "self_attn.sinks",
                "attn_output.bias": "self_attn.o_proj.bias", "ffn_gate_inp.weight": "mlp.router.weight",
                "ffn_gate_inp.bias": "mlp.router.bias", "ffn_gate_exps.bias": "mlp.experts.gate_up_proj_bias",
                "ffn_down_exps.bias": "mlp.experts.down_proj_bias"},
    "phi3": {"attn_qkv.weight": "self_attn.qkv_proj.weight", "ffn_up.weight": "mlp.gate_up_proj.weight"}}
OF_EXPERT = re.compile(r"(.+\.mlp\.experts)\.\d+\.(?:(gate|up)|down)_proj\.weight")  # in a checkpoint
PACKED = re.compile(r"(.+\.mlp\.experts\..+_proj)_(?:blocks|scales)")  # MXFP4


def tensor_names(source: GgufModel, n_layers: int) -> dict[str, str]:
    """Names of the file's tensors by those of transformers' parameters."""
    names = NAMES | NAMES_OF.get(source.architecture, {})
    out = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight" if source.has("output.weight") else "token_embd.weight"}
    out |= {f"model.layers.{layer}.{hf_name}": f"blk.{layer}.{name}"
            for layer in range(n_layers) for name, hf_name in names.items()}
    return {hf_name: name for hf_name, name in out.items() if source.has(name)}


def empty_model(config: PretrainedConfig) -> PreTrainedModel:
    """The class of `config`, its parameters without memory."""
    config._attn_implementation = config._experts_implementation = "eager"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    rotary = model.model.rotary_emb  # its frequencies are no parameters
    model.model.rotary_emb = type(rotary)(config=config)
    if hasattr(model.model.embed_tokens, "embed_scale"):
        model.model.embed_tokens.embed_scale = torch.tensor(config.hidden_size**0.5)
    return model


def fill(model: PreTrainedModel, names: dict[str, str], read: Callable[[str], torch.Tensor]) -> None:
    """Gives each parameter of an empty model its tensor, in f32, one after the other: no second copy of the weights is ever
    in memory. `names` are the source's by the parameters'; parameters of one name there share it."""
    left, loaded = dict(names), {}
    for hf_name, parameter in model.named_parameters(remove_duplicate=False):
        name = left.pop(hf_name, None)
        if name is None:
            raise UnsupportedModel(f"nothing is there for {hf_name}")
        if name not in loaded:
            value = read(name)
            if value.shape != parameter.shape:
                raise UnsupportedModel(f"{name} has shape {tuple(value.shape)}, {hf_name} {tuple(parameter.shape)}")
            loaded[name] = torch.nn.Parameter(value, requires_grad=False)
        module, _, last = hf_name.rpartition(".")
        setattr(model.get_submodule(module), last, loaded[name])
    if left:
        raise UnsupportedModel(f"the class has no {', '.join(sorted(left)[:5])}")


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
    if source.family.qk_layout != "half" and part in ("attn_q.weight", "attn_k.weight"):
        weight = to_half(weight, hp.n_heads if part == "attn_q.weight" else hp.n_kv_heads, head_dim)
    if source.architecture == "gemma3" and name.endswith("norm.weight"):
        weight = weight - np.float32(1)  # a GGUF has what the class adds
    return weight


def from_gguf(path: str, config: PretrainedConfig | None = None, context: int | None = None) -> tuple[PreTrainedModel, dict]:
    """The GGUF's dequantized weights in the class of `config` (default: the GGUF's own hyper-parameters), and its part
    of the metadata. `context` is for_context's."""
    source = GgufModel(path)
    config = for_context(config or config_of(source), context)

    def read(name: str) -> torch.Tensor:
        value = torch.from_numpy(np.require(weight_of(source, name, head_dim_of(config)), requirements=["C", "W"]))
        source.release()
        return value

    model = empty_model(config)
    fill(model, tensor_names(source, config.num_hidden_layers), read)
    return model, {"model_sha256": source.sha256(), "model_name": source.name,
                   "tokenizer_hash": source.tokenizer_hash(), "merges_hash": source.merges_hash()}


def from_checkpoint(path: str, context: int | None = None) -> tuple[PreTrainedModel, dict]:
    """A checkpoint directory, in f32. It is no GGUF, so there is no hash of one. `context` is for_context's."""
    config = for_context(AutoConfig.from_pretrained(path, local_files_only=True), context)
    files = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            files |= {name: file for name in tensors.keys() if not name.endswith("rotary_emb.inv_freq")}
    if not files:
        raise ValueError("found no *.safetensors")

    def stored(name: str) -> torch.Tensor:
        with safe_open(files[name], "pt") as tensors:  # what is mapped goes when it is closed
            return tensors.get_tensor(name).clone()

    def read(name: str) -> torch.Tensor:
        if f"{name}_blocks" in files:
            blocks, scales = (stored(f"{name}_{part}") for part in ("blocks", "scales"))
            return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        if name not in files:
            experts, _, part = name.rpartition(".")
            parts = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
            return torch.stack([torch.cat([read(f"{experts}.{e}.{x}.weight") for x in parts])
                                for e in range(config.num_experts)])
        return stored(name).to(torch.float32)

    def parameter(name: str) -> str:
        of, packed = OF_EXPERT.fullmatch(name), PACKED.fullmatch(name)
        return f"{of[1]}.{'gate_up' if of[2] else 'down'}_proj" if of else packed[1] if packed else name

    names = {parameter(name): parameter(name) for name in files}
    if config.tie_word_embeddings:
        names["lm_head.weight"] = "model.embed_tokens.weight"
    model = empty_model(config)
    fill(model, names, read)
    return model, {"model_sha256": "", "model_name": Path(path).name, "tokenizer_hash": ""}


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
    head_dim = head_dim_of(config)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    rope_dim = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    return {
        "producer": "from_hf.py",
        "producer_version": f"{VERSION}, transformers {transformers.__version__}, torch {torch.__version__}",
        **source, "oracle": "hf", "compute": "f32", "kv": "f32", "eps": config.rms_norm_eps,
        "rope_theta": float(rope["rope_theta"]), "qk_layout": "half",
        "hparams": {"n_layers": config.num_hidden_layers, "n_heads": config.num_attention_heads,
                    "n_kv_heads": config.num_key_value_heads, "head_dim": head_dim, "rope_dim": rope_dim},
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="checkpoint directory, or GGUF of the Llama family")
    parser.add_argument("--ids", required=True, help="token ids 1,2,3 or a file of ids (BOS is not added)")
    parser.add_argument("-o", "--output", required=True, help="NPZ to write")
    parser.add_argument("--steps", help="sizes of the calls that feed the ids, e.g. 5,1,1 (default: one call)")
    parser.add_argument("--config", help="checkpoint directory whose config.json replaces a GGUF's hyper-parameters")
    parser.add_argument("--context", type=int, metavar="N", help="positions that the run is made for, which choose LongRoPE's "
                        "divisors (default: those of the text, as transformers does)")
    parser.add_argument("--probs", action="store_true", help="store attention probabilities as well")
    args = parser.parse_args(argv)
    try:
        ids = parse_ids(args.ids)
        steps = split_steps(len(ids), args.steps)
        if Path(args.model).is_dir():
            model, source = from_checkpoint(args.model, args.context)
        else:
            config = AutoConfig.from_pretrained(args.config, local_files_only=True) if args.config else None
            model, source = from_gguf(args.model, config, args.context)
        dump = run(model, ids, steps, args.probs)
        absent = {} if args.probs else {"probs": "not requested (--probs)"}
        dump.write(args.output, metadata(model.config, source), n_layers=model.config.num_hidden_layers,
                   taps_absent=absent)
    except (UnsupportedModel, ValueError, OSError) as error:
        print(f"from_hf.py: error: {args.model}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
