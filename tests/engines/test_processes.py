"""Programs by lines: read whole, fed, and ended with everything they started, in a bounded time, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.engines.processes import (
    LINGER,
    MARK,
    READ_AHEAD,
    STDERR_BYTES,
    STDERR_LINES,
    Child,
    environment,
    program,
)
from onward.engines.trees import Family
from onward.errors import EngineError, ProgramMissing

T = TypeVar("T")
posix = pytest.mark.skipif(os.name != "posix", reason="forks and sessions are POSIX")

# A program that plants the processes named by its arguments, each of which says its pid once it stands; then it stays.
GROVE = r"""
import os, signal, sys, time

def stay(stubborn):
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"here %d\n" % os.getpid())
    while True:
        time.sleep(60)

def bare(stubborn):
    code = "import os,signal,time\n"
    if stubborn:
        code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "os.write(1, b'here %d\\n' % os.getpid())\nwhile True: time.sleep(60)"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})

for kind in sys.argv[2:]:
    if os.fork():
        continue
    stubborn = "stubborn" in kind
    if "session" in kind:
        os.setsid()
    if "group" in kind:
        os.setpgid(0, 0)
    if "orphan" in kind and os.fork():
        os._exit(0)
    (bare if "bare" in kind else stay)(stubborn)

stay("stubborn" in sys.argv[1])
"""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's work, which ends in time or fails."""

    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


def runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


async def grove(*kinds: str, root: str = "root", **options: Any) -> tuple[Child, list[int]]:
    """Start a grove; return it and the pids of all that stand in it, once they do."""
    child = await Child.start(python(GROVE, root, *kinds), **options)
    pids: list[int] = []
    async for line in child.lines():
        pids.append(int(line.removeprefix(b"here ")))
        if len(pids) == len(kinds) + 1:
            break
    return child, pids


async def every(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


# What is read and written


@given(lines=st.lists(st.binary(max_size=300).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b""))))
@settings(max_examples=12)
def test_lines_come_back_as_they_were_sent_in_order(lines: list[bytes]) -> None:
    async def work() -> list[bytes]:
        async with await Child.start(
            python("import sys\nfor l in sys.stdin.buffer: sys.stdout.buffer.write(l)")
        ) as echo:
            for line in lines:
                await echo.send(line)
            await echo.close_stdin()
            return await every(echo.lines())

    assert run(work()) == lines


def test_the_last_line_is_yielded_even_if_it_is_unfinished() -> None:
    async def work() -> list[bytes]:
        async with await Child.start(python("print('one\\r'); print('two', end='')")) as child:
            return await every(child.lines())

    assert run(work()) == [b"one", b"two"]


def test_a_reader_goes_on_where_an_earlier_one_left() -> None:
    async def work() -> tuple[bytes, list[bytes]]:
        async with await Child.start(python("print('one'); print('two'); print('three')")) as child:
            first = await anext(child.lines())
            return first, await every(child.lines())

    assert run(work()) == (b"one", [b"two", b"three"])


def test_a_line_over_the_limit_is_refused_with_the_limit_and_the_lines_before_it_are_read() -> None:
    async def work() -> list[bytes]:
        read = []
        async with await Child.start(python("print('fine'); print('x' * 200_000)"), max_line=1000) as child:
            lines = child.lines()
            read.append(await anext(lines))
            with pytest.raises(EngineError, match="more than 1000 bytes"):
                await anext(lines)
        return read

    assert run(work()) == [b"fine"]


def test_a_slow_reader_makes_the_program_wait_and_loses_nothing() -> None:
    held: list[int] = []

    async def work() -> int:
        total = 0
        code = "import os\nfor _ in range(500): os.write(1, b'y' * 19_999 + b'\\n')"
        async with await Child.start(python(code)) as child:
            async for line in child.lines():
                total += len(line)
                held.append(len(child._pipes.out))
        return total

    assert run(work()) == 500 * 19_999
    assert max(held) < READ_AHEAD + 2**19


def test_standard_error_never_blocks_and_its_end_is_kept_within_bounds_and_whole_characters() -> None:
    async def work(code: str) -> tuple[list[bytes], str]:
        async with await Child.start(python(code)) as child:
            out = await every(child.lines())
            await child.wait()
            return out, child.stderr_tail()

    out, tail = run(work("import os\nos.write(2, 'xä€𝄞'.encode() * 100_000); print('done')"))
    assert out == [b"done"]
    assert STDERR_BYTES - 4 <= len(tail.encode()) <= STDERR_BYTES
    assert "�" not in tail
    _, tail = run(work("import sys\nfor n in range(5000): print(n, file=sys.stderr)\nprint('done')"))
    assert tail.splitlines() == [str(n) for n in range(5000 - STDERR_LINES, 5000)]


