"""The list of conversations: each once, where it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.surfaces.http.console.visiting import Visitor

from onward.core.records import Link, Session
from onward.service import sessions
from onward.store.contract import Batch, SessionPatch
from onward.surfaces.http.console import listing
from onward.surfaces.http.console.listing import Filters


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


def continued(visitor: Visitor, before: Session, title: str, **more: Any) -> Session:
    """Return a session that continues another one, as far as lists are concerned."""
    platform = visitor.platform
    after = Session(
        id=platform.ids.new("ses"),
        account_id=platform.account_id,
        created_at=platform.clock(),
        title=title,
        origin_id=before.origin_id or before.id,
        **more,
    )
    link = Link(
        id=platform.ids.new("lnk"),
        type="continuation",
        from_session=before.id,
        to_session=after.id,
        created_at=platform.clock(),
    )
    platform.store.commit(Batch(sessions=(after,), links=(link,)))
    visitor.say(after, "go on")
    return platform.session(after.id)


def titles(found: listing.Listed) -> list[tuple[str, list[str]]]:
    return [(one.session.title, [before.title for before in one.earlier]) for one in found.conversations]


def test_a_conversation_is_listed_where_it_goes_on_with_what_came_before_folded_under_it(
    visitor: Visitor,
) -> None:
    first = visitor.session("First")
    visitor.session("Alone")
    second = continued(visitor, first, "Second")
    continued(visitor, second, "Third")
    assert titles(listing.listed(visitor.platform, Filters())) == [
        ("Third", ["Second", "First"]),
        ("Alone", []),
    ]
    page = visitor.page("/")
    assert "Continued from 2 earlier sessions" in page


def test_a_title_of_an_earlier_session_finds_the_conversation(visitor: Visitor) -> None:
    first = visitor.session("Quotes")
    continued(visitor, first, "Release")
    assert titles(listing.listed(visitor.platform, Filters(text="quotes"))) == [("Release", ["Quotes"])]


def test_a_session_whose_continuation_was_put_away_is_not_lost(visitor: Visitor) -> None:
    first = visitor.session("First")
    second = continued(visitor, first, "Second")
    visitor.platform.store.commit(Batch(session_patches=(SessionPatch(session_id=second.id, archived=True),)))
    assert titles(listing.listed(visitor.platform, Filters())) == [("Second", ["First"])]


@pytest.mark.requirement("A1")
def test_what_came_before_in_another_account_is_not_listed(visitor: Visitor) -> None:
    import msgspec

    theirs = msgspec.structs.replace(visitor.platform, account_id="acc_0000000000000000000000000Z")
    secret = sessions.start(theirs, "Secret")
    continued(visitor, secret, "Mine")
    assert titles(listing.listed(visitor.platform, Filters())) == [("Mine", [])]
    assert "Secret" not in visitor.page("/")


def test_filters_pass_what_they_say(visitor: Visitor) -> None:
    visitor.session("A", engine="codex", workspace="/w/a")
    visitor.session("B", engine="script")
    away = visitor.session("C", engine="script")
    visitor.post(f"/sessions/{away.id}/archive")
    place = visitor.platform.store.workspaces(visitor.platform.account_id)[0]

    def found(**given: Any) -> set[str]:
        return {one.session.title for one in listing.listed(visitor.platform, Filters(**given)).conversations}

    assert found() == {"A", "B"}
    assert found(engine="codex") == {"A"}
    assert found(workspace=place.id) == {"A"}
    assert found(archived=True) == {"A", "B", "C"}
    assert found(imported="only") == set()
    assert found(imported="none") == {"A", "B"}


def test_pages_hold_every_conversation_once(visitor: Visitor) -> None:
    for number in range(130):
        session = visitor.session(f"S{number}")
        if number % 10 == 0:
            continued(visitor, session, f"T{number}")
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(20):
        found = listing.listed(visitor.platform, Filters(), cursor)
        assert len(found.conversations) <= listing.PAGE
        seen += [one.session.title for one in found.conversations]
        cursor = found.next
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 130
    assert not [title for title in seen if title.startswith("S") and title.endswith("0")]


def test_a_filter_that_few_pass_says_that_it_did_not_look_through_all(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 100)
    visitor.session("The one", engine="codex")
    for number in range(160):
        visitor.session(f"S{number}", engine="script")
    first = listing.listed(visitor.platform, Filters(engine="codex"))
    assert (first.conversations, first.looked_through) == ((), False)
    assert "among those that were looked through" in visitor.page("/?engine=codex")
    second = listing.listed(visitor.platform, Filters(engine="codex"), first.next)
    assert titles(second) == [("The one", [])]


def test_an_empty_list_says_how_to_begin(visitor: Visitor) -> None:
    assert "No sessions yet." in visitor.page("/")


def test_the_next_page_is_a_link_and_the_same_rows_when_it_is_loaded_in_place(visitor: Visitor) -> None:
    for number in range(60):
        visitor.session(f"S{number}")
    page = visitor.page("/")
    paging = page.partition('<li class="paging">')[2]
    path = paging.partition('hx-get="')[2].partition('"')[0].replace("&amp;", "&")
    assert path.startswith("/?cursor=")
    assert "S9</a>" in visitor.page(path)
    part = visitor.get(path, hx_request="true").text
    assert "<html" not in part
    assert "S9</a>" in part


def test_a_session_is_opened_from_the_list(visitor: Visitor) -> None:
    answer = visitor.post("/sessions", {"title": "New", "workspace": "/w/new", "engine": "script"})
    made = answer.headers["location"].removeprefix("/sessions/")
    found = visitor.platform.session(made)
    assert (found.title, found.engine) == ("New", "script")


def test_workspaces_lead_to_their_timelines(visitor: Visitor) -> None:
    session = visitor.session("In a place", workspace="/w/place")
    visitor.say(session, "what was said here", "what was answered")
    place = visitor.platform.session(session.id).workspace_id
    assert f"/workspaces/{place}" in visitor.page("/workspaces")
    page = visitor.page(f"/workspaces/{place}")
    assert "what was said here" in page
    assert f"/sessions/{session.id}?at=2#e2" in page
