"""One sign-in on its way: begun here, continued at the provider, finished here by the same browser.

The browser keeps one random secret in a cookie for ten minutes. State, nonce and the PKCE verifier (RFC 7636) are derived
from it, so the server keeps nothing about sign-ins that were begun and never finished: nobody can fill its memory with them,
and they survive its restart. Whoever has seen an address with a code and a state has neither the cookie nor the verifier.

The cookie is SameSite=Lax, because the way back from the provider begins on the provider's page; that is all it is good for.
The cookie of a signed-in browser stays Strict.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import Final

import msgspec

SECONDS: Final = 600
"""How long a person may take at the provider."""
BACK_LIMIT: Final = 1000
"""Characters of the path to return to; beyond, the first page."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that was begun."""

    secret: str
    begun_at: int
    """Microseconds since 1970."""
    back: str = "/"
    """The page to go on to: a path of this server."""

    @property
    def state(self) -> str:
        """What the provider sends back, which shows that the answer belongs to this browser's question."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """What the ID token must hold."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """What redeems the code, and never passes through the browser's addresses."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """The verifier's digest, which the provider is told first (S256)."""
        return _base64(hashlib.sha256(self.verifier.encode()).digest())

    @property
    def id(self) -> str:
        """What tells this sign-in from others and lets nobody finish it."""
        return self._derived("id")

    def cookie(self) -> str:
        """Return the value of the browser's cookie."""
        return _base64(json.dumps([self.secret, self.begun_at, self.back]).encode())

    def _derived(self, purpose: str) -> str:
        told = json.dumps([purpose, self.begun_at, self.back]).encode()
        return _base64(hmac.new(self.secret.encode(), told, hashlib.sha256).digest())

    def __repr__(self) -> str:
        return f"Flow(begun_at={self.begun_at})"


def begin(now: int, back: str) -> Flow:
    """Begin a sign-in. ``now`` is in microseconds since 1970, ``back`` a path of this server."""
    return Flow(secret=secrets.token_urlsafe(32), begun_at=now, back=back if len(back) <= BACK_LIMIT else "/")


def resumed(cookie: str, now: int) -> Flow | None:
    """Return the sign-in that a cookie is about, None for no such cookie and for one that is too old."""
    try:
        padded = cookie + "=" * (-len(cookie) % 4)
        secret, begun_at, back = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        return None
    if not (isinstance(secret, str) and type(begun_at) is int and isinstance(back, str)):
        return None
    if len(secret) < 40 or not secret.isascii() or not 0 <= now - begun_at <= SECONDS * 1_000_000:
        return None
    return Flow(secret=secret, begun_at=begun_at, back=back)


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
