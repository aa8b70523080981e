"""The page with tools that it runs, and with several models."""

import json
import pathlib
import shutil
import tempfile

import server
from page_support import PHONE, check_layout, new_conversation, open_page, say, settings, stream_of
from playwright.sync_api import expect


# Arguments of calls, and what comes of them.
CALLS = [
    ("calculator", {"expression": "2 * (3 + 4) - -1"}, {"result": 15}),
    ("calculator", {"expression": "-2 ^ 2 ** 3 / 4 % 5"}, {"result": -4}),
    ("calculator", {"expression": "max(1, sqrt(16)) + 1.5e1 + .5 + round(pi)"}, {"result": 22.5}),
    ("calculator", {"expression": "1 / 0"}, {"error": "the result is not a number"}),
    ("calculator", {"expression": "2 +"}, {"error": "found the end, need a number"}),
    ("calculator", {"expression": "2 3"}, {"error": "found 3, need an operator"}),
    ("calculator", {"expression": "(2"}, {"error": "found the end, need )"}),
    ("calculator", {"expression": "constructor"}, {"error": "found constructor, need a number"}),
    ("calculator", {"expression": "alert(1)"}, {"error": "found alert, need a number"}),
    ("calculator", {"expression": "(" * 1001}, {"error": "found 1001 characters, need at most 1000"}),
    ("constructor", {}, {"error": "no such function"}),
]


def check_tools(browser, url: str, size: dict, scheme: str, shoot) -> None:
    """Calls are run by the page and shown, their results go to the model, and that ends."""
    page = open_page(browser, url, size, color_scheme=scheme)
    for name, arguments, result in CALLS:
        found = json.loads(page.evaluate("([name, text]) => Tools.run(name, text)", [name, json.dumps(arguments)]))
        assert found == result, (name, arguments, found)
    time = json.loads(page.evaluate("""Tools.run("current_time", '{"time_zone": "Asia/Tokyo"}')"""))
    assert "GMT+9" in time["time"] and time["utc"].endswith("Z"), time
    assert "error" in page.evaluate("""Tools.run("current_time", '{"time_zone": "No/Where"}')""")
    assert "error" in page.evaluate("Tools.run('calculator', '{')")

    def called(name: str, arguments: str, index: int) -> dict:
        return {"tool_calls": [{"index": index, "id": f"call{index}", "type": "function", "function": {"name": name, "arguments": arguments}}]}

    first = [{"reasoning_content": "A sum, so I had better not guess. " + "x" * 200}, {"content": "I **compute** that."},
             called("calculator", '{"expression": "12 * 7"}', 0), called("current_time", '{"time_zone": "Europe/Paris"}', 1)]  # fmt: skip
    answers = [first, [{"content": "It is `84`."}]]
    sent = []

    def answer(route) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(body=stream_of(answers[min(len(sent), len(answers)) - 1]), content_type="text/event-stream")

    page.route("**/v1/chat/completions", answer)
    say(page, "Without tools.")
    expect(page.locator(".reply")).to_have_count(2)
    assert "tools" not in sent[0]
    new_conversation(page)
    page.click("#settings")
    page.check("#use-tools")
    page.click("#settings-box >> text=Close")
    sent.clear()
    say(page, "What is 12 * 7?")
    expect(page.locator(".reply")).to_have_count(2)
    expect(page.locator("#send")).to_have_text("Send")
    assert [tool["function"]["name"] for tool in sent[0]["tools"]] == ["calculator", "current_time"], sent[0]
    assert sent[0]["tool_choice"] == "auto"
    asked, called_for, result, time = sent[1]["messages"]
    assert called_for["content"] == "I **compute** that." and called_for["tool_calls"][0]["function"]["arguments"] == '{"expression": "12 * 7"}'
    assert result == {"role": "tool", "tool_call_id": "call0", "content": '{"result":84}'}, result
    assert time["tool_call_id"] == "call1" and "utc" in time["content"], time
    page.locator(".call").first.evaluate("call => { call.open = true; }")
    page.locator(".thoughts").evaluate("thoughts => { thoughts.open = true; }")
    shoot(page, f"tools-{scheme}-{size['width']}")
    for _ in range(2):
        assert page.locator(".call summary").all_inner_texts() == ["Called calculator", "Called current_time"]
        assert page.locator(".call pre").all_text_contents()[:2] == ['{ "expression": "12 * 7" }', '{ "result": 84 }']
        page.reload()  # and everything is as before
        expect(page.locator(".reply")).to_have_count(2)
    assert page.is_checked("#use-tools")
    sent.clear()
    say(page, "And now?")
    expect(page.locator(".user")).to_have_count(2)
    expect(page.locator("#send")).to_have_text("Send")
    assert [message["role"] for message in sent[0]["messages"]] == ["user", "assistant", "tool", "tool", "assistant", "user"], sent[0]
    sent.clear()
    answers[:] = [[{"content": "Another."}]]
    page.locator("text=Regenerate").last.click()
    expect(page.locator(".reply").last).to_have_text("Another.")
    expect(page.locator(".version")).to_have_text("2/2")
    refuse = lambda route: route.fulfill(status=500, json={"error": {"message": "no reply"}})  # noqa: E731
    page.route("**/v1/chat/completions", refuse)
    page.locator("text=Regenerate").last.click()
    expect(page.locator(".error")).to_have_text("no reply")
    expect(page.locator(".reply").last).to_have_text("Another.")
    page.reload()
    expect(page.locator(".reply").last).to_have_text("Another.")
    page.unroute("**/v1/chat/completions", refuse)
    assert sent[0]["messages"][-1] == {"role": "user", "content": "And now?"} and page.locator(".call").count() == 2
    sent.clear()
    answers[:] = [first]  # a model that never stops calling
    say(page, "For ever?")
    expect(page.locator("#send")).to_have_text("Send")
    assert [body["tool_choice"] for body in sent] == ["auto"] * 7 + ["none"], len(sent)
    check_layout(page)
    page.close()


