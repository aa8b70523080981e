"""Small files of the formats that are read, by their pages in docs/: seeds that a fuzzer can change anywhere."""

import json
import re
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

U8, I32, U32, F32, BOOL, STRING, ARRAY = 0, 5, 4, 6, 7, 8, 9


def string(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind: int, item) -> bytes:
    if kind == STRING:
        return string(item)
    return struct.pack({U8: "<B", I32: "<i", U32: "<I", F32: "<f", BOOL: "<?"}[kind], item)


def entry(key: str, kind: int, item) -> bytes:
    if isinstance(item, list):
        return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(item)) + b"".join(value(kind, one) for one in item))
    return string(key) + struct.pack("<I", kind) + value(kind, item)


def gguf(entries: list[bytes], tensors: list[tuple[str, list[int]]]) -> bytes:
    """Tensors of F32 with small numbers, divisors above 0."""
    infos, data = b"", b""
    for name, dims in tensors:
        infos += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", 0, len(data))
        count = 1
        for dim in dims:
            count *= dim
        least = -32 if name != "rope_freqs.weight" else 64
        data += b"".join(struct.pack("<f", (i * 37 % 64 + least) / 64) for i in range(count))
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + infos
    return head + bytes(-len(head) % 32) + data


def vocabulary(kind: str) -> tuple[list[bytes], int]:
    if kind == "llama":
        tokens = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a", "\u2581\u2581"]
        more = [entry("tokenizer.ggml.scores", F32, [float(-i) for i in range(len(tokens))])]
        kinds = [2, 3, 3] + [1] * 6
    elif kind == "gemma4":
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "ab", "\n\n"]
        more = [entry("tokenizer.ggml.merges", STRING, ["a b"]), entry("tokenizer.ggml.bos_token_id", U32, 1)]
        kinds = [2, 3, 3] + [6] * 256 + [1] * 5
    else:
        tokens = [chr(c) for c in range(0x21, 0x7F)] + ["\u0120", "ab", "\u0120a", "<|im_end|>"]
        more = [entry("tokenizer.ggml.merges", STRING, ["a b", "\u0120 a"]), entry("tokenizer.ggml.pre", STRING, "qwen2"),
                entry("tokenizer.ggml.eos_token_id", U32, len(tokens) - 1)]
        kinds = [1] * (len(tokens) - 1) + [3]
    return [entry("tokenizer.ggml.model", STRING, kind), entry("tokenizer.ggml.tokens", STRING, tokens),
            entry("tokenizer.ggml.token_type", I32, kinds), *more], len(tokens)


