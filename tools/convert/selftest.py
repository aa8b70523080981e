#!/usr/bin/env python3
"""Checks the converter on the frozen checkpoints of tests/golden/architectures, and on such with a change. Exit code 1 if a check fails.

    ./dev convert --check

Each frozen checkpoint must give the frozen GGUF, byte for byte; each row of REFUSED is refused in those words, and leaves no file;
each row of KEPT becomes a GGUF that states those keys.
"""

import contextlib
import io
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import hf_to_gguf
import llama_cpp
from errors import ConversionError

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "architectures"
DEFAULT = 0.1 * math.log(4.0) + 1  # YaRN's magnitude for a factor of 4
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "rope_theta": 5000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
          "rope_theta": 10000.0}
LONG = {"rope_type": "longrope", "long_factor": [1.0, 4.0, 20.0], "short_factor": [1.0, 1.1, 1.3], "rope_theta": 10000.0,
        "partial_rotary_factor": 0.6, "original_max_position_embeddings": 16}
WORDS = {"pre_tokenizer": {"type": "Whitespace"}}
MASK = {"added_tokens": [{"id": 9, "content": "<mask>", "special": True, "lstrip": True}]}

# A frozen checkpoint, the file that is changed in it and its change, options, and words of the refusal.
REFUSED = [
    ("llama-bpe", "config.json", {"architectures": ["NoSuchForCausalLM"]}, (), "NoSuchForCausalLM"),
    ("llama-bpe", "config.json", {"hidden_act": "gelu"}, (), "hidden_act is 'gelu'"),
    ("llama-bpe", "config.json", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}, (), "'dynamic'"),
    ("llama-bpe", "config.json", {"rope_parameters": LONG}, (), "'longrope'"),
    ("llama-bpe", "config.json", {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 1e4}}, (), "partial_rotary_factor"),
    ("qwen3", "config.json", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "layer_types": None}, (),
     "--context 8"),
    ("qwen3", "config.json", {"rope_parameters": YARN | {"truncate": False}}, (), "truncate of YaRN is False"),
    ("qwen3", "config.json", {"rope_parameters": YARN}, ("--context", "1025"), "need 1 to 1024"),
    ("smollm3", "config.json", {"no_rope_layers": [1, 0, 1, 0, 1]}, (), "no_rope_layers is [1, 0, 1, 0, 1]"),
    ("hunyuan", "config.json", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}, (), "'dynamic' without alpha"),
    ("seed-oss", "config.json", {"attention_out_bias": True}, (), "attention_out_bias is True"),
    ("olmo2", "config.json", {"attention_bias": True}, (), "attention_bias is True"),
    ("olmo3", "config.json", {"rope_parameters.sliding_attention.rope_type": "linear"}, (), "RoPE scaling of windows is 'linear'"),
    ("ernie4.5", "config.json", {"use_bias": True}, (), "use_bias is True"),
    *((name, "config.json", {"rope_parameters": LLAMA3}, (), "RoPE scaling is 'llama3'") for name in ("qwen3", "ernie4.5", "seed-oss")),
    ("ministral3", "config.json", {"rope_parameters.truncate": False}, (), "truncate of YaRN is False"),
    ("ministral3", "config.json", {"rope_parameters.rope_type": "default"}, (), "RoPE scaling is 'default'"),
    ("granite", "config.json", {"attention_multiplier": 0.0}, (), "attention_multiplier is 0.0"),
    ("granite", "config.json", {"logits_scaling": -1.0}, (), "logits_scaling is -1.0"),
    ("gemma2", "config.json", {"tie_word_embeddings": False}, (), "tie_word_embeddings is False"),
    ("gemma2", "config.json", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, (), "RoPE scaling is 'linear'"),
    ("gemma2", "config.json", {"query_pre_attn_scalar": 15}, (), "query_pre_attn_scalar is 15"),
    ("gemma3", "config.json", {"query_pre_attn_scalar": 15}, (), "query_pre_attn_scalar is 15"),
    ("gemma3", "config.json", {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 5}, (), "layer_types"),
    ("gemma3", "config.json", {"use_bidirectional_attention": True}, (), "use_bidirectional_attention is True"),
    ("gemma4", "config.json", {"rope_parameters.full_attention.factor": 2.0}, (), "factor of proportional RoPE is 2.0"),
    ("gemma4", "config.json", {"rope_parameters.sliding_attention.rope_type": "linear"}, (), "RoPE scaling of windows is 'linear'"),
    ("qwen3moe", "config.json", {"norm_topk_prob": False}, (), "norm_topk_prob is False"),
    ("qwen3vl", "config.json", {"text_config.attention_bias": True}, (), "attention_bias is True"),
    ("qwen3vlmoe", "config.json", {"text_config.mlp_only_layers": [1]}, (), "mlp_only_layers is [1]"),
    ("qwen3next", "config.json", {"decoder_sparse_step": 2}, (), "decoder_sparse_step is 2"),
    ("qwen3next", "config.json", {"mlp_only_layers": [1]}, (), "mlp_only_layers is [1]"),
    ("gpt-oss", "config.json", {"swiglu_limit": 10.0}, (), "swiglu_limit is 10.0"),
    ("gpt-oss", "config.json", {"layer_types": ["full_attention", "sliding_attention"]}, (), "layer_types"),
    ("phi3", "config.json", {}, ("--context", "16"), "16 positions has the short divisors"),
    ("phi3", "config.json", {"rope_parameters": LONG | {"long_factor": [1.0, 4.0]}}, (), "long"),
    ("qwen2", "tokenizer.json", WORDS, (), "'Whitespace'"),
    ("qwen2", "tokenizer.json", {"normalizer": {"type": "Lowercase"}}, (), "'Lowercase'"),
    ("qwen2", "tokenizer.json", MASK, (), "<mask>"),
    ("llama-bpe", "tokenizer.json", {"model.ignore_merges": False, "pre_tokenizer.pretokenizers": []}, (), "split by nothing")]

