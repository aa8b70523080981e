"""Checks of what is each architecture's own; run by selftest.py."""

import json

import numpy as np

from hf_checkpoint import bf16_to_f32, f32_to_bf16
from selftest_bench import CONFIG, D, EXPERT_FF, EXPERTS, FF, GPT_OSS, HEAD_DIM, HEADS, KV, QWEN3_MOE, Bench, save, tensor, value, weights


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
        reader = bench.convert(config=CONFIG | {"architectures": [architecture]})
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
    reader = bench.convert(config=CONFIG | {"architectures": ["GraniteForCausalLM"]})
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
        reader = bench.convert()
        assert value(reader, "gemma3.block_count") == layers and value(reader, "gemma3.attention.scale") is None
        norm = bench.tensors["model.layers.0.input_layernorm.weight"]  # the class computes with 1 + weight
        assert (tensor(reader, "blk.0.attn_norm.weight") == norm + np.float32(1)).all()
        bench.config["query_pre_attn_scalar"] = bad
        bench.refused(f"query_pre_attn_scalar is {bad}", f", {good}")


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


def check_tensors_of_experts(bench: Bench) -> None:
    of = "model.layers.0.mlp"
    more = {f"{of}.experts.12.up_proj.weight": np.ones((EXPERT_FF, D), np.float32)}
    for change, words in ((more, f"would be lost: {of}.experts.12.up_proj.weight"),
                          ({f"{of}.experts.7.down_proj.weight": None}, f"no tensor {of}.experts.7.down_proj.weight"),
                          ({f"{of}.gate.weight": None}, f"no tensor {of}.gate.weight")):
        bench.config = QWEN3_MOE
        bench.tensors = {name: x for name, x in (weights(QWEN3_MOE) | change).items() if x is not None}
        bench.refused(words)
    tensors, other, bench.own_files = weights(QWEN3_MOE), f"{of}.experts.7.up_proj.weight", True
    (bench.dir / "model.safetensors").unlink()
    save(bench.dir / "a.safetensors", {name: x for name, x in tensors.items() if name != other}, "F16")
    save(bench.dir / "b.safetensors", {other: tensors[other]}, "BF16")
    index = {"weight_map": {name: "ab"[name == other] + ".safetensors" for name in tensors}}
    (bench.dir / "model.safetensors.index.json").write_text(json.dumps(index))
    bench.refused("experts.up_proj: experts differ in type or shape: BF16 [5, 8], F16 [5, 8]")


def check_phi3(bench: Bench) -> None:
    """q, k and v are rows of one matrix, gate and up of another; as they are in the checkpoint."""
    config = CONFIG | {"architectures": ["Phi3ForCausalLM"], "sliding_window": 5}
    reader = bench.convert(config=config)
    assert value(reader, "general.architecture") == "phi3" and value(reader, "phi3.attention.sliding_window") == 5
    assert value(reader, "phi3.feed_forward_length") == FF and value(reader, "phi3.rope.dimension_count") == HEAD_DIM
    names = {"attn_qkv.weight": "self_attn.qkv_proj.weight", "ffn_up.weight": "mlp.gate_up_proj.weight",
             "ffn_down.weight": "mlp.down_proj.weight", "attn_norm.weight": "input_layernorm.weight",
             "ffn_norm.weight": "post_attention_layernorm.weight", "attn_output.weight": "self_attn.o_proj.weight"}
    assert {t.name for t in reader.tensors if t.name.startswith("blk")} == {f"blk.0.{name}" for name in names}
    for name, source in names.items():
        assert (tensor(reader, f"blk.0.{name}") == bench.tensors[f"model.layers.0.{source}"]).all(), name
    for source in ("self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"):
        bench.tensors = weights(config)
        bench.tensors[f"model.layers.0.{source}"] = bench.tensors[f"model.layers.0.{source}"][:-1]
        bench.refused(f"{source} has shape")


