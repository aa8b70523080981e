"""Models and the texts that they generate."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import _llmrun

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

Answer = dict[str, Any]  # as llmserve gives it: {"id", "choices": [...], "usage": {...}, ...}
_SELF_CHECK_TEXT = "The quick brown fox jumps over the lazy dog. 0123456789"


def _plain(value: Any) -> Any:
    """numpy's numbers and arrays as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"found {type(value).__name__}, need what JSON has")


def _body(fields: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in fields.items() if value is not None}, default=_plain)


class Text(Iterator[str]):
    """A text that is being generated: an iterator over its pieces, whole characters each.

    Generation goes on by itself, whether pieces are taken or not, and ends with close(), with the last reference, and with Ctrl-C in
    a thread that waits for a piece.
    """

    def __init__(self, answer: _llmrun.Answer):
        self._answer = answer

    def __next__(self) -> str:
        piece = self._answer.next_part()
        if piece is None:
            raise StopIteration
        return piece

    def answer(self) -> Answer:
        """Waits for the end. Everything that llmserve says of the text: finish_reason, usage, logprobs, receipt, with
        `logits_sha256` where logits_hash was asked for. Pieces that were not taken are gone."""
        whole = json.loads(self._answer.whole())
        if any(hashes := self._answer.logits_sha256()):
            whole["logits_sha256"] = hashes
        return whole

    def close(self) -> None:
        """Gives the text up."""
        self._answer.cancel()


def _fact(name: str, text: str) -> Any:
    """The property of that name, which the engine's model has."""
    return property(lambda model: getattr(model._model, name), doc=text)


