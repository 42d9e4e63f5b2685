"""Entries: what a runner on another machine does to its run, each once, however often it has to say so.

A runner numbers what it says about a run, from 1, and repeats it until it is acknowledged. The number is kept with the run
in the transaction that the entry makes, so an entry whose answer was lost is answered and not done again, across a restart
of the server too (invariant L3). An entry that comes too early is refused: the one before it is still on its way.

Tools of ours that a runner calls have no number, because they take their time and others happen meanwhile. They draw their
ids from the id of the call instead: called again, they write the same events, which are stored once.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, cast

import msgspec

from onward.core import ids as make
from onward.core.ids import Ids
from onward.core.records import Run
from onward.errors import Conflict, LeaseLost
from onward.service import running
from onward.service.platform import Platform
from onward.store.contract import Batch, Committed, RunChange, Store


class NumberedStore:
    """A store whose first commit acknowledges an entry of a run, in that transaction."""

    def __init__(self, store: Store, run: Run, number: int) -> None:
        self._store, self._run, self._number = store, run, number
        self.acknowledged = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def commit(self, batch: Batch) -> Committed:
        """Write a batch; the first that succeeds carries the number. Raises Conflict when the number is not the next."""
        if self.acknowledged:
            return self._store.commit(batch)
        changes = batch.run_changes
        if any(change.run_id == self._run.id for change in changes):
            changes = tuple(
                msgspec.structs.replace(change, entry=self._number)
                if change.run_id == self._run.id
                else change
                for change in changes
            )
        else:
            mine = RunChange(run_id=self._run.id, fence=self._run.fence, entry=self._number)
            changes = (*changes, mine)
        done = self._store.commit(msgspec.structs.replace(batch, run_changes=changes))
        self.acknowledged = True
        return done

    def finish(self) -> None:
        """Acknowledge an entry that wrote nothing."""
        if not self.acknowledged:
            self.commit(Batch())


def held(platform: Platform, run_id: str, fence: int) -> Run:
    """Return a run that a runner of another machine holds, or held, under this number. Raises RunNotFound, LeaseLost."""
    run = running.get(platform, run_id)
    if run.fence != fence:
        raise LeaseLost(run=run_id, why=f"its fencing number is {run.fence}, not {fence}")
    return run


def was_acknowledged(run: Run, number: int) -> bool:
    """Whether an entry was acknowledged before. Raises Conflict for one that is neither that nor the next."""
    if number == run.entries + 1:
        return False
    if 1 <= number <= run.entries:
        return True
    raise Conflict(what=f"run {run.id}, of which {run.entries} entries are acknowledged, not {number - 1}")


def numbered(platform: Platform, run: Run, number: int) -> tuple[Platform, NumberedStore]:
    """Return a platform through which one entry is made, and what tells whether it was acknowledged."""
    store = NumberedStore(platform.store, run, number)
    return msgspec.structs.replace(platform, store=cast("Store", store)), store


class CallIds:
    """Ids that one call of a tool draws: the same ones in the same order whenever it is made."""

    def __init__(self, ids: Ids, run: Run, call: str) -> None:
        self._ids, self._at, self._call = ids, run.started_at or run.created_at, call
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def new(self, prefix: str) -> str:
        """Return the next id of this call."""
        with self._lock:
            number = next(self._numbers)
        return make.derived_id(prefix, self._at, "call", self._call, number)

    def salt(self) -> bytes:
        """Return 16 unpredictable bytes: of an event that is stored already, those that were stored stay."""
        return self._ids.salt()


def calling(platform: Platform, run: Run, call: str) -> Platform:
    """Return a platform on which one call of a tool may be made again. Raises LeaseLost for a call of another run."""
    if not call.startswith(f"{run.id}."):
        raise LeaseLost(run=run.id, why=f"the call {call} is not one of its own")
    return msgspec.structs.replace(platform, ids=CallIds(platform.ids, run, call))
