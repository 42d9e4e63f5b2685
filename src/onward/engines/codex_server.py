"""One running ``codex app-server``, and the requests of its protocol that an engine needs.

It opens threads (a new one, a known one, a fork of a known one), begins and interrupts turns, and hands on what the
server says. It decides nothing: what is said is translated by ``codex_stream``, and what happens in a turn is the business
of ``codex``.

A thread is unloaded after each turn, also where the process stays for the next one. So an idle process holds no thread
(Codex lets one writer at it, and the next turn may run elsewhere), and every turn gives its own tools, folder and
permissions when it opens the thread again, which takes about 20 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from onward.engines.contract import PermissionMode, Turn
from onward.engines.jsonrpc import Peer, PeerError
from onward.engines.processes import MARK, Child
from onward.errors import EngineError, InvalidInput

START_SECONDS: Final = 60.0
"""For the process to start and introduce itself: a cold disk reads 200 MB first."""
OPEN_SECONDS: Final = 120.0
"""For a thread to be opened: a long one is read from its file."""
INTERRUPT_SECONDS: Final = 2.0
UNLOAD_SECONDS: Final = 2.0
LEAVE_SECONDS: Final = 1.0
COMPACTED_BYTES: Final = 8 * 2**20
"""How far from the end of a thread's file its newest compaction is looked for."""
TOOL_SECONDS: Final = 900
"""How long Codex waits for a tool of ours."""

MODES: Final[dict[PermissionMode, tuple[str, str]]] = {
    "default": ("on-request", "read-only"),
    "accept_edits": ("on-request", "workspace-write"),
    "plan": ("never", "read-only"),
    "full_auto": ("never", "workspace-write"),
    "dangerously_skip_permissions": ("never", "danger-full-access"),
}
"""Approval policy and sandbox of each permission mode. With ``on-request`` Codex asks before it leaves its sandbox."""


_T = TypeVar("_T")


class OutOfTime(Exception):
    """The time of a turn is over. Its own kind, because a tool of ours may raise TimeoutError for reasons of its own."""


async def timed(stream: AsyncIterator[_T], until: float | None) -> AsyncGenerator[_T, None]:
    """Yield a stream until the loop's clock shows ``until``; then raise OutOfTime."""
    while True:
        try:
            async with asyncio.timeout_at(until):
                item = await anext(stream, None)
        except TimeoutError:
            raise OutOfTime from None
        if item is None:
            return
        yield item


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How Codex is started: its words, what is added to its environment, and overrides of its configuration."""

    words: tuple[str, ...]
    env: dict[str, str | None] = {}
    config: dict[str, Any] = {}

    def overrides(self, more: Mapping[str, Any] | None = None) -> list[str]:
        """Return the configuration as arguments: ``-c key=value``, each value as TOML."""
        together = {**self.config, **(more or {})}
        return [word for key, value in together.items() for word in ("-c", f"{key}={toml(value)}")]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A thread that is open."""

    thread: str
    model: str | None = None
    path: str | None = None
    """Its file."""
    signed: bool = False
    """The provider's own items come too (``experimentalRawEvents``, which only a new thread can have)."""


def toml(value: Any) -> str:
    """Return a value as TOML on one line. Raises InvalidInput for what TOML cannot say."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{','.join(toml(one) for one in value)}]"
        case dict():
            return f"{{{','.join(f'{toml(str(key))}={toml(one)}' for key, one in value.items())}}}"
        case _:
            raise InvalidInput(what="a setting of Codex", why=f"{type(value).__name__} has no form in TOML")


def tools_server(command: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
    """Return our server of tools as Codex configures one. It is allowed beforehand: what it does, the platform decides.

    Codex starts such a server with next to no environment, so the mark of our processes is passed on by name.
    """
    return {
        "command": command[0],
        "args": list(command[1:]),
        "env": dict(env),
        "env_vars": [MARK],
        "default_tools_approval_mode": "approve",
        "startup_timeout_sec": 60,
        "tool_timeout_sec": TOOL_SECONDS,
    }


def thread_settings(turn: Turn, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every way to open a thread is told for this turn. ``config`` overrides Codex's configuration in it."""
    approval, sandbox = MODES[turn.permission_mode]
    settings = {"cwd": turn.workdir, "model": turn.model, "approvalPolicy": approval, "sandbox": sandbox}
    given = {key: value for key, value in settings.items() if value is not None}
    return {**given, "config": dict(config)} if config else given


def left_out(turn: Turn) -> dict[str, Any]:
    """Return the configuration that leaves out what the turn may not use; Codex knows that of its web search only."""
    allowed = turn.allowed_tools
    denied = "web_search" in turn.denied_tools or (allowed is not None and "web_search" not in allowed)
    return {"web_search": "disabled"} if denied else {}


