"""Goal 9: sixteen processes that write to one file at the same time get the same share, and none waits long.

Each process opens the store, says so, waits for the word and then appends one event a commit for a few seconds. Shares are
commits; a wait is the time that one append took, flush and all. Beside the longest wait stands that of sixteen processes
which write raw rows behind the same kind of lock: what the disk and the machine make of it without us.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from onward.bench.measure import Figure, absolute, in_turns
from onward.bench.raw import RawLog
from onward.bench.setting import Setting, open_at
from onward.errors import OnwardError

WRITERS: Final = 16
LONGEST_MS: Final = 100.0


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What one process did."""

    commits: int
    longest_ms: float


def competition(setting: Setting) -> Iterator[Figure]:
    """Let sixteen writers compete, a few times, for the store and for raw rows."""
    writers = setting.size(WRITERS, WRITERS, 2)
    milliseconds = setting.size(3000, 1500, 100)
    shares: list[float] = []
    raw_shares: list[float] = []

    def longest(kind: str, kept: list[float]) -> float:
        with setting.place() as folder:
            done = _compete(kind, folder / "shared.db", writers, milliseconds)
        kept.append(min(w.commits for w in done) / max(1, *(w.commits for w in done)))
        return max(w.longest_ms for w in done)

    waits = in_turns(
        lambda: longest("ours", shares), lambda: longest("raw", raw_shares), setting.size(4, 2, 1)
    )
    yield absolute(
        9,
        f"{writers} writer processes, commits of the slowest over the fastest",
        values=shares,
        target=0.5,
        bound=">=",
        unit="",
        baseline=raw_shares,
    )
    yield absolute(
        9,
        f"{writers} writer processes, longest wait",
        values=[a for a, _ in waits],
        target=LONGEST_MS,
        bound="<=",
        unit="ms",
        baseline=[b for _, b in waits],
    )


def _compete(kind: str, path: Path, writers: int, milliseconds: int) -> list[Written]:
    sessions = [f"s{n}" for n in range(writers)]
    if kind == "ours":
        with open_at(path) as log:
            sessions = [log.start(f"Writer {n}").id for n in range(writers)]
    else:
        RawLog(path).close()
    command = [sys.executable, "-m", "onward.bench.writer", kind, str(path)]
    processes = [
        subprocess.Popen(
            [*command, session, str(milliseconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for session in sessions
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise _failed(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = []
        for process in processes:
            said, _ = process.communicate()
            if process.returncode:
                raise _failed(process)
            found.append(msgspec.json.decode(said, type=Written))
        return found
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _failed(process: subprocess.Popen[str]) -> OnwardError:
    """Return what a process that failed has to say, which is the last line of its traceback."""
    process.kill()
    words = process.communicate()[1].strip().splitlines() or [f"exit status {process.returncode}"]
    return OnwardError(f"A writer process failed: {words[-1]}")