def check_models(browser, bin_dir: pathlib.Path, shoot) -> None:
    """Several models: one is chosen, loaded with the first message, and kept over a reload."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            shutil.copy(server.MODEL, pathlib.Path(folder) / f"{name}.gguf")
        (pathlib.Path(folder) / "broken.gguf").write_bytes(b"GGUF")
        with server.serve(bin_dir, "--models", folder, "--chat-template", "zephyr", model=None) as url:
            page = open_page(browser, url, PHONE)
            expect(page.locator("#model option")).to_have_text(["broken (not loaded)", "one (not loaded)", "two (not loaded)"])
            expect(page.locator("h1")).to_be_hidden()
            page.select_option("#model", "two")
            settings(page, seed="4", max_tokens="60")
            waits = []
            page.route("**/props?model=two", lambda route: waits.append(route))
            say(page, "Tell a story.")
            expect(page.locator("#speed")).to_have_text("Loading two …")
            page.click("#send")  # which says Stop
            expect(page.locator("#speed")).to_be_empty()
            assert page.input_value("#text") == "Tell a story." and page.locator(".turn").all_inner_texts() == ["Say something."]
            waits.pop().abort()
            page.unroute("**/props?model=two")

            def load(route) -> None:
                waits.append(page.inner_text("#speed"))
                route.continue_()

            page.route("**/props?model=two", load)
            say(page, "Tell a story.")
            expect(page.locator(".reply")).not_to_be_empty()
            expect(page.locator("#send")).to_have_text("Send")
            assert waits == ["Loading two …"], waits
            expect(page.locator("#model option")).to_have_text(["broken (not loaded)", "one (not loaded)", "two"])
            expect(page.locator("#facts")).to_contain_text(" tokens of context")
            shoot(page, "models")
            page.reload()
            expect(page.locator(".reply")).to_have_count(1)
            assert page.input_value("#model") == "two" and page.title() == "two"
            page.select_option("#model", "broken")
            say(page, "And then?")
            expect(page.locator(".error")).to_contain_text("broken.gguf")
            assert page.input_value("#text") == "And then?" and page.locator(".user").count() == 1
            page.select_option("#model", "one")
            page.press("#text", "Enter")
            expect(page.locator(".reply")).to_have_count(2)
            expect(page.locator(".error")).to_have_count(0)
            expect(page.locator("#send")).to_have_text("Send")
            page.close()