def check_gpt_oss(bench: Bench) -> None:
    bench.dtype = "BF16"
    reader = bench.convert(config=dict(GPT_OSS))
    source = {name.removeprefix("model.layers.0."): bf16_to_f32(f32_to_bf16(x)) for name, x in bench.tensors.items()}
    numbers = {"expert_count": EXPERTS, "expert_used_count": 3, "expert_feed_forward_length": 32, "attention.sliding_window": 5,
               "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 2,
               "rope.scaling.attn_factor": None, "attention.sliding_window_pattern": None}
    for key, want in numbers.items():
        assert value(reader, f"gpt-oss.{key}") == want, key
    names = {"attn_sinks.weight": "self_attn.sinks", "post_attention_norm.weight": "post_attention_layernorm.weight",
             "ffn_gate_inp.weight": "mlp.router.weight", "ffn_gate_inp.bias": "mlp.router.bias", "attn_norm.weight": "input_layernorm.weight",
             "attn_output.weight": "self_attn.o_proj.weight", "attn_output.bias": "self_attn.o_proj.bias"}
    names |= {f"attn_{x}.{kind}": f"self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")}
    want = {name: source[hf] for name, hf in names.items()}
    both, down = source["mlp.experts.gate_up_proj"], source["mlp.experts.down_proj"]
    for part, first in (("gate", 0), ("up", 1)):
        matrices = np.stack([[both[e, :, 2 * i + first] for i in range(32)] for e in range(EXPERTS)])
        want |= {f"ffn_{part}_exps.weight": matrices,
                 f"ffn_{part}_exps.bias": source["mlp.experts.gate_up_proj_bias"][:, [2 * i + first for i in range(32)]]}
    want |= {"ffn_down_exps.weight": np.stack([x.T for x in down]), "ffn_down_exps.bias": source["mlp.experts.down_proj_bias"]}
    assert {t.name for t in reader.tensors if t.name.startswith("blk")} == {f"blk.0.{name}" for name in want}
    for name, x in want.items():
        assert (tensor(reader, f"blk.0.{name}") == x).all(), name
    kinds = {t.name.split(".", 2)[-1]: t.tensor_type.name for t in reader.tensors}
    assert all(kinds[name] == ("BF16" if name.endswith("weight") and len(x.shape) > 1 and "gate_inp" not in name else "F32")
               for name, x in want.items()), kinds


def packed(rng: np.random.Generator, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices of all experts in MXFP4: codes and exponents as checkpoints have them, and their values."""
    codes, exponents = rng.integers(0, 16, (EXPERTS, rows, cols)), rng.integers(100, 140, (EXPERTS, rows, cols // 32))
    exponents[0, 0] = 0, *exponents[0, 0, 1:]
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # of the open compute project's MX specification, E2M1
    values = np.where(codes < 8, 1, -1) * numbers[codes % 8] * 2.0 ** (np.repeat(exponents, 32, axis=-1) - 127)
    halves = codes.reshape(EXPERTS, rows, cols // 32, 16, 2)
    return (halves[..., 0] + 16 * halves[..., 1]).astype(np.uint8), exponents.astype(np.uint8), values


def check_mxfp4(bench: Bench) -> None:
    """Experts as published: the bytes change places, no weight its value."""
    config = GPT_OSS | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    tensors, rng, of = weights(config), np.random.default_rng(2), "model.layers.0.mlp.experts"
    for name, rows, cols in (("gate_up", 64, 64), ("down", 64, 32)):
        del tensors[f"{of}.{name}_proj"]
        tensors[f"{of}.{name}_proj_blocks"], tensors[f"{of}.{name}_proj_scales"], x = packed(rng, rows, cols)
        values = {"gate": x[:, ::2], "up": x[:, 1::2]} if name == "gate_up" else values | {"down": x}
    bench.dtype = "BF16"
    for options, kind in (((), "MXFP4"), (("--type", "f32"), "F32"), (("--type", "bf16"), "BF16")):
        reader = bench.convert(*options, config=config, tensors=dict(tensors))
        for part, want in values.items():
            found = next(t for t in reader.tensors if t.name == f"blk.0.ffn_{part}_exps.weight")
            assert found.tensor_type.name == kind and list(found.shape) == [*want.shape[::-1]], found
            assert (tensor(reader, found.name) == want).all(), f"{part} in {kind}"
        assert {t.tensor_type.name for t in reader.tensors if "attn_q.weight" in t.name} == {"BF16" if kind == "MXFP4" else kind}
    for change, words in (({f"{of}.down_proj_scales": None}, "no tensor " + of + ".down_proj_scales"),
                          ({f"{of}.down_proj_bias": None}, "no tensor " + of + ".down_proj_bias"),
                          ({f"{of}.gate_up_proj_blocks": tensors[f"{of}.gate_up_proj_blocks"][:, :-2]}, "gate_up_proj_blocks has shape"),
                          ({f"{of}.down_proj_scales": tensors[f"{of}.down_proj_scales"].astype(np.float32)}, "need U8")):
        bench.tensors = {name: x for name, x in (tensors | change).items() if x is not None}
        bench.refused(words)
