"""Checks of what is each architecture's own, beyond the frozen checkpoints of architectures_test; run by selftest.py."""

import json

import numpy as np

from hf_family import SCALES
from selftest_bench import CONFIG, D, EXPERT_FF, EXPERTS, GPT_OSS, HEAD_DIM, HEADS, QWEN3_MOE, Bench, save, tensor, value, weights


def check_scales(bench: Bench) -> None:
    """A multiplier that config.json lacks is 1 for transformers, while a GGUF without it has the root of the head dim for scores."""
    scales = ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
    reader = bench.convert(config=CONFIG | {"architectures": ["GraniteForCausalLM"]})
    assert [value(reader, f"granite.{key}") for key in scales] == [1.0] * 4
    bench.config = CONFIG | dict.fromkeys(SCALES, 12.0)  # which LlamaForCausalLM ignores
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
    """Matrices of all experts in one tensor, gate and up in one, become what a tensor for each becomes."""
    bench.config = dict(QWEN3_MOE)
    apart = bench.convert()
    of = {part: np.stack([bench.tensors.pop(f"model.layers.0.mlp.experts.{e}.{part}_proj.weight") for e in range(EXPERTS)])
          for part in ("gate", "up", "down")}
    bench.tensors |= {"model.layers.0.mlp.experts.gate_up_proj": np.concatenate([of["gate"], of["up"]], axis=1),
                      "model.layers.0.mlp.experts.down_proj": of["down"]}
    del bench.config["num_experts"]
    bench.config["num_local_experts"] = EXPERTS  # transformers 5
    together = bench.convert()
    assert [t.name for t in together.tensors] == [t.name for t in apart.tensors]
    for one in apart.tensors:
        assert (tensor(together, one.name) == tensor(apart, one.name)).all(), one.name


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
    bench.config = CONFIG | {"architectures": ["Phi3ForCausalLM"]}
    for source in ("self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"):
        bench.tensors = weights(bench.config)
        bench.tensors[f"model.layers.0.{source}"] = bench.tensors[f"model.layers.0.{source}"][:-1]
        bench.refused(f"{source} has shape")


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
