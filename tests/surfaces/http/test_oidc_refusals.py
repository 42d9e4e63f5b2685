"""Signing in with a provider: everything that must not let anybody in, and what people are told then."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.surfaces.http.signing_on import ADA, KEY, PLAIN, Team, asked, clock, provider, team

from onward.surfaces.http import oidc, oidc_claims, oidc_flow, oidc_keys
from onward.surfaces.http.oidc_claims import NotSignedIn
from onward.surfaces.http.oidc_keys import UnknownKey
from onward.testing.clock import FakeClock
from onward.testing.stub_oidc import Person, StubProvider, make_key

__all__ = ["clock", "provider", "team"]

OTHER = make_key()
SMALL = make_key(bits=1024)
CURVE = make_key("ES256")


def refused(team: Team, answer: httpx2.Response, *told: str, status: int = 403) -> None:
    """Check that nobody got in, and that the page says why and how to go on."""
    assert answer.status_code == status, answer.text
    assert team.secret() == ""
    assert not team.is_in()
    for words in told:
        assert words in answer.text
    assert 'href="/login/oidc?next=' in answer.text


# -- the answer that the browser brings ---------------------------------------------------------------------------------


def test_an_answer_to_another_question_is_refused(team: Team) -> None:
    query = asked(team.agree(team.begin()))
    for state in ("", "x", query["state"][:-1], "é"):
        path = f"/login/oidc/back?{urlencode({**query, 'state': state})}"
        refused(team, team.come_back(path), "Begin it again", status=400)
    # The one that was begun is still good: nobody elsewhere can end it.
    assert team.come_back(f"/login/oidc/back?{urlencode(query)}").status_code == 200


def test_an_address_that_somebody_has_seen_lets_no_other_browser_in(team: Team) -> None:
    path = team.agree(team.begin())
    other = team.browser()
    assert team.come_back(path, other).status_code == 400
    assert team.secret(other) == ""
    team.begin(other)  # one that has begun a sign-in of its own
    assert team.come_back(path, other).status_code == 400
    assert team.provider.times("/token") == 0


def test_an_answer_is_good_once(team: Team) -> None:
    path = team.agree(team.begin())
    cookie = team.client.cookies.get("onward_8421_oidc")
    team.provider.codes_work_again = True
    assert team.come_back(path).status_code == 200
    team.client.cookies.clear()
    refused(team, team.come_back(path), status=400)
    team.client.cookies.set("onward_8421_oidc", str(cookie))
    refused(team, team.come_back(path), "finished before")
    assert team.provider.times("/token") == 1


def test_a_code_that_was_used_or_is_of_another_sign_in_is_worth_nothing(team: Team) -> None:
    used = asked(team.agree(team.begin()))
    theirs = asked(team.agree(team.begin(team.browser())))
    # Injected into the browser of somebody who has begun: its verifier does not fit (RFC 9700, section 2.1.1).
    state = asked(team.begin())["state"]
    injected = f"/login/oidc/back?{urlencode({'code': theirs['code'], 'state': state})}"
    refused(team, team.come_back(injected), "Begin it again")
    state = asked(team.begin())["state"]
    again = f"/login/oidc/back?{urlencode({'code': used['code'], 'state': state})}"
    refused(team, team.come_back(again), "Begin it again")


def test_a_sign_in_that_took_too_long_is_begun_again(team: Team, clock: FakeClock) -> None:
    path = team.agree(team.begin())
    clock.tick(oidc_flow.SECONDS + 1)
    refused(team, team.come_back(path), "ten minutes", status=400)


@pytest.mark.parametrize("query", ["", "&code=", "&code=" + "x" * 5000])
def test_an_answer_without_a_code_is_refused(team: Team, query: str) -> None:
    state = asked(team.begin())["state"]
    refused(team, team.come_back(f"/login/oidc/back?state={state}{query}"), "no code", status=400)


def test_somebody_who_declines_is_told_so(team: Team) -> None:
    team.provider.person = None
    refused(team, team.enter(), "declined")


def test_what_stands_in_an_answer_is_not_shown(team: Team) -> None:
    state = asked(team.begin())["state"]
    bad = urlencode({"state": state, "error": "<b>call 555-1234</b>", "error_description": "send money"})
    answer = team.come_back(f"/login/oidc/back?{bad}")
    refused(team, answer, "another error")
    assert "555" not in answer.text
    assert "money" not in answer.text


@pytest.mark.parametrize("says", [None, "https://evil.example"])
def test_an_answer_of_another_provider_is_refused(team: Team, says: str | None) -> None:
    team.provider.discovery = {"authorization_response_iss_parameter_supported": True}
    query = asked(team.agree(team.begin()))
    assert query.pop("iss") == team.provider.issuer
    more = {} if says is None else {"iss": says}
    refused(team, team.come_back(f"/login/oidc/back?{urlencode({**query, **more})}"), "another provider")
    assert team.provider.times("/token") == 0
    assert team.enter().status_code == 200


def test_a_provider_sends_codes_to_the_one_address_and_nowhere_else(team: Team) -> None:
    address = team.begin()
    for other in (
        "http://127.0.0.1:8421/login/oidc/back/",
        "http://evil.example/",
        "http://localhost:8421/x",
    ):
        tampered = address.replace(
            urlencode({"redirect_uri": team.sign_in.redirect}), urlencode({"redirect_uri": other})
        )
        assert tampered != address
        assert PLAIN.get(tampered).status_code == 400
    # And a code that was made for another address is not redeemed for ours.
    team.provider.redirects.append("http://127.0.0.1:1/evil")
    tampered = address.replace(
        urlencode({"redirect_uri": team.sign_in.redirect}),
        urlencode({"redirect_uri": "http://127.0.0.1:1/evil"}),
    )
    stolen = asked(PLAIN.get(tampered).headers["location"])
    refused(team, team.come_back(f"/login/oidc/back?{urlencode(stolen)}"))


@pytest.mark.parametrize("cookie", ["", "x", "é", "W10", "WzEsMiwzXQ", "e30", "A" * 10_000, "W1tbW1tb" * 500])
def test_a_cookie_that_is_none_of_ours_is_none(team: Team, cookie: str) -> None:
    assert oidc_flow.resumed(cookie, team.clock()) is None


def test_many_sign_ins_at_once_do_not_become_many_requests_to_the_provider(team: Team) -> None:
    paths = []
    for _ in range(60):
        browser = team.browser()
        paths.append((browser, team.agree(team.begin(browser))))
    statuses = [team.come_back(path, browser).status_code for browser, path in paths]
    assert set(statuses) == {200, 429}
    assert team.provider.times("/token") == statuses.count(200)


# -- the token that the provider gives ----------------------------------------------------------------------------------

Forge = Callable[[StubProvider, dict[str, Any]], str]


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(alg: str) -> Forge:
    return lambda _, claims: f"{encoded({'alg': alg, 'kid': KEY.kid})}.{encoded(claims)}."


def by_public_key(provider: StubProvider, claims: dict[str, Any]) -> str:
    """The classic: the published key, taken for the secret of an HMAC."""
    from cryptography.hazmat.primitives import serialization

    secret = KEY.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head = f"{encoded({'alg': 'HS256', 'kid': KEY.kid})}.{encoded(claims)}"
    signature = hmac.new(secret, head.encode(), hashlib.sha256).digest()
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def changed(**claims: Any) -> Forge:
    def forge(provider: StubProvider, given: dict[str, Any]) -> str:
        whole = {**given, **claims}
        return provider.sign({name: value for name, value in whole.items() if value is not ...})

    return forge


def moved(**seconds: float) -> Forge:
    def forge(provider: StubProvider, given: dict[str, Any]) -> str:
        return provider.sign({**given, **{n: provider.clock() + s for n, s in seconds.items()}})

    return forge


def tampered(provider: StubProvider, claims: dict[str, Any]) -> str:
    head, _, signature = provider.sign(claims).split(".")
    return f"{head}.{encoded({**claims, 'sub': 'root'})}.{signature}"


FORGED: dict[str, Forge] = {
    "unsigned": unsigned("none"),
    "unsigned, in other letters": unsigned("nOnE"),
    "without an algorithm": lambda _, claims: f"{encoded({'kid': KEY.kid})}.{encoded(claims)}.",
    "HS256 with the public key": by_public_key,
    "changed afterwards": tampered,
    "signed by another under the same id": lambda p, c: p.sign(c, key=OTHER, kid=KEY.kid),
    "signed by a key that it brings along": lambda p, c: p.sign(c, key=OTHER, kid=KEY.kid, jwk=OTHER.public),
    "of another kind of key": lambda p, c: p.sign(c, key=CURVE, kid=KEY.kid),
    "with a demand that we do not know": lambda p, c: p.sign(c, crit=["exp"], exp=1),
    "no token": lambda _, __: "a.b.c",
    "empty": lambda _, __: "",
    "far too long": lambda p, c: p.sign({**c, "x": "x" * 70_000}),
    "no object": lambda p, _: _list(p),
    "wrong issuer": changed(iss="https://evil.example"),
    "issuer with a slash": lambda p, c: p.sign({**c, "iss": c["iss"] + "/"}),
    "wrong audience": changed(aud="another client"),
    "audience of two, for neither": changed(aud=["onward", "another"]),
    "audience of two, for the other": changed(aud=["onward", "another"], azp="another"),
    "for the other": changed(azp="another"),
    "no audience": changed(aud=...),
    "wrong nonce": changed(nonce="x" * 43),
    "no nonce": changed(nonce=...),
    "a nonce that is no text": changed(nonce=["x"]),
    "no subject": changed(sub=...),
    "an empty subject": changed(sub=""),
    "a subject that is a number": changed(sub=1),
    "a subject without end": changed(sub="x" * 300),
    "expired": moved(exp=-61, iat=-400),
    "no expiry": changed(exp=...),
    "an expiry that is no time": changed(exp="never"),
    "an expiry that is true": changed(exp=True),
    "an expiry without end": changed(exp=float("inf")),
    "an expiry that is no number": changed(exp=float("nan")),
    "from the future": moved(iat=61),
    "no time of issue": changed(iat=...),
    "not valid yet": moved(nbf=61),
}


def _list(provider: StubProvider) -> str:
    import jwt

    return jwt.PyJWS().encode(b"[1]", KEY.private, algorithm="RS256", headers={"kid": KEY.kid})


@pytest.mark.parametrize("kind", FORGED)
def test_a_token_that_is_not_for_this_sign_in_lets_nobody_in(team: Team, kind: str) -> None:
    team.provider.forge = lambda claims: FORGED[kind](team.provider, claims)
    refused(team, team.enter())
    team.provider.forge = None
    assert team.enter().status_code == 200  # nothing else was in the way


@pytest.mark.parametrize("forge", [moved(exp=-59, iat=-400), moved(iat=59), moved(nbf=59, iat=0)])
def test_clocks_may_differ_by_a_minute(team: Team, forge: Forge) -> None:
    team.provider.forge = lambda claims: forge(team.provider, claims)
    assert team.enter().status_code == 200


@pytest.mark.parametrize("forge", [changed(aud=["onward"]), changed(aud=["onward", "api"], azp="onward")])
def test_an_audience_may_be_a_list(team: Team, forge: Forge) -> None:
    team.provider.forge = lambda claims: forge(team.provider, claims)
    assert team.enter().status_code == 200


def test_a_key_that_is_not_published_is_looked_for_once_a_minute(team: Team, clock: FakeClock) -> None:
    team.enter()
    team.post("/logout")
    team.provider.forge = lambda claims: team.provider.sign(claims, key=OTHER)
    for _ in range(3):
        refused(team, team.enter(), "does not publish", status=502)
    assert team.provider.times("/keys") == 2
    clock.tick(60)
    refused(team, team.enter(), "does not publish", status=502)
    assert team.provider.times("/keys") == 3
    team.provider.forge = None
    team.provider.key = OTHER
    team.provider.keys.append(OTHER)
    clock.tick(60)
    assert team.enter().status_code == 200


def test_a_token_that_names_no_key_is_read_where_only_one_fits() -> None:
    token = _signed(KEY, kid="")
    assert oidc_keys.claims_of(token, [KEY.public, CURVE.public]) == {"sub": "x"}
    with pytest.raises(UnknownKey, match="publish"):
        oidc_keys.claims_of(token, [KEY.public, OTHER.public])
    with pytest.raises(UnknownKey, match="publish"):
        oidc_keys.claims_of(token, [])


def _signed(key: Any, kid: str) -> str:
    """Return a token whose header names a key, or none."""
    import jwt

    headers = {"kid": kid} if kid else {}
    return jwt.encode({"sub": "x"}, key.private, algorithm=key.algorithm, headers=headers)


def test_a_key_is_used_for_the_algorithm_that_it_is_published_for() -> None:
    token = _signed(replace(KEY, algorithm="RS512"), KEY.kid)
    with pytest.raises(NotSignedIn):
        oidc_keys.claims_of(token, [KEY.public])
    of_any = {name: value for name, value in KEY.public.items() if name != "alg"}
    assert oidc_keys.claims_of(token, [of_any]) == {"sub": "x"}


def test_a_key_that_is_too_short_is_no_key() -> None:
    with pytest.warns(match="below the minimum"):
        token = _signed(SMALL, SMALL.kid)
    with pytest.raises(NotSignedIn) as found:
        oidc_keys.claims_of(token, [SMALL.public])
    assert "2048" in found.value.why


def test_keys_for_something_else_are_left_alone() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "1", "alg": "HS256"}
    odd: list[Any] = [{**KEY.public, "use": "enc"}, secret, {"kty": ["RSA"]}, {"kty": "EC", "crv": "P-1"}, 7]
    assert oidc_keys.usable({"keys": [*odd, KEY.public]}) == (KEY.public,)
    assert oidc_keys.usable({"keys": {}}) == oidc_keys.usable([]) == oidc_keys.usable(None) == ()


@given(
    st.one_of(st.text(max_size=200), st.from_regex(r"[\w-]{0,40}\.[\w-]{0,40}\.[\w-]{0,40}", fullmatch=True))
)
def test_whatever_a_token_is_it_is_read_or_refused(token: str) -> None:
    with pytest.raises(NotSignedIn):
        oidc_keys.claims_of(token, [KEY.public])


# -- who is on the list -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("person", "allowed", "in_"),
    [
        (ADA, ["ADA@Example.com"], True),
        (ADA, ["@example.com"], True),
        (ADA, [f"sub:{ADA.sub}"], True),
        (ADA, ["bob@example.com", "@example.org"], False),
        (ADA, ["@ample.com"], False),
        (ADA, ["sub:248"], False),
        (replace(ADA, email="ada@mail.example.com"), ["@example.com"], False),
        (replace(ADA, email="ada@example.com@evil.example"), ["@example.com"], False),
        (replace(ADA, email="@example.com"), ["@example.com"], False),
        (replace(ADA, email="ada@example.com\u212a"), ["ada@example.comk"], False),  # the sign for kelvin
        (replace(ADA, email="ada@example.com "), ["ada@example.com"], False),
        (replace(ADA, email=None), ["@example.com"], False),
        (replace(ADA, email_verified=False), ["ada@example.com"], False),
        (replace(ADA, email_verified="false"), ["ada@example.com"], False),
        (replace(ADA, email_verified=1.5), ["ada@example.com"], False),
        (replace(ADA, email_verified="true"), ["ada@example.com"], True),
        (replace(ADA, email_verified=False), [f"sub:{ADA.sub}"], True),
        (Person(sub="ada@example.com"), ["ada@example.com"], False),
        (Person(sub="x", email="sub:y@example.com"), ["sub:y@example.com"], False),
    ],
)
def test_only_whoever_is_on_the_list_comes_in(
    provider: StubProvider, clock: FakeClock, person: Person, allowed: list[str], in_: bool
) -> None:
    provider.person = person
    team = Team(provider, clock, allow=allowed)
    answer = team.enter()
    if in_:
        assert answer.status_code == 200
        assert team.is_in()
    else:
        refused(team, answer, "Ask whoever runs this server", "choose=1")


def test_who_is_not_on_the_list_is_told_what_to_ask_for(provider: StubProvider, clock: FakeClock) -> None:
    team = Team(provider, clock, allow=["@example.org"])
    refused(team, team.enter(), "--oidc-allow ada@example.com")
    provider.person = replace(ADA, email_verified=False)
    refused(team, team.enter(), "not verified", f"--oidc-allow sub:{ADA.sub}")
    assert asked(team.begin(choose="1"))["prompt"] == "select_account"


def test_who_was_taken_off_the_list_cannot_sign_in_again(team: Team) -> None:
    assert team.enter().status_code == 200
    team.post("/logout")
    team.sign_in.settings = replace(team.sign_in.settings, allowed=("bob@example.com",))
    refused(team, team.enter(), "not on the list")


def test_information_about_somebody_else_counts_for_nothing(team: Team) -> None:
    team.provider.email_in_token = False
    team.provider.forge = lambda claims: team.provider.sign({**claims, "sub": "mallory"})
    refused(team, team.enter(), "not set up right", status=502)


@given(st.text(max_size=60), st.text(max_size=60))
def test_issuer_and_subject_make_one_account_each(one: str, two: str) -> None:
    def account(issuer: str, subject: str) -> str:
        return oidc_claims.Person(issuer=issuer, subject=subject).account_id

    assert (account(one, two) == account(two, one)) is (one == two)
    assert account(one + "x", two) != account(one, "x" + two)


# -- a provider that cannot be used -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "says",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://login.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"userinfo_endpoint": "http://login.example/me"},
        {"jwks_uri": None},
    ],
)
def test_a_provider_that_does_not_fit_is_said_to_whoever_runs_the_server(
    team: Team, says: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    team.provider.discovery = says
    refused(team, team.client.get("/login/oidc"), "not set up right", status=502)
    assert "the provider cannot be used" in caplog.text


def test_a_secret_that_is_wrong_is_said_to_whoever_runs_the_server(
    provider: StubProvider, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    team = Team(provider, clock, secret="another")
    refused(team, team.enter(), "not set up right", status=502)
    assert "invalid_client" in caplog.text
    assert "another" not in caplog.text.replace("its secret is another", "")


def test_a_provider_that_is_away_is_said_so(clock: FakeClock) -> None:
    with StubProvider(person=ADA, key=KEY) as provider:
        team = Team(provider, clock)
    answer = team.client.get("/login/oidc")
    refused(team, answer, "could not be reached", status=502)
    assert team.client.get("/login").status_code == 200


def test_an_answer_without_end_is_not_read(team: Team) -> None:
    team.provider.discovery = {"more": "x" * oidc.oidc_provider.ANSWER_LIMIT}
    refused(team, team.client.get("/login/oidc"), status=502)
