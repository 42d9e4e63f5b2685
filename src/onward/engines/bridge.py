"""The bridge: the tools of a turn, offered to an engine as an MCP server over its standard streams.

The engine starts ``command`` with ``env``; that program (``bridge_client``) connects back over loopback, proves itself
with the turn's secret, and carries the lines. So the tools run here, in the process that owns the turn, and there may
be any number of connections: some engines start their servers several times.

The order is the invariant, the same as in ``calling``: a call waits until the engine's own stream has shown it (``saw``,
at most ``SAW_SECONDS``), so that text said before it is logged before it; ``ToolCalled`` goes into ``signals``; only when
the adapter says that it is ``logged`` does the tool run; ``ToolAnswered`` goes into ``signals``; the engine is answered;
and only then is ``ended`` set, if the tool ended the turn. An adapter that uses ``along`` gets all of that by reading.

The part of the protocol that a server of tools needs is small and written out here, because the library costs an engine
more than half a second at every start (docs/decisions/0010). Everything else is refused by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from onward.core.version import VERSION
from onward.engines import bridge_client
from onward.engines.bridge_client import ADDRESS, DELIVERED, SECRET
from onward.engines.calling import Numbers, answer
from onward.engines.contract import ToolAnswered, ToolCalled, ToolOutcome, Turn
from onward.engines.json_lines import loads, said
from onward.engines.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from onward.engines.mcp_words import outcome_words, provider_call, revision, text_result, tool_words

SAW_SECONDS: Final = 0.5
"""How long a call waits for the engine's own stream to show it. Then it goes on without."""
DELIVERY_SECONDS: Final = 1.0
"""How long the end of a turn waits for the answer before it to reach the engine."""
GREETING_SECONDS: Final = 5.0
"""How long a connection has to say the secret."""
LONGEST_LINE: Final = 16 * 2**20
CLOSING_SECONDS: Final = 2.0
OVER: Final = "The turn is over: {name} was not called."
STOPPED: Final = "The turn was stopped while {name} was at work. Whether it had an effect is not known."

_T = TypeVar("_T")


class _Taken:
    """The turn that is being taken."""

    def __init__(self, turn: Turn, numbers: Numbers | None) -> None:
        self.turn = turn
        self.numbers = numbers or Numbers(turn.run_id)
        self.signals: asyncio.Queue[ToolCalled | ToolAnswered] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.stirred = asyncio.Event()
        """One of the three has changed."""
        self._over = False
        self.calls: set[asyncio.Task[None]] = set()
        self.withheld: list[Callable[[], None]] = []
        """Answers that the engine gets only when the turn is over."""
        self.logged: dict[str, asyncio.Event] = {}
        self._asked: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._seeing = asyncio.Event()

    def over(self) -> bool:
        """Whether no call begins any more."""
        return self._over

    def close(self) -> None:
        """Let no further call begin."""
        self._over = True

    def say(self, signal: ToolCalled | ToolAnswered) -> None:
        """Let the adapter have a signal."""
        self.signals.put_nowait(signal)
        self.stirred.set()

    def end(self) -> None:
        """A tool ended the turn."""
        self.ended.set()
        self.stirred.set()

    def fail(self, raised: BaseException) -> None:
        """A tool raised."""
        self.close()
        if not self.failed.done():
            self.failed.set_result(raised)
        self.stirred.set()

    def saw(self, name: str) -> None:
        """Count a call that the stream has shown."""
        self._seen[name] += 1
        seeing, self._seeing = self._seeing, asyncio.Event()
        seeing.set()

    async def seen(self, name: str) -> None:
        """Wait until the stream has shown as many calls of this tool as have come by the bridge, this one included."""
        self._asked[name] += 1
        mine = self._asked[name]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SAW_SECONDS):
                while self._seen[name] < mine:
                    await self._seeing.wait()


class _Link:
    """One connection of an engine's server program."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.known = False
        """It has said the secret."""
        self.calls: set[asyncio.Task[None]] = set()
        self._reader, self._writer = reader, writer
        self._sent = self._delivered = 0
        self._progress = asyncio.Event()
        self._finished = False

    async def greeting(self, length: int) -> bytes:
        """Return the first line, which has this many bytes; less if there are less."""
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as short:
            return short.partial

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the engine's lines; what the program reports about delivery is noted on the way."""
        try:
            while line := await self._reader.readline():
                if line.startswith(DELIVERED) and line[1:].strip().isdigit():
                    self._delivered = int(line[1:])
                    self._progress.set()
                elif line.strip():
                    yield line
        except ValueError:
            self.refuse(None, INVALID_REQUEST, f"a message may have at most {LONGEST_LINE} bytes")
        finally:
            self._reader.feed_eof()
            self._progress.set()

    def reply(self, id: Any, result: dict[str, Any]) -> None:
        """Answer a request."""
        self.send({"jsonrpc": "2.0", "id": id, "result": result})

    def refuse(self, id: Any, code: int, message: str) -> None:
        """Answer a request with an error."""
        self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the engine; without an engine it goes nowhere."""
        if not self._finished and not self._writer.is_closing():
            line = said(message) + b"\n"
            self._sent += len(line)
            self._writer.write(line)

    async def delivered(self) -> None:
        """Wait until everything sent so far is in the engine's input, or will not get there."""
        goal = self._sent
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DELIVERY_SECONDS):
                while self._delivered < goal and not self._reader.at_eof():
                    self._progress.clear()
                    await self._progress.wait()

    def finish(self) -> None:
        """Say no more, and let the program end the connection once it has read everything.

        Closing it here instead could take away what it has not read yet.
        """
        if self._finished or self._writer.is_closing():
            return
        self._finished = True
        if self.known:
            self._writer.write_eof()
        else:
            self._writer.transport.abort()

    async def close(self) -> None:
        """Send what is still to be sent, and end the connection."""
        self._finished = True
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                self._writer.close()
                await self._writer.wait_closed()
        self._writer.transport.abort()


