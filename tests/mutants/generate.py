#!/usr/bin/env python3
"""Generates mutants: faults of every class, over weight types, instruction sets, shapes and checks.

    tests/mutants/generate.py --list [--class C]

A mutant is an item (or several) of LLM_MUTANT for the fault points of faults.toml, with the file to look at and what a
check that names it must say. The list is the same in every run. Standard library only.
"""

import argparse
import random
import re
from dataclasses import dataclass

CLASSES = {
    "a": "position beyond a chunk, a page, a batch",
    "b": "number of tokens modulo a tile",
    "c": "rows or columns modulo 16, 32, 256",
    "d": "one instruction set",
    "e": "one type's last sub-block",
    "f": "one number of threads, a share, a missing barrier",
    "g": "extreme values",
    "h": "one compute mode or cache type",
    "i": "tensors of equal shape exchanged",
    "j": "definition and engine wrong alike",
    "k": "text: tokenizer, sampler, context shift",
}
TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32", "IQ4_XS")
FLOATS = ("F16", "BF16", "F32")
MINS = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")  # with an offset term
# With the flag that /proc/cpuinfo has for what each needs beyond the one before.
ISAS = {"scalar": "", "avx2": "avx2", "avx512": "avx512f", "avx512vnni": "avx512_vnni", "avxvnni": "avx_vnni", "amx": "amx_int8"}
INHERITING = ("amx",)  # has products of these types, and all else from AVX-512 VNNI
TILED = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
LAYERS = 4  # of the embedded model

# What names look like: a kernel's check, a path of --self, an op of --layer-diff.
MATRIX_OPS = r"(q|k|v|attn_out|gate|up|ffn_out)"
PATH = r"(int8|f32)"


@dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    id: str  # what LLM_MUTANT is set to
    kind: str  # its class
    file: str  # kind of model (bench.py)
    names: str  # regular expression: what some name in the report must match to have named it
    long: bool = False  # needs a long reference


def missing_isa(mutant: Mutant, flags: set[str]) -> str:
    """The instruction set that the mutant strikes and a CPU with these flags lacks, or nothing."""
    found = re.search(r":isa=(\w+)", mutant.id)
    return found[1] if found and ISAS[found[1]] and ISAS[found[1]] not in flags else ""


def pure(kind: str) -> str:
    """The file all of whose matrices have this type."""
    return kind if kind == "F16" else f"{kind}-pure"


def names_matmul(kind: str, isa: str = "") -> str:
    paths = rf"{PATH}, {isa}: .*" if isa else rf"{PATH}, \w+: (matrices .*|\d+ threads?)"
    return rf"kernel matmul, {kind}|{paths}|.*\b(L\d+/{MATRIX_OPS}|G/logits)\b.*"


def names_op(kernel: str, taps: str, isa: str = "") -> str:
    paths = rf"|{PATH}, {isa}: .*" if isa else ""
    return rf"kernel {kernel}(\W.*)?|.*\b(L\d+|G)/({taps})\b.*{paths}"


def item(site: str, **conditions: object) -> str:
    """An item of LLM_MUTANT; a string that starts with an operator is a condition with that operator."""
    parts = [site]
    for key, value in conditions.items():
        text = str(value)
        parts.append(f"{key}{text}" if re.match(r"[<>%]", text) else f"{key}={text}")
    return ":".join(parts)


