#!/usr/bin/env python3
"""HF oracle: runs a model of the Llama family in transformers (f32, eager attention) and dumps its activations (dump.py).

    python tools/oracle/from_hf.py CHECKPOINT_DIR --ids 1,403,407 -o ref.npz
    python tools/oracle/from_hf.py MODEL.gguf     --ids 1,403,407 -o ref.npz
    python tools/oracle/from_hf.py MODEL.gguf --config CHECKPOINT_DIR --ids 1,403,407 -o ref.npz

A checkpoint directory (Llama, Mistral, Qwen2, Qwen3, Qwen3 MoE, Gemma 3, Granite) is run as it is. A GGUF is dequantized by the
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

from dump import ActivationDump
from from_gguf import parse_ids, split_steps
from gguf_model import GgufModel, UnsupportedModel

VERSION = "1"


def to_half(rows: np.ndarray, heads: int, rope_dim: int) -> np.ndarray:
    """Rows of a q or k matrix from GGUF's pairs to HF's halves: hf[j * rope_dim/2 + i] = gguf[2 i + j] in each head."""
    split = rows.reshape(heads, -1, rows.shape[-1]).copy()
    pairs = split[:, :rope_dim].reshape(heads, rope_dim // 2, 2, -1)
    split[:, :rope_dim] = pairs.swapaxes(1, 2).reshape(heads, rope_dim, -1)
    return split.reshape(rows.shape)


def config_of(source: GgufModel) -> PretrainedConfig:
    """The GGUF's hyper-parameters."""
    hp = source.hparams
    if hp.rope_dim != hp.head_dim or hp.value_dim != hp.head_dim or source.has("rope_freqs.weight"):
        raise UnsupportedModel("partial RoPE, its own value width or rope_freqs.weight have no counterpart here")
    rope = {"rope_type": "linear", "factor": hp.rope_scale} if hp.rope_scale != 1.0 else {"rope_type": "default"}
    rope["rope_theta"] = hp.rope_theta
    kind, more = source.architecture, {}
    if source.architecture == "llama" and hp.window:
        kind, more = "mistral", {"sliding_window": hp.window}
    elif source.architecture == "smollm3":
        more = {"pad_token_id": None}
    elif source.architecture == "qwen3moe":
        kind, more = "qwen3_moe", {"moe_intermediate_size": hp.d_ff, "num_experts": hp.n_experts,
                                   "num_experts_per_tok": hp.n_experts_used, "norm_topk_prob": True}
    elif source.architecture == "gemma3":
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": hp.window_theta}}
        kind, more = "gemma3_text", {
            "sliding_window": hp.window, "query_pre_attn_scalar": round(hp.attention_scale ** -2),
            "layer_types": ["sliding_attention" if hp.window_of(i) else "full_attention" for i in range(hp.n_layers)]}
    elif source.architecture == "granite":
        more = {"embedding_multiplier": hp.embedding_scale, "attention_multiplier": hp.attention_scale,
                "residual_multiplier": hp.residual_scale, "logits_scaling": hp.logit_scale}
    return AutoConfig.for_model(
        kind, **more, vocab_size=source.vocab_size, hidden_size=hp.d_model, intermediate_size=hp.d_ff,
        num_hidden_layers=hp.n_layers, num_attention_heads=hp.n_heads, num_key_value_heads=hp.n_kv_heads,
        head_dim=hp.head_dim, rms_norm_eps=hp.eps, max_position_embeddings=hp.context_length,
        rope_parameters=rope,
        tie_word_embeddings=not source.has("output.weight"))


NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate"}
POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
              "post_ffw_norm": "post_feedforward_layernorm"}
# Tensors with a matrix for each expert. The class has gate and up of an expert in one matrix, gate's rows first.
EXPERTS = {"ffn_gate_exps.weight": "mlp.experts.gate_up_proj", "ffn_down_exps.weight": "mlp.experts.down_proj"}
OF_EXPERT = re.compile(r"(.+\.mlp\.experts)\.\d+\.(?:(gate|up)|down)_proj\.weight")  # in a checkpoint


def tensor_names(source: GgufModel, n_layers: int) -> dict[str, str]:
    """Names of the file's tensors by those of transformers' parameters."""
    of_family = NAMES | POST_NORMS if source.family.post_norms else NAMES
    names = {f"{name}.weight": f"{hf_name}.weight" for name, hf_name in of_family.items()}
    names |= EXPERTS | {f"attn_{x}.bias": f"self_attn.{x}_proj.bias" for x in "qkv"}
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


