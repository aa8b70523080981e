"""Checks of the emulated contract (contract.py), run by selftest.py: the quantizer and the roundings against exact fractions,
and what they do to a model."""

import argparse
import functools
import math
from fractions import Fraction

import gguf
import numpy as np

import q8_cache
from contract import Contract, dequantize, quantize, to_f16, to_f32
from from_gguf import cache_type, choose_arithmetic, random_ids
from gguf_model import GgufModel
from hparams import UnsupportedModel
from llama_f64 import attention, route, silu
from rope import Rope, rotate
from selftest_layers import SCALES
from selftest_models import IDS, USED, VOCAB, Bench, dumped, logits, nmse, random_weights, taps_of

F32_MAX = Fraction(2**24 - 1) * 2**104


def rounded(x: Fraction, bits: int, least: int, largest: Fraction) -> float:
    """x to the nearest multiple of 2^e, ties to even, with e such that the result has `bits` binary digits, but at least
    `least`; Inf beyond `largest`."""
    if x == 0:
        return 0.0
    quantum = Fraction(2) ** max(math.frexp(float(abs(x)))[1] - bits, least)
    if abs(x) / quantum >= 2**bits:  # float() rounded up to a power of two or frexp saw less
        quantum *= 2
    value = round(x / quantum) * quantum  # Python rounds fractions half to even
    return math.copysign(math.inf, x) if abs(value) > largest else float(value)


def f32(x: Fraction) -> float:
    return rounded(x, 24, -149, F32_MAX)


@functools.cache
def plain_quantize(block: tuple[float, ...]) -> tuple[list[int], float]:
    """The contract's rule in exact fractions, each operation of f32 rounded once."""
    magnitudes = [abs(x) for x in block]
    if any(math.isnan(x) for x in magnitudes):
        return [0] * len(block), math.nan
    amax = max(magnitudes)
    if math.isinf(amax):
        return [0] * len(block), math.inf
    inverse = math.inf if amax == 0 else f32(127 / Fraction(amax))
    if math.isinf(inverse):
        return [0] * len(block), 0.0
    codes = [round(Fraction(f32(Fraction(x) * Fraction(inverse)))) for x in block]
    return codes, f32(Fraction(amax) / 127)


def edge_blocks(n: int) -> np.ndarray:
    """Blocks of n activations, f32 [blocks, n]: of every size, with ties and almost ties, zeros, denormals, on both sides
    of where 127 / amax overflows, the largest number, and at the end ten blocks with NaN or Inf."""
    rng = np.random.default_rng(20)
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    edge = np.float32(127) / np.finfo(np.float32).max  # 127 / amax overflows just below
    halves = np.arange(n - 1) % 63 + 0.5

    def ended(values: np.ndarray, amax: float) -> np.ndarray:
        return np.append(values, amax)

    blocks = [rng.normal(size=n) * 10.0 ** rng.uniform(-40, 37) for _ in range(300)]
    blocks += [ended(halves, -127), ended(-halves, 127), ended(halves / 64, 127 / 64)]
    for amax in rng.uniform(1, 1000, 50).astype(np.float32):  # so close to ties that the roundings of f32 decide
        blocks += [ended(halves * amax / 127, amax), ended(halves * -amax / 127, amax)]
    blocks += [ended(rng.normal(size=n - 1), amax) for amax in (1e3, 1e30, -1e30, np.finfo(np.float32).max)]
    blocks += [np.zeros(n), -np.zeros(n), np.full(n, 1e-45), ended(np.zeros(n - 1), -1e-45), np.full(n, 1e-38)]
    for amax in (np.nextafter(edge, np.float32(0)), edge, np.nextafter(edge, inf), np.float32(4e-37)):
        blocks += [ended(rng.uniform(-1, 1, n - 1) * amax, -amax)]
    for bad in (nan, -nan, inf, -inf):
        blocks += [ended(rng.normal(size=n - 1), bad), ended(np.zeros(n - 1), bad)]
    blocks += [np.append(rng.normal(size=n - 2), pair) for pair in ([inf, nan], [nan, -inf])]
    return np.array(blocks, dtype=np.float32)


