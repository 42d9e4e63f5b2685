"""When Gemini's ``session/load`` is safe: not in a minute for which it has a file of that conversation already.

Gemini CLI names the file of a conversation after the minute in which it began it and the first eight characters of the
id, and begins another one whenever it loads the conversation. If both fall into the same minute it writes over what is
there: the load fails, and the conversation is gone from the disk (seen with 0.61.0, right after ``session/new`` and right
after an earlier ``session/load``; the second case took the older file along). So a load waits for the next minute. A
process that is kept (``warm``) needs no load.

This only looks at file names; it never touches what belongs to Gemini.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

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
    for project in (home / ".gemini" / "tmp").glob("*"):
        if (project / "chats" / name).exists():
            following = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
            return (following - moment).total_seconds() + MARGIN
    return 0.0
