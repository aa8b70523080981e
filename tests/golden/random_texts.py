"""Seeded random Unicode strings that try a tokenizer, shared by make_spm.py and make_bpe.py."""

import random

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


def make_texts(seed: int, count: int, fragments=FRAGMENTS, fixed=FIXED, keep=lambda text: True) -> list[str]:
    """`count` strings, distinct, the fixed ones first. None has an unpaired surrogate, so all are valid UTF-8."""
    rng = random.Random(seed)
    weights = [weight for weight, _ in fragments]
    texts = list(fixed)
    seen = set(texts)
    while len(texts) < count:
        n = rng.choice((1, 2, 3, 4, 5, 6, 8, 10))
        text = "".join(make(rng) for _, make in rng.choices(fragments, weights, k=n))
        if text not in seen and keep(text):
            seen.add(text)
            texts.append(text)
    return texts
