#!/usr/bin/env python3
"""Clients that call tools and ask for documents, by their own packages; then all of it at once, equal to alone.

    tests/serving/agents.py BIN_DIR [--real FILE] [--requests N]

openai, anthropic, LiteLLM, LangChain, llm and ollama talk to llmserve with SmolLM2-135M-Instruct, whose template knows no tools and whose
sense does not matter: a call that must be made is made, a document is of its schema, an embedding is the same by every way. So do the
programs of examples/. Then N requests (1,000) of all kinds, 64 at a time and short of pages, on the embedded model: each answer is the one
it got alone. Exit code 1 with the first thing that is not as it must be.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import anthropic
import embedders
import jsonschema
import kinds
import ollama
import openai
import pydantic
import server

QUESTION = [{"role": "user", "content": "What is the weather in Paris, and for how many days?"}]
ARGUMENTS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "The weather of a city", "parameters": ARGUMENTS}
STOP = {"name": "stop", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": STOP}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str = pydantic.Field(max_length=30)
    days: int = pydantic.Field(ge=1, le=9)


def check_call(name: str, arguments: str | dict) -> None:
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name in ("get_weather", "stop"), name
    jsonschema.validate(value, ARGUMENTS if name == "get_weather" else STOP["parameters"])


def openai_chats(client: openai.OpenAI, model: str) -> None:
    settings = {"model": model, "messages": QUESTION, "tools": TOOLS, "seed": 3, "max_completion_tokens": 200}
    whole = client.chat.completions.create(**settings, tool_choice=NAMED).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
    (call,) = whole.message.tool_calls
    check_call(call.function.name, call.function.arguments)
    chunks = list(client.chat.completions.create(**settings, tool_choice=NAMED, stream=True))
    first, *pieces = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
    assert first.id and first.function.name == "get_weather" and not any(piece.id for piece in pieces), first
    assert {delta.index for delta in (first, *pieces)} == {0} and len(pieces) > 2, "arguments come as they are written"
    assert "".join(delta.function.arguments for delta in (first, *pieces)) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    several = client.chat.completions.create(**settings, tool_choice="required", parallel_tool_calls=True, n=4)
    for choice in several.choices:
        for one in choice.message.tool_calls:
            check_call(one.function.name, one.function.arguments)
    # Its result, and the answer to that.
    after = [*QUESTION, whole.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees."}]
    answer = client.chat.completions.create(**settings | {"messages": after, "temperature": 0}, tool_choice="none")
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls, answer
    document = client.chat.completions.parse(model=model, messages=QUESTION, response_format=Weather, seed=5)
    assert isinstance(document.choices[0].message.parsed, Weather), document
    try:
        client.chat.completions.create(**settings, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}})
        raise AssertionError("a keyword that is not enforced was taken")
    except openai.BadRequestError as error:
        assert "not" in error.body["param"], error


def openai_responses(client: openai.OpenAI, model: str) -> None:
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    response = client.responses.create(model=model, input=QUESTION, tools=tools, tool_choice="required", extra_body={"seed": 3})
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        check_call(call.name, call.arguments)
    after = [*QUESTION, *(call.model_dump(exclude_none=True) for call in calls)]
    after += [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."} for call in calls]
    settings = {"model": model, "input": after, "instructions": "Be brief.", "temperature": 0}
    whole = client.responses.create(**settings)
    assert whole.status == "completed" and whole.output_text, whole
    with client.responses.stream(**settings) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(pieces) == whole.output_text == stream.get_final_response().output_text
    document = client.responses.parse(model=model, input="The weather?", text_format=Weather, extra_body={"seed": 5})
    assert isinstance(document.output_parsed, Weather), document


def anthropic_messages(url: str, model: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)
    tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in (WEATHER, STOP)]
    settings = {"model": model, "max_tokens": 200, "messages": QUESTION, "system": "Be brief."}
    plain = client.messages.create(**settings, extra_body={"temperature": 0})
    with client.messages.stream(**settings, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == plain.content[0].text
    call = {"tools": tools, "tool_choice": {"type": "tool", "name": "get_weather"}, "extra_body": {"seed": 3}}
    called = client.messages.create(**settings, **call)
    (block,) = called.content
    assert called.stop_reason == "tool_use" and block.type == "tool_use", called
    check_call(block.name, block.input)
    with client.messages.stream(**settings, **call) as stream:
        assert stream.get_final_message().content[0].input == block.input
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "Sunny."}
    messages = [*QUESTION, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**settings | {"messages": messages}, tools=tools).content
    assert client.messages.count_tokens(model=model, messages=QUESTION).input_tokens > 10
    try:
        client.messages.create(**settings | {"messages": [{"role": "user", "content": [{"type": "image"}]}]})
        raise AssertionError("an image was taken")
    except anthropic.BadRequestError as error:
        assert "messages[0].content[0].type" in str(error), error


def litellm_and_langchain(url: str, model: str) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks no network
    import langchain_openai
    import litellm

    by_litellm = litellm.completion(model=f"openai/{model}", api_base=url + "/v1", api_key="secret", messages=QUESTION, tools=TOOLS,
                                    tool_choice="required", seed=3)
    for call in by_litellm.choices[0].message.tool_calls:
        check_call(call.function.name, call.function.arguments)
    chat = langchain_openai.ChatOpenAI(model=model, base_url=url + "/v1", api_key="secret", seed=3, max_retries=0)
    for call in chat.bind_tools(TOOLS, tool_choice="any").invoke("The weather in Paris?").tool_calls:
        check_call(call["name"], call["args"])
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Weather, method=method).invoke("The weather in Paris?"), Weather), method


def llm_package(url: str, model: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        entry = {"model_id": "here", "model_name": model, "api_base": url + "/v1", "api_key_name": "here", "supports_schema": True}
        pathlib.Path(home, "extra-openai-models.yaml").write_text(json.dumps([entry]))
        command = [sys.executable, "-m", "llm", "-m", "here", "--key", "secret", "--no-stream", "-o", "seed", "3"]
        command += ["--schema", json.dumps(ARGUMENTS), "The weather in Paris?"]
        run = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"LLM_USER_PATH": home})
    jsonschema.validate(json.loads(run.stdout), ARGUMENTS)


def ollama_package(url: str, model: str) -> None:
    client = ollama.Client(url, headers={"Authorization": "Bearer secret"})
    assert client.list().models[0].model == model
    settings = {"model": model, "options": {"seed": 3, "num_predict": 60, "temperature": 0}}
    whole = client.chat(**settings, messages=QUESTION)
    pieces = list(client.chat(**settings, messages=QUESTION, stream=True))
    assert whole.message.content and "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].eval_count == whole.eval_count
    assert client.generate(**settings, prompt=QUESTION[0]["content"]).response == whole.message.content
    document = client.chat(**settings, messages=QUESTION, format=ARGUMENTS)
    jsonschema.validate(json.loads(document.message.content), ARGUMENTS)
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}}]}
    after = [*QUESTION, called, {"role": "tool", "tool_name": "get_weather", "content": "Sunny, 21 degrees."}]
    assert client.chat(**settings, messages=after, tools=TOOLS).message.content


UNLIKE = ("id", "call_id", "created", "created_at", "total_duration", "prompt_tokens_details", "input_tokens_details")


def answer(url: str, request: tuple[str, dict]) -> str:
    """What of an answer is a function of model and request: not its ids and times, nor how many tokens were stored already."""
    path, body = request
    sent = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(sent, timeout=600) as got:
            text = got.read().decode()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{request}: {error.code} {error.read().decode()}") from error
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
            openai_chats(client, model)
            openai_responses(client, model)
            anthropic_messages(url, model)
            litellm_and_langchain(url, model)
            llm_package(url, model)
            ollama_package(url, model)
            embedders.embeddings(client, url, model)
            embedders.rag(client, url)
            embedders.agent(client, url, model)
        print("openai, anthropic, LiteLLM, LangChain, llm and ollama with tools, schemas and embeddings: as they must be")
    all_at_once(arguments.bin_dir, arguments.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
