"""Shapes: what records look like as JSON. The field names are a contract with whoever reads ``--json``.

Times are ISO 8601 in UTC with microseconds, digests are ``sha256:<hex>``, what is absent is null. A body is the JSON that
was logged, byte for byte where it is JSON; one that cannot be read says so and shows its text (invariant L4).
"""

from __future__ import annotations

from typing import Any

import msgspec

from onward.core.codec import shown
from onward.core.events import Event, iso
from onward.core.records import Link, Run, Session
from onward.service.platform import Platform


def session(record: Session, platform: Platform) -> dict[str, Any]:
    """Return a session."""
    place = platform.store.workspace_by_id(record.workspace_id) if record.workspace_id else None
    return {
        "id": record.id,
        "title": record.title,
        "description": record.description,
        "engine": record.engine,
        "workspace": place.path if place else None,
        "origin": record.origin_id or record.id,
        "imported": record.imported,
        "archived": record.archived,
        "events": record.head_seq,
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at or record.created_at),
        "chain": f"sha256:{record.head_chain.hex()}",
    }


def event(record: Event) -> dict[str, Any]:
    """Return an event with its body."""
    return {
        "id": record.id,
        "session": record.session_id,
        "seq": record.seq,
        "at": iso(record.at),
        "kind": record.kind,
        "actor": record.actor,
        "run": record.run_id,
        "source": record.source,
        "body": shown(record),
        "digest": f"sha256:{record.digest.hex()}",
        "chain": f"sha256:{record.chain.hex()}",
    }


def link(record: Link) -> dict[str, Any]:
    """Return a link between two sessions."""
    return {
        "id": record.id,
        "type": record.type,
        "from": record.from_session,
        "to": record.to_session,
        "at": iso(record.created_at),
        "actor": record.actor,
        "reason": record.reason or None,
        "event": record.event_id,
        "seq": record.seq,
        "manifest": record.manifest_id,
        "report_to": record.report_to,
        "key": record.key,
    }


def run(record: Run, platform: Platform) -> dict[str, Any]:
    """Return a run; of one that waits, the reason says what for."""
    return {
        "id": record.id,
        "session": record.session_id,
        "state": record.state,
        "engine": record.engine or None,
        "attempt": record.attempt,
        "retry_of": record.retry_of,
        "input": record.input_event,
        "created_at": iso(record.created_at),
        "started_at": None if record.started_at is None else iso(record.started_at),
        "ended_at": None if record.ended_at is None else iso(record.ended_at),
        "reason": reason(record, platform),
        "usage": msgspec.Raw(record.usage) if record.usage else None,
    }


def reason(record: Run, platform: Platform) -> str | None:
    """Return why a run ended as it did or, of one that waits, what it waits for."""
    if record.state != "queued":
        return record.reason
    from onward.service import dispatching  # late: few runs wait

    return dispatching.why_waiting(platform, record) or None
