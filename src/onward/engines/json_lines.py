"""JSON by lines, as it is spoken with programs: what is said, any of them can read; what they say is read whatever it is.

JavaScript cuts texts into UTF-16 units, so a program may say half of a character, and a log holds what was said. JSON has
a spelling for that (a lone surrogate), which some programs write and others do not read: one in the middle of a brief
would cost the whole message. So it is read here, and never written: it is said as a replacement character.

It deliberately knows no protocol, and what is no JSON is for its caller to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.core.codec import loads
from onward.engines.wire import cleaned

__all__ = ["loads", "said"]


def said(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of JSON, without its end."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return msgspec.json.encode(cleaned(message))
