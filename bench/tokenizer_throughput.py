#!/usr/bin/env python3
"""Measures byte-level BPE side by side with Hugging Face's `tokenizers`, one thread each, in turns.

    bench/tokenizer_throughput.py BIN_DIR VOCAB.gguf [--rounds N]

The text is 10 MB: prose, documentation, source code and the strings of tests/golden/bpe. Time is that of the processor in
user mode; llmtok's is that with the text less that with an empty one, and so includes printing the ids. Ids are compared.
Needs the packages of tests/golden/requirements.txt.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "golden"))
import make_bpe  # noqa: E402

N_BYTES = 10_000_000


def make_text() -> str:
    sources = [ROOT / "models" / "heldout.txt", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("engine/**/*.cpp"))]
    base = "".join(path.read_text(encoding="utf-8") for path in sources)
    base += "".join(json.loads(line) for line in (make_bpe.FOLDER / "texts.jsonl").open(encoding="utf-8"))
    chunks = [base[i:i + 2000] for i in range(0, len(base), 2000)]
    rng = random.Random(1)
    parts, size = [], 0
    while size < N_BYTES:
        parts.append(rng.choice(chunks))
        size += len(parts[-1].encode())
    return "".join(parts)


def llmtok(program: Path, vocab: str, text: bytes) -> tuple[list[int], float]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        out = subprocess.run([program, vocab, "-f", file.name, "--ids", "--no-bos"], check=True, capture_output=True)
        return [int(word) for word in out.stdout.split()], resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=Path)
    parser.add_argument("vocab")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    text = make_text()
    tokenizer = make_bpe.build(*make_bpe.read_gguf(args.vocab), False)
    size = len(text.encode())
    ours, theirs = [], []
    for _ in range(args.rounds):
        _, empty = llmtok(args.bin_dir / "llmtok", args.vocab, b"")
        ids, seconds = llmtok(args.bin_dir / "llmtok", args.vocab, text.encode())
        ours.append(seconds - empty)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        encoding = tokenizer.encode(text, add_special_tokens=False)
        theirs.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
        if encoding.ids != ids:
            print("the ids differ", file=sys.stderr)
            return 1
        print(f"{len(ids)} ids: llmtok {size / 1e6 / ours[-1]:.1f} MB/s, tokenizers {size / 1e6 / theirs[-1]:.1f} MB/s")
    print(f"best of {args.rounds}: {min(theirs) / min(ours):.1f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
