"""Ticking: the server with a task in its event loop that wants to run every millisecond and says how late it was.

How long a loop is held up cannot be seen from outside: an answer is late for many reasons. So ``python -m
onward.surfaces.http.ticking STORE`` serves a store, with the script engine, as ``onward serve`` does, and a tick beside it.
After each line that it is sent it tells, as one line of JSON, by how much a tick was late at most since the last time. It is
for measuring (``onward bench 11``) and nothing that anybody needs in use.

On a machine with more to do than cores, a thread waits for one, and a tick is late through nobody's fault. Linux says how
long a thread waited, and that is told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any, Final

import msgspec

TICK_SECONDS: Final = 0.001


class Late(msgspec.Struct, kw_only=True):
    """How late ticks were."""

    longest_ms: float = 0.0
    """Without what the loop's thread waited for a core."""
    longest_in_all_ms: float = 0.0
    ticks: int = 0
    over: int = 0
    """How many were late by more than a millisecond, without what the thread waited for a core."""


class Queueing:
    """How long this thread has waited for a core, in seconds; always 0 where the system does not say."""

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def read(self) -> float:
        """Return it."""
        return 0.0 if self._file is None else int(os.pread(self._file, 128, 0).split()[1]) / 1e9


class Ticker:
    """A tick in the running event loop, and what it found."""

    def __init__(self, tick: float = TICK_SECONDS) -> None:
        self.late = Late()
        self._tick = tick
        self._task = asyncio.ensure_future(self._go())

    async def _go(self) -> None:
        loop, queueing = asyncio.get_running_loop(), Queueing()
        while True:
            due, waited = loop.time() + self._tick, queueing.read()
            await asyncio.sleep(self._tick)
            in_all = (loop.time() - due) * 1000
            own = in_all - (queueing.read() - waited) * 1000
            self.late.ticks += 1
            self.late.over += own > 1
            self.late.longest_ms = max(self.late.longest_ms, own)
            self.late.longest_in_all_ms = max(self.late.longest_in_all_ms, in_all)

    def read(self) -> Late:
        """Return what was found since the last time."""
        found, self.late = self.late, Late()
        return found


def tell(line: Any) -> None:
    """Write one line of JSON."""
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


def answering(ticker: Ticker) -> None:
    """Tell what a ticker found, after each line on the standard input."""

    def asked() -> None:
        if os.read(0, 4096):
            tell(ticker.read())
        else:
            loop.remove_reader(0)

    loop = asyncio.get_running_loop()
    loop.add_reader(0, asked)


def main(store: str) -> None:
    """Serve a store, with a tick beside it, until told to stop."""
    from onward.engines.script import ScriptEngine
    from onward.library import open_log
    from onward.surfaces.http.serving import serve

    def ready(url: str, token: str | None, *more: Any) -> None:
        del more
        tell({"url": url, "token": token, "pid": os.getpid()})
        answering(Ticker())

    with open_log(store) as log:
        serve(log.platform, ready=ready, engines={"script": ScriptEngine()}, rate=0)


if __name__ == "__main__":
    main(sys.argv[1])
