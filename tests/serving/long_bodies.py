#!/usr/bin/env python3
"""Bodies of 4 MiB, of every shape that could cost more than its length, for every path: how long llmserve takes for each.

    tests/serving/long_bodies.py BIN_DIR [--seconds 1] [--only REGEX]

Each must be answered within --seconds of the server's processors, by 200 or a 4xx that says why; one that has a grammar
compiled may take GRAMMAR_SECONDS more. A short request that is sent meanwhile must not wait for --seconds.
Conversations, tools and what else a field may hold in great number are written down here, and are sent to a server of each
of TEMPLATES; besides, every field of every path of the server's own /openapi.json gets each of KINDS. Prints the slowest, and every one that was too slow; exit code 1
then. A timed check for a quiet machine, so not part of ctest.
"""

import argparse
import http.client
import json
import math
import pathlib
import re
import sys
import tempfile
import threading
import time
import urllib.parse

import server

SIZE = (4 << 20) - 512  # bytes of a body, which may have 4 MiB
GRAMMAR_SECONDS = 1.5  # its compilation is bounded by its own limit
WITH_GRAMMAR = re.compile(r" (schema|grammar|rules|regex|alternatives|properties|required|enum|anyOf|definitions)\b")
USER = b'{"role":"user","content":"a"}'


def repeated(begin: bytes, item, end: bytes, between: bytes = b",", most: int = SIZE) -> bytes:
    """begin item(0),item(1),... end, as many as `most` bytes hold."""
    parts, size, i = [], len(begin) + len(end), 0
    while True:
        part = item(i)
        size += len(part) + len(between)
        if size > most:
            return begin + between.join(parts) + end
        parts.append(part)
        i += 1


def rounds(begin: bytes, middle: bytes, end: bytes, call, result, most: int = SIZE) -> bytes:
    """All calls, then all results."""
    calls, results, size, i = [], [], len(begin) + len(middle) + len(end), 0
    while True:
        one, other = call(i), result(i)
        size += len(one) + len(other) + 2
        if size > most:
            return begin + b",".join(calls) + middle + b",".join(results) + end
        calls.append(one)
        results.append(other)
        i += 1


def escaped(text: str) -> bytes:
    return json.dumps(text).encode()


def call(i: int, arguments: bytes = b'"{}"') -> bytes:
    return b'{"id":"%d","type":"function","function":{"name":"f","arguments":%s}}' % (i, arguments)


def tool(i: int) -> bytes:
    return b'{"type":"function","function":{"name":"f%d"}}' % i


def many_names(n: int, value: str = "1") -> str:
    return "{" + ",".join(f'"k{i}":{value}' for i in range(n)) + "}"


# Chat templates by what is done to a conversation for them.
TEMPLATES = {
    "which takes all": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}",
    # No system messages, no two of a role, no tools: messages are joined, calls spelled out.
    "which takes little": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif %}"
                          "<|{{ m.role }}|>{{ m.content }}\n{% endfor %}",
    "with tools": (server.ROOT / "tests/golden/chat/Qwen2.5-7B-Instruct.jinja").read_text(encoding="utf-8"),
}

