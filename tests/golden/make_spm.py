#!/usr/bin/env python3
"""Makes spm/<NAME>.jsonl: seeded random Unicode strings with the ids that the real SentencePiece library gives.

    python tests/golden/make_spm.py VOCAB.gguf NAME [--check] [--inp FILE --out FILE]

The vocabulary of the GGUF is rebuilt as a SentencePiece model (tools/oracle/spm_proto.py). Lines are
{"text": ..., "ids": [...]} without BOS, the format of `llmtok --check`; "decoded" is added where decoding the ids does
not give the text back. With --inp and --out (llama.cpp's vocabulary test files) their ids are first compared with the
library's, and a difference is an error.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from golden_io import HERE, emit_or_check

sys.path.insert(0, str(HERE.parent.parent / "tools" / "oracle"))
from spm_proto import load_processor  # noqa: E402

SEED = 20240607
COUNT = 1000
FOLDER = HERE / "spm"

WORDS = ("Once upon a time there was little girl named Lily she loved to play outside in the park one day saw big red "
         "ball wanted it but too high mom said The capital of France is Paris don't can't I'm we've they'll "
         "internationalization Supercalifragilistic antidisestablishmentarianism Hello world HELLO iPhone xylophone "
         "function return int main void std::vector<float> 0x1F3A snake_case CamelCase e-mail user@example.org").split()
FIXED = ("", " ", "  ", "   ", " " * 17, " " * 64, "\n", "\n\n", "\t", "\r\n", " \n ", "\t\t \n", " a", "a ", "  a  ",
         "a  b   c    d", "<s>", "</s>", "<unk>", "<s>Hello</s>", " <s> ", "<0x0A>", "<0x00>", "<0xFF>", "<0x0a>",
         "<|im_start|>user\nHi<|im_end|>", "[INST] Hi [/INST]", "<<SYS>>\nBe kind.\n<</SYS>>", "<|endoftext|>",
         "\u2581", "\u2581\u2581", "a\u2581b", " \u2581 ", "\u2581Hello", "\x00", "a\x00b", "\x7f",
         "\x1b[31mred\x1b[0m",
         "\ufeffBOM", "\ufffd", "\ufffe", "\uffff", "\u200b", "\u200d", "\u00a0", "\u3000", "\u2028",
         "\u0085", "\u00ad",
         "\U0010ffff", "\U0001f1e9\U0001f1ea", "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
         "\U0001f44d\U0001f3fd", "e\u0301", "\u00e9", "\ufb01", "\u1e9b\u0323", "a" * 100, "ab" * 50,
         "0" * 50, "1234567890",
         "3.14159e-10", "\u0661\u0662\u0663", "\u216b", "\u00bd", "\u202eabc\u202c",
         "Zalgo\u0301\u0302\u0303\u0304\u0305\u0306")


def pick(rng: random.Random, *ranges: tuple[int, int]) -> str:
    """A character of one of the inclusive code point ranges."""
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def run_of(rng: random.Random, most: int, *ranges: tuple[int, int]) -> str:
    return "".join(pick(rng, *ranges) for _ in range(rng.randint(1, most)))


def any_scalar(rng: random.Random) -> str:
    """Any Unicode scalar value but a surrogate, each plane equally likely."""
    while True:
        code = rng.randrange(17) << 16 | rng.randrange(0x10000)
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def emoji(rng: random.Random) -> str:
    """An emoji, perhaps with a skin tone or variation selector, or a ZWJ sequence."""
    def one() -> str:
        tail = rng.choice(("", "", "\ufe0f", chr(rng.randint(0x1F3FB, 0x1F3FF))))
        return pick(rng, (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x2600, 0x27BF)) + tail
    return "\u200d".join(one() for _ in range(rng.choice((1, 1, 2, 3))))


FRAGMENTS = (
    (8, lambda r: r.choice(WORDS)),
    (8, lambda r: " " + r.choice(WORDS)),
    (3, lambda r: " " * r.choice((1, 1, 2, 2, 3, 4, 5, 8, 16))),
    (2, lambda r: run_of(r, 5, (0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E))),
    (2, lambda r: run_of(r, 10, (0x61, 0x7A))),
    (2, lambda r: run_of(r, 8, (0x20, 0x7E))),
    (2, lambda r: run_of(r, 7, (0x30, 0x39))),
    (2, lambda r: r.choice(("\n", "\n\n", "\t", "\r\n", "\n  ", " \n", "\t\t"))),
    (2, emoji),
    (1, lambda r: r.choice("aeiounEO ") + run_of(r, 3, (0x300, 0x36F))),
    (2, lambda r: run_of(r, 6, (0x4E00, 0x9FFF), (0x3041, 0x3096), (0x30A1, 0x30FA))),
    (1, lambda r: run_of(r, 4, (0xAC00, 0xD7A3))),
    (2, lambda r: run_of(r, 8, (0x410, 0x44F))),
    (2, lambda r: run_of(r, 6, (0x621, 0x64A))),
    (1, lambda r: run_of(r, 5, (0x905, 0x939), (0xE01, 0xE3A), (0x5D0, 0x5EA), (0x1780, 0x17B3))),
    (2, lambda r: run_of(r, 6, (0xC0, 0x17F), (0x370, 0x3FF))),
    (1, lambda r: any_scalar(r)),
    (1, lambda r: run_of(r, 3, (0x00, 0x1F), (0x7F, 0x9F))),
    (1, lambda r: pick(r, (0x2000, 0x206F), (0xA0, 0xA0), (0x3000, 0x3000), (0x2580, 0x2583))),
    (1, lambda r: pick(r, (0x10000, 0x103FF), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0xE0001, 0xE007F),
                       (0xF0000, 0x10FFFF))),
    (1, lambda r: r.choice(("<s>", "</s>", "<unk>", "<pad>", "<0x0A>", f"<0x{r.randrange(256):02X}>",
                             "[INST]", "<|user|>"))),
)


def make_texts() -> list[str]:
    """COUNT strings, distinct, the fixed ones first. None has an unpaired surrogate, so all are valid UTF-8."""
    rng = random.Random(SEED)
    weights = [weight for weight, _ in FRAGMENTS]
    texts = list(FIXED)
    seen = set(texts)
    while len(texts) < COUNT:
        n = rng.choice((1, 2, 3, 4, 5, 6, 8, 10))
        text = "".join(make(rng) for _, make in rng.choices(FRAGMENTS, weights, k=n))
        if text not in seen:
            seen.add(text)
            texts.append(text)
    return texts


def check_llama_cpp(processor, inp: str, out: str) -> int:
    """Counts texts of a llama.cpp vocabulary test whose expected ids are not SentencePiece's."""
    texts = Path(inp).read_bytes().decode().split("\n__ggml_vocab_test__\n")
    rows = [[int(word) for word in row.split()] for row in Path(out).read_text(encoding="utf-8").splitlines()]
    if len(rows) < len(texts):  # a last empty text has an empty row, which a text file may drop
        rows += [[]] * (len(texts) - len(rows))
    wrong = [i for i, (text, ids) in enumerate(zip(texts, rows, strict=True)) if processor.encode(text) != ids]
    for i in wrong:
        found = processor.encode(texts[i])
        print(f"{inp}: text {i} {texts[i]!r}: expected {rows[i]}, SentencePiece {found}", file=sys.stderr)
    print(f"{inp}: {len(texts) - len(wrong)}/{len(texts)} agree with SentencePiece", file=sys.stderr)
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocab", help="GGUF whose tokenizer.ggml.model is 'llama'")
    parser.add_argument("name", help="writes spm/NAME.jsonl")
    parser.add_argument("--inp", help="llama.cpp vocabulary test texts to compare first")
    parser.add_argument("--out", help="their expected ids")
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    args = parser.parse_args()
    processor = load_processor(args.vocab)
    if args.inp and check_llama_cpp(processor, args.inp, args.out):
        return 1
    lines = []
    for text in make_texts():
        ids = processor.encode(text)
        line = {"text": text, "ids": ids}
        if (decoded := processor.decode(ids)) != text:
            line["decoded"] = decoded
        lines.append(json.dumps(line, separators=(",", ":")) + "\n")
    return emit_or_check(FOLDER, {f"{args.name}.jsonl": "".join(lines).encode("ascii")}, args.check)


if __name__ == "__main__":
    sys.exit(main())
