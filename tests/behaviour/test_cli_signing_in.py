"""A team's server as a process, its provider, and a browser that follows every redirect by itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.behaviour.cli import COMMAND, Program

from onward.testing.stub_oidc import Person, StubProvider

SECRET = "a secret of the client"


@pytest.fixture
def provider() -> Iterator[StubProvider]:
    with StubProvider(secret=SECRET, person=Person(sub="1", email="ada@example.com")) as running:
        yield running


class Served:
    """``onward serve`` with a provider, until it is told to stop."""

    def __init__(self, onward: Program, provider: StubProvider, *more: str) -> None:
        self.process = subprocess.Popen(
            [
                *COMMAND,
                *("serve", "--json", "--port", "0", "--no-runner"),
                *("--oidc-issuer", provider.issuer, "--oidc-client", "onward", *more),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=onward.environment(ONWARD_OIDC_SECRET=SECRET),
        )
        assert self.process.stdout is not None
        self.told: dict[str, Any] = json.loads(self.process.stdout.readline())
        provider.redirects.append(f"{self.told['url']}/login/oidc/back")

    def stop(self) -> bytes:
        """Stop it, and return what it said beside its document."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said
        return said


@pytest.mark.requirement("A1")
def test_somebody_signs_in_makes_a_token_and_is_put_out_again(
    onward: Program, provider: StubProvider, tmp_path: Path
) -> None:
    onward("run", "--new", "The owner's", "Hello", "--engine", "script")
    served = Served(onward, provider, "--oidc-allow", "@example.com")
    try:
        with httpx2.Client(base_url=served.told["url"], follow_redirects=True, trust_env=False) as browser:
            page = browser.get("/machines?x=1").text
            button = re.search(r'href="(/login/oidc\?next=[^"]+)"', page)
            assert button is not None
            arrived = browser.get(button[1])
            assert [hop.status_code for hop in arrived.history] == [303, 303]
            refresh = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', arrived.text)
            assert refresh is not None
            assert refresh[1] == "/machines?x=1"
            assert "No machines yet" in browser.get(refresh[1]).text
            assert "The owner&#39;s" not in browser.get("/").text
            csrf = re.search(r'name="csrf" content="(\w+)"', browser.get("/tokens").text)
            assert csrf is not None
            made = browser.post(
                "/tokens",
                data={"csrf": csrf[1], "name": "mine", "read": "1", "admin": "1"},
                headers={"origin": served.told["url"]},
            )
            secret = re.search(r"onw_[\w-]+(?=</pre>)", made.text)
            assert secret is not None
            bearer = {"authorization": f"Bearer {secret[0]}"}
            assert browser.get("/v1/sessions", headers=bearer).json()["sessions"] == []

            # Somebody left: the store of their account knows all that lets them in.
            with_tokens = onward("tokens", "list", "--json").document["tokens"]
            assert with_tokens == []
            account = _account(onward)
            listed = onward("tokens", "list", "--account", account, "--json").document["tokens"]
            assert {token["name"] for token in listed} == {"mine", "a browser of ada@example.com"}
            ended = onward("tokens", "revoke", "all", "--account", account, "--json").document["tokens"]
            assert {token["id"] for token in ended} == {token["id"] for token in listed}
            assert browser.get("/v1/sessions", headers=bearer).status_code == 401
            assert "Sign in with" in browser.get("/machines").text

            provider.person = Person(sub="2", email="eve@example.org")
            refused = browser.get("/login/oidc")
            assert refused.status_code == 403
            assert "--oidc-allow eve@example.org" in refused.text
    finally:
        said = served.stop()
    assert SECRET.encode() not in said
    assert f"'ada@example.com' as {account}".encode() in said
    assert b"they are not on the list" in said


def _account(onward: Program) -> str:
    """Return the account that is not the store's own."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(onward.store)) as db:
        rows = db.execute("SELECT DISTINCT account_id FROM tokens").fetchall()
    (account,) = [str(row[0]) for row in rows]
    return account


def test_shared_means_that_everybody_on_the_list_sees_what_the_store_has(
    onward: Program, provider: StubProvider
) -> None:
    onward("run", "--new", "The owner's", "Hello", "--engine", "script")
    served = Served(onward, provider, "--oidc-allow", "ada@example.com", "--oidc-account", "shared")
    try:
        with httpx2.Client(base_url=served.told["url"], follow_redirects=True, trust_env=False) as browser:
            assert browser.get("/login/oidc").status_code == 200
            assert "The owner&#39;s" in browser.get("/").text
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("words", "code", "said", "named"),
    [
        (("--oidc-client", "onward"), 2, "usage", "--oidc-issuer"),
        (("--oidc-allow", "@x.example"), 2, "usage", "--oidc-issuer"),
        (
            ("--oidc-issuer", "https://x.example", "--oidc-client", "onward"),
            1,
            "invalid_input",
            "--oidc-allow",
        ),
        (
            ("--oidc-issuer", "https://x.example", "--oidc-allow", "@x.example"),
            1,
            "invalid_input",
            "--oidc-client",
        ),
        (("--oidc-issuer", "http://x.example"), 1, "invalid_input", "https"),
        (("--url", "http://onward.example"), 1, "invalid_input", "https"),
    ],
)
def test_half_a_provider_is_refused_by_name(
    onward: Program, words: tuple[str, ...], code: int, said: str, named: str
) -> None:
    refused = onward("serve", "--no-runner", *words)
    assert (refused.status, refused.code) == (code, said)
    assert named in refused.told


def test_an_account_that_is_none_is_refused(onward: Program) -> None:
    assert onward("tokens", "create", "x", "--scope", "read", "--account", "ada").code == "invalid_id"
