"""The command engine: any program, one process a turn.

The program reads its prompt from standard input and prints its answer. It is told what came before as text in front of
the input, on every turn, because it has no memory here; so a program that is told to resume something of its own is
refused, since two memories would drift apart unseen. The prompt is never an argument: arguments end at 128 KiB, and other
users of the machine can read them.

Nothing but its exit code says how such a program fared, so here, and only here, the exit code is believed. That says
little: a program that exits with 0 may have done nothing. What it printed is the answer as it stands, streamed as it comes;
standard error and the way it ended are noted beside it.

It is deliberately no sandbox. The lists of allowed and denied programs look at the name of the program that is started,
not at what that one starts. What is promised is the end: after the turn, however it ended, nothing that the program
started is left running.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import shlex
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from typing import Final

from onward.core.bodies import Command, Outcome, Terminal
from onward.engines.contract import Capabilities, Finished, Noted, Said, Signal, Started, TextDelta, Turn
from onward.engines.processes import STDERR_BYTES, STDERR_LINES, Child, program
from onward.errors import EngineError, InvalidInput, ProgramMissing

CEILING: Final = 900.0
"""Seconds that a turn may take where nothing else is said: 15 minutes."""
MAX_OUTPUT: Final = 2**20
"""Bytes of standard output that are kept where nothing else is said."""
_RESUMING: Final = ("--resume", "--continue")
_PLACES: Final = ("session", "run", "workdir", "model")
_PROMPTS: Final = ("{prompt}", "{input}", "{brief}", "{message}")


class CommandEngine:
    """Starts a program, gives it the prompt on standard input and takes what it prints as the answer.

    ``command`` is a list of words, or one text that is split as a shell would, without a shell. ``{session}``, ``{run}``,
    ``{workdir}`` and ``{model}`` in it are replaced. ``env`` is added to the environment (None removes a variable).
    ``timeout`` is in seconds, None for none. ``max_output`` is in bytes. ``allow`` and ``deny`` hold base names of
    programs; ``deny`` wins.

    Raises InvalidInput for a command that would resume a conversation of its own, that asks for the prompt as an argument,
    or that the lists do not let through.
    """

    name: Final = "command"

    def __init__(
        self,
        *,
        command: str | Sequence[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = CEILING,
        success_codes: Collection[int] = (0,),
        max_output: int = MAX_OUTPUT,
        allow: Collection[str] | None = None,
        deny: Collection[str] = (),
    ) -> None:
        self._words = _words(command)
        self._env = dict(env or {})
        self._timeout = timeout
        self._success = frozenset(success_codes)
        self._max_output = max_output
        self._allow = None if allow is None else frozenset(allow)
        self._deny = frozenset(deny)
        _refuse_memory(self._words)
        _refuse_prompt(self._words)
        if self._words:
            self._refuse_name(self._words[0])

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(reads="text", streaming=True, acts=True)

    def unavailable(self) -> str | None:
        if not self._words:
            return "no command was given; say which program answers (engine option command)"
        if program(self._words[0], self._words) is None:
            return f"there is no program {self._words[0]!r} here; install it, or give its full path"
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Run the program once and tell what it printed and how it ended."""
        if (refused := self._refused(turn)) is not None:
            yield refused
            return
        argv = self._argv(turn)
        try:
            child = await Child.start(argv, cwd=turn.workdir, env=self._env, name=self.name)
        except ProgramMissing as missing:
            yield Finished(status="failed", reason=missing.message, code="not_installed")
            return
        except EngineError as error:
            yield Finished(status="failed", reason=error.message, code="unknown")
            return
        deadline = None if self._timeout is None else asyncio.get_running_loop().time() + self._timeout
        feeding = asyncio.create_task(_feed(child, _prompt(turn)))
        try:
            yield Started(
                model=self._model(turn),
                briefed=bool(turn.brief),
                why="A program that is started for each turn keeps no conversation." if turn.native else "",
            )
            yield Noted(kind="command", body=Command(text=shlex.join(argv)))
            printed = Printed(self._max_output)
            async with contextlib.aclosing(child.chunks()) as reading:
                while (chunk := await _within(deadline, reading)) is not None:
                    if text := printed.take(chunk):
                        yield TextDelta(text=text)
            code = await _exit(child, deadline)
            killed = await child.stop()
            async with contextlib.aclosing(child.chunks()) as rest:
                async for chunk in rest:
                    if text := printed.take(chunk):
                        yield TextDelta(text=text)
            if text := printed.end():
                yield TextDelta(text=text)
            # A text that was cut off stays a draft, which the log then keeps as interrupted.
            if code is not None and printed.text.strip():
                yield Said(text=printed.text.rstrip("\r\n"), model=self._model(turn))
            errors = child.stderr_tail()
            if errors.strip():
                yield Noted(kind="terminal", body=Terminal(text=errors), actor="tool")
            status, ended = ("timeout", self._too_late()) if code is None else self._ending(code)
            told = " ".join(
                filter(None, (ended, printed.left_out(), _cut(errors), _left(killed, child.left)))
            )
            yield Noted(kind="outcome", body=Outcome(text=told, status=status), actor="tool")
            yield self._finished(code, told, printed, child)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await child.stop()

    def _finished(self, code: int | None, told: str, printed: Printed, child: Child) -> Finished:
        if code is None:
            return Finished(status="failed", reason=told, code="timeout")
        if code not in self._success:
            why = f"{told}{child.last_words()}"
            return Finished(status="failed", reason=why, code="crashed" if code < 0 else "unknown")
        notes = (printed.left_out(), "" if printed.text.strip() else "It printed nothing.")
        return Finished(status="completed", reason=" ".join(filter(None, notes)))

    def _ending(self, code: int) -> tuple[str, str]:
        """Return the status and the sentence of an exit code (negative: a signal)."""
        if code < 0:
            with contextlib.suppress(ValueError):
                return "failed", f"It was ended by {signal.Signals(-code).name}."
            return "failed", f"It was ended by signal {-code}."
        if code in self._success:
            return "completed", f"It ended with exit code {code}."
        good = " or ".join(map(str, sorted(self._success))) or "none"
        return "failed", f"It ended with exit code {code}; success is {good}."

    def _too_late(self) -> str:
        return (
            f"It had not ended after {self._timeout:g} s, the limit of a turn (timeout): it was stopped with everything "
            "that it had started. What it had printed is kept."
        )

    def _refused(self, turn: Turn) -> Finished | None:
        """Return why this turn is not begun, if it is not: what cannot be kept is not promised."""
        if (why := self.unavailable()) is not None:
            return Finished(status="failed", reason=why, code="not_installed")
        if turn.native_only:
            why = "A program that is started for each turn holds no conversation that it could resume."
            return Finished(status="failed", reason=why, code="resume_refused")
        if turn.permission_mode == "plan":
            why = "Nothing holds a program to planning; choose another permission mode, or an engine that knows this one."
            return Finished(status="failed", reason=why, code="invalid_request")
        if turn.allowed_tools is not None or turn.denied_tools:
            why = "What a program uses inside cannot be limited by name; leave out the lists of tools."
            return Finished(status="failed", reason=why, code="invalid_request")
        return None

    def _refuse_name(self, word: str) -> None:
        """Refuse a program that the lists do not let through, by its own name and by that of what it is a link to."""
        found = program(word, [word])
        names = {os.path.basename(word)} | (
            {os.path.basename(os.path.realpath(found[0]))} if found else set()
        )
        if denied := sorted(names & self._deny):
            raise InvalidInput(
                what=f"program {word!r}", why=f"{denied[0]!r} is on the list of denied programs"
            )
        if self._allow is not None and not names & self._allow:
            allowed = ", ".join(sorted(self._allow)) or "none"
            raise InvalidInput(
                what=f"program {word!r}", why=f"it is not among the allowed programs: {allowed}"
            )

    def _argv(self, turn: Turn) -> list[str]:
        values = {
            "session": turn.session_id,
            "run": turn.run_id,
            "workdir": turn.workdir or os.getcwd(),
            "model": turn.model or "",
        }
        first, *rest = program(self._words[0], self._words) or self._words
        return [first, *(_PLACE.sub(lambda found: values[found[1]], word) for word in rest)]

    def _model(self, turn: Turn) -> str | None:
        """Return the model, if the command takes one from us."""
        return turn.model if any("{model}" in word for word in self._words) else None


