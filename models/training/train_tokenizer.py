"""Trains the SentencePiece BPE tokenizer of the embedded model, with Llama's options.

Byte fallback, no normalisation, a dummy prefix, digits one by one, and the ids unk = 0, bos = 1,
eos = 2.

    python3 -m models.training.train_tokenizer --stories build/tiny_model/train.txt \\
        --out build/tiny_model/tokenizer.model
"""

import argparse
import io
from pathlib import Path

import sentencepiece as spm

from models.training.stories import read_stories

VOCAB_SIZE = 1536
# Each printable ASCII character is a piece, which leaves the bytes to what stories never use.
PRINTABLE_ASCII = "".join(chr(code) for code in range(0x21, 0x7F))


def train(paragraphs: list[str]) -> bytes:
    """Returns the serialised SentencePiece model."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(paragraphs),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        byte_fallback=True,
        character_coverage=1.0,
        required_chars=PRINTABLE_ASCII,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        add_dummy_prefix=True,
        remove_extra_whitespaces=False,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        max_sentence_length=1 << 16,
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--count", type=int, default=4000, help="how many stories to learn from")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    stories = read_stories(args.stories)[: args.count]
    paragraphs = [paragraph for story in stories for paragraph in story.split("\n\n")]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(train(paragraphs))
    print(f"{VOCAB_SIZE} pieces from {len(stories)} stories: {args.out}")


if __name__ == "__main__":
    main()
