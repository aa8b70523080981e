#!/usr/bin/env python3
"""Checks the converter on small checkpoints written to a temporary folder. Exit code 1 if a check fails.

    python tools/convert/selftest.py

Needs numpy, gguf and sentencepiece, as the converter does.
"""

import contextlib
import copy
import io
import json
import struct
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

from hf_checkpoint import bf16_to_f32, f32_to_bf16
from hf_to_gguf import main
from hf_tokenizer import BYTE, CONTROL, NORMAL, SPLITTINGS, UNKNOWN, UNUSED, USER_DEFINED

VOCAB, D, FF, HEADS, KV, HEAD_DIM = 12, 8, 16, 4, 2, 6
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": D, "intermediate_size": FF, "num_hidden_layers": 1,
          "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD_DIM, "vocab_size": VOCAB,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 5000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "eos_token_id": 9}
EXPERTS, EXPERT_FF = 12, 5  # ids of two digits, too
QWEN3_MOE = CONFIG | {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": EXPERTS, "num_experts_per_tok": 3,
                      "moe_intermediate_size": EXPERT_FF, "norm_topk_prob": True, "decoder_sparse_step": 1,
                      "mlp_only_layers": [], "use_sliding_window": False, "sliding_window": 8}
LLAMA3 = next(row for row in SPLITTINGS if row.name == "llama-bpe")


def split(*regexes: str) -> dict:
    parts = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*parts, byte_level]}


TOKENIZER = {
    "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate("abcdef")} | {"ab": 6, "abc": 7},
              "merges": ["a b", ["ab", "c"]], "ignore_merges": True},
    "pre_tokenizer": split(*LLAMA3.steps), "normalizer": None,
    "added_tokens": [{"id": 8, "content": "<s>", "special": True}, {"id": 9, "content": "</s>", "special": True},
                     {"id": 10, "content": "<tool>", "special": False}],
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                                {"Sequence": {"id": "A", "type_id": 0}}]}}


def weights(config: dict) -> dict[str, np.ndarray]:
    """F32 tensors of a checkpoint, each element unlike the others."""
    hidden, q, kv = config["hidden_size"], HEADS * config["head_dim"], KV * config["head_dim"]
    shapes = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
              "self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden),
              "self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, q),
              "mlp.gate_proj.weight": (FF, hidden), "mlp.up_proj.weight": (FF, hidden), "mlp.down_proj.weight": (hidden, FF)}
    if config["architectures"] == ["Qwen2ForCausalLM"]:
        shapes |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
    if config["architectures"] == ["Gemma3ForCausalLM"]:
        shapes |= {f"{x}_feedforward_layernorm.weight": (hidden,) for x in ("pre", "post")}
    if config["architectures"] in (["Qwen3ForCausalLM"], ["Gemma3ForCausalLM"]):
        shapes |= {"self_attn.q_norm.weight": (config["head_dim"],), "self_attn.k_norm.weight": (config["head_dim"],)}
    if config["architectures"] == ["Qwen3MoeForCausalLM"]:
        shapes = {name: shape for name, shape in shapes.items() if "mlp" not in name}
        shapes |= {"self_attn.q_norm.weight": (config["head_dim"],), "self_attn.k_norm.weight": (config["head_dim"],),
                   "mlp.gate.weight": (EXPERTS, hidden)}
        shapes |= {f"mlp.experts.{e}.{part}_proj.weight": (hidden, EXPERT_FF) if part == "down" else (EXPERT_FF, hidden)
                   for e in range(EXPERTS) for part in ("gate", "up", "down")}
    named = {f"model.layers.0.{name}": shape for name, shape in shapes.items()}
    named |= {"model.embed_tokens.weight": (VOCAB, hidden), "lm_head.weight": (VOCAB, hidden), "model.norm.weight": (hidden,)}
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in named.items()}


