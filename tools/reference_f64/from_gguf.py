#!/usr/bin/env python3
"""Runs a GGUF of the Llama family (those of hparams.FAMILIES) in numpy and dumps every activation as `llmcheck-act/1` (see dump.py).

    python tools/reference_f64/from_gguf.py MODEL.gguf --ids 1,403,407 -o ref.npz
    python tools/reference_f64/from_gguf.py MODEL.gguf --ids ids.txt --decode 8 -o ref.npz
    python tools/reference_f64/from_gguf.py MODEL.gguf --ids-random 600 --compute int8 --kv f16 -o ref.npz

By default everything is f64, the mathematics of the model (R0). `--compute int8` and `--compute f32` round where the
numeric contract rounds, docs/numerics.md (R2; contract.py says how).

Weights are dequantized by the `gguf` package; nothing here is shared with the engine. Needs numpy and gguf.
"""

import argparse
import dataclasses
import random
import re
import sys
from pathlib import Path

import numpy as np

from contract import BLOCK, Contract, Arithmetic
from dump import ActivationDump
from gguf_model import GgufModel
from hparams import UnsupportedModel
from llama_f64 import LlamaF64

VERSION = "2"


def parse_ids(text: str) -> list[int]:
    """Token ids given as `1,2,3`, or as the path of a file with ids separated by commas, blanks or brackets."""
    if not re.fullmatch(r"[\d,\s]*", text):
        text = Path(text).read_text(encoding="utf-8")
    ids = [int(word) for word in re.split(r"[\s,\[\]]+", text) if word]
    if not ids:
        raise ValueError("no token ids given")
    return ids


def random_ids(count: int, seed: int, vocab_size: int) -> list[int]:
    """`count` token ids, each equally likely; the same for the same arguments in every version of Python."""
    if count < 1:
        raise ValueError(f"--ids-random {count}: at least one token is needed")
    generator = random.Random(seed)
    return [int(generator.random() * vocab_size) for _ in range(count)]


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of every producer: which tokens are fed, how, and what is written."""
    ids = parser.add_mutually_exclusive_group(required=True)
    ids.add_argument("--ids", help="token ids 1,2,3 or a file of ids (BOS is not added)")
    ids.add_argument("--ids-random", type=int, metavar="N", help="N random tokens of the vocabulary")
    parser.add_argument("--seed", type=int, default=1, help="of --ids-random (default: 1)")
    parser.add_argument("-o", "--output", required=True, help="NPZ to write")
    parser.add_argument("--steps", help="sizes of the calls that feed the ids, e.g. 5,1,1 (default: one call)")
    parser.add_argument("--context", type=int, metavar="N", help="positions that the run is made for, which choose LongRoPE's "
                        "divisors (default: the GGUF's; of transformers, those of the text)")
    parser.add_argument("--probs", action="store_true", help="store attention probabilities as well")
    parser.add_argument("--compress", action="store_true", help="make the file small and slow to read")


def chosen_ids(args: argparse.Namespace, vocab_size: int) -> tuple[list[int], list[int]]:
    """The token ids that the options name, and the sizes of the calls that feed them."""
    ids = parse_ids(args.ids) if args.ids is not None else random_ids(args.ids_random, args.seed, vocab_size)
    return ids, split_steps(len(ids), args.steps)


def cache_type(text: str) -> str:
    """The argument of --kv."""
    if text not in ("f16", "f32", "q8"):
        raise argparse.ArgumentTypeError(f"docs/numerics.md defines no cache of type {text!r}, only f16, f32 and q8")
    return text


def choose_arithmetic(model: GgufModel, compute: str, kv: str | None) -> Arithmetic:
    """What --compute and --kv ask for; kv defaults to f16, as in the contract."""
    if compute == "f64":
        if kv is not None:
            raise ValueError("--kv needs --compute int8 or f32: with f64 nothing is rounded, the cache neither")
        return Arithmetic()
    for name in model.tensor_names():
        if model.type_name(name) not in BLOCK:
            raise UnsupportedModel(f"{name} is {model.type_name(name)}, for which docs/numerics.md has no product")
    return Contract(compute, kv or "f16")


def split_steps(n_tokens: int, sizes: str | None) -> list[int]:
    """Sizes of the forward calls that feed the prompt: all at once, or `--steps 5,1,2`, which must sum to n_tokens."""
    if sizes is None:
        return [n_tokens]
    steps = [int(word) for word in sizes.split(",")]
    if min(steps) < 1 or sum(steps) != n_tokens:
        raise ValueError(f"--steps {sizes} does not split {n_tokens} tokens")
    return steps


def run(model: GgufModel, ids: list[int], steps: list[int], decode: int, *,
        arithmetic: Arithmetic = Arithmetic(), probs: bool = False, context: int | None = None,
        dtype: type = np.float32) -> tuple[ActivationDump, list[int]]:
    """Feeds `ids` in calls of `steps` tokens, then `decode` greedy single-token calls. `context` is that of
    GgufModel.rope_divisors.

    Returns the dump and the arg-max token after the last row of each call (ties: the lower id).
    """
    llama = LlamaF64(model, arithmetic, context)
    dump = ActivationDump(dtype)
    greedy: list[int] = []

    def layer_tap(layer: int, tap: str, value: np.ndarray) -> None:
        if probs or tap != "probs":
            dump.layer(layer, tap, value)

    def feed(tokens: list[int]) -> None:
        dump.begin_step(tokens, range(llama.n_past, llama.n_past + len(tokens)))
        logits = llama.forward(tokens, layer_tap, dump.globals_)
        greedy.append(int(np.argmax(logits[-1])))

    begin = 0
    for size in steps:
        feed(ids[begin:begin + size])
        begin += size
    for _ in range(decode):
        feed([greedy[-1]])
    return dump, greedy


def metadata(model: GgufModel, greedy: list[int], arithmetic: Arithmetic = Arithmetic()) -> dict:
    """The dump's `__meta__` for this producer."""
    hp = model.hparams
    return {
        "producer": "from_gguf.py", "producer_version": VERSION,
        "model_sha256": model.sha256(), "model_name": model.name, "tokenizer_hash": model.tokenizer_hash(),
        "merges_hash": model.merges_hash(),
        "oracle": arithmetic.name, "compute": arithmetic.compute, "kv": arithmetic.kv,
        "eps": hp.eps, "rope_theta": hp.rope.theta, "qk_layout": model.family.qk_layout,
        "hparams": dataclasses.asdict(hp) | ({"head_dims": [hp.head_dim_of(i) for i in range(hp.n_layers)]} if hp.window_head_dim else {}),
        "greedy": greedy,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF of the Llama family")
    add_run_options(parser)
    parser.add_argument("--decode", type=int, default=0, metavar="N", help="greedy single-token steps after the ids")
    parser.add_argument("--layers", type=int, metavar="N", help="the first N layers, then the output")
    parser.add_argument("--compute", choices=("f64", "f32", "int8"), default="f64",
                        help="f64 rounds nothing (default); int8 and f32 round where docs/numerics.md does")
    parser.add_argument("--kv", type=cache_type, metavar="{f16,f32,q8}",
                        help="type of the KV cache with --compute int8 or f32 (default: f16)")
    args = parser.parse_args(argv)
    if args.decode < 0:
        parser.error("--decode must not be negative")
    try:
        model = GgufModel(args.model)
        if args.layers is not None:
            model.hparams = dataclasses.replace(model.hparams, n_layers=min(args.layers, model.hparams.n_layers))
        ids, steps = chosen_ids(args, model.vocab_size)
        arithmetic = choose_arithmetic(model, args.compute, args.kv)
        if len(ids) + args.decode > model.hparams.context_length:
            print(f"{parser.prog}: note: {len(ids) + args.decode} tokens exceed the context length "
                  f"{model.hparams.context_length}", file=sys.stderr)
        dump, greedy = run(model, ids, steps, args.decode, arithmetic=arithmetic, probs=args.probs,
                           context=args.context)
        dump.write(args.output, metadata(model, greedy, arithmetic), n_layers=model.hparams.n_layers, probs=args.probs,
                   compress=args.compress)
    except (UnsupportedModel, ValueError, OSError) as error:
        print(f"{parser.prog}: error: {args.model}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
