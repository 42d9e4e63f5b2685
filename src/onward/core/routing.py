"""Routing: which of several engines answers, and which comes next when one cannot.

An engine that fails for a reason that will pass (a rate limit, an outage) and has done nothing yet can be followed by
another. Each attempt is a run of its own in the log, with its own engine and its own opening, so nobody has to guess who
answered: this module only says in which order engines are tried.

- ``prefer`` keeps the order given; ``weighted`` puts the highest weight first, where each recent failure costs half a point.
- An engine that failed rests for a while (``cooldown``); after several failures in a row its circuit opens for longer, and
  then lets one attempt through before it closes again.
- A conversation stays with the engine that answered it last, for ``sticky`` seconds: its own memory is worth something.

Pure: time is passed in, in seconds on any clock that only goes forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from onward.errors import InvalidInput

STRATEGIES: Final = ("prefer", "weighted")
FAILURE_COSTS: Final = 0.5


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One engine that may answer."""

    engine: str
    weight: float = 1.0


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """How engines are chosen."""

    routes: tuple[Route, ...]
    strategy: Literal["prefer", "weighted"] = "prefer"
    attempts: int = 3
    """How many engines are tried for one message."""
    cooldown: float = 30.0
    """Seconds that an engine rests after a failure."""
    breaker: int = 5
    """Failures in a row that open the circuit; 0 never opens it."""
    open_for: float = 30.0
    """Seconds that an open circuit stays open before one attempt is let through."""
    sticky: float = 300.0
    """Seconds that a conversation prefers the engine that answered it."""

    def __post_init__(self) -> None:
        """Refuse a routing that leads nowhere. Raises InvalidInput."""
        names = [route.engine for route in self.routes]
        if not names or len(set(names)) != len(names):
            raise InvalidInput(what="the engines to choose from", why="they must be named, each once")
        if self.strategy not in STRATEGIES:
            raise InvalidInput(what=f"strategy {self.strategy!r}", why=f"there are {', '.join(STRATEGIES)}")
        if self.attempts < 1:
            raise InvalidInput(what="the number of attempts", why="at least one engine has to be tried")


class Health(msgspec.Struct, frozen=True):
    """What is known of an engine."""

    failures: int = 0
    """In a row."""
    failed_at: float = 0.0
    """When it failed last, or when its open circuit let an attempt through."""


class Router:
    """Remembers how engines fared, and says whom to try."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self._health: dict[str, Health] = {}
        self._answered: dict[str, tuple[str, float]] = {}

    def order(self, session_id: str, now: float, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the engines to try, best first, at most ``attempts``.

        Those that rest come last rather than never: a person who waits is better served by an attempt than by none. Those
        whose circuit is open are left out, unless nothing else is left.
        """
        left_out = set(exclude)
        routes = [route for route in self.routing.routes if route.engine not in left_out]
        position = {route.engine: n for n, route in enumerate(self.routing.routes)}
        usable = [route for route in routes if not self._open(route.engine, now)] or routes
        kept = self._kept(session_id, now)

        def rank(route: Route) -> tuple[bool, bool, float, int]:
            health = self._health.get(route.engine, Health())
            score = route.weight - FAILURE_COSTS * health.failures
            weight = -score if self.routing.strategy == "weighted" else 0.0
            return self._resting(route.engine, now), route.engine != kept, weight, position[route.engine]

        return tuple(route.engine for route in sorted(usable, key=rank))[: self.routing.attempts]

    def trying(self, engine: str, now: float) -> None:
        """An attempt with this engine begins. One whose circuit had been open lets no second one through meanwhile."""
        health = self._health.get(engine)
        if health is not None and self._tripped(health) and not self._open(engine, now):
            self._health[engine] = Health(health.failures, now)

    def succeeded(self, engine: str, session_id: str, now: float) -> None:
        """It answered."""
        self._health.pop(engine, None)
        self._answered[session_id] = engine, now
        if len(self._answered) > MAX_KEPT:
            self._answered.pop(next(iter(self._answered)))

    def failed(self, engine: str, now: float) -> None:
        """It failed for a reason that will pass."""
        health = self._health.get(engine, Health())
        self._health[engine] = Health(health.failures + 1, now)

    def state(self, engine: str, now: float) -> str:
        """Return ``closed``, ``open`` or ``half_open``: whether attempts reach an engine."""
        health = self._health.get(engine, Health())
        if not self._tripped(health):
            return "closed"
        return "open" if self._open(engine, now) else "half_open"

    def _tripped(self, health: Health) -> bool:
        return bool(self.routing.breaker) and health.failures >= self.routing.breaker

    def _open(self, engine: str, now: float) -> bool:
        health = self._health.get(engine, Health())
        return self._tripped(health) and now - health.failed_at < self.routing.open_for

    def _resting(self, engine: str, now: float) -> bool:
        health = self._health.get(engine)
        return health is not None and now - health.failed_at < self.routing.cooldown

    def _kept(self, session_id: str, now: float) -> str | None:
        engine, at = self._answered.get(session_id, ("", 0.0))
        return engine if engine and now - at < self.routing.sticky else None


MAX_KEPT: Final = 10_000
"""Conversations whose engine is remembered; beyond that the oldest is forgotten."""


def routing_of(names: Sequence[str]) -> Routing:
    """Return the routing of ``engine`` or ``engine=weight`` words, in order. Raises InvalidInput."""
    routes, weighted = [], False
    for word in names:
        engine, mark, weight = word.partition("=")
        weighted = weighted or bool(mark)
        try:
            routes.append(Route(engine=engine.strip(), weight=float(weight) if mark else 1.0))
        except ValueError:
            raise InvalidInput(
                what=f"the weight of {engine.strip()}", why=f"{weight!r} is no number"
            ) from None
    return Routing(routes=tuple(routes), strategy="weighted" if weighted else "prefer")
