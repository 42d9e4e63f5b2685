"""A running pi in RPC mode: commands in, records out, in one conversation that it has confirmed.

pi's protocol is no JSON-RPC: commands are answered by a ``response`` with their id, and everything else that it writes is
an event (pi's documentation, rpc.md). There is one reader, so an answer is waited for by reading on; what comes meanwhile
waits for whoever reads next, and nothing is dropped.

Onward adds itself to pi for one run only, by an extension given on the command line (``pi_extension.mjs``): the person's
own configuration is read as always and never written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from onward.engines.json_lines import loads, said
from onward.engines.processes import Child
from onward.errors import EngineError

EXTENSION: Final = Path(__file__).with_name("pi_extension.mjs")
SERVER: Final = "onward"
"""The name of our MCP server in pi."""
OURS: Final = f"mcp__{SERVER}__"
"""How the names of our tools begin there."""
GATE: Final = "onward: may this tool run?"
"""The title of the question that our extension asks before a tool runs."""
TOOL_SECONDS: Final = 3_600
"""How long pi waits for a tool of ours; its own limit is a minute."""
START_SECONDS: Final = 60.0
"""How long a start may take: extensions and servers of the person are loaded then."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is started with. Turns with an equal one can be taken by the same process."""

    words: tuple[str, ...]
    workdir: str | None = None
    model: str | None = None
    system: str = ""
    thinking: str | None = None
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    tools: bool = False
    """Whether there are tools of ours."""


class Unknown(Exception):
    """pi does not hold the conversation that was asked for; says why."""


