"""Hints: somebody who waits is told that something was written, and looks.

A hint says which sessions were written to, and nothing of what. Whoever hears it reads the log by cursor, so a hint that is
lost costs latency and never an event. It reaches this process only: what other processes write into the same store is found
by looking now and then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from onward.store.contract import Batch, Committed, Store


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """What was written to."""

    sessions: frozenset[str]
    runs: bool
    """Runs were made or changed, so one may wait now that did not before."""
    grants: bool = False
    """Tokens were made or changed, so somebody may not read any more who did before."""


Listener = Callable[[Hint], None]
"""Called in the thread that wrote, after it has; it must return at once and not raise."""


class Hints:
    """Who is told. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell this listener from now on. Return what ends that."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(known for known in self._listeners if known is not listener)

        return stop

    def give(self, hint: Hint) -> None:
        """Tell every listener."""
        for listener in self._listeners:
            listener(hint)


class _HintingStore:
    """A store that gives hints about what is committed through it; for the rest it is the store behind it."""

    def __init__(self, store: Store, hints: Hints) -> None:
        self._store, self._hints = store, hints

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def commit(self, batch: Batch) -> Committed:
        done = self._store.commit(batch)
        touched = {append.session_id for append in batch.appends}
        touched.update(run.session_id for run in (*batch.runs, *done.runs))
        touched.update(draft.session_id for draft in batch.drafts)
        runs, grants = bool(batch.runs or batch.run_changes), bool(batch.tokens)
        if touched or grants:
            self._hints.give(Hint(sessions=frozenset(touched), runs=runs, grants=grants))
        return done


def hinting(store: Store, hints: Hints) -> Store:
    """Return the store as one that gives hints about what is committed through it."""
    return cast("Store", _HintingStore(store, hints))