def test_writing_to_a_program_that_reads_no_more_is_an_error_with_its_last_words() -> None:
    async def work() -> None:
        async with await Child.start(
            python("import sys; print('no key', file=sys.stderr); sys.exit(3)")
        ) as child:
            assert await child.wait() == 3
            await every(child.lines())
            with pytest.raises(EngineError, match="reads no more input; the last it said was: no key"):
                await child.send(b"hello")

    run(work())


def test_writing_ends_when_the_program_is_stopped_although_it_never_reads() -> None:
    async def work() -> None:
        child, _ = await grove()
        sending = asyncio.ensure_future(child.send(b"x" * 2**22))
        await child.stop(grace=0)
        with contextlib.suppress(EngineError):
            await sending

    run(work())


def test_a_program_that_is_not_there_and_a_folder_that_is_not_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissing, match="no-such-program cannot be started"):
        run(Child.start(["no-such-program"]))
    with pytest.raises(EngineError, match=r"its folder .*gone is not there"):
        run(Child.start([sys.executable], cwd=str(tmp_path / "gone")))


def test_a_prompt_that_is_too_long_for_an_argument_is_an_error_not_a_crash() -> None:
    with pytest.raises(EngineError, match="could not be started"):
        run(Child.start(python("pass", "x" * 2**22)))


@posix
def test_the_exit_code_is_known_although_something_keeps_the_output_open_and_reading_ends_soon() -> None:
    code = "import os, sys, time\nprint('mine', flush=True)\nif os.fork() == 0: time.sleep(600)\nos._exit(7)"

    async def work() -> tuple[list[bytes], int, float]:
        async with await Child.start(python(code)) as child:
            exit_code = await child.wait()
            began = time.monotonic()
            return await every(child.lines()), exit_code, time.monotonic() - began

    lines, exit_code, took = run(work())
    assert (lines, exit_code) == ([b"mine"], 7)
    assert took < LINGER + 2


@posix
@pytest.mark.parametrize("pause", [0, 0.05])
def test_what_a_program_leaves_behind_cannot_go_on_talking_for_it(pause: float) -> None:
    code = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(1, b"theirs\\n")
        time.sleep({pause})
os.write(1, b"mine\\n")
"""

    async def work() -> list[bytes]:
        async with await Child.start(python(code)) as child:
            return await every(child.lines())

    began = time.monotonic()
    assert b"mine" in run(work())
    assert time.monotonic() - began < LINGER + 10


def test_all_that_a_program_wrote_before_its_end_is_read_however_slow_the_reader() -> None:
    async def work() -> int:
        async with await Child.start(
            python("import os; os.write(1, b'x' * 60_000); print('y' * 5_000)")
        ) as child:
            await child.wait()
            return sum(map(len, await every(child.lines())))

    assert run(work()) == 65_000


def test_what_was_written_before_the_stop_can_still_be_read_after_it() -> None:
    async def work() -> list[bytes]:
        child, _ = await grove()
        await child.stop(grace=0)
        return await every(child.lines())

    assert run(work()) == []

    async def unread() -> list[bytes]:
        child = await Child.start(python("print('one'); print('two')"))
        await child.wait()
        await child._pipes.changed.wait()
        await child.stop()
        return await every(child.lines())

    assert run(unread()) == [b"one", b"two"]


# The environment, and the program


def test_our_own_settings_stay_out_of_a_program_unless_they_are_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONWARD_STORE", "postgresql://me:secret@there/db")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("REMOVED", "1")
    made = environment({"REMOVED": None, "ADDED": "2", "NEVER": None})
    assert "ONWARD_STORE" not in made
    assert (made["KEPT"], made["ADDED"]) == ("1", "2")
    assert "REMOVED" not in made
    assert environment({"ONWARD_STORE": "memory://"})["ONWARD_STORE"] == "memory://"


def test_the_mark_of_an_outer_program_stays_on_the_inner_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARK, raising=False)
    assert environment(mark="a")[MARK] == "a"
    monkeypatch.setenv(MARK, "outer")
    assert environment({MARK: "forged"}, mark="a")[MARK] == "outer:a"
    assert MARK not in environment()


def test_a_program_is_found_by_path_by_words_or_on_the_path_and_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / ("agent.exe" if os.name == "nt" else "agent")
    here.write_text("#!/bin/sh\n")
    here.chmod(0o755)
    assert program("agent", None) is None
    assert program("agent", str(here)) == [str(here)]
    assert program("x", [str(here), "--acp"]) == [str(here), "--acp"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("agent", None) == [str(here)]
    assert program("agent", []) is None
    monkeypatch.chdir(tmp_path)
    assert program("agent", "./agent") == [str(here)]


# The end


def test_a_program_that_ends_when_asked_is_not_killed() -> None:
    async def work() -> tuple[tuple[int, ...], int]:
        child, pids = await grove("child", "group", "session")
        killed = await child.stop()
        assert not any(map(runs, pids))
        return killed, await child.wait()

    killed, exit_code = run(work())
    assert killed == ()
    assert os.name == "nt" or exit_code == -signal.SIGTERM


STUBBORN = (
    "child stubborn",
    "child in its own group stubborn",
    "child in its own session stubborn",
    "child in its own session bare stubborn",
    "orphan stubborn",
    "orphan in its own session stubborn",
    "orphan bare stubborn",
)


# A bare orphan of a program that was killed is the one that nothing tells apart: no parent, no session, no environment.
@posix
@pytest.mark.parametrize(
    ("kind", "end"),
    [*((kind, "asked") for kind in STUBBORN), *((kind, "killed") for kind in STUBBORN[:-1])],
)
def test_nothing_that_a_program_started_outlives_it(kind: str, end: str) -> None:
    """Asked: the program ends in good order. Killed: it had no chance to end anything, and its children are init's."""

    async def work() -> None:
        child, pids = await grove(kind)
        if end == "killed":
            if "bare" in kind:
                await asyncio.to_thread(child._family.look)  # seen once is never lost
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()
        (planted,) = (pid for pid in pids if pid != child.pid)
        assert runs(planted)
        killed = await child.stop(grace=0.1 if end == "asked" else 2.0)
        assert not runs(planted)
        assert planted in killed
        assert child.left == ()

    run(work())


