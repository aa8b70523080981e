"""What each client is asked to do, and the model's replies that this takes."""

import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Callable

import proxy

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "smollm2"
KEY = "secret"

CALL = proxy.call("get_weather", city="Paris", days=3)
ANSWER = "Sunny, for three days."


@dataclasses.dataclass
class Stage:
    """Where a job runs."""

    client: str
    url: str  # of the proxy
    venv: pathlib.Path
    folder: pathlib.Path  # empty, of this job alone

    def run(self, *command, timeout: int = 1800, **more: str) -> str:
        """What a command prints; its program is one of the environment. Raises where it fails."""
        own = {"HOME": str(self.folder), "PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}", "OPENAI_API_KEY": KEY,
               "OPENAI_API_BASE": self.url + "/v1", "OPENAI_BASE_URL": self.url + "/v1", "PYTHONDONTWRITEBYTECODE": "1",
               "LITELLM_LOCAL_MODEL_COST_MAP": "True", "GIT_CONFIG_GLOBAL": str(HERE / "gitconfig"), "NO_COLOR": "1"}
        command = [str(self.venv / "bin" / command[0]), *map(str, command[1:])]
        run = subprocess.run(command, cwd=self.folder, env=os.environ | own | more, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        assert run.returncode == 0, f"{command[0]} ended with {run.returncode}:\n{run.stdout[-4000:]}"
        return run.stdout


@dataclasses.dataclass
class Job:
    package: str  # of PyPI
    what: str  # a cell of docs/clients.md
    replies: list
    run: Callable[[Stage], None]
    environment: str  # its packages: requirements/ENVIRONMENT.txt

    def pinned_version(self) -> str:
        lines = (HERE / "requirements" / f"{self.environment}.txt").read_text().splitlines()
        pins = [line.split("==") for line in lines if "==" in line]
        return next(version for name, version in pins if name.split("[")[0] == self.package)


def package_job(stage: Stage) -> None:
    stage.run("python", HERE / "packages.py", stage.client, stage.url, MODEL)


def framework_job(stage: Stage) -> None:
    stage.run("python", HERE / "frameworks.py", stage.client, stage.url, MODEL, stage.folder)


# ---- A program with a fault, and a test that fails.

MEDIAN = "def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]\n"
MENDED = """def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
"""
TEST = """import unittest

from median import median


class MedianTest(unittest.TestCase):
    def test_median(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
"""
TASK = "median.py gives a wrong median of an even number of values. Mend it; test_median.py must pass."


def faulty_program(stage: Stage) -> None:
    (stage.folder / "median.py").write_text(MEDIAN)
    (stage.folder / "test_median.py").write_text(TEST)
    subprocess.run(["git", "init", "-q"], cwd=stage.folder, check=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "add", "median.py", "test_median.py"], cwd=stage.folder, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Median"], cwd=stage.folder, check=True)
    assert not passes(stage), "the test passes before it is mended"


def passes(stage: Stage) -> bool:
    command = [stage.venv / "bin" / "python", "-B", "-m", "unittest", "-q"]
    return subprocess.run(command, cwd=stage.folder, capture_output=True).returncode == 0


def edit(before: str, after: str) -> str:
    return f"Here is the change.\n\nmedian.py\n```python\n<<<<<<< SEARCH\n{before}=======\n{after}>>>>>>> REPLACE\n```\n"


LAST = "    return ordered[len(ordered) // 2]\n"
WRONG = "    return ordered[(len(ordered) - 1) // 2]\n"
RIGHT = "    middle = len(ordered) // 2\n    return (ordered[middle] + ordered[-middle - 1]) / 2\n"


def aider(stage: Stage) -> None:
    faulty_program(stage)
    options = ["--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes",
               "--no-pretty", "--no-fancy-input", "--no-detect-urls", "--no-gitignore", "--no-auto-lint", "--edit-format", "diff"]
    said = stage.run("aider", "--model", f"openai/{MODEL}", *options, "--auto-test", "--test-cmd", "python -B -m unittest -q",
                     "--message", TASK, "median.py")
    assert passes(stage), said
    log = subprocess.run(["git", "log", "--format=%s"], cwd=stage.folder, capture_output=True, text=True, check=True).stdout
    assert log.split("\n")[:3] == ["fix: Take the mean of two", "fix: Take the lower one", "Median"], log


COMMANDS = ["cat median.py", f"cat >median.py <<'END'\n{MENDED}END", "python -B -m unittest -q",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
BASH = [proxy.call("bash", command=command) for command in COMMANDS]
FENCED = [f"THOUGHT: The next step.\n\n```mswea_bash_command\n{command}\n```" for command in COMMANDS]


def mini_swe_agent(stage: Stage) -> None:
    """By calls of a function, by commands in the text, by calls in the shape of Responses."""
    for name, config, kind in (("calls", "mini.yaml", "litellm"), ("text", "mini_textbased.yaml", "litellm_textbased"),
                               ("responses", "mini.yaml", "litellm_response")):
        one = dataclasses.replace(stage, folder=stage.folder / name)
        one.folder.mkdir()
        faulty_program(one)
        said = one.run("mini", "-m", f"openai/{MODEL}", "--model-class", kind, "-c", config, "-c", "model.cost_tracking=ignore_errors",
                       "-t", TASK, "-y", "--exit-immediately", "-l", "0", "-o", one.folder / "steps.json",
                       MSWEA_CONFIGURED="true", MSWEA_GLOBAL_CONFIG_DIR=str(one.folder), MSWEA_SILENT_STARTUP="1",
                       MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1")
        assert passes(one), said


POWERS = "with open('{}.txt', 'w') as file:\n    for n in range(1, 6):\n        print(n ** {}, file=file)\n"
INTERPRETER = [f"I write the file.\n\n```python\n{POWERS.format('squares', 2)}```\n", "It is written.",
               proxy.call("execute", language="python", code=POWERS.format("cubes", 3)), "It is written."]
FINAL = proxy.call("final_answer", answer=ANSWER)
CODE = "Thought: I ask the tool.\n<code>\nweather = get_weather(city='Paris', days=3)\nprint(weather)\n</code>"
CODE_ANSWER = "Thought: That is the answer.\n<code>\nfinal_answer(weather.upper().replace('.', '') + '.')\n</code>"
REPORT = proxy.call("final_result", city="Paris", is_sunny=True)

JOBS = {
    "openai": Job("openai", "chats and responses: a call that is streamed, its result, the answer; forced calls, documents, refusals",
                  [CALL, ANSWER, *[None] * 6, CALL, None, ANSWER, ANSWER], package_job, "packages"),
    "anthropic": Job("anthropic", "messages: a call that is streamed, its result, the answer; forced calls, tokens counted, refusals",
                     [CALL, ANSWER], package_job, "packages"),
    "litellm": Job("litellm", "by its adapters for OpenAI, Anthropic and Ollama, streamed and not: a call, its result, the answer",
                   [CALL, ANSWER] * 6, package_job, "packages"),
    "langchain": Job("langchain", "an agent with a tool, whole and streamed; forced calls, documents in two ways",
                     [CALL, ANSWER, "It is sunny."], package_job, "packages"),
    "llm": Job("llm", "a function of Python that the model calls, streamed and not; a schema, a conversation that goes on",
               [CALL, ANSWER, CALL, ANSWER], package_job, "packages"),
    "ollama": Job("ollama", "chats with a function, streamed and not: a call, its result, the answer; documents; `generate`, `show`, `list`",
                  [CALL, ANSWER] * 2, package_job, "packages"),
    "pydantic-ai": Job("pydantic-ai-slim", "by chats, responses and messages: a tool is called, the answer is a document; a streamed text",
                       [CALL, REPORT] * 3 + [CALL, ANSWER], framework_job, "pydantic-ai"),
    "smolagents": Job("smolagents", "agents that call tools, streamed and not, and one that writes code: a tool's result, the answer",
                      [CALL, FINAL] * 2 + [CODE, CODE_ANSWER], framework_job, "smolagents"),
    "open-interpreter": Job("open-interpreter", "code that it runs, found in the text, then in a call; a file is written",
                            INTERPRETER, framework_job, "open-interpreter"),
    "aider": Job("aider-chat", "edits a file, commits, runs the tests, mends what they show: they pass",
                 [edit(LAST, WRONG), "fix: Take the lower one", edit(WRONG, RIGHT), "fix: Take the mean of two"], aider, "aider"),
    "mini-swe-agent": Job("mini-swe-agent", "mends a program until its test passes, by calls, by commands in text, by calls in responses",
                          BASH + FENCED + BASH, mini_swe_agent, "mini-swe-agent"),
}
