"""A world for every test of the service: once in memory, once in a SQLite file, which reopening really closes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.conversations import World

from onward.store.memory import MemoryStore
from onward.store.sqlite import SqliteStore


class Lasting(MemoryStore):
    """A store in memory that outlives closing, so that a test can reopen it."""

    def close(self) -> None:
        pass


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """One store and everything around it."""
    if request.param == "memory":
        store = Lasting()
        yield World(opened=lambda: store)
        return
    # These tests kill no machine, so they need not wait for its disk; those in tests/concurrency do.
    made = World(opened=lambda: SqliteStore(tmp_path / "onward.db", synchronous="NORMAL"))
    yield made
    made.store.close()
