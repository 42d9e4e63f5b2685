"""A running Claude Code: started in one conversation, greeted, asked, answered, interrupted, ended.

The greeting is what makes opening a conversation free of cost. An ``initialize`` request is answered only when the
program has the conversation that it was asked for; one that it does not know, or an id that is taken, ends it before any
prompt was sent. So a turn can fall back to something else without the model having seen a word.

The control protocol runs over the same lines: the program asks whether it may use a tool and waits; we ask it to stop.
Questions are answered in tasks of their own, so that reading never waits for a person. The bridge, the configuration
that names it, and the lease on the conversation live exactly as long as the process.

It deliberately decides nothing about openings and fallbacks (``claude_code``), and of what a line means it knows no more
than the control protocol (``claude_stream`` knows the rest).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec

from onward.core.codec import encode, loads
from onward.engines.bridge import Bridge
from onward.engines.calling import Numbers
from onward.engines.claude_ends import Refusal, refusal_of
from onward.engines.claude_stream import Ask, ClaudeTurn, Heard
from onward.engines.contract import Finished, Permission, Signal, ToolAnswered, ToolCalled, Turn
from onward.engines.leases import native_lease
from onward.engines.processes import Child
from onward.errors import EngineError

NAME: Final = "claude-code"
GREETING_SECONDS: Final = 60.0
"""How long the program has to come up. It takes a third of a second, unless the machine is busy."""
TOOLS_SECONDS: Final = 5.0
"""How long a turn waits for the program to connect to our tools before it is asked anything."""
STOP_SECONDS: Final = 2.0
"""How long an interrupted turn has to end by itself."""
LAST_ROWS_SECONDS: Final = 2.0
"""How long the program has to write its last rows and leave, once its input has ended."""
EDITS: Final = frozenset(("Edit", "MultiEdit", "Write", "NotebookEdit"))
"""Its own tools that change files and do nothing else."""
NOBODY: Final = "Nobody can be asked here, and the permission mode does not allow it."
PLANNING: Final = (
    "Only planning is allowed in this turn: nothing is changed or run. Give the plan as your answer."
)
TOO_LONG: Final = Finished(
    status="failed",
    code="timeout",
    reason="Claude Code took longer than its engine option `timeout` allows, and was stopped.",
)
_ABOUT: Final = ("command", "file_path", "notebook_path", "url", "query", "plan", "description", "prompt")
"""Fields of a tool's input that say best what it is about to do, the best first."""
_SUBJECT_CHARACTERS: Final = 200


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is started with. A warm one serves another turn only if that would be started the same."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str | None] = {}
    native_id: str = ""
    resume: bool = False

    def words(self, mcp_config: Path | None) -> list[str]:
        """Return the command line."""
        which = "--resume" if self.resume else "--session-id"
        tools = ["--mcp-config", str(mcp_config)] if mcp_config else []
        return [*self.argv, f"{which}={self.native_id}", *tools]

    def fits(self, other: Launch) -> bool:
        """Whether a process that was started with this could take a turn that would be started with the other."""
        same = msgspec.structs.replace(other, resume=self.resume)
        return same == self


