#!/usr/bin/env python3
"""The second verifier (tools/verifier) on receipts of llmrun: it confirms them, and names what was changed in them.

    python3 tests/tools/verifier_test.py BIN_DIR MODEL.gguf [--confirm]

Prints a line for each receipt, `PASS` or `FAIL`, with the seconds it took; --confirm: nothing is changed. Exit code 0, or 1 when one failed. Runs under LLM_PYTHON
where this Python has no numpy, and is skipped where that has none either.
"""

import contextlib
import copy
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 64
SAMPLED = ["-p", "Once upon a time there was", "-n", str(TOKENS), "-s", "7", "--temp", "0.9", "--top-k", "40", "--top-p", "0.95",
           "--min-p", "0.01", "--repeat-penalty", "1.1", "--ignore-eos"]
# What else a receipt may hold: options of llmrun, and the stop reason that they lead to.
OTHERS = [(["-p", "The old man", "-n", "9", "--temp", "0", "--kv", "f32"], "length"),
          (["-p", "The cat", "-n", "60", "-s", "3", "-r", "the", "-r", ".", "--sampler-order", "llamacpp", "--top-k", "0"], "stop_string"),
          (["-p", "Once upon", "-n", "30", "-s", "5", "--presence-penalty", "1.5", "--frequency-penalty", "-0.4"], "length"),
          (["-p", "A girl", "-c", "20", "-s", "4", "--ignore-eos", "--temp", "1.7"], "context_full")]


class Bench:
    def __init__(self, bin_dir: Path, model: Path, folder: Path):
        self.bin, self.model, self.folder, self.failed = bin_dir, model, folder, False

    def receipt(self, arguments: list[str]) -> dict:
        path = self.folder / "receipt.json"
        subprocess.run([self.bin / "llmrun", self.model, *arguments, "-q", "--receipt", path], check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())

    def judged(self, receipt: dict, model: Path) -> tuple[int, str]:
        path, out = self.folder / "changed.json", io.StringIO()
        path.write_text(json.dumps(receipt))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = verifier_main([str(path), "--model", str(model)])
        return code, out.getvalue()

    def expect(self, what: str, receipt: dict, failing: list[str], words: str = "", code: int = 1, model: Path | None = None) -> None:
        """@param failing  the checks that must fail, and no other (but what is drawn from wrong logits is anything)
        @param words  what a failed one must say"""
        started = time.monotonic()
        found, said = self.judged(receipt, model or self.model)
        fails = [line for line in said.splitlines() if line.startswith("FAIL ")]
        names = [line.removeprefix("FAIL ").split(":")[0] for line in fails]
        if "logits" in failing and names[-1:] == ["tokens"] and "tokens" not in failing:
            names.pop()
        good = found == code and names == failing and words in "\n".join(fails)
        self.failed |= not good
        seconds = time.monotonic() - started
        print(f"{'PASS' if good else 'FAIL'} {what}: exit code {found}; {'; '.join(fails) or 'confirmed'}  ({seconds:.1f} s)", flush=True)
        if not good:
            print(f"  need exit code {code}, {failing} and {words!r}", flush=True)


def changed(receipt: dict, **options) -> dict:
    """The receipt with other options (those it has), else with other fields."""
    copied = copy.deepcopy(receipt)
    for name, value in options.items():
        (copied["options"] if name in copied["options"] else copied)[name] = value
    return copied


def replaced(ids: list[int], at: int, by: int) -> list[int]:
    return [*ids[:at], by, *ids[at + 1:]]


def damaged(model: Path, folder: Path) -> Path:
    """A copy that differs by one bit, a weight's."""
    copy_of = folder / "damaged.gguf"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 0x40
    copy_of.write_bytes(data)
    return copy_of


