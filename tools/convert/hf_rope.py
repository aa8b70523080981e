"""RoPE of a config.json, and how a GGUF says it.

Facts: transformers' modeling_rope_utils; keys of the GGUF specification (ggml's docs/gguf.md) and of llama.cpp.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from hf_checkpoint import ConversionError
from hf_family import Family

# By type the numbers that it needs.
SCALINGS = {"default": (), "linear": ("factor",), "yarn": ("factor", "original_max_position_embeddings"),
            "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
            "longrope": ("original_max_position_embeddings",)}


@dataclass(frozen=True)
class Rope:
    """Of layers without a window, where these have another."""

    theta: float
    dims: int  # leading ones of a head, which are rotated
    positions: int = 0  # to which it stretches those of config.json
    keys: dict[str, str | int | float] = field(default_factory=dict)  # of the GGUF, after rope.scaling.
    tensors: dict[str, np.ndarray] = field(default_factory=dict)  # of the GGUF


def number_of(config: dict, key: str, kind: str) -> float:
    value = config.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConversionError(f"config.json: RoPE scaling {kind!r} needs a number {key}, above 0; found {value!r}")
    return value


def rope_config(config: dict, family: Family) -> dict:
    """rope_parameters of transformers 5, or rope_theta and rope_scaling before, with what stands outside of them."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if family.long_rope and kind in ("su", "yarn"):  # older names
        kind = "longrope"
    allowed = [name for name in SCALINGS if name != "longrope" or family.long_rope]
    if kind not in allowed:
        raise ConversionError(f"config.json: RoPE scaling {kind!r} is not computed by the engine; need one of "
                              f"{', '.join(allowed)}")
    key = "original_max_position_embeddings"
    stated = {}
    if kind in ("yarn", "longrope"):
        stated[key] = config.get(key) or rope.get(key) or (config.get("max_position_embeddings") if kind == "yarn" else None)
    return {"partial_rotary_factor": config.get("partial_rotary_factor"), "rope_theta": config.get("rope_theta"),
            **rope, **stated, "rope_type": kind}


def rope_of(config: dict, family: Family, head_dim: int) -> Rope:
    rope = rope_config(config, family)
    kind, part = rope["rope_type"], rope["partial_rotary_factor"]
    part = 1.0 if part is None else part
    dims = int(head_dim * part)
    if part != 1.0 and not family.partial_rope:
        raise ConversionError(f"config.json: partial_rotary_factor is {part}: RoPE on part of a head is not converted for this "
                              "architecture")
    if dims % 2 or not 0 < dims <= head_dim:
        raise ConversionError(f"config.json: partial_rotary_factor is {part}; need one that gives an even number of {head_dim} dims")
    for key in SCALINGS[kind]:
        number_of(rope, key, kind)
    theta = float(rope["rope_theta"] or 10000.0)
    if kind == "linear":
        return Rope(theta, dims, keys={"type": "linear", "factor": float(rope["factor"])})
    if kind == "yarn":
        return yarn(rope, theta, dims, family)
    if kind == "longrope":
        return long_rope(rope, theta, dims, config["max_position_embeddings"])
    return Rope(theta, dims, tensors={"rope_freqs.weight": llama3_divisors(rope, theta, dims)} if kind == "llama3" else {})


def llama3_divisors(rope: dict, theta: float, dims: int) -> np.ndarray:
    """What divides the frequency of each pair under Llama 3's scaling: those that turn
    more than high_freq_factor times within the original context stay, those that turn less than low_freq_factor times are
    divided by factor, and between the two the frequency is interpolated in the number of turns."""
    frequency = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / (kept + (1.0 - kept) / rope["factor"])).astype(np.float32)


def yarn(rope: dict, theta: float, dims: int, family: Family) -> Rope:
    """Its keys. A GGUF without rope.scaling.attn_factor means the default magnitude, and with it so many times that."""
    factor, original = float(rope["factor"]), rope["original_max_position_embeddings"]
    if bool(rope.get("truncate", True)) != family.whole_yarn:
        raise ConversionError(f"config.json: truncate of YaRN is {rope.get('truncate', True)}, which is not converted; need "
                              f"{family.whole_yarn}")

    def size(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    magnitude = rope.get("attention_factor")
    if magnitude is None and rope.get("mscale") and rope.get("mscale_all_dim"):
        magnitude = size(rope["mscale"]) / size(rope["mscale_all_dim"])
    keys = {"type": "yarn", "factor": factor, "original_context_length": int(original)}
    if magnitude is not None and magnitude != size(1.0):
        keys["attn_factor"] = number_of({"attention_factor": magnitude}, "attention_factor", "yarn") / size(1.0)
    for key, default in (("beta_fast", 32.0), ("beta_slow", 1.0)):
        if (rope.get(key) or default) != default:
            keys[f"yarn_{key}"] = float(number_of(rope, key, "yarn"))
    return Rope(theta, dims, int(factor * original), keys)


def long_rope(rope: dict, theta: float, dims: int, positions: int) -> Rope:
    """Its divisors for long and for short texts, and the magnitude."""
    original, tensors = rope["original_max_position_embeddings"], {}
    for name in ("long", "short"):
        divisors = rope.get(f"{name}_factor")
        if not isinstance(divisors, list) or len(divisors) != dims // 2 or not all(
                isinstance(x, (int, float)) and 0 < x < math.inf for x in divisors):
            raise ConversionError(f"config.json: {name}_factor of RoPE is no list of {dims // 2} numbers above 0")
        tensors[f"rope_factors_{name}.weight"] = np.array(divisors, np.float32)
    factor, magnitude = rope.get("factor") or positions / original, rope.get("attention_factor")
    if magnitude is None:
        magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return Rope(theta, dims, keys={"original_context_length": int(original), "attn_factor": float(magnitude)}, tensors=tensors)


def window_theta_of(config: dict, family: Family) -> float | None:
    """RoPE's theta in layers with a window, where the architecture has another there."""
    if family.window_theta is None:
        return None
    rope = (config.get("rope_parameters") or {}).get("sliding_attention", {})
    if rope.get("rope_type", "default") != "default":
        raise ConversionError("config.json: RoPE of sliding_attention is scaled, which is not converted")
    return float(rope.get("rope_theta") or config.get("rope_local_base_freq") or family.window_theta)
