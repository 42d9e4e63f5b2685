"""What goes to a provider is valid for it, whatever the history holds, and grows only at its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Usage
from onward.core.transcript import TranscriptMessage
from onward.engines import anthropic_wire, openai_wire
from onward.engines.anthropic_wire import AnthropicReader
from onward.engines.contract import Tool, ToolOutcome
from onward.engines.openai_wire import OpenAIReader
from onward.engines.wire import ProviderFault, WireCall, answer_text, fit_id, fit_name, parts, total

IDS = st.sampled_from(["run_1.1", "run_1.2", "run_1-1", "a b", "toolu_1", "x" * 50, "é.1", ""])
TEXTS = st.sampled_from(["", " \n", "hello", "two\nlines", "\ud800 broken", "四個"]) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
SAID = st.builds(TranscriptMessage, role=st.sampled_from(["system", "user", "assistant"]), content=TEXTS)
CALLED = st.builds(
    TranscriptMessage,
    role=st.just("assistant"),
    content=TEXTS,
    tool_call_id=IDS,
    tool_name=st.sampled_from(["read", "mcp.tool/x", ""]),
    tool_input=JSON,
)
ANSWERED = st.builds(
    TranscriptMessage,
    role=st.just("tool"),
    tool_call_id=IDS,
    tool_name=st.just("read"),
    tool_output=TEXTS,
    status=st.sampled_from(["ok", "error", "not_started", "outcome_unknown"]),
)
ANYTHING = st.lists(SAID | CALLED | ANSWERED, max_size=12)


@st.composite
def valid_histories(draw: st.DrawFn) -> list[list[TranscriptMessage]]:
    """A history in the steps in which it may be cut: single texts, and calls together with their answers."""
    steps, number = [], 0
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            steps.append([draw(SAID)])
            continue
        calls, answers = [], []
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            id = f"run_1.{number}"
            call = draw(CALLED)
            calls.append(msgspec.structs.replace(call, tool_call_id=id, content=""))
            answers.append(msgspec.structs.replace(draw(ANSWERED), tool_call_id=id))
        steps.append(calls + answers)
    return steps


async def _never(call: str, given: dict[str, Any]) -> ToolOutcome:
    raise AssertionError("no tool runs here")


TOOL = Tool(name="read", description="Reads.", schema={"type": "object", "properties": {}}, call=_never)
ASK = TranscriptMessage(role="user", content="What now?")


def openai_body(messages: Sequence[TranscriptMessage], tools: tuple[Tool, ...] = (TOOL,)) -> dict[str, Any]:
    return json.loads(openai_wire.request_body(model="m", system="Be kind.", messages=messages, tools=tools))


def anthropic_body(
    messages: Sequence[TranscriptMessage], tools: tuple[Tool, ...] = (TOOL,)
) -> dict[str, Any]:
    raw = anthropic_wire.request_body(
        model="m", system="Be kind.", messages=messages, tools=tools, max_tokens=9
    )
    return json.loads(raw)


@pytest.mark.requirement("T1")
@given(ANYTHING)
def test_openai_gets_every_tool_message_right_after_the_calls_it_answers(
    messages: list[TranscriptMessage],
) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    for message in openai_body([*messages, ASK])["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert not waiting, "a call without its answer"
        assert message.get("content") or message.get("tool_calls")
        for call in message.get("tool_calls", ()):
            assert message["role"] == "assistant"
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call["id"])
            assert call["id"] not in seen
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            seen.add(call["id"])
            waiting.append(call["id"])
    assert not waiting


@pytest.mark.requirement("T1")
@given(ANYTHING)
def test_anthropic_gets_alternating_roles_and_every_result_first_in_the_next_message(
    messages: list[TranscriptMessage],
) -> None:
    written = anthropic_body([*messages, ASK])["messages"]
    seen: set[str] = set()
    waiting: list[str] = []
    assert [message["role"] for message in written] == [
        ("user", "assistant")[i % 2] for i in range(len(written))
    ]
    assert written[-1]["role"] == "user"
    for message in written:
        blocks = message["content"]
        assert blocks
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == waiting
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not waiting or message["role"] == "assistant"
        assert not seen & set(waiting)
        assert len(set(waiting)) == len(waiting)
        seen |= set(waiting)
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_use":
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", block["id"])
                assert isinstance(block["input"], dict)
    assert not waiting


@pytest.mark.requirement("T1")
@given(ANYTHING)
def test_no_text_of_a_history_is_lost(messages: list[TranscriptMessage]) -> None:
    for body in (openai_body([*messages, ASK]), anthropic_body([*messages, ASK])):
        flat = json.dumps(body["messages"]) + json.dumps(body.get("system", ""))
        for message in messages:
            for text in (message.content, message.tool_output or ""):
                shown = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                assert not shown.strip() or json.dumps(shown)[1:-1] in flat


@pytest.mark.requirement("T2")
@given(ANYTHING)
def test_the_same_history_gives_the_same_bytes(messages: list[TranscriptMessage]) -> None:
    copy = msgspec.json.decode(msgspec.json.encode(_utf8(messages)), type=list[TranscriptMessage])
    for write in (openai_wire.request_body, anthropic_wire.request_body):
        first = write(model="m", system="s", messages=_utf8(messages), tools=(TOOL,), max_tokens=9)
        assert write(model="m", system="s", messages=copy, tools=(TOOL,), max_tokens=9) == first


@pytest.mark.requirement("T2")
@given(valid_histories(), st.integers(0, 8))
def test_a_longer_history_extends_the_bytes_of_a_shorter_one(
    steps: list[list[TranscriptMessage]], cut: int
) -> None:
    # A history starts with somebody speaking: control text is fixed when a session begins.
    start = [TranscriptMessage(role="user", content="Begin.")]
    shorter = start + [message for step in steps[:cut] for message in step]
    longer = start + [message for step in steps for message in step]
    for write in (
        lambda messages: openai_wire.payload_messages("Be kind.", messages),
        anthropic_wire.payload_messages,
    ):
        short, long = (msgspec.json.encode(write(messages)) for messages in (shorter, longer))
        # What closes the JSON is all that may differ.
        assert long.startswith(short.rstrip(b"]}"))


def _utf8(messages: list[TranscriptMessage]) -> list[TranscriptMessage]:
    text = json.dumps(msgspec.to_builtins(messages)).encode("ascii")
    cleaned = re.sub(rb"\\ud[89a-f][0-9a-f]{2}", b"?", text)
    return msgspec.json.decode(cleaned, type=list[TranscriptMessage])


def test_calls_made_side_by_side_are_in_one_message_and_their_answers_follow() -> None:
    history = [
        TranscriptMessage(role="user", content="Look at both."),
        TranscriptMessage(role="assistant", content="I will."),
        TranscriptMessage(role="assistant", tool_call_id="r.1", tool_name="read", tool_input={"path": "a"}),
        TranscriptMessage(role="assistant", tool_call_id="r.2", tool_name="read", tool_input={"path": "b"}),
        TranscriptMessage(role="tool", tool_call_id="r.1", tool_name="read", tool_output="A"),
        TranscriptMessage(role="tool", tool_call_id="r.2", tool_name="read", tool_output="B", status="error"),
        TranscriptMessage(role="assistant", content="Done."),
    ]
    assert openai_wire.payload_messages("", history) == [
        {"role": "user", "content": "Look at both."},
        {
            "role": "assistant",
            "content": "I will.",
            "tool_calls": [
                {"id": "r-1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}},
                {"id": "r-2", "type": "function", "function": {"name": "read", "arguments": '{"path":"b"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "r-1", "content": "A"},
        {"role": "tool", "tool_call_id": "r-2", "content": "Error: B"},
        {"role": "assistant", "content": "Done."},
    ]
    assert anthropic_wire.payload_messages(history) == [
        {"role": "user", "content": [{"type": "text", "text": "Look at both."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will."},
                {"type": "tool_use", "id": "r-1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "r-2", "name": "read", "input": {"path": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "r-1", "content": [{"type": "text", "text": "A"}]},
                {
                    "type": "tool_result",
                    "tool_use_id": "r-2",
                    "content": [{"type": "text", "text": "B"}],
                    "is_error": True,
                },
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]


def test_a_history_with_calls_declares_tools_to_anthropic_even_when_none_are_offered() -> None:
    call = TranscriptMessage(role="assistant", tool_call_id="r.1", tool_name="read", tool_input={})
    body = anthropic_body([call, ASK], tools=())
    assert body["tools"]
    assert body["tool_choice"] == {"type": "none"}
    assert "tools" not in anthropic_body([ASK], tools=())


def test_reasoning_goes_back_to_the_provider_that_signed_it_and_to_no_other() -> None:
    thought = TranscriptMessage(role="assistant", content="hm", signature="signed")
    assert {"type": "thinking", "thinking": "hm", "signature": "signed"} in anthropic_body(
        [ASK, thought, ASK]
    )["messages"][1]["content"]
    assert "signed" not in json.dumps(openai_body([ASK, thought, ASK]))


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=60), unique=True))
def test_ids_that_a_provider_would_refuse_are_replaced_by_the_same_one_every_time(ids: list[str]) -> None:
    for id in ids:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", fit_id(id))
        assert fit_id(id) == fit_id(id)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", fit_name(id))


def test_an_answer_without_its_call_is_told_as_text() -> None:
    (told,) = parts([TranscriptMessage(role="tool", tool_call_id="gone", tool_name="read", tool_output="A")])
    assert told.role == "user"  # type: ignore[union-attr]
    assert "read" in told.text  # type: ignore[union-attr]
    assert "A" in told.text  # type: ignore[union-attr]


def test_arguments_that_are_no_json_come_back_with_what_is_wrong() -> None:
    given_, why = WireCall(id="c", name="read", arguments='{"path": ').parsed()
    assert given_ == '{"path": '
    assert "not valid JSON" in (why or "")
    assert WireCall(id="c", name="read", arguments=" ").parsed() == ({}, None)


def test_a_tool_output_reads_the_same_now_and_from_the_log() -> None:
    assert answer_text({"a": [1]}) == '{"a":[1]}'
    assert answer_text(None) == ""
    assert answer_text("\ud800") == "�"


def test_usage_adds_up_and_what_nobody_reported_stays_unknown() -> None:
    assert total(None, None) is None
    assert total(Usage(input_tokens=1), Usage(input_tokens=2, cache_read_tokens=5)) == Usage(
        input_tokens=3, cache_read_tokens=5
    )


def feed(reader: OpenAIReader | AnthropicReader, *events: dict[str, Any] | str) -> str:
    return "".join(
        reader.feed("", event if isinstance(event, str) else json.dumps(event)) for event in events
    )


def test_openai_chunks_add_up_to_a_reply() -> None:
    def delta(**fields: Any) -> dict[str, Any]:
        return {"model": "gpt", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}

    reader = OpenAIReader()
    text = feed(
        reader,
        delta(role="assistant", content="a"),
        delta(content="b", reasoning_content="hm"),
        delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "two", "arguments": "{"}}]),
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "one", "arguments": '{"x"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
        delta(tool_calls=[{"index": 1, "function": {"arguments": "}"}}]),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        },
        "[DONE]",
    )
    reply = reader.reply
    assert text == reply.text == "ab"
    assert reply.thoughts == [("hm", None)]
    assert reply.calls == [
        WireCall(id="c1", name="one", arguments='{"x":1}'),
        WireCall(id="c2", name="two", arguments="{}"),
    ]
    assert reply.usage == Usage(input_tokens=9, output_tokens=2, cache_read_tokens=4)
    assert (reply.stop, reply.ended, reply.model) == ("tools", True, "gpt")


def test_anthropic_events_add_up_to_a_reply() -> None:
    reader = AnthropicReader()
    text = feed(
        reader,
        {
            "type": "message_start",
            "message": {
                "model": "claude",
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 2},
            },
        },
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "t", "name": "one", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"x":'},
        },
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": "1}"},
        },
        {"type": "content_block_stop", "index": 2},
        {"type": "an_event_of_the_future"},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    )
    reply = reader.reply
    assert not reply.ended
    feed(reader, {"type": "message_stop"})
    assert text == reply.text == "a"
    assert reply.thoughts == [("hm", "s")]
    assert reply.calls == [WireCall(id="t", name="one", arguments='{"x":1}')]
    assert reply.usage == Usage(input_tokens=37, output_tokens=7, cache_read_tokens=30, cache_write_tokens=2)
    assert (reply.stop, reply.ended, reply.model) == ("tools", True, "claude")


@pytest.mark.parametrize("reader", [OpenAIReader, AnthropicReader])
def test_an_error_inside_the_stream_is_a_fault_with_the_providers_words(reader: type[Any]) -> None:
    error = {"type": "error", "error": {"type": "rate_limit_error", "code": 429, "message": "slow down"}}
    with pytest.raises(ProviderFault, match="slow down") as caught:
        feed(reader(), error)
    assert caught.value.retryable


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(
    error=anything | st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "code", "message"), anything))
)
@pytest.mark.parametrize("fault", [openai_wire.fault, anthropic_wire.fault])
def test_an_error_of_any_shape_is_a_fault_in_words(
    fault: Callable[[object], ProviderFault], error: object
) -> None:
    assert isinstance(fault(error).message, str)


@pytest.mark.parametrize("reader", [OpenAIReader, AnthropicReader])
@pytest.mark.parametrize("data", ["{", "[1]", '"text"', ""])
def test_an_event_that_is_no_object_is_a_fault(reader: type[Any], data: str) -> None:
    with pytest.raises(ProviderFault, match="no JSON object"):
        feed(reader(), data)
