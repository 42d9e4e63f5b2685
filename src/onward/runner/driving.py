"""Driving one run: what becomes of each signal of an engine, and how the run ends.

Every signal is in the log before the engine is asked for the next one. If the process dies between any two lines, the
lease expires and ``running.expire`` closes the run honestly; whatever was streamed is in the draft row. A run is
completed only when the engine said so with ``Finished``; a stream that just stops has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from onward.core.bodies import Message, OpeningFacts, Reasoning, SessionChange, ToolCall, ToolResult, Usage
from onward.core.events import NewEvent, Source
from onward.core.policy import Violation
from onward.core.pressure import Pressure
from onward.core.records import EngineSession, Run
from onward.core.transcript import Transcript
from onward.core.wording import sentence
from onward.engines.contract import (
    Engine,
    Finished,
    Measured,
    Mirrored,
    Noted,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
    Turn,
)
from onward.errors import ContinuationModeUnavailable, EngineError, LeaseLost
from onward.runner.desk import Desk, Ended, EndState, Opened, uninterrupted
from onward.runner.governing import Governor
from onward.service.opening import EngineFacts, Prepared, confirmed

DRAFT_SECONDS: Final = 0.1
"""Streamed text is in the draft row at most this long after it was shown."""

Listener = Callable[[Run, Signal], None]
"""Hears every signal: pieces of text as they come, everything else once it is in the log."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    session: str
    run: str
    state: str
    opening: str | None
    """``resumed``, ``restored``, ``seeded`` or ``fresh`` as the engine confirmed it; None when it never began."""
    opening_told: str
    """The same as a sentence, with the reason."""
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
    opening_facts: OpeningFacts | None = None
    """Everything that is known of how it got its context; every surface tells it from these."""
    code: str = ""
    """The kind of failure, where the engine said it."""
    retryable: bool = False
    """It failed for a cause that will pass, before it had done anything: another attempt may well succeed."""
    warnings: tuple[str, ...] = ()
    """What was wished for and not to be had."""


