"""The codex engine: turns in a thread of Codex, through ``codex app-server``.

What is asked for is either a thread that Codex holds (``Turn.native``), which it resumes, or a new one, which gets the
brief in front of the input, in one message. ``thread/start`` gives the id before anything is sent to it, so ``Started`` is
in the log before the first prompt goes out. A thread that Codex does not know, or that it answers with another one for,
is not resumed: a new one takes its place, or with ``native_only`` the turn fails.

Success is ``turn/completed`` with the status ``completed`` for our turn of our thread, and nothing else: no exit code, no
silence, no answer that was said before. The process is ended with everything it started after each turn, and after a turn
that was cancelled also where it is kept warm, because Codex leaves commands running behind an interruption.

What it deliberately does not do: choose which of its tools Codex uses by their names (it can be told to leave out the web
search, and is asked for nothing else), and rebuild its files. Where app-server does not start, ``codex_exec`` takes the
turn; there the limits are larger, see there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, cast

import msgspec

from onward.engines.bridge import Bridge
from onward.engines.calling import Numbers
from onward.engines.codex_asking import Permissions
from onward.engines.codex_calls import failure_of, ident, response_items
from onward.engines.codex_exec import exec_turn
from onward.engines.codex_server import (
    UNLOAD_SECONDS,
    Opened,
    OutOfTime,
    Server,
    Setup,
    compaction_summary,
    left_out,
    thread_settings,
    timed,
    tools_server,
)
from onward.engines.codex_stream import AppServerStream, ends_compaction, own_call
from onward.engines.contract import Awake, Capabilities, Finished, Noted, Signal, Started, ToolCalled, Turn
from onward.engines.jsonrpc import Notification, PeerError, Request, Stray
from onward.engines.leases import native_lease
from onward.engines.processes import program
from onward.errors import EngineError, EngineTimeout, InvalidInput, NativeSessionBusy

SERVER: Final = "onward"
"""The name of our server of tools in Codex's configuration."""
INTERRUPTED_SECONDS: Final = 3.0
"""How long an interrupted turn has to say that it has ended."""
_OPTIONS: Final = ("effort", "summary", "personality", "outputSchema", "serviceTier")
"""What ``turn.options`` may set of Codex's own turn."""

Mode = Literal["app-server", "exec"]
Seed = Literal["brief", "items"]


_NO_END: Final = Finished(status="failed", reason="codex did not say how its turn ended", code="crashed")


class _Refused(Exception):
    """The turn cannot be taken; the end says why."""

    def __init__(self, end: Finished) -> None:
        super().__init__(end.reason)
        self.end = end