# A frozen checkpoint, the file that is changed in it and its change, options, and keys of the GGUF.
KEPT = [
    ("mistral", "config.json", {"sliding_window": 32}, (), {"llama.attention.sliding_window": 32}),
    ("mistral", "config.json", {"sliding_window": 32}, ("--context", "32"), {"llama.context_length": 32}),
    ("llama-bpe", "config.json", {"sliding_window": 32}, (), {"llama.attention.sliding_window": None}),  # which the class ignores
    ("ministral3", "config.json", {"sliding_window": 32, "rope_parameters.mscale": 0.5}, (),
     {"mistral3.attention.sliding_window": 32, "mistral3.rope.scaling.attn_factor": (1 + DEFAULT) / (2 * DEFAULT)}),
    ("gemma2", "config.json", {"rope_parameters.rope_theta": 5000.0}, (), {"gemma2.rope.freq_base": 5000.0}),
    ("granite", "config.json", {}, (), {"granite.attention.key_length": 10, "granite.rope.dimension_count": 10}),
    ("qwen3", "config.json", {"rope_parameters": YARN | {"attention_factor": 2.0}}, (),
     {"qwen3.rope.scaling.attn_factor": 2.0 / DEFAULT, "qwen3.rope.scaling.yarn_attn_factor": None}),
    ("qwen3", "config.json", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}, (),
     {"qwen3.rope.scaling.attn_factor": 1.0 / DEFAULT}),
    ("qwen3", "config.json", {"rope_parameters": YARN}, (), {"qwen3.rope.scaling.attn_factor": None}),
    ("phi3", "config.json", {"rope_parameters": LONG | {"attention_factor": 1.5}}, (), {"phi3.rope.scaling.attn_factor": 1.5}),
    ("phi3", "config.json", {}, ("--context", "17"), {"phi3.context_length": 17, "phi3.rope.scaling.attn_factor": math.sqrt(2.5)}),
    ("qwen2", "generation_config.json", {"eos_token_id": [5, 6, 7]}, (), {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 6}),
    ("qwen2", "config.json", {}, (), {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.pre": "qwen2"}),
    ("llama-bpe", "config.json", {}, (), {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.pre": "llama-bpe"}),
    ("mistral", "config.json", {}, (), {"tokenizer.ggml.add_space_prefix": True, "tokenizer.ggml.unknown_token_id": 0}),
    ("mistral", "config.json", {}, ("--name", "A name", "--type", "f32"), {"general.name": "A name", "general.file_type": 0})]


def changed(base: str, folder: str, file: str, change: dict) -> Path:
    """A copy of a frozen checkpoint; a dotted name is a member of a member."""
    directory = Path(folder) / "checkpoint"
    shutil.copytree(GOLDEN / base, directory)
    path = directory / file
    whole = json.loads(path.read_text(encoding="utf-8"))
    for name, value in change.items():
        *outer, last = name.split(".")
        part = whole
        for member in outer:
            part = part[member]
        part[last] = value
    path.write_text(json.dumps(whole), encoding="utf-8")
    return directory


def run(directory: Path, *options: str) -> tuple[int, str, Path]:
    out, said = directory.parent / "model.gguf", io.StringIO()
    with contextlib.redirect_stderr(said):
        code = hf_to_gguf.main([str(directory), "-o", str(out), *options])
    return code, said.getvalue(), out


def must_refuse(directory: Path, words: str, *options: str) -> None:
    code, said, out = run(directory, *options)
    assert code == 2, f"accepted, instead of naming {words}"
    assert words in said, f"{said!r} does not name {words!r}"
    assert not list(out.parent.glob("model.gguf*")), "a refused checkpoint left a file"


def must_keep(directory: Path, keys: dict, *options: str) -> None:
    import gguf

    code, said, out = run(directory, *options)
    assert code == 0, said
    reader = gguf.GGUFReader(out)
    for key, wanted in keys.items():
        field = reader.get_field(key)
        found = None if field is None else field.contents()
        same = abs(found - wanted) < 1e-6 if isinstance(wanted, float) and found is not None else found == wanted
        assert same, f"{key} is {found}, need {wanted}"


def must_equal(name: str, folder: str) -> None:
    out = Path(folder) / f"{name}.gguf"
    hf_to_gguf.convert(GOLDEN / name, out)
    assert out.read_bytes() == (GOLDEN / f"{name}.gguf").read_bytes(), "another GGUF than the frozen one"


def files(folder: str) -> None:
    """What is wrong with the files of weights."""
    directory = changed("qwen2", folder, "config.json", {})
    path = directory / "model.safetensors"
    whole = path.read_bytes()
    for cut in (4, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        must_refuse(directory, "model.safetensors")
    path.write_bytes(whole)
    tensors = load_file(path)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(tensors | {name: tensors[name].astype(np.float32) + 70000}, path, {"format": "pt"})
    must_refuse(directory, "65504", "--type", "f16")
    path.rename(directory / "pytorch_model.bin")
    must_refuse(directory, "pytorch_model.bin is a pickle")


def sentencepiece(folder: str) -> None:
    """Added tokens of tokenizer.json, and models that are not BPE or change texts."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    directory = changed("mistral", folder, "config.json", {})
    path = directory / "tokenizer.model"
    proto = pb.ModelProto.FromString(path.read_bytes())
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 379, "content": "<|im_end|>", "special": True}]}))
    import gguf

    code, said, out = run(directory)
    assert code == 0, said
    reader = gguf.GGUFReader(out)
    assert reader.get_field("tokenizer.ggml.tokens").contents(379) == "<|im_end|>"
    assert reader.get_field("tokenizer.ggml.token_type").contents(379) == gguf.TokenType.CONTROL
    out.unlink()
    proto.normalizer_spec.remove_extra_whitespaces = True
    path.write_bytes(proto.SerializeToString())
    must_refuse(directory, "tokenizer.model normalizes texts")
    proto.trainer_spec.model_type = pb.TrainerSpec.UNIGRAM
    path.write_bytes(proto.SerializeToString())
    must_refuse(directory, "tokenizer.model is not BPE")


def experts(folder: str) -> None:
    """Of Qwen3-VL with inputs by outputs, as they were published."""
    path = changed("qwen3vlmoe", folder, "config.json", {}) / "model.safetensors"
    tensors = load_file(path)
    save_file({name: np.ascontiguousarray(value.swapaxes(1, 2)) if ".experts." in name else value for name, value in tensors.items()},
              path, {"format": "pt"})
    code, said, out = run(path.parent, "--name", "qwen3vlmoe")
    assert code == 0, said
    assert out.read_bytes() == (GOLDEN / "qwen3vlmoe.gguf").read_bytes(), "another GGUF than that of outputs by inputs"


def splittings(_: str) -> None:
    """The expression tells, letter by letter."""
    from pre_tokenizers import SPLITTINGS, splitting_of

    pieces = {"digits": {"type": "Digits", "individual_digits": True}, "ByteLevel": {"type": "ByteLevel", "use_regex": True}}

    def tokenizer(steps: tuple[str, ...], ignore_merges: bool) -> dict:
        parts = [pieces.get(step) or {"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated"} for step in steps]
        return {"model": {"ignore_merges": ignore_merges}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}}

    for row in SPLITTINGS:
        assert splitting_of(tokenizer(row.steps, row.ignore_merges)) == row.name, row.name
    qwen2 = next(row for row in SPLITTINGS if row.name == "qwen2")
    for steps, ignore_merges in (((qwen2.steps[0].replace(r"\p{N}", r"\p{N}{1,2}", 1),), False), (qwen2.steps, True)):
        try:
            found = splitting_of(tokenizer(steps, ignore_merges))
        except ConversionError:
            continue
        raise AssertionError(f"{steps} is taken for {found}")


def main() -> int:
    llama_cpp.load(False)
    checks = [(f"frozen {path.stem}", lambda folder, name=path.stem: must_equal(name, folder)) for path in sorted(GOLDEN.glob("*.gguf"))]
    checks += [(f"refused: {words}", lambda folder, row=(base, folder_file, change), options=options, words=words: must_refuse(
        changed(row[0], folder, row[1], row[2]), words, *options)) for base, folder_file, change, options, words in REFUSED]
    checks += [(f"kept: {base} {keys}", lambda folder, row=(base, file, change), options=options, keys=keys: must_keep(
        changed(row[0], folder, row[1], row[2]), keys, *options)) for base, file, change, options, keys in KEPT]
    checks += [(check.__name__, check) for check in (files, sentencepiece, experts, splittings)]
    failed = 0
    for name, check in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(folder)
                print(f"ok    {name}")
            except (AssertionError, ConversionError) as error:
                failed += 1
                print(f"FAIL  {name}: {error}")
    print(f"{len(checks) - failed}/{len(checks)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
