"""Checks of RoPE and its scalings; run by selftest.py."""

import math

import numpy as np

from selftest_bench import CONFIG, LONG_ROPE, PHI3, YARN, Bench, tensor, value

def scaling_of(reader, arch: str = "llama") -> dict:
    """All of the GGUF's keys of it."""
    prefix = f"{arch}.rope.scaling."
    return {key.removeprefix(prefix): value(reader, key) for key in reader.fields if key.startswith(prefix)}


def check_rope(bench: Bench) -> None:
    bench.config |= {"rope_scaling": {"type": "linear", "factor": 2.5}}
    reader = bench.convert()
    assert (value(reader, "llama.rope.scaling.type"), value(reader, "llama.rope.scaling.factor")) == ("linear", 2.5)
    # Llama-3.2-1B: head_dim 64, theta 500000, factor 32 over 8192 positions.
    divisors = tensor(bench.convert(config=CONFIG | {"head_dim": 64, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}}), "rope_freqs.weight")
    for i, found in enumerate(divisors):  # as transformers' _compute_llama3_parameters has it, one by one
        wave = 2 * np.pi * 500000 ** (2 * i / 64)
        smooth = (8192 / wave - 1) / 3
        want = 1.0 if wave < 2048 else 32.0 if wave > 8192 else 1 / ((1 - smooth) / 32 + smooth)
        assert abs(found / want - 1) < 1e-6, f"pair {i}: {found}, need {want}"
    assert divisors[0] == 1 and divisors[-1] == 32 and len(set(divisors.tolist())) > 3


def check_yarn(bench: Bench) -> None:
    """Qwen's recipe. The magnitude is 0.1 ln 4 + 1 where config.json does not say another."""
    default = 0.1 * math.log(4.0) + 1
    keys = {"type": "yarn", "factor": 4.0, "original_context_length": 40}
    for more, want in (({}, {}), ({"attention_factor": default}, {}), ({"attention_factor": 2.0}, {"attn_factor": 2.0 / default}),
                       ({"beta_fast": 32, "beta_slow": 1.0, "truncate": True}, {}),
                       ({"beta_fast": 16.0, "beta_slow": 2}, {"yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0}),
                       ({"mscale": 1.0, "mscale_all_dim": 1.0}, {"attn_factor": 1 / default}), ({"mscale": 1.0}, {}),
                       ({"mscale": 0.707, "mscale_all_dim": 0.5},
                        {"attn_factor": (1 + 0.0707 * math.log(4)) / (1 + 0.05 * math.log(4)) / default})):
        for name in ("rope_parameters", "rope_scaling"):
            bench.config = CONFIG | {name: YARN | more}
            reader = bench.convert()
            found = scaling_of(reader)
            assert found.keys() == (keys | want).keys(), found
            assert all(isinstance(want_, str) or abs(found[key] / want_ - 1) < 1e-7 for key, want_ in (keys | want).items()), found
            assert value(reader, "llama.context_length") == 64
            assert abs(value(reader, "llama.rope.freq_base") - (5000 if "rope_theta" in bench.config else 10000)) < 1e-3
    assert value(bench.convert("--context", "160"), "llama.context_length") == 160
    unstated = {key: x for key, x in YARN.items() if "original" not in key}
    bench.config = CONFIG | {"rope_scaling": unstated}
    assert scaling_of(bench.convert())["original_context_length"] == 64
    bench.config = CONFIG | {"rope_scaling": YARN}
    bench.refused("--context 161: need 1 to 160, to which YaRN", options=("--context", "161"))


def check_long_rope(bench: Bench) -> None:
    """The magnitude of Phi-3-mini-128k is that of 131072 positions beside 4096."""
    reader = bench.convert(config=PHI3 | {"rope_scaling": LONG_ROPE, "partial_rotary_factor": 0.75})
    assert value(reader, "phi3.rope.dimension_count") == 6 and value(reader, "phi3.context_length") == 64
    found = scaling_of(reader, "phi3")
    assert found.keys() == {"original_context_length", "attn_factor"} and found["original_context_length"] == 16
    assert abs(found["attn_factor"] - math.sqrt(1.5)) < 1e-6  # 64 is 16^1.5
    for name in ("long", "short"):
        assert tensor(reader, f"rope_factors_{name}.weight").tolist() == LONG_ROPE[f"{name}_factor"]
    for more, want in (({"attention_factor": 1.5}, 1.5), ({"factor": 16.0}, math.sqrt(2)), ({"type": "su"}, math.sqrt(1.5)),
                       ({"type": "yarn"}, math.sqrt(1.5)), ({"factor": 1.0}, 1.0)):
        bench.config = PHI3 | {"rope_scaling": LONG_ROPE | more, "partial_rotary_factor": 0.75}
        assert abs(scaling_of(bench.convert(), "phi3")["attn_factor"] - want) < 1e-6, more
    bench.config = PHI3 | {"rope_scaling": LONG_ROPE, "partial_rotary_factor": 0.75}
    assert value(bench.convert("--context", "17"), "phi3.context_length") == 17
    bench.refused("16 positions has the short divisors", options=("--context", "16"))
