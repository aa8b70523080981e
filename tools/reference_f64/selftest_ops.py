"""Checks of single ops: attention, routes, activations and YaRN; run by selftest.py."""

import math

import numpy as np

import q8_cache
from llama_f64 import ACTIVATIONS, attention, route
from rope import Rope, Yarn
from selftest_layers import best, context_by_loops, gelu, swiglu_oai
from selftest_models import Bench, require_close


def check_attention_by_loops(_bench: Bench) -> None:
    """A sink is a key with that score and a value of 0, and does not know scales."""
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(3, 6, 8)), rng.normal(size=(5, 2, 8)), rng.normal(size=(5, 2, 4))
    positions = np.array([2, 3, 4])
    for scale in (None, 0.1):
        for sinks in (None, rng.normal(size=6)):
            context, probs = attention(q, k, v, positions, 0, scale, sinks)
            require_close(context, context_by_loops(q, k, v, scale or 8 ** -0.5, sinks=sinks, first=2), "context")
            for t, head in np.ndindex(3, 6):
                e = np.exp([q[t, head] @ k[j, head // 3] * (scale or 8 ** -0.5) for j in range(3 + t)])
                total = e.sum() + (0 if sinks is None else np.exp(sinks[head]))
                require_close(probs[head, t, :3 + t], e / total, f"probabilities of token {t}, head {head}")
                assert (probs[head, t, 3 + t:] == 0).all(), "a future key has weight"


def check_sinks(_bench: Bench) -> None:
    """Without weight a sink is nothing; it takes weight from all keys alike."""
    rng = np.random.default_rng(71)
    q, k, v = rng.normal(size=(3, 6, 8)), rng.normal(size=(5, 2, 8)), rng.normal(size=(5, 2, 4))
    for attend, more in ((attention, ()), (q8_cache.attention, (np.arange(8),))):
        def by(sinks) -> tuple[np.ndarray, np.ndarray]:
            return attend(q, k, v, np.array([2, 3, 4]), *more, sinks=sinks)

        plain, shares = by(None)
        assert (by(np.full(6, -1e4))[0] == plain).all(), "a sink without weight"
        full, probs = by(np.full(6, 1e4))
        assert (full == 0).all() and (probs == 0).all(), "a sink that has all the weight"
        one, probs = by(rng.normal(size=6))
        require_close(one, plain * (probs.sum(axis=-1) / shares.sum(axis=-1)).T[..., None], "a sink beside keys")


def check_activations(_bench: Bench) -> None:
    x = np.linspace(-6, 6, 49)
    require_close(ACTIVATIONS["silu"](x, 1.0), x * (0.5 + 0.5 * np.tanh(x / 2)), "SiLU")
    require_close(ACTIVATIONS["gelu_tanh"](x, 1.0), gelu(x, 1.0), "GELU by tanh")
    act = ACTIVATIONS["swiglu_oai"]
    gate, up = np.array([(7.5, 1.0), (7.0, 1.0), (-30.0, 2.0), (-1e30, 2.0), (0.5, 7.5), (0.5, -7.5), (0.5, -7.0), (-2.0, -1.0),
                         (0.0, 3.0)]).T
    require_close(act(gate, up) + 1, swiglu_oai(gate, up) + 1, "SwiGLU of gpt-oss")
    odd = act(np.array([np.nan, 1.0, np.inf, np.nan]), np.array([1.0, np.nan, -np.inf, np.nan]))
    assert np.isnan(odd[[0, 1, 3]]).all() and odd[2] == act(np.array(7.0), np.array(-7.0))


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


def pair_with(turns: float, dims: int, theta: float, original: int) -> float:
    """The pair, between two, that turns so often within the original positions: by bisection."""
    low, high = -1000.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        more = original * theta ** (-2 * middle / dims) / (2 * math.pi) > turns
        low, high = (middle, high) if more else (low, middle)
    return low


def check_yarn_frequencies(_bench: Bench) -> None:
    """Qwen3's recipe, gpt-oss-20b, other turns, and models of which all or no pairs are slowed down."""
    for dims, theta, yarn, factor in ((128, 1e6, Yarn(32768), 4.0), (64, 150000.0, Yarn(4096, whole=False), 32.0),
                                      (10, 500.0, Yarn(2000, 20.0, 2.0), 3.0), (10, 500.0, Yarn(3), 3.0),
                                      (10, 500.0, Yarn(10**7, 1e6), 3.0)):
        low, high = (pair_with(turns, dims, theta, yarn.original) for turns in (yarn.beta_fast, yarn.beta_slow))
        if yarn.whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        found = Rope(dims, theta, factor, yarn).frequencies()
        for i in range(dims // 2):
            full = math.exp(-2 * i / dims * math.log(theta))
            share = float(i > low) if low == high else min(max((i - low) / (high - low), 0.0), 1.0)
            want = full / factor * share + full * (1 - share)
            assert abs(found[i] / want - 1) < 1e-9, f"pair {i} of {dims}, {yarn}: {found[i]}, need {want}"
    shares = Yarn(4096, whole=False).shares(64, 150000.0)
    assert (shares[:9] == 0).all() and (shares[18:] == 1).all() and 0 < shares[9] < shares[17] < 1
    assert (Yarn(32768).shares(128, 1e6) > 0).argmax() == 24, "the ramp of Qwen3 begins at pair 23"
