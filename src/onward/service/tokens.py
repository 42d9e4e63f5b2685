"""Tokens: who may act for an account over a network, and what for.

A token's secret is shown once, when it is made; the store has its digest. It is 32 random bytes, so a plain hash is enough:
there is nothing to guess. Scopes say what a token may do, and ``admin`` includes the others; what may be read is decided by
the account, as everywhere (invariant A1).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import msgspec

from onward.core import ids as make
from onward.core.digests import content_digest
from onward.core.records import Token
from onward.errors import InvalidInput, LimitExceeded, TokenNotFound, Unauthorized
from onward.service.platform import Platform
from onward.store.contract import Batch, Store

SCOPES: Final = ("read", "write", "runner", "admin")
"""Read sessions; speak in them and change them; execute runs; everything, tokens included."""
PREFIX: Final = "onw_"
"""What a secret begins with, so that one that leaked is recognised for what it is."""
NAME_LIMIT: Final = 120


def create(
    platform: Platform, name: str, scopes: Sequence[str], *, lifetime: float | None = None
) -> tuple[Token, str]:
    """Make a token and return it with its secret, which cannot be shown again. ``lifetime`` is in seconds.

    Raises InvalidInput for a scope that does not exist or a lifetime that is over, LimitExceeded for a long name.
    """
    wanted = checked_scopes(scopes)
    if len(name) > NAME_LIMIT:
        raise LimitExceeded(what="a token's name", limit=f"{NAME_LIMIT} characters", found=len(name))
    if lifetime is not None and lifetime <= 0:
        raise InvalidInput(what=f"a lifetime of {lifetime:g} seconds", why="the token could never be used")
    made = secret(platform)
    now = platform.clock()
    token = Token(
        id=platform.ids.new(make.TOKEN),
        account_id=platform.account_id,
        name=" ".join(name.split()),
        digest=digest(made),
        scopes=wanted,
        created_at=now,
        expires_at=None if lifetime is None else now + round(lifetime * 1_000_000),
    )
    platform.store.commit(Batch(tokens=(token,)))
    return token, made


def secret(platform: Platform) -> str:
    """Draw a new secret."""
    drawn = platform.ids.salt() + platform.ids.salt()
    return PREFIX + base64.urlsafe_b64encode(drawn).rstrip(b"=").decode()


def digest(given: str) -> str:
    """Return the digest under which the store knows a secret."""
    return content_digest(given.encode("utf-8", "surrogatepass"))


def checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return scopes in their order, each once. Raises InvalidInput for none, or one that does not exist."""
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise InvalidInput(
            what=f"scope {', '.join(unknown)}", why=f"there are {', '.join(SCOPES)}; each is named by itself"
        )
    if not scopes:
        raise InvalidInput(what="the scopes", why=f"a token needs at least one of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in scopes)


def authenticate(store: Store, given: str, now: int) -> Token:
    """Return the token behind a secret. Raises Unauthorized for one that is unknown, revoked or expired."""
    found = store.token_by_digest(digest(given))
    if found is None:
        raise Unauthorized(why="this one is not known")
    if found.revoked_at is not None:
        raise Unauthorized(why="this one was revoked")
    if found.expires_at is not None and found.expires_at <= now:
        raise Unauthorized(why="this one has expired")
    return found


def allows(token: Token, scope: str) -> bool:
    """Whether a token may do what a scope stands for."""
    return scope in token.scopes or "admin" in token.scopes


def listed(platform: Platform) -> list[Token]:
    """Return the tokens of this account, oldest first, revoked and expired ones included."""
    return platform.store.tokens(platform.account_id)


def revoke(platform: Platform, named: str) -> Token:
    """Make a token useless from now on, by its id. Raises TokenNotFound. Revoking again changes nothing."""
    found = next((token for token in listed(platform) if token.id == named), None)
    if found is None:
        raise TokenNotFound(token=named)
    if found.revoked_at is not None:
        return found
    revoked = msgspec.structs.replace(found, revoked_at=platform.clock())
    platform.store.commit(Batch(tokens=(revoked,)))
    return revoked
