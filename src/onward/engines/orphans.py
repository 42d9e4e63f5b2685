"""Orphans: processes of an engine whose owner was killed, and with it the only one who would have ended them.

Whoever starts an engine ends its processes itself (``processes.Child.stop``). Killed in the middle of a turn it cannot, and
neither an engine nor its tools reliably notice: a command would work on unseen, in a folder in which the next turn works
too. So each family of processes is registered for as long as it may run, as a locked file in the user's state folder that is
named after its mark. The system lets go of the lock however the owner ends. A file that can be locked therefore belongs to
somebody who is gone; whatever carries its mark is ended, before the next engine is started and when a runner begins.

Nothing is concluded from pids, which are given away again, nor from times: the kernel says whether the owner lives, and a
mark is random. It is deliberately local to a machine and a user. Between the death of an owner and the next start of
anything here, orphans do live on: nobody watches.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Final

from onward.engines import leases

KILL_SECONDS: Final = 2.0
"""Seconds after which one that cannot be killed is left for the next time."""


def folder() -> Path:
    """Return where the families of this machine are registered; homes are shared between machines, processes are not."""
    return leases.folder().parent / "families" / (socket.gethostname() or "here")


class Registered:
    """A family that its owner answers for. ``mark`` is what its processes carry in their environment."""

    def __init__(self, within: Path | None = None) -> None:
        self._folder = within or folder()
        self._held: int | None = None
        self.mark = secrets.token_hex(8)
        # Without a place to write, an owner that is not killed still ends it.
        with contextlib.suppress(OSError):
            while (held := leases.hold(self._folder / self.mark)) is None:
                self.mark = secrets.token_hex(8)  # taken for an orphan before it was locked
            self._held = held

    def ended(self, *, whole: bool = True) -> None:
        """Nothing of the family runs any more; or (``whole`` false) something does that whoever comes next should end."""
        held, self._held = self._held, None
        if held is not None:
            _let_go(held, self._folder / self.mark, gone=whole)


def end_orphans(within: Path | None = None) -> tuple[int, ...]:
    """Kill the processes of owners that were killed; return their pids, in ascending order.

    Blocks, for at most 3 seconds a family; without any it returns at once. Safe to call at any time and from
    several processes at once.
    """
    place = within or folder()
    try:
        marks = sorted(os.listdir(place))
    except OSError:
        return ()
    killed: set[int] = set()
    for mark in marks:
        killed.update(_end(place / mark))
    return tuple(sorted(killed))


def _end(path: Path) -> tuple[int, ...]:
    """End what carries the mark that this file is named after, if its owner is gone."""
    try:
        held = leases.hold(path, new=False)
    except OSError:
        return ()
    if held is None:
        return ()
    # Late: it brings psutil, and nearly always there is nothing to look for.
    from onward.engines.trees import Family

    gone = False
    try:
        family = Family(None, path.name)
        family.look()
        family.look()  # the descendants of those that were found, before any of them ends
        # Not asked first: an engine whose tool ends would go on, and ask its model what to do next.
        killed = family.kill(seconds=KILL_SECONDS)
        gone = not family.living()
    finally:
        _let_go(held, path, gone=gone)
    return killed


def _let_go(held: int, path: Path, *, gone: bool) -> None:
    if gone and sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.unlink(path)
    os.close(held)
    if gone and sys.platform == "win32":
        with contextlib.suppress(OSError):  # an open file cannot be removed there
            os.unlink(path)
