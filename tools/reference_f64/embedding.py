#!/usr/bin/env python3
"""The embedding of a text in f64: rows of the final norm, pooled, cut, of length 1 (docs/numerics.md, "Embeddings"), as JSON.

    python tools/reference_f64/embedding.py MODEL.gguf --ids 1,403,407 --pooling mean [--dimensions 64]
"""

import argparse
import json

import numpy as np

from from_gguf import parse_ids
from gguf_model import GgufModel
from llama_f64 import LlamaF64

POOLINGS = {"mean": lambda rows: rows.mean(axis=0), "last": lambda rows: rows[-1]}


def embedding(model: GgufModel, ids: list[int], pooling: str, dimensions: int | None = None) -> np.ndarray:
    taps: dict[str, np.ndarray] = {}
    LlamaF64(model).forward(ids, global_tap=taps.__setitem__)
    vector = POOLINGS[pooling](taps["result_norm"])[:dimensions]
    return vector / np.linalg.norm(vector)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--ids", required=True, help="token ids 1,2,3 or a file of ids (BOS is not added)")
    parser.add_argument("--pooling", choices=POOLINGS, required=True)
    parser.add_argument("--dimensions", type=int)
    args = parser.parse_args()
    print(json.dumps(embedding(GgufModel(args.model), parse_ids(args.ids), args.pooling, args.dimensions).tolist()))


if __name__ == "__main__":
    main()
