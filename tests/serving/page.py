#!/usr/bin/env python3
"""The page of llmserve in headless Chromium: conversations and their versions, two tabs, a chat with streaming, a text continued, a
key, a phone; Markdown, formulas, colours; tools that the page runs; several models.

    tests/serving/page.py BIN_DIR [--short | SCREENSHOTS]

Exit code 1 with the first thing that is not as it must be. Prints SKIPPED where there is no Chromium, or no playwright.
"""

import os
import pathlib
import shutil
import sys

import server

VENV_PYTHON = server.ROOT / "build" / "page-venv" / "bin" / "python"
if shutil.which("chromium") is None:
    sys.exit(print("SKIPPED: found no chromium; `apt-get install chromium`"))
try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    if not VENV_PYTHON.exists():
        sys.exit(print("SKIPPED: found no playwright; `./dev test` installs it where there is chromium"))
    os.execv(VENV_PYTHON, [VENV_PYTHON, "-B", *sys.argv])

from page_conversations import check_conversations, check_long, check_progress, check_tabs, check_without_store
from page_support import DESKTOP, PHONE, check_layout, new_conversation, open_page, say, settings, stream_of
from page_tools import check_models, check_tools

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

- [x] done
- [ ] to do

Of $\\vec{a}^2_{\\text{in}}$, \\(b_1\\) and $5 or $6, `$c$` and $\\wrong{$:

$$
\\frac{1}{2}
$$

| a | b |
|---|--:|
| 1 | 2 \\| 3 |

---
Unclosed **bold and `code
"""
NODES = {
    "h2": ["Title"], "strong": ["bold", "both"], "em": ["italic", "both"], "del": ["gone"], "p > code": ["code <b>", "$c$"],
    "a": ["link", "https://example.org/x"], "ul > li > ul > li > ol > li": ["deep"], ".reply > ol > li": 2, "ol > li > p": 2,
    "blockquote > p": ["quoted"], "pre > code": 1, "th": ["a", "b"], "td": ["1", "2 | 3"], "hr": 1,
    ".task": ["done", "to do"], ".task input:checked": 1, ".katex": 3, ".math.display .katex": 1, ".hljs-keyword": ["def", "return"],
    ":is(img, script, [onerror], [href^=javascript])": 0,
}  # fmt: skip
# Each made some engine slow.
HOSTILE = ["*a ", "**a", "_a", "`" , "`a``", "[", "[a](", "[a](b", "> ", "- ", "  - ", "|a", "#", " ", "~", "\\", "![", "1. ", "| - ", "https://",
           "***", "* ", "- a\n  ", ">", "```\n", "|a|\n|-|\n", "$a", "$ ", "\\(", "\\[\n", "$$\n", "$$a"]  # fmt: skip


def check_markdown(browser, url: str, size: dict, scheme: str, shoot, hostile: list) -> None:
    page = open_page(browser, url, size, color_scheme=scheme, permissions=["clipboard-read", "clipboard-write"])
    pieces = [MARKDOWN[i : i + 7] for i in range(0, len(MARKDOWN), 7)]
    body = stream_of([{"content": piece} for piece in pieces])
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    say(page, "Show me *all* of it.")
    expect(page.locator(".katex")).to_have_count(3)
    expect(page.locator(".hljs-keyword")).to_have_count(2)
    expect(page.locator(".user")).to_have_text("Show me *all* of it.")
    for _ in range(2):
        for selector, expected in NODES.items():
            found = page.locator(f".reply {selector}" if "reply" not in selector else selector)
            seen = found.count() if isinstance(expected, int) else found.all_inner_texts()
            assert seen == expected, (selector, seen)
        assert page.locator(".katex svg").bounding_box()["width"] > 3
        assert page.evaluate("getComputedStyle(document.querySelector('.katex .text')).whiteSpace") == "nowrap"
        assert page.title() == server.MODEL.stem
        shoot(page, f"markdown-{scheme}")
        page.reload()  # and everything is as before
        expect(page.locator(".katex")).to_have_count(3)
        expect(page.locator(".hljs-keyword")).to_have_count(2)
    page.click(".code-head button")
    assert page.evaluate("navigator.clipboard.readText()").startswith("def f(x):\n    return x < 3  #")
    page.locator(".tools button", has_text="Copy").last.click()
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN
    for part in hostile:
        show = "text => { Markdown.show(document.createElement('div'), text); return true; }"
        page.wait_for_function(show, arg=part * (60000 // len(part)) + "`x")
    check_layout(page)
    page.close()


def check_answers(browser, url: str, size: dict, shoot) -> None:
    """Real replies: the same seed, the same text; one is stopped."""
    name = "phone" if size == PHONE else "desktop"
    page = open_page(browser, url, size, color_scheme="dark" if size == PHONE else "light")
    expect(page.locator("h1")).to_have_text(server.MODEL.stem)
    expect(page.locator("#facts")).to_have_text(f"{server.MODEL.stem}: 20,000 tokens of context")
    settings(page, seed="4", max_tokens="120")
    say(page, "Tell a story of a <b>dog</b>.")
    expect(page.locator(".user")).to_have_text("Tell a story of a <b>dog</b>.")
    expect(page.locator("#send")).to_have_text("Send")
    expect(page.locator("#speed")).to_contain_text(" a second; prompt of ")
    expect(page.locator("#facts")).to_contain_text(" of 20,000 tokens of context")
    first = page.locator(".reply").inner_text()
    assert len(first) > 20, first
    say(page, "And then?")
    expect(page.locator("#send")).to_have_text("Send")
    assert page.locator(".reply").count() == 2
    expect(page.locator("#speed")).to_contain_text("cached")
    shoot(page, name)
    new_conversation(page)
    say(page, "Tell a story of a <b>dog</b>.")
    expect(page.locator("#send")).to_have_text("Send")
    assert page.locator(".reply").inner_text() == first, "the same seed, another text"
    page.click("#settings")
    shoot(page, name + "-settings")
    page.keyboard.press("Escape")
    settings(page, max_tokens="")
    endless = lambda route: route.continue_(post_data=route.request.post_data_json | {"ignore_eos": True})  # noqa: E731
    page.route("**/v1/chat/completions", endless)
    page.evaluate("""() => new MutationObserver((_, observer) => {
      if (document.querySelectorAll(".reply").length < 2) return;
      observer.disconnect();
      document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    }).observe($("turns"), { childList: true, subtree: true })""")
    say(page, "Go on.")
    expect(page.locator(".note").last).to_have_text("stopped")
    while server.metric(url, "texts_running"):
        page.wait_for_timeout(50)
    assert page.locator(".error").count() == 0
    page.close()


def check_all(browser, bin_dir: pathlib.Path, url: str, shoot) -> None:
    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        check_conversations(browser, url, size, scheme, shoot)
        check_markdown(browser, url, size, scheme, shoot, HOSTILE)
        check_answers(browser, url, size, shoot)
        for one in ("light", "dark"):
            check_tools(browser, url, size, one, shoot)
    check_tabs(browser, url)
    check_long(browser, url, shoot)
    check_progress(browser, url)
    check_without_store(browser, url)
    check_models(browser, bin_dir, shoot)
    with server.serve(bin_dir) as bare:  # it has no chat template
        page = open_page(browser, bare, PHONE)
        settings(page, max_tokens="60", seed="4")
        say(page, "Once upon a time")
        expect(page.locator("#send")).to_have_text("Send")
        text = page.locator(".text").inner_text()
        assert len(text) > 60
        page.click("text=Continue")
        page.wait_for_function("length => document.querySelector('.text').textContent.length > length + 60", arg=len(text))
        expect(page.locator("#send")).to_have_text("Send")
        assert page.locator(".text").inner_text().startswith(text[:60])
        page.evaluate("$('temperature').value = '-9'")
        say(page, "Once")
        expect(page.locator(".error")).to_contain_text("temperature")
        shoot(page, "continued")
        page.close()
    with server.serve(bin_dir, "--api-key", "secret") as closed:
        page = open_page(browser, closed, PHONE)
        expect(page.locator(".error")).to_contain_text("key")
        page.fill("#key", "secret")
        page.press("#key", "Tab")
        expect(page.locator("h1")).to_have_text(server.MODEL.stem)
        page.click("#settings-box >> text=Close")
        shoot(page, "key")
        page.close()


def main() -> int:
    """--short: what `./dev test` has time for."""
    bin_dir = pathlib.Path(sys.argv[1])
    is_short = sys.argv[2:] == ["--short"]
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 and not is_short else None

    def shoot(page, name: str) -> None:
        check_layout(page)
        if shots:
            shots.mkdir(exist_ok=True)
            page.screenshot(path=shots / f"{name}.png")

    expect.set_options(timeout=30000)  # other tests run beside it
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with server.serve(bin_dir, "--chat-template", "zephyr", "-c", "20000") as url:
            if is_short:
                check_conversations(browser, url, DESKTOP, "light", shoot)
                check_markdown(browser, url, PHONE, "dark", shoot, hostile=[])
                check_tabs(browser, url)
            else:
                check_all(browser, bin_dir, url, shoot)
        browser.close()
    print("the page: as it must be, at 1280 and 390 pixels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
