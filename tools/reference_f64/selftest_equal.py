"""Checks that models, or ways to run one, give the same; run by selftest.py."""

import gguf
import numpy as np

from contract import Arithmetic, Contract, to_f32
from gguf_model import GgufModel
from decoder import Text
from llama_f64 import LlamaF64
from selftest_layers import SCALES, YARN, best
from selftest_models import EXPERTS, IDS, USED, Bench, dumped, logits, nmse, random_weights, relative_error, require_close, taps_of

EXACT = {"embedding_scale": 4.0, "attention.scale": 0.125, "residual_scale": 0.25, "logit_scale": 8.0}  # products are exact
IN_WEIGHTS = {"token_embd": 4.0, "attn_q": 0.5, "attn_output": 0.25, "ffn_down": 0.25, "output": 0.125}  # the same, head_dim 16


def check_in_steps(bench: Bench) -> None:
    """Decode is prefill, also of weights that are not kept; with roundings, which give f32, and with a cache in q8."""
    window = {"attention.sliding_window": 3}
    for arch, keys, arithmetic, kept in (("llama", {}, Arithmetic(), None), ("qwen3moe", {}, Arithmetic(), 0),
                                         ("llama", {}, Contract("f32", "f16"), None),
                                         *(("gpt-oss", window, arithmetic, None) for arithmetic in (
                                             Arithmetic(), Contract("f32", "f32"), Contract("f32", "q8")))):
        model = bench.model(random_weights(5, arch=arch, layers=3), arch=arch, keys=keys)
        whole = dumped(model, arithmetic=arithmetic, probs=True)
        for steps in ([1] * 8, [3, 4, 1], [7, 1]):
            split = dumped(GgufModel(model.path, cache_bytes=kept), steps, arithmetic=arithmetic, probs=True)
            for layer in (0, 1, 2, None):
                for (name, found), want in zip(taps_of(split, layer, arch).items(), taps_of(whole, layer, arch).values()):
                    exact = arithmetic.name == "R0"
                    assert nmse(found, want) < (1e-24 if exact else 1e-10), f"{arch} layer {layer} {name} in steps {steps}"
                    assert exact or (want == to_f32(want)).all(), f"{name} is not f32"
    exact, coded = logits(model), logits(model, arithmetic=Contract("f32", "q8"))
    assert 1e-9 < nmse(coded, exact) < 1e-2, "the cost of a q8 cache"


def check_texts_together(bench: Bench) -> None:
    model = bench.model(random_weights(9))
    prompts = [IDS, IDS[:1], IDS[3:]]
    for one in (model, GgufModel(model.path, cache_bytes=0)):
        llama, texts = LlamaF64(one), [Text(one.hparams) for _ in prompts]
        first = llama.forward_all(list(zip(texts, prompts)), last_only=True)
        second = llama.forward_all([(text, [7]) for text in texts])
        for prompt, row, next_row in zip(prompts, first, second, strict=True):
            alone = LlamaF64(model)
            require_close(row, alone.forward(prompt)[-1], "the last row of a prompt among others")
            require_close(next_row, alone.forward([7])[-1], "a token after a prompt among others")


def check_tied(bench: Bench) -> None:
    tied = random_weights(6, tied=True)
    untied = tied | {"output.weight": tied["token_embd.weight"]}
    require_close(logits(bench.model(tied)), logits(bench.model(untied)), "tied embeddings")


def check_quantized(bench: Bench) -> None:
    for arch, kinds in (("llama", ("Q8_0", "Q4_0", "BF16")), ("qwen3moe", ("Q8_0",))):
        weights = random_weights(8, arch=arch)
        for kind in map(gguf.GGMLQuantizationType.__getitem__, kinds):
            back = {name: gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind)
                    if value.ndim > 1 and "gate_inp" not in name else value for name, value in weights.items()}
            packed = bench.model(weights, arch=arch, quantize=kind)
            require_close(logits(packed), logits(bench.model(back, arch=arch)), f"{kind.name} equals its dequantized weights")
            uncached = GgufModel(packed.path, cache_bytes=0)
            assert (logits(uncached) == logits(packed)).all(), "the weight cache changes logits"


