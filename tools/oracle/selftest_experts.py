"""Checks of mixtures of experts, run by selftest.py."""

import gguf
import numpy as np

from contract import Contract, dequantize, quantize, to_f32
from dump import LAYER_TAPS, ActivationDump
from from_gguf import run
from gguf_model import GgufModel
from hparams import UnsupportedModel
from llama_f64 import route, silu
from selftest_models import EXPERTS, IDS, USED, Bench, logits, nmse, random_weights, relative_error, require_close

TAPS = (*LAYER_TAPS, "router", "ffn_mix")


def dumped(model: GgufModel, ids=IDS, steps=None, arithmetic=None) -> ActivationDump:
    more = {"arithmetic": arithmetic} if arithmetic else {}
    return run(model, ids, steps or [len(ids)], 0, dtype=np.float64, **more)[0]


def best(row: np.ndarray, used: int) -> list[int]:
    """Ids of the largest logits, one after the other, of equal ones the lower id first; then ascending."""
    return sorted(sorted(range(len(row)), key=lambda e: (-row[e], e))[:used])


def check_routes(_bench: Bench) -> None:
    cases = (([1, 5, 3, 3, 0], 2, [1, 2]), ([3, 1, 3, 5, 3], 2, [0, 3]), ([3, 3, 3], 1, [0]), ([2, 9, 4], 3, [0, 1, 2]),
             ([0.0, -0.0, -1.0], 1, [0]))
    for row, used, want in cases:
        chosen, weights = route(np.array([row], dtype=np.float64), used)
        assert chosen[0].tolist() == want, f"{used} of {row}: {chosen[0]}"
        e = np.exp([row[i] for i in want])
        require_close(weights[0], e / e.sum(), f"weights of {used} of {row}")
    rows = np.round(np.random.default_rng(30).normal(size=(50, 128)))  # each is equal to others
    chosen, _ = route(rows, 8)
    assert chosen.tolist() == [best(row, 8) for row in rows], "equal logits: not the lower ids"
    _, weights = route(np.array([[1000.0, -1000.0, 999.0]]), 2)
    require_close(weights[0], np.array([np.e, 1]) / (np.e + 1), "weights of large logits")


def check_experts_by_loops(bench: Bench) -> None:
    stored = random_weights(31, arch="qwen3moe")
    dump = dumped(bench.model(stored, arch="qwen3moe"))
    for layer in range(2):
        tap = {name: dump.get(0, f"L{layer:03d}/{name}") for name in TAPS}
        router, gates, ups, downs = (stored[f"blk.{layer}.ffn_{name}.weight"].astype(np.float64)
                                     for name in ("gate_inp", "gate_exps", "up_exps", "down_exps"))
        want = {name: np.empty_like(tap[name]) for name in ("router", "gate", "up", "ffn_act", "ffn_out", "ffn_mix", "l_out")}
        for t, h in enumerate(tap["ffn_norm"]):
            want["router"][t] = router @ h
            chosen = best(want["router"][t], USED)
            all_shares = np.exp(want["router"][t]) / np.exp(want["router"][t]).sum()
            mix = np.zeros(64)
            for i, e in enumerate(chosen):
                ff, d = slice(96 * i, 96 * i + 96), slice(64 * i, 64 * i + 64)
                want["gate"][t, ff], want["up"][t, ff] = gates[e] @ h, ups[e] @ h
                want["ffn_act"][t, ff] = silu(gates[e] @ h) * (ups[e] @ h)
                want["ffn_out"][t, d] = downs[e] @ want["ffn_act"][t, ff]
                mix += all_shares[e] / all_shares[chosen].sum() * want["ffn_out"][t, d]
            want["ffn_mix"][t] = mix
        want["l_out"] = tap["ffn_inp"] + want["ffn_mix"]
        for name, value in want.items():
            require_close(tap[name], value, f"layer {layer} {name}")


def check_equivalent_mixtures(bench: Bench) -> None:
    weights = random_weights(32, arch="qwen3moe")
    whole = logits(bench.model(weights, arch="qwen3moe"))
    order = [3, 0, 4, 2, 1]
    mixed = {name: value[order] if "_exps" in name or "gate_inp" in name else value for name, value in weights.items()}
    require_close(logits(bench.model(mixed, arch="qwen3moe")), whole, "experts in another order")
    dense = {name.replace("_exps", ""): value[0] if "_exps" in name else value
             for name, value in weights.items() if "gate_inp" not in name}
    alike = {name: np.stack([value[0]] * EXPERTS) if "_exps" in name else value for name, value in weights.items()}
    require_close(logits(bench.model(alike, arch="qwen3moe")), logits(bench.model(dense, arch="qwen3")), "experts that are alike")
    assert relative_error(whole, logits(bench.model(alike, arch="qwen3moe"))) > 1e-2


