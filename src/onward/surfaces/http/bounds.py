"""Bounds: how much a request may say, in the types, so that the documentation says it and nothing has to check it twice.

Every list that is answered has a limit, and every limit a maximum.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from onward.core.continuing_command import MAX_DESCRIPTION, MAX_KEY, MAX_TITLE
from onward.core.references import MAX_SEQ
from onward.service.running import MAX_MESSAGE

Title = Annotated[str, Meta(max_length=MAX_TITLE)]
Description = Annotated[str, Meta(max_length=MAX_DESCRIPTION)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE)]
"""What somebody says: not empty, and at most so many characters; its bytes are bounded by the same number."""
Purpose = Annotated[str, Meta(min_length=1, max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=120)]
"""The name of an engine, a machine, a token."""
Folder = Annotated[str, Meta(min_length=1, max_length=4096)]
Id = Annotated[str, Meta(min_length=1, max_length=64)]
Address = Annotated[str, Meta(min_length=1, max_length=256)]
Words = Annotated[str, Meta(max_length=1000)]
"""What is searched for."""
Note = Annotated[str, Meta(max_length=1000)]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY)]
Options = dict[Annotated[str, Meta(max_length=64)], Any]
"""Dials of a run (`continuation`, `model`, `permission_mode`, …)."""

Seq = Annotated[int, Meta(ge=1, le=MAX_SEQ)]
"""The number of an event."""
After = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
"""The number of the last event that is known; 0 before the first."""
Moment = Annotated[int, Meta(ge=0, le=2**62)]
"""Microseconds since 1970."""
Budget = Annotated[int, Meta(ge=64, le=10_000_000)]
"""Tokens."""
Wait = Annotated[float, Meta(ge=0, le=25)]
"""Seconds."""
Cursor = Annotated[str, Meta(min_length=1, max_length=200)]
"""Where a page begins, as the page before it said. It means nothing to anybody else."""

UpTo50 = Annotated[int, Meta(ge=0, le=50)]
To100 = Annotated[int, Meta(ge=1, le=100)]
To200 = Annotated[int, Meta(ge=1, le=200)]
To1000 = Annotated[int, Meta(ge=1, le=1000)]
