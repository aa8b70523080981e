#!/usr/bin/env python3
"""Checks the converter on small checkpoints written to a temporary folder. Exit code 1 if a check fails.

    python tools/convert/selftest.py

Needs numpy, gguf and sentencepiece, as the converter does.
"""

import json
import sys
import tempfile

import numpy as np

import selftest_families
import selftest_refusals
import selftest_rope
import selftest_tokenizer
from hf_checkpoint import bf16_to_f32, f32_to_bf16
from selftest_bench import CONFIG, D, Bench, save, tensor, value, weights


def check_tied(bench: Bench) -> None:
    bench.config["tie_word_embeddings"] = True
    assert all(t.name != "output.weight" for t in bench.convert().tensors)


def check_types(bench: Bench) -> None:
    bench.dtype = "BF16"
    reader = bench.convert()
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.ffn_up.weight"] == "BF16" and kinds["blk.0.ffn_norm.weight"] == "F32"
    raw = next(t for t in reader.tensors if t.name == "blk.0.ffn_up.weight").data
    wanted = f32_to_bf16(bench.tensors["model.layers.0.mlp.up_proj.weight"])
    assert raw.view(np.uint16).reshape(wanted.shape).tolist() == wanted.tolist(), "BF16 bits changed"
    assert {t.tensor_type.name for t in bench.convert("--type", "f32").tensors} == {"F32"}
    assert {t.tensor_type.name for t in bench.convert("--type", "f16").tensors} == {"F16", "F32"}
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7, np.inf, -3.3e38, np.nan], np.float32)
    back = bf16_to_f32(f32_to_bf16(x))
    assert back[:5].tolist() == [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, np.inf] and np.isnan(back[6]), back


def check_f16_overflow(bench: Bench) -> None:
    bench.tensors = weights(bench.config)
    bench.tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = 70000
    bench.refused("mlp.up_proj.weight", "65504", "bf16", options=("--type", "f16"))


def check_shards(bench: Bench) -> None:
    bench.tensors, bench.own_files = weights(bench.config), True
    names = sorted(bench.tensors)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save(bench.dir / file, {name: bench.tensors[name] for name in names if files[name] == file})
    index = bench.dir / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    assert (tensor(bench.convert(), "token_embd.weight") == bench.tensors["model.embed_tokens.weight"]).all()
    for more, words in (({"lm_head.weight": "model-00003-of-00003.safetensors"}, "model-00003-of-00003.safetensors is missing"),
                        ({"other": "model-00002-of-00002.safetensors"}, "other is not in model-00002-of-00002.safetensors")):
        index.write_text(json.dumps({"weight_map": files | more}))
        bench.refused(words)


def check_damaged(bench: Bench) -> None:
    bench.write()
    path = bench.dir / "model.safetensors"
    whole, bench.own_files = path.read_bytes(), True
    for cut in (4, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        bench.refused("model.safetensors", "cut short")
    bench.own_files, bench.dtype = False, "I64"
    bench.refused("I64", "BF16")
    bench.tensors["model.norm.weight"] = np.ones(D, np.uint8)
    bench.dtype = "F32"
    bench.refused("model.norm.weight has elements of type U8", "BF16")


def check_pickles(bench: Bench) -> None:
    bench.write()
    (bench.dir / "model.safetensors").rename(bench.dir / "pytorch_model.bin")
    bench.own_files = True
    bench.refused("pytorch_model.bin is a pickle", "save_pretrained")


def check_tensors(bench: Bench) -> None:
    for change, word in (({"model.layers.0.self_attn.o_proj.bias": np.zeros(D, np.float32)}, "o_proj.bias"),
                         ({"model.layers.0.self_attn.k_proj.weight": None}, "k_proj.weight"),
                         ({"lm_head.weight": None}, "lm_head.weight"),
                         ({"model.norm.weight": np.ones(D + 1, np.float32)}, "model.norm.weight")):
        bench.tensors = {name: x for name, x in (weights(bench.config) | change).items() if x is not None}
        bench.refused(word)


def check_window(bench: Bench) -> None:
    bench.config["sliding_window"] = 32
    reader = bench.convert("--context", "32")
    assert (value(reader, "llama.context_length"), value(reader, "llama.attention.sliding_window")) == (32, None)
    bench.config = CONFIG | {"sliding_window": 64}
    assert value(bench.convert(), "llama.attention.sliding_window") is None
    bench.config |= {"sliding_window": 8, "use_sliding_window": False}
    bench.convert()


def main_selftest() -> int:
    subjects = (sys.modules[__name__], selftest_families, selftest_rope, selftest_tokenizer)
    checks = [(name, check) for subject in subjects for name, check in vars(subject).items() if name.startswith("check_")]
    checks += selftest_refusals.CHECKS
    failed = 0
    for name, check in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(Bench(folder))
                print(f"ok    {name}")
            except AssertionError as error:
                failed += 1
                print(f"FAIL  {name}: {error}")
    print(f"{len(checks) - failed}/{len(checks)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main_selftest())
