"""How a conversation of Gemini CLI survives being resumed: when it may be loaded, and what has to be taken away.

Gemini CLI names the file of a conversation after the minute in which it began it and the first eight characters of the
id. Every ``session/load`` begins another one, which stays empty while the turns go into the first. Two things follow,
both seen with 0.61.0:

- A load in the minute of the first file writes over it; the load fails and the conversation is gone. So a load waits for
  the next minute (``seconds_until_safe``). A process that is kept (``warm``) needs no load.
- Each start of the program cleans up: it takes the empty file for damaged, and deletes **all** files whose name ends in
  the same eight characters, so that whatever was resumed once is gone at the second start after. (It does so unless
  ``general.sessionRetention.enabled`` is off in the user's settings.) So the empty file is removed before that can happen
  (``sweep``).

Nothing is removed but such an empty file, of exactly this conversation, beside another one that holds its messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

SHARED: Final = 8
"""Characters of an id that are in a file's name."""
MARGIN: Final = 0.05
"""Seconds into the next minute, so that a clock that rounds does not fall back into this one."""


def gemini_home(environment: Mapping[str, str]) -> Path:
    """Return the folder in which Gemini CLI keeps its own folder, as it finds it."""
    return Path(environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or Path.home())


def seconds_until_safe(home: Path, native_id: str, now: float) -> float:
    """Return how long to wait, at most a minute, before the conversation may be loaded; 0 if it may be at once.

    ``now`` is in seconds since 1970. Another conversation whose id begins alike makes us wait too: the name of the file
    is the same.
    """
    moment = datetime.fromtimestamp(now, UTC)
    name = f"session-{moment:%Y-%m-%dT%H-%M}-{native_id[:SHARED]}.jsonl"
    if any((chats / name).exists() for chats in _chats(home)):
        following = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        return (following - moment).total_seconds() + MARGIN
    return 0.0


def sweep(home: Path, native_id: str) -> int:
    """Remove the empty files that loading this conversation left beside its own; return how many.

    A file that cannot be read, holds a message, or belongs to another conversation stays.
    """
    removed = 0
    for chats in _chats(home):
        files = sorted(chats.glob(f"session-*-{native_id[:SHARED]}.jsonl")) if _plain(native_id) else []
        held = {file: _messages(file, native_id) for file in files}
        if not any(held.values()):
            continue
        for file, count in held.items():
            if count == 0:
                with contextlib.suppress(OSError):
                    file.unlink()
                    removed += 1
    return removed


def _chats(home: Path) -> Iterator[Path]:
    for project in (home / ".gemini" / "tmp").glob("*"):
        yield project / "chats"


def _plain(native_id: str) -> bool:
    """Whether the beginning of the id is text to a glob."""
    return len(native_id) >= SHARED and native_id[:SHARED].isalnum()


def _messages(file: Path, native_id: str) -> int | None:
    """Return how many messages were exchanged in a file; None if it is not readable as one of this conversation.

    The list that ``$set`` puts in place holds the harness's own first words even in an empty conversation.
    """
    count = 0
    try:
        for line in file.read_bytes().splitlines():
            row: Any = msgspec.json.decode(line)
            if row.get("sessionId", native_id) != native_id:
                return None
            count += "id" in row
            changed = row.get("$set")
            if isinstance(changed, dict) and isinstance(messages := changed.get("messages"), list):
                count += max(0, len(messages) - 1)
    except (OSError, msgspec.DecodeError, AttributeError):
        return None
    return count