@posix
def test_a_process_that_is_not_of_the_family_is_left_alone() -> None:
    other = subprocess.Popen(python("import time; time.sleep(600)"), start_new_session=True)
    try:

        async def work() -> None:
            child, _ = await grove("child", "orphan in its own session")
            neighbour, pids = await grove("orphan in its own session")
            await child.stop(grace=0.1)
            assert all(map(runs, [other.pid, *pids]))
            await neighbour.stop(grace=0.1)
            assert not any(map(runs, pids))
            assert runs(other.pid)

        run(work())
    finally:
        other.kill()
        other.wait()


@posix
def test_a_number_that_was_given_to_somebody_else_meanwhile_is_not_killed() -> None:
    other = subprocess.Popen(python("import time; time.sleep(600)"), start_new_session=True)
    try:
        family = Family(os.getpid(), "a mark that nobody carries")
        family.root = None
        earlier = psutil.Process(other.pid)
        # The same number, taken down before its first owner ended: created earlier than its owner of today.
        earlier._ident = (earlier.pid, earlier._ident[1] - 1000)
        family._known = {earlier}
        assert family.living() == []
        family.ask(seconds=0.1)
        assert family.kill(seconds=0.1) == ()
        assert runs(other.pid)
    finally:
        other.kill()
        other.wait()


@posix
def test_a_family_inside_a_family_ends_with_the_outer_one() -> None:
    inner = (
        "import os, subprocess, sys\n"
        f"env = dict(os.environ); env[{MARK!r}] += ':inner'\n"
        f"subprocess.Popen([sys.executable, '-I', '-S', '-c', {GROVE!r}, 'root', 'orphan session stubborn'], env=env)\n"
        "os._exit(0)\n"
    )

    async def work() -> None:
        child = await Child.start(python(inner))
        pids = []
        async for line in child.lines():
            pids.append(int(line.removeprefix(b"here ")))
            if len(pids) == 2:
                break
        await child.wait()
        await child.stop(grace=0.1)
        assert not any(map(runs, pids))

    run(work())


@posix
def test_a_stop_takes_a_bounded_time_whatever_stands_there() -> None:
    kinds = [f"{who} {where} stubborn" for who in ("child", "orphan") for where in ("here", "session")] * 5

    async def work() -> float:
        child, pids = await grove(*kinds, root="stubborn")
        began = time.monotonic()
        killed = await child.stop(grace=0.2)
        took = time.monotonic() - began
        assert sorted(killed) == sorted(pids)
        assert not any(map(runs, pids))
        return took

    assert run(work()) < 0.2 + 3


def test_stopping_again_waits_for_the_first_and_says_the_same() -> None:
    async def work() -> None:
        child, pids = await grove("child stubborn" if os.name == "posix" else "child")
        first, second = await asyncio.gather(child.stop(grace=0.1), child.stop(grace=60))
        assert first == second == await child.stop()
        assert not any(map(runs, pids))

    run(work())


@posix
def test_a_stop_that_is_cancelled_is_finished_first() -> None:
    async def work() -> None:
        child, pids = await grove("session stubborn", root="stubborn")
        stopping = asyncio.ensure_future(child.stop(grace=0.2))
        begun = asyncio.ensure_future(_until(lambda: child._stopping is not None))
        await begun
        for _ in range(3):
            stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not any(map(runs, pids))

    run(work())


def test_leaving_the_context_by_an_exception_stops_the_program() -> None:
    async def work() -> list[int]:
        child, pids = await grove()
        with contextlib.suppress(ZeroDivisionError):
            async with child:
                raise ZeroDivisionError
        return pids

    assert not any(map(runs, run(work())))


async def _until(holds: Any) -> None:
    """Let the event loop turn until something holds."""
    loop = asyncio.get_running_loop()
    while not holds():
        turned: asyncio.Future[None] = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned
