"""Checks of gpt-oss: sinks, biases of all products, its activation and its windows; run by selftest.py."""

import numpy as np

import q8_cache
from contract import Contract, to_f32
from dump import LAYER_TAPS
from from_gguf import run
from gguf_model import GgufModel
from hparams import UnsupportedModel
from llama_f64 import ACTIVATIONS, attention
from selftest_experts import best
from selftest_models import IDS, USED, Bench, logits, nmse, random_weights, relative_error, require_close

TAPS = (*LAYER_TAPS, "router", "ffn_mix")
WINDOW = 3


def gpt_oss(seed: int, layers: int = 3) -> dict[str, np.ndarray]:
    """Weights whose gates and ups reach beyond the limits of the activation."""
    weights = random_weights(seed, arch="gpt-oss", layers=layers)
    for name in weights:
        if "ffn_gate_exps.bias" in name or "ffn_up_exps.bias" in name:
            weights[name] *= np.float32(6)
    return weights


def activation(gate: float, up: float) -> float:
    gate, up = min(gate, 7.0), max(-7.0, min(up, 7.0))
    return gate * (0.5 + 0.5 * np.tanh(float(np.float32(1.702)) * gate / 2)) * (up + 1)


def context_by_loops(tap: dict[str, np.ndarray], sinks: np.ndarray, window: int) -> np.ndarray:
    """Of 4 heads of 16 dims that share 2 KV heads; each sink is a score beside those of the keys."""
    q, k, v = (tap[name].reshape(len(IDS), -1, 16) for name in ("q_rope", "k_rope", "v"))
    out = np.empty_like(q)
    for t, head in np.ndindex(len(IDS), 4):
        seen = [j for j in range(t + 1) if not window or t - j < window]
        e = np.exp([q[t, head] @ k[j, head // 2] / 4 for j in seen])
        out[t, head] = sum(weight * v[j, head // 2] for weight, j in zip(e, seen)) / (e.sum() + np.exp(sinks[head]))
    return out.reshape(len(IDS), -1)


def check_gpt_oss_by_loops(bench: Bench) -> None:
    """Every tap from the taps before it."""
    stored = gpt_oss(70)
    model = bench.model(stored, arch="gpt-oss", keys={"attention.sliding_window": WINDOW})
    dump, _ = run(model, IDS, [len(IDS)], 0, dtype=np.float64)
    x = dump.get(0, "G/embd")
    for layer in range(3):
        tap = {name: dump.get(0, f"L{layer:03d}/{name}") for name in TAPS}
        w = {name.split(".", 2)[2]: value.astype(np.float64) for name, value in stored.items() if f"blk.{layer}." in name}

        def product(name: str, value: np.ndarray) -> np.ndarray:
            return np.einsum("ti,oi->to", value, w[f"{name}.weight"]) + w[f"{name}.bias"]

        want = {name: product(f"attn_{name}", tap["attn_norm"]) for name in "qkv"}
        want["attn_ctx"] = context_by_loops(tap, w["attn_sinks.weight"], WINDOW if layer % 2 == 0 else 0)
        want["attn_out"] = product("attn_output", tap["attn_ctx"])
        want["ffn_inp"] = x + tap["attn_out"]
        squares = np.array([np.dot(row, row) for row in tap["ffn_inp"]]) / 64
        want["ffn_norm"] = tap["ffn_inp"] * ((squares + float(np.float32(1e-5))) ** -0.5)[:, None] * w["post_attention_norm.weight"]
        want["router"] = product("ffn_gate_inp", tap["ffn_norm"])
        for name in ("gate", "up", "ffn_act", "ffn_out", "ffn_mix"):
            want[name] = np.zeros_like(tap[name])
        for t, h in enumerate(tap["ffn_norm"]):
            chosen = best(tap["router"][t], USED)
            shares = np.exp(tap["router"][t][chosen])
            for i, e in enumerate(chosen):
                ff, d = slice(96 * i, 96 * i + 96), slice(64 * i, 64 * i + 64)
                for name in ("gate", "up"):
                    want[name][t, ff] = w[f"ffn_{name}_exps.weight"][e] @ h + w[f"ffn_{name}_exps.bias"][e]
                want["ffn_act"][t, ff] = [activation(*pair) for pair in zip(want["gate"][t, ff], want["up"][t, ff])]
                want["ffn_out"][t, d] = w["ffn_down_exps.weight"][e] @ want["ffn_act"][t, ff] + w["ffn_down_exps.bias"][e]
                want["ffn_mix"][t] += shares[i] / shares.sum() * want["ffn_out"][t, d]
        want["l_out"] = tap["ffn_inp"] + want["ffn_mix"]
        assert tap["gate"].max() > 7 and tap["up"].max() > 7 and tap["up"].min() < -7, "no limit of the activation is reached"
        for name, value in want.items():
            require_close(tap[name], value, f"layer {layer} {name}")
        x = tap["l_out"]


def check_swiglu_oai(_bench: Bench) -> None:
    act = ACTIVATIONS["swiglu_oai"]
    for gate, up in ((7.5, 1.0), (7.0, 1.0), (-30.0, 2.0), (-1e30, 2.0), (0.5, 7.5), (0.5, -7.5), (0.5, -7.0), (-2.0, -1.0), (0.0, 3.0)):
        require_close(act(np.array([gate]), np.array([up])) + 1, np.array([activation(gate, up)]) + 1, f"gate {gate}, up {up}")
    odd = act(np.array([np.nan, 1.0, np.inf, np.nan]), np.array([1.0, np.nan, -np.inf, np.nan]))
    assert np.isnan(odd[[0, 1, 3]]).all() and odd[2] == act(np.array(7.0), np.array(-7.0))


def check_sinks(_bench: Bench) -> None:
    """A sink is a key with that score and a value of 0, and does not know scales; without weight it is nothing."""
    rng = np.random.default_rng(71)
    q, k, v = rng.normal(size=(3, 6, 8)), rng.normal(size=(5, 2, 8)), rng.normal(size=(5, 2, 4))
    positions, sinks = np.array([2, 3, 4]), rng.normal(size=6)
    plain, plain_probs = attention(q, k, v, positions)
    for scale in (8 ** -0.5, 0.1):
        context, probs = attention(q, k, v, positions, 0, scale, sinks)
        for t, head in np.ndindex(3, 6):
            e = np.exp([q[t, head] @ k[j, head // 3] * scale for j in range(3 + t)])
            require_close(probs[head, t, :3 + t], e / (e.sum() + np.exp(sinks[head])), "probabilities beside a sink")
            require_close(context[t, head], probs[head, t, :3 + t] @ v[:3 + t, head // 3], "context beside a sink")
    for attend, more in ((attention, ()), (q8_cache.attention, (np.arange(8),))):
        without, _ = attend(q, k, v, positions, *more)
        nothing, probs = attend(q, k, v, positions, *more, sinks=np.full(6, -1e4))
        assert (nothing == without).all(), "a sink without weight"
        full, probs = attend(q, k, v, positions, *more, sinks=np.full(6, 1e4))
        assert (full == 0).all() and (probs == 0).all(), "a sink that has all the weight"
        one, probs = attend(q, k, v, positions, *more, sinks=sinks)
        same, shares = attend(q, k, v, positions, *more)
        require_close(one, same * (probs.sum(axis=-1) / shares.sum(axis=-1)).T[..., None], "a sink takes weight from all keys alike")


def check_gpt_oss_windows(bench: Bench) -> None:
    """Layers 0 and 2 slide, 1 does not, unless the file has another period or the window holds all."""
    weights = gpt_oss(72)

    def windows(**keys) -> list[int]:
        model = bench.model(weights, arch="gpt-oss", keys={key.replace("__", "."): value for key, value in keys.items()})
        return [model.hparams.window_of(layer) for layer in range(3)]

    assert windows(attention__sliding_window=5) == [5, 0, 5]
    assert windows(attention__sliding_window=5, attention__sliding_window_pattern=3) == [5, 5, 0]
    assert windows() == [0, 0, 0]


def check_gpt_oss_theta(bench: Bench) -> None:
    """Where the file gives no rope.freq_base."""
    path = bench.model(gpt_oss(73), arch="gpt-oss").path
    path.write_bytes(path.read_bytes().replace(b"gpt-oss.rope.freq_base", b"gpt-oss.rope.freq_none"))
    assert GgufModel(path).hparams.rope.theta == 150000.0


def check_gpt_oss_in_steps(bench: Bench) -> None:
    """Decode is prefill; with roundings, too, and with a cache in q8."""
    model = bench.model(gpt_oss(74), arch="gpt-oss", keys={"attention.sliding_window": WINDOW})
    for more in ({}, {"arithmetic": Contract("f32", "f32")}, {"arithmetic": Contract("f32", "q8")}):
        whole, _ = run(model, IDS, [len(IDS)], 0, dtype=np.float64, **more)
        split, _ = run(model, IDS, [3, 4, 1], 0, dtype=np.float64, **more)
        parts = np.concatenate([split.get(s, "G/logits") for s in range(3)])
        assert nmse(parts, whole.get(0, "G/logits")) < 1e-12, "decode differs from prefill"
        if more:
            for name in TAPS:
                value = whole.get(0, f"L001/{name}")
                assert (value == to_f32(value)).all(), f"{name} is not f32"
    exact, coded = logits(model), logits(model, arithmetic=Contract("f32", "q8"))
    assert 1e-9 < nmse(coded, exact) < 1e-2, "the cost of a q8 cache"


def check_gpt_oss_refusals(bench: Bench) -> None:
    weights = gpt_oss(75)
    for name in ("attn_sinks.weight", "attn_output.bias", "ffn_gate_inp.bias", "ffn_down_exps.bias", "post_attention_norm.weight"):
        try:
            bench.model({key: value for key, value in weights.items() if key != f"blk.1.{name}"}, arch="gpt-oss")
        except UnsupportedModel as error:
            assert f"blk.1.{name} is missing" in str(error), error
            continue
        raise AssertionError(f"a gpt-oss without {name} was accepted")
    short = weights | {"blk.2.ffn_up_exps.bias": weights["blk.2.ffn_up_exps.bias"][:-1]}
    try:
        bench.model(short, arch="gpt-oss")
    except UnsupportedModel:
        return
    raise AssertionError("a bias of one expert less was accepted")
