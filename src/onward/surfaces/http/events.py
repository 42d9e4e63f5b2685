"""Single events over HTTP: one by its id, the native record behind it, the files that it names, and erasing what it says."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from onward.core.digests import content_digest
from onward.errors import Conflict, EventNotFound, NotFound
from onward.service import attaching, sessions
from onward.service.importing_originals import original_record
from onward.surfaces.http import replying, shapes
from onward.surfaces.http.routing import Ask, Route

BYTES: Final = "application/octet-stream"


class Erasing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the words of an event go."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


def show(ask: Ask) -> shapes.EventShape:
    """Return one event."""
    found = ask.platform.store.event(ask.path["event"])
    if found is None or not ask.platform.may_read(found.session_id):
        raise EventNotFound(event=ask.path["event"])
    return shapes.event(found)


def original(ask: Ask) -> Response:
    """Return the native record of an imported event."""
    found = ask.platform.store.event(ask.path["event"])
    if found is None or not ask.platform.may_read(found.session_id):
        raise EventNotFound(event=ask.path["event"])
    data = original_record(ask.platform.store, found)
    return replying.exact(data, BYTES, content_digest(data), name=f"{found.id}.txt")


def blob(ask: Ask) -> Response:
    """Return a file that an event names."""
    digest = ask.path["digest"]
    media, data = attaching.of_event(ask.platform, ask.path["event"], digest)
    return replying.exact(data, media, digest)


def erase(ask: Ask) -> shapes.EventShape:
    """Erase what an event says."""
    given: Erasing = ask.body
    return shapes.event(sessions.erase(ask.platform, ask.path["event"], reason=given.reason))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/events/{event}",
        does="Return one event.",
        scope="read",
        handler=show,
        answer=shapes.EventShape,
        tag="strong",
    ),
    Route(
        method="GET",
        path="/v1/events/{event}/original",
        does="Return the native record behind an imported event, byte for byte.",
        scope="read",
        handler=original,
        answer=bytes,
        media=BYTES,
        errors=(NotFound,),
        tag="strong",
    ),
    Route(
        method="GET",
        path="/v1/events/{event}/blobs/{digest}",
        does="Return an image or file that an event names.",
        scope="read",
        handler=blob,
        answer=bytes,
        media="*/*",
        errors=(NotFound,),
        tag="strong",
    ),
    Route(
        method="POST",
        path="/v1/events/{event}/erase",
        does="Erase what an event says: its digest stays, so the chain still verifies. Returns the event that says so.",
        scope="admin",
        handler=erase,
        body=Erasing,
        answer=shapes.EventShape,
        errors=(Conflict,),
        example={"reason": "a key was in it"},
    ),
)
