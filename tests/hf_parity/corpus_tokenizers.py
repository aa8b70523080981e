"""Tokenizers of the corpus' checkpoints, trained on the project's held-out text and saved as their families' are: a SentencePiece
BPE in tokenizer.model, or a byte-level BPE in tokenizer.json with the pre-tokenizer of Llama-3, Granite, GPT-4o or Qwen2, or as Gemma 4's."""

import json
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from byte_bpe import ADD_BOS, IGNORE_MERGES, RULES
from shapes import Shape

TEXT = Path(__file__).resolve().parents[2] / "models" / "heldout.txt"
SPECIAL = {"llama-bpe": ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
           "smollm": ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
           "gpt-4o": ("<|startoftext|>", "<|return|>", "<|call|>"),
           "tekken": ("<s>", "</s>", "[/INST]"), "gpt-2": ("[BOS]", "<|endoftext|>", "[|endofturn|]"),
           "hunyuan-dense": ("<|hy_begin|>", "<|hy_User|>", "<|hy_place|>"),
           "glm4": ("<|endoftext|>", "<|user|>", "<|assistant|>"),
           "laguna": ("<unk>", "<eos>", "</assistant>"),
           "seed-coder": ("<seed:bos>", "<seed:pad>", "<seed:eos>"),
           "smaug-bpe": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
           "qwen2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "qwen35": ("<|endoftext|>", "<|im_start|>", "<|im_end|>")}
KINDS = {"llama": "llama-bpe", "lfm2": "llama-bpe", "lfm2_moe": "llama-bpe", "llama-bpe": "llama-bpe", "smollm3": "llama-bpe", "granite": "smollm", "granitemoe": "smollm", "granitehybrid": "smollm", "gpt_oss": "gpt-4o", "minimax_m2": "gpt-4o",
         "laguna": "laguna", "glm4_moe": "glm4", "dots1": "qwen2", "qwen2_moe": "qwen2", "hunyuan_moe": "qwen2", "olmoe": "gpt-2",
         "ministral3": "tekken", "olmo2": "smaug-bpe", "olmo3": "smaug-bpe", "exaone4": "gpt-2", "seed_oss": "seed-coder", "hunyuan": "hunyuan-dense", "glm4": "glm4",
         "qwen2": "qwen2", "qwen3": "qwen2", "qwen3_moe": "qwen2", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen2", "qwen3_vl_moe": "qwen2", "qwen3_next": "qwen2", "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35"}  # of byte-level BPEs: their pre-tokenizers
GEMMA4_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", "<|turn>", "<turn|>")
ENDS = {"llama-bpe": (1, 2), "tekken": (1,), "smaug-bpe": (0, 2), "gpt-2": (1, 2), "laguna": (1, 2), "seed-coder": (1, 2), "hunyuan-dense": (2,), "glm4": (1, 0), "smollm": (2,), "gpt-4o": (1, 2), "qwen2": (0, 2), "qwen35": (0, 2)}  # those of SPECIAL that end a reply
# Of a family whose pre-tokenizer others have with other special tokens: these, and those that end a reply.
OWN_SPECIAL = {"glm4_moe": (("<|endoftext|>", "<|user|>", "<|observation|>", "[gMASK]"), (1, 2, 0))}
ROWS_WITHOUT_TOKEN = 7  # embeddings have more rows than there are tokens, as Qwen's


def special_of(shape: Shape) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The special tokens, and which of them end a reply."""
    kind = KINDS[shape.family]
    return OWN_SPECIAL.get(shape.family, (SPECIAL[kind], ENDS.get(kind, ())))


def _byte_bpe(shape: Shape) -> Tokenizer:
    kind = KINDS[shape.family]
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind in IGNORE_MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(RULES[kind])
    tokenizer.decoder = decoders.ByteLevel()
    special, _ = special_of(shape)
    trainer = trainers.BpeTrainer(vocab_size=shape.vocab - ROWS_WITHOUT_TOKEN - len(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(TEXT)], trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    if kind in ADD_BOS:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{special[0]} $A", special_tokens=[(special[0], tokenizer.token_to_id(special[0]))])
    elif kind in ("qwen2", "qwen35"):
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _gemma4(shape: Shape) -> Tokenizer:
    """BPE over texts with U+2581 for spaces, bytes for what has no token, and no split but at runs of newlines."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    own = [*GEMMA4_SPECIAL, *bytes_]
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    # A text is one piece: of each sentence, so that training ends.
    sentences = [part + "." for line in TEXT.read_text(encoding="utf-8").splitlines() for part in line.split(".")] + ["\n\n\n"]
    trained.train_from_iterator(sentences, trainers.BpeTrainer(vocab_size=shape.vocab - len(own), show_progress=False, limit_alphabet=40,
                                                               max_token_length=12))
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    vocab = {text: i for i, text in enumerate([*own, *pieces])}
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in GEMMA4_SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", vocab["<bos>"])])
    if len(vocab) != shape.vocab:
        raise ValueError(f"{shape.name}: {len(vocab)} tokens, need {shape.vocab}")
    return tokenizer


def make_tokenizer(shape: Shape, directory: Path) -> None:
    """Adds the tokenizer's files to a checkpoint."""
    if shape.family == "gemma4":
        _gemma4(shape).save(str(directory / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
                  "unk_token": "<unk>"}
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]}), encoding="utf-8")
    elif shape.family not in KINDS:
        with open(directory / "tokenizer.model", "wb") as out, open(TEXT, encoding="utf-8") as text:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=text, model_writer=out, vocab_size=shape.vocab - ROWS_WITHOUT_TOKEN, model_type="bpe",
                byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                add_dummy_prefix=shape.family not in ("gemma2", "gemma3"),
                hard_vocab_limit=False, minloglevel=2)
        config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
                  "eos_token": "</s>"}
    else:
        tokenizer = _byte_bpe(shape)
        tokenizer.save(str(directory / "tokenizer.json"))
        kind = KINDS[shape.family]
        special, ends = special_of(shape)
        config = {"eos_token": special[ends[-1]]} | ({"bos_token": special[0]} if kind in ADD_BOS else {})
        ends = [tokenizer.token_to_id(special[i]) for i in ends]
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def encode(shape: Shape, directory: Path, text: str) -> list[int]:
    """Ids of a text by the library that made the tokenizer, with the token before it that the model wants."""
    if shape.family not in (*KINDS, "gemma4"):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
        return [processor.bos_id(), *processor.encode(text)]
    return Tokenizer.from_file(str(directory / "tokenizer.json")).encode(text).ids
