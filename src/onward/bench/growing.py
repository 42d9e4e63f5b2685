"""Goal 4: what a session costs must not depend on how long it is.

The same three things are done to a session of 1,000 events and to one of a million, in turns: append, read the newest 200
events with their bodies, and compile the projection of a successor (everything that continuing does up to the commit). The
short session lies in a store of its own, the long one in the large store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from onward.bench.measure import Figure, compared, in_turns, seconds
from onward.bench.payloads import event, texts
from onward.bench.setting import Setting, open_at
from onward.core.codec import body_of
from onward.core.continuation import Request, decide_continuation
from onward.core.continuing_command import Command
from onward.core.manifest import Handoff
from onward.core.projection import DEFAULT_BUDGET
from onward.library import Onward
from onward.service import continuing
from onward.store.contract import Append, Batch
from onward.store.rules import INDEX_LAG

SHORT: Final = 1_000
NEWEST: Final = 200


def growth(setting: Setting) -> Iterator[Figure]:
    """Measure append, load and projection at both lengths."""
    corpus = setting.corpus
    short = min(SHORT, corpus.events // 3)
    with setting.place() as folder, open_at(folder / "short.db") as log:
        session = log.start("Short").id
        append(log, session, texts(setting.prose, short - 1))
        some = setting.size(INDEX_LAG, 100, 10)
        said = texts(setting.prose, some)

        def one_by_one(log: Onward, session: str) -> None:
            # So many that every repetition pays once for its share of the full text.
            for text in said:
                append(log, session, [text])

        verbs: tuple[tuple[str, Callable[[Onward, str], object], int], ...] = (
            (f"append, {some} commits of one event", one_by_one, 5),
            (f"load of the newest {NEWEST} events", load, setting.size(60, 30, 2)),
            ("projection of a successor", project, setting.size(40, 20, 2)),
        )
        for what, verb, repetitions in verbs:
            verb(log, session)
            verb(corpus.log, corpus.long)

            def at_length(verb: Callable[[Onward, str], object] = verb) -> float:
                return seconds(lambda: verb(corpus.log, corpus.long)) * 1000

            def at_start(verb: Callable[[Onward, str], object] = verb) -> float:
                return seconds(lambda: verb(log, session)) * 1000

            pairs = in_turns(at_length, at_start, setting.size(repetitions, max(2, repetitions // 2), 1))
            yield compared(
                4,
                f"{what}, at {corpus.events:,} events against {short:,}",
                ours=[a for a, _ in pairs],
                baseline=[b for _, b in pairs],
                target=1.2,
                bound="<=",
                unit="ms",
            )
    rate = corpus.events / corpus.seconds
    yield Figure(
        goal=4,
        what=f"writing {corpus.events:,} events through the bulk path",
        ratio=corpus.seconds,
        ours=corpus.seconds,
        unit="s",
        repetitions=1,
        note=f"{rate:,.0f} events/s, full text included",
    )


def append(log: Onward, session: str, said: list[str]) -> None:
    """Store messages in one durable commit."""
    platform = log.platform
    events = tuple(event(platform, text, n) for n, text in enumerate(said))
    platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))


def load(log: Onward, session: str) -> list[object]:
    """Read the newest events and decode them."""
    found = log.platform.store.events(session, limit=NEWEST, newest_first=True)
    return [body_of(event) for event in reversed(found)]


def project(log: Onward, session: str) -> object:
    """Decide to continue, which compiles the projection, and write nothing."""
    command = Command(
        reason="phase_change",
        title="Measured",
        handoff=Handoff(purpose="Measure a projection", current_request="Go on with the work"),
    )
    request = Request(command=command, key="measured", actor="user", budget=DEFAULT_BUDGET)
    platform = log.platform
    snapshot = continuing.load_snapshot(platform, session, command)
    return decide_continuation(request, snapshot, platform.clock(), platform.ids, platform.counter)
