"""Every tap from the taps before it and the file's own tensors, written a second time, for every architecture; run by selftest.py.

RoPE is a product of complex numbers, attention a loop over heads and keys, a mixture a loop over tokens and experts. A large eps,
an unusual theta and an output matrix unlike the embedding make each of them matter.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from selftest_models import IDS, USED, Bench, dumped, random_weights, require_close, taps_of

EPS = 0.25
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 640}
SCALES = {"embedding_scale": 12.0, "attention.scale": 0.1, "residual_scale": 0.22, "logit_scale": 7.0}
LONG, SHORT = (np.linspace(1, last, 4).astype(np.float32) for last in (40, 3))
FACTORS = {"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT}
EIGHT = np.linspace(1, 32, 8).astype(np.float32)  # divisors
LENGTHS = {"rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25}


def f32(key: str) -> float:
    """One of SCALES as a file has it."""
    return float(np.float32(SCALES[key]))


def frequencies(theta: float = 500.0, pairs: int = 8) -> np.ndarray:
    return np.array([theta ** (-i / pairs) for i in range(pairs)])


@dataclass(frozen=True)
class Row:
    """A model, and what its architecture means."""

    arch: str
    keys: dict = field(default_factory=dict)  # of the file
    weights: dict = field(default_factory=dict)  # of random_weights
    heads: dict = field(default_factory=dict)  # of random_weights and of Bench.model
    tensors: dict = field(default_factory=dict)  # more of them
    rope_dim: int | None = None
    context: int | None = None  # of the run
    halves: bool = True  # what RoPE turns are the halves of a head, not neighbours
    rope: Callable[[int], np.ndarray] = lambda layer: frequencies()
    magnitude: float = 1.0
    window: Callable[[int], int] = lambda layer: 0
    scale: float = 0.25  # of scores
    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0
    act: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda gate, up: up * gate * (0.5 + 0.5 * np.tanh(gate / 2))


def gelu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return up * gate / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (gate + 0.044715 * gate * gate * gate)))


def swiglu_oai(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    gate, up = np.where(gate > 7, 7.0, gate), np.where(up > 7, 7.0, np.where(up < -7, -7.0, up))
    return gate * (0.5 + 0.5 * np.tanh(float(np.float32(1.702)) * gate / 2)) * (up + 1)


def yarn(whole: bool, factor: float) -> np.ndarray:
    """The frequencies of the pairs under YARN's keys."""
    low, high = (16 * math.log(640 / (turns * 2 * math.pi)) / (2 * math.log(500)) for turns in (32, 1))
    if whole:
        low, high = math.floor(low), math.ceil(high)
    share = np.clip((np.arange(8) - low) / (high - low), 0, 1)
    return frequencies() / factor * share + frequencies() * (1 - share)


def gpt_oss_window(layer: int) -> int:
    return 3 if layer % 2 == 0 else 0


