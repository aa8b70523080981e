#!/usr/bin/env python3
"""Lets a model mend the files of a folder until a test passes. The model has three tools: to read, to write, to test.

    agent.py FOLDER [--test COMMAND] [--task TEXT] [--url URL] [--turns N]

Exit code 0 when the test passes at the end, 1 when it does not.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import openai

SYSTEM = "You mend programs. Read the files, find the mistake, write the whole corrected file and run the tests. Do not change the tests."
MOST_OUTPUT = 4000  # characters that the model sees of a file or of a test's end
SECONDS = 60  # a test may take


def tool(name: str, description: str, **parameters: str) -> dict:
    """A function as OpenAI's API describes it. All parameters are needed texts."""
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


class Workshop:
    """A folder and its test. What a call gives is a text for the model; a call that cannot be done says why."""

    TOOLS = (
        tool("read_file", "The text of a file", path="its path in the folder"),
        tool("write_file", "Replace a file", path="its path in the folder", content="its whole new text"),
        tool("run_tests", "Run the tests: their exit code and output"),
    )

    def __init__(self, folder: pathlib.Path, test: str):
        self.folder, self.test = folder.resolve(), test

    def inside(self, path: str) -> pathlib.Path:
        full = (self.folder / path).resolve()
        if not full.is_relative_to(self.folder):
            raise PermissionError(f"{path} is outside of the folder")
        return full

    def read_file(self, path: str) -> str:
        return self.inside(path).read_text(encoding="utf-8")[:MOST_OUTPUT]

    def write_file(self, path: str, content: str) -> str:
        self.inside(path).write_text(content, encoding="utf-8")
        return f"{path} has {len(content)} characters now"

    def test_result(self) -> tuple[bool, str]:
        try:
            run = subprocess.run(self.test, shell=True, cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False, f"no end within {SECONDS} seconds"
        return run.returncode == 0, f"exit code {run.returncode}\n{(run.stdout + run.stderr)[-MOST_OUTPUT:]}"

    def run_tests(self) -> str:
        return self.test_result()[1]

    def call(self, name: str, arguments: str) -> str:
        if name not in (known["function"]["name"] for known in self.TOOLS):
            return f"error: there is no tool {name}"
        try:
            return getattr(self, name)(**json.loads(arguments))
        except (OSError, TypeError, ValueError) as error:
            return f"error: {error}"


def mend(client: openai.OpenAI, workshop: Workshop, task: str, turns: int, say=print) -> bool:
    """At most `turns` replies of the model. Returns whether the test passes then."""
    model = client.models.list().data[0].id
    files = ", ".join(sorted(path.name for path in workshop.folder.iterdir()))
    messages: list = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{task}\nFiles: {files}"}]
    for _ in range(turns):
        try:
            answer = client.chat.completions.create(model=model, messages=messages, tools=Workshop.TOOLS, temperature=0, max_tokens=2000)
        except openai.BadRequestError as error:  # the conversation has outgrown the context
            say(f"end: {error}")
            break
        reply = answer.choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if reply.content:
            say(reply.content)
        for call in reply.tool_calls or []:
            result = workshop.call(call.function.name, call.function.arguments)
            say(f"> {call.function.name} {call.function.arguments[:100]}: {result[:100]!r}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not reply.tool_calls:  # it believes that it is done
            passes, output = workshop.test_result()
            if passes:
                return True
            messages.append({"role": "user", "content": f"The tests do not pass yet. Use the tools.\n{output}"})
    return workshop.test_result()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--test", default="python3 -m unittest", help="a shell's command, run in the folder (default: %(default)s)")
    parser.add_argument("--task", default="The tests fail. Mend the program.")
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--turns", type=int, default=12, help="most replies of the model (default: 12)")
    arguments = parser.parse_args()
    client = openai.OpenAI(base_url=arguments.url, api_key=os.environ.get("LLM_API_KEY", "none"))
    passes = mend(client, Workshop(arguments.folder, arguments.test), arguments.task, arguments.turns)
    print("the tests pass" if passes else "the tests do not pass")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
