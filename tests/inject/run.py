#!/usr/bin/env python3
"""Fault injection: lets each call of the system fail in turn, and looks at what the tools make of it.

    tests/inject/run.py BIN_DIR LIBINJECT [--whole] [--only REGEX] [--seconds N] [--markdown FILE]

A scenario is a command, or a request to a server. It runs once to count the calls of each kind, its points; then again for a
point each, where that call fails: once, and from then on for good. Without --whole a sample of the points is tried, at even
distances, as many as --seconds allow. A break is a signal, a hang, an exit code or status that the docs do not name, a file
half written or left behind, a result that differs though all is said to be well, a server that is dead or does not answer
the next request. Prints points and breaks of each scenario; exit code 1 where there is a break.
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ["memory", "map", "thread", "read", "write", "sync", "rename", "open"]  # of inject.cpp
ANEW = "(anew)"  # in a body: a number that no request had before, so that nothing of it is kept
NUMBERS = itertools.count(10**6)
HANG = 60  # seconds; a run takes a tenth of one
NO_FAULT = (0, False)
FIRST_READ = 4  # requests for memory with which Asio and Beast hand over a connection's first bytes


class State:
    """What inject.cpp shares: what is to fail, and how often it was called."""

    def __init__(self, path):
        path.write_bytes(bytes(32))
        self.path = path
        with path.open("r+b") as file:
            self.words = mmap.mmap(file.fileno(), 32)

    def arm(self, kind, first=0, for_good=False):
        struct.pack_into("<Q", self.words, 0, 0)
        struct.pack_into("<QQQ", self.words, 8, first, for_good, 0)
        struct.pack_into("<Q", self.words, 0, 1 << KINDS.index(kind))

    def disarm(self):
        struct.pack_into("<Q", self.words, 0, 0)

    def count(self):
        return struct.unpack_from("<Q", self.words, 24)[0]

    def environment(self, library):
        return {**os.environ, "LD_PRELOAD": str(library), "LLM_INJECT_STATE": str(self.path), "OMP_WAIT_POLICY": "passive"}


class Tool:
    """A command in a folder of its own. `inputs` are made before each run, `outputs` are what it may write, each with what a
    file there must be: the same bytes as without a fault, or what a function takes; None: what a run after that takes. `timed`: it
    prints times."""

    def __init__(self, name, command, inputs=(), outputs=(), text=None, code=0, codes=(4, 5), kinds=KINDS, timed=False):
        self.name, self.command, self.inputs, self.outputs = name, command, inputs, dict(outputs)
        self.text, self.code, self.codes, self.kinds, self.timed = text, code, {code, *codes}, kinds, timed

    def start(self, context):
        self.context = context
        self.expected = None

    def end(self):
        return None

    def attempt(self, kind, first, for_good):
        """How often `kind` was called, and what is wrong."""
        with tempfile.TemporaryDirectory(dir=self.context.folder) as name:
            folder = pathlib.Path(name)
            state = State(folder / "state")
            for file in self.inputs:
                shutil.copy(self.context.models / file, folder / file)
            state.arm(kind, first, for_good)
            try:
                fault = self.fault(self.run(folder, state), folder, kind)
                count = state.count()
                state.disarm()
                if fault is None and first > 0 and None in self.outputs.values():
                    again = self.run(folder, state)
                    if again.returncode != self.code:
                        fault = f"the next run ends with {again.returncode}: {again.stderr[-200:]}"
                return count, fault
            except subprocess.TimeoutExpired:
                return state.count(), "hangs"

    def run(self, folder, state):
        program, *words = self.command.split()
        return subprocess.run([self.context.binaries / program, *words], cwd=folder, input=self.text, timeout=HANG,
                              capture_output=True, env=state.environment(self.context.library), check=False)

    def fault(self, run, folder, kind):
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        found = {}
        for file in files.keys() - {"state", *self.inputs}:
            name = file if file in self.outputs else re.sub("/[^/]*[.](kv|packed)$", "/", file)
            if name not in self.outputs:
                return f"leaves {file}"
            rule, content = self.outputs[name], files[file].read_bytes()
            if rule not in (None, bytes) and not self.is_valid(rule, content):
                return f"{file} is half written"
            found[name] = content if rule is bytes else True
        if self.expected is None:
            if run.returncode == self.code:
                self.expected = (self.plain(run.stdout), found)
            return None if run.returncode == self.code else f"exit code {run.returncode}: {run.stderr[-200:]}"
        if run.returncode not in self.codes:
            return f"exit code {run.returncode}: {run.stderr[-200:]}"
        if run.returncode != self.code and b": error: " not in run.stderr and kind != "write":
            return f"no error in {run.stderr[-200:]}"
        stdout, outputs = self.expected
        for file, content in found.items():
            if content != outputs.get(file):
                return f"{file} differs"
        # A chat tells of a turn that failed, and goes on.
        goes_on = self.text is not None and b": error: " in run.stderr
        if run.returncode == self.code and self.plain(run.stdout) != stdout and not goes_on and not self.timed:
            return "another result"
        return None

    @staticmethod
    def plain(output):
        """A report without the CPU's name, which is "unknown" where /proc/cpuinfo cannot be read."""
        return re.sub(rb"(?m)^CPU .*$", b"", output)

    @staticmethod
    def is_valid(rule, content):
        try:
            rule(content)
        except Exception:  # whatever a parser throws
            return False
        return True


