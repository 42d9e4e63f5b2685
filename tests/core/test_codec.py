"""Codec: any bytes become a body, what was written is read back, and a form constructs only with its facts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.histories import sealed

from onward.core.bodies import (
    BODIES,
    FORMS,
    BriefContext,
    Context,
    Instructions,
    Message,
    Notice,
    Opaque,
    Plan,
    PlanStep,
    ProjectionContext,
    Recall,
    RecalledReference,
    Relay,
    Section,
    Snapshot,
    ToolCall,
    ToolResult,
)
from onward.core.codec import (
    Raw,
    Unreadable,
    body_of,
    call_of,
    decode,
    encode,
    flat,
    loads,
    searchable_text,
    text_of,
)
from onward.core.events import KINDS
from onward.core.fencing import fence
from onward.errors import InvalidInput

anything = st.text(st.characters(codec=None), max_size=20)  # lone surrogates and NUL among them
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from((*KINDS, "from_the_future", ""))


@pytest.mark.requirement("L4")
@given(kinds, st.binary(max_size=80))
def test_any_bytes_under_any_kind_become_a_body(kind: str, data: bytes) -> None:
    body = decode(kind, data)
    assert isinstance(text_of(body), str)
    assert isinstance(searchable_text(kind, data), str)
    assert isinstance(call_of(kind, data), tuple)


@pytest.mark.requirement("L4")
@given(kinds, json_values)
def test_any_json_under_any_kind_becomes_a_body(kind: str, value: Any) -> None:
    data = json.dumps(value).encode()
    body = decode(kind, data)
    if isinstance(body, Unreadable):
        assert body.raw == data.decode()
        assert body.why


@pytest.mark.requirement("L4")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"\x00",
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"1" * 10_000,
        b"NaN",
        b"1e999",
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda data: repr(data[:8]),
)
@pytest.mark.parametrize("kind", ["message", "tool_call", "context", "raw", "plan", "from_the_future"])
def test_bytes_that_are_no_body_are_shown_as_they_are_with_the_reason(kind: str, data: bytes) -> None:
    body = decode(kind, data)
    shown = body.record if isinstance(body, Raw) else body.raw if isinstance(body, Unreadable) else None
    if not (isinstance(body, Raw) and isinstance(shown, int)):
        assert shown == data.decode("utf-8", "replace")


@pytest.mark.requirement("L4")
@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        (
            "message",
            b'{"role":"developer","text":"hi"}',
            "message cannot be read: Invalid enum value 'developer'",
        ),
        ("message", b'{"text":"hi"}', "message cannot be read: Object missing required field `role`"),
        ("context", b'{"form":"hologram","text":"hi"}', "context cannot be read"),
        (
            "context",
            b'{"form":"notice","text":"hi"}',
            "context cannot be read: Object missing required field `summary`",
        ),
        ("context", b'{"form":"notice","summary":" "}', "a notice needs a summary"),
        ("later", b"{}", "unknown kind 'later'"),
    ],
)
def test_what_cannot_be_understood_says_why(kind: str, data: bytes, why: str) -> None:
    body = decode(kind, data)
    assert isinstance(body, Unreadable)
    assert why in body.why


@given(st.sampled_from(("message", "tool_call", "tool_result", "context")), anything, json_values)
def test_what_was_encoded_is_decoded_to_the_same_body(kind: str, text: str, value: Any) -> None:
    body: Any = {
        "message": Message(role="user", text=text),
        "tool_call": ToolCall(call=text, name=text, input=value),
        "tool_result": ToolResult(call=text, output=value),
        "context": Opaque(text=text),
    }[kind]
    assert decode(kind, encode(body)) == body


@given(json_values)
def test_an_imported_record_is_kept_whatever_it_holds(record: Any) -> None:
    assert decode("raw", encode({"record": record})) == Raw(record={"record": record})


@pytest.mark.requirement("L2", "L4")
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda k: k not in Message.__struct_fields__), json_values
    )
)
def test_fields_of_a_newer_version_stay_in_the_bytes_and_do_not_disturb(newer: dict[str, Any]) -> None:
    data = encode({"role": "user", "text": "hi", **newer})
    event = sealed([("message", "user", data)])[0]
    assert body_of(event) == Message(role="user", text="hi")
    assert loads(event.body) == {"role": "user", "text": "hi", **newer}


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\x00", "\u2028", "😀"])
def test_text_that_utf8_cannot_hold_survives_the_round_trip(text: str) -> None:
    data = encode(Message(role="user", text=text))
    data.decode("utf-8")
    assert text_of(decode("message", data)) == text
    assert call_of("tool_call", encode(ToolCall(call=text, name="x"))) == (text, False)


def test_fenced_text_is_written_as_the_text_it_is() -> None:
    for text in ("a", "\ud800"):
        quoted = fence(text, "page")
        assert text_of(decode("context", encode(Opaque(text=quoted)))) == str(quoted)
        assert flat({"page": fence("\ud800", "page"), "\ud800": 1}).isascii()


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_that_json_can_hold_is_kept() -> None:
    call = ToolCall(call="a", name="x", input=nested(200))
    assert decode("tool_call", encode(call)) == call


def test_nesting_too_deep_to_write_is_refused_with_a_reason_and_never_breaks_a_display() -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        encode(ToolCall(call="a", name="x", input=nested(100_000)))
    assert flat(nested(100_000)) == "(nested too deeply to be shown)"


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), ("as it is", "as it is"), ({"a": 1}, '{"a":1}'), (b"\xff", "�"), (0, "0")]
)
def test_tool_values_are_shown_as_text(value: Any, text: str) -> None:
    assert flat(value) == text


@pytest.mark.parametrize(
    ("kind", "data", "found"),
    [
        ("tool_call", b'{"call":"a","name":"x"}', ("a", False)),
        ("tool_result", b'{"call":"a","closer":true}', ("a", True)),
        ("tool_result", b'{"call":"a","status":"partial"}', ("a", False)),
        ("tool_result", b'{"call":5}', ("", False)),
        ("tool_result", b"\xff", ("", False)),
        ("message", b'{"call":"a"}', ("", False)),
    ],
)
def test_the_call_of_a_tool_event_is_found_even_where_the_rest_cannot_be_read(
    kind: str, data: bytes, found: tuple[str, bool]
) -> None:
    assert call_of(kind, data) == found


REFERENCE = RecalledReference(source="ses_1", label="x", captured_seq=3, original=2, retained=1, omitted=1)


@pytest.mark.parametrize(
    "form",
    [
        Snapshot(sections=(Section(name="git", text="clean"),)),
        Notice(summary="it rained"),
        Relay(sender="ses_1", text="hello"),
        Recall(references=(REFERENCE,)),
        ProjectionContext(manifest="man_1"),
        BriefContext(rows=3),
        Instructions(text="Answer in one line."),
        Opaque(text="?"),
    ],
    ids=lambda form: str(type(form).__struct_config__.tag),
)
def test_a_form_with_its_facts_is_read_back_as_that_form(form: Context) -> None:
    assert decode("context", encode(form)) == form
    assert type(decode("context", encode(form))) is type(form)


def test_every_form_is_tried_above() -> None:
    assert {form.__struct_config__.tag for form in FORMS} == {
        "snapshot", "notice", "relay", "recall", "projection", "brief", "instructions", "opaque"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "facts"),
    [
        (Snapshot, {}),
        (Snapshot, {"sections": ()}),
        (Notice, {}),
        (Notice, {"summary": " "}),
        (Notice, {"summary": "x" * 121}),
        (Relay, {}),
        (Relay, {"sender": ""}),
        (Recall, {}),
        (Recall, {"references": ()}),
        (ProjectionContext, {}),
        (ProjectionContext, {"manifest": ""}),
        (BriefContext, {}),
    ],
)
def test_a_form_without_its_facts_does_not_construct(form: type[Context], facts: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        form(text="words alone", **facts)


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_bodies_cannot_be_changed(kind: str) -> None:
    assert BODIES[kind].__struct_config__.frozen
    assert set(BODIES) | {"raw"} == set(KINDS)


def test_a_plan_is_written_without_what_is_default() -> None:
    assert msgspec.json.decode(encode(Plan(revision=1, steps=(PlanStep(id="s", text="t"),)))) == {
        "revision": 1,
        "steps": [{"id": "s", "text": "t"}],
    }
