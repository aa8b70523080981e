#!/usr/bin/env python3
"""Writes variants of a model that reach what the model itself does not.

    tests/mutants/make_models.py MODEL.gguf OUT.gguf {long,wide,extreme,qwen2,qwen3,heads,bpe}

long: a context of 4,096 positions. wide: one layer and 25,001 tokens, so a matrix of 1,563 panels whose last is not full.
extreme: F32; gates beyond +-80, a channel 1,000 times the others, and rows of tiny norm. qwen2, qwen3: a file of that
architecture, with biases or head norms, its rows of q and k in halves. heads: half as many heads of twice the width, more than 32.
bpe: one layer and the byte-level vocabulary of tests/golden/bpe under Llama-3's rules.
MODEL has F16 matrices and an output of its own. Needs numpy and gguf (LLM_PYTHON).
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np

CONTEXT = 4096
WIDE_VOCAB = 25001
OUTLIER = 1000.0
BYTE_VOCAB = Path(__file__).resolve().parents[1] / "golden" / "bpe" / "tiny.json"
NORMAL, UNUSED = 1, 5  # tokenizer.ggml.token_type


def write_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, fields: dict[str, object]) -> None:
    for name, value in fields.items():
        if name == "general.architecture":
            continue
        if name in reader.fields:
            types = reader.fields[name].types
            kind, sub = types[0], types[1] if types[0] == gguf.GGUFValueType.ARRAY else None
        else:
            kind, sub = gguf.GGUFValueType.get_type(value), None
        writer.add_key_value(name.replace("llama.", f"{writer.arch}.", 1) if name.startswith("llama.") else name, value, kind,
                             sub)


def change_long(fields: dict, _: dict) -> None:
    fields["llama.context_length"] = CONTEXT


def keep_one_layer(fields: dict, tensors: dict) -> None:
    fields["llama.block_count"] = 1
    for name in list(tensors):
        if name.startswith("blk.") and not name.startswith("blk.0."):
            del tensors[name]


def change_wide(fields: dict, tensors: dict) -> None:
    keep_one_layer(fields, tensors)
    n = len(fields["tokenizer.ggml.tokens"])
    more = WIDE_VOCAB - n
    fields["llama.vocab_size"] = WIDE_VOCAB
    fields["tokenizer.ggml.tokens"] += [f"\u2581never{i}" for i in range(more)]
    fields["tokenizer.ggml.scores"] += [-1e6 - i for i in range(more)]
    fields["tokenizer.ggml.token_type"] += [1] * more
    draw = np.random.default_rng(1)
    for name in ("token_embd.weight", "output.weight"):
        rows = draw.normal(0, tensors[name].std(), (more, tensors[name].shape[1]))
        tensors[name] = np.concatenate([tensors[name], rows.astype(np.float32)])


def change_extreme(_: dict, tensors: dict) -> None:
    for layer, scale in ((1, 24.0), (2, 12.0)):
        tensors[f"blk.{layer}.ffn_gate.weight"] *= scale
        tensors[f"blk.{layer}.ffn_up.weight"] /= scale
    channel = 7
    tensors["blk.2.attn_norm.weight"][channel] *= OUTLIER
    for matrix in ("attn_q", "attn_k", "attn_v"):
        tensors[f"blk.2.{matrix}.weight"][:, channel] /= OUTLIER
    # Tokens that the text uses little have tiny embeddings: their first norm is all eps.
    tensors["token_embd.weight"][::3] *= 1e-3


def change_halves(fields: dict, tensors: dict) -> None:
    """Rows of q and k from neighbours to the halves of a head, which RoPE turns in files of the qwens."""
    for name, tensor in tensors.items():
        if "attn_q." in name or "attn_k." in name:
            heads = fields["llama.attention.head_count" + ("_kv" if "attn_k." in name else "")]
            tensors[name] = tensor.reshape(heads, -1, 2, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)


def add_vectors(tensors: dict, suffix: str, draw) -> None:
    """A vector of draw(rows) beside every q, k and v (head norms: q and k)."""
    for name in [name for name in tensors if ".attn_q." in name or ".attn_k." in name or ".attn_v." in name]:
        if "norm" not in suffix or ".attn_v." not in name:
            tensors[name.replace(".weight", suffix)] = draw(tensors[name].shape[0])


def change_qwen2(fields: dict, tensors: dict) -> None:
    random = np.random.default_rng(2)
    change_halves(fields, tensors)
    add_vectors(tensors, ".bias", lambda rows: random.normal(0, 1, rows).astype(np.float32))


def change_qwen3(fields: dict, tensors: dict) -> None:
    random = np.random.default_rng(3)
    change_halves(fields, tensors)
    head_dim = tensors["blk.0.attn_q.weight"].shape[0] // fields["llama.attention.head_count"]
    add_vectors(tensors, "_norm.weight", lambda _: random.uniform(0.5, 2, head_dim).astype(np.float32))


def change_heads(fields: dict, _: dict) -> None:
    for count in ("head_count", "head_count_kv"):
        fields[f"llama.attention.{count}"] //= 2
    for width in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if f"llama.{width}" in fields:
            fields[f"llama.{width}"] *= 2


def change_bpe(fields: dict, tensors: dict) -> None:
    keep_one_layer(fields, tensors)
    vocab = json.loads(BYTE_VOCAB.read_text(encoding="ascii"))
    tokens, special = vocab["tokens"], vocab["special"]
    unused = [f"[PAD{i}]" for i in range(len(tokens), len(fields["tokenizer.ggml.tokens"]))]
    for name in [name for name in fields if name.startswith("tokenizer.")]:
        del fields[name]
    fields |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": tokens + unused,
               "tokenizer.ggml.token_type": [special.get(token, NORMAL) for token in tokens] + [UNUSED] * len(unused),
               "tokenizer.ggml.merges": vocab["merges"], "tokenizer.ggml.add_bos_token": False}


CHANGES = {"long": change_long, "wide": change_wide, "extreme": change_extreme, "qwen2": change_qwen2,
           "qwen3": change_qwen3, "heads": change_heads, "bpe": change_bpe}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("change", choices=CHANGES)
    options = parser.parse_args()
    reader = gguf.GGUFReader(options.model)
    fields = {name: field.contents() for name, field in reader.fields.items()
              if name.startswith(("llama.", "tokenizer.", "general."))}
    tensors = {t.name: np.asarray(t.data, dtype=np.float32).reshape([int(d) for d in reversed(t.shape)]).copy()
               for t in reader.tensors}
    CHANGES[options.change](fields, tensors)
    writer = gguf.GGUFWriter(options.out, options.change if options.change.startswith("qwen") else "llama")
    write_fields(reader, writer, fields)
    for name, tensor in tensors.items():
        is_matrix = tensor.ndim > 1 and options.change != "extreme"
        writer.add_tensor(name, tensor.astype(np.float16) if is_matrix else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
