"""What is erased while a page is open is gone from that page too."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, expect
from tests.browser.housing import House

from onward.core.bodies import Message, ToolCall, ToolResult
from onward.service import sessions

SECRET = "the key is 8f1c-secret"


def test_erased_words_leave_pages_that_are_open(visiting: Callable[..., BrowserContext], home: House) -> None:
    session = home.session("Said too much")
    said, call, result, _ = home.write(
        session,
        [
            ("message", Message(role="user", text=f"Look, {SECRET}."), "user"),
            ("tool_call", ToolCall(call="c1", name="cat", input={"path": "key"}), "agent"),
            ("tool_result", ToolResult(call="c1", name="cat", output=SECRET), "tool"),
            ("message", Message(role="assistant", text="I have seen it."), "agent"),
        ],
    )
    page = visiting(home).new_page()
    page.goto(f"/sessions/{session}")
    page.locator("#composer textarea").fill("being written")
    assert page.locator("#timeline").evaluate("(one) => one.textContent").count(SECRET) == 2
    for event in (said, result):
        note = sessions.erase(home.log.platform, event.id, reason="a key")
        expect(page.locator(f"#e{note.seq}")).to_be_attached()
        expect(page.locator(f"article#e{event.seq}.erased")).to_be_attached()
    assert SECRET not in page.content()
    expect(page.locator(f"article#e{call.seq}")).to_contain_text("cat")
    numbers = page.locator("#timeline > article").evaluate_all("(all) => all.map((one) => +one.dataset.seq)")
    assert numbers == home.seqs(session)
    assert page.locator("#composer textarea").input_value() == "being written"
