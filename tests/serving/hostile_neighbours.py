#!/usr/bin/env python3
"""A server of eight models, of which one and its clients are hostile in every way known, under 16 ordinary clients of the
other seven: no ordinary request may fail, have another text, or wait more than a second longer than without the attack.

    tests/serving/hostile_neighbours.py BIN_DIR [--seconds 10] [--only REGEX] [--quick]

Each attack has a server of its own, which must live and drain at the end. Prints a line for each: ordinary requests, the
longest wait of one, how much longer that is than without an attack, and what the attackers got. Exit code 1 where one does
not hold. With --quick each attack lasts a second and nothing is said of waits, so that a busy machine can run it.
"""

import argparse
import collections
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import long_bodies
import server

CLIENTS = 16
MOST_LONGER = 1.0  # seconds
HOSTILE = "a-hostile"  # the first by name, so it is meant where none is named
OPTIONS = ("-t", "1", "--kv-memory", "4", "--parallel", "16", "--queue", "64", "--timeout", "20")
POLITE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
STATES = "{% macro m(x) %}" + "{% if 1 %}" * 150 + "{{ m(x) }}" + "{% endif %}" * 150 + "{% endmacro %}{{ m(1) }}"

# Chat templates that recurse, work or build without end. What they do not do when the model is loaded they do when asked.
TEMPLATES = {
    "call recursion": "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
    "statement recursion": STATES,
    "expression recursion": "{% macro m(x) %}{{ " + "(" * 20 + "m(x+1)|string|upper|trim" + "~'')" * 20 + " }}{% endmacro %}{{ m(1) }}",
    "filter recursion": "{% macro m(x) %}{{ [1]|map('string')|join ~ (x|string|replace('1', m(x))) }}{% endmacro %}{{ m(1) }}",
    "loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i * j %}{% endfor %}{% endfor %}",
    "search": "{% set h='a'*16000000 %}{% set n='a'*8000000+'b' %}{{ n in h }}{{ h|replace(n,'')|length }}{{ h.split(n)|length }}",
    "strip": "{% set a='a'*16000000 %}{{ a.strip('b'*15999999+'a')|length }}",
    "length": "{% set a='x'*16000000 %}{% for i in range(100000) %}{% set y=a|length %}{% endfor %}",
    "blanks": "{% set a=' '*8000000+'a '*3000000 %}{{ a.rsplit()|length }}{{ a.split()|length }}",
    "doubling": "{% set ns=namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "keys": "{% set ns=namespace(l=[]) %}{% set k=(123456789012345,)*900000 %}{% for i in range(3000) %}"
            "{% set ns.l=ns.l+[{}[k]] %}{% endfor %}{{ ns.l|length }}",
    "names": "".join("{%% set a%d=1 %%}" % i for i in range(50000)) + "{{ a1 }}",
    "huge": "{# " + "x" * 500_000 + " #}" + "{{ messages[0].content }}" * 20_000,
    "sort": "{{ range(100000)|list|sort(reverse=true)|unique|list|sort|length }}" * 1000,
    "by request": "{% for m in messages %}{{ m.content }}{% endfor %}{% for i in range(messages[0].content|length * 100000) %}"
                  "{% set x = messages[0].content|upper %}{% endfor %}",
}
GRAMMARS = (
    {"grammar": 'root ::= a\na ::= a a | [a-z ] | ""'},
    {"grammar": "root ::= a\na ::= a a a | a a | [a-z ]"},
    {"grammar": 'root ::= e\ne ::= e e | e "a" e | [a-z ] | "(" e ")"'},
    {"grammar": "root ::= " + " ".join(f"x{i}?" for i in range(200)) + "\n" + "\n".join(f"x{i} ::= [a-z ]*" for i in range(200))},
    {"grammar": "root ::= [a-z]{0,65000} [a-z ]{0,65000}"},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {
        "anyOf": [{"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(j)}} for j in range(60)]}}}},
)
REGEXES = (".*" * 14000, "(a*)*" * 2000, "(a|aa)+" * 1000, "[a-z ]{1,30000}", "(x+x+)+y", "((((a{1,100}){1,100}){1,100}){1,100})")


def with_template(model: bytes, template: str) -> bytes:
    """The GGUF with a chat template, padded so that its tensors stay aligned."""
    version, n_tensors, n_keys = struct.unpack("<IQQ", model[4:24])
    key, text = b"tokenizer.chat_template", template.encode()
    text += b" " * (-(8 + len(key) + 4 + 8 + len(text)) % 32)
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(text)) + text
    return model[:4] + struct.pack("<IQQ", version, n_tensors, n_keys + 1) + pair + model[24:]


def write(path: pathlib.Path, content: bytes, size: int) -> None:
    """In one step, as a careful owner does it, with zeros behind the content."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    os.truncate(beside, size)
    beside.rename(path)


def address_of(url: str):
    parsed = urllib.parse.urlsplit(url)
    return parsed.hostname, parsed.port


# What ordinary clients ask for.


def ordinary_requests(models: list[str]) -> list[tuple[str, dict]]:
    requests = []
    for model in models:
        common = {"model": model, "seed": 7, "max_tokens": 12}
        requests.append(("/v1/completions", {**common, "prompt": "Once upon a time", "temperature": 0}))
        requests.append(("/v1/chat/completions", {**common, "messages": [{"role": "user", "content": "Tell me of a dog."}]}))
        requests.append(("/v1/completions", {**common, "prompt": "The sun", "ignore_eos": True}))
        requests.append(("/tokenize", {"model": model, "prompt": "Once upon a time there was a dog. " * 8}))
    return requests


def said(text: str) -> str:
    """What must not change from one answer to the next."""
    body = json.loads(text)
    return json.dumps(body["choices"] if "choices" in body else body, sort_keys=True)


def ordinary_client(url: str, requests, expected, until: float, number: int, results) -> None:
    pick = random.Random(number)
    while time.monotonic() < until:
        i = pick.randrange(len(requests))
        begin = time.monotonic()
        try:
            status, text = server.answer(url, *requests[i], timeout=60)
            fault = "" if status == 200 and said(text) == expected[i] else f"{status} {text[:300]!r}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            fault = repr(error)
        results.append((time.monotonic() - begin, fault))
        if fault:
            time.sleep(0.2)


def ordinary_clients(url: str, requests, expected, seconds: float, queue) -> None:
    """Of a process of its own: what attackers do in this one must not hold up the clocks of the others."""
    results: list = []
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=ordinary_client, args=(url, requests, expected, until, i, results)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.put(results)


# The attacks. Each has a model file and what a client does, again and again.


class Attack:
    def __init__(self, name: str, client=None, *, template: str = POLITE, options=(), clients: int = 3, prepare=None):
        self.name, self.client, self.template, self.options = name, client, template, options
        self.clients, self.prepare = clients, prepare

    def content(self, model: bytes) -> bytes:
        return with_template(model, self.template)


class Bench:
    """What a hostile client knows."""

    def __init__(self, url: str, pid: int, folder: pathlib.Path, content: bytes, until: float):
        self.url, self.maps = url, pathlib.Path(f"/proc/{pid}/maps")
        self.folder, self.content, self.until = folder, content, until
        self.answers: collections.Counter = collections.Counter()
        self.random = random.Random(1)

    @property
    def model(self) -> pathlib.Path:
        return self.folder / "models" / f"{HOSTILE}.gguf"

    def has_mapped(self, path: pathlib.Path) -> bool:
        """Whether the server reads the file, soon."""
        for _ in range(200):
            with contextlib.suppress(OSError):
                if str(path) in self.maps.read_text(encoding="utf-8"):
                    return True
            time.sleep(0.005)
        return False

    def ask(self, path: str, body, timeout: float = 30) -> None:
        try:
            status, _ = server.answer(self.url, path, body, timeout=timeout)
            self.answers[status] += 1
        except TimeoutError:
            self.answers["left"] += 1
        except (OSError, http.client.HTTPException) as error:
            self.answers[type(error).__name__] += 1


def chat(bench: Bench, number: int) -> None:
    content = bench.random.choice(["hi", "boom " * 100, "a" * 20000])
    timeout = bench.random.choice([0.05, 0.3, 30])
    bench.ask("/v1/chat/completions", {"model": HOSTILE, "max_tokens": 2, "messages": [{"role": "user", "content": content}]}, timeout)


def grammar(bench: Bench, number: int) -> None:
    body = {"model": HOSTILE, "prompt": "Once upon a time", "max_tokens": 120, **bench.random.choice(GRAMMARS)}
    bench.ask("/v1/completions", body, bench.random.choice([0.2, 2, 30]))


def regex(bench: Bench, number: int) -> None:
    body = {"model": HOSTILE, "prompt": "a", "max_tokens": 60, "regex": bench.random.choice(REGEXES)}
    bench.ask("/v1/completions", body, bench.random.choice([0.05, 0.2, 30]))


BODIES: list = []


def long_body(bench: Bench, number: int) -> None:
    _, path, body = bench.random.choice(BODIES)
    bench.ask(path, body, bench.random.choice([0.5, 30]))


def vanish(bench: Bench, number: int) -> None:
    """Clients that go, in every phase, or come byte by byte."""
    body = json.dumps({"model": HOSTILE, "prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
    text = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    open_ones = []
    for _ in range(20):
        with contextlib.suppress(OSError):
            client = socket.create_connection(address_of(bench.url), timeout=5)
            client.sendall(text[: bench.random.randrange(len(text) + 1)] if bench.random.random() < 0.5 else text)
            open_ones.append(client)
    for client in open_ones:
        with contextlib.suppress(OSError):
            for byte in b"X-Slow: 1":
                client.send(bytes([byte]))
                time.sleep(0.001)
    for client in open_ones:
        if bench.random.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        bench.answers["left"] += 1


def do_not_read(bench: Bench, number: int) -> None:
    """Streams whose clients take nothing of them."""
    body = json.dumps({"model": HOSTILE, "prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True, "logprobs": 20}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with contextlib.ExitStack() as open_ones:
        for _ in range(8):
            client = open_ones.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            with contextlib.suppress(OSError):
                client.connect(address_of(bench.url))
                client.sendall((head + body) * 4)
            bench.answers["unread"] += 1
        time.sleep(bench.random.random() * 2)


def send_much(bench: Bench, number: int) -> None:
    """Bodies and headers that are too long or have no end, and lengths that are not kept."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    begin, piece = bench.random.choice((
        (head + b"Content-Type: application/json\r\nContent-Length: 10000000000\r\n\r\n", b"[" * 65536),
        (head + b"Content-Type: application/json\r\nContent-Length: 4194304\r\n\r\n", b" " * 65536),
        (head + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"[" * 65536 + b"\r\n"),
        (head, b"A: " + b"b" * 1000 + b"\r\n"),
        (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000),
    ))
    with contextlib.suppress(OSError), socket.create_connection(address_of(bench.url), timeout=5) as client:
        client.sendall(begin)
        for _ in range(200):
            client.sendall(piece)
    bench.answers["sent"] += 1