class Model:
    """A GGUF in memory. Usable from any thread; texts of several threads are generated together, each with the bits it has alone.

    threads: 0 is as many as CPUs that this process may use. isa: an instruction set by its name, None the best of this CPU.
    compute: "int8" or "f32" activations. kv: "f16", "f32" or "q8" keys and values. context: positions of a text, 0 the model's.
    parallel: texts that are generated at once; 1024 more wait. chat_template: "auto" is the file's, else a built-in's name or a
    file of Jinja. chat_date: YYYY-MM-DD for templates that ask for the date, "" today's. packed_cache: a directory
    (docs/packed_cache.md). strict: warnings about the file are errors. progress: called while the model is loaded, as
    progress(stage, done, total), with the stage's name.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0, isa: str | None = None, compute: str = "int8",
                 kv: str = "f16", context: int = 0, parallel: int = 16, chat_template: str = "auto", chat_date: str = "",
                 packed_cache: str | os.PathLike[str] = "", strict: bool = False,
                 progress: Callable[[str, int, int], object] | None = None):
        self._open: _llmrun.Model | None = _llmrun.open_model(
            os.fspath(path), threads, isa, compute, kv, context, parallel, chat_template, chat_date, os.fspath(packed_cache), strict,
            progress)

    @property
    def _model(self) -> _llmrun.Model:
        if self._open is None:
            raise ValueError("the model is closed")
        return self._open

    def close(self) -> None:
        """Gives the memory back, when the last text of it has ended or is given up."""
        self._open = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<llmrun.Model {self._model.path}>" if self._open else "<llmrun.Model, closed>"

    def generate(self, prompt: str | Sequence[int], *, max_tokens: int | None = None, temperature: float | None = None,
                 seed: int | None = None, stop: str | Sequence[str] | None = None, **fields: Any) -> Text:
        """Continues `prompt`, a text or token ids, up to its end token, or by at most max_tokens. Further fields are those of llmserve's /v1/completions, but for n, echo and stream:
        top_k, top_p, min_p, logprobs, response_format, grammar, regex, logits_hash, receipt, ... (docs/serving.md)."""
        if several := {"n", "echo", "stream"} & fields.keys():
            raise TypeError(f"generate() gives one text, without {', '.join(sorted(several))}: complete() has them")
        body = _body({"prompt": _prompt(prompt), "max_tokens": -1 if max_tokens is None else max_tokens, "temperature": temperature,
                      "seed": seed, "stop": stop, **fields})
        return Text(self._model.start(body, "completions"))

    def complete(self, prompt: str | Sequence[int] | Sequence[str], **fields: Any) -> Answer:
        """The whole answer of /v1/completions: several prompts, n, echo, ... as well."""
        return Text(self._model.start(_body({"prompt": _prompt(prompt), **fields}), "completions")).answer()

    def stream_complete(self, prompt: str | Sequence[int] | Sequence[str], **fields: Any) -> Iterator[Answer]:
        """The same as it grows: the chunks of a streamed answer, each with choices[0]["text"]."""
        return _chunks(Text(self._model.start(_body({"prompt": _prompt(prompt), **fields, "stream": True}), "completions")))

    def chat(self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]] | None = None,
             response_format: dict[str, Any] | None = None, **fields: Any) -> Answer:
        """The reply to a conversation: the whole answer of llmserve's /v1/chat/completions, whose fields it takes. The reply is
        answer["choices"][0]["message"], with tool_calls where it calls."""
        return Text(self._start_chat(messages, tools, response_format, fields)).answer()

    def stream_chat(self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]] | None = None,
                    response_format: dict[str, Any] | None = None, **fields: Any) -> Iterator[dict[str, Any]]:
        """The same as it grows: the chunks of a streamed answer, each with choices[0]["delta"]."""
        return _chunks(Text(self._start_chat(messages, tools, response_format, {**fields, "stream": True})))

    def _start_chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None,
                    response_format: dict[str, Any] | None, fields: dict[str, Any]) -> _llmrun.Answer:
        body = {"messages": list(messages), "tools": None if tools is None else list(tools), "response_format": response_format}
        return self._model.start(_body({**body, **fields}), "chat")

    def embed(self, texts: str | Sequence[str], **fields: Any) -> NDArray[numpy.float32]:
        """Embeddings of length 1: [len(texts), dimensions] of several texts, [dimensions] of one, with the values of llmserve's
        /v1/embeddings, whose fields it takes (dimensions, ...). How rows are pooled is a matter of the file (docs/serving.md)."""
        import numpy

        answer = Text(self._model.start(_body({"input": texts if isinstance(texts, str) else list(texts), **fields}), "embeddings")).answer()
        rows = numpy.array([row["embedding"] for row in answer["data"]], dtype=numpy.float32)
        return rows[0] if isinstance(texts, str) else rows

    def logits(self, tokens: Sequence[int]) -> NDArray[numpy.float32]:
        """The logits behind each token, [len(tokens), n_vocab], as the engine wrote them (not copied, read-only). The array keeps
        the memory of the evaluation; take a copy of the rows that you keep."""
        return self._model.logits(list(tokens))

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of a text as a prompt has them: with BOS where the vocabulary wants it; with parse_special the spellings of special
        tokens are those tokens."""
        return self._model.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int], *, show_special: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 are U+FFFD."""
        return self._model.detokenize(list(ids), show_special)

    def self_check(self, *, fail_fast: bool = False) -> dict[str, Any]:
        """As llmrun.self_check() of the file that this was opened from."""
        return self_check(self._model.path, threads=self._model.threads, fail_fast=fail_fast)

    def layer_diff(self, reference: str | os.PathLike[str]) -> dict[str, Any]:
        """Compares every activation of every layer with a reference dump (docs/dump_format.md), as llmcheck --layer-diff does:
        {"verdict": "PASS" or "FAIL", "layer_diffs": [...], ...}."""
        return json.loads(self._model.layer_diff(os.fspath(reference)))

    def figures(self) -> dict[str, int]:
        """What its texts are at: running, waiting, finished, cancelled, steps, generated_tokens, ..."""
        return self._model.figures()

    name: str = _fact("name", "general.name of the file.")
    sha256: str = _fact("sha256", "Of the bytes that were loaded.")
    fingerprint: str = _fact("fingerprint", "What decides an answer's bits besides the request: equal ones give equal answers on any machine.")
    isa: str = _fact("isa", "The instruction set at work.")
    threads: int = _fact("threads", "Threads of an evaluation.")
    n_vocab: int = _fact("n_vocab", "Tokens of the vocabulary.")
    bos_id: int | None = _fact("bos_id", "The token that begins a text, if the vocabulary has one.")
    eos_id: int | None = _fact("eos_id", "The token that ends a text, if the vocabulary has one.")
    context: int = _fact("context", "Positions of a text.")
    has_chat: bool = _fact("has_chat", "Whether chat() works: there is a chat template.")
    warnings: list[str] = _fact("warnings", "What loading found odd about the file.")


def _chunks(text: Text) -> Iterator[Answer]:
    return (json.loads(data) for events in text for line in events.splitlines()
            if (data := line.removeprefix("data: ")) != line and data != "[DONE]")


def _prompt(prompt: Any) -> Any:
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        raise TypeError(f"prompt: found {type(prompt).__name__}, need str or token ids")
    return prompt if isinstance(prompt, str) else list(prompt)


def self_check(path: str | os.PathLike[str], *, threads: int = 0, fail_fast: bool = False) -> dict[str, Any]:
    """Compares every fast path with the definition on this file and CPU, bit for bit, as llmcheck --self does (minutes for a large
    model). {"verdict": "PASS" or "FAIL", "checks": [{"name", "verdict", ...}], ...}."""
    return json.loads(_llmrun.self_check(os.fspath(path), _SELF_CHECK_TEXT, threads, fail_fast))
