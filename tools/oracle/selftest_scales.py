"""Checks of scales: those of granite, and that of Gemma 3 27B's scores; run by selftest.py."""

import dataclasses

import numpy as np

from contract import Contract, to_f32
from dump import LAYER_TAPS
from from_gguf import run
from hparams import UnsupportedModel
from selftest_models import IDS, Bench, logits, random_weights, relative_error, require_close

KEYS = {"embedding_scale": 12.0, "attention.scale": 0.1, "residual_scale": 0.22, "logit_scale": 7.0}
EXACT = {"embedding_scale": 4.0, "attention.scale": 0.125, "residual_scale": 0.25, "logit_scale": 8.0}  # products are exact
FACTORS = {"token_embd": 4.0, "attn_q": 0.5, "attn_output": 0.25, "ffn_down": 0.25, "output": 0.125}  # EXACT, head_dim 16


def f32(key: str) -> float:
    """The scale as a file has it."""
    return float(np.float32(KEYS[key]))


def context_by_loops(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, kv: int, scale: float) -> np.ndarray:
    """Of each token from the first on: q, k and v are taps after RoPE."""
    width, out = q.shape[1] // heads, np.empty_like(q)
    for t, head in np.ndindex(len(q), heads):
        own, of = (slice(width * h, width * h + width) for h in (head, head * kv // heads))
        e = np.exp([scale * np.dot(q[t, own], k[j, of]) for j in range(t + 1)])
        out[t, own] = e @ v[:t + 1, of] / e.sum()
    return out


def check_scales_by_equations(bench: Bench) -> None:
    """Every tap that a scale has part in, from the taps before it."""
    stored = random_weights(40)
    weights = {name: value.astype(np.float64) for name, value in stored.items()}
    dump, _ = run(bench.model(stored, arch="granite", keys=KEYS), IDS, [len(IDS)], 0, dtype=np.float64)
    x = dump.get(0, "G/embd")
    require_close(x, f32("embedding_scale") * weights["token_embd.weight"][IDS], "embd")
    for i in range(2):
        tap = {name: dump.get(0, f"L{i:03d}/{name}") for name in LAYER_TAPS}
        want = {"attn_ctx": context_by_loops(tap["q_rope"], tap["k_rope"], tap["v"], 4, 2, f32("attention.scale")),
                "attn_out": tap["attn_ctx"] @ weights[f"blk.{i}.attn_output.weight"].T,
                "ffn_inp": x + f32("residual_scale") * tap["attn_out"],
                "ffn_out": tap["ffn_act"] @ weights[f"blk.{i}.ffn_down.weight"].T,
                "l_out": tap["ffn_inp"] + f32("residual_scale") * tap["ffn_out"]}
        for name, value in want.items():
            require_close(tap[name], value, f"layer {i} {name}")
        x = tap["l_out"]
    products = dump.get(0, "G/result_norm") @ weights["output.weight"].T
    require_close(dump.get(0, "G/logits"), products / f32("logit_scale"), "logits")


def scaled(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of a llama that computes what a granite with EXACT does."""
    factor = {name: FACTORS.get(name.removesuffix(".weight").rpartition(".")[2], 1.0) for name in weights}
    return {name: value * np.float32(factor[name]) for name, value in weights.items()}


def check_scales_in_the_weights(bench: Bench) -> None:
    weights = random_weights(41)
    llama = bench.model(weights)
    for keys in ({}, dict.fromkeys(KEYS, 0.0)):  # 0: not set
        require_close(logits(bench.model(weights, arch="granite", keys=keys)), logits(llama), f"granite with {keys}")
    granite, folded = bench.model(weights, arch="granite", keys=EXACT), bench.model(scaled(weights))
    for kv in (None, "f16", "q8"):
        more = {"arithmetic": Contract("int8", kv)} if kv else {}
        a, b = logits(granite, **more), logits(folded, **more)
        require_close(a, b, f"scales in the weights, cache in {kv or 'f64'}")
        assert relative_error(a, logits(llama, **more)) > 1e-2
    unset, root = (logits(bench.model(weights, arch="granite", keys=EXACT | {"attention.scale": x})) for x in (0.0, 0.25))
    require_close(unset, root, "a scale of scores that is not set")


def check_scales_contract(bench: Bench) -> None:
    """What a scale is applied to, and what it gives, is f32."""
    weights = random_weights(42)
    model = bench.model(weights, arch="granite", keys=KEYS)
    dump, _ = run(model, IDS, [len(IDS)], 0, dtype=np.float64, arithmetic=Contract("int8", "f32"))
    x = dump.get(0, "G/embd")
    assert (x == to_f32(weights["token_embd.weight"][IDS].astype(np.float64) * f32("embedding_scale"))).all(), "embd"
    for i in range(2):
        tap = {name: dump.get(0, f"L{i:03d}/{name}") for name in ("attn_out", "ffn_inp", "ffn_out", "l_out")}
        for name, before, value in (("ffn_inp", x, tap["attn_out"]), ("l_out", tap["ffn_inp"], tap["ffn_out"])):
            product = value * f32("residual_scale")
            assert (tap[name] == to_f32(before + to_f32(product))).all(), f"layer {i} {name}"
            assert (tap[name] != to_f32(before + product)).any(), "one rounding would give the same"
        x = tap["l_out"]
    product = dump.get(0, "G/result_norm") @ weights["output.weight"].T.astype(np.float64)
    found, want = dump.get(0, "G/logits"), to_f32(to_f32(product) / f32("logit_scale"))
    assert (found == want).all() and (want != to_f32(product / f32("logit_scale"))).any(), "logits"


def check_scores_of_62_layers(bench: Bench) -> None:
    """gemma3 of 62 layers: by the root of d_model / n_heads; others by that of head_dim."""
    for layers, scale in ((62, 4 ** -0.5), (61, 6 ** -0.5)):
        stored = random_weights(43, layers=layers, d=8, ff=8, heads=2, kv=1, head_dim=6, arch="gemma3")
        model = bench.model(stored, heads=2, kv=1, head_dim=6, arch="gemma3")
        if layers == 62:  # the first of them alone keep the scale of the whole
            model.hparams = dataclasses.replace(model.hparams, n_layers=3)
        dump, _ = run(model, IDS, [len(IDS)], 0, dtype=np.float64)
        for layer in range(model.hparams.n_layers):
            q, k, v, found = (dump.get(0, f"L{layer:03d}/{name}") for name in ("q_rope", "k_rope", "v", "attn_ctx"))
            require_close(found, context_by_loops(q, k, v, 2, 1, scale), f"layer {layer} of {layers}")


def check_scale_refusals(bench: Bench) -> None:
    weights = random_weights(44)
    bench.model(weights, arch="granite", keys={"rope.scaling.finetuned": True, "expert_count": 0})
    bench.model(weights, keys={"rope.scaling.finetuned": False})  # says nothing of a llama
    gemma3 = random_weights(44, arch="gemma3")
    cases = [("granite", weights, {"rope.scaling.finetuned": False}), ("granite", weights, {"attn_logit_softcapping": 30.0}),
             ("granite", weights, {"expert_count": 2}), ("gemma3", gemma3, {"attention.scale": 0.1})]
    for arch, tensors, keys in cases + [("llama", weights, {key: value}) for key, value in KEYS.items()]:
        try:
            bench.model(tensors, arch=arch, keys=keys)
        except UnsupportedModel:
            continue
        raise AssertionError(f"{keys} of {arch} was accepted")
