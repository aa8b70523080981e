#!/usr/bin/env python3
"""Embeddings by clients' own packages, the programs of examples/, then requests of all kinds at once, equal to alone.

    tests/serving/agents.py BIN_DIR [--real FILE] [--requests N]

The first two with SmolLM2-135M-Instruct, whose sense does not matter: an embedding is the same by every way (tests/clients has clients that
chat). Then N requests (1,000) of all kinds, 64 at a time and short of pages, on the embedded model: each answer is the one it got alone.
Exit code 1 with the first thing that is not as it must be.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import sys

import embedders
import kinds
import openai
import server

UNLIKE = ("id", "call_id", "created", "created_at", "total_duration", "prompt_tokens_details", "input_tokens_details")


def answer(url: str, request: tuple[str, dict]) -> str:
    """What of an answer is a function of model and request: not its ids and times, nor how many tokens were stored already."""
    path, body = request
    status, text = server.answer(url, path, body)
    assert status == 200, f"{request}: {status} {text}"
    if body.get("stream"):
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        return json.dumps([chunk["choices"] for chunk in chunks])

    def without(value):
        if isinstance(value, dict):
            if "cache_read_input_tokens" in value:  # Anthropic's input_tokens are those that were not stored
                value = value | {"input_tokens": value["input_tokens"] + value["cache_read_input_tokens"], "cache_read_input_tokens": 0}
            return {key: without(one) for key, one in value.items() if key not in UNLIKE}
        return [without(one) for one in value] if isinstance(value, list) else value

    return json.dumps(without(json.loads(text)))


def all_at_once(bin_dir: pathlib.Path, n: int) -> None:
    random_ = random.Random(1)
    requests = [kinds.some_request(random_) for _ in range(n)]
    options = ["--chat-template", "zephyr", "-c", "512"]
    with server.serve(bin_dir, *options) as url:
        alone = [answer(url, request) for request in requests]
    with server.serve(bin_dir, *options, "--parallel", "64", "--queue", "256", "--kv-memory", "2", "--speculate", "ngram") as url:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            together = list(pool.map(lambda request: answer(url, request), requests))
        preempted = server.metric(url, "preemptions_total")
    for request, one, other in zip(requests, alone, together, strict=True):
        assert one == other, f"{request}\nalone:    {one}\ntogether: {other}"
    assert preempted > 0, "no text lost its pages"
    print(f"{n} requests of all kinds, 64 at a time, {preempted:.0f} preemptions: each as alone")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--real", type=pathlib.Path, default=server.cached_model(), help="SmolLM2-135M-Instruct")
    parser.add_argument("--requests", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.real is None:
        print("no real model: `./dev models fetch` has not brought one")
    else:
        with server.serve(arguments.bin_dir, "--api-key", "secret", model=arguments.real) as url:
            client = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
            model = client.models.list().data[0].id
            embedders.embeddings(client, url, model)
            embedders.rag(client, url)
            embedders.agent(client, url, model)
        print("embeddings by openai, ollama and LangChain: as they must be")
    all_at_once(arguments.bin_dir, arguments.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
