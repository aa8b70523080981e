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
import sys
from pathlib import Path

from golden_io import HERE, emit_or_check
from random_texts import make_texts

sys.path.insert(0, str(HERE.parent.parent / "tools" / "oracle"))
from spm_proto import load_processor  # noqa: E402

SEED = 20240607
COUNT = 1000
FOLDER = HERE / "spm"


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
    for text in make_texts(SEED, COUNT):
        ids = processor.encode(text)
        line = {"text": text, "ids": ids}
        if (decoded := processor.decode(ids)) != text:
            line["decoded"] = decoded
        lines.append(json.dumps(line, separators=(",", ":")) + "\n")
    return emit_or_check(FOLDER, {f"{args.name}.jsonl": "".join(lines).encode("ascii")}, args.check)


if __name__ == "__main__":
    sys.exit(main())
