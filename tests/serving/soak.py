#!/usr/bin/env python3
"""Minutes of mixed and abusive load on one llmserve: good requests, clients that leave, slow ones, broken HTTP.

    tests/serving/soak.py BIN_DIR [--seconds 600] [--clients 24] [--threads 2]

Afterwards no text may be left and no page of keys and values in use, resident memory may not have grown, the server must
drain, and stderr must be empty: of a sanitized build that is where its reports go. Exit code 1 otherwise.
"""

import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import kinds
import server

OPTIONS = ("--parallel", "8", "--queue", "32", "--kv-memory", "4", "--timeout", "3", "--connections", "64",
           "--chat-template", "zephyr")
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def with_length(body: bytes) -> bytes:
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


BROKEN = (
    POST + b'Content-Length: 50\r\n\r\n{"prompt"',
    POST + b"Content-Length: 999999999\r\n\r\n",
    POST + b"Content-Length: 40\r\n\r\n" + b"[" * 40,
    POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    POST + b'Content-Length: 16\r\n\r\n{"prompt":"\xff\xfe"}',
    b"GET / HTTP/1.1\r\nX: " + b"a" * 200000,
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
    b"\x00\xff" * 100,
    b"",
    # Headers that others could read another way; each hides a request.
    POST + b"Transfer-Encoding: gzip\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
    POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 100000,
    b"GET /health HTTP/1.1\r\n\r\n" + HIDDEN,
    b"GET /health HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n" + HIDDEN,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n" + HIDDEN,
    b"GET /health%4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # Pages of other sites.
    b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: [\r\n\r\n",
    b"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n",
    b"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # JSON.
    with_length(b'{"prompt":"a"}\0\0\0'),
    with_length(b'{"prompt":"a","n":1,"n":128}'),
    with_length(b'{"prompt":"a","logit_bias":{"5":1,"005":2}}'),
    with_length(b'{"prompt":"a","model":"\\ud83d"}'),
    # More than may be sent ahead.
    with_length(b'{"prompt":"a","max_tokens":500,"ignore_eos":true}') + HIDDEN * 50000,
)
# Each as long as a body may be; what they ask for is too much, or takes long to read.
COSTLY = (
    b'{"n":128,"max_tokens":0,"prompt":[[1]' + b",[1]" * 1048000 + b"]}",
    b'{"n":8,"max_tokens":0,"echo":true,"logprobs":20,"prompt":[[1]' + b",[1]" * 1048000 + b"]}",
    b'{"prompt":"' + b"a" * 4194000 + b'"}',
    b'{"prompt":"' + "\u20ac".encode() * 1398000 + b'"}',
    b'{"prompt":[' + b"1," * 2097000 + b"1]}",
    b'{"prompt":"a","logit_bias":{' + b",".join(b'"%d":1' % i for i in range(350000)) + b"}}",
    b'{"prompt":"a","stop":[' + b'"a",' * 1048000 + b'"a"]}',
)
EXPECTED = {200, 400, 429, 503}


class Client:
    """One of many, each with its own random numbers; counts what it met."""

    def __init__(self, port: int, seed: int, met: collections.Counter):
        self.port, self.draw, self.met = port, random.Random(seed), met

    def ask(self, path: str, body: dict, *, leaves: bool = False) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read(self.draw.randrange(1, 200) if leaves else None)
        if answer.status not in EXPECTED:
            print(f"{path} {json.dumps(body)[:1000]}: {answer.status} {said[:300]}", flush=True)
        self.met["left" if leaves else f"status {answer.status}"] += 1

    def complete(self) -> None:
        draw = self.draw
        body = {
            "prompt": draw.choice(["Once upon a time", "The dog", [1, 5, 17, 130], "x" * draw.randrange(1, 300), ["a", "b"]]),
            "max_tokens": draw.randrange(100),
            "seed": draw.randrange(1000),
            "temperature": draw.choice([0, 0.8, 1.5]),
        }
        if draw.random() < 0.4:
            return self.ask("/v1/completions", body | {"stream": True}, leaves=draw.random() < 0.5)
        more = {"n": 3, "logprobs": 4, "stop": ["\n"], "receipt": True, "logits_hash": True, "echo": True}
        self.ask("/v1/completions", body | {name: value for name, value in more.items() if draw.random() < 0.2})

    def chat(self) -> None:
        path, body = kinds.some_request(self.draw)
        if self.draw.random() < 0.1:  # what is refused while it is read, and while it is compiled
            body |= self.draw.choice([{"regex": "("}, {"grammar": "root ::= root"}, {"tools": [1] * 1000}, {"response_format": {"type": "json_schema", "json_schema": {"schema": {"oneOf": [{}] * 300}}}}])
        self.ask(path, body, leaves=self.draw.random() < 0.2)

    def break_http(self) -> None:
        draw = self.draw
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(draw.choice(BROKEN))
            if draw.random() < 0.5:
                connection.settimeout(2 * draw.random())
                connection.recv(1000)
            if draw.random() < 0.1:
                time.sleep(4)  # longer than --timeout
        self.met["broken"] += 1

    def ask_much(self) -> None:
        draw = self.draw
        request = with_length(draw.choice(COSTLY)).replace(b"/v1/completions", draw.choice([b"/v1/completions", b"/tokenize"]), 1)
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(request)
            if draw.random() < 0.5:
                self.met["left"] += 1
                return
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            answer.read()
        self.met[f"status {answer.status}"] += 1

    def read_slowly(self) -> None:
        body = json.dumps({"prompt": "Once", "max_tokens": 200, "stream": True, "ignore_eos": True}).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            for _ in range(10):
                connection.recv(10)
                time.sleep(0.1)
        self.met["slow"] += 1

    def run(self, until: float) -> None:
        kinds = [self.complete] * 6 + [self.chat] * 2 + [self.break_http] * 4 + [self.read_slowly] * 2 + [self.ask_much]
        while time.monotonic() < until:
            try:
                self.draw.choice(kinds)()
            except (OSError, http.client.HTTPException) as error:
                self.met[type(error).__name__] += 1
            if self.draw.random() < 0.05:
                time.sleep(self.draw.expovariate(2))


def resident_mib(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    met: collections.Counter = collections.Counter()
    resident, faults = [], []
    command = [arguments.bin_dir / "llmserve", server.MODEL, "--port", "0", "-q", "-t", str(arguments.threads), *OPTIONS]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        url = process.stdout.readline().strip()
        until = time.monotonic() + arguments.seconds
        threads = [threading.Thread(target=Client(int(url.rsplit(":", 1)[1]), seed, met).run, args=(until,))
                   for seed in range(arguments.clients)]
        for thread in threads:
            thread.start()
        while time.monotonic() < until and process.poll() is None:
            time.sleep(min(10, arguments.seconds / 6))
            if process.poll() is None:
                resident.append(resident_mib(process.pid))
        for thread in threads:
            thread.join()
        if process.poll() is None:
            time.sleep(2)  # what was left behind is noticed with the step under way
            left = {name: server.metric(url, name) for name in ("texts_running", "texts_waiting", "kv_pages_in_use")}
            faults += [f"{name} is {value:.0f}" for name, value in left.items() if value]
            finished = server.metric(url, "texts_finished_total")
            print(f"{finished:.0f} texts, {server.metric(url, 'texts_cancelled_total'):.0f} cancelled, "
                  f"{server.metric(url, 'preemptions_total'):.0f} preemptions; {dict(sorted(met.items()))}")
            faults += [] if finished and met["broken"] and met["left"] else ["hardly anything happened"]
        process.terminate()
        code = process.wait(timeout=120)
        log.seek(0)
        said = log.read()
    faults += [f"ended with {code}"] if code else []
    faults += [f"stderr: {said[:3000]}"] if said else []
    faults += [f"{name}: {met[name]}" for name in met if name.startswith("status") and int(name.split()[1]) not in EXPECTED]
    # The least of each third of the time: a body under way takes a hundred MiB for a moment.
    third = max(1, len(resident) // 3)
    warm, last = min(resident[third : 2 * third] or resident), min(resident[-third:])
    print(f"resident {resident[0]:.0f} MiB at first; in the middle {warm:.0f} or more, later {last:.0f} or more, at most {max(resident):.0f}")
    faults += [f"resident memory grew from {warm:.0f} to {last:.0f} MiB"] if last > 1.1 * warm + 8 else []
    for fault in faults:
        print(f"FAIL {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
