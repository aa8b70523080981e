#!/usr/bin/env python3
"""The way of docs/doctor.md from a suspicious file to a verdict: suspicious_file_test.py BIN_DIR. Files made wrong in one way each are
held against a reference of the original, which llmrun.reference makes; each must be told by keys, operation and cause."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("public_models", "support")]

from oracle_python import run_again  # noqa: E402

try:
    from doctor import Gguf
except ImportError as error:
    run_again(error)

BIN = Path(sys.argv.pop(1)).resolve()
ORIGINAL = ROOT / "models/fable-3m-f16.gguf"
EPS, BASE = "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"


def exchange(g: Gguf, first: str, second: str) -> None:
    g.tensors[first], g.tensors[second] = g.tensors[second], g.tensors[first]


def permute_rows(g: Gguf, name: str) -> None:
    """The first half behind the second."""
    dims, kind, data = g.tensors[name]
    g.tensors[name] = [dims, kind, data[len(data) // 2:] + data[:len(data) // 2]]


def permute_columns(g: Gguf, name: str) -> None:
    (columns, rows), kind, data = g.tensors[name]
    size = len(data) // rows
    half = size // 2
    g.tensors[name] = [[columns, rows], kind, b"".join(data[at + half:at + size] + data[at:at + half] for at in range(0, len(data), size))]


def damage(g: Gguf, name: str) -> None:
    """One exponent bit of one F16 weight, in row 3."""
    (columns, rows), kind, data = g.tensors[name]
    changed = bytearray(data)
    changed[2 * (3 * columns + 5) + 1] ^= 0x20
    g.tensors[name] = [[columns, rows], kind, bytes(changed)]


def scaled_rope(g: Gguf) -> None:
    g.string("llama.rope.scaling.type", "linear")
    g.f32("llama.rope.scaling.factor", 4)


# What is done; what "FAIL  preflight" says; the first finding: tap, signature, likely cause.
WAYS = {
    "eps": (lambda g: g.f32(EPS, 0.01), "attention.layer_norm_rms_epsilon is 0.01 here, 1e-05 in the reference",
            "L000/attn_norm", "each token times a factor of its own", "eps: the reference's values follow from 1e-05, the file has 0.01;"),
    "base": (lambda g: g.f32(BASE, 5e5), "rope.freq_base is 500000 here, 10000 in the reference",
             "L000/q_rope", "", "RoPE's base: the reference's values follow from 1e+04, the file has 5e+05;"),
    "factor": (scaled_rope, "rope.scaling.factor is 4 here, 1 in the reference",
               "L000/q_rope", "", "what divides RoPE's positions: the reference's values follow from 1, the file has 4;"),
    "gate and up": (lambda g: exchange(g, "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"), "",
                    "L001/gate", "these are the values of L001/up", "the tensor of that op is bound in place of its own;"),
    "norms": (lambda g: exchange(g, "blk.1.attn_norm.weight", "blk.1.ffn_norm.weight"), "",
              "L001/attn_norm", "each feature times a factor of its own", "its weight;"),
    "rows": (lambda g: permute_rows(g, "blk.2.ffn_up.weight"), "",
             "L002/up", "the right values of each row in another order", "the rows of the matrix are in another order;"),
    "columns": (lambda g: permute_columns(g, "blk.2.ffn_up.weight"), "", "L002/up", "", "another matrix: "),
    "damage": (lambda g: damage(g, "blk.2.ffn_gate.weight"), "",
               "L002/gate", "only feature 3 of", "damaged weights in those rows of the matrix;"),
}


class SuspiciousFileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="suspicious-file-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.reference = cls.folder / "ref.npz"
        subprocess.run([sys.executable, "-B", ROOT / "python/llmrun/reference.py", ORIGINAL, "--ids-random", "24", "-o", cls.reference], check=True)

    def diff(self, file: Path) -> tuple[int, list[str], list[dict], str]:
        """Exit code, what is printed before the sections, the findings in f32, all that is printed."""
        report = self.folder / "report.json"
        done = subprocess.run([BIN / "llmcheck", file, "--layer-diff", self.reference, "--compute", "f32", "-q", "-t", "1", "--report", report],
                              capture_output=True, text=True)
        text = done.stdout + done.stderr
        first = [line for line in text.partition("f32-bits")[0].splitlines() if line.startswith("FAIL  preflight")]
        findings = [one for section in json.loads(report.read_text())["layer_diffs"] for one in section["locate"]["findings"]]
        return done.returncode, first, findings, text

    def test_the_original_passes(self):
        code, keys, findings, text = self.diff(ORIGINAL)
        self.assertEqual((code, keys, findings), (0, [], []), text)

    def test_each_way_is_told(self):
        for what, (change, key, tap, signature, cause) in WAYS.items():
            with self.subTest(what):
                gguf, file = Gguf(ORIGINAL), self.folder / "changed.gguf"
                change(gguf)
                gguf.write(file)
                code, keys, findings, text = self.diff(file)
                self.assertEqual(code, 1, text)
                self.assertEqual(keys, [f"FAIL  preflight   {key}"] if key else [], text)
                self.assertEqual(findings[0]["tap"], tap, text)
                self.assertIn(signature, findings[0]["signature"], text)
                self.assertTrue(findings[0]["cause"].startswith(cause), text)

    def test_a_quantization_is_no_other_matrix(self):
        coarse = self.folder / "coarse.gguf"
        subprocess.run([BIN / "llmquant", ORIGINAL, coarse, "Q4_0", "-q"], check=True, stdout=subprocess.DEVNULL)
        _, keys, findings, text = self.diff(coarse)
        products = [one for one in findings if "matrix product" in one["op"]]
        self.assertEqual(keys, [], text)
        self.assertGreater(len(products), 20, text)
        self.assertTrue(all(one["cause"].startswith("the same matrix with other errors: ") for one in products), text)
        # What is wrong besides stands out.
        gguf, file = Gguf(coarse), self.folder / "changed.gguf"
        exchange(gguf, "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight")
        gguf.write(file)
        _, _, findings, text = self.diff(file)
        others = [one["tap"] for one in findings if "the tensor of that op is bound" in one["cause"]]
        self.assertEqual(others, ["L001/gate", "L001/up"], text)


if __name__ == "__main__":
    unittest.main()
