"""One writer at a time on a SQLite file, and many batches in one transaction (group commit).

The first caller that finds nobody writing becomes the leader: it writes its own batch on its own thread, without a hop.
Those who come meanwhile queue. When the leader is done, the first of them leads in its place and takes all that queued, so
that sixteen producers share a disk flush instead of waiting for sixteen. Between processes, a ``ProcessLock`` is taken
before ``BEGIN IMMEDIATE``.

Batches in a group do not know of each other. One that is refused before it wrote anything is simply left out. If one is
refused later, or SQLite fails, the whole transaction is rolled back and each batch is tried alone: a batch is a value, so
writing it again is writing it for the first time. If the process dies anywhere here, the transaction is not committed, and
none of its callers has been told that it was.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from onward.errors import OnwardError, StoreBusy, StoreClosed, StoreError
from onward.store import rules, sqlite_search
from onward.store.contract import Batch, Committed
from onward.store.process_lock import ProcessLock
from onward.store.sqlite_batch import BatchWriter, only_appends
from onward.store.sqlite_connection import BUSY_SECONDS, translated
from onward.store.sqlite_events import Stamps

T = TypeVar("T")

GROUP: Final = 64
"""Batches in one transaction, at most: what bounds the wait of the last one."""

_GATHER_SECONDS: Final = 0.0002
"""How long a leader waits for those who wrote together with the one before it: about what one flush takes, at most.