def save(path: Path, tensors: dict[str, np.ndarray], dtype: str = "F32") -> None:
    header, blob = {}, b""
    for name, value in tensors.items():
        raw = {"F32": lambda v: v, "F16": lambda v: v.astype(np.float16), "BF16": f32_to_bf16,
               "I64": lambda v: v.astype(np.int64)}[dtype](value).tobytes()
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


class Bench:
    """A valid checkpoint of its own for each check, and what the converter makes of it."""

    def __init__(self, folder: str):
        self.dir = Path(folder) / "checkpoint"
        self.dir.mkdir()
        self.out = Path(folder) / "model.gguf"
        self.config, self.tokenizer, self.tensors = dict(CONFIG), copy.deepcopy(TOKENIZER), None
        self.dtype = "F32"

    def write(self) -> None:
        self.tensors = weights(self.config) if self.tensors is None else self.tensors
        (self.dir / "config.json").write_text(json.dumps(self.config))
        if self.tokenizer is not None:
            (self.dir / "tokenizer.json").write_text(json.dumps(self.tokenizer))
        if not list(self.dir.glob("*.safetensors")):
            save(self.dir / "model.safetensors", self.tensors, self.dtype)

    def convert(self, *options: str) -> gguf.GGUFReader:
        self.write()
        words = io.StringIO()
        with contextlib.redirect_stderr(words):
            code = main([str(self.dir), "-o", str(self.out), *options])
        assert code == 0, words.getvalue()
        return gguf.GGUFReader(self.out)

    def refused(self, *words: str, options: tuple[str, ...] = ()) -> None:
        """The converter says no in these words, and leaves nothing behind."""
        self.write()
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = main([str(self.dir), "-o", str(self.out), *options])
        assert code == 2, f"accepted, instead of naming {words}"
        for word in words:
            assert word in said.getvalue(), f"{said.getvalue()!r} does not name {word!r}"
        assert not list(self.out.parent.glob("model.gguf*")), "a refused checkpoint left a file"


def value(reader: gguf.GGUFReader, key: str):
    field = reader.get_field(key)
    return None if field is None else field.contents()


def tensor(reader: gguf.GGUFReader, name: str) -> np.ndarray:
    found = next(t for t in reader.tensors if t.name == name)
    return gguf.quants.dequantize(found.data, found.tensor_type)


