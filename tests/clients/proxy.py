"""A proxy between a client and llmserve that records what they say, and may give the reply that the client's job needs.

A small model cannot do an agent's work. Where a job names a reply, the proxy adds to the request that the answer has this form: a grammar
of one text, or a function whose arguments are constants. The server still makes it with its model, token by token, and finds the calls in it.
The client's own request is what is recorded.
"""

import contextlib
import http.client
import http.server
import json
import sys
import threading
import urllib.parse

CHATS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
NOT_PASSED_ON = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect"}


def call(name: str, **arguments) -> dict:
    """The reply that calls this function."""
    return {"name": name, "arguments": arguments}


def constant(value) -> dict:
    """The JSON schema of this value alone."""
    if not isinstance(value, dict):
        return {"const": value}
    properties = {key: constant(one) for key, one in value.items()}
    return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}


def is_forced(choice) -> bool:
    """Whether the request itself demands a call."""
    return choice in ("required", "any") or isinstance(choice, dict) and choice.get("type") in ("any", "tool", "function")


def with_call_alone(body: dict, reply: dict) -> dict:
    """The request with the function of `reply` alone, which takes its arguments alone."""
    for tool in body["tools"]:
        function = tool.get("function", tool)
        if function["name"] == reply["name"]:
            place = "input_schema" if "input_schema" in function else "parameters"
            function = function | {place: constant(reply["arguments"])}
            return body | {"tools": [tool | {"function": function} if "function" in tool else function]}
    raise ValueError(f"{reply['name']} is none of the request's tools")


def with_reply(path: str, body: dict, reply: str | dict) -> dict:
    """The request whose answer is `reply`, a text or a call."""
    if isinstance(reply, dict) and is_forced(body.get("tool_choice")):
        return with_call_alone(body, reply)
    if path == "/v1/chat/completions":
        text = reply if isinstance(reply, str) else f"<tool_call>\n{json.dumps(reply)}\n</tool_call>"
        return body | {"grammar": f"root ::= {json.dumps(text)}"}
    schema = constant(reply)  # of a text: the text in quotes
    form = {"type": "json_schema", "schema": schema}
    match path:
        case "/v1/responses":
            return body | {"text": {"format": form | {"name": "reply"}}}
        case "/v1/messages":
            return body | {"output_config": {"format": form}}
        case _:
            return body | {"format": schema}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urllib.parse.urlsplit(self.path).path
        body = json.loads(sent or b"{}")
        exchange = {"path": path, "body": body, "status": 0, "reply": "", "is_whole": False}
        with self.server.lock:
            self.server.exchanges.append(exchange)
            reply = next(self.server.replies, None) if path in CHATS else None
        if reply is not None:
            sent = json.dumps(with_reply(path, body, reply)).encode()
        self.pass_on(sent, exchange)

    def do_GET(self):
        self.pass_on(None, {"reply": ""})

    do_HEAD = do_GET

    def pass_on(self, sent: bytes | None, exchange: dict) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in NOT_PASSED_ON}
        connection = http.client.HTTPConnection(self.server.host, timeout=600)
        with contextlib.closing(connection):  # also where the client goes in the middle
            connection.request(self.command, self.path, sent, headers)
            answer = connection.getresponse()
            exchange["status"] = answer.status
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "content-length", "transfer-encoding", "date"):
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while piece := answer.read1(1 << 16):
                exchange["reply"] += piece.decode(errors="replace")
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self.command != "HEAD":
                self.wfile.write(b"0\r\n\r\n")
            exchange["is_whole"] = True

    def log_message(self, *_):
        pass


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, url: str, replies: list):
        super().__init__(("127.0.0.1", 0), Handler)
        self.host = urllib.parse.urlsplit(url).netloc
        self.replies = iter(replies)
        self.exchanges: list[dict] = []
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # a client that went
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def between(url: str, replies: list):
    """A proxy to the server at `url`. @param replies  of the chats in their order; None: as the model has it"""
    with Proxy(url, replies) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
