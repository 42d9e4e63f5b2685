"""Verifying: re-derive every digest and chain value and name the first that fails (invariant L2).

For each session: every event's digest from its salt and body, every chain value from the one before, numbers without gaps,
the head that the store keeps, and for every erased event the event that says so (L5). For each continuation: the manifest's
own digest, and the projection in the successor's log against the digest that the manifest promises. And the storage itself.
Nothing is repaired here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from onward.core import digests
from onward.core.bodies import ProjectionContext, SessionChange
from onward.core.codec import body_of
from onward.core.events import Event, fault_in
from onward.core.manifest import decode_manifest
from onward.core.records import Session
from onward.service.platform import Platform
from onward.store.contract import SessionQuery


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that does not hold."""

    session: str | None
    seq: int | None
    why: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and the first failure."""

    sessions: int
    events: int
    ok: bool
    first_failure: Failure | None = None


def verify(platform: Platform, session_id: str | None = None) -> Verified:
    """Check one session, or the whole store."""
    count = total = 0
    first: Failure | None = None
    if session_id is None:
        for why in platform.store.check():
            first = first or Failure(session=None, seq=None, why=why)
    for session in [platform.session(session_id)] if session_id else every_session(platform):
        count += 1
        checked, failure = _session(platform, session)
        total += checked
        first = first or failure
    return Verified(sessions=count, events=total, ok=first is None, first_failure=first)


def every_session(platform: Platform) -> Iterator[Session]:
    """Yield all sessions of the account, archived ones included."""
    cursor: str | None = None
    while True:
        page, cursor = platform.store.sessions(
            SessionQuery(account_id=platform.account_id, include_archived=True, limit=500, cursor=cursor)
        )
        yield from page
        if cursor is None:
            return


def _session(platform: Platform, session: Session) -> tuple[int, Failure | None]:
    chain, seq = digests.GENESIS, 0
    promised = _promised(platform, session)
    erased: dict[str, int] = {}
    shown = False
    for event in platform.store.scan(session.id):
        why = fault_in(event, seq + 1, chain)
        if event.erased:
            erased[event.id] = event.seq
            shown = shown or event.kind == "context"  # whatever it was, its erasure is accounted for below
        elif (gone := _erased_by(event)) is not None:
            erased.pop(gone, None)
        if why is None and isinstance(promised, dict) and event.kind == "context" and not event.erased:
            body = body_of(event)
            if isinstance(body, ProjectionContext) and body.manifest in promised:
                shown = True
                digest = digests.content_digest(body.text.encode("utf-8", "surrogatepass"))
                if digest != promised[body.manifest]:
                    why = f"the projection is not the one that manifest {body.manifest} describes"
        if why is not None:
            return seq, Failure(session=session.id, seq=seq + 1, why=why)
        seq, chain = event.seq, event.chain
        if seq > session.head_seq:
            break  # written while we were reading; the next verification sees it
    if isinstance(promised, str):
        return seq, Failure(session=session.id, seq=None, why=promised)
    for place in erased.values():
        return seq, Failure(
            session=session.id, seq=place, why="its body is gone and no event says that it was erased"
        )
    if promised and not shown:
        return seq, Failure(
            session=session.id,
            seq=None,
            why=f"the projection of manifest {next(iter(promised))} is not in the log",
        )
    if seq < session.head_seq:
        return seq, Failure(
            session=session.id,
            seq=seq + 1,
            why=f"the session has {session.head_seq} events, {seq} are there: the last ones were removed",
        )
    if seq == session.head_seq and chain != session.head_chain:
        return seq, Failure(session=session.id, seq=seq, why="the session's head has another chain value")
    return seq, None


def _erased_by(event: Event) -> str | None:
    """Return the event that this one says was erased."""
    body = body_of(event) if event.kind == "session" else None
    return body.event if isinstance(body, SessionChange) and body.change == "erased" else None


def _promised(platform: Platform, session: Session) -> dict[str, str] | str:
    """Return manifest id to projection digest for what began this session, or what is wrong with a manifest."""
    out: dict[str, str] = {}
    for link in platform.store.links(session.id):
        if link.type != "continuation" or link.to_session != session.id or link.manifest_id is None:
            continue
        stored = platform.store.manifest(link.manifest_id)
        if stored is None:
            return f"manifest {link.manifest_id} is missing"
        if digests.content_digest(stored.body) != stored.digest:
            return f"manifest {link.manifest_id} does not match its digest"
        try:
            out[stored.id] = decode_manifest(stored.body).digest
        except (msgspec.MsgspecError, ValueError) as error:
            return f"manifest {link.manifest_id} cannot be read: {error}"
    return out