def check_llama_rows(bench: Bench) -> None:
    reader = bench.convert()
    assert value(reader, "general.architecture") == "llama" and value(reader, "llama.attention.key_length") == HEAD_DIM
    assert abs(value(reader, "llama.rope.freq_base") - 5000) < 1e-3
    for name, heads in (("q", HEADS), ("k", KV)):
        source, found = bench.tensors[f"model.layers.0.self_attn.{name}_proj.weight"], tensor(reader, f"blk.0.attn_{name}.weight")
        for head in range(heads):
            for i in range(HEAD_DIM // 2):
                for j in range(2):
                    row, half = head * HEAD_DIM + 2 * i + j, head * HEAD_DIM + j * HEAD_DIM // 2 + i
                    assert (found[row] == source[half]).all(), f"{name}: row {row} is not {half}"
    assert (tensor(reader, "blk.0.attn_v.weight") == bench.tensors["model.layers.0.self_attn.v_proj.weight"]).all()
    assert (tensor(reader, "output.weight") == bench.tensors["lm_head.weight"]).all()


def check_qwen_rows(bench: Bench) -> None:
    for architecture, more in (("Qwen2ForCausalLM", {"attn_q.bias": "q_proj.bias", "attn_v.bias": "v_proj.bias"}),
                               ("Qwen3ForCausalLM", {"attn_q_norm.weight": "q_norm.weight"})):
        bench.config["architectures"], bench.tensors = [architecture], None
        (bench.dir / "model.safetensors").unlink(missing_ok=True)
        reader = bench.convert()
        assert value(reader, "general.architecture") == architecture[:5].lower()
        for name, source in (more | {"attn_q.weight": "q_proj.weight", "attn_k.weight": "k_proj.weight"}).items():
            assert (tensor(reader, f"blk.0.{name}") == bench.tensors[f"model.layers.0.self_attn.{source}"]).all(), name


def check_scales(bench: Bench) -> None:
    """granite is llama with multipliers. Where config.json lacks one, it is 1 for transformers, while a GGUF without it
    has the root of the head dim for scores."""
    bench.tensors = weights(CONFIG)
    plain = bench.convert()
    multipliers = {"embedding_multiplier": 12, "attention_multiplier": 0.0625, "residual_multiplier": 0.25, "logits_scaling": 8.5}
    scales = {"embedding_scale": 12.0, "attention.scale": 0.0625, "residual_scale": 0.25, "logit_scale": 8.5}
    bench.config |= {"architectures": ["GraniteForCausalLM"]} | multipliers
    reader = bench.convert()
    assert value(reader, "general.architecture") == "granite"
    assert {key: value(reader, f"granite.{key}") for key in scales} == scales
    for one in plain.tensors:
        assert (tensor(reader, one.name) == tensor(plain, one.name)).all(), one.name
    for key in multipliers:
        for bad in (0, -1.0, None, "2", float("nan")):
            bench.config[key] = bad
            bench.out.unlink(missing_ok=True)
            bench.refused(f"{key} is {bad!r}")
        bench.config.pop(key)
    reader = bench.convert()
    assert [value(reader, f"granite.{key}") for key in scales] == [1.0] * 4
    bench.config["architectures"] = ["LlamaForCausalLM"]
    bench.config |= multipliers  # which that class ignores
    assert all(value(bench.convert(), f"llama.{key}") is None for key in scales)


def check_score_scale(bench: Bench) -> None:
    """gemma3 of 62 layers scales scores by the root of D / HEADS, others by that of the head dim; no key says it."""
    gemma3 = CONFIG | {"architectures": ["Gemma3ForCausalLM"], "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}
    of_layer = {name: x for name, x in weights(gemma3).items() if ".layers." in name}
    for layers, good, bad in ((62, D // HEADS, HEAD_DIM), (61, HEAD_DIM, D // HEADS)):
        bench.config = gemma3 | {"num_hidden_layers": layers, "query_pre_attn_scalar": good}
        bench.tensors = {name: x for name, x in weights(gemma3).items() if "layers" not in name and "lm_head" not in name}
        for layer in range(layers):
            bench.tensors |= {name.replace(".0.", f".{layer}."): x for name, x in of_layer.items()}
        (bench.dir / "model.safetensors").unlink(missing_ok=True)
        reader = bench.convert()
        assert value(reader, "gemma3.block_count") == layers and value(reader, "gemma3.attention.scale") is None
        bench.out.unlink()
        bench.config["query_pre_attn_scalar"] = bad
        bench.refused(f"query_pre_attn_scalar is {bad}", f", {good}")
    bench.config = CONFIG | {"query_pre_attn_scalar": HEAD_DIM + 1}
    bench.refused("query_pre_attn_scalar is 7")


def check_experts(bench: Bench) -> None:
    """A matrix for each expert, from a checkpoint that has a tensor for each and from one that has them together."""
    bench.config, bench.dtype = dict(QWEN3_MOE), "BF16"
    apart = bench.tensors = weights(bench.config)
    of = {part: np.stack([apart[f"model.layers.0.mlp.experts.{e}.{part}_proj.weight"] for e in range(EXPERTS)])
          for part in ("gate", "up", "down")}
    together = {name: x for name, x in apart.items() if ".experts." not in name} | {
        "model.layers.0.mlp.experts.gate_up_proj": np.concatenate([of["gate"], of["up"]], axis=1),
        "model.layers.0.mlp.experts.down_proj": of["down"]}
    for tensors in (apart, together):
        bench.tensors = tensors
        (bench.dir / "model.safetensors").unlink(missing_ok=True)
        reader = bench.convert()
        numbers = [value(reader, f"qwen3moe.{key}") for key in (
            "expert_count", "expert_used_count", "expert_feed_forward_length", "feed_forward_length", "attention.sliding_window")]
        assert numbers == [EXPERTS, 3, EXPERT_FF, FF, None], numbers
        for part, want in of.items():
            assert (tensor(reader, f"blk.0.ffn_{part}_exps.weight") == bf16_to_f32(f32_to_bf16(want))).all(), part
        kinds = {t.name.split(".", 2)[-1]: t.tensor_type.name for t in reader.tensors}
        assert (kinds["ffn_gate_inp.weight"], kinds["ffn_up_exps.weight"]) == ("F32", "BF16"), kinds
    del bench.config["num_experts"]
    bench.config["num_local_experts"] = EXPERTS  # transformers 5
    bench.convert()


def check_experts_refused(bench: Bench) -> None:
    cases = (({"norm_topk_prob": False}, "norm_topk_prob is False"), ({"norm_topk_prob": None}, "norm_topk_prob is None"),
             ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2"), ({"mlp_only_layers": [0]}, "mlp_only_layers is [0]"),
             ({"shared_expert_intermediate_size": 16}, "shared_expert_intermediate_size is 16"),
             ({"attention_bias": True}, "attention_bias is True"),
             ({"use_sliding_window": True}, "sliding_window is 8"), ({"num_experts": 0}, "num_experts is 0"),
             ({"num_experts_per_tok": 13}, "13 of 12 experts"), ({"num_experts": 11}, "mlp.gate.weight has shape [12, 8]"),
             ({"moe_intermediate_size": 6}, "experts.0.gate_proj.weight has shape [5, 8]"))
    bench.tensors = weights(QWEN3_MOE)
    for change, words in cases:
        bench.config = QWEN3_MOE | change
        bench.refused(words)
    bench.config = QWEN3_MOE
    bench.tensors["model.layers.0.mlp.experts.12.up_proj.weight"] = np.ones((EXPERT_FF, D), np.float32)
    (bench.dir / "model.safetensors").unlink()
    bench.refused("would be lost: model.layers.0.mlp.experts.12.up_proj.weight")
    bench.tensors = weights(QWEN3_MOE)
    other = "model.layers.0.mlp.experts.7.up_proj.weight"
    (bench.dir / "model.safetensors").unlink()
    save(bench.dir / "a.safetensors", {name: x for name, x in bench.tensors.items() if name != other}, "F16")
    save(bench.dir / "b.safetensors", {other: bench.tensors[other]}, "BF16")
    index = bench.dir / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: "ab"[name == other] + ".safetensors" for name in bench.tensors}}))
    bench.refused("experts.up_proj: experts differ in type or shape: BF16 [5, 8], F16 [5, 8]")
    for file in (index, *bench.dir.glob("?.safetensors")):
        file.unlink()
    save(bench.dir / "model.safetensors", bench.tensors)
    for name, words in (("mlp.experts.7.down_proj.weight", "no tensor model.layers.0.mlp.experts.7.down_proj.weight"),
                        ("mlp.gate.weight", "no tensor model.layers.0.mlp.gate.weight")):
        bench.tensors = weights(QWEN3_MOE)
        del bench.tensors[f"model.layers.0.{name}"]
        (bench.dir / "model.safetensors").unlink()
        bench.refused(words)


