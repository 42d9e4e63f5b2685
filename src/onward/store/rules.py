"""Rules: what every store must decide in the same way, as pure functions of records.

A store finds the records, asks here what becomes of them, and writes the answer. Nothing here knows how anything is stored.
Keeping these out of the stores is what lets the memory store be the model that the others are tested against.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from onward.core import ids, words
from onward.core.digests import GENESIS
from onward.core.events import Event, NewEvent
from onward.core.records import (
    FINAL_STATES,
    Link,
    Machine,
    NativeRows,
    Run,
    Session,
    Token,
    Workspace,
    may_become,
)
from onward.errors import Conflict, InvalidId, InvalidInput, InvalidTransition, LeaseLost, StoreError
from onward.store.contract import (
    Append,
    Batch,
    DropNative,
    Guard,
    HeadIs,
    LinkPatch,
    LinksAre,
    NoDraft,
    NoOpenCalls,
    NoRuns,
    RunChange,
    RunIs,
    SessionPatch,
    SessionQuery,
    WorkspacePatch,
)

INDEX_LAG: Final = 200
"""The full text is at most this many events behind the log once a writer is at rest."""


def fresh_session(session: Session) -> Session:
    """Return a session as it enters the store: whatever the store keeps by itself starts at the beginning."""
    return msgspec.structs.replace(
        session, head_seq=0, head_chain=GENESIS, updated_at=0, input_seq=0, fence=0
    )


def patched_session(session: Session, patch: SessionPatch) -> Session:
    """Return a session with the values of a patch; those at None keep what is there."""
    return msgspec.structs.replace(session, **_given(patch, but=("session_id",)))


def patched_link(link: Link, patch: LinkPatch) -> Link:
    """Return a link with the news of a patch; those at None keep what is there. Of a child's reports the first counts."""
    kept = ("link_id",) if link.reported_at is None else ("link_id", "reported_at", "outcome")
    return msgspec.structs.replace(link, **_given(patch, but=kept))


def kept_machine(machine: Machine, there: Machine | None) -> Machine:
    """Return a machine as it is stored. Raises Conflict when its id belongs to another account."""
    if there is not None and there.account_id != machine.account_id:
        raise Conflict(what=f"machine {machine.id}, which exists already")
    return machine


def kept_token(token: Token, there: Token | None) -> Token:
    """Return a token as it is stored. Raises Conflict when its id belongs to another account."""
    if there is not None and there.account_id != token.account_id:
        raise Conflict(what=f"token {token.id}, which exists already")
    return token


def same_place(one: Workspace, other: Workspace) -> bool:
    """Whether two records are about one workspace in one place."""
    return (one.id, one.account_id, one.machine_id, one.path) == (
        other.id,
        other.account_id,
        other.machine_id,
        other.path,
    )


def moved(workspace: Workspace, patch: WorkspacePatch) -> Workspace:
    """Return a workspace where a patch puts it."""
    return msgspec.structs.replace(
        workspace, machine_id=patch.machine_id, path=patch.path, moved_at=patch.moved_at
    )


def waits_before(one: Run, other: Run) -> bool:
    """Whether a queued run's turn comes before another's in their session: those whose message was said come first."""
    return (one.input is not None, one.created_at, one.id) < (
        other.input is not None,
        other.created_at,
        other.id,
    )


def fresh_run(run: Run) -> Run:
    """Return a run as it enters the store. Its fencing number is the store's to give, so it has none yet."""
    return msgspec.structs.replace(run, fence=0)