def hungry(bench: Bench, number: int) -> None:
    """As much as the limits give, and more."""
    path, body = bench.random.choice((
        ("/v1/completions", {"prompt": ["a"] * 16, "n": 5, "max_tokens": 400, "ignore_eos": True, "logprobs": 20}),
        ("/v1/completions", {"prompt": ["a"] * 128, "n": 128, "max_tokens": 400}),
        ("/v1/completions", {"prompt": ["a " * 400] * 64, "max_tokens": 1}),
        ("/v1/completions", {"prompt": "a " * 1_000_000, "max_tokens": 400}),
        ("/v1/completions", {"prompt": [[100 + i % 200] * 500 for i in range(80)], "echo": True, "logprobs": 20, "max_tokens": 1}),
        ("/v1/embeddings", {"input": ["a " * 200] * 80}),
        ("/v1/embeddings", {"input": [[100]] * 500_000}),
        ("/tokenize", {"prompt": "a" * 4_000_000}),
        ("/detokenize", {"tokens": [200] * 1_000_000}),
    ))
    bench.ask(path, {"model": HOSTILE, **body}, bench.random.choice([0.3, 3, 30]))


def complete(bench: Bench, n_tokens: int) -> None:
    bench.ask("/v1/completions", {"model": HOSTILE, "prompt": "Once", "max_tokens": n_tokens, "ignore_eos": True})


