"""Transcripts: valid for any provider whatever the log holds, the same every time, and growing at the end only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.histories import (
    OTHER,
    SESSION,
    Said,
    agent,
    call,
    closer,
    histories,
    histories_with_checkpoints,
    result,
    said,
    sealed,
    user,
)
from tests.core.validity import faults

from onward.core.bodies import Checkpoint, Message, Part, ToolCall, ToolResult
from onward.core.codec import Erased, body_of, encode, flat
from onward.core.events import Event
from onward.core.transcript import (
    MAX_NAME,
    NO_OUTPUT,
    UNANSWERED,
    Limits,
    Transcript,
    TranscriptMessage,
    from_events,
    from_store,
    limited,
    spelled,
    update,
    update_from_store,
)
from onward.errors import LimitExceeded


def built(*log: Said, limits: Limits | None = None) -> Transcript:
    return from_events(sealed(log), SESSION, limits)


def shape(transcript: Transcript) -> list[str]:
    """The messages in short: who, and what about."""
    out = []
    for m in transcript.messages:
        if m.role == "tool":
            out.append(f"tool {m.tool_call_id}: {m.tool_output}")
        elif m.tool_call_id:
            out.append(f"call {m.tool_call_id}")
        else:
            out.append(f"{m.role}: {m.content.partition(chr(10))[0]}")
    return out


def repairs(transcript: Transcript) -> list[tuple[int, str]]:
    return [(r["seq"], r["repair"]) for r in transcript.metadata["repairs"]]


def as_events(messages: Sequence[TranscriptMessage]) -> list[Event]:
    """The events of a session in which exactly these messages were said."""
    log: list[Said] = []
    for m in messages:
        if m.role == "tool":
            log.append(
                (
                    "tool_result",
                    "tool",
                    ToolResult(call=m.tool_call_id or "", output=m.tool_output, status=m.status),
                )
            )
        elif m.tool_call_id:
            log.append(
                (
                    "tool_call",
                    "agent",
                    ToolCall(call=m.tool_call_id, name=m.tool_name or "", input=m.tool_input),
                )
            )
        else:
            log.append(("message", m.role, Message(role=m.role, text=m.content)))
    return sealed(log)


def bare(messages: Sequence[TranscriptMessage]) -> list[TranscriptMessage]:
    """Messages without the marks of where they come from and what was mended."""
    return [msgspec.structs.replace(m, seq=None, metadata={}) for m in messages]


some_limits = st.builds(
    Limits,
    max_messages=st.none() | st.integers(1, 30),
    max_chars=st.none() | st.integers(1, 3000),
    max_tokens_approx=st.none() | st.integers(1, 800),
)


@pytest.mark.requirement("T1")
@given(histories_with_checkpoints, st.none() | some_limits)
def test_messages_are_valid_for_any_provider(log: list[Said], limits: Limits | None) -> None:
    assert faults(built(*log, limits=limits).messages) == []


@pytest.mark.requirement("T1")
@given(histories_with_checkpoints, st.data())
def test_messages_are_valid_however_the_log_was_cut(log: list[Said], data: st.DataObject) -> None:
    events = sealed(log)
    kept = [e for e in events if data.draw(st.booleans())]
    assert faults(from_events(kept, SESSION).messages) == []


@pytest.mark.requirement("T1")
@given(histories, histories)
def test_messages_of_a_branch_and_its_source_are_valid_together(
    before: list[Said], after: list[Said]
) -> None:
    transcript = from_events([*sealed(before, OTHER), *sealed(after)], SESSION)
    assert faults(transcript.messages) == []
    assert transcript.last_sequence == len(after)


@pytest.mark.requirement("T1")
@given(histories_with_checkpoints, st.none() | some_limits)
def test_the_same_events_give_the_same_bytes(log: list[Said], limits: Limits | None) -> None:
    one, two = built(*log, limits=limits), built(*log, limits=limits)
    assert one == two
    assert encode({"m": one.messages}) == encode({"m": two.messages})


@pytest.mark.requirement("T1")
@given(histories_with_checkpoints)
def test_what_was_repaired_needs_no_repair(log: list[Said]) -> None:
    messages = built(*log).messages
    again = from_events(as_events(messages), SESSION)
    assert bare(again.messages) == bare(messages)
    assert again.metadata["repairs"] == []


@pytest.mark.requirement("T1")
@given(histories_with_checkpoints, st.none() | some_limits, st.data())
def test_an_update_in_any_pieces_equals_reading_all_at_once(
    log: list[Said], limits: Limits | None, data: st.DataObject
) -> None:
    # A branch is told after its source, so the source's session comes first in both.
    events = sealed(log, OTHER)[: len(log) // 2] + sealed(log)
    transcript = Transcript(session_id=SESSION)
    rest = events
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        transcript = update(transcript, rest[:size], data.draw(st.none() | some_limits))
        rest = rest[size:]
    assert update(transcript, [], limits) == from_events(events, SESSION, limits)


@given(histories, st.randoms(use_true_random=False))
def test_order_is_that_of_the_log_and_not_that_of_arrival(log: list[Said], random: Any) -> None:
    events = sealed(log)
    mixed = [*events, *events[: len(events) // 3]]
    random.shuffle(mixed)
    assert from_events(mixed, SESSION) == from_events(events, SESSION)


def closed(log: list[Said]) -> list[Said]:
    """A log in which every call has been answered, as it is when a turn ends."""
    ids = [body_of(e) for e in sealed(log)]
    open_calls: list[str] = []
    for body in ids:
        if isinstance(body, ToolCall):
            open_calls.append(body.call)
        elif isinstance(body, ToolResult) and body.call in open_calls:
            open_calls.remove(body.call)
    return [*log, *(closer(id) for id in open_calls)]


readable = said.filter(lambda s: not isinstance(s[2], bytes) or s[0] in ("raw", "from_the_future"))


@pytest.mark.requirement("T2")
@given(st.lists(readable, max_size=30), st.lists(readable, max_size=30))
@example([call("a"), result("a")], [call("a"), result("a")])
@example([result("a")], [call("a"), result("a", "other")])
@example([call("a"), closer("a")], [result("a", "late"), call("a")])
@example([call("a"), call("b"), result("b"), result("a")], [result("b", "again"), call("b_2")])
@example([call("a"), call("a"), result("a"), result("a")], [call("a_2"), result("a_2")])
def test_a_later_turn_extends_the_messages_of_the_turns_before(before: list[Said], after: list[Said]) -> None:
    earlier = built(*closed(before)).messages
    later = built(*closed(before), user("and now?"), *after).messages
    assert later[: len(earlier)] == earlier


@pytest.mark.requirement("T1")
@given(histories)
def test_nothing_vanishes_in_silence(log: list[Said]) -> None:
    events = sealed(log)
    transcript = from_events(events, SESSION)
    told = [m.content for m in transcript.messages if not m.tool_call_id]
    answers = [m.tool_output or "" for m in transcript.messages if m.role == "tool"]
    calls = [m.tool_input for m in transcript.messages if m.role == "assistant" and m.tool_call_id]
    listed = {r["seq"] for r in transcript.metadata["repairs"]}
    for event in events:
        match body := body_of(event):
            case Message(aside=False) if body.text.strip():
                assert any(body.text in text for text in told)
            case ToolCall():
                assert body.input in calls
            case ToolResult() if not body.closer and flat(body.output).strip():
                output = flat(body.output)
                assert output in answers or event.seq in listed
                if output not in answers:
                    assert any(r["repair"] in ("no_call", "late_result", "another_result", "same_result")
                               for r in transcript.metadata["repairs"] if r["seq"] == event.seq)  # fmt: skip
            case _ if event.kind == "from_the_future":
                assert event.seq in listed
            case _ if type(body).__name__ == "Unreadable" and event.kind != "raw":
                told_at = {m.seq for m in transcript.messages}
                assert event.seq in told_at or event.seq in listed
            case _:
                pass
    assert transcript.metadata["omitted"] == 0


@pytest.mark.requirement("T1")
@pytest.mark.parametrize(
    ("log", "messages", "mended"),
    [
        (
            [user("hi"), call("a"), call("b"), result("b", "B"), result("a", "A"), agent("done")],
            ["user: hi", "call a", "call b", "tool a: A", "tool b: B", "assistant: done"],
            [],
        ),
        (
            [call("a"), result("a", "A"), call("b"), result("b", "B")],
            ["call a", "tool a: A", "call b", "tool b: B"],
            [],
        ),
        (
            [call("a"), call("b"), result("a", "A"), call("c"), result("b", "B"), result("c", "C")],
            ["call a", "call b", "call c", "tool a: A", "tool b: B", "tool c: C"],
            [],
        ),
        (
            [call("a"), user("stop")],
            ["call a", f"tool a: {UNANSWERED['outcome_unknown']}", "user: stop"],
            [(1, "no_result")],
        ),
        ([result("a", "A"), call("a")], ["call a", "tool a: A"], []),
        ([call("a"), user("hurry"), result("a", "A")], ["call a", "tool a: A", "user: hurry"], []),
        (
            [call("a"), result("a", "A"), result("a", "A")],
            ["call a", "tool a: A"],
            [(3, "same_result")],
        ),
        (
            [call("a"), result("a", "pending"), result("a", "A")],
            ["call a", "tool a: pending", "user: Another result of a call that has one:"],
            [(3, "another_result")],
        ),
        (
            [call("a"), result("a", "1"), user("again"), call("a"), result("a", "2")],
            ["call a", "tool a: 1", "user: again", "call a_2", "tool a_2: 2"],
            [(4, "repeated_call_id")],
        ),
        (
            [call("a"), call("a"), result("a", "1"), result("a", "2")],
            ["call a", "call a_2", "tool a: 1", "tool a_2: 2"],
            [(2, "repeated_call_id")],
        ),
        (
            [call("a"), user("again"), call("a"), result("a", "2")],
            ["call a", f"tool a: {UNANSWERED['outcome_unknown']}", "user: again", "call a_2", "tool a_2: 2"],
            [(1, "no_result"), (3, "repeated_call_id")],
        ),
        (
            [call(""), result("", "A"), call(""), result("", "B")],
            ["call call_1", "tool call_1: A", "call call_3", "tool call_3: B"],
            [(1, "repeated_call_id"), (3, "repeated_call_id")],
        ),
        (
            [call("a"), closer("a"), result("a", "A")],
            [
                "call a",
                f"tool a: {UNANSWERED['outcome_unknown']}",
                "user: The result of an earlier call arrived after the call had been closed:",
            ],
            [(3, "late_result")],
        ),
        ([call("a"), result("a", "A"), closer("a")], ["call a", "tool a: A"], [(3, "closed_again")]),
        ([result("a", "A"), user("hi")], ["user: A tool result whose call is not in view:", "user: hi"], [(1, "no_call")]),
        ([call("a"), result("a", "")], ["call a", f"tool a: {NO_OUTPUT}"], []),
        ([call("a"), result("a", "", status="not_started")], ["call a", f"tool a: {UNANSWERED['not_started']}"], []),
        ([call("run_1.1"), result("run_1.1", "A")], ["call run_1_1", "tool run_1_1: A"], []),
        ([call("a b"), call("a_b"), result("a_b", "2"), result("a b", "1")],
         ["call a_b", "call a_b_2", "tool a_b: 1", "tool a_b_2: 2"], [(2, "repeated_call_id")]),
        ([user("  "), agent("")], [], []),
        ([user("go", aside=True)], [], []),
        ([agent("half", interrupted=True)], ["assistant: half [interrupted here]"], []),
        ([agent("", interrupted=True)], ["assistant: [interrupted here]"], []),
        ([user("", parts=(Part(blob="sha256:ab", media_type="image/png"),))], ["user: [image/png sha256:ab]"], []),
        (
            [("message", "user", b"{}")],
            ["user: [message 1 cannot be read here: message cannot be read: Object missing required field `role`]"],
            [(1, "unreadable")],
        ),
        ([("later", "user", b"{}")], [], [(1, "unreadable")]),
    ],
)  # fmt: skip
def test_a_log_becomes_these_messages(
    log: list[Said], messages: list[str], mended: list[tuple[int, str]]
) -> None:
    transcript = built(*log)
    assert faults(transcript.messages) == []
    assert shape(transcript) == messages
    assert repairs(transcript) == mended


@pytest.mark.requirement("T1", "L4")
def test_a_result_of_a_newer_version_still_answers_its_call_with_its_bytes_in_view() -> None:
    newer = b'{"call":"a","status":"partial","output":"half of it"}'
    transcript = built(call("a"), ("tool_result", "tool", newer), user("go on"))
    assert faults(transcript.messages) == []
    assert "half of it" in (transcript.messages[1].tool_output or "")
    assert repairs(transcript) == [(2, "unreadable")]


@pytest.mark.requirement("T1", "L5")
def test_an_erased_result_keeps_its_place_where_the_tombstone_keeps_the_call() -> None:
    events = sealed([user("hi"), call("a"), result("a", "a secret"), user("thanks")])
    with_call, without = (
        msgspec.structs.replace(events[2], body=encode(tombstone), salt=b"")
        for tombstone in (Erased(call="a"), Erased())
    )
    told = from_events([*events[:2], with_call, events[3]], SESSION)
    assert shape(told) == ["user: hi", "call a", "tool a: [tool result 3 was erased]", "user: thanks"]
    lost = from_events([*events[:2], without, events[3]], SESSION)
    assert faults(lost.messages) == []
    assert "user: [tool result 3 was erased]" in shape(lost)
    assert repairs(lost) == [(2, "no_result"), (3, "erased")]


@pytest.mark.requirement("T1", "L5")
def test_an_erased_message_is_told_as_erased() -> None:
    event = msgspec.structs.replace(sealed([user("a secret")])[0], body=encode(Erased()), salt=b"")
    assert shape(from_events([event], SESSION)) == ["user: [message 1 was erased]"]


def test_what_was_respelled_is_found_in_the_metadata() -> None:
    transcript = built(call("run_1.1", "Read a file"), result("run_1.1"))
    asked, answered = transcript.messages
    assert (asked.tool_call_id, asked.tool_name) == ("run_1_1", "Read_a_file")
    assert asked.metadata == {"call": "run_1.1", "tool": "Read a file"}
    assert (answered.tool_call_id, answered.tool_name) == ("run_1_1", "Read_a_file")


@given(st.text(max_size=200))
def test_a_spelled_name_is_short_plain_and_stays_as_it_is(name: str) -> None:
    once = spelled(name)
    assert len(once) <= MAX_NAME
    assert spelled(once) == once
    assert not name or faults([
        TranscriptMessage(role="assistant", tool_call_id=once, tool_name=once),
        TranscriptMessage(role="tool", tool_call_id=once, tool_name=once, tool_output="x"),
    ]) == []  # fmt: skip


def test_long_names_that_differ_at_the_end_stay_apart() -> None:
    assert spelled("x" * 100 + "a") != spelled("x" * 100 + "b")


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_stands_for_what_it_names_and_says_so() -> None:
    summary = ("checkpoint", "system", Checkpoint(text="we looked around", first_seq=1, last_seq=3))
    transcript = built(user("one"), call("a"), result("a"), summary, user("two"))
    assert [m.seq for m in transcript.messages] == [4, 5]
    assert transcript.messages[0].metadata == {"checkpoint": True, "shadows": [1, 3]}
    assert transcript.metadata["shadowed"] == 3


def test_what_the_engine_kept_verbatim_is_not_shadowed_and_neither_is_what_came_later() -> None:
    events = sealed([user("one"), user("two")])
    kept = Checkpoint(text="so far", first_seq=1, last_seq=9, kept=(events[1].id,))
    transcript = built(user("one"), user("two"), ("checkpoint", "system", kept), user("three"))
    assert [m.seq for m in transcript.messages] == [2, 3, 4]


def test_a_checkpoint_without_a_text_or_a_range_shadows_nothing() -> None:
    for checkpoint in (Checkpoint(text=" ", first_seq=1, last_seq=1), Checkpoint(text="so far")):
        transcript = built(user("one"), ("checkpoint", "system", checkpoint))
        assert transcript.messages[0].content == "one"


def test_a_checkpoint_shadows_only_its_own_session() -> None:
    summary = ("checkpoint", "system", Checkpoint(text="so far", first_seq=1, last_seq=1))
    transcript = from_events([*sealed([user("source")], OTHER), *sealed([user("own"), summary])], SESSION)
    assert transcript.messages[0].content == "source"
    assert transcript.metadata["shadowed"] == 1


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T1")
@given(histories, some_limits)
def test_the_lower_limit_wins_and_is_never_exceeded(log: list[Said], limits: Limits) -> None:
    transcript = built(*log, limits=limits)
    if limits.max_messages is not None:
        assert len(transcript.messages) <= limits.max_messages
    if limits.max_chars is not None:
        assert transcript.chars() <= limits.max_chars
    if limits.max_tokens_approx is not None:
        assert transcript.chars() <= limits.max_tokens_approx * 4


@pytest.mark.requirement("T1")
@given(histories, some_limits)
def test_the_most_recent_are_kept_and_the_rest_is_counted(log: list[Said], limits: Limits) -> None:
    everything = built(*log).messages
    transcript = built(*log, limits=limits)
    kept = transcript.messages
    assert kept == everything[len(everything) - len(kept) :]
    assert transcript.metadata["omitted"] == len(everything) - len(kept)


@given(histories, some_limits)
def test_one_more_piece_would_have_been_too_much(log: list[Said], limits: Limits) -> None:
    everything = built(*log).messages
    kept = limited(everything, limits)
    left = everything[: len(everything) - len(kept)]
    if not left:
        return
    # The piece before is a message, or calls with their answers: it begins where what is left is still valid.
    start = max(n for n in range(len(left)) if faults(left[:n]) == [] and faults(left[n:]) == [])
    more = [*left[start:], *kept]
    size = sum(m.chars() for m in more)
    assert (limits.max_messages is not None and len(more) > limits.max_messages) or (
        limits.chars is not None and size > limits.chars
    )


def test_tool_inputs_and_outputs_count() -> None:
    log = [user("x" * 100), call("a", given={"text": "y" * 1000}), result("a", "z" * 1000), user("end")]
    assert len(built(*log, limits=Limits(max_chars=2100)).messages) == 3
    assert len(built(*log, limits=Limits(max_chars=1500)).messages) == 1
    assert len(built(*log, limits=Limits(max_chars=100_000, max_tokens_approx=375)).messages) == 1


def test_calls_made_side_by_side_are_kept_or_left_out_together() -> None:
    log = [user("hi"), call("a"), call("b"), result("a"), result("b"), agent("done")]
    assert shape(built(*log, limits=Limits(max_messages=4))) == ["assistant: done"]
    assert len(built(*log, limits=Limits(max_messages=5)).messages) == 5


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("name", ["max_messages", "max_chars", "max_tokens_approx"])
def test_a_limit_below_one_is_refused_by_name(name: str, limit: int) -> None:
    with pytest.raises(LimitExceeded, match=name):
        Limits(**{name: limit})


# -- reading from a store ---------------------------------------------------------------------------------------------


class Shelf:
    """The part of a store that a transcript reads."""

    def __init__(self, events: list[Event]) -> None:
        self.all = events

    def events(
        self, session_id: str, *, after: int = 0, limit: int = 200, newest_first: bool = False
    ) -> list[Event]:
        found = [e for e in self.all if e.session_id == session_id and e.seq > after]
        return found[::-1][:limit] if newest_first else found[:limit]


@pytest.mark.requirement("T2")
@given(histories, histories)
def test_reading_on_from_a_store_equals_reading_all_of_it(before: list[Said], after: list[Said]) -> None:
    log = sealed([*before, *after])
    shelf = Shelf(log[: len(before)])
    transcript = from_store(shelf, SESSION)
    shelf.all = log
    assert update_from_store(shelf, transcript) == from_events(log, SESSION)


def test_reading_on_goes_over_as_many_pages_as_there_are() -> None:
    log = sealed([user(str(n)) for n in range(2500)])
    transcript = update_from_store(Shelf(log), Transcript(session_id=SESSION))
    assert len(transcript.messages) == 2500
    assert (transcript.last_sequence, transcript.last_timestamp) == (2500, log[-1].at)


@pytest.mark.requirement("T1")
@given(histories, st.integers(1, 20))
def test_the_newest_events_alone_are_valid_too(log: list[Said], limit: int) -> None:
    assert faults(from_store(Shelf(sealed(log)), SESSION, limit).messages) == []
