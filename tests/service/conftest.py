"""A world for every test of the service: once in memory, once in a SQLite file, which reopening really closes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.store import open_store
from onward.store.memory import MemoryStore
from tests.service.conversations import World


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
    made = World(opened=lambda: open_store(f"sqlite:///{tmp_path / 'onward.db'}"))
    yield made
    made.store.close()