def products() -> list[Mutant]:
    """Faults of the matrix product, of each weight type."""
    out = []

    def add(kind: str, file: str, isa: str = "", **conditions: object) -> None:
        where = {"side": "kernel", **({"isa": isa} if isa else {})}
        out.append(Mutant(item("matmul", **where, **conditions), kind, file if file == "WIDE" else pure(file),
                          names_matmul(conditions.get("type", r"\w+"), isa)))

    small = ("last_code", "ulp", "sub_block_sign", "block_scale", "row_before", "sub_block")
    tiles = ({"token": "%8=7"}, {"tokens": "%8=5", "tokens_after": 0}, {"tokens": "%2=1", "tokens_after": 0}, {"token": "%16=15"})
    rows = ({"row": "%16=15"}, {"rows_after": 0}, {"panel_rows": "<16", "rows_after": 0}, {"panels_after": 0}, {"row": "%256=255"},
            {"panel": ">15"})
    for i, kind in enumerate(TYPES):
        add("e", kind, type=kind, effect="sub_block_sign", tokens=1)
        add("e", kind, type=kind, effect="sub_block", tokens=">1", row="%16=3")
        if kind in MINS:
            add("e", kind, type=kind, effect="min")
        for j, isa in enumerate(isa for isa in ISAS if isa not in INHERITING or kind in TILED):
            add("d", kind, isa, type=kind, effect=small[(i + j) % len(small)])
        add("b", kind, type=kind, effect="ulp", **tiles[i % len(tiles)])
        add("b", kind, type=kind, effect="last_code", **tiles[(i + 1) % len(tiles)])
        add("c", kind, type=kind, effect="ulp", **rows[i % len(rows)])
        add("c", kind, type=kind, effect="block_scale", **rows[(i + 2) % len(rows)])
        if kind not in FLOATS:
            add("h", kind, type=kind, path="dequantized", effect=("ulp", "last_code", "sub_block_sign")[i % 3], row="%16=7")
        out.append(Mutant(item("matmul", type=kind, effect=("sub_block", "block_scale", "sub_block_sign")[i % 3]), "j", pure(kind),
                          names_matmul(kind)))
    for kind in ("Q4_0", "Q4_K", "Q6_K", "F16"):
        add("a", kind, type=kind, effect="last_code", token=">319")
    add("a", "Q8_0", type="Q8_0", effect="ulp", token=">255")
    for effect in ("stale", "ulp"):
        add("c", "WIDE", type="Q4_0", effect=effect, panels=">1500", rows_after=0)
        add("f", "WIDE", type="Q4_0", effect=effect, panels=">1500", share_begin=">0", panels_after=0)
    for kind in ("Q4_K", "F16"):
        add("h", kind, type=kind, effect="stale", add=1, row="%32=31")
    return out


def rows_of_values() -> list[Mutant]:
    """Faults of norms, RoPE, SiLU, exp, f16 and the quantizers of activations."""
    out = []

    def add(kind: str, file: str, names: str, site: str, **conditions: object) -> None:
        out.append(Mutant(item(site, **conditions), kind, file, names))

    kernel = {"side": "kernel"}
    silu = names_op("silu_mul", "ffn_act|ffn_out")
    for limit, effect in ((">80", "zero"), (">30", "ulp"), ("<-8", "zero"), ("<-30", "zero"), ("<-30", "identity"), ("<-80", "ulp")):
        add("g", "EXTREME", silu, "silu_mul", **kernel, x=limit, effect=effect)
        if effect != "ulp":
            add("j", "EXTREME", silu, "silu_mul", x=limit, effect=effect)
    for isa in (isa for isa in ISAS if isa not in INHERITING):
        add("d", "Q4_K-pure", names_op("silu_mul", "ffn_act", isa), "silu_mul", **kernel, isa=isa, after=0, effect="ulp")
        add("d", "Q5_K-pure", names_op("rms_norm", "attn_norm|ffn_norm|result_norm", isa), "rms_norm", **kernel, isa=isa, effect="ulp")
        add("d", "F16", names_op("rope", "q_rope|k_rope", isa), "rope", **kernel, isa=isa, pairs_after=0, effect="ulp")
        add("d", "F16", names_op("to_half", "attn_ctx", isa), "to_half", **kernel, isa=isa, x="<0.0001", effect="truncate")
        add("d", "F16", names_op("attend", "attn_ctx", isa), "attend", **kernel, isa=isa, position="%16=15", effect="sum_ulp")
        add("d", "F16", names_op("merge", "attn_ctx", isa), "merge", **kernel, isa=isa, rising=1, effect="max")
        add("d", "F16", names_op("finish", "attn_ctx", isa), "finish", **kernel, isa=isa, effect="reciprocal")
        add("d", "Q6_K-pure", names_op("quantize_q8k", MATRIX_OPS, isa), "quantize", **kernel, isa=isa, format="Q8_K", blocks_after=0,
            effect="last_code")
        add("d", "Q5_1", names_op("quantize_q8x32", MATRIX_OPS, isa), "quantize", **kernel, isa=isa, format="Q8_32", blocks_after=0,
            effect="scale_ulp")
    exp = names_op("(silu_mul|attend|merge)", "ffn_act|attn_ctx")
    for limit, effect in (("<-30", "zero"), ("<-80", "zero"), (">80", "zero"), ("<-87.4", "ulp")):
        add("g", "EXTREME", exp, "exp", **kernel, x=limit, effect=effect)
        if effect == "zero":
            add("j", "EXTREME", exp, "exp", x=limit, effect=effect)
    for effect in ("amax128", "truncate", "clip126", "scale_f16", "zero", "sum"):
        for form, file, entry in (("Q8_K", "Q4_K-pure", "quantize_q8k"), ("Q8_32", "Q4_1", "quantize_q8x32")):
            limit = {"amax": "<0.01"} if effect == "zero" else {"blocks_after": 0} if effect in ("sum", "scale_f16") else {}
            names = names_op(entry, f"{MATRIX_OPS}|logits")
            add("g" if limit.get("amax") else "c", file, names, "quantize", **kernel, format=form, effect=effect, **limit)
            if effect != "sum":
                both = {"amax": limit["amax"]} if "amax" in limit else {}
                add("j", file, names, "quantize", format=form, effect=effect, **both)
    norm = names_op("rms_norm", "attn_norm|ffn_norm|result_norm")
    add("c", "F16", norm, "rms_norm", **kernel, n="%256=0", effect="last_weight")
    add("c", "F16", norm, "rms_norm", **kernel, n="%16=1", effect="ulp")
    add("c", "F16", norm, "rms_norm", **kernel, effect="count")
    for effect in ("eps", "no_eps"):
        add("g", "EXTREME", norm, "rms_norm", **kernel, mean_square="<0.0001", effect=effect)
        add("j", "EXTREME", norm, "rms_norm", mean_square="<0.0001", effect=effect)
        add("j", "F16", norm, "rms_norm", effect=effect)
    rope = names_op("rope", "q_rope|k_rope|q|k")
    for effect in ("unrotated", "sin_sign"):
        add("c", "F16", rope, "rope", **kernel, pairs_after=0, effect=effect)
        add("j", "F16", rope, "rope", pairs_after=0, effect=effect)
        add("j", "F16", rope, "rope", head=3, pair=0, effect=effect)
    add("c", "F16", rope, "rope", **kernel, begin="%16=8", effect="unrotated")
    half = names_op("to_half", "attn_ctx|k_rope|v")
    for effect in ("truncate", "half_away", "flush", "saturate"):
        add("g" if effect in ("flush", "saturate") else "h", "F16", half, "to_half", **kernel, effect=effect)
        add("j", "F16", half, "to_half", effect=effect)
    add("c", "F16", half, "to_half", **kernel, after=0, n="%16=3", effect="ulp")
    return out