def check_tied(bench: Bench) -> None:
    bench.config["tie_word_embeddings"] = True
    assert all(t.name != "output.weight" for t in bench.convert().tensors)


def check_missing_head(bench: Bench) -> None:
    bench.tensors = {name: x for name, x in weights(bench.config).items() if name != "lm_head.weight"}
    bench.refused("lm_head.weight")


def check_types(bench: Bench) -> None:
    bench.dtype = "BF16"
    reader = bench.convert()
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.ffn_up.weight"] == "BF16" and kinds["blk.0.ffn_norm.weight"] == "F32"
    raw = next(t for t in reader.tensors if t.name == "blk.0.ffn_up.weight").data
    wanted = f32_to_bf16(bench.tensors["model.layers.0.mlp.up_proj.weight"])
    assert raw.view(np.uint16).reshape(wanted.shape).tolist() == wanted.tolist(), "BF16 bits changed"
    assert {t.tensor_type.name for t in bench.convert("--type", "f32").tensors} == {"F32"}
    assert {t.tensor_type.name for t in bench.convert("--type", "f16").tensors} == {"F16", "F32"}
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7, np.inf, -3.3e38, np.nan], np.float32)
    back = bf16_to_f32(f32_to_bf16(x))
    assert back[:5].tolist() == [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, np.inf] and np.isnan(back[6]), back


