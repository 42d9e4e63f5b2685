"""What every verb needs: the store, the account it acts for, a clock and a source of ids.

``Platform`` is passed to the verbs in this package; it holds no state of its own. Reading the clock and drawing random
numbers happen here and nowhere below (the core gets them as arguments).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from onward.core import ids as make
from onward.core.bodies import Body
from onward.core.budget import CharsCounter, Counter
from onward.core.codec import encode
from onward.core.events import ONWARD, NewEvent, Source
from onward.core.ids import LOCAL_ACCOUNT, Ids
from onward.core.opening import MEMORIES, Policy, parse_window
from onward.core.records import Session
from onward.errors import InvalidInput, SessionNotFound
from onward.store.contract import Store

if TYPE_CHECKING:
    from onward.service.resolving import Resolver
    from onward.service.signing import Signer

Clock = Callable[[], int]
"""Returns now, in microseconds since 1970 (UTC)."""


def wall_clock() -> int:
    """Return the time of day in microseconds since 1970."""
    return time.time_ns() // 1000


_DRAWN: Final = 256


class RandomIds:
    """New ids from the clock and the system's randomness."""

    def __init__(self, clock: Clock = wall_clock) -> None:
        self._clock = clock
        # Drawn many at a time: each draw lets go of the interpreter, and an import would wait for it at every event.
        self._drawn: deque[bytes] = deque()
        self._moment = (-1, "")
        self._pid = os.getpid()

    def new(self, prefix: str) -> str:
        """Return a new id. Safe to call from many threads."""
        ms = self._clock() // 1000
        known, digits = self._moment
        if ms != known:
            digits = make.time_digits(ms)
            self._moment = ms, digits
        return f"{prefix}_{digits}{make.entropy_digits(self.salt())}"

    def salt(self) -> bytes:
        """Return 16 random bytes. Safe to call from many threads."""
        if os.getpid() != self._pid:
            # After a fork: two processes that hand out the same bytes would give two events one id.
            self._drawn, self._pid = deque(), os.getpid()
        try:
            return self._drawn.pop()
        except IndexError:
            drawn = os.urandom(16 * _DRAWN)
            self._drawn.extend(drawn[i : i + 16] for i in range(16, len(drawn), 16))
            return drawn[:16]


APPROVALS: Final = ("never", "agent", "always")
"""Whose continuations wait for a person: nobody's, those that an agent asks for, everybody's."""


def approval_policy() -> str:
    """Return the policy that ``ONWARD_APPROVAL`` names, ``never`` without it. Raises InvalidInput for any other word."""
    named = os.environ.get("ONWARD_APPROVAL", "").strip().lower() or "never"
    if named not in APPROVALS:
        raise InvalidInput(what=f"ONWARD_APPROVAL={named!r}", why=f"there are {', '.join(APPROVALS)}")
    return named


def opening_policy() -> Policy:
    """Return which memory comes first, and for how long an engine's own is relied on.

    ``ONWARD_MEMORY`` says ``engine`` or ``platform``, ``ONWARD_WINDOW`` a time such as ``4d`` or ``36h``, or ``unlimited``.
    Raises InvalidInput for anything else.
    """
    memory = os.environ.get("ONWARD_MEMORY", "").strip().lower()
    if memory and memory not in MEMORIES:
        raise InvalidInput(what=f"ONWARD_MEMORY={memory!r}", why=f"there are {', '.join(MEMORIES)}")
    window = os.environ.get("ONWARD_WINDOW", "").strip()
    policy = Policy(memory="platform") if memory == "platform" else Policy()
    return msgspec.structs.replace(policy, window=parse_window(window)) if window else policy


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the verbs act on and with."""

    store: Store
    account_id: str = LOCAL_ACCOUNT
    clock: Clock = wall_clock
    ids: Ids = msgspec.field(default_factory=RandomIds)
    counter: Counter = msgspec.field(default_factory=CharsCounter)
    host: str = ""
    """The name of this machine, as people know it."""
    machine_id: str | None = None
    """The machine on which what is claimed here is executed, where it is registered."""
    online_seconds: float = 60.0
    """A machine that was heard of within so many seconds is online."""
    resolvers: tuple[Resolver, ...] | None = None
    """What reads the resources and memories that a handoff cites; None for what ``resolving.resolvers`` says."""
    signer: Signer | None = None
    """Who signs each manifest when it is made; None for nobody."""
    approval: str = "never"
    """Whose continuations wait for a person (``continuation.approval``): ``never``, ``agent`` or ``always``."""
    opening: Policy = Policy()
    """Which memory comes first, and for how long an engine's own is relied on, where a run does not say."""

    def session(self, session_id: str) -> Session:
        """Return a session that this account may read. Raises SessionNotFound otherwise (invariant A1)."""
        found = self.store.session(session_id)
        if found is None or found.account_id != self.account_id:
            raise SessionNotFound(session=session_id)
        return found

    def may_read(self, session_id: str) -> bool:
        """Whether this account may read a session, as of now."""
        found = self.store.session(session_id)
        return found is not None and found.account_id == self.account_id

    def event(
        self,
        kind: str,
        body: Body | bytes,
        actor: str,
        *,
        run_id: str | None = None,
        source: Source = ONWARD,
        id: str | None = None,
        at: int | None = None,
    ) -> NewEvent:
        """Make a new event of this moment."""
        return NewEvent(
            id=id or self.ids.new(make.EVENT),
            at=self.clock() if at is None else at,
            kind=kind,
            actor=actor,
            body=body if isinstance(body, bytes) else encode(body),
            salt=self.ids.salt(),
            source=source,
            run_id=run_id,
        )
