#!/usr/bin/env python3
"""Jobs of clients that are Python packages: a question, a call of a function, its result, the answer; then documents of a schema and refusals.

    packages.py CLIENT URL MODEL    with the packages of requirements/packages.txt, called by run.py

The replies that `jobs.py` lists for a client come first, in that order; after them the model says what it likes, and what is enforced is checked.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jsonschema
import pydantic

KEY = "secret"
ANSWER = "Sunny, for three days."  # of the model; in quotes where its form can be given as JSON alone
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


def get_weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
      city: its name
      days: how many
    """
    assert (city, days) == ("Paris", 3), (city, days)
    return f"Sunny in {city} for {days} days."


def check_call(name: str, arguments: str | dict) -> None:
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name in ("get_weather", "stop"), name
    jsonschema.validate(value, ARGUMENTS if name == "get_weather" else STOP["parameters"])


def openai_chats(client, model: str) -> None:
    import openai

    settings = {"model": model, "messages": QUESTION, "tools": TOOLS, "seed": 3, "max_completion_tokens": 200}
    # The model's own decision, streamed: one call; its result, the answer.
    with client.chat.completions.stream(**settings) as stream:
        message = stream.get_final_completion().choices[0].message
    (made,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": made.id, "content": get_weather(**json.loads(made.function.arguments))}
    after = [*QUESTION, message.model_dump(), result]
    assert client.chat.completions.create(**settings | {"messages": after}).choices[0].message.content == ANSWER
    # A call that must be made, whole and streamed.
    whole = client.chat.completions.create(**settings, tool_choice=NAMED).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None, whole
    (made,) = whole.message.tool_calls
    check_call(made.function.name, made.function.arguments)
    chunks = list(client.chat.completions.create(**settings, tool_choice=NAMED, stream=True))
    first, *pieces = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
    assert first.id and first.function.name == "get_weather" and not any(piece.id for piece in pieces), first
    assert {delta.index for delta in (first, *pieces)} == {0} and len(pieces) > 2, "arguments come as they are written"
    assert "".join(delta.function.arguments for delta in (first, *pieces)) == made.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    several = client.chat.completions.create(**settings, tool_choice="required", parallel_tool_calls=True, n=4)
    for choice in several.choices:
        for one in choice.message.tool_calls:
            check_call(one.function.name, one.function.arguments)
    answer = client.chat.completions.create(**settings | {"messages": after, "temperature": 0}, tool_choice="none")
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls, answer
    document = client.chat.completions.parse(model=model, messages=QUESTION, response_format=Weather, seed=5)
    assert isinstance(document.choices[0].message.parsed, Weather), document
    wrong = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}
    try:
        client.chat.completions.create(**settings, response_format=wrong)
        raise AssertionError("a keyword that is not enforced was taken")
    except openai.BadRequestError as error:
        assert "not" in error.body["param"], error