class Start(Tool):
    """A server's start, which a fault ends with an exit code, or which comes to its end."""

    def attempt(self, kind, first, for_good):
        with tempfile.TemporaryDirectory(dir=self.context.folder) as name:
            server = Server(self.context, pathlib.Path(name), kind, first, for_good)
            count = server.state.count()
            server.state.disarm()
            if server.url is None:
                code, error = server.end()
                is_told = b": error: " in error or kind == "write"
                return count, None if code in self.codes and is_told else f"exit code {code}: {error[-200:]}"
            told = server.request("GET", "/health", None)[0]
            code, error = server.end(signal.SIGTERM)
            return count, None if told == 200 and code == 0 else f"health {told}, exit code {code}: {error[-200:]}"


class Server:
    def __init__(self, context, folder, kind="memory", first=0, for_good=False):
        self.state = State(folder / "state")
        self.state.arm(kind, first, for_good)
        self.errors = (folder / "errors").open("wb+")
        self.process = subprocess.Popen(
            [context.binaries / "llmserve", context.models / "model.gguf", "-t", "2", "--port", "0", "--parallel", "2",
             "--kv-memory", "8", "-c", "256", "--chat-template", "zephyr"],
            stdout=subprocess.PIPE, stderr=self.errors, env=self.state.environment(context.library))
        watch = threading.Timer(HANG, self.process.kill)
        watch.start()
        line = self.process.stdout.readline().decode()
        watch.cancel()
        self.url = line.strip() or None
        self.port = int(line.rsplit(":", 1)[1]) if line else None

    def request(self, method, path, body, patience=5):
        """Status (0: the connection was closed, -1: nothing came in time) and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            try:
                return answer.status, answer.read()
            except http.client.IncompleteRead as cut:  # a stream that was given up
                return answer.status, cut.partial
        except (socket.timeout, TimeoutError):
            return -1, b""
        except (http.client.HTTPException, OSError):
            return 0, b""
        finally:
            connection.close()

    def connect(self):
        """A connection without a request."""
        with socket.create_connection(("127.0.0.1", self.port)):
            time.sleep(0.3)

    def end(self, with_signal=None):
        if with_signal and self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            code = self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none, hangs"
        self.errors.seek(0)
        return code, self.errors.read()


class Request:
    """A request to a server that lives through all of its points."""

    kinds = KINDS

    def __init__(self, name, path, body):
        self.name, self.path, self.body = name, path, body

    def start(self, context):
        self.context = context
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=context.folder))
        self.server = None
        self.expected = None

    def end(self):
        """Nothing may be left that keeps the server from ending."""
        if self.server is None:
            return None
        code, error = self.server.end(signal.SIGTERM)
        self.server = None
        return None if code == 0 else f"ends with {code}: {error[-200:]}"

    def ask(self, patience=5):
        body = json.loads(json.dumps(self.body).replace(ANEW, str(next(NUMBERS))))
        return self.server.request("POST", self.path, body, patience)

    @staticmethod
    def plain(answer):
        """An answer without what is of its moment."""
        return re.sub(rb'"(id|created|created_at|completed_at)":\s*("[^"]*"|[0-9.]+)', b"", answer)

    def attempt(self, kind, first, for_good):
        if self.server is None or self.server.process.poll() is not None:
            self.server = Server(self.context, self.folder)
            self.server.state.disarm()
            for _ in range(2):  # what is made once is made
                status, answer = self.ask()
            if status != 200:
                raise SystemExit(f"{self.name}: status {status}: {answer}")
            self.expected = self.plain(answer)
            self.server.state.arm("memory")
            self.server.connect()
            self.n_accept = self.server.state.count()
        state = self.server.state
        # A connection that cannot be taken waits.
        may_wait = kind == "open" and for_good
        state.arm(kind, first, for_good)
        status, answer = self.ask(1 if may_wait else HANG)
        state.disarm()
        count = state.count()
        next_status, next_answer = self.ask()
        if self.server.process.poll() is not None:
            return count, f"server ended: {self.ended()}"
        if next_status != 200 or self.plain(next_answer) != self.expected:
            fault = f"status {status}, then {next_status}: {next_answer[-200:]}"
            self.server.end(signal.SIGKILL)
            return count, fault
        if status == 200 and self.plain(answer) != self.expected and not self.is_cut(answer):
            return count, f"another result: {answer[-300:]}"
        # Where the connection's own calls fail there is no way to answer, nor where there is no memory for a connection.
        may_close = kind in ("read", "write", "open") or (kind == "memory" and first <= self.n_accept + FIRST_READ)
        if status not in (200, 500, 503, 507) and not (status == 0 and may_close) and not (status == -1 and may_wait):
            return count, f"status {status}"
        return count, None

    def ended(self):
        code, error = self.server.end()
        return f"{code}: {error[-200:]}"

    def is_cut(self, answer):
        """Whether a stream says that it failed."""
        return self.body.get("stream") and (b"server_error" in answer or not answer.endswith(b"data: [DONE]\n\n"))


JUNIT = xml.dom.minidom.parseString
MEMORY = ("memory", "map")
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
CHAT = [{"role": "user", "content": "Tell me of a cat."}]
SCENARIOS = [
    Tool("load and 4 tokens", "llmrun model.gguf -p Once -n 4 -t 2 -q --temp 0 --logits-hash", ["model.gguf"]),
    Tool("chat with a session", "llmrun model.gguf -i --chat-template zephyr --session s -n 4 -t 2 -q --temp 0 --no-history",
         ["model.gguf"], {"s": None, "s.kv/": None}, text=b"Tell me of a cat.\nAnd a dog.\n"),
    Tool("cache", "llmrun model.gguf -p Once -n 2 -t 2 -q --temp 0 --cache-dir c", ["model.gguf"], {"c/": None}),
    Tool("packed cache", "llmrun model.gguf -p Once -n 4 -t 2 -q --temp 0 --packed-cache packed", ["model.gguf"],
         {"packed/": None}),
    Tool("quantize", "llmquant model.gguf out.gguf Q8_0 2 -q --allow-requantize --force", ["model.gguf"], {"out.gguf": bytes}),
    Tool("manifest", "llmgguf hash model.gguf -o m", ["model.gguf"], {"m": bytes}),
    Tool("doctor --fix", "llmgguf doctor junk.gguf --fix out.gguf", ["junk.gguf"], {"out.gguf": bytes}, code=1),
    Tool("report, JSON", "llmcheck model.gguf --ppl text -q --report r.json", ["model.gguf", "text"], {"r.json": json.loads}),
    Tool("report, HTML", "llmcheck model.gguf --ppl text -q --report r.html", ["model.gguf", "text"],
         {"r.html": lambda text: text.index(b"</html>")}),
    Tool("report, JUnit", "llmcheck model.gguf --ppl text -q --report r.xml", ["model.gguf", "text"], {"r.xml": JUNIT}),
    Tool("receipt and dump", "llmrun model.gguf -p a -n 2 -t 2 -q --temp 0 --receipt r --dump-layers d.npz", ["model.gguf"],
         {"r": None, "d.npz": None}, kinds=MEMORY),
    Tool("layer diff", "llmcheck model.gguf --layer-diff own.npz --compute f32 -t 2 -q", ["model.gguf", "own.npz"], kinds=MEMORY),
    Tool("show", "llmgguf show model.gguf --json", ["model.gguf"], kinds=MEMORY),
    Tool("diff", "llmgguf diff model.gguf model.gguf", ["model.gguf"], kinds=MEMORY),
    Tool("tokens", "llmtok model.gguf -p the --json", ["model.gguf"], kinds=MEMORY),
    Tool("synth", "llmsynth s.gguf --shape mqa -q", outputs={"s.gguf": bytes}, kinds=MEMORY),
    Tool("bench", "llmbench model.gguf --no-peaks -p 4 -n 2 -r 1 -t 2 -q", ["model.gguf"], kinds=MEMORY, timed=True),
    Tool("load", "llmload model.gguf --lengths 1:2-9:2-3 --mode real --rate 1000 --requests 4 -t 1 -q", ["model.gguf"], kinds=MEMORY, timed=True),
    Start("llmserve: start", "llmserve"),
    Request("llmserve: completion", "/v1/completions", {"prompt": "Once", "max_tokens": 4, "temperature": 0}),
    Request("llmserve: chat", "/v1/chat/completions", {"messages": CHAT, "max_tokens": 4, "temperature": 0}),
    Request("llmserve: stream", "/v1/completions", {"prompt": "Once", "max_tokens": 4, "temperature": 0, "stream": True}),
    Request("llmserve: JSON schema", "/v1/chat/completions",
            {"messages": CHAT, "max_tokens": 12, "temperature": 0,
             "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"title": ANEW, **SCHEMA}}}}),
    Request("llmserve: responses", "/v1/responses", {"input": "Tell me of a cat.", "max_output_tokens": 4, "temperature": 0}),
    Request("llmserve: embeddings", "/v1/embeddings", {"input": ["Once", "upon"]}),
    Request("llmserve: tokenize", "/tokenize", {"prompt": "Once upon a time"}),
]


class Context:
    def __init__(self, arguments, folder):
        self.binaries = arguments.binaries.resolve()
        self.library = arguments.library.resolve()
        self.folder = folder
        self.models = folder / "models"
        self.models.mkdir()
        model = (ROOT / "models/fable-3m-q4_k_m.gguf").read_bytes()
        (self.models / "model.gguf").write_bytes(model)
        (self.models / "junk.gguf").write_bytes(model + b"junk" * 10)
        (self.models / "text").write_text("Once upon a time there was a cat. " * 4)
        subprocess.run([self.binaries / "llmcheck", "model.gguf", "-p", "Once", "--compute", "f32", "--dump", "own.npz", "-q"],
                       cwd=self.models, check=True)


def sampled(count, most):
    """Of 1 .. count, at most so many at even distances, the ends among them."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + i * (count - 1) // max(1, most - 1) for i in range(most)})


