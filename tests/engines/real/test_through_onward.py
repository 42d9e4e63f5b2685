"""Through the whole platform with the real programs: what a turn leaves in the log, and what each model was really told."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.engines.real.through import KINDS, began, bodies, events, killing, openings, place
from tests.service.conversations import COMMAND

from onward.core.bodies import Message, SessionChange, ToolCall, ToolResult
from onward.core.brief import PREAMBLE
from onward.core.codec import body_of
from onward.core.records import Run
from onward.engines.contract import Signal, TextDelta, ToolCalled
from onward.store.memory import MemoryStore
from onward.testing.stub_models import Reply, Request, StubModels, heard
from onward.testing.stub_models import reply_by_directives as directed

EVERY = pytest.mark.parametrize("name", list(KINDS))
SECRET = "The codeword is walrus."


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return MemoryStore()


@pytest.mark.requirement("O2", "O3")
@EVERY
def test_it_begins_resumes_and_where_its_memory_is_gone_is_told_once_what_was_said(
    name: str, tmp_path: Path, store: MemoryStore
) -> None:
    known: list[list[str]] = []

    def answer(request: Request) -> Reply:
        """Answer as directed, and notice what the platform knows when a model is asked."""
        known.append([row.native_id for row in store.engine_sessions(session)])
        return directed(request)

    with StubModels(answer) as stub:
        here = place(name, tmp_path, stub, store)
        session = here.start()

        first = here.say(session, f"{SECRET} {here.call('echo heard')} [[say Noted.]]")
        assert (first.state, first.opening, first.reply) == ("completed", "fresh", "Noted.")
        (native,) = store.engine_sessions(session)
        assert known[0] == [native.native_id], "its id was in the log before its model was asked anything"
        told = [
            (e.kind, e.actor) for e in events(here.log, session) if e.kind not in ("session", "run", "raw")
        ]
        assert told == [
            ("message", "user"),
            ("tool_call", "agent"),
            ("tool_result", "tool"),
            ("message", "agent"),
        ]
        call, result = [body_of(e) for e in events(here.log, session) if e.kind.startswith("tool")]
        assert isinstance(call, ToolCall)
        assert isinstance(result, ToolResult)
        assert (call.name, result.call, result.status) == (here.kind.shell, call.call, "ok")
        assert "heard" in str(result.output)
        assert first.usage is not None
        assert (
            first.usage.output_tokens or first.usage.context_tokens
        )  # opencode tells no more of a whole turn

        second = here.say(session, "[[say I know.]]")
        assert (second.opening, second.reply) == ("resumed", "I know.")
        assert any(SECRET in text for text in stub.asked())
        assert any("heard" in said.text for said in stub.heard() if said.who == "tool")
        assert not here.briefed()

        here.forget(session)
        third = here.say(session, "[[say Go on.]]")
        assert (third.state, third.opening, third.reply) == ("completed", "seeded", "Go on.")
        (brief,) = here.briefed()
        assert brief.count(PREAMBLE) == 1
        assert (
            brief.index(PREAMBLE)
            < brief.index(SECRET)
            < brief.index("I know.")
            < brief.rindex("[[say Go on.]]")
        )
        assert brief.rstrip().endswith("[[say Go on.]]")
        assert openings(here.log, session)[-1].reason in third.opening_told

        fourth = here.say(session, "[[say Still.]]")
        assert (fourth.opening, fourth.reply) == ("resumed", "Still.")
        assert "".join(here.briefed()).count(PREAMBLE) == 1, "it is part of its history now, once"
        assert [facts.outcome for facts in openings(here.log, session)] == [
            "fresh",
            "resumed",
            "seeded",
            "resumed",
        ]
        assert here.left() == []


@pytest.mark.requirement("L1", "O2")
@EVERY
def test_killed_in_the_middle_of_a_tool_the_log_holds_what_it_did_and_the_next_turn_is_taken(
    name: str, tmp_path: Path, store: MemoryStore
) -> None:
    pipe = tmp_path / "began"
    script: list[Reply] = []
    with StubModels(lambda _: script.pop(0)) as stub:
        here = place(name, tmp_path / "a", stub, store)
        session = here.start()
        script[:] = [
            Reply(text="I begin.", calls=(here.shell(f"echo begun > {pipe}; sleep 61"),)),
            Reply(text="Still here."),
        ]

        called = threading.Event()

        def hear(_: Run, said: Signal) -> None:
            if isinstance(said, ToolCalled):
                called.set()

        with began(pipe) as begun, killing(here.itself, begun, called) as killed:
            cut = here.say(session, f"{SECRET} Begin.", listener=hear)
        assert len(killed) == 1
        assert cut.state == "failed"
        assert here.left() == [], "neither it nor its tool runs on"
        found = bodies(here.log, session)
        assert "I begin." in [body.text for body in found if isinstance(body, Message)]
        (call,) = [body for body in found if isinstance(body, ToolCall)]
        (closed,) = [body for body in found if isinstance(body, ToolResult)]
        assert (closed.call, closed.status) == (call.call, "outcome_unknown")
        assert [run.state for run in store.runs(session)] == ["failed"], "it is not tried again by itself"

        after = here.say(session, "Are you there?")
        assert (after.state, after.opening, after.reply) == ("completed", "seeded", "Still here.")
        assert "failed" in after.opening_told
        (brief,) = here.briefed()
        assert brief.index(SECRET) < brief.index("I begin.") < brief.rindex("Are you there?")
        assert here.left() == []


@pytest.mark.requirement("L1", "O2")
@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "pi"])
def test_killed_in_the_middle_of_a_sentence_the_log_holds_what_was_shown_of_it(
    name: str, tmp_path: Path, store: MemoryStore
) -> None:
    gate, shown = threading.Event(), threading.Event()
    script = [Reply(text="One two three four five.", gate=gate), Reply(text="Still here.")]

    def hear(_: Run, said: Signal) -> None:
        if isinstance(said, TextDelta):
            shown.set()

    with StubModels(lambda _: script.pop(0)) as stub:
        here = place(name, tmp_path, stub, store)
        session = here.start()
        with killing(here.itself, shown) as killed:
            cut = here.say(session, f"{SECRET} Count.", listener=hear)
        gate.set()
        assert len(killed) == 1
        assert cut.state == "failed"
        assert here.left() == []
        (said,) = [b for b in bodies(here.log, session) if isinstance(b, Message) and b.role == "assistant"]
        assert said.interrupted
        assert said.text
        assert "One two three four five.".startswith(said.text)
        assert said.text != "One two three four five."

        after = here.say(session, "Are you there?")
        assert (after.state, after.opening, after.reply) == ("completed", "seeded", "Still here.")
        (brief,) = here.briefed()
        assert brief.index(SECRET) < brief.index(said.text) < brief.rindex("Are you there?")


@pytest.mark.requirement("C1", "C2", "O2")
@EVERY
def test_its_agent_continues_from_inside_and_the_successor_opens_with_the_projection(
    name: str, tmp_path: Path, store: MemoryStore
) -> None:
    asked = "Please write the release notes."

    def answer(request: Request) -> Reply:
        told = heard(request)
        if any("<session_continuation>" in one.text for one in told):
            return Reply(text="Answered elsewhere.")
        if any(one.who == "tool" for one in told):
            return Reply(text="must not be said", gate=threading.Event())
        if any(asked in one.text for one in told):
            return Reply(calls=((here.kind.ours.format("continue_session"), COMMAND),))
        return Reply(text="Noted.")

    with StubModels(answer) as stub:
        here = place(name, tmp_path, stub, store)
        session = here.start()
        here.say(session, SECRET)
        before = events(here.log, session)
        result = here.say(session, asked)
        assert (result.state, result.reply) == ("completed", "Answered elsewhere.")
        assert result.session != session

        after = events(here.log, session)
        assert after[: len(before)] == before, "the predecessor keeps every byte"
        gained = [body_of(event) for event in after[len(before) :] if event.kind != "raw"]
        kinds = [type(b).__name__ if not isinstance(b, SessionChange) else b.change for b in gained]
        assert kinds == ["Message", "RunChange", "opening", "ToolCall", "ToolResult", "continued"], kinds
        assert [run.state for run in store.runs(session)] == ["continued", "completed"]

        assert result.opening == "seeded"
        users = [
            one.text for one in stub.heard() if one.who == "user" and "<session_continuation>" in one.text
        ]
        assert len(users) == 1
        assert users[0].count("<session_continuation>") == 1
        assert users[0].index("<session_continuation>") < users[0].rindex(asked)
        assert not any(SECRET in text for text in stub.asked()[:-1]), "no history of its own"
        natives = [store.engine_sessions(one)[0].native_id for one in (session, result.session)]
        assert natives[0] != natives[1]
        assert here.left() == []
