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
    code, said = made.pytest("--llm-update")
    assert code == 0, said
    return made


def test_an_expected_answer_is_whole_and_says_whose_it_is(project):
    code, said = project.pytest()
    assert code == 0 and "1 passed" in said
    expected = project.expected()
    assert expected["request"] == {"prompt": "Once upon a time", "temperature": 0, "seed": 0, "max_tokens": 24}
    assert expected["sha256"][:12] in expected["fingerprint"] and "Fable" in expected["model"]
    assert len(expected["answer"]["choices"][0]["text"]) > 40 and expected["answer"]["choices"][0]["finish_reason"] == "length"
    assert expected["answer"]["usage"]["completion_tokens"] == 24


@pytest.mark.parametrize("options", [["--llm-isa=scalar"], ["--llm-isa=avx2"], ["--llm-threads=3"], []])
def test_committed_answers_hold_for_all_kernels(options):
    code, said = Project(ROOT / "examples/golden").pytest(*options)
    assert code == 0 and "3 passed" in said, said


def test_the_kernels_are_those_that_are_asked_for(project):
    project.test("def test_kernels(llm_model):\n    assert (llm_model.isa, llm_model.threads) == ('scalar', 3)")
    assert project.pytest("--llm-isa=scalar", "--llm-threads=3")[0] == 0
    code, said = project.pytest("--llm-isa=mmx")
    assert code == 1 and "need one of scalar" in said


def test_another_text_is_shown_where_it_differs(project):
    answer = project.expected()["answer"]
    text = answer["choices"][0]["text"]
    answer["choices"][0]["text"] = text[:-6] + "_" + text[-5:]
    project.expect(answer=answer)
    code, said = project.pytest()
    assert code == 1 and "the answer is not the expected one" in said and "--llm-update" in said
    lines = [line for line in said.splitlines() if line.removeprefix("E").strip()[:1] in ("-", "+")]
    assert any(text[-6:] in line and line.removeprefix("E").strip()[0] == "+" for line in lines), said
    assert any("_" + text[-5:] in line and line.removeprefix("E").strip()[0] == "-" for line in lines), said
    assert project.pytest("--llm-update")[0] == 0
    assert project.expected()["answer"]["choices"][0]["text"] == text


def test_a_missing_file_fails_and_is_not_written(project):
    kept = (project.folder / EXPECTED).read_bytes()
    (project.folder / EXPECTED).unlink()
    code, said = project.pytest()
    assert code == 1 and "no expected answer" in said and EXPECTED in said and "--llm-update" in said
    assert not (project.folder / EXPECTED).exists()
    assert project.pytest("--llm-update")[0] == 0 and (project.folder / EXPECTED).read_bytes() == kept
    (project.folder / EXPECTED).write_text("{}")
    assert "is no expected answer" in project.pytest()[1]


def test_what_is_not_comparable_is_not_called_another_text(project):
    code, said = project.pytest("--llm-model", OTHER)
    assert code == 1 and "not this model's" in said and "model: expected" in said and "file: expected" in said
    assert "the answer is not the expected one" not in said
    fingerprint = project.expected()["fingerprint"]
    project.expect(fingerprint="llm-0-" + fingerprint.split("-", 2)[2])
    code, said = project.pytest()
    assert code == 1 and "contract version: expected 0, found" in said and "file: expected" not in said
    project.expect(fingerprint=fingerprint)
    project.test(STORY.replace("24", "25"))
    code, said = project.pytest()
    assert code == 1 and "the request is another" in said and "max_tokens" in said
    project.test(STORY)
    (project.folder / "conftest.py").write_text("import pytest\n\n@pytest.fixture(scope='session')\ndef llm_model_options():\n"
                                                "    return {'context': 256}\n")
    code, said = project.pytest()
    assert code == 1 and "the model has other options" in said and "256" in said


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
    code, said = project.pytest("--llm-update")
    assert code == 0, said
    code, said = project.pytest()
    assert code == 0, said


def test_the_model_has_to_be_named(project):
    (project.folder / "pytest.ini").write_text("[pytest]\n")
    code, said = project.pytest()
    assert code == 1 and "found no model" in said
    assert project.pytest(LLM_MODEL=str(MODEL))[0] == 0
    assert project.pytest("--llm-model", MODEL, LLM_MODEL="none.gguf")[0] == 0


def test_each_answer_has_a_file_of_its_own(project):
    project.test(STORY + "    llm_golden('The fox')\n")
    code, said = project.pytest("--llm-update")
    assert code == 1 and "need a name" in said
    project.test(STORY + "    llm_golden('The fox', 'fox')\n    llm_golden('The fox', '../../fox', temperature=1)\n")
    assert project.pytest("--llm-update")[0] == 0 and project.pytest()[0] == 0
    files = {str(path.relative_to(project.folder)) for path in project.folder.rglob("*.json")}
    assert files == {EXPECTED, EXPECTED.replace("story", "story-fox"), EXPECTED.replace("story", "story-.._.._fox")}
    project.test(STORY.replace("max_tokens=24", "seed=-1"))
    assert "found seed -1" in project.pytest()[1]