def openai_responses(client, model: str) -> None:
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    response = client.responses.create(model=model, input=QUESTION, tools=tools)
    (made,) = [item for item in response.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": made.call_id, "output": get_weather(**json.loads(made.arguments))}
    after = [*QUESTION, made.model_dump(exclude_none=True), output]
    forced = client.responses.create(model=model, input=QUESTION, tools=tools, tool_choice="required", extra_body={"seed": 3})
    for item in forced.output:
        check_call(item.name, item.arguments)
    settings = {"model": model, "input": after, "instructions": "Be brief.", "temperature": 0}
    whole = client.responses.create(**settings)
    assert whole.status == "completed" and whole.output_text, whole
    with client.responses.stream(**settings) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(pieces) == whole.output_text == stream.get_final_response().output_text
    document = client.responses.parse(model=model, input="The weather?", text_format=Weather, extra_body={"seed": 5})
    assert isinstance(document.output_parsed, Weather), document


def with_openai(url: str, model: str) -> None:
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
    openai_chats(client, model)
    openai_responses(client, model)


def with_anthropic(url: str, model: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
    tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in (WEATHER, STOP)]
    settings = {"model": model, "max_tokens": 200, "messages": QUESTION, "system": "Be brief."}
    # The model's own decision, streamed.
    with client.messages.stream(**settings, tools=tools) as stream:
        called = stream.get_final_message()
    (block,) = called.content
    assert called.stop_reason == "tool_use" and block.type == "tool_use", called
    result = {"type": "tool_result", "tool_use_id": block.id, "content": get_weather(**block.input)}
    after = [*QUESTION, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**settings | {"messages": after}, tools=tools).content[0].text == f'"{ANSWER}"'
    plain = client.messages.create(**settings, extra_body={"temperature": 0})
    with client.messages.stream(**settings, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == plain.content[0].text
    forced = {"tools": tools, "tool_choice": {"type": "tool", "name": "get_weather"}, "extra_body": {"seed": 3}}
    called = client.messages.create(**settings, **forced)
    (block,) = called.content
    assert called.stop_reason == "tool_use" and block.type == "tool_use", called
    check_call(block.name, block.input)
    with client.messages.stream(**settings, **forced) as stream:
        assert stream.get_final_message().content[0].input == block.input
    assert client.messages.count_tokens(model=model, messages=QUESTION).input_tokens > 10
    try:
        client.messages.create(**settings | {"messages": [{"role": "user", "content": [{"type": "image"}]}]})
        raise AssertionError("an image was taken")
    except anthropic.BadRequestError as error:
        assert "messages[0].content[0].type" in str(error), error


def with_litellm(url: str, model: str) -> None:
    """By three of its adapters, streamed and not."""
    import litellm

    for adapter, base in (("openai", url + "/v1"), ("anthropic", url), ("ollama_chat", url)):
        settings = {"model": f"{adapter}/{model}", "api_base": base, "api_key": KEY, "tools": TOOLS, "max_tokens": 200}
        for stream in (False, True):
            answer = litellm.completion(**settings, messages=QUESTION, stream=stream)
            if stream:
                answer = litellm.stream_chunk_builder(list(answer), messages=QUESTION)
            message = answer.choices[0].message
            (made,) = message.tool_calls
            result = {"role": "tool", "tool_call_id": made.id, "content": get_weather(**json.loads(made.function.arguments))}
            after = litellm.completion(**settings, messages=[*QUESTION, message.model_dump(), result])
            assert ANSWER in after.choices[0].message.content, (adapter, after)
    forced = litellm.completion(model=f"openai/{model}", api_base=url + "/v1", api_key=KEY, messages=QUESTION, tools=TOOLS,
                                tool_choice="required", seed=3)
    for made in forced.choices[0].message.tool_calls:
        check_call(made.function.name, made.function.arguments)


def with_langchain(url: str, model: str) -> None:
    import langchain.agents
    import langchain_openai

    chat = langchain_openai.ChatOpenAI(model=model, base_url=url + "/v1", api_key=KEY, seed=3, max_retries=0, max_tokens=200)
    agent = langchain.agents.create_agent(chat, [get_weather], system_prompt="Be brief.")
    *_, called, result, answer = agent.invoke({"messages": QUESTION})["messages"]
    assert called.tool_calls[0]["args"] == {"city": "Paris", "days": 3} and result.type == "tool", called
    assert answer.content == ANSWER, answer
    streamed = [message for message, _ in agent.stream({"messages": QUESTION}, stream_mode="messages")]
    assert "".join(message.text for message in streamed if message.type == "AIMessageChunk") == "It is sunny.", streamed
    for made in chat.bind_tools(TOOLS, tool_choice="any").invoke("The weather in Paris?").tool_calls:
        check_call(made["name"], made["args"])
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Weather, method=method).invoke("The weather in Paris?"), Weather), method


def with_llm(url: str, model: str) -> None:
    """The program, with a function of Python that it calls; then with a schema."""
    with tempfile.TemporaryDirectory() as home:
        entry = {"model_id": "here", "model_name": model, "api_base": url + "/v1", "api_key_name": "here", "supports_schema": True, "supports_tools": True}
        pathlib.Path(home, "extra-openai-models.yaml").write_text(json.dumps([entry]))

        def run(*options: str) -> str:
            command = [sys.executable, "-m", "llm", "-m", "here", "--key", KEY, "-o", "seed", "3", "-o", "max_tokens", "200", *options]
            return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"LLM_USER_PATH": home}).stdout

        function = "def get_weather(city: str, days: int) -> str:\n    'The weather of a city.'\n    return f'Sunny in {city} for {days} days.'\n"
        for stream in ([], ["--no-stream"]):
            assert run(*stream, "--functions", function, QUESTION[0]["content"]).strip() == ANSWER
        jsonschema.validate(json.loads(run("--no-stream", "--schema", json.dumps(ARGUMENTS), "The weather in Paris?")), ARGUMENTS)
        assert run("-s", "Be brief.", "Hello.").strip()
        assert run("-c", "And again.").strip()


def with_ollama(url: str, model: str) -> None:
    import ollama

    client = ollama.Client(url, headers={"Authorization": f"Bearer {KEY}"})
    assert client.list().models[0].model == model and "tools" in client.show(model).capabilities
    settings = {"model": model, "options": {"seed": 3, "num_predict": 60, "temperature": 0}}
    for stream in (False, True):
        called = client.chat(**settings, messages=QUESTION, tools=[get_weather], stream=stream)
        pieces = list(called) if stream else [called]
        (made,) = [one for piece in pieces for one in piece.message.tool_calls or []]
        turn = {"role": "assistant", "content": "", "tool_calls": [made.model_dump()]}
        result = {"role": "tool", "tool_name": made.function.name, "content": get_weather(**made.function.arguments)}
        assert client.chat(**settings, messages=[*QUESTION, turn, result], tools=[get_weather]).message.content == f'"{ANSWER}"'
    whole = client.chat(**settings, messages=QUESTION)
    pieces = list(client.chat(**settings, messages=QUESTION, stream=True))
    assert whole.message.content and "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].eval_count == whole.eval_count
    assert client.generate(**settings, prompt=QUESTION[0]["content"]).response == whole.message.content
    document = client.chat(**settings, messages=QUESTION, format=ARGUMENTS)
    jsonschema.validate(json.loads(document.message.content), ARGUMENTS)


CLIENTS = {
    "openai": with_openai,
    "anthropic": with_anthropic,
    "litellm": with_litellm,
    "langchain": with_langchain,
    "llm": with_llm,
    "ollama": with_ollama,
}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:])
