"""Visiting: one page as a value, what its handler is given, and what it may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onward.errors import InvalidInput
from onward.service.platform import Platform

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from onward.surfaces.http.house import House
    from onward.surfaces.http.signing_in import Signed

FORM_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of a form, in which a message of 4 MiB takes up to three times as much."""
DOOR_LIMIT: Final = 64 * 1024
"""Bytes of a form of somebody who is not signed in: a token and a path."""

ASK_SECONDS: Final = 3600.0
"""How long a question of an engine waits for the person whose message it works on: they are at a page that shows it."""

Scope = Literal["read", "write", "admin"]


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a page, checked and decoded."""

    house: House
    request: Request
    signed: Signed | None
    """Who it is; None only on pages that need nobody."""
    path: Mapping[str, str]
    """What the placeholders of the page's path stand for."""
    query: Mapping[str, str]
    form: Mapping[str, str] = {}

    @property
    def platform(self) -> Platform:
        """The platform of whoever is signed in (invariant A1)."""
        if self.signed is None:
            raise RuntimeError("this page is open to everybody, so it has no account")
        return self.signed.platform

    @property
    def may_write(self) -> bool:
        """Whether forms of this visitor would be taken."""
        return self.signed is not None and {"write", "admin"} & set(self.signed.token.scopes) != set()

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        """Return a number of the query. Raises InvalidInput for what is none, or is less than ``least``."""
        given = self.query.get(name, "")
        if not given:
            return default
        if not (given.isascii() and given.isdecimal() and len(given) < 16) or int(given) < least:
            raise InvalidInput(what=f"{name}={given!r}", why=f"it is a whole number from {least}")
        return int(given)

    def seq(self, name: str = "seq") -> int:
        """Return a number of the path. Raises InvalidInput."""
        given = self.path[name]
        if not (given.isascii() and given.isdecimal() and len(given) < 16):
            raise InvalidInput(what=f"event {given!r}", why="events have numbers, from 1")
        return int(given)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A page, or a part of one, to be made from a template."""

    template: str
    values: Mapping[str, Any]
    status: int = 200
    kept: bool = True
    """Whether a browser may show it again without asking, when somebody goes back to it."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Look elsewhere: what answers every form that was taken (303), so that loading again sends nothing twice."""

    to: str


Answer = Shown | Moved | Any
"""Any is a starlette Response."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What one method of one path of the console does."""

    method: Literal["GET", "POST"]
    path: str
    does: str
    scope: Scope | None
    """What the visitor's token must allow; None where nobody needs to be signed in."""
    handler: Callable[[Visit], Answer] | Callable[[Visit], Awaitable[Response]]
    """A plain function is called in a worker thread, a coroutine function in the event loop."""
