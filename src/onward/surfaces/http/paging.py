"""Paging: lists that are read whole and answered in pages, oldest first.

A cursor is the id of the last one that was answered. What came since is on later pages, and nothing that was there is
answered twice; one that is gone since cannot be gone on from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from onward.errors import InvalidInput
from onward.surfaces.http import bounds


class Named(Protocol):
    """What has an id."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


T = TypeVar("T", bound=Named)


class Paged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: bounds.To200 = 200
    cursor: bounds.Cursor | None = None
    """The ``next`` of the page before."""


def page(found: Sequence[T], asked: Paged) -> tuple[Sequence[T], str | None]:
    """Return a page, and the cursor of the next one or None. Raises InvalidInput for a cursor that is none."""
    start = 0
    if asked.cursor is not None:
        at = next((number for number, one in enumerate(found) if one.id == asked.cursor), None)
        if at is None:
            raise InvalidInput(what="the cursor", why=f"{asked.cursor!r} did not come from this list")
        start = at + 1
    shown = found[start : start + asked.limit]
    return shown, shown[-1].id if start + len(shown) < len(found) else None
