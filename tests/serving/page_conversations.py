"""The page's conversations: their list, versions of messages, two tabs, a long prompt and a long reply."""

import json

from page_support import DESKTOP, PHONE, answer_slowly, check_layout, new_conversation, open_page, say, settings, stream_of
from playwright.sync_api import expect


# What makes no conversation of the first one in a file.
BROKEN = [('"role": "user"', '"role": "x"'), ('"nodes": [', '"nodes": [null, '), ('"nodes": [', '"nodes": 1, "x": ['), ('"parent": null', '"parent": "x"'),
          ('"title": ', '"title": 1, "x": '), ('"content": ', '"content": 1, "x": '), ('"calls": ', '"calls": 1, "x": ')]  # fmt: skip


def answer_with(page, *replies: str, reason: str = "stop") -> list:
    """Answers the page's requests with those texts in turn, the last one for ever. @return the bodies that come"""
    sent = []

    def answer(route) -> None:
        sent.append(route.request.post_data_json)
        text = replies[min(len(sent), len(replies)) - 1]
        route.fulfill(body=stream_of([{"content": text}], reason), content_type="text/event-stream")

    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", answer)
    return sent


def contents(body: dict) -> list:
    return [message["content"] for message in body["messages"]]


def click(page, name: str, index: int = -1) -> None:
    """The button of that name of the last message that has one, when nothing is under way."""
    expect(page.locator("#send")).to_have_text("Send")
    page.locator(".tools").get_by_role("button", name=name, exact=True).nth(index).click()


def shown(page) -> list:
    return page.locator(".user, .reply").all_inner_texts()


def open_list(page) -> None:
    if page.viewport_size == PHONE and not page.locator("#side").is_visible():
        page.click("#menu")


def check_versions(page) -> None:
    sent = answer_with(page, "First.", "Second.", "Third.", "Fourth.")
    say(page, "One")
    expect(page.locator(".reply")).to_have_text("First.")
    say(page, "Two")
    expect(page.locator(".reply")).to_have_count(2)
    click(page, "Regenerate")
    expect(page.locator(".reply").last).to_have_text("Third.")
    expect(page.locator(".version")).to_have_text("2/2")
    assert contents(sent[2]) == ["One", "First.", "Two"], sent[2]
    click(page, "Previous version")
    expect(page.locator(".reply").last).to_have_text("Second.")
    click(page, "Edit", 0)  # the first message, which begins another branch
    page.fill(".editor textarea", "Another one")
    page.press(".editor textarea", "Enter")
    expect(page.locator(".reply")).to_have_text("Fourth.")
    assert contents(sent[3]) == ["Another one"], sent[3]
    assert shown(page) == ["Another one", "Fourth."]
    click(page, "Previous version")
    for _ in range(2):
        expect(page.locator(".reply")).to_have_count(2)
        assert shown(page) == ["One", "First.", "Two", "Third."], shown(page)  # the latest of its versions
        page.evaluate("saved")
        page.reload()
    click(page, "Delete")
    assert shown(page) == ["One", "First.", "Two", "Second."], shown(page)
    page.click("#notice >> text=Undo")
    assert shown(page) == ["One", "First.", "Two", "Third."], shown(page)
    click(page, "Edit")  # of the reply: nothing is sent
    page.fill(".editor textarea", "My own.")
    page.click(".editor >> text=Save")
    assert shown(page) == ["One", "First.", "Two", "My own."] and len(sent) == 4
    click(page, "Delete", 0)
    assert shown(page) == ["Another one", "Fourth."]
    page.evaluate("closeNotice()")  # with which the deletion is for good
    new_conversation(page)
    stored = page.evaluate("saved.then(() => JSON.stringify([...known.values()]))")
    assert "Fourth." in stored and "My own." not in stored, stored
    open_list(page)
    page.click("#list .title")
    expect(page.locator(".reply")).to_have_text("Fourth.")
    assert shown(page) == ["Another one", "Fourth."]


