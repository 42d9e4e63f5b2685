"""Images and files inside native content, taken out once and linked by their digest.

Native files carry them as base64. A part that cannot be decoded, or that is a link and no content, stays where it is: the
event's text names it, and the original record holds it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from onward.core.bodies import Part
from onward.core.digests import content_digest

_DATA_URL: Final = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.DOTALL)


def part_of(media_type: str | None, encoded: str, name: str | None = None) -> tuple[Part, bytes] | None:
    """Return the part and its content, or None when ``encoded`` is not base64."""
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not content:
        return None
    part = Part(
        blob=content_digest(content),
        media_type=media_type or "application/octet-stream",
        name=name,
        bytes=len(content),
    )
    return part, content


def part_of_url(url: str) -> tuple[Part, bytes] | None:
    """Return the part behind a ``data:`` URL (RFC 2397) in base64, or None for any other URL."""
    found = _DATA_URL.match(url[:256])
    if found is None or ";base64" not in found[2]:
        return None
    return part_of(found[1], url[found.end() :])


def part_of_source(source: Any, name: str | None = None) -> tuple[Part, bytes] | None:
    """Return the part behind the ``source`` of an Anthropic image or document block, or None."""
    if not isinstance(source, dict) or source.get("type") != "base64":
        return None
    data, media_type = source.get("data"), source.get("media_type")
    if not isinstance(data, str):
        return None
    return part_of(media_type if isinstance(media_type, str) else None, data, name)