def damage(path: pathlib.Path, kind: str, bench: Bench) -> None:
    size = max(1, path.stat().st_size)
    if kind == "cut":
        os.truncate(path, bench.random.randrange(size))
        return
    with path.open("r+b") as file:
        file.seek(bench.random.randrange(size))
        file.write(bytes(bench.random.randrange(256) for _ in range(20000)))


def damage_load(kind: str, sparse: int):
    def client(bench: Bench, number: int) -> None:
        """The file is written, asked for, and changed at some moment of its load, which so fails each time."""
        if number > 0:
            # Once a load has failed: one that succeeds ends the attack, as the weights are in memory then.
            return complete(bench, 2) if bench.answers[500] > 0 else None
        write(bench.model, bench.content, sparse)
        thread = threading.Thread(target=complete, args=(bench, 2))
        thread.start()
        if bench.has_mapped(bench.model):
            time.sleep(bench.random.random() * 0.1)
            damage(bench.model, kind, bench)
        thread.join()
    return client


def damage_cache(kind: str):
    def client(bench: Bench, number: int) -> None:
        """The packed cache is changed while texts are generated from it."""
        if number > 0:
            return complete(bench, 300)
        time.sleep(bench.random.random() * 0.5)  # texts are under way
        for path in (bench.folder / "cache").glob(f"{HOSTILE}-*.packed"):
            with contextlib.suppress(FileNotFoundError):
                damage(path, kind, bench)
    return client


