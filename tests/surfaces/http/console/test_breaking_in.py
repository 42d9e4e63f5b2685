"""What was tried against the console's door, its forms and what browsers keep of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest
from tests.surfaces.http.console.visiting import HERE, Visitor

from onward.core.bodies import Message, Part
from onward.core.digests import content_digest
from onward.errors import StoreBusy
from onward.service import sessions, tokens
from onward.store.contract import Batch
from onward.surfaces.http.console.visiting import DOOR_LIMIT

PICTURE = b"\x89PNG\r\n\x1a\n of somebody"


@pytest.mark.parametrize("where", ["//[", "//[x]y", "//\u2100/", "/\\[", "//"])
def test_an_address_to_go_on_to_that_is_none_leads_to_the_first_page(where: str) -> None:
    out = Visitor(signed=False)
    assert out.client.get("/login", params={"next": where}).status_code == 200
    code = out.house.doors.link(out.platform.account_id)
    answer = out.client.get("/login", params={"code": code, "next": where})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert out.post("/theme", {"theme": "dark", "back": where}).headers["location"] == "/"


@pytest.mark.parametrize("path", ["/login", "/theme"])
def test_somebody_who_is_not_signed_in_cannot_make_the_server_hold_a_large_form(path: str) -> None:
    out = Visitor(signed=False)

    def form() -> Iterator[bytes]:
        yield b"token="
        for _ in range(1000):
            yield b"a" * 8192

    headers = {"content-type": "application/x-www-form-urlencoded", "origin": HERE}
    answer = out.client.post(path, content=form(), headers=headers)
    assert answer.status_code == 400
    assert f"{DOOR_LIMIT:,} bytes" in answer.text


def test_what_a_browser_keeps_of_a_picture_is_asked_for_again_and_gone_once_it_was_erased() -> None:
    visitor = Visitor()
    session = visitor.session()
    digest = content_digest(PICTURE)
    visitor.platform.store.commit(Batch(blobs=((digest, PICTURE),)))
    part = Part(blob=digest, media_type="image/png", bytes=len(PICTURE))
    seen = visitor.log(session, ("message", Message(role="user", text="Look", parts=(part,)), "user"))[0]
    page = f"/sessions/{session.id}/events/{seen.seq}"
    for path in (f"{page}/parts/0", f"{page}/raw"):
        first = visitor.get(path)
        assert first.headers["cache-control"] == "private, no-cache"
        again = visitor.get(path, if_none_match=first.headers["etag"])
        assert (again.status_code, again.content) == (304, b"")
    kept = visitor.get(f"{page}/raw").headers["etag"]
    sessions.erase(visitor.platform, seen.id)
    assert visitor.get(f"{page}/parts/0", if_none_match=f'"{digest}"').status_code == 404
    now = visitor.get(f"{page}/raw", if_none_match=kept)
    assert (now.status_code, b"Look" in now.content) == (200, False)


def test_the_page_that_shows_a_secret_is_kept_by_no_browser() -> None:
    visitor = Visitor()
    _, secret = tokens.create(visitor.platform, "everything", ("admin",))
    visitor.client.cookies.clear()
    assert visitor.post("/login", {"token": secret}, csrf="").status_code == 303
    made = visitor.post("/tokens", {"name": "laptop", "read": "1"})
    assert "onw_" in made.text
    assert made.headers["cache-control"] == "no-store"
    assert visitor.get("/tokens").headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize("days", ["1" + "0" * 5000, "000000001" + "9" * 5000, "00000000199999", "3651", "0"])
def test_a_number_of_days_that_is_none_is_told_as_that(days: str) -> None:
    visitor = Visitor()
    _, secret = tokens.create(visitor.platform, "everything", ("admin",))
    visitor.client.cookies.clear()
    visitor.post("/login", {"token": secret}, csrf="")
    before = len(tokens.listed(visitor.platform))
    assert visitor.post("/tokens", {"name": "x", "read": "1", "days": days}).status_code == 400
    assert len(tokens.listed(visitor.platform)) == before


def test_a_link_that_let_nobody_in_because_the_store_was_busy_stays_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Visitor(signed=False)
    path = f"/login?code={out.house.doors.link(out.platform.account_id)}"

    def busy(_batch: Batch) -> NoReturn:
        raise StoreBusy(path="store.db", seconds=10)

    with monkeypatch.context() as locked:
        locked.setattr(out.platform.store, "commit", busy)
        assert out.get(path).status_code == 503
    assert out.get(path).status_code == 303
    assert out.get(path).status_code == 401