def points_of(scenario, most):
    """What to try: (kind, first, for_good); and how many there are."""
    points, n = [], 0
    for kind in scenario.kinds:
        count, fault = scenario.attempt(kind, *NO_FAULT)
        if fault:
            raise SystemExit(f"{scenario.name}: without a fault: {fault}")
        n += 2 * count
        tried = sampled(count, most)
        points += [(kind, first, False) for first in tried]
        points += [(kind, first, True) for first in (tried if most > 4 else tried[::2])]
    return points, n


def run(scenario, context, most, deadline):
    scenario.start(context)
    points, n = points_of(scenario, most)
    breaks, n_tried = [], 0

    def attempt(point):
        if deadline and time.monotonic() > deadline:
            return point, None, False
        return point, scenario.attempt(*point)[1], True

    # A server's points change its state, one after the other.
    with concurrent.futures.ThreadPoolExecutor(1 if isinstance(scenario, Request) else os.cpu_count()) as pool:
        for (kind, first, for_good), fault, tried in pool.map(attempt, points):
            n_tried += tried
            if fault:
                breaks.append(f"{scenario.name}: {kind}:{first}{'+' if for_good else ''}: {fault}")
                print(breaks[-1], flush=True)
    if fault := scenario.end():
        breaks.append(f"{scenario.name}: {fault}")
        print(breaks[-1], flush=True)
    return n, n_tried, breaks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true", help="every point")
    parser.add_argument("--only", default="", metavar="REGEX", help="scenarios whose names match")
    parser.add_argument("--most", type=int, default=3, metavar="N", help="points of a kind in a scenario, without --whole")
    parser.add_argument("--seconds", type=float, help="try no more points after that time")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table there")
    arguments = parser.parse_args()
    most = 1 << 40 if arguments.whole else arguments.most
    deadline = time.monotonic() + arguments.seconds if arguments.seconds else None
    lines, n_all, n_breaks = ["| scenario | points | tried | breaks |", "|---|---|---|---|"], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        context = Context(arguments, pathlib.Path(folder))
        for scenario in SCENARIOS:
            if not re.search(arguments.only, scenario.name):
                continue
            n, n_tried, breaks = run(scenario, context, most, deadline)
            lines.append(f"| {scenario.name} | {n} | {n_tried} | {len(breaks)} |")
            print(lines[-1], flush=True)
            n_all, n_breaks = n_all + n_tried, n_breaks + len(breaks)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")
    print(f"{n_all} points tried, {n_breaks} breaks")
    return 1 if n_breaks else 0


if __name__ == "__main__":
    sys.exit(main())