def attacks() -> list[Attack]:
    cached = ("--packed-cache", "CACHE")
    sparse = 256 << 20
    return [
        *(Attack(f"template: {name}", chat, template=text) for name, text in TEMPLATES.items()),
        Attack("grammars", grammar),
        Attack("regular expressions", regex),
        Attack("bodies of 4 MiB", long_body, clients=6, prepare=lambda: BODIES or BODIES.extend(long_bodies.conversations())),
        Attack("clients that vanish", vanish),
        Attack("clients that do not read", do_not_read),
        Attack("bodies and headers without end", send_much),
        Attack("requests for much memory", hungry),
        *(Attack(f"model {what} while it is loaded", damage_load(kind, sparse))
          for kind, what in (("cut", "cut"), ("over", "overwritten"))),
        *(Attack(f"packed cache {what} while texts are generated", damage_cache(kind), options=cached)
          for kind, what in (("cut", "cut"), ("over", "overwritten"))),
    ]


def hostile_client(attack: Attack, bench: Bench, number: int) -> None:
    while time.monotonic() < bench.until:
        attack.client(bench, number)
        time.sleep(0.001)


# Measuring.


class Outcome:
    def __init__(self, results, answers):
        self.n, self.answers = len(results), answers
        self.median = statistics.median([wait for wait, _ in results] or [0.0])
        self.longest = max((wait for wait, _ in results), default=0.0)
        self.faults = [fault for _, fault in results if fault]
        self.end = ""


