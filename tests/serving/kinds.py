"""Requests of every kind that llmserve takes, for its embedded model."""

import random

# Short, for the embedded model's context.
SIMPLE = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 99}, "s": {"type": "string", "maxLength": 9}},
          "required": ["n", "s"], "additionalProperties": False}
SHORT = [{"type": "function", "function": {"name": "g", "parameters": {"properties": {"n": {"enum": [1, 2, "x"]}}, "required": ["n"]}}}]
SHORT_NAMED = {"type": "function", "function": {"name": "g"}}


def some_request(random_: random.Random) -> tuple[str, dict]:
    """A path and a body of any kind."""
    words = ["sun", "dog", "tree", "Once upon a time", "a small red house", "<|user|>"]
    text = " ".join(random_.choices(words, k=random_.randint(1, 45)))
    common = {"seed": random_.randrange(1000), "temperature": random_.choice([0, 1, 1.5])}
    size = random_.randint(8, 60)
    messages = [{"role": "user", "content": text}]
    if random_.random() < 0.3:
        messages = [{"role": "system", "content": "Be kind."}, *messages]
    kind = random_.randrange(11)
    if kind == 0:
        return "/v1/completions", {**common, "prompt": text, "max_tokens": 4 * size, "ignore_eos": True}
    if kind == 1:
        return "/v1/messages", {**common, "messages": messages[-1:], "max_tokens": size}
    if kind == 2:
        return "/v1/responses", {**common, "input": text, "max_output_tokens": size}
    if kind == 9:
        inputs = [text, text[: len(text) // 2 + 1]]
        return "/v1/embeddings", {"input": inputs, "encoding_format": random_.choice(["float", "base64"]), "dimensions": 4 * size}
    if kind == 10:
        return "/api/embed", {"input": [messages[-1]["content"]] * random_.randint(1, 3)}
    if kind == 8:
        return "/api/chat", {"messages": messages, "stream": False, "options": {**common, "num_predict": size}}
    body = {**common, "messages": messages, "max_tokens": size}
    if kind in (3, 6):
        messages[-1]["content"] = text[:40]
    if kind == 3:
        return "/v1/chat/completions", {**body, "tools": SHORT, "tool_choice": random_.choice(["required", SHORT_NAMED])}
    if kind == 4:
        schema = {"type": "json_schema", "json_schema": {"name": "w", "schema": SIMPLE}}
        return "/v1/chat/completions", {**body, "max_tokens": 90, "response_format": schema}
    if kind == 5:
        return "/v1/chat/completions", {**body, "regex": "[a-z]{3,9}( [a-z]{2,5}){1,6}"}
    if kind == 6:
        return "/v1/chat/completions", {**body, "tools": SHORT, "n": 2}
    return "/v1/chat/completions", {**body, "max_tokens": 3 * size, "ignore_eos": True, "stream": True}
