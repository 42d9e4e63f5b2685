"""The runner: claims a run, opens the engine, appends what it says, settles it or follows where it continues.

Every signal is in the log before the engine is asked for the next one. If the process dies between any two lines, the
lease expires and ``running.expire`` closes the run honestly; whatever was streamed is in the draft row. A run is
completed only when the engine said so with ``Finished``; a stream that just stops has failed.

The store is synchronous, so each call to it goes to a worker thread; the event loop only waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from onward.core.bodies import Message, Reasoning, ToolCall, ToolResult, Usage
from onward.core.events import NewEvent, Source
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
from onward.errors import Conflict, EngineUnavailable, InvalidInput, LeaseLost, OnwardError
from onward.service import opening, running
from onward.service.offering import offered_tools
from onward.service.platform import Platform

DRAFT_SECONDS: Final = 0.1
"""Streamed text is kept at least this often."""
MAX_FOLLOWED: Final = 8
"""How many continuations one call follows."""

Listener = Callable[[Run, Signal], None]


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


async def execute(
    platform: Platform,
    run_id: str,
    engine: Engine,
    *,
    owner: str = "onward",
    listener: Listener | None = None,
    lease: int = running.LEASE_SECONDS,
) -> RunResult:
    """Execute one queued run. Raises Conflict when it could not be claimed, EngineUnavailable before claiming.

    An engine that fails settles the run as ``failed``; that is an answer, not an exception.
    """
    why = engine.unavailable()
    if why is not None:
        raise EngineUnavailable(engine=engine.name, why=why)
    run = await asyncio.to_thread(running.claim, platform, run_id, owner, engine=engine.name, lease=lease)
    turn = _Drive(platform, run, engine, listener)
    beat = asyncio.create_task(_keep_alive(platform, run, lease))
    try:
        return await turn.play()
    except asyncio.CancelledError:
        await asyncio.shield(turn.end("cancelled", "it was cancelled"))
        raise
    except (LeaseLost, Conflict):
        raise
    except OnwardError as error:
        return await turn.end("failed", error.message)
    except Exception as error:
        await turn.end("failed", f"the engine broke: {type(error).__name__}: {error}")
        raise
    finally:
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError, OnwardError):
            await beat


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
        waiting = await asyncio.to_thread(running.next_queued, platform, result.continued_to)
        if waiting is None:
            break
        result = await execute(platform, waiting.id, engine, owner=owner, listener=listener)
    return result


async def _keep_alive(platform: Platform, run: Run, lease: int) -> None:
    while True:
        await asyncio.sleep(lease / 3)
        await asyncio.to_thread(running.heartbeat, platform, run, lease=lease)


class _Drive:
    """One run while it is being driven."""

    def __init__(self, platform: Platform, run: Run, engine: Engine, listener: Listener | None) -> None:
        self.platform, self.run, self.engine, self.listener = platform, run, engine, listener
        self.source = Source(producer="engine", engine=engine.name)
        self.text: list[str] = []
        self.replies: list[str] = []
        self.usage: Usage | None = None
        self.opening: str | None = None
        self.reason = ""
        self.prepared: opening.Prepared | None = None
        self._kept_at = 0.0

    async def play(self) -> RunResult:
        """Give the engine its turn and write down what it does."""
        prepared = self.prepared = await asyncio.to_thread(
            opening.prepare, self.platform, self.run, self.engine
        )
        finished: Finished | None = None
        stream = self.engine.run(self._turn(prepared))
        try:
            async for signal in stream:
                if self.listener is not None:
                    self.listener(self.run, signal)
                if isinstance(signal, Finished):
                    finished = signal
                    break
                await self._write(signal)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if finished is None:
            return await self.end("failed", "the engine stopped without saying how its turn ended")
        if finished.status == "continued":
            return await self._continued()
        return await self.end(finished.status, finished.reason)

    def _turn(self, prepared: opening.Prepared) -> Turn:
        tools: tuple[Tool, ...] = ()
        if self.engine.capabilities.tools:
            tools = offered_tools(self.platform, self.run)
        return Turn(
            session_id=self.run.session_id,
            run_id=self.run.id,
            input=prepared.input,
            history=prepared.transcript.messages,
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
                if event is not None:
                    if isinstance(signal, Said):
                        self.text.clear()
                        self.replies.append(signal.text)
                    done = isinstance(signal, Said)
                    await asyncio.to_thread(
                        running.record, self.platform, self.run, (event,), drop_draft=done
                    )

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
        native = None
        if signal.native_id:
            native = EngineSession(
                session_id=self.run.session_id,
                engine=self.engine.name,
                native_id=signal.native_id,
                model=signal.model,
                updated_at=self.platform.clock(),
            )
        await asyncio.to_thread(
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
        now = asyncio.get_running_loop().time()
        if now - self._kept_at >= DRAFT_SECONDS:
            self._kept_at = now
            await asyncio.to_thread(running.keep_draft, self.platform, self.run, "".join(self.text))

    async def end(self, state: RunState, reason: str) -> RunResult:
        """Settle the run."""
        if self.text:
            await asyncio.to_thread(running.keep_draft, self.platform, self.run, "".join(self.text))
        run = await asyncio.to_thread(
            running.settle,
            self.platform,
            self.run,
            state,
            reason=reason,
            usage=self.usage,
            engine=self.engine.name,
        )
        return self._result(run, reason)

    async def _continued(self) -> RunResult:
        """The agent continued elsewhere; the tool's transaction has ended this run already."""
        run = await asyncio.to_thread(running.get, self.platform, self.run.id)
        if run.state != "continued":
            return await self.end("failed", "the turn was ended by a tool, but nothing was continued")
        ahead = await asyncio.to_thread(running.successor_of, self.platform, run)
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
) -> RunResult:
    """Say something in a session and execute what waits there, in order, until this message is answered.

    Without ``text`` the run that waits is executed. While somebody else works in the session, the message stays queued and
    the result says so (state ``queued``).
    """
    opening.parse_options(options or {})
    await asyncio.to_thread(running.expire, platform)
    session = await asyncio.to_thread(platform.session, session_id)
    if text is not None:
        name = engine if isinstance(engine, str) else engine.name if engine else None
        chosen = _engine(engine, name or session.engine, engine_opts or {})
        if (why := chosen.unavailable()) is not None:
            raise EngineUnavailable(engine=chosen.name, why=why)
        mine = await asyncio.to_thread(
            running.submit, platform, session_id, text, engine=chosen.name, options=options
        )
    else:
        waiting = await asyncio.to_thread(running.next_queued, platform, session_id)
        if waiting is None:
            raise InvalidInput(what="the message", why=f"no text was given and nothing waits in {session_id}")
        mine = waiting
        chosen = _engine(engine, mine.engine or session.engine, engine_opts or {})
    drive = execute_and_follow if follow else execute
    while True:
        current = await asyncio.to_thread(running.get, platform, mine.id)
        upcoming = await asyncio.to_thread(running.next_queued, platform, session_id)
        if current.state != "queued" or upcoming is None:
            return _waiting(current)
        try:
            result = await drive(
                platform, upcoming.id, chosen, owner=owner or platform.host or "onward", listener=listener
            )
        except Conflict:
            continue  # another runner was faster; see what there is now
        if upcoming.id == mine.id:
            return result


def _waiting(run: Run) -> RunResult:
    return RunResult(
        session=run.session_id,
        run=run.id,
        state=run.state,
        opening=None,
        opening_told="",
        reply="",
        usage=None,
        reason="It waits: another runner is working in this session." if run.state == "queued" else "",
    )


def _engine(given: str | Engine | None, name: str | None, options: dict[str, Any]) -> Engine:
    """Return an engine by name, or the one that was passed in."""
    if given is not None and not isinstance(given, str):
        return given
    name = given or name
    if not name:
        raise InvalidInput(what="the engine", why=f"none was named; there are {', '.join(ENGINES)}")
    return engine_by_name(name, **options)
