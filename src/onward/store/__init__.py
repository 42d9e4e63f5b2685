"""Stores: one contract, several places to keep a conversation. ``open_store`` chooses by URL."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from onward.errors import InvalidInput
from onward.store.contract import Store


def open_store(url: str) -> Store:
    """Open the store at a URL: ``memory://`` or ``sqlite:///path`` (three slashes relative, four absolute).

    A file that does not exist is made. Raises InvalidInput for another scheme, and whatever the store raises for a file that
    it cannot use: NotAStore, StoreTooNew, StoreReadOnly.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        from onward.store.memory import MemoryStore

        return MemoryStore(url=url)
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        from onward.store.sqlite import SqliteStore

        return SqliteStore(unquote(url.removeprefix("sqlite:///")))
    raise InvalidInput(what="the store URL", why=f"{url!r} is neither memory:// nor sqlite:///path")
