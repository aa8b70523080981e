#!/usr/bin/env python3
"""Every tool with a stack of 256 KiB (ulimit -s 256), on ordinary work and on the deepest input that it takes:
small_stack_test.py BIN_DIR MODEL."""

import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serving"))
from server import answer, serve  # noqa: E402

BIN = Path(sys.argv.pop(1)).resolve()
MODEL = Path(sys.argv.pop(1)).resolve()
SMALLER = MODEL.parents[1] / "tests/golden/architectures/llama-bpe.gguf"
STACK = 256 << 10


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class SmallStackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="small-stack-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_tool(self, tool: str, *words, told: str = "", codes: tuple = (0,)) -> str:
        done = subprocess.run([BIN / tool, *words], input=told, capture_output=True, text=True, preexec_fn=limit, timeout=600, check=False)
        self.assertIn(done.returncode, codes, f"{tool} {words}: {done.stderr[-2000:]}")
        return done.stdout

    def test_tools(self):
        text = self.run_tool("llmrun", MODEL, "-p", "Once upon a time", "-n", "20", "--temp", "0", "--logits-hash", "-q")
        plain = subprocess.run([BIN / "llmrun", MODEL, "-p", "Once upon a time", "-n", "20", "--temp", "0", "--logits-hash", "-q"],
                               capture_output=True, text=True, check=True).stdout
        self.assertEqual(text, plain)
        chat = self.run_tool("llmrun", MODEL, "-i", "--chat-template", "zephyr", "-n", "8", "-q", "--session", self.folder / "s", told="hi\nyou\n")
        self.assertTrue(chat)
        self.run_tool("llmtok", MODEL, "-p", "Once upon a time " * 2000)
        self.run_tool("llmgguf", "show", MODEL)
        self.run_tool("llmgguf", "verify", MODEL)
        self.run_tool("llmgguf", "doctor", MODEL)
        self.run_tool("llmgguf", "hash", MODEL)
        self.run_tool("llmquant", MODEL.parent / "fable-3m-f16.gguf", self.folder / "q.gguf", "Q4_K_M")
        self.run_tool("llmcheck", SMALLER, "--self", "-q")

    def test_deep_templates(self):
        for deep in ("{{ " + "(" * 150 + "1" + ")" * 150 + " }}", "{% if 1 %}" * 150 + "x" + "{% endif %}" * 150,
                     "{{ " + "[" * 100 + "]" * 100 + " }}{{ messages[0].content }}", "{{ 1" + "+1" * 5000 + " }}{{ messages[0].content }}"):
            path = self.folder / "deep.jinja"
            path.write_text(deep)
            self.run_tool("llmrun", MODEL, "-i", "--chat-template", path, "-n", "2", "-q", told="hi\n", codes=(0, 2, 3, 5, 6))

    def test_server(self):
        schema = {"type": "string"}
        for _ in range(5):
            schema = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
        requests = [("/v1/completions", {"prompt": "Once", "max_tokens": 8, "logprobs": 3, "receipt": True}), ("/v1/chat/completions", chat),
                    ("/v1/chat/completions", {**chat, "tools": [tool], "tool_choice": "required", "max_tokens": 40}),
                    ("/v1/completions", {"prompt": "Once", "max_tokens": 8,
                                         "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}),
                    ("/v1/completions", {"prompt": "Once", "max_tokens": 8, "regex": "(" * 60 + "a" + ")" * 60}),
                    ("/v1/completions", {"prompt": "Once", "max_tokens": 8, "grammar": "root ::= " + "(" * 60 + '"a"' + ")" * 60}),
                    ("/v1/embeddings", {"input": "Once"}), ("/tokenize", {"prompt": "Once " * 20000}), ("/v1/messages", chat),
                    ("/v1/responses", {"input": "hi", "max_output_tokens": 8})]
        deep = [("/v1/completions", {"prompt": "Once", "max_tokens": 4, "grammar": "root ::= " + "(" * n + '"a"' + ")" * n}) for n in (100, 2000)]
        deep += [("/v1/completions", {"prompt": "Once", "max_tokens": 4, "regex": "(" * 5000 + "a" + ")" * 5000})]
        chain = "root ::= r0\n" + "".join(f'r{i} ::= r{i + 1} "b"?\n' for i in range(3000)) + 'r3000 ::= "x"'
        deep += [("/v1/completions", {"prompt": "Once", "max_tokens": 8, "grammar": chain})]
        with serve(BIN, "--chat-template", "zephyr", model=MODEL, preexec_fn=limit) as url:
            for path, body in requests + deep + requests[:1]:
                status, text = answer(url, path, body)
                unavailable = status == 400 and "xgrammar" in text  # a build without it
                self.assertTrue(status == 200 or unavailable or (path, body) in deep and status == 400, f"{path}: {text[:500]}")


if __name__ == "__main__":
    unittest.main(buffer=True)
