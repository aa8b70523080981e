#!/usr/bin/env python3
"""Sends a thousand mixed requests to llmserve, 1, 8 and 64 at a time, and holds each answer against llmrun alone: text,
log probabilities and the hash over all logits.

    tests/serving/load.py BIN_DIR [--requests 1000]

Chunks of 32 and of 512 tokens, and so few pages that texts lose theirs. Exit code 1 when an answer differs.
"""

import argparse
import concurrent.futures
import pathlib
import random
import sys

import server


def make_bodies(n: int) -> list[dict]:
    draw = random.Random(1)
    text = (server.ROOT / "models" / "heldout.txt").read_text(encoding="utf-8")
    bodies = []
    for seed in range(n):
        start = draw.randrange(len(text) - 2000)
        length = draw.choice([0, 20, 100, 400, 820])
        body = {
            "prompt": text[start : start + length].replace("\0", ""),
            "max_tokens": draw.randrange(1, 120),
            "seed": seed,
            "logprobs": draw.randrange(4),
            "logits_hash": True,
        }
        body |= draw.choice([
            {"temperature": 0},
            {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
            {"temperature": 1.3},
        ])
        body |= draw.choice([{}, {}, {"stop": ["\n\n", " the "]}])
        bodies.append(body)
    return bodies


def difference(url: str, body: dict, alone: dict, sha256: str) -> str:
    headers, answer = server.post(url, "/v1/completions", body)
    choice = answer["choices"][0]
    if choice["text"] != alone["text"]:
        return f"text: {choice['text']!r}, alone {alone['text']!r}"
    if headers["x-logits-sha256"] != sha256:
        return "logits hash"
    found = choice["logprobs"]["token_logprobs"]
    if alone["stop_reason"] == "eos":
        found.pop()  # of the token that ended the text
    if found != [token["logprob"] for token in alone["logprobs"]]:
        return "log probabilities"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=1000)
    arguments = parser.parse_args()
    bodies = make_bodies(arguments.requests)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        expected = list(pool.map(lambda body: server.run_alone(arguments.bin_dir, body), bodies))
    failed = 0
    for clients in (1, 8, 64):
        for chunk in (32, 512):
            options = ["-t", "1", "--chunk", str(chunk), "--parallel", str(min(32, max(2, clients))), "--kv-memory", "3"]
            with server.serve(arguments.bin_dir, *options) as url:
                with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                    ask = lambda body, alone: difference(url, body, *alone)  # noqa: E731
                    found = list(pool.map(ask, bodies, expected))
                preemptions = server.metric(url, "preemptions_total")
            wrong = [(body, what) for body, what in zip(bodies, found) if what]
            print(f"{clients:2} clients, chunk {chunk:3}: {len(bodies) - len(wrong)}/{len(bodies)} as llmrun alone, "
                  f"{preemptions:.0f} preemptions")
            for body, what in wrong[:3]:
                print(f"  {body}: {what}")
            failed += len(wrong) + (clients == 64 and preemptions == 0)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
