#!/usr/bin/env python3
"""Holds llmtok to the SentencePiece library on real SentencePiece models (as mistral-common's package has them).

    python tests/real/sentencepiece_models.py BIN_DIR MODEL...

Each model is written as a GGUF without tensors, as converters write it, and 1,000 random Unicode strings and 2,000 of its
own pieces are compared, ids and decoded text. Prints a line for each model; the exit code is 1 where one differs. Needs
`sentencepiece`, `protobuf` and `gguf`.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from vocabularies import check

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from make_spm import COUNT, SEED  # noqa: E402
from random_texts import make_texts  # noqa: E402

N_PIECES = 2000
NORMAL, USER_DEFINED = 1, 4


def write_vocabulary(proto, path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece.piece.encode() for piece in proto.pieces])
    writer.add_token_scores([piece.score for piece in proto.pieces])
    writer.add_token_types([piece.type for piece in proto.pieces])
    writer.add_bos_token_id(proto.trainer_spec.bos_id)
    writer.add_eos_token_id(proto.trainer_spec.eos_id)
    writer.add_unk_token_id(proto.trainer_spec.unk_id)
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def texts(proto) -> list[str]:
    """Random strings, and pieces in rows of five, so that they meet."""
    pieces = [piece.piece.replace("\u2581", " ") for piece in proto.pieces if piece.type in (NORMAL, USER_DEFINED)]
    drawn = random.Random(SEED).sample(pieces, min(N_PIECES, len(pieces)))
    return make_texts(SEED, COUNT) + ["".join(drawn[i:i + 5]) for i in range(0, len(drawn), 5)]


def verdict(binary: Path, model: Path) -> tuple[bool, str]:
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.read_bytes())
    if proto.trainer_spec.model_type != sentencepiece_model_pb2.TrainerSpec.BPE:
        return True, "refused: no BPE, which a GGUF of this kind cannot say"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    rows = [{"text": text, "ids": (ids := processor.encode(text)), "decoded": processor.decode(ids)}
            for text in texts(proto)]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.gguf"
        write_vocabulary(proto, vocabulary)
        matched, what = check(binary, vocabulary, rows)
    line = f"{len(proto.pieces)} pieces, agrees {matched} of {len(rows)}"
    return matched == len(rows), line if matched == len(rows) else f"{line}; {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    arguments = parser.parse_args()
    failed = 0
    for model in arguments.models:
        passed, line = verdict(arguments.bin_dir / "llmtok", model)
        failed += not passed
        print(f"{model.name}: {line if passed else 'FAIL: ' + line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
