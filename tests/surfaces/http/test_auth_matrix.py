"""Who may do what, over every route, with what is expected worked out from the route itself."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.surfaces.http.asking import Asked, code
from tests.surfaces.http.seeded import OTHERS, Seeded

from onward.service import tokens
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.surfaces.http import openapi
from onward.surfaces.http.routing import PARAMETERS, Route
from onward.surfaces.http.table import ROUTES
from onward.testing.clock import FakeClock

OPEN = {"GET /v1/health", "GET /v1/openapi.json"}
"""What anybody may ask. A route without a scope that is not here is a mistake."""


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


FITTING = {
    "POST /v1/sessions/{session}/messages": {"session": "open"},
    "POST /v1/sessions/{session}/continuations": {"session": "open"},
    "GET /v1/sessions/{session}/walk": {"session": "second"},
    "POST /v1/runs/{run}/cancel": {"run": "waiting"},
    "POST /v1/runs/{run}/retry": {"run": "failed"},
    "GET /v1/approvals/{approval}": {"approval": "parked"},
    "POST /v1/approvals/{approval}/accept": {"approval": "parked"},
    "POST /v1/approvals/{approval}/decline": {"approval": "parked"},
    "POST /v1/permissions/{approval}/answer": {"approval": "permission"},
}
"""What has to be named for something to come of it, where the first of its kind does not do."""
NOT_THERE = {
    "GET /v1/events/{event}/original": 404,
    "GET /v1/manifests/{manifest}/blobs/{digest}": 404,
}
"""Nothing here was imported, and nothing was read of a resource."""

SCOPED = [route for route in ROUTES if route.scope is not None]
every = pytest.mark.parametrize("route", ROUTES, ids=named)
scoped = pytest.mark.parametrize("route", SCOPED, ids=named)


class World(Asked):
    """A server with one of everything, and tokens of every kind. Nothing waits, because it is about to close."""

    def __init__(self) -> None:
        clock = FakeClock()
        super().__init__(Platform(store=MemoryStore(), host="home", clock=clock))
        self.seeded = Seeded(self.platform)
        self.house.close()
        self.revoked = self.token("admin")
        found = tokens.authenticate(self.platform.store, self.revoked, clock())
        tokens.revoke(self.platform, found.id)
        self.expired = tokens.create(self.platform, "t", ["admin"], lifetime=1)[1]
        clock.tick(2)
        self.theirs = replace(self.platform, account_id=OTHERS)

    def path(self, route: Route, **instead: str) -> str:
        """Return a path to something that is there."""
        return re.sub(r"\{(\w+)\}", lambda m: instead.get(m[1]) or self.seeded.named[m[1]][0], route.path)

    def try_it(self, route: Route, path: str | None = None, **more: Any) -> Any:
        """Ask a route in the way that its description gives as an example."""
        fields = () if route.query is None else msgspec.structs.fields(route.query)
        needed = {"query": "parser", "address": f"{self.seeded.first}:2"}
        given = {field.name: needed[field.name] for field in fields if field.required}
        body = route.example
        if named(route).endswith("/permit"):
            body = {**body, "request": self.seeded.permission}
        return self(route.method, path or self.path(route), body, **given, **more)

    def fitting(self, route: Route) -> str:
        """Return a path to something with which that can be done."""
        chosen = FITTING.get(named(route), {})
        if route.path.startswith("/v1/runner/"):
            return self.path(route, run=self.seeded.asking.id)
        return self.path(route, **{name: getattr(self.seeded, what) for name, what in chosen.items()})


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_only_what_is_meant_to_be_is_open() -> None:
    assert {named(route) for route in ROUTES if route.scope is None} == OPEN
    assert all(route.scope in (None, *tokens.SCOPES) for route in ROUTES)
    assert all(route.scope == "runner" for route in ROUTES if route.path.startswith("/v1/runner/"))
    assert all(route.method == "GET" or route.scope != "read" or _reads(route) for route in ROUTES)


def _reads(route: Route) -> bool:
    """The routes that take a body and change nothing."""
    return route.path.rpartition("/")[2] in ("usage", "drafts", "review", "references")


def test_every_route_that_takes_a_body_shows_one() -> None:
    assert [named(route) for route in ROUTES if route.body is not None and route.example is None] == []


@scoped
@pytest.mark.requirement("A1")
@pytest.mark.parametrize("which", ["none", "unknown", "revoked", "expired", "not a bearer's"])
def test_without_a_valid_token_nothing_is_answered(world: World, route: Route, which: str) -> None:
    secret = {"unknown": "onw_unknown", "revoked": world.revoked, "expired": world.expired}.get(which, "")
    headers = {"authorization": f"Basic {world.secret}"} if which == "not a bearer's" else {}
    response = world.try_it(route, secret=secret, headers=headers)
    assert code(response) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("route", [route for route in ROUTES if route.scope is None], ids=named)
def test_what_is_open_is_answered_without_a_token(world: World, route: Route) -> None:
    assert world.try_it(route, secret="").status_code == 200


@scoped
@pytest.mark.requirement("A1")
def test_a_token_without_the_scope_is_refused_before_anything_is_looked_at(
    world: World, route: Route
) -> None:
    for scope in tokens.SCOPES:
        if scope in (route.scope, "admin"):
            continue
        secret = world.token(scope)
        assert code(world.try_it(route, secret=secret)) == (403, "forbidden"), scope
        # Nor does it learn what is there, or what a body would have to be.
        missing = {
            name: f"{known.prefixes[0]}_{'0' * 26}" for name, known in PARAMETERS.items() if known.prefixes
        }
        assert code(world.try_it(route, world.path(route, **missing), secret=secret))[0] == 403
        assert code(world(route.method, world.path(route), raw=b"{", secret=secret))[0] == 403


@every
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8421"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
    ids=lambda headers: "&".join(f"{name}={value}" for name, value in headers.items()),
)
def test_whoever_is_not_from_here_is_refused_whatever_the_token(
    world: World, route: Route, headers: dict[str, str]
) -> None:
    assert code(world.try_it(route, headers=headers)) == (403, "forbidden")


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None], ids=named)
def test_a_body_that_is_announced_too_large_is_not_read(world: World, route: Route) -> None:
    announced = {"content-length": str(route.limit + 1)}
    response = world(route.method, world.path(route), raw=b"{", headers=announced)
    assert code(response) == (413, "body_too_large")
    unread = world(route.method, world.path(route), raw=b"{", headers=announced, secret="")
    assert code(unread) == (401, "unauthorized")


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None], ids=named)
@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_body_that_a_form_could_send_is_refused(world: World, route: Route, media: str) -> None:
    response = world(route.method, world.path(route), raw=b"{}", headers={"content-type": media})
    assert code(response) == (415, "unsupported_media_type")


@scoped
@pytest.mark.requirement("A1")
def test_what_another_account_has_looks_like_what_does_not_exist(world: World, route: Route) -> None:
    secret = world.token(str(route.scope), platform=world.theirs)
    theirs = world.try_it(route, secret=secret)
    names = [name for name in re.findall(r"\{(\w+)\}", route.path) if PARAMETERS[name].prefixes]
    if not names:
        ours = [one for ids in world.seeded.named.values() for one in ids if "_" in one[:4]]
        sent = str(theirs.request.url)
        assert not [one for one in ours if one in theirs.text and one not in sent]
        return
    missing = {name: f"{PARAMETERS[name].prefixes[0]}_{'0' * 25}7" for name in names}
    nothing = world.try_it(route, world.path(route, **missing), secret=secret)
    said = nothing.text
    for name in names:
        said = said.replace(missing[name], world.seeded.named[name][0])
    assert (theirs.status_code, theirs.text) == (404, said)


@scoped
def test_the_scope_of_a_route_is_enough_for_it(route: Route) -> None:
    world = World()
    response = world.try_it(route, world.fitting(route), secret=world.token(str(route.scope)))
    assert response.status_code == NOT_THERE.get(named(route), route.status), response.text
    again = world.try_it(route, world.fitting(route), secret=world.token("admin"))
    assert again.status_code not in (401, 403)
    assert again.status_code in {route.status, *route.also, *openapi.codes(route)}


@pytest.mark.parametrize("route", [route for route in ROUTES if route.leads], ids=named)
def test_what_an_answer_leads_to_is_there(route: Route) -> None:
    by_name = {one.name: one for one in ROUTES}
    for name, pointer in route.leads.items():
        world = World()
        answer = world.try_it(route, world.fitting(route)).json()
        following = by_name[name]
        place = re.findall(r"\{(\w+)\}", following.path)[0]
        response = world.try_it(
            following, world.path(following, **{place: answer[pointer.removeprefix("/")]})
        )
        assert response.status_code in {following.status, *following.also, 409}, response.text
