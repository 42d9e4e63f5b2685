"""JSON-RPC 2.0 by lines, spoken with a child: how app servers and agents with a protocol are driven.

Both sides ask. ``request`` and ``notify`` are ours; what the other side asks or tells comes from ``incoming`` in the order
in which it was written, and so does everything that is neither (``Stray``): an unreadable line, an answer that nobody
waits for. Nothing is dropped, and nothing is answered by itself.

A line is decoded once, leniently: the ``jsonrpc`` member is not asked for, because Codex leaves it out. Incoming messages
wait without a limit while an answer is waited for, which may be behind any number of them; otherwise the other side is made
to wait once ``READ_AHEAD`` bytes of them do, so that one that never stops talking does not fill our memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from onward.engines.json_lines import loads, said
from onward.engines.processes import Child
from onward.errors import EngineError, EngineTimeout

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
READ_AHEAD: Final = 2**20
"""Bytes of messages that wait for a slow reader."""

Id = str | int


class PeerError(Exception):
    """The other side answered a request with an error.

    It is a value of the protocol, for the adapter to translate, and so no ``OnwardError``: ``code`` is the number that
    was sent, ``message`` its sentence, ``data`` whatever came with it.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code, self.message, self.data = code, message, data


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the other side tells."""

    method: str
    params: Any = None
    line: bytes = b""
    """As it came, for the log."""


class Stray(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is no message, or an answer that nobody waits for."""

    line: bytes
    why: str


class Request:
    """Something that the other side asks. Exactly one of ``reply`` and ``refuse`` answers it; further ones do nothing."""

    def __init__(self, peer: Peer, id: Id, method: str, params: Any, line: bytes) -> None:
        self.id, self.method, self.params, self.line = id, method, params, line
        self.answered = False
        self._peer = peer

    async def reply(self, result: Any) -> None:
        """Answer with a result. Raises EngineError if nobody reads it any more."""
        await self._answer({"result": result})

    async def refuse(self, code: int, message: str, data: Any = None) -> None:
        """Answer with an error. Raises EngineError if nobody reads it any more."""
        error = {"code": code, "message": message}
        await self._answer({"error": error if data is None else {**error, "data": data}})

    async def _answer(self, answer: dict[str, Any]) -> None:
        if not self.answered:
            self.answered = True
            await self._peer.write({"jsonrpc": "2.0", "id": self.id, **answer})


Incoming = Notification | Request | Stray


class Peer:
    """The other side of a conversation by JSON-RPC. Needs a running event loop, and is the only reader of its child."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._number = 0
        self._waiting: dict[Id, tuple[str, asyncio.Future[Any]]] = {}
        self._incoming: asyncio.Queue[Incoming | None] = asyncio.Queue()
        self._fault: EngineError | None = None
        self._over = False
        self._held = 0
        """Bytes of the messages that wait."""
        self._room = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def request(
        self,
        method: str,
        params: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is part of the question, and of the error
    ) -> Any:
        """Ask, and return the result.

        Raises PeerError if the answer is an error, EngineTimeout after ``timeout`` seconds, EngineError if the other side
        ends before it answers. An answer that comes after that is a ``Stray``.
        """
        if self._over:
            raise self._gone(method)
        self._number += 1
        number = self._number
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (method, answer)
        self._room.set()
        try:
            async with asyncio.timeout(timeout):
                await self.write({"jsonrpc": "2.0", "id": number, "method": method, **_params(params)})
                return await answer
        except TimeoutError:
            raise EngineTimeout(
                f"{self.child.name} did not answer {method!r} within {timeout} seconds.",
                engine=self.child.name,
                seconds=timeout,
            ) from None
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # it is ours now, even if we were cancelled before we saw it

    async def notify(self, method: str, params: Any = None) -> None:
        """Tell something. Raises EngineError if nobody reads it any more."""
        await self.write({"jsonrpc": "2.0", "method": method, **_params(params)})

    async def write(self, message: dict[str, Any]) -> None:
        """Write one message as it is."""
        await self.child.send(said(message))

    async def incoming(self) -> AsyncGenerator[Incoming, None]:
        """Yield what the other side asks and tells, in order, until its output ends.

        One reader at a time; a later call goes on where an earlier one was left. Raises EngineError if its output cannot
        be read on (a line that is too long).
        """
        while True:
            message = await self._incoming.get()
            if message is None:
                self._incoming.put_nowait(None)
                if self._fault is not None:
                    raise self._fault
                return
            self._held -= len(message.line)
            if self._held <= READ_AHEAD:
                self._room.set()
            yield message

    def close(self) -> None:
        """Read no more, once the other side was stopped. What waits can still be taken."""
        self._reading.cancel()

    async def _read(self) -> None:
        try:
            async for line in self.child.lines():
                self._take(line)
                while self._held > READ_AHEAD and not self._waiting:
                    self._room.clear()
                    await self._room.wait()
        except EngineError as fault:
            self._fault = fault
        finally:
            self._over = True
            for method, answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self._gone(method))
            self._incoming.put_nowait(None)

    def _take(self, line: bytes) -> None:
        """Give a line to whoever waits for it."""
        if not line.strip():
            return
        try:
            message = loads(line)
        except ValueError as unreadable:
            self._stray(line, f"it is not JSON: {unreadable}")
            return
        if not isinstance(message, dict):
            self._stray(line, "it is not a JSON object")
            return
        id, method, params = message.get("id"), message.get("method"), message.get("params")
        if isinstance(method, str) and isinstance(id, str | int):
            self._put(Request(self, id, method, params, line))
        elif isinstance(method, str):
            self._put(Notification(method=method, params=params, line=line))
        elif not isinstance(id, str | int) or not ("result" in message or "error" in message):
            self._stray(line, "it is neither a request nor an answer")
        else:
            self._answered(id, message, line)

    def _answered(self, id: Id, message: dict[str, Any], line: bytes) -> None:
        _, answer = self._waiting.get(id, ("", None))
        if answer is None or answer.done():
            self._stray(line, "it answers nothing that was asked, or too late")
        elif (error := message.get("error")) is not None:
            answer.set_exception(_error(error))
        else:
            answer.set_result(message.get("result"))

    def _stray(self, line: bytes, why: str) -> None:
        self._put(Stray(line=line, why=why))

    def _put(self, message: Incoming) -> None:
        self._held += len(message.line)
        self._incoming.put_nowait(message)

    def _gone(self, method: str) -> EngineError:
        if self._fault is not None:
            return self._fault
        why = f"it ended before it answered {method!r}{self.child.last_words()}"
        return EngineError(engine=self.child.name, why=why)


def _params(params: Any) -> dict[str, Any]:
    return {} if params is None else {"params": params}


def _error(error: Any) -> PeerError:
    """Read the error of an answer. Some peers send less than an object."""
    if not isinstance(error, dict):
        return PeerError(INTERNAL_ERROR, str(error))
    code = error.get("code")
    message = error.get("message")
    return PeerError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "an error without a message",
        error.get("data"),
    )