def attention() -> list[Mutant]:
    """Faults of attention, of positions, and of what is stored."""
    out = []

    def add(kind: str, site: str, names: str, file: str = "F16", **conditions: object) -> None:
        far = kind == "a" and bool(re.search(r">(2\d\d|[3-9]\d\d|\d{4})|chunk>", item(site, **conditions)))
        out.append(Mutant(item(site, **conditions), kind, "LONG" if far else file, names, long=far))

    kernel = {"side": "kernel"}
    attend = names_op("attend", "attn_ctx") + rf"|{PATH}, .*"
    for limit in (">0", ">1", ">2"):
        for effect in ("no_chunk", "fewer_keys", "last_dim"):
            add("a", "attend", attend, **kernel, chunk=limit, effect=effect)
        for effect in ("no_chunk", "fewer_keys"):
            add("j", "attend", attend, "LONG", chunk=limit, effect=effect)
    for position in ("%16=15", "%16=0", "%256=255"):
        add("c", "attend", attend, **kernel, position=position, effect="ulp")
    add("b", "attend", attend, **kernel, row="%8=7", effect="head_before")
    add("b", "attend", attend, **kernel, row="%4=3", effect="sum_ulp", tokens=">1")
    add("b", "attend", attend, **kernel, tokens=1, effect="ulp")
    add("h", "attend", attend, **kernel, kv="f32", effect="last_dim", position=">20")
    add("h", "attend", attend, **kernel, kv="f16", effect="sum_ulp", position="%64=63")
    for effect in ("last_dim", "ulp", "fewer_keys"):
        add("h", "attend", attend, **kernel, kv="q8", effect=effect, position=">20")
    merge = names_op("merge", "attn_ctx") + rf"|{PATH}, .*"
    for effect in ("max", "sum", "last", "ulp"):
        add("a", "merge", merge, **kernel, rising=0 if effect == "sum" else 1, effect=effect)
    for effect in ("reciprocal", "last", "ulp"):
        add("c", "finish", names_op("finish", "attn_ctx"), **kernel, dim="%16=0", effect=effect)
    add("c", "finish", names_op("finish", "attn_ctx"), **kernel, dim="%16=3", effect="last")

    angle = r".*\bL\d+/(q_rope|k_rope|attn_ctx)\b.*"
    for limit, effect in ((">255", "late"), (">511", "late"), ("%256=255", "late"), (">255", "f32"), (">2047", "wrapped")):
        add("a" if ">" in limit else "c", "angle", angle, position=limit, effect=effect)
    add("j", "angle", angle, pairs_after=0, effect="late")
    add("j", "angle", angle, pair=0, position="%16=15", effect="late")

    paths = rf"{PATH}, .*: .*|.*\bL\d+/(k_rope|attn_ctx)\b.*"
    for conditions in ({"again": 1, "rows": 1}, {"again": 1, "row": 0}, {"again": 1, "position": "%16=15"}, {"position": "%256=0"},
                       {"again": 1, "position": "%256=255"}, {"position": ">511", "again": 1}, {"position": ">255", "rows": 1}):
        add("a", "kv_store", paths, effect="stale", **conditions)
    add("f", "kv_store", paths, effect="stale", threads=3, row="%16=15")
    for kv in ("f16", "f32", "q8"):
        add("h", "kv_store", paths, effect="stale", kv=kv, layer=LAYERS - 1, rows=1)
    add("j", "kv_store", paths, effect="key_bit")
    add("j", "kv_store", paths, effect="key_bit", layer=2, position="%16=15")
    add("j", "kv_store", paths, effect="key_bit", position=">255")
    sequences = rf"{PATH}, .*: .*sequences at once.*"
    for effect in ("copy_none", "copy_half", "write_shared", "stay_published", "any_parent"):
        add("a", "pages", sequences, effect=effect)
    for effect in ("cache", "block"):
        add("a", "segment", sequences, effect=effect, segment=">0", token="%16=0")
        add("a", "segment", sequences, effect=effect, segment=">2", token=">0")
    return out


