"""Checks of what becomes of tokenizers; run by selftest.py."""

import json

from hf_tokenizer import BYTE, CONTROL, NORMAL, SPLITTINGS, UNKNOWN, UNUSED, USER_DEFINED
from selftest_bench import LLAMA3, TOKENIZER, VOCAB, Bench, split, value


def check_byte_bpe(bench: Bench) -> None:
    (bench.dir / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9]}))
    (bench.dir / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": {"content": "</s>"},
        "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]}))
    reader = bench.convert()
    assert (value(reader, "tokenizer.ggml.model"), value(reader, "tokenizer.ggml.pre")) == ("gpt2", "llama-bpe")
    assert value(reader, "tokenizer.ggml.tokens") == ["a", "b", "c", "d", "e", "f", "ab", "abc", "<s>", "</s>", "<tool>",
                                                      "[PAD11]"]
    assert value(reader, "tokenizer.ggml.token_type") == [NORMAL] * 8 + [CONTROL] * 2 + [USER_DEFINED, UNUSED]
    assert value(reader, "tokenizer.ggml.merges") == ["a b", "ab c"]
    ids = [value(reader, f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "eom")]
    assert ids == [8, 9, 8, None], ids
    assert value(reader, "tokenizer.ggml.add_bos_token") is True and value(reader, "tokenizer.chat_template") == "yes"
    (bench.dir / "chat_template.jinja").write_text("of its own")
    bench.tokenizer["post_processor"] = {"type": "Sequence", "processors": [{"type": "ByteLevel"}]}
    reader = bench.convert()
    assert value(reader, "tokenizer.chat_template") == "of its own"
    assert value(reader, "tokenizer.ggml.add_bos_token") is False


def check_splittings(bench: Bench) -> None:
    """The expression tells, whatever the model calls itself."""
    bench.config["_name_or_path"] = "meta-llama/Meta-Llama-3-8B"
    pieces = {"digits": {"type": "Digits", "individual_digits": True},
              "ByteLevel": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}}
    for row in SPLITTINGS:
        if row.steps[0] in pieces:
            pre = {"type": "Sequence", "pretokenizers": [pieces[step] for step in row.steps]}
        else:
            pre = split(*row.steps)
        bench.tokenizer = TOKENIZER | {"pre_tokenizer": pre,
                                       "model": TOKENIZER["model"] | {"ignore_merges": row.ignore_merges}}
        assert value(bench.convert(), "tokenizer.ggml.pre") == row.name
    qwen2 = next(row for row in SPLITTINGS if row.name == "qwen2")
    for change, *words in (
            ({"pre_tokenizer": split(LLAMA3.steps[0].replace("{1,3}", "{1,2}"))}, "{1,2}", "llama-bpe, smaug-bpe, qwen2"),
            ({"pre_tokenizer": split(*qwen2.steps)}, "ignore_merges is True", "qwen2"),
            ({"pre_tokenizer": {"type": "Whitespace"}}, "'Whitespace'"), ({"normalizer": {"type": "Lowercase"}}, "'Lowercase'"),
            ({"model": {"type": "Unigram"}}, "'Unigram'"),
            ({"added_tokens": [{"id": VOCAB, "content": "x", "special": True}]}, f"{VOCAB + 1} tokens", f"{VOCAB} rows"),
            ({"added_tokens": [{"id": 9, "content": "<mask>", "special": True, "lstrip": True}]}, "<mask>", "lstrip")):
        bench.tokenizer = TOKENIZER | change
        bench.refused(*words)


def check_sentencepiece(bench: Bench) -> None:
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto()
    for piece, score, kind in (("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL), ("<0x00>", 0, BYTE),
                               ("\u2581a", -1, NORMAL), ("a", -2, NORMAL)):
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.model_type = pb.TrainerSpec.BPE
    proto.normalizer_spec.name, proto.normalizer_spec.remove_extra_whitespaces = "identity", False
    bench.tokenizer, bench.config["eos_token_id"] = None, 2
    path = bench.dir / "tokenizer.model"
    path.write_bytes(proto.SerializeToString())
    (bench.dir / "added_tokens.json").write_text(json.dumps({"<|im_start|>": 7}))
    reader = bench.convert()
    assert value(reader, "tokenizer.ggml.model") == "llama" and value(reader, "tokenizer.ggml.add_space_prefix") is True
    assert value(reader, "tokenizer.ggml.tokens")[4:8] == ["\u2581a", "a", "[PAD6]", "<|im_start|>"]
    assert value(reader, "tokenizer.ggml.token_type")[:8] == [2, 3, 3, 6, 1, 1, 5, 3]
    assert value(reader, "tokenizer.ggml.scores")[4:6] == [-1, -2]
    assert value(reader, "tokenizer.ggml.add_bos_token") is True and value(reader, "tokenizer.ggml.bos_token_id") == 1
    bench.tokenizer = {"model": {"type": "BPE", "byte_fallback": True, "vocab": {}, "merges": []},
                       "added_tokens": [{"id": 0, "content": "<unk>", "special": True}]}
    assert value(bench.convert(), "tokenizer.ggml.token_type")[:3] == [UNKNOWN, CONTROL, CONTROL]
    (bench.dir / "tokenizer.json").unlink()
    bench.tokenizer = None
    proto.normalizer_spec.remove_extra_whitespaces = True
    path.write_bytes(proto.SerializeToString())
    bench.refused("tokenizer.model normalizes")
    proto.trainer_spec.model_type = pb.TrainerSpec.UNIGRAM
    path.write_bytes(proto.SerializeToString())
    bench.refused("tokenizer.model is not BPE")
    path.unlink()
    bench.refused("no tokenizer")
