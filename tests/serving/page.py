#!/usr/bin/env python3
"""The page of llmserve in headless Chromium: a chat with streaming, the stop button, a text continued, a key, a phone.

    tests/serving/page.py BIN_DIR [SCREENSHOTS]

Exit code 1 with the first thing that is not as it must be.
"""

import pathlib
import shutil
import sys

import server
from playwright.sync_api import expect, sync_playwright

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
    inside = page.evaluate("document.documentElement.scrollWidth <= innerWidth && document.body.scrollHeight <= innerHeight")
    assert inside, "the page is larger than its window"
    assert not page.faults, page.faults


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
        with server.serve(bin_dir) as url:
            page = open_page(browser, url, PHONE)
            say(page, "Once upon a time")
            expect(page.locator("#send")).to_have_text("Send", timeout=20000)
            assert len(page.locator(".text").inner_text()) > 60
            page.click("summary")
            page.fill("#max", "100000")
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