class Bridge:
    """Offers the tools of a turn. An asynchronous context; ``command``, ``env`` and the rest are there inside it.

    ``server`` is the name of the MCP server in the engine's configuration; ``numbers`` gives the ids of calls and is
    shared with the adapter. Several calls at once are answered each on its own.

    When a tool raises (a lost lease), the engine gets no answer and the exception is the result of ``failed``; the
    adapter has to stop the engine and raise it. ``along`` does raise it.
    """

    def __init__(self, turn: Turn, *, server: str = "onward", numbers: Numbers | None = None) -> None:
        self.server = server
        self.command: tuple[str, ...] = (sys.executable, "-I", "-S", os.path.abspath(bridge_client.__file__))
        self.env: dict[str, str] = {}
        self.greeted = asyncio.Event()
        """An engine has connected and asked for the protocol. One that never does has no tools of ours."""
        self._first = (turn, numbers)
        self._secret = secrets.token_hex(32)
        self._links: dict[_Link, asyncio.Task[Any]] = {}
        self._listening: asyncio.Server | None = None
        self._taken: _Taken | None = None

    async def __aenter__(self) -> Self:
        self._taken = _Taken(*self._first)
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=LONGEST_LINE)
        host, port = self._listening.sockets[0].getsockname()[:2]
        self.env.update({ADDRESS: f"{host}:{port}", SECRET: self._secret})
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.rest()
        finally:
            if self._listening is not None:
                self._listening.close()
            links = dict(self._links)
            for link in links:
                link.finish()
            if links:
                await asyncio.wait(links.values(), timeout=CLOSING_SECONDS)
            await asyncio.gather(*(link.close() for link in self._links))

    @property
    def _now(self) -> _Taken:
        if self._taken is None:
            raise RuntimeError("the bridge is an asynchronous context: `async with Bridge(turn) as bridge`")
        return self._taken

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tool.name for tool in (self._taken.turn if self._taken else self._first[0]).tools)

    @property
    def numbers(self) -> Numbers:
        """What gives the ids of this turn's calls."""
        return self._now.numbers

    @property
    def signals(self) -> asyncio.Queue[ToolCalled | ToolAnswered]:
        """What happened with our tools, in order. The only source of it: engines' own reports of them are ignored."""
        return self._now.signals

    @property
    def ended(self) -> asyncio.Event:
        """A tool ended the turn, and the engine has had its answer."""
        return self._now.ended

    @property
    def ending(self) -> bool:
        """No call begins any more: a tool has ended the turn and its answer is on its way, or it raised, or ``rest`` began.

        What the engine says from here on is not part of the turn.
        """
        return self._now.over()

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Done when a tool raised; the result is what it raised."""
        return self._now.failed

    def saw(self, name: str) -> None:
        """The engine's own stream has shown one more call of this tool, and what came before it is logged."""
        self._now.saw(name)

    async def logged(self, signal: ToolCalled | ToolAnswered) -> None:
        """The signal is in the log: a tool that was called runs now."""
        if (event := self._now.logged.get(signal.call)) is not None:
            event.set()

    async def along(self, stream: AsyncIterator[_T]) -> AsyncGenerator[_T | ToolCalled | ToolAnswered, None]:
        """Yield a stream together with the signals about our tools, each as it comes; signals first where both are there.

        Whoever reads it logs a signal before asking for the next, and calls ``saw``. It ends when the stream does, or when
        a tool ended the turn (see ``ended``); the stream can then be read on by another call of what made it. Raises what
        a tool raised, and what the stream raises.
        """
        taken = self._now
        following: asyncio.Task[_T] | None = None
        try:
            while True:
                taken.stirred.clear()
                while not taken.signals.empty():
                    signal = taken.signals.get_nowait()
                    yield signal
                    await self.logged(signal)
                if taken.failed.done():
                    raise taken.failed.result()
                if following is not None and following.done():  # what was taken from the stream is never lost
                    done, following = following, None
                    try:
                        item = done.result()
                    except StopAsyncIteration:
                        return
                    yield item
                    continue
                if taken.ended.is_set():
                    return
                if following is None:
                    following = asyncio.ensure_future(_next(stream))
                stirred = asyncio.ensure_future(taken.stirred.wait())
                try:
                    await asyncio.wait({stirred, following}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    stirred.cancel()
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    def renew(self, turn: Turn, *, numbers: Numbers | None = None) -> None:
        """Offer the tools of the next turn to the same engine, which was kept running. Call ``rest`` before."""
        before, self._taken = self.names, _Taken(turn, numbers)
        if self.names != before:
            for link in filter(lambda link: link.known, self._links):
                link.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    async def rest(self) -> None:
        """End the turn: calls that are still at work are cancelled and answered with an error, further ones refused."""
        taken = self._taken
        if taken is None:
            return
        taken.close()
        calls = tuple(taken.calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=CLOSING_SECONDS)
        while taken.withheld:
            taken.withheld.pop()()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer)
        handler = asyncio.current_task()
        assert handler is not None
        self._links[link] = handler
        try:
            greeting = f"{self._secret}\n".encode()
            link.known = hmac.compare_digest(await link.greeting(len(greeting)), greeting)
            if not link.known:
                return
            async for line in link.lines():
                self._heard(link, line)
            # The engine says no more, but may still wait for what it asked.
            if link.calls:
                await asyncio.wait(tuple(link.calls))
        except (OSError, TimeoutError):
            return  # the connection broke, or nothing was said on it
        finally:
            await link.close()
            del self._links[link]

    def _heard(self, link: _Link, line: bytes) -> None:
        """Answer one message of an engine, or begin to."""
        try:
            message = loads(line)
        except ValueError as unreadable:
            link.refuse(None, PARSE_ERROR, f"not JSON: {unreadable}")
            return
        if not isinstance(message, dict):
            link.refuse(None, INVALID_REQUEST, "a message is one JSON object; batches are not part of MCP")
            return
        method, id, params = message.get("method"), message.get("id"), message.get("params")
        if id is None or not isinstance(method, str):
            return  # a notification (initialized, cancelled: what a call does cannot be taken back), or an answer
        params = params if isinstance(params, dict) else {}
        match method:
            case "initialize":
                self.greeted.set()
                link.reply(id, self._greeting(params))
            case "ping":
                link.reply(id, {})
            case "tools/list":
                link.reply(id, {"tools": [tool_words(tool) for tool in self._now.turn.tools]})
            case "tools/call" if isinstance(params.get("name"), str):
                taken = self._now
                call = asyncio.ensure_future(self._call(taken, link, id, params))
                for calls in (taken.calls, link.calls):
                    calls.add(call)
                    call.add_done_callback(calls.discard)
            case "tools/call":
                link.refuse(id, INVALID_PARAMS, "tools/call needs the name of a tool")
            case _:
                link.refuse(id, METHOD_NOT_FOUND, f"{method} is not offered here: this server has tools only")

    def _greeting(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": revision(params.get("protocolVersion")),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": self.server, "version": VERSION},
        }

    async def _call(self, taken: _Taken, link: _Link, id: Any, params: dict[str, Any]) -> None:
        name: str = params["name"]
        if taken.over():
            link.reply(id, text_result(OVER.format(name=name), error=True))
            return
        answer_with: str | None = OVER
        try:
            await taken.seen(name)
            if taken.over():
                link.reply(id, text_result(OVER.format(name=name), error=True))
                return
            called = ToolCalled(
                call=taken.numbers.next(),
                name=name,
                input={} if params.get("arguments") is None else params["arguments"],
                provider_call=provider_call(params.get("_meta")),
                ours=True,
            )
            logged = taken.logged[called.call] = asyncio.Event()
            taken.say(called)
            await logged.wait()
            answer_with = STOPPED
            answered, end = await answer(taken.turn, called)
            if end is not None:
                taken.close()
            taken.say(answered)
            link.reply(id, outcome_words(ToolOutcome(output=answered.output, status=_status(answered))))
            answer_with = None
            if end is not None:
                await link.delivered()
                taken.end()
        except asyncio.CancelledError:
            if answer_with is not None:
                link.reply(id, text_result(answer_with.format(name=name), error=True))
            raise
        except Exception as raised:  # noqa: BLE001 - a tool's exception belongs to whoever offers it: see `failed`
            # An answer would let the engine go on. It gets one when the turn is over.
            taken.withheld.append(lambda: link.reply(id, text_result(STOPPED.format(name=name), error=True)))
            taken.fail(raised)


def _status(answered: ToolAnswered) -> Literal["ok", "error"]:
    return "ok" if answered.status == "ok" else "error"


async def _next(stream: AsyncIterator[_T]) -> _T:
    return await anext(stream)
