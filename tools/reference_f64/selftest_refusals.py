"""What the oracle refuses, as rows: architecture, changed tensors (None: taken out), keys of the file, and words of the refusal;
run by selftest.py."""

import numpy as np

from hparams import UnsupportedModel
from selftest_layers import FACTORS, LENGTHS, SCALES, YARN
from selftest_models import EXPERTS, Bench, random_weights

NOT_MODELLED = "is not modelled"
UP, UP_EXPERTS = np.ones((96, 64), np.float32), np.ones((EXPERTS - 1, 96, 64), np.float32)
REFUSED = [
    ("llama", {"blk.0.attn_q.bias": np.zeros(64, np.float32)}, {}, "would ignore"),
    ("llama", {"blk.1.ffn_up.weight": None}, {}, "blk.1.ffn_up.weight is missing"),
    ("llama", {"output_norm.weight": np.ones(32, np.float32)}, {}, "has shape"),
    ("llama", FACTORS, LENGTHS, "would ignore"),
    ("qwen2", {"blk.1.attn_k.bias": None}, {}, "blk.1.attn_k.bias is missing"),
    ("qwen3", {}, {"expert_count": EXPERTS}, NOT_MODELLED),
    *(("qwen3moe", {}, {key: value}, NOT_MODELLED) for key, value in (
        ("expert_shared_count", 1), ("expert_shared_feed_forward_length", 16), ("leading_dense_block_count", 1),
        ("expert_weights_scale", 2.5), ("expert_gating_func", 2), ("attention.sliding_window", 8))),
    ("qwen3moe", {"blk.1.ffn_gate_inp.weight": None}, {}, "is missing"),
    ("qwen3moe", {"blk.0.ffn_up_shexp.weight": UP}, {}, "would ignore"),
    ("qwen3moe", {"blk.1.ffn_up_exps.weight": UP_EXPERTS}, {}, "has shape"),
    ("qwen3moe", {"blk.1.ffn_up.weight": UP}, {}, "would ignore"),
    *(("gpt-oss", {f"blk.1.{name}": None}, {}, f"blk.1.{name} is missing") for name in (
        "attn_sinks.weight", "attn_output.bias", "ffn_gate_inp.bias", "ffn_down_exps.bias", "post_attention_norm.weight")),
    ("gpt-oss", {"blk.1.ffn_up_exps.bias": UP_EXPERTS[..., 0]}, {}, "has shape"),
    ("phi3", FACTORS, LENGTHS | {"rope.dimension_count": 16}, "has shape"),
    ("phi3", FACTORS, {}, "original_context_length is missing"),
    ("phi3", FACTORS | {"rope_factors_short.weight": None}, LENGTHS, "is missing"),
    *(("llama", {}, keys, words) for keys, words in (
        ({key: value for key, value in YARN.items() if "original" not in key}, "original_context_length is missing"),
        (YARN | {"rope.scaling.yarn_ext_factor": 0.5}, NOT_MODELLED), (YARN | {"rope.scaling.yarn_log_multiplier": 0.1}, NOT_MODELLED),
        (YARN | {"rope.scaling.yarn_attn_factor": 1.2}, NOT_MODELLED), ({"rope.scaling.type": "longrope"}, NOT_MODELLED),
        ({"rope.scaling.type": "dynamic"}, NOT_MODELLED))),
    *(("llama", {}, {key: value}, NOT_MODELLED) for key, value in SCALES.items()),
    ("granite", {}, {"rope.scaling.finetuned": False}, NOT_MODELLED),
    ("granite", {}, {"attn_logit_softcapping": 30.0}, NOT_MODELLED),
    ("granite", {}, {"expert_count": 2}, NOT_MODELLED),
    ("gemma3", {}, {"attention.scale": 0.1}, NOT_MODELLED),
]
# Keys that change nothing.
TAKEN = [
    ("qwen3moe", {}, {"expert_shared_count": 0, "leading_dense_block_count": 0, "expert_weights_scale": 1.0, "expert_gating_func": 1}),
    ("phi3", FACTORS, LENGTHS | {"rope.scaling.type": "longrope"}),
    ("llama", {}, YARN | {"rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0}),
    ("granite", {}, {"rope.scaling.finetuned": True, "expert_count": 0}),
    ("llama", {}, {"rope.scaling.finetuned": False}),  # says nothing of a llama
]


def open_model(bench: Bench, arch: str, tensors: dict, keys: dict) -> None:
    keys = dict(keys)
    rope_dim = keys.pop("rope.dimension_count", 8 if tensors.keys() & FACTORS.keys() else None)
    changed = {name: value for name, value in (random_weights(9, arch=arch) | tensors).items() if value is not None}
    bench.model(changed, arch=arch, rope_dim=rope_dim, keys=keys)


def check_refused(bench: Bench, arch: str, tensors: dict, keys: dict, words: str) -> None:
    try:
        open_model(bench, arch, tensors, keys)
    except UnsupportedModel as error:
        assert words in str(error), f"{error}, need {words}"
        return
    raise AssertionError("was accepted")


CHECKS = [(f"refused: {arch} {sorted(row[0]) or row[1]}", lambda bench, arch=arch, row=row: check_refused(bench, arch, *row))
          for arch, *row in REFUSED]
CHECKS += [(f"taken: {arch} {sorted(row[0]) or row[1]}", lambda bench, arch=arch, row=row: open_model(bench, arch, *row))
           for arch, *row in TAKEN]
