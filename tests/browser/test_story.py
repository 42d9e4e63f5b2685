"""The whole story, as people see it: write, watch, be moved along or not, look inside, go back, branch, continue."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.browser import housing
from tests.browser.conftest import WIDE
from tests.browser.furnishing import Furnished
from tests.browser.housing import House

HANDOFF = {
    "reason": "phase_change",
    "title": "The valve, step two",
    "handoff": {
        "purpose": "Test the valve",
        "established_facts": ["The pump is fine [2]."],
        "next_actions": ["Open it slowly"],
    },
    "sources": ["2"],
}
CONTINUE = f"[[call continue_session {json.dumps(HANDOFF)}]]"


def write(page: Page, text: str) -> None:
    """Say something in the composer."""
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    expect(page.locator("h1")).to_be_visible()
    return page


def session_of(page: Page) -> str:
    found = re.search(r"/sessions/(ses_\w+)", page.url)
    assert found is not None, page.url
    return found[1]


def test_somebody_signs_in_once_by_the_link_and_writes(
    visiting: Callable[..., BrowserContext], size: dict[str, int], tmp_path: Any
) -> None:
    with housing.house(tmp_path) as served:
        page = visiting(served, signed=False, viewport=size).new_page()
        page.goto("/")
        expect(page).to_have_url(re.compile("/login"))
        page.goto(served.link)
        expect(page).to_have_url(f"{served.url}/")
        page.get_by_text("New session").click()
        page.get_by_label("Title", exact=True).fill("The valve")
        page.get_by_label("Engine").first.select_option("script")
        page.get_by_role("button", name="Open it").click()
        expect(page.locator("h1")).to_have_text("The valve")
        write(
            page,
            "Hello. [[write It is]][[gate one]][[write  being written]][[gate two]]"
            "[[finish It is being written, and done.]]",
        )
        expect(page.locator("#timeline .message").last).to_contain_text("Hello.")
        expect(page.locator("#draft .draft-text")).to_have_text("It is")
        served.gates.open("one")
        expect(page.locator("#draft .draft-text")).to_have_text("It is being written")
        expect(page.locator("#draft .draft-text")).to_be_in_viewport()
        served.gates.open("two")
        expect(page.locator("#timeline .by-agent .prose").last).to_have_text("It is being written, and done.")
        expect(page.locator("#draft")).to_be_hidden()
        expect(page.locator("#state")).not_to_contain_text("orking")
        other = visiting(served, signed=False).new_page()
        other.goto(served.link)
        expect(other.locator("main")).to_contain_text("used before")


def test_a_follower_is_moved_and_somebody_who_looks_elsewhere_is_not(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Follow me")
    for number in range(8):
        home.ended(
            session, home.say(session, f"Line {number} [[say {'A long answer, line by line. ' * 20}]]")
        )
    context = visiting(home, viewport=size)
    follower, reader = context.new_page(), context.new_page()
    opened(follower, f"/sessions/{session}")
    opened(reader, f"/sessions/{session}")
    before = follower.evaluate("() => history.length")
    run = home.say(
        session, f"Go on at {size['width']}. [[gate moving]]{CONTINUE}[[then]][[say From the successor.]]"
    )
    for page in (reader, follower):
        page.bring_to_front()
        expect(
            page.locator("#timeline .by-you, #timeline .by-user, #timeline .message").last
        ).to_contain_text("Go on at")
        expect(page.locator("#state .busy")).to_be_visible()
    # One of the two scrolls away, to read something.
    reader.bring_to_front()
    reader.mouse.move(size["width"] / 2, size["height"] / 2)
    reader.mouse.wheel(0, -1500)
    reader.wait_for_function("() => document.scrollingElement.scrollHeight - scrollY - innerHeight > 600")
    follower.bring_to_front()
    home.gates.open("moving")
    expect(follower.locator("h1")).to_have_text("The valve, step two")
    successor = session_of(follower)
    assert successor != session
    expect(follower.locator(".banner")).to_contain_text("Follow me")
    expect(follower.locator("#timeline .by-agent .prose").last).to_have_text("From the successor.")
    # The other one stays where it is, and is told.
    assert reader.url == f"{home.url}/sessions/{session}"
    expect(reader.locator("#went-on")).to_contain_text("The valve, step two")
    expect(reader.locator(".transition-card")).to_have_count(1)
    # Back leads back, and does not bounce.
    assert follower.evaluate("() => history.length") == before + 1
    follower.go_back()
    expect(follower).to_have_url(f"{home.url}/sessions/{session}")
    card = follower.locator(".transition-card")
    expect(card).to_contain_text("Continued in")
    expect(card).to_contain_text("A new phase began")
    follower.reload()
    expect(card).to_be_visible()
    assert follower.url == f"{home.url}/sessions/{session}"
    follower.go_forward()
    expect(follower.locator("h1")).to_have_text("The valve, step two")
    home.ended(session, run)


def test_somebody_who_is_writing_is_not_moved_and_their_words_go_along(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Writing meanwhile")
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{session}")
    home.say(
        session, f"Go on while I write at {size['width']}. [[gate writing]]{CONTINUE}[[then]][[say Yes.]]"
    )
    expect(page.locator("#state .busy")).to_be_visible()
    page.locator("#composer textarea").press_sequentially("Not sent")
    home.gates.open("writing")
    offers = page.locator("#offers")
    expect(offers.locator("textarea")).to_have_value("Not sent")
    expect(page.locator("#went-on")).to_be_visible()
    assert session_of(page) == session
    offers.locator("textarea").press_sequentially(" yet")
    offers.get_by_role("button", name="Open “The valve, step two”").click()
    expect(page.locator("h1")).to_have_text("The valve, step two")
    expect(page.locator("#composer textarea")).to_have_value("Not sent yet")
    expect(page.locator("#composer")).to_contain_text("not sent yet")
    opened(page, f"/sessions/{session}")
    page.locator("#offers textarea").fill("Another way")
    page.get_by_role("button", name="Branch from here").click()
    expect(page.locator(".banner")).to_contain_text("Branched from")
    expect(page.locator("#composer textarea")).to_have_value("Another way")
    write(page, "[[say On the branch.]]")
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("On the branch.")


def test_the_handoff_is_opened_and_a_cited_range_leads_to_its_exact_events(
    visiting: Callable[..., BrowserContext], home: House, there: Furnished, size: dict[str, int]
) -> None:
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{there.origin}")
    page.locator(".transition-card").get_by_role("link", name="Inspect handoff").click()
    expect(page.locator("h1")).to_contain_text("Tide table: tests, then UTC inside")
    main = page.locator("main")
    for told in ("UTC everywhere inside", "Established facts", "Open questions", "sha256:"):
        expect(main).to_contain_text(told)
    link = page.locator("a[href*='/range/2-5']").first
    link.click()
    expect(page.locator(".cited-range article")).to_have_count(4)
    expect(page.locator(".cited-range")).to_contain_text("It is the clock change")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Tide table: tests, then UTC inside")
    opened(page, f"/sessions/{there.successor}")
    page.get_by_role("link", name="Back to previous").click()
    expect(page.locator(".transition-card")).to_be_in_viewport()
    opened(page, f"/sessions/{there.successor}/lineage")
    expect(page.locator("svg").first).to_be_visible()
    page.locator(".lineage-map a", has_text="Tide table is").first.click()
    expect(page.locator("h1")).to_contain_text("Tide table is an hour early")


def test_a_successor_that_failed_is_tried_again(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Fails at first")
    run = home.say(
        session,
        f"Try at {size['width']}. {CONTINUE}[[then]][[fail The provider is overloaded.]]"
        "[[then]][[gate again]][[say It worked.]]",
    )
    home.ended(session, run)
    successor = home.log.lineage(session).links[0].to_session
    first = home.log.platform.store.runs(successor, limit=1)[0].id
    home.ended(successor, first)
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{successor}")
    banner = page.locator(".banner")
    expect(banner).to_contain_text("The provider is overloaded.")
    expect(banner.get_by_role("link", name="Back to previous")).to_be_visible()
    banner.get_by_role("button", name="Retry").click()
    home.gates.open("again")
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("It worked.")
    page.goto(f"/sessions/{successor}")
    expect(page.locator(".banner")).not_to_contain_text("overloaded")


def test_a_branch_is_made_from_an_event_of_an_old_session(
    visiting: Callable[..., BrowserContext], home: House, there: Furnished, size: dict[str, int]
) -> None:
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{there.origin}?at=5#e5")
    page.locator("#e5 .event-menu summary").click()
    page.locator("#e5").get_by_role("link", name="Branch from here").click()
    expect(page.locator("h1")).to_contain_text("Branch from event 5")
    page.get_by_label("Title of the branch").fill("From the fifth event")
    page.get_by_role("button", name="Branch from here").click()
    expect(page.locator("h1")).to_have_text("From the fifth event")
    expect(page.locator(".banner")).to_contain_text("Branched from")
    page.locator(".banner").get_by_role("link", name="Back to where it came from").click()
    expect(page.locator("#e5")).to_be_in_viewport()


def test_a_draft_is_edited_weighed_and_sent_once(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Edit a draft")
    for text in (
        "We decided to keep port 8417. [[say Noted: port 8417 stays.]]",
        "The pump is fine. [[say Good.]]",
    ):
        home.ended(session, home.say(session, text))
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{session}")
    page.get_by_role("link", name="Continue…").click()
    expect(page.locator("h1")).to_have_text("Continue in a fresh session")
    page.get_by_label("Purpose", exact=True).fill("Test the valve")
    page.get_by_role("button", name=re.compile("[Dd]raft")).click()
    weighed = page.locator("#weighed")
    expect(weighed).to_contain_text("tokens")
    before = weighed.inner_text()
    page.get_by_label("Next actions").fill("Open the valve slowly, and read the gauge at each step. " * 40)
    expect(weighed).not_to_have_text(before)
    grown = weighed.inner_text()
    page.get_by_label("Budget in tokens").fill("12")
    expect(weighed).not_to_have_text(grown)
    page.get_by_label("Budget in tokens").fill("9000")
    expect(weighed).to_contain_text("9")
    page.get_by_label("Title", exact=True).fill("The valve, at last")
    page.get_by_label("Message (optional)").fill("[[say Sent once.]]")
    page.get_by_role("button", name="Continue there").dblclick()
    expect(page.locator("h1")).to_have_text("The valve, at last")
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("Sent once.")
    assert len([one for one in home.log.lineage(session).links if one.type == "continuation"]) == 1


def test_a_refused_draft_says_why_and_keeps_what_was_filled_in(
    visiting: Callable[..., BrowserContext], home: House
) -> None:
    session = home.session("Refuse a draft")
    home.ended(session, home.say(session, "The pump is fine. [[say Good.]]"))
    page = opened(visiting(home).new_page(), f"/sessions/{session}/continue?purpose=Test")
    page.get_by_label("Next actions").fill("Do not lose me")
    page.get_by_label("Budget in tokens").fill("3")
    page.get_by_role("button", name="Continue there").click()
    expect(page.locator("#refused")).to_contain_text("budget")
    expect(page.get_by_label("Next actions")).to_have_value("Do not lose me")


@pytest.fixture(scope="module")
def cautious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server at which what agents continue waits for a person."""
    with housing.house(tmp_path_factory.mktemp("cautious"), ONWARD_APPROVAL="agent") as made:
        yield made


