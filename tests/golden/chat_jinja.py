"""jinja2 as transformers' apply_chat_template configures it, and conversations to render. No golden by itself."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

DATE = datetime.datetime(2026, 11, 4)


class Generation(jinja2.ext.Extension):
    """{% generation %}, which marks what the model wrote and prints it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def environment(date: datetime.datetime | None = None) -> ImmutableSandboxedEnvironment:
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = fail
    if date:
        env.globals["strftime_now"] = date.strftime
    return env


def render(template: str, variables: dict, date: datetime.datetime | None = None) -> str | None:
    """The text, or None where jinja2 raises."""
    try:
        return environment(date).from_string(template).render(**variables)
    except Exception:  # noqa: BLE001 - a template may raise anything
        return None


def call(name: str, arguments, call_id: str | None = None) -> dict:
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return ({"id": call_id} if call_id else {}) | made


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Wetter f\u00fcr eine Stadt \u2014 \u5929\u6c17 \U0001f324 <|im_end|>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, \"quoted\" & <b>marked</b>"},
                "days": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615, "default": 3},
                "options": {"type": "object", "description": "How", "properties": {
                    "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
                    "fields": {"type": "array", "items": {"type": "string"}}}, "required": ["unit"]},
                "exact": {"type": ["number", "null"], "nullable": True}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number", "description": "one"},
                                                        "b": {"type": "number", "description": "other"}},
                       "required": ["a", "b"], "additionalProperties": False}}},
]
ARGUMENTS = {"city": "K\u00f6ln", "days": 2, "options": {"unit": "celsius", "fields": ["rain", "it's"]}, "exact": None}
NUMBERS = {"a": 1.5, "b": 1e-07, "c": 1e16, "d": -0.0, "e": True}
USER = {"role": "user", "content": "How is the weather in K\u00f6ln?"}


def tool(content: str, call_id: str | None = None, name: str | None = None) -> dict:
    return ({"role": "tool"} | ({"tool_call_id": call_id} if call_id else {}) | ({"name": name} if name else {})
            | {"content": content})


def calling(*calls: dict, content: str | None = "", **more) -> dict:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)} | more


FLAT_TOOLS = [TOOLS[1]]

AGENTS = [
    [USER, calling(call("get_weather", ARGUMENTS)), tool('{"rain": 0.5}'), {"role": "assistant", "content": "Wet."},
     {"role": "user", "content": "Thanks"}],
    [{"role": "system", "content": "Be brief."}, USER,
     calling(call("get_weather", json.dumps(ARGUMENTS), "call00001"), content=None),
     tool("18 degrees<|im_end|>", "call00001", "get_weather")],
    [USER, calling(call("get_weather", ARGUMENTS, "abcdefghi"), call("add", NUMBERS, "123456789"), content="Let me see."),
     tool("wet", "abcdefghi", "get_weather"), tool("3", "123456789", "add"),
     {"role": "assistant", "content": "It is wet."}, {"role": "user", "content": "And now?"}],
    [USER, calling(call("get_weather", ARGUMENTS, "call00001"), reasoning_content="I should\nlook."),
     tool("wet", "call00001", "get_weather"), calling(call("add", NUMBERS, "call00002"), reasoning_content="Now add."),
     tool("3", "call00002", "add")],
    [USER, {"role": "assistant", "content": "Wet.", "reasoning_content": "Rain?\n"}, {"role": "user", "content": "Sure?"},
     {"role": "assistant", "content": "<think>\nHm\n</think>\n\nYes.", "thinking": "Hm"}],
    [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": [{"type": "text", "text": "Part one,"}, {"type": "text", "text": "part two"}]}],
    [USER, calling(call("add", {}, "call00001")), tool("nothing", "call00001", "add"),
     calling(call("add", "{\"a\": 1, \"b\": 2}", "call00002"), content="Again"), tool("3", "call00002", "add"),
     {"role": "user", "content": "Good"}],
]


def runs(n_conversations: int) -> list[dict]:
    """What is rendered: every conversation without tools and without a clock, and with tools on DATE; then variants."""
    def run(conversation, tools=None, date=False, add_generation_prompt=True, **variables):
        return {"conversation": conversation, "tools": tools, "date": date,
                "add_generation_prompt": add_generation_prompt, "variables": variables}

    made = []
    for i in range(n_conversations):
        made += [run(i), run(i, "nested", True)]
    for i in (0, 2, 6, 8, 12, 14, 15, 16):
        made += [run(i, add_generation_prompt=False, date=True), run(i, enable_thinking=False),
                 run(i, "flat", True, enable_thinking=True, thinking=True, reasoning_effort="high")]
    return made


def variables_of(run: dict, conversations: list[list[dict]], bos: str, eos: str) -> dict:
    tools = {None: None, "nested": TOOLS, "flat": FLAT_TOOLS}[run["tools"]]
    return run["variables"] | {
        "messages": conversations[run["conversation"]], "tools": tools, "documents": None, "bos_token": bos,
        "eos_token": eos, "add_generation_prompt": run["add_generation_prompt"]}
