"""pytest's plugin: a model's whole answers as expected values (docs/golden_tests.md). pytest finds it where llmrun is installed."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ._model import Answer, Model

_OF_THE_RUN = {"id", "object", "created", "model", "system_fingerprint"}  # of an answer; the other fields are the request's alone
_FINGERPRINT = ("contract version", "model", "compute", "kv")  # llm-CONTRACT-MODEL-COMPUTE-KV
_WIDTH = 100  # characters of a line of a diff


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llmrun", "golden tests of a model's answers")
    group.addoption("--llm-model", metavar="PATH", help="the GGUF (default: llm_model of the configuration, then LLM_MODEL)")
    group.addoption("--llm-update", action="store_true", help="write the expected answers instead of comparing them")
    group.addoption("--llm-isa", metavar="NAME", help="instruction set (default: the best of this CPU); answers do not depend on it")
    group.addoption("--llm-threads", type=int, default=0, metavar="N", help="threads (default: as many as CPUs); likewise")
    parser.addini("llm_model", "GGUF file for llm_golden: absolute, or relative to the configuration file")


@pytest.fixture(scope="session")
def llm_model_options() -> dict[str, Any]:
    """Further options of the Model, for a conftest.py to override: chat_template, kv, compute, context, ..."""
    return {}


@pytest.fixture(scope="session")
def llm_model(pytestconfig: pytest.Config, llm_model_options: dict[str, Any]) -> Iterator[Model]:
    """The session's model."""
    beside = pytestconfig.getini("llm_model")
    path = pytestconfig.getoption("llm_model") or beside and pytestconfig.rootpath / beside or os.environ.get("LLM_MODEL")
    if not path:
        pytest.fail("found no model, need --llm-model PATH, llm_model in pytest's configuration, or LLM_MODEL", pytrace=False)
    # A template may ask for the date, which has to be the same tomorrow.
    options = {"chat_date": "2026-01-01", **llm_model_options}
    with Model(path, isa=pytestconfig.getoption("llm_isa"), threads=pytestconfig.getoption("llm_threads"), **options) as model:
        yield model


class Golden:
    """Asks a model, and compares its whole answer with the file `golden/<test file>/<test>[-<name>].json` next to the test."""

    def __init__(self, model: Model, options: dict[str, Any], node: pytest.Item):
        self._model, self._options, self._node = model, options, node
        self._used: set[Path] = set()

    def __call__(self, prompt: Any, name: str | None = None, **settings: Any) -> Answer:
        """The answer to a prompt (a text, token ids) or to the messages of a chat. settings: fields of Model.complete() or chat();
        temperature and seed are 0 by default."""
        __tracebackhide__ = True
        if settings.get("seed", 0) == -1:
            raise ValueError("found seed -1, need one that gives the same answer again")
        settings = {"temperature": 0, "seed": 0, **settings}
        is_chat = len(prompt) > 0 and isinstance(prompt[0], dict)
        answer = self._model.chat(prompt, **settings) if is_chat else self._model.complete(prompt, **settings)
        if is_chat:
            _number_calls(answer, prompt)
        made = {"model": self._model.name, "sha256": self._model.sha256, "fingerprint": self._model.fingerprint, "options": self._options,
                "request": {"messages" if is_chat else "prompt": prompt, **settings},
                "answer": {field: value for field, value in answer.items() if field not in _OF_THE_RUN}}
        # How many tokens were in the cache depends on the tests before this one.
        made["answer"]["usage"] = {field: n for field, n in answer["usage"].items() if field != "prompt_tokens_details"}
        path = self._path(name)
        if self._node.config.getoption("llm_update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_text_of(made) + "\n", encoding="utf-8")
        elif found := _difference(path, json.loads(_text_of(made))):
            pytest.fail(found)
        return answer

    def _path(self, name: str | None) -> Path:
        """The expected answer's file, one for each answer."""
        test = "-".join([*self._node.nodeid.split("::")[1:], *([name] if name else [])])
        file = self._node.path
        path = file.parent / "golden" / file.stem / (re.sub(r"[^\w.-]+", "_", test).strip("_")[:200] + ".json")
        if path in self._used:
            raise ValueError(f"found a second answer for {path.name}, need a name: llm_golden(..., name=NAME)")
        self._used.add(path)
        return path


@pytest.fixture
def llm_golden(llm_model: Model, llm_model_options: dict[str, Any], request: pytest.FixtureRequest) -> Golden:
    """llm_golden(prompt_or_messages, name=None, **settings): asks the model and compares the answer with the expected one."""
    return Golden(llm_model, llm_model_options, request.node)


def _number_calls(answer: Answer, messages: Any) -> None:
    """Ids of calls are random, and a template may show them to the model. Here they are the calls' numbers in the conversation."""
    n = sum(len(message.get("tool_calls") or ()) for message in messages)
    for choice in answer["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            call["id"] = f"call{n:05}"  # nine letters and digits, as Mistral's template wants
            n += 1


def _text_of(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=lambda other: other.tolist())  # numpy's numbers


def _difference(path: Path, made: dict[str, Any]) -> str | None:
    """What a reader has to know of two answers that are not the same."""
    update = f"\n`pytest --llm-update` writes {path} again."
    try:
        expected = json.loads(path.read_text(encoding="utf-8"))
        kept = {field: expected[field] for field in made}
    except FileNotFoundError:
        return f"no expected answer: {path} does not exist; `pytest --llm-update` writes it"
    except (ValueError, TypeError, KeyError) as error:
        return f"{path} is not an expected answer: {error!r}{update}"
    if kept == made:
        return None
    if (kept["sha256"], kept["fingerprint"]) != (made["sha256"], made["fingerprint"]):
        return f"not compared: the expected answer is not this model's.\n{_other_model(kept, made)}{update}"
    for field, what in (("options", "not compared: the model has other options"), ("request", "not compared: the request is another")):
        if kept[field] != made[field]:
            return f"{what}\n{_diff(kept[field], made[field])}{update}"
    return f"the answer is not the expected one\n{_diff(kept['answer'], made['answer'])}{update}"


def _other_model(kept: dict[str, Any], made: dict[str, Any]) -> str:
    lines = [f"{part}: expected {old}, found {new}" for part, old, new in
             zip(_FINGERPRINT, kept["fingerprint"].split("-")[1:], made["fingerprint"].split("-")[1:]) if old != new]
    if kept["sha256"] != made["sha256"]:
        lines.append(f"file: expected {kept['model']} (SHA-256 {kept['sha256']}), found {made['model']} ({made['sha256']})")
    return "\n".join(lines)


def _diff(expected: Any, found: Any) -> str:
    """Lines that differ; those of a text end where its own do, or at _WIDTH."""
    def lines(value: Any) -> list[str]:
        return [part for line in _text_of(value).replace("\\n", "\\n\n").split("\n") for part in re.findall(f".{{1,{_WIDTH}}}", line)]

    return "\n".join(difflib.unified_diff(lines(expected), lines(found), "expected", "found", lineterm=""))
