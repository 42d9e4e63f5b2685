"""Histories for tests of the core: events sealed into a chain, and strategies that make the strangest ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from onward.core.bodies import (
    Body,
    Checkpoint,
    Instructions,
    Message,
    Notice,
    Plan,
    PlanStep,
    ProjectionContext,
    Reasoning,
    RunChange,
    Terminal,
    ToolCall,
    ToolResult,
)
from onward.core.codec import encode
from onward.core.digests import GENESIS
from onward.core.events import ONWARD, Event, NewEvent, Source, seal

SESSION = f"ses_{1:026d}"
OTHER = f"ses_{2:026d}"
T0 = 1_767_225_600_000_000

Said = tuple[str, str, Body | bytes]
"""Kind, actor and body of an event that is not made yet."""


def event_id(session: str, seq: int) -> str:
    """An id that no other session and number has."""
    return f"evt_{int(session[-8:]):08d}{seq:018d}"


def sealed(
    said: Iterable[Said], session: str = SESSION, *, start: int = 1, source: Source = ONWARD
) -> list[Event]:
    """A session's log of these bodies, chained from the first."""
    out: list[Event] = []
    chain = GENESIS
    for seq, (kind, actor, body) in enumerate(said, start):
        new = NewEvent(
            id=event_id(session, seq),
            at=T0 + seq * 1_000_000,
            kind=kind,
            actor=actor,
            body=body if isinstance(body, bytes) else encode(body),
            salt=seq.to_bytes(16, "big"),
            source=source,
        )
        out.append(seal(new, session, seq, chain))
        chain = out[-1].chain
    return out


def user(text: str, **more: Any) -> Said:
    return "message", "user", Message(role="user", text=text, **more)


def agent(text: str, **more: Any) -> Said:
    return "message", "agent", Message(role="assistant", text=text, **more)


def call(id: str, name: str = "read_file", given: Any = None) -> Said:
    return (
        "tool_call",
        "agent",
        ToolCall(call=id, name=name, input={"path": "a.py"} if given is None else given),
    )


def result(id: str, output: Any = "content", **more: Any) -> Said:
    return "tool_result", "tool", ToolResult(call=id, output=output, **more)


def closer(id: str) -> Said:
    return result(id, "", status="outcome_unknown", closer=True)


texts = st.text(max_size=40)
words = st.sampled_from(("fix the test", "look again", "版本需求", "thanks", "x" * 300, "<b>done</b>"))
call_ids = st.sampled_from(("a", "a", "b", "c", "", "a_2", "a b", "run_1.1", "ü" * 70))
outputs = st.one_of(words, st.just(""), st.just(" \n"), st.none(), st.just({"lines": [1, 2]}), texts)

plan = Plan(revision=1, steps=(PlanStep(id="s1", text="first"),))

messages: st.SearchStrategy[Said] = st.one_of(
    st.builds(user, words),
    st.builds(user, texts),
    st.builds(agent, words),
    st.builds(agent, texts, interrupted=st.booleans()),
    st.builds(user, words, aside=st.just(True)),
    st.builds(user, words, steering=st.just(True)),
    st.just(("message", "trigger", Message(role="user", text="the nightly run failed"))),
)
calls: st.SearchStrategy[Said] = st.builds(
    call,
    call_ids,
    st.sampled_from(("read_file", "Run a shell command", "", "mcp__x__y", "z" * 90)),
    st.sampled_from(({"path": "a"}, {}, "ls", [1])),
)
results: st.SearchStrategy[Said] = st.one_of(
    st.builds(
        result, call_ids, outputs, status=st.sampled_from(("ok", "error", "not_started", "outcome_unknown"))
    ),
    st.builds(closer, call_ids),
)
unreadable: st.SearchStrategy[Said] = st.one_of(
    st.tuples(
        st.sampled_from(("message", "tool_call", "tool_result", "context", "checkpoint", "from_the_future")),
        st.sampled_from(("user", "agent", "tool")),
        st.sampled_from(
            (
                b"\xff\xfe",
                b"not json",
                b"[]",
                b'{"call": "a", "status": "partial"}',
                b'{"role": "developer"}',
                b"",
            )
        ),
    )
)
around: st.SearchStrategy[Said] = st.sampled_from(
    (
        ("reasoning", "agent", Reasoning(text="hm")),
        ("terminal", "system", Terminal(text="$ ls")),
        ("run", "system", RunChange(run="run_1", state="completed")),
        ("raw", "system", b'{"type": "progress"}'),
        ("plan", "agent", plan),
        ("context", "system", Notice(summary="it rained", text="all day")),
        ("context", "system", Instructions(text="Answer in one line.")),
        ("context", "system", ProjectionContext(text="<state>\nnone\n</state>", manifest="man_1")),
    )
)
checkpoints: st.SearchStrategy[Said] = st.builds(
    lambda first, length, text: (
        "checkpoint",
        "system",
        Checkpoint(text=text, first_seq=first, last_seq=first + length),
    ),
    st.integers(1, 20),
    st.integers(0, 10),
    st.sampled_from(("what happened so far", "")),
)

said = st.one_of(messages, calls, calls, results, results, around, unreadable)
histories = st.lists(said, max_size=40)
histories_with_checkpoints = st.lists(st.one_of(said, said, said, checkpoints), max_size=40)