def check_contract_quantizer(_bench: Bench) -> None:
    for n in (32, 256):
        x = edge_blocks(n)
        codes, scale = quantize(x.reshape(3, -1), n)  # several blocks a row
        assert codes.dtype == np.int8 and scale.dtype == np.float32 and codes.shape == (3, len(x) // 3, n)
        codes, scale = codes.reshape(-1, n), scale.reshape(-1)
        for i, block in enumerate(map(tuple, x.tolist())):
            want, want_scale = plain_quantize(block)
            assert codes[i].tolist() == want, f"block {i} of {n}: codes {codes[i].tolist()}, expected {want}"
            same = math.isnan(want_scale) if np.isnan(scale[i]) else float(scale[i]) == want_scale
            assert same, f"block {i} of {n}: scale {scale[i]!r}, expected {want_scale!r}"
        assert (codes[300:303, :-1] % 2 == 0).all(), "a tie went to an odd code"
        assert np.isnan(dequantize(codes[-10:, None], scale[-10:, None])).all(), "a block with NaN or Inf became finite"
        assert np.isfinite(scale[:-10]).all()


def check_contract_f16(_bench: Bench) -> None:
    def value(code: int) -> float:  # of a positive binary16 code; 0x7C00 would be 2^16
        exponent, fraction = divmod(code, 1024)
        return math.ldexp(fraction, -24) if exponent == 0 else math.ldexp(1024 + fraction, exponent - 25)

    values = np.array([value(code) for code in range(0x7C01)])
    middle = (values[:-1] + values[1:]) / 2  # exact, and an f32
    down, up = np.nextafter(middle, 0, dtype=np.float32), np.nextafter(middle, np.inf, dtype=np.float32)
    even = np.arange(0x7C00) % 2 == 0
    values[-1] = np.inf  # from halfway to 2^16 on
    for sign in (1, -1):
        assert (to_f16(sign * values) == sign * values).all(), "an f16 changed"
        assert (to_f16(sign * middle) == sign * np.where(even, values[:-1], values[1:])).all(), "a tie is not even"
        assert (to_f16(sign * down.astype(np.float64)) == sign * values[:-1]).all(), "below a tie"
        assert (to_f16(sign * up.astype(np.float64)) == sign * values[1:]).all(), "above a tie"
    assert np.isnan(to_f16(np.array([np.nan])))[0] and np.signbit(to_f16(np.array([-1e-30])))[0]


def check_contract_f32(_bench: Bench) -> None:
    rng = np.random.default_rng(21)
    x = rng.normal(size=2000) * 10.0 ** rng.uniform(-50, 38, 2000)
    floats = x.astype(np.float32).astype(np.float64)
    neighbours = np.nextafter(floats.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    ties = (floats + neighbours) / 2
    for numbers in (x, ties[np.isfinite(ties)], np.array([3.4028235677973366e38, 3.4028235677973362e38, 7e-46, 0.0])):
        assert to_f32(numbers).tolist() == [f32(Fraction(v)) for v in numbers.tolist()]


def f32_taps(model: GgufModel, kv: str, arch: str) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """The taps outside of the layers, and of two layers, under the contract; each is f32."""
    dump = dumped(model, arithmetic=Contract("int8", kv))
    outside, *layers = (taps_of(dump, layer, arch) for layer in (None, 0, 1))
    for name, value in [pair for taps in (outside, *layers) for pair in taps.items()]:
        assert (value == to_f32(value)).all(), f"{name} is not f32"
    return outside, layers


def check_contract_flow(bench: Bench) -> None:
    """Ops see the f32 values, and what a call cached is what the next one reads."""
    model = bench.model(random_weights(22), quantize=gguf.GGMLQuantizationType.Q8_0)
    for i, tap in enumerate(f32_taps(model, "f16", "llama")[1]):
        assert (tap["l_out"] == to_f32(tap["ffn_inp"] + tap["ffn_out"])).all(), "the sum saw other values"
        want = dequantize(*quantize(tap["ffn_act"], 32)) @ model.weight(f"blk.{i}.ffn_down.weight").T
        assert nmse(tap["ffn_out"], want) < 1e-14, "the product saw other codes"
        turns = Rope(16, 500.0).turns(np.arange(8))
        for name in "qk":
            turned = rotate(tap[name].reshape(8, -1, 16), turns).reshape(8, -1)
            assert (tap[f"{name}_rope"] == to_f32(turned)).all(), "RoPE saw other values"
        assert (tap["ffn_act"] == to_f32(silu(tap["gate"]) * tap["up"])).all(), "SwiGLU saw other values"
        q, k, v = (tap[name].reshape(8, -1, 16) for name in ("q_rope", "k_rope", "v"))
        context, _ = attention(q, k.astype(np.float16).astype(float), v.astype(np.float16).astype(float), range(8))
        assert nmse(tap["attn_ctx"], context.reshape(8, -1)) < 1e-14, "attention saw other keys or values"


def check_contract_mixture(bench: Bench) -> None:
    """Each product sees codes of its own row; the router, in F32, none."""
    weights = random_weights(36, arch="qwen3moe")
    model = bench.model(weights, arch="qwen3moe", quantize=gguf.GGMLQuantizationType.Q8_0)
    for i, tap in enumerate(f32_taps(model, "f16", "qwen3moe")[1]):
        assert nmse(tap["router"], tap["ffn_norm"] @ weights[f"blk.{i}.ffn_gate_inp.weight"].T.astype(np.float64)) < 1e-13
        chosen, shares = route(tap["router"], USED)
        acts = dequantize(*quantize(tap["ffn_act"].reshape(-1, USED, 96), 32))
        gates, downs = (model.weight(f"blk.{i}.ffn_{name}_exps.weight")[chosen] for name in ("gate", "down"))
        for name, want in (("gate", np.einsum("ti,teoi->teo", dequantize(*quantize(tap["ffn_norm"], 32)), gates)),
                           ("ffn_out", np.einsum("tei,teoi->teo", acts, downs)),
                           ("ffn_mix", np.einsum("te,ted->td", shares, tap["ffn_out"].reshape(-1, USED, 64)))):
            assert nmse(tap[name], want.reshape(len(IDS), -1)) < 1e-14, f"{name} saw other values"
        assert (tap["l_out"] == to_f32(tap["ffn_inp"] + tap["ffn_mix"])).all()


def check_contract_scales(bench: Bench) -> None:
    """What a scale is applied to, and what it gives, is f32."""
    weights, scale = random_weights(42), {key: float(np.float32(value)) for key, value in SCALES.items()}
    outside, layers = f32_taps(bench.model(weights, arch="granite", keys=SCALES), "f32", "granite")
    x = outside["embd"]
    assert (x == to_f32(weights["token_embd.weight"][IDS].astype(np.float64) * scale["embedding_scale"])).all(), "embd"
    for i, tap in enumerate(layers):
        for name, before, value in (("ffn_inp", x, tap["attn_out"]), ("l_out", tap["ffn_inp"], tap["ffn_out"])):
            product = value * scale["residual_scale"]
            assert (tap[name] == to_f32(before + to_f32(product))).all(), f"layer {i} {name}"
            assert (tap[name] != to_f32(before + product)).any(), "one rounding would give the same"
        x = tap["l_out"]
    product = outside["result_norm"] @ weights["output.weight"].T.astype(np.float64)
    found, want = outside["logits"], to_f32(to_f32(product) / scale["logit_scale"])
    assert (found == want).all() and (want != to_f32(product / scale["logit_scale"])).any(), "logits"


def check_contract_drift(bench: Bench) -> None:
    """How far each rounding takes a model from f64."""
    weights = random_weights(23)
    floats = bench.model(weights, quantize=gguf.GGMLQuantizationType.F16)
    packed = bench.model(weights, quantize=gguf.GGMLQuantizationType.Q8_0)
    x = np.linspace(-1, 1, 64)
    assert all(Contract().operand(x, kind) is x for kind in ("F32", "F16", "BF16")), "floats took codes"
    exact = logits(floats)
    assert nmse(logits(floats, arithmetic=Contract("int8", "f32")), exact) < 1e-12, "F16 weights"
    assert 1e-9 < nmse(logits(floats, arithmetic=Contract("int8", "f16")), exact) < 1e-6, "the cost of an f16 cache"
    assert 1e-7 < nmse(logits(floats, arithmetic=Contract("int8", "q8")), exact) < 1e-3, "the cost of a q8 cache"
    exact = logits(packed)
    assert nmse(logits(packed, arithmetic=Contract("f32", "f32")), exact) < 1e-12, "f32 took codes"
    assert 1e-6 < nmse(logits(packed, arithmetic=Contract("int8", "f32")), exact) < 1e-3, "the cost of int8 codes"

    # A product's error: every code is off by up to half a step, so by d^2 / 12 in the mean square.
    for block, kind in ((32, "Q8_0"), (256, "Q4_K")):
        rng = np.random.default_rng(24)
        x, w = rng.normal(size=(50, 512)).astype(np.float32), rng.normal(size=(64, 512))
        _, scale = quantize(x, block)
        error = (Contract().operand(x.astype(np.float64), kind) - x) @ w.T
        predicted = (np.repeat(scale.astype(np.float64), block, axis=1) ** 2 / 12) @ (w.T ** 2)
        assert 0.9 < np.mean(error ** 2 / predicted) < 1.1, f"{kind}: the error is not that of blocks of {block}"


def plain_q8(q: list[float], keys: list[list[float]], values: list[list[float]]) -> list[float]:
    """One head of one token by docs/numerics.md, "Keys and values in q8": loops, exact fractions, f64 between roundings."""
    width = len(q)

    def coded(x: list[float]) -> list[tuple[list[int], float]]:
        return [plain_quantize(tuple(x[begin:begin + 32])) for begin in range(0, width, 32)]

    def score(key: list[float]) -> float:
        pairs = zip(coded(q), coded(key))
        return float(sum(sum(a * b for a, b in zip(x, y)) * Fraction(dx) * Fraction(dy)
                         for (x, dx), (y, dy) in pairs)) / math.sqrt(width)

    scores, stored = [score(key) for key in keys], [coded(value) for value in values]
    total, out = 0.0, [0.0] * width
    for begin in range(0, len(keys), 256):
        chunk = range(begin, min(begin + 256, len(keys)))
        top = max(scores[j] for j in chunk)
        e = {j: math.exp(scores[j] - top) for j in chunk}
        share = math.exp(top - max(scores))
        total += share * sum(e.values())
        for g in range(len(stored[0])):
            largest = max(stored[j][g][1] for j in chunk)
            inverse = f32(Fraction(32767) / Fraction(largest))
            p = {j: round(Fraction(e[j]) * Fraction(f32(Fraction(stored[j][g][1]) * Fraction(inverse)))) for j in chunk}
            step = f32(Fraction(largest) / 32767)
            for i in range(len(stored[0][g][0])):
                out[32 * g + i] += share * step * sum(p[j] * stored[j][g][0][i] for j in chunk)
    return [x / total for x in out]


def check_contract_q8(_bench: Bench) -> None:
    rng = np.random.default_rng(27)
    width, n = 40, 300  # a short group, a second chunk
    positions = [0, 5, 255, 256, 299]
    q = to_f32(3 * rng.normal(size=(len(positions), 4, width)))
    k = to_f32(rng.normal(size=(n, 2, width)))
    v = to_f32(rng.normal(size=(n, 2, width)) * 10.0 ** rng.uniform(-2, 1, (n, 2, 1)))
    plain = q8_cache.packed_order(width, width, "interleaved")
    context, probs = q8_cache.attention(q, k, v, positions, plain)
    for t, position in enumerate(positions):
        for head in range(4):
            seen = slice(0, position + 1)
            want = plain_q8(q[t, head].tolist(), k[seen, head // 2].tolist(), v[seen, head // 2].tolist())
            assert nmse(context[t, head], np.array(want)) < 1e-24, f"token {t}, head {head}"
    exact, exact_probs = attention(q, k, v, positions)
    assert nmse(probs, exact_probs) < 1e-2 and 1e-5 < nmse(context, exact) < 1e-2, "the cost of q8"
    # Groups are those of the packed order: a head in halves, its pairs made neighbours, gives the same.
    halves = np.argsort(q8_cache.packed_order(width, width - 8, "half"))
    again, _ = q8_cache.attention(q[..., halves], k[..., halves], v, positions,
                                  q8_cache.packed_order(width, width - 8, "half"))
    assert (again == context).all(), "groups of a head in halves"
    for bad, sees in ((np.inf, [0, 1]), (np.nan, [0, 1])):  # key 7 is seen by all tokens but the first two
        spoiled = v.copy()
        spoiled[7, 1, 3] = bad
        context, _ = q8_cache.attention(q, k, spoiled, positions, plain)
        assert np.isnan(context[2:, 2:, :32]).all() and np.isfinite(context[2:, 2:, 32:]).all()
        assert np.isfinite(context[sees]).all() and np.isfinite(context[:, :2]).all()


def check_contract_nonfinite(_bench: Bench) -> None:
    rng = np.random.default_rng(25)
    q, k, v = (rng.normal(size=(4, 2, 8)) for _ in range(3))
    want, _ = attention(q[:3], k[:3], v[:3], range(3))
    v[3, 0, 0] = np.inf  # as an f16 cache makes of 70,000
    with np.errstate(invalid="ignore"):
        context, _ = attention(q, k, v, range(4))
    assert nmse(context[:3], want) < 1e-28, "a key that is not seen yet took part"
    assert np.isinf(context[3, 0, 0])


def check_contract_refusals(bench: Bench) -> None:
    assert cache_type("q8") == "q8"
    try:
        cache_type("q4")
    except argparse.ArgumentTypeError as error:
        assert "docs/numerics.md" in str(error)
    else:
        raise AssertionError("--kv q4 was accepted")
    weights = random_weights(26)
    foreign = bench.model(weights | {"blk.0.ffn_up.weight": weights["blk.0.ffn_up.weight"].astype(np.float64)})  # type F64
    assert choose_arithmetic(foreign, "f64", None).name == "R0"
    for model, compute, kv in ((foreign, "int8", "f16"), (bench.model(weights), "f64", "f16")):
        try:
            choose_arithmetic(model, compute, kv)
        except (UnsupportedModel, ValueError):
            continue
        raise AssertionError(f"--compute {compute} --kv {kv} was accepted")
    ids = random_ids(600, 7, VOCAB)
    assert ids == random_ids(600, 7, VOCAB) != random_ids(600, 8, VOCAB)
    assert min(ids) == 0 and max(ids) == VOCAB - 1 and len(set(ids)) == VOCAB
