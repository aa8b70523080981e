#!/usr/bin/env python3
"""The page of llmserve in headless Chromium: a chat with streaming, the stop button, a text continued, a key, a phone; Markdown,
copies, another try, a reload; tools that the page runs; several models.

    tests/serving/page.py BIN_DIR [SCREENSHOTS]

Exit code 1 with the first thing that is not as it must be.
"""

import pathlib
import shutil
import sys

import server
from page_support import DESKTOP, PHONE, check_layout, open_page, say, stream_of
from page_tools import check_models, check_tools
from playwright.sync_api import expect, sync_playwright

# What a model might write, and what must come of it.
MARKDOWN = """# Title ##

Some **bold**, *italic*, ***both***, ~~gone~~, `code <b>`, snake_case_name and 2 * 3 * 4.
A [link](https://example.org/a_(b)), https://example.org/x, [bad](javascript:alert(1)) and ![picture](https://example.org/p.png).
<img src=x onerror="document.title='x'"><script>document.title = 'x'</script>

- one
  - nested
    1. deep
- two

1. first

   more of it
2. second

> quoted

```python
def f(x):
    return x < 3  # a line that is far too long for a telephone, so it has to scroll inside of its own block
```

| a | b |
|---|--:|
| 1 | 2 \\| 3 |

---
Unclosed **bold and `code
"""
NODES = {
    "h2": ["Title"], "strong": ["bold", "both"], "em": ["italic", "both"], "del": ["gone"], "p > code": ["code <b>"],
    "a": ["link", "https://example.org/x"], "ul > li > ul > li > ol > li": ["deep"], ".reply > ol > li": 2, "ol > li > p": 2,
    "blockquote > p": ["quoted"], "pre > code": 1, "th": ["a", "b"], "td": ["1", "2 | 3"], "hr": 1,
    ":is(img, script, [onerror], [href^=javascript])": 0,
}  # fmt: skip
# Each made some engine slow.
HOSTILE = ["*a ", "**a", "_a", "`" , "`a``", "[", "[a](", "[a](b", "> ", "- ", "  - ", "|a", "#", " ", "~", "\\", "![", "1. ", "| - ", "https://",
           "***", "* ", "- a\n  ", ">", "```\n", "|a|\n|-|\n"]  # fmt: skip


