"""Ids to text and text to ids (docs/tokenizer.md)."""

import codecs
import re
import unicodedata

from gguf_model import GgufModel
from hparams import UnsupportedModel

UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6
RESERVED, NO_TOKEN = (CONTROL, UNKNOWN, BYTE), 0xFFFFFFFF
ENDS = set("<|im_end|> <|eot_id|> <|eom_id|> <|end|> <|endoftext|> <|end_of_text|> <|EOT|> <EOT> _<EOT> [EOT] <end_of_turn> "
           "<end_of_utterance> <｜end▁of▁sentence｜>".split())
FILL_IN = {"pad": "<|fim_pad|> <fim_pad> <fim-pad> <PAD> [PAD]", "sep": "<|file_sep|> <file_sep>",
           "rep": "<|fim_repo|> <|repo_name|> <reponame> <repo_name> <fim-repo> <REPO>"}

# Expressions with L, N and S for letters, numbers and white space, which Python's have not.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?{L}+| ?{N}+| ?{!SLN}+|{S}+(?!{!S})|{S}+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{!LNR}?{L}+|{N}DIGITS| ?{!SLN}+[\r\n]*|{S}*[\r\n]+|{S}+(?!{!S})|{S}+"
# tokenizer.ggml.pre: expressions one after the other, whether a piece that is a token stays whole, and whether BOS is the default.
RULES = {"smollm": (["{N}", GPT2], False, False), "gpt-2": ([GPT2], False, False),
         "llama-bpe": ([LLAMA3.replace("DIGITS", "{1,3}")], True, True), "qwen2": ([LLAMA3.replace("DIGITS", "")], False, False)}


def one_by_one(error: UnicodeDecodeError):
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("one by one", one_by_one)


def alphabet() -> dict[str, int]:
    """GPT-2's: a character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def compiled(expression: str, text: str) -> re.Pattern:
    """With the classes {L}, {N}, {S} and {!...}, their complement (R there is a line break), as far as the text's characters go."""
    members = {"R": "\r\n", "S": {c for c in text if c.isspace() and c not in "\x1c\x1d\x1e\x1f"}}
    members |= {kind: {c for c in text if unicodedata.category(c)[0] == kind} for kind in "LN"}

    def one(match: re.Match) -> str:
        inside = "".join(re.escape(c) for kind in match[2] for c in members[kind])
        if match[1]:
            return f"[^{inside}]" if inside else "(?s:.)"
        return f"[{inside}]" if inside else "(?!)"
    return re.compile(re.sub(r"\{(!?)([LNSR]+)\}", one, expression))


def split(expression: str, text: str) -> list[str]:
    """The expression's matches, and what stands between them."""
    return [piece for piece in compiled(f"({expression})", text).split(text) if piece]