def run(bin_dir: pathlib.Path, attack: Attack, model: bytes, seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "models").mkdir()
        polite = with_template(model, POLITE)
        models = [f"good{i}" for i in range(7)]
        for one in models:
            (folder / "models" / f"{one}.gguf").write_bytes(polite)
        content = attack.content(model)
        (folder / "models" / f"{HOSTILE}.gguf").write_bytes(content)
        options = [str(folder / "cache") if option == "CACHE" else option for option in attack.options]
        if options:  # the server is to map a cache, and not to make one
            subprocess.run([bin_dir / "llmrun", folder / "models" / f"{HOSTILE}.gguf", "-p", "a", "-n", "1", "-q", *options],
                           check=True, stdout=subprocess.DEVNULL)
        command = [bin_dir / "llmserve", "--models", folder / "models", "--port", "0", "-q", *OPTIONS, *options]
        with (folder / "log").open("w+") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                outcome = measure(process, folder, attack, content, models, seconds)
                died = process.poll()
                process.terminate()
                code = process.wait(timeout=60)
                outcome.end = f"died with {died}" if died is not None else f"ended with {code}" if code != 0 else ""
            except (OSError, subprocess.TimeoutExpired) as error:
                outcome = Outcome([(0.0, repr(error))], {})
            finally:
                process.kill()
            log.seek(0)
            if "fault" in (text := log.read()):
                outcome.end += " a fault in its log: " + text[-300:]
        return outcome


def measure(process: subprocess.Popen, folder: pathlib.Path, attack: Attack, content: bytes, models: list[str], seconds: float) -> Outcome:
    url = process.stdout.readline().strip()
    if attack.prepare is not None:
        attack.prepare()
    requests = ordinary_requests(models)
    expected = [said(server.answer(url, *request, timeout=60)[1]) for request in requests]  # loads them, too
    if attack.options:
        server.answer(url, "/v1/completions", {"model": HOSTILE, "prompt": "a", "max_tokens": 1})
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    clients = context.Process(target=ordinary_clients, args=(url, requests, expected, seconds, queue))
    clients.start()
    bench = Bench(url, process.pid, folder, content, time.monotonic() + seconds)
    threads = []
    if attack.client is not None:
        threads = [threading.Thread(target=hostile_client, args=(attack, bench, i), daemon=True) for i in range(attack.clients)]
    for thread in threads:
        thread.start()
    results = queue.get()
    clients.join()
    for thread in threads:
        thread.join(timeout=60)
    with contextlib.suppress(OSError):
        again = [said(server.answer(url, *request, timeout=60)[1]) for request in requests[:4]]
        if again != expected[:4]:
            results.append((0.0, "another text after the attack"))
    return Outcome(results, dict(bench.answers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=10, help="of each attack")
    parser.add_argument("--only", default="", help="a regular expression for the attacks' names")
    parser.add_argument("--quick", action="store_true", help="a second each, and nothing is said of waits")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.quick else arguments.seconds
    model = server.MODEL.read_bytes()
    usual = run(arguments.bin_dir, Attack("none"), model, seconds)
    n_failed = report(Attack("none"), usual, usual, arguments.quick)
    for attack in attacks():
        if re.search(arguments.only, attack.name):
            n_failed += report(attack, run(arguments.bin_dir, attack, model, seconds), usual, arguments.quick)
    print("no ordinary request failed" + ("" if arguments.quick else " or waited too long") if n_failed == 0 else f"{n_failed} attacks did harm")
    return 1 if n_failed else 0


def report(attack: Attack, outcome: Outcome, usual: Outcome, quick: bool) -> bool:
    """Prints a line. @return whether the attack did harm."""
    longer = outcome.longest - usual.longest
    harm = bool(outcome.faults or outcome.end) or (not quick and longer > MOST_LONGER)
    print(f"{'FAIL' if harm else 'ok  '} {attack.name}: {outcome.n} requests, {len(outcome.faults)} failed, waits {outcome.median:.3f} s, at most {outcome.longest:.2f} s "
          f"({longer:+.2f}); attackers {outcome.answers}{' ' + outcome.end if outcome.end else ''}", flush=True)
    for fault in outcome.faults[:3]:
        print(f"     {fault}")
    return harm


if __name__ == "__main__":
    sys.exit(main())