def check_markdown(browser, url: str, size: dict, scheme: str, shoot) -> None:
    page = open_page(browser, url, size, color_scheme=scheme, permissions=["clipboard-read", "clipboard-write"])
    pieces = [MARKDOWN[i : i + 7] for i in range(0, len(MARKDOWN), 7)]
    body = stream_of([{"content": piece} for piece in pieces])
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    say(page, "Show me *all* of it.")
    expect(page.locator(".reply hr")).to_have_count(1)
    expect(page.locator(".user")).to_have_text("Show me *all* of it.")
    for _ in range(2):
        for selector, expected in NODES.items():
            found = page.locator(f".reply {selector}" if "reply" not in selector else selector)
            seen = found.count() if isinstance(expected, int) else found.all_inner_texts()
            assert seen == expected, (selector, seen)
        assert page.title() == server.MODEL.stem
        shoot(page, f"markdown-{scheme}")
        page.reload()  # and everything is as before
        expect(page.locator(".reply hr")).to_have_count(1)
    page.click(".code-head button")
    assert page.evaluate("navigator.clipboard.readText()").startswith("def f(x):\n    return x < 3  #")
    page.locator("button", has_text="Copy").last.click()
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN
    page.click("text=Regenerate")
    expect(page.locator("text=Regenerate")).to_have_count(1)
    assert page.locator(".reply").count() == 1 and page.locator(".user").count() == 1
    for part in HOSTILE:
        show = "text => { Markdown.show(document.createElement('div'), text); return true; }"
        page.wait_for_function(show, arg=part * (60000 // len(part)) + "`x")
    old = page.evaluate("localStorage.getItem('llmserve.conversation')").replace('"version":2', '"version":1')
    page.evaluate("old => localStorage.setItem('llmserve.conversation', old)", old)
    page.evaluate("removeEventListener('pagehide', store)")
    page.reload()
    expect(page.locator(".empty")).to_have_text("Say something.")
    check_layout(page)
    page.close()


def check_new_conversation(browser, url: str) -> None:
    """What was said before Clear is never sent again, also when an answer was under way."""
    page = open_page(browser, url, DESKTOP)
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.method == "POST" else None)
    page.click("summary")
    page.fill("#max", "15000")
    page.fill("#temperature", "2")
    say(page, "The old one.")
    expect(page.locator(".reply")).not_to_be_empty()
    page.evaluate("""() => {
      document.getElementById("clear").click();
      document.getElementById("text").value = "The new one.";
      document.getElementById("form").requestSubmit();
    }""")
    expect(page.locator(".reply")).not_to_be_empty()
    page.click("#send")
    expect(page.locator("#send")).to_have_text("Send")
    say(page, "And on.")
    expect(page.locator(".reply")).to_have_count(2)
    page.click("#send")
    assert [message["content"] for message in sent[1]["messages"]] == ["The new one."], sent[1]
    assert [message["role"] for message in sent[2]["messages"]] == ["user", "assistant", "user"], sent[2]
    assert sent[2]["messages"][0]["content"] == "The new one."
    check_layout(page)
    page.close()


def main() -> int:
    bin_dir = pathlib.Path(sys.argv[1])
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None

    def shoot(page, name: str) -> None:
        check_layout(page)
        if shots:
            shots.mkdir(exist_ok=True)
            page.screenshot(path=shots / f"{name}.png")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with server.serve(bin_dir, "--chat-template", "zephyr", "-c", "20000") as url:
            for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
                page = open_page(browser, url, size, color_scheme="dark" if name == "phone" else "light")
                expect(page.locator("h1")).to_have_text(server.MODEL.stem)
                expect(page.locator("#fingerprint")).to_contain_text("-int8-f16")
                page.click("summary")
                page.fill("#seed", "4")
                page.fill("#max", "120")
                page.click("summary")
                say(page, "Tell a story of a <b>dog</b>.")
                expect(page.locator(".user")).to_have_text("Tell a story of a <b>dog</b>.")
                expect(page.locator("#send")).to_have_text("Send", timeout=20000)
                expect(page.locator("#speed")).to_contain_text("a second")
                first = page.locator(".reply").inner_text()
                assert len(first) > 20, first
                say(page, "And then?")
                expect(page.locator("#send")).to_have_text("Send", timeout=20000)
                assert page.locator(".reply").count() == 2
                shoot(page, name)
                page.click("#clear")
                say(page, "Tell a story of a <b>dog</b>.")
                expect(page.locator("#send")).to_have_text("Send", timeout=20000)
                assert page.locator(".reply").inner_text() == first, "the same seed, another text"
                page.click("summary")
                page.fill("#max", "15000")
                page.fill("#temperature", "2")
                shoot(page, name + "-settings")
                say(page, "Go on.")
                expect(page.locator("#send")).to_have_text("Stop")
                page.wait_for_timeout(300)
                page.click("#send")
                expect(page.locator("#send")).to_have_text("Send")
                while server.metric(url, "texts_running"):
                    page.wait_for_timeout(50)
                assert page.locator(".error").count() == 0
                page.close()
                scheme = "dark" if name == "phone" else "light"
                check_markdown(browser, url, size, scheme, shoot)
                for scheme in ("light", "dark"):
                    check_tools(browser, url, size, scheme, shoot)
            check_models(browser, bin_dir, shoot)
            check_new_conversation(browser, url)
        with server.serve(bin_dir) as url:
            page = open_page(browser, url, PHONE)
            say(page, "Once upon a time")
            expect(page.locator("#send")).to_have_text("Send", timeout=20000)
            assert len(page.locator(".text").inner_text()) > 60
            page.click("summary")
            page.fill("#max", "-9")
            say(page, "Once")
            expect(page.locator(".error")).to_contain_text("max_tokens")
            shoot(page, "continued")
            page.close()
        with server.serve(bin_dir, "--api-key", "secret") as url:
            page = open_page(browser, url, PHONE)
            expect(page.locator(".error")).to_contain_text("key")
            page.fill("#key", "secret")
            page.press("#key", "Tab")
            expect(page.locator("h1")).to_have_text(server.MODEL.stem)
            shoot(page, "key")
            page.close()
        browser.close()
    print("the page: as it must be, at 1280 and 390 pixels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