def check_continue(page) -> None:
    new_conversation(page)
    answer_with(page, "def f(", reason="length")
    settings(page, max_tokens="9", top_k="40", top_p="0.9", min_p="0.05", repeat_penalty="1.1", seed="3", stop="END\nSTOP", system="Be\nterse.")
    say(page, "Code")
    expect(page.locator(".note").last).to_have_text("ended at the limit of tokens")
    sent = answer_with(page, "x): pass")
    click(page, "Continue")
    expect(page.locator(".reply")).to_have_text("def f(x): pass")
    expect(page.locator("#send")).to_have_text("Send")
    body = sent[0]
    assert body["continue_final_message"] is True and contents(body) == ["Be\nterse.", "Code", "def f("], body
    expected = {"temperature": 0.8, "max_tokens": 9, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repeat_penalty": 1.1, "seed": 3, "stop": ["END", "STOP"]}
    assert {name: body[name] for name in expected} == expected, body
    assert page.locator("text=Continue").count() == 0
    settings(page, max_tokens="", top_k="", top_p="", min_p="", repeat_penalty="", seed="", stop="", system="", temperature="")
    say(page, "On")
    expect(page.locator(".reply")).to_have_count(2)
    assert not set(expected) & set(sent[1]), sent[1]


def check_errors(page) -> None:
    """A message that gets no reply stays, and can be answered later."""
    new_conversation(page)
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=500, json={"error": {"message": "no reply"}}))
    say(page, "Hello")
    expect(page.locator(".error")).to_have_text("no reply")
    assert shown(page) == ["Hello"] and page.input_value("#text") == ""
    sent = answer_with(page, "Late.")
    click(page, "Answer")
    expect(page.locator(".reply")).to_have_text("Late.")
    assert contents(sent[0]) == ["Hello"] and page.locator(".error").count() == 0
    click(page, "Delete")
    click(page, "Delete")
    assert shown(page) == []


def check_files(page) -> None:
    new_conversation(page)
    sent = answer_with(page, "Read.")
    page.set_input_files("#attach-file", [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"a ```` b"},
                                          {"name": "y.bin", "mimeType": "", "buffer": b"\xff"},
                                          {"name": "x.bin", "mimeType": "", "buffer": b"a\x00"}])  # fmt: skip
    expect(page.locator("#notice")).to_contain_text("x.bin: found other data than UTF-8 text")
    expect(page.locator(".chip")).to_have_count(1)
    say(page, "What is it?")
    expect(page.locator(".reply")).to_have_text("Read.")
    assert contents(sent[0]) == ["notes.txt:\n`````\na ```` b\n`````\n\nWhat is it?"], sent[0]
    assert page.locator(".chip").count() == 0 and page.locator(".user").inner_text() == "What is it?"
    page.click(".attached summary")
    expect(page.locator(".attached pre")).to_have_text("a ```` b")


def check_list(page, shoot) -> None:
    """What was made above, in the list; export, deletion, import."""
    titles = page.locator("#list .title")
    open_list(page)
    expect(titles).to_have_text(["What is it?", "Hello", "Code", "One"])
    page.locator("#list li", has_text="Hello").get_by_role("button", name="Delete").click()
    expect(titles).to_have_count(3)
    shoot(page, "list-phone" if page.viewport_size == PHONE else "list")
    page.fill("#search", "X): PASS")
    expect(titles).to_have_text(["Code"])
    page.fill("#search", "")
    with page.expect_download() as download:
        page.click("#export")
    text = download.value.path().read_text(encoding="utf-8")
    assert len(json.loads(text)["conversations"]) == 3
    row = page.locator("#list li", has_text="Code")
    row.hover()
    row.get_by_role("button", name="Rename").click()
    page.fill("#list input", "A <b>name</b>")
    page.press("#list input", "Enter")
    expect(titles.first).to_have_text("A <b>name</b>")
    page.locator("#list li").first.hover()
    page.locator("#list li").first.get_by_role("button", name="Delete").click()
    expect(titles).to_have_count(2)
    page.click("#notice >> text=Undo")
    expect(titles).to_have_count(3)
    expect(page.locator(".reply").first).to_have_text("def f(x): pass")
    open_list(page)
    for left in (2, 1, 0):
        page.locator("#list li").first.hover()
        page.locator("#list li").first.get_by_role("button", name="Delete").click()
        expect(titles).to_have_count(left)
        open_list(page)
    assert page.locator(".turn").all_inner_texts() == ["Say something."]
    for wrong, words in (("{", "found no JSON"), ("{}", 'found no "llmserve"'), (text.replace('"format": 1', '"format": 2'), "format: found 2, need 1"),
                         *((text.replace(old, new), "conversations[0]: found no valid conversation") for old, new in BROKEN)):  # fmt: skip
        page.set_input_files("#import-file", [{"name": "c.json", "mimeType": "application/json", "buffer": wrong.encode()}])
        expect(page.locator("#notice")).to_contain_text("c.json: " + words)
    page.set_input_files("#import-file", [{"name": "c.json", "mimeType": "application/json", "buffer": text.encode()}])
    expect(page.locator("#notice")).to_contain_text("Imported 3 conversations")
    assert sorted(titles.all_inner_texts()) == ["A <b>name</b>", "One", "What is it?"], titles.all_inner_texts()
    page.click("#list >> text=One")
    expect(page.locator(".reply")).to_have_text("Fourth.")


