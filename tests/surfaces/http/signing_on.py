"""A server that people sign in to with a provider, the provider, and a browser: everything real but the network between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from starlette.testclient import TestClient

from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.surfaces.http import oidc, signing_in
from onward.surfaces.http.app import application
from onward.surfaces.http.house import House
from onward.testing.clock import FakeClock, FakeIds
from onward.testing.stub_oidc import Key, Person, StubProvider, make_key

ADA = Person(sub="248289761001", email="ada@example.com")
LOCAL = "http://127.0.0.1:8421"
KEY = make_key()
PLAIN = httpx2.Client(verify=False, trust_env=False)
"""Asks over plain http; reading certificates would take longer than all the rest."""


class Team:
    """A server with a provider. ``browser`` makes another browser, and ``client`` is the first of them."""

    def __init__(
        self, provider: StubProvider, clock: FakeClock, *, address: str = LOCAL, **given: Any
    ) -> None:
        self.provider, self.clock, self.address = provider, clock, address
        self.platform = Platform(store=MemoryStore(), clock=clock, ids=FakeIds(clock), host="home")
        self.house = House(self.platform)
        self.house.outside = address
        chosen = oidc.settings(
            **{
                "issuer": provider.issuer,
                "client": "onward",
                "allow": ["ada@example.com"],
                "secret": provider.secret,
                **given,
            }
        )
        self.sign_in = self.house.oidc = oidc.SignIn(chosen, address=address, clock=clock)
        provider.redirects.append(self.sign_in.redirect)
        host = urlsplit(address).hostname or ""
        self.app = application(self.house, rate=0, names=[host])
        self.client = self.browser()

    def browser(self) -> TestClient:
        """Return another browser."""
        return TestClient(self.app, base_url=self.address, follow_redirects=False)

    def begin(self, client: TestClient | None = None, back: str = "/", **query: str) -> str:
        """Press the button; return the address of the provider that the browser is sent to."""
        answer = (client or self.client).get(f"/login/oidc?{urlencode({'next': back, **query})}")
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def agree(self, address: str) -> str:
        """Let the person agree at the provider; return the path that the browser comes back to."""
        answer = PLAIN.get(address)
        assert answer.status_code == 303, answer.text
        location = answer.headers["location"]
        assert location.startswith(self.sign_in.redirect)
        return location.removeprefix(self.address)

    def come_back(self, path: str, client: TestClient | None = None) -> httpx2.Response:
        """Come back from the provider, as a browser does: from a page of another site."""
        headers = {
            "sec-fetch-site": "cross-site",
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
        }
        return (client or self.client).get(path, headers=headers)

    def enter(self, client: TestClient | None = None, back: str = "/") -> httpx2.Response:
        """Do all of it."""
        return self.come_back(self.agree(self.begin(client, back)), client)

    def secret(self, client: TestClient | None = None) -> str:
        """Return the secret in a browser's cookie, nothing where it has none."""
        jar = (client or self.client).cookies.jar
        return next((str(c.value) for c in jar if re.fullmatch(r"(__Host-)?onward_\d+", c.name)), "")

    def post(self, path: str, client: TestClient | None = None, **form: str) -> httpx2.Response:
        """Send a form of a page."""
        by = client or self.client
        return by.post(
            path,
            content=urlencode({"csrf": signing_in.csrf_of(self.secret(by)), **form}),
            headers={"content-type": "application/x-www-form-urlencoded", "origin": self.address},
        )

    def is_in(self, client: TestClient | None = None) -> bool:
        """Whether a browser is signed in."""
        return (client or self.client).get("/").status_code == 200


def asked(address: str) -> dict[str, str]:
    """Return the query of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[StubProvider]:
    with StubProvider(secret="s3cret & more", person=ADA, key=KEY, clock=lambda: clock() / 1e6) as running:
        yield running


@pytest.fixture
def team(provider: StubProvider, clock: FakeClock) -> Team:
    return Team(provider, clock)


__all__ = ["ADA", "KEY", "LOCAL", "PLAIN", "Key", "Team", "asked", "clock", "provider", "team"]
