#!/usr/bin/env python3
"""Runs the fuzzers of tests/fuzz and says what they found (docs/fuzzing.md).

    run.py BIN_DIR OUT [TARGET...] [--seconds N] [--jobs N] [--timeout S] [--minimize]

Each target begins with its committed corpus, its seeds (seeds.py) and what earlier runs found in OUT/corpus. A finding
is written to OUT/findings. Each run is a line of OUT/runs.jsonl. Exit code 1 where something was found.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import seeds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The longest inputs of a target, where libFuzzer's own 4096 bytes are not what its format needs.
MOST_BYTES = {"chat_style": 16384, "gguf": 16384, "jinja": 16384, "npz": 16384, "receipt": 16384, "request": 16384}
MOST_COMMITTED = 4096  # bytes of an input in tests/fuzz/corpus
# Of one input: MiB in all and of one request for memory.
LIMITS = ["-rss_limit_mb=2048", "-malloc_limit_mb=512"]


class Fuzzer:
    def __init__(self, binary: Path, out: Path):
        self.binary = binary
        self.name = binary.name.removeprefix("fuzz_")
        self.grown = out / "corpus" / self.name
        self.seeds = out / "seeds" / self.name
        self.committed = HERE / "corpus" / self.name
        self.findings = out / "findings"
        self.log = out / "logs" / f"{self.name}.log"
        self.dictionary = out / "seeds" / f"{self.name}.dict"
        for folder in (self.grown, self.seeds, self.findings, self.log.parent):
            folder.mkdir(parents=True, exist_ok=True)

    def corpora(self) -> list[str]:
        return [str(folder) for folder in (self.grown, self.committed, self.seeds) if folder.is_dir()]

    def call(self, *options: str) -> tuple[int, str, float]:
        """Exit code, what was said, and seconds of CPU."""
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with self.log.open("w") as log:
            process = subprocess.Popen([self.binary, *options], stdout=log, stderr=log, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
        return os.waitstatus_to_exitcode(status), self.log.read_text(errors="replace"), usage.ru_utime + usage.ru_stime

    def fuzz(self, seconds: int, timeout: int) -> dict:
        options = [*LIMITS, f"-timeout={timeout}", f"-artifact_prefix={self.findings}/{self.name}-", "-print_final_stats=1",
                   f"-max_len={MOST_BYTES.get(self.name, 4096)}"]
        # Nothing is executed besides the corpora.
        options += [f"-max_total_time={seconds}"] if seconds > 0 else ["-runs=0"]
        if self.dictionary.exists():
            options.append(f"-dict={self.dictionary}")
        code, said, cpu = self.call(*options, *self.corpora())
        figures = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/(\w+)", said)
        executed = re.search(r"stat::number_of_executed_units: (\d+)", said)
        last = figures[-1] if figures else ("0", "0", "0", "0b")
        return {"target": self.name, "code": code, "cpu": round(cpu, 1), "executions": int(executed[1]) if executed else 0,
                "edges": int(last[0]), "features": int(last[1]), "inputs": int(last[2]), "bytes": last[3],
                "finding": [*re.findall(r"Test unit written to (\S+)", said), ""][0],
                "why": [*re.findall(r"(?:LAW BROKEN|SUMMARY): (.+)", said), ""][0]}

    def minimize(self) -> None:
        """The committed corpus: the smallest inputs that reach what seeds, which are made anew each time, do not."""
        reached = self.grown.parent / f"{self.name}.reached"
        shutil.rmtree(reached, ignore_errors=True)
        reached.mkdir()
        self.call("-set_cover_merge=1", str(reached), str(self.seeds))
        by_seeds = {path.name for path in reached.iterdir()}
        self.call("-set_cover_merge=1", f"-max_len={MOST_COMMITTED}", str(reached), str(self.grown), str(self.committed))
        shutil.rmtree(self.committed, ignore_errors=True)
        self.committed.mkdir(parents=True)
        for path in reached.iterdir():
            if path.name not in by_seeds:
                shutil.copy(path, self.committed)
        shutil.rmtree(reached)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="of each target; 0: the corpora alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=20, help="seconds of wall time of one input; more where the machine is busy")
    parser.add_argument("--minimize", action="store_true", help="write tests/fuzz/corpus anew from what was found")
    args = parser.parse_args()
    (args.out / "seeds").mkdir(parents=True, exist_ok=True)
    seeds.write(args.out / "seeds")
    fuzzers = [Fuzzer(path, args.out) for path in sorted(args.bin.glob("fuzz_*")) if path.name != "fuzz_render"]
    known = {fuzzer.name for fuzzer in fuzzers}
    if unknown := set(args.targets) - known:
        print(f"fuzz: error: found {', '.join(sorted(unknown))}, need targets of {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    chosen = [fuzzer for fuzzer in fuzzers if not args.targets or fuzzer.name in args.targets]
    failed = 0
    print(f"{'target':14}{'executions':>12}{'edges':>8}{'features':>10}{'inputs':>8}{'bytes':>9}{'CPU s':>8}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        if args.minimize:
            list(pool.map(Fuzzer.minimize, chosen))
            return 0
        for run in pool.map(lambda fuzzer: fuzzer.fuzz(args.seconds, args.timeout), chosen):
            print(f"{run['target']:14}{run['executions']:12}{run['edges']:8}{run['features']:10}{run['inputs']:8}"
                  f"{run['bytes']:>9}{run['cpu']:8.1f}", flush=True)
            with (args.out / "runs.jsonl").open("a") as history:
                history.write(json.dumps({"at": int(time.time())} | run) + "\n")
            if run["code"] != 0:
                failed += 1
                print(f"  FOUND by {run['target']} (exit code {run['code']}): {run['why']}\n  {run['finding']}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