class ClaudeProcess:
    """A program at work in one conversation. Start it with ``start``; end it with ``stop``."""

    def __init__(
        self,
        launch: Launch,
        bridge: Bridge,
        child: Child,
        held: contextlib.AsyncExitStack,
        kept: contextlib.ExitStack,
    ) -> None:
        self.launch, self.bridge, self.child = launch, bridge, child
        self.said: ClaudeTurn | None = None
        """The turn that is being heard, or was heard last."""
        self.end: Finished | None = None
        """How the turn ended."""
        self._held = held
        """The program and the bridge: they belong to an event loop."""
        self._kept = kept
        """The lease and the configuration: they outlive that loop, if it ends before we do."""
        self._early: list[bytes] = []
        """Lines that came before the turn was asked."""
        self._asks: dict[str, asyncio.Task[None]] = {}
        self._broken: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._requests = 0

    @classmethod
    async def start(cls, launch: Launch, turn: Turn, numbers: Numbers) -> ClaudeProcess:
        """Start the program in a conversation that nobody else on this machine works in.

        Raises NativeSessionBusy when somebody does, ProgramMissing and EngineError when it cannot be started.
        """
        with contextlib.ExitStack() as kept:
            kept.enter_context(native_lease(NAME, launch.native_id, who=f"run {turn.run_id}"))
            async with contextlib.AsyncExitStack() as held:
                bridge = await held.enter_async_context(Bridge(turn, numbers=numbers))
                config = _mcp_config(bridge, kept) if turn.tools else None
                child = await Child.start(launch.words(config), cwd=launch.cwd, env=launch.env, name=NAME)
                held.push_async_callback(child.stop)
                return cls(launch, bridge, child, held.pop_all(), kept.pop_all())

    @property
    def native_id(self) -> str:
        """The conversation that it was started in."""
        return self.launch.native_id

    async def greet(self) -> Refusal | None:
        """Wait until it has its conversation open; return why it has not. Nothing is asked of a model by this."""
        id = await self._request({"subtype": "initialize"})
        result: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(GREETING_SECONDS), aclosing(self.child.lines()) as lines:
                async for line in lines:
                    heard = _scan(line)
                    if heard.get("type") == "control_response" and _id(heard) == id:
                        break
                    if heard.get("type") == "result":
                        result = heard
                        continue
                    self._early.append(line)
                else:
                    await self._exited()
                    return refusal_of(result, self.child.stderr_tail())
        except TimeoutError:
            return Refusal(
                kind="other", said=f"it did not answer within {GREETING_SECONDS:.0f} seconds", code="timeout"
            )
        if self.bridge.names:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.bridge.greeted.wait(), TOOLS_SECONDS)
        return None

    async def wake(self, turn: Turn, numbers: Numbers) -> bool:
        """Make a process that waited ready for another turn; return False if it is no longer fit for one.

        What it wrote meanwhile is read first. If it went on by itself (for a task in the background), nobody has heard that,
        and its next result would be taken for ours: then it is not fit.
        """
        if self.child.exit_code is not None or self.child.loop is not asyncio.get_running_loop():
            return False
        await self.bridge.rest()
        self.bridge.renew(turn, numbers=numbers)
        try:
            id = await self._request({"subtype": "interrupt"})
            async with asyncio.timeout(STOP_SECONDS), aclosing(self.child.lines()) as lines:
                async for line in lines:
                    record = _scan(line)
                    if record.get("type") == "control_response" and _id(record) == id:
                        return True
                    if record.get("type") in ("assistant", "stream_event", "result"):
                        return False
                    self._early.append(line)
        except (TimeoutError, EngineError):
            return False
        return False

    async def signals(
        self, text: str, said: ClaudeTurn, turn: Turn, *, deadline: float | None = None
    ) -> AsyncGenerator[Signal]:
        """Give it this user message, and yield what happens, our tools' part included, until the turn ended.

        Then ``end`` says how. The first signal is the start: what comes before it waits. ``deadline`` is a time of the event
        loop; past it, the turn is interrupted.
        """
        self.said, self.end = said, None
        held: list[Signal] = []
        try:
            async with asyncio.timeout_at(deadline):
                await self._send({"type": "user", "message": {"role": "user", "content": text}})
        except EngineError:
            self.end = await self._crashed(said)
            return
        except TimeoutError:  # it reads nothing, so it cannot be asked to stop either
            self.end = TOO_LONG
            return
        try:
            async with aclosing(self.bridge.along(self._heard(said, turn, deadline))) as along:
                async for item in along:
                    if isinstance(item, ToolCalled | ToolAnswered):
                        yield item
                        continue
                    if self.bridge.ending:
                        continue  # nothing is told after the answer of the tool that ended the turn
                    if not said.begun:
                        held.extend(item.signals)
                    else:
                        for signal in (*item.signals, *held):
                            yield signal
                        held.clear()
                    for name in item.ours:
                        self.bridge.saw(name)
                    if item.end is not None:
                        self.end = item.end
                        return
            if self.bridge.ended.is_set():
                await self.interrupt()
                self.end = Finished(status="continued", reason="One of its tools ended the turn.")
            else:
                self.end = await self._crashed(said)
        except TimeoutError:
            await self.interrupt()
            self.end = TOO_LONG
        except EngineError as failed:
            self.end = Finished(status="failed", code="protocol", reason=failed.message)

    async def rest_of(self, said: ClaudeTurn) -> tuple[Signal, ...]:
        """End its input, and return what it still says: the last rows of its own file."""
        found: list[Signal] = []
        await self.child.close_stdin()
        with contextlib.suppress(TimeoutError, EngineError):
            async with asyncio.timeout(LAST_ROWS_SECONDS), aclosing(self.child.lines()) as lines:
                async for line in lines:
                    found.extend(said.hear(line).signals)
        return tuple(found)

    async def interrupt(self) -> bool:
        """Ask it to stop, and wait a moment until it has; return whether it did. What it says meanwhile is not told.

        This lets it end its tools itself and write into its own file that the turn was cut short.
        """
        said = self.said
        if said is None or not said.begun or self.child.exit_code is not None:
            return False
        said.interrupting = True
        with contextlib.suppress(TimeoutError, EngineError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._request({"subtype": "interrupt"})
                async with aclosing(self.child.lines()) as lines:
                    async for line in lines:
                        if said.hear(line).end is not None:
                            return True
        return False

    async def stop(self) -> None:
        """End it and everything it started, and give up the conversation. Safe to call twice."""
        try:
            if self.child.loop is not asyncio.get_running_loop():
                await self.child.stop()
                return
            asked = tuple(self._asks.values())
            for task in asked:
                task.cancel()
            await self._held.aclose()
            await asyncio.gather(*asked, return_exceptions=True)
        finally:
            self._kept.close()

    # The lines

    async def _heard(self, said: ClaudeTurn, turn: Turn, deadline: float | None) -> AsyncIterator[Heard]:
        early, self._early = self._early, []
        for before in early:
            yield said.hear(before)
        loop = asyncio.get_running_loop()
        async with aclosing(self.child.lines()) as lines:
            while True:
                following = asyncio.ensure_future(_next(lines))
                try:
                    left = None if deadline is None else max(0.0, deadline - loop.time())
                    waited: set[asyncio.Future[Any]] = {following, self._broken}
                    await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not following.done():
                        following.cancel()
                        await asyncio.wait((following,))
                if self._broken.done():
                    raise self._broken.result()
                if following.cancelled():
                    raise TimeoutError
                line = following.result()
                if line is None:
                    return
                heard = said.hear(line)
                if heard.ask is not None:
                    self._answer(heard.ask, said, turn)
                if heard.withdrawn is not None and (task := self._asks.pop(heard.withdrawn, None)):
                    task.cancel()
                yield heard

    async def _crashed(self, said: ClaudeTurn) -> Finished:
        """Return how a turn ended that nobody ended: the program is gone, or has closed its output."""
        code = await self._exited()
        how = (
            "closed its output"
            if code is None
            else f"was killed by signal {-code}"
            if code < 0
            else f"exited with {code}"
        )
        return Finished(
            status="failed",
            code="crashed",
            reason=f"Claude Code {how} without saying how its turn ended{self.child.last_words()}.",
            retryable=not said.acted,
        )

    async def _exited(self) -> int | None:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self.child.wait(), 1.0)
        return None

    async def _request(self, request: dict[str, Any]) -> str:
        self._requests += 1
        id = f"onward-{self._requests}"
        await self._send({"type": "control_request", "request_id": id, "request": request})
        return id

    async def _send(self, message: dict[str, Any]) -> None:
        await self.child.send(encode(message))

    # Its questions

    def _answer(self, ask: Ask, said: ClaudeTurn, turn: Turn) -> None:
        task = asyncio.ensure_future(self._reply(ask, said, turn))
        self._asks[ask.id] = task
        task.add_done_callback(lambda _: self._asks.pop(ask.id, None))

    async def _reply(self, ask: Ask, said: ClaudeTurn, turn: Turn) -> None:
        try:
            if ask.subtype != "can_use_tool":
                error = f"{ask.subtype} is not answered here"
                body: dict[str, Any] = {"subtype": "error", "request_id": ask.id, "error": error}
            else:
                allowed = await self._may(ask.request, said, turn)
                body = {"subtype": "success", "request_id": ask.id, "response": allowed}
            await self._send({"type": "control_response", "response": body})
        except EngineError:
            return  # it reads no more, which whoever reads its lines finds out
        except Exception as raised:  # noqa: BLE001 - it belongs to whoever may permit (a lost lease): see `_heard`
            if not self._broken.done():
                self._broken.set_result(raised)

    async def _may(self, request: dict[str, Any], said: ClaudeTurn, turn: Turn) -> dict[str, Any]:
        tool, given = str(request.get("tool_name") or ""), request.get("input")
        if turn.permission_mode == "plan":
            return {"behavior": "deny", "message": PLANNING}
        if turn.permit is None:
            return {"behavior": "deny", "message": NOBODY}
        answer = await turn.permit(
            Permission(
                subject=subject_of(tool, given),
                tool=tool,
                input=given,
                call=said.call_of(request.get("tool_use_id")),
                edits=tool in EDITS,
            )
        )
        if answer.granted:
            return {"behavior": "allow", "updatedInput": given}
        return {"behavior": "deny", "message": answer.note or "It was not permitted."}


