"""What llmrun writes with the models of the corpus that have a greedy text by transformers (make.py): the same tokens in
f32, and one logits hash however it is computed."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ISAS = ("scalar", "avx2", "avx512", "avxvnni", "avx512vnni", "amx")
SPLITS = ((1, 512), (2, 1), (3, 7))  # threads and batch
HASHED_TOKENS = 8
UNSUPPORTED = 6  # exit code: an instruction set that this CPU lacks


def run_tool(binary: Path, model: Path, prompt: str, n: int, *options: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(binary), str(model), "-p", prompt, "-n", str(n), "--temp", "0", "--ignore-eos",
                           *map(str, options)], capture_output=True, text=True, timeout=900)


def greedy_fault(binary: Path, model: Path, expected: dict) -> str:
    """How the tokens differ from transformers', or an empty text."""
    n = len(expected["greedy"])
    run = run_tool(binary, model, expected["prompt"], n, "--compute", "f32", "--kv", "f32", "-t", 1, "--json")
    if run.returncode != 0:
        return run.stderr.strip()
    out = json.loads(run.stdout)
    for what in ("prompt_ids", "greedy"):
        found, needed = out["prompt_ids" if what == "prompt_ids" else "ids"], expected[what]
        if found != needed:
            at = next((i for i, pair in enumerate(zip(found, needed)) if pair[0] != pair[1]), min(len(found), len(needed)))
            return f"{what} differ from transformers' at {at}: {found[at:at + 4]}, need {needed[at:at + 4]}"
    return ""


def hash_fault(binary: Path, model: Path, expected: dict) -> str:
    """Which way to compute gives other logits than the first, or an empty text."""
    first = None
    for isa in ISAS:
        for threads, batch in SPLITS:
            run = run_tool(binary, model, expected["prompt"], HASHED_TOKENS, "--isa", isa, "-t", threads, "-b", batch,
                           "--logits-hash")
            if run.returncode == UNSUPPORTED:
                break
            hashes = [line for line in run.stderr.splitlines() if "logits-sha256" in line]
            if run.returncode != 0 or not hashes:
                return run.stderr.strip()
            first = first or hashes
            if hashes != first:
                return f"--isa {isa} -t {threads} -b {batch} gives other logits"
    return ""


def check_families(binary: Path, corpus: Path, cases: list[dict], jobs: int) -> bool:
    """Prints a line for each file that fails, then the totals; whether none does."""
    chosen = [case for case in cases if case.get("greedy")]

    def check(case: dict) -> list[str]:
        expected = json.loads((corpus / case["greedy"]).read_text(encoding="utf-8"))
        model = corpus / case["model"]
        faults = [hash_fault(binary, model, expected)]
        if case["type"] == "F16":  # the checkpoint's own weights
            faults.append(greedy_fault(binary, model, expected))
        return [f"{case['name']}: {fault}" for fault in faults if fault]

    with ThreadPoolExecutor(jobs) as pool:
        faults = [fault for found in pool.map(check, chosen) for fault in found]
    for fault in faults:
        print(fault)
    greedy = sum(case["type"] == "F16" for case in chosen)
    print(f"texts of 64 tokens and logits hashes: {greedy} and {len(chosen)} files, {len(faults)} faults (need 0)")
    return not faults
