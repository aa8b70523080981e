"""Rebuilds a SentencePiece model from the vocabulary inside a GGUF, so that the real library can tokenize for it."""

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

# GGUF's tokenizer.ggml.token_type values are SentencePiece's own ModelProto.SentencePiece.Type numbers.


def build_proto(path: str) -> pb.ModelProto:
    """The ModelProto of a `tokenizer.ggml.model = llama` vocabulary: BPE, byte fallback, identity normalizer without
    whitespace removal, dummy prefix as tokenizer.ggml.add_space_prefix says (default: yes)."""
    reader = gguf.GGUFReader(path)

    def value(key: str, default=None):
        field = reader.get_field(f"tokenizer.ggml.{key}")
        return default if field is None else field.contents()

    if value("model") != "llama":
        raise ValueError(f"{path}: tokenizer.ggml.model is {value('model')!r}, not 'llama' (SentencePiece BPE)")
    proto = pb.ModelProto()
    for piece, score, kind in zip(value("tokens"), value("scores"), value("token_type"), strict=True):
        proto.pieces.add(piece=piece, score=score, type=kind)
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type = pb.TrainerSpec.BPE
    trainer.vocab_size = len(proto.pieces)
    trainer.byte_fallback = True
    trainer.unk_id = value("unknown_token_id", 0)
    trainer.bos_id = value("bos_token_id", 1)
    trainer.eos_id = value("eos_token_id", 2)
    trainer.pad_id = -1
    trainer.unk_piece = proto.pieces[trainer.unk_id].piece
    trainer.bos_piece = proto.pieces[trainer.bos_id].piece
    trainer.eos_piece = proto.pieces[trainer.eos_id].piece
    normalizer.name = "identity"
    normalizer.precompiled_charsmap = b""
    normalizer.add_dummy_prefix = value("add_space_prefix", True)
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    return proto


def load_processor(path: str) -> sentencepiece.SentencePieceProcessor:
    """The library's tokenizer for the GGUF at `path`."""
    return sentencepiece.SentencePieceProcessor(model_proto=build_proto(path).SerializeToString())
