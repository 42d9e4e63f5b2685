"""Claude Code, as a guest: its own conversations resumed, restored or begun anew, one process a turn or one kept warm.

What decides how a turn opens is in ``_opened``: resume what was asked for; else, where we hold its rows, give them back and
resume that; else begin a conversation with an id that the log has already, the brief in front of the input in one user
message. Every step is confirmed by the program before anything is sent to a model, and ``Started`` says what it was.
With ``native_only`` there is no second step (invariant O5).

The program is driven by ``claude -p`` with ``stream-json`` both ways, so that it can be interrupted and can ask. A person's
own settings, hooks and MCP servers stay in force: this is their Claude Code. Permission modes: ``default`` is what the
person's settings say; ``accept_edits`` is its own mode; so is ``plan``, in which whatever it asks for is refused;
``full_auto`` edits files and runs commands in its sandbox, where there is one (without, commands are asked about);
``dangerously_skip_permissions`` asks nothing.

It deliberately leaves the reading of lines to ``claude_stream``, the process to ``claude_process`` and the program's own
files to ``claude_native``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from onward.engines import claude_native
from onward.engines.calling import Numbers
from onward.engines.claude_costs import Spent
from onward.engines.claude_ends import Refusal
from onward.engines.claude_process import NAME, ClaudeProcess, Launch, listed
from onward.engines.claude_stream import ClaudeTurn
from onward.engines.contract import (
    Awake,
    Capabilities,
    Finished,
    Mirrored,
    Signal,
    Started,
    Turn,
)
from onward.engines.processes import program
from onward.errors import EngineError, NativeSessionBusy, ProgramMissing

PROGRAM: Final = "claude"
SPEAKS: Final = (
    "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
    "--include-partial-messages", "--session-mirror", "--permission-prompt-tool", "stdio",
)  # fmt: skip
INHERITED: Final[dict[str, str | None]] = {"CLAUDECODE": None, "CLAUDE_CODE_SESSION_ID": None}
"""What Claude Code tells its own children. Where we are one of them, ours must not take themselves for its children."""
SANDBOX: Final = '{"sandbox":{"enabled":true,"autoAllowBashIfSandboxed":true}}'
MODES: Final[dict[str, tuple[str, ...]]] = {
    "default": (),
    "accept_edits": ("--permission-mode", "acceptEdits"),
    "plan": ("--permission-mode", "plan"),
    "full_auto": ("--permission-mode", "acceptEdits", "--settings", SANDBOX),
    "dangerously_skip_permissions": ("--permission-mode", "bypassPermissions"),
}
UNANSWERABLE: Final = "AskUserQuestion"
"""A tool of its own that needs a person in front of it; without it, the model asks in its answer."""
LEAVES_PLANNING: Final = "ExitPlanMode"
"""A tool of its own that asks to carry the plan out; without it, the plan is the answer."""
OPTIONS: Final[dict[str, tuple[str, type | tuple[type, ...]]]] = {
    "effort": ("--effort", str),
    "max_turns": ("--max-turns", int),
    "max_budget_usd": ("--max-budget-usd", (int, float)),
    "fallback_model": ("--fallback-model", str),
}
"""What ``turn.options`` may set for a turn."""

UNKNOWN: Final = "Claude Code does not know the conversation that it was asked to resume on this machine."
RESTORED: Final = f"{UNKNOWN} Its rows, as it had written them, were given back to it."
PREFERRED: Final = (
    "The record of its conversation was asked for; Claude Code was given it back as it had written it."
)
NOT_OVER: Final = (
    "The record of its conversation was asked for, but Claude Code has a file of it on this machine, which is never "
    "overwritten; it resumed that."
)
TAKEN: Final = "The id that was chosen for its conversation is taken, so it has another."


class _Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has its conversation open, and what is to be said in it."""

    process: ClaudeProcess
    said: ClaudeTurn
    text: str
    first: tuple[Signal, ...] = ()


