"""Routing: one route as a value, and what a handler is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onward import errors
from onward.core import ids as make
from onward.core.records import Token
from onward.errors import OnwardError
from onward.service.platform import Platform

if TYPE_CHECKING:
    from starlette.requests import Request

    from onward.surfaces.http.house import House

BODY_LIMIT: Final = 8 * 1024 * 1024
"""Bytes of a request's body, unless its route says otherwise."""

JSON: Final = "application/json"

Method = Literal["GET", "POST", "PUT", "DELETE"]
Scope = Literal["read", "write", "runner", "admin"]


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder in a path."""

    does: str
    prefixes: tuple[str, ...] = ()
    """Of ids: what they may begin with. Anything else is nowhere, so it is not looked for."""
    missing: type[OnwardError] = errors.NotFound
    """What is raised for one that is not there."""
    named: str = "value"
    """What that error calls it."""


def _id(prefix: str, does: str, missing: type[OnwardError], named: str, *more: str) -> Parameter:
    return Parameter(does=does, prefixes=(prefix, *more), missing=missing, named=named)


PARAMETERS: Final[dict[str, Parameter]] = {
    "session": _id(make.SESSION, "A session.", errors.SessionNotFound, "session"),
    "event": _id(make.EVENT, "An event.", errors.EventNotFound, "event"),
    "run": _id(make.RUN, "A run.", errors.RunNotFound, "run"),
    "manifest": _id(
        make.MANIFEST,
        "A manifest, or the session that began with it.",
        errors.ManifestNotFound,
        "manifest",
        make.SESSION,
    ),
    "approval": _id(make.EVENT, "The event of a request.", errors.ApprovalNotFound, "approval"),
    "workspace": _id(make.WORKSPACE, "A workspace.", errors.WorkspaceNotFound, "workspace"),
    "machine": _id(make.MACHINE, "A machine.", errors.MachineNotFound, "machine"),
    "token": _id(make.TOKEN, "A token.", errors.TokenNotFound, "token"),
    "digest": Parameter(does="A digest, `sha256:` and 64 hexadecimal digits.", missing=errors.NotFound),
    "call": Parameter(does="The id of a call of a run: the run, a dot, and what tells its calls apart."),
}
"""Every placeholder that a route may have."""


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
    key: str | None = None
    """The ``Idempotency-Key`` of a route that takes one."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with more to it than its value."""

    answer: Any
    status: int
    """One that the route names."""


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
    """What is answered as JSON. A handler may return a response of its own instead, of type ``media``."""
    body: type[Any] | None = None
    optional: bool = False
    """The body may be left out; then it is an empty object."""
    query: type[Any] | None = None
    status: int = 200
    limit: int = BODY_LIMIT
    media: str = JSON
    also: dict[int, str] = {}
    """Other successful statuses, each with what it means; a handler answers with a ``Reply`` to use one."""
    errors: tuple[type[OnwardError], ...] = ()
    """What can be refused here besides what follows from the rest of the route."""
    tag: Literal["strong", "weak"] | None = None
    """Its answers carry an entity tag, and one that the caller has already is not sent again (304)."""
    leads: dict[str, str] = {}
    """What can be done next: the name of a route, and where in the answer that stands which it takes (a JSON pointer)."""
    keyed: bool = False
    """It takes an ``Idempotency-Key``: repeated under the same key, it is done once."""
    example: Any = None
    """A body, for the documentation."""

    @property
    def name(self) -> str:
        """What the documentation calls it: unique, and stable as long as the route means the same."""
        place = self.handler.__module__.rpartition(".")[2]
        return f"{place}.{self.handler.__name__}"
