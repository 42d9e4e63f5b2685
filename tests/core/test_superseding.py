"""Superseding: tables of pairs that do and that do not replace one another, and what may never happen."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Checkpoint, Message, Pin, Pins, Plan, PlanStep, Reasoning, ToolCall, ToolResult
from onward.core.stating import statements
from onward.core.superseding import can_be_replaced, newer_revision, newest, touched_again, touches


def verdict(*texts: str) -> tuple[int, str] | None:
    """What replaces the first of these messages: the place of the later one and the rule."""
    earlier, *later = (statements(Message(role="user", text=text)) for text in texts)
    found = newest(earlier, [(str(n), stated) for n, stated in enumerate(later, 1)])
    return (int(found[0]), found[1]) if found else None


@pytest.mark.parametrize(
    ("earlier", "later", "rule"),
    [
        ("The port is 8417.", "The port is now 9000.", "restated"),
        ("The port is 8417.", "Actually, the port is 9000.", "restated"),
        ("The port is 8417.", "Correction: the port is 9000!", "restated"),
        ("The staging port is 8417.", "The staging port is 9000.", "restated"),
        ("The port of the gateway is 8417.", "The gateway port is now 9000.", "restated"),
        ("The port is 8417 in staging.", "In staging, the port is now 9000.", "restated"),
        ("gateway timeout = 30 s", "gateway timeout = 45 s", "restated"),
        ("- gateway timeout: 30 s", "- gateway timeout: 45 s", "restated"),
        ("The log level of the relay is debug.", "The log level of the relay is now trace.", "restated"),
        ("The owner of the relay is Ann Lee.", "The owner of the relay is Bo Ek.", "restated"),
        ("Set the timeout of the relay to 12 seconds.", "The timeout of the relay is 45 seconds.", "restated"),
        ("For the relay we settled on 12 s as the timeout.", "The timeout of the relay is 45 s.", "restated"),
        ("The relay release is on the 14th of May.", "The relay release is on the 2nd of August.", "restated"),
        ("计费服务的端口是8417。", "计费服务的端口现在是9000。", "restated"),
        ("The gateway port is 8417.", "We changed the gateway port from 8417 to 9000.", "changed"),
        ("The gateway port is 8417.", "The port was moved from 8417 to 9000.", "changed"),
        ("The relay uses 12 s as its timeout.", "The timeout of the relay was raised from 12 s to 45 s today.", "changed"),
        ("We use Redis for the queue.", "We use NATS instead of Redis for the queue.", "changed"),
        ("The owner of the relay is Ann Lee.", "The owner of the relay is Bo Ek, not Ann Lee.", "changed"),
        ("The owner of the relay is Ann Lee.", "The owner of the relay is Bo Ek, no longer Ann Lee.", "changed"),
        ("The gateway listens on 8417.", "The gateway no longer listens on 8417.", "changed"),
        ("The function is called parse_dates.", "I renamed parse_dates to parse_days.", "changed"),
        ("The function is called parse_dates.", "parse_dates was renamed to parse_days.", "changed"),
    ],
)  # fmt: skip
def test_a_later_statement_replaces_an_earlier_one(earlier: str, later: str, rule: str) -> None:
    assert verdict(earlier, later) == (1, rule)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        # Another subject, however alike.
        ("The port is 8417.", "The timeout is now 9000."),
        ("In staging, the port is 8417.", "In production, the port is now 9000."),
        ("The port is 8417 in staging.", "The port is now 9000 in production."),
        ("The port is 8417 for staging.", "The port is now 9000."),
        ("The port is 8417 on staging.", "The port is now 9000 on production."),
        ("The gateway port is 8417.", "We changed the relay port from 8417 to 9000."),
        (
            "The port of the image exporter is 7210.",
            "The port of the image importer is 6181, no longer 7210.",
        ),
        ("We use Redis for the cache.", "We use NATS instead of Redis for the queue."),
        ("The relay level is debug.", "We changed the gateway level from debug to trace."),
        # Nothing is stated.
        ("The gateway port is 8417.", "Should the gateway port be 9000?"),
        ("The gateway port is 8417.", "The gateway port is 9000?"),
        ("The gateway port is 8417.", "Maybe the gateway port is 9000."),
        ("The gateway port is 8417.", "The gateway port could be 9000."),
        ("The gateway port is 8417.", "If the load grows, the gateway port is 9000."),
        ("The gateway port is 8417.", "The gateway port is not 9000."),
        ("The gateway port is 8417.", "Suppose the gateway port is now 9000."),
        ("Is the gateway port 8417?", "The gateway port is now 9000."),
        # Somebody else's words, or no words.
        ("The gateway port is 8417.", "> The gateway port is now 9000."),
        ("The gateway port is 8417.", "```\nThe gateway port is now 9000.\n```"),
        ("The gateway port is 8417.", "| The gateway port is now 9000. |"),
        # One and the same.
        ("The gateway port is 8417.", "The gateway port is now 8417."),
        ("The gateway port is `8417`.", "Actually, the gateway port is 8417."),
        # What is named so all the time, or by nothing.
        ("The result is 4.", "The result is now 5."),
        ("It is 4.", "It is now 5."),
        ("Step 2: run the tests", "Step 2: push the branch"),
        ("The port is 8417.", "The port is 9000."),
        ("I found it in the notes: 240 ms.", "I found it in the notes: 75 s."),
        # A state, not a value.
        ("The dev server is running.", "The dev server is now stopped."),
        ("The build is green.", "The build is now red."),
        # Another sort of value.
        ("The gateway port is 8417.", "The gateway port is now documented."),
    ],
)
def test_a_later_sentence_that_only_looks_like_it_replaces_nothing(earlier: str, later: str) -> None:
    assert verdict(earlier, later) is None


def test_the_newest_statement_is_named_not_the_first_that_replaced() -> None:
    assert verdict("The port is 1.", "The port is now 2.", "Lunch.", "The port is now 3.") == (3, "restated")


def test_a_value_that_came_back_is_not_replaced() -> None:
    said = ("The gateway port is 8417.", "The gateway port is now 9000.", "The gateway port is 8417 again.")
    assert verdict(*said) is None
    assert verdict(*said[1:]) == (1, "restated")


@pytest.mark.parametrize(
    "body",
    [
        Message(role="system", text="The port is 8417."),
        Message(role="user", text="The port is 8417.", aside=True),
        Message(role="assistant", text="The port is 8417.", interrupted=True),
        Reasoning(text="The port is 8417."),
        Checkpoint(text="The port is 8417."),
        ToolResult(call="c", output="The port is 8417."),
        ToolCall(call="c", name="say", input="The port is 8417."),
    ],
)
def test_only_people_and_agents_state_anything(body: Any) -> None:
    assert statements(body) == ()


texts = st.lists(
    st.sampled_from(
        [
            "The port is", "now", "8417", "9000", "instead of", "from", "to", "changed", "renamed", "no longer", "not",
            ",", ".",
            "?", "\n", "=", ":", "as its", "for the", "gateway", "use", "set", "is what", "gets",
            "if", "在", "是", "`", ">", "\ud800",
        ]
    ),
    max_size=25,
).map(" ".join)  # fmt: skip


@given(st.lists(st.one_of(texts, st.text(max_size=60)), min_size=1, max_size=6))
def test_a_verdict_names_a_later_event_and_the_same_one_each_time(said: list[str]) -> None:
    found = verdict(*said)
    assert found == verdict(*said)
    if found:
        place, rule = found
        assert 1 <= place < len(said)
        assert rule in ("restated", "changed")
        assert any(can_be_replaced(s) for s in statements(Message(role="user", text=said[0])))


@given(texts)
def test_nothing_replaces_itself(text: str) -> None:
    first = statements(Message(role="user", text=text))
    # A sentence that takes back what another one of the same message says is left alone with itself.
    if len(first) == 1:
        assert newest(first, [("1", first)]) is None


@pytest.mark.parametrize(
    "text",
    [
        "is " * 100,
        "from a to " * 30,
        "use x for " * 30,
        "a instead of " * 23,
        "no longer " * 30,
        "set a to " * 33,
        ": " * 140,
    ],
)
def test_reading_a_message_takes_time_in_proportion(text: str) -> None:
    statements(Message(role="user", text="warm up, the port is 1."))
    begun = time.perf_counter()
    statements(Message(role="user", text="\n".join([text] * 12)))
    assert time.perf_counter() - begun < 1.0


def read(path: str, **given: Any) -> ToolCall:
    return ToolCall(call="c", name="read_file", input={"path": path, **given})


def write(path: str, name: str = "Edit") -> ToolCall:
    return ToolCall(call="c", name=name, input={"file_path": path})


OK = ToolResult(call="c", output="fine")


@pytest.mark.parametrize(
    ("earlier", "later", "replaced"),
    [
        (read("a.py"), read("a.py"), True),
        (read("a.py"), write("a.py"), True),
        (write("a.py"), write("a.py"), True),
        (write("a.py"), read("a.py"), True),
        (read("a.py"), read("b/a.py"), False),
        (read("a.py"), write("b.py"), False),
        (read("a.py"), read("a.py", offset=10, limit=5), False),
        (read("a.py", offset=10, limit=5), read("a.py", offset=10, limit=5), True),
        (read("a.py", offset=10, limit=5), read("a.py", offset=90, limit=5), False),
        (read("a.py", offset=10, limit=5), read("a.py"), True),
        (read("a.py"), ToolCall(call="c", name="shell", input={"command": "cat a.py"}), False),
        (read("a.py"), ToolCall(call="c", name="stat", input={"path": "a.py"}), False),
    ],
)
def test_a_later_call_on_the_same_file_replaces(earlier: ToolCall, later: ToolCall, replaced: bool) -> None:
    assert touched_again(touches(earlier), touches(later), OK) is replaced


@pytest.mark.parametrize(
    "result",
    [
        None,
        ToolResult(call="c", output="no such file", status="error"),
        ToolResult(call="c", status="outcome_unknown", closer=True),
        ToolResult(call="c", status="not_started"),
    ],
)
def test_a_call_that_failed_or_may_have_replaces_nothing(result: ToolResult | None) -> None:
    assert not touched_again(touches(read("a.py")), touches(write("a.py")), result)


def test_a_newer_revision_replaces_one_of_its_kind() -> None:
    plan, pins = (
        Plan(revision=1, steps=(PlanStep(id="s", text="x"),)),
        Pins(revision=1, pins=(Pin(kind="tool", name="x"),)),
    )
    assert newer_revision(plan, Plan(revision=2))
    assert newer_revision(pins, Pins(revision=2))
    assert not newer_revision(plan, pins)
    assert not newer_revision(Message(role="user", text="x"), Message(role="user", text="x"))