_PLACE: Final = re.compile("{(" + "|".join(_PLACES) + ")}")


class Printed:
    """What a program printed: decoded as it comes, kept up to a limit, the rest counted.

    Bytes that are no UTF-8 become U+FFFD. A character that the limit cuts in two is left out whole.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._ended = False
        self._cut = 0

    @property
    def text(self) -> str:
        """Everything that is kept."""
        return "".join(self._pieces)

    def take(self, chunk: bytes) -> str:
        """Take a piece of output; return the text that is complete by now and kept."""
        kept = chunk[: max(0, self._limit - self._seen)]
        self._seen += len(chunk)
        return self._keep(self._decoder.decode(kept))

    def end(self) -> str:
        """Say that there is no more; return what is left of the text."""
        if self._seen > self._limit:
            self._cut = len(self._decoder.getstate()[0])
            return ""
        return self._keep(self._decoder.decode(b"", final=True))

    def left_out(self) -> str:
        """Return a sentence about what was left out; empty if nothing was."""
        over = self._seen - self._limit
        if over <= 0:
            return ""
        return (
            f"It printed {self._seen:,} bytes; the first {self._limit - self._cut:,} are kept (max_output), "
            f"{over + self._cut:,} are not."
        )

    def _keep(self, text: str) -> str:
        if text:
            self._pieces.append(text)
        return text


async def _within(deadline: float | None, chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    """Return the next piece of output; None at its end, and when the time is up."""
    try:
        return await asyncio.wait_for(anext(chunks), _left_until(deadline))
    except (StopAsyncIteration, TimeoutError):
        return None


async def _exit(child: Child, deadline: float | None) -> int | None:
    """Return the exit code; None when the time is up before the program has ended."""
    if child.exit_code is not None:
        return child.exit_code
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(child.wait(), _left_until(deadline))
    return None


def _left_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())


async def _feed(child: Child, prompt: bytes) -> None:
    """Write the prompt and end the input. A program need not read it all, or any of it."""
    with contextlib.suppress(EngineError):
        await child.send(prompt)
    await child.close_stdin()


def _prompt(turn: Turn) -> bytes:
    """Return all that the program is told, in one text: control text, what came before, what is asked."""
    told = "\n\n".join(part for part in (turn.system, turn.brief, turn.input) if part)
    return told.encode("utf-8", "replace")


def _cut(errors: str) -> str:
    """Return a sentence if standard error may have been longer than what is kept of it."""
    if len(errors.encode("utf-8", "replace")) < STDERR_BYTES - 4 and errors.count("\n") < STDERR_LINES:
        return ""
    return f"Of standard error, the last {STDERR_LINES} lines and {STDERR_BYTES:,} bytes at most are kept."


def _left(killed: Sequence[int], left: Sequence[int]) -> str:
    """Return a sentence about processes that did not end when asked."""
    told = []
    if killed:
        told.append(f"{len(killed)} of its processes did not end when asked and had to be killed.")
    if left:
        told.append(f"These could not be ended: {', '.join(map(str, left))}.")
    return " ".join(told)


def _words(command: str | Sequence[str] | None) -> tuple[str, ...]:
    if command is None:
        return ()
    if not isinstance(command, str):
        return tuple(command)
    try:
        return tuple(shlex.split(command))
    except ValueError as unreadable:
        raise InvalidInput(
            what=f"command {command!r}", why=f"it cannot be split into words: {unreadable}"
        ) from None


def _refuse_memory(words: tuple[str, ...]) -> None:
    """Refuse a command that resumes a conversation of its own: by a flag anywhere, or by a word of its own."""
    for word in words[1:]:
        for part in word.split():
            if (
                part in _RESUMING
                or part.startswith(tuple(f"{flag}=" for flag in _RESUMING))
                or word == "resume"
            ):
                raise InvalidInput(
                    what=f"command {shlex.join(words)!r}",
                    why=(
                        f"{part!r} would resume a conversation that is kept elsewhere, while this engine is told all "
                        "that came before on every turn; leave it out, or use an engine that resumes "
                        "(claude-code, codex, acp, pi)"
                    ),
                )


def _refuse_prompt(words: tuple[str, ...]) -> None:
    for word in words:
        if found := next((place for place in _PROMPTS if place in word), None):
            raise InvalidInput(
                what=f"command {shlex.join(words)!r}",
                why=f"{found} has no place in it: the prompt is written to standard input",
            )
