"""A page in headless Chromium, and what a server streams to it."""

import contextlib
import functools
import http.server
import json
import re
import threading
import time

from playwright.sync_api import expect

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 800}


def open_page(browser, url: str, size: dict, **options):
    """In a browser of its own, or in another tab of a context."""
    page = browser.new_page(viewport=size, **options) if hasattr(browser, "new_context") else browser.new_page()
    page.set_viewport_size(size)
    page.faults = []
    page.on("pageerror", lambda fault: page.faults.append(str(fault)))
    page.on("console", lambda said: page.faults.append(said.text) if "Content Security Policy" in said.text else None)
    own = (re.match(r"\w+://[^/#]+", url)[0], "data:", "blob:")
    page.on("request", lambda request: page.faults.append(request.url) if not request.url.startswith(own) else None)
    page.goto(url)
    page.evaluate("opening")
    return page


def say(page, text: str) -> None:
    expect(page.locator("#send")).to_have_text("Send")  # nothing is under way
    page.fill("#text", text)
    page.press("#text", "Enter")


def settings(page, **values: str) -> None:
    """Fills those fields of the settings."""
    page.click("#settings")
    for name, value in values.items():
        page.fill(f"#{name}", value)
    page.click("#settings-box >> text=Close")


def new_conversation(page) -> None:
    page.keyboard.press("Control+Shift+O")


def check_layout(page) -> None:
    inside = page.evaluate("""document.documentElement.scrollWidth <= innerWidth && document.body.scrollHeight <= innerHeight
                              && $("scroll").scrollWidth <= $("scroll").clientWidth""")
    assert inside, "the page is larger than its window"
    assert not page.faults, page.faults


def stream_of(deltas: list, reason: str = "stop") -> str:
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


class SlowAnswer(http.server.BaseHTTPRequestHandler):
    """A paragraph each hundredth of a second, until the client goes: no model is as steady."""

    def do_POST(self):  # noqa: N802
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with contextlib.suppress(OSError):
            for number in range(10000):
                self.wfile.write(stream_of([{"content": f"Paragraph {number}.\n\n"}]).split("\n\n")[0].encode() + b"\n\n")
                time.sleep(0.01)

    def log_message(self, *_) -> None:
        pass


@functools.cache
def slow_server() -> str:
    slow = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowAnswer)
    slow.daemon_threads = True
    threading.Thread(target=slow.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{slow.server_port}/"


def answer_slowly(page) -> None:
    page.route("**/v1/chat/completions", lambda route: route.continue_(url=slow_server()))
