"""The server: who may come in, what is refused and how, and what its routes answer."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.surfaces.http.asking import Asked, code

from onward.core.records import Offer
from onward.errors import InvalidInput
from onward.service import machines, running, sessions, tokens, workspaces
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.surfaces.http import guarding
from onward.surfaces.http.app import application, described
from onward.surfaces.http.house import House
from onward.surfaces.http.routing import Route
from onward.surfaces.http.serving import is_loopback, serve
from onward.surfaces.http.table import ROUTES
from onward.testing.clock import FakeClock

STREAMS = [route for route in ROUTES if route.answer is str]
"""Those that answer with a stream, which has no end of its own."""
OTHERS = "acc_0000000000000000000000000B"


@pytest.fixture
def ask() -> Asked:
    return Asked()


# -- the table ----------------------------------------------------------------------------------------------------------


def test_no_path_is_answered_twice_and_every_route_says_what_it_does() -> None:
    pairs = [(route.method, route.path) for route in ROUTES]
    assert len(pairs) == len(set(pairs))
    for route in ROUTES:
        assert route.does.endswith(".")
        assert route.path.startswith("/v1/")
        assert route.answer in (str, bytes, dict[str, Any]) or issubclass(route.answer, msgspec.Struct)
    assert described().count("\n") == len(ROUTES) - 1


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_open_to_its_scope_and_to_nobody_else(ask: Asked, route: Route) -> None:
    path = route.path.replace("{", "x").replace("}", "")
    if route.scope is None:
        assert ask(route.method, path, secret="").status_code == 200
        return
    assert code(ask(route.method, path, {}, secret="")) == (401, "unauthorized")
    assert code(ask(route.method, path, {}, secret="onw_wrong")) == (401, "unauthorized")
    for scope in tokens.SCOPES:
        if route in STREAMS and scope in (route.scope, "admin"):
            continue
        response = ask(route.method, path, {}, secret=ask.token(scope))
        allowed = scope in (route.scope, "admin")
        assert (response.status_code == 403) is not allowed
        assert response.status_code not in (401, 500)


# -- guarding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"host": "localhost:8421"}, True),
        ({"host": "[::1]:8421"}, True),
        ({"host": "192.168.1.4"}, True),
        ({"host": "ONWARD.lan:8421"}, True),
        ({"host": "evil.example"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "localhost.evil.example:8421"}, False),
        ({"origin": "http://127.0.0.1:8421"}, True),
        ({"origin": "http://127.0.0.1:9999"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, False),
    ],
)
def test_only_requests_that_mean_this_server_and_come_from_it_are_looked_at(
    ask: Asked, headers: dict[str, str], allowed: bool
) -> None:
    response = ask("GET", "/v1/health", headers=headers)
    assert (response.status_code == 200) is allowed
    if not allowed:
        assert code(response) == (403, "forbidden")


def test_every_answer_has_an_id_and_says_how_it_is_to_be_taken(ask: Asked) -> None:
    for response in (ask("GET", "/v1/health"), ask("GET", "/nowhere"), ask("GET", "/v1/sessions", secret="")):
        assert response.headers["x-request-id"].startswith("req_")
        assert response.headers["x-content-type-options"] == "nosniff"
    assert ask("GET", "/v1/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    odd = ask("GET", "/v1/health", headers={"x-request-id": "a b" * 40}).headers["x-request-id"]
    assert odd.startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/v1", (404, "no_such_route")),
        ("GET", "/v1/sessions/", (404, "no_such_route")),
        ("PUT", "/v1/sessions", (405, "method_not_allowed")),
        ("DELETE", "/v1/health", (405, "method_not_allowed")),
        ("GET", "/v1/sessions/ses_none", (404, "session_not_found")),
        ("GET", "/v1/runs/run_none", (404, "run_not_found")),
        ("GET", "/v1/sessions?limit=0", (400, "limit_exceeded")),
        ("GET", "/v1/sessions?limit=x", (400, "invalid_input")),
        ("GET", "/v1/sessions?unknown=1", (400, "invalid_input")),
        ("GET", "/v1/sessions?limit=1&limit=2", (400, "invalid_input")),
        ("GET", "/v1/health?x=1", (400, "invalid_input")),
        ("GET", "/v1/runner/runs/run_none", (404, "run_not_found")),
    ],
)
def test_every_refusal_has_one_shape(ask: Asked, method: str, path: str, found: tuple[int, str]) -> None:
    assert code(ask(method, path)) == found


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"1", b'{"title": 1}', b'{"unknown": 1}', b"\xff", b"[" * 5000]
)
def test_a_body_that_is_not_what_a_route_takes_is_refused(ask: Asked, raw: bytes) -> None:
    assert code(ask("POST", "/v1/sessions", raw=raw)) == (400, "invalid_input")


def test_a_body_is_json_and_says_so(ask: Asked) -> None:
    response = ask("POST", "/v1/sessions", raw=b'{"title":"x"}', headers={"content-type": "text/plain"})
    assert code(response) in ((400, "invalid_input"), (415, "unsupported_media_type"))
    assert ask("GET", "/v1/sessions").json()["sessions"] == []


def test_a_body_beyond_its_limit_is_not_read_to_its_end(ask: Asked) -> None:
    response = ask("POST", "/v1/sessions", raw=b'{"title":"' + b"x" * (8 * 1024 * 1024))
    assert code(response) == (413, "body_too_large")
    assert response.json()["error"]["details"] == {"limit": 8 * 1024 * 1024}


def test_a_caller_has_a_rate_and_is_told_when_to_come_again() -> None:
    now = [0.0]
    rates = guarding.Rates(2, clock=lambda: now[0])
    assert [rates.take("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert rates.take("b") == 0
    now[0] = 0.5
    assert [rates.take("a") for _ in range(2)] == [0, 0.5]
    slow = Asked(rate=0.001)
    slow("GET", "/v1/health")
    response = slow("GET", "/v1/health")
    assert code(response) == (429, "too_many_requests")
    assert response.headers["retry-after"] == "1"


def test_a_fault_says_nothing_about_the_inside_and_the_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        def sessions(self, query: Any) -> Any:
            raise RuntimeError("the secret inside")

    ask = Asked(Platform(store=Broken()))
    with caplog.at_level(logging.INFO, "onward.http"):
        response = ask("GET", "/v1/sessions", headers={"x-request-id": "here"}, query=None)
    assert code(response) == (500, "internal_error")
    assert "secret" not in response.text
    assert response.json()["error"]["details"] == {"request": "here"}
    assert "the secret inside" in caplog.text


def test_the_log_has_no_secret(ask: Asked, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask("POST", "/v1/tokens", {"name": "n", "scopes": ["read"]}, token=ask.secret)
        ask("GET", "/v1/sessions", token=ask.secret)
    mine = [record.getMessage() for record in caplog.records if record.name.startswith("onward")]
    assert mine
    assert ask.secret not in "".join(mine)


# -- routes -------------------------------------------------------------------------------------------------------------


def test_a_session_is_opened_spoken_in_and_read_by_cursor(ask: Asked) -> None:
    made = ask("POST", "/v1/sessions", {"title": "Fix it", "engine": "script", "workspace": "/p"})
    assert made.status_code == 201
    session = made.json()
    assert (session["title"], session["workspace"], session["events"]) == ("Fix it", "/p", 1)
    said = ask("POST", f"/v1/sessions/{session['id']}/messages", {"text": "Hello"})
    assert (said.status_code, said.json()["state"]) == (202, "queued")
    assert ask("GET", f"/v1/runs/{said.json()['id']}").json() == said.json()
    cancelled = ask("POST", f"/v1/runs/{said.json()['id']}/cancel").json()
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "cancelled by a person")
    again = ask("POST", f"/v1/runs/{said.json()['id']}/retry")
    assert (again.status_code, again.json()["retry_of"]) == (202, said.json()["id"])
    page = ask("GET", f"/v1/sessions/{session['id']}/events", limit=2).json()
    assert [event["seq"] for event in page["events"]] == [1, 2]
    rest = ask("GET", f"/v1/sessions/{session['id']}/events", after=page["after"]).json()
    assert [event["kind"] for event in rest["events"]] == ["run"]
    assert rest["head"] == 3
    only = ask("GET", f"/v1/sessions/{session['id']}/events", kinds="message,run").json()
    assert [event["kind"] for event in only["events"]] == ["message", "run"]
    assert ask("GET", "/v1/sessions").json()["sessions"] == [
        ask("GET", f"/v1/sessions/{session['id']}").json()
    ]


def test_waiting_for_events_ends_when_one_comes(ask: Asked) -> None:
    session = sessions.start(ask.house.platform, "x", engine="script")

    async def wait_and_write() -> Any:
        path = f"/v1/sessions/{session.id}/events"
        waiting = asyncio.create_task(ask.send("GET", path, after=1, wait=25))
        await asyncio.sleep(0)
        await asyncio.to_thread(sessions.rename, ask.house.platform, session.id, "y")
        return (await asyncio.wait_for(waiting, 20)).json()

    assert [event["seq"] for event in asyncio.run(wait_and_write())["events"]] == [2]
    assert code(ask("GET", f"/v1/sessions/{session.id}/events", wait=26)) == (400, "limit_exceeded")
    ask.house.close()
    assert ask("GET", f"/v1/sessions/{session.id}/events", after=2, wait=25).json()["events"] == []


@pytest.mark.requirement("A1")
def test_what_another_account_has_is_not_there(ask: Asked) -> None:
    theirs = replace(ask.platform, account_id=OTHERS)
    secret = ask.token("admin", platform=theirs)
    session = sessions.start(ask.platform, "ours", workspace="/p", engine="script")
    run = running.submit(ask.platform, session.id, "Hello")
    tower = machines.register(ask.platform, "tower", [Offer(name="script")])
    workspace = workspaces.get(ask.platform, "/p")
    for method, path, content in (
        ("GET", f"/v1/sessions/{session.id}", None),
        ("GET", f"/v1/sessions/{session.id}/events", None),
        ("POST", f"/v1/sessions/{session.id}/messages", {"text": "x"}),
        ("GET", f"/v1/runs/{run.id}", None),
        ("POST", f"/v1/runs/{run.id}/cancel", None),
        ("GET", f"/v1/runner/runs/{run.id}", None),
        ("POST", f"/v1/workspaces/{workspace.id}/move", {"machine": "tower", "path": "/q"}),
        ("POST", "/v1/runner/claim", {"machine": tower.id, "engines": ["script"], "claim": "x"}),
        ("POST", "/v1/sessions", {"workspace": workspace.id}),
        ("DELETE", f"/v1/tokens/{tokens.listed(ask.platform)[0].id}", None),
    ):
        assert ask(method, path, content, secret=secret).status_code == 404, path
    for path in ("sessions", "machines", "workspaces"):
        assert ask("GET", f"/v1/{path}", secret=secret).json()[path] == []


def test_tokens_are_made_listed_and_revoked(ask: Asked) -> None:
    made = ask("POST", "/v1/tokens", {"name": "laptop", "scopes": ["read"], "lifetime": 60}).json()
    assert made["token"]["scopes"] == ["read"]
    assert ask("GET", "/v1/sessions", secret=made["secret"]).status_code == 200
    assert made["secret"] not in ask("GET", "/v1/tokens").text
    assert ask("DELETE", f"/v1/tokens/{made['token']['id']}").json()["revoked_at"] is not None
    assert code(ask("GET", "/v1/sessions", secret=made["secret"])) == (401, "unauthorized")
    assert code(ask("POST", "/v1/tokens", {"name": "x", "scopes": ["all"]})) == (400, "invalid_input")


def test_machines_are_shown_with_what_they_offer_and_whether_anybody_is_there() -> None:
    clock = FakeClock()
    ask = Asked(Platform(store=MemoryStore(), clock=clock))
    offer = {"name": "codex", "unavailable": "it is not installed"}
    ask("POST", "/v1/runner/register", {"name": "tower", "engines": [{"name": "script"}, offer]})
    (shown,) = ask("GET", "/v1/machines").json()["machines"]
    assert (shown["name"], shown["online"], shown["home"]) == ("tower", True, False)
    assert shown["engines"][1] == {**offer, "version": None}
    clock.tick(61)
    assert ask("GET", "/v1/machines").json()["machines"][0]["online"] is False
    ask("POST", "/v1/runner/workspaces", {"machine": shown["id"], "path": "/p"})
    session = ask("POST", "/v1/sessions", {"engine": "script", "workspace": "/p", "machine": "tower"}).json()
    assert (session["machine"], session["workspace"]) == ("tower", "/p")
    run = ask("POST", f"/v1/sessions/{session['id']}/messages", {"text": "Hello"}).json()
    assert run["reason"] == "tower is offline."


def test_one_sweep_is_one_notification(ask: Asked) -> None:
    machine = ask("POST", "/v1/runner/register", {"name": "tower"}).json()["machine"]
    made = [sessions.start(ask.platform, name).id for name in ("a", "b")]
    ended = [
        {"session_id": name, "engine": "codex", "idle": 3600, "event": ask.platform.ids.new("evt")}
        for name in made
    ]
    ask("POST", "/v1/runner/slept", {"machine": machine, "ended": ended})
    ask("POST", "/v1/runner/slept", {"machine": machine, "ended": []})
    (told,) = ask("GET", "/v1/notifications").json()["notifications"]
    assert told["sessions"] == made
    assert told["text"] == "2 conversations were put to sleep on tower. The next message wakes each of them."


def test_a_claim_waits_until_a_run_is_queued(ask: Asked) -> None:
    machine = ask("POST", "/v1/runner/register", {"name": "tower", "engines": [{"name": "script"}]}).json()
    session = sessions.start(ask.platform, "x", engine="script")
    asked = {"machine": machine["machine"], "engines": ["script"], "claim": "one", "wait": 25}

    async def wait_and_queue() -> Any:
        waiting = asyncio.create_task(ask.send("POST", "/v1/runner/claim", asked))
        await asyncio.sleep(0)
        await asyncio.to_thread(running.submit, ask.house.platform, session.id, "Hello")
        return (await asyncio.wait_for(waiting, 20)).json()["run"]

    run = asyncio.run(wait_and_queue())
    assert run["session_id"] == session.id
    assert ask("POST", "/v1/runner/claim", asked).json()["run"]["id"] == run["id"]
    beat = f"/v1/runner/runs/{run['id']}/heartbeat"
    assert ask("POST", beat, {"fence": run["fence"], "lease": 60}).status_code == 200
    assert code(ask("POST", beat, {"fence": run["fence"] + 1, "lease": 60})) == (409, "lease_lost")


# -- where it listens ---------------------------------------------------------------------------------------------------


def test_a_server_that_others_could_reach_needs_a_token_that_lets_somebody_in() -> None:
    platform = Platform(store=MemoryStore())

    def ready(url: str, secret: str | None) -> None:
        raise AssertionError("it listens")

    with pytest.raises(InvalidInput, match="tokens create"):
        serve(platform, ready=ready, host="0.0.0.0")
    token, _ = tokens.create(platform, "t", ["read"])
    tokens.revoke(platform, token.id)
    with pytest.raises(InvalidInput, match="tokens create"):
        serve(platform, ready=ready, host="0.0.0.0")


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("tower", False),
    ],
)
def test_a_place_is_this_machine_alone_only_when_it_is(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_an_application_may_be_made_of_other_routes() -> None:
    house = House(Platform(store=MemoryStore()))
    assert application(house, routes=ROUTES[:1]) is not None
