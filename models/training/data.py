"""Turns stories into rows of tokens for training and evaluation."""

from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece as spm

BOS, EOS = 1, 2


def encode_stories(
    tokenizer: spm.SentencePieceProcessor, stories: Sequence[str]
) -> list[np.ndarray]:
    """Returns BOS + tokens + EOS of each story, as int64 arrays."""
    return [np.array([BOS, *ids, EOS], dtype=np.int64) for ids in tokenizer.encode(list(stories))]


def pack(stories: Sequence[np.ndarray], order: Sequence[int], length: int) -> Iterator[np.ndarray]:
    """Yields rows of `length` tokens made of whole stories in `order`, the last of a row being cut.

    Every row starts with BOS: position 0 is trained as it will be used.
    """
    row: list[np.ndarray] = []
    filled = 0
    for index in order:
        row.append(stories[index])
        filled += len(stories[index])
        if filled >= length:
            yield np.concatenate(row)[:length]
            row, filled = [], 0


def epochs(
    stories: Sequence[np.ndarray], length: int, batch: int, seed: int
) -> Iterator[np.ndarray]:
    """Yields batches (batch, length) for ever, in a new order each epoch."""
    rng = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    while True:
        for row in pack(stories, rng.permutation(len(stories)), length):
            rows.append(row)
            if len(rows) == batch:
                yield np.stack(rows)
                rows = []
