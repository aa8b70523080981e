#!/usr/bin/env python3
"""Makes spm/<NAME>.jsonl: seeded random Unicode strings with the ids that the real SentencePiece library gives.

    python tests/golden/make_spm.py VOCAB.gguf NAME [--check]

The vocabulary of the GGUF is rebuilt as a SentencePiece model (tools/reference_f64/spm_proto.py). Lines are
{"text": ..., "ids": [...]} without BOS, the format of `llmtok --check`; "decoded" is added where decoding the ids does
not give the text back.
"""

import argparse
import json
import sys

from golden_io import HERE, emit_or_check
from random_texts import make_texts

sys.path.insert(0, str(HERE.parent.parent / "tools" / "reference_f64"))
from spm_proto import load_processor  # noqa: E402

SEED = 20240607
COUNT = 1000
FOLDER = HERE / "spm"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocab", help="GGUF whose tokenizer.ggml.model is 'llama'")
    parser.add_argument("name", help="writes spm/NAME.jsonl")
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    args = parser.parse_args()
    processor = load_processor(args.vocab)
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