def check_one_set_of_experts(bench: Bench) -> None:
    """A router of zeros chooses the first experts for every row, in equal parts; the others, NaN, take no part."""
    weights = random_weights(33, arch="qwen3moe")
    for name, value in weights.items():
        if "gate_inp" in name:
            value[:] = 0
        elif "_exps" in name:
            value[USED:] = np.nan
    model = bench.model(weights, arch="qwen3moe")
    for steps in ([len(IDS)], [1] * len(IDS)):
        dump = dumped(model, steps=steps)
        for layer in range(2):
            tap = {name: np.concatenate([dump.get(s, f"L{layer:03d}/{name}") for s in range(len(steps))]) for name in TAPS}
            require_close(tap["ffn_mix"], tap["ffn_out"].reshape(-1, USED, 64).mean(axis=1), "the mean of the first experts")
    lonely = random_weights(34, arch="qwen3moe")
    first = dumped(bench.model(lonely, arch="qwen3moe"), IDS[:1])
    for layer in range(2):
        chosen = best(first.get(0, f"L{layer:03d}/router")[0], USED)
        for name in ("gate", "up", "down"):
            lonely[f"blk.{layer}.ffn_{name}_exps.weight"][[e for e in range(EXPERTS) if e not in chosen]] = np.nan
    last = dumped(bench.model(lonely, arch="qwen3moe"), IDS[:1])
    assert (last.get(0, "G/logits") == first.get(0, "G/logits")).all(), "an expert that no row chose takes part"


def check_mixture_in_steps(bench: Bench) -> None:
    weights = random_weights(35, arch="qwen3moe")
    model = bench.model(weights, arch="qwen3moe")
    nothing_kept = GgufModel(model.path, cache_bytes=0)
    whole, split = dumped(model), dumped(nothing_kept, steps=[3, 4, 1])
    for name in [f"L{i:03d}/{tap}" for i in range(2) for tap in TAPS] + ["G/logits"]:
        require_close(np.concatenate([split.get(s, name) for s in range(3)]), whole.get(0, name), f"{name} in steps")


def check_mixture_contract(bench: Bench) -> None:
    """Each product sees codes of its own row; the router, in F32, none."""
    kind = gguf.GGMLQuantizationType.Q8_0
    weights = random_weights(36, arch="qwen3moe")
    model = bench.model(weights, arch="qwen3moe", quantize=kind)
    back = {name: gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind)
            if value.ndim > 1 and "gate_inp" not in name else value for name, value in weights.items()}
    require_close(logits(model), logits(bench.model(back, arch="qwen3moe")), "quantized experts")
    dump = dumped(model, arithmetic=Contract("int8", "f16"))
    for layer in range(2):
        tap = {name: dump.get(0, f"L{layer:03d}/{name}") for name in TAPS}
        for name, value in tap.items():
            assert (value == to_f32(value)).all(), f"{name} is not f32"
        assert nmse(tap["router"], tap["ffn_norm"] @ weights[f"blk.{layer}.ffn_gate_inp.weight"].T.astype(np.float64)) < 1e-13
        chosen, shares = route(tap["router"], USED)
        codes = dequantize(*quantize(tap["ffn_norm"], 32))
        acts = dequantize(*quantize(tap["ffn_act"].reshape(-1, USED, 96), 32))
        gates, downs = (model.weight(f"blk.{layer}.ffn_{name}_exps.weight") for name in ("gate", "down"))
        gate = np.einsum("ti,teoi->teo", codes, gates[chosen])
        out = np.einsum("tei,teoi->teo", acts, downs[chosen])
        assert nmse(tap["gate"], gate.reshape(len(IDS), -1)) < 1e-14, "the experts' products saw other codes"
        assert nmse(tap["ffn_out"], out.reshape(len(IDS), -1)) < 1e-14, "the last products saw other codes"
        mix = np.einsum("te,ted->td", shares, tap["ffn_out"].reshape(-1, USED, 64))
        assert nmse(tap["ffn_mix"], mix) < 1e-14, "the sum saw other values"
        assert (tap["l_out"] == to_f32(tap["ffn_inp"] + tap["ffn_mix"])).all()


def check_mixture_refusals(bench: Bench) -> None:
    weights = random_weights(37, arch="qwen3moe")
    harmless = {"expert_shared_count": 0, "leading_dense_block_count": 0, "expert_weights_scale": 1.0, "expert_gating_func": 1}
    bench.model(weights, arch="qwen3moe", keys=harmless)
    for key, value in (("expert_shared_count", 1), ("expert_shared_feed_forward_length", 16), ("leading_dense_block_count", 1),
                       ("expert_weights_scale", 2.5), ("expert_gating_func", 2), ("attention.sliding_window", 8)):
        try:
            bench.model(weights, arch="qwen3moe", keys={key: value})
        except UnsupportedModel as error:
            assert "is not modelled" in str(error), error
            continue
        raise AssertionError(f"{key} was accepted")
    up = weights["blk.1.ffn_up_exps.weight"]
    cases = {"no router": {name: x for name, x in weights.items() if name != "blk.1.ffn_gate_inp.weight"},
             "a shared expert": weights | {"blk.0.ffn_up_shexp.weight": up[0]},
             "one expert less": weights | {"blk.1.ffn_up_exps.weight": up[:-1]},
             "a dense layer": weights | {"blk.1.ffn_up.weight": up[0]}}
    for what, tensors in cases.items():
        try:
            bench.model(tensors, arch="qwen3moe")
        except UnsupportedModel:
            continue
        raise AssertionError(f"{what} was accepted")
    try:
        bench.model(random_weights(37, arch="qwen3"), arch="qwen3", keys={"expert_count": EXPERTS})
    except UnsupportedModel:
        return
    raise AssertionError("experts of a dense architecture were accepted")
