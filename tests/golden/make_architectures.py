#!/usr/bin/env python3
"""Freezes a tiny model of each family that loads, with what transformers computes of it.

    build/hf-venv/bin/python tests/golden/make_architectures.py [FAMILY...]

architectures/<FAMILY>/ is a checkpoint as save_pretrained writes it, <FAMILY>.gguf what the converter made of it,
<FAMILY>.npz transformers' activations (from_hf.py) and <FAMILY>.json its greedy continuation of a text. Needs the packages of
tools/convert/requirements.txt (`./dev convert` installs them).
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "hf_parity")]

import make  # noqa: E402  (puts the oracle on the path)
from shapes import FULL, GEMMA4_31B, GPT_OSS_YARN, GRANITE, LLAMA3, MINISTRAL3_YARN, WINDOW, YARN, Case, Shape  # noqa: E402

OUT = Path(__file__).resolve().parent / "architectures"
# Odd on purpose: head_dim apart from d_model / n_heads, GQA and MQA, rows that are no multiple of 32.
TINY = Shape("", 24, 2, 4, 2, 10, 40, 330, eps=1e-6, theta=1000000.0)
MIXTURE = replace(TINY, d_model=32, n_layers=3, n_kv_heads=1, head_dim=8, d_ff=16, n_experts=10, n_used=3)
SHAPES = (
    replace(TINY, name="llama-bpe", family="llama-bpe", theta=500000.0,
            rope=LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 128}),
    replace(TINY, name="mistral", family="mistral", n_kv_heads=1, vocab=380),
    replace(TINY, name="mistral-window", family="mistral", n_kv_heads=1, vocab=380, window=5),
    replace(TINY, name="ministral3", family="ministral3", n_kv_heads=1,
            rope=MINISTRAL3_YARN | {"factor": 4.0, "original_max_position_embeddings": 4}),
    replace(TINY, name="ernie4.5", family="ernie4_5", tied=True, vocab=380),
    replace(TINY, name="olmo2", family="olmo2"),
    replace(TINY, name="olmo3", family="olmo3", n_layers=5, n_kv_heads=1, window=4,
            rope=YARN | {"factor": 4.0, "original_max_position_embeddings": 256}),
    replace(TINY, name="exaone4", family="exaone4", n_layers=5, n_kv_heads=1, tied=True, head_dim=14, window=4),
    replace(TINY, name="seed-oss", family="seed_oss", n_kv_heads=1),
    replace(TINY, name="hunyuan", family="hunyuan", n_kv_heads=1, head_dim=14),
    replace(TINY, name="glm4", family="glm4", n_kv_heads=1, head_dim=12, partial_rotary=0.5),
    replace(TINY, name="smollm3", family="smollm3", n_layers=5, tied=True, head_dim=6),
    replace(TINY, name="gemma2", family="gemma2", n_layers=3, tied=True, n_kv_heads=2, head_dim=14, vocab=380, window=4),
    replace(TINY, name="gemma3", family="gemma3", n_layers=7, tied=True, n_kv_heads=2, head_dim=14, vocab=380, window=4),
    replace(TINY, name="gemma4", family="gemma4", n_layers=6, tied=True, n_kv_heads=2, head_dim=14, vocab=380, window=4, partial_rotary=0.25,
            gemma4=GEMMA4_31B | {"global_head_dim": 22, "num_global_key_value_heads": 1}),
    replace(TINY, name="gemma4-shared", family="gemma4", n_layers=5, tied=True, n_kv_heads=1, head_dim=14, vocab=380, window=4,
            partial_rotary=0.5, gemma4={"layer_types": [WINDOW, WINDOW, FULL, WINDOW, FULL], "global_head_dim": 20, "num_kv_shared_layers": 2,
                                        "use_double_wide_mlp": True, "hidden_size_per_layer_input": 6}),
    replace(TINY, name="gemma4moe", family="gemma4", d_model=32, n_layers=6, tied=True, n_kv_heads=2, head_dim=14, vocab=380, window=4,
            partial_rotary=0.25, gemma4=GEMMA4_31B | {"global_head_dim": 22, "num_global_key_value_heads": 1, "enable_moe_block": True,
                                                      "num_experts": 10, "top_k_experts": 3, "moe_intermediate_size": 16}),
    replace(TINY, name="qwen2", family="qwen2", tied=True, head_dim=6),  # transformers has no head_dim for Qwen2
    replace(TINY, name="qwen3", family="qwen3", n_kv_heads=1, head_dim=14),
    replace(TINY, name="qwen3moe", family="qwen3_moe", d_model=32, n_kv_heads=1, head_dim=14, d_ff=16, n_experts=10,
            n_used=6),
    replace(TINY, name="qwen3.5", family="qwen3_5", n_layers=4, n_kv_heads=1, head_dim=16, partial_rotary=0.5, delta=(2, 6, 12, 20)),
    replace(TINY, name="qwen3.5moe", family="qwen3_5_moe", d_model=32, n_layers=4, n_kv_heads=1, head_dim=16, d_ff=16, partial_rotary=0.5,
            delta=(2, 4, 12, 20), n_experts=10, n_used=3),
    replace(TINY, name="qwen3next", family="qwen3_next", d_model=32, n_layers=4, n_kv_heads=1, head_dim=16, d_ff=16, partial_rotary=0.5,
            delta=(2, 6, 12, 20), n_experts=10, n_used=3),
    replace(TINY, name="lfm2", family="lfm2", n_layers=4, tied=True, n_kv_heads=1, head_dim=6),
    replace(TINY, name="lfm2moe", family="lfm2_moe", tied=True, d_model=32, n_layers=4, n_kv_heads=1, head_dim=8, d_ff=16, n_experts=10, n_used=3, n_dense=1),
    replace(TINY, name="granite", family="granite", n_kv_heads=1, multipliers=GRANITE | {"attention_multiplier": 0.1}),
    replace(TINY, name="granitemoe", family="granitemoe", d_model=32, n_kv_heads=1, head_dim=8, d_ff=16, n_experts=10, n_used=4,
            multipliers=GRANITE | {"attention_multiplier": 0.1}),
    replace(TINY, name="granitehybrid", family="granitehybrid", n_layers=4, tied=True, n_kv_heads=1, vocab=336, delta=(6, 8, 12, 1), conv_width=4,
            multipliers=GRANITE | {"attention_multiplier": 0.1}),
    replace(TINY, name="granitehybridmoe", family="granitehybrid", d_model=32, n_layers=4, n_kv_heads=1, head_dim=8, d_ff=16, vocab=336, delta=(4, 16, 20, 2),
            conv_width=3, n_experts=10, n_used=4, multipliers=GRANITE | {"attention_multiplier": 0.1}),
    replace(TINY, name="granitemoeshared", family="granitemoe", d_model=32, n_kv_heads=1, head_dim=8, d_ff=16, n_experts=10, n_used=4, n_shared=2,
            multipliers=GRANITE | {"attention_multiplier": 0.1}),
    replace(MIXTURE, name="ernie4.5moe", family="ernie4_5_moe", vocab=380, n_dense=1, n_shared=2),
    replace(MIXTURE, name="glm4moe", family="glm4_moe", partial_rotary=0.5, n_dense=1, n_shared=1),
    replace(MIXTURE, name="dots1", family="dots1", tied=True, n_dense=1, n_shared=2, adds_up=False),
    replace(MIXTURE, name="hunyuanmoe", family="hunyuan_moe", n_shared=1),
    replace(MIXTURE, name="minimax-m2", family="minimax_m2", partial_rotary=0.5),
    replace(MIXTURE, name="laguna", family="laguna", n_layers=5, n_kv_heads=2, partial_rotary=0.5, window=4, n_dense=1, n_shared=1,
            rope=YARN | {"factor": 4.0, "original_max_position_embeddings": 256}),
    replace(MIXTURE, name="qwen2moe", family="qwen2_moe", adds_up=False),
    replace(TINY, name="qwen2vl", family="qwen2_vl", tied=True, head_dim=6),
    replace(TINY, name="qwen2.5vl", family="qwen2_5_vl", head_dim=6),
    replace(TINY, name="qwen3vl", family="qwen3_vl", n_kv_heads=1, head_dim=14),
    replace(MIXTURE, name="qwen3vlmoe", family="qwen3_vl_moe"),
    replace(MIXTURE, name="olmoe", family="olmoe", eps=1e-5, adds_up=False),
    replace(TINY, name="gpt-oss", family="gpt_oss", d_model=32, n_kv_heads=1, head_dim=14, d_ff=32, n_experts=10, n_used=6, window=5,
            theta=150000.0, rope=GPT_OSS_YARN | {"factor": 4.0, "original_max_position_embeddings": 1024}),
    replace(TINY, name="phi3", family="phi3", d_model=40, vocab=380, window=5, partial_rotary=0.6,
            rope={"rope_type": "longrope", "long_factor": [1.0, 4.0, 20.0], "short_factor": [1.0, 1.1, 1.3],
                  "original_max_position_embeddings": 16}),
)


def make_one(shape: Shape) -> None:
    checkpoint = OUT / shape.name
    shutil.rmtree(checkpoint, ignore_errors=True)
    make.make_checkpoint(shape, "peaked", checkpoint, dtype="float16")
    model = OUT / f"{shape.name}.gguf"
    make.convert(checkpoint, model)
    make.make_reference(Case(shape, "peaked", "F16", n_tokens=9, kind="random", single=2, quick=True), checkpoint, model,
                        OUT / f"{shape.name}.npz")
    make.make_greedy(shape, checkpoint, OUT / f"{shape.name}.json")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for of_family in SHAPES:
        if not sys.argv[1:] or of_family.name in sys.argv[1:]:
            make_one(of_family)
