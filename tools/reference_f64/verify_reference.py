#!/usr/bin/env python3
"""Freezes the reference of `llmcheck --verify`: greedy continuations with the most likely tokens of every step, by the f64
oracle (R0). The format is described in docs/verify.md.

    python tools/reference_f64/verify_reference.py MODEL.gguf -o REF.json
    python tools/reference_f64/verify_reference.py MODEL.gguf --prompts MINE.json --steps 32 -o REF.json

Shares nothing with the engine: weights are dequantized by the `gguf` package, texts encoded by SentencePiece or `tokenizers`,
the model run in numpy, all prompts together and a layer at a time, so that each matrix is dequantized once a step. A prompt is {"id", "kind": "base" or "instruct", "text"}, or has "ids" (BOS included) instead of a text, which
is how a prompt with special tokens is given.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from gguf_model import GgufModel
from hparams import UnsupportedModel
from decoder import Text
from llama_f64 import LlamaF64

VERSION = "1"
SCHEMA_VERSION = 1
TOP_K = 5
NO_TOKEN = 0xFFFFFFFF  # an id that a file gives where there is no such token
PROMPTS = Path(__file__).resolve().parents[2] / "validate" / "outputs" / "verify" / "prompts.json"


def top(logits: np.ndarray, k: int = TOP_K) -> list[int]:
    """Ids of the k largest logits, largest first; of equal ones the lower id first."""
    return [int(i) for i in np.argsort(-logits, kind="stable")[:k]]


def shortest(value: np.ndarray) -> str:
    """The shortest decimal that reads back as the same f32."""
    return np.format_float_positional(np.float32(value), unique=True, trim="0")


class Texts:
    """Texts and ids by the library of the vocabulary's kind. A text is plain text after BOS, if the vocabulary wants one."""

    def __init__(self, model: GgufModel):
        value = lambda key, default: model.value(f"tokenizer.ggml.{key}", default)  # noqa: E731
        if value("model", "") == "gpt2":
            from byte_bpe import ADD_BOS, ByteBpe

            self._library = ByteBpe(str(model.path))
            bos, add_bos = value("bos_token_id", None), value("add_bos_token", self._library.rule in ADD_BOS)
        else:
            from spm_proto import load_processor

            self._library = load_processor(str(model.path))
            bos, add_bos = value("bos_token_id", 1), value("add_bos_token", True)
        self._start = [int(bos)] if add_bos and bos not in (None, NO_TOKEN) else []

    def encode(self, text: str) -> list[int]:
        return [*self._start, *self._library.encode(text)]

    def decode(self, ids: list[int]) -> str:
        return self._library.decode(ids)


class Progress:
    """A line on stderr every ten seconds, of what is computed."""

    def __init__(self, steps: int, n_layers: int, quiet: bool):
        self.step, self._steps, self._layers, self._quiet, self._said = 0, steps, n_layers, quiet, time.monotonic()

    def layer(self, layer: int, tap: str, _value: np.ndarray) -> None:
        if tap == "l_out" and not self._quiet and time.monotonic() - self._said >= 10:
            self._said = time.monotonic()
            what = f"step {self.step} of {self._steps - 1}" if self.step else "prompts"
            print(f"verify_reference.py: {what}, layer {layer + 1} of {self._layers}", file=sys.stderr)


def continue_greedily(model: GgufModel, prompts: list[list[int]], steps: int,
                      progress: Progress) -> list[tuple[list[list[int]], list[list[str]]]]:
    """Top ids and logits of `steps` greedy steps of each prompt, never ending early. An end of text is a token like others."""
    llama = LlamaF64(model)
    texts = [Text(model.hparams) for _ in prompts]
    feeds, made = prompts, [([], []) for _ in prompts]
    for step in range(steps):
        progress.step = step  # 0 reads the prompts
        rows = llama.forward_all(list(zip(texts, feeds, strict=True)), progress.layer, last_only=True)
        if not np.isfinite(rows).all():
            raise ValueError(f"logits of step {step} are not finite")
        for row, (top_ids, top_logits) in zip(rows, made, strict=True):
            top_ids.append(top(row))
            top_logits.append([shortest(row[i]) for i in top_ids[-1]])
        feeds = [top_ids[-1][:1] for top_ids, _ in made]
    return made


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


def reference_json(model: GgufModel, prompts: list[str], steps: int, producer: str = "verify_reference.py",
                   oracle: str = "R0") -> str:
    head = {
        "schema_version": SCHEMA_VERSION, "format": "llmcheck-verify/1",
        "producer": producer, "producer_version": VERSION, "oracle": oracle,
        "model_name": model.name, "model_sha256": model.sha256(), "tokenizer_hash": model.tokenizer_hash(),
        "steps": steps, "top_k": TOP_K,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    return "{\n" + ",\n".join(lines) + ',\n  "prompts": [\n' + ",\n".join(prompts) + "]\n}\n"


def make_reference(path: str, prompts_path: str | Path, steps: int, quiet: bool = True) -> str:
    model = GgufModel(path)
    prompts = json.loads(Path(prompts_path).read_text(encoding="utf-8"))["prompts"]
    texts = Texts(model) if any("ids" not in prompt for prompt in prompts) else None
    ids = [[int(i) for i in prompt["ids"]] if "ids" in prompt else texts.encode(prompt["text"]) for prompt in prompts]
    for prompt, tokens in zip(prompts, ids, strict=True):
        if not tokens:
            raise ValueError(f"prompt {prompt['id']} has no tokens, and the vocabulary has no BOS to start from")
        if len(tokens) + steps > model.hparams.context_length:
            raise ValueError(f"prompt {prompt['id']}: {len(tokens)} tokens and {steps} steps exceed the context length "
                             f"{model.hparams.context_length}")
    made = continue_greedily(model, ids, steps, Progress(steps, model.hparams.n_layers, quiet))
    for prompt, tokens, (top_ids, top_logits) in zip(prompts, ids, made, strict=True):
        margin = min(float(row[0]) - float(row[1]) for row in top_logits)
        if not quiet:
            print(f"{prompt['id']:<12} {len(tokens):3} tokens, least margin {margin:.4f}"
                  + (": " + repr(texts.decode([row[0] for row in top_ids])) if texts else ""))
    return reference_json(model, [prompt_json(prompt, tokens, *of_prompt)
                                  for prompt, tokens, of_prompt in zip(prompts, ids, made, strict=True)], steps)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF of the Llama family")
    parser.add_argument("-o", "--output", required=True, help="JSON to write")
    parser.add_argument("--prompts", default=PROMPTS, help="prompts as JSON (default: validate/outputs/verify/prompts.json)")
    parser.add_argument("--steps", type=int, default=32, help="greedy tokens a prompt (default: 32)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print neither the continuations nor where it is")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        text = make_reference(args.model, args.prompts, args.steps, args.quiet)
        Path(args.output).write_text(text, encoding="utf-8")
    except (UnsupportedModel, ValueError, KeyError, OSError) as error:
        print(f"verify_reference.py: error: {args.model}: {error!s}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
