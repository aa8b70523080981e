#!/usr/bin/env python3
"""Sends functions whose schemas are made by hypothesis-jsonschema (with $defs, references to them and to the whole, recursion) to llmserve,
which must call them, in three forms of calls, and holds the arguments against Python's jsonschema.

    tests/schemas/tools.py BIN_DIR [--model FILE] [--tools 500] [--seed 1]

Exit code 1 when a call that ended by itself has arguments that are not of its function's schema, but for keywords that the answer's header
names, when a request is refused, or when fewer than half of the calls end.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import tempfile
import urllib.error
import urllib.request

import generate
import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serving"))
import server  # noqa: E402

HEAD = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}"
TAIL = "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
PAIRS = "{% for k, v in c.function.arguments | items %}"
FORMS = {
    "objects": "{% for c in m.tool_calls %}<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n"
               "</tool_call>\n{% endfor %}",
    "marks": "{% for c in m.tool_calls %}<tool_call>\n<function={{ c.function.name }}>\n" + PAIRS +
             "<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>\n{% endfor %}",
    "keywords": "<|tool_call_start|>[{% for c in m.tool_calls %}{{ c.function.name }}(" + PAIRS +
                "{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]"
                "<|tool_call_end|>",
}
NAMES = ["label", "value", "count", "kind", "path"]


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for inner in schema.values():
            yield from references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from references(inner)


def tool(schemas: list[dict], draw: random.Random) -> dict | None:
    """A function's schema made of some values' schemas; None where one refers to nothing."""
    defs = {}
    properties = {}
    for name, schema in zip(NAMES, schemas):
        defs.update(schema.get("$defs", {}))
        inner = {key: value for key, value in schema.items() if key != "$defs"}
        place = draw.choice(["here", "$defs", "node"])
        if place == "here":
            properties[name] = inner
        else:
            defs[f"Of {name}"] = inner
            properties[name] = {"$ref": f"#/$defs/Of{draw.choice([' ', '%20'])}{name}"}
        if place == "node":
            defs["Node"] = {"type": "object", "properties": {"value": {"$ref": f"#/$defs/Of {name}"},
                                                             "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
                            "required": ["value", "next"]}
            properties[name] = {"$ref": "#/$defs/Node"}
    first = next(iter(properties))
    properties["same"] = {"$ref": f"#/properties/{first}"}
    if draw.random() < 0.3:
        properties["kids"] = {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    names = list(properties)
    whole = {"type": "object", "properties": properties, "required": draw.sample(names, draw.randint(0, len(names))), "$defs": defs}
    if draw.random() < 0.5:
        whole["additionalProperties"] = False
    for reference in references(whole):
        at = whole
        for part in reference.replace("%20", " ").split("/")[1:]:
            at = at.get(part) if isinstance(at, dict) else None
        if at is None:
            return None
    return whole


def ask(url: str, schema: dict, seed: int) -> tuple[str, str]:
    """What became of the call, and a word on it."""
    body = {
        "messages": [{"role": "user", "content": "Make an example."}],
        "tools": [{"type": "function", "function": {"name": "make", "description": "d", "parameters": schema}}],
        "tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5, "seed": seed, "max_tokens": 500,
    }
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            dropped = answer.headers.get("x-not-enforced")
            choice = json.load(answer)["choices"][0]
    except urllib.error.HTTPError as refused:
        return "FAILED", f"{refused.code}: {refused.read()[:300]!r} of {json.dumps(schema)}"
    if choice["finish_reason"] == "length":
        return "length", ""
    try:
        arguments = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
        assert isinstance(arguments, dict)
    except (KeyError, TypeError, ValueError, AssertionError):
        return "FAILED", f"no call: {choice} of {json.dumps(schema)}"
    try:
        jsonschema.Draft202012Validator(schema).validate(arguments)
    except jsonschema.ValidationError as invalid:
        if dropped:
            return "wider", ""
        return "FAILED", f"{arguments!r} of {json.dumps(schema)}: {invalid.message}"
    return ("wider" if dropped else "valid"), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=server.MODEL)
    parser.add_argument("--tools", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    values = generate.generate(2 * options.tools, options.seed, depth=2)
    tools = []
    while len(tools) < options.tools:
        made = tool([draw.choice(values) for _ in range(draw.randint(1, 3))], draw)
        if made is not None:
            tools.append(made)
    failed = False
    for name, form in FORMS.items():
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write(HEAD + form + TAIL)
            template.flush()
            with server.serve(options.bin_dir, "-c", "2048", "--parallel", "16", "--chat-template", template.name,
                              model=options.model) as url:
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    found = list(pool.map(lambda i: ask(url, tools[i], i), range(len(tools))))
        counts = collections.Counter(what for what, _ in found)
        for what, word in found:
            if what == "FAILED":
                print(f"FAILED: {name}: {word}")
        print(f"{options.model.name}, {len(tools)} functions, {name}: {counts['valid']} calls of their schemas, {counts['wider']} of wider ones, "
              f"{counts['FAILED']} failures; {counts['length']} ran into max_tokens")
        failed |= counts["FAILED"] > 0 or counts["valid"] + counts["wider"] < counts["length"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
