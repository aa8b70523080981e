"""llm_golden in projects of their own, as pytest finds it where the wheel is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/fable-3m-q4_k_m.gguf"
OTHER = ROOT / "models/fable-3m-f16.gguf"
STORY = """
def test_story(llm_golden):
    llm_golden("Once upon a time", max_tokens=24)
"""
EXPECTED = "golden/test_app/test_story.json"


class Project:
    """A folder with tests, and pytest's runs there."""

    def __init__(self, folder: Path):
        self.folder = folder

    def test(self, text: str) -> None:
        (self.folder / "test_app.py").write_text(text)

    def pytest(self, *options: str | Path, **environment: str) -> tuple[int, str]:
        """The exit code and all that is printed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "LLM_"))}
        run = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options], cwd=self.folder,
                             env=kept | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return run.returncode, run.stdout

    def passes(self, *options: str | Path, **environment: str) -> str:
        code, said = self.pytest(*options, **environment)
        assert code == 0, said
        return said

    def fails(self, *words: str, options: tuple = ()) -> str:
        """All words are in what is printed."""
        code, said = self.pytest(*options)
        assert code == 1 and all(word in said for word in words), said
        return said

    def expected(self) -> dict:
        return json.loads((self.folder / EXPECTED).read_text())

    def expect(self, **fields) -> None:
        (self.folder / EXPECTED).write_text(json.dumps({**self.expected(), **fields}))


@pytest.fixture
def project(tmp_path):
    """One with an expected answer."""
    made = Project(tmp_path)
    made.test(STORY)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nllm_model = {MODEL}\n")
    made.passes("--llm-update")
    return made


def test_an_expected_answer_is_whole_and_says_whose_it_is(project):
    assert "1 passed" in project.passes()
    expected = project.expected()
    assert expected["request"] == {"prompt": "Once upon a time", "temperature": 0, "seed": 0, "max_tokens": 24}
    assert expected["sha256"][:12] in expected["fingerprint"] and "Fable" in expected["model"]
    assert len(expected["answer"]["choices"][0]["text"]) > 40 and expected["answer"]["choices"][0]["finish_reason"] == "length"
    assert expected["answer"]["usage"]["completion_tokens"] == 24


@pytest.mark.parametrize("options", [["--llm-isa=scalar"], ["--llm-isa=avx2"], ["--llm-threads=3"], []])
def test_committed_answers_hold_for_all_kernels(options):
    assert "3 passed" in Project(ROOT / "examples/golden").passes(*options)


def test_the_kernels_are_those_that_are_asked_for(project):
    project.test("def test_kernels(llm_model):\n    assert (llm_model.isa, llm_model.threads) == ('scalar', 3)")
    project.passes("--llm-isa=scalar", "--llm-threads=3")
    project.fails("need one of scalar", options=("--llm-isa=mmx",))


def test_another_text_is_shown_where_it_differs(project):
    answer = project.expected()["answer"]
    text = answer["choices"][0]["text"]
    answer["choices"][0]["text"] = text[:-6] + "_" + text[-5:]
    project.expect(answer=answer)
    said = project.fails("the answer is not the expected one", "--llm-update")
    lines = [line for line in said.splitlines() if line.removeprefix("E").strip()[:1] in ("-", "+")]
    assert any(text[-6:] in line and line.removeprefix("E").strip()[0] == "+" for line in lines), said
    assert any("_" + text[-5:] in line and line.removeprefix("E").strip()[0] == "-" for line in lines), said
    project.passes("--llm-update")
    assert project.expected()["answer"]["choices"][0]["text"] == text


def test_a_missing_file_fails_and_is_not_written(project):
    kept = (project.folder / EXPECTED).read_bytes()
    (project.folder / EXPECTED).unlink()
    project.fails("no expected answer", EXPECTED, "--llm-update")
    assert not (project.folder / EXPECTED).exists()
    project.passes("--llm-update")
    assert (project.folder / EXPECTED).read_bytes() == kept
    (project.folder / EXPECTED).write_text("{}")
    project.fails("is not an expected answer")


def test_what_is_not_comparable_is_not_called_another_text(project):
    said = project.fails("not this model's", "model: expected", "file: expected", options=("--llm-model", OTHER))
    assert "the answer is not the expected one" not in said
    fingerprint = project.expected()["fingerprint"]
    project.expect(fingerprint="llm-0-" + fingerprint.split("-", 2)[2])
    assert "file: expected" not in project.fails("contract version: expected 0, found")
    project.expect(fingerprint=fingerprint)
    project.test(STORY.replace("24", "25"))
    project.fails("the request is another", "max_tokens")
    project.test(STORY)
    (project.folder / "conftest.py").write_text("import pytest\n\n@pytest.fixture(scope='session')\ndef llm_model_options():\n"
                                                "    return {'context': 256}\n")
    project.fails("the model has other options", "256")


CALLS = """
import pytest

TOOL = {"type": "function", "function": {"name": "paint", "parameters": {
    "type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"], "additionalProperties": False}}}

@pytest.fixture(scope="session")
def llm_model_options():
    return {"chat_template": "zephyr"}

def test_call(llm_golden):
    messages = [{"role": "user", "content": "Paint."}]
    for name in "ab":
        reply = llm_golden(messages, name, tools=[TOOL], tool_choice="required")["choices"][0]["message"]
        messages += [reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "painted"}]
    assert [message["tool_calls"][0]["id"] for message in messages[1::2]] == ["call00000", "call00001"]
"""


def test_a_conversation_with_calls_is_the_same_again(project):
    project.test(CALLS)
    project.passes("--llm-update")
    project.passes()


def test_the_model_has_to_be_named(project):
    (project.folder / "pytest.ini").write_text("[pytest]\n")
    project.fails("found no model")
    project.passes(LLM_MODEL=str(MODEL))
    project.passes("--llm-model", MODEL, LLM_MODEL="none.gguf")


def test_each_answer_has_a_file_of_its_own(project):
    project.test(STORY + "    llm_golden('The fox')\n")
    project.fails("need a name", options=("--llm-update",))
    project.test(STORY + "    llm_golden('The fox', 'fox')\n    llm_golden('The fox', '../../fox', temperature=1)\n")
    project.passes("--llm-update")
    project.passes()
    files = {str(path.relative_to(project.folder)) for path in project.folder.rglob("*.json")}
    assert files == {EXPECTED, EXPECTED.replace("story", "story-fox"), EXPECTED.replace("story", "story-.._.._fox")}
    project.test(STORY.replace("max_tokens=24", "seed=-1"))
    project.fails("found seed -1")
