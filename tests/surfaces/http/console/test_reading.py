"""What a timeline shows of events: every kind as what it is, every event once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core import bodies, events
from onward.core.bodies import Body
from onward.core.codec import Erased, encode
from onward.core.events import Event, NewEvent, Source
from onward.surfaces.http.console import kinds, reading, rendering, views
from onward.testing.clock import FakeClock, FakeIds

SES = "ses_0000000000000000000000000A"
OTHER = "ses_0000000000000000000000000B"
IDS = FakeIds(FakeClock())


def event(
    kind: str, body: Body | bytes, seq: int = 1, *, actor: str = "agent", source: Source = events.ONWARD
) -> Event:
    made = NewEvent(
        id=IDS.new("evt"),
        at=1_700_000_000_000_000 + seq,
        kind=kind,
        actor=actor,
        body=body if isinstance(body, bytes) else encode(body),
        salt=IDS.salt(),
        source=source,
    )
    return events.seal(made, SES, seq, bytes(32))


def entry(kind: str, body: Body | bytes, **more: Any) -> views.Entry:
    shown = reading.entries(
        reading.read([event(kind, body, **more)]), 1_700_000_060_000_000, names={OTHER: "The other"}
    )
    assert len(shown) == 1
    return shown[0]


def drawn(shown: views.Entry) -> str:
    """Return the markup of one entry."""
    template = rendering._templates().from_string(
        '{% import "events.html" as events %}{{ events.article(entry) }}'
    )
    return template.render(entry=shown)


REFERENCE = bodies.RecalledReference(
    source=OTHER,
    label="parser",
    captured_seq=9,
    original=5,
    retained=2,
    omitted=3,
    omitted_bytes=2048,
    truncated=True,
)
EVERY: tuple[tuple[str, Body | bytes, str, str], ...] = (
    ("message", bodies.Message(role="user", text="**hello**"), "message", "<strong>hello</strong>"),
    ("message", bodies.Message(role="assistant", text="hi", interrupted=True), "message", "cut off here"),
    ("message", bodies.Message(role="user", text="<caveat>", aside=True), "message", "&lt;caveat&gt;"),
    ("reasoning", bodies.Reasoning(text="because"), "reasoning", "Thought"),
    ("reasoning", bodies.Reasoning(signature="abc"), "reasoning", "shows nothing of it"),
    ("tool_call", bodies.ToolCall(call="a", name="Bash", input={"command": "ls"}), "call", "Bash"),
    ("tool_result", bodies.ToolResult(call="a", output="x", status="error"), "result", "failed"),
    (
        "tool_result",
        bodies.ToolResult(call="a", status="outcome_unknown", closer=True),
        "result",
        "outcome unknown",
    ),
    ("terminal", bodies.Terminal(text="$ ls"), "terminal", "$ ls"),
    ("command", bodies.Command(text="/compact"), "command", "/compact"),
    ("outcome", bodies.Outcome(text="exit 1"), "outcome", "exit 1"),
    (
        "checkpoint",
        bodies.Checkpoint(text="so far", first_seq=2, last_seq=9),
        "checkpoint",
        "Stands for events 2 to 9",
    ),
    (
        "plan",
        bodies.Plan(revision=3, steps=(bodies.PlanStep(id="1", text="Go", status="done"),)),
        "steps",
        "revision 3",
    ),
    ("pins", bodies.Pins(revision=1, pins=(bodies.Pin(kind="tool", name="Bash"),)), "steps", "Bash"),
    ("run", bodies.RunChange(run="run_1", state="failed", reason="no key"), "line", "Run failed: no key"),
    ("run", bodies.RunChange(run="run_1", state="from tomorrow"), "line", "from tomorrow"),
    (
        "approval",
        bodies.Approval(state="requested", subject="rm -rf"),
        "approval",
        "Asked for permission: rm -rf",
    ),
    ("session", bodies.SessionChange(change="renamed", title="New"), "line", "Renamed to “New”"),
    ("session", bodies.SessionChange(change="opening", opening="resumed"), "line", "Goes on in the engine"),
    ("session", bodies.SessionChange(change="forked", other=OTHER), "line", "The other"),
    (
        "recalled",
        bodies.Recalled(how="search", query="q", returned=(f"{OTHER}:4",)),
        "recalled",
        f"{OTHER}?at=4#e4",
    ),
    ("context", bodies.Notice(summary="It slept."), "notice", "It slept."),
    (
        "context",
        bodies.Snapshot(sections=(bodies.Section(name="git", text="clean"),)),
        "snapshot",
        "1 section",
    ),
    ("context", bodies.Relay(sender=OTHER, text="look"), "relay", "From another agent"),
    (
        "context",
        bodies.Recall(references=(REFERENCE,)),
        "recall",
        "2 of 5 messages quoted, as of event 9; 3 left out",
    ),
    ("context", bodies.ProjectionContext(manifest="man_1", text="t"), "projection", "Inspect the handoff"),
    ("context", bodies.BriefContext(rows=3, text="t", scope="workspace"), "brief", "3 rows of its workspace"),
    ("context", bodies.Instructions(text="be kind"), "instructions", "Standing instructions"),
    ("context", bodies.Opaque(text="?"), "opaque", "promises no shape"),
    ("raw", b'{"type":"x"}', "raw", "no counterpart here"),
    ("hologram", b'{"x":1}', "unreadable", "unknown kind"),
    ("message", b"not json", "unreadable", "cannot be read"),
    ("context", b'{"form":"from tomorrow"}', "unreadable", "cannot be read"),
)


@pytest.mark.requirement("L4")
@pytest.mark.parametrize(
    ("kind", "body", "view", "says"), EVERY, ids=[f"{n}-{e[2]}" for n, e in enumerate(EVERY)]
)
def test_every_kind_of_event_is_shown_as_what_it_is(
    kind: str, body: Body | bytes, view: str, says: str
) -> None:
    shown = entry(kind, body)
    assert shown.view == view
    markup = " ".join(drawn(shown).split())
    assert says in markup
    assert 'id="e1"' in markup


@pytest.mark.requirement("L4")
def test_every_kind_and_every_form_is_among_those() -> None:
    kinds = {kind for kind, *_ in EVERY}
    assert kinds >= set(events.KINDS)
    forms = {type(body) for _, body, *_ in EVERY if isinstance(body, bodies.Context)}
    assert forms == set(bodies.FORMS)


@pytest.mark.requirement("L5")
def test_an_erased_event_is_shown_as_erased() -> None:
    full = event("message", bodies.Message(role="user", text="secret"))
    gone = Event(
        **{
            **{f: getattr(full, f) for f in full.__struct_fields__},
            "salt": b"",
            "body": encode(Erased(reason="a key")),
        }
    )
    shown = reading.entries(reading.read([gone]), 0)[0]
    assert "This text was erased: a key." in drawn(shown)


def test_a_result_is_folded_into_its_call_and_stands_nowhere_else() -> None:
    found = reading.read(
        [
            event("tool_call", bodies.ToolCall(call="a", name="Bash"), 1),
            event("message", bodies.Message(role="assistant", text="meanwhile"), 2),
            event("tool_result", bodies.ToolResult(call="a", output="out"), 3),
        ]
    )
    shown = reading.entries(found, 0)
    assert [(one.seq, one.upto, one.view) for one in shown] == [(1, 3, "call"), (2, 2, "message")]
    assert 'id="e3"' in drawn(shown[0])
    assert shown[0].body.status == "done"


def test_a_result_that_came_after_a_closer_stands_beside_it() -> None:
    found = reading.read(
        [
            event("tool_call", bodies.ToolCall(call="a", name="Bash"), 1),
            event("tool_result", bodies.ToolResult(call="a", status="outcome_unknown", closer=True), 2),
            event("tool_result", bodies.ToolResult(call="a", output="late"), 3),
        ]
    )
    (shown,) = reading.entries(found, 0)
    assert [(r.seq, r.closer, r.late) for r in shown.body.results] == [(2, True, False), (3, False, True)]
    assert "A result that came later" in drawn(shown)


def test_a_call_whose_result_is_further_on_leads_there() -> None:
    call = event("tool_call", bodies.ToolCall(call="a", name="Bash"), 1)
    behind = event("tool_result", bodies.ToolResult(call="a", output="out"), 150)
    (shown,) = reading.entries(reading.read([call]), 0, behind={"a": reading.read([behind])[0]})
    assert shown.body.status == "done"
    assert "?at=150#e150" in drawn(shown)
    assert shown.upto == 1


def test_a_session_that_may_not_be_read_is_a_breadcrumb() -> None:
    found = reading.read([event("context", bodies.Relay(sender=OTHER, text="x"))])
    (shown,) = reading.entries(found, 0, names={OTHER: None})
    markup = drawn(shown)
    assert "a session that is not available" in markup
    assert f'href="/sessions/{OTHER}"' not in markup


def test_a_picture_is_shown_and_a_file_that_could_carry_script_is_not() -> None:
    parts = tuple(
        bodies.Part(blob="sha256:00", media_type=media, name=media, bytes=3)
        for media in ("image/png", "image/svg+xml")
    )
    markup = drawn(entry("message", bodies.Message(role="user", text="", parts=parts)))
    assert markup.count("<img ") == 1
    assert f'src="/sessions/{SES}/events/1/parts/0"' in markup


@given(st.text(alphabet=st.sampled_from("ab\n"), max_size=80), st.integers(1, 60), st.integers(1, 30))
def test_what_is_cut_is_counted_exactly(text: str, limit: int, line: int) -> None:
    found = kinds.cut(text, limit, line=line)
    assert text.startswith(found.shown)
    assert len(found.shown) + found.missing == len(text)
    assert len(found.shown) <= limit
    assert all(len(one) <= line for one in found.shown.split("\n"))


@given(st.text(alphabet=st.sampled_from("ab\n"), max_size=40))
def test_what_is_short_is_not_cut(text: str) -> None:
    assert kinds.cut(text, 40, line=40) == views.Text(shown=text)


TRAFFIC = st.lists(
    st.tuples(st.sampled_from(["call", "result", "say"]), st.sampled_from("abc")), min_size=1, max_size=20
)


@pytest.mark.requirement("L4")
@given(TRAFFIC)
def test_every_event_is_on_the_page_exactly_once_however_calls_and_results_lie(
    traffic: list[tuple[str, str]],
) -> None:
    made = []
    for seq, (what, name) in enumerate(traffic, 1):
        body: Body = bodies.Message(role="assistant", text=name)
        if what == "call":
            body = bodies.ToolCall(call=name, name="T")
        elif what == "result":
            body = bodies.ToolResult(call=name, output=seq)
        kind = {"call": "tool_call", "result": "tool_result", "say": "message"}[what]
        made.append(event(kind, body, seq))
    shown = reading.entries(reading.read(made), 0)
    held = [one.seq for one in shown]
    for one in shown:
        if one.view == "call":
            held += [r.seq for r in one.body.results if r.text is not None]
    assert sorted(held) == list(range(1, len(traffic) + 1))
    assert [one.seq for one in shown] == sorted(one.seq for one in shown)
