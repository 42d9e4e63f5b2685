"""Without script, every page reads and every form works."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.browser.addresses import addresses
from tests.browser.conftest import NARROW
from tests.browser.furnishing import Furnished, lengthen
from tests.browser.housing import House


@pytest.fixture
def plain(visiting: Callable[..., BrowserContext], home: House) -> Page:
    """A page of a browser in which no script runs."""
    return visiting(home, java_script_enabled=False, viewport=NARROW).new_page()


def test_every_page_reads(plain: Page, home: House, there: Furnished) -> None:
    for address in addresses(home, there):
        answer = plain.goto(address)
        assert answer is not None
        assert answer.status == (404 if address == "/nowhere" else 200), address
        expect(plain.locator("h1").first, address).to_be_visible()
        expect(plain.locator("main"), address).not_to_be_empty()
        assert plain.locator("[role=status]:visible", has_text="interrupted").count() == 0


def test_a_message_is_sent_and_its_answer_read(plain: Page, home: House) -> None:
    plain.goto("/")
    plain.get_by_text("New session").click()
    plain.get_by_label("Title", exact=True).fill("Without script")
    plain.get_by_label("Engine").first.select_option("script")
    plain.get_by_role("button", name="Open it").click()
    expect(plain.locator("h1")).to_have_text("Without script")
    plain.get_by_role("textbox", name="Message").fill("[[say Read and written.]]")
    plain.get_by_role("button", name="Send").click()
    session = re.search(r"ses_\w+", plain.url)
    assert session is not None
    home.ended(session[0], home.log.platform.store.runs(session[0], limit=1)[0].id)
    plain.reload()
    expect(plain.locator(".by-agent .prose")).to_have_text("Read and written.")


def test_a_message_that_is_refused_stays_written(plain: Page, home: House) -> None:
    session = home.session("Refused")
    plain.goto(f"/sessions/{session}")
    home.log.archive(session)
    plain.get_by_role("textbox", name="Message").fill("What was written")
    plain.get_by_role("button", name="Send").click()
    expect(plain.locator(".composer.closed .refused")).to_be_visible()
    expect(plain.get_by_label("What you wrote was not sent")).to_have_value("What was written")


def test_a_long_session_is_read_to_its_beginning(plain: Page, home: House) -> None:
    session = home.session("Long, without script")
    lengthen(home.log, session, 450)
    plain.goto(f"/sessions/{session}")
    seen: list[int] = []
    for _ in range(6):
        numbers = [
            int(one.get_attribute("data-seq") or 0) for one in plain.locator("article[data-seq]").all()
        ]
        seen = numbers + seen
        earlier = plain.get_by_role("link", name="Earlier")
        if not earlier.count():
            break
        earlier.click()
    assert seen == home.seqs(session)


def test_a_conversation_is_continued_from_its_draft(plain: Page, home: House) -> None:
    session = home.session("Draft without script")
    home.ended(session, home.say(session, "[[say The pump is fine.]]"))
    plain.goto(f"/sessions/{session}/continue")
    plain.get_by_label("Purpose", exact=True).fill("Look at the valve")
    plain.locator("main form button").last.click()
    title = plain.get_by_label("Title", exact=True)
    expect(title).to_have_value("Look at the valve")
    title.fill("The valve")
    plain.get_by_label("Budget in tokens").fill("9,000")
    plain.get_by_role("button", name="Weigh again").click()
    expect(plain.get_by_label("Title", exact=True)).to_have_value("The valve")
    expect(plain.locator("#weighed")).to_contain_text("9")
    plain.get_by_role("button", name="Continue there").click()
    expect(plain.locator("h1")).to_have_text("The valve")
    expect(plain.locator(".banner")).to_contain_text("Draft without script")
    plain.get_by_role("link", name="Back to previous").click()
    expect(plain.locator(".transition-card, article.transition").first).to_contain_text("The valve")


def test_a_text_goes_along_where_a_session_was_continued(plain: Page, home: House, there: Furnished) -> None:
    plain.goto(f"/sessions/{there.origin}")
    plain.locator("#offers textarea").fill("Is the printed table done?")
    plain.locator("#offers button[value=open]").click()
    expect(plain).to_have_url(re.compile(there.successor))
    expect(plain.locator("#composer textarea")).to_have_value("Is the printed table done?")


def test_a_branch_is_made_with_the_words_said_differently(plain: Page, home: House) -> None:
    session = home.session("Branch without script")
    home.ended(session, home.say(session, "First."))
    home.ended(session, home.say(session, "Second, said badly."))
    events = home.log.read(session).events
    at = next(one.seq for one in events if one.kind == "message" and b"Second, said badly." in one.body)
    plain.goto(f"/sessions/{session}/branch?at={at}")
    plain.get_by_role("button", name="Say this differently").click()
    expect(plain.locator("#composer textarea")).to_have_value("Second, said badly.")
    expect(plain.locator(".banner")).to_contain_text("Branched from")


def test_a_session_is_mentioned(plain: Page, home: House, there: Furnished) -> None:
    session = home.session("Mention without script")
    plain.goto(f"/sessions/{session}")
    plain.locator("#composer textarea").fill("As in")
    plain.get_by_role("button", name="Mention").click()
    expect(plain.locator("main")).to_contain_text("Every kind of event")
    plain.get_by_role("button", name="Every kind of event").click()
    expect(plain.locator("#composer textarea")).to_have_value(
        re.compile(r"As in.*Every kind of event", re.DOTALL)
    )


def test_the_look_is_chosen(plain: Page, home: House) -> None:
    plain.goto("/")
    plain.locator("summary[aria-label='Look and account']").click()
    plain.get_by_role("button", name="Dark").click()
    expect(plain.locator("html")).to_have_attribute("data-theme", "dark")
