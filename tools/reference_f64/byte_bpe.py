"""The byte-level BPE of a GGUF in Hugging Face's `tokenizers`, with the pre-tokenizer that each model publishes in tokenizer.json."""

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SEED = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+"
        "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")  # with the line breaks themselves
HUNYUAN = ("\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
           "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
           "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")  # likewise
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376"
    "\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-"
    "\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A"
    "\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4"
    "\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
    "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
    "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
    "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"
    "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943")
CHINESE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def split(regex: str):
    return pre_tokenizers.Split(Regex(regex), "isolated")


def byte_level(use_regex: bool):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


# The `pre_tokenizer` of each model's tokenizer.json (tokenizer/pre_tokenizer_rules.cpp names the models).
RULES = {
    "llama-bpe": [split(LLAMA3), byte_level(False)],
    "smaug-bpe": [split(LLAMA3), byte_level(False)],
    "qwen2": [split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
    "deepseek-r1-qwen": [split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "gpt-2": [byte_level(True)],
    # llama.cpp's for a file that says "default"; no tokenizer.json.
    "default": [split(r"[\p{P}\$\+<=>\^\~\|]+"), split(GPT2.removesuffix(r"|\s+")), split(r"\p{N}+"),
                split("[0-9][0-9][0-9]"), byte_level(False)],
    "deepseek-llm": [split("[\r\n]"), split(f"\\s?[{CASED}]+"),
                     split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"),
                     split(CHINESE), pre_tokenizers.Digits(individual_digits=True), byte_level(False)],
    "deepseek-coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CHINESE),
                       pre_tokenizers.Digits(individual_digits=True), byte_level(False)],
    "starcoder": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "refact": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "falcon": [pre_tokenizers.Punctuation("contiguous"), byte_level(True),
               pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")],
    "tekken": [split(TEKKEN), byte_level(False)],
    "gpt-4o": [split(GPT4O), byte_level(False)],
    "mpt": [byte_level(True)],
    "command-r": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "qwen35": [split(QWEN35), byte_level(False)],
    "dbrx": [split(LLAMA3), byte_level(False)],
    "exaone4": [byte_level(True)],
    "seed-coder": [split(SEED), byte_level(False)],
    "hunyuan-dense": [*map(split, HUNYUAN), byte_level(False)],
    "chatglm-bpe": [split(LLAMA3), byte_level(False)],
    "glm4": [split(LLAMA3), byte_level(False)],
    "lfm2": [split(LLAMA3), byte_level(False)],
    "hunyuan": [split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
    "minimax-m2": [split(GPT4O), byte_level(False)],
    "olmo": [byte_level(True)],
    "laguna": [split(r"[^\n]+|[\n]+"), split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
}
IGNORE_MERGES = ("llama-bpe", "lfm2", "tekken", "gpt-4o", "glm4")
ADD_BOS = ("llama-bpe", "lfm2", "tekken")  # where the file does not say


def build(vocab: dict, merges: list, kinds: dict, rule: str, parse_control: bool) -> Tokenizer:
    """A tokenizer over the vocabulary. `kinds` has the tokens that are no normal ones."""
    model = models.BPE(vocab=vocab, merges=merges, ignore_merges=rule in IGNORE_MERGES)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(RULES[rule])
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(text, normalized=False, special=kind == CONTROL) for text, kind in kinds.items()
             if kind == USER_DEFINED or (kind == CONTROL and parse_control)]
    tokenizer.add_tokens(added)
    return tokenizer


def read_gguf(path: str):
    """Ids by token, merges, the tokens that are no normal ones with their kinds, and the name of the pre-tokenizer."""
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    vocab = {token: i for i, token in enumerate(tokens)}
    special = {token: kind for token, kind in zip(tokens, kinds, strict=True) if kind in (CONTROL, USER_DEFINED)}
    return vocab, merges, special, fields["tokenizer.ggml.pre"].contents()


class ByteBpe:
    """Texts and ids of a GGUF's vocabulary. Control tokens in a text are plain text; BOS is not added."""

    def __init__(self, path: str):
        *vocabulary, self.rule = read_gguf(path)
        if self.rule not in RULES:
            raise ValueError(f"tokenizer.ggml.pre is {self.rule!r}, only {', '.join(RULES)} are known")
        self._encoder, self._decoder = (build(*vocabulary, self.rule, parse_control) for parse_control in (False, True))

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        return self._decoder.decode(ids, skip_special_tokens=False)
