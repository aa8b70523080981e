"""How a byte-level BPE splits a text, as tokenizer.ggml.pre.

llama.cpp's converter recognizes published vocabularies by what they make of one text. For any other vocabulary the regular
expressions in tokenizer.json tell, letter by letter, never a model's name.
"""

from dataclasses import dataclass

from errors import ConversionError

_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


@dataclass(frozen=True)
class Splitting:
    name: str  # tokenizer.ggml.pre
    steps: tuple[str, ...]  # the expressions in turn; ByteLevel's own is written ByteLevel
    ignore_merges: bool = False  # a piece that is a token is taken whole


# Sources: the tokenizer.json files of Llama-3, Qwen2, Qwen3.5, SmolLM, GPT-2, Mistral-Nemo and gpt-oss.
SPLITTINGS = (
    Splitting("llama-bpe", (_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,), ignore_merges=True),
    Splitting("smaug-bpe", (_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,)),  # Llama-3's, without ignore_merges
    Splitting("qwen2", (_CONTRACTIONS + _WORDS + r"|\p{N}" + _REST,)),
    Splitting("qwen35", (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
                         r"|\s+(?!\S)|\s+",)),
    Splitting("tekken", (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
                         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",), ignore_merges=True),
    Splitting("gpt-4o", (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
                         rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
                         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",), ignore_merges=True),
    Splitting("smollm", ("digits", "ByteLevel")),
    Splitting("gpt-2", ("ByteLevel",)),
)


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