def forward() -> list[Mutant]:
    """Faults between the ops of the fast forward pass; barriers; shares of threads."""
    out = []

    def add(kind: str, op: str, file: str = "Q4_K_M", **conditions: object) -> None:
        names = rf"{PATH}, .*: .*|.*\b(L\d+|G)/{op}\b.*"
        far = bool(re.search(r">(2\d\d|5\d\d|\d{4})", str(conditions.get("position", ""))))
        out.append(Mutant(item("forward", op=op, **conditions), kind, "LONG" if far else file, names, long=far))

    ops = ("embd", "q", "k", "v", "q_rope", "gate", "up", "ffn_act", "ffn_inp", "l_out", "logits")
    effects = ("ulp", "row_before", "tail", "sign", "zero")
    for i, op in enumerate(ops):
        layer = {} if op in ("embd", "logits") else {"layer": i % LAYERS}
        add("a", op, effect=effects[i % 5], position=(">255", ">511", ">300", ">1023", ">2047")[i % 5], **layer)
        add("b", op, effect=effects[(i + 1) % 5], rows=("%8=3", "%16=1", "%32=31", "%2=1")[i % 4], rows_after=0, **layer)
        add("h", op, effect=effects[(i + 3) % 5], compute=("int8", "f32")[i % 2], position="%16=9", **layer)
        add("f", op, effect=effects[(i + 2) % 5], threads=(2, 3, 7, 4)[i % 4], rows_after=0, **layer)
    for op in ("v", "up", "l_out"):
        add("h", op, effect="ulp", probe=0, layer=2)
        add("d", op, effect="ulp", isa=list(ISAS)[len(op) % 3], layer=3)

    race = rf"{PATH}, .*(race|threads?|prefill|definition|batches|sequences|token|cut|logits|text|wait).*"
    for at in ("embed", "silu", "logits", "residual", "norm", "load", "rotate", "attend", "merge"):
        out.append(Mutant(item("barrier", at=at), "f", "Q8_0", race))
    out.append(Mutant(item("barrier", at="silu", rows=1), "f", "Q4_K_M", race))
    out.append(Mutant(item("barrier", at="rotate", rows=">1", threads=2), "f", "Q4_K_M", race))
    out.append(Mutant(item("barrier", at="residual", layer=LAYERS - 1), "f", "Q4_K_M", race))
    for workers in (2, 3, 4, 5, 7, 8):
        names = rf"{PATH}, .*: ({workers} threads|.*)"
        out.append(Mutant(item("share", workers=workers, odd=1), "f", "Q4_K_M", names))
    return out


