"""The pi engine: turns in a conversation of pi, through ``pi --mode rpc``.

What is asked for is either a conversation that pi holds in this folder (``Turn.native``), which it resumes, or a new one
under the id that we chose, which gets the brief in front of the input, in one message. Before anything is said, pi is asked
which conversation it is in; only that answer makes a ``Started``. A conversation that it does not hold, or holds for another
folder, is not resumed: a new one takes its place, or with ``native_only`` the turn fails.

Success is ``agent_settled`` after a message that ended well (``pi_stream``), and never an exit code: pi ends with 0 also
when the provider refused. While a turn runs its conversation is leased, because pi lets two processes write in one and
then knows only one of the two turns. A process that did not settle is ended with everything it started.

Permissions: pi itself asks nobody, so a small extension asks here before each tool. ``default`` lets it read and asks for
the rest, ``accept_edits`` lets it edit too, ``plan`` refuses everything but reading, ``dangerously_skip_permissions`` allows
everything. ``full_auto`` is refused: pi has no sandbox to be free in. It is a gate in front of pi's tools and no wall:
other extensions of the person run as they do, and a command that was allowed may do anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from onward.core.bodies import Outcome
from onward.engines.bridge import Bridge
from onward.engines.calling import Numbers
from onward.engines.contract import (
    Awake,
    Capabilities,
    Finished,
    Noted,
    Permission,
    Permitted,
    Signal,
    Started,
    ToolAnswered,
    Turn,
)
from onward.engines.json_lines import loads
from onward.engines.leases import native_lease
from onward.engines.pi_process import (
    GATE,
    SERVER,
    PiProcess,
    Setup,
    Unknown,
    answer_to,
    fields,
    server_entry,
    tool_names,
)
from onward.engines.pi_stream import DIALOGS, PiStream, failure_of
from onward.engines.processes import program
from onward.errors import EngineError, InvalidInput, NativeSessionBusy

READS: Final = frozenset({"read", "grep", "find", "ls"})
"""pi's tools that change nothing."""
EDITS: Final = frozenset({"edit", "write"})
"""pi's tools that change files and do nothing else."""
ABORT_SECONDS: Final = 3.0
"""How long pi has to stop when it is told to, before it is ended."""
LEAVING_SECONDS: Final = 1.0
"""The same where somebody waits for us to go."""
_OURS_TO_SAY: Final = (
    "--mode", "--print", "-p", "--session", "--session-id", "--continue", "-c", "--resume", "-r", "--fork", "--no-session",
)  # fmt: skip
"""Arguments of pi that say which conversation it is in and how it is driven."""


