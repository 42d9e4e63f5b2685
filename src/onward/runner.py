"""The runner: claims a run, opens the engine, appends what it says, settles it or follows where it continues.

Every signal is in the log before the engine is asked for the next one. If the process dies between any two lines, the
lease expires and ``running.expire`` closes the run honestly; whatever was streamed is in the draft row. A run is
completed only when the engine said so with ``Finished``; a stream that just stops has failed.

Beside the engine, a watch keeps the lease and the draft. When either finds that the run is no longer ours (cancelled by
somebody, or taken for dead), the engine is stopped and ``LeaseLost`` says so: a runner never goes on without its lease.

The store is synchronous, so each call to it goes to a worker thread; the event loop only waits. A write that began is
waited for even when the run is cancelled, so that nothing of ours is still on its way when the end is written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import msgspec

from onward.core.bodies import Message, Reasoning, ToolCall, ToolResult, Usage
from onward.core.events import NewEvent, Source
from onward.core.pressure import Pressure
from onward.core.records import EngineSession, Run, RunState
from onward.core.transcript import Transcript
from onward.core.wording import told
from onward.engines import ENGINES, engine_by_name
from onward.engines.contract import (
    Engine,
    Finished,
    Measured,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    Tool,
    ToolAnswered,
    ToolCalled,
    Turn,
)
from onward.errors import (
    Conflict,
    ContinuationModeUnavailable,
    EngineUnavailable,
    InvalidInput,
    InvalidTransition,
    LeaseLost,
    OnwardError,
    StoreBusy,
)
from onward.service import delegating, opening, parking, pressure, running
from onward.service.offering import offered_tools
from onward.service.platform import Platform

DRAFT_SECONDS: Final = 0.1
"""Streamed text is in the draft row at most this long after it was shown."""
BEATS: Final = 3
"""How often a lease is renewed before it would end."""
MAX_FOLLOWED: Final = 8
"""How many continuations one call follows."""

Listener = Callable[[Run, Signal], None]
"""Hears every signal: pieces of text as they come, everything else once it is in the log."""

_T = TypeVar("_T")


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    session: str
    run: str
    state: str
    opening: str | None
    opening_told: str
    reply: str
    usage: Usage | None
    reason: str = ""
    continued_to: str | None = None
    transcript: Transcript | None = None
    """What the engine was given as history."""
    pressure: Pressure | None = None
    """How full the model's window was, where that was measured."""
    approval: str | None = None
    """The request to continue that waits for a person, if the agent made one."""


async def execute(
    platform: Platform,
    run_id: str,
    engine: Engine,
    *,
    owner: str = "onward",
    listener: Listener | None = None,
    lease: float = running.LEASE_SECONDS,
) -> RunResult:
    """Execute one queued run. ``lease`` is in seconds.

    Raises EngineUnavailable before claiming; Conflict or InvalidTransition when the run could not be claimed; LeaseLost when
    it was cancelled or taken over while the engine worked, which is stopped then. An engine that fails settles the run as
    ``failed``: that is an answer, not an exception. One that raises what it should not settles it too, and its exception
    goes on. Cancelling the task settles the run as ``cancelled``, with what had been said by then.
    """
    why = engine.unavailable()
    if why is not None:
        raise EngineUnavailable(engine=engine.name, why=why)
    claiming = asyncio.ensure_future(
        asyncio.to_thread(running.claim, platform, run_id, owner, engine=engine.name, lease=lease)
    )
    try:
        run = await _uninterrupted(claiming)
    except asyncio.CancelledError:
        if claiming.done() and not claiming.cancelled() and claiming.exception() is None:
            await _Drive(platform, claiming.result(), engine, listener).stopped("it was cancelled")
        raise
    turn = _Drive(platform, run, engine, listener)
    try:
        return await _watched(turn, lease)
    except (asyncio.CancelledError, KeyboardInterrupt):
        await turn.stopped("it was cancelled")
        raise
    except LeaseLost:
        return await turn.lost()
    except OnwardError as error:
        return await turn.end("failed", error.message)
    except Exception as error:
        await turn.end("failed", f"the engine broke: {type(error).__name__}: {error}")
        raise


async def _watched(turn: _Drive, lease: float) -> RunResult:
    """Let the engine play while its lease and its draft are kept; stop it as soon as one of them cannot be."""
    play = asyncio.create_task(turn.play())
    watch = (asyncio.create_task(_keep_alive(turn, lease)), asyncio.create_task(turn.keep_drafts()))
    try:
        await asyncio.wait((play, *watch), return_when=asyncio.FIRST_COMPLETED)
        if not play.done():
            play.cancel()
            await asyncio.wait((play,))
            for task in watch:
                if task.done():
                    task.result()  # raises what it found
        return play.result()
    finally:
        await _gone(play, *watch)


