#!/usr/bin/env python3
"""Makes bpe/: random Unicode strings with the ids that Hugging Face's `tokenizers` gives for byte-level vocabularies.

    python tests/golden/make_bpe.py [--data DIR] [--train] [--check]
    python tests/golden/make_bpe.py --vocab FILE.gguf --jsonl OUT.jsonl

DIR has llama-bpe-vocab.gguf and qwen2-vocab.gguf; without it only the files of the small vocabulary are made. --train
makes that vocabulary, tiny.json, anew. The second form writes the same strings with the ids of any vocabulary as
`llmtok --check` reads them. tests/golden/README.md says what is in the files.
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
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SEED = 20261122
COUNT = 2000
FOLDER = HERE / "bpe"
CONTROL, USER_DEFINED = 3, 4

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376"
    "\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-"
    "\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A"
    "\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4"
    "\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
    "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
    "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
    "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"
    "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943")
CHINESE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def split(regex: str):
    return pre_tokenizers.Split(Regex(regex), "isolated")


def byte_level(use_regex: bool):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


# The `pre_tokenizer` of each model's tokenizer.json (tokenizer/pre_tokenizer_rules.cpp names the models).
RULES = {
    "llama-bpe": [split(LLAMA3), byte_level(False)],
    "smaug-bpe": [split(LLAMA3), byte_level(False)],
    "qwen2": [split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
    "deepseek-r1-qwen": [split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "gpt-2": [byte_level(True)],
    # llama.cpp's for a file that says "default"; no tokenizer.json.
    "default": [split(r"[\p{P}\$\+<=>\^\~\|]+"), split(GPT2.removesuffix(r"|\s+")), split(r"\p{N}+"),
                split("[0-9][0-9][0-9]"), byte_level(False)],
    "deepseek-llm": [split("[\r\n]"), split(f"\\s?[{CASED}]+"),
                     split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"),
                     split(CHINESE), pre_tokenizers.Digits(individual_digits=True), byte_level(False)],
    "deepseek-coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CHINESE),
                       pre_tokenizers.Digits(individual_digits=True), byte_level(False)],
    "starcoder": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "refact": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "falcon": [pre_tokenizers.Punctuation("contiguous"), byte_level(True),
               pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")],
    "tekken": [split(TEKKEN), byte_level(False)],
}
IGNORE_MERGES = ("llama-bpe", "tekken")

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


def build(vocab: dict, merges: list, kinds: dict, rule: str, parse_control: bool) -> Tokenizer:
    """A tokenizer over the vocabulary. `kinds` has the tokens that are no normal ones."""
    model = models.BPE(vocab=vocab, merges=merges, ignore_merges=rule in IGNORE_MERGES)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(RULES[rule])
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(text, normalized=False, special=kind == CONTROL) for text, kind in kinds.items()
             if kind == USER_DEFINED or (kind == CONTROL and parse_control)]
    tokenizer.add_tokens(added)
    return tokenizer


def read_gguf(path: str):
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    vocab = {token: i for i, token in enumerate(tokens)}
    special = {token: kind for token, kind in zip(tokens, kinds, strict=True) if kind in (CONTROL, USER_DEFINED)}
    return vocab, merges, special, fields["tokenizer.ggml.pre"].contents()


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
    parser.add_argument("--vocab", help="a GGUF whose tokenizer.ggml.model is 'gpt2'")
    parser.add_argument("--jsonl", help="where to write its ids")
    args = parser.parse_args()
    strings = texts()
    if args.vocab:
        tokenizer = build(*read_gguf(args.vocab), False)
        with open(args.jsonl, "w", encoding="ascii") as out:
            for encoding, text in zip(tokenizer.encode_batch(strings, add_special_tokens=False), strings, strict=True):
                out.write(json.dumps({"text": text, "ids": encoding.ids}) + "\n")
        return 0
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