class PiEngine:
    """pi, as a guest. ``docs/engines.md`` lists the options.

    ``program`` is a path, or the words that start pi; ``args`` are more arguments; ``model`` is one for turns that name
    none, as ``provider/id``; ``timeout`` is in seconds for a turn. With ``warm`` the process waits for the next
    turn of the session.
    """

    name: Final = "pi"

    def __init__(
        self,
        *,
        program: str | Sequence[str] | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        model: str | None = None,
        warm: bool = False,
        timeout: float | None = None,
    ) -> None:
        for word in args:
            if word.partition("=")[0] in _OURS_TO_SAY:
                raise InvalidInput(
                    what=f"the argument {word} of pi",
                    why="Onward says which conversation pi is in, and how it is driven",
                )
        self._program, self._args = program, tuple(args)
        self._env, self._model = dict(env or {}), model
        self._warm, self._timeout = warm, timeout
        self._asleep: dict[str, _Seat] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            memory=True,
            reads="text",
            chooses_id=True,
            tools=True,
            streaming=True,
            acts=True,
            permissions=True,
        )

    def unavailable(self) -> str | None:
        if program("pi", self._program) is None:
            return (
                f"there is no program {self._program or 'pi'!r} here; install pi "
                "(npm install -g @earendil-works/pi-coding-agent), or say where it is with the engine option `program`"
            )
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Take a turn; see the module for what it is taken in."""
        if (why := self.unavailable()) is not None:
            yield Finished(status="failed", reason=why, code="not_installed")
            return
        if (refused := _refused(turn)) is not None:
            yield Finished(status="failed", reason=refused, code="invalid_request")
            return
        end, keep = None, False
        seat = self._asleep.pop(turn.session_id, None)
        try:
            try:
                setup = self._setup(turn)
                if seat is not None and not seat.fits(turn, setup):
                    await seat.leave()
                    seat = None
                if seat is None:
                    seat, why = await self._seated(turn, setup)
                else:
                    seat.bridge.renew(turn, numbers=Numbers(turn.run_id))
                    why = ""
                taking = _Taking(turn, seat, why=why, timeout=self._timeout)
                async with contextlib.aclosing(taking.signals()) as signals:
                    async for signal in signals:
                        if isinstance(signal, Finished):
                            end = signal
                        else:
                            yield signal
                keep = self._warm and taking.settled and seat.process.alive
            except Unknown as unknown:
                end = Finished(status="failed", reason=f"{unknown}", code="resume_refused")
            except EngineError as failed:  # what a tool of ours raises passes through
                busy = isinstance(failed, NativeSessionBusy)
                code = "busy" if busy else "crashed"
                end = Finished(status="failed", reason=failed.message, code=code, retryable=busy)
            if keep and seat is not None:
                await seat.bridge.rest()
                seat.since = time.monotonic()
                self._asleep[turn.session_id] = seat
        finally:
            if seat is not None and self._asleep.get(turn.session_id) is not seat:
                await seat.leave()
        yield end or Finished(status="failed", reason="pi did not say how its turn ended", code="crashed")

    def awake(self) -> tuple[Awake, ...]:
        return tuple(
            Awake(session_id=session, idle_since=seat.since, pid=seat.process.child.pid)
            for session, seat in self._asleep.items()
            if seat.process.alive
        )

    async def sleep(self, session_id: str) -> bool:
        seat = self._asleep.pop(session_id, None)
        if seat is None:
            return False
        await seat.leave()
        return True

    async def aclose(self) -> None:
        waiting, self._asleep = list(self._asleep.values()), {}
        await asyncio.gather(*(seat.leave() for seat in waiting))

    def _setup(self, turn: Turn) -> Setup:
        words = program("pi", self._program)
        if words is None:
            raise EngineError(engine=self.name, why=self.unavailable() or "it is gone")
        return Setup(
            words=(*words, *self._args),
            workdir=turn.workdir,
            model=turn.model or self._model,
            system=turn.system,
            thinking=turn.options.get("thinking"),
            allowed=turn.allowed_tools,
            denied=turn.denied_tools,
            tools=bool(turn.tools),
        )

    async def _seated(self, turn: Turn, setup: Setup) -> tuple[_Seat, str]:
        """Return a pi in the conversation that is asked for; or, unless ``native_only``, in a new one, and why."""
        async with contextlib.AsyncExitStack() as stack:
            bridge = await stack.enter_async_context(
                Bridge(turn, server=SERVER, numbers=Numbers(turn.run_id))
            )
            server = server_entry(bridge.command, bridge.env) if turn.tools else None
            why = ""
            if turn.native is not None:
                async with contextlib.AsyncExitStack() as trying:
                    trying.enter_context(native_lease(self.name, turn.native.id, who=turn.run_id))
                    try:
                        process = await PiProcess.start(
                            setup, env=self._env, server=server, resume=turn.native.id
                        )
                    except Unknown as unknown:
                        if turn.native_only:
                            raise
                        why = f"pi could not resume {turn.native.id}: {_plain(str(unknown))}."
                    else:
                        stack.push_async_exit(trying.pop_all())
                        return _Seat(process, bridge, setup, stack.pop_all(), resumed=True), ""
            if turn.new_id is not None:
                stack.enter_context(native_lease(self.name, turn.new_id, who=turn.run_id))
            process = await PiProcess.start(setup, env=self._env, server=server, new_id=turn.new_id)
            try:
                if turn.new_id is None:
                    stack.enter_context(native_lease(self.name, process.id, who=turn.run_id))
            except BaseException:
                await process.stop()
                raise
            return _Seat(process, bridge, setup, stack.pop_all(), resumed=False), why


class _Seat:
    """A running pi, with the way to our tools and the lease of its conversation."""

    def __init__(
        self,
        process: PiProcess,
        bridge: Bridge,
        setup: Setup,
        stack: contextlib.AsyncExitStack,
        *,
        resumed: bool,
    ) -> None:
        self.process, self.bridge, self.setup = process, bridge, setup
        self.resumed = resumed
        """It is in a conversation that was there before: from its second turn on, it always is."""
        self.since = 0.0
        self._stack = stack

    def fits(self, turn: Turn, setup: Setup) -> bool:
        """Whether it can take this turn: started alike, and in the conversation that the turn asks for."""
        return (
            self.process.alive
            and self.setup == setup
            and turn.native is not None
            and turn.native.id == self.process.id
        )

    async def leave(self) -> None:
        """End the process; then nobody holds the conversation."""
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        try:
            await self.process.stop()
        finally:
            await stack.aclose()


class _Taking:
    """One turn."""

    def __init__(self, turn: Turn, seat: _Seat, *, why: str, timeout: float | None) -> None:
        self.turn, self.seat, self.process = turn, seat, seat.process
        self.settled = False
        """pi has said that it is done, or has stopped as it was told: it can be left as it is."""
        self._why, self._timeout = why, timeout
        self._until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        self._model = fields(seat.process.state.get("model"))
        self._stream = PiStream(
            next_call=seat.bridge.numbers.next,
            ours=tool_names(seat.bridge.names),
            window=self._model.get("contextWindow"),
        )
        self._asking: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """What asking for a permission raised."""

    async def signals(self) -> AsyncGenerator[Signal, None]:
        """Tell what pi says until the turn has ended, and how."""
        turn, seat, process = self.turn, self.seat, self.process
        resumed, seat.resumed = seat.resumed, True
        yield Started(
            model=self._model.get("id"),
            native_id=process.id,
            resumed=resumed,
            briefed=bool(turn.brief) and not resumed,
            why=self._why,
        )
        text = turn.input if resumed or not turn.brief else f"{turn.brief}\n\n{turn.input}"
        going = False
        try:
            try:
                async with asyncio.timeout_at(self._until):
                    prompt = await process.begin("prompt", message=text)
            except TimeoutError:  # it reads nothing
                yield self._too_long()
                return
            going = True
            async with contextlib.aclosing(self._playing(prompt)) as playing:
                async for signal in playing:
                    if isinstance(signal, Finished):
                        going = False
                        self.settled = signal.code != "crashed"
                    yield signal
                    if isinstance(signal, Finished):
                        return
            going = False
            if seat.bridge.ended.is_set():
                self.settled = await process.abort(ABORT_SECONDS)
                yield Finished(status="continued", reason="a tool ended the turn")
            elif self._time_is_up():
                self.settled = await process.abort(ABORT_SECONDS)
                yield self._too_long()
            else:
                yield Finished(status="failed", reason=await self._crash(), code="crashed")
        finally:
            for task in self._asking:
                task.cancel()
            await asyncio.gather(*self._asking, return_exceptions=True)
            if going:
                await process.abort(LEAVING_SECONDS)

    def _too_long(self) -> Finished:
        reason = f"the turn took longer than {self._timeout:g} seconds, and was stopped"
        return Finished(status="failed", reason=reason, code="timeout")

    async def _playing(self, prompt: str) -> AsyncGenerator[Signal, None]:
        """Yield what happens, up to the end if pi says it; without one if a tool ended the turn, or pi or the time did."""
        stream, bridge = self._stream, self.seat.bridge
        async with contextlib.aclosing(bridge.along(self._timed())) as along:
            async for item in along:
                if isinstance(item, Signal):
                    yield item
                    if isinstance(item, ToolAnswered):
                        stream.bridged(item.name or "")
                    continue
                if (answer := answer_to(prompt, item)) is not None:
                    if (end := _not_begun(answer)) is not None:
                        yield end
                        return
                    continue
                for signal in stream.take(item):
                    yield signal
                for name in stream.shown():
                    bridge.saw(name)
                async for signal in self._heard(item):
                    yield signal
                if stream.finished is not None:
                    yield stream.finished
                    return

    async def _timed(self) -> AsyncGenerator[bytes, None]:
        """Yield pi's records until the time is up. Raises what asking for a permission raised."""
        reading: asyncio.Task[bytes] | None = None
        async with contextlib.aclosing(self.process.records()) as records:
            try:
                while True:
                    reading = asyncio.create_task(_next(records))
                    left = None if self._until is None else self._until - asyncio.get_running_loop().time()
                    either: set[asyncio.Future[Any]] = {reading, self._broken}
                    await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    if self._broken.done():
                        raise self._broken.result()
                    if not reading.done():
                        return
                    try:
                        record = reading.result()
                    except StopAsyncIteration:
                        return
                    yield record
            finally:
                if reading is not None:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)

    def _time_is_up(self) -> bool:
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    async def _heard(self, line: bytes) -> AsyncGenerator[Signal, None]:
        """Answer what an extension asks: ours by the rules of the turn, that of somebody else by whoever may allow it."""
        if b'"extension_ui_request"' not in line:
            return
        record = _dialog(line)
        if record is None:
            return
        if record.get("title") == GATE and (asked := _asked(record)) is not None:
            self._begin(self._gate(record["id"], asked))
        elif record["method"] == "confirm" and self.turn.permit is not None:
            self._begin(self._confirm(record))
        else:
            await self.process.send({"type": "extension_ui_response", "id": record["id"], "cancelled": True})
            told = f"An extension of pi asked “{record.get('title')}”. Nobody can answer that here, so it was dismissed."
            yield Noted(kind="outcome", body=Outcome(text=told, status="dismissed"), actor="system")

    def _begin(self, asking: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(asking)
        self._asking.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        raised = None if task.cancelled() else task.exception()
        # An answer that pi no longer reads is told by its end.
        if raised is not None and not isinstance(raised, EngineError) and not self._broken.done():
            self._broken.set_result(raised)

    async def _gate(self, id: str, asked: dict[str, Any]) -> None:
        """Let a tool run, or say why not."""
        tool, given = str(asked["tool"]), asked.get("input")
        permitted = decided(self.turn, tool)
        if permitted is None and self.turn.permit is not None:
            permitted = await self.turn.permit(
                Permission(
                    subject=subject(tool, given),
                    tool=tool,
                    input=given,
                    call=self._stream.calls.get(str(asked["id"])),
                    edits=tool in EDITS,
                )
            )
        if permitted is None:
            permitted = Permitted(
                granted=False, note=f"Nobody is here who could allow {tool}. Do without it."
            )
        value = "granted" if permitted.granted else permitted.note or f"{tool} was not allowed."
        await self.process.send({"type": "extension_ui_response", "id": id, "value": value})

    async def _confirm(self, record: dict[str, Any]) -> None:
        assert self.turn.permit is not None
        words = ": ".join(str(record[part]) for part in ("title", "message") if record.get(part))
        permitted = await self.turn.permit(Permission(subject=words, tool="extension"))
        answer = {"type": "extension_ui_response", "id": record["id"], "confirmed": permitted.granted}
        await self.process.send(answer)

    async def _crash(self) -> str:
        """Return how a process ended that did not say how its turn did."""
        child, how = self.process.child, "closed its output"
        with contextlib.suppress(TimeoutError):
            how = f"ended (exit code {await asyncio.wait_for(child.wait(), 1.0)})"
        return f"pi {how} without saying how its turn did{child.last_words()}"


def _dialog(line: bytes) -> dict[str, Any] | None:
    """Return a line if it is a question that an extension waits for the answer of."""
    try:
        record = fields(loads(line))
    except ValueError:
        return None
    method = record.get("method")
    asks = record.get("type") == "extension_ui_request" and isinstance(method, str) and method in DIALOGS
    return record if asks and isinstance(record.get("id"), str) else None


def _asked(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return what our gate asks about; None where somebody else only asks under its title."""
    with contextlib.suppress(ValueError):
        asked = fields(loads(str(record.get("placeholder") or "").encode("utf-8", "surrogatepass")))
        return asked if {"tool", "id"} <= asked.keys() else None
    return None


async def _next(records: AsyncIterator[bytes]) -> bytes:
    return await anext(records)


def decided(turn: Turn, tool: str) -> Permitted | None:
    """Return what a turn says about a tool of pi, by its lists and its mode; None if somebody has to be asked."""
    if tool in turn.denied_tools or (turn.allowed_tools is not None and tool not in turn.allowed_tools):
        return Permitted(granted=False, note=f"{tool} is not among the tools that this turn may use.")
    mode = turn.permission_mode
    if mode == "dangerously_skip_permissions" or tool in READS or (mode == "accept_edits" and tool in EDITS):
        return Permitted(granted=True)
    if mode == "plan":
        return Permitted(
            granted=False, note=f"This turn only plans: {tool} changes things, so it does not run."
        )
    return None


def subject(tool: str, given: Any) -> str:
    """Return what a tool is about to do, in a line for a person."""
    known = fields(given)
    told = known.get("command") or known.get("path") or ""
    line = " ".join(f"{tool} {told}".split())
    return line if len(line) <= 200 else f"{line[:199]}…"


def _refused(turn: Turn) -> str | None:
    """Return why this turn is not begun, if it is not."""
    if turn.permission_mode == "full_auto":
        return "pi has no sandbox in which it could be free; choose accept_edits, or dangerously_skip_permissions."
    if unknown := sorted(set(turn.options) - {"thinking"}):
        return f"pi knows no option {', '.join(unknown)}; it takes thinking"
    thinking = turn.options.get("thinking")
    if thinking is not None and not isinstance(thinking, str):
        return f"the option thinking of pi is a level such as 'high', not {thinking!r}"
    return None


def _not_begun(answer: dict[str, Any]) -> Finished | None:
    """Return the end of a turn that pi did not begin, from its answer to the prompt; None if it began."""
    if not answer.get("success"):
        failed = failure_of(str(answer.get("error") or "pi refused the message"))
        return failed if failed.code != "unknown" else msgspec.structs.replace(failed, code="invalid_request")
    if fields(answer.get("data")).get("disposition") == "handled":
        return Finished(status="completed", reason="An extension of pi took the message; there is no answer.")
    return None


def _plain(sentence: str) -> str:
    """Return pi's own words for a person, who knows no "session" of pi."""
    return sentence.replace("session", "conversation").replace("Session", "Conversation").rstrip(".")
