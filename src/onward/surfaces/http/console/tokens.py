"""Tokens on a page: for whoever may do everything in their account, above all people who signed in with a provider.

Their account has no command line of its own, and a runner or a program needs a token (scope ``admin``, as in the API). A
secret is on the page that answers the form and nowhere else.
"""

from __future__ import annotations

from typing import Any, Final

from onward.core.records import Token
from onward.errors import InvalidInput, LimitExceeded
from onward.service import tokens
from onward.surfaces.http import signing_in
from onward.surfaces.http.console import words
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit

MOST_DAYS: Final = 3650
SCOPES: Final = (
    ("runner", "Execute runs on a machine"),
    ("read", "Read"),
    ("write", "Speak and change"),
    ("admin", "Everything, tokens included"),
)
"""Of ``service.tokens``, with what people tick."""


def listed(visit: Visit) -> Shown:
    """List the tokens of the account that let somebody in."""
    return _page(visit)


def create(visit: Visit) -> Shown:
    """Make a token and show its secret, once."""
    name = visit.form.get("name", "").strip()
    scopes = tuple(scope for scope, _ in SCOPES if visit.form.get(scope) == "1")
    days = visit.form.get("days", "").strip()
    try:
        if not name:
            raise InvalidInput(what="the name", why="it is empty; say what the token is for")
        if days and not (
            days.isascii() and days.isdecimal() and len(days) < 9 and 0 < int(days) <= MOST_DAYS
        ):
            raise InvalidInput(what=f"{days[:20]!r} days", why=f"it is a whole number from 1 to {MOST_DAYS}")
        lifetime = int(days) * 86_400.0 if days else None
        made, secret = tokens.create(visit.platform, name, scopes, lifetime=lifetime)
    except (InvalidInput, LimitExceeded) as refused:
        return _page(visit, told=str(refused), status=400)
    return _page(visit, secret=secret, made=made.name)


def revoke(visit: Visit) -> Moved:
    """Revoke a token."""
    tokens.revoke(visit.platform, visit.path["token"])
    return Moved(to="/tokens")


def _page(visit: Visit, *, told: str = "", secret: str = "", made: str = "", status: int = 200) -> Shown:
    now = visit.platform.clock()
    good = [
        token
        for token in reversed(tokens.listed(visit.platform))
        if token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
    ]
    values = {
        "title": "Tokens",
        "told": told,
        "secret": secret,
        "made": made,
        "scopes": SCOPES,
        "tokens": [_row(visit, token, now) for token in good],
        "server": visit.house.outside or str(visit.request.base_url).rstrip("/"),
    }
    return Shown(template="tokens.html", values=values, status=status, kept=not secret)


def _row(visit: Visit, token: Token, now: int) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "scopes": ", ".join(token.scopes),
        "made": words.when(token.created_at, now),
        "until": words.when(token.expires_at, now),
        "browser": signing_in.is_browser(token),
        "this": visit.signed is not None and visit.signed.token.id == token.id,
    }


PAGES: Final = (
    Page(method="GET", path="/tokens", does="List tokens.", scope="admin", handler=listed),
    Page(method="POST", path="/tokens", does="Make a token.", scope="admin", handler=create),
    Page(method="POST", path="/tokens/{token}/revoke", does="Revoke a token.", scope="admin", handler=revoke),
)
