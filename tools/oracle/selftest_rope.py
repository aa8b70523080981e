"""Checks of RoPE and its scalings, run by selftest.py."""

import math

import numpy as np

from dump import ActivationDump
from from_gguf import run
from gguf_model import GgufModel
from hparams import UnsupportedModel
from rope import Rope, Yarn, rotate
from selftest_models import IDS, Bench, logits, random_weights, relative_error, require_close

YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 640}


def dumped(model: GgufModel) -> ActivationDump:
    return run(model, IDS, [len(IDS)], 0, dtype=np.float64)[0]


def check_rope_rotates(_bench: Bench) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 9, 3, 16))
    rope = Rope(10, 500.0)
    turns = rope.turns(np.arange(9))
    turned = rotate(x, turns)

    def pair_norms(a: np.ndarray) -> np.ndarray:
        return np.linalg.norm(a[..., :10].reshape(9, 3, 5, 2), axis=-1)

    require_close(pair_norms(turned), pair_norms(x), "RoPE keeps the norm of every pair")
    assert (turned[0] == x[0]).all(), "position 0 is not rotated"
    assert (turned[..., 10:] == x[..., 10:]).all(), "dims from rope_dim on pass through"
    assert np.abs(turned[1:, :, :10] - x[1:, :, :10]).min() > 0, "other dims do turn"
    # Scores depend on distances only: shift all positions by 100.
    shifted = rope.turns(np.arange(100, 109))
    near = np.einsum("thd,shd->hts", turned, rotate(y, turns))
    far = np.einsum("thd,shd->hts", rotate(x, shifted), rotate(y, shifted))
    require_close(far, near, "RoPE is relative")
    first = rotate(np.array([[[1.0, 0.0]]]), np.array([[np.exp(0.5j)]]))  # the direction of the turn
    require_close(first, np.array([[[np.cos(0.5), np.sin(0.5)]]]), "a pair turns counter-clockwise")


def check_rope_variants(bench: Bench) -> None:
    weights = random_weights(2)
    plain = logits(bench.model(weights))
    ones = logits(bench.model(weights | {"rope_freqs.weight": np.ones(8, dtype=np.float32)}))
    require_close(ones, plain, "frequency factors of one change nothing")
    fours = logits(bench.model(weights | {"rope_freqs.weight": np.full(8, 4, dtype=np.float32)}))
    linear = logits(bench.model(weights, linear=4.0))
    require_close(fours, linear, "equal frequency factors are linear scaling")
    assert relative_error(linear, plain) > 1e-3, "linear scaling changes logits"
    assert relative_error(logits(bench.model(weights, rope_dim=8)), plain) > 1e-3, "rope_dim < head_dim changes logits"


def turns_at(pair: float, dims: int, theta: float, original: int) -> float:
    """How often a pair turns within the original positions."""
    return original * theta ** (-2 * pair / dims) / (2 * math.pi)


def pair_with(turns: float, dims: int, theta: float, original: int) -> float:
    """The pair, between two, that turns so often: by bisection."""
    low, high = -1000.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if turns_at(middle, dims, theta, original) > turns else (low, middle)
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
            share = 0.0 if i <= low else 1.0 if i >= high else (i - low) / (high - low)
            if low == high:
                share = float(i > low)
            want = full / factor * share + full * (1 - share)
            assert abs(found[i] / want - 1) < 1e-9, f"pair {i} of {dims}, {yarn}: {found[i]}, need {want}"
    shares = Yarn(4096, whole=False).shares(64, 150000.0)
    assert (shares[:9] == 0).all() and (shares[18:] == 1).all() and 0 < shares[9] < shares[17] < 1
    assert (Yarn(32768).shares(128, 1e6) > 0).argmax() == 24, "the ramp of Qwen3 begins at pair 23"


def check_yarn_in_models(bench: Bench) -> None:
    """q_rope and k_rope of a file with YaRN, by complex numbers, of the architectures that round pairs and of gpt-oss."""
    for arch, whole in (("llama", True), ("qwen2", True), ("gpt-oss", False)):
        for more, times in (({}, 1.0), ({"rope.scaling.attn_factor": 0.5}, 0.5), ({"rope.scaling.factor": 0.5}, None)):
            keys = YARN | more
            dump = dumped(bench.model(random_weights(60, arch=arch), arch=arch, keys=keys))
            low, high = (16 * math.log(640 / (turns * 2 * math.pi)) / (2 * math.log(500)) for turns in (32, 1))
            if whole:
                low, high = math.floor(low), math.ceil(high)
            share = np.clip((np.arange(8) - low) / (high - low), 0, 1)
            full = 500.0 ** (-np.arange(8) / 8)
            frequency = full / keys["rope.scaling.factor"] * share + full * (1 - share)
            size = 1.0 if times is None else times * (1 + 0.1 * math.log(8.0))
            angle = np.arange(len(IDS))[:, None, None] * frequency
            for name in "qk":
                tap = dump.get(0, f"L001/{name}").reshape(len(IDS), -1, 16)
                first, second = (tap[..., ::2], tap[..., 1::2]) if arch == "llama" else (tap[..., :8], tap[..., 8:])
                turned = (first + 1j * second) * size * np.exp(1j * angle)
                parts = [turned.real, turned.imag]
                want = np.stack(parts, axis=-1) if arch == "llama" else np.concatenate(parts, axis=-1)
                require_close(dump.get(0, f"L001/{name}_rope"), want.reshape(len(IDS), -1), f"{arch} {name}_rope, {more}")


def check_yarn_of_no_layer(bench: Bench) -> None:
    """Layers without RoPE, and those of gemma3 with a window, keep their q and k as they are without YaRN."""
    weights = random_weights(61, layers=4)
    scaled, plain = (dumped(bench.model(weights, arch="smollm3", keys=keys)) for keys in (YARN, {}))
    for layer, same in ((2, False), (3, True)):
        q, turned = (scaled.get(0, f"L{layer:03d}/{tap}") for tap in ("q", "q_rope"))
        assert (q == turned).all() == same, f"layer {layer}"
    assert relative_error(scaled.get(0, "L002/q_rope"), plain.get(0, "L002/q_rope")) > 1e-3
    weights = random_weights(62, arch="gemma3")
    window = {"attention.sliding_window": 4}
    scaled, plain = (dumped(bench.model(weights, arch="gemma3", keys=window | keys)) for keys in (YARN, {}))
    require_close(scaled.get(0, "L000/q_rope"), plain.get(0, "L000/q_rope"), "a layer with a window")


def check_rope_refusals(bench: Bench) -> None:
    weights = random_weights(63)
    bench.model(weights, keys=YARN | {"rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_attn_factor": 1.0})
    without_length = {key: value for key, value in YARN.items() if "original" not in key}
    for keys in (without_length, YARN | {"rope.scaling.yarn_ext_factor": 0.5}, YARN | {"rope.scaling.yarn_log_multiplier": 0.1},
                 YARN | {"rope.scaling.yarn_attn_factor": 1.2}, {"rope.scaling.type": "longrope"}, {"rope.scaling.type": "dynamic"}):
        try:
            bench.model(weights, keys=keys)
        except UnsupportedModel:
            continue
        raise AssertionError(f"{keys} was accepted")
