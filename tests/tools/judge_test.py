#!/usr/bin/env python3
"""llmcheck --judge on llmserve: judge_test.py BIN_DIR [PART/PARTS]. Equal to the bit as it is, and each planted fault is named."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("public_models", "serving", "support", "tools")]

from oracle_python import run_again  # noqa: E402

try:
    from doctor import Gguf
except ImportError as error:
    run_again(error)
from judge_proxy import Answers, Listening, Proxy, cut_front, drop_temperature, inject_system  # noqa: E402
from server import serve  # noqa: E402

BIN = Path(sys.argv.pop(1)).resolve()
PART, PARTS = map(int, sys.argv.pop(1).split("/")) if len(sys.argv) > 1 else (1, 1)
MODEL = ROOT / "models/fable-3m-q4_k_m.gguf"
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def penalize(body: dict) -> None:
    body["repeat_penalty"] = 1.5


def bias(body: dict) -> None:
    body["logit_bias"] = {"1453": -100}


class JudgeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="judge-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = cls.changed("model", lambda g: None)

    @classmethod
    def changed(cls, name: str, change) -> Path:
        """A copy of the embedded model with a chat template, and what `change` makes of it."""
        gguf, path = Gguf(MODEL), cls.folder / f"{name}.gguf"
        gguf.string("tokenizer.chat_template", CHAT)
        change(gguf)
        gguf.write(path)
        return path

    def judge(self, served: Path, options=(), change=None, own=None) -> tuple[int, dict, str]:
        with serve(BIN, "-t", "1", *options, model=served) as url, Proxy(url, change) as proxy:
            return self.ask(proxy.url, own or self.model)

    def ask(self, url: str, model: Path, *options: str) -> tuple[int, dict, str]:
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        done = subprocess.run([BIN / "llmcheck", model, "--judge", url, "-q", "-t", "1", "--report", report, *options], capture_output=True, text=True,
                              timeout=120)
        return done.returncode, json.loads(report.read_text()) if report.exists() else {}, done.stdout + done.stderr

    def names(self, wanted: str, served: Path, options=(), change=None, code=1) -> str:
        found, report, text = self.judge(served, options, change)
        said = next((check for check in report["checks"] if check["verdict"] == "FAIL"), report["checks"][0])
        self.assertIn(wanted, said["name"], text)
        self.assertEqual(found, code, text)
        return said["detail"]

    def test_own_server_is_equal_to_the_bit(self):
        for options in ([], ["--compute", "f32", "--kv", "f32"]):
            detail = self.names("equal to the bit", self.model, options, code=0)
            self.assertIn("tokens of 20 prompts", detail)

    def test_other_rounding_is_right(self):
        detail = self.names("differ only by rounding", self.model, ["--kv", "q8"], code=0)
        self.assertIn("greedy texts", detail)

    def test_rope(self):
        base = self.changed("base", lambda g: g.f32("llama.rope.freq_base", 5e5))
        detail = self.names("RoPE base 500000 instead of 10000", base)
        self.assertRegex(detail, r"first in short prompt \d+ .*, token \d+ .*: log-probability .*, the file's .* so")

        def scaled(g: Gguf) -> None:
            g.string("llama.rope.scaling.type", "linear")
            g.f32("llama.rope.scaling.factor", 4)
        self.names("RoPE scale: positions divided by 4", self.changed("scale", scaled))

    def test_numbers_between_those_that_are_tried(self):
        """The number is found, and named because it explains the answers."""
        for what, key, value, words in (("base", "llama.rope.freq_base", 3e5, r"RoPE base (\S+) instead of 10000"),
                                        ("eps", "llama.attention.layer_norm_rms_epsilon", 3e-3, r"RMSNorm's eps (\S+) instead of 1e-05")):
            with self.subTest(what):
                code, report, text = self.judge(self.changed(f"between-{what}", lambda g, key=key, value=value: g.f32(key, value)))
                found = re.search(words, report["checks"][0]["name"])
                self.assertTrue(found, text)
                self.assertAlmostEqual(float(found[1]) / value, 1, delta=0.03)
                self.assertEqual(code, 1, text)
        self.names("RMSNorm's eps 0.001 instead of 1e-05", self.changed("eps", lambda g: g.f32("llama.attention.layer_norm_rms_epsilon", 1e-3)))

    def test_no_cause_is_named_that_does_not_explain_the_answers(self):
        def exchange(g: Gguf, *names: str) -> None:
            for layer in range(4):
                first, second = (f"blk.{layer}.{name}.weight" for name in names)
                g.tensors[first], g.tensors[second] = g.tensors[second], g.tensors[first]

        def permute(g: Gguf) -> None:
            """The rows of a matrix in another order: the first half behind the second."""
            dims, kind, data = g.tensors["blk.1.ffn_up.weight"]
            g.tensors["blk.1.ffn_up.weight"] = [dims, kind, data[len(data) // 2:] + data[:len(data) // 2]]

        def two_faults(g: Gguf) -> None:
            """The base alone explains most of the difference, and not all."""
            g.f32("llama.rope.freq_base", 5e5)
            g.f32("llama.attention.layer_norm_rms_epsilon", 1e-3)

        for what, change in (("gate and up", lambda g: exchange(g, "ffn_gate", "ffn_up")), ("norms", lambda g: exchange(g, "attn_norm", "ffn_norm")),
                             ("rows", permute), ("two faults", two_faults), ("large eps", lambda g: g.f32("llama.attention.layer_norm_rms_epsilon", 0.5))):
            with self.subTest(what):
                code, report, text = self.judge(self.changed(what.replace(" ", "-"), change))
                self.assertEqual(report["checks"][0]["name"], "no cause that was tried explains the differences", text)
                self.assertIn("next: python3 -m llmrun.reference ORIGINAL.gguf", text)
                self.assertEqual(code, 1, text)

    def test_bos(self):
        self.names("BOS absent", self.changed("bos", lambda g: g.flag("tokenizer.ggml.add_bos_token", False)))

    def test_chat_template(self):
        self.names("a different chat template: zephyr", self.model, ["--chat-template", "zephyr"])
        self.names("a system message added by the server", self.model, change=inject_system)
        unknown = self.changed("chat", lambda g: g.string("tokenizer.chat_template", "Answer! {{ messages[-1].content }} Now:"))
        self.names("only chats: the chat template or a system message; no cause that was tried explains them", unknown)

    def test_weights(self):
        coarse = self.folder / "coarse.gguf"
        subprocess.run([BIN / "llmquant", self.model, coarse, "Q2_K", "--allow-requantize", "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        self.names("no cause that was tried explains the differences", coarse)

    def test_prompt_cut(self):
        self.names("prompt cut: its front is missing", self.model, change=lambda body: cut_front(body, 700))
        self.names("context too small: long prompts are rejected", self.model, ["-c", "256"])

    def test_sampler(self):
        self.names("temperature 0 is ignored", self.model, change=drop_temperature)
        self.names("a penalty on repeated tokens", self.model, change=penalize)
        self.names("a logit bias", self.model, change=bias)

    def test_key(self):
        with serve(BIN, "-t", "1", "--api-key", "secret", model=self.model) as url:
            for options, wanted, words in (((), 4, "HTTP status: found 401"), (("--judge-key", "secret"), 0, "equal to the bit")):
                code, _, text = self.ask(url, self.model, *options)
                self.assertEqual(code, wanted, text)
                self.assertIn(words, text)

    def test_what_is_no_server(self):
        code, _, text = self.ask("http://127.0.0.1:1", self.model)
        self.assertEqual(code, 4, text)
        self.assertIn("error: http://127.0.0.1:1/v1/models: ", text)
        for body, words in ((b"[]", "need"), (b'{"choices": [{"logprobs": null}]}', "choices[0].logprobs: found null, need an object"),
                            (b'{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": "x"}]}}]}',
                             'choices[0].logprobs.content[0].logprob: found "x", need a log-probability, at most 0')):
            with Answering(body) as server:
                code, _, text = self.ask(server.url, self.model)
            self.assertEqual(code, 3, text)
            self.assertIn(f"error: {server.url}/v1/completions: ", text)
            self.assertIn(words, text)


class Answering(Listening):
    """A server that gives every request the same body."""

    def __init__(self, body: bytes):
        class Handler(Answers):
            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.answer(200, body)

            do_GET = do_POST

        super().__init__(Handler)


def load_tests(loader, tests, pattern) -> unittest.TestSuite:
    part = [test for group in tests for test in group][PART - 1::PARTS]
    assert part, f"part {PART} of {PARTS} has no test"
    return unittest.TestSuite(part)


if __name__ == "__main__":
    unittest.main()
