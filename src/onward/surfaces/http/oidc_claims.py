"""What an OpenID provider says about somebody, and who of them may come in: pure rules, no network and no clock.

The signature of an ID token is checked elsewhere (``oidc_keys``). Here is everything else that makes it one for this server,
now, and for this sign-in: issuer, audience, times and nonce (OpenID Connect Core 1.0, section 3.1.3.7). Then the list of who
may sign in, on which nobody is by default, and the account that they get (invariant A1).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onward.core import ids as make
from onward.errors import InvalidInput

LEEWAY: Final = 60
"""Seconds by which the clocks of two machines may differ."""
SUBJECT_LIMIT: Final = 255
_SUBJECT: Final = "sub:"


class NotSignedIn(Exception):
    """A sign-in that came to nothing. The message is for the person; ``why`` is for the log and holds no secret."""

    def __init__(self, told: str, *, why: str, status: int = 403) -> None:
        super().__init__(told)
        self.told, self.why, self.status = told, why, status


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody, as a provider vouches for them."""

    issuer: str
    subject: str
    """What the provider calls them, for ever; an address may pass to somebody else."""
    email: str = ""
    verified: bool = False
    """The provider has seen that the address is theirs."""

    @property
    def shown(self) -> str:
        """What people call them."""
        return self.email or f"{_SUBJECT}{self.subject}"

    @property
    def account_id(self) -> str:
        """The account of this person and of nobody else: made from issuer and subject, so it needs no table."""
        told = f"{len(self.issuer)}:{self.issuer}{self.subject}".encode("utf-8", "surrogatepass")
        return make.unpack_id(make.ACCOUNT, hashlib.sha256(b"onward account of " + told).digest()[:16])


def person(claims: Mapping[str, Any], *, issuer: str, client: str, nonce: str, now: float) -> Person:
    """Return whom the claims of an ID token are about. ``now`` is in seconds since 1970.

    Raises NotSignedIn for claims that were made by somebody else, for somebody else, for another time or another sign-in.
    """
    if claims.get("iss") != issuer:
        raise _refused("its issuer is another")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or client not in audiences:
        raise _refused("it is meant for another client")
    authorized = claims.get("azp")
    if authorized not in (None, client) or (len(audiences) > 1 and authorized is None):
        raise _refused("it was given to another client")
    if _time(claims, "exp") + LEEWAY <= now:
        raise _refused("it has expired")
    if _time(claims, "iat") - LEEWAY > now:
        raise _refused("it is from the future; compare the clocks")
    if "nbf" in claims and _time(claims, "nbf") - LEEWAY > now:
        raise _refused("it is not valid yet; compare the clocks")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(_bytes(given), _bytes(nonce)):
        raise _refused("its nonce is that of another sign-in")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LIMIT:
        raise _refused("it does not say whom it is about")
    return with_email(Person(issuer=issuer, subject=subject), claims)


def with_email(found: Person, claims: Mapping[str, Any]) -> Person:
    """Return somebody with the address that claims give them. Some providers say ``"true"`` as a text."""
    email = claims.get("email")
    if not isinstance(email, str) or not email.isprintable() or len(email) > SUBJECT_LIMIT:
        return found
    return msgspec.structs.replace(
        found, email=email, verified=claims.get("email_verified") in (True, "true")
    )


def checked_allowed(given: Sequence[str]) -> tuple[str, ...]:
    """Return a list of who may sign in, as it is compared. Raises InvalidInput for an empty one and for what is no name.

    ``ada@example.com`` is an address, ``@example.com`` every address there, ``sub:…`` a subject.
    """
    if not given:
        raise InvalidInput(
            what="--oidc-allow",
            why="nobody is on the list of who may sign in; name somebody, such as ada@example.com",
        )
    return tuple(_allowed(one.strip()) for one in given)


def _allowed(one: str) -> str:
    if one.startswith(_SUBJECT) and len(one) > len(_SUBJECT):
        return one
    name, at, domain = one.rpartition("@")
    if not at or not domain or "@" in name or any(c.isspace() for c in one):
        raise InvalidInput(
            what=f"--oidc-allow {one!r}",
            why="it takes an address (ada@example.com), a domain (@example.com) or a subject (sub:248289761001)",
        )
    return _lower(one)


def is_allowed(found: Person, allowed: Sequence[str]) -> bool:
    """Whether somebody is on the list. An address counts only when the provider has verified it."""
    if f"{_SUBJECT}{found.subject}" in allowed:
        return True
    if not found.verified or found.email.startswith(_SUBJECT):  # an address must not pass for a subject
        return False
    email = _lower(found.email)
    name, at, domain = email.rpartition("@")
    return bool(name and at) and (email in allowed or f"@{domain}" in allowed)


def needs_email(allowed: Sequence[str]) -> bool:
    """Whether a list has more than subjects."""
    return any(not one.startswith(_SUBJECT) for one in allowed)


def _lower(text: str) -> str:
    """Return a text with A to Z in small letters. Others stay: some that are not ASCII would become letters that are."""
    return "".join(c.lower() if c.isascii() else c for c in text)


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(f"its {name} is no time")
    return float(value)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _refused(why: str) -> NotSignedIn:
    return NotSignedIn(
        "What the provider sent does not fit this sign-in. Try again; if it stays so, tell whoever runs this server.",
        why=f"the ID token is refused: {why}",
    )
