#!/usr/bin/env python3
"""Sends schemas by hypothesis-jsonschema to llmserve at temperature 1.5, 16 at a time, and holds each answer against Python's
jsonschema. Schemas with what is not enforced must be refused by a 400 that names it.

    tests/schemas/run.py BIN_DIR [--model FILE] [--schemas 500] [--seed 1]

Exit code 1 when an answer that ended by itself is no document of its schema, when a refusal names nothing that is in the schema, or
when fewer than half of the answers end.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import sys
import urllib.error

import generate
import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serving"))
import server  # noqa: E402

FIELD = "response_format.json_schema.schema"


def names(schema, pointer: str) -> bool:
    """Whether the pointer leads to something in the schema; of a bound, to its schema."""
    at = schema
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(at, list):
            part = int(part)
        elif part not in at:
            return part in ("minimum", "maximum")
        at = at[part]
    return True


def ask(url: str, schema: dict, seed: int) -> tuple[str, str]:
    """What became of the schema, and a word on it."""
    body = {
        "messages": [{"role": "user", "content": "Give me an example of this JSON schema: " + json.dumps(schema)[:300]}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}},
        "temperature": 1.5,
        "seed": seed,
        "max_tokens": 400,
    }
    try:
        choice = server.post(url, "/v1/chat/completions", body)[1]["choices"][0]
    except urllib.error.HTTPError as refused:
        error = json.load(refused)["error"]
        if refused.code == 400 and error["param"] == FIELD and "units of work" in error["message"]:
            return "refused", "its size"
        pointer = (error["param"] or "").removeprefix(FIELD)
        if refused.code != 400 or not pointer.startswith("/") or not names(schema, pointer):
            return "FAILED", f"{refused.code}: {error}"
        return "refused", pointer.rpartition("/")[2]
    text = choice["message"]["content"]
    if choice["finish_reason"] != "stop":
        return "length", ""
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as invalid:
        return "FAILED", f"{text!r} of {json.dumps(schema)}: {invalid}"
    return "valid", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=server.MODEL)
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    schemas = generate.generate(options.schemas, options.seed)
    chat = ["--chat-template", "zephyr"] if options.model == server.MODEL else []
    with server.serve(options.bin_dir, "-c", "1024", "--parallel", "16", *chat, model=options.model) as url:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda i: ask(url, schemas[i], i), range(len(schemas))))
    counts = collections.Counter(what for what, _ in found)
    refused = collections.Counter(word for what, word in found if what == "refused")
    for what, word in found:
        if what == "FAILED":
            print(f"FAILED: {word}")
    print(f"{options.model.name}, {len(schemas)} schemas: {counts['valid']} valid documents, {counts['FAILED']} failures; {counts['length']} ran into "
          f"max_tokens; {counts['refused']} refused: " + ", ".join(f"{word} {n}" for word, n in refused.most_common()))
    return 1 if counts["FAILED"] or counts["valid"] < counts["length"] else 0


if __name__ == "__main__":
    sys.exit(main())
