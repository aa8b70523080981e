"""Checks of RoPE and its scalings; run by selftest.py."""

import math

from selftest_bench import CONFIG, LONG_ROPE, PHI3, YARN, Bench, value


def scaling_of(reader, arch: str = "llama") -> dict:
    """All of the GGUF's keys of it."""
    prefix = f"{arch}.rope.scaling."
    return {key.removeprefix(prefix): value(reader, key) for key in reader.fields if key.startswith(prefix)}


def check_linear(bench: Bench) -> None:
    bench.config |= {"rope_scaling": {"type": "linear", "factor": 2.5}}
    reader = bench.convert()
    assert (value(reader, "llama.rope.scaling.type"), value(reader, "llama.rope.scaling.factor")) == ("linear", 2.5)


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
    for more, want in (({}, math.sqrt(1.5)), ({"attention_factor": 1.5}, 1.5), ({"factor": 16.0}, math.sqrt(2)),  # 64 is 16^1.5
                       ({"type": "su"}, math.sqrt(1.5)), ({"type": "yarn"}, math.sqrt(1.5)), ({"factor": 1.0}, 1.0)):
        bench.config = PHI3 | {"rope_scaling": LONG_ROPE | more, "partial_rotary_factor": 0.75}
        assert abs(scaling_of(bench.convert(), "phi3")["attn_factor"] - want) < 1e-6, more
    bench.config = PHI3 | {"rope_scaling": LONG_ROPE, "partial_rotary_factor": 0.75}
    assert value(bench.convert("--context", "17"), "phi3.context_length") == 17
    bench.refused("16 positions has the short divisors", options=("--context", "16"))