def test_a_continuation_that_waits_is_carried_out_when_a_person_says_so(
    visiting: Callable[..., BrowserContext], cautious: House, size: dict[str, int]
) -> None:
    session = cautious.session("Waits for a person")
    page = opened(visiting(cautious, viewport=size).new_page(), f"/sessions/{session}")
    run = cautious.say(
        session, f"Go on at {size['width']}, if you may. {CONTINUE}[[then]][[say With permission.]]"
    )
    cautious.ended(session, run)
    expect(page.locator("#waits")).to_contain_text("The valve, step two")
    page.get_by_role("link", name=re.compile("Approvals")).click()
    card = page.locator("main", has_text="The valve, step two")
    card.get_by_role("button", name=re.compile("^(Accept|Carry|Approve|Continue)")).first.click()
    expect(page.locator("h1")).to_have_text("The valve, step two")
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("With permission.")
    page.goto("/approvals")
    expect(page.locator("main")).to_contain_text("Nothing waits for you.")


def test_a_permission_is_given_on_the_page_while_the_agent_waits(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Asks first")
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{session}")
    write(page, "May you? [[ask rm -r build]]")
    waits = page.locator("#waits")
    expect(waits).to_contain_text("rm -r build")
    waits.get_by_role("button", name=re.compile("^Allow")).click()
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("granted")
    expect(page.locator("#waits .asked-card")).to_have_count(0)


def test_a_session_is_mentioned_by_keys_alone(
    visiting: Callable[..., BrowserContext], home: House, there: Furnished, size: dict[str, int]
) -> None:
    session = home.session("Mentions another")
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{session}")
    area = page.locator("#composer textarea")
    area.focus()
    page.keyboard.type("As we found in @Every kind")
    options = page.locator(".mentions [role=option]")
    expect(options.first).to_contain_text("Every kind of event")
    expect(area).to_have_attribute("aria-activedescendant", re.compile(".+"))
    page.keyboard.press("Escape")
    expect(page.locator(".mentions")).to_be_hidden()
    page.keyboard.type(" x")
    area.fill("")
    page.keyboard.type("In @Every")
    expect(options.first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(area).to_have_value(re.compile(r"^In .*Every kind of event.* $"))
    page.keyboard.type("it is told. [[say Read.]]")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("Read.")
    expect(page.locator("#timeline .recall")).to_contain_text("Every kind of event")


def test_a_search_marks_what_was_replaced_and_leads_to_its_place(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Ports")
    for text in (
        "The dashboard listens on port 8416. [[say Noted: the dashboard listens on port 8416.]]",
        "Correction: the dashboard listens on port 8417 instead of 8416. [[say Noted: it is port 8417 now, not 8416.]]",
    ):
        home.ended(session, home.say(session, text))
    page = opened(visiting(home, viewport=size).new_page(), f"/search?q=dashboard+port&session={session}")
    expect(page.locator("main")).to_contain_text("8416")
    expect(page.locator("main")).to_contain_text(re.compile("[Rr]eplaced|[Ss]uperseded|newer", re.IGNORECASE))
    page.locator("main a[href*='at=']").first.click()
    expect(page.locator("article.event").first).to_be_attached()
    assert session_of(page) == session


def test_a_run_is_cancelled_and_tried_again(
    visiting: Callable[..., BrowserContext], home: House, size: dict[str, int]
) -> None:
    session = home.session("Cancel it")
    page = opened(visiting(home, viewport=size).new_page(), f"/sessions/{session}")
    write(page, f"Work at {size['width']}. [[gate never]][[then]][[say The second time.]]")
    home.gates.reached("never")
    page.locator("#facts").get_by_role("button", name=re.compile("^Cancel")).click()
    expect(page.locator("#timeline")).to_contain_text(re.compile("cancelled", re.IGNORECASE))
    page.locator("main").get_by_role("button", name=re.compile("^Try again")).first.click()
    page.goto(f"/sessions/{session}")
    expect(page.locator("#timeline .by-agent .prose").last).to_have_text("The second time.")


def test_two_tabs_show_the_same_without_being_touched(
    visiting: Callable[..., BrowserContext], home: House
) -> None:
    session = home.session("Two tabs")
    context = visiting(home, viewport=WIDE)
    pages = [
        opened(context.new_page(), f"/sessions/{session}"),
        opened(context.new_page(), f"/sessions/{session}"),
    ]
    write(pages[0], "Said in one. [[say Seen in both.]]")
    for page in pages:
        expect(page.locator("#timeline .by-agent", has_text="Seen in both.")).to_have_count(1)