# What a layer of an architecture has besides llama's tensors, what in place of them, and its keys.
ATTENTION = ["attn_q", "attn_k", "attn_v", "attn_output"]
FORWARD = ["ffn_gate", "ffn_up", "ffn_down"]
EXPERTS = {f"{name}_exps.weight": [8, 8, 2] for name in FORWARD} | {"ffn_gate_inp.weight": [8, 2]}
SHARED = {f"{name}_shexp.weight": [8, 8] for name in FORWARD}
EXPERT_KEYS = {"expert_count": (U32, 2), "expert_used_count": (U32, 1), "expert_feed_forward_length": (U32, 16)}
HEAD_NORMS = {f"{name}_norm.weight": [8] for name in ("attn_q", "attn_k")}
PARTS = {
    "llama": ({}, [], {"rope.scaling.type": (STRING, "linear"), "rope.scaling.factor": (F32, 2.0)}),
    "ernie4_5": ({}, [], {}),
    "gemma2": ({f"{name}.weight": [8] for name in ("post_attention_norm", "post_ffw_norm")}, [],
               {"attention.sliding_window": (U32, 4), "attn_logit_softcapping": (F32, 2.0)}),
    "glm4": ({f"{name}.bias": [8] for name in ATTENTION[:3]} | {"ffn_up.weight": [8, 16], "post_attention_norm.weight": [8],
                                                                "post_ffw_norm.weight": [8]}, ["ffn_gate", "ffn_up"],
             {"rope.dimension_count": (U32, 4)}),
    "hunyuan-dense": (HEAD_NORMS, [], {}),
    "seed_oss": ({f"{name}.bias": [8] for name in ATTENTION[:3]} | {"post_attention_norm.weight": [8]}, ["ffn_norm"], {}),
    "exaone4": (HEAD_NORMS | {"post_attention_norm.weight": [8], "post_ffw_norm.weight": [8]}, ["attn_norm", "ffn_norm"],
                {"attention.sliding_window": (U32, 4)}),
    "olmo2": (HEAD_NORMS | {"post_attention_norm.weight": [8], "post_ffw_norm.weight": [8]}, ["attn_norm", "ffn_norm"],
              {"attention.sliding_window": (U32, 4)}),
    "mistral3": ({}, [], {"rope.scaling.type": (STRING, "yarn"), "rope.scaling.factor": (F32, 4.0),
                          "rope.scaling.original_context_length": (U32, 4), "rope.scaling.yarn_log_multiplier": (F32, 1.0),
                          "attention.temperature_scale": (F32, 0.5)}),
    "qwen2": ({f"{name}.bias": [8] for name in ATTENTION[:3]}, [], {}),
    "qwen3": (HEAD_NORMS, [], {"attention.key_length": (U32, 8), "attention.value_length": (U32, 8)}),
    "qwen3moe": (HEAD_NORMS | EXPERTS, FORWARD, EXPERT_KEYS),
    "gpt-oss": ({f"{name}.bias": [8] for name in ATTENTION} | EXPERTS | {f"{name}_exps.bias": [8, 2] for name in FORWARD}
                | {"attn_sinks.weight": [1], "ffn_gate_inp.bias": [2], "post_attention_norm.weight": [8]}, [*FORWARD, "ffn_norm"],
                EXPERT_KEYS | {"attention.sliding_window": (U32, 4), "rope.scaling.type": (STRING, "yarn"),
                               "rope.scaling.factor": (F32, 4.0), "rope.scaling.original_context_length": (U32, 8)}),
    "phi3": ({"attn_qkv.weight": [8, 24], "ffn_up.weight": [8, 16]}, [*ATTENTION[:3], "ffn_gate", "ffn_up"],
             {"rope.dimension_count": (U32, 4), "attention.sliding_window": (U32, 4)}),
    "smollm3": ({}, [], {}),
    "granite": ({}, [], {"embedding_scale": (F32, 12.0), "attention.scale": (F32, 0.1), "residual_scale": (F32, 0.2),
                         "logit_scale": (F32, 8.0)}),
    "gemma3": (HEAD_NORMS | {"post_attention_norm.weight": [8], "post_ffw_norm.weight": [8]}, [],
               {"attention.sliding_window": (U32, 4), "rope.freq_base": (F32, 1e6)}),
    "gemma4": (HEAD_NORMS | {f"{name}.weight": [8] for name in ("post_attention_norm", "post_ffw_norm", "post_norm")}
               | {"layer_output_scale.weight": [1], "inp_gate.weight": [8, 8], "proj.weight": [8, 8]}, ["attn_v"],
               {"embedding_length_per_layer_input": (U32, 8), "final_logit_softcapping": (F32, 4.0)}),
    "gemma4 with experts": (
        HEAD_NORMS | {f"{name}.weight": [8] for name in ("post_attention_norm", "post_ffw_norm", "pre_ffw_norm_2", "post_ffw_norm_1",
                                                         "post_ffw_norm_2")}
        | {"layer_output_scale.weight": [1], "ffn_gate_inp.weight": [8, 2], "ffn_gate_inp.scale": [8], "ffn_gate_up_exps.weight": [8, 16, 2],
           "ffn_down_exps.weight": [8, 8, 2], "ffn_down_exps.scale": [2]}, ["attn_v"], EXPERT_KEYS),
    "dots1": (HEAD_NORMS | EXPERTS | SHARED | {"exp_probs_b.bias": [2]}, FORWARD,
              EXPERT_KEYS | {"expert_shared_count": (U32, 1), "expert_weights_norm": (BOOL, True)}),
    "granitemoe": (EXPERTS, FORWARD, {key: EXPERT_KEYS[key] for key in ("expert_count", "expert_used_count")}),
}


def model(part: str, kind: str = "llama", tied: bool = True) -> bytes:
    """One layer: d_model 8, one head, d_ff 8; or two experts and 16 of each, which they need."""
    words, n_vocab = vocabulary(kind)
    more, without, keys = PARTS[part]
    architecture = part.split()[0]
    scale = 2 if "expert_count" in keys else 1
    keys = {key: (U32, number) for key, number in (
        ("block_count", 1), ("context_length", 16), ("embedding_length", 8 * scale), ("feed_forward_length", 8 * scale), ("attention.head_count", 1),
        ("attention.head_count_kv", 1))} | {"attention.layer_norm_rms_epsilon": (F32, 1e-5)} | keys
    entries = [entry("general.architecture", STRING, architecture)]
    entries += [entry(f"{architecture}.{key}", *item) for key, item in keys.items()] + words
    layer = {f"{name}.weight": [8, 8] for name in ATTENTION + FORWARD} | {f"{name}.weight": [8] for name in ("attn_norm", "ffn_norm")}
    layer = {name: dims for name, dims in layer.items() if name.removesuffix(".weight") not in without} | more
    tensors = [("token_embd.weight", [8, n_vocab]), ("output_norm.weight", [8])]
    tensors += [(f"blk.0.{name}", dims) for name, dims in layer.items()]
    if "embedding_length_per_layer_input" in keys:
        tensors += [("per_layer_token_embd.weight", [8, n_vocab]), ("per_layer_model_proj.weight", [8, 8]), ("per_layer_proj_norm.weight", [8])]
    if architecture == "gemma4":
        tensors.append(("rope_freqs.weight", [4]))
    if not tied:
        tensors.append(("output.weight", [8, n_vocab]))
    return gguf(entries, [(name, [dim * scale if dim in (4, 8, 16, 24) else dim for dim in dims]) for name, dims in tensors])


def state_head(first: int, ids: list[int], sections: list[int]) -> bytes:
    """What stands before the hash of the head (docs/cache.md)."""
    return (b"LLMSTATE" + struct.pack("<5I", 1, len(sections), 0, first, len(ids)) + bytes(32) + struct.pack(f"<{len(ids)}i", *ids)
            + b"".join(struct.pack("<Q", size) + bytes(32) for size in sections))


def session(turns: int) -> bytes:
    note = {"schema_version": 3, "model_sha256": "", "chat_template": "chatml", "system": "Be brief." if turns > 1 else None,
            "turns": [{"message": "Hi", "reply": [72, 255] if i else "So.", "reply_ids": [5, 6]} for i in range(turns)],
            "forgotten_turns": 0, "next_draw": 3}
    return json.dumps(note).encode()


def npy(descr: str, shape: tuple, data: bytes) -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def receipt() -> dict:
    return {"format": "llm-receipt/2", "contract_version": 1, "engine_version": "0.1.0",
            "model": {"name": "m", "sha256": "ab" * 32},
            "options": {"parse_special": False, "show_special": True, "system": "", "chat_template": "", "n": 2, "stop": ["a"],
                        "ignore_eos": False, "logit_bias": [[3, -1.5]], "grammar": {"kind": "regex", "text": "a+"}, "seed": 7,
                        "sequence": 0, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.1,
                        "repeat_last_n": 64, "sampler_order": "hf", "context": 64, "kv": "f16", "compute": "int8"},
            "prompt": "Hi", "prompt_ids": [1, 5], "ids": [6, 7], "text": "So", "stop_reason": "length",
            "drawn_logits_sha256": "cd" * 32, "rows_sha256": "ef" * 32}
