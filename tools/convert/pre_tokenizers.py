"""How a byte-level BPE splits a text, as tokenizer.ggml.pre.

llama.cpp's converter recognizes published vocabularies by what they make of one text. For any other vocabulary the regular
expressions in tokenizer.json tell, letter by letter, never a model's name: those of tools/reference_f64/byte_bpe.py.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import Sequence

sys.path.append(str(Path(__file__).resolve().parents[1] / "reference_f64"))

from byte_bpe import IGNORE_MERGES, RULES  # noqa: E402
from errors import ConversionError  # noqa: E402


@dataclass(frozen=True)
class Splitting:
    name: str  # tokenizer.ggml.pre
    steps: tuple[str, ...]  # the expressions in turn; ByteLevel's own is written ByteLevel
    ignore_merges: bool  # a piece that is a token is taken whole


def _steps_of(pre: dict | None) -> tuple[str, ...]:
    """The splits of a pre_tokenizer in turn, as SPLITTINGS writes them."""
    if pre is None:
        return ()
    kind = pre.get("type")
    if kind == "Sequence":
        return tuple(step for part in pre.get("pretokenizers", ()) for step in _steps_of(part))
    if kind == "Split" and "Regex" in pre.get("pattern", {}) and pre.get("behavior") == "Isolated" and not pre.get("invert"):
        return (pre["pattern"]["Regex"],)
    if kind == "Digits" and pre.get("individual_digits"):
        return ("digits",)
    if kind == "ByteLevel" and not pre.get("add_prefix_space"):
        return ("ByteLevel",) if pre.get("use_regex", True) else ()
    raise ConversionError(f"tokenizer.json: pre-tokenizer {pre} is not converted")


def _published(name: str) -> Splitting:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Sequence(RULES[name])
    return Splitting(name, _steps_of(json.loads(tokenizer.to_str())["pre_tokenizer"]), name in IGNORE_MERGES)


# Of several that split alike the first is taken.
SPLITTINGS = tuple(map(_published, ("llama-bpe", "smaug-bpe", "qwen2", "qwen35", "tekken", "gpt-4o", "smollm", "gpt-2", "seed-coder", "hunyuan-dense", "laguna")))


def splitting_of(tokenizer: dict) -> str:
    """The name of the splitting. @throws ConversionError for one that is not in SPLITTINGS"""
    steps = _steps_of(tokenizer.get("pre_tokenizer"))
    ignore_merges = bool(tokenizer["model"].get("ignore_merges"))
    rows = [row for row in SPLITTINGS if row.steps == steps]
    for row in rows:
        if row.ignore_merges == ignore_merges:
            return row.name
    if rows:
        raise ConversionError(f"tokenizer.json: ignore_merges is {ignore_merges}; need {rows[0].ignore_merges} where texts are "
                              f"split as by {rows[0].name}")
    shown = " then ".join(repr(step) for step in steps) or "nothing"
    raise ConversionError(f"tokenizer.json: texts are split by {shown}; need a published vocabulary that llama.cpp's converter "
                          f"recognizes, or the expression of one of {', '.join(row.name for row in SPLITTINGS)}")