class Drive:
    """One run while it is being driven."""

    def __init__(self, desk: Desk, run: Run, engine: Engine, listener: Listener | None) -> None:
        self.desk, self.run, self.engine, self.listener = desk, run, engine, listener
        self.facts = EngineFacts(name=engine.name, capabilities=engine.capabilities, machine=desk.machine)
        self.source = Source(producer="engine", engine=engine.name)
        self.text: list[str] = []
        self.replies: list[str] = []
        self.usage: Usage | None = None
        self.opening: OpeningFacts | None = None
        self.prepared: Prepared | None = None
        self.governor: Governor | None = None
        self.finished: Finished | None = None
        self._acted = False
        """A tool was called: what happened cannot be made not to have happened."""
        self._kept_at = 0.0
        self._unkept = asyncio.Event()
        self._drafting = asyncio.Lock()
        """Held while the draft row is written or dropped, so that an older draft never follows a finished message."""

    async def play(self) -> RunResult:
        """Give the engine its turn and write down what it does."""
        prepared = self.prepared = await self.desk.prepare(self.run, self.facts)
        if (gone := _gone_folder(prepared)) and self.engine.capabilities.acts:
            why = (
                f"the folder {gone} is not there; `onward move` says where it is now, `workdir` names another"
            )
            raise EngineError(engine=self.engine.name, why=why)
        governor = self.governor = Governor(self.desk, self.run, prepared.options)
        finished = self.finished = await self._in_time(governor, self._turn(prepared, governor))
        if finished is None:
            return await self.end("failed", "the engine stopped without saying how its turn ended")
        if finished.status == "continued":
            return await self._continued()
        if finished.status == "completed" and self.opening is None:
            await self._started(Started())  # it answered without saying that it began: nothing was confirmed
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
                self._acted = self._acted or isinstance(signal, ToolCalled)
                if self.governor is not None and (over := await self.governor.heard(signal)):
                    return _stopped_by(over)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        return None

    def _tell(self, signal: Signal) -> None:
        if self.listener is not None:
            self.listener(self.run, signal)

    async def _in_time(self, governor: Governor, turn: Turn) -> Finished | None:
        """Listen to the engine for as long as the policy gives it."""
        began = asyncio.get_running_loop().time()

        async def passed() -> Violation | None:
            return await governor.elapsed(asyncio.get_running_loop().time() - began)

        async def notice() -> None:
            await asyncio.sleep(governor.seconds or 0.0)
            await passed()

        if governor.seconds is None:
            return await self._listen(self.engine.run(turn))
        if governor.policy.action == "warn":
            noticing = asyncio.create_task(notice())
            try:
                return await self._listen(self.engine.run(turn))
            finally:
                noticing.cancel()
                with contextlib.suppress(asyncio.CancelledError, LeaseLost):
                    await noticing
        limit = asyncio.timeout(governor.seconds)
        try:
            async with limit:
                return await self._listen(self.engine.run(turn))
        except TimeoutError:
            if not limit.expired():
                raise
        over = await passed()
        return _stopped_by(over) if over is not None else None

    def _turn(self, prepared: Prepared, governor: Governor) -> Turn:
        options = prepared.options
        here = None if _gone_folder(prepared) else prepared.folder
        return Turn(
            session_id=self.run.session_id,
            run_id=self.run.id,
            input=prepared.input,
            history=prepared.messages,
            tools=self.desk.tools(self.run, self.facts),
            brief=prepared.brief,
            native=prepared.native,
            native_only=options.continuation == "native",
            new_id=prepared.new_id,
            recorded=prepared.recorded,
            prefer_recorded=prepared.decision.mode == "restore",
            workdir=options.workdir or here,
            model=options.model,
            permission_mode=options.permission_mode,
            permit=governor.permit,
            allowed_tools=governor.allowed,
            denied_tools=governor.denied,
            options=options.adapter_opts,
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
            case Mirrored():
                await self.desk.mirror(self.run, self.engine.name, signal)
            case _:
                if self.opening is None:
                    await self._started(Started())
                event = self._event(signal)
                if event is not None and not isinstance(signal, Said):
                    await self.desk.record(self.run, (event,))
                elif event is not None and isinstance(signal, Said):
                    await self._said(event, signal.text)

    async def _said(self, event: NewEvent, text: str) -> None:
        """Write a finished message in the place of the deltas before it."""
        async with self._drafting:
            recording = asyncio.ensure_future(self.desk.record(self.run, (event,), drop_draft=True))
            try:
                await uninterrupted(recording)
            finally:
                # Written although we were cancelled meanwhile: then it is no longer a draft all the same.
                if recording.done() and not recording.cancelled() and recording.exception() is None:
                    self.text.clear()
                    self._unkept.clear()
                    self.replies.append(text)

    def _event(self, signal: Signal) -> NewEvent | None:
        new = self.desk.event
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
            case Noted():
                return new(signal.kind, signal.body, signal.actor, run_id=run_id, source=source)
            case _:
                return None

    async def _started(self, signal: Started) -> None:
        """Record the opening as it was confirmed, once (O2); what was to be resumed or nothing fails here (O5)."""
        prepared = self.prepared
        if prepared is None or self.opening is not None:
            return
        told = confirmed(prepared, self.facts, signal)
        if prepared.options.continuation == "native" and told.outcome != "resumed":
            raise ContinuationModeUnavailable(engine=self.engine.name)
        self.opening = told
        new, run = self.desk.event, self.run
        change = SessionChange(
            change="opening", opening=told.outcome, reason=told.reason, engine=told.engine, facts=told
        )
        opening = new("session", change, "system", run_id=run.id)
        events: tuple[NewEvent, ...] = (opening,)
        if told.outcome == "seeded" and prepared.spent is not None:
            events = (opening, new("context", prepared.spent, "system", run_id=run.id))
        native = None
        if signal.native_id:
            native = EngineSession(
                session_id=run.session_id,
                engine=self.engine.name,
                native_id=signal.native_id,
                model=signal.model,
                machine_id=self.desk.machine or None,
                updated_at=opening.at,
            )
        await self.desk.opened(run, Opened(events=events, native=native))

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
            await self.desk.keep_draft(self.run, "".join(self.text))

    async def end(self, state: EndState, reason: str) -> RunResult:
        """Settle the run. Raises LeaseLost when somebody else has ended it."""
        usage = self.usage
        if usage is not None and usage.window is None and self.engine.capabilities.window is not None:
            usage = self.usage = msgspec.structs.replace(usage, window=self.engine.capabilities.window)
        try:
            if self.text:
                await self.desk.keep_draft(self.run, "".join(self.text))
            ended = await self.desk.settle(
                self.run,
                state,
                reason=reason,
                usage=usage,
                engine=self.engine.name,
                reply=self.replies[-1] if self.replies else "",
            )
        except LeaseLost:
            return await self.lost()
        return self._result(ended.run, reason, pressure=ended.pressure)

    async def stopped(self, reason: str) -> None:
        """Settle the run as cancelled, in the middle of being cancelled ourselves."""
        ending = asyncio.ensure_future(self.end("cancelled", reason))
        with contextlib.suppress(LeaseLost, asyncio.CancelledError):
            await uninterrupted(ending)

    async def lost(self) -> RunResult:
        """Return how the run ended if the agent continued elsewhere: that ends it too. Otherwise raise LeaseLost."""
        found = await self.desk.ended(self.run)
        run = found.run
        if run.state == "continued" and run.fence == self.run.fence:
            return self._result(run, "", found.continued_to)
        raise LeaseLost(run=run.id, why=f"it is {run.state}{', ' + run.reason if run.reason else ''}")

    async def _continued(self) -> RunResult:
        """The agent continued elsewhere; the tool's transaction has ended this run already."""
        found: Ended = await self.desk.ended(self.run)
        if found.run.state == "running" and found.approval:
            waits = f"The continuation waits for a person: onward approve {found.approval}"
            result = await self.end("completed", waits)
            return msgspec.structs.replace(result, approval=found.approval)
        if found.run.state != "continued":
            return await self.end("failed", "the turn was ended by a tool, but nothing was continued")
        return self._result(found.run, "", found.continued_to)

    def _result(
        self, run: Run, reason: str, successor: str | None = None, *, pressure: Pressure | None = None
    ) -> RunResult:
        return RunResult(
            session=run.session_id,
            run=run.id,
            state=run.state,
            opening=self.opening.outcome if self.opening else None,
            opening_facts=self.opening,
            opening_told=sentence(self.opening),
            reply="\n\n".join(self.replies),
            usage=self.usage,
            reason=reason,
            continued_to=successor,
            transcript=self.prepared.transcript if self.prepared else None,
            pressure=pressure,
            code=self.finished.code if self.finished else "",
            retryable=self.finished is not None and self.finished.retryable and not self._acted,
        )


def _gone_folder(prepared: Prepared) -> str | None:
    """Return the folder that the run is about, where it is not there and none was named instead.

    An engine that acts by itself would work in whatever folder this process is in.
    """
    folder = prepared.folder
    return folder if folder and not prepared.options.workdir and not os.path.isdir(folder) else None


def _stopped_by(over: Violation) -> Finished:
    """Return how a run ends that went beyond its policy, whatever its engine would have said."""
    asks = " A person can allow it: see the requests that wait." if over.action == "ask" else ""
    return Finished(
        status="cancelled" if over.action == "ask" else "failed",
        reason=over.told() + asks,
        code="policy",
    )