WINDOW = {"attention.sliding_window": 3}
GPT_OSS = {"weights": {"layers": 3}, "act": swiglu_oai}
GEMMA3 = {"act": gelu, "rope": lambda layer: frequencies(500.0 if layer % 6 == 5 else 10000.0)}
MAGNITUDE = 1 + 0.1 * math.log(8)
ROWS = [
    Row("llama", halves=False), Row("llama", WINDOW, halves=False, window=lambda layer: 3), Row("qwen2"), Row("qwen3"),
    Row("llama", rope_dim=10, halves=False, rope=lambda layer: frequencies(pairs=5)),
    Row("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, halves=False, rope=lambda layer: frequencies() / 4),
    Row("llama", tensors={"rope_freqs.weight": EIGHT}, halves=False, rope=lambda layer: frequencies() / EIGHT),
    Row("smollm3", weights={"layers": 4}, halves=False, rope=lambda layer: frequencies() * (layer != 3)),
    Row("granite", SCALES, halves=False, scale=f32("attention.scale"), embedding=f32("embedding_scale"),
        residual=f32("residual_scale"), logits=f32("logit_scale")),
    Row("phi3"), Row("phi3", WINDOW, window=lambda layer: 3), Row("phi3", rope_dim=8, rope=lambda layer: frequencies(pairs=4)),
    Row("gemma3", WINDOW, {"layers": 6}, window=lambda layer: 3 * (layer != 5), embedding=8.0, **GEMMA3),
    # Of 62 layers scores are scaled by the root of d_model / n_heads.
    *(Row("gemma3", weights={"layers": layers, "d": 8, "ff": 8}, heads={"heads": 2, "kv": 1, "head_dim": 6}, scale=scale,
          embedding=float(np.float32(8 ** 0.5)), act=gelu, rope=lambda layer: frequencies(pairs=3))
      for layers, scale in ((62, 4 ** -0.5), (61, 6 ** -0.5))),
    Row("qwen3moe"), Row("gpt-oss", WINDOW, window=gpt_oss_window, **GPT_OSS),
    *(Row(arch, YARN | more, halves=arch != "llama", magnitude=magnitude,
          rope=lambda layer, arch=arch, more=more: yarn(arch != "gpt-oss", more.get("rope.scaling.factor", 8.0)),
          **(GPT_OSS if arch == "gpt-oss" else {}))
      for arch in ("llama", "qwen2", "gpt-oss")
      for more, magnitude in (({}, MAGNITUDE), ({"rope.scaling.attn_factor": 0.5}, MAGNITUDE / 2),
                              ({"rope.scaling.factor": 0.5}, 1.0))),
    # Divisors follow from the context that a run is made for, not from its text.
    *(Row("phi3", LENGTHS, tensors=FACTORS, rope_dim=8, context=context, magnitude=1.25,
          rope=lambda layer, divisors=divisors: frequencies(pairs=4) / divisors)
      for context, divisors in ((None, LONG), (64, LONG), (17, LONG), (16, SHORT), (8, SHORT))),
]


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.stack([row * (np.dot(row, row) / len(row) + EPS) ** -0.5 for row in x]) * weight


def turned(heads: np.ndarray, row: Row, layer: int) -> np.ndarray:
    """Of [tokens, heads, width]."""
    pairs = len(row.rope(layer))
    part = heads[..., :2 * pairs]
    first, second = (part[..., :pairs], part[..., pairs:]) if row.halves else (part[..., ::2], part[..., 1::2])
    value = row.magnitude * (first + 1j * second) * np.exp(1j * np.arange(len(heads))[:, None, None] * row.rope(layer))
    both = [value.real, value.imag]
    done = np.concatenate(both, axis=-1) if row.halves else np.stack(both, axis=-1).reshape(part.shape)
    return np.concatenate([done, heads[..., 2 * pairs:]], axis=-1)


def context_by_loops(q, k, v, scale: float, window: int = 0, sinks=None, first: int = 0) -> np.ndarray:
    """[tokens, heads, dims], of tokens from position `first` on; each sink is a score beside those of the keys."""
    out, group = np.empty((*q.shape[:2], v.shape[2])), q.shape[1] // k.shape[1]
    for t, head in np.ndindex(*q.shape[:2]):
        seen = [j for j in range(first + t + 1) if not window or first + t - j < window]
        e = np.exp([q[t, head] @ k[j, head // group] * scale for j in seen])
        total = e.sum() + (0.0 if sinks is None else np.exp(sinks[head]))
        out[t, head] = sum(weight * v[j, head // group] for weight, j in zip(e, seen)) / total
    return out


def best(row: np.ndarray, used: int) -> list[int]:
    """Ids of the largest logits, one after the other, of equal ones the lower id first; then ascending."""
    return sorted(sorted(range(len(row)), key=lambda e: (-row[e], e))[:used])


def mixture(w: dict, tap: dict, row: Row) -> dict:
    """What each token's experts make of it, one expert at a time."""
    zero = {f"ffn_{name}.bias": np.zeros((len(w["ffn_gate_inp.weight"]), 1)) for name in ("gate_exps", "up_exps", "down_exps")}
    w = zero | {"ffn_gate_inp.bias": 0.0} | w
    want = {name: np.zeros_like(tap[name]) for name in ("router", "gate", "up", "ffn_act", "ffn_out", "ffn_mix")}
    for t, h in enumerate(tap["ffn_norm"]):
        want["router"][t] = w["ffn_gate_inp.weight"] @ h + w["ffn_gate_inp.bias"]
        chosen = best(want["router"][t], USED)
        shares = np.exp(want["router"][t]) / np.exp(want["router"][t]).sum()
        for i, e in enumerate(chosen):
            ff, d = slice(96 * i, 96 * i + 96), slice(64 * i, 64 * i + 64)
            for name in ("gate", "up"):
                want[name][t, ff] = w[f"ffn_{name}_exps.weight"][e] @ h + w[f"ffn_{name}_exps.bias"][e]
            want["ffn_act"][t, ff] = row.act(want["gate"][t, ff], want["up"][t, ff])
            want["ffn_out"][t, d] = w["ffn_down_exps.weight"][e] @ want["ffn_act"][t, ff] + w["ffn_down_exps.bias"][e]
            want["ffn_mix"][t] += shares[e] / shares[chosen].sum() * want["ffn_out"][t, d]
    return want


def layer_by_equations(w: dict, tap: dict, x: np.ndarray, row: Row, layer: int) -> dict:
    """All taps of a layer; w has its tensors by the names after blk.N."""
    n_heads, n_kv, width = (row.heads.get(key, value) for key, value in (("heads", 4), ("kv", 2), ("head_dim", 16)))
    if "attn_qkv.weight" in w:
        parts = np.split(w["attn_qkv.weight"], [width * n_heads, width * (n_heads + n_kv)])
        w |= dict(zip(("attn_q.weight", "attn_k.weight", "attn_v.weight"), parts))
        w |= {"ffn_gate.weight": w["ffn_up.weight"][:96], "ffn_up.weight": w["ffn_up.weight"][96:]}

    def product(name: str, value: np.ndarray) -> np.ndarray:
        return np.einsum("ti,oi->to", value, w[f"{name}.weight"]) + w.get(f"{name}.bias", 0.0)

    want = {"attn_norm": norm(x, w["attn_norm.weight"])} | {name: product(f"attn_{name}", tap["attn_norm"]) for name in "qkv"}
    for name in "qk":
        heads = tap[name].reshape(len(IDS), -1, width)
        if f"attn_{name}_norm.weight" in w:
            heads = norm(heads.reshape(-1, width), w[f"attn_{name}_norm.weight"]).reshape(heads.shape)
        want[f"{name}_rope"] = turned(heads, row, layer).reshape(len(IDS), -1)
    heads = (tap[name].reshape(len(IDS), -1, width) for name in ("q_rope", "k_rope", "v"))
    want["attn_ctx"] = context_by_loops(*heads, row.scale, row.window(layer), w.get("attn_sinks.weight")).reshape(len(IDS), -1)
    added = want["attn_out"] = product("attn_output", tap["attn_ctx"])
    if "post_ffw_norm.weight" in w:
        added = want["attn_post"] = norm(tap["attn_out"], w["post_attention_norm.weight"])
    want["ffn_inp"] = x + row.residual * added
    want["ffn_norm"] = norm(tap["ffn_inp"], w["ffn_norm.weight" if "ffn_norm.weight" in w else "post_attention_norm.weight"])
    if "ffn_gate_inp.weight" in w:
        want |= mixture(w, tap, row)
        added = want["ffn_mix"]
    else:
        want |= {name: product(f"ffn_{name}", tap["ffn_norm"]) for name in ("gate", "up")}
        want["ffn_act"] = row.act(tap["gate"], tap["up"])
        added = want["ffn_out"] = product("ffn_down", tap["ffn_act"])
    if "post_ffw_norm.weight" in w:
        added = want["ffn_post"] = norm(tap["ffn_out"], w["post_ffw_norm.weight"])
    return want | {"l_out": tap["ffn_inp"] + row.residual * added}


def check_taps(bench: Bench, row: Row) -> None:
    stored = random_weights(11, arch=row.arch, **row.weights, **row.heads) | row.tensors
    weights = {name: value.astype(np.float64) for name, value in stored.items()}
    model = bench.model(stored, arch=row.arch, keys=row.keys, eps=EPS, rope_dim=row.rope_dim, **row.heads)
    dump = dumped(model, context=row.context)
    outside = taps_of(dump, None)
    x = outside["embd"]
    require_close(x, row.embedding * weights["token_embd.weight"][IDS], "embd")
    for layer in range(model.hparams.n_layers):
        tap, prefix = taps_of(dump, layer, row.arch), f"blk.{layer}."
        w = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        want = layer_by_equations(w, tap, x, row, layer)
        assert set(want) == set(tap)
        for name, value in want.items():
            require_close(tap[name], value, f"layer {layer} {name}")
        if row.arch == "gpt-oss":
            assert tap["gate"].max() > 7 and tap["up"].max() > 7 and tap["up"].min() < -7, "no limit of the activation is reached"
        x = tap["l_out"]
    normed = norm(x, weights["output_norm.weight"])
    require_close(outside["result_norm"], normed, "result_norm")
    require_close(outside["logits"], np.einsum("ti,oi->to", normed, weights["output.weight"]) / row.logits, "logits")


CHECKS = [(f"taps of {row.arch}, {row.keys | row.weights} {row.context or ''}", lambda bench, row=row: check_taps(bench, row))
          for row in ROWS]
