"""Whatever breaks, a page ends up with every event once, in order, equal to the log."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect
from tests.browser import housing
from tests.browser.conftest import NARROW
from tests.browser.housing import House

from onward.core.bodies import Message
from onward.service import tokens

SHOWN = """() => [...document.querySelectorAll("#timeline > article[data-seq]")].flatMap((one) => {
  const inside = [...one.querySelectorAll('[id^="e"]')].map((it) => Number(/^e(\\d+)$/.exec(it.id)?.[1])).filter(Boolean);
  return [Number(one.dataset.seq), ...inside];
})"""
CUTS = 100


def shown(page: Page) -> list[int]:
    """Return the numbers of all events on a page, in the order in which they stand there; folded ones are inside others."""
    found: list[int] = page.evaluate(SHOWN)
    return found


def arrived(page: Page, house: House, session: str) -> None:
    """Wait until a page has come as far as the log has."""
    page.wait_for_function(
        "(head) => Number(document.getElementById('main').dataset.last) === head",
        arg=house.log.session(session).head_seq,
    )


def whole(page: Page, house: House, session: str) -> None:
    """Every event of the session is on the page once and in its place, and a page that is loaded anew shows the same."""
    arrived(page, house, session)
    live = shown(page)
    assert sorted(live) == house.seqs(session)
    articles = page.locator("#timeline > article[data-seq]").evaluate_all(
        "(all) => all.map((one) => Number(one.dataset.seq))"
    )
    assert articles == sorted(articles)
    texts = page.locator("#timeline .prose").all_inner_texts()
    page.reload()
    assert shown(page) == live
    assert page.locator("#timeline .prose").all_inner_texts() == texts


def test_a_page_survives_a_server_that_is_killed_while_text_streams(
    visiting: Callable[..., BrowserContext], served: House
) -> None:
    session = served.session("Killed while writing")
    page = visiting(served, lossy=True, viewport=NARROW).new_page()
    page.goto(f"/sessions/{session}")
    run = served.say(
        session, "Write. [[write One half]][[gate half]][[write , another]][[finish Both halves.]]"
    )
    expect(page.locator("#draft .draft-text")).to_have_text("One half")
    served.gates.reached("half")
    served.kill()
    expect(page.locator("#offline")).to_be_visible()
    served.serve()
    expect(page.locator("#offline")).to_be_hidden()
    # Once nobody executes the run any more, what had been written is kept as cut off, and the work is begun anew.
    expect(page.locator("#timeline .by-agent", has_text="One half")).to_be_visible()
    served.gates.reached("half")
    expect(page.locator("#draft .draft-text")).to_have_text("One half")
    served.gates.open("half")
    served.ended(session, run)
    expect(page.locator("#timeline .by-agent", has_text="Both halves.")).to_have_count(1)
    expect(page.locator("#draft")).to_be_hidden()
    whole(page, served, session)


def test_a_page_that_was_open_over_a_restart_goes_on_with_what_was_logged_meanwhile(
    visiting: Callable[..., BrowserContext], served: House
) -> None:
    session = served.session("Restarted while idle")
    served.ended(session, served.say(session, "[[say Before.]]"))
    page = visiting(served, lossy=True).new_page()
    page.goto(f"/sessions/{session}")
    served.kill()
    expect(page.locator("#offline")).to_be_visible()
    served.write(session, [("message", Message(role="user", text="Said while it was down."), "user")])
    served.serve()
    expect(page.locator("#timeline", has_text="Said while it was down.")).to_be_visible()
    # The browser is still signed in, and its form still works.
    page.get_by_role("textbox", name="Message").fill("[[say Still signed in.]]")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#timeline .by-agent", has_text="Still signed in.")).to_be_visible()
    whole(page, served, session)


def test_after_a_hundred_cuts_every_event_is_there_once_and_in_order(
    visiting: Callable[..., BrowserContext], home: House
) -> None:
    session = home.session("A hundred cuts")
    with housing.network(home.port) as bad:
        page = visiting(home, lossy=True, at=f"http://127.0.0.1:{bad.port}").new_page()
        page.goto(f"/sessions/{session}")
        steps = "".join(f"[[write piece {n}, ]][[gate {n}]][[finish Message {n}.]]" for n in range(10))
        calls = '[[call read_events {"source": "1"}]]'
        run = home.say(session, calls + steps)
        for number in range(CUTS):
            bad.cut()
            if number % 10 == 5:
                home.gates.open(str(number // 10))
        home.ended(session, run)
        arrived(page, home, session)
        expect(page.locator("#draft")).to_be_hidden()
        whole(page, home, session)


def test_a_page_that_was_offline_catches_up(visiting: Callable[..., BrowserContext], home: House) -> None:
    session = home.session("Offline for a while")
    context = visiting(home, lossy=True)
    page = context.new_page()
    page.goto(f"/sessions/{session}")
    context.set_offline(True)
    home.ended(session, home.say(session, "[[say Said while the page was offline.]]"))
    context.set_offline(False)
    expect(page.locator("#timeline .by-agent", has_text="Said while the page was offline.")).to_be_visible()
    whole(page, home, session)


def test_a_page_of_a_browser_that_is_signed_out_stops_and_says_so(
    visiting: Callable[..., BrowserContext], home: House
) -> None:
    session = home.session("Signed out elsewhere")
    context = visiting(home, signed=False)
    page = context.new_page()
    token, secret = tokens.create(home.log.platform, "another browser", ["read", "write"])
    context.add_cookies([{**home.cookie, "value": secret}])
    page.goto(f"/sessions/{session}")
    tokens.revoke(home.log.platform, token.id)
    home.ended(session, home.say(session, "[[say Not for everybody.]]"))
    expect(page.locator("#offline")).to_be_visible()
    assert page.locator("#timeline", has_text="Not for everybody.").count() == 0
