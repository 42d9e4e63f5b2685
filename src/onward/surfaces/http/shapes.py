"""Shapes: what goes in and out, as types. The field names are a contract, the same as those of the command line's JSON.

Times are ISO 8601 in UTC with microseconds, digests are ``sha256:<hex>``, what is absent is null. The body of an event
is the JSON that was logged; one that cannot be read says so and shows its text (invariant L4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onward.core.codec import shown
from onward.core.events import Event, Source, iso
from onward.core.records import FINAL_STATES, Link, Machine, Run, Session, Token, Workspace
from onward.service import dispatching, machines, workspaces
from onward.service.platform import Platform


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The root of everything that is answered."""


class Health(Shape, frozen=True, kw_only=True):
    """The server is there."""

    ok: bool
    version: str


class SessionShape(Shape, frozen=True, kw_only=True):
    """A session as it stands."""

    id: str
    title: str
    description: str
    engine: str | None
    workspace: str | None
    """Its folder, as its machine spells it."""
    workspace_id: str | None
    machine: str | None
    """The name of the machine that has that folder, where it is registered."""
    origin: str
    imported: bool
    archived: bool
    events: int
    created_at: str
    updated_at: str
    chain: str


class EventShape(Shape, frozen=True, kw_only=True):
    """One event of a log."""

    id: str
    session: str
    seq: int
    at: str
    kind: str
    actor: str
    run: str | None
    source: Source
    body: Any
    digest: str
    chain: str


class LinkShape(Shape, frozen=True, kw_only=True, rename={"from_session": "from", "to_session": "to"}):
    """A typed edge between two sessions."""

    id: str
    type: str
    """``continuation``, ``child`` or ``fork``."""
    from_session: str
    to_session: str
    at: str
    actor: str
    reason: str | None
    event: str | None
    """The initiating event of a continuation, the call that delegated a child, the last shared event of a fork."""
    seq: int | None
    manifest: str | None
    report_to: str | None
    """Of a child: the session that it reports to now."""
    key: str | None


class RunShape(Shape, frozen=True, kw_only=True):
    """A run as it stands."""

    id: str
    session: str
    state: str
    engine: str | None
    machine: str | None
    """The name of the machine that executes it, or did."""
    attempt: int
    retry_of: str | None
    input: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    reason: str | None
    """Why it ended as it did; of a run that waits, what for."""
    usage: Any


class OfferShape(Shape, frozen=True, kw_only=True):
    """An engine of a machine."""

    name: str
    version: str | None
    unavailable: str | None


class MachineShape(Shape, frozen=True, kw_only=True):
    """A machine."""

    id: str
    name: str
    home: bool
    online: bool
    seen_at: str | None
    engines: tuple[OfferShape, ...]


class WorkspaceShape(Shape, frozen=True, kw_only=True):
    """A workspace."""

    id: str
    path: str
    machine: str | None
    machine_id: str | None
    created_at: str
    moved_at: str | None


class TokenShape(Shape, frozen=True, kw_only=True):
    """A token; its secret is nowhere."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: str
    expires_at: str | None
    revoked_at: str | None


def session(record: Session, platform: Platform) -> SessionShape:
    """Return a session."""
    place = workspaces.of_session(platform, record)
    on = workspaces.machine_of(platform, place) if place else None
    return SessionShape(
        id=record.id,
        title=record.title,
        description=record.description,
        engine=record.engine,
        workspace=place.path if place else None,
        workspace_id=record.workspace_id,
        machine=on.name if on else None,
        origin=record.origin_id or record.id,
        imported=record.imported,
        archived=record.archived,
        events=record.head_seq,
        created_at=iso(record.created_at),
        updated_at=iso(record.updated_at or record.created_at),
        chain=f"sha256:{record.head_chain.hex()}",
    )


def event(record: Event) -> EventShape:
    """Return an event with its body."""
    return EventShape(
        id=record.id,
        session=record.session_id,
        seq=record.seq,
        at=iso(record.at),
        kind=record.kind,
        actor=record.actor,
        run=record.run_id,
        source=record.source,
        body=shown(record),
        digest=f"sha256:{record.digest.hex()}",
        chain=f"sha256:{record.chain.hex()}",
    )


def link(record: Link) -> LinkShape:
    """Return a link."""
    return LinkShape(
        id=record.id,
        type=record.type,
        from_session=record.from_session,
        to_session=record.to_session,
        at=iso(record.created_at),
        actor=record.actor,
        reason=record.reason or None,
        event=record.event_id,
        seq=record.seq,
        manifest=record.manifest_id,
        report_to=record.report_to,
        key=record.key,
    )


def run(record: Run, platform: Platform, unfinished: Sequence[Run] | None = None) -> RunShape:
    """Return a run; of one that waits, the reason is what it waits for.

    ``unfinished`` are the unfinished runs of its session, where they were read already.
    """
    on = platform.store.machine(record.machine_id) if record.machine_id else None
    waits = dispatching.why_waiting(platform, record, unfinished) or None
    return RunShape(
        id=record.id,
        session=record.session_id,
        state=record.state,
        engine=record.engine or None,
        machine=on.name if on else None,
        attempt=record.attempt,
        retry_of=record.retry_of,
        input=record.input_event,
        created_at=iso(record.created_at),
        started_at=_time(record.started_at),
        ended_at=_time(record.ended_at),
        reason=record.reason if record.state in FINAL_STATES else waits,
        usage=msgspec.Raw(record.usage) if record.usage else None,
    )


def machine(record: Machine, platform: Platform) -> MachineShape:
    """Return a machine, and whether anybody is there."""
    return MachineShape(
        id=record.id,
        name=record.name,
        home=record.home,
        online=machines.online(platform, record),
        seen_at=_time(record.seen_at or None),
        engines=tuple(
            OfferShape(name=offer.name, version=offer.version, unavailable=offer.unavailable)
            for offer in machines.offers(record)
        ),
    )


def workspace(record: Workspace, platform: Platform) -> WorkspaceShape:
    """Return a workspace, and which machine has it."""
    on = workspaces.machine_of(platform, record)
    return WorkspaceShape(
        id=record.id,
        path=record.path,
        machine=on.name if on else None,
        machine_id=on.id if on else None,
        created_at=iso(record.created_at),
        moved_at=_time(record.moved_at),
    )


def token(record: Token) -> TokenShape:
    """Return a token without anything that could be used."""
    return TokenShape(
        id=record.id,
        name=record.name,
        scopes=record.scopes,
        created_at=iso(record.created_at),
        expires_at=_time(record.expires_at),
        revoked_at=_time(record.revoked_at),
    )


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
