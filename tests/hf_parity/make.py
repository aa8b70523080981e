#!/usr/bin/env python3
"""Makes the corpus of foreign models: checkpoints, GGUFs, references, and corpus.json, which run.py reads.

    python tests/hf_parity/make.py CORPUS_DIR --bin build/release/bin [--quick] [--jobs N]

A checkpoint is a model of transformers with seeded random weights, varied (variations.py) and rounded to what F16 holds,
saved as safetensors, with a tokenizer (corpus_tokenizers.py). The users' tools/convert/hf_to_gguf.py converts it; FAMILY_SHAPES
have a greedy text by transformers beside their references. llmquant makes the quantized files, tools/reference_f64/from_hf.py the
references: transformers runs the checkpoint for F32 and F16, and the dequantized weights under the checkpoint's config otherwise. What is
there already and was made by the same sources stays. Needs the packages of tools/convert/requirements.txt.
"""

import argparse
import dataclasses
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one job, one thread; sums keep their order on every machine
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools" / "reference_f64"), str(Path(__file__).resolve().parent)]

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, PretrainedConfig  # noqa: E402

import from_hf  # noqa: E402
import hf_config  # noqa: E402
from corpus_tokenizers import encode, make_tokenizer  # noqa: E402
from properties import check_properties  # noqa: E402
from shapes import FAMILY_SHAPES, FULL, UNQUANTIZED, WINDOW, Case, Shape, cases, check_plan, seed_of  # noqa: E402
from variations import BOS, balance, vary  # noqa: E402

SOURCES = ("tests/hf_parity", "tools/reference_f64", "tools/convert")  # folders
VISION = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 2,
          "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}  # that no text uses
PROMPT = "Once upon a time, in 1984, there lived 3 foxes.\n\nTheir den   wasn't far from Zürich"
GREEDY_TOKENS = 64
LEAST_MARGIN = 1e-4  # between the two best logits: below, f32 in another order may choose the other


# Families of mixtures: their class, and what its config calls the numbers of experts, of those that a token goes through, of shared
# ones and of leading layers without any.
MIXTURES = {"ernie4_5_moe": ("ernie4_5_moe", "moe_num_experts", "moe_k", "moe_num_shared_experts", "moe_layer_start_index"),
            "glm4_moe": ("glm4_moe", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "first_k_dense_replace"),
            "dots1": ("dots1", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "first_k_dense_replace"),
            "minimax_m2": ("minimax_m2", "num_local_experts", "num_experts_per_tok"),
            "qwen2_moe": ("qwen2_moe", "num_experts", "num_experts_per_tok"), "olmoe": ("olmoe", "num_experts", "num_experts_per_tok"),
            "hunyuan_moe": ("hunyuan_v1_moe", "num_experts", "moe_topk")}


