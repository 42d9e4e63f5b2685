"""Signing in with a provider: the way in, what comes of it, and who gets which account."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from msgspec.structs import replace
from tests.surfaces.http.signing_on import ADA, LOCAL, Team, asked, clock, provider, team

from onward.core import ids as make
from onward.errors import InvalidInput, Unauthorized
from onward.service import sessions, tokens
from onward.surfaces.http import oidc, signing_in
from onward.surfaces.http.serving import serve
from onward.testing.clock import FakeClock
from onward.testing.stub_oidc import Person, StubProvider, make_key

__all__ = ["clock", "provider", "team"]

BOB = Person(sub="bob", email="bob@example.com")


# -- the way in ---------------------------------------------------------------------------------------------------------


def test_somebody_on_the_list_signs_in_and_lands_where_they_wanted_to_go(team: Team) -> None:
    sent = team.client.get("/machines?x=1")
    assert sent.headers["location"] == "/login?next=%2Fmachines%3Fx%3D1"
    page = team.client.get(sent.headers["location"]).text
    assert f"Sign in with {team.sign_in.name}" in page
    assert 'href="/login/oidc?next=%2Fmachines%3Fx%3D1"' in page
    answer = team.enter(back="/machines?x=1")
    assert answer.status_code == 200
    assert "ada@example.com" in answer.text
    assert '<meta http-equiv="refresh" content="0;url=/machines?x=1">' in answer.text
    assert team.is_in()


def test_the_provider_is_asked_for_a_code_with_everything_that_binds_it(team: Team) -> None:
    address = team.begin()
    query = asked(address)
    assert address.startswith(f"{team.provider.issuer}/authorize?")
    assert query["redirect_uri"] == f"{LOCAL}/login/oidc/back"
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert query["scope"] == "openid email"
    assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
    again = asked(team.begin(team.browser()))
    for name in ("state", "nonce", "code_challenge"):
        assert len(query[name]) == 43
        assert query[name] != again[name]


def test_only_what_is_compared_is_asked_for(provider: StubProvider, clock: FakeClock) -> None:
    team = Team(provider, clock, allow=[f"sub:{ADA.sub}"])
    assert asked(team.begin())["scope"] == "openid"
    assert team.enter().status_code == 200


def test_the_cookie_of_the_way_is_lax_and_short_and_that_of_the_browser_strict(team: Team) -> None:
    begun = team.client.get("/login/oidc").headers["set-cookie"]
    assert "onward_8421_oidc=" in begun
    assert "HttpOnly" in begun
    assert "SameSite=lax" in begun
    assert "Max-Age=600" in begun
    kept, dropped = team.enter().headers.get_list("set-cookie")
    assert "SameSite=strict" in kept
    assert "HttpOnly" in kept
    assert f"Max-Age={oidc.LASTS}" in kept
    assert 'onward_8421_oidc="";' in dropped


def test_behind_https_cookies_are_secure_and_bound_to_the_host(
    provider: StubProvider, clock: FakeClock
) -> None:
    team = Team(provider, clock, address="https://onward.example")
    assert asked(team.begin())["redirect_uri"] == "https://onward.example/login/oidc/back"
    for cookie in [
        team.client.get("/login/oidc").headers["set-cookie"],
        *team.enter().headers.get_list("set-cookie"),
    ]:
        assert cookie.startswith("__Host-onward_")
        assert "; Secure" in cookie
        assert "Path=/;" in cookie
        assert "Domain" not in cookie
    assert team.is_in()
    team.post("/logout")
    assert not team.is_in()


def test_a_browser_that_came_by_another_name_begins_under_the_one_the_provider_knows(team: Team) -> None:
    answer = team.client.get("/login/oidc?next=/machines", headers={"host": "localhost:8421"})
    assert answer.headers["location"] == f"{LOCAL}/login/oidc?next=%2Fmachines&here=1"
    # Once: a proxy that replaces the name must not send people round in circles.
    again = team.client.get("/login/oidc?here=1", headers={"host": "localhost:8421"})
    assert again.headers["location"].startswith(team.provider.issuer)


def test_a_sign_in_is_not_begun_by_another_site_nor_ahead_of_time(team: Team) -> None:
    for headers in (
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        {"sec-purpose": "prefetch"},
    ):
        answer = team.client.get("/login/oidc", headers=headers)
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
    assert team.client.head("/login/oidc").status_code == 200
    path = team.agree(team.begin())
    assert team.client.head(path).status_code == 200
    assert team.come_back(path).status_code == 200


def test_signing_in_never_leads_elsewhere(team: Team) -> None:
    for where in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert "evil" not in team.enter(back=where).text
        assert 'content="0;url=/"' in team.enter(back=where).text


def test_the_pages_are_not_there_without_a_provider(team: Team) -> None:
    team.house.oidc = None
    assert team.client.get("/login/oidc").status_code == 404
    assert team.client.get("/login/oidc/back?code=x&state=y").status_code == 404
    assert "Sign in with" not in team.client.get("/login").text


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384"])
def test_each_kind_of_key_that_providers_use_is_read(team: Team, algorithm: str) -> None:
    team.provider.rotate(make_key(algorithm))
    assert team.enter().status_code == 200


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_the_server_identifies_itself_as_the_provider_wants(
    provider: StubProvider, clock: FakeClock, method: str
) -> None:
    if method == "none":
        provider.secret = ""
    else:
        provider.discovery = {"token_endpoint_auth_methods_supported": [method]}
    assert Team(provider, clock).enter().status_code == 200


def test_an_address_that_is_not_in_the_token_is_asked_for(team: Team) -> None:
    team.provider.email_in_token = False
    assert team.enter().status_code == 200
    assert team.provider.times("/userinfo") == 1


def test_whether_an_address_is_verified_may_stand_beside_the_token(team: Team) -> None:
    def without(claims: dict[str, Any]) -> str:
        return team.provider.sign({name: claims[name] for name in claims if name != "email_verified"})

    team.provider.forge = without
    assert team.enter().status_code == 200
    assert team.provider.times("/userinfo") == 1


def test_what_a_provider_says_about_itself_is_asked_once_an_hour(team: Team, clock: FakeClock) -> None:
    for _ in range(3):
        team.enter()
    assert team.provider.times("/.well-known/openid-configuration") == 1
    assert team.provider.times("/keys") == 1
    clock.tick(3600)
    team.enter()
    assert team.provider.times("/.well-known/openid-configuration") == 2
    assert team.provider.times("/keys") == 2


def test_a_provider_may_change_its_key_at_any_time(team: Team) -> None:
    team.enter()
    team.provider.rotate()
    other = team.browser()
    assert team.enter(other).status_code == 200
    assert team.is_in(other)
    assert team.provider.times("/keys") == 2


# -- what comes of it ---------------------------------------------------------------------------------------------------


def test_a_browser_is_a_token_that_expires_and_is_revoked_by_signing_out(
    team: Team, clock: FakeClock
) -> None:
    team.enter()
    secret = team.secret()
    token = team.house.token(secret)
    assert token.name == "a browser of ada@example.com"
    assert signing_in.is_browser(token)
    clock.tick(oidc.LASTS - 1)
    assert team.is_in()
    assert team.post("/logout").status_code == 303
    assert team.secret() == ""
    team.client.cookies.set("onward_8421", secret)
    assert not team.is_in()
    team.client.cookies.clear()
    team.enter()
    clock.tick(oidc.LASTS)
    assert not team.is_in()


@pytest.mark.requirement("A1")
def test_each_person_has_an_account_and_what_is_in_it_is_nowhere_for_others(team: Team) -> None:
    team.sign_in.settings = replace(team.sign_in.settings, allowed=("@example.com",))
    ada, bob = team.client, team.browser()
    team.enter(ada)
    team.provider.person = BOB
    team.enter(bob)
    account = {who: team.house.token(team.secret(who)).account_id for who in (ada, bob)}
    assert len({*account.values(), team.platform.account_id}) == 3
    made = sessions.start(team.house.platform_of(account[ada]), "Ada's plans")
    owners = sessions.start(team.platform, "The server's own")
    assert ada.get(f"/sessions/{made.id}").status_code == 200
    for session in (made, owners):
        assert bob.get(f"/sessions/{session.id}").status_code == 404
        assert session.title not in bob.get("/").text
    assert ada.get(f"/sessions/{owners.id}").status_code == 404
    _, secret = tokens.create(team.house.platform_of(account[bob]), "bob's", ("admin",))
    answer = bob.get(f"/v1/sessions/{made.id}", headers={"authorization": f"Bearer {secret}"})
    assert answer.status_code == 404


@pytest.mark.requirement("A1")
def test_an_account_belongs_to_issuer_and_subject_and_not_to_an_address(team: Team) -> None:
    team.enter()
    first = team.house.token(team.secret()).account_id
    make.check_id(first, make.ACCOUNT)
    other = team.browser()
    team.provider.person = replace(ADA, sub="somebody who has the address now")
    team.enter(other)
    assert team.house.token(team.secret(other)).account_id != first
    again = team.browser()
    team.provider.person = ADA
    team.enter(again)
    assert team.house.token(team.secret(again)).account_id == first


def test_shared_means_the_account_of_the_store_and_no_right_to_make_tokens(
    provider: StubProvider, clock: FakeClock
) -> None:
    team = Team(provider, clock, account="shared")
    team.enter()
    token = team.house.token(team.secret())
    assert (token.account_id, token.scopes) == (team.platform.account_id, ("read", "write"))


def test_the_cookie_of_a_sign_in_opens_no_api(team: Team) -> None:
    team.enter()
    assert team.client.get("/v1/sessions").status_code == 401


def test_the_log_says_what_happened_and_holds_no_secret(team: Team, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="onward")
    path = team.agree(team.begin())
    team.come_back(path)
    team.provider.person = None
    team.enter(team.browser())
    said = "\n".join(record.getMessage() for record in caplog.records)
    account = team.house.token(team.secret()).account_id
    assert f"sign-in with {team.sign_in.name}: 'ada@example.com' as {account}" in said
    assert "access_denied" in said
    query = asked(path)
    for kept_back in (query["code"], query["state"], team.secret(), team.provider.secret):
        assert kept_back not in said
    assert team.provider.secret not in repr(team.sign_in.settings)


# -- setting it up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"issuer": "http://login.example"}, "https"),
        ({"issuer": "https://user:pw@login.example"}, "https"),
        ({"issuer": "https://login.example/?x=1"}, "without query"),
        ({"client": " "}, "--oidc-client"),
        ({"allow": []}, "--oidc-allow"),
        ({"allow": ["example.com"]}, "--oidc-allow"),
        ({"allow": ["*"]}, "--oidc-allow"),
        ({"allow": ["sub:"]}, "--oidc-allow"),
        ({"account": "each"}, "--oidc-account"),
    ],
)
def test_what_cannot_be_served_with_is_said_at_the_start(given: dict[str, object], named: str) -> None:
    whole = {"issuer": "https://login.example", "client": "onward", "allow": ["@login.example"], **given}
    with pytest.raises(InvalidInput, match=named):
        oidc.settings(**whole)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address",
    ["http://onward.example", "onward.example", "https://onward.example/team", "https://a@b", "https://a?b"],
)
def test_an_address_for_people_is_https_and_a_host(address: str) -> None:
    with pytest.raises(InvalidInput, match="--url"):
        oidc.checked_address(address)
    assert oidc.checked_address("https://Onward.example:8443/") == "https://onward.example:8443"


@pytest.mark.parametrize("outside", [None, "http://127.0.0.1:8421"])
def test_a_server_that_others_can_reach_wants_https_in_front_of_its_sign_in(
    team: Team, outside: str | None
) -> None:
    provider = {"issuer": "https://login.example", "client": "onward", "allow": ["@login.example"]}
    with pytest.raises(InvalidInput, match="TLS"):
        serve(team.platform, ready=lambda *_: None, host="0.0.0.0", outside=outside, provider=provider)


# -- tokens on a page ---------------------------------------------------------------------------------------------------


def test_somebody_with_an_account_of_their_own_makes_tokens_for_it_and_takes_them_back(team: Team) -> None:
    team.enter()
    account = team.house.token(team.secret()).account_id
    assert 'href="/tokens"' in team.client.get("/").text
    assert "this browser" in team.client.get("/tokens").text
    page = team.post("/tokens", name="laptop", runner="1", days="30").text
    (secret,) = re.findall(r"onw_[\w-]+(?=</pre>)", page)
    token = team.house.token(secret)
    assert (token.account_id, token.name, token.scopes) == (account, "laptop", ("runner",))
    assert token.expires_at == team.clock() + 30 * 86_400_000_000
    assert secret not in team.client.get("/tokens").text
    assert team.post(f"/tokens/{token.id}/revoke").headers["location"] == "/tokens"
    with pytest.raises(Unauthorized):
        team.house.token(secret)
    assert "Revoke laptop" not in team.client.get("/tokens").text


@pytest.mark.parametrize(
    "form",
    [
        {"name": "", "read": "1"},
        {"name": "x"},
        {"name": "x" * 200, "read": "1"},
        *({"name": "x", "read": "1", "days": days} for days in ("0", "-1", "1.5", "²", "9" * 40)),
    ],
)
def test_what_no_token_can_be_made_of_is_said_on_the_page(team: Team, form: dict[str, str]) -> None:
    team.enter()
    answer = team.post("/tokens", **form)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert len(tokens.listed(team.house.platform_of(team.house.token(team.secret()).account_id))) == 1


@pytest.mark.requirement("A1")
def test_tokens_of_others_can_be_neither_seen_nor_taken(provider: StubProvider, clock: FakeClock) -> None:
    team = Team(provider, clock, account="shared")
    made, _ = tokens.create(team.platform, "the owner's", ("admin",))
    team.enter()
    assert "/tokens" not in team.client.get("/").text
    assert team.client.get("/tokens").status_code == 403
    assert team.post("/tokens", name="x", admin="1").status_code == 403
    assert team.post(f"/tokens/{made.id}/revoke").status_code == 403
    team.sign_in.settings = replace(team.sign_in.settings, account="own")
    team.enter()
    assert made.name not in team.client.get("/tokens").text
    assert team.post(f"/tokens/{made.id}/revoke").status_code == 404
    assert tokens.listed(team.platform)[0].revoked_at is None
