"""The desk of a driver on another machine: every call becomes a question to the server, asked until it is answered.

A lost network or a restarted server is waited for as long as the lease of the run lasts, counted from the last answer about
it. What changes the run goes as numbered entries, one after the other, so nothing is lost and nothing is done twice; an
entry is never abandoned half-way when its driver is cancelled, because its number would then be uncertain.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from onward.core import ids as make
from onward.core.bodies import Usage
from onward.core.events import NewEvent
from onward.core.ids import Ids
from onward.core.records import Offer, Run
from onward.engines.contract import Mirrored, Permitted, Tool, ToolOutcome
from onward.errors import LeaseLost, OnwardError, ServerUnreachable
from onward.runner import wire
from onward.runner.connection import ANSWER_SECONDS, Connection, Nothing
from onward.runner.desk import Ended, EndState, Opened, uninterrupted
from onward.service.machines import Slept
from onward.service.opening import EngineFacts, Prepared
from onward.service.platform import Clock, Platform, RandomIds, wall_clock
from onward.store.memory import MemoryStore

T = TypeVar("T")

CLAIM_WAIT: Final = 25.0
"""Seconds that a question for work waits at the server."""
HURRIED: Final = 3.0
"""Seconds of patience once the runner has been told to stop at once."""


class RemoteDesk:
    """The desk of one run that was claimed at a server. See ``desk.Desk`` for what each method is for."""

    def __init__(
        self, connection: Connection, run: Run, machine: str, *, lease: float, events: Platform
    ) -> None:
        self._connection, self._run, self._machine = connection, run, machine
        self._lease = lease
        self._heard = connection.clock()
        self._events = events
        self._acknowledged = run.entries
        self._order = asyncio.Lock()
        self._tools: tuple[wire.OfferedTool, ...] = ()

    @property
    def machine(self) -> str:
        return self._machine

    async def claim(self, run_id: str, owner: str, *, engine: str, lease: float) -> Run:
        del owner, engine, lease
        if run_id != self._run.id:
            raise LeaseLost(run=run_id, why=f"this desk is that of {self._run.id}")
        return self._run

    async def prepare(self, run: Run, facts: EngineFacts) -> Prepared:
        given = await self._ask("prepare", wire.Preparing(fence=run.fence, facts=facts), wire.Given)
        self._tools = given.tools
        return given.prepared

    def event(self, kind: str, body: Any, actor: str, **named: Any) -> NewEvent:
        return self._events.event(kind, body, actor, **named)

    def tools(self, run: Run, facts: EngineFacts) -> tuple[Tool, ...]:
        def caller(name: str) -> Callable[[str, dict[str, Any]], Awaitable[ToolOutcome]]:
            async def call(call_id: str, given: dict[str, Any]) -> ToolOutcome:
                asked = wire.Calling(fence=run.fence, facts=facts, name=name, input=given)
                return await self._ask(f"tools/{quote(call_id, safe='')}", asked, ToolOutcome, seconds=300.0)

            return call

        return tuple(
            Tool(name=t.name, description=t.description, schema=t.schema, call=caller(t.name))
            for t in self._tools
        )

    async def record(self, run: Run, events: Sequence[NewEvent], *, drop_draft: bool = False) -> None:
        await self._enter(run, wire.RecordEntry(events=tuple(events), drop_draft=drop_draft))

    async def keep_draft(self, run: Run, text: str) -> None:
        await self._enter(run, wire.DraftEntry(text=text))

    async def mirror(self, run: Run, engine: str, rows: Mirrored) -> None:
        await self._enter(run, wire.MirrorEntry(engine=engine, rows=rows))

    async def opened(self, run: Run, opened: Opened) -> None:
        await self._enter(run, wire.OpenedEntry(opened=opened))

    async def heartbeat(self, run: Run, *, lease: float) -> None:
        # A sign of life that gets lost is made up for by the next one; what it must not do is wait for the network while
        # the run is cancelled, or go on without an end.
        with contextlib.suppress(ServerUnreachable):
            await self._ask("heartbeat", wire.Beating(fence=run.fence, lease=lease), Nothing, patience=0.0)
            return
        if self._left() <= 0:
            raise LeaseLost(run=run.id, why=f"the server has not answered for {self._lease:g} seconds")

    async def permit(self, run: Run, request: str, *, seconds: float) -> Permitted:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            left = until - loop.time()
            asking = wire.Asking(
                fence=run.fence,
                request=request,
                seconds=max(min(left, wire.LONGEST_ASKING), 0.0),
                last=left <= wire.LONGEST_ASKING,
            )
            found = await self._ask("permit", asking, wire.Answered, seconds=wire.LONGEST_ASKING + 30.0)
            if found.answer is not None:
                return found.answer

    async def settle(
        self, run: Run, state: EndState, *, reason: str, usage: Usage | None, engine: str, reply: str
    ) -> Ended:
        entry = wire.SettleEntry(state=state, reason=reason, usage=usage, engine=engine, reply=reply)
        entered = await self._enter(run, entry)
        return entered.ended or await self.ended(run)

    async def ended(self, run: Run) -> Ended:
        del run  # this desk has one
        return await self._connection.ask("GET", self._path(""), None, Ended, patience=self._left())

    async def next_queued(self, session_id: str) -> Run | None:
        del session_id
        return None  # whoever is free claims it

    async def _enter(self, run: Run, entry: wire.AnyEntry) -> wire.Entered:
        return await uninterrupted(asyncio.ensure_future(self._entered(run, entry)))

    async def _entered(self, run: Run, entry: wire.AnyEntry) -> wire.Entered:
        async with self._order:
            number = self._acknowledged + 1
            asked = wire.Entering(fence=run.fence, number=number, entry=entry)
            entered = await self._ask("entries", asked, wire.Entered)
            self._acknowledged = number
            return entered

    async def _ask(
        self,
        what: str,
        content: msgspec.Struct,
        answer: type[T],
        *,
        patience: float | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        left = self._left() if patience is None else patience
        found = await self._connection.ask(
            "POST", self._path(what), content, answer, patience=left, seconds=seconds
        )
        self._heard = self._connection.clock()
        return found

    def _left(self) -> float:
        """Return for how many seconds the run is still ours without a word."""
        return max(self._lease - (self._connection.clock() - self._heard), 0.0)

    def _path(self, what: str) -> str:
        return f"/v1/runner/runs/{self._run.id}/{what}".rstrip("/")


class RemoteOffice:
    """Where a runner on another machine gets its work. See ``serving.Office``."""

    def __init__(
        self, connection: Connection, name: str, *, ids: Ids | None = None, clock: Clock = wall_clock
    ) -> None:
        self.name = name
        self.lease = 0.0
        self.beat = 20.0
        self._connection = connection
        self._machine = ""
        # Events are made here and stored there: what makes them needs a clock and ids, and no store.
        self._events = Platform(store=MemoryStore(), clock=clock, ids=ids or RandomIds(clock))

    async def register(self, offers: Sequence[Offer]) -> None:
        asked = wire.Registering(name=self.name, engines=tuple(offers))
        patience = self.lease or 10.0  # at the start, a server that is not there is somebody's mistake
        told = await self._connection.ask(
            "POST", "/v1/runner/register", asked, wire.Registered, patience=patience
        )
        self._machine, self.name, self.lease, self.beat = told.machine, told.name, told.lease, told.beat

    async def claim(self, engines: Sequence[str], stop: asyncio.Event) -> tuple[RemoteDesk, Run] | None:
        name = self._events.ids.new(make.RUN).partition("_")[2]
        asked = wire.Claiming(machine=self._machine, engines=tuple(engines), claim=name, wait=CLAIM_WAIT)
        asking = asyncio.ensure_future(
            self._connection.ask(
                "POST",
                "/v1/runner/claim",
                asked,
                wire.Claimed,
                patience=self.lease,
                seconds=CLAIM_WAIT + 15.0,
            )
        )
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait((asking,))
        if asking.cancelled():
            back = wire.GivingBack(machine=self._machine, claim=name)
            with contextlib.suppress(OnwardError):
                await self._connection.ask("POST", "/v1/runner/unclaim", back, Nothing, patience=HURRIED)
            return None
        run = asking.result().run
        if run is None:
            return None
        desk = RemoteDesk(self._connection, run, self._machine, lease=self.lease, events=self._events)
        return desk, run

    async def slept(self, ended: Sequence[Slept]) -> None:
        asked = wire.Sleeping(machine=self._machine, ended=tuple(ended))
        await self._connection.ask("POST", "/v1/runner/slept", asked, Nothing, patience=self.lease)

    async def place(self, path: str, workspace: str | None = None) -> None:
        """Say that a folder of this machine is a workspace; with ``workspace``, that this one is here now."""
        asked = wire.Placing(machine=self._machine, path=path, workspace=workspace)
        await self._connection.ask("POST", "/v1/runner/workspaces", asked, Nothing, patience=10.0)

    def hurry(self) -> None:
        self._connection.most = HURRIED

    async def aclose(self) -> None:
        await self._connection.aclose()
