"""Programs that are talked to by lines: started, read, written to, and ended with everything they started.

``Child`` is the only place where Onward starts an engine. It keeps four promises to the drivers: what the program wrote
is read in order and whole, whatever the length of its lines; standard error never blocks it, and its end is kept for
a reason; its standard input has an end; and after ``stop`` nothing that it started runs any more, within a bounded time
(see ``trees``). If we are killed before that, whoever starts a program here next does it (see ``orphans``).

It deliberately knows no protocol and believes no exit code: what a line means, and whether a turn succeeded, is the
business of each engine's adapter. It does not restart anything either.

The environment of a child is ours, without our own settings (every ``ONWARD_…`` variable: the store's address may hold
a password), and with a mark that all its processes inherit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from onward.engines.orphans import Registered, end_orphans
from onward.engines.trees import BETWEEN, MARK, Family
from onward.errors import EngineError, OnwardError, ProgramMissing

__all__ = ["MARK", "Child", "environment", "program"]

LONGEST_LINE: Final = 64 * 2**20
"""Bytes of one line: an image or a whole file in a tool's answer fits."""
STDERR_LINES: Final = 200
STDERR_BYTES: Final = 16_384
READ_AHEAD: Final = 2**20
"""Bytes of output that are held for a slow reader before the program is made to wait."""
LINGER: Final = 1.0
"""Seconds spent waiting for more output once the program has ended, where something it started keeps its output open."""
TOOLS_GRACE: Final = 0.5
"""Seconds that whatever is left behind by the program has to end when asked, before it is killed."""
LINGER_BYTES: Final = 2**20
"""Output that is still taken then: as much as a pipe can hold, so all that the program itself had written."""
KILL_SECONDS: Final = 2.0
"""Seconds after which a process that cannot be killed is left, and named in ``Child.left``."""
_STDOUT, _STDERR = 1, 2


class _Pipes(asyncio.SubprocessProtocol):
    """What arrives from a program, held until it is asked for."""

    def __init__(self) -> None:
        self.transport: asyncio.SubprocessTransport | None = None
        self.out = bytearray()
        self.err = bytearray()
        self.ended = False
        """Nothing more will come on standard output."""
        self.exited = asyncio.Event()
        self.changed = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._paused = False
        self._after = LINGER_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self.err += data
            if len(self.err) > 4 * STDERR_BYTES:
                del self.err[:-STDERR_BYTES]
            return
        if self.ended:
            return
        self.out += data
        if self.exited.is_set():
            self._after -= len(data)
            if self._after <= 0:
                self.end()
        if len(self.out) > READ_AHEAD and not self._paused:
            self._flow(paused=True)
        self.changed.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == _STDOUT:
            self.end()
        elif fd == 0:
            self.writable.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.writable.set()
        self.changed.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def end(self) -> None:
        self.ended = True
        self.writable.set()
        self.changed.set()

    def take(self) -> bytes:
        """Return what has arrived, and let the program go on."""
        taken = bytes(self.out)
        self.out.clear()
        if not self.ended:
            self.changed.clear()
        if self._paused:
            self._flow(paused=False)
        return taken

    def _flow(self, *, paused: bool) -> None:
        pipe = self.transport.get_pipe_transport(_STDOUT) if self.transport else None
        if not isinstance(pipe, asyncio.ReadTransport) or pipe.is_closing():
            return
        self._paused = paused
        if paused:
            pipe.pause_reading()
        else:
            pipe.resume_reading()


