"""Source references: where an address ends, what is accepted in which spelling, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.histories import OTHER, SESSION, event_id

from onward.core.references import MAX_RELEVANCE, MAX_SEQ, Source, parse_source, parse_spec
from onward.errors import InvalidInput

FIRST, LAST = event_id(SESSION, 3), event_id(SESSION, 9)


def one(seq: int, **more: Any) -> Source:
    return Source(kind="session_event", from_seq=seq, to_seq=seq, **more)


def span(first: int, last: int, **more: Any) -> Source:
    return Source(kind="session_events", from_seq=first, to_seq=last, **more)


def url(address: str, relevance: str = "") -> Source:
    return Source(kind="resource", url=address, relevance=relevance)


def memory(path: str, relevance: str = "", digest: str | None = None) -> Source:
    return Source(kind="memory", path=path, relevance=relevance, digest=digest)


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        ("12", one(12)),
        ("  12  ", one(12)),
        ("12=why it matters", one(12, relevance="why it matters")),
        ("12 why it matters", one(12, relevance="why it matters")),
        ("12 = a = b", one(12, relevance="a = b")),
        ("12=", one(12)),
        ("12-12", one(12)),
        ("12-18", span(12, 18)),
        ("12-18=the\nfailing run", span(12, 18, relevance="the\nfailing run")),
        (f"{OTHER}:12-18=why", span(12, 18, session=OTHER, relevance="why")),
        (f"{OTHER}:7", one(7, session=OTHER)),
        (FIRST, Source(kind="session_event", from_event=FIRST, to_event=FIRST)),
        (
            f"{FIRST}-{LAST}=why",
            Source(kind="session_events", from_event=FIRST, to_event=LAST, relevance="why"),
        ),
        (
            f"{SESSION}:{FIRST}",
            Source(kind="session_event", session=SESSION, from_event=FIRST, to_event=FIRST),
        ),
        ("memory:notes/plan.md", memory("notes/plan.md")),
        ("memory:notes/plan.md=why = so", memory("notes/plan.md", "why = so")),
        ("memory:my notes/the plan.md = why", memory("my notes/the plan.md", "why")),
        ("memory:ada@example.md", memory("ada@example.md")),
        (f"memory:plan.md@sha256:{'ab' * 32}=why", memory("plan.md", "why", f"sha256:{'ab' * 32}")),
        ("https://example.com/spec", url("https://example.com/spec")),
        ("https://example.com/?a=b&c=d", url("https://example.com/?a=b&c=d")),
        ("https://example.com/?a=b why it matters", url("https://example.com/?a=b", "why it matters")),
        ("https://example.com/?a=b = why it matters", url("https://example.com/?a=b", "why it matters")),
        ("https://example.com/?a=b =why", url("https://example.com/?a=b", "why")),
        ("https://example.com/#x=1 why", url("https://example.com/#x=1", "why")),
        ("https://example.com/spec=why it matters", url("https://example.com/spec", "why it matters")),
        ("https://example.com/E=mc2", url("https://example.com/E=mc2")),
        ("https://example.com/E=mc2 = the formula", url("https://example.com/E", "mc2 = the formula")),
        ("HTTPS://EXAMPLE.COM/x", url("HTTPS://EXAMPLE.COM/x")),
        ("file:///app/a.py=the module", url("file:///app/a.py", "the module")),
    ],
)
def test_an_address_ends_where_the_rule_says(spec: str, source: Source) -> None:
    assert parse_spec(spec) == source


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("12-18=why", span(12, 18, relevance="why")),
        (12, one(12)),
        ({"from_seq": 12, "to_seq": 18}, span(12, 18)),
        (
            {"kind": "session_events", "fromSeq": 12, "toSeq": 18, "relevance": "why"},
            span(12, 18, relevance="why"),
        ),
        ({"kind": "sessionEvents", "from": 12, "to": "18", "why": "x"}, span(12, 18, relevance="x")),
        ({"type": "session_event", "seq": 12}, one(12)),
        ({"kind": "session_event", "from_seq": 12, "to_seq": 18}, span(12, 18)),
        ({"kind": "session_events", "from_seq": 12}, one(12)),
        ({"from": FIRST, "to": LAST}, Source(kind="session_events", from_event=FIRST, to_event=LAST)),
        ({"event": FIRST}, Source(kind="session_event", from_event=FIRST, to_event=FIRST)),
        (
            {"kind": "session_events", "sessionId": OTHER, "fromEventId": FIRST, "toEventId": LAST},
            Source(kind="session_events", session=OTHER, from_event=FIRST, to_event=LAST),
        ),
        (
            {"from_seq": 3, "from_event": FIRST, "to_seq": 9, "to_event": LAST},
            Source(kind="session_events", from_seq=3, from_event=FIRST, to_seq=9, to_event=LAST),
        ),
        (
            {"kind": "resource", "url": "https://example.com", "version": "2", "blockId": "b"},
            Source(kind="resource", url="https://example.com", version="2", block_id="b"),
        ),
        ({"url": "https://example.com", "version": None}, url("https://example.com")),
        ({"kind": "memory", "path": "a=b.md", "cid": "x"}, memory("a=b.md", digest="x")),
        ({"path": "notes.md", "reason": "why"}, memory("notes.md", "why")),
    ],
)
def test_a_source_is_read_in_the_spellings_that_agents_use(value: Any, source: Source) -> None:
    assert parse_source(value) == source


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "expected 12, 12-18"),
        ("yesterday", "expected 12, 12-18"),
        ("12-", "expected 12, 12-18"),
        ("-3", "expected 12, 12-18"),
        ("12-18why", "expected 12, 12-18"),
        ("१२", "expected 12, 12-18"),
        ("9" * 5000, "expected 12, 12-18"),
        ("0", "event numbers run from 1"),
        ("9" * 18, "event numbers run from 1"),
        ("18-12", "the range runs backwards, 18 to 12"),
        ("evt_nonsense", "'evt_nonsense' is not an id of the form evt_"),
        (f"{FIRST}-evt_x", "'evt_x' is not an id of the form evt_"),
        ("ses_nonsense:3", "'ses_nonsense' is not an id of the form ses_"),
        ("memory:", "a memory needs its path"),
        ("memory: =why", "a memory needs its path"),
        ("https:", "must begin with one of http"),
        ("https://", "must begin with one of http"),
        ("gopher://x", "expected 12, 12-18"),
        (f"12={'y' * (MAX_RELEVANCE + 1)}", "its relevance has 1,001 characters; at most 1,000 are kept"),
        (None, "expected an object or a string, found NoneType"),
        (True, "expected an object or a string, found bool"),
        (1.5, "expected an object or a string, found float"),
        ([12], "expected an object or a string, found list"),
        ({}, "it names no event"),
        ({"to_seq": 4}, "it names no event"),
        ({"kind": "session_events"}, "it names no event"),
        ({"kind": "dream", "seq": 1}, "its kind must be session_events, session_event, resource or memory; found 'dream'"),
        ({"kind": "resource"}, "a resource needs its url"),
        ({"kind": "resource", "url": "gopher://x"}, "the url must begin with one of"),
        ({"kind": "resource", "url": "https://a b"}, "white space"),
        ({"kind": "memory"}, "a memory needs its path"),
        ({"kind": "memory", "path": "  "}, "a memory needs its path"),
        ({"from_seq": 3, "until": 9}, "a source of kind session_events has no until; it has session, from_seq"),
        ({"url": "https://example.com", "from_seq": 3}, "a source of kind resource has no from_seq"),
        ({"from_seq": 3, "fromSeq": 4}, "it gives from_seq twice, differently"),
        ({"from_seq": "three"}, "Expected `int"),
        ({"from_seq": "²"}, "Expected `int"),
        ({"from_seq": True}, "Expected `int"),
        ({"from_seq": -1}, "event numbers run from 1"),
        ({"from_seq": MAX_SEQ + 1}, "event numbers run from 1"),
        ({"from_seq": 9, "to_seq": 3}, "the range runs backwards, 9 to 3"),
        ({"event": "12x"}, "'12x' is not an id of the form evt_"),
        ({"event": f"ses_{FIRST[4:]}"}, "is not an id of the form evt_"),
        ({"session": FIRST, "seq": 1}, "is not an id of the form ses_"),
        ({"url": 5}, "Expected `str"),
    ],
)  # fmt: skip
def test_a_source_that_is_none_is_refused_with_the_reason(value: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_source(value)
    assert why in refused.value.message
    assert len(refused.value.message) < 500, "a message shows what was given, not all of it"


@given(
    st.none()
    | st.booleans()
    | st.text(max_size=30)
    | st.dictionaries(
        st.sampled_from(("kind", "from", "toSeq", "event", "url", "path", "session", "relevance", "x")),
        st.none() | st.integers() | st.text(max_size=10) | st.lists(st.integers(), max_size=2),
    )
)
def test_whatever_is_given_is_a_source_or_invalid_input(value: Any) -> None:
    try:
        source = parse_source(value)
    except InvalidInput:
        return
    assert source.address()


seqs = st.integers(1, MAX_SEQ)
sessions = st.none() | st.sampled_from((SESSION, OTHER))
event_ids = st.integers(1, 99).map(lambda n: event_id(SESSION, n))
plain = st.text(
    st.characters(codec="ascii", exclude_characters="=@ ", categories=("L", "N", "P")),
    min_size=1,
    max_size=12,
)
sources = st.one_of(
    st.builds(one, seqs, session=sessions),
    st.builds(
        lambda a, b, s: span(min(a, b), max(a, b) + 1, session=s), seqs, st.integers(1, MAX_SEQ - 1), sessions
    ).filter(lambda s: (s.to_seq or 0) <= MAX_SEQ),
    st.builds(
        lambda e, s: Source(kind="session_event", session=s, from_event=e, to_event=e), event_ids, sessions
    ),
    st.builds(
        lambda a, b: Source(kind="session_events" if a != b else "session_event", from_event=a, to_event=b),
        event_ids,
        event_ids,
    ),
    st.builds(memory, plain, digest=st.none() | st.just(f"sha256:{'0f' * 32}")),
    st.builds(lambda rest: url(f"https://{rest}"), plain.filter(lambda s: bool(s.strip("/")))),
)


@given(sources)
def test_a_written_address_reads_back_as_the_same_source(source: Source) -> None:
    assert parse_spec(source.address()) == source


@given(
    sources,
    st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20).filter(
        lambda s: s[0] not in "=-"
    ),
)
def test_a_reason_after_spaces_and_an_equals_sign_never_touches_the_address(source: Source, why: str) -> None:
    read = parse_spec(f"{source.address()} = {why}")
    assert read == msgspec.structs.replace(source, relevance=why)


@given(st.text(max_size=40))
def test_an_address_does_not_change_by_being_read_again(spec: str) -> None:
    try:
        address = parse_spec(spec).address()
    except InvalidInput:
        return
    assert parse_spec(address).address() == address or "=" in address or "@" in address


@given(sources)
def test_a_source_survives_the_manifest(source: Source) -> None:
    assert msgspec.json.decode(msgspec.json.encode(source), type=Source) == source


def test_a_version_and_a_block_are_part_of_the_written_address() -> None:
    source = Source(kind="resource", url="hm://doc", version="v1", block_id="b2")
    assert source.address() == "hm://doc@v1#b2"
