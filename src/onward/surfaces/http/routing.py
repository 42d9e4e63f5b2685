"""Routing: one route as a value, and what a handler is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onward.core.records import Token
from onward.service.platform import Platform

if TYPE_CHECKING:
    from starlette.requests import Request

    from onward.surfaces.http.house import House

BODY_LIMIT: Final = 8 * 1024 * 1024
"""Bytes of a request's body, unless its route says otherwise."""

Method = Literal["GET", "POST", "DELETE"]
Scope = Literal["read", "write", "runner", "admin"]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request, checked and decoded."""

    platform: Platform
    """On the account of the token (invariant A1)."""
    token: Token | None
    path: dict[str, str]
    """What the placeholders of the route's path stand for."""
    query: Any
    """A value of the route's ``query``."""
    body: Any
    """A value of the route's ``body``."""
    house: House
    request: Request


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What one method of one path does."""

    method: Method
    path: str
    does: str
    """In a sentence, for the documentation."""
    scope: Scope | None
    """What a token must allow; None where no token is needed."""
    handler: Callable[[Ask], Any] | Callable[[Ask], Awaitable[Any]]
    """A plain function is called in a worker thread, a coroutine function in the event loop."""
    answer: type[Any]
    body: type[Any] | None = None
    query: type[Any] | None = None
    status: int = 200
    limit: int = BODY_LIMIT
