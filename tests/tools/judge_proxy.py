"""A proxy that changes what a server is asked: the faults of servers that no option has."""

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def drop_temperature(body: dict) -> None:
    body.pop("temperature")
    body["seed"] = 7


def cut_front(body: dict, most: int = 1200) -> None:
    """As a server cuts: between tokens, where words begin."""
    if len(body.get("prompt", "")) > most:
        kept = body["prompt"][-most:]
        body["prompt"] = kept[kept.index(" ") :]


def inject_system(body: dict) -> None:
    if "messages" in body and body["messages"][0]["role"] != "system":
        body["messages"].insert(0, {"role": "system", "content": "You are a helpful assistant."})


class Answers(BaseHTTPRequestHandler):
    """A handler that can answer and is silent."""

    def answer(self, status: int, body: bytes):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Listening:
    """Listens on a port of its own until the end of the block."""

    def __init__(self, handler):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Proxy(Listening):
    """`change` gets each request's body."""

    def __init__(self, url: str, change=None):
        class Handler(Answers):
            def do_GET(self):
                self.pass_on(None)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if change:
                    change(body)
                self.pass_on(json.dumps(body).encode())

            def pass_on(self, data: bytes | None):
                request = urllib.request.Request(url + self.path, data, {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(request, timeout=600) as answer:
                        status, text = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    status, text = error.code, error.read()
                self.answer(status, text)

        super().__init__(Handler)