class ClaudeCodeEngine:
    """Claude Code, as a guest. ``docs/engines.md`` lists the options.

    ``program`` is the path of the program, or the words that start it; ``env`` is added to its environment; ``warm`` keeps
    its process between the turns of a session; ``timeout`` is in seconds for a turn, None for none; ``strict_mcp`` leaves
    the person's own MCP servers out; ``arguments`` are further words of its command line. ``new_id`` makes the id of a
    conversation where the turn brings none.
    """

    name: Final = NAME
    capabilities: Final = Capabilities(
        memory=True,
        reads="text",
        chooses_id=True,
        restore=True,
        tools=True,
        streaming=True,
        permissions=True,
        acts=True,
    )

    def __init__(
        self,
        *,
        program: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        warm: bool = False,
        timeout: float | None = None,
        strict_mcp: bool = False,
        arguments: Sequence[str] = (),
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._program = program if program is None or isinstance(program, str) else tuple(program)
        self._env: dict[str, str | None] = {**INHERITED, **(env or {})}
        self._warm, self._timeout, self._strict = warm, timeout, strict_mcp
        self._arguments, self._new_id = tuple(arguments), new_id
        self._waiting: dict[str, tuple[ClaudeProcess, float]] = {}

    @property
    def config(self) -> Path:
        """The configuration folder that the program works with."""
        return claude_native.config_folder(self._env)

    def unavailable(self) -> str | None:
        if program(PROGRAM, self._program) is not None:
            return None
        named = PROGRAM if self._program is None else self._program
        return (
            f"there is no program {named!r} here; install Claude Code (npm install -g @anthropic-ai/claude-code), "
            "or say where it is with the engine option `program`"
        )

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Take a turn. Stopping it interrupts Claude Code first, then ends it with everything that it started."""
        deadline = None if self._timeout is None else asyncio.get_running_loop().time() + self._timeout
        process: ClaudeProcess | None = None
        try:
            opened = await self._opened(turn)
            if isinstance(opened, Finished):
                yield opened
                return
            process, said = opened.process, opened.said
            first = opened.first
            async with aclosing(process.signals(opened.text, said, turn, deadline=deadline)) as signals:
                async for signal in signals:
                    yield signal
                    for more in first:
                        yield more
                    first = ()
            end = process.end or Finished(status="failed", code="unknown", reason="It ended without an end.")
            if self._warm and end.status == "completed":
                self._waiting[turn.session_id], process = (process, time.monotonic()), None
            elif end.status == "continued":
                await self._stop(process)  # nothing is told after that
            else:
                if said.begun:
                    for signal in await process.rest_of(said):
                        yield signal
                await self._stop(process)
            yield end
        except EngineError as failed:
            yield _failed(failed)
        finally:
            if process is not None:
                await self._stop(process, gently=True)

    async def _stop(self, process: ClaudeProcess, *, gently: bool = False) -> None:
        try:
            if gently and process.end is None:
                await process.interrupt()
        finally:
            await process.stop()

    # Opening

    async def _opened(self, turn: Turn) -> _Opened | Finished:
        """Open the conversation of this turn, or say why there is none. Nothing was sent to a model yet."""
        words = program(PROGRAM, self._program)
        if words is None:
            return Finished(
                status="failed", code="not_installed", reason=f"Claude Code: {self.unavailable()}."
            )
        try:
            argv = (*words, *SPEAKS, *self._words(turn))
        except ValueError as wrong:
            return Finished(status="failed", code="invalid_request", reason=str(wrong))
        launch = Launch(argv=argv, cwd=turn.workdir, env=self._env)
        kept = await self._woken(turn, launch)
        if kept is not None:
            return kept
        why = ""
        if turn.native is not None:
            opened = await self._native(turn, launch, turn.native.id)
            if not isinstance(opened, Refusal):
                return opened
            if opened.kind != "unknown":
                return _refused(opened)
            if turn.native_only:
                return Finished(status="failed", code="resume_refused", reason=UNKNOWN)
            why = UNKNOWN
        return await self._new(turn, launch, why)

    async def _native(self, turn: Turn, launch: Launch, native_id: str) -> _Opened | Refusal | Finished:
        """Resume a conversation; where the program does not know it and we hold its rows, give them back first."""
        if not claude_native.is_id(native_id):
            return Refusal(kind="unknown", said=f"{native_id!r} is no id of a conversation")
        if (pid := await asyncio.to_thread(claude_native.live_writer, self.config, native_id)) is not None:
            raise NativeSessionBusy(engine=NAME, native=native_id, holder=f"process {pid} on this machine")
        there = await asyncio.to_thread(claude_native.find, self.config, native_id)
        started = Started(resumed=True)
        if turn.prefer_recorded and turn.recorded and not turn.native_only:
            if there is None:
                return await self._restored(turn, launch, native_id, PREFERRED)
            started = Started(resumed=True, why=NOT_OVER)
        spent = await asyncio.to_thread(claude_native.spent_before, self.config, native_id)
        missed = await asyncio.to_thread(claude_native.unmirrored, self.config, native_id, turn.recorded)
        launch = msgspec.structs.replace(launch, native_id=native_id, resume=True)
        opened = await self._attempt(turn, launch, started, spent=spent, first=missed)
        unknown = isinstance(opened, Refusal) and opened.kind == "unknown"
        if unknown and turn.recorded and not turn.native_only:
            return await self._restored(turn, launch, native_id, RESTORED)
        return opened

    async def _restored(self, turn: Turn, launch: Launch, native_id: str, why: str) -> _Opened | Refusal:
        """Give a conversation back from our record, and resume it. What cannot be given back is as good as unknown."""
        launch = msgspec.structs.replace(launch, native_id=native_id, resume=True)
        workdir = turn.workdir or str(Path.cwd())
        try:
            written = await asyncio.to_thread(
                claude_native.restore, self.config, workdir, native_id, turn.recorded
            )
        except EngineError as cannot:
            return Refusal(kind="unknown", said=cannot.message)
        spent = await asyncio.to_thread(claude_native.spent_before, self.config, native_id)
        opened = await self._attempt(turn, launch, Started(restored=True, why=why), spent=spent)
        if isinstance(opened, Refusal):
            claude_native.take_back(written)
        return opened

    async def _new(self, turn: Turn, launch: Launch, why: str) -> _Opened | Finished:
        """Begin a conversation, the brief in front of the input."""
        brief = turn.brief if turn.brief.strip() else ""
        started = Started(briefed=bool(brief), why=why)
        text = f"{brief}\n\n{turn.input}" if brief else turn.input
        wanted = turn.new_id if turn.new_id and claude_native.is_id(turn.new_id) else self._new_id()
        launch = msgspec.structs.replace(launch, native_id=wanted, resume=False)
        opened = await self._attempt(turn, launch, started, text=text)
        if isinstance(opened, Refusal) and opened.kind == "taken":
            launch = msgspec.structs.replace(launch, native_id=self._new_id())
            started = msgspec.structs.replace(started, why=f"{why} {TAKEN}".strip())
            opened = await self._attempt(turn, launch, started, text=text)
        return _refused(opened) if isinstance(opened, Refusal) else opened

    async def _attempt(
        self,
        turn: Turn,
        launch: Launch,
        started: Started,
        *,
        text: str | None = None,
        spent: Spent | None = None,
        first: tuple[Mirrored, ...] = (),
    ) -> _Opened | Refusal:
        """Start the program and greet it. What it is not needed for is ended here."""
        numbers = Numbers(turn.run_id)
        process = await ClaudeProcess.start(launch, turn, numbers)
        opened = False
        try:
            refusal = await process.greet()
            opened = refusal is None
        finally:
            if not opened:
                await process.stop()
        if refusal is not None:
            return refusal
        said = _hearing(launch.native_id, numbers, started, process, spent)
        return _Opened(process=process, said=said, text=turn.input if text is None else text, first=first)

    def _words(self, turn: Turn) -> list[str]:
        """Return the words of the command line that this turn asks for. Raises ValueError for options nobody knows."""
        words = [*self._arguments, *MODES[turn.permission_mode]]
        words += ["--model", turn.model] if turn.model else []
        words += ["--append-system-prompt", turn.system] if turn.system else []
        words += ["--strict-mcp-config"] if self._strict else []
        words += ["--tools", ""] if turn.allowed_tools == () else []
        ours = [f"mcp__onward__{tool.name}" for tool in turn.tools]
        words += listed("--allowedTools", [*ours, *(turn.allowed_tools or ())])
        leaving = [LEAVES_PLANNING] if turn.permission_mode == "plan" else []
        words += listed("--disallowedTools", [UNANSWERABLE, *leaving, *turn.denied_tools])
        if unknown := sorted(set(turn.options) - set(OPTIONS)):
            raise ValueError(
                f"Claude Code takes no option {', '.join(unknown)}; it takes {', '.join(OPTIONS)}."
            )
        for name, value in turn.options.items():
            flag, kind = OPTIONS[name]
            if not isinstance(value, kind) or isinstance(value, bool) or str(value).startswith("-"):
                raise ValueError(f"{value!r} is no value of Claude Code's option {name}.")
            words.append(f"{flag}={value}")
        return words

    # Processes that wait

    async def _woken(self, turn: Turn, launch: Launch) -> _Opened | None:
        """Return the process that waits for this session, made ready for the turn; None if there is none that fits."""
        kept = self._waiting.pop(turn.session_id, None)
        if kept is None:
            return None
        process, _ = kept
        wanted = msgspec.structs.replace(launch, native_id=turn.native.id if turn.native else "")
        numbers = Numbers(turn.run_id)
        before = process.said
        said = _hearing(
            process.native_id, numbers, Started(resumed=True), process, before.spent if before else None
        )
        ready = False
        try:
            ready = process.launch.fits(wanted) and await process.wake(turn, numbers)
        finally:
            if not ready:
                await process.stop()
        return _Opened(process=process, said=said, text=turn.input) if ready else None

    def awake(self) -> tuple[Awake, ...]:
        return tuple(
            Awake(session_id=session, idle_since=since, pid=process.child.pid)
            for session, (process, since) in self._waiting.items()
            if process.child.exit_code is None
        )

    async def sleep(self, session_id: str) -> bool:
        kept = self._waiting.pop(session_id, None)
        if kept is not None:
            await kept[0].stop()
        return kept is not None

    async def aclose(self) -> None:
        await asyncio.gather(*(self.sleep(session) for session in tuple(self._waiting)))

    def forget(self, native_id: str) -> tuple[Path, ...]:
        """Remove Claude Code's own files of a conversation from this machine; return those that were there.

        Our log and our record of its rows are not touched. Raises EngineError while a process works in it.
        """
        return claude_native.forget(self.config, native_id)


def _hearing(
    native_id: str, numbers: Numbers, started: Started, process: ClaudeProcess, spent: Spent | None
) -> ClaudeTurn:
    bridge = process.bridge
    return ClaudeTurn(
        native_id, numbers, started=started, ours=frozenset(bridge.names), server=bridge.server, spent=spent
    )


def _refused(refusal: Refusal) -> Finished:
    said = refusal.said or "nothing"
    return Finished(
        status="failed",
        code=refusal.code,
        reason=f"Claude Code did not begin; it said: {said}",
        retryable=refusal.code == "timeout",
    )


def _failed(failed: EngineError) -> Finished:
    code = "not_installed" if isinstance(failed, ProgramMissing) else "unknown"
    busy = isinstance(failed, NativeSessionBusy)
    return Finished(status="failed", code="busy" if busy else code, reason=failed.message, retryable=busy)
