#!/usr/bin/env python3
"""Runs llmtok over a directory of vocabularies as llama.cpp has them in its `models` folder: NAME.gguf, and with many of
them NAME.gguf.inp (texts) and NAME.gguf.out (their ids). With --random also over SentencePiece's NAME.model, as mistral-common has
some.

    python tests/public_models/vocabularies.py BIN_DIR VOCAB_DIR [--random]

Prints a line for each file:

    NAME: agrees N of N               every text gives the listed ids, and these the text
    NAME: agrees N of N, no list      without a list: a few texts come back from their ids
    NAME: refused: REASON             its kind of tokenizer is not read, and the error names the key
    NAME: FAIL: WHAT                  anything else

A pre-tokenizer that is not known is a refusal without a list, and a failure with one. --random also compares 2,000 random
Unicode strings under each byte-level vocabulary with Hugging Face's `tokenizers`, and 1,000 of them and 2,000 of its own pieces
under each NAME.model, written as a GGUF without tensors, with the SentencePiece library (needs these and `gguf`).
The exit code is 1 where anything failed, 2 where there is no vocabulary.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
SEPARATOR = "\n__ggml_vocab_test__\n"
UNSUPPORTED = 6  # exit code
TEXTS = ("", "Hello, world!", "  two  spaces\n\n\ttab", "3.14159 1,000,000", "\u00e9t\u00e9 \u4f60\u597d \U0001f600")


def run(binary: Path, vocabulary: Path, *options: str, text: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([str(binary), str(vocabulary), "-q", *options], capture_output=True, timeout=600,
                          input=None if text is None else text.encode())


def reason(done: subprocess.CompletedProcess) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[0].split(".gguf: ", 1)[-1] if lines else f"exit code {done.returncode}"


def check(binary: Path, vocabulary: Path, rows: list[dict]) -> tuple[int, str]:
    """How many rows agree, and what the first is that does not."""
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "rows.jsonl"
        reference.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")
        done = run(binary, vocabulary, "--check", str(reference), "--json")
    if done.returncode not in (0, 1):
        return 0, reason(done)
    found = json.loads(done.stdout)
    if found["total"] != len(rows):
        return 0, f"{found['total']} rows were compared, not {len(rows)}"
    first = found["mismatches"][0] if found["mismatches"] else None
    return found["matched"], "" if first is None else f"{first['text']!r}: {first['found']}, need {first['expected']}"


def listed(vocabulary: Path) -> list[dict] | None:
    """The texts beside a vocabulary with their ids; the ids must give them back."""
    inputs = vocabulary.with_name(vocabulary.name + ".inp")
    if not inputs.is_file():
        return None
    texts = inputs.read_text(encoding="utf-8").split(SEPARATOR)
    lines = vocabulary.with_name(vocabulary.name + ".out").read_text().split("\n")
    assert len(lines) >= len(texts), f"{vocabulary.name}: fewer rows of ids than texts"
    return [{"text": text, "ids": [int(token) for token in line.split()], "decoded": text}
            for text, line in zip(texts, lines)]


def comes_back(binary: Path, vocabulary: Path, text: str) -> bool:
    ids = run(binary, vocabulary, "--stdin", "--ids", text=text)
    back = run(binary, vocabulary, "--stdin", "--decode", text=ids.stdout.decode())
    return ids.returncode == 0 and back.returncode == 0 and back.stdout.decode() == text


def random_rows(vocabulary: Path) -> list[dict]:
    """Random strings with the ids that `tokenizers` gives; none where the vocabulary is not byte-level."""
    import gguf
    import make_bpe

    if gguf.GGUFReader(vocabulary).fields["tokenizer.ggml.model"].contents() != "gpt2":
        return []
    # Bytes that some vocabularies lack, in one piece with others and alone.
    strings = make_bpe.texts() + [f"!{chr(code)}! {chr(code)}a{chr(code)}b" for code in
                                  (*range(0x20), 0x7F, 0x80, 0xFF, 0x800, 0x40000, 0x80000, 0xC0000, 0x100000, 0x10FFFF)]
    tokenizer = make_bpe.build(*make_bpe.read_gguf(str(vocabulary)), False)
    return [{"text": text, "ids": encoding.ids} for text, encoding in
            zip(strings, tokenizer.encode_batch(strings, add_special_tokens=False), strict=True)]


def verdict(binary: Path, vocabulary: Path, with_random: bool) -> tuple[bool, str]:
    rows = listed(vocabulary)
    loaded = run(binary, vocabulary, "-p", "a", "--ids")
    if loaded.returncode != 0:
        why = reason(loaded)
        by_name = why.startswith("tokenizer.ggml.model") or (rows is None and why.startswith("tokenizer.ggml.pre"))
        return by_name and loaded.returncode == UNSUPPORTED, f"refused: {why}"
    if rows is None:
        failed = [text for text in TEXTS if not comes_back(binary, vocabulary, text)]
        line = f"agrees {len(TEXTS) - len(failed)} of {len(TEXTS)}, no list"
        passed, what = not failed, f"{failed[:1]} does not come back"
    else:
        matched, what = check(binary, vocabulary, rows)
        line, passed = f"agrees {matched} of {len(rows)}", matched == len(rows)
    if passed and with_random and (drawn := random_rows(vocabulary)):
        matched, what = check(binary, vocabulary, drawn)
        line, passed = f"{line}, {matched} of {len(drawn)} random", matched == len(drawn)
    return passed, line if passed else f"{line}; {what}"


def sentencepiece_verdict(binary: Path, model: Path) -> tuple[bool, str]:
    import gguf
    import sentencepiece
    from make_spm import COUNT, SEED
    from random_texts import make_texts
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto()
    proto.ParseFromString(model.read_bytes())
    if proto.trainer_spec.model_type != pb.TrainerSpec.BPE:
        return True, "refused: no BPE, which a GGUF of this kind cannot say"
    pieces = [piece.piece.replace("\u2581", " ") for piece in proto.pieces if piece.type in (piece.NORMAL, piece.USER_DEFINED)]
    drawn = random.Random(SEED).sample(pieces, min(2000, len(pieces)))
    texts = make_texts(SEED, COUNT) + ["".join(drawn[i:i + 5]) for i in range(0, len(drawn), 5)]  # in rows, so that they meet
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    rows = [{"text": text, "ids": (ids := processor.encode(text)), "decoded": processor.decode(ids)} for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        writer = gguf.GGUFWriter(Path(folder, "vocab.gguf"), "llama")
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
        matched, what = check(binary, Path(folder, "vocab.gguf"), rows)
    line = f"{len(proto.pieces)} pieces, agrees {matched} of {len(rows)}"
    return matched == len(rows), line if matched == len(rows) else f"{line}; {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=Path)
    parser.add_argument("vocab_dir", type=Path)
    parser.add_argument("--random", action="store_true", help="also compare random strings with `tokenizers`")
    arguments = parser.parse_args()
    vocabularies = sorted(arguments.vocab_dir.glob("*.gguf"))
    models = sorted(arguments.vocab_dir.glob("*.model")) if arguments.random else []
    if not vocabularies + models:
        print(f"{arguments.vocab_dir}: no *.gguf", file=sys.stderr)
        return 2
    failed, llmtok = 0, arguments.bin_dir / "llmtok"
    for vocabulary in vocabularies + models:
        passed, line = (sentencepiece_verdict(llmtok, vocabulary) if vocabulary in models else
                        verdict(llmtok, vocabulary, arguments.random))
        failed += not passed
        print(f"{vocabulary.stem}: {line if passed else 'FAIL: ' + line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