def from_gguf(path: str, config: PretrainedConfig | None = None) -> tuple[PreTrainedModel, dict]:
    """The GGUF's dequantized weights in the class of `config` (default: the GGUF's own hyper-parameters), and its part
    of the metadata."""
    source = GgufModel(path)
    config = config or config_of(source)
    heads = {} if source.family.qk_layout == "half" else {
        "attn_q.weight": config.num_attention_heads, "attn_k.weight": config.num_key_value_heads}

    def read(name: str) -> torch.Tensor:
        weight = source.weight(name, np.float32)
        if name.endswith("ffn_gate_exps.weight"):
            weight = np.concatenate([weight, source.weight(name.replace("gate", "up"), np.float32)], axis=1)
        rows = heads.get(name.split(".", 2)[-1])
        if rows:
            weight = to_half(weight, rows, head_dim_of(config))
        if source.architecture == "gemma3" and name.endswith("norm.weight"):
            weight = weight - np.float32(1)  # a GGUF has what the class adds
        value = torch.from_numpy(np.require(weight, requirements=["C", "W"]))
        source.release()
        return value

    model = empty_model(config)
    fill(model, tensor_names(source, config.num_hidden_layers), read)
    return model, {"model_sha256": source.sha256(), "model_name": source.name,
                   "tokenizer_hash": source.tokenizer_hash(), "merges_hash": source.merges_hash()}


def head_dim_of(config: PretrainedConfig) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def from_checkpoint(path: str) -> tuple[PreTrainedModel, dict]:
    """A checkpoint directory, in f32. It is no GGUF, so there is no hash of one."""
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    files = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            files |= {name: file for name in tensors.keys() if not name.endswith("rotary_emb.inv_freq")}
    if not files:
        raise ValueError("found no *.safetensors")

    def read(name: str) -> torch.Tensor:
        if name not in files:
            experts, _, part = name.rpartition(".")
            parts = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
            return torch.stack([torch.cat([read(f"{experts}.{e}.{x}.weight") for x in parts])
                                for e in range(config.num_experts)])
        with safe_open(files[name], "pt") as tensors:  # what is mapped goes when it is closed
            return tensors.get_tensor(name).to(torch.float32, copy=True)

    def parameter(name: str) -> str:
        of = OF_EXPERT.fullmatch(name)
        return f"{of[1]}.{'gate_up' if of[2] else 'down'}_proj" if of else name

    names = {parameter(name): parameter(name) for name in files}
    if config.tie_word_embeddings:
        names["lm_head.weight"] = "model.embed_tokens.weight"
    model = empty_model(config)
    fill(model, names, read)
    return model, {"model_sha256": "", "model_name": Path(path).name, "tokenizer_hash": ""}


