"""What clients sent when they did their jobs (run.py --record), as agent_traces_test replays it: traces/CLIENT.jsonl.

The first line tells of client, version and job; each other one is a request with the status of its answer. Texts of more than 30
characters are words of our own in the same shape: a client's instructions are its authors'. Requests without the key are left out.
"""

import itertools
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent / "traces"
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "clients.md"
LONGEST_KEPT = 30
LONGEST = 500
WORDS = "a mill by the river grinds corn from the fields until its wheel stands still in winter".split()


def reworded(text: str) -> str:
    """Our words in place of its own; marks, digits and line breaks stay."""
    words = itertools.cycle(WORDS)
    return re.sub(r"[^\W\d_]{2,}", lambda _: next(words), text[:LONGEST])


def own(value):
    """A body with words of our own."""
    if isinstance(value, dict):
        return {key: own(one) for key, one in value.items()}
    if isinstance(value, list):
        return [own(one) for one in value]
    if not isinstance(value, str) or len(value) <= LONGEST_KEPT:
        return value
    try:
        return json.dumps(own(json.loads(value)))  # a call's arguments
    except ValueError:
        return reworded(value)


def keep(client: str, job, version: str, exchanges: list[dict]) -> None:
    requests = [{"path": one["path"], "status": one["status"], "body": own(one["body"])} for one in exchanges if one["status"] != 401]
    head = {"client": client, "package": job.package, "version": version, "what": job.what, "requests": len(requests)}
    lines = [json.dumps(one, ensure_ascii=False) for one in (head, *requests)]
    (FOLDER / f"{client}.jsonl").write_text("\n".join(lines) + "\n")
    rows = {name: row(head) for name, (head, _) in load().items()}
    others = [line for line in PAGE.read_text().splitlines() if line.split(" | ")[0].removeprefix("| ") not in rows]
    PAGE.write_text("\n".join([*others, *rows.values()]) + "\n")


def row(head: dict) -> str:
    """A client's line of docs/clients.md."""
    return f"| {head['client']} | {head['version']} | {head['what']} | done, with {head['requests']} requests |"


def load() -> dict[str, tuple[dict, list[dict]]]:
    """For each client its head and its requests."""
    files = sorted(FOLDER.glob("*.jsonl"))
    lines = {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in files}
    return {client: (head, requests) for client, (head, *requests) in lines.items()}