def check_keys(page) -> None:
    page.focus("#text")
    page.press("#text", "ArrowUp")
    expect(page.locator(".editor textarea")).to_have_value("Another one")
    page.press(".editor textarea", "Escape")
    assert page.locator(".editor").count() == 0 and shown(page) == ["Another one", "Fourth."]
    page.keyboard.press("Control+/")
    expect(page.locator("#help-box")).to_be_visible()
    check_layout(page)
    page.keyboard.press("Escape")
    page.fill("#text", "a")
    height = page.locator("#text").bounding_box()["height"]
    page.press("#text", "Shift+Enter")
    assert page.input_value("#text") == "a\n" and page.locator("#text").bounding_box()["height"] > height
    page.fill("#text", "")
    back = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    colours = []
    for theme in ("light", "dark", ""):
        page.evaluate("theme => { $('theme').value = theme; $('theme').dispatchEvent(new Event('change')); }", theme)
        colours.append(back())
    assert colours[0] != colours[1] and colours[2] in colours[:2], colours
    page.keyboard.press("Control+Shift+F")
    expect(page.locator("#search")).to_be_focused()


def check_conversations(browser, url: str, size: dict, scheme: str, shoot) -> None:
    page = open_page(browser, url, size, color_scheme=scheme)
    check_versions(page)
    check_continue(page)
    check_errors(page)
    check_files(page)
    check_list(page, shoot)
    check_keys(page)
    check_layout(page)
    page.close()


def check_tabs(browser, url: str) -> None:
    """Two tabs in one conversation: each sees the other's messages, and none is lost where it does not. The old page's is taken over."""
    context = browser.new_context()
    context.add_init_script("""localStorage.getItem("done") ?? localStorage.setItem("llmserve.conversation", JSON.stringify({ version: 2, turns: [
        { role: "user", content: "Old" }, { role: "assistant", steps: [{ content: "Kept.", calls: [] }], note: "" }] }));
        localStorage.setItem("done", "")""")
    one = open_page(context, url, DESKTOP)
    one.click("#list >> text=Old")
    expect(one.locator(".reply")).to_have_text("Kept.")
    assert shown(one) == ["Old", "Kept."] and one.evaluate("localStorage.getItem('llmserve.conversation')") is None
    answer_with(one, "Of one.")
    say(one, "First")
    expect(one.locator(".reply").last).to_have_text("Of one.")
    two = open_page(context, one.url, DESKTOP)
    answer_with(two, "Of two.")
    expect(two.locator(".reply")).to_have_count(2)
    say(two, "Second")
    expect(one.locator(".reply").last).to_have_text("Of two.")  # without a reload
    one.evaluate("Store.listen(() => {})")  # hears nothing any more
    say(two, "Third")
    expect(two.locator(".reply")).to_have_count(4)
    two.evaluate("actions.rename(conversation.id, 'Named')")
    say(one, "Meanwhile")
    expect(one.locator(".version").last).to_have_text("2/2")  # of "Third", which came with what was stored
    one.evaluate("saved")
    one.reload()
    expect(one.locator(".reply")).to_have_count(4)
    assert shown(one)[-2:] == ["Meanwhile", "Of one."], shown(one)
    one.locator(".turn", has=one.locator(".version")).get_by_role("button", name="Previous version").click()
    assert shown(one)[-2:] == ["Third", "Of two."], shown(one)
    expect(one.locator("#list .title")).to_have_text("Named")
    assert not one.faults and not two.faults, (one.faults, two.faults)
    context.close()


