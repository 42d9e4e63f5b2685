"""Leases on an engine's own conversations: two writers on one machine never work in the same one.

Most engines let two processes resume one conversation, and then keep only one of the two turns (they branch it, or shuffle
it). So whoever resumes a conversation holds its lease for as long as the engine runs. A lease is a locked file in the
user's state folder: the system releases it when its holder ends, however it ends, so there is nothing to expire and
nothing to clean up after a crash. What the file says (who, where, since when) is only for the message to the others.

It is deliberately local: runners of several machines are kept apart by the store, and an engine's conversation lives on
one machine. It protects from ourselves, not from a person who opens the same conversation by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from onward.errors import EngineError, NativeSessionBusy

LOCKED_AT: Final = 1 << 30
"""The byte that is locked on Windows, beyond the text, which would be unreadable otherwise."""
_NAME: Final = 24


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a lease."""

    pid: int
    host: str
    since: str
    """UTC, to the second."""
    who: str = ""

    def __str__(self) -> str:
        who = f"{self.who}, " if self.who else ""
        return f"{who}process {self.pid} on {self.host}, since {self.since}"


def folder() -> Path:
    """Return where leases are kept: below ``XDG_STATE_HOME``, else ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "onward" / "leases"


@contextlib.contextmanager
def native_lease(engine: str, native_id: str, *, who: str = "", within: Path | None = None) -> Iterator[None]:
    """Hold an engine's conversation; nobody else on this machine does meanwhile, not even in this process.

    ``who`` is told to others who want it: a run, or a warm process. Raises NativeSessionBusy at once, naming the holder,
    when somebody has it, and EngineError when a lease cannot be written here: work without one is never begun.
    """
    digest = hashlib.sha256(native_id.encode("utf-8", "surrogatepass")).hexdigest()[:_NAME]
    path = (within or folder()) / f"{engine}-{digest}.lease"
    try:
        held = hold(path)
    except OSError as refused:
        why = f"its lease {path} cannot be written ({refused.strerror}); set XDG_STATE_HOME to a folder that can"
        raise EngineError(engine=engine, why=why) from None
    if held is None:
        raise NativeSessionBusy(engine=engine, native=native_id, holder=_holder(path))
    try:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        says = Holder(pid=os.getpid(), host=socket.gethostname(), since=now, who=who)
        with contextlib.suppress(OSError):  # the lock is what counts; the text is a courtesy
            os.ftruncate(held, 0)
            os.write(held, msgspec.json.encode(says))
        yield
    finally:
        if sys.platform != "win32":
            # While it is locked: whoever opened the file before sees that it is gone, and makes a new one.
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.close(held)


def hold(path: Path, *, new: bool = True) -> int | None:
    """Lock a file, and return its descriptor, which holds the lock until it is closed; None when somebody else holds it.

    A file that is not there is made (``new``). Raises OSError, FileNotFoundError for one that should have been there.
    """
    if new:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        opened = os.open(path, os.O_RDWR | (os.O_CREAT if new else 0), 0o600)
        try:
            if not _lock(opened):
                os.close(opened)
                return None
            if _same(opened, path):
                return opened
        except BaseException:
            os.close(opened)
            raise
        os.close(opened)  # its holder has just left and taken the file away


def _same(opened: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.stat(path))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(opened: int) -> bool:
        os.lseek(opened, LOCKED_AT, os.SEEK_SET)
        try:
            msvcrt.locking(opened, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(opened, 0, os.SEEK_SET)
        return True
else:
    import fcntl

    def _lock(opened: int) -> bool:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _holder(path: Path) -> str:
    """Return who holds it, for a person. The file may have gone, or not say it yet."""
    try:
        return str(msgspec.json.decode(path.read_bytes(), type=Holder))
    except (OSError, msgspec.MsgspecError):
        return "another process on this machine"
