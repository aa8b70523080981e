#!/usr/bin/env python3
"""Jobs of agents that are Python packages, each in an environment of its own.

    frameworks.py CLIENT URL MODEL FOLDER    called by run.py; the model's replies are those of jobs.py
"""

import pathlib
import sys

KEY = "secret"
QUESTION = "What is the weather in Paris, for three days?"


def get_weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: its name
        days: how many
    """
    assert (city, days) == ("Paris", 3), (city, days)
    return f"Sunny in {city} for {days} days."


def with_pydantic_ai(url: str, model: str, _: str) -> None:
    """By each of three APIs a call and an answer that is a document; then a text, streamed."""
    import asyncio

    import pydantic
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    class Report(pydantic.BaseModel):
        """The weather that was found."""

        city: str
        is_sunny: bool

    by_openai = OpenAIProvider(base_url=url + "/v1", api_key=KEY)
    models = [OpenAIChatModel(model, provider=by_openai), OpenAIResponsesModel(model, provider=by_openai),
              AnthropicModel(model, provider=AnthropicProvider(base_url=url, api_key=KEY))]
    for one in models:
        agent = Agent(one, output_type=Report, tools=[get_weather], instructions="Be brief.")
        result = agent.run_sync(QUESTION)
        assert result.output == Report(city="Paris", is_sunny=True), result.output

    async def streamed() -> str:
        agent = Agent(models[0], tools=[get_weather])
        async with agent.run_stream(QUESTION) as run:
            return [piece async for piece in run.stream_text()][-1]

    assert asyncio.run(streamed()) == "Sunny, for three days."


def with_smolagents(url: str, model: str, _: str) -> None:
    import smolagents

    tool = smolagents.tool(get_weather)
    brain = smolagents.OpenAIModel(model_id=model, api_base=url + "/v1", api_key=KEY, max_tokens=300)
    for stream in (False, True):
        agent = smolagents.ToolCallingAgent(tools=[tool], model=brain, max_steps=4, stream_outputs=stream)
        assert agent.run(QUESTION) == "Sunny, for three days."
    agent = smolagents.CodeAgent(tools=[tool], model=brain, max_steps=4)
    assert agent.run(QUESTION) == "SUNNY IN PARIS FOR 3 DAYS."


def with_open_interpreter(url: str, model: str, folder: str) -> None:
    """Code that it runs, first found in the text, then as a call."""
    from interpreter import interpreter

    interpreter.auto_run = interpreter.offline = interpreter.disable_telemetry = True
    interpreter.llm.model, interpreter.llm.api_base, interpreter.llm.api_key = f"openai/{model}", url + "/v1", KEY
    interpreter.llm.context_window, interpreter.llm.max_tokens = 8000, 300
    for supports_functions, name, power in ((False, "squares", 2), (True, "cubes", 3)):
        interpreter.messages = []
        interpreter.llm.supports_functions = supports_functions
        interpreter.chat(f"Write the {name} of 1 to 5 into {name}.txt, a line each.", display=False)
        lines = pathlib.Path(folder, f"{name}.txt").read_text().split()
        assert lines == [str(n**power) for n in range(1, 6)], interpreter.messages
        assert interpreter.messages[-1]["content"] == "It is written.", interpreter.messages


CLIENTS = {"pydantic-ai": with_pydantic_ai, "smolagents": with_smolagents, "open-interpreter": with_open_interpreter}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:])
