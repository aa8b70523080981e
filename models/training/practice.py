"""Practice lines: the first lesson of the training, before any story.

A story names its people and things a dozen times in three hundred tokens, too thinly for a young
model to find out soon that it should look back and copy. These lines do little else than name the
same people and things again and again, so that the model learns to look back in minutes.
"""

import random
from collections.abc import Iterator

from models.training import cast
from models.training.grammar import Grammar
from models.training.stories import WORD_CLASSES

SENTENCES_PER_TEXT = 12
_BINDINGS = ("= prize gift", "= tlook tlook_word")
_SENTENCES = (
    "{A} looked at {B}.",
    "{B} looked at {A}.",
    "{A} and {B} went to {place}.",
    "{A} gave the {thing} to {B}.",
    "{B} gave the {thing} to {A}.",
    "{A} liked the {thing}.",
    "{B} liked {place}.",
    '"Hello, {A}," said {B}.',
    '"Hello, {B}," said {A}.',
    '"Where is my {thing}?" asked {A}.',
    '"The {thing} is {in_place}," said {B}.',
    "{His} {M} called {A}.",
    "{A} ran to {his} {M}.",
    '"{A}!" said {his} {M}.',
    "{C} saw {A} and {B}.",
    '"Thank you," said {A} to {C}.',
    "{B} asked {C}.",
    "{A} saw a {pet}. The {pet} saw {A}.",
    "{A} wanted a {treat}. {B} made the {treat}.",
    "The {treat} was for {A}.",
    "{A} smiled. {B} smiled.",
    "{A} was a {a_kind}.",
    "{B} was a {b_kind}.",
    "The {a_kind} saw the {b_kind}.",
    "{A} had a {tlook} {thing}.",
    "The {tlook} {thing} was {in_place}.",
    "{A} wanted {prize}.",
    "{B} gave {A} {prize}.",
)


def generate(seed: int, count: int) -> Iterator[str]:
    """Yields `count` practice texts, each with a cast of its own."""
    rng = random.Random(seed)
    for _ in range(count):
        grammar = Grammar(rng, WORD_CLASSES, cast.draw_bindings(rng))
        lines = rng.choices(_SENTENCES, k=SENTENCES_PER_TEXT)
        yield grammar.script("\n".join((*_BINDINGS, *lines)))
