"""Signing in: how a browser gets into the console, and stays there.

Whoever starts the server is given a link with a code that works once, within an hour. Following it makes a token for that
browser, which may read and write and nothing more; the browser keeps its secret in a cookie that no script can read and that
no other site's page makes it send. It is a token like any other: listed, revoked and expiring with them, and as good after
the server was started again. Whoever has a token already can sign in with that one instead; then the cookie is that token.
Where the server has an OpenID provider (``oidc``), a browser that comes back from it gets such a token too.

Forms carry a second secret, derived from the first, because a cookie alone says who asks and not that they meant to. The API
takes no cookie, so a page that somebody is tricked into cannot speak to it at all.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from onward.core.records import Token
from onward.errors import Forbidden, StoreError, Unauthorized
from onward.service import tokens
from onward.service.platform import Platform

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from onward.surfaces.http.house import House

LINK_SECONDS: Final = 3600
"""How long a link that was not followed stays good."""
BACK_SECONDS: Final = 600
"""How long a link stays good that was followed while the store could not be written."""
BROWSER_DAYS: Final = 30
"""How long a browser that followed a link stays signed in."""
BROWSER: Final = "a browser"
"""The name of the tokens that links make; what a provider makes adds of whom."""
_OF: Final = f"{BROWSER} of "
SCOPES: Final = ("read", "write")
OWNER_SCOPES: Final = ("read", "write", "admin")
_MOST_LINKS: Final = 100


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is signed in."""

    platform: Platform
    """On the account of its token (invariant A1)."""
    token: Token
    csrf: str
    """What a form of this browser has to carry."""


class Doors:
    """Links that let a browser in once. They are in memory only: a server that was started again has none of the old."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._links: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def link(self, account_id: str) -> str:
        """Return a new code that lets one browser in to an account. The oldest are forgotten beyond a hundred."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._links) >= _MOST_LINKS:
                del self._links[next(iter(self._links))]
            self._links[tokens.digest(code)] = account_id, self._clock() + LINK_SECONDS * 1_000_000
        return code

    def enter(self, code: str) -> str:
        """Return the account that a code lets in to; from now on it lets in nobody. Raises Unauthorized."""
        with self._lock:
            account_id, until = self._links.pop(tokens.digest(code), ("", 0))
        if until <= self._clock():
            raise Unauthorized(why="this link was used before, or is too old; `onward serve` shows a new one")
        return account_id

    def give_back(self, code: str, account_id: str) -> None:
        """Let a code be used after all, for nobody was let in by it. It stays good for a while."""
        with self._lock:
            self._links[tokens.digest(code)] = account_id, self._clock() + BACK_SECONDS * 1_000_000


def is_secure(house: House, request: Request) -> bool:
    """Whether browsers reach this server over https, whatever the proxy in front of it speaks to us."""
    return house.outside.startswith("https://") or request.url.scheme == "https"


def cookie_name(house: House, request: Request) -> str:
    """Return the name of the cookie. Cookies do not tell ports apart, and one machine may have several servers.

    Over https the name makes browsers refuse one that a neighbouring host, or somebody on the wire, would set.
    """
    server = request.scope.get("server")
    return f"{'__Host-' if is_secure(house, request) else ''}onward_{server[1] if server else 80}"


def signed(house: House, request: Request) -> Signed | None:
    """Return who a browser is signed in as, None where it is not or not any more."""
    secret = request.cookies.get(cookie_name(house, request), "")
    if not secret:
        return None
    try:
        token = house.token(secret)
    except Unauthorized:
        return None
    return Signed(platform=house.platform_of(token.account_id), token=token, csrf=csrf_of(secret))


def csrf_of(secret: str) -> str:
    """Return what the forms of a browser carry: derived from its secret, which cannot be found from it."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"onward form", hashlib.sha256).hexdigest()


def check_form(signed: Signed, given: str) -> None:
    """Raise Forbidden for a form that this browser was not given by us."""
    if not hmac.compare_digest(signed.csrf.encode(), given.encode("utf-8", "surrogatepass")):
        raise Forbidden(why="this form is not from a page that you opened here; open the page again")


def by_link(house: House, code: str) -> str:
    """Return the secret for a browser that followed a link. Raises Unauthorized; StoreError: then the link is good still."""
    account_id = house.doors.enter(code)
    platform = house.platform_of(account_id)
    try:
        _, secret = tokens.create(platform, BROWSER, SCOPES, lifetime=BROWSER_DAYS * 86_400)
    except StoreError:
        house.doors.give_back(code, account_id)
        raise
    return secret


def by_provider(house: House, account_id: str, who: str, *, seconds: float) -> str:
    """Return the secret for a browser of somebody whom a provider vouches for; it lasts so many seconds.

    In an account of their own they may do everything, tokens for their runners and programs included.
    """
    platform = house.platform_of(account_id)
    scopes = SCOPES if account_id == house.platform.account_id else OWNER_SCOPES
    name = f"{_OF}{who}"[: tokens.NAME_LIMIT]
    _, secret = tokens.create(platform, name, scopes, lifetime=seconds)
    return secret


def by_token(house: House, secret: str) -> str:
    """Return the secret for a browser whose person has a token. Raises Unauthorized, Forbidden."""
    token = house.token(secret.strip())
    if not tokens.allows(token, "read"):
        raise Forbidden(why="this token has no scope `read`")
    return secret.strip()


def sign_out(house: House, found: Signed) -> None:
    """Sign a browser out: a token that was made for it is of no use to anybody else, so it is revoked."""
    if is_browser(found.token):
        tokens.revoke(house.platform_of(found.token.account_id), found.token.id)


def is_browser(token: Token) -> bool:
    """Whether a token was made by a link or a provider, for one browser."""
    return (token.name == BROWSER and token.scopes == SCOPES) or (
        token.name.startswith(_OF) and token.scopes in (SCOPES, OWNER_SCOPES)
    )


def person_of(token: Token) -> str:
    """Return whose browser a token is, as far as a provider said; nothing otherwise."""
    return token.name.removeprefix(_OF) if is_browser(token) and token.name.startswith(_OF) else ""


def keep(
    house: House, request: Request, response: Response, secret: str, *, seconds: int = BROWSER_DAYS * 86_400
) -> None:
    """Give a browser its cookie, for so many seconds."""
    response.set_cookie(
        cookie_name(house, request),
        secret,
        max_age=seconds,
        path="/",
        secure=is_secure(house, request),
        httponly=True,
        samesite="strict",
    )


def drop(house: House, request: Request, response: Response) -> None:
    """Take the cookie away."""
    response.delete_cookie(
        cookie_name(house, request),
        path="/",
        secure=is_secure(house, request),
        httponly=True,
        samesite="strict",
    )