def changed_run(run: Run, change: RunChange) -> Run:
    """Return a run after a change, without a new fencing number.

    Raises LeaseLost when the change was made under another fencing number, or renews a lease on a run that no longer runs;
    InvalidTransition when the state found does not allow the one wanted, or a run that is not queued should move.
    """
    if change.fence is not None:
        if change.fence != run.fence:
            raise LeaseLost(run=run.id, why=f"its fencing number is {run.fence}, not {change.fence}")
        if run.state != "running" and change.state is None:
            raise LeaseLost(run=run.id, why=f"it is {run.state}")
    if change.state is not None and not may_become(run.state, change.state):
        raise InvalidTransition(run=run.id, found=run.state, wanted=change.state)
    if change.entry is not None and change.entry != run.entries + 1:
        raise Conflict(
            what=f"run {run.id}, of which {run.entries} entries are acknowledged, not {change.entry - 1}"
        )
    if change.session_id is not None and change.session_id != run.session_id and run.state != "queued":
        raise InvalidTransition(run=run.id, found=run.state, wanted=f"a run of {change.session_id}")
    given = _given(change, but=("run_id", "fence", "clear_input", "entry"))
    if change.entry is not None:
        given["entries"] = change.entry
    if change.clear_input:
        given["input"] = given["context"] = None
    return msgspec.structs.replace(run, **given)


def with_fence(run: Run, fence: int) -> Run:
    """Return a run that runs under a new fencing number."""
    return msgspec.structs.replace(run, fence=fence)


def check_hold(append: Append, run: Run | None) -> None:
    """Raise LeaseLost unless ``run`` is running under the fencing number of an append (invariant L6)."""
    if append.fence is None or append.run_id is None:
        return
    if run is None:
        raise LeaseLost(run=append.run_id, why="it does not exist")
    if run.state != "running":
        raise LeaseLost(run=run.id, why=f"it is {run.state}")
    if run.fence != append.fence:
        raise LeaseLost(run=run.id, why=f"its fencing number is {run.fence}, not {append.fence}")


def run_is(guard: RunIs, run: Run) -> bool:
    """Whether a run is as a guard states: its state, the number it is held under, and a lease that was not renewed."""
    return (
        run.state == guard.state
        and guard.fence in (None, run.fence)
        and (guard.lease_before is None or (run.lease_until or 0) < guard.lease_before)
    )


def check_draft(run: Run) -> None:
    """Raise LeaseLost when a draft is written for a run that has ended."""
    if run.state in FINAL_STATES:
        raise LeaseLost(run=run.id, why=f"it is {run.state}")


def check_shape(batch: Batch) -> list[bytes]:
    """Return the 16 bytes behind the id of every event of a batch, in order.

    Raises InvalidInput for what no store could keep: malformed ids, negative counts, an event without a salt.
    """
    packed = [check_event(event) for append in batch.appends for event in append.events]
    for stretch in batch.originals:
        if stretch.offset < 0 or stretch.length < 0:
            raise InvalidInput(
                what="a stretch of a native file", why=f"{stretch.offset}+{stretch.length} is negative"
            )
    return packed


TIMES: Final = 2**63
"""Microseconds; no store need keep a time that is further from 1970."""


def check_event(event: NewEvent) -> bytes:
    """Return the 16 bytes behind an event's id. Raises InvalidInput for an event that could not be addressed or sealed."""
    packed = ids.pack_checked(event.id, ids.EVENT)
    if event.run_id is not None:
        ids.check_id(event.run_id, ids.RUN)
    if not -TIMES <= event.at < TIMES:
        raise InvalidInput(what=f"the time of event {event.id}", why=f"{event.at} does not fit into 64 bits")
    if not event.salt:
        raise InvalidInput(what=f"event {event.id}", why="it has no salt, which is how an erased one is told")
    return packed


def packed_event_id(event_id: str) -> bytes | None:
    """Return the 16 bytes behind an event id, or None for what is none: a log cannot hold it."""
    try:
        return ids.pack_id(ids.check_id(event_id, ids.EVENT))
    except InvalidId:
        return None


def erased_event(event: Event, tombstone: bytes) -> Event:
    """Return an event with its body gone: the digest and the chain stay (invariant L5)."""
    return msgspec.structs.replace(event, body=tombstone, salt=b"")


def opens_input(event: NewEvent) -> bool:
    """Whether an event is somebody speaking, which moves ``Session.input_seq``."""
    return event.kind == "message" and event.actor in ("user", "trigger")


def activity(session: Session) -> int:
    """Return when a session was last active: its newest event, or its creation while it has none."""
    return max(session.updated_at, session.created_at)