async def _gone(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks and wait until they have ended, however often we are cancelled ourselves.

    What they raise was looked at before.
    """
    for task in tasks:
        task.cancel()
    while unfinished := [task for task in tasks if not task.done()]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(unfinished)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def _keep_alive(turn: _Drive, lease: float) -> None:
    """Renew the lease for as long as it is ours. Ends by raising LeaseLost."""
    while True:
        await asyncio.sleep(lease / BEATS)
        with contextlib.suppress(StoreBusy):  # there are more beats before the lease ends
            await _call(running.heartbeat, turn.platform, turn.run, lease=lease)


async def _call(verb: Callable[..., _T], *args: Any, **named: Any) -> _T:
    """Call a synchronous verb in a worker thread. Cancelling waits until it has ended: a write is never left behind."""
    return await _uninterrupted(asyncio.ensure_future(asyncio.to_thread(verb, *args, **named)))


async def _uninterrupted(task: asyncio.Future[_T]) -> _T:
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise


async def execute_and_follow(
    platform: Platform,
    run_id: str,
    engine: Engine,
    *,
    owner: str = "onward",
    listener: Listener | None = None,
) -> RunResult:
    """Execute a run and, when the agent continued elsewhere, the successor's run too: it gives the answer."""
    result = await execute(platform, run_id, engine, owner=owner, listener=listener)
    for _ in range(MAX_FOLLOWED):
        if result.continued_to is None:
            break
        waiting = await _call(running.next_queued, platform, result.continued_to)
        if waiting is None:
            break
        try:
            result = await execute(platform, waiting.id, engine, owner=owner, listener=listener)
        except (Conflict, InvalidTransition):
            break  # another runner answers there: this turn ended as it says
    return result


class _Drive:
    """One run while it is being driven."""

    def __init__(self, platform: Platform, run: Run, engine: Engine, listener: Listener | None) -> None:
        self.platform, self.run, self.engine, self.listener = platform, run, engine, listener
        self.source = Source(producer="engine", engine=engine.name)
        self.text: list[str] = []
        self.replies: list[str] = []
        self.usage: Usage | None = None
        self.pressure: Pressure | None = None
        self.approval: str | None = None
        self.opening: str | None = None
        self.reason = ""
        self.prepared: opening.Prepared | None = None
        self._kept_at = 0.0
        self._unkept = asyncio.Event()
        self._drafting = asyncio.Lock()
        """Held while the draft row is written or dropped, so that an older draft never follows a finished message."""

    async def play(self) -> RunResult:
        """Give the engine its turn and write down what it does."""
        prepared = self.prepared = await _call(opening.prepare, self.platform, self.run, self.engine)
        finished = await self._listen(self.engine.run(self._turn(prepared)))
        if finished is None:
            return await self.end("failed", "the engine stopped without saying how its turn ended")
        if finished.status == "continued":
            return await self._continued()
        return await self.end(finished.status, finished.reason)

    async def _listen(self, stream: AsyncIterator[Signal]) -> Finished | None:
        """Write down every signal before the next one is asked for; return the end, if the engine said it."""
        try:
            async for signal in stream:
                if isinstance(signal, TextDelta):
                    self._tell(signal)
                if not isinstance(signal, Finished):
                    await self._write(signal)
                if not isinstance(signal, TextDelta):
                    self._tell(signal)
                if isinstance(signal, Finished):
                    return signal
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        return None

    def _tell(self, signal: Signal) -> None:
        if self.listener is not None:
            self.listener(self.run, signal)

    def _turn(self, prepared: opening.Prepared) -> Turn:
        tools: tuple[Tool, ...] = ()
        if self.engine.capabilities.tools:
            tools = offered_tools(self.platform, self.run, window=self.engine.capabilities.window)
        return Turn(
            session_id=self.run.session_id,
            run_id=self.run.id,
            input=prepared.input,
            history=prepared.messages,
            tools=tools,
            native=prepared.native,
            workdir=prepared.options.workdir,
            model=prepared.options.model,
            options=prepared.options.adapter_opts,
        )

    async def _write(self, signal: Signal) -> None:
        """Write one signal to the log, or keep it as a draft."""
        match signal:
            case Started():
                await self._started(signal)
            case TextDelta():
                await self._delta(signal)
            case Measured():
                self.usage = signal.usage
            case _:
                if self.opening is None:
                    await self._started(Started())
                event = self._event(signal)
                if event is not None and not isinstance(signal, Said):
                    await _call(running.record, self.platform, self.run, (event,))
                elif event is not None and isinstance(signal, Said):
                    await self._said(event, signal.text)

    async def _said(self, event: NewEvent, text: str) -> None:
        """Write a finished message in the place of the deltas before it."""
        async with self._drafting:
            recording = asyncio.ensure_future(
                asyncio.to_thread(running.record, self.platform, self.run, (event,), drop_draft=True)
            )
            try:
                await _uninterrupted(recording)
            finally:
                # Written although we were cancelled meanwhile: then it is no longer a draft all the same.
                if recording.done() and not recording.cancelled() and recording.exception() is None:
                    self.text.clear()
                    self._unkept.clear()
                    self.replies.append(text)

    def _event(self, signal: Signal) -> NewEvent | None:
        new = self.platform.event
        run_id, source = self.run.id, self.source
        match signal:
            case Said():
                said = Message(role="assistant", text=signal.text, model=signal.model)
                return new("message", said, "agent", run_id=run_id, source=source)
            case Thought():
                thought = Reasoning(text=signal.text, signature=signal.signature)
                return new("reasoning", thought, "agent", run_id=run_id, source=source)
            case ToolCalled():
                call = ToolCall(
                    call=signal.call, name=signal.name, input=signal.input, provider_call=signal.provider_call
                )
                return new("tool_call", call, "agent", run_id=run_id, source=source)
            case ToolAnswered(recorded=False):
                result = ToolResult(
                    call=signal.call, output=signal.output, status=signal.status, name=signal.name
                )
                return new("tool_result", result, "tool", run_id=run_id, source=source)
            case _:
                return None

    async def _started(self, signal: Started) -> None:
        """Record the opening as it was confirmed (O2)."""
        prepared = self.prepared
        assert prepared is not None
        if prepared.native is not None and signal.resumed:
            self.opening = "resumed"
        elif prepared.transcript.messages:
            self.opening = "seeded"
        else:
            self.opening = "fresh"
        self.reason = prepared.reason
        if prepared.native is not None and not signal.resumed:
            self.reason = "Its own memory was asked for and did not answer."
            if prepared.options.continuation == "native":
                raise ContinuationModeUnavailable(engine=self.engine.name)
        native = None
        if signal.native_id:
            native = EngineSession(
                session_id=self.run.session_id,
                engine=self.engine.name,
                native_id=signal.native_id,
                model=signal.model,
                updated_at=self.platform.clock(),
            )
        await _call(
            running.opened,
            self.platform,
            self.run,
            self.opening,
            self.reason,
            engine=self.engine.name,
            native=native,
        )

    async def _delta(self, signal: TextDelta) -> None:
        self.text.append(signal.text)
        self._unkept.set()
        if asyncio.get_running_loop().time() - self._kept_at >= DRAFT_SECONDS:
            await self._keep()

    async def keep_drafts(self) -> None:
        """Keep what was streamed and is not kept yet, even if the engine falls silent in the middle of a sentence."""
        while True:
            await self._unkept.wait()
            await asyncio.sleep(DRAFT_SECONDS)
            await self._keep()

    async def _keep(self) -> None:
        async with self._drafting:
            if not self._unkept.is_set():
                return
            self._unkept.clear()
            self._kept_at = asyncio.get_running_loop().time()
            await _call(running.keep_draft, self.platform, self.run, "".join(self.text))

    async def end(self, state: RunState, reason: str) -> RunResult:
        """Settle the run. Raises LeaseLost when somebody else has ended it."""
        usage = self.usage
        if usage is not None and usage.window is None and self.engine.capabilities.window is not None:
            usage = self.usage = msgspec.structs.replace(usage, window=self.engine.capabilities.window)
        try:
            if self.text:
                await _call(running.keep_draft, self.platform, self.run, "".join(self.text))
            notices = await _call(pressure.notices, self.platform, self.run, usage)
            run = await _call(
                running.settle,
                self.platform,
                self.run,
                state,
                reason=reason,
                usage=usage,
                engine=self.engine.name,
                beside=notices,
            )
        except LeaseLost:
            return await self.lost()
        self.pressure = await _call(pressure.measured, self.platform, run, usage)
        # The run has ended as it did. A child whose report fails here is still pending, and named as such.
        with contextlib.suppress(OnwardError):
            await _call(
                delegating.report_completed, self.platform, run, self.replies[-1] if self.replies else ""
            )
        return self._result(run, reason)

    async def stopped(self, reason: str) -> None:
        """Settle the run as cancelled, in the middle of being cancelled ourselves."""
        ending = asyncio.ensure_future(self.end("cancelled", reason))
        with contextlib.suppress(LeaseLost, asyncio.CancelledError):
            await _uninterrupted(ending)

    async def lost(self) -> RunResult:
        """Return how the run ended if the agent continued elsewhere: that ends it too. Otherwise raise LeaseLost."""
        run = await _call(running.get, self.platform, self.run.id)
        if run.state == "continued" and run.fence == self.run.fence:
            return await self._continued()
        raise LeaseLost(run=run.id, why=f"it is {run.state}{', ' + run.reason if run.reason else ''}")

    async def _continued(self) -> RunResult:
        """The agent continued elsewhere; the tool's transaction has ended this run already."""
        run = await _call(running.get, self.platform, self.run.id)
        if run.state == "running" and (parked := await _call(parking.parked_by, self.platform, run)):
            self.approval = parked
            return await self.end(
                "completed", f"The continuation waits for a person: onward approve {parked}"
            )
        if run.state != "continued":
            return await self.end("failed", "the turn was ended by a tool, but nothing was continued")
        ahead = await _call(running.successor_of, self.platform, run)
        return self._result(run, "", ahead)

    def _result(self, run: Run, reason: str, successor: str | None = None) -> RunResult:
        return RunResult(
            session=run.session_id,
            run=run.id,
            state=run.state,
            opening=self.opening,
            opening_told=told(self.opening or "", self.reason),
            reply="\n\n".join(self.replies),
            usage=self.usage,
            reason=reason,
            continued_to=successor,
            transcript=self.prepared.transcript if self.prepared else None,
            pressure=self.pressure,
            approval=self.approval,
        )


def run_blocking(coroutine: Any) -> Any:
    """Run a coroutine from synchronous code. Refuses inside a running event loop, where it should be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError("inside an event loop, await onward.runner.execute instead of calling run()")


async def run_session(
    platform: Platform,
    session_id: str,
    text: str | None,
    *,
    engine: str | Engine | None = None,
    options: dict[str, Any] | None = None,
    engine_opts: dict[str, Any] | None = None,
    owner: str | None = None,
    listener: Listener | None = None,
    follow: bool = True,
    waiting: str | None = None,
) -> RunResult:
    """Say something in a session and execute what waits there, in order, until this message is answered.

    Without ``text`` the run that waits is executed, or everything up to the one that ``waiting`` names. While somebody else
    works in the session, the message stays queued and the result says so (state ``queued``).
    """
    opening.parse_options(options or {})
    await _call(running.expire, platform)
    await _call(delegating.collect, platform, session_id)
    session = await _call(platform.session, session_id)
    if text is not None:
        name = engine if isinstance(engine, str) else engine.name if engine else None
        chosen = _engine(engine, name or session.engine, engine_opts or {})
        if (why := chosen.unavailable()) is not None:
            raise EngineUnavailable(engine=chosen.name, why=why)
        mine = await _call(running.submit, platform, session_id, text, engine=chosen.name, options=options)
    else:
        if waiting is not None:
            queued: Run | None = await _call(running.get, platform, waiting)
        else:
            queued = await _call(running.next_queued, platform, session_id)
        if queued is None:
            raise InvalidInput(what="the message", why=f"no text was given and nothing waits in {session_id}")
        mine = queued
        chosen = _engine(engine, mine.engine or session.engine, engine_opts or {})
    drive = execute_and_follow if follow else execute
    while True:
        current = await _call(running.get, platform, mine.id)
        upcoming = await _call(running.next_queued, platform, current.session_id)
        if current.state != "queued" or upcoming is None:
            return _waiting(current, "another runner is working in this session")
        if upcoming.id != mine.id and upcoming.engine not in ("", chosen.name):
            return _waiting(current, f"a message for the engine {upcoming.engine} is before it")
        try:
            result = await drive(
                platform, upcoming.id, chosen, owner=owner or platform.host or "onward", listener=listener
            )
        except (Conflict, InvalidTransition):
            continue  # another runner was faster, or somebody ended it; see what there is now
        if upcoming.id == mine.id:
            return result


def _waiting(run: Run, why: str) -> RunResult:
    return RunResult(
        session=run.session_id,
        run=run.id,
        state=run.state,
        opening=None,
        opening_told="",
        reply="",
        usage=None,
        reason=f"It waits: {why}." if run.state == "queued" else run.reason or "",
    )


def _engine(given: str | Engine | None, name: str | None, options: dict[str, Any]) -> Engine:
    """Return an engine by name, or the one that was passed in."""
    if given is not None and not isinstance(given, str):
        return given
    name = given or name
    if not name:
        raise InvalidInput(what="the engine", why=f"none was named; there are {', '.join(ENGINES)}")
    return engine_by_name(name, **options)
