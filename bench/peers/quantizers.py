#!/usr/bin/env python3
"""Compares the files of llmquant with those of llama-quantize, with and without an importance matrix.

    build/venv/bin/python bench/peers/quantizers.py F16.gguf TYPE... --llama DIR --text held_out.txt --imatrix m.imatrix.gguf

Both programs quantize F16.gguf to each TYPE; the tensors have the same types in both files (a difference is an error). DIR has a built
llama-quantize. Prints a row for each TYPE, llmquant / llama-quantize:

- NMSE: sum (stored - source)^2 / sum source^2 over all matrices that are converted, read back by the `gguf` Python package;
  noise: with an importance matrix, the same sums with each column weighted by its importance;
- KLD: the mean KL divergence of the text of --text from F16.gguf (llmcheck --ppl --against).
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy as np


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}: {(done.stderr + done.stdout).strip()[-400:]}")
    return done.stdout


def values_of(tensor: gguf.ReaderTensor) -> np.ndarray:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def tensors_of(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def importances_of(path: Path | None) -> dict[str, np.ndarray]:
    """Mean squares of the columns of each matrix."""
    if path is None:
        return {}
    tensors = tensors_of(path)
    return {name.removesuffix(".in_sum2"): values_of(tensor) / values_of(tensors[name.replace("in_sum2", "counts")])
            for name, tensor in tensors.items() if name.endswith(".in_sum2")}


def error_of(source: dict, made: dict, importances: dict[str, np.ndarray]) -> tuple[float, float]:
    """NMSE and noise."""
    sums = np.zeros(4)
    for name, tensor in made.items():
        if tensor.tensor_type == source[name].tensor_type:
            continue
        x, y = values_of(source[name]), values_of(tensor)
        w = importances.get(name, np.ones(x.shape[-1])).reshape(-1)[: x.shape[-1]]
        sums += [np.sum((y - x) ** 2), np.sum(x**2), np.sum(w * (y - x) ** 2) / w.mean(), np.sum(w * x**2) / w.mean()]
    return sums[0] / sums[1], sums[2] / sums[3]


def kld_of(args: argparse.Namespace, made: list[Path]) -> list[float]:
    report = made[0].parent / "report.json"
    run([str(args.ours / "llmcheck"), str(made[0]), "--ppl", str(args.text), "--ppl-window", "512", "--against", str(args.source),
         "-t", str(args.threads), "--report", str(report), *(word for path in made[1:] for word in ("--also", str(path)))])
    rows = {row["model"]: row for row in json.loads(report.read_text())["figures"][0]["rows"]}
    return [rows[path.stem]["KL mean"] for path in made]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("types", nargs="+")
    parser.add_argument("--ours", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--llama", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    source = tensors_of(args.source)
    print("| type | importances | NMSE | noise | KLD |", "|---|---|---|---|---|", sep="\n", flush=True)
    for kind in args.types:
        for matrix in [None, args.imatrix] if args.imatrix else [None]:
            with tempfile.TemporaryDirectory() as folder:
                made = [Path(folder) / "ours.gguf", Path(folder) / "theirs.gguf"]
                weighted = ["--imatrix", str(matrix)] if matrix else []
                run([str(args.ours / "llmquant"), str(args.source), str(made[0]), kind, str(args.threads), "-q", *weighted])
                run([str(args.llama / "llama-quantize"), *weighted, str(args.source), str(made[1]), kind, str(args.threads)])
                ours, theirs = map(tensors_of, made)
                unlike = [name for name in source if ours[name].tensor_type != theirs[name].tensor_type]
                if unlike:
                    raise SystemExit(f"{kind}: other types: {', '.join(unlike)}")
                importances = importances_of(matrix)
                errors = [error_of(source, each, importances) for each in (ours, theirs)]
                cells = [f"{a:.3e} / {b:.3e}" for a, b in zip(*errors)] + ["{:.4e} / {:.4e}".format(*kld_of(args, made))]
                if not matrix:
                    cells[1] = ""
                print(f"| {kind} | {'yes' if matrix else 'no'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
