"""The desk: everything that driving a run needs from the platform, as one small interface.

A driver sits wherever the engine is. In the process that has the store it works on ``LocalDesk``, which calls the service;
on another machine it works on a desk that speaks to the server, which answers with a ``LocalDesk`` of its own. Each method
is one transaction or a read, every event carries the id that the driver gave it, and the fence says whose run it is: so a
call whose answer was lost can be made again, and it is neither lost nor done twice.

A desk decides nothing. What becomes of a signal is in ``driving``; what a verb means is in the service.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from onward.core.bodies import Usage
from onward.core.events import NewEvent
from onward.core.pressure import Pressure
from onward.core.records import EngineSession, Run
from onward.engines.contract import Mirrored, Permitted, Tool
from onward.errors import OnwardError
from onward.service import delegating, native_records, opening, parking, permitting, pressure, running
from onward.service.offering import offered_tools
from onward.service.opening import EngineFacts, Prepared
from onward.service.platform import Platform

EndState = Literal["completed", "failed", "cancelled"]
"""How a driver ends a run. That it was continued is written by the continuation, that it was cut off by whoever finds it."""
UNANSWERED: Final = Permitted(granted=False)
LOOK_SECONDS: Final = 0.1
"""How often it is looked whether somebody has answered an engine's question."""
LONGEST_ASKING: Final = 24 * 3600.0
"""Seconds that a question waits at most, whatever a run was given."""

_T = TypeVar("_T")


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """How a run got its context, as the driver confirmed it."""

    events: tuple[NewEvent, ...]
    """The opening with its facts and, if a reconstruction was used that later turns begin with, that one."""
    native: EngineSession | None = None
    """What the engine calls this session."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run that was settled, or that the agent ended by continuing elsewhere."""

    run: Run
    pressure: Pressure | None = None
    continued_to: str | None = None
    approval: str | None = None
    """The request to continue that waits for a person."""


class Desk(Protocol):
    """What a driver asks of the platform. Errors are those of the service verbs."""

    @property
    def machine(self) -> str:
        """Where the driver and its engine are: a machine's id, or its name where none is registered."""
        ...

    async def claim(self, run_id: str, owner: str, *, engine: str, lease: float) -> Run:
        """Take a queued run; its message enters the log."""
        ...

    async def prepare(self, run: Run, facts: EngineFacts) -> Prepared:
        """Return what the engine is going to be given. The id of a conversation that it is to begin is stored by then."""
        ...

    def event(self, kind: str, body: Any, actor: str, **named: Any) -> NewEvent:
        """Make a new event of this moment, with an id of its own."""
        ...

    def tools(self, run: Run, facts: EngineFacts) -> tuple[Tool, ...]:
        """Return the tools that are offered to the engine."""
        ...

    async def record(self, run: Run, events: Sequence[NewEvent], *, drop_draft: bool = False) -> None:
        """Append what the engine said."""
        ...

    async def keep_draft(self, run: Run, text: str) -> None:
        """Keep text that is being streamed."""
        ...

    async def mirror(self, run: Run, engine: str, rows: Mirrored) -> None:
        """Keep rows of the engine's own files beside the log."""
        ...

    async def opened(self, run: Run, opened: Opened) -> None:
        """Record how the run got its context."""
        ...

    async def heartbeat(self, run: Run, *, lease: float) -> None:
        """Extend the lease."""
        ...

    async def permit(self, run: Run, request: str, *, seconds: float) -> Permitted:
        """Wait for the answer to a request that is in the log; when nobody answers in time, it is no."""
        ...

    async def settle(
        self, run: Run, state: EndState, *, reason: str, usage: Usage | None, engine: str, reply: str
    ) -> Ended:
        """End the run."""
        ...

    async def ended(self, run: Run) -> Ended:
        """Return how a run stands that something else may have ended."""
        ...

    async def next_queued(self, session_id: str) -> Run | None:
        """Return the run that waits first in a session."""
        ...