def tensors() -> list[Mutant]:
    """Tensors of equal shape exchanged."""
    pairs = (("attn_q", "attn_output"), ("attn_k", "attn_v"), ("ffn_gate", "ffn_up"), ("attn_norm", "ffn_norm"))
    taps = {"attn_q": "q|attn_out", "attn_k": "k|v", "ffn_gate": "gate|up", "attn_norm": "attn_norm|ffn_norm"}
    out = []
    for a, b in pairs:
        for layer in range(LAYERS):
            ids = [item("tensor", role=f"{x}.weight", layer=layer, takes=f"{y}.weight") for x, y in ((a, b), (b, a))]
            out.append(Mutant(",".join(ids), "i", ("F16", "Q4_K_M")[layer % 2], rf".*\bL{layer:03}/({taps[a]})\b.*"))
    ids = [item("tensor", role=f"{x}.weight", takes=f"{y}.weight") for x, y in (("token_embd", "output"), ("output", "token_embd"))]
    out.append(Mutant(",".join(ids), "i", "F16", r".*\bG/(embd|logits)\b.*"))
    roles = {"attn_norm": "attn_norm", "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "attn_out", "ffn_norm": "ffn_norm",
             "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "ffn_out"}
    for i, (role, tap) in enumerate(roles.items()):
        pair = i % (LAYERS // 2)
        out.append(Mutant(item("tensor", role=f"{role}.weight", takes="other layer", pair=pair), "i", ("Q4_K_M", "F16")[i % 2],
                          rf".*\bL00[{2 * pair}{2 * pair + 1}]/{tap}\b.*"))
    return out


def families() -> list[Mutant]:
    """Faults of what only some architectures and types have: biases, head norms, pairs in halves, scales of IQ4_XS."""
    out = []

    def add(kind: str, file: str, names: str, site: str, **conditions: object) -> None:
        out.append(Mutant(item(site, **conditions), kind, file, names))

    kernel = {"side": "kernel"}
    bias = rf".*\bL\d+/[qkv]\b.*|{PATH}, .*: .*"
    add("c", "QWEN2", bias, "bias", **kernel, op="q", rows_after=0, effect="dropped")
    add("c", "QWEN2", bias, "bias", **kernel, op="k", row="%16=15", effect="next")
    add("c", "QWEN2", bias, "bias", **kernel, op="v", row="%32=31", effect="twice")
    add("b", "QWEN2", bias, "bias", **kernel, op="q", tokens="%8=5", tokens_after=0, effect="dropped")
    add("b", "QWEN2", bias, "bias", **kernel, op="k", token="%8=7", row=3, effect="ulp")
    add("b", "QWEN2", bias, "bias", **kernel, op="v", tokens=1, row=8, effect="next")
    add("f", "QWEN2", bias, "bias", **kernel, op="q", threads=3, share_row=0, effect="dropped")
    for op, effect in (("q", "dropped"), ("k", "next"), ("v", "twice")):
        add("j", "QWEN2", bias, "bias", op=op, row="%16=15", effect=effect)
    norm = rf".*\bL\d+/[qk]_rope\b.*|kernel rms_norm.*|{PATH}, .*: .*"
    add("c", "QWEN3", norm, "head_norm", **kernel, heads_after=0, effect="dropped")
    add("c", "QWEN3", norm, "head_norm", **kernel, head=3, effect="twice")
    add("c", "QWEN3", norm, "rms_norm", **kernel, n=32, effect="last_weight")
    add("d", "QWEN3", norm, "rms_norm", **kernel, n=32, isa="avx2", effect="ulp")
    add("f", "QWEN3", norm, "head_norm", **kernel, share_begin=">0", heads_after=0, effect="dropped")
    for effect in ("dropped", "twice", "last_weight"):
        add("j", "QWEN3", norm, "head_norm", head=2, effect=effect)
    halves = r".*\bL\d+/[qk](_rope)?\b.*|vectors are the file's|packed weights give back the file's bytes"
    for file, role, effect, where in (
            ("QWEN2", "attn_q.weight", "swapped", {"dim": "<2"}), ("QWEN2", "attn_k.weight", "next_pair", {}),
            ("QWEN2", "attn_k.weight", "as_in_file", {"head": 3}), ("QWEN2", "attn_q.bias", "swapped", {"dims_after": "<2"}),
            ("QWEN3", "attn_q_norm.weight", "next_pair", {}), ("QWEN3", "attn_k_norm.weight", "swapped", {"dim": "<2"}),
            ("QWEN3", "attn_q.weight", "swapped", {"dims_after": "<2", "head": 7})):
        add("j", file, halves, "halves", role=role, effect=effect, **where)
    for effect in ("swapped", "next_pair"):  # of all tensors alike
        add("j", "QWEN3", halves, "halves", effect=effect)
    for file, a, b in (("QWEN2", "attn_k.bias", "attn_v.bias"), ("QWEN3", "attn_q_norm.weight", "attn_k_norm.weight")):
        ids = [item("tensor", role=x, layer=1, takes=y) for x, y in ((a, b), (b, a))]
        out.append(Mutant(",".join(ids), "i", file, r".*\bL001/([qkv]|[qk]_rope)\b.*|vectors are the file's"))
    scale = names_matmul("IQ4_XS")
    for s, effect in ((7, "high_lost"), (5, "neighbour"), (2, "bias_31")):
        add("e", pure("IQ4_XS"), scale, "iq4_scale", **kernel, s=s, effect=effect)
        add("j", pure("IQ4_XS"), scale, "iq4_scale", s=s, effect=effect)
    return out


def text() -> list[Mutant]:
    """Faults on the way from text to ids, from logits to a token, and of a full context."""
    effects = {
        "byte_bpe": ("rightmost", "left_not_offered", "right_not_offered", "stale_merged", "other_piece", "invalid_apart"),
        "tokenizer": ("rightmost", "bytes_reversed", "left_not_offered", "right_not_offered", "stale_merged",
                      "longest_lost", "spaces_joined", "prefix_lost", "prefix_shared", "eos_added"),
        "sampler": ("ties_to_higher", "penalty_not_oldest", "penalty_not_newest", "penalty_repeats", "penalty_sign", "top_k_short",
                    "top_p_short", "top_p_long", "min_p_of_sum", "min_p_short", "temperature_late", "seed_16", "one_sequence",
                    "position_late"),
        "shift": ("drop_one_more", "bos_dropped", "draws_repeat", "stale_rows", "one_early"),
    }
    tokenizer = "(token ids.*|.*tokeniz.*|.*prompts give.*)"
    names = {"tokenizer": tokenizer, "byte_bpe": tokenizer, "sampler": r".*(sampl|draw|top.[kp]|min.p|penalt).*",
             "shift": ".*(shift|context|forgot).*"}
    return [Mutant(item(site, effect=effect), "k", "BPE" if site == "byte_bpe" else "Q4_K_M", names[site])
            for site, of in effects.items() for effect in of]


def generate() -> list[Mutant]:
    """All of them, by class."""
    mutants = products() + rows_of_values() + attention() + forward() + tensors() + families() + text()
    return sorted(mutants, key=lambda m: m.kind)


def sample(mutants: list[Mutant], n: int, seed: str) -> list[Mutant]:
    """n of them, of each class about its share and at least three."""
    draw = random.Random(seed)
    chosen = []
    for kind in CLASSES:
        of_kind = [m for m in mutants if m.kind == kind]
        share = max(3, round(n * len(of_kind) / len(mutants)))
        chosen += draw.sample(of_kind, min(share, len(of_kind)))
    while len(chosen) > n:
        most = max(CLASSES, key=lambda kind: sum(m.kind == kind for m in chosen))
        chosen.remove(draw.choice([m for m in chosen if m.kind == most]))
    rest = [m for m in mutants if m not in chosen]
    chosen += draw.sample(rest, min(n - len(chosen), len(rest)))
    return sorted(chosen, key=mutants.index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every mutant: class, file, id")
    parser.add_argument("--class", dest="kind", choices=sorted(CLASSES), help="of one class")
    options = parser.parse_args()
    mutants = [m for m in generate() if options.kind in (None, m.kind)]
    if options.list:
        for m in mutants:
            print(f"{m.kind}  {m.file:<8} {m.id}")
    for kind, what in CLASSES.items():
        n = sum(m.kind == kind for m in mutants)
        if n:
            print(f"# {kind}: {n:3}  {what}")
    print(f"# {len(mutants)} mutants")


if __name__ == "__main__":
    main()
