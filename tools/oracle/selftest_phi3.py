"""Checks of phi3: matrices of several parts, RoPE on part of a head, divisors for long and short runs; run by selftest.py."""

import numpy as np

from dump import LAYER_TAPS
from from_gguf import run
from hparams import UnsupportedModel
from llama_f64 import LlamaF64
from selftest_models import IDS, Bench, logits, random_weights, relative_error, require_close

LONG, SHORT = (np.linspace(1, last, 4).astype(np.float32) for last in (40, 3))
FACTORS = {"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT}
LENGTHS = {"rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25}


def check_fused_parts(bench: Bench) -> None:
    """q, k, v, gate and up are rows of the file's matrices, in that order: as of a qwen2 without biases."""
    weights = random_weights(80, arch="phi3")
    parts = {name: value for name, value in weights.items() if "qkv" not in name and "ffn_up" not in name}
    for i in range(2):
        rows, gate_up = weights[f"blk.{i}.attn_qkv.weight"], weights[f"blk.{i}.ffn_up.weight"]
        for name, begin, end in (("q", 0, 64), ("k", 64, 96), ("v", 96, 128)):
            parts |= {f"blk.{i}.attn_{name}.weight": rows[begin:end], f"blk.{i}.attn_{name}.bias": np.zeros(end - begin, np.float32)}
        parts |= {f"blk.{i}.ffn_gate.weight": gate_up[:96], f"blk.{i}.ffn_up.weight": gate_up[96:]}
    fused, apart = (run(model, IDS, [len(IDS)], 0, dtype=np.float64)[0] for model in (
        bench.model(weights, arch="phi3"), bench.model(parts, arch="qwen2")))
    for name in [f"L{i:03d}/{tap}" for i in range(2) for tap in LAYER_TAPS] + ["G/logits"]:
        require_close(fused.get(0, name), apart.get(0, name), name)
    window = {"attention.sliding_window": 3}
    sliding = bench.model(weights, arch="phi3", keys=window)
    assert [sliding.hparams.window_of(i) for i in range(2)] == [3, 3]
    assert relative_error(logits(sliding), fused.get(0, "G/logits")) > 1e-3


def check_long_rope(bench: Bench) -> None:
    """RoPE on 8 of 16 dims, by complex numbers; the divisors follow from the context that a run is made for, not from its text."""
    weights = random_weights(81, arch="phi3") | FACTORS
    model = bench.model(weights, arch="phi3", rope_dim=8, keys=LENGTHS)  # of 64 positions
    for context, divisors in ((None, LONG), (64, LONG), (17, LONG), (16, SHORT), (8, SHORT)):
        taps = {}
        LlamaF64(model, context=context).forward(IDS, lambda layer, tap, value: taps.setdefault((layer, tap), value))
        angle = np.arange(len(IDS))[:, None, None] * (500.0 ** (-np.arange(4) / 4) / divisors)
        for name in "qk":
            heads = taps[1, name].reshape(len(IDS), -1, 16)
            turned = 1.25 * (heads[..., :4] + 1j * heads[..., 4:8]) * np.exp(1j * angle)
            want = np.concatenate([turned.real, turned.imag, heads[..., 8:]], axis=-1)
            require_close(taps[1, f"{name}_rope"], want.reshape(len(IDS), -1), f"{name}_rope for a context of {context}")
    one = {name: np.ones(4, np.float32) for name in FACTORS}
    plain = {name: value for name, value in weights.items() if name not in FACTORS}
    require_close(logits(bench.model(weights | one, arch="phi3", rope_dim=8, keys=LENGTHS)),
                  logits(bench.model(plain, arch="phi3", rope_dim=8, keys={"rope.scaling.attn_factor": 1.25})), "divisors of one")


def check_phi3_refusals(bench: Bench) -> None:
    weights = random_weights(82, arch="phi3") | FACTORS
    keys = LENGTHS | {"rope.scaling.type": "longrope"}
    bench.model(weights, arch="phi3", rope_dim=8, keys=keys)
    cases = {"half of the divisors": (weights, 16, keys), "no original length": (weights, 8, {}),
             "no short ones": ({name: value for name, value in weights.items() if "short" not in name}, 8, keys)}
    for what, (tensors, rope_dim, more) in cases.items():
        try:
            bench.model(tensors, arch="phi3", rope_dim=rope_dim, keys=more)
        except UnsupportedModel:
            continue
        raise AssertionError(f"{what}: was accepted")
    try:
        bench.model(random_weights(82) | FACTORS, rope_dim=8, keys=LENGTHS)
    except UnsupportedModel:
        return
    raise AssertionError("a llama with divisors for long runs was accepted")
