"""Attaching: the images and files that events and manifests name, for whoever may read what names them.

Content is stored once under its digest, whoever brought it, so a digest alone opens nothing: it is read through an event or
a manifest, and those belong to an account (invariant A1). Once the event that named it was erased, it is not there.
"""

from __future__ import annotations

import re
from typing import Final

from onward.core.bodies import Message, ToolResult
from onward.core.codec import body_of
from onward.errors import EventNotFound, NotFound
from onward.service import continuing
from onward.service.platform import Platform

UNKNOWN: Final = "application/octet-stream"
_MEDIA: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}\Z")


def of_event(platform: Platform, event_id: str, digest: str) -> tuple[str, bytes]:
    """Return the media type and the content of something that an event names. Raises EventNotFound, NotFound.

    The media type is what was said when it came in; one that is none comes back as that of any bytes.
    """
    event = platform.store.event(event_id)
    if event is None or not platform.may_read(event.session_id):
        raise EventNotFound(event=event_id)
    body = body_of(event)
    parts = body.parts if isinstance(body, Message | ToolResult) else ()
    part = next((part for part in parts if part.blob == digest), None)
    data = None if part is None else platform.store.blob(digest)
    if part is None or data is None:
        raise NotFound(what="the content", value=digest)
    media = part.media_type.lower()
    return (media if _MEDIA.match(media) else UNKNOWN), data


def of_manifest(platform: Platform, named: str, digest: str) -> tuple[str, bytes]:
    """Return what was read of a resource or memory for a projection, as text. Raises ManifestNotFound, NotFound."""
    contents = continuing.manifest(platform, named).contents
    data = platform.store.blob(digest) if any(c.digest == digest for c in contents) else None
    if data is None:
        raise NotFound(what="the content", value=digest)
    return "text/plain; charset=utf-8", data
