"""Writes and reads the embedded model's GGUF.

GGUF keeps the rows of attn_q and attn_k in the order in which RoPE pairs neighbours: row 2 i of a
head is row i of the half-split (Hugging Face) layout and row 2 i + 1 is row i + Dh / 2.
Format facts: the GGUF specification and the conversion scripts of llama.cpp.
"""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import sentencepiece as spm

from models.training.model import ModelConfig

_LAYER_NAMES = {
    # GGUF: Hugging Face
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True)
class Vocabulary:
    """SentencePiece pieces with their scores and gguf.TokenType values, by id."""

    pieces: list[str]
    scores: list[float]
    types: list[int]


@dataclass(frozen=True)
class ModelFile:
    """What a GGUF of this model holds; tensors in f32, with Hugging Face's names and layout."""

    config: ModelConfig
    vocabulary: Vocabulary
    tensors: dict[str, np.ndarray]


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """Half-split rows (heads * Dh, D) to neighbouring pairs."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def deinterleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `interleave`."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def tensor_names(config: ModelConfig) -> dict[str, str]:
    """Maps GGUF tensor names to Hugging Face's, in file order."""
    names = {"token_embd.weight": "model.embed_tokens.weight"}
    for layer in range(config.n_layers):
        for ours, theirs in _LAYER_NAMES.items():
            names[f"blk.{layer}.{ours}.weight"] = f"model.layers.{layer}.{theirs}.weight"
    return names | {"output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def _rope_heads(name: str, config: ModelConfig) -> int | None:
    """Returns the head count of a tensor whose rows RoPE pairs, else None."""
    if name.endswith(".attn_q.weight"):
        return config.n_heads
    return config.n_kv_heads if name.endswith(".attn_k.weight") else None


def read_vocabulary(tokenizer: spm.SentencePieceProcessor) -> Vocabulary:
    """Takes pieces, scores and types out of a SentencePiece model."""

    def token_type(index: int) -> int:
        if tokenizer.is_unknown(index):
            return int(gguf.TokenType.UNKNOWN)
        if tokenizer.is_control(index):
            return int(gguf.TokenType.CONTROL)
        return int(gguf.TokenType.BYTE if tokenizer.is_byte(index) else gguf.TokenType.NORMAL)

    ids = range(tokenizer.vocab_size())
    return Vocabulary(
        pieces=[tokenizer.id_to_piece(i) for i in ids],
        scores=[tokenizer.get_score(i) for i in ids],
        types=[token_type(i) for i in ids],
    )


def _add_metadata(
    writer: gguf.GGUFWriter, name: str, description: str, config: ModelConfig
) -> None:
    writer.add_name(name)
    writer.add_description(description)
    writer.add_license("MIT")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.dim)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.ff_dim)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(config.vocab_size)


def _add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary.pieces)
    writer.add_token_scores(vocabulary.scores)
    writer.add_token_types(vocabulary.types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)


def write_model(path: Path, name: str, description: str, model: ModelFile) -> None:
    """Writes matrices as F16 and norms as F32."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _add_metadata(writer, name, description, model.config)
    _add_vocabulary(writer, model.vocabulary)
    for ours, theirs in tensor_names(model.config).items():
        tensor = model.tensors[theirs]
        if heads := _rope_heads(ours, model.config):
            tensor = interleave(tensor, heads)
        writer.add_tensor(ours, tensor.astype(np.float16 if tensor.ndim == 2 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_model(path: Path) -> ModelFile:
    """Reads a file of `write_model`, undoing the row order of attn_q and attn_k."""
    reader = gguf.GGUFReader(str(path))

    def field(key: str):
        return reader.fields[key].contents()

    config = ModelConfig(
        vocab_size=len(field("tokenizer.ggml.tokens")),
        dim=field("llama.embedding_length"),
        n_layers=field("llama.block_count"),
        n_heads=field("llama.attention.head_count"),
        n_kv_heads=field("llama.attention.head_count_kv"),
        ff_dim=field("llama.feed_forward_length"),
        context=field("llama.context_length"),
        rope_theta=field("llama.rope.freq_base"),
        norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
    )
    vocabulary = Vocabulary(
        pieces=field("tokenizer.ggml.tokens"),
        scores=field("tokenizer.ggml.scores"),
        types=field("tokenizer.ggml.token_type"),
    )
    stored = {tensor.name: np.asarray(tensor.data, dtype=np.float32) for tensor in reader.tensors}
    tensors = {}
    for ours, theirs in tensor_names(config).items():
        heads = _rope_heads(ours, config)
        tensors[theirs] = deinterleave(stored[ours], heads) if heads else stored[ours]
    return ModelFile(config, vocabulary, tensors)
