"""Frames: everything that a stream says, as the bytes of one server-sent event.

An event of the log is sent under its number, so a reader who reconnects says where it stood (``Last-Event-ID``). What has
no number (drafts, the fact of a continuation) is about how things stand; it may come again and is never missed.
The format is that of the HTML standard, section "Server-sent events".
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onward.core.bodies import RunChange
from onward.core.codec import body_of, encode
from onward.core.events import Event, iso
from onward.service.following import Continued, News
from onward.surfaces.http import shapes

RETRY_MS: Final = 1_000
OPENING: Final = f"retry: {RETRY_MS}\n\n".encode()
"""What a stream begins with: after how many milliseconds a reader that was cut off comes again."""
HEARTBEAT: Final = b": \n\n"
"""A comment, so that nobody on the way takes a silent stream for a dead one."""


def frame(name: str, data: Any, *, id: int | str | None = None) -> bytes:
    """Return one server-sent event with this value as JSON."""
    body = data if isinstance(data, bytes) else encode(data)
    if b"\n" in body or b"\r" in body:
        # A body stands in the log as it was given, and between its tokens there may be line ends. Spaces mean the same.
        body = body.replace(b"\r", b" ").replace(b"\n", b" ")
    head = f"id: {id}\n" if id is not None else ""
    return b"%sevent: %s\ndata: %s\n\n" % (head.encode(), name.encode(), body)


def event(record: Event) -> bytes:
    """Return an event of the log, as the API gives it elsewhere."""
    return frame("event", encode(shapes.event(record)), id=record.seq)  # type: ignore[arg-type]


def continued(told: Continued) -> bytes:
    """Return that the session went on in another one."""
    fields = msgspec.structs.asdict(told)
    return frame("session-continued", {**fields, "at": iso(told.at)})


def state(record: Event) -> bytes | None:
    """Return the new state of a run, where an event says one."""
    body = body_of(record) if record.kind == "run" else None
    if not isinstance(body, RunChange):
        return None
    return frame("state", {"run": body.run, "state": body.state, "seq": record.seq})


def upto(seq: int) -> bytes:
    """Return that there are events up to this one."""
    return frame("upto", {"seq": seq}, id=seq)


def draft(run: str, offset: int, text: str) -> bytes:
    """Return text that is being written: what follows after so many characters that were told before, or 0 to begin anew."""
    return frame("draft", {"run": run, "offset": offset, "text": text})


def draft_end(run: str) -> bytes:
    """Return that a draft is over: it is in the log now, or given up."""
    return frame("draft-end", {"run": run})


def news(told: News) -> bytes:
    """Return how a session of the account stands. The cursor is the ``place`` that follows."""
    fields = msgspec.structs.asdict(told)
    return frame(
        "session", {**fields, "created_at": iso(told.created_at), "updated_at": iso(told.updated_at)}
    )


def place(cursor: str) -> bytes:
    """Return a frame that says nothing but where a reader stands now."""
    return f"id: {cursor}\n\n".encode()


def end(code: str, message: str) -> bytes:
    """Return why a stream ends that the reader need not open again."""
    return frame("end", {"code": code, "message": message})