# The values that every field of every path gets.
KINDS = {
    "names": repeated(b"{", lambda i: b'"%d":1' % i, b"}"),
    "null names": repeated(b"{", lambda i: b'"%d":null' % i, b"}"),
    "objects": repeated(b"[", lambda i: b"{}", b"]"),
    "small objects": repeated(b"[", lambda i: b'{"a":%d,"b":{}}' % i, b"]"),
    "arrays": repeated(b"[", lambda i: b"[]", b"]"),
    "numbers": repeated(b"[", lambda i: b"1", b"]"),
    "texts": repeated(b"[", lambda i: b'"%d"' % i, b"]"),
    "one text": b'"' + b"a " * (SIZE // 2 - 100) + b'"',
    "spaces": b'"' + b" " * (SIZE - 100) + b'"',
    "special tokens": b'"' + b"</s>" * (SIZE // 4 - 100) + b'"',
    "escapes": b'"' + rb"\u00e9" * (SIZE // 6 - 100) + b'"',
    "levels": b'{"a":[' * 31 + b"1," * (SIZE // 2 - 200) + b"1" + b"]}" * 31,
    "digits": b"1" * (SIZE - 200),
}

# What must stand beside a field, so that it is read at all; nothing for other paths.
NEEDED = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/responses": {"input": "a", "max_output_tokens": 1},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/embeddings": {"input": "a"},
    "/api/embed": {"input": "a"},
    "/api/chat": {"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": 1}, "stream": False},
    "/api/generate": {"prompt": "a", "options": {"num_predict": 1}, "stream": False},
    "/api/embeddings": {"prompt": "a"},
    "/completion": {"prompt": "a", "n_predict": 1},
    "/completions": {"prompt": "a", "n_predict": 1},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/rerank": {"query": "a", "documents": ["a"]},
    "/rerank": {"query": "a", "documents": ["a"]},
    "/infill": {"input_prefix": "a", "n_predict": 1},
    "/tokenize": {"messages": [{"role": "user", "content": "a"}]},
    "/detokenize": {"tokens": [1]},
}


def conversations():
    """(name, path, body) of what a conversation may have in great number."""
    chat, begin, end = "/v1/chat/completions", b'{"max_tokens":1,"messages":[' + USER, b"]}"
    assistant = b'{"role":"assistant","content":null,"tool_calls":['
    told = b'{"role":"tool","tool_call_id":"%d","content":"x"}'
    yield "messages", chat, repeated(begin + b",", lambda i: USER, end)
    yield "replies", chat, repeated(begin + b",", lambda i: b'{"role":"assistant","content":"b"},' + USER, end)
    yield "calls and results", chat, rounds(begin + b"," + assistant, b"]},", end, call, lambda i: told % i)
    yield "turns of a call", chat, repeated(
        begin + b",", lambda i: assistant + call(i) + b"]}," + told % i, end)
    yield "results without a call", chat, repeated(begin + b"," + assistant + call(0) + b"]},", lambda i: told % (i + 1), end)
    yield "results of one id", chat, repeated(begin + b"," + assistant + call(0) + b"]},", lambda i: told % 0, end)
    for name, value in (("1", "1"), ("null", "null"), ("[]", "[]"), ("text", '"abc"')):
        arguments = escaped(many_names(SIZE // (13 + 2 * len(value)), value))
        yield f"names of arguments, {name}", chat, begin + b"," + assistant + call(0, arguments) + b"]}," + told % 0 + end
    deep = escaped('{"a":' + "[" * 1_000_000 + "]" * 1_000_000 + "}")
    yield "levels of arguments", chat, begin + b"," + assistant + call(0, deep) + b"]}," + told % 0 + end
    yield "parts", chat, repeated(b'{"max_tokens":1,"messages":[{"role":"user","content":[', lambda i: b'{"type":"text","text":"a"}', b"]}]}")
    yield "names of a message", chat, repeated(b'{"max_tokens":1,"messages":[{"role":"user","content":"a",', lambda i: b'"%d":null' % i, b"}]}")
    yield "tools", chat, repeated(begin + b'],"tools":[', tool, end)
    yield "tools, one required", chat, repeated(begin + b'],"tool_choice":"required","tools":[', tool, end)
    yield "tools, the last named", chat, repeated(
        begin + b'],"tool_choice":{"type":"function","function":{"name":"f0"}},"tools":[', tool, end)
    properties = begin + b'],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{'
    yield "properties of a tool", chat, repeated(properties, lambda i: b'"p%d":{"type":"string"}' % i, b"}}}}]}")
    yield "properties of a strict tool", chat, repeated(
        properties.replace(b'"name":"f",', b'"name":"f","strict":true,'), lambda i: b'"p%d":{"type":"string"}' % i, b"}}}}]}")
    schema = begin + b'],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":'
    yield "properties", chat, repeated(schema + b'{"type":"object","properties":{', lambda i: b'"p%d":{"type":"string"}' % i, b"}}}}}")
    yield "required", chat, repeated(schema + b'{"type":"object","required":[', lambda i: b'"p%d"' % i, b"]}}}}")
    yield "enum", chat, repeated(schema + b'{"enum":[', lambda i: b'"%d"' % i, b"]}}}}")
    yield "anyOf", chat, repeated(schema + b'{"anyOf":[', lambda i: b'{"const":%d}' % i, b"]}}}}")
    yield "definitions", chat, repeated(schema + b'{"type":"string","$defs":{', lambda i: b'"d%d":{"type":"string"}' % i, b"}}}}}")
    yield "grammar", "/v1/completions", b'{"prompt":"a","grammar":"root ::= ' + rb'\"a\" ' * (SIZE // 6 - 100) + b'"}'
    yield "rules", "/v1/completions", repeated(b'{"prompt":"a","grammar":"root ::= r0\\n', lambda i: b"r%d ::= r%d" % (i, i + 1), b'"}', b"\\n")
    yield "regex", "/v1/completions", b'{"prompt":"a","regex":"' + b"a" * (SIZE - 100) + b'"}'
    yield "alternatives", "/v1/completions", repeated(b'{"prompt":"a","regex":"', lambda i: b"a%d" % i, b'"}', b"|")
    yield "kwargs", chat, repeated(begin + b'],"chat_template_kwargs":{', lambda i: b'"k%d":1' % i, b"}}")
    yield "biases", "/v1/completions", repeated(b'{"prompt":"a","logit_bias":{', lambda i: b'"%d":1' % i, b"}}")
    yield "biases of ids", "/v1/completions", b'{"prompt":"a","max_tokens":1,"logit_bias":{' + b",".join(b'"%d":1' % i for i in range(500)) + b"}}"
    yield "stops", "/v1/completions", repeated(b'{"prompt":"a","stop":[', lambda i: b'"%d"' % i, b"]}")
    yield "prompts", "/v1/completions", repeated(b'{"prompt":[', lambda i: b"[1]", b"]}")
    yield "inputs", "/v1/embeddings", repeated(b'{"input":[', lambda i: b'"a"', b"]}")
    yield "files", "/infill", repeated(b'{"input_prefix":"a","input_extra":[', lambda i: b'{"filename":"f%d","text":"a"}' % i, b"]}")
    yield "items", "/v1/responses", rounds(
        b'{"max_output_tokens":1,"input":[', b",", b"]}",
        lambda i: b'{"type":"function_call","call_id":"%d","name":"f","arguments":"{}"}' % i,
        lambda i: b'{"type":"function_call_output","call_id":"%d","output":"x"}' % i)
    yield "flat tools", "/v1/responses", repeated(b'{"input":"a","tools":[', lambda i: b'{"type":"function","name":"f%d"}' % i, b"]}")
    yield "blocks", "/v1/messages", rounds(
        b'{"max_tokens":1,"messages":[{"role":"assistant","content":[', b']},{"role":"user","content":[', b"]}]}",
        lambda i: b'{"type":"tool_use","id":"%d","name":"f","input":{}}' % i,
        lambda i: b'{"type":"tool_result","tool_use_id":"%d","content":"x"}' % i)
    yield "texts and blocks", "/v1/messages", repeated(
        b'{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[',
        lambda i: b'{"type":"text","text":"a"},{"type":"tool_use","id":"%d","name":"f","input":{}}' % i,
        b']},{"role":"user","content":"a"}]}')
    yield "input of a call", "/v1/messages", repeated(
        b'{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{',
        lambda i: b'"k%d":1' % i,
        b'}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"}]}]}')
    yield "empty schemas", "/v1/messages", repeated(
        b'{"max_tokens":1,"messages":[' + USER + b'],"tools":[', lambda i: b'{"name":"f%d","input_schema":{}}' % i, b"]}")
    yield "calls", "/api/chat", rounds(
        b'{"stream":false,"messages":[{"role":"assistant","tool_calls":[', b"]},", b"]}",
        lambda i: b'{"function":{"name":"f","arguments":{}}}', lambda i: b'{"role":"tool","content":"x"}')
    system = b'{"role":"system","content":"a"}'
    yield "system messages", chat, repeated(begin.replace(USER, system) + b",", lambda i: system, b"," + USER + end)
    yield "system messages behind a question", chat, repeated(begin + b",", lambda i: system, end)
    yield "system messages in turn", chat, repeated(begin + b",", lambda i: system + b"," + USER, end)
    yield "system messages as texts", "/apply-template", repeated(b'{"messages":[' + system + b",", lambda i: system, b"," + USER + b"]}")
    yield "questions of empty replies", chat, repeated(begin + b",", lambda i: b'{"role":"assistant"},' + USER, end)
    name = b'{"type":"function","function":{"name":"f%d"}}'
    yield "tools, all allowed", chat, rounds(
        begin + b'],"tools":[', b'],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[', b"]}}}",
        tool, lambda i: name % i)
    yield "tools, others allowed", chat, rounds(
        begin + b'],"tools":[', b'],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[', b"]}}}",
        tool, lambda i: name % (i + 10_000_000))
    yield "tools of one text", chat, repeated(begin + b'],"tools":[', lambda i: b'{"type":"custom","custom":{"name":"f%d"}}' % i, end)
    yield "fields of tools", chat, repeated(begin + b'],"tools":[{"type":"function","function":{"name":"f",', lambda i: b'"k%d":1' % i, b"}}]}")
    yield "fields of messages", chat, repeated(begin + b",", lambda i: b'{"role":"user","content":"a","k%d":1}' % i, end)
    yield "other parts", chat, repeated(b'{"max_tokens":1,"messages":[{"role":"tool","tool_call_id":"1","content":[', lambda i: b'{"type":"t%d"}' % i, b"]}]}")
    yield "calls of one text", chat, repeated(
        begin + b"," + assistant, lambda i: b'{"id":"%d","type":"custom","custom":{"name":"f","input":"x"}}' % i, b"]}" + end)
    nested = [b'{"type":"search_result","content":[' * 30, b"]}" * 30]
    yield "parts in parts", chat, repeated(
        b'{"max_tokens":1,"messages":[{"role":"user","content":[' + nested[0], lambda i: b'{"type":"text","text":"a"}', nested[1] + b"]}]}")
    nested = [b'{"type":"document","source":{"type":"content","content":[' * 19, b"]}}" * 19]
    yield "documents in documents", "/v1/messages", repeated(
        b'{"max_tokens":1,"messages":[{"role":"user","content":[' + nested[0], lambda i: b'{"type":"text","text":"a"}', nested[1] + b"]}]}")
    nested = [b'{"type":"namespace","name":"","tools":[' * 29, b"]}" * 29]
    yield "tools in namespaces", "/v1/responses", repeated(
        b'{"input":"a","tools":[' + nested[0], lambda i: b'{"type":"function","name":"f%d"}' % i, nested[1] + b"]}")
    yield "namespaces", "/v1/responses", repeated(
        b'{"input":"a","tools":[', lambda i: b'{"type":"namespace","name":"n%d","tools":[{"type":"function","name":"f"}]}' % i, b"]}")
    yield "items of other tools", "/v1/responses", rounds(
        b'{"max_output_tokens":1,"input":[', b",", b"]}",
        lambda i: b'{"type":"shell_call","call_id":"%d","action":{}}' % i,
        lambda i: b'{"type":"shell_call_output","call_id":"%d","output":"x"}' % i)
    yield "system blocks", "/v1/messages", repeated(
        b'{"max_tokens":1,"messages":[' + USER + b'],"system":[', lambda i: b'{"type":"text","text":"a"}', b"]}")
    yield "results of blocks", "/v1/messages", repeated(
        b'{"max_tokens":1,"messages":[{"role":"user","content":[', lambda i: b'{"type":"tool_result","tool_use_id":"%d","content":[]}' % i, b"]}]}")
    yield "images", "/api/chat", repeated(b'{"stream":false,"messages":[{"role":"user","content":"a","images":[', lambda i: b'"a"', b"]}]}")
    yield "documents", "/v1/rerank", repeated(b'{"query":"a","documents":[', lambda i: b'"d%d"' % i, b"]}")
    yield "objects of documents", "/v1/rerank", repeated(b'{"query":"a","documents":[', lambda i: b'{"text":"d%d"}' % i, b"]}")
    yield "a long document", "/v1/rerank", b'{"query":"a","documents":["' + b"a " * (SIZE // 2 - 100) + b'"]}'
    yield "a long query", "/v1/rerank", b'{"documents":["a","b","c"],"query":"' + b"a " * (SIZE // 2 - 100) + b'"}'
    yield "names of a file", "/infill", repeated(b'{"input_prefix":"a","input_extra":[{', lambda i: b'"k%d":1' % i, b"}]}")
    yield "tokens", "/detokenize", repeated(b'{"tokens":[', lambda i: b"%d" % (100 + i % 200), b"]}")


def schemas():
    """(name, path, body) of schemas as large as a grammar may be, in each place where one is enforced."""
    most = 120_000
    defs = rounds(b'{"$defs":{', b'},"anyOf":[', b"]}", lambda i: b'"d%d":{"type":"string"}' % i, lambda i: b'{"$ref":"#/$defs/d%d"}' % i, most)
    names = [b'"k%d":{"const":1}' % i for i in range(12)]
    required = b'"required":[' + b",".join(name.split(b":")[0] for name in names) + b"]"
    level = b'{"type":"object","properties":{"%s":'
    shapes = {
        "references": defs,
        "references in a row": repeated(
            b'{"$ref":"#/$defs/d0","$defs":{', lambda i: b'"d%d":{"type":"array","items":{"$ref":"#/$defs/d%d"}}' % (i, i + 1), b"}}", most=most),
        "anchors": rounds(b'{"$defs":{', b'},"anyOf":[', b"]}", lambda i: b'"d%d":{"$anchor":"a%d","type":"string"}' % (i, i),
                          lambda i: b'{"$ref":"#a%d"}' % i, most),
        "schemas that are not apart": repeated(
            b'{"oneOf":[', lambda i: b'{"type":"object",' + required + b',"properties":{' + b",".join(names) + b"}}", b"]}", most=most),
        "schemas that are apart at last": repeated(
            b'{"oneOf":[', lambda i: b'{"type":"object",' + required[:-1] + b',"z"],"properties":{' + b",".join(names) + b',"z":{"const":%d}}}' % i,
            b"]}", most=most),
        "two long schemas": b'{"oneOf":[' + b",".join(
            repeated(b'{"type":"object","properties":{', lambda i: b'"k%d":{}' % i, b"},", most=most // 4)
            + repeated(b'"required":[', lambda i: b'"k%d"' % i, b"]}", most=most // 5) for _ in range(2)) + b"]}",
        "constants that are apart": repeated(b'{"oneOf":[', lambda i: b'{"enum":[%s]}' % b",".join(b"%d" % j for j in range(i * 80, i * 80 + 80)), b"]}", most=most),
        "properties that do not come": rounds(
            b'{"type":"object","maxProperties":2500,"properties":{', b'},"required":[', b"]}",
            lambda i: b'"a%d":true,"b%d":true' % (i, i), lambda i: b'"b%d"' % i, most),
        "a long way": repeated(
            level % (b"x" * 1500) * 30 + b'{"type":"object","properties":{', lambda i: b'"p%d":{"type":"null"}' % i, b"}}" + b"}}" * 30, most=most),
        "other names": repeated(b'{"type":"object","additionalProperties":true,"properties":{', lambda i: b'"%060d":true' % i, b"}}", most=most),
        "items": repeated(b'{"type":"array","prefixItems":[', lambda i: b"true", b"]}", most=most),
        "choices": repeated(b'{"anyOf":[', lambda i: b'{"type":"object","properties":{"a":{"const":%d}}}' % i, b"]}", most=most),
        "constants": repeated(b'{"enum":[', lambda i: b'"%d"' % i, b"]}", most=most),
        "patterns": repeated(b'{"type":"object","properties":{', lambda i: b'"p%d":{"pattern":"^a{1,9}b*$"}' % i, b"}}", most=most),
        "what is not enforced": repeated(b'{"type":"object","properties":{', lambda i: b'"p%d":{"not":{}}' % i, b"}}", most=most),
        "what is not enforced, at last": repeated(
            b'{"type":"object","properties":{', lambda i: b'"p%d":{"type":"string"}' % i,
            b"," + b",".join(b'"n%d":{"not":{}}' % i for i in range(400)) + b"}}", most=most),
    }
    chat = b'{"max_tokens":1,"messages":[' + USER + b"],"
    for name, schema in shapes.items():
        function = b'"tools":[{"type":"function","function":{"name":"f","parameters":' + schema
        yield f"schema: {name}", "/v1/chat/completions", chat + b'"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":' + schema + b"}}}"
        yield f"schema of a tool: {name}", "/v1/chat/completions", chat + b'"tool_choice":"required",' + function + b"}}]}"
        yield f"schema of a strict tool: {name}", "/v1/chat/completions", chat + function + b',"strict":true}}]}'
    tool_of = b'{"type":"function","function":{"name":"f%d","parameters":{"type":"object","properties":{"a":{"pattern":"(?=b)"},"b":{"not":{}}}}}}'
    yield "schemas that are not enforced", "/v1/chat/completions", repeated(chat + b'"tool_choice":"required","tools":[', lambda i: tool_of % i, b"]}")


def fields(url: str):
    """(name, path, body): each of KINDS in every field that a body of the path may have."""
    description = json.loads(server.get(url, "/openapi.json"))
    schemas = description["components"]["schemas"]
    for path, operations in description["paths"].items():
        if "post" not in operations:
            continue
        body = operations["post"]["requestBody"]["content"]["application/json"]["schema"]
        body = schemas[body["$ref"].rsplit("/", 1)[-1]]
        for field in [*body["properties"], "no such field"]:
            others = {name: value for name, value in NEEDED.get(path, {}).items() if name != field}
            if path == "/tokenize" and field == "prompt":
                others = {}
            start = json.dumps(others).encode()[:-1] + (b"," if others else b"")
            for kind, value in KINDS.items():
                yield f"{field}: {kind}", path, start + escaped(field) + b":" + value + b"}"
    for path in NEEDED:
        for kind, value in KINDS.items():
            yield f"body: {kind}", path, value


def framings():
    """(name, bytes) of requests whose framing is what is long."""
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    text = b'{"prompt":"' + b"a" * 100_000 + b'"}'
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    yield "chunks of a byte", chunked + b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n"
    text = b'{"prompt":"' + b"a" * 10_000 + b'"}'
    yield "chunks with extensions", chunked + b"".join(b"1;x=%s\r\n%c\r\n" % (b"y" * 400, byte) for byte in text) + b"0\r\n\r\n"
    yield "header lines", head + b"A: b\r\n" * 2600 + b"Content-Length: 14\r\n\r\n" + b'{"prompt":"a"}'
    yield "a header line", head + b"A: " + b"b" * 16000 + b"\r\nContent-Length: 14\r\n\r\n" + b'{"prompt":"a"}'
    yield "a query", b"GET /health?" + b"a=b&" * 4000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Neighbour:
    """Sends short requests all the time, one after the other, and keeps the longest wait since it was last asked."""

    def __init__(self, url: str):
        self.url, self.longest, self.ends = url, 0.0, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends:
            begin = time.monotonic()
            status, _ = server.answer(self.url, "/tokenize", {"prompt": "a"})
            self.longest = max(self.longest, time.monotonic() - begin if status == 200 else math.inf)
            time.sleep(0.005)

    def take_longest(self) -> float:
        longest, self.longest = self.longest, 0.0
        return longest


def send(url: str, text: bytes) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=600)
    connection.connect()
    connection.sock.sendall(text)
    answer = http.client.HTTPResponse(connection.sock)
    answer.begin()
    return answer.status, answer.read().decode()


def judge_all(arguments, url: server.Url, where: str, with_fields: bool) -> list:
    neighbour = Neighbour(url)
    results = []

    def judge(name, ask):
        if not re.search(arguments.only, name):
            return
        neighbour.take_longest()
        begin = url.processor_seconds()
        status, answer = ask()
        taken = url.processor_seconds() - begin
        results.append((taken, neighbour.take_longest(), status, name, answer))
        if is_slow(results[-1], arguments.seconds):
            print(f"SLOW OR WRONG: {line(results[-1])}", flush=True)

    try:
        for make in (conversations(), schemas(), *([fields(url)] if with_fields else [])):
            for name, path, body in make:
                assert len(body) <= 4 << 20, (name, len(body))
                judge(f"{path} {name}{where}", lambda path=path, body=body: server.answer(url, path, body))
        for name, text in framings() if with_fields else ():
            judge(f"HTTP {name}", lambda text=text: send(url, text))
    finally:
        neighbour.ends = True
        neighbour.thread.join()
    return results


def is_slow(result, seconds: float) -> bool:
    taken, neighbour, status, name, _ = result
    most = seconds + (GRAMMAR_SECONDS if WITH_GRAMMAR.search(name) else 0)
    return taken > most or neighbour > seconds or not (status == 200 or 400 <= status < 500)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="", help="a regular expression for `path name`")
    parser.add_argument("--model", type=pathlib.Path, default=server.MODEL)
    arguments = parser.parse_args()
    results = []
    for number, (template, text) in enumerate(TEMPLATES.items()):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(text)
            file.flush()
            options = ("-t", "1", "--timeout", "600", "--pooling", "mean", "--chat-template", file.name)
            with server.serve(arguments.bin_dir, *options, model=arguments.model) as url:
                results += judge_all(arguments, url, f", a template {template}", with_fields=number == 0)
    results.sort(reverse=True, key=lambda one: one[:2])
    print(f"{len(results)} bodies; the slowest:")
    for one in results[:10]:
        print(line(one))
    slow = [one for one in results if is_slow(one, arguments.seconds)]
    print(f"{len(slow)} beyond {arguments.seconds} s, or answered otherwise than by 200 or 4xx")
    return 1 if slow else 0


def line(result) -> str:
    taken, neighbour, status, name, answer = result
    return f"{taken:7.2f} s, a neighbour waited {neighbour:5.2f} s  {status}  {name}  {answer[:120]!r}"


if __name__ == "__main__":
    sys.exit(main())
