#!/usr/bin/env python3
"""Real clients of llmserve: the openai package, streaming and not, and curl.

    tests/serving/clients.py BIN_DIR [--real FILE]

Exit code 1 with the first thing that is not as it must be.
"""

import argparse
import asyncio
import json
import pathlib
import subprocess
import sys

import openai
import server

PROMPT = "Once upon a time"
MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell a story."}]


def completions(client: openai.OpenAI, model: str, alone: dict) -> None:
    settings = {"model": model, "prompt": PROMPT, "max_tokens": 40, "seed": 7, "temperature": 0.8, "logprobs": 2}
    whole = client.completions.create(**settings)
    assert whole.choices[0].text == alone["text"], whole
    assert whole.choices[0].finish_reason == "length"
    assert whole.choices[0].logprobs.token_logprobs == [token["logprob"] for token in alone["logprobs"]]
    assert whole.usage.completion_tokens == 40
    chunks = list(client.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == whole.choices[0].text
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert whole.usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert {chunk.system_fingerprint for chunk in chunks} == {whole.system_fingerprint}
    raw = client.completions.with_raw_response.create(**settings, extra_body={"logits_hash": True, "top_k": 0})
    assert len(raw.headers["x-logits-sha256"]) == 64
    several = client.completions.create(model=model, prompt=[PROMPT, [1, 520]], n=2, max_tokens=3, seed=1)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]


def chats(client: openai.OpenAI, model: str) -> None:
    settings = {"model": model, "messages": MESSAGES, "max_completion_tokens": 30, "seed": 7}
    whole = client.chat.completions.create(**settings, logprobs=True, top_logprobs=3)
    message = whole.choices[0].message
    assert message.role == "assistant" and message.content
    tokens = whole.choices[0].logprobs.content
    assert len(tokens) == whole.usage.completion_tokens and len(tokens[0].top_logprobs) == 3
    stream = client.chat.completions.create(**settings, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == message.content
    with client.chat.completions.create(**settings | {"max_completion_tokens": 400}, stream=True) as stream:
        next(iter(stream))  # and goes


def real(bin_dir: pathlib.Path, file: pathlib.Path) -> None:
    """A real instruct model, server and sampling at their default settings."""
    with server.serve(bin_dir, model=file) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        settings = {"model": client.models.list().data[0].id, "seed": 7, "max_completion_tokens": 48}
        messages = [{"role": "system", "content": "Answer in one sentence."}]
        messages += [{"role": "user", "content": "What is the capital of France?"}]
        create = client.chat.completions.create
        sure = create(**settings, messages=messages, temperature=0).choices[0]
        assert "Paris" in sure.message.content and sure.finish_reason == "stop", sure
        for _ in range(2):
            whole = create(**settings, messages=messages)
            choice = whole.choices[0]
            assert choice.message.content, whole
            chunks = list(create(**settings, messages=messages, stream=True))
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
            assert chunks[-1].choices[0].finish_reason == choice.finish_reason
            # History as the package gives it back, with every field that was not set as null.
            messages += [choice.message.model_dump(), {"role": "user", "content": "And of Italy?"}]
    print(f"{file.name}: {whole.usage.total_tokens} tokens in two turns, streamed and not")


def errors(client: openai.OpenAI, url: str, model: str) -> None:
    def raises(kind, create, **settings):
        try:
            create(**settings)
        except kind as error:
            return error
        raise AssertionError(f"no {kind.__name__}")

    create = client.completions.create
    error = raises(openai.BadRequestError, create, model=model, prompt=PROMPT, best_of=2)
    assert error.param == "best_of", error
    error = raises(openai.BadRequestError, create, model=model, prompt=[1] * 600)
    assert error.code == "context_length_exceeded", error
    raises(openai.NotFoundError, create, model="other", prompt=PROMPT)
    stranger = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, stranger.models.list)


async def many(url: str, model: str) -> None:
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="secret")
    settings = {"model": model, "prompt": PROMPT, "max_tokens": 60}
    ask = [client.completions.create(**settings, seed=seed % 8) for seed in range(64)]
    texts = [answer.choices[0].text for answer in await asyncio.gather(*ask)]
    assert texts[:8] * 8 == texts and len(set(texts)) > 4


def ask_by_curl(url: str, body: dict, *options: str) -> str:
    command = ["curl", "-sS", "--fail-with-body", url + "/v1/completions", "-H", "Authorization: Bearer secret"]
    command += ["-H", "Content-Type: application/json", "--data-binary", "@-", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, input=json.dumps(body)).stdout


def curl(url: str) -> None:
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    text = json.loads(ask_by_curl(url, body))["choices"][0]["text"]
    events = ask_by_curl(url, body | {"stream": True}, "-N").split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-2]]
    assert "".join(parts) == text
    # Two megabytes, for which curl asks first (Expect: 100-continue); HTTP/1.0.
    assert json.loads(ask_by_curl(url, body | {"user": "x" * (2 << 20)}))["choices"][0]["text"] == text
    assert json.loads(ask_by_curl(url, body, "--http1.0"))["choices"][0]["text"] == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--real", type=pathlib.Path, default=server.cached_model(), help="SmolLM2-135M-Instruct")
    arguments = parser.parse_args()
    bin_dir = arguments.bin_dir
    body = {"prompt": PROMPT, "max_tokens": 40, "seed": 7, "temperature": 0.8, "logprobs": 2}
    alone, _ = server.run_alone(bin_dir, body)
    with server.serve(bin_dir, "--api-key", "secret", "--chat-template", "zephyr") as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
        model = client.models.list().data[0].id
        assert client.models.retrieve(model).id == model
        completions(client, model, alone)
        chats(client, model)
        errors(client, url, model)
        asyncio.run(many(url, model))
        curl(url)
    print(f"openai {openai.__version__} and curl: as they must be")
    if arguments.real is None:
        print("no real model: `./dev models fetch` has not brought one")
    else:
        real(bin_dir, arguments.real)
    return 0


if __name__ == "__main__":
    sys.exit(main())
