"""What an answer must be in the client's protocol: OpenAI's chats and responses, Anthropic's messages, Ollama's.

`check` raises AssertionError at the first thing that a client could not read.
"""

import json

FINISH_REASONS = ("stop", "length", "tool_calls")
STOP_REASONS = ("end_turn", "max_tokens", "stop_sequence", "tool_use")


def is_call(function: dict, is_whole: bool) -> bool:
    """Whether name and arguments are those of a call; what a limit has cut is the beginning of JSON."""
    return bool(function["name"]) and (not is_whole or isinstance(json.loads(function["arguments"]), dict))


def events_of(text: str) -> list[tuple[str, str]]:
    """Server-sent events as name and data."""
    events = []
    for event in text.removesuffix("\n\n").split("\n\n"):
        *named, data = event.split("\n")
        assert data.startswith("data: ") and len(named) <= 1, event
        events.append((named[0].removeprefix("event: ") if named else "", data.removeprefix("data: ")))
    return events


# ---- Chats


def check_usage(usage: dict, read: str, written: str) -> None:
    assert isinstance(usage[read], int) and isinstance(usage[written], int), usage


def check_chat(answer: dict) -> None:
    assert answer["object"] == "chat.completion" and answer["id"] and isinstance(answer["created"], int)
    check_usage(answer["usage"], "prompt_tokens", "completion_tokens")
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    for choice in answer["choices"]:
        message = choice["message"]
        calls = message.get("tool_calls", [])
        assert message["role"] == "assistant" and choice["finish_reason"] in FINISH_REASONS
        assert isinstance(message["content"], str) or message["content"] is None and calls
        assert all(call["id"] and call["type"] == "function" for call in calls)
        assert all(is_call(call["function"], choice["finish_reason"] != "length") for call in calls)
        assert (choice["finish_reason"] == "tool_calls") <= bool(calls)


def check_chat_stream(text: str, wants_usage: bool) -> None:
    *events, last = events_of(text)
    assert last == ("", "[DONE]"), last
    chunks = [json.loads(data) for _, data in events]
    assert len({chunk["id"] for chunk in chunks}) == 1 and {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    if wants_usage:
        assert chunks[-1]["choices"] == []
        check_usage(chunks.pop()["usage"], "prompt_tokens", "completion_tokens")
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    for index in {choice["index"] for choice in choices}:
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert [choice["finish_reason"] for choice in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] in FINISH_REASONS
        calls: dict[int, dict] = {}
        for delta in (delta for choice in own for delta in choice["delta"].get("tool_calls", [])):
            if delta["index"] not in calls:
                assert delta["index"] == len(calls) and delta["id"] and delta["type"] == "function"
                calls[delta["index"]] = {"name": delta["function"]["name"], "arguments": ""}
            calls[delta["index"]]["arguments"] += delta["function"].get("arguments", "")
        assert all(is_call(call, own[-1]["finish_reason"] == "tool_calls") for call in calls.values())


# ---- Messages


def check_message(answer: dict) -> None:
    assert answer["type"] == "message" and answer["role"] == "assistant" and answer["id"]
    assert answer["stop_reason"] in STOP_REASONS
    check_usage(answer["usage"], "input_tokens", "output_tokens")
    for block in answer["content"]:
        match block["type"]:
            case "text":
                assert isinstance(block["text"], str)
            case "thinking":
                assert isinstance(block["thinking"], str)
            case "tool_use":
                assert block["id"] and block["name"] and isinstance(block["input"], dict)
            case other:
                raise AssertionError(other)


DELTAS = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking"), "input_json_delta": ("tool_use", "partial_json"),
          "signature_delta": ("thinking", "signature")}


def check_message_stream(text: str) -> None:
    events = [json.loads(data) | {"event": name} for name, data in events_of(text)]
    assert all(event["type"] == event["event"] for event in events)
    events = [event for event in events if event["type"] != "ping"]
    first, *blocks, ended, last = events
    assert first["type"] == "message_start" and first["message"]["content"] == [] and first["message"]["role"] == "assistant"
    assert ended["type"] == "message_delta" and ended["delta"]["stop_reason"] in STOP_REASONS and last["type"] == "message_stop"
    check_usage(ended["usage"], "input_tokens", "output_tokens")
    is_whole = ended["delta"]["stop_reason"] != "max_tokens"
    n, kind, arguments = -1, None, ""
    for event in blocks:
        match event["type"]:
            case "content_block_start":
                assert kind is None and event["index"] == n + 1
                n, kind, arguments = event["index"], event["content_block"]["type"], ""
            case "content_block_delta":
                of, member = DELTAS[event["delta"]["type"]]
                assert event["index"] == n and kind == of and isinstance(event["delta"][member], str)
                arguments += event["delta"].get("partial_json", "")
            case "content_block_stop":
                assert event["index"] == n and kind is not None
                assert kind != "tool_use" or not is_whole or isinstance(json.loads(arguments or "{}"), dict)
                kind = None
            case other:
                raise AssertionError(other)
    assert kind is None, "a block that does not end"


