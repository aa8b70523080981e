"""The people, animals, things and places of one story, and how scripts refer to them.

Bindings, all constant through a story:

    A he him his          the hero                    a_kind   "little girl" or "young fox"
    B bhe bhim bhis       the friend                  b_kind
    C che chim chis       a helper ("the baker")
    M mhe mhim mhis       a relative ("mother")       pet      a small animal, without a name
    thing look            an object and its looks     other    a second object
    place in_place spot   where it happens            place2 in_place2 spot2   somewhere else
    lives                 where the hero lives ("on a farm")
    treat plant           one word each of the lists of the same names, as are skill and broken
"""

import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

TEXT = tomllib.loads(Path(__file__).with_name("stories.toml").read_text(encoding="utf-8"))
_WORDS = TEXT["cast"]

_PRONOUNS = {"he": ("he", "him", "his"), "she": ("she", "her", "her")}


@dataclass(frozen=True)
class Character:
    """Somebody with a name or a noun phrase, a kind and pronouns."""

    name: str
    kind: str
    pronoun: str

    def bindings(self, name_key: str, prefix: str) -> dict[str, str]:
        """Returns the name under `name_key` and the pronouns under `prefix` + he/him/his."""
        he, him, his = _PRONOUNS[self.pronoun]
        return {name_key: self.name, prefix + "he": he, prefix + "him": him, prefix + "his": his}


def _child(rng: random.Random, pronoun: str) -> Character:
    names = _WORDS["boys"] if pronoun == "he" else _WORDS["girls"]
    noun = "boy" if pronoun == "he" else "girl"
    return Character(
        rng.choice(names), f"{rng.choice(('little', 'young', 'small'))} {noun}", pronoun
    )


def _animal(rng: random.Random, pronoun: str, kinds: tuple[str, ...]) -> Character:
    size = rng.choice(("little", "young", "small"))
    return Character(rng.choice(_WORDS["animal_names"]), f"{size} {rng.choice(kinds)}", pronoun)


def _hero_and_friend(rng: random.Random) -> tuple[Character, Character, bool]:
    """Returns hero, friend and whether they are animals. Mostly their pronouns differ."""
    first = rng.choice(("he", "she"))
    second = first if rng.random() < 0.15 else ("she" if first == "he" else "he")
    animals = rng.random() < 0.35
    if not animals:
        hero, friend = _child(rng, first), _child(rng, second)
    else:
        kinds = rng.choice((_WORDS["forest_animals"], _WORDS["farm_animals"]))
        hero, friend = _animal(rng, first, kinds), _animal(rng, second, kinds)
    if hero.name == friend.name or (animals and hero.kind.split()[-1] == friend.kind.split()[-1]):
        return _hero_and_friend(rng)
    return hero, friend, animals


def _pet(rng: random.Random, hero: Character, friend: Character) -> str:
    """Returns an animal of another kind than hero and friend."""
    taken = {hero.kind.split()[-1], friend.kind.split()[-1]}
    return rng.choice([kind for kind in _WORDS["small_animals"] if taken.isdisjoint(kind.split())])


def draw_bindings(rng: random.Random) -> dict[str, str]:
    """Draws everybody and everything that one story may need."""
    hero, friend, animals = _hero_and_friend(rng)
    helper = Character(*_with_kind(rng.choice(_WORDS["helpers"])))
    relative = Character(*_with_kind(rng.choice(_WORDS["family"])))
    place, place2 = rng.sample(sorted(_WORDS["places"]), 2)
    thing, other = rng.sample(_WORDS["toys"], 2)
    bindings = {
        "a_kind": hero.kind,
        "b_kind": friend.kind,
        "pet": _pet(rng, hero, friend),
        "thing": thing,
        "other": other,
        "lives": "{den}" if animals else "{home}",
        "treat": rng.choice(_WORDS["treats"]),
        "plant": rng.choice(_WORDS["plants"]),
        "skill": rng.choice(_WORDS["skills"]),
        "broken": rng.choice(_WORDS["breakable"]),
    }
    for suffix, name in (("", place), ("2", place2)):
        preposition, *spots = _WORDS["places"][name]
        bindings["place" + suffix] = name
        bindings["in_place" + suffix] = f"{preposition} {name}"
        bindings["spot" + suffix] = rng.choice(spots)
    bindings |= hero.bindings("A", "") | friend.bindings("B", "b")
    bindings |= helper.bindings("C", "c") | relative.bindings("M", "m")
    return bindings


def _with_kind(entry: tuple[str, str]) -> tuple[str, str, str]:
    name, pronoun = entry
    return name, name, pronoun