class Child:
    """A running program. Construct it with ``start``; end it with ``stop``, or use it as an asynchronous context."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        pipes: _Pipes,
        family: Family,
        registered: Registered,
        *,
        name: str,
        max_line: int,
    ) -> None:
        self.pid: int = transport.get_pid()
        self.name = name
        """What errors call it: the engine's name, or else the program's."""
        self.left: tuple[int, ...] = ()
        """Processes that could not be ended by ``stop``."""
        self.loop = asyncio.get_running_loop()
        """The event loop in which it can be read and written to."""
        self._transport, self._pipes, self._family = transport, pipes, family
        self._registered = registered
        self._max_line = max_line
        self._pending = bytearray()
        self._input_closed = False
        self._linger = LINGER
        self._stopping: asyncio.Task[tuple[int, ...]] | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        max_line: int = LONGEST_LINE,
        name: str | None = None,
    ) -> Child:
        """Start a program in a session of its own, with all three standard streams piped.

        ``env`` is added to the environment, see ``environment``. What others left behind here, who were killed, is ended
        first (see ``orphans``). Raises ProgramMissing when there is no such program, EngineError when it cannot be
        started here.
        """
        called = name or os.path.basename(argv[0])
        await asyncio.to_thread(end_orphans)
        registered = Registered()
        try:
            return await cls._start(argv, registered, cwd=cwd, env=env, max_line=max_line, called=called)
        except OnwardError:
            registered.ended()
            raise
        except BaseException:
            registered.ended(whole=False)  # in the middle of starting: nobody knows what stands
            raise

    @classmethod
    async def _start(
        cls,
        argv: Sequence[str],
        registered: Registered,
        *,
        cwd: str | None,
        env: Mapping[str, str | None] | None,
        max_line: int,
        called: str,
    ) -> Child:
        pipes = _Pipes()
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: pipes,
                *argv,
                cwd=cwd,
                env=environment(env, mark=registered.mark),
                start_new_session=sys.platform != "win32",
                # Its own group on Windows (CREATE_NEW_PROCESS_GROUP): Ctrl-C is for us, and we end it ourselves.
                creationflags=0x200 if sys.platform == "win32" else 0,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError) as missing:
            if cwd is not None and not _folder(cwd):
                raise EngineError(engine=called, why=f"its folder {cwd} is not there") from None
            raise ProgramMissing(program=argv[0], why=missing.strerror or str(missing)) from None
        except (OSError, ValueError) as refused:
            raise EngineError(engine=called, why=f"{argv[0]} could not be started: {refused}") from None
        family = Family(transport.get_pid(), registered.mark)
        return cls(transport, pipes, family, registered, name=called, max_line=max_line)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def exit_code(self) -> int | None:
        """How it ended: negative for a signal; None while it runs."""
        return self._transport.get_returncode()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Yield the lines of standard output, without their ends, until it ends; the last one also if it is unfinished.

        One reader at a time; a later call goes on where an earlier one was left. After the program's own end, at most
        ``LINGER`` seconds are spent waiting for something it started that keeps the output open, whatever that writes.
        Raises EngineError for a line longer than ``max_line``.
        """
        searched = 0
        while True:
            end = self._pending.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._pending[:end]).removesuffix(b"\r")
                del self._pending[: end + 1]
                searched = 0
                yield line
                continue
            searched = len(self._pending)
            if searched > self._max_line:
                raise EngineError(
                    engine=self.name, why=f"it wrote a line of more than {self._max_line} bytes (max_line)"
                )
            more = await self._more()
            if not more:
                break
            self._pending += more
        if self._pending:
            line = bytes(self._pending)
            self._pending.clear()
            yield line

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield standard output as it arrives, in pieces that mean nothing, for a program that is not talked to by lines.

        It ends as ``lines`` does, and only one of the two reads at a time.
        """
        if self._pending:
            yield bytes(self._pending)
            self._pending.clear()
        while more := await self._more():
            yield more

    async def _more(self) -> bytes:
        """Return output that has arrived, waiting for some; nothing once there will be no more."""
        pipes, loop = self._pipes, asyncio.get_running_loop()
        while not pipes.out:
            if pipes.ended:
                return b""
            pipes.changed.clear()
            if not pipes.exited.is_set():
                await pipes.changed.wait()
                continue
            began = loop.time()
            try:
                await asyncio.wait_for(pipes.changed.wait(), max(0.0, self._linger))
            except TimeoutError:
                pipes.end()
            self._linger -= loop.time() - began
        return pipes.take()

    async def send(self, line: bytes, *, end: bytes = b"\n") -> None:
        """Write a line to standard input and wait until the program keeps up. Raises EngineError if it reads no more.

        Without an ``end`` the bytes go as they are, for a program that reads its whole input as one text.
        """
        stdin = self._stdin()
        if stdin is None or stdin.is_closing() or self._pipes.exited.is_set():
            raise EngineError(engine=self.name, why=f"it reads no more input{self.last_words()}")
        stdin.write(line + end)
        await self._pipes.writable.wait()
        if stdin.is_closing() and not self._input_closed:
            raise EngineError(
                engine=self.name, why=f"it closed its input before it read it{self.last_words()}"
            )

    async def close_stdin(self) -> None:
        """End standard input, once everything sent has been written. Harmless when it has ended."""
        stdin = self._stdin()
        self._input_closed = True
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(OSError):
                stdin.write_eof() if stdin.can_write_eof() else stdin.close()

    def _stdin(self) -> asyncio.WriteTransport | None:
        pipe = self._transport.get_pipe_transport(0)
        return pipe if isinstance(pipe, asyncio.WriteTransport) else None

    def last_words(self) -> str:
        """Return the last line of standard error as the end of a sentence that says what went wrong; empty without one."""
        tail = self.stderr_tail().strip()
        return f"; the last it said was: {tail.splitlines()[-1][:500]}" if tail else ""

    def stderr_tail(self) -> str:
        """Return the end of what it wrote to standard error: at most 200 lines and 16,384 bytes, whole characters only."""
        tail = bytes(self._pipes.err[-STDERR_BYTES:])
        start = 0
        if len(self._pipes.err) > STDERR_BYTES:
            while start < min(4, len(tail)) and tail[start] & 0xC0 == 0x80:
                start += 1
        text = tail[start:].decode("utf-8", "replace")
        return "".join(text.splitlines(keepends=True)[-STDERR_LINES:])

    async def wait(self) -> int:
        """Return the exit code once it has ended, whether or not something it started goes on."""
        await self._pipes.exited.wait()
        code = self.exit_code
        assert code is not None
        return code

    async def stop(self, *, grace: float = 2.0) -> tuple[int, ...]:
        """End it and everything it started; return the pids that had to be killed.

        Its input ends and it is asked to end (SIGTERM); after ``grace`` seconds at most it is killed. What it leaves behind
        is asked too, for at most half a second, and killed. The whole takes at most ``grace`` + 3 seconds. Further calls
        wait for the first and return the same. A caller that is cancelled meanwhile is cancelled only once it is done.

        From another event loop than its own (which has ended, as it does between two calls of ``asyncio.run``) it is killed
        at once: nobody can be asked, or heard, any more.
        """
        if self.loop is not asyncio.get_running_loop():
            await asyncio.to_thread(self._family.look)
            killed = await asyncio.to_thread(self._family.kill, seconds=KILL_SECONDS)
            self._registered.ended(whole=not self._family.living())
            return killed
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(grace))
        cancelled: asyncio.CancelledError | None = None
        while not self._stopping.done():
            try:
                await asyncio.shield(self._stopping)
            except asyncio.CancelledError as meanwhile:
                cancelled = meanwhile
        if cancelled is not None:
            raise cancelled
        return self._stopping.result()

    async def _stop(self, grace: float) -> tuple[int, ...]:
        family, exited = self._family, self._pipes.exited
        await asyncio.to_thread(family.look)
        await self.close_stdin()
        if not exited.is_set() and grace > 0:
            family.ask_root()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(exited.wait(), grace)
            await asyncio.to_thread(family.look)
        if exited.is_set() and family.living():
            await asyncio.to_thread(family.ask, seconds=min(TOOLS_GRACE, grace))
        killed = await asyncio.to_thread(family.kill, seconds=KILL_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(exited.wait(), KILL_SECONDS)
        self.left = tuple(sorted(process.pid for process in family.living()))
        self._registered.ended(whole=not self.left)
        # Nobody writes any more. What had arrived stays to be read.
        self._pipes.end()
        self._transport.close()
        return killed


def _folder(path: str) -> bool:
    return os.path.isdir(path)


def environment(added: Mapping[str, str | None] | None = None, *, mark: str = "") -> dict[str, str]:
    """Return the environment of a child: ours without our own settings, then ``added`` (None removes a variable).

    With a ``mark``, the variable ``MARK`` holds it behind the marks that we carry ourselves.
    """
    made = {name: value for name, value in os.environ.items() if not name.upper().startswith("ONWARD_")}
    if mark:
        made[MARK] = BETWEEN.join(filter(None, (os.environ.get(MARK), mark)))
    for name, value in (added or {}).items():
        if value is None:
            made.pop(name, None)
        elif name != MARK:
            made[name] = value
    return made


def program(name: str, given: str | Sequence[str] | None = None) -> list[str] | None:
    """Return the words that start a program: what was given (a path, or words), else ``name`` on the PATH.

    None if it is not there. The first word is made absolute, so that a working folder cannot put another in its place.
    """
    words = [name] if given is None else [given] if isinstance(given, str) else list(given)
    if not words or not words[0]:
        return None
    found = shutil.which(os.path.expanduser(words[0]))
    return None if found is None else [os.path.abspath(found), *words[1:]]
