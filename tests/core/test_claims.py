"""Claims: which events a text names, and when those bear it out."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onward.core import claims
from onward.core.bodies import Body, Message, ToolCall, ToolResult
from onward.core.codec import encode
from onward.core.events import ONWARD, Event
from onward.core.recommending import unused
from onward.core.references import Source

HERE, THERE = "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV", "ses_01BX5ZZKBKACTAV9WEVGEMMVRZ"


def event(seq: int, body: Body, kind: str = "message", actor: str = "user", session: str = HERE) -> Event:
    return Event(
        id=f"evt_{session[-3:]}{seq}",
        session_id=session,
        seq=seq,
        at=seq,
        kind=kind,
        actor=actor,
        body=encode(body),
        salt=bytes(16),
        digest=bytes(32),
        chain=bytes(32),
        run_id=None,
        source=ONWARD,
    )


def said(seq: int, text: str, actor: str = "user", **fields: Any) -> Event:
    role = "assistant" if actor == "agent" else "user"
    return event(seq, Message(role=role, text=text, **fields), actor=actor)


def verdict(text: str, *events: Event, among: tuple[Event, ...] = ()) -> claims.Claim:
    known = {(e.session_id, e.seq): e for e in (*events, *among)}
    return claims.judged("established_facts", text, HERE, known, among)


def test_a_text_names_events_ranges_and_events_of_other_sessions() -> None:
    text = f"It [12] and [13-15] and [{THERE}:7], but [x], [ses_1], [-3] and 12 are no events."
    assert claims.marked(text, HERE) == [(HERE, 12, 12), (HERE, 13, 15), (THERE, 7, 7)]
    assert claims.plain("The port is 1 [12] (superseded by [41])") == "The port is 1"


@given(st.text(max_size=80), st.integers(1, 999), st.integers(1, 999))
def test_the_mark_of_what_supersedes_a_claim_is_no_citation_and_is_replaced(
    text: str, one: int, two: int
) -> None:
    marked = claims.superseded(text, str(one))
    assert claims.superseded(marked, str(two)) == claims.superseded(text, str(two))
    assert claims.marked(marked, HERE) == claims.marked(text, HERE)


def test_the_agents_own_words_bear_nothing_out() -> None:
    words = "the parser fails on leap days"
    assert verdict(f"{words} [1]", said(1, words)).verified
    assert verdict(f"{words} [1]", said(1, words, actor="trigger")).verified
    assert not verdict(f"{words} [1]", said(1, words, actor="agent")).verified
    assert not verdict(f"{words} [1]", said(1, words, aside=True)).verified


def test_a_call_counts_once_it_was_answered_and_a_closer_is_no_answer() -> None:
    call = event(1, ToolCall(call="c", name="Write", input={"path": "src/a.py"}), "tool_call", "agent")
    done = event(2, ToolResult(call="c", output="ok"), "tool_result", "tool")
    failed = event(2, ToolResult(call="c", output="src/a.py", status="error"), "tool_result", "tool")
    closed = event(2, ToolResult(call="c", output="src/a.py", closer=True), "tool_result", "system")
    assert verdict("Wrote “src/a.py” [1]", call, done).verified
    assert not verdict("Wrote “src/a.py” [1]", call).verified
    assert not verdict("Wrote “src/a.py” [1]", call, failed).verified
    assert not verdict("Wrote “src/a.py” [2]", closed).verified


def test_every_quotation_has_to_stand_in_an_event_that_is_named() -> None:
    both = "Files: “src/a.py” [1], “src/b.py” [2]"
    assert verdict(both, said(1, "see src/a.py"), said(2, "and  src/b.py")).verified
    assert not verdict(both, said(1, "see src/a.py"), said(2, "and src/c.py")).verified
    assert not verdict("“a b” [1]", said(1, "a and b")).verified


def test_what_names_no_event_rests_on_the_sources_that_hold_its_words_or_on_nothing() -> None:
    source = said(4, "The deadline is Friday at noon.")
    found = verdict("The deadline is Friday", among=(source,))
    assert (found.cites, found.verified) == ((f"{HERE}:4",), True)
    lost = verdict("Elephants never forget", among=(source,))
    assert (lost.cites, lost.verified) == ((), False)
    assert verdict("", among=(source,)).cites == ()
    assert verdict("An event that is not there [99]").cites == ()


def test_what_was_recommended_is_used_when_any_part_of_it_is_cited() -> None:
    recommended = (
        f"{HERE}:3-9",
        f"{HERE}:12",
        "memory:a.md@sha256:00",
        "https://x.org/spec@v1",
        "https://x.org/other",
    )
    cited = [
        Source(kind="session_events", session=HERE, from_seq=9, to_seq=11),
        Source(kind="memory", path="a.md"),
        Source(kind="resource", url="https://x.org/spec"),
        Source(kind="resource", url="https://x.org/oth"),
        Source(kind="session_event", session=THERE, from_seq=12, to_seq=12),
    ]
    assert unused(recommended, cited) == (f"{HERE}:12", "https://x.org/other")
    assert unused(recommended, []) == recommended
    assert unused((), cited) == ()


@given(
    ranges=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=8),
    kept=st.sets(st.integers(0, 7)),
)
def test_whoever_keeps_a_recommendation_as_it_is_has_used_it(
    ranges: list[tuple[int, int]], kept: set[int]
) -> None:
    sources = [
        Source(kind="session_events", session=HERE, from_seq=first, to_seq=first + more)
        for first, more in ranges
    ]
    recommended = tuple(source.address() for source in sources)
    left = unused(recommended, [source for n, source in enumerate(sources) if n in kept])
    assert not {recommended[n] for n in kept if n < len(sources)} & set(left)
    assert set(left) <= set(recommended)
