#!/usr/bin/env python3
"""llmcheck --judge on llama.cpp's server: right as it is, and each planted fault named (docs/judge.md).

    python3 tests/public_models/judge.py LLAMA_SERVER BIN_DIR MODEL.gguf [--only WORD,...]

A line for each way of serving: PASS where the verdict is the wanted one, with the summary. The last line counts the faults that were
named. Exit code 0, 1 where the right server or llmserve was blamed or fewer than seven of eight faults of options were named.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from judge_proxy import Proxy, cut_front, drop_temperature, inject_system  # noqa: E402

# What is planted: name, options of the server, what a proxy changes in requests, a word of the verdict.
RIGHT = "log-probabilities differ only by rounding"
WAYS = [
    ("right", [], None, RIGHT),
    ("other quantization", ["QUANT"], None, "no cause that was tried explains the differences"),
    ("kv q4_0", ["--cache-type-k", "q4_0", "--cache-type-v", "q4_0", "-fa", "on"], None,
     "no cause that was tried explains the differences"),  # of rotated heads, whose codes flip
    ("BOS added", ["--override-kv", "tokenizer.ggml.add_bos_token=bool:true"], None, "BOS added"),
    ("chat template", ["--no-jinja", "--chat-template", "llama2"], None, "a different chat template: llama2"),
    ("RoPE base", ["--rope-freq-base", "10000"], None, "RoPE base 10000"),
    ("RoPE scale", ["--rope-freq-scale", "0.5"], None, "RoPE scale: positions divided by 2"),
    ("small context", ["-c", "256"], None, "context too small"),
    ("repeat penalty", ["--repeat-penalty", "1.3"], None, "a penalty on repeated tokens"),
    ("temperature ignored", [], drop_temperature, "temperature 0 is ignored"),
    ("prompt cut", [], cut_front, "prompt cut: its front"),
    ("system message", [], inject_system, "a system message added by the server"),
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}") from None
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def judge(bin_dir: Path, model: Path, command: list[str], change, folder: Path) -> tuple[int, dict, float]:
    port, report = free_port(), folder / "report.json"
    process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, process)
        with Proxy(url, change) as proxy:
            started = time.monotonic()
            code = subprocess.run([bin_dir / "llmcheck", model, "--judge", proxy.url, "-q", "--report", report],
                                  stdout=subprocess.DEVNULL).returncode
            return code, json.loads(report.read_text()), time.monotonic() - started
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("server", type=Path)
    parser.add_argument("bin_dir", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    named, faults, blamed = 0, 0, False
    with tempfile.TemporaryDirectory(prefix="judge-") as name:
        folder = Path(name)
        coarse = folder / "coarse.gguf"
        if any(word in "other quantization" for word in arguments.only.split(",")):
            subprocess.run([arguments.bin_dir / "llmquant", arguments.model, coarse, "Q4_0", "--allow-requantize", "-q"], check=True, stdout=subprocess.DEVNULL)
        ways = [(what, [arguments.server, "-m", coarse if options == ["QUANT"] else arguments.model, "-t", "2", "-np", "1",
                        *(["-c", "2048"] if "-c" not in options else []), *(options if options != ["QUANT"] else [])], change, wanted)
                for what, options, change, wanted in WAYS]
        ways.append(("llmserve", [arguments.bin_dir / "llmserve", arguments.model], None, "equal to the bit"))
        chosen = [way for way in ways if any(word in way[0] for word in arguments.only.split(","))]
        if not chosen:
            parser.error(f"--only: found {arguments.only!r}, need words of: {', '.join(way[0] for way in ways)}")
        for what, command, change, wanted in chosen:
            code, report, seconds = judge(arguments.bin_dir, arguments.model, command, change, folder)
            is_fault = what not in ("right", "llmserve")
            said = next((check for check in report["checks"] if check["verdict"] == "FAIL"), report["checks"][0])
            is_right = wanted in said["name"] and code == (1 if is_fault else 0)
            faults, named, blamed = faults + is_fault, named + (is_fault and is_right), blamed or not (is_fault or is_right)
            print(f"{'PASS' if is_right else 'FAIL'}  {what}: {said['name']} ({seconds:.1f} s)\n      {said['detail']}", flush=True)
    print(f"{named} of {faults} faults named")
    return 1 if blamed or named < faults - 1 else 0


if __name__ == "__main__":
    sys.exit(main())
