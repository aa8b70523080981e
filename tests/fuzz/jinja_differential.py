#!/usr/bin/env python3
"""Holds what our interpreter renders of the fuzzer's templates against jinja2 as transformers configures it.

    jinja_differential.py BIN_DIR OUT

Both give the same text, or both an error. What jinja2 has and our interpreter says it has not (docs/chat.md), and what meets a
limit, is counted and no difference. Exit code 1 with differences, each with both results.
"""

import json
import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import seeds

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))

import chat_jinja  # noqa: E402

CONVERSATION = json.loads((HERE / "jinja_conversation.json").read_text())
SECONDS = 5  # for jinja2, which has no limit of its own
MOST_SHOWN = 20


def variables() -> dict:
    return CONVERSATION["variables"] | {
        "messages": CONVERSATION["messages"], "tools": CONVERSATION["tools"], "documents": None, "bos_token": "<s>",
        "eos_token": "</s>", "add_generation_prompt": True}


def by_jinja2(path: str) -> str | None:
    return chat_jinja.render(Path(path).read_text(), variables(), chat_jinja.DATE)


def is_text(path: Path) -> bool:
    try:
        path.read_text()
        return True
    except UnicodeDecodeError:
        return False


def all_by_jinja2(paths: list[str]) -> dict[str, str | None]:
    """Where it ends in time; a template that does not costs its process."""
    found: dict[str, str | None] = {}
    while paths:
        with multiprocessing.Pool(1) as pool:
            for i, path in enumerate(paths):
                try:
                    found[path] = pool.apply_async(by_jinja2, [path]).get(SECONDS)
                except multiprocessing.TimeoutError:
                    pool.terminate()
                    paths = paths[i + 1:]
                    break
            else:
                paths = []
    return found


def main(bin_dir: Path, out: Path) -> int:
    seeds.write(out / "seeds")
    folders = [HERE / "corpus/jinja", out / "corpus/jinja", out / "seeds/jinja"]
    paths = [str(path) for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if is_text(path)]
    expected = all_by_jinja2(paths)
    counts = {"equal": 0, "both errors": 0, "not there, or a limit": 0, "different": 0}
    for path in expected:
        run = subprocess.run([bin_dir / "fuzz_render", path], capture_output=True, text=True, check=False)
        ours = json.loads(run.stdout) if run.returncode == 0 else {"error": f"exit code {run.returncode}"}
        text, error = ours.get("text"), ours.get("error", "")
        if text is None and expected[path] is None:
            counts["both errors"] += 1
        elif text is None and re.search(r"need at most|is not supported|levels|need one of", error):
            counts["not there, or a limit"] += 1
        elif text == expected[path]:
            counts["equal"] += 1
        else:
            counts["different"] += 1
            if counts["different"] <= MOST_SHOWN:
                template = Path(path).read_text()
                print(f"{path}\n  template {template[:300]!r}\n  jinja2   {expected[path]!r:.300}\n  here     {text if text is not None else error!r:.300}")
    print(f"{len(paths)} templates: " + ", ".join(f"{number} {word}" for word, number in counts.items())
          + f", {len(paths) - len(expected)} that jinja2 did not end in {SECONDS} s")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
