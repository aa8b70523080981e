#!/usr/bin/env python3
"""Makes bpe/: random Unicode strings with the ids that Hugging Face's `tokenizers` gives for byte-level vocabularies.

    python tests/golden/make_bpe.py [--data DIR] [--train] [--check]

DIR has llama-bpe-vocab.gguf and qwen2-vocab.gguf; without it only the files of the small vocabulary are made. --train
makes that vocabulary, tiny.json, anew. tests/golden/README.md says what is in the files.
"""

import argparse
import hashlib
import json
import struct
import sys
import unicodedata
from pathlib import Path

from golden_io import HERE, emit_or_check
from random_texts import FIXED, FRAGMENTS, make_texts, pick, run_of
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sys.path.insert(0, str(HERE.parent.parent / "tools" / "reference_f64"))
from byte_bpe import CONTROL, RULES, USER_DEFINED, build, byte_level, read_gguf  # noqa: E402

SEED = 20261122
COUNT = 2000
FOLDER = HERE / "bpe"

CONTRACTIONS = ("'s", "'S", "'\u017f", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'Ve", "'m", "'M", "'ll", "'LL", "'lL",
                "'d", "'D", "'", "''s", "' s", "\u2019s", "'\u212a", "'st", "'reve")
MARKERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<think>", "</think>", "[PAD151646]", "[PAD151935]", "<|im_en", "<s>", "[INST]")
MORE = (
    (4, lambda r: r.choice(("I", "he", "WE", "", " it")) + r.choice(CONTRACTIONS)),
    (3, lambda r: "".join(r.choice("0123456789") for _ in range(r.randint(1, 12)))),
    (1, lambda r: run_of(r, 5, (0x660, 0x669), (0xB2, 0xB3), (0xBC, 0xBE), (0x2160, 0x2188), (0x966, 0x96F))),
    (2, lambda r: r.choice(("\r\n", "\r\n\r\n", " \r\n ", "\r", "\n\n\n", " \n\n", "\t\n", "   \n  \n", "/\n", "!\n\n"))),
    (1, lambda r: pick(r, (0x2000, 0x200A), (0x2028, 0x2029), (0x85, 0x85), (0x180E, 0x180E), (0x1680, 0x1680),
                       (0x1C, 0x1F), (0x202F, 0x202F), (0x205F, 0x2060), (0xFEFF, 0xFEFF))),
    (2, lambda r: r.choice(MARKERS)),
    (1, lambda r: run_of(r, 4, (0x1C4, 0x1CC), (0x2B0, 0x2B8), (0x41, 0x5A), (0x300, 0x304), (0x1F88, 0x1F8F))),
)


def known_to_unicode_14(text: str) -> bool:
    """Debian's PCRE2 knows Unicode 14, as does Python 3.11; `tokenizers` is newer. What came later is left out."""
    assert unicodedata.unidata_version == "14.0.0", "run this with Python 3.11"
    return len(text) <= 40 and all(unicodedata.category(c) != "Cn" for c in text)


def texts() -> list[str]:
    fixed = [t for t in FIXED if known_to_unicode_14(t)] + list(CONTRACTIONS) + list(MARKERS)
    return make_texts(SEED, COUNT, FRAGMENTS + MORE, tuple(dict.fromkeys(fixed)), known_to_unicode_14)


def records(tokenizer: Tokenizer, strings: list[str]) -> bytes:
    """For each string the number of its ids (2 bytes) and the ids (3 bytes each), little-endian."""
    out = bytearray()
    for encoding in tokenizer.encode_batch(strings, add_special_tokens=False):
        out += struct.pack("<H", len(encoding.ids))
        for token in encoding.ids:
            out += token.to_bytes(3, "little")
    return bytes(out)


def golden(vocab, merges, special, rule, strings) -> bytes:
    """The records of all strings with control tokens as text, then with them parsed, of those that have a '<|'."""
    marked = [text for text in strings if "<|" in text]
    return (records(build(vocab, merges, special, rule, False), strings)
            + records(build(vocab, merges, special, rule, True), marked))


def hashes(vocab, merges, special, strings) -> bytes:
    """For each rule in the order of RULES, for each string: 4 bytes of the SHA-256 of its ids as int32."""
    out = bytearray()
    for rule in RULES:
        for encoding in build(vocab, merges, special, rule, False).encode_batch(strings, add_special_tokens=False):
            out += hashlib.sha256(struct.pack(f"<{len(encoding.ids)}i", *encoding.ids)).digest()[:4]
    return bytes(out)


def train(strings: list[str]) -> bytes:
    """Byte-level BPE of 1,500 tokens, with tokens of each kind. Lines of the held-out text and the strings are trained
    on unsplit, so that merges cross every place where a pre-tokenizer may split: where it does not, ids show it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    lines = (HERE.parent.parent / "models" / "heldout.txt").read_text(encoding="utf-8").split("\n")
    tokenizer.train_from_iterator(lines[:400] + [text for text in strings if "<" not in text], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    # Normal tokens that no merges make: ignore_merges finds them.
    tokens += ["\u0120tzunami", "!?!", "zzz"]
    special = {"<|endoftext|>": CONTROL, "<|im_start|>": CONTROL, "<|im_end|>": CONTROL,
               "<think>": USER_DEFINED, "</think>": USER_DEFINED, "<thin": USER_DEFINED}
    content = {"tokens": tokens + list(special), "special": special, "merges": [" ".join(m) for m in model["merges"]]}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode("ascii")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="directory with the vocabularies that are not ours to distribute")
    parser.add_argument("--train", action="store_true", help="make tiny.json anew")
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    args = parser.parse_args()
    strings = texts()
    tiny = train(strings) if args.train else (FOLDER / "tiny.json").read_bytes()
    content = json.loads(tiny)
    vocab = {token: i for i, token in enumerate(content["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in content["merges"]]
    files = {"tiny.json": tiny,
             "texts.jsonl": "".join(json.dumps(t, ensure_ascii=False) + "\n" for t in strings).encode(),
             "tiny.rules": hashes(vocab, merges, content["special"], strings[:800])}
    if args.data:
        for name in ("llama-bpe", "qwen2"):
            files[f"{name}.ids"] = golden(*read_gguf(str(Path(args.data) / f"{name}-vocab.gguf")), strings)
    return emit_or_check(FOLDER, files, args.check)


if __name__ == "__main__":
    sys.exit(main())