class CodexEngine:
    """Codex, as a guest. ``docs/engines.md`` lists the options.

    ``home`` is its folder (CODEX_HOME), made if it is missing; ``config`` overrides its configuration, by dotted keys;
    ``timeout`` is in seconds for a turn. ``seed`` says how a new thread is told what came before: ``brief`` as text in
    front of the input, ``items`` as items that are put into the thread before it.
    """

    name: Final = "codex"

    def __init__(
        self,
        *,
        program: str | Sequence[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        home: str | None = None,
        config: Mapping[str, Any] | None = None,
        mode: Mode = "app-server",
        seed: Seed = "brief",
        warm: bool = False,
        timeout: float | None = None,
    ) -> None:
        for what, value, known in (
            ("mode", mode, ("app-server", "exec")),
            ("seed", seed, ("brief", "items")),
        ):
            if value not in known:
                raise InvalidInput(
                    what=f"the option {what} of codex", why=f"{value!r} is not one of {', '.join(known)}"
                )
        self._program, self._home = program, home
        self._env: dict[str, str | None] = {**(env or {}), **({"CODEX_HOME": home} if home else {})}
        self._config = dict(config or {})
        self._mode, self._seed, self._warm, self._timeout = mode, seed, warm, timeout
        self._asleep: dict[str, tuple[Server, float]] = {}
        """Processes that wait, and since when."""
        self._spent: dict[str, Any] = {}
        """What the threads of ``exec`` had used, which that mode counts from their beginning."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            memory=True,
            reads="text",
            tools=True,
            acts=True,
            streaming=self._mode == "app-server",
            permissions=self._mode == "app-server",
        )

    def unavailable(self) -> str | None:
        if program("codex", self._program) is None:
            return (
                f"there is no program {self._program or 'codex'!r} here; install Codex (npm install -g @openai/codex), "
                "or say where it is with the engine option `program`"
            )
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Take a turn; see the module for what it is taken in."""
        if (why := self.unavailable()) is not None:
            yield Finished(status="failed", reason=why, code="not_installed")
            return
        if (why := _unknown_options(turn)) != "":
            yield Finished(status="failed", reason=why, code="invalid_request")
            return
        try:
            setup = self._setup()
        except InvalidInput as refused:
            yield Finished(status="failed", reason=refused.message, code="invalid_request")
            return
        server = None
        if self._mode == "app-server":
            try:
                server = await self._server(turn, setup)
            except EngineError as failed:
                told = {
                    "note": f"codex app-server did not start, so codex exec takes the turn: {failed.message}"
                }
                yield Noted(kind="raw", body=msgspec.json.encode(told), actor="system")
        if server is None:
            taking = exec_turn(turn, setup, seconds=self._timeout, spent=self._spent)
        else:
            taking = self._taking(turn, server)
        async with aclosing(taking) as signals:
            async for signal in signals:
                yield signal

    async def fork(self, native_id: str, *, after: str | None = None, workdir: str | None = None) -> str:
        """Return the id of a new thread that holds what this one does, up to and with the turn ``after``.

        Codex keeps it by reference, so the first has to stay. Raises EngineError if Codex does not know it.
        """
        server = await Server.start(self._setup(), cwd=workdir)
        try:
            opened = await server.fork_thread(native_id, {"cwd": workdir} if workdir else {}, after=after)
        except PeerError as unknown:
            raise EngineError(engine=self.name, why=unknown.message) from None
        finally:
            await server.stop()
        return opened.thread

    def awake(self) -> tuple[Awake, ...]:
        return tuple(
            Awake(session_id=session, idle_since=since, pid=server.child.pid)
            for session, (server, since) in self._asleep.items()
            if server.alive
        )

    async def sleep(self, session_id: str) -> bool:
        found = self._asleep.pop(session_id, None)
        if found is None:
            return False
        await found[0].leave()
        return True

    async def aclose(self) -> None:
        waiting, self._asleep = list(self._asleep.values()), {}
        await asyncio.gather(*(server.leave() for server, _ in waiting))

    def _setup(self) -> Setup:
        """Return how Codex is started. Raises InvalidInput for options that it cannot be started with."""
        words = program("codex", self._program)
        if words is None:
            raise InvalidInput(what="the option program of codex", why=self.unavailable() or "it is gone")
        if self._home:
            try:
                os.makedirs(self._home, mode=0o700, exist_ok=True)
            except OSError as refused:
                why = f"{self._home} cannot be made: {refused.strerror}"
                raise InvalidInput(what="the option home of codex", why=why) from None
        setup = Setup(words=tuple(words), env=self._env, config=self._config)
        setup.overrides()  # raises for what cannot be said
        return setup

    async def _server(self, turn: Turn, setup: Setup) -> Server:
        """Return the process that waits for this turn, or a new one."""
        found = self._asleep.pop(turn.session_id, None)
        if found is not None:
            if found[0].alive:
                return found[0]
            await found[0].leave()
        return await Server.start(setup, cwd=turn.workdir)

    async def _taking(self, turn: Turn, server: Server) -> AsyncGenerator[Signal, None]:
        """Take a turn with a running server, and keep or end that before the end is told: whoever hears it may go."""
        keep, end = False, _NO_END
        bridge = Bridge(turn, server=SERVER, numbers=Numbers(turn.run_id))
        try:
            async with bridge:
                with contextlib.ExitStack() as leases:
                    taking = _Taking(turn, server, bridge, leases, seed=self._seed, timeout=self._timeout)
                    try:
                        async with aclosing(taking.signals()) as signals:
                            async for signal in signals:
                                if isinstance(signal, Finished):
                                    end = signal
                                else:
                                    yield signal
                        if self._warm and taking.clean:
                            for signal in await taking.let_go():
                                yield signal
                            keep = taking.closed
                    finally:
                        if not keep:
                            await taking.interrupt()
                            await server.stop()
        except EngineError as failed:
            if bridge.failed.done() and bridge.failed.result() is failed:
                raise  # it is a tool's, not Codex's
            code = _code(failed)
            end = Finished(status="failed", reason=failed.message, code=code, retryable=code == "busy")
        finally:
            if keep:
                self._asleep[turn.session_id] = (server, time.monotonic())
            else:
                await server.stop()
        yield end


class _Taking:
    """One turn in a thread."""

    def __init__(
        self,
        turn: Turn,
        server: Server,
        bridge: Bridge,
        leases: contextlib.ExitStack,
        *,
        seed: Seed,
        timeout: float | None,
    ) -> None:
        self.turn, self.server, self.bridge, self._leases = turn, server, bridge, leases
        self.clean = False
        """It ended as Codex said."""
        self.closed = False
        """The thread is unloaded."""
        self._seed = seed
        loop = asyncio.get_running_loop()
        self._until = None if timeout is None else loop.time() + timeout
        self._timeout = timeout
        self._opened: Opened | None = None
        self._stream: AppServerStream | None = None

    async def signals(self) -> AsyncGenerator[Signal, None]:
        """Open the thread, begin the turn, and tell what happens until it ends."""
        turn = self.turn
        try:
            started = await self._open()
        except _Refused as refused:
            yield refused.end
            return
        yield started
        opened = self._opened
        assert opened is not None
        stream = self._stream = AppServerStream(
            thread=opened.thread,
            next_call=self.bridge.numbers.next,
            model=opened.model,
            ours=SERVER,
            signed=opened.signed,
        )
        try:
            more = {name: value for name, value in turn.options.items() if name in _OPTIONS}
            text = await self._told(opened, new=not started.resumed)
            stream.turn = await self.server.begin(opened.thread, text, more)
        except PeerError as refused:
            failure = failure_of(refused.message)
            yield Finished(
                status="failed", reason=failure.reason, code=failure.code, retryable=failure.passes
            )
            return
        try:
            async with aclosing(self._playing(stream)) as playing:
                async for signal in playing:
                    yield signal
        except OutOfTime:
            for signal in (*await self.interrupt(), *stream.left()):
                yield signal
            reason = f"the turn took longer than {self._timeout:g} seconds, and was stopped"
            yield Finished(status="failed", reason=reason, code="timeout")
            return
        if self.bridge.ended.is_set():
            await self.interrupt()
            yield Finished(status="continued", reason="a tool ended the turn")
            return
        if stream.finished is not None:
            self.clean = stream.finished.status == "completed"
            yield stream.finished
            return
        for signal in stream.left():
            yield signal
        yield Finished(status="failed", reason=await self._crash(stream), code="crashed")

    async def interrupt(self) -> list[Signal]:
        """Ask Codex to end the turn, if it is still at it, and give it a moment to write that down.

        Return what it said meanwhile.
        """
        stream, server, signals = self._stream, self.server, list[Signal]()
        if stream is None or stream.turn is None or stream.over() or not server.alive:
            return signals
        await server.interrupt(stream.thread, stream.turn)
        with contextlib.suppress(TimeoutError, EngineError):
            async with asyncio.timeout(INTERRUPTED_SECONDS):
                async for message in server.peer.incoming():
                    if isinstance(message, Notification):
                        signals += await self._translated(stream, message)
                    elif isinstance(message, Request):
                        await message.refuse(-32000, "the turn is over")
                    if stream.over():
                        break
        return signals

    async def let_go(self) -> list[Signal]:
        """Unload the thread, so that another process may write in it; return what that ends.

        Commands that the turn left running are ended with it. ``closed`` says whether it went well.
        """
        stream, signals = self._stream, list[Signal]()
        assert stream is not None
        with contextlib.suppress(PeerError, EngineError, TimeoutError):
            await self.server.unload(stream.thread)
            async with asyncio.timeout(UNLOAD_SECONDS):
                async for message in self.server.peer.incoming():
                    if isinstance(message, Notification):
                        signals += await self._translated(stream, message)
                        self.closed = self.closed or message.method == "thread/closed"
                    if self.closed:
                        break
        return signals

    async def _open(self) -> Started:
        """Open the thread that is asked for, or a new one; return how it went."""
        turn, server = self.turn, self.server
        config = left_out(turn)
        if turn.tools:
            config[f"mcp_servers.{SERVER}"] = tools_server(self.bridge.command, self.bridge.env)
        settings = thread_settings(turn, config)
        why = ""
        if turn.native is not None:
            try:
                self._opened = await self._open_known(turn.native.id, settings)
                return Started(model=self._opened.model, native_id=self._opened.thread, resumed=True)
            except PeerError as unknown:
                failure = failure_of(unknown.message)
                if failure.code == "busy":
                    raise _Refused(
                        Finished(status="failed", reason=failure.reason, code="busy", retryable=True)
                    ) from None
                why = f"Codex could not open {turn.native.id}: {unknown.message}."
            if turn.native_only:
                raise _Refused(Finished(status="failed", reason=why, code="resume_refused"))
        try:
            opened = await server.start_thread(settings, instructions=turn.system)
        except PeerError as refused:
            failure = failure_of(refused.message)
            raise _Refused(Finished(status="failed", reason=failure.reason, code=failure.code)) from None
        self._opened = opened
        self._leases.enter_context(native_lease("codex", opened.thread, who=self.turn.run_id))
        return Started(
            model=opened.model,
            native_id=opened.thread,
            briefed=bool(turn.brief or turn.history),
            why=why,
        )

    async def _open_known(self, native: str, settings: dict[str, Any]) -> Opened:
        """Resume a thread, or open a fork of it if the options say so. Raises PeerError if that is refused."""
        if not ident(native):
            raise PeerError(
                -32600, "it is no id of a thread"
            )  # Codex takes it for a name, and may begin a new one
        asked = self.turn.options.get("fork")
        if asked:
            after = asked if isinstance(asked, str) else None
            opened = await self.server.fork_thread(native, settings, after=after)
            self._leases.enter_context(native_lease("codex", opened.thread, who=self.turn.run_id))
            return opened
        with contextlib.ExitStack() as lease:
            lease.enter_context(native_lease("codex", native, who=self.turn.run_id))
            opened = await self.server.resume_thread(native, settings)
            self._leases.enter_context(lease.pop_all())
        return opened

    async def _told(self, opened: Opened, *, new: bool) -> str:
        """Return what is said to Codex. A new thread is told what came before: here, or by items put into it."""
        turn = self.turn
        if not new:
            return turn.input
        if turn.history and (self._seed == "items" or not turn.brief):
            await self.server.inject(opened.thread, response_items(turn.history))
        elif turn.brief and self._seed == "items":
            content = [{"type": "input_text", "text": turn.brief}]
            await self.server.inject(opened.thread, [{"type": "message", "role": "user", "content": content}])
        elif turn.brief:
            return f"{turn.brief}\n\n{turn.input}"
        return turn.input

    async def _playing(self, stream: AppServerStream) -> AsyncGenerator[Signal, None]:
        """Tell what happens until Codex says how it ended, a tool ended it, or nothing more comes."""
        permissions = Permissions(self.turn, stream)
        try:
            incoming = timed(self.server.peer.incoming(), self._until)
            together = cast(AsyncGenerator[Any, None], self.bridge.along(incoming))
            async with aclosing(together) as along:
                async for message in along:
                    if isinstance(message, Stray):
                        yield Noted(kind="raw", body=message.line, actor="system")
                    elif isinstance(message, Signal):
                        stream.acted = stream.acted or isinstance(message, ToolCalled)
                        yield message
                    elif isinstance(message, Request):
                        for signal in permissions.asked(message):
                            yield signal
                    else:
                        for signal in await self._translated(stream, message):
                            yield signal
                        if (name := own_call(message.method, _params(message), SERVER)) is not None:
                            self.bridge.saw(name)
                    permissions.check()
                    if stream.over():
                        return
        finally:
            await permissions.close()

    async def _translated(self, stream: AppServerStream, message: Notification) -> tuple[Signal, ...]:
        params, summary = _params(message), ""
        if ends_compaction(message.method, params) and self._opened is not None and self._opened.path:
            summary = await asyncio.to_thread(compaction_summary, self._opened.path)
        return stream.take(message.method, params, raw=message.line, summary=summary)

    async def _crash(self, stream: AppServerStream) -> str:
        """Return how a process ended that did not say how its turn did."""
        child = self.server.child
        how = "closed its output"
        with contextlib.suppress(TimeoutError):
            how = f"ended (exit code {await asyncio.wait_for(child.wait(), 1.0)})"
        trouble = f"; before that: {stream.trouble}" if stream.trouble else ""
        return f"codex {how} without saying how its turn did{child.last_words()}{trouble}"


def _params(message: Notification) -> dict[str, Any]:
    return message.params if isinstance(message.params, dict) else {}


def _unknown_options(turn: Turn) -> str:
    """Return why the options of a turn cannot be followed; empty if they can."""
    known = (*_OPTIONS, "fork")
    unknown = sorted(set(turn.options) - set(known))
    return f"codex knows no option {', '.join(unknown)}; it takes {', '.join(known)}" if unknown else ""


def _code(error: EngineError) -> str:
    match error:
        case NativeSessionBusy():
            return "busy"
        case EngineTimeout():
            return "timeout"
        case _:
            return "crashed"
