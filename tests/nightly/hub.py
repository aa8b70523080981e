"""A hub and its content network on this machine, for tests: api/models, resolve/ with a redirect to another host's absolute
address, ranges, and every fault that a test asks for.

    python3 tests/nightly/hub.py FOLDER [--port 8000]     # serves FOLDER/OWNER/NAME/FILE
"""

import argparse
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """`files`: "OWNER/NAME/FILE" -> bytes or Path. `faults`: the same -> a list of faults, one taken by each request of the
    content: "500", "429" (Retry-After 0), "cut:N" (after N bytes), "slow", "no-range" (stays), "wrong" (other bytes, stays),
    "weak" (a weak ETag, stays), "changed" (another ETag and content from now on), "shifted" (206 of another place)."""

    def __init__(self, files: dict, port: int = 0):
        self.files, self.faults, self.requests = files, {}, []
        self.lock = threading.Lock()
        self.content = self._serve(_Content, 0)
        self.front = self._serve(_Front, port)
        self.url = f"http://127.0.0.1:{self.front.server_port}"

    def _serve(self, handler: type, port: int):
        server = _Server(("127.0.0.1", port), type("Handler", (handler,), {"hub": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def close(self) -> None:
        for server in (self.front, self.content):
            server.shutdown()
            server.server_close()

    def data(self, name: str) -> bytes:
        value = self.files[name]
        return value.read_bytes() if isinstance(value, Path) else value

    def fault(self, name: str) -> str:
        with self.lock:
            faults = self.faults.get(name, [])
            if not faults:
                return ""
            return faults[0] if faults[0] in ("no-range", "wrong", "weak") else faults.pop(0)


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_) -> None:
        pass  # a client that leaves in the middle is what tests are about


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_) -> None:
        pass

    def answer(self, status: int, headers: dict, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)


class _Front(_Handler):
    def do_GET(self) -> None:
        path = urllib.parse.unquote(self.path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/[^/?]+\?blobs=true", path):
            some = [n for n in self.hub.files if n.startswith(match[1] + "/")]
            siblings = [{"rfilename": n.split("/", 2)[2], "size": len(self.hub.data(n)),
                         "lfs": {"sha256": hashlib.sha256(self.hub.data(n)).hexdigest(), "size": len(self.hub.data(n))}}
                        for n in some]
            if some:
                return self.answer(200, {}, json.dumps({"sha": COMMIT, "siblings": siblings}).encode())
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            name = f"{match[1]}/{match[2]}"
            if name in self.hub.files:
                place = f"http://127.0.0.1:{self.hub.content.server_port}/{urllib.parse.quote(name)}"
                return self.answer(302, {"Location": place, "X-Repo-Commit": COMMIT})
        return self.answer(404, {})


class _Content(_Handler):
    def do_GET(self) -> None:
        name = urllib.parse.unquote(self.path[1:])
        fault = self.hub.fault(name)
        wanted = self.headers.get("Range", "")
        self.hub.requests.append((name, wanted, self.headers.get("If-Range", ""), fault))
        if fault in ("500", "429"):
            return self.answer(int(fault), {"Retry-After": "0"} if fault == "429" else {})
        if fault == "changed":
            self.hub.files[name] = bytes(reversed(self.hub.data(name)))
        data = self.hub.data(name)
        if fault == "wrong":
            data = bytes([data[0] ^ 1]) + data[1:]
        etag = '"' + hashlib.sha256(data).hexdigest()[:16] + '"'
        etag = f"W/{etag}" if fault == "weak" else etag
        begin, status, headers = 0, 200, {"ETag": etag}
        match = re.fullmatch(r"bytes=(\d+)-", wanted)
        if match and fault != "no-range" and self.headers.get("If-Range", etag) == etag:
            begin, status = int(match[1]), 206
            if begin >= len(data):
                return self.answer(416, {"Content-Range": f"bytes */{len(data)}"})
            begin = max(0, begin - 7) if fault == "shifted" else begin
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if fault.startswith("cut:"):
            self.wfile.write(body[:int(fault[4:])])
            self.close_connection = True
        elif fault == "slow":
            for i in range(0, len(body), 1 << 16):
                self.wfile.write(body[i:i + (1 << 16)])
                time.sleep(0.02)
        else:
            self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    found = {p.relative_to(args.folder).as_posix(): p for p in args.folder.glob("*/*/*") if p.is_file()}
    print(Hub(found, args.port).url, *found, sep="\n", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
