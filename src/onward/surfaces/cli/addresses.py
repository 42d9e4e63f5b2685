"""Addresses: what a person types for a session or an event, and the exact thing that is meant.

A session is its id, the beginning of an id that no other begins with, or ``@last``. What is ambiguous is refused with the
candidates; nothing is guessed.
"""

from __future__ import annotations

import re
from typing import Final

from onward.core import ids
from onward.core.events import Event
from onward.core.records import Session
from onward.errors import EventNotFound, InvalidId, InvalidInput, SessionNotFound
from onward.service.platform import Platform
from onward.store.contract import SessionQuery
from onward.surfaces.cli.screen import one_line

LAST: Final = "@last"
_CANDIDATES: Final = 5
_BEGINNING: Final = re.compile(r"ses_[0-9A-HJKMNP-TV-Z]{1,25}")
_SPAN: Final = re.compile(r"(\d{1,15})(?:(-)(\d{1,15})?)?", re.ASCII)


def session(platform: Platform, given: str) -> Session:
    """Return the session that is meant. Raises SessionNotFound, InvalidId, or InvalidInput when it is ambiguous."""
    if given == LAST:
        newest, _ = platform.store.sessions(
            SessionQuery(account_id=platform.account_id, include_archived=True, limit=1)
        )
        if not newest:
            raise SessionNotFound("There are no sessions in this store yet.", session=given)
        return newest[0]
    name = given if given.startswith("ses_") else f"ses_{given.upper()}"
    if _BEGINNING.fullmatch(name):
        return _beginning(platform, given, name)
    try:
        ids.check_id(given, ids.SESSION)
    except InvalidId:
        raise _unlike(given) from None
    return platform.session(given)


def _unlike(given: str) -> InvalidId:
    """Return the error about a text that names no session and could not name one."""
    said = " To say it: onward run --workspace . TEXT, or --new TITLE." if " " in given.strip() else ""
    return InvalidId(
        f"{given!r} does not name a session. It takes an id (ses_ and 26 characters), the beginning of one, or "
        f"{LAST}; `onward list` shows the ids.{said}",
        value=given,
        prefix=ids.SESSION,
    )


def _beginning(platform: Platform, given: str, beginning: str) -> Session:
    """Return the one session whose id begins so."""
    found: list[Session] = []
    cursor: str | None = None
    while len(found) <= _CANDIDATES:
        page, cursor = platform.store.sessions(
            SessionQuery(
                account_id=platform.account_id,
                text=beginning,
                include_archived=True,
                limit=500,
                cursor=cursor,
            )
        )
        found += [s for s in page if s.id.startswith(beginning)]
        if cursor is None:
            break
    if not found:
        if given != beginning:
            raise _unlike(given)
        raise SessionNotFound(session=given)
    if len(found) > 1:
        shown = [f"{s.id} “{one_line(s.title, 40)}”" if s.title else s.id for s in found[:_CANDIDATES]]
        more = " and others" if len(found) > _CANDIDATES else ""
        raise InvalidInput(
            f"Several sessions begin with {given!r}; type more of the id. They are {', '.join(shown)}{more}.",
            what=f"{given!r}",
            why="several sessions begin so",
        )
    return found[0]


def stretch(platform: Platform, given: str) -> tuple[Session, int, int | None]:
    """Return what ``SES``, ``SES:12``, ``SES:12-18`` or ``SES:12-`` means: a session, the first and the last number."""
    name, colon, span = given.partition(":")
    found = session(platform, name)
    if not colon:
        return found, 1, None
    match = _SPAN.fullmatch(span)
    if match is None:
        raise InvalidInput(what=f"{given!r}", why="after the colon comes 12, 12-18 or 12-")
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else None
    return found, first, last


def point(platform: Platform, given: str) -> tuple[Session, int | None]:
    """Return what ``SES`` or ``SES:12`` means: a session and a number, or None where none is given."""
    name, colon, span = given.partition(":")
    if not colon:
        return session(platform, name), None
    if not (span.isascii() and span.isdigit() and len(span) <= 15):
        raise InvalidInput(what=f"{given!r}", why="after the colon comes the number of one event")
    return session(platform, name), int(span)


def event(platform: Platform, given: str) -> Event:
    """Return the event at ``SES:12``. Raises InvalidInput without a number, EventNotFound when it does not exist."""
    found, seq = point(platform, given)
    if seq is None:
        raise InvalidInput(what=f"{given!r}", why="name one event, SES:SEQ")
    page = platform.store.events(found.id, after=seq - 1, upto=seq, limit=1) if seq else []
    if not page:
        raise EventNotFound(
            f"Session {found.id} has events 1 to {found.head_seq}; {seq} does not exist.",
            event=f"{found.id}:{seq}",
        )
    return page[0]
