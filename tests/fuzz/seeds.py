"""What the fuzzers begin with besides tests/fuzz/corpus: files of the repository, small ones of every format, and,
where LLM_TEST_DATA is set, real files and the inputs that once failed.

    seeds.py FOLDER    writes FOLDER/TARGET/... and FOLDER/TARGET.dict
"""

import json
import os
import re
import struct
import sys
from pathlib import Path

import tiny_files as tiny

ROOT = tiny.ROOT
HERE = Path(__file__).resolve().parent
N_TOKENIZERS = 9
TOOL = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["s"]}}}
HI = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def parsers() -> list[str]:
    """The parsers of request_target.cpp, whose number is the first byte of its input."""
    lists = re.findall(r"constexpr Parse<.*?\{(.*?)\}", (HERE / "request_target.cpp").read_text(), re.S)
    return re.findall(r"\w+", ",".join(lists))


def bodies() -> list[tuple[str, dict]]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"s\": \"x\"}"}}
    history = HI + [{"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "18"}]}]
    sampling = {"temperature": 0.7, "top_p": 0.9, "seed": 3, "stop": ["a", "b"], "max_tokens": 4, "n": 2,
                "logit_bias": {"5": -100}, "min_p": 0.1, "top_k": 5, "repeat_penalty": 1.1}
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
              {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"s": "x"}}]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "18"}]}]
    own = {"name": "f", "input_schema": TOOL["function"]["parameters"]}
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    return [
        ("parse_completion", {"prompt": "Once", **sampling, "echo": True, "logprobs": 2}),
        ("parse_completion", {"prompt": [[5, 6], [7]], "stream": True, "stream_options": {"include_usage": True}, "suffix": "x"}),
        ("parse_infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}], "n_predict": 3}),
        ("parse_chat", {"messages": HI, **sampling, "logprobs": True, "top_logprobs": 2, "user": "u"}),
        ("parse_chat", {"messages": history, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}),
        ("parse_chat", {"messages": HI, "response_format": schema, "chat_template_kwargs": {"enable_thinking": False}}),
        ("parse_responses", {"input": "Hi", "instructions": "Be brief.", "max_output_tokens": 4}),
        ("parse_responses", {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                       {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                       {"type": "function_call_output", "call_id": "c", "output": "18"}],
             "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]}),
        ("parse_messages", {"messages": blocks, "max_tokens": 4, "system": [{"type": "text", "text": "Be."}], "tools": [own],
             "tool_choice": {"type": "auto"}}),
        ("parse_ollama_chat", {"messages": HI + [{"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"s": "x"}}}]}, {"role": "tool", "content": "18"}],
            "tools": [TOOL], "options": {"temperature": 0, "num_predict": 3, "stop": ["x"]}, "think": False}),
        ("parse_ollama_text", {"prompt": "Hi", "system": "Be.", "format": "json", "options": {"seed": 1}, "stream": False}),
        ("parse_embeddings", {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}),
        ("parse_ollama_embed", {"input": "a", "truncate": True}),
        ("parse_ollama_embedding", {"prompt": "a"}),
        ("parse_llama", {"prompt": "Once", "n_predict": 3, "cache_prompt": True, "samplers": ["top_k"]}),
        ("parse_rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
        ("count_answer", {"messages": blocks, "system": "Be."}),
        ("tokenize_answer", {"prompt": "Hi", "add_special": True, "parse_special": True}),
        ("tokenize_answer", {"messages": HI}),
        ("detokenize_answer", {"tokens": [5, 6, 7]}),
    ]


def text(content: str | bytes) -> bytes:
    data = content if isinstance(content, bytes) else content.encode()
    return bytes([len(data)]) + data


def vocabularies() -> list[bytes]:
    ids = bytes([1, 2, 0, 255, 255, 255, 255, 255])
    pieces = [(2, "<unk>"), (3, "<s>"), (3, "</s>"), (1, "\u2581a"), (1, "ab"), (4, "<|x|>"), (5, "abc"), (1, "\u4f60")]
    def tokens(of):
        return bytes([len(of)]) + b"".join(bytes([kind, 256 - i if i else 0]) + text(piece) for i, (kind, piece) in enumerate(of))
    words = [(1, "ab"), (1, "\u0120a"), (3, "<|im_end|>"), (4, "<x>"), (1, "abc")]
    merges = b"\x03" + text("a b") + text("\u0120 a") + text("ab c")
    after = b" ab a\xc3\xa9 <|x|>\xff\x00\x01\x02\x03\x04"
    made = [bytes([flags, 0]) + ids + tokens(pieces) + b"\0" + after for flags in (0, 2, 2 + 16, 2 + 4 + 8 + 64, 2 + 128)]
    made += [bytes([flags, pre]) + bytes([255] * 8) + tokens(words) + merges + after
             for flags, pre in ((3, 0), (3, 2), (3, 4), (3, 5), (3, 12), (1, 5))]
    return made


REPLIES = [
    "Just text.\n", "<think>\nHm.\n</think>\n\nYes. ", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a } \\\" b\"}}\n</tool_call>",
    "[CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}, {\"name\": \"g\", \"arguments\": {}}] So.",
    "<tool_call>f<args>{\"s\": \"x\"}</tool_call>", "<tool_call>f<k>s</k>x</v><k>n</k>3</v></tool_call> and",
    "{\"name\": \"f\", \"parameters\": {\"n\": 3}}", "a <tool b <think",
    "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    "{\"s\": \"x\"}<|call|>", "<|channel|>final<|message|>Yes"]
GRAMMARS = [
    (0, 'root ::= "a" item{1,3} | [^b-d]* # c\nitem ::= ("x" | "y")+ "\\n"?'), (0, 'root ::= ""'), (1, r"[a-z]{2,4}(\d+|x?)\.\w*"),
    (1, r"^(?:a|b)+?[^\]]$"), (2, '{"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":120}},"required":["a"]}'),
    (2, '{"type":"array","items":{"enum":["x",1,null]},"minItems":1,"maxItems":3}'), (2, '{"$ref":"#/$defs/t","$defs":{"t":{"type":"string","pattern":"^a+$"}}}'),
    (2, '{"anyOf":[{"const":"x"},{"type":"number","exclusiveMinimum":0.5,"multipleOf":0.25},{"type":"string","format":"date"}]}')]
HTTP = [
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /v1/completions?a=b%20c&d HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nOrigin: https://a.example\r\nAuthorization: Bearer k\r\n"
    "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}GET /%2F HTTP/1.0\r\nHost: llm.example\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n2;x=y\r\n{}\r\n0\r\nT: 1\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: a\r\nx-api-key: k\r\nConnection: close\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"]


def importances() -> list[bytes]:
    values = struct.pack("<4f", 1, 2, 0, 4)
    binary = struct.pack("<ii", 1, 3) + b"a.b" + struct.pack("<ii", 2, 4) + values
    matrix = tiny.gguf([tiny.entry("imatrix.chunk_count", 4, 1)], [("a.in_sum2", [2, 2]), ("a.counts", [1, 2])])
    return [binary, binary + struct.pack("<ii", 1, 1) + b"t", matrix]


def adapters() -> list[bytes]:
    """Of the model of tests/golden/architectures/phi3.gguf."""
    about = [tiny.entry("general.type", tiny.STRING, "adapter"), tiny.entry("adapter.type", tiny.STRING, "lora"),
             tiny.entry("general.architecture", tiny.STRING, "phi3"), tiny.entry("adapter.lora.alpha", tiny.F32, 4.0)]
    shapes = (("blk.0.attn_qkv", 40, 80), ("blk.0.ffn_up", 40, 80), ("blk.0.ffn_down", 40, 40), ("token_embd", 40, 9))
    return [tiny.gguf(about, [(f"{name}.weight.lora_a", [columns, 2]), (f"{name}.weight.lora_b", [2, rows])])
            for name, columns, rows in shapes]


def templates() -> list[bytes]:
    language = json.loads((ROOT / "tests/golden/chat/language.json").read_text())
    made = [case[0].encode() for case in language["cases"]]
    return made + [path.read_bytes() for path in sorted((ROOT / "tests/golden/chat").glob("*.jinja"))]


def own_seeds():
    """(target, bytes) of what the repository itself has."""
    for part in tiny.PARTS:
        yield "gguf", tiny.model(part)
    yield "gguf", tiny.model("qwen2", "gpt2", tied=False)
    yield "gguf", tiny.model("gemma4", "gemma4")
    yield "gguf", tiny.gguf(tiny.vocabulary("llama")[0], [])
    for made in vocabularies():
        yield "vocabulary", made
    for made in adapters():
        yield "adapter", made
    for made in importances():
        yield "importance", made
    texts = (ROOT / "tests/golden/bpe/texts.jsonl").read_text().split("\n")
    for i, line in enumerate(texts[:180]):
        yield "tokenizer", bytes([i % N_TOKENIZERS]) + text(bytes(range(i % 40))) + json.loads(line).encode()
    for path in sorted((ROOT / "tests/validate/reference/npz").glob("*.npz")):
        if path.stat().st_size < 100000:  # one is a whole run's activations
            yield "npz", b"\0" + path.read_bytes()
    f32 = tiny.npy("<f4", (2, 3), struct.pack("<6f", *range(6)))
    meta = json.dumps({"format": "llmcheck-act/1"}).encode()
    def member(name, data):
        return text(name) + struct.pack("<H", len(data)) + data
    yield "npz", b"\1" + member("a.npy", f32) + member("b.npy", tiny.npy(">i8", (1,), bytes(8)))
    yield "npz", b"\1" + member("__meta__.npy", tiny.npy("|u1", (len(meta),), meta)) + member("tokens.npy", tiny.npy("<i4", (2,), bytes(8)))
    receipt = tiny.receipt()
    chat = receipt | {"options": receipt["options"] | {"chat_template": "chatml", "grammar": None}}
    chat["options"].pop("grammar")
    chat.pop("rows_sha256")
    for one in (receipt, chat):
        yield "receipt", json.dumps(one, indent=1).encode()
        yield "receipt", (json.dumps({"format": "llm-receipt-log/1", "n": 1, "time": "2026-11-26T00:00:00Z", "previous": "0" * 64,
                                      "receipt": one}) + "\n").encode() * 2
    for first, ids, sections in ((0, [], []), (0, [5, 6], [784]), (1, [5, 6, 7], [784, 0]), (2, [5, 6], [0, 100])):
        yield "state_file", b"\0" + tiny.state_head(first, ids, sections)
    yield "state_file", b"\1LLMSTATE" + struct.pack("<I", 1)
    for turns in (0, 1, 3):
        yield "session", tiny.session(turns)
    for i, reply in enumerate(REPLIES):
        for form in range(7):
            yield "reply", bytes([form, i % 4]) + reply.encode()
    for kind, source in GRAMMARS:
        yield "grammar", bytes([kind]) + text(b"\5abc\x10\x22") + source.encode()
    for parser, body in bodies():
        yield "request", bytes([parsers().index(parser)]) + json.dumps(body).encode()
    for request in HTTP:
        yield "http", b"\3" + request.encode()
    for template in templates():
        yield "jinja", template
        if b"messages" in template:
            yield "chat_style", template
    for word in ("chatml", "llama2"):
        yield "chat_style", f"{{% for m in messages %}}<|{word}|>{{{{ m.role }}}}{{{{ m.content }}}}{{% endfor %}}".encode()


def foreign_seeds(data: Path):
    """The same of files that are not ours to distribute: LLM_TEST_DATA, and the inputs that once failed beside it."""
    for path in sorted(data.glob("*.inp")):
        for i, part in enumerate(path.read_bytes().split(b"__ggml_vocab_test__")):
            yield "tokenizer", bytes([i % N_TOKENIZERS, 0]) + part
    for path in sorted(data.glob("templates/*.jinja")) + sorted(data.parent.glob("cases/**/*.jinja")):
        for target in ("jinja", "chat_style"):
            yield target, path.read_bytes()
    for path in sorted(data.parent.glob("cases/**/*.json")):
        for number in (2, 3, 4, 5):
            yield "request", bytes([number]) + path.read_bytes()


def words() -> dict[str, list[str]]:
    """Words that mutations may put in."""
    page = (ROOT / "docs/fields.md").read_text()
    fields = sorted({f'"{name}":' for name in re.findall(r"`([a-z]\w+)", page)})
    keywords = re.findall(r'\{"([$\w]+)"', (ROOT / "engine/grammar/schema_keywords.cpp").read_text())
    jinja = sorted({word for case in templates() for word in re.findall(rb"[a-z_]{2,}|\{%-?|-?%\}|\{\{|\}\}", case)})
    sources = "".join((ROOT / "engine/model" / name).read_text() for name in ("architecture.cpp", "hyper_parameters.cpp", "special_tokens.cpp",
                                                                              "vocab_from_gguf.cpp"))
    keys = sorted(set(re.findall(r'"([a-z_]+(?:\.[a-z_]+)+|[a-z]+_[a-z_]+)"', sources)))
    npy = ["<f4", "<f2", ">f8", "<i8", "|u1", "True", "descr", "fortran_order", "shape", "__meta__.npy", "tokens.npy", "positions.npy",
           "step_ptr.npy"]
    receipt = sorted(set(re.findall(r'"(\w+)":', json.dumps(tiny.receipt()))))
    http = ["Host: ", "Content-Length: ", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "\r\n\r\n", "Origin: ", "%2e",
            "Authorization: Bearer k", "Connection: keep-alive", "HTTP/1.0", "HTTP/1.1"]
    reply = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[CALLS][", "<args>", "<k>", "</k>", "</v>", "<|channel|>", "<|message|>",
             "<|call|>", "<|end|>", "<|start|>assistant", " to=functions.f", '"name"', '"arguments"', '"parameters"']
    return {"request": fields, "grammar": [f'"{word}":' for word in keywords], "jinja": [word.decode() for word in jinja][:900],
            "chat_style": ["messages", "add_generation_prompt", "tool_calls", "<|im_end|>"], "gguf": keys, "npz": npy,
            "receipt": [f'"{word}":' for word in receipt], "http": http, "reply": reply,
            "session": ['"turns"', '"message"', '"reply"', '"reply_ids"', '"system"', '"next_draw"', '"forgotten_turns"', "null"],
            "tokenizer": ["\u2581", "<s>", "<0x0A>", "<|im_end|>", "\u0120", "\u0301", "\u200d"]}


def write(folder: Path) -> None:
    data = os.environ.get("LLM_TEST_DATA")
    counts: dict[str, int] = {}
    for target, content in [*own_seeds(), *(foreign_seeds(Path(data)) if data else ())]:
        counts[target] = counts.get(target, 0) + 1
        (folder / target).mkdir(parents=True, exist_ok=True)
        (folder / target / f"{counts[target]:04}").write_bytes(content)
    for target, entries in words().items():
        lines = ["\"" + "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else f"\\x{b:02x}" for b in word.encode()) + "\"\n"
                 for word in entries if word]
        (folder / f"{target}.dict").write_text("".join(lines))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
