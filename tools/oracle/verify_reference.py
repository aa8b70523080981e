#!/usr/bin/env python3
"""Freezes the reference of `llmcheck --verify`: greedy continuations with the most likely tokens of every step, by the f64
oracle (R0). The format is described in docs/verify.md.

    python tools/oracle/verify_reference.py MODEL.gguf -o REF.json
    python tools/oracle/verify_reference.py MODEL.gguf --prompts MINE.json --steps 32 -o REF.json

Shares nothing with the engine: weights are dequantized by the `gguf` package, texts encoded by SentencePiece, the model
run in numpy. A prompt is {"id", "kind": "base" or "instruct", "text"}, or has "ids" (BOS included) instead of a text, which
is how a prompt with special tokens is given.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from gguf_model import GgufModel, UnsupportedModel
from llama_f64 import LlamaF64

VERSION = "1"
SCHEMA_VERSION = 1
TOP_K = 5
PROMPTS = Path(__file__).resolve().parents[2] / "validate" / "verify" / "prompts.json"


def top(logits: np.ndarray, k: int = TOP_K) -> list[int]:
    """Ids of the k largest logits, largest first; of equal ones the lower id first."""
    return [int(i) for i in np.argsort(-logits, kind="stable")[:k]]


def shortest(value: np.ndarray) -> str:
    """The shortest decimal that reads back as the same f32."""
    return np.format_float_positional(np.float32(value), unique=True, trim="0")


def encode(model: GgufModel, spm, prompt: dict) -> list[int]:
    """Token ids of a prompt: its own, or its text as plain text behind BOS, if the vocabulary wants one."""
    if "ids" in prompt:
        return [int(i) for i in prompt["ids"]]
    ids = spm.encode(prompt["text"])
    if model.value("tokenizer.ggml.add_bos_token", True):
        ids = [model.value("tokenizer.ggml.bos_token_id", 1), *ids]
    return ids


def continue_greedily(model: GgufModel, ids: list[int], steps: int) -> tuple[list[list[int]], list[list[str]]]:
    """Top ids and logits of `steps` greedy steps, never ending early. An end of text is a token like others."""
    llama = LlamaF64(model)
    row = llama.forward(ids)[-1]
    top_ids, top_logits = [], []
    for step in range(steps):
        if not np.isfinite(row).all():
            raise ValueError(f"logits of step {step} are not finite")
        top_ids.append(top(row))
        top_logits.append([shortest(row[i]) for i in top_ids[-1]])
        if step + 1 < steps:
            row = llama.forward(top_ids[-1][:1])[-1]
    return top_ids, top_logits


def prompt_json(prompt: dict, ids: list[int], top_ids: list[list[int]], top_logits: list[list[str]]) -> str:
    """One prompt of the file; a step a line, so that a change shows where it is."""
    head = {"id": prompt["id"], "kind": prompt["kind"]}
    if "ids" not in prompt:
        head["text"] = prompt["text"]
    head |= {"ids": ids, "tokens": [row[0] for row in top_ids]}
    lines = [f"     {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for key, rows in (("top_ids", top_ids), ("top_logits", top_logits)):
        body = ",\n".join("      [" + ", ".join(map(str, row)) + "]" for row in rows)
        lines.append(f"     {json.dumps(key)}: [\n{body}]")
    return "    {\n" + ",\n".join(lines) + "}"


def reference_json(model: GgufModel, prompts: list[str], steps: int) -> str:
    head = {
        "schema_version": SCHEMA_VERSION, "format": "llmcheck-verify/1",
        "producer": "verify_reference.py", "producer_version": VERSION, "oracle": "R0",
        "model_name": model.name, "model_sha256": model.sha256(), "tokenizer_hash": model.tokenizer_hash(),
        "steps": steps, "top_k": TOP_K,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    return "{\n" + ",\n".join(lines) + ',\n  "prompts": [\n' + ",\n".join(prompts) + "]\n}\n"


def make_reference(path: str, prompts_path: str | Path, steps: int, note=lambda text: None) -> str:
    from spm_proto import load_processor

    model = GgufModel(path)
    prompts = json.loads(Path(prompts_path).read_text(encoding="utf-8"))["prompts"]
    spm = load_processor(path) if any("ids" not in prompt for prompt in prompts) else None
    made = []
    for prompt in prompts:
        ids = encode(model, spm, prompt)
        if len(ids) + steps > model.hparams.context_length:
            raise ValueError(f"prompt {prompt['id']}: {len(ids)} tokens and {steps} steps exceed the context length "
                             f"{model.hparams.context_length}")
        top_ids, top_logits = continue_greedily(model, ids, steps)
        made.append(prompt_json(prompt, ids, top_ids, top_logits))
        margin = min(float(row[0]) - float(row[1]) for row in top_logits)
        note(f"{prompt['id']:<12} {len(ids):3} tokens, least margin {margin:.4f}"
             + (": " + repr(spm.decode([row[0] for row in top_ids])) if spm else ""))
    return reference_json(model, made, steps)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF of the Llama family")
    parser.add_argument("-o", "--output", required=True, help="JSON to write")
    parser.add_argument("--prompts", default=PROMPTS, help="prompts as JSON (default: validate/verify/prompts.json)")
    parser.add_argument("--steps", type=int, default=32, help="greedy tokens a prompt (default: 32)")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not print the continuations")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        text = make_reference(args.model, args.prompts, args.steps, (lambda _: None) if args.quiet else print)
        Path(args.output).write_text(text, encoding="utf-8")
    except (UnsupportedModel, ValueError, KeyError, OSError) as error:
        print(f"verify_reference.py: error: {args.model}: {error!s}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
