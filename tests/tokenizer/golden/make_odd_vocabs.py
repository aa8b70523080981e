#!/usr/bin/env python3
"""Makes odd_vocabs.jsonl: small random vocabularies with every kind of piece, and what the real SentencePiece library
does with random texts under them.

    python tests/tokenizer/golden/make_odd_vocabs.py [--check]

A line is one vocabulary: {"tokens": [[text, score, kind], ...], "prefix": bool, "cases": [[text, ids, decoded], ...]}, kinds as
in VocabSpec. What Llama's own vocabulary never shows is here: user-defined and unused pieces, equal scores, pieces without
all their parts, no byte tokens (so unknown tokens), no dummy prefix. Needs tests/golden/requirements.txt.
"""

import json
import random
import sys
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "golden"))
from golden_io import emit  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SEED = 20240607
VOCABULARIES = 60
CASES = 12
LETTERS = ("a", "b", "c", "\u2581", "\u00e9", "\U0001f600", "1", "<")


def word(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(LETTERS, (6, 5, 4, 4, 1, 1, 1, 1), k=rng.randint(1, most)))


def make_pieces(rng: random.Random) -> list[tuple[str, float, int]]:
    pieces = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    if rng.random() < 0.5:
        pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    seen = {text for text, _, _ in pieces}
    extra = [letter for letter in LETTERS if rng.random() < 0.8]
    extra += [word(rng, rng.choice((2, 2, 2, 3, 3, 4, 6))) for _ in range(rng.choice((10, 30, 80)))]
    user_defined, unused = rng.choice((0, 0.1)), rng.choice((0, 0.3))
    levels = rng.choice((3, 1000))  # few levels: many equal scores
    for text in extra:
        if text in seen:
            continue
        seen.add(text)
        kind = USER_DEFINED if rng.random() < user_defined else UNUSED if rng.random() < unused else NORMAL
        pieces.append((text, -float(rng.randrange(levels)), kind))
    return pieces


def make_processor(pieces, prefix: bool) -> sentencepiece.SentencePieceProcessor:
    proto = pb.ModelProto()
    for text, score, kind in pieces:
        proto.pieces.add(piece=text, score=score, type=kind)
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type = pb.TrainerSpec.BPE
    trainer.vocab_size = len(pieces)
    trainer.byte_fallback = any(kind == BYTE for _, _, kind in pieces)
    trainer.pad_id = -1
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = prefix
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def make_line(rng: random.Random) -> str:
    pieces, prefix = make_pieces(rng), rng.random() < 0.7
    processor = make_processor(pieces, prefix)
    cases = []
    for _ in range(CASES):
        text = word(rng, rng.choice((1, 3, 8, 20, 40))).replace("\u2581", " ")
        if rng.random() < 0.2:
            text += rng.choice(("z\u4e2d", "</s>", "<0x0A>", "\u2581", "\U0001f600z", "zzz z"))
        ids = processor.encode(text)
        cases.append([text, ids, processor.decode(ids)])
    return json.dumps({"prefix": prefix, "tokens": pieces, "cases": cases}, separators=(",", ":"))


def main() -> int:
    rng = random.Random(SEED)
    content = "".join(make_line(rng) + "\n" for _ in range(VOCABULARIES)).encode("ascii")
    return emit(Path(__file__).parent, {"odd_vocabs.jsonl": content}, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