def check_without_store(browser, url: str) -> None:
    """A browser that keeps nothing: the page says so, and works. The first message is sent before the page is complete."""
    page = browser.new_page()
    page.add_init_script("""indexedDB.open = () => { throw new Error("not allowed"); };
        addEventListener("DOMContentLoaded", () => { $("text").value = "One"; $("form").requestSubmit(); })""")
    answer_with(page, "First.", "Second.")
    page.goto(url)
    expect(page.locator("#notice")).to_contain_text("This browser stores no conversations: not allowed")
    expect(page.locator(".reply")).to_have_text("First.")
    click(page, "Regenerate")
    expect(page.locator(".reply")).to_have_text("Second.")
    new_conversation(page)
    page.click("#list >> text=One")
    expect(page.locator(".version")).to_have_text("2/2")
    page.close()


def check_progress(browser, url: str) -> None:
    """A real prompt that takes a while."""
    page = open_page(browser, url, DESKTOP)
    page.evaluate("""() => {
      window.seen = [];
      new MutationObserver(() => { for (const bar of document.querySelectorAll(".progress")) seen.push(bar.textContent); })
        .observe($("turns"), { childList: true, subtree: true });
    }""")
    settings(page, max_tokens="9")
    say(page, "Once upon a time there was a dog. " * 400)
    expect(page.locator(".reply")).not_to_be_empty()
    expect(page.locator(".progress")).to_have_count(0)
    seen = page.evaluate("seen")
    assert any(said.startswith("Reading the prompt: ") and said.endswith(" s left") for said in seen), seen
    check_layout(page)
    page.close()


def check_long(browser, url: str, shoot) -> None:
    """A reply that grows while one reads above, a reload in its midst, and one that is left for another conversation."""
    page = open_page(browser, url, DESKTOP)
    answer_slowly(page)
    say(page, "Go on.")
    page.wait_for_function("() => $('scroll').scrollHeight > 2 * $('scroll').clientHeight")
    below = lambda: page.evaluate("$('scroll').scrollHeight - $('scroll').scrollTop - $('scroll').clientHeight")  # noqa: E731
    assert below() < 60, below()
    page.evaluate("$('scroll').scrollTop = 0")
    height = page.evaluate("$('scroll').scrollHeight")
    page.wait_for_function("height => $('scroll').scrollHeight > height + 100", arg=height)
    assert page.evaluate("$('scroll').scrollTop") == 0
    shoot(page, "reading")
    page.wait_for_function("() => [...known.values()].some(({ nodes }) => nodes.length === 2)")  # it is stored as it grows
    page.reload()
    expect(page.locator(".note").last).to_have_text("stopped")
    expect(page.locator("text=Continue")).to_have_count(1)
    assert below() < 60, below()
    page.evaluate("$('scroll').scrollTop = 0")
    page.click("#down")
    assert below() < 60, below()
    page.evaluate("$('scroll').scrollTop = 100")
    click(page, "Continue")
    expect(page.locator("#send")).to_have_text("Stop")
    page.evaluate("$('scroll').scrollTop = 100")
    page.keyboard.press("Escape")
    expect(page.locator("#send")).to_have_text("Send")
    assert page.evaluate("$('scroll').scrollTop") == 100  # nor does it jump at the end
    click(page, "Continue")
    expect(page.locator("#send")).to_have_text("Stop")
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.method == "POST" else None)
    page.evaluate("""() => {
      $("new").click();
      $("text").value = "The new one.";
      $("form").requestSubmit();
    }""")
    expect(page.locator(".reply")).to_contain_text("Paragraph 9.")
    assert shown(page)[0] == "The new one." and len(shown(page)) == 2
    page.keyboard.press("Escape")
    say(page, "And on.")
    expect(page.locator(".reply")).to_have_count(2)
    page.keyboard.press("Escape")
    assert contents(sent[0]) == ["The new one."], sent[0]
    assert [message["role"] for message in sent[1]["messages"]] == ["user", "assistant", "user"], sent[1]
    page.evaluate("$('scroll').scrollTop = 0")
    page.click("#list >> text=Go on.")
    expect(page.locator(".reply")).to_have_count(1)
    expect(page.locator(".note").last).to_have_text("stopped")
    assert below() < 60, below()
    check_layout(page)
    page.close()
