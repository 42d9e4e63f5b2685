"""One of the processes that compete in goal 9: ``python -m onward.bench.writer KIND PATH SESSION MILLISECONDS``.

It says ``ready`` on its standard output, waits for a line on its standard input, appends until the time is over, and says
what it did as one JSON document.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from onward.bench.payloads import event
from onward.bench.raw import RawLog
from onward.bench.setting import open_at
from onward.store.contract import Append, Batch

_TEXT: Final = "a few words " * 46


@contextlib.contextmanager
def _ours(path: Path, session: str) -> Iterator[Callable[[int], object]]:
    with open_at(path) as log:
        platform = log.platform

        def append(turn: int) -> object:
            events = (event(platform, _TEXT, turn),)
            return platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))

        yield append


@contextlib.contextmanager
def _raw(path: Path, session: str) -> Iterator[Callable[[int], object]]:
    import fcntl

    with open(f"{path}.lock", "w", encoding="utf-8") as lock:
        raw = RawLog(path)

        def append(_: int) -> object:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                raw.append(session, (_TEXT,))
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
            return None

        yield append
        raw.close()


def main(kind: str, path: str, session: str, milliseconds: str) -> None:
    """Compete."""
    with (_ours if kind == "ours" else _raw)(Path(path), session) as append:
        append(0)
        print("ready", flush=True)
        sys.stdin.readline()
        commits, longest = 0, 0.0
        now = time.perf_counter()
        end = now + int(milliseconds) / 1000
        while now < end:
            append(commits)
            before, now = now, time.perf_counter()
            longest = max(longest, now - before)
            commits += 1
    sys.stdout.write(msgspec.json.encode({"commits": commits, "longest_ms": longest * 1000}).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
