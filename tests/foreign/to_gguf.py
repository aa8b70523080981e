#!/usr/bin/env python3
"""Converts a LlamaForCausalLM checkpoint to a GGUF in F16, with the `gguf` package's writer.

    python tests/foreign/to_gguf.py CHECKPOINT_DIR -o MODEL.gguf

Nothing here is shared with the project's own converter (tools/convert), so that a fault there cannot hide here. Matrices
must be exact in F16; vectors are stored in F32. A checkpoint has no tokenizer, so one of random pieces is written:
SentencePiece's special tokens, the 256 bytes, then words.
"""

import argparse
import json
import math
import random
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GLOBAL_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                "lm_head.weight": "output.weight"}


def gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`."""
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def halves_to_pairs(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of a q or k matrix: HF rotates the halves of a head against each other, GGUF's Llama neighbours."""
    width = rows.shape[0] // n_heads
    order = np.arange(width).reshape(2, width // 2).T.ravel()  # 0, width/2, 1, width/2 + 1, ...
    return rows.reshape(n_heads, width, -1)[:, order].reshape(rows.shape)


def rope_divisors(rope: dict, head_dim: int) -> np.ndarray:
    """What divides each frequency under Llama 3's scaling (Llama 3.1 model card, `rope_scaling`).

    Waves shorter than original / high_freq_factor stay, those longer than original / low_freq_factor are slowed by
    `factor`, and in between the frequency is mixed linearly in original / wavelength.
    """
    original, low, high = (rope[key] for key in
                           ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    divisors = []
    for i in range(head_dim // 2):
        turns = original / (2 * math.pi * rope["rope_theta"] ** (2 * i / head_dim))
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1.0 / (share + (1.0 - share) / rope["factor"]))
    return np.array(divisors, dtype=np.float32)


def vocabulary(size: int) -> tuple[list[bytes], list[float], list[int]]:
    """Texts, scores and types of `size` tokens; the better a score, the earlier the piece merges."""
    texts = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % byte for byte in range(256)]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    scores = [0.0] * len(texts)
    rng = random.Random(size)
    words = dict.fromkeys(["\u2581", *LETTERS])
    while len(words) < size:
        start = rng.choice(["", "\u2581"])
        words[start + "".join(rng.choices(LETTERS[:12], k=rng.randint(2, 5)))] = None
    pieces = list(words)[:size - len(texts)]
    return ([*texts, *(piece.encode() for piece in pieces)], [*scores, *(-float(i) for i in range(len(pieces)))],
            kinds + [NORMAL] * len(pieces))


def as_stored(name: str, value: np.ndarray) -> np.ndarray:
    if value.ndim == 1:
        return value.astype(np.float32)
    half = value.astype(np.float16)
    if not np.array_equal(half.astype(value.dtype), value):
        raise ValueError(f"{name} is not exact in F16")
    return half


def write_hyper_parameters(writer: gguf.GGUFWriter, config: dict) -> None:
    heads, head_dim, rope = config["num_attention_heads"], config["head_dim"], config["rope_parameters"]
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    if head_dim * heads != config["hidden_size"]:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(rope, head_dim))
    elif rope["rope_type"] != "default":
        raise ValueError(f"rope_type {rope['rope_type']} is not converted")


def write_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    texts, scores, kinds = vocabulary(size)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def convert(checkpoint: Path, output: Path) -> None:
    """Writes `output`; raises ValueError for what it does not convert, and OSError."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(str(output), "llama")
    writer.add_name(checkpoint.name)
    write_hyper_parameters(writer, config)
    write_vocabulary(writer, config["vocab_size"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, value in load_file(checkpoint / "model.safetensors").items():
        part = name.split(".")[-2]
        if part in heads:
            value = halves_to_pairs(value, heads[part])
        writer.add_tensor(gguf_name(name), as_stored(name, value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        convert(args.checkpoint, args.output)
    except (ValueError, KeyError, OSError) as error:
        print(f"to_gguf.py: error: {args.checkpoint}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
