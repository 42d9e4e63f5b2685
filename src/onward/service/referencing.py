"""Referring to other sessions: which ones there are, a snapshot of each, and the message that brings them along.

A snapshot is taken once, when the message is submitted, and waits with it in the run: what its source does afterwards
(goes on, is archived, loses an event) changes nothing here. When the run starts, the snapshot enters the log first and the
message second, in the transaction that starts the run. A message goes with all of its snapshots or not at all; whatever
is wrong with one of them is raised before anything is stored.

Only sessions of this account are seen (invariant A1); another's looks like one that does not exist. Only what a person
writes is searched for mentions: text from a trigger or an engine cannot pull another session in.

How a snapshot is made and bounded is in ``core.session_references``, how a mention is written in ``core.mentions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from onward.core.bodies import Recall, RecalledReference
from onward.core.codec import body_of, decode
from onward.core.events import Event
from onward.core.mentions import (
    READ_SCHEMES,
    SessionReference,
    mention,
    one_line,
    read_mentions,
    session_of_uri,
)
from onward.core.records import Run, Session
from onward.core.session_references import KINDS, Captured, capture, conversation, distinct, recall
from onward.errors import InvalidInput, OnwardError, ReferenceCancelled, ReferenceReadFailed
from onward.service import running, sessions
from onward.service.platform import Platform
from onward.store.contract import SessionQuery

CANDIDATES: Final = 50
"""Candidates that are listed unless asked otherwise."""
_PAGE: Final = 1000

Named = str | SessionReference
"""Another session as a caller names it: its id, its address, or a reference with a label."""

Stop = Callable[[], bool]
"""Asked now and then; once it says True, the work is given up with ReferenceCancelled."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A session that a message could refer to."""

    session: str
    label: str
    """Its title, or its id where it has none that can be read."""
    folder: str | None
    """The folder that its work is about."""
    created_at: int
    """Microseconds since 1970, UTC."""
    archived: bool
    mention: str
    """What to write in a message."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is ready to be stored, with what it refers to."""

    text: str
    """As it reads: ``@label`` in place of every mention."""
    context: Recall | None = None
    """The snapshots; None when it refers to nothing."""

    @property
    def references(self) -> tuple[RecalledReference, ...]:
        """What is recorded of each snapshot, in order."""
        return self.context.references if self.context else ()


def list_candidates(
    platform: Platform, session_id: str, query: str = "", limit: int = CANDIDATES, *, stop: Stop | None = None
) -> list[Candidate]:
    """Return the sessions that a message in this one could refer to, itself never among them.

    First those about the same folder, then those about none, then the others; newest first within each. The query is
    looked for in id, folder and title, whatever the case. Archived sessions are listed too: they can be read. Raises
    InvalidInput for a limit below 1, ReferenceCancelled.
    """
    here = platform.session(session_id)
    if limit < 1:
        raise InvalidInput(what="the number of candidates", why=f"it is 1 or more; this one is {limit}")
    wanted = query.casefold()
    folders: dict[str, str | None] = {}
    found: list[tuple[int, int, str, Candidate]] = []
    for session in _others(platform, here, stop):
        folder = _folder(platform, session, folders)
        label = label_of(session)
        if not any(wanted in text.casefold() for text in (session.id, folder or "", label)):
            continue
        candidate = Candidate(
            session=session.id,
            label=label,
            folder=folder,
            created_at=session.created_at,
            archived=session.archived,
            mention=mention(SessionReference(session=session.id, label=label)),
        )
        found.append((_nearness(session, here), -session.created_at, session.id, candidate))
    found.sort(key=lambda row: row[2], reverse=True)  # ids of one moment: the later one first
    found.sort(key=lambda row: row[:2])
    return [candidate for *_, candidate in found[:limit]]


def _others(platform: Platform, here: Session, stop: Stop | None) -> Iterator[Session]:
    cursor: str | None = None
    while True:
        _go_on(stop)
        page, cursor = platform.store.sessions(
            SessionQuery(account_id=platform.account_id, include_archived=True, limit=_PAGE, cursor=cursor)
        )
        yield from (session for session in page if session.id != here.id)
        if cursor is None:
            return


def _nearness(session: Session, here: Session) -> int:
    if session.workspace_id is None:
        return 1
    return 0 if session.workspace_id == here.workspace_id else 2


def _folder(platform: Platform, session: Session, known: dict[str, str | None]) -> str | None:
    if session.workspace_id is None:
        return None
    if session.workspace_id not in known:
        place = platform.store.workspace_by_id(session.workspace_id)
        known[session.workspace_id] = place.path if place else None
    return known[session.workspace_id]