class LocalDesk:
    """The desk of a driver in the process that has the store."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @property
    def machine(self) -> str:
        return self.platform.machine_id or self.platform.host

    async def claim(self, run_id: str, owner: str, *, engine: str, lease: float) -> Run:
        return await in_thread(running.claim, self.platform, run_id, owner, engine=engine, lease=lease)

    async def prepare(self, run: Run, facts: EngineFacts) -> Prepared:
        return await in_thread(opening.prepare, self.platform, run, facts)

    def event(self, kind: str, body: Any, actor: str, **named: Any) -> NewEvent:
        return self.platform.event(kind, body, actor, **named)

    def tools(self, run: Run, facts: EngineFacts) -> tuple[Tool, ...]:
        if not facts.capabilities.tools:
            return ()
        return offered_tools(self.platform, run, window=facts.capabilities.window)

    async def record(self, run: Run, events: Sequence[NewEvent], *, drop_draft: bool = False) -> None:
        await in_thread(running.record, self.platform, run, events, drop_draft=drop_draft)

    async def keep_draft(self, run: Run, text: str) -> None:
        await in_thread(running.keep_draft, self.platform, run, text)

    async def mirror(self, run: Run, engine: str, rows: Mirrored) -> None:
        await in_thread(native_records.append, self.platform, run, engine, rows)

    async def opened(self, run: Run, opened: Opened) -> None:
        await in_thread(running.opened, self.platform, run, opened.events, native=opened.native)

    async def heartbeat(self, run: Run, *, lease: float) -> None:
        await in_thread(running.heartbeat, self.platform, run, lease=lease)

    async def permit(self, run: Run, request: str, *, seconds: float) -> Permitted:
        return await self.answered(run, request, seconds=seconds) or UNANSWERED

    async def answered(
        self, run: Run, request: str, *, seconds: float, lapses: bool = True
    ) -> Permitted | None:
        """Wait for an answer; where there is none in time, None, or with ``lapses`` the answer no.

        Looks again and again instead of holding a thread: many runs may wait for many people.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + min(seconds, LONGEST_ASKING)
        while (found := await in_thread(permitting.answered, self.platform, run, request)) is None:
            if (left := until - clock()) <= 0:
                break
            await asyncio.sleep(min(LOOK_SECONDS, left))
        if found is None and lapses:
            return await in_thread(permitting.lapse, self.platform, run, request, seconds=seconds)
        return found

    async def settle(
        self, run: Run, state: EndState, *, reason: str, usage: Usage | None, engine: str, reply: str
    ) -> Ended:
        return await in_thread(settle, self.platform, run, state, reason, usage, engine, reply)

    async def ended(self, run: Run) -> Ended:
        return await in_thread(ended, self.platform, run)

    async def next_queued(self, session_id: str) -> Run | None:
        return await in_thread(running.next_queued, self.platform, session_id)


def settle(
    platform: Platform, run: Run, state: EndState, reason: str, usage: Usage | None, engine: str, reply: str
) -> Ended:
    """End a run with the notices that its usage makes due; then a delegated child reports."""
    notices = pressure.notices(platform, run, usage)
    done = running.settle(platform, run, state, reason=reason, usage=usage, engine=engine, beside=notices)
    found = pressure.measured(platform, done, usage)
    # The run has ended as it did. A child whose report fails here is still pending, and named as such.
    with contextlib.suppress(OnwardError):
        delegating.report_completed(platform, done, reply)
    return Ended(run=done, pressure=found)


def ended(platform: Platform, run: Run) -> Ended:
    """Return how a run stands: whether its agent continued elsewhere, or asked a person whether it may."""
    found = running.get(platform, run.id)
    if found.state == "continued":
        return Ended(run=found, continued_to=running.successor_of(platform, found))
    asked = parking.parked_by(platform, found) if found.state == "running" else None
    return Ended(run=found, approval=asked)


async def in_thread(verb: Callable[..., _T], *args: Any, **named: Any) -> _T:
    """Call a synchronous verb in a worker thread. Cancelling waits until it has ended: a write is never left behind."""
    return await uninterrupted(asyncio.ensure_future(asyncio.to_thread(verb, *args, **named)))


async def uninterrupted(task: asyncio.Future[_T]) -> _T:
    """Wait for a task; when cancelled meanwhile, wait until it has ended all the same."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise
