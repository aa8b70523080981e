"""Checks the exported GGUF by its own contents: tokenizer, held-out perplexity, stories to read.

    python3 -m models.training.check_gguf --gguf models/fable-3m-f16.gguf \\
        --heldout models/heldout.txt --tokenizer build/tiny_model/tokenizer.model
"""

import argparse
import math
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
from gguf import TokenType

from models.training import data
from models.training.gguf_file import Vocabulary, read_model
from models.training.model import Llama
from models.training.stories import read_stories
from models.training.train import evaluate

_SPACE = "\u2581"
_HARD_STRINGS = (
    "",
    " ",
    "  two  spaces  ",
    "tab\tand\nnewline\r\n",
    "1234567890",
    "caf\u00e9 \u00fcber \u4f60\u597d \U0001f600",
    "\u2581\u2581",
    "<s> </s> <unk> <0x41>",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    '"Hello!" said Tom.',
    "\u0000\u007f~`{}[]",
)


class Tokenizer:
    """Encodes by merging the neighbours whose union scores best, leftmost first."""

    def __init__(self, vocabulary: Vocabulary):
        self._pieces = vocabulary.pieces
        self._scores = vocabulary.scores
        self._ids: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._byte_ids: dict[int, int] = {}
        for index, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.types)):
            if kind == TokenType.NORMAL:
                self._ids[piece] = index
            elif kind == TokenType.BYTE:
                self._bytes[piece] = int(piece[3:5], 16)
                self._byte_ids[self._bytes[piece]] = index

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, without BOS. Quadratic: for checks only."""
        symbols = list((_SPACE + text).replace(" ", _SPACE)) if text else []
        while True:
            merged = [a + b for a, b in zip(symbols, symbols[1:])]
            known = [i for i, piece in enumerate(merged) if piece in self._ids]
            if not known:
                break
            best = max(known, key=lambda i: (self._scores[self._ids[merged[i]]], -i))
            symbols[best : best + 2] = [merged[best]]
        ids: list[int] = []
        for symbol in symbols:
            if symbol in self._ids:
                ids.append(self._ids[symbol])
            else:
                ids.extend(self._byte_ids[value] for value in symbol.encode("utf-8"))
        return ids

    def decode(self, ids: list[int]) -> str:
        """Returns the text of `ids`, without the dummy prefix and control tokens."""
        raw = b""
        for index in ids:
            piece = self._pieces[index]
            if piece in self._bytes:
                raw += bytes([self._bytes[piece]])
            elif piece in self._ids:
                raw += piece.encode("utf-8")
        return raw.decode("utf-8", "replace").replace(_SPACE, " ").removeprefix(" ")


@torch.inference_mode()
def generate(model: Llama, prompt: list[int], temperature: float, seed: int) -> list[int]:
    """Continues BOS + prompt until EOS or a full context; temperature 0 takes the best token."""
    generator = torch.Generator().manual_seed(seed)
    ids = [data.BOS, *prompt]
    while len(ids) < model.config.context and ids[-1] != data.EOS:
        logits = model(torch.tensor([ids]))[0, -1]
        if temperature > 0:
            weights = torch.softmax(logits / temperature, dim=-1)
            ids.append(int(torch.multinomial(weights, 1, generator=generator)))
        else:
            ids.append(int(logits.argmax()))
    return ids


def check_tokenizer(
    ours: Tokenizer, reference: spm.SentencePieceProcessor, stories: list[str]
) -> int:
    """Returns how many strings were compared; raises on the first difference."""
    paragraphs = [paragraph for story in stories for paragraph in story.split("\n\n")]
    strings = [*_HARD_STRINGS, *paragraphs, *("\n".join(p.splitlines()) for p in stories[:5])]
    for text in strings:
        expected, actual = reference.encode(text), ours.encode(text)
        if expected != actual:
            raise AssertionError(f"tokens of {text!r}: SentencePiece {expected}, GGUF {actual}")
    return len(strings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, help="compare with this SentencePiece model")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--samples", type=int, default=3, help="how many, after the greedy one")
    parser.add_argument("--temperature", type=float, default=0.8)
    args = parser.parse_args()
    file = read_model(args.gguf)
    tokenizer = Tokenizer(file.vocabulary)
    stories = read_stories(args.heldout)
    if args.tokenizer:
        reference = spm.SentencePieceProcessor(model_file=str(args.tokenizer))
        compared = check_tokenizer(tokenizer, reference, stories)
        print(f"tokenizer: {compared} strings agree with SentencePiece")
    model = Llama(file.config)
    model.load_state_dict({name: torch.tensor(tensor) for name, tensor in file.tensors.items()})
    tokens = [np.array([data.BOS, *tokenizer.encode(story), data.EOS]) for story in stories]
    nats = evaluate(model, tokens)
    quality = f"loss {nats:.4f}, perplexity {math.exp(nats):.3f}"
    print(f"held-out: {len(stories)} stories, {sum(map(len, tokens))} tokens, {quality}")
    for seed in range(args.samples + 1):
        temperature = args.temperature if seed > 0 else 0.0
        ids = generate(model, tokenizer.encode(args.prompt), temperature, seed)
        print(f"\n--- temperature {temperature}, seed {seed}, {len(ids)} tokens")
        print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()