def check_f16_overflow(bench: Bench) -> None:
    bench.tensors = weights(bench.config)
    bench.tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = 70000
    bench.refused("mlp.up_proj.weight", "65504", "bf16", options=("--type", "f16"))


def check_shards(bench: Bench) -> None:
    bench.tensors = weights(bench.config)
    names = sorted(bench.tensors)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save(bench.dir / file, {name: bench.tensors[name] for name in names if files[name] == file})
    index = bench.dir / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    assert (tensor(bench.convert(), "token_embd.weight") == bench.tensors["model.embed_tokens.weight"]).all()
    bench.out.unlink()
    index.write_text(json.dumps({"weight_map": files | {"lm_head.weight": "model-00003-of-00003.safetensors"}}))
    bench.refused("model-00003-of-00003.safetensors is missing")
    index.write_text(json.dumps({"weight_map": files | {"other": "model-00002-of-00002.safetensors"}}))
    bench.refused("other is not in model-00002-of-00002.safetensors")


def check_damaged(bench: Bench) -> None:
    bench.write()
    path = bench.dir / "model.safetensors"
    whole = path.read_bytes()
    for cut in (4, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        bench.refused("model.safetensors", "cut short")
    path.unlink()
    bench.dtype = "I64"
    bench.refused("I64", "BF16")


def check_pickles(bench: Bench) -> None:
    bench.write()
    (bench.dir / "model.safetensors").rename(bench.dir / "pytorch_model.bin")
    bench.write = lambda: None
    bench.refused("pytorch_model.bin is a pickle", "save_pretrained")


def check_tensors(bench: Bench) -> None:
    cases = (("lost", lambda t: t | {"model.layers.0.self_attn.o_proj.bias": np.zeros(D, np.float32)}, "o_proj.bias"),
             ("absent", lambda t: {k: v for k, v in t.items() if "k_proj" not in k}, "k_proj.weight"),
             ("shape", lambda t: t | {"model.norm.weight": np.ones(D + 1, np.float32)}, "model.norm.weight"))
    for what, change, word in cases:
        bench.tensors = change(weights(bench.config))
        (bench.dir / "model.safetensors").unlink(missing_ok=True)
        bench.refused(word)


def check_config(bench: Bench) -> None:
    cases = (({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM; need one of LlamaForCausalLM"),
             ({"hidden_act": "gelu"}, "hidden_act"), ({"mlp_bias": True}, "mlp_bias"),
             ({"attention_bias": True}, "attention_bias"),
             ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
             ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn'"),
             ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
             ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
             ({"num_hidden_layers": 0}, "num_hidden_layers is 0"), ({"vocab_size": VOCAB + 1}, "embed_tokens.weight has shape"),
             ({"sliding_window": 32, "max_window_layers": 1}, "--context 32"), ({"sliding_window": "x"}, "sliding_window is 'x'"),
             ({"no_rope_layers": [0]}, "no_rope_layers is [0]"),
             ({"architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1, 0]}, "no_rope_layers is [1, 0]"),
             ({"architectures": ["SmolLM3ForCausalLM"], "no_rope_layer_interval": 1}, "no_rope_layers is [0]"),
             ({"rms_norm_eps": None}, "rms_norm_eps"),
             ({"architectures": ["GraniteForCausalLM"], "attention_bias": True}, "attention_bias"),
             ({"architectures": ["GraniteForCausalLM"], "mlp_bias": True}, "mlp_bias"))
    for change, words in cases:
        bench.config = CONFIG | change
        bench.refused(words)


def check_window(bench: Bench) -> None:
    bench.config["sliding_window"] = 32
    assert value(bench.convert(), "llama.attention.sliding_window") == 32
    reader = bench.convert("--context", "32")
    assert (value(reader, "llama.context_length"), value(reader, "llama.attention.sliding_window")) == (32, None)
    bench.config = CONFIG | {"sliding_window": 64}
    assert value(bench.convert(), "llama.attention.sliding_window") is None
    bench.config |= {"sliding_window": 8, "use_sliding_window": False}
    bench.convert()


def check_rope(bench: Bench) -> None:
    bench.config |= {"rope_scaling": {"type": "linear", "factor": 2.5}}
    reader = bench.convert()
    assert (value(reader, "llama.rope.scaling.type"), value(reader, "llama.rope.scaling.factor")) == ("linear", 2.5)
    # Llama-3.2-1B: head_dim 64, theta 500000, factor 32 over 8192 positions.
    bench.config = CONFIG | {"head_dim": 64, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}}
    bench.tensors = None
    (bench.dir / "model.safetensors").unlink()
    divisors = tensor(bench.convert(), "rope_freqs.weight")
    for i, found in enumerate(divisors):  # as transformers' _compute_llama3_parameters has it, one by one
        wave = 2 * np.pi * 500000 ** (2 * i / 64)
        smooth = (8192 / wave - 1) / 3
        want = 1.0 if wave < 2048 else 32.0 if wave > 8192 else 1 / ((1 - smooth) / 32 + smooth)
        assert abs(found / want - 1) < 1e-6, f"pair {i}: {found}, need {want}"
    assert divisors[0] == 1 and divisors[-1] == 32 and len(set(divisors.tolist())) > 3


def check_byte_bpe(bench: Bench) -> None:
    (bench.dir / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9]}))
    (bench.dir / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": {"content": "</s>"},
        "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]}))
    reader = bench.convert()
    assert (value(reader, "tokenizer.ggml.model"), value(reader, "tokenizer.ggml.pre")) == ("gpt2", "llama-bpe")
    assert value(reader, "tokenizer.ggml.tokens") == ["a", "b", "c", "d", "e", "f", "ab", "abc", "<s>", "</s>", "<tool>",
                                                      "[PAD11]"]
    assert value(reader, "tokenizer.ggml.token_type") == [NORMAL] * 8 + [CONTROL] * 2 + [USER_DEFINED, UNUSED]
    assert value(reader, "tokenizer.ggml.merges") == ["a b", "ab c"]
    ids = [value(reader, f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "eom")]
    assert ids == [8, 9, 8, None], ids
    assert value(reader, "tokenizer.ggml.add_bos_token") is True and value(reader, "tokenizer.chat_template") == "yes"
    (bench.dir / "chat_template.jinja").write_text("of its own")
    bench.tokenizer["post_processor"] = {"type": "Sequence", "processors": [{"type": "ByteLevel"}]}
    reader = bench.convert()
    assert value(reader, "tokenizer.chat_template") == "of its own"
    assert value(reader, "tokenizer.ggml.add_bos_token") is False


def check_splittings(bench: Bench) -> None:
    """The expression tells, whatever the model calls itself."""
    bench.config["_name_or_path"] = "meta-llama/Meta-Llama-3-8B"
    pieces = {"digits": {"type": "Digits", "individual_digits": True},
              "ByteLevel": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}}
    for row in SPLITTINGS:
        if row.steps[0] in pieces:
            pre = {"type": "Sequence", "pretokenizers": [pieces[step] for step in row.steps]}
        else:
            pre = split(*row.steps)
        bench.tokenizer = TOKENIZER | {"pre_tokenizer": pre,
                                       "model": TOKENIZER["model"] | {"ignore_merges": row.ignore_merges}}
        assert value(bench.convert(), "tokenizer.ggml.pre") == row.name
        bench.out.unlink()
    bench.tokenizer = TOKENIZER | {"pre_tokenizer": split(LLAMA3.steps[0].replace("{1,3}", "{1,2}"))}
    bench.refused("{1,2}", "llama-bpe, smaug-bpe, qwen2")
    qwen2 = next(row for row in SPLITTINGS if row.name == "qwen2")
    bench.tokenizer = TOKENIZER | {"pre_tokenizer": split(*qwen2.steps)}
    bench.refused("ignore_merges is True", "qwen2")
    bench.tokenizer = TOKENIZER | {"pre_tokenizer": {"type": "Whitespace"}}
    bench.refused("'Whitespace'")
    bench.tokenizer = TOKENIZER | {"normalizer": {"type": "Lowercase"}}
    bench.refused("'Lowercase'")
    bench.tokenizer = TOKENIZER | {"model": {"type": "Unigram"}}
    bench.refused("'Unigram'")
    bench.tokenizer = TOKENIZER | {"added_tokens": [{"id": VOCAB, "content": "x", "special": True}]}
    bench.refused(f"{VOCAB + 1} tokens", f"{VOCAB} rows")
    bench.tokenizer = TOKENIZER | {"added_tokens": [{"id": 9, "content": "<mask>", "special": True, "lstrip": True}]}
    bench.refused("<mask>", "lstrip")


def check_sentencepiece(bench: Bench) -> None:
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto()
    for piece, score, kind in (("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL), ("<0x00>", 0, BYTE),
                               ("\u2581a", -1, NORMAL), ("a", -2, NORMAL)):
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.model_type = pb.TrainerSpec.BPE
    proto.normalizer_spec.name, proto.normalizer_spec.remove_extra_whitespaces = "identity", False
    bench.tokenizer, bench.config["eos_token_id"] = None, 2
    path = bench.dir / "tokenizer.model"
    path.write_bytes(proto.SerializeToString())
    (bench.dir / "added_tokens.json").write_text(json.dumps({"<|im_start|>": 7}))
    reader = bench.convert()
    assert value(reader, "tokenizer.ggml.model") == "llama" and value(reader, "tokenizer.ggml.add_space_prefix") is True
    assert value(reader, "tokenizer.ggml.tokens")[4:8] == ["\u2581a", "a", "[PAD6]", "<|im_start|>"]
    assert value(reader, "tokenizer.ggml.token_type")[:8] == [2, 3, 3, 6, 1, 1, 5, 3]
    assert value(reader, "tokenizer.ggml.scores")[4:6] == [-1, -2]
    assert value(reader, "tokenizer.ggml.add_bos_token") is True and value(reader, "tokenizer.ggml.bos_token_id") == 1
    bench.tokenizer = {"model": {"type": "BPE", "byte_fallback": True, "vocab": {}, "merges": []},
                       "added_tokens": [{"id": 0, "content": "<unk>", "special": True}]}
    assert value(bench.convert(), "tokenizer.ggml.token_type")[:3] == [UNKNOWN, CONTROL, CONTROL]
    (bench.dir / "tokenizer.json").unlink()
    bench.tokenizer = None
    bench.out.unlink()
    proto.normalizer_spec.remove_extra_whitespaces = True
    path.write_bytes(proto.SerializeToString())
    bench.refused("tokenizer.model normalizes")
    proto.trainer_spec.model_type = pb.TrainerSpec.UNIGRAM
    path.write_bytes(proto.SerializeToString())
    bench.refused("tokenizer.model is not BPE")
    path.unlink()
    bench.refused("no tokenizer")


def main_selftest() -> int:
    failed, checks = 0, [(name, check) for name, check in sorted(globals().items()) if name.startswith("check_")]
    for name, check in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(Bench(folder))
                print(f"ok    {name}")
            except AssertionError as error:
                failed += 1
                print(f"FAIL  {name}: {error}")
    print(f"{len(checks) - failed}/{len(checks)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main_selftest())