class Tokenizer:
    def __init__(self, model: GgufModel):
        self.keys = model.values("tokenizer.ggml.")
        self.tokens = self.keys["tokens"]
        self.types = self.keys.get("token_type")
        if self.types is None:
            raise UnsupportedModel("the model has no tokenizer.ggml.token_type")
        self.byte_level = self.keys["model"] == "gpt2"
        if not self.byte_level:  # files spell spaces of user-defined tokens either way
            self.tokens = [t.replace(" ", "\u2581") if kind == USER_DEFINED else t for t, kind in zip(self.tokens, self.types)]
        self.ids = {token: i for i, token in reversed(list(enumerate(self.tokens)))}
        self.bytes = alphabet()
        self.chars = {byte: char for char, byte in self.bytes.items()}
        self.ranks = {pair: i for i, pair in enumerate(self.keys.get("merges", []))}

    def ends(self) -> set[int]:
        """The ids that end a text."""
        keys = ["eos_token_id", "eot_token_id", "eom_token_id", *(f"fim_{part}_token_id" for part in FILL_IN)]
        ends = {self.keys[key] for key in keys if key in self.keys}
        if "eos_token_id" not in self.keys and self.types[2] == CONTROL:
            ends.add(2)
        for part, texts in FILL_IN.items():
            known = [self.ids[text] for text in texts.split() if text in self.ids]
            ends |= set(known[:1]) if f"fim_{part}_token_id" not in self.keys else set()
        ends |= {i for i, token in enumerate(self.tokens) if token in ENDS and self.types[i] in (CONTROL, USER_DEFINED)}
        return ends - {NO_TOKEN}

    def has_space_prefix(self) -> bool:
        return not self.byte_level and self.keys.get("add_space_prefix", True)

    def decode(self, ids: list[int], specials: bool) -> str:
        return b"".join(self.spelled(i, specials) for i in ids).decode("utf-8", "one by one")

    def spelled(self, i: int, specials: bool) -> bytes:
        token, kind = self.tokens[i], self.types[i]
        if kind in (CONTROL, UNKNOWN) and not specials:
            return b"" if kind == CONTROL else " \u2047 ".encode()
        if kind in (CONTROL, UNKNOWN, USER_DEFINED) and self.byte_level:
            return token.encode()
        if self.byte_level:
            return bytes(self.bytes[char] for char in token)
        if kind == BYTE:
            return bytes([int(token[3:5], 16)])
        return token.replace("\u2581", " ").encode()

    def encode(self, text: str, specials: bool) -> list[int]:
        ids = []
        for piece, is_control in self.cut(text, CONTROL if specials else None):
            if is_control:
                ids.append(self.ids[piece])
                continue
            if not self.byte_level:
                piece = ("\u2581" if self.has_space_prefix() else "") + piece.replace(" ", "\u2581")
            for part, is_user_defined in self.cut(piece, USER_DEFINED):
                ids += [self.ids[part]] if is_user_defined else self.plain(part)
        bos = self.keys.get("add_bos_token", self.rule()[2] if self.byte_level else True)
        first = [self.keys.get("bos_token_id", 1)] if bos else []
        last = [self.keys.get("eos_token_id", 2)] if self.keys.get("add_eos_token", False) else []
        return [i for i in first + (ids if text else []) + last if i != NO_TOKEN]

    def rule(self):
        name = self.keys.get("pre", "")
        if name not in RULES:
            raise UnsupportedModel(f"pre-tokenizer {name!r}; there are {sorted(RULES)}")
        return RULES[name]

    def cut(self, text: str, kind: int | None) -> list[tuple[str, bool]]:
        """(text, whether it is a token of that kind): cut out leftmost and longest first."""
        words = sorted((t for i, t in enumerate(self.tokens) if self.types[i] == kind and t), key=len, reverse=True)
        if not words:
            return [(text, False)] if text else []
        pieces = re.split("(" + "|".join(map(re.escape, words)) + ")", text)
        return [(piece, i % 2 == 1) for i, piece in enumerate(pieces) if piece]

    def plain(self, text: str) -> list[int]:
        if not self.byte_level:
            return [i for part in self.merge(list(text), self.score) for i in self.piece(part)]
        pieces = [text]
        for expression in self.rule()[0]:
            pieces = [part for piece in pieces for part in split(expression, piece)]
        ids = []
        for piece in pieces:
            chars = [self.chars[byte] for byte in piece.encode() if self.chars[byte] in self.ids]
            whole = "".join(chars)
            is_token = self.rule()[1] and whole in self.ids and self.types[self.ids[whole]] not in RESERVED
            parts = [whole] if is_token else self.merge(chars, self.rank)
            ids += [self.ids[part] for part in parts]
        return ids

    def rank(self, left: str, right: str) -> float | None:
        return self.ranks.get(f"{left} {right}")

    def score(self, left: str, right: str) -> float | None:
        i = self.ids.get(left + right)
        return None if i is None or self.types[i] in RESERVED else -float(self.keys["scores"][i])

    @staticmethod
    def merge(parts: list[str], order) -> list[str]:
        """Joins the neighbours of the lowest order, of equal ones the leftmost, until none may be joined."""
        while True:
            pairs = [(o, i) for i in range(len(parts) - 1) if (o := order(parts[i], parts[i + 1])) is not None]
            if not pairs:
                return parts
            i = min(pairs)[1]
            parts[i:i + 2] = [parts[i] + parts[i + 1]]

    def piece(self, text: str) -> list[int]:
        i = self.ids.get(text)
        if i is not None and self.types[i] == UNUSED:
            raise UnsupportedModel("text that an unused piece spells")
        if i is not None and self.types[i] not in RESERVED:
            return [i]
        try:
            return [self.ids[f"<0x{byte:02X}>"] for byte in text.encode()]
        except KeyError:
            raise UnsupportedModel("text that the vocabulary cannot spell") from None