def falsify(bench: Bench, receipt: dict) -> None:
    ids, prompt_ids, text = receipt["ids"], receipt["prompt_ids"], receipt["text"]
    middle, other = TOKENS // 2, ids[1] if ids[1] != ids[TOKENS // 2] else ids[2]
    wrong_hash = hashlib.sha256(b"").hexdigest()
    for what, edit, failing, words in [
            ("a token", {"ids": replaced(ids, middle, other)}, ["text", "logits", "tokens"], f"token {middle}: {ids[middle]} "),
            ("the last token", {"ids": replaced(ids, TOKENS - 1, other)}, ["text", "logits", "tokens"], f"token {TOKENS - 1}: {ids[-1]} "),
            ("the text", {"text": text.replace("e", "a", 1)}, ["text"], f"at character {text.index('e')}"),
            ("a text cut short", {"text": text[:-1]}, ["text"], "text: "),
            ("seed", {"seed": 8}, ["tokens"], "seed 7 would give"),
            ("sequence", {"sequence": 1}, ["tokens"], "sequence 0 would give"),
            ("temperature", {"temperature": 2.5}, ["tokens"], "temperature 0.9"),
            ("top-k", {"top_k": 2}, ["tokens"], "top_k "),
            ("top-p", {"top_p": 0.3}, ["tokens"], "top_p 0.9"),
            ("min-p", {"min_p": 0.9}, ["tokens"], "min_p "),
            ("repeat penalty", {"repeat_penalty": 3}, ["tokens"], "repeat_penalty 1.1"),
            ("logit bias", {"logit_bias": [[ids[0], -100]]}, ["tokens"], "token 0: "),
            ("prompt", {"prompt": receipt["prompt"] + "!"}, ["prompt"], f"id {len(prompt_ids)} "),
            ("an id of the prompt", {"prompt_ids": replaced(prompt_ids, 1, other)}, ["prompt", "logits"], "prompt: id 1 "),
            ("hash of the logits", {"drawn_logits_sha256": wrong_hash}, ["logits"], "drawn_logits_sha256: found e3b0c442"),
            ("stop reason", {"stop_reason": "eos"}, ["stop reason"], "need length"),
            ("n", {"n": TOKENS + 1}, ["stop reason"], "need interrupted"),
            ("stop strings", {"stop": [text[5:7]]}, ["text", "stop reason"], "stop: "),
            ("kv", {"kv": "f32"}, ["logits"], "kv f16 would give them"),
            ("context", {"context": TOKENS // 2}, ["context"], f"context: {TOKENS // 2} positions"),
            ("context above the model's", {"context": 1 << 20}, ["context"], "context: found 1048576"),
            ("a field that is no number", {"seed": "7"}, [], ""),
            ("an id beyond the vocabulary", {"ids": replaced(ids, 3, 1 << 30)}, [], "")]:
        bench.expect(what, changed(receipt, **edit), failing, words, 1 if failing else 3)
    short = bench.receipt(["-p", "A cat", "-n", "4", "--temp", "0"])
    bench.expect("compute", changed(short, compute="f32"), ["logits"], "compute int8 would give them")
    broken = damaged(bench.model, bench.folder)
    bench.expect("a bit of the model", receipt, ["model"], "has SHA-256", 8, broken)
    receipt = copy.deepcopy(receipt)
    receipt["model"]["sha256"] = hashlib.sha256(broken.read_bytes()).hexdigest()
    bench.expect("a bit of the model, and its hash", receipt, ["logits"], "the model gives", 1, broken)


def fma_rounds_once() -> bool:
    """What no text is sure to meet: a product just below half a unit in the last place of c leaves c, though the sum in f64 is half-way
    to c's even neighbour."""
    below_half = (2.0 ** -12 * (1 - 2.0 ** -23), 2.0 ** -12 * (1 + 2.0 ** -23))
    for scale, c in [(1, 1 + 2.0 ** -23), (2.0 ** -63, 2.0 ** -130 + 2.0 ** -149)]:  # the second is denormal
        for signs in [(1, 1), (-1, 1), (1, -1), (-1, -1)]:
            a, b, c_ = below_half[0] * scale * signs[0], below_half[1] * scale, c * signs[1]
            if contract.fma(*(np.array([x], np.float32) for x in (a, b, c_)))[0] != c_:
                return False
    return True


def main() -> int:
    bin_dir, model = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(bin_dir, model, Path(folder))
        bench.failed = not fma_rounds_once()
        print(f"{'FAIL' if bench.failed else 'PASS'} fma rounds once", flush=True)
        for arguments, reason in OTHERS:
            receipt = bench.receipt(arguments)
            bench.expect(f"a text that ends by {receipt['stop_reason']}", receipt, [], code=0)
            bench.failed |= receipt["stop_reason"] != reason
        receipt = bench.receipt(SAMPLED)
        bench.expect(f"{len(receipt['ids'])} tokens as llmrun drew them", receipt, [], code=0)
        if "--confirm" not in sys.argv:
            falsify(bench, receipt)
    return int(bench.failed)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/support")]
    from oracle_python import run_again
    try:
        from verifier.__main__ import main as verifier_main  # before numpy: it says how many threads
        import numpy as np
        from verifier import contract, verify
    except ImportError as error:
        run_again(error)
    verify.OTHERS["seed"] = range(100)  # a seed is found among more in the same way
    sys.exit(main())
