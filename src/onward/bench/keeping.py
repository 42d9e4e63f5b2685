"""Goal 10: how much disk a conversation takes, full text included, over what was said.

The payload is the bytes of the bodies; the disk is every file of the store after it was closed. Messages arrive in turns of
ten to sessions that are written to in alternation, so no order that only a bulk load has flatters the file. Their sizes
vary around the usual one, as those of messages do: rows of one size fill a page by luck, well or badly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onward.bench.measure import Figure, compared
from onward.bench.payloads import BODY_BYTES, event
from onward.bench.setting import Setting, open_at
from onward.store.contract import Append, Batch

_SESSIONS: Final = 20
_TURN: Final = 10
_SMALLEST: Final = 60
"""Characters of the shortest message."""
_GROUP: Final = 25
"""Turns in one commit: flushes are no part of this goal."""


def disk(setting: Setting) -> Iterator[Figure]:
    """Measure a store of many messages."""
    turns = setting.size(4_000, 1_000, 20)
    prose, payload = setting.prose, 0
    with setting.place() as folder:
        with open_at(folder / "store.db") as log:
            platform = log.platform
            sessions = [log.start(f"Session {n}").id for n in range(_SESSIONS)]
            for first in range(0, turns, _GROUP):
                appends = []
                for turn in range(first, min(first + _GROUP, turns)):
                    sizes = (
                        _SMALLEST + prose.choose(2 * (BODY_BYTES - 40 - _SMALLEST)) for _ in range(_TURN)
                    )
                    events = tuple(event(platform, prose.text(size), n) for n, size in enumerate(sizes))
                    payload += sum(len(e.body) for e in events)
                    appends.append(Append(session_id=sessions[turn % _SESSIONS], events=events))
                platform.store.commit(Batch(appends=tuple(appends)))
            while platform.store.index_lag():
                log.search("anything")
        size = sum(file.stat().st_size for file in folder.iterdir())
    yield compared(
        10,
        f"disk for {turns * _TURN:,} messages, full text included, against their payload",
        ours=[size / 1e6],
        baseline=[payload / 1e6],
        target=1.6,
        bound="<=",
        unit="MB",
    )