class Server:
    """A running app-server. Construct it with ``start``; end it with ``stop``."""

    def __init__(self, child: Child, peer: Peer) -> None:
        self.child, self.peer = child, peer
        self.loop = asyncio.get_running_loop()

    @classmethod
    async def start(cls, setup: Setup, *, cwd: str | None) -> Server:
        """Start Codex and introduce ourselves. Raises EngineError, ProgramMissing or EngineTimeout when that fails."""
        argv = [*setup.words, "app-server", *setup.overrides({"thread_unload_delay_secs": 0})]
        child = await Child.start(argv, cwd=cwd, env=setup.env, name="codex")
        try:
            server = cls(child, Peer(child))
            client = {"name": "onward", "title": "Onward", "version": "1"}
            told = {"clientInfo": client, "capabilities": {"experimentalApi": True}}
            await server.peer.request("initialize", told, timeout=START_SECONDS)
            await server.peer.notify("initialized")
        except PeerError as refused:
            await child.stop(grace=0)
            raise EngineError(engine="codex", why=f"its app-server refused us: {refused.message}") from None
        except BaseException:
            await child.stop(grace=0)
            raise
        return server

    @property
    def alive(self) -> bool:
        """Whether the process runs, and can be talked to from here."""
        return self.child.exit_code is None and self.loop is asyncio.get_running_loop()

    async def start_thread(self, settings: Mapping[str, Any], *, instructions: str = "") -> Opened:
        """Begin a new thread. ``instructions`` become its developer's message, which stays in it."""
        params = {**settings, "experimentalRawEvents": True}
        if instructions:
            params["developerInstructions"] = instructions
        return self._opened(await self._ask("thread/start", params), signed=True)

    async def resume_thread(self, thread: str, settings: Mapping[str, Any]) -> Opened:
        """Open a thread that Codex knows. Raises PeerError if it does not, or somebody else writes in it."""
        asked = {**settings, "threadId": thread, "excludeTurns": True}
        opened = self._opened(await self._ask("thread/resume", asked))
        if opened.thread != thread:
            raise PeerError(-32600, f"it opened {opened.thread} in its place")
        return opened

    async def fork_thread(
        self, thread: str, settings: Mapping[str, Any], *, after: str | None = None
    ) -> Opened:
        """Begin a thread that holds what ``thread`` does, up to and with the turn ``after`` (all of it without).

        Raises PeerError if Codex does not know it, or answers with something else.
        """
        asked = {**settings, "threadId": thread, "excludeTurns": True}
        if after is not None:
            asked["lastTurnId"] = after
        answer = await self._ask("thread/fork", asked)
        opened = self._opened(answer)
        if answer["thread"].get("forkedFromId") != thread:
            raise PeerError(-32600, f"{opened.thread} does not say that it is a fork of it")
        return opened

    async def inject(self, thread: str, items: list[dict[str, Any]]) -> None:
        """Put items of the provider's API behind what the thread holds, without asking the model anything."""
        await self._ask("thread/inject_items", {"threadId": thread, "items": items})

    async def begin(self, thread: str, text: str, more: Mapping[str, Any]) -> str:
        """Begin a turn and return its id. Raises PeerError if that is refused, EngineError without an id."""
        said = [{"type": "text", "text": text}]
        answer = await self._ask("turn/start", {**more, "threadId": thread, "input": said})
        turn = answer.get("turn")
        if not isinstance(turn, dict) or not isinstance(turn.get("id"), str):
            raise EngineError(engine="codex", why="it began a turn and did not say which")
        return str(turn["id"])

    async def interrupt(self, thread: str, turn: str) -> None:
        """Ask that a turn ends. Codex says that it has with ``turn/completed``; commands of it may still run."""
        with contextlib.suppress(PeerError, EngineError):
            told = {"threadId": thread, "turnId": turn}
            await self.peer.request("turn/interrupt", told, timeout=INTERRUPT_SECONDS)

    async def unload(self, thread: str) -> None:
        """Let go of a thread. Codex says that it has with ``thread/closed``. Raises PeerError or EngineError if not."""
        await self.peer.request("thread/unsubscribe", {"threadId": thread}, timeout=UNLOAD_SECONDS)

    async def stop(self) -> None:
        """End it and everything it started: it may go by itself when its input ends, and has to after a moment."""
        try:
            await self.child.close_stdin()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.child.wait(), LEAVE_SECONDS)
        finally:
            await self.child.stop(grace=LEAVE_SECONDS)
            self.peer.close()

    async def leave(self) -> None:
        """Stop it, also when it was started in an event loop that has ended and cannot be asked any more."""
        if self.loop is asyncio.get_running_loop():
            await self.stop()
        else:
            with contextlib.suppress(OSError):
                os.kill(self.child.pid, signal.SIGTERM)

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self.peer.request(method, dict(params), timeout=OPEN_SECONDS)
        return answer if isinstance(answer, dict) else {}

    @staticmethod
    def _opened(answer: Mapping[str, Any], *, signed: bool = False) -> Opened:
        thread = answer.get("thread")
        if not isinstance(thread, dict) or not isinstance(thread.get("id"), str):
            raise EngineError(engine="codex", why="it opened a thread and did not say which")
        model, path = answer.get("model"), thread.get("path")
        return Opened(
            thread=thread["id"],
            model=model if isinstance(model, str) else None,
            path=path if isinstance(path, str) else None,
            signed=signed,
        )


def compaction_summary(path: str) -> str:
    """Return the text of the newest compaction in a thread's file, empty if there is none or it cannot be read.

    The protocol tells only that the context was compacted. The file has it before that is told.
    """
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - COMPACTED_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        if b'"compacted"' in line:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                row = msgspec.json.decode(line)
                if isinstance(row, dict) and row.get("type") == "compacted":
                    return str(row.get("payload", {}).get("message") or "")
    return ""