def check_yarn_of_no_layer(bench: Bench) -> None:
    """Layers without RoPE, and those of gemma3 with a window, keep their q and k as they are without YaRN."""
    weights = random_weights(61, layers=4)
    scaled, plain = (dumped(bench.model(weights, arch="smollm3", keys=keys)) for keys in (YARN, {}))
    for layer, same in ((2, False), (3, True)):
        tap = taps_of(scaled, layer)
        assert (tap["q"] == tap["q_rope"]).all() == same, f"layer {layer}"
    assert relative_error(taps_of(scaled, 2)["q_rope"], taps_of(plain, 2)["q_rope"]) > 1e-3
    weights, window = random_weights(62, arch="gemma3"), {"attention.sliding_window": 4}
    scaled, plain = (dumped(bench.model(weights, arch="gemma3", keys=window | keys)) for keys in (YARN, {}))
    require_close(taps_of(scaled, 0)["q_rope"], taps_of(plain, 0)["q_rope"], "a layer with a window")


def check_gpt_oss_windows(bench: Bench) -> None:
    """Layers 0 and 2 slide, 1 does not, unless the file has another period or the window holds all."""
    weights, window = random_weights(72, arch="gpt-oss", layers=3), {"attention.sliding_window": 5}
    for keys, want in ((window, [5, 0, 5]), (window | {"attention.sliding_window_pattern": 3}, [5, 5, 0]), ({}, [0, 0, 0])):
        model = bench.model(weights, arch="gpt-oss", keys=keys)
        assert [model.hparams.window_of(layer) for layer in range(3)] == want


def check_gpt_oss_theta(bench: Bench) -> None:
    """Where the file gives no rope.freq_base."""
    path = bench.model(random_weights(73, arch="gpt-oss"), arch="gpt-oss").path
    path.write_bytes(path.read_bytes().replace(b"gpt-oss.rope.freq_base", b"gpt-oss.rope.freq_none"))
    assert GgufModel(path).hparams.rope.theta == 150000.0


def check_one_set_of_experts(bench: Bench) -> None:
    """A router of zeros chooses the first experts for every row, in equal parts; the others, NaN, take no part."""
    weights = random_weights(33, arch="qwen3moe")
    for name, value in weights.items():
        if "gate_inp" in name:
            value[:] = 0
        elif "_exps" in name:
            value[USED:] = np.nan
    model = bench.model(weights, arch="qwen3moe")
    for steps in (None, [1] * len(IDS)):
        for layer in range(2):
            tap = taps_of(dumped(model, steps), layer, "qwen3moe")
            require_close(tap["ffn_mix"], tap["ffn_out"].reshape(-1, USED, 64).mean(axis=1), "the mean of the first experts")
    lonely = random_weights(34, arch="qwen3moe")
    first = dumped(bench.model(lonely, arch="qwen3moe"), ids=IDS[:1])
    for layer in range(2):
        chosen = best(first.get(0, f"L{layer:03d}/router")[0], USED)
        for name in ("gate", "up", "down"):
            lonely[f"blk.{layer}.ffn_{name}_exps.weight"][[e for e in range(EXPERTS) if e not in chosen]] = np.nan
    last = dumped(bench.model(lonely, arch="qwen3moe"), ids=IDS[:1])
    assert (last.get(0, "G/logits") == first.get(0, "G/logits")).all(), "an expert that no row chose takes part"


def check_scales_in_the_weights(bench: Bench) -> None:
    weights = random_weights(41)
    llama = bench.model(weights)
    for keys in ({}, dict.fromkeys(SCALES, 0.0)):  # 0: not set
        require_close(logits(bench.model(weights, arch="granite", keys=keys)), logits(llama), f"granite with {keys}")
    factor = {name: IN_WEIGHTS.get(name.removesuffix(".weight").rpartition(".")[2], 1.0) for name in weights}
    folded = bench.model({name: value * np.float32(factor[name]) for name, value in weights.items()})
    granite = bench.model(weights, arch="granite", keys=EXACT)
    for kv in (None, "f16", "q8"):
        more = {"arithmetic": Contract("int8", kv)} if kv else {}
        a, b = logits(granite, **more), logits(folded, **more)
        require_close(a, b, f"scales in the weights, cache in {kv or 'f64'}")
        assert relative_error(a, logits(llama, **more)) > 1e-2
    unset, root = (logits(bench.model(weights, arch="granite", keys=EXACT | {"attention.scale": x})) for x in (0.0, 0.25))
    require_close(unset, root, "a scale of scores that is not set")