class Hooks:
    """Sends every tap of a model to a dump. Rotated q and k are seen by wrapping its module's apply_rotary_pos_emb."""

    def __init__(self, model: PreTrainedModel, dump: ActivationDump, probs: bool):
        self._dump = dump
        self._layer = 0  # the layer whose attention runs now
        model.model.layers[0].register_forward_pre_hook(lambda _m, args: dump.globals_("embd", args[0][0].numpy()))
        model.model.norm.register_forward_hook(lambda _m, _i, out: dump.globals_("result_norm", out[0].numpy()))
        for index, block in enumerate(model.model.layers):
            self._hook_layer(index, block, probs)
        self._modeling = sys.modules[type(model).__module__]
        self._rotate = self._modeling.apply_rotary_pos_emb
        self._modeling.apply_rotary_pos_emb = self._rotate_and_tap

    def _hook_layer(self, index: int, block, probs: bool) -> None:
        attention, mlp = block.self_attn, block.mlp
        attention.register_forward_pre_hook(lambda *_: setattr(self, "_layer", index))
        post_norms = hasattr(block, "pre_feedforward_layernorm")
        ffn_norm = block.pre_feedforward_layernorm if post_norms else block.post_attention_layernorm
        outputs = [(block.input_layernorm, "attn_norm"), (attention.q_proj, "q"), (attention.k_proj, "k"),
                   (attention.v_proj, "v"), (attention.o_proj, "attn_out"), (ffn_norm, "ffn_norm")]
        inputs = [(attention.o_proj, "attn_ctx"), (ffn_norm, "ffn_inp")]
        if hasattr(mlp, "experts"):
            outputs.append((mlp, "ffn_mix"))
            mlp.gate.register_forward_hook(lambda _m, _i, out: self._dump.layer(index, "router", out[0].numpy()))
            mlp.experts.register_forward_hook(lambda experts, args, _out: self._tap_experts(index, experts, *args))
        else:
            outputs += [(mlp.gate_proj, "gate"), (mlp.up_proj, "up"), (mlp.down_proj, "ffn_out")]
            inputs.append((mlp.down_proj, "ffn_act"))
        if post_norms:
            outputs += [(block.post_attention_layernorm, "attn_post"), (block.post_feedforward_layernorm, "ffn_post")]
        if not getattr(attention, "use_rope", True):  # nothing rotates
            outputs += [(attention.q_proj, "q_rope"), (attention.k_proj, "k_rope")]
        for module, tap in outputs:
            module.register_forward_hook(lambda _m, _i, out, tap=tap: self._put(index, tap, out))
        for module, tap in inputs:
            module.register_forward_pre_hook(lambda _m, args, tap=tap: self._put(index, tap, args[0]))
        block.register_forward_hook(
            lambda _m, _i, out: self._put(index, "l_out", out[0] if isinstance(out, tuple) else out))
        if probs:
            attention.register_forward_hook(
                lambda _m, _i, out: self._dump.layer(index, "probs", out[1][0].numpy()))

    def _put(self, layer: int, tap: str, value: torch.Tensor) -> None:
        self._dump.layer(layer, tap, value[0].numpy())

    def _tap_experts(self, layer: int, experts, hidden: torch.Tensor, chosen: torch.Tensor, _weights: torch.Tensor) -> None:
        """What the experts that the router chose compute, again: the class keeps none of it."""
        linear = torch.nn.functional.linear
        tokens, used = chosen.shape
        chosen = chosen.sort(dim=-1).values
        gate, up, act = hidden.new_empty(3, tokens, used, experts.intermediate_dim)
        out = hidden.new_empty(tokens, used, experts.hidden_dim)
        for expert in chosen.unique():
            rows = chosen == expert
            gate[rows], up[rows] = linear(hidden[rows.any(dim=-1)], experts.gate_up_proj[expert]).chunk(2, dim=-1)
            act[rows] = experts.act_fn(gate[rows]) * up[rows]
            out[rows] = linear(act[rows], experts.down_proj[expert])
        for tap, value in (("gate", gate), ("up", up), ("ffn_act", act), ("ffn_out", out)):
            self._dump.layer(layer, tap, value.flatten(1).numpy())

    def _rotate_and_tap(self, q, k, *args, **kwargs):
        q, k = self._rotate(q, k, *args, **kwargs)  # [1, heads, tokens, head_dim]
        self._dump.layer(self._layer, "q_rope", q[0].transpose(0, 1).flatten(1).numpy())
        self._dump.layer(self._layer, "k_rope", k[0].transpose(0, 1).flatten(1).numpy())
        return q, k

    def remove(self) -> None:
        self._modeling.apply_rotary_pos_emb = self._rotate


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
    return {
        "producer": "from_hf.py",
        "producer_version": f"{VERSION}, transformers {transformers.__version__}, torch {torch.__version__}",
        **source, "oracle": "hf", "compute": "f32", "kv": "f32", "eps": config.rms_norm_eps,
        "rope_theta": float(rope["rope_theta"]), "qk_layout": "half",
        "hparams": {"n_layers": config.num_hidden_layers, "n_heads": config.num_attention_heads,
                    "n_kv_heads": config.num_key_value_heads, "head_dim": head_dim, "rope_dim": head_dim},
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="checkpoint directory, or GGUF of the Llama family")
    parser.add_argument("--ids", required=True, help="token ids 1,2,3 or a file of ids (BOS is not added)")
    parser.add_argument("-o", "--output", required=True, help="NPZ to write")
    parser.add_argument("--steps", help="sizes of the calls that feed the ids, e.g. 5,1,1 (default: one call)")
    parser.add_argument("--config", help="checkpoint directory whose config.json replaces a GGUF's hyper-parameters")
    parser.add_argument("--probs", action="store_true", help="store attention probabilities as well")
    args = parser.parse_args(argv)
    try:
        ids = parse_ids(args.ids)
        steps = split_steps(len(ids), args.steps)
        if Path(args.model).is_dir():
            model, source = from_checkpoint(args.model)
        else:
            config = AutoConfig.from_pretrained(args.config, local_files_only=True) if args.config else None
            model, source = from_gguf(args.model, config)
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
