"""Signing in with an OpenID provider: for a team that hosts Onward, off unless it is set up (docs/signing-in.md).

Authorization Code with PKCE, to one exact address of this server. A sign-in goes: ``begin`` gives the browser a cookie and
the provider's address (``oidc_flow``); ``matched`` finds the cookie that an answer belongs to; ``person`` redeems the code
(``oidc_provider``), checks who signed what came for it (``oidc_keys``) and what it says (``oidc_claims``), and whether
that person is on the list. What comes out is a token like that of every other browser (``signing_in``), for twelve hours.

Nothing of the provider's is kept: no access token, no refresh token, no claim but the address, which is part of the name of
the browser's token. It is deliberately no user database: an account is made from issuer and subject (invariant A1).
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from onward.errors import InvalidInput
from onward.surfaces.http import oidc_claims, oidc_flow, oidc_keys, oidc_provider
from onward.surfaces.http.guarding import Rates
from onward.surfaces.http.oidc_claims import NotSignedIn, Person
from onward.surfaces.http.oidc_flow import Flow
from onward.surfaces.http.oidc_provider import Provider

BEGIN: Final = "/login/oidc"
RETURN: Final = "/login/oidc/back"
"""The path that the provider sends browsers back to."""
LASTS: Final = 12 * 3600
"""Seconds that a browser stays signed in: as long as it may take until somebody who left is out."""
ACCOUNTS: Final = ("own", "shared")
RATE: Final = 10.0
"""Sign-ins a second that are taken to the provider, everybody's together; twice as many at once."""
CODE_LIMIT: Final = 4096
_SPENT: Final = 10_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How this server lets people in by a provider."""

    issuer: str
    client: str
    allowed: tuple[str, ...]
    """Addresses, ``@domains`` and ``sub:…``; nobody else comes in."""
    secret: str = ""
    """Empty for a client that has none."""
    account: Literal["own", "shared"] = "own"
    """An account for each person, or the account of the store for all of them."""

    def __repr__(self) -> str:
        return f"Settings(issuer={self.issuer!r}, client={self.client!r}, account={self.account!r})"


def settings(
    *, issuer: str, client: str, allow: Sequence[str], secret: str = "", account: str = "own"
) -> Settings:
    """Return settings that can be served with. Raises InvalidInput, MissingExtra."""
    issuer = oidc_provider.checked_issuer(issuer)
    if not client.strip():
        raise InvalidInput(what="--oidc-client", why="there is none; the provider gives each client an id")
    if account not in ACCOUNTS:
        raise InvalidInput(what=f"--oidc-account {account!r}", why=f"there are {' and '.join(ACCOUNTS)}")
    oidc_keys.require()
    return Settings(
        issuer=issuer,
        client=client.strip(),
        allowed=oidc_claims.checked_allowed(allow),
        secret=secret,
        account="shared" if account == "shared" else "own",
    )


def checked_address(given: str) -> str:
    """Return the address under which people reach this server, without a slash at its end. Raises InvalidInput."""
    given = given.rstrip("/")
    if not (oidc_provider.is_secure(given) or oidc_provider.is_local(given)) or urlsplit(given).path:
        raise InvalidInput(
            what=f"--url {given!r}",
            why="it is https:// and a host, such as https://onward.example, without a path (http:// only on this machine)",
        )
    parts = urlsplit(given)
    if parts.query:
        raise InvalidInput(what=f"--url {given!r}", why="it has no query")
    return urlunsplit((parts.scheme, parts.netloc.lower(), "", "", ""))


class SignIn:
    """Signing in with one provider. ``address`` is where people reach this server."""

    def __init__(self, chosen: Settings, *, address: str, clock: Callable[[], int]) -> None:
        self.settings, self.address = chosen, address
        self.redirect = address + RETURN
        self.provider = Provider(chosen.issuer, chosen.client, chosen.secret, clock=clock)
        self._clock = clock
        self._rates = Rates(RATE)
        self._spent: OrderedDict[str, int] = OrderedDict()

    @property
    def name(self) -> str:
        """What the provider is called where people choose it."""
        return self.provider.name

    async def begin(self, back: str, *, choose: bool = False) -> tuple[Flow, str]:
        """Begin a sign-in: return it, and the address to send the browser to. ``choose`` asks for another account.

        Raises NotSignedIn where the provider cannot be asked.
        """
        published = await self.provider.published()
        flow = oidc_flow.begin(self._clock(), back)
        asked = {
            "response_type": "code",
            "client_id": self.settings.client,
            "redirect_uri": self.redirect,
            "scope": "openid email" if oidc_claims.needs_email(self.settings.allowed) else "openid",
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        if choose:
            asked["prompt"] = "select_account"
        joint = "&" if urlsplit(published.authorization_endpoint).query else "?"
        return flow, f"{published.authorization_endpoint}{joint}{urlencode(asked)}"

    def matched(self, cookie: str, answer: Mapping[str, str]) -> Flow:
        """Return the sign-in of this browser that an answer belongs to. Raises NotSignedIn where it has begun none such."""
        flow = oidc_flow.resumed(cookie, self._clock())
        state = answer.get("state", "").encode("utf-8", "surrogatepass")
        if flow is None or not hmac.compare_digest(flow.state.encode(), state):
            raise NotSignedIn(
                "This sign-in was not begun in this browser, or more than ten minutes ago. Begin it again.",
                why="no cookie" if flow is None else "the state is that of another sign-in",
                status=400,
            )
        return flow

    async def person(self, flow: Flow, answer: Mapping[str, str]) -> Person:
        """Return who an answer lets in, once. Raises NotSignedIn."""
        published = await self.provider.published()
        says = answer.get("iss")
        if says != published.issuer and (
            says is not None or published.authorization_response_iss_parameter_supported
        ):
            raise NotSignedIn(
                "The answer came from another provider. Begin again.",
                why="the answer's issuer is another (RFC 9207)",
            )
        if "error" in answer:
            raise _declined(oidc_provider.error_code(answer["error"]))
        code = answer.get("code", "")
        if not 0 < len(code) <= CODE_LIMIT:
            raise NotSignedIn("The provider sent no code. Begin again.", why="no code", status=400)
        self._spend(flow)
        redeemed = await self.provider.redeem(code, flow.verifier, self.redirect)
        claims = await self.provider.claims(redeemed.id_token)
        chosen, now = self.settings, self._clock() / 1e6
        found = oidc_claims.person(
            claims, issuer=chosen.issuer, client=chosen.client, nonce=flow.nonce, now=now
        )
        if not found.verified and oidc_claims.needs_email(chosen.allowed):
            more = await self.provider.about(redeemed.access_token, found.subject)
            found = oidc_claims.with_email(found, more)
        if not oidc_claims.is_allowed(found, chosen.allowed):
            raise NotOnTheList(found)
        return found

    def account_of(self, found: Person, shared: str) -> str:
        """Return the account that a person gets; ``shared`` is that of the store."""
        return shared if self.settings.account == "shared" else found.account_id

    def _spend(self, flow: Flow) -> None:
        """Let each sign-in be finished once, whatever the provider thinks of its codes, and not too many at a time."""
        now = self._clock()
        while self._spent and (
            len(self._spent) >= _SPENT
            or next(iter(self._spent.values())) + oidc_flow.SECONDS * 1_000_000 < now
        ):
            self._spent.popitem(last=False)
        if flow.id in self._spent:
            raise NotSignedIn(
                "This sign-in was finished before. Begin it again.", why="the answer was used before"
            )
        if self._rates.take(""):
            raise NotSignedIn(
                "Too many people sign in right now. Wait a few seconds and begin again.",
                why=f"more than {RATE:g} sign-ins a second",
                status=429,
            )
        self._spent[flow.id] = now


class NotOnTheList(NotSignedIn):
    """The provider knows them; this server does not let them in."""

    def __init__(self, found: Person) -> None:
        at = urlsplit(found.issuer).netloc
        if found.email and not found.verified:
            told = f"{at} has not verified that {found.email} is yours, so it does not count here."
        else:
            told = f"At {at} you are {found.shown}, who is not on the list of who may sign in here."
        ask = found.email if found.verified else f"sub:{found.subject}"
        super().__init__(
            f"{told} Ask whoever runs this server to add --oidc-allow {ask}", why="they are not on the list"
        )


def _declined(code: str) -> NotSignedIn:
    if code == "access_denied":
        return NotSignedIn(
            "You, or the provider, declined. Begin again if you want to sign in.", why="access_denied"
        )
    return NotSignedIn(f"The provider did not sign you in ({code}). Begin again.", why=f"it answered {code}")
