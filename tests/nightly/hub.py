"""A hub and its content network on this machine, for tests: api/models, resolve/ with a redirect to another host's absolute
address, ranges, and every fault that a test asks for."""

import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_) -> None:
        pass  # a client that leaves in the middle is what tests are about


def serve(handler: type, hub: object) -> _Server:
    """A server with handlers that know `hub`."""
    server = _Server(("127.0.0.1", 0), type("Handler", (handler,), {"hub": hub}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


def stop(server: _Server) -> None:
    server.shutdown()
    server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def head(self, status: int, headers: dict, body: bytes) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()

    def answer(self, status: int, headers: dict, body: bytes = b"") -> None:
        self.head(status, headers, body)
        self.wfile.write(body)

    def endless(self, status: int, headers: dict, part: bytes = b" " * 65536) -> None:
        """An answer whose body, or by `part` whose header, has no end; 1 GB at most, which no client waits for."""
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.close_connection = True
        if not part.endswith(b"\r\n"):
            self.end_headers()
        else:
            self.flush_headers()
        for _ in range((1 << 30) // len(part)):
            self.wfile.write(part)


class Hub:
    """`files`: "OWNER/NAME/FILE" -> bytes. `faults`: the same -> a list of faults, one taken by each request of the
    content: "500", "429" (Retry-After 0), "cut:N" (after N bytes), "slow", "no-range" (stays), "wrong" (other bytes, stays),
    "drip:N" (N bytes more at each request, always from
    the start, stays), "endless:STATUS" (a body without end), "short" (all but the last 5 bytes, as if whole, stays). `front_faults`:
    the same of the front, one taken by each request: "endless:STATUS", "headers", or bytes that are the answer. `gated`: repositories that only who has the token
    "secret" gets files of. `tokens`: whether a token came with each request, at the front and at the content network."""

    def __init__(self, files: dict):
        self.files, self.faults, self.requests = files, {}, []
        self.front_faults, self.dripped = [], 0
        self.gated, self.tokens = set(), {"front": [], "content": []}
        self.lock = threading.Lock()
        self.content = serve(_Content, self)
        self.front = serve(_Front, self)
        self.url = f"http://127.0.0.1:{self.front.server_port}"

    def close(self) -> None:
        stop(self.front)
        stop(self.content)

    def fault(self, name: str) -> str:
        with self.lock:
            faults = self.faults.get(name, [])
            if not faults:
                return ""
            return faults[0] if faults[0] in ("no-range", "wrong", "short") or faults[0].startswith("drip") else faults.pop(0)


class _Front(Handler):
    def do_HEAD(self) -> None:
        """What huggingface_hub asks before it fetches."""
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", urllib.parse.unquote(self.path))
        name = f"{match[1]}/{match[2]}" if match else ""
        if name not in self.hub.files:
            return self.head(404, {"X-Error-Code": "EntryNotFound"}, b"")
        data = self.hub.files[name]
        place = f"http://127.0.0.1:{self.hub.content.server_port}/{urllib.parse.quote(name)}"
        self.head(302, {"Location": place, "X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(data)),
                        "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"'}, b"")

    def do_GET(self) -> None:
        path = urllib.parse.unquote(self.path)
        token = self.headers.get("Authorization")
        self.hub.tokens["front"].append(token is not None)
        if self.hub.front_faults:
            fault = self.hub.front_faults.pop(0)
            if isinstance(fault, bytes):
                return self.answer(200, {}, fault)
            if fault == "headers":
                return self.endless(200, {}, b"X-More: " + b"a" * 1000 + b"\r\n")
            status = int(fault.removeprefix("endless:"))
            return self.endless(status, {"Location": f"http://127.0.0.1:{self.hub.front.server_port}/api"} if status == 302 else {})
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/[^/?]+\?blobs=true", path):
            some = [n for n in self.hub.files if n.startswith(match[1] + "/")]
            siblings = [{"rfilename": n.split("/", 2)[2], "size": len(self.hub.files[n]),
                         "lfs": {"sha256": hashlib.sha256(self.hub.files[n]).hexdigest(), "size": len(self.hub.files[n]), "pointerSize": 9}}
                        for n in some]
            if some:
                return self.answer(200, {}, json.dumps({"id": match[1], "sha": COMMIT, "siblings": siblings}).encode())
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            name = f"{match[1]}/{match[2]}"
            if match[1] in self.hub.gated and token != "Bearer secret":
                return self.answer(403 if token else 401, {"X-Error-Code": "GatedRepo"})
            if name in self.hub.files:
                place = f"http://127.0.0.1:{self.hub.content.server_port}/{urllib.parse.quote(name)}"
                return self.answer(302, {"Location": place, "X-Repo-Commit": COMMIT})
        return self.answer(404, {})


class _Content(Handler):
    def do_GET(self) -> None:
        name = urllib.parse.unquote(self.path[1:])
        fault = self.hub.fault(name)
        wanted = self.headers.get("Range", "")
        self.hub.requests.append((name, wanted))
        self.hub.tokens["content"].append("Authorization" in self.headers)
        if fault in ("500", "429"):
            return self.answer(int(fault), {"Retry-After": "0"} if fault == "429" else {})
        if fault.startswith("endless:"):
            return self.endless(int(fault.removeprefix("endless:")), {})
        data = self.hub.files[name]
        if fault == "wrong":
            data = bytes([data[0] ^ 1]) + data[1:]
        if fault == "short":
            return self.answer(200, {}, data[:-5])
        if fault.startswith("drip:"):
            self.hub.dripped += int(fault.removeprefix("drip:"))
            self.head(200, {}, data)
            self.close_connection = True
            return self.wfile.write(data[:self.hub.dripped])
        begin, status, headers = 0, 200, {}
        match = re.fullmatch(r"bytes=(\d+)-", wanted)
        if match and fault != "no-range":
            begin, status = int(match[1]), 206
            if begin >= len(data):
                return self.answer(416, {"Content-Range": f"bytes */{len(data)}"})
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        self.head(status, headers, body)
        if fault.startswith("cut:"):
            self.wfile.write(body[:int(fault[4:])])
            self.close_connection = True
        elif fault == "slow":
            for i in range(0, len(body), 1 << 16):
                self.wfile.write(body[i:i + (1 << 16)])
                time.sleep(0.02)
        else:
            self.wfile.write(body)
