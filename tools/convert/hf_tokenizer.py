"""The tokenizer of a checkpoint as tokenizer.ggml.* entries of a GGUF.

Two kinds: tokenizer.json with byte-level BPE (`tokenizer.ggml.model` gpt2), and tokenizer.model, SentencePiece's BPE
(`llama`). How a byte-level BPE splits text is told by the regular expressions in tokenizer.json, never by a model's name.
"""

from dataclasses import dataclass

import gguf

from hf_checkpoint import Checkpoint, ConversionError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type

# Pre-tokenizers that the engine knows, by the regular expressions that split a text (in turn). ByteLevel's own
# expression is written ByteLevel. Sources: the tokenizer.json files of Llama-3, Qwen2, SmolLM, GPT-2,
# Mistral-Nemo and gpt-oss.
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


@dataclass(frozen=True)
class Splitting:
    name: str  # tokenizer.ggml.pre
    steps: tuple[str, ...]
    ignore_merges: bool = False  # a piece that is a token is taken whole


SPLITTINGS = (
    Splitting("llama-bpe", (_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,), ignore_merges=True),
    Splitting("smaug-bpe", (_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,)),  # Llama-3's, without ignore_merges
    Splitting("qwen2", (_CONTRACTIONS + _WORDS + r"|\p{N}" + _REST,)),
    Splitting("tekken", (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
                         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",), ignore_merges=True),
    Splitting("gpt-4o", (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
                         rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
                         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",), ignore_merges=True),
    Splitting("smollm", ("digits", "ByteLevel")),
    Splitting("gpt-2", ("ByteLevel",)),
)


@dataclass
class Vocabulary:
    """Tokens by id. Texts are bytes; scores are those of SentencePiece."""

    texts: list[bytes]
    kinds: list[int]
    scores: list[float] | None = None

    def place(self, token: int, text: bytes, kind: int) -> None:
        """Sets token `token`, making room for it."""
        while len(self.texts) <= token:
            self.texts.append(b"[PAD%d]" % len(self.texts))
            self.kinds.append(UNUSED)
            if self.scores is not None:
                self.scores.append(-1e6)
        self.texts[token], self.kinds[token] = text, kind

    def id_of(self, text: str) -> int | None:
        raw = text.encode()
        return self.texts.index(raw) if raw in self.texts else None


def steps_of(pre: dict | None) -> tuple[str, ...]:
    """The splits of a pre_tokenizer in turn, as SPLITTINGS writes them."""
    if pre is None:
        return ()
    kind = pre.get("type")
    if kind == "Sequence":
        return tuple(step for part in pre.get("pretokenizers", ()) for step in steps_of(part))
    if kind == "Split" and "Regex" in pre.get("pattern", {}):
        if pre.get("behavior") != "Isolated" or pre.get("invert"):
            raise ConversionError(f"tokenizer.json: a Split that is {pre.get('behavior')}; need Isolated, not inverted")
        return (pre["pattern"]["Regex"],)
    if kind == "Digits" and pre.get("individual_digits"):
        return ("digits",)
    if kind == "ByteLevel":
        if pre.get("add_prefix_space"):
            raise ConversionError("tokenizer.json: ByteLevel with add_prefix_space, which is not converted")
        return ("ByteLevel",) if pre.get("use_regex", True) else ()
    raise ConversionError(f"tokenizer.json: pre-tokenizer {kind!r} is not converted")


def splitting_of(tokenizer: dict) -> Splitting:
    steps = steps_of(tokenizer.get("pre_tokenizer"))
    ignore_merges = bool(tokenizer["model"].get("ignore_merges"))
    rows = [row for row in SPLITTINGS if row.steps == steps]
    for row in rows:
        if row.ignore_merges == ignore_merges:
            return row
    if rows:
        raise ConversionError(f"tokenizer.json: ignore_merges is {ignore_merges}; where texts are split as by "
                              f"{rows[0].name} the engine knows {rows[0].ignore_merges} alone")
    shown = " then ".join(repr(step) for step in steps) or "nothing"
    raise ConversionError(f"tokenizer.json: texts are split by {shown}, which the engine does not know; known are "
                          f"{', '.join(row.name for row in SPLITTINGS)}")


def byte_bpe(tokenizer: dict) -> tuple[Vocabulary, list[str]]:
    """Tokens and merges of a byte-level BPE."""
    model = tokenizer["model"]
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(key):
            raise ConversionError(f"tokenizer.json: model.{key} is {model[key]!r}, which is not converted")
    normalizer = (tokenizer.get("normalizer") or {}).get("type")
    if normalizer not in (None, "NFC"):  # the engine takes a text as it is, which is NFC where people typed it
        raise ConversionError(f"tokenizer.json: normalizer {normalizer!r} is not converted; need none, or NFC")
    vocabulary = Vocabulary([], [])
    for text, token in model["vocab"].items():
        vocabulary.place(token, text.encode(), NORMAL)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return vocabulary, merges


def add_added_tokens(vocabulary: Vocabulary, tokenizer: dict) -> None:
    for token in tokenizer.get("added_tokens") or ():
        if token.get("lstrip") or token.get("rstrip") or token.get("single_word"):
            raise ConversionError(f"tokenizer.json: added token {token['content']!r} takes the blanks beside it "
                                  "(lstrip, rstrip, single_word), which is not converted")
        known = token["id"] < len(vocabulary.kinds) and vocabulary.kinds[token["id"]] == UNKNOWN
        vocabulary.place(token["id"], token["content"].encode(),
                         UNKNOWN if known else CONTROL if token.get("special") else USER_DEFINED)


def sentencepiece_bpe(checkpoint: Checkpoint) -> tuple[Vocabulary, dict]:
    """Tokens of tokenizer.model, and what of its settings the GGUF states."""
    from sentencepiece import sentencepiece_model_pb2 as pb  # needed by this kind alone

    proto = pb.ModelProto()
    try:
        proto.ParseFromString((checkpoint.directory / "tokenizer.model").read_bytes())
    except Exception as error:  # protobuf's DecodeError, which has no public name in all versions
        raise ConversionError(f"tokenizer.model is no SentencePiece model: {error}") from error
    if proto.trainer_spec.model_type != pb.TrainerSpec.BPE:
        raise ConversionError("tokenizer.model is not BPE (Unigram, word or char), which the engine does not know")
    if proto.normalizer_spec.precompiled_charsmap or proto.normalizer_spec.remove_extra_whitespaces:
        raise ConversionError(f"tokenizer.model normalizes texts ({proto.normalizer_spec.name}, extra whitespace "
                              f"{'removed' if proto.normalizer_spec.remove_extra_whitespaces else 'kept'}), which the "
                              "engine does not do; need identity")
    vocabulary = Vocabulary([p.piece.encode() for p in proto.pieces], [p.type for p in proto.pieces],
                            [p.score for p in proto.pieces])
    for token, text in ((i, t) for t, i in checkpoint.json("added_tokens.json").items()):
        vocabulary.place(token, text.encode(), CONTROL)
    ids = {"bos": proto.trainer_spec.bos_id, "eos": proto.trainer_spec.eos_id, "unk": proto.trainer_spec.unk_id}
    return vocabulary, {"ids": ids, "space_prefix": proto.normalizer_spec.add_dummy_prefix}


def special_text(config: dict, name: str) -> str | None:
    value = config.get(name)
    return value.get("content") if isinstance(value, dict) else value


def adds_special(tokenizer: dict, config: dict, end: bool) -> bool | None:
    """Whether a text gets a token before it (behind it, if `end`): as the post-processor says, else tokenizer_config.json,
    else None."""
    post = tokenizer.get("post_processor") or {}
    for part in post.get("processors", [post]):
        if part.get("type") == "TemplateProcessing":
            return "SpecialToken" in part["single"][-1 if end else 0]
    stated = config.get("add_eos_token" if end else "add_bos_token")
    return stated if isinstance(stated, bool) else None


def chat_template(checkpoint: Checkpoint, config: dict) -> str | None:
    """The template of its own file, or tokenizer_config.json's; of several the one called default."""
    if checkpoint.has("chat_template.jinja"):
        return (checkpoint.directory / "chat_template.jinja").read_text(encoding="utf-8")
    value = config.get("chat_template")
    if isinstance(value, list):
        value = next((row.get("template") for row in value if row.get("name") == "default"), None)
    return value


def end_ids(checkpoint: Checkpoint, first: int | None) -> list[int]:
    """Ids that end a reply: the tokenizer's own, then those of generation_config.json, or of config.json without one."""
    ids = [] if first is None else [first]
    stated = checkpoint.json("generation_config.json").get("eos_token_id", checkpoint.config.get("eos_token_id"))
    for token in stated if isinstance(stated, list) else [stated]:
        if isinstance(token, int) and token not in ids:
            ids.append(token)
    return ids


def write_tokenizer(writer: gguf.GGUFWriter, checkpoint: Checkpoint, n_vocab: int) -> str:
    """Adds the entries of the checkpoint's tokenizer for a model of n_vocab rows. Returns what it is, for people."""
    tokenizer, config = checkpoint.json("tokenizer.json"), checkpoint.json("tokenizer_config.json")
    ids: dict[str, int | None] = {}
    model = tokenizer.get("model") or {}
    if checkpoint.has("tokenizer.model") and (not model or model.get("byte_fallback")):
        vocabulary, settings = sentencepiece_bpe(checkpoint)
        ids |= {name: token for name, token in settings["ids"].items() if token >= 0}
        writer.add_tokenizer_model("llama")
        writer.add_add_space_prefix(settings["space_prefix"])
        kind, merges, defaults = "SentencePiece BPE", None, (True, False)
    elif model.get("type") == "BPE" and not model.get("byte_fallback"):
        splitting = splitting_of(tokenizer)
        vocabulary, merges = byte_bpe(tokenizer)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(splitting.name)
        kind, defaults = f"byte-level BPE, pre-tokenizer {splitting.name}", (False, False)
    elif model.get("byte_fallback"):
        raise ConversionError("tokenizer.json is a converted SentencePiece model; need tokenizer.model beside it")
    elif model:
        raise ConversionError(f"tokenizer.json: model {model.get('type')!r} is not converted; need BPE")
    else:
        raise ConversionError("no tokenizer; need tokenizer.json or tokenizer.model")
    add_added_tokens(vocabulary, tokenizer)
    if len(vocabulary.texts) > n_vocab:
        raise ConversionError(f"the tokenizer has {len(vocabulary.texts)} tokens, the embedding {n_vocab} rows")
    if len(vocabulary.texts) < n_vocab:  # rows beyond the tokens, as in Qwen's files
        vocabulary.place(n_vocab - 1, b"[PAD%d]" % (n_vocab - 1), UNUSED)

    for name in ("bos", "eos", "unk", "pad"):
        text = special_text(config, f"{name}_token")
        token = vocabulary.id_of(text) if text else None
        if token is not None:
            ids[name] = token
    ends = end_ids(checkpoint, ids.get("eos"))
    if any(not 0 <= token < n_vocab for token in ends):
        raise ConversionError(f"eos_token_id {ends} is outside the {n_vocab} tokens")
    writer.add_token_list(vocabulary.texts)
    if vocabulary.scores is not None:
        writer.add_token_scores(vocabulary.scores)
    writer.add_token_types(vocabulary.kinds)
    if merges is not None:
        writer.add_token_merges(merges)
    for name, add in (("bos", writer.add_bos_token_id), ("unk", writer.add_unk_token_id), ("pad", writer.add_pad_token_id)):
        if ids.get(name) is not None:
            add(ids[name])
    for token, add in zip(ends, (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)):
        add(token)
    for end, add, default in ((False, writer.add_add_bos_token, defaults[0]), (True, writer.add_add_eos_token, defaults[1])):
        stated = adds_special(tokenizer, config, end)
        add(default if stated is None else stated)
    template = chat_template(checkpoint, config)
    if template:
        writer.add_chat_template(template)
    return kind
