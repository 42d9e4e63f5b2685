"""Every store passes the one suite, opened the way that people open it: by URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.errors import InvalidInput
from onward.store import open_store
from onward.store.contract import Store
from onward.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = open_store("memory://")
        yield store
        store.close()


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        self.opened = [open_store(f"sqlite:///{tmp_path}/a folder%20/store.db")]
        yield self.opened[0]
        for store in self.opened:
            store.close()

    def reopen(self, store: Store) -> Store:
        store.close()
        self.opened.append(open_store(store.url))
        return self.opened[-1]


@pytest.mark.parametrize(
    "url", ["", "store.db", "sqlite://", "sqlite:///", "sqlite://host/path", "postgres://x", "memory"]
)
def test_a_url_that_is_no_store_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInput, match="store URL"):
        open_store(url)
