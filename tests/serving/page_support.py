"""A page in headless Chromium, and what a server streams to it."""

import json

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 800}


def open_page(browser, url: str, size: dict, **options):
    page = browser.new_page(viewport=size, **options)
    page.faults = []
    page.on("pageerror", lambda fault: page.faults.append(str(fault)))
    page.on("request", lambda request: page.faults.append(request.url) if not request.url.startswith((url, "data:")) else None)
    page.goto(url)
    return page


def say(page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def check_layout(page) -> None:
    inside = page.evaluate("""document.documentElement.scrollWidth <= innerWidth && document.body.scrollHeight <= innerHeight
                              && $("turns").scrollWidth <= $("turns").clientWidth""")
    assert inside, "the page is larger than its window"
    assert not page.faults, page.faults


def stream_of(deltas: list) -> str:
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
