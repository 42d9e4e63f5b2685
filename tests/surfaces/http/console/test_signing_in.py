"""Getting in: a link that works once, a cookie that only this server is sent, and tokens as everywhere."""

from __future__ import annotations

import pytest
from tests.surfaces.http.console.visiting import Visitor

from onward.errors import Unauthorized
from onward.service import tokens
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.surfaces.http import signing_in
from onward.testing.clock import FakeClock, FakeIds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def out(clock: FakeClock) -> Visitor:
    return Visitor(Platform(store=MemoryStore(), clock=clock, ids=FakeIds(clock)), signed=False)


def link(visitor: Visitor) -> str:
    return f"/login?code={visitor.house.doors.link(visitor.platform.account_id)}"


def test_a_link_lets_in_once(out: Visitor) -> None:
    path = link(out)
    assert out.get(path).headers["location"] == "/"
    assert out.get("/").status_code == 200
    other = Visitor(out.platform, signed=False)
    other.house = out.house
    out.client.cookies.clear()
    assert out.get(path).status_code == 401
    assert out.get("/").status_code == 303


def test_the_cookie_is_sent_to_this_server_only_and_no_script_reads_it(out: Visitor) -> None:
    cookie = out.get(link(out)).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie  # loopback speaks plain http, where such a cookie would not be kept


def test_a_link_is_too_old_after_an_hour(out: Visitor, clock: FakeClock) -> None:
    path = link(out)
    clock.tick(signing_in.LINK_SECONDS)
    assert out.get(path).status_code == 401


def test_looking_at_a_link_ahead_of_time_does_not_use_it_up(out: Visitor) -> None:
    path = link(out)
    assert out.client.head(path).status_code == 200
    assert out.get(path, sec_purpose="prefetch;prerender").status_code == 200
    assert out.get(path).status_code == 303


def test_codes_cannot_be_guessed_and_the_oldest_are_forgotten(clock: FakeClock) -> None:
    doors = signing_in.Doors(clock)
    first = doors.link("acc_1")
    for _ in range(100):
        last = doors.link("acc_1")
    with pytest.raises(Unauthorized):
        doors.enter(first)
    assert doors.enter(last) == "acc_1"
    assert len(last) > 40
    with pytest.raises(Unauthorized):
        doors.enter("")


def test_a_browser_stays_signed_in_when_the_server_was_started_again(out: Visitor) -> None:
    out.get(link(out))
    again = Visitor(out.platform, signed=False)
    again.client.cookies = out.client.cookies
    assert again.get("/").status_code == 200


def test_a_browser_is_a_token_that_can_be_revoked_and_expires(out: Visitor, clock: FakeClock) -> None:
    out.get(link(out))
    (token,) = tokens.listed(out.platform)
    assert (token.name, token.scopes) == (signing_in.BROWSER, ("read", "write"))
    clock.tick(signing_in.BROWSER_DAYS * 86_400 - 1)
    assert out.get("/").status_code == 200
    tokens.revoke(out.platform, token.id)
    assert out.get("/").status_code == 303


def test_signing_out_ends_it(out: Visitor) -> None:
    out.get(link(out))
    kept = out.secret
    left = out.post("/logout")
    assert (left.status_code, left.headers["clear-site-data"]) == (303, '"cache"')
    out.client.cookies.set("onward_8421", kept)
    assert out.get("/").status_code == 303


def test_a_token_lets_its_owner_in_and_signing_out_leaves_it_as_it_is(out: Visitor) -> None:
    made, secret = tokens.create(out.platform, "mine", ("read",))
    answer = out.post("/login", {"token": f" {secret} ", "next": "/machines"}, csrf="")
    assert answer.headers["location"] == "/machines"
    assert out.get("/").status_code == 200
    out.post("/logout")
    assert tokens.listed(out.platform) == [made]


@pytest.mark.parametrize("given", ["", "onw_nothing", "é", "x" * 10_000])
def test_what_is_no_token_lets_nobody_in(given: str, out: Visitor) -> None:
    answer = out.post("/login", {"token": given}, csrf="")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_token_for_runners_does_not_open_the_console(out: Visitor) -> None:
    _, secret = tokens.create(out.platform, "runner", ("runner",))
    assert out.post("/login", {"token": secret}, csrf="").status_code == 403


@pytest.mark.parametrize(
    "where", ["//evil.example/x", "https://evil.example", "/\\evil.example", "\\\\evil", "x"]
)
def test_signing_in_never_leads_elsewhere(where: str, out: Visitor) -> None:
    path = link(out)
    answer = out.client.get(path, params={"code": path.partition("=")[2], "next": where})
    assert answer.headers["location"] == "/"


def test_a_link_from_another_site_is_followed_with_one_more_click(out: Visitor) -> None:
    session = out.session()
    path = f"/sessions/{session.id}"
    answer = out.get(path, sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert answer.status_code == 200
    assert f'href="{path}"' in answer.text
    assert "A session" not in answer.text


def test_the_api_takes_no_cookie(out: Visitor) -> None:
    out.get(link(out))
    assert out.get("/v1/sessions").status_code == 401


def test_a_form_from_another_site_is_refused_before_anything_looks_at_it(out: Visitor) -> None:
    out.get(link(out))
    session = out.session()
    answer = out.client.post(
        f"/sessions/{session.id}/messages",
        content=f"csrf={signing_in.csrf_of(out.secret)}&text=x",
        headers={"content-type": "application/x-www-form-urlencoded", "origin": "http://evil.example"},
    )
    assert answer.status_code == 403
    assert not out.platform.store.unfinished(session.id)


def test_the_mark_of_forms_is_another_for_each_browser_and_does_not_give_the_secret_away() -> None:
    one, two = signing_in.csrf_of("onw_a"), signing_in.csrf_of("onw_b")
    assert one != two
    assert "onw_a" not in one
