"""Listing: which conversations there are, each once, in its newest session.

A conversation that was continued is several sessions. The newest is where it goes on, so that is what the list shows, and
the ones before it are folded under it. Newest activity first, in pages with a cursor; what filters leave out is passed over
within a bound, and then the list says that there may be more and where to look on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from onward.core.records import Session
from onward.service import sessions
from onward.service.platform import Platform
from onward.store.contract import SessionQuery

PAGE: Final = 50
"""Conversations on a page."""
LOOKED_AT: Final = 1000
"""Sessions that one page looks through at most, for filters that few pass."""
LONGEST_LINE: Final = 50
"""Earlier sessions that are folded under one."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What to list."""

    text: str = ""
    workspace: str = ""
    engine: str = ""
    archived: bool = False
    """Those that were put away too."""
    imported: str = ""
    """``only``, ``none``, or both without it."""
    children: bool = False
    """Delegated ones too."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation in the list."""

    session: Session
    earlier: tuple[Session, ...] = ()
    """What it was continued from, newest first, as far as this account may see it."""
    more: bool = False
    """There are earlier ones still."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list."""

    conversations: tuple[Conversation, ...]
    next: str | None
    """Where the next page begins; None at the end."""
    looked_through: bool = True
    """False where the bound ended the page before it was full."""


def listed(platform: Platform, filters: Filters, cursor: str | None = None) -> Listed:
    """Return a page of conversations. Raises InvalidInput for a cursor that is none."""
    found: dict[str, Conversation] = {}
    looked, following = 0, cursor
    while looked < LOOKED_AT:
        page, following = platform.store.sessions(
            SessionQuery(
                account_id=platform.account_id,
                workspace_id=filters.workspace or None,
                text=filters.text or None,
                include_archived=filters.archived,
                include_children=filters.children,
                # As many as may still be shown: a page ends where the store's does, so no cursor points into the middle.
                limit=max(1, PAGE - len(found)),
                cursor=following,
            )
        )
        looked += len(page)
        for session in page:
            _add(platform, filters, session, found)
        if following is None or len(found) >= PAGE:
            break
    full = len(found) >= PAGE or following is None
    return Listed(conversations=tuple(found.values()), next=following, looked_through=full)


def _add(platform: Platform, filters: Filters, session: Session, found: dict[str, Conversation]) -> None:
    if not _passes(filters, session):
        return
    newest = sessions.latest(platform, session.id)
    if newest.id in found:
        return
    if (
        newest.id != session.id
        and not filters.text
        and _passes(filters, newest)
        and _would_list(filters, newest)
    ):
        return  # it is listed where its own activity puts it
    earlier = list(_before(platform, newest.id))
    found[newest.id] = Conversation(
        session=newest,
        earlier=tuple(earlier[:LONGEST_LINE]),
        more=len(earlier) > LONGEST_LINE,
    )


def _passes(filters: Filters, session: Session) -> bool:
    if filters.engine and session.engine != filters.engine:
        return False
    return not filters.imported or session.imported == (filters.imported == "only")


def _would_list(filters: Filters, session: Session) -> bool:
    if session.archived and not filters.archived:
        return False
    return not filters.workspace or session.workspace_id == filters.workspace


def _before(platform: Platform, session_id: str) -> Iterator[Session]:
    """Yield what a session was continued from, newest first; it ends where this account may read no further."""
    seen = {session_id}
    while (link := sessions.predecessor(platform, session_id)) is not None and len(seen) <= LONGEST_LINE + 1:
        found = platform.store.session(link.from_session)
        if found is None or found.account_id != platform.account_id or found.id in seen:
            return
        seen.add(found.id)
        yield found
        session_id = found.id
