"""Writes children's stories: the whole training text of the embedded model.

A story is one plot of stories.toml told with one drawn cast (cast.py). The same seed gives the same
stories. Files hold paragraphs separated by one empty line and stories separated by two.

    python3 -m models.training.stories --seed 1 --count 16000 --out build/tiny_model/train.txt
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from models.training import cast
from models.training.grammar import Grammar

STORY_SEPARATOR = "\n\n\n"
PLOTS = tuple(cast.TEXT["plots"].values())
WORD_CLASSES = cast.TEXT["classes"]


def write_story(rng: random.Random) -> str:
    """Returns one story: paragraphs separated by empty lines."""
    script = rng.choice(PLOTS)
    return Grammar(rng, WORD_CLASSES, cast.draw_bindings(rng)).script(script)


def generate(seed: int, count: int) -> Iterator[str]:
    """Yields `count` different stories."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        story = write_story(rng)
        if story not in seen:
            seen.add(story)
            yield story


def read_stories(path: Path) -> list[str]:
    """Reads a file that `main` wrote."""
    parts = path.read_text(encoding="utf-8").split(STORY_SEPARATOR)
    return [part.strip() for part in parts if part.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    text = STORY_SEPARATOR.join(generate(args.seed, args.count)) + "\n"
    args.out.write_text(text, encoding="utf-8")
    print(f"{args.count} stories, {len(text)} characters, seed {args.seed}: {args.out}")


if __name__ == "__main__":
    main()