class PiProcess:
    """One process of pi. Made by ``start``; ended by ``stop``."""

    def __init__(self, child: Child, scratch: tempfile.TemporaryDirectory[str]) -> None:
        self.child = child
        self.state: dict[str, Any] = {}
        """What pi said of itself at the start."""
        self._scratch = scratch
        self._waiting: deque[bytes] = deque()
        self._asked = 0

    @classmethod
    async def start(
        cls,
        setup: Setup,
        *,
        env: Mapping[str, str | None],
        server: Mapping[str, Any] | None,
        resume: str | None = None,
        new_id: str | None = None,
    ) -> PiProcess:
        """Start pi in a conversation that it holds (``resume``), or in a new one.

        Returns once it has confirmed the conversation. Raises Unknown if it does not hold ``resume`` here, EngineError if it
        does not start, or if ``new_id`` is taken.
        """
        if resume is not None and not _ID.fullmatch(resume):
            raise Unknown(f"{resume!r} is no id of a conversation of pi")
        if new_id is not None and not _ID.fullmatch(new_id):
            raise EngineError(engine="pi", why=f"{new_id!r} cannot be the id of a conversation")
        scratch = tempfile.TemporaryDirectory(prefix="onward-pi-")
        try:
            argv = [*setup.words, "--mode", "rpc", "--extension", str(EXTENSION)]
            argv += ["--session", resume] if resume else ["--session-id", new_id] if new_id else []
            argv += _flags(setup, Path(scratch.name))
            given = {"name": SERVER, "ours": OURS, "gate": GATE, "server": server}
            child = await Child.start(
                argv,
                cwd=setup.workdir,
                env={**env, "ONWARD_PI": msgspec.json.encode(given).decode()},
                name="pi",
            )
        except BaseException:
            scratch.cleanup()
            raise
        process = cls(child, scratch)
        try:
            await process._confirm(resume, new_id)
        except BaseException:
            await process.stop()
            raise
        return process

    @property
    def id(self) -> str:
        """The id of the conversation, as pi says."""
        return str(self.state["sessionId"])

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.child.exit_code is None

    async def _confirm(self, resume: str | None, new_id: str | None) -> None:
        """See which conversation pi is in. Nothing is said to it before."""
        try:
            async with asyncio.timeout(START_SECONDS):
                answer = await self.ask("get_state")
        except (EngineError, TimeoutError) as failed:
            why = self.child.stderr_tail().strip() or (
                str(failed) or f"it did not start within {START_SECONDS:g} s"
            )
            if resume and ("No session found" in why or "Session found in different project" in why):
                raise Unknown(why.splitlines()[0]) from None
            raise EngineError(engine="pi", why=f"it did not start: {why}") from None
        self.state = fields(answer.get("data"))
        found = self.state.get("sessionId")
        if resume and found != resume:
            raise Unknown(f"it opened {found!r} when {resume!r} was asked for")
        if not isinstance(found, str) or (new_id and found != new_id):
            raise EngineError(engine="pi", why=f"it began {found!r} when {new_id!r} was asked for")
        if not resume and self.state.get("messageCount"):
            raise EngineError(engine="pi", why=f"there is a conversation with the id {found!r} already")

    async def send(self, command: Mapping[str, Any]) -> None:
        """Send a command or an answer. Raises EngineError if pi reads no more."""
        await self.child.send(said(command))

    async def begin(self, command: str, **fields: Any) -> str:
        """Send a command; return its id, by which ``answer_to`` knows its answer."""
        self._asked += 1
        id = f"onward-{self._asked}"
        await self.send({"id": id, "type": command, **fields})
        return id

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command and return its answer; events that come before it wait. Raises EngineError if pi ends first."""
        id = await self.begin(command, **fields)
        async with contextlib.aclosing(self.child.lines()) as lines:
            async for line in lines:
                if (answer := answer_to(id, line)) is not None:
                    return answer
                self._waiting.append(line)
        raise EngineError(
            engine="pi", why=f"it ended instead of answering {command}{self.child.last_words()}"
        )

    async def records(self) -> AsyncGenerator[bytes, None]:
        """Yield what pi writes, from where reading was left, until it ends."""
        while self._waiting:
            yield self._waiting.popleft()
        async with contextlib.aclosing(self.child.lines()) as lines:
            async for line in lines:
                yield line

    async def abort(self, seconds: float) -> bool:
        """Tell pi to stop what it is at; return whether it did in time. What it says meanwhile is not told."""
        if not self.alive:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self.ask("clear_queue")
                await self.ask("abort")
        except (EngineError, TimeoutError):
            return False
        self._waiting.clear()
        return True

    async def stop(self) -> None:
        """End it, with everything it started."""
        try:
            await self.child.stop()
        finally:
            self._scratch.cleanup()


def fields(value: Any) -> dict[str, Any]:
    """Return a value as the object that it should be; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def answer_to(id: str, line: bytes) -> dict[str, Any] | None:
    """Return a line if it is the answer to the command with this id."""
    if id.encode() not in line or b'"response"' not in line:
        return None
    with contextlib.suppress(ValueError):
        record = loads(line)
        if isinstance(record, dict) and record.get("type") == "response" and record.get("id") == id:
            return record
    return None


def server_entry(command: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return our MCP server as pi writes one: its tools declared to the model like those of pi itself."""
    return {
        "command": command[0],
        "args": list(command[1:]),
        "env": dict(env),
        "exposure": "direct",
        "timeout": TOOL_SECONDS,
    }


def tool_names(names: Iterable[str]) -> dict[str, str]:
    """Return our tools by the names that pi gives them, which have only letters, digits and underscores."""
    return {OURS + re.sub(r"[^A-Za-z0-9_]", "_", name): name for name in names}


def _flags(setup: Setup, scratch: Path) -> list[str]:
    flags: list[str] = []
    if setup.model:
        flags += ["--model", setup.model]
    if setup.thinking:
        flags += ["--thinking", setup.thinking]
    if setup.allowed is not None:
        flags += ["--tools", ",".join((*setup.allowed, f"{OURS}*"))]
    if setup.denied:
        flags += ["--exclude-tools", ",".join(setup.denied)]
    if setup.system:
        # As a file: an argument may be cut at 128 KiB, and one that is the name of a file would be read as that file.
        path = scratch / "system.md"
        path.write_text(setup.system, encoding="utf-8", errors="replace")
        flags += ["--append-system-prompt", os.fspath(path)]
    return flags