They were woken a moment ago. Without it groups alternate between one and all, and every other flush is for one event.
"""


class _Ticket:
    """A place in the queue: a batch to write, or a job that wants the connection for itself."""

    __slots__ = ("batch", "error", "job", "leads", "packed", "plain", "result", "settled", "turn", "wait")

    def __init__(
        self,
        batch: Batch | None,
        job: Callable[[sqlite3.Connection], Any] | None,
        wait: float,
        packed: Sequence[bytes] = (),
    ) -> None:
        self.batch = batch
        self.packed = packed
        self.plain = batch is not None and only_appends(batch)
        self.job = job
        self.wait = wait
        self.result: Any = None
        self.error: BaseException | None = None
        self.settled = False
        self.leads = False
        self.turn: threading.Lock | None = None
        """Held until this ticket is settled or has to lead; None for one that never had to wait."""


class Writer:
    """The one connection of a process that writes to a file."""

    def __init__(self, connection: sqlite3.Connection, path: str, lock: ProcessLock, stamps: Stamps) -> None:
        self._db = connection
        self._path = path
        self._process_lock = lock
        self._stamps = stamps
        self._batches = BatchWriter(connection, stamps)
        self._mutex = threading.Lock()
        self._crowd = threading.Condition(self._mutex)
        self._expected = 0
        """Others that the next leader may count on: as many as there were the last time."""
        self._gathering = 0
        """How many in the queue the leader waits for; 0 when it does not wait."""
        self._queue: deque[_Ticket] = deque()
        self._leading = False
        self._closed = False
        self._pid = os.getpid()
        self._indexed = 0

    def commit(self, batch: Batch, packed: Sequence[bytes]) -> Committed:
        """Write a batch whole or not at all; see ``contract.Store.commit``. ``packed``: what ``rules.check_shape`` said."""
        committed: Committed = self._submit(_Ticket(batch, None, BUSY_SECONDS, packed))
        return committed

    def run(self, job: Callable[[sqlite3.Connection], T], *, wait: float = BUSY_SECONDS) -> T:
        """Call ``job`` with the connection, inside one transaction, while nobody else writes."""
        result: T = self._submit(_Ticket(None, job, wait))
        return result

    def close(self) -> None:
        """Write what is queued and close the connection. Closing twice is allowed."""
        with contextlib.suppress(StoreClosed):
            self._submit(_Ticket(None, None, 0))

    # -- the queue ----------------------------------------------------------------------------------------------------

    def _submit(self, ticket: _Ticket) -> Any:
        if os.getpid() != self._pid:
            raise StoreError(
                why=f"{self._path} was opened before this process was forked; open it again here"
            )
        with self._mutex:
            if self._leading:
                ticket.turn = threading.Lock()
                ticket.turn.acquire()
                self._queue.append(ticket)
                if len(self._queue) == self._gathering:
                    self._crowd.notify()
            else:
                self._leading = ticket.leads = True
        if ticket.turn is not None:
            self._await_turn(ticket, ticket.turn)
        if ticket.leads:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _await_turn(self, ticket: _Ticket, turn: threading.Lock) -> None:
        try:
            turn.acquire()
        except BaseException:
            # Interrupted while waiting. A ticket that nobody has taken is withdrawn; one that was asked to lead must lead.
            with self._mutex:
                if ticket in self._queue:
                    self._queue.remove(ticket)
            if ticket.leads:
                self._lead(ticket)
            raise

    def _lead(self, ticket: _Ticket) -> None:
        group = [ticket]
        try:
            if ticket.batch is not None:
                with self._mutex:
                    if len(self._queue) < self._expected:
                        self._gathering = self._expected
                        self._crowd.wait_for(lambda: len(self._queue) >= self._expected, _GATHER_SECONDS)
                        self._gathering = 0
                    while self._queue and self._queue[0].batch is not None and len(group) < GROUP:
                        group.append(self._queue.popleft())
                self._expected = len(group) - 1
            self._serve(group)
        finally:
            with self._mutex:
                # After an interruption, what is neither written nor refused goes back to where it was.
                self._queue.extendleft(reversed([left for left in group[1:] if not left.settled]))
                following = self._queue.popleft() if self._queue else None
                if following is None:
                    self._leading = False
                else:
                    following.leads = True
            if following is not None and following.turn is not None:
                following.turn.release()

    def _settle(self, group: list[_Ticket]) -> None:
        """Wake those whose answer is known. The leader needs no waking."""
        for ticket in group:
            ticket.settled = True
            if ticket.turn is not None and not ticket.leads:
                ticket.turn.release()

    # -- the transaction ----------------------------------------------------------------------------------------------

    def _serve(self, group: list[_Ticket]) -> None:
        leader = group[0]
        if self._closed:
            self._refuse(group, StoreClosed)
        elif leader.batch is None and leader.job is None:
            self._shut()
        elif not self._process_lock.acquire(leader.wait):
            self._refuse(self._with_all(group), lambda: StoreBusy(path=self._path, seconds=leader.wait))
        else:
            try:
                if self._write(group):
                    self._settle(group)
                else:
                    for ticket in group:
                        self._write([ticket])
                        self._settle([ticket])
                if leader.batch is not None:
                    self._follow_up()
            finally:
                self._process_lock.release()

    def _with_all(self, group: list[_Ticket]) -> list[_Ticket]:
        """Return a group and everybody who waits behind it.

        Whoever else holds the file was waited for long enough: if each tried again in turn, the last of many would hear of
        it after minutes, and the thread that it waits on would be gone as long.
        """
        with self._mutex:
            behind = [ticket for ticket in self._queue if ticket.batch is not None or ticket.job is not None]
            self._queue = deque(ticket for ticket in self._queue if ticket not in behind)
        return group + behind

    def _refuse(self, group: list[_Ticket], error: Callable[[], OnwardError]) -> None:
        for ticket in group:
            ticket.error = error()
        self._settle(group)

    def _write(self, group: list[_Ticket], *, careful: bool = False) -> bool:
        """Write a group in one transaction. Return False when it was rolled back and each should be tried alone."""
        db, log = self._db, self._batches.log
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            # None of them did anything yet, so it is not about one of them.
            self._roll_back()
            busy = isinstance(translated(error, self._path), StoreBusy)
            everybody = self._with_all(group) if busy else group
            for ticket in everybody:
                ticket.error = translated(error, self._path)
            self._settle(everybody[len(group) :])
            return True
        try:
            log.begin(careful=careful)
            for ticket in group:
                if not ticket.plain:
                    log.flush()
                before = db.total_changes, log.held
                try:
                    ticket.result = self._do(ticket)
                    ticket.error = None
                except OnwardError as error:
                    ticket.error = error
                    if (db.total_changes, log.held) != before:
                        self._roll_back()
                        return len(group) == 1
            log.flush()
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 (whatever one batch runs into must not fail the batches of others)
            self._roll_back()
            if isinstance(error, sqlite3.IntegrityError) and not careful:
                return self._write(group, careful=True)
            if len(group) > 1:
                return False
            group[0].error = translated(error, self._path) if isinstance(error, sqlite3.Error) else error
        except BaseException:
            self._roll_back()
            raise
        return True

    def _do(self, ticket: _Ticket) -> Any:
        if ticket.batch is not None:
            return self._batches.apply(ticket.batch, ticket.packed, plain=ticket.plain)
        assert ticket.job is not None
        return ticket.job(self._db)

    def _roll_back(self) -> None:
        self._stamps.forget()
        self._batches.log.forget()
        with contextlib.suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _follow_up(self) -> None:
        """Read the log into the index when it is due, and take erased bytes out of the write-ahead log.

        While others come to write it is due later: reading much at once costs half as much an event. Whoever finds nobody
        behind it reads on, so a writer at rest has an index within its bound.

        The log is what was promised, and by now it is safe: what goes wrong here is nobody's refusal. An index that cannot
        be written shows in ``index_lag`` and ``check``, and the next commit tries again.
        """
        if self._behind() >= rules.INDEX_LAG and (
            self._behind() >= sqlite_search.STEP or not self._is_crowded()
        ):
            with contextlib.suppress(sqlite3.Error):
                self._indexed = sqlite_search.mark(self._db)  # another process may have been there already
            if self._behind() >= rules.INDEX_LAG:
                self._read_on()
        if self._batches.erased:
            with contextlib.suppress(sqlite3.Error):
                (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._batches.erased = bool(busy)

    def _is_crowded(self) -> bool:
        """Whether somebody else wants to write, or comes to within the time that those who were just served need."""
        with self._mutex:
            if self._expected and not self._queue:
                self._gathering = 1
                self._crowd.wait_for(lambda: len(self._queue) > 0, _GATHER_SECONDS)
                self._gathering = 0
            return len(self._queue) > 0

    def _behind(self) -> int:
        return self._batches.log.last_pos - self._indexed

    def _read_on(self) -> None:
        """Read on until the index is level, or twice as far as was just appended: a long way is gone in many steps."""
        left = 2 * (self._batches.log.appended + sqlite_search.STEP)
        self._batches.log.appended = 0
        read = sqlite_search.STEP
        with contextlib.suppress(sqlite3.Error):
            while left > 0 and read == sqlite_search.STEP:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    read, self._indexed = sqlite_search.read_on(self._db)
                    self._db.execute("COMMIT")
                except BaseException:
                    self._roll_back()
                    raise
                left -= read

    def _shut(self) -> None:
        self._closed = True
        # Whoever opens the file next may only read. A process that is writing now will see to the index itself.
        if self._behind() > 0 and self._process_lock.acquire(0):
            self._read_on()
            self._process_lock.release()
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        self._process_lock.close()
