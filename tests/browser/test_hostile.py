"""Content that means harm is shown and does nothing: nothing runs, nothing is asked for, nothing moves, no page breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.browser import furnishing
from tests.browser.conftest import WIDE
from tests.browser.housing import House

DONE: Final = f"""() => {{
  const page = document.scrollingElement;
  const bad = [];
  if (window.{furnishing.FLAG} !== undefined) bad.push("something ran");
  for (const one of document.querySelectorAll("*")) {{
    for (const {{ name, value }} of one.attributes) {{
      if (name.startsWith("on") || name === "style" || name.startsWith("hx-on")) bad.push(`${{one.tagName}} has ${{name}}`);
      if (["href", "src", "action", "formaction", "hx-get", "hx-post", "xlink:href"].includes(name)
          && !/^(https?:|mailto:|[/#])/.test(value)) bad.push(`${{one.tagName}} ${{name}}=${{value.slice(0, 80)}}`);
    }}
  }}
  const never = [
    "script:not([src])", "style", "iframe", "object", "embed", "base", "meta[http-equiv]", "video", "audio", "math",
    "link[rel=stylesheet]:not([href^='/static/'])", "form:not([action^='/'])",
  ];
  for (const one of document.querySelectorAll(never.join(","))) bad.push(one.outerHTML.slice(0, 120));
  for (const one of document.querySelectorAll("[id]")) {{
    if (document.querySelectorAll(`#${{CSS.escape(one.id)}}`).length > 1) bad.push(`twice: #${{one.id}}`);
  }}
  for (const one of document.querySelectorAll(".prose *, .event *")) {{
    if (getComputedStyle(one).position === "fixed") bad.push(`fixed: ${{one.outerHTML.slice(0, 80)}}`);
  }}
  if (page.scrollWidth > innerWidth) {{
    const right = (one) => one.getBoundingClientRect().right;
    const wide = [...document.querySelectorAll("body *")].filter((one) => right(one) > innerWidth + 1);
    bad.push(`wider than the window: ${{wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 100)).join(" | ")}}`);
  }}
  return [...new Set(bad)];
}}"""


@pytest.fixture(scope="module")
def harmed(
    tmp_path_factory: pytest.TempPathFactory, apart: Callable[..., Any]
) -> Iterator[tuple[House, list[str], str]]:
    """A store full of harm, the sessions with it, and a successor that was handed some."""
    made = House(tmp_path_factory.mktemp("harmed"))
    try:
        sessions = apart(furnishing.harmful, made.log)
        successor = apart(furnishing.handed_harm, made.log)
        made.serve()
        yield made, sessions, successor
    finally:
        made.close()


def unharmed(page: Page, address: str) -> None:
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, (address, answer.status)
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = page.evaluate(DONE)
    assert not found, f"{address}: " + "\n".join(found[:12])
    # Whatever wanted to take the keys, the page or the person away has had its chance: the page is still this one.
    expect(page.locator("header.top .brand")).to_be_visible()
    assert page.url.endswith(address.partition("#")[0]) or "/manifests/" in page.url
    assert page.evaluate("() => ['BODY', 'MAIN', 'TEXTAREA'].includes(document.activeElement.tagName)")


def test_a_timeline_of_harm_is_only_read(
    visiting: Callable[..., BrowserContext], harmed: tuple[House, list[str], str], size: dict[str, int]
) -> None:
    home, sessions, _ = harmed
    page = visiting(home, viewport=size).new_page()
    for session in sessions:
        unharmed(page, f"/sessions/{session}")
    assert page.context.cookies()


def test_a_handoff_of_harm_is_only_read(
    visiting: Callable[..., BrowserContext], harmed: tuple[House, list[str], str], size: dict[str, int]
) -> None:
    home, _, successor = harmed
    page = visiting(home, viewport=size).new_page()
    predecessor = home.log.lineage(successor).path[0]
    for address in (
        f"/sessions/{successor}",
        f"/sessions/{successor}/handoff",
        f"/sessions/{successor}/lineage",
        f"/sessions/{predecessor}",
        f"/sessions/{predecessor}/range/2-3",
        f"/sessions/{successor}/continue?purpose=%3Cscript%3E",
    ):
        unharmed(page, address)


def test_lists_searches_and_single_events_of_harm_are_only_read(
    visiting: Callable[..., BrowserContext], harmed: tuple[House, list[str], str], size: dict[str, int]
) -> None:
    home, sessions, _ = harmed
    page = visiting(home, viewport=size).new_page()
    workspaces = home.log.platform.store.workspaces(home.log.platform.account_id)
    for address in (
        "/",
        "/search?q=script",
        "/search?q=%3Cscript%3EranHere%3C%2Fscript%3E",
        "/search?q=%22%20onfocus%3D%22x%22%20autofocus",
        "/workspaces",
        *(f"/workspaces/{one.id}" for one in workspaces),
        "/approvals",
        *(f"/sessions/{sessions[0]}/events/{seq}" for seq in range(2, 12)),
        f"/sessions/{sessions[0]}/mention",
        f"/sessions/{sessions[0]}/lineage",
        f"/sessions/{sessions[0]}/recalls",
        f"/sessions/{sessions[0]}/branch?at=2",
        "/login?next=javascript:alert(1)",
        "/login?next=//192.0.2.1/",
    ):
        unharmed(page, address)


def test_a_file_of_a_log_opened_by_itself_runs_nothing(
    visiting: Callable[..., BrowserContext], harmed: tuple[House, list[str], str]
) -> None:
    home, sessions, _ = harmed
    context = visiting(home)
    for seq in (2, 3, 12, 13):
        address = f"{home.url}/sessions/{sessions[0]}/events/{seq}/parts/0"
        answer = context.request.get(address)
        if answer.status == 404:
            continue
        headers = answer.headers
        assert "sandbox" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-type"].startswith("image/png") or headers["content-disposition"].startswith(
            "attachment"
        )


def test_harm_that_arrives_while_the_page_is_open_is_only_read(
    visiting: Callable[..., BrowserContext], harmed: tuple[House, list[str], str]
) -> None:
    home, _, _ = harmed
    session = home.session("Live harm")
    page = visiting(home, viewport=WIDE).new_page()
    page.goto(f"/sessions/{session}")
    texts = [text.replace("]]", "] ]").replace("[[", "[ [") for text in furnishing.HARM if len(text) < 2_000]
    texts = [text for text in texts if text.isprintable()]
    # As it is written, and then as it stands in the log.
    told = "[[gate harm]]".join(f"[[write {text}]]" for text in texts[:3])
    run = home.say(session, told + "".join(f"[[finish {text}]]" for text in texts))
    for text in texts[:2]:
        home.gates.reached("harm")
        expect(page.locator("#draft .draft-text")).to_contain_text(text)
        home.gates.open("harm")
    home.ended(session, run)
    expect(page.locator(f"#e{home.log.session(session).head_seq}")).to_be_attached()
    found = page.evaluate(DONE)
    assert not found, "\n".join(found[:12])
    assert page.url == f"{home.url}/sessions/{session}"


def test_links_in_what_was_written_lead_away_only_when_pressed_and_tell_nothing(
    visiting: Callable[..., BrowserContext], harmed: tuple[House, list[str], str]
) -> None:
    home, _, _ = harmed
    session = home.session("Links")
    home.say(session, "Look at [this](https://example.invalid/page) and <https://example.invalid/other>.")
    page = visiting(home).new_page()
    page.goto(f"/sessions/{session}")
    link = page.locator(".prose a").first
    expect(link).to_have_attribute("href", "https://example.invalid/page")
    rel = (link.get_attribute("rel") or "").split()
    assert {"noopener", "noreferrer"} <= set(rel)