def label_of(session: Session) -> str:
    """Return what a session is called in a mention: its title on one line, or its id."""
    return one_line(session.title) or session.id


def prepare(
    platform: Platform,
    session_id: str | None,
    text: str,
    references: Sequence[Named] = (),
    *,
    mentions: bool = True,
    stop: Stop | None = None,
) -> Prepared:
    """Return a message as it will read, with a snapshot of every session that it refers to, taken now.

    ``references`` come first, then what the text mentions, in its order, unless ``mentions`` is False. Each session once,
    under its first label; at most three. Nothing is stored. Without a ``session_id`` the message is for a session that is
    not open yet. Raises, for the whole message:

    - ReferenceInvalid: a mention or an address that names nothing;
    - ReferenceSelf, ReferenceTooMany;
    - ReferenceReadFailed: there is no such session for this account, or it cannot be read now;
    - ReferenceBudgetExceeded: what must stay of one is too large;
    - ReferenceCancelled.
    """
    if session_id is not None:
        platform.session(session_id)
    read = read_mentions(text) if mentions else None
    named = [_named(reference) for reference in references]
    wanted = distinct([*named, *(read.references if read else ())], session_id)
    _go_on(stop)
    captured = [_captured(platform, reference, stop) for reference in wanted]
    _go_on(stop)
    return Prepared(text=read.text if read else text, context=recall(captured) if captured else None)


def _named(reference: Named) -> SessionReference:
    if isinstance(reference, SessionReference):
        return reference
    if reference.startswith(READ_SCHEMES):
        return SessionReference(session=session_of_uri(reference))
    return SessionReference(session=reference)


def _captured(platform: Platform, reference: SessionReference, stop: Stop | None) -> Captured:
    """Take the snapshot of one session: what it holds up to this moment."""
    source = platform.store.session(reference.session)
    if source is None or source.account_id != platform.account_id:
        raise ReferenceReadFailed(session=reference.session, why="there is no such session")
    try:
        entries = conversation(_history(platform, source, stop))
        folder = _folder(platform, source, {})
    except ReferenceCancelled:
        raise
    except OnwardError as error:
        _go_on(stop)  # whoever cancelled wants to hear nothing else
        raise ReferenceReadFailed(session=source.id, why=error.message.rstrip(".")) from error
    label = one_line(reference.label) or label_of(source)
    return capture(
        SessionReference(session=source.id, label=label),
        entries,
        captured_seq=source.head_seq,
        folder=folder,
    )


def _history(platform: Platform, source: Session, stop: Stop | None) -> Iterator[Event]:
    """Yield what can be quoted of a session, oldest first: of a branch also what it shares with its source."""
    for stretch in sessions.scope(platform, source):
        after = 0
        while True:
            _go_on(stop)
            page = platform.store.events(
                stretch.session, after=after, upto=stretch.to_seq, limit=_PAGE, kinds=KINDS
            )
            yield from page
            if len(page) < _PAGE:
                break
            after = page[-1].seq


def _go_on(stop: Stop | None) -> None:
    if stop is not None and stop():
        raise ReferenceCancelled


def reference(platform: Platform, source_id: str, to: str, text: str, **options: Any) -> Run:
    """Put a message before a session's agent, with a snapshot of another session.

    The message begins with a line ``@label``, unless the text mentions that session itself. Options are those of
    ``running.submit``. Raises what ``prepare`` and ``submit`` raise.
    """
    return running.submit(platform, to, addressed(platform, source_id, text), **options)


def addressed(platform: Platform, source_id: str, text: str) -> str:
    """Return a message that mentions a session: in front, unless it does so already."""
    if any(named.session == source_id for named in read_mentions(text).references):
        return text
    source = platform.store.session(source_id)
    if source is None or source.account_id != platform.account_id:
        raise ReferenceReadFailed(session=source_id, why="there is no such session")
    return f"{mention(SessionReference(session=source_id, label=label_of(source)))}\n{text}"


def references_of(platform: Platform, run: Run) -> tuple[RecalledReference, ...]:
    """Return what the message of a run refers to: of one that waits from the run, else from the log."""
    if run.context is not None:
        waiting = decode("context", run.context)
        return waiting.references if isinstance(waiting, Recall) else ()
    asked = platform.store.event(run.input_event) if run.input_event else None
    context = None if asked is None else running.brought_by(platform, asked)
    body = None if context is None else body_of(context)
    return body.references if isinstance(body, Recall) else ()