def mixture_of(shape: Shape) -> dict:
    """What the config of one of MIXTURES says beside sizes."""
    kind, *keys = MIXTURES[shape.family]
    more = dict(zip(keys, (shape.n_experts, shape.n_used, shape.n_shared, shape.n_dense))) | {
        "moe_intermediate_size": shape.d_ff, "norm_topk_prob": shape.adds_up, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    if kind == "glm4_moe":
        more |= {"attention_bias": not shape.tied, "use_qk_norm": shape.tied, "routed_scaling_factor": 1.5, "num_nextn_predict_layers": 0}
    elif kind == "dots1":
        more |= {"sliding_window": None, "routed_scaling_factor": 2.5}
    elif kind == "minimax_m2":
        more |= {"rotary_dim": int(shape.partial_rotary * shape.head_dim), "scoring_func": "sigmoid"}
    elif kind == "qwen2_moe":
        more["shared_expert_intermediate_size"] = 2 * shape.d_ff
    elif kind == "hunyuan_v1_moe":  # the class has one width of experts, the converter reads one of each layer
        each = [1] * shape.n_layers
        more |= {"moe_intermediate_size": [shape.d_ff] * shape.n_layers, "moe_topk": [shape.n_used] * shape.n_layers, "num_shared_expert": each}
    return more


def config_of(shape: Shape) -> PretrainedConfig:
    family = "llama" if shape.family == "llama-bpe" else shape.family
    more, rope = {}, {**shape.rope, "rope_theta": shape.theta}
    if family == "smollm3":
        more = {"pad_token_id": None}
    elif family in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"):
        of_side = shape.head_dim // 2 * 3 // 8
        rope["mrope_section"] = [shape.head_dim // 2 - 2 * of_side, of_side, of_side]
        more = {"moe_intermediate_size": shape.d_ff, "num_experts": shape.n_experts, "num_experts_per_tok": shape.n_used,
                "bos_token_id": 1, "eos_token_id": 2}
    elif family == "qwen3_moe":  # intermediate_size is that of layers without experts, which no layer is
        more = {"num_experts": shape.n_experts, "num_experts_per_tok": shape.n_used, "norm_topk_prob": True,
                "moe_intermediate_size": shape.d_ff}
    elif family == "gpt_oss":
        more = {"num_local_experts": shape.n_experts, "num_experts_per_tok": shape.n_used, "sliding_window": shape.window}
    elif family == "phi3":
        rope["partial_rotary_factor"] = shape.partial_rotary
        more = {"sliding_window": shape.window, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
                "original_max_position_embeddings": rope.get("original_max_position_embeddings", shape.context)}
    elif family in ("qwen3_5", "qwen3_5_moe", "qwen3_next"):
        rope["partial_rotary_factor"] = shape.partial_rotary
        k_heads, v_heads, k_dim, v_dim = shape.delta
        more = {"linear_num_key_heads": k_heads, "linear_num_value_heads": v_heads, "linear_key_head_dim": k_dim,
                "linear_value_head_dim": v_dim}
        family = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}.get(family, family)
        if shape.n_experts:
            more |= {
                "num_experts": shape.n_experts, "num_experts_per_tok": shape.n_used, "moe_intermediate_size": shape.d_ff,
                "shared_expert_intermediate_size": 2 * shape.d_ff}
    elif family == "hunyuan":
        family, more = "hunyuan_v1_dense", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    elif family == "glm4":
        rope["partial_rotary_factor"] = shape.partial_rotary
        more = {"attention_bias": not shape.tied, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    elif family == "olmo3":
        more = {"sliding_window": shape.window, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": shape.theta}}
    elif family == "exaone4":
        kinds = ["sliding_attention" if shape.window and (i + 1) % 4 else "full_attention" for i in range(shape.n_layers)]
        more = {"sliding_window": shape.window, "layer_types": kinds, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    elif family in ("olmo2", "seed_oss"):
        more = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    elif family == "ministral3":
        more = {"sliding_window": shape.window, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    elif family == "mistral":
        more = {"sliding_window": shape.window}
    elif family == "granite":
        more = shape.multipliers
    elif family in ("lfm2", "lfm2_moe"):
        kinds = ["full_attention" if i % 3 == 2 else "conv" for i in range(shape.n_layers)]
        more = {"layer_types": kinds, "norm_eps": shape.eps, "block_auto_adjust_ff_dim": False, "conv_L_cache": shape.conv_width}
        if shape.n_experts:
            more |= {"moe_intermediate_size": shape.d_ff, "num_experts": shape.n_experts, "num_experts_per_tok": shape.n_used,
                     "num_dense_layers": shape.n_dense}
    elif family == "laguna":
        kinds = [WINDOW if shape.window and i % 4 else FULL for i in range(shape.n_layers)]
        heads = [shape.n_heads + (shape.n_kv_heads if kind == WINDOW else 0) for kind in kinds]
        more = {"layer_types": kinds, "sliding_window": shape.window or 0, "num_attention_heads_per_layer": heads, "moe_routed_scaling_factor": 2.5,
                "gating": "per-element" if shape.tied else True, "num_experts": shape.n_experts, "num_experts_per_tok": shape.n_used,
                "moe_intermediate_size": shape.d_ff, "shared_expert_intermediate_size": shape.n_shared * shape.d_ff,
                "mlp_layer_types": ["dense"] * shape.n_dense + ["sparse"] * (shape.n_layers - shape.n_dense),
                "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
        rope = {"full_attention": rope | {"partial_rotary_factor": shape.partial_rotary},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
    elif family in MIXTURES:
        family, more = MIXTURES[family][0], mixture_of(shape)
        rope |= {"partial_rotary_factor": shape.partial_rotary} if shape.partial_rotary != 1.0 else {}
    elif family == "granitehybrid":
        heads, width, state, groups = shape.delta
        family, more = "granitemoehybrid", shape.multipliers | {
            "num_local_experts": shape.n_experts, "num_experts_per_tok": shape.n_used, "mamba_n_heads": heads, "mamba_d_head": width,
            "mamba_d_state": state, "mamba_n_groups": groups, "mamba_d_conv": shape.conv_width, "mamba_expand": heads * width // shape.d_model,
            "shared_intermediate_size": 2 * shape.d_ff if shape.n_experts else shape.d_ff, "position_embedding_type": "nope",
            "layer_types": ["full_attention" if i % 3 == 2 else "linear_attention" for i in range(shape.n_layers)]}
    elif family == "granitemoe":
        more = shape.multipliers | {"num_local_experts": shape.n_experts, "num_experts_per_tok": shape.n_used}
        if shape.n_shared:
            family, more = "granitemoeshared", more | {"shared_intermediate_size": shape.n_shared * shape.d_ff}
    elif family == "gemma2":
        more = {"sliding_window": shape.window, "query_pre_attn_scalar": shape.head_dim, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
                "attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0}
    elif family == "gemma3":
        scalar = shape.d_model // shape.n_heads if shape.n_layers == 62 else shape.head_dim  # 62: Gemma 3 27B
        family, more = "gemma3_text", {"sliding_window": shape.window, "query_pre_attn_scalar": scalar, "bos_token_id": 1,
                                       "eos_token_id": 2, "pad_token_id": None}
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    elif family == "gemma4":
        family, more = "gemma4_text", shape.gemma4 | {"sliding_window": shape.window, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
                                                      "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": shape.vocab}
        rope = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": shape.partial_rotary, "rope_theta": shape.theta},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    d_ff = 3 * shape.d_ff if family in ("qwen3_moe", "lfm2_moe", "qwen2_moe") or shape.n_dense else shape.d_ff
    return hf_config.made(family, more | dict(
        vocab_size=shape.vocab, hidden_size=shape.d_model, intermediate_size=d_ff,
        num_hidden_layers=shape.n_layers, num_attention_heads=shape.n_heads, num_key_value_heads=shape.n_kv_heads,
        head_dim=shape.head_dim, rms_norm_eps=shape.eps, max_position_embeddings=shape.context,
        rope_parameters=rope, tie_word_embeddings=shape.tied), vision=VISION)


@torch.no_grad()
def make_checkpoint(shape: Shape, variation: str, directory: Path, dtype: str = "float32") -> None:
    """Seeded weights of HF's own initialisation, varied, then rounded to F16 and saved as `dtype`."""
    seed = seed_of(f"{shape.name}-{variation}")
    torch.manual_seed(seed)
    config = config_of(shape)
    model = hf_config.class_of(config).from_config(config, dtype=torch.float32)
    state = {name.replace("language_model.", ""): value for name, value in model.named_parameters() if "visual" not in name}  # tied weights once
    state |= {name: value for name, value in model.named_buffers() if name.endswith(("layer_scalar", "expert_bias", "e_score_correction_bias"))}
    vary(state, variation, torch.Generator().manual_seed(seed))
    if shape.multipliers and variation != "plain":
        balance(state, shape)
    for value in state.values():
        value.copy_(value.half().float())
    model.to(getattr(torch, dtype)).save_pretrained(directory)
    make_tokenizer(shape, directory)


def convert(checkpoint: Path, model: Path, *options: str) -> None:
    """By the users' converter, as a program: its `gguf` package is llama.cpp's own."""
    subprocess.run([sys.executable, ROOT / "tools" / "convert" / "hf_to_gguf.py", checkpoint, "-o", model, *options], check=True)


def token_ids(case: Case) -> list[int]:
    """BOS, then over the whole vocabulary: at random, a phrase of 7 again and again, or both with runs of one token."""
    rng = random.Random(seed_of(case.name))
    phrase = [rng.randrange(case.shape.vocab) for _ in range(7)]
    ids = [BOS]
    while len(ids) < case.n_tokens:
        if case.kind == "repeated" or (case.kind == "mixed" and rng.random() < 0.1):
            ids += phrase
        elif case.kind == "mixed" and rng.random() < 0.1:
            ids += [rng.randrange(case.shape.vocab)] * rng.randint(2, 20)
        else:
            ids.append(rng.randrange(case.shape.vocab))
    return ids[:case.n_tokens]


def make_reference(case: Case, checkpoint: Path, model_file: Path, output: Path) -> None:
    if case.type in UNQUANTIZED:
        model, source = from_hf.from_checkpoint(str(checkpoint), case.shape.context)
    else:
        model, source = from_hf.from_gguf(str(model_file), AutoConfig.from_pretrained(checkpoint), case.shape.context)
    dump = from_hf.run(model, token_ids(case), case.steps)
    if case.type in UNQUANTIZED:
        check_properties(dump, case)
    dump.write(output, from_hf.metadata(model.config, source), n_layers=case.shape.n_layers)


@torch.no_grad()
def make_greedy(shape: Shape, checkpoint: Path, output: Path) -> None:
    """What transformers continues PROMPT with, in f32, if it never ends: {"prompt", "prompt_ids", "greedy"}."""
    model, _ = from_hf.from_checkpoint(str(checkpoint), shape.context)
    ends = json.loads((checkpoint / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    prompt_ids = encode(shape, checkpoint, PROMPT)
    out, cache, greedy = prompt_ids, None, []
    for _ in range(GREEDY_TOKENS):
        result = model.eval()(torch.tensor([out]), past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        logits = result.logits[0, -1]
        spread = logits.std()
        logits[ends] = -torch.inf
        best = torch.topk(logits, 2)
        if not best.values[0] - best.values[1] > LEAST_MARGIN * spread:
            raise ValueError(f"{checkpoint.name}: token {len(greedy)} has two best logits that are almost equal")
        greedy.append(int(best.indices[0]))
        out = greedy[-1:]
    output.write_text(json.dumps({"prompt": PROMPT, "prompt_ids": prompt_ids, "greedy": greedy}), encoding="utf-8")


def whole(path: Path, make) -> None:
    """Makes `path` under another name first, so that an interrupted run leaves no half of it."""
    if path.exists():
        return
    part = path.with_name("part-" + path.name)
    make(part)
    part.rename(path)


def make_checkpoint_files(corpus: Path, tools: Path, of_checkpoint: list[Case]) -> str:
    """Everything of one checkpoint: weights, GGUFs, references. Returns its name."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    first = of_checkpoint[0]
    checkpoint, f16 = corpus / first.checkpoint, corpus / f"{first.checkpoint}-f16.gguf"
    whole(checkpoint, lambda part: make_checkpoint(first.shape, first.variation, part))
    whole(f16, lambda part: convert(checkpoint, part, "--type", "f16"))
    if first.shape in FAMILY_SHAPES:
        whole(corpus / f"{first.checkpoint}.json", lambda part: make_greedy(first.shape, checkpoint, part))
    for case in of_checkpoint:
        model_file = corpus / f"{case.name}.gguf"
        if case.type == "F32":
            whole(model_file, lambda part: convert(checkpoint, part, "--type", "f32"))
        else:
            whole(model_file, lambda part, case=case: subprocess.run(
                [tools / "llmquant", f16, part, case.type, "1", "--force", "-q"], check=True, stdout=subprocess.DEVNULL))
        whole(corpus / f"{case.name}.npz", lambda part, case=case, model_file=model_file: make_reference(
            case, checkpoint, model_file, part))
    return first.checkpoint


def describe(case: Case) -> dict:
    shape = dataclasses.asdict(case.shape) | {"rows_of_256": case.shape.rows_of_256, "weights": case.shape.weights}
    return {"name": case.name, "shape": shape, "variation": case.variation, "type": case.type,
            "tokens": case.n_tokens, "kind": case.kind, "single": case.single, "quick": case.quick,
            "model": f"{case.name}.gguf", "reference": f"{case.name}.npz",
            "greedy": f"{case.checkpoint}.json" if case.shape in FAMILY_SHAPES else None}


def sources_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).iterdir()):
        if path.suffix in (".py", ".txt") and not path.name.startswith("selftest"):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def start_anew_if_stale(corpus: Path) -> None:
    stamp = corpus / "sources.sha256"
    if corpus.exists() and (not stamp.exists() or stamp.read_text() != sources_digest()):
        if any(corpus.iterdir()) and not (corpus / "sources.sha256").exists():
            sys.exit(f"make.py: error: {corpus} is no corpus; give a new directory")
        shutil.rmtree(corpus)
    corpus.mkdir(parents=True, exist_ok=True)
    stamp.write_text(sources_digest())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--bin", type=Path, required=True, help="directory of llmquant")
    parser.add_argument("--quick", action="store_true", help="the cases of run.py --quick alone")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="cases whose name has a match")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    plan = cases()
    check_plan(plan)
    wanted = [case for case in plan if (case.quick or not args.quick) and (not args.only or args.only.search(case.name))]
    start_anew_if_stale(args.corpus)
    by_checkpoint: dict[str, list[Case]] = {}
    for case in wanted:
        by_checkpoint.setdefault(case.checkpoint, []).append(case)
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:
        jobs = [pool.submit(make_checkpoint_files, args.corpus, args.bin, group) for group in by_checkpoint.values()]
        for done, job in enumerate(jobs, 1):
            print(f"\r{done}/{len(jobs)} {job.result():<40}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    listed = [describe(case) for case in plan if (args.corpus / f"{case.name}.npz").exists()]
    (args.corpus / "corpus.json").write_text(json.dumps({"cases": listed}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
