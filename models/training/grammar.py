"""A small template language for stories.

A script is plain text. Each line is one beat; a blank line ends a paragraph.

    = name class     binds `name` to one random member of the word class `class`
    ? text           an optional beat, told half of the time
    * text           one of the neighbouring `*` lines is told

Within a beat:

    [a|b|]           one of the options (options nest, and may be empty)
    {name}           a bound value, else a random member of the word class `name`
    {Name}           the same with a capital letter
    ^x               capital x (for sentences that start with a field)

Members of a word class are templates themselves.
"""

import random
import re
from collections.abc import Mapping, Sequence

_INNERMOST_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_FIELD = re.compile(r"\{(\w+)\}")
_MAX_DEPTH = 12


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _polish(text: str) -> str:
    """Applies `^`, sentence capitals, a/an and single spaces."""
    text = re.sub(r" {2,}", " ", text).strip()
    text = re.sub(r" ([.,!?])", r"\1", text)
    text = re.sub(r"\^(\w)", lambda m: m.group(1).upper(), text)
    text = re.sub(r"(^|[.!?] )([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU](?!nicorn))", r"\1n ", text)


class Grammar:
    """Expands scripts with one random generator, word classes and the bindings of one story."""

    def __init__(
        self,
        rng: random.Random,
        classes: Mapping[str, Sequence[str]],
        bindings: Mapping[str, str],
    ):
        self._rng = rng
        self._classes = classes
        self._bindings: dict[str, str] = {}
        for name, value in bindings.items():
            self._bindings[name] = self._expand(value, 0)

    def script(self, text: str) -> str:
        """Expands a whole script into paragraphs separated by one empty line."""
        paragraphs = [self._paragraph(part.splitlines()) for part in text.strip().split("\n\n")]
        return "\n\n".join(p for p in paragraphs if p)

    def beat(self, text: str) -> str:
        """Expands one beat into polished sentences."""
        return _polish(self._expand(text, 0))

    def _paragraph(self, lines: Sequence[str]) -> str:
        beats: list[str] = []
        index = 0
        while index < len(lines):
            line = lines[index].strip()
            index += 1
            if line.startswith("= "):
                _, name, word_class = line.split()
                self._bindings[name] = self._expand("{" + word_class + "}", 0)
            elif line.startswith("? "):
                if self._rng.random() < 0.5:
                    beats.append(self.beat(line[2:]))
            elif line.startswith("* "):
                options = [line[2:]]
                while index < len(lines) and lines[index].strip().startswith("* "):
                    options.append(lines[index].strip()[2:])
                    index += 1
                beats.append(self.beat(self._rng.choice(options)))
            elif line:
                beats.append(self.beat(line))
        return " ".join(beats)

    def _expand(self, text: str, depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise ValueError(f"word classes refer to each other in a circle: {text!r}")
        while match := _INNERMOST_CHOICE.search(text):
            chosen = self._rng.choice(match.group(1).split("|"))
            text = text[: match.start()] + chosen + text[match.end() :]
        return _FIELD.sub(lambda m: self._field(m.group(1), depth), text)

    def _field(self, name: str, depth: int) -> str:
        if name in self._bindings:
            return self._bindings[name]
        if name in self._classes:
            return self._expand(self._rng.choice(self._classes[name]), depth + 1)
        lower = name[:1].lower() + name[1:]
        if lower != name:
            return _capitalised(self._field(lower, depth))
        raise KeyError(f"no binding or word class named {name!r}")