def matches_text(session: Session, text: str | None) -> bool:
    """Whether a session's title or id holds a text, whatever the case of either."""
    return text is None or matches_folded(session.title, text) or matches_folded(session.id, text)


def matches_folded(whole: str | bytes, text: str | bytes) -> bool:
    """Whether ``whole`` holds ``text``, whatever the case of either."""
    return _folded(text) in _folded(whole)


def subject(guard: Guard) -> str:
    """Return in words what a guard watches, for the Conflict that is raised when it does not hold."""
    match guard:
        case HeadIs(session_id, seq):
            return f"session {session_id}, which no longer ends at event {seq}"
        case LinksAre(session_id, type_, count):
            return f"session {session_id}, which no longer has {count} links of type {type_}"
        case RunIs(run_id, state, fence):
            return f"run {run_id}, which is no longer {state}" + (
                f" under number {fence}" if fence is not None else ""
            )
        case NoOpenCalls(session_id, _):
            return f"session {session_id}, which has other tool calls without a result"
        case NoRuns(session_id, _):
            return f"session {session_id}, which has other runs that wait or work"
        case NoDraft(run_id):
            return f"run {run_id}, under which text is being streamed"


def single_words(terms: Sequence[str]) -> list[str]:
    """Return the distinct words of search terms. Those that ``core.words`` cut come back as they are; others are cut now.

    So no term is special to a store, whatever is in it.
    """
    return list(dict.fromkeys(word for term in terms for word in words.cut(term)))


def encode_cursor(session: Session) -> str:
    """Return the cursor of the page after this session."""
    return f"{activity(session)}.{session.id}"


def decode_cursor(query: SessionQuery) -> tuple[int, str] | None:
    """Return the place behind a cursor, or None at the start. Raises InvalidInput for one that no store gave out."""
    if query.cursor is None:
        return None
    at, dot, session_id = query.cursor.partition(".")
    if not dot or not at.lstrip("-").isdecimal():
        raise InvalidInput(what="the cursor", why=f"{query.cursor!r} did not come from a listing")
    return int(at), session_id


def position(cursor: str | None, newest: int) -> int:
    """Return the place in the log behind a cursor; without one, its end. Raises InvalidInput for one of another log."""
    if cursor is None:
        return newest
    if not cursor.isascii() or not cursor.isdecimal() or int(cursor[:20]) > newest:
        raise InvalidInput(what="the cursor", why=f"{cursor[:40]!r} did not come from this log")
    return int(cursor)


def cut_original(stretches: Iterable[tuple[int, int, bytes]], offset: int, length: int) -> bytes | None:
    """Return ``length`` bytes at ``offset`` out of compressed stretches ``(offset, length, data)`` in order of offset.

    None when any of the bytes is in no stretch. Raises StoreError for a stretch that is damaged.
    """
    found = bytearray()
    for start, size, data in stretches:
        wanted = offset + len(found)
        if len(found) >= length or start > wanted:
            break
        if start + size > wanted:
            try:
                whole = zlib.decompress(data)
            except (zlib.error, TypeError) as error:
                raise StoreError(
                    why=f"a native file's bytes from {start:,} on are damaged: {error}"
                ) from None
            found += whole[wanted - start : wanted - start + length - len(found)]
    return bytes(found) if len(found) == length else None


def _folded(text: str | bytes) -> str:
    return (text if isinstance(text, str) else text.decode("utf-8", "surrogatepass")).casefold()


def _given(change: msgspec.Struct, *, but: Sequence[str]) -> dict[str, object]:
    return {
        name: value
        for name in change.__struct_fields__
        if name not in but and (value := getattr(change, name)) is not None
    }


def is_gone(rows: NativeRows, gone: DropNative) -> bool:
    """Whether these rows of an engine's own file are among those that are taken away."""
    if gone.session_id is not None and rows.session_id == gone.session_id:
        return True
    key = (rows.account_id, rows.engine, rows.native_id, rows.scope)
    same = key == (gone.account_id, gone.engine, gone.native_id, gone.scope)
    return same and gone.path in (None, rows.path)
