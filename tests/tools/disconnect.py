#!/usr/bin/env python3
"""Takes the effect of each option of each tool away in turn and tells which options no test misses.

    tests/tools/disconnect.py BIN_DIR [TOOL[:OPTION]...]

For every option that a tool's --help-markdown lists, the tests of the tools run with a stand-in for that tool, which
drops the option and its value from the command line and becomes the tool. A value that the tool refuses stays, so that
it is the effect that is missing and not the check of the value. Some test must fail. Options that no test can
miss stand in `disconnect.txt` with the reason; one that is listed and missed all the same is an error too.
Exit code 1 when an option survives.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = pathlib.Path(__file__).with_name("disconnect.txt")
SECONDS = 900

# What of the test programs runs each tool, in parts that Catch2's tags of sources select, the quick ones first.
STREAMS = ("tools_test", "[#streams_test]")
BAD_INPUT = ("model_files_test", "[bad_input]")
TESTS = {
    "llmrun": [("llmrun_test",), STREAMS, BAD_INPUT],
    "llmcheck": [("llmcheck_test", "[#llmcheck_tiny_test]"), STREAMS, ("llmcheck_test", "~[#llmcheck_tiny_test]~[#architectures_test]")],
    "llmquant": [("model_files_test", "[#llmquant_test],[#llmquant_recipe_test]"), STREAMS],
    "llmgguf": [("model_files_test", "[#llmgguf_test],[#llmgguf_split_test]"), STREAMS, BAD_INPUT],
    "llmtok": [("model_files_test", "[#llmtok_test]"), STREAMS, BAD_INPUT],
    "llmbench": [("tools_test", "[#llmbench_test]"), STREAMS],
    "llmsynth": [("model_files_test", "[#llmsynth_test]"), STREAMS],
    "llmload": [("tools_test", "[#llmload_test]"), STREAMS],
    "llmserve": [("llmserve_test",), STREAMS],
}

STAND_IN = """#!/usr/bin/python3 -IS
import os, subprocess, sys
TOOL, TAKES_VALUE, OFF = {tool!r}, {takes_value!r}, {off!r}
kept, rest = [], sys.argv[1:]
def refused(words):
    run = subprocess.run([TOOL] + words + ["/none/model"], stdin=subprocess.DEVNULL, capture_output=True)
    start = os.path.basename(TOOL) + ": error: " + words[0].split("=")[0] + ': found "'
    return run.returncode == 2 and run.stderr.startswith(os.fsencode(start))
while rest:
    word = rest.pop(0)
    if word == "--":
        kept += [word] + rest
        break
    if len(word) < 2 or word[0] != "-":
        kept.append(word)
        continue
    name = word.lstrip("-").split("=")[0]
    if word.startswith("--") or (len(name) > 1 and name in TAKES_VALUE):
        words = [word]
        if TAKES_VALUE.get(name) and "=" not in word and rest:
            words.append(rest.pop(0))
        if name not in OFF or refused(words):
            kept += words
        continue
    letters, words = word[1:], []
    value = None
    while letters and letters[0] in TAKES_VALUE:
        letter, letters = letters[0], letters[1:]
        words.append(["-" + letter])
        if TAKES_VALUE[letter]:
            if letters:
                words[-1].append(letters[letters.startswith("="):])
            elif rest:
                value = rest.pop(0)
                words[-1].append(value)
            letters = ""
    if letters or not any(w[0][1] in OFF for w in words):  # as it was typed
        kept += [word] + ([value] if value is not None else [])
        continue
    for w in words:
        if w[0][1] not in OFF or refused(w):
            kept += w
os.execv(TOOL, [TOOL] + kept)
"""


def options_of(tool: pathlib.Path) -> list[tuple[list[str], bool]]:
    """Names without dashes, and whether a value follows, of each option."""
    page = subprocess.run([tool, "--help-markdown"], check=True, capture_output=True, text=True).stdout
    options = []
    for signature in re.findall(r"^\| `(-[^`]+)` \|", page, re.MULTILINE):
        *names, last = signature.split(", ")
        last, _, value = last.partition(" ")
        options.append(([name.lstrip("-") for name in [*names, last]], bool(value)))
    return options


def dashed(name: str) -> str:
    return ("-" if len(name) == 1 else "--") + name


def stand_in(folder: pathlib.Path, tools: pathlib.Path, tool: str, off: list[str], options) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for other in TESTS:
        link = folder / other
        link.unlink(missing_ok=True)
        if other != tool:
            link.symlink_to(tools / other)
    takes_value = {name: value for names, value in options for name in names}
    (folder / tool).write_text(STAND_IN.format(tool=str(tools / tool), takes_value=takes_value, off=off))
    (folder / tool).chmod(0o755)


def red_test(tools: pathlib.Path, folder: pathlib.Path, tool: str) -> str | None:
    """The first test that fails with the stand-in, or None."""
    for program, *part in TESTS[tool]:
        try:
            run = subprocess.run(
                [tools / program, "--abort", "--reporter", "compact", "--filenames-as-tags", *part],
                env={**os.environ, "LLM_TOOLS": str(folder)},
                capture_output=True, text=True, errors="replace", timeout=SECONDS, cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return f"{program}: hangs"
        if run.returncode != 0:
            place = re.search(r"([\w/.]+\.cpp:\d+): failed", run.stdout)
            where = place.group(1).removeprefix(str(ROOT) + "/") if place else f"code {run.returncode}"
            return f"{program}: {where}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tools", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("only", nargs="*", help="some tools, or options of them (llmrun:--seed)")
    arguments = parser.parse_args()
    tools = arguments.tools.resolve()
    folder = tools.parent / "disconnect"
    expected = dict(line.split(": ", 1) for line in EXPECTED.read_text().splitlines() if line and line[0] != "#")
    survivors, wrong, count = [], [], 0
    for tool in TESTS:
        if arguments.only and not any(word.split(":")[0] == tool for word in arguments.only):
            continue
        options = options_of(tools / tool)
        stand_in(folder, tools, tool, [], options)
        if red := red_test(tools, folder, tool):
            sys.exit(f"{tool}: {red} fails with no option missing")
        for names, _ in options:
            key = f"{tool} {dashed(names[-1])}"
            wanted = {tool} | {f"{tool}:{dashed(name)}" for name in names}
            if arguments.only and not wanted & set(arguments.only):
                continue
            count += 1
            started = time.monotonic()
            stand_in(folder, tools, tool, names, options)
            red = red_test(tools, folder, tool)
            print(f"{key}: {red or 'SURVIVES'} ({time.monotonic() - started:.0f} s)", flush=True)
            if red is None and key not in expected:
                survivors.append(key)
            if red is not None and key in expected:
                wrong.append(key)
    for key in wrong:
        print(f"{key}: listed in {EXPECTED.name}, but a test misses it")
    print(f"{len(survivors)} of {count} options survive" + "".join(f"\n  {key}" for key in survivors))
    return 1 if survivors or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
