#!/usr/bin/env python3
"""A tool's argument of many lines of code streams as it is written, in each API.

    tests/serving/call_stream.py BIN_DIR [--model FILE] [--lines 400]

The call is forced and its argument has a pattern, so that any model writes it. Chats tell the token of each chunk (`logprobs`): the
first piece of arguments must come within 3 tokens of the one that begins them. The other APIs draw the same text; they must give as many
pieces, but for 3. In Ollama's a call has its arguments as an object, so it comes when it is whole.
Exit code 1 where that is not so, or where the arguments are not of their schema.
"""

import argparse
import json
import pathlib
import re
import sys
import urllib.request

import server

TEXT = "Write a file with assignments."
MOST_BEHIND = 3


def schema(lines: int) -> dict:
    return {"type": "object", "properties": {"code": {"type": "string", "pattern": f"^([a-z][0-9] = [0-9]{{1,3}}\\n){{{lines}}}$"}},
            "required": ["code"], "additionalProperties": False}


def events(url: str, path: str, body: dict):
    """The JSON of each event or line as it comes."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        for line in answer:
            text = line.decode().strip().removeprefix("data: ")
            if text.startswith("{"):
                yield json.loads(text)


def chat(url: str, lines: int) -> tuple[str, list[str], int, int]:
    """Arguments, their pieces, tokens before the arguments' first, and tokens between that and the first piece."""
    body = {"messages": [{"role": "user", "content": TEXT}], "stream": True, "seed": 1, "logprobs": True,
            "tools": [{"type": "function", "function": {"name": "write", "description": "d", "parameters": schema(lines)}}],
            "tool_choice": "required", "parallel_tool_calls": False}
    text, pieces, begin, first = "", [], None, None
    n = 0
    for event in events(url, "/v1/chat/completions", body):
        for choice in event["choices"]:
            tokens = (choice.get("logprobs") or {}).get("content") or []
            for token in tokens:
                text += token["token"]
                n += 1
                if begin is None and re.search(r'"arguments": ?\{', text):
                    begin = n
            for call in choice["delta"].get("tool_calls") or []:
                if call["function"].get("arguments"):
                    pieces.append(call["function"]["arguments"])
                    first = n if first is None else first
    return "".join(pieces), pieces, begin, first - begin


def responses(url: str, lines: int) -> list[str]:
    body = {"input": TEXT, "stream": True, "seed": 1, "tool_choice": "required", "parallel_tool_calls": False,
            "tools": [{"type": "function", "name": "write", "description": "d", "parameters": schema(lines)}]}
    return [event["delta"] for event in events(url, "/v1/responses", body) if event["type"] == "response.function_call_arguments.delta"]


def messages(url: str, lines: int) -> list[str]:
    body = {"messages": [{"role": "user", "content": TEXT}], "stream": True, "seed": 1, "max_tokens": 100000,
            "tools": [{"name": "write", "description": "d", "input_schema": schema(lines)}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    return [event["delta"]["partial_json"] for event in events(url, "/v1/messages", body)
            if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=server.cached_model() or server.MODEL)
    parser.add_argument("--lines", type=int, default=400)
    options = parser.parse_args()
    more = ["--chat-template", "zephyr"] if options.model == server.MODEL else []
    with server.serve(options.bin_dir, "-t", "2", *more, model=options.model) as url:
        arguments, pieces, before, behind = chat(url, options.lines)
        code = json.loads(arguments)["code"]
        failed = re.fullmatch(schema(options.lines)["properties"]["code"]["pattern"][1:-1], code) is None
        failed |= behind > MOST_BEHIND or code.count("\n") != options.lines
        print(f"chat: {options.lines} lines, arguments begin at token {before}, the first piece comes {behind} tokens later; "
              f"{len(pieces)} pieces, the longest of {max(map(len, pieces))} characters")
        for name, api in (("responses", responses), ("messages", messages)):
            others = [piece for piece in api(url, options.lines) if piece]
            print(f"{name}: {len(others)} pieces, the longest of {max(map(len, others))} characters")
            failed |= json.loads("".join(others)) != json.loads(arguments) or abs(len(others) - len(pieces)) > MOST_BEHIND
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