# ---- Responses


def check_response(answer: dict) -> None:
    assert answer["object"] == "response" and answer["id"] and answer["status"] in ("completed", "incomplete")
    check_usage(answer["usage"], "input_tokens", "output_tokens")
    for item in answer["output"]:
        match item["type"]:
            case "message":
                assert item["role"] == "assistant" and all(isinstance(part["text"], str) for part in item["content"])
            case "function_call":
                assert item["call_id"] and is_call(item, answer["status"] == "completed")
            case "custom_tool_call":
                assert item["call_id"] and item["name"] and isinstance(item["input"], str)
            case "reasoning":
                pass
            case other:
                raise AssertionError(other)


PIECES = ("output_text", "function_call_arguments", "custom_tool_call_input", "reasoning_text")


def check_response_stream(text: str) -> None:
    events = [json.loads(data) | {"event": name} for name, data in events_of(text)]
    assert all(event["type"] == event["event"] for event in events)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created" and events[-1]["type"] in ("response.completed", "response.incomplete")
    final = events[-1]["response"]
    check_response(final)
    items = {kind: [event["output_index"] for event in events if event["type"] == f"response.output_item.{kind}"] for kind in ("added", "done")}
    assert items["added"] == items["done"] == list(range(len(final["output"])))
    for event in (event for event in events if event["type"] == "response.output_item.done"):
        assert event["item"] == final["output"][event["output_index"]]
    written: dict[tuple, str] = {}
    for event in events:
        piece, _, what = event["type"].removeprefix("response.").rpartition(".")
        if piece not in PIECES:
            continue
        place = (piece, event["output_index"])
        if what == "delta":
            written[place] = written.get(place, "") + event["delta"]
        else:
            whole = event[{"output_text": "text", "reasoning_text": "text", "custom_tool_call_input": "input"}.get(piece, "arguments")]
            assert written.pop(place, "") == whole
    assert not written, "pieces without an end"


# ---- Ollama's, and all


def check_ollama(answers: list[dict], member: str) -> None:
    for answer in answers:
        assert answer["model"] and answer["created_at"] and member in answer
    assert [answer["done"] for answer in answers] == [False] * (len(answers) - 1) + [True]
    assert answers[-1]["done_reason"] in ("stop", "length", "load")
    for answer in answers if member == "message" else []:
        assert answer["message"]["role"] == "assistant" and isinstance(answer["message"]["content"], str)
        for made in answer["message"].get("tool_calls", []):
            assert made["function"]["name"] and isinstance(made["function"]["arguments"], dict)


def check_refusal(path: str, answer: dict) -> None:
    if path.startswith("/api/"):
        assert isinstance(answer["error"], str) and answer["error"]
        return
    assert answer["error"]["message"] and answer["error"]["type"]
    assert answer.get("type") == "error" or path != "/v1/messages"


def check(path: str, body: dict, status: int, text: str) -> None:
    """@param body  of the request, as it was sent"""
    streams = bool(body.get("stream", path in ("/api/chat", "/api/generate")))
    if status != 200:
        return check_refusal(path, json.loads(text))
    match path:
        case "/v1/chat/completions" if streams:
            check_chat_stream(text, bool((body.get("stream_options") or {}).get("include_usage")))
        case "/v1/chat/completions":
            check_chat(json.loads(text))
        case "/v1/messages" if streams:
            check_message_stream(text)
        case "/v1/messages":
            check_message(json.loads(text))
        case "/v1/responses" if streams:
            check_response_stream(text)
        case "/v1/responses":
            check_response(json.loads(text))
        case "/api/chat" | "/api/generate":
            lines = [json.loads(line) for line in text.splitlines()]
            check_ollama(lines, "message" if path == "/api/chat" else "response")
        case "/v1/messages/count_tokens":
            assert json.loads(text)["input_tokens"] > 0
        case _:
            assert isinstance(json.loads(text), dict)
