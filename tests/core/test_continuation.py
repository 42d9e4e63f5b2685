"""The decision to continue: the first check that fails is the one that is named, and what is written is exactly this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.histories import OTHER, SESSION, Said, agent, call, result, sealed, user

from onward.core import digests, ids
from onward.core.bodies import (
    ContinuedFrom,
    Message,
    Part,
    Pin,
    Pins,
    Plan,
    PlanStep,
    ProjectionContext,
    SessionChange,
    ToolResult,
)
from onward.core.budget import CharsCounter
from onward.core.codec import Erased, decode, encode, loads
from onward.core.continuation import (
    MAX_SUCCESSORS,
    RATE_LIMIT,
    Child,
    Decision,
    Request,
    Snapshot,
    decide_continuation,
)
from onward.core.continuing_command import Command, Transfer
from onward.core.events import ONWARD, Event, NewEvent
from onward.core.manifest import Handoff, Initiating, Scope, decode_manifest, encode_manifest
from onward.core.plans import CLOSED
from onward.core.projection import Inputs, Offer, compile_projection
from onward.core.records import Link, OpenCall, Run, Session
from onward.core.references import Source
from onward.errors import (
    BudgetTooSmall,
    ContinuationLoop,
    DelegatedChild,
    InvalidContinuation,
    NothingToContinue,
    OnwardError,
    RateLimited,
    SessionArchived,
    SourceNotFound,
    TooManySuccessors,
    UnresolvedWork,
)
from onward.testing.clock import FakeClock, FakeIds

CHARS = CharsCounter()
CLOCK = FakeClock()
CHILD = f"ses_{8:026d}"
PARENT = f"ses_{9:026d}"

LOG: list[Said] = [
    user("please fix the test"),
    agent("Looking."),
    call("t1", "bash"),
    result("t1", "1 failed"),
    user("and now the docs, in a fresh session"),
    call("cont", "continue_session"),
]
EVENTS = tuple(sealed(LOG))

LINK = Link(id="lnk_c", type="child", from_session=SESSION, to_session=CHILD, created_at=0, report_to=SESSION)
PLAN = sealed(
    [
        (
            "plan",
            "agent",
            Plan(
                revision=4,
                steps=(
                    PlanStep(id="s1", text="fix", status="done", resolution="it was the clock"),
                    PlanStep(id="s2", text="docs", status="active"),
                ),
            ),
        )
    ],
    start=50,
)[0]
PINS = sealed(
    [
        (
            "pins",
            "agent",
            Pins(revision=2, pins=(Pin(kind="tool", name="ls", version="2"), Pin(kind="resource", name="r"))),
        )
    ],
    start=51,
)[0]


def snapshot(**more: Any) -> Snapshot:
    given: dict[str, Any] = {
        "session": Session(
            id=SESSION,
            account_id="acc_1",
            created_at=1,
            title="Tests",
            workspace_id="wsp_1",
            engine="script",
            head_seq=6,
        ),
        "initiating": EVENTS[4],
        "scope": (Scope(session=SESSION, from_seq=1, to_seq=6),),
        "recent": EVENTS,
        "identity": (("account", "acc_1"),),
        "open_calls": (OpenCall(session_id=SESSION, call="cont", event_id=EVENTS[5].id, seq=6),),
        "running": Run(id="run_now", session_id=SESSION, created_at=0, state="running"),
    }
    return Snapshot(**(given | more))


def request(*, budget: int = 8000, actor: str = "agent", by_tool: bool = True, **command: Any) -> Request:
    given: dict[str, Any] = {
        "reason": "topic_change",
        "title": "Docs",
        "handoff": Handoff(purpose="write the docs"),
    }
    return Request(
        command=Command(**(given | command)),
        key="k1",
        actor=actor,
        run_id="run_now" if by_tool else None,
        call="cont" if by_tool else None,
        engine=None,
        budget=budget,
        options=b'{"continuation":"auto"}',
    )


def decided(asked: Request | None = None, found: Snapshot | None = None) -> Decision:
    return decide_continuation(asked or request(), found or snapshot(), CLOCK(), FakeIds(CLOCK), CHARS)


def by_kind(events: tuple[NewEvent, ...]) -> list[str]:
    return [e.kind for e in events]


# -- checks, in order -------------------------------------------------------------------------------------------------

Breaking = Callable[[Request, Snapshot], tuple[Request, Snapshot]]
replace = msgspec.structs.replace


def archived(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    return asked, replace(found, session=replace(found.session, archived=True))


def child(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    return asked, replace(
        found, parent=replace(LINK, from_session=PARENT, to_session=SESSION, report_to=PARENT)
    )


def loop(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    origin = ContinuedFrom(session=OTHER, event="evt_1", seq=1, digest="sha256:00")
    return asked, replace(found, initiating=sealed([user("go on", continued_from=origin)])[0])


def full(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    return asked, replace(found, successors=MAX_SUCCESSORS)


def rate(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    return asked, replace(found, recent_continuations=RATE_LIMIT)


def silent(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    return asked, replace(found, initiating=None)


def missing(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    gone = Offer(
        source=Source(kind="session_event", from_seq=99, to_seq=99), cause="missing", note="it has 6 events"
    )
    return asked, replace(found, offers=(*found.offers, gone))


def unresolved(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    waiting = Run(id="run_q", session_id=SESSION, created_at=0)
    return asked, replace(found, queued=(waiting,))


def stray(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    transfer = replace(asked.command.transfer, pending_runs=("run_nowhere",))
    return replace(asked, command=replace(asked.command, transfer=transfer)), found


def unpinned(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    transfer = replace(asked.command.transfer, pinned_tools=("ls",))
    return replace(asked, command=replace(asked.command, transfer=transfer)), found


def tight(asked: Request, found: Snapshot) -> tuple[Request, Snapshot]:
    return replace(asked, budget=64), found


CHECKS: list[tuple[Breaking, type[OnwardError]]] = [
    (archived, SessionArchived),
    (child, DelegatedChild),
    (loop, ContinuationLoop),
    (full, TooManySuccessors),
    (rate, RateLimited),
    (silent, NothingToContinue),
    (missing, SourceNotFound),
    (unresolved, UnresolvedWork),
    (stray, InvalidContinuation),
    (unpinned, InvalidContinuation),
    (tight, BudgetTooSmall),
]


@pytest.mark.requirement("P3", "C6", "C8")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check[0].__name__)
def test_each_check_alone_refuses_under_its_own_name(check: tuple[Breaking, type[OnwardError]]) -> None:
    with pytest.raises(OnwardError) as refused:
        decided(*check[0](request(), snapshot()))
    assert type(refused.value) is check[1]


@given(st.sets(st.integers(0, len(CHECKS) - 1), min_size=2))
def test_of_several_failing_checks_the_first_in_order_is_named(failing: set[int]) -> None:
    if {2, 5} <= failing:  # a session in which nobody spoke has no message that could be a loop
        failing = failing - {2}
    asked, found = request(), snapshot()
    # Broken from the last to the first; a message that is gone stays gone.
    for number in sorted(failing, reverse=True):
        asked, found = CHECKS[number][0](asked, found)
    with pytest.raises(OnwardError) as refused:
        decided(asked, found)
    assert type(refused.value) is CHECKS[min(failing)][1]


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        (child, PARENT),
        (full, "at most 8 continuations; this one has 8"),
        (rate, "20 continuations of this lineage in the last 600 seconds"),
        (silent, f"session {SESSION}"),
        (missing, "Source 1 cannot be used: it has 6 events."),
        (unresolved, "queued input run_q waits for its turn. Settle it first, or name it in `transfer`."),
        (stray, "transfer.pending_runs names run_nowhere, which is not pending here; nothing is pending"),
        (unpinned, "transfer names pins (ls), but nothing is pinned here"),
        (tight, "(chars/4); the budget is 64"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_refusal_names_what_it_is_about(breaking: Breaking, words: str) -> None:
    with pytest.raises(OnwardError) as refused:
        decided(*breaking(request(), snapshot()))
    assert words in refused.value.message


@pytest.mark.requirement("C8")
def test_one_below_every_limit_is_allowed() -> None:
    decided(request(), snapshot(successors=MAX_SUCCESSORS - 1, recent_continuations=RATE_LIMIT - 1))


@pytest.mark.requirement("C8")
def test_a_continued_session_can_continue_once_somebody_has_spoken_in_it() -> None:
    _, continued = loop(request(), snapshot())
    with pytest.raises(ContinuationLoop):
        decided(found=continued)
    decided(found=replace(continued, initiating=sealed([user("now something else")], start=7)[0]))


@pytest.mark.parametrize("body", [encode(Erased()), b"\xff", b'{"role":"developer"}'])
def test_a_message_that_cannot_be_read_cannot_be_carried(body: bytes) -> None:
    for salt in (b"", b"x" * 16):
        event = replace(EVENTS[4], body=body, salt=salt)
        if salt and body == encode(Erased()):
            continue
        with pytest.raises(NothingToContinue):
            decided(found=snapshot(initiating=event))


# -- unresolved work --------------------------------------------------------------------------------------------------

OPEN = OpenCall(session_id=SESSION, call="t9", event_id="evt_9", seq=9)
PENDING = Child(link=LINK, session=Session(id=CHILD, account_id="acc_1", created_at=0, title="Survey"))
QUEUED = Run(id="run_q", session_id=SESSION, created_at=0)


@pytest.mark.requirement("C6")
@given(st.sets(st.sampled_from(("t9", CHILD, "run_q"))))
def test_every_unfinished_thing_moves_by_name_or_the_call_is_refused_with_the_list(named: set[str]) -> None:
    everything = {"t9", CHILD, "run_q"}
    found = snapshot(open_calls=(*snapshot().open_calls, OPEN), children=(PENDING,), queued=(QUEUED,))
    asked = request(transfer=Transfer(pending_runs=tuple(sorted(named))))
    if named == everything:
        decision = decided(asked, found)
        assert decision.moved_runs == ("run_q",)
        assert decision.moved_children == ("lnk_c",)
        state = decode_manifest(decision.manifest.body).state
        assert (state.runs, state.children, state.calls) == (("run_q",), (CHILD,), ("t9",))
        return
    with pytest.raises(UnresolvedWork) as refused:
        decided(asked, found)
    listed = refused.value.details["items"]
    assert len(listed) == len(everything - named)
    for name in everything - named:
        assert any(name in entry for entry in listed)
        assert name in refused.value.message


@pytest.mark.requirement("C6")
def test_the_call_that_asks_is_not_unfinished_work_and_cannot_be_named_as_such() -> None:
    assert decided().moved_runs == ()
    with pytest.raises(InvalidContinuation, match="cont, which is not pending here"):
        decided(request(transfer=Transfer(pending_runs=("cont",))))


@pytest.mark.requirement("C6")
def test_a_run_that_is_working_cannot_be_left_by_somebody_else() -> None:
    asked = request(by_tool=False, actor="user", transfer=Transfer(pending_runs=("cont",)))
    with pytest.raises(UnresolvedWork, match="run run_now is working; cancel it or wait"):
        decided(asked, snapshot())
    decided(asked, snapshot(running=None))


@pytest.mark.requirement("C6")
def test_a_refused_name_is_told_what_is_pending() -> None:
    asked = request(transfer=Transfer(pending_runs=("run_q", "run_nowhere")))
    with pytest.raises(
        InvalidContinuation, match="names run_nowhere, which is not pending here; pending are run_q"
    ):
        decided(asked, snapshot(queued=(QUEUED,)))


# -- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C1")
def test_the_predecessor_gains_the_result_of_the_tool_and_the_fact_of_the_continuation() -> None:
    decision = decided()
    answer, fact = decision.predecessor_events
    assert (answer.kind, answer.actor, answer.run_id) == ("tool_result", "tool", "run_now")
    told = decode("tool_result", answer.body)
    assert isinstance(told, ToolResult)
    assert (told.call, told.status, told.closer) == ("cont", "ok", False)
    assert told.output == {"successor": decision.successor.id, "link": decision.link.id, "title": "Docs"}
    assert (fact.kind, fact.actor, fact.run_id) == ("session", "agent", "run_now")
    assert decode("session", fact.body) == SessionChange(
        change="continued",
        title="Docs",
        link=decision.link.id,
        other=decision.successor.id,
        reason="topic_change",
        note="Carried the current request.",
    )


@pytest.mark.requirement("C1")
def test_a_continuation_by_a_person_adds_one_event_only() -> None:
    decision = decided(request(by_tool=False, actor="user"), snapshot(running=None, open_calls=()))
    assert [(e.kind, e.actor, e.run_id) for e in decision.predecessor_events] == [("session", "user", None)]
    assert decode_manifest(decision.manifest.body).actor == "user"


def test_the_fact_of_the_continuation_counts_what_was_carried() -> None:
    handoff = Handoff(purpose="p", established_facts=("f",), decisions=("a", "b"), next_actions=("n",))
    source = Source(kind="resource", url="https://example.com")
    decision = decided(request(handoff=handoff, sources=(source,)), snapshot(offers=(Offer(source=source),)))
    fact = decode("session", decision.predecessor_events[-1].body)
    assert isinstance(fact, SessionChange)
    assert (
        fact.note
        == "Carried the current request, 1 established fact, 2 decisions, 1 next action, 1 source reference."
    )


bodies = st.fixed_dictionaries(
    {"role": st.just("user"), "text": st.text(st.characters(codec=None), min_size=1, max_size=60)},
    optional={
        "parts": st.just([{"blob": "sha256:ab", "media_type": "image/png", "name": "a.png"}]),
        "steering": st.booleans(),
        "continued_from": st.none(),
        "from_the_future": st.integers(-(2**70), 2**70)
        | st.text(max_size=5)
        | st.floats(allow_nan=False, allow_infinity=False),
    },
)


@pytest.mark.requirement("C4")
@given(bodies, st.sampled_from(("user", "trigger")), st.sampled_from((b"", b" ", b"\r\n\t")))
@example({"role": "user", "text": "two  spaces, \t a tab\nand a line", "later": 1e-7}, "user", b"\n")
def test_the_initiating_message_arrives_byte_for_byte_with_its_provenance(
    body: dict[str, Any], actor: str, after: bytes
) -> None:
    original = sealed([("message", actor, encode(body) + after)], start=17)[0]
    decision = decided(found=snapshot(initiating=original, recent=()))
    copy = decision.successor_events[-1]
    assert (copy.kind, copy.actor) == ("message", actor)
    assert copy.id == decision.run.input_event != original.id
    assert copy.body.startswith(original.body.rstrip()[:-1])
    said = decode("message", copy.body)
    before = decode("message", original.body)
    assert isinstance(said, Message)
    assert said.continued_from == ContinuedFrom(
        session=SESSION, event=original.id, seq=17, digest=digests.spell(original.digest)
    )
    assert replace(said, continued_from=None) == before
    raw = loads(copy.body)
    del raw["continued_from"]
    assert raw == {k: v for k, v in body.items() if k != "continued_from"}


@pytest.mark.requirement("C2", "C5")
def test_successor_link_manifest_and_run_name_each_other() -> None:
    decision = decided()
    successor, link, run, stored = decision.successor, decision.link, decision.run, decision.manifest
    manifest = decode_manifest(stored.body)
    assert (link.from_session, link.to_session, link.type) == (SESSION, successor.id, "continuation")
    assert (link.key, link.reason, link.actor, link.manifest_id) == ("k1", "topic_change", "agent", stored.id)
    assert (link.event_id, link.seq) == (EVENTS[4].id, 5)
    assert (stored.from_session, stored.to_session, stored.link_id) == (SESSION, successor.id, link.id)
    assert stored.digest == digests.content_digest(stored.body)
    assert (run.session_id, run.state, run.attempt) == (successor.id, "queued", 1)
    assert run.options == b'{"continuation":"auto"}'
    assert (manifest.id, manifest.link, manifest.successor, manifest.predecessor) == (
        stored.id,
        link.id,
        successor.id,
        SESSION,
    )
    opened = decode("session", decision.successor_events[0].body)
    assert isinstance(opened, SessionChange)
    assert (opened.change, opened.other, opened.link, opened.event) == (
        "opened",
        SESSION,
        link.id,
        EVENTS[4].id,
    )
    context = decode("context", decision.successor_events[-2].body)
    assert context == ProjectionContext(text=decision.projection.text, manifest=stored.id)
    assert all(e.at == CLOCK() and e.source == ONWARD for e in decision.successor_events)
    for id, prefix in (
        (successor.id, ids.SESSION),
        (link.id, ids.LINK),
        (run.id, ids.RUN),
        (stored.id, ids.MANIFEST),
    ):
        ids.check_id(id, prefix)
    made = [e.id for e in (*decision.predecessor_events, *decision.successor_events)]
    salts = [e.salt for e in (*decision.predecessor_events, *decision.successor_events)]
    assert len(set(made)) == len(set(salts)) == len(made)


@pytest.mark.requirement("C5")
def test_a_successor_leads_to_the_origin_of_its_line() -> None:
    first = decided()
    assert first.successor.origin_id == SESSION
    later = decided(found=snapshot(session=replace(snapshot().session, origin_id=OTHER)))
    assert later.successor.origin_id == OTHER
    assert f'<origin session="{OTHER}" />' in later.projection.text


@pytest.mark.requirement("C8")
def test_a_fresh_successor_begins_without_any_reading_of_its_own() -> None:
    decision = decided()
    successor = decision.successor
    assert (successor.head_seq, successor.input_seq, successor.fence, successor.updated_at) == (0, 0, 0, 0)
    assert (decision.run.usage, decision.run.started_at, decision.run.owner, decision.run.fence) == (
        None,
        None,
        None,
        0,
    )
    assert by_kind(decision.successor_events) == ["session", "context", "message"]


def test_a_successor_inherits_account_workspace_and_engine_and_nothing_else() -> None:
    decision = decided(request(description="the guide"))
    s = decision.successor
    assert (s.account_id, s.workspace_id, s.engine, s.title, s.description) == (
        "acc_1",
        "wsp_1",
        "script",
        "Docs",
        "the guide",
    )
    other = decided(replace(request(), engine="local"))
    assert (other.successor.engine, other.run.engine) == ("local", "local")


@pytest.mark.requirement("C3", "P1")
def test_the_same_snapshot_time_and_ids_give_the_same_decision() -> None:
    assert decided() == decided()


# -- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("P6")
def test_a_plan_moves_as_a_plan_with_its_ids_states_and_resolutions() -> None:
    decision = decided(found=snapshot(plan=PLAN))
    assert by_kind(decision.successor_events) == ["session", "plan", "context", "message"]
    carried = decode("plan", decision.successor_events[1].body)
    original = decode("plan", PLAN.body)
    assert isinstance(carried, Plan)
    assert isinstance(original, Plan)
    assert (carried.steps, carried.revision, carried.carried_from) == (original.steps, 1, PLAN.id)
    state = decode_manifest(decision.manifest.body).state
    assert (state.plan.transfer, state.plan.event, state.plan.revision, state.plan.steps) == (
        "carry",
        PLAN.id,
        4,
        original.steps,
    )
    assert "- [done] s1: fix (it was the clock)\n- [active] s2: docs" in decision.projection.text


@pytest.mark.requirement("P6", "C1")
@pytest.mark.parametrize("how", ["close", "omit"])
def test_a_plan_that_stays_behind_is_named_by_its_event_and_revision(how: Any) -> None:
    decision = decided(request(transfer=Transfer(plan=how)), snapshot(plan=PLAN))
    assert by_kind(decision.successor_events) == ["session", "context", "message"]
    assert by_kind(decision.predecessor_events) == ["tool_result", "session"]
    state = decode_manifest(decision.manifest.body).state.plan
    assert (state.transfer, state.event, state.revision) == (how, PLAN.id, 4)
    ends = [(step.id, step.status, step.resolution) for step in state.steps]
    second = ("s2", "dropped", CLOSED) if how == "close" else ("s2", "active", None)
    assert ends == [("s1", "done", "it was the clock"), second]
    assert ("steps closed unfinished: s2" in decision.projection.text) == (how == "close")


def test_a_finished_plan_stays_behind_by_itself_and_moves_when_asked_for() -> None:
    done = Plan(revision=1, steps=(PlanStep(id="s1", text="fix", status="done"),))
    event = sealed([("plan", "agent", done)])[0]
    assert "plan" not in by_kind(decided(found=snapshot(plan=event)).successor_events)
    asked = request(transfer=Transfer(plan="carry"))
    assert "plan" in by_kind(decided(asked, snapshot(plan=event)).successor_events)
    assert "plan" not in by_kind(decided(asked, snapshot(plan=None)).successor_events)


@pytest.mark.requirement("P6", "L4")
def test_a_plan_that_cannot_be_read_is_not_carried_in_silence() -> None:
    event = sealed([("plan", "agent", b'{"revision":"four"}')])[0]
    with pytest.raises(InvalidContinuation, match="the plan of event 1 cannot be read here"):
        decided(request(transfer=Transfer(plan="carry")), snapshot(plan=event))
    state = decode_manifest(decided(found=snapshot(plan=event)).manifest.body).state.plan
    assert (state.transfer, state.event, state.revision) == ("omit", event.id, None)


@pytest.mark.requirement("P6")
def test_pins_move_by_name_at_their_versions() -> None:
    decision = decided(request(transfer=Transfer(pinned_tools=("ls",))), snapshot(pins=PINS))
    moved = decode("pins", decision.successor_events[1].body)
    assert moved == Pins(revision=1, pins=(Pin(kind="tool", name="ls", version="2"),), carried_from=PINS.id)
    state = decode_manifest(decision.manifest.body).state
    assert (state.pins, state.pins_event) == (("tool ls@2",), PINS.id)
    assert "pins" not in by_kind(decided(found=snapshot(pins=PINS)).successor_events)
    with pytest.raises(InvalidContinuation, match="not pinned here: cat; pinned are tool ls, resource r"):
        decided(request(transfer=Transfer(pinned_tools=("ls", "cat"))), snapshot(pins=PINS))


# -- the manifest -----------------------------------------------------------------------------------------------------


def offers() -> tuple[Offer, ...]:
    own = Source(
        kind="session_events",
        session=SESSION,
        from_seq=1,
        to_seq=2,
        from_event=EVENTS[0].id,
        to_event=EVENTS[1].id,
    )
    return (
        Offer(source=own, events=EVENTS[:2]),
        Offer(
            source=Source(kind="session_event", session=OTHER, from_seq=1, to_seq=1), cause="other_session"
        ),
        Offer(source=Source(kind="resource", url="https://example.com", relevance="the rules")),
        Offer(source=own, events=EVENTS[:2]),
        Offer(source=Source(kind="memory", path="x"), cause="revoked", note="no longer shared"),
    )


def recompiled(decision: Decision, log: dict[tuple[str, int], Event]) -> str:
    """Compile again from the stored manifest and the log alone."""
    record = decode_manifest(decision.manifest.body)
    left_out = {o.source: o for o in record.omitted if o.source is not None}
    again = []
    for number, source in enumerate(record.sources):
        entry = left_out.get(number)
        if entry and (not source.is_events or entry.cause in ("other_session", "revoked", "missing")):
            again.append(Offer(source=source, cause=entry.cause, note=entry.note))
            continue
        assert source.session
        assert source.from_seq
        assert source.to_seq
        span = range(source.from_seq, source.to_seq + 1)
        again.append(Offer(source=source, events=tuple(log[source.session, seq] for seq in span)))
    by_id = {e.id: e for e in log.values()}
    inputs = Inputs(
        manifest=record.id,
        link=record.link,
        predecessor=record.predecessor,
        predecessor_title=record.predecessor_title,
        successor=record.successor,
        origin=record.origin,
        reason=record.reason,
        created_at=record.created_at,
        initiating=by_id[record.initiating.event],
        handoff=record.handoff,
        written_by=record.actor,
        offers=tuple(again),
        state=record.state,
        identity=record.identity,
        scope=record.scope,
        recent=tuple(log[s.session, n] for s in record.recent for n in range(s.from_seq, s.to_seq + 1)),
        relevant=tuple(by_id[id] for id in record.relevant),
        budget=record.budget,
    )
    projection = compile_projection(inputs, CHARS)
    assert projection.text == decision.projection.text
    assert (projection.included, projection.omitted) == (record.included, record.omitted)
    assert projection.costs == record.costs
    return projection.digest


@pytest.mark.requirement("P1")
@given(st.integers(700, 4000), st.booleans())
def test_the_manifest_and_the_log_are_enough_to_compile_the_same_bytes_again(
    budget: int, with_plan: bool
) -> None:
    branch = tuple(sealed([user("older"), agent("z" * 900)], OTHER))
    found = snapshot(
        offers=offers(),
        recent=(*branch, *EVENTS),
        scope=(Scope(session=OTHER, from_seq=1, to_seq=2), Scope(session=SESSION, from_seq=1, to_seq=6)),
        relevant=(branch[1], EVENTS[3]),
        plan=PLAN if with_plan else None,
        children=(PENDING,),
    )
    handoff = Handoff(purpose="p\ud800", extra={"<state>": ("x",)})
    asked = request(
        handoff=handoff,
        sources=tuple(o.source for o in found.offers),
        transfer=Transfer(pending_runs=(CHILD,)),
        budget=budget,
    )
    decision = decided(asked, found)
    record = decode_manifest(decision.manifest.body)
    log = {(e.session_id, e.seq): e for e in (*branch, *EVENTS)}
    assert recompiled(decision, log) == decision.projection.digest == record.digest


def test_a_manifest_tells_all_there_is_to_know() -> None:
    command: dict[str, Any] = {
        "description": "the guide",
        "handoff": Handoff(purpose="p", established_facts=("f",), decisions=("d", "e")),
        "sources": tuple(o.source for o in offers()),
        "adjusted": ("handoff.sources: taken out of the handoff",),
    }
    decision = decided(replace(request(**command), model="m1"), snapshot(offers=offers()))
    m = decode_manifest(decision.manifest.body)
    assert (m.title, m.description, m.reason, m.actor) == ("Docs", "the guide", "topic_change", "agent")
    assert (m.engine, m.model) == ("script", "m1")
    asked = EVENTS[4]
    assert m.initiating == Initiating(
        event=asked.id, seq=5, digest=digests.spell(asked.digest), session=SESSION
    )
    assert (m.coverage.facts, m.coverage.decisions, m.coverage.sources) == (1, 2, 5)
    assert m.adjusted == ("handoff.sources: taken out of the handoff",)
    assert (m.budget, m.tokenizer, m.compiler, m.tokens) == (
        8000,
        "chars/4",
        "projection/2",
        decision.projection.tokens,
    )
    assert m.sources == tuple(o.source for o in offers())
    assert [(o.source, o.cause, o.note) for o in m.omitted if o.source is not None] == [
        (1, "other_session", None),
        (2, "external", None),
        (3, "duplicate", None),
        (4, "revoked", "no longer shared"),
    ]
    assert m.origin == SESSION
    assert m.predecessor_title == "Tests"


@given(st.text(st.characters(codec=None), max_size=10))
def test_a_manifest_is_read_back_whatever_its_texts_hold(text: str) -> None:
    manifest = decode_manifest(
        decided(request(handoff=Handoff(purpose="p" + text, extra={text: (text,)}))).manifest.body
    )
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert manifest.handoff.purpose == "p" + text


@pytest.mark.requirement("C4")
def test_the_copy_keeps_even_the_way_the_original_was_written() -> None:
    written = b'{ "role": "user",\n  "text": "caf\\u00e9  1.50", "price": 1.50, "role": "user" }'
    original = sealed([("message", "user", written)])[0]
    copy = decided(found=snapshot(initiating=original)).successor_events[-1].body
    assert copy.startswith(written[:-1])
    said = decode("message", copy)
    assert isinstance(said, Message)
    assert said.text == "caf\u00e9  1.50"
    assert said.continued_from is not None


def test_parts_of_a_message_arrive_as_they_were() -> None:
    original = sealed([user("see", parts=(Part(blob="sha256:ab", media_type="image/png"),))])[0]
    copy = decode("message", decided(found=snapshot(initiating=original)).successor_events[-1].body)
    assert isinstance(copy, Message)
    assert copy.parts == (Part(blob="sha256:ab", media_type="image/png"),)