def subject_of(tool: str, given: Any) -> str:
    """Return what a call is about to do, in a line for a person: the tool, and the part of its input that says most."""
    about = (
        next((given[name] for name in _ABOUT if isinstance(given.get(name), str)), "")
        if isinstance(given, dict)
        else ""
    )
    line = " ".join(f"{tool}: {about}".split() if about else [tool])
    return line if len(line) <= _SUBJECT_CHARACTERS else f"{line[: _SUBJECT_CHARACTERS - 1]}…"


def _mcp_config(bridge: Bridge, kept: contextlib.ExitStack) -> Path:
    """Write the configuration that names our tools, for the user alone: it holds the bridge's secret."""
    folder = Path(tempfile.mkdtemp(prefix="onward-"))
    kept.callback(shutil.rmtree, folder, ignore_errors=True)
    command, *words = bridge.command
    server = {"type": "stdio", "command": command, "args": words, "env": bridge.env, "alwaysLoad": True}
    path = folder / "mcp.json"
    path.write_bytes(encode({"mcpServers": {bridge.server: server}}))
    return path


def _scan(line: bytes) -> dict[str, Any]:
    try:
        record = loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _id(record: dict[str, Any]) -> Any:
    response = record.get("response")
    return response.get("request_id") if isinstance(response, dict) else None


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    return await anext(lines, None)


def listed(flag: str, values: Sequence[str]) -> list[str]:
    """Return a flag that takes a list of values, each as a word of its own; nothing for an empty list.

    Raises ValueError for a value that would be taken for another flag, and so for a permission that nobody gave.
    """
    if flags := [value for value in values if value.startswith("-")]:
        raise ValueError(f"{flags[0]!r} is no name of a tool of Claude Code.")
    return [flag, *values] if values else []
