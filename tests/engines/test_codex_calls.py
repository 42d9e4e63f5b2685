"""What Codex did and what failed it, in our words; and its settings in its own."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.transcript import TranscriptMessage
from onward.engines.codex_calls import failure_of, ident, kind_of, response_items
from onward.engines.codex_server import MODES, Setup, compaction_summary, thread_settings, toml, tools_server
from onward.engines.contract import FAILURES, PERMISSION_MODES, Turn
from onward.errors import InvalidInput


def error(name: Any, message: str = "no") -> dict[str, Any]:
    return {"message": message, "codexErrorInfo": name}


@pytest.mark.parametrize(
    ("told", "code", "passes"),
    [
        (error("unauthorized"), "authentication", False),
        (error("usageLimitExceeded"), "quota", False),
        (error("rateLimitExceeded"), "rate_limited", True),
        (error("serverOverloaded"), "unavailable", True),
        (error("contextWindowExceeded"), "invalid_request", False),
        (error("modelNotFound"), "invalid_request", False),
        (error("cyberPolicy"), "unknown", False),
        (error("other", '{"error": {"code": 400}}'), "invalid_request", False),
        (error({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}), "rate_limited", True),
        (error({"httpConnectionFailed": {"httpStatusCode": 401}}), "authentication", False),
        (error({"httpConnectionFailed": {"httpStatusCode": None}}), "unavailable", True),
        (error({"responseStreamDisconnected": {"httpStatusCode": 503}}), "unavailable", True),
        ({"message": "exceeded retry limit, last status: 429 Too Many Requests"}, "rate_limited", True),
        ("stream disconnected before completion: closed", "unavailable", True),
        ("thread 01a2 already has an active writer", "busy", True),
        ("something else", "unknown", False),
        (None, "unknown", False),
        ({}, "unknown", False),
    ],
)
def test_an_error_has_its_kind_and_whether_it_passes(told: Any, code: str, passes: bool) -> None:
    failure = failure_of(told)
    assert (failure.code, failure.passes) == (code, passes)
    assert failure.code in FAILURES
    assert failure.reason


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=20),
        lambda x: st.dictionaries(
            st.sampled_from(["message", "codexErrorInfo", "additionalDetails", "httpStatusCode"]),
            x,
            max_size=3,
        ),
    )
)
def test_an_error_of_any_shape_is_a_failure_with_a_reason(told: Any) -> None:
    assert failure_of(told).code in FAILURES


@pytest.mark.parametrize("status", [{}, "500", [500], 5.5])
def test_a_status_that_is_no_number_says_nothing(status: Any) -> None:
    told = {"message": "No.", "codexErrorInfo": {"other": {"httpStatusCode": status}}}
    assert failure_of(told).code == "unknown"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("01a22a9e-f694-72c3-a48e-16adf3f4ff94", True),
        ("01A22A9E-F694-72C3-A48E-16ADF3F4FF94", True),
        ("latest", False),
        ("", False),
        ("01a22a9ef69472c3a48e16adf3f4ff94", False),
        ("{01a22a9e-f694-72c3-a48e-16adf3f4ff94}", False),
        ("urn:uuid:01a22a9e-f694-72c3-a48e-16adf3f4ff94", False),
        ("--last", False),
    ],
)
def test_only_a_plain_uuid_is_the_id_of_a_thread(text: str, is_one: bool) -> None:
    assert ident(text) is is_one


@pytest.mark.parametrize("kind", ["command_execution", "commandExecution"])
def test_both_streams_name_an_item_alike(kind: str) -> None:
    assert kind_of({"type": kind}) == "commandExecution"


def test_a_history_becomes_items_in_order() -> None:
    history = (
        TranscriptMessage(role="system", content="Be brief."),
        TranscriptMessage(role="user", content="Look."),
        TranscriptMessage(
            role="assistant", content="I do.", tool_call_id="r.1", tool_name="read", tool_input={"p": "ä"}
        ),
        TranscriptMessage(role="assistant", tool_call_id="r.2", tool_name="list"),
        TranscriptMessage(role="tool", tool_call_id="r.1", tool_output="text"),
        TranscriptMessage(role="tool", tool_call_id="r.2", status="error"),
    )
    items = response_items(history)
    assert [item.get("role") or item["type"] for item in items] == [
        "developer",
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert json.loads(items[3]["arguments"]) == {"p": "ä"}
    assert items[4]["arguments"] == "{}"
    assert [item["call_id"] for item in items[3:]] == ["r.1", "r.2", "r.1", "r.2"]


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_a_setting_is_read_back_as_it_was_meant(value: Any) -> None:
    text = toml(value)
    assert "\n" not in text
    assert tomllib.loads(f"x = {text}")["x"] == value


def test_a_setting_that_toml_cannot_say_is_refused() -> None:
    with pytest.raises(InvalidInput, match="NoneType"):
        toml({"a": [None]})


def test_settings_are_arguments_and_later_ones_win() -> None:
    setup = Setup(words=("codex",), config={"model": "a", "x.y": True})
    assert setup.overrides({"model": "b"}) == ["-c", 'model="b"', "-c", "x.y=true"]


def test_every_permission_mode_says_what_it_is_to_codex() -> None:
    assert tuple(MODES) == PERMISSION_MODES
    turn = Turn(session_id="ses_a", run_id="run_a", input="x", workdir="/w", permission_mode="plan")
    settings = {"cwd": "/w", "approvalPolicy": "never", "sandbox": "read-only"}
    assert thread_settings(turn, {}) == settings
    assert thread_settings(turn, {"a": 1}) == {**settings, "config": {"a": 1}}


def test_our_server_is_allowed_beforehand_and_inherits_the_mark() -> None:
    server = tools_server(("python", "-m", "x"), {"A": "b"})
    assert (server["command"], server["args"], server["env"]) == ("python", ["-m", "x"], {"A": "b"})
    assert server["default_tools_approval_mode"] == "approve"
    assert server["env_vars"] == ["ONWARD_PROCESS"]


def test_the_newest_compaction_of_a_file_is_found_and_a_torn_line_is_passed_over(tmp_path: Any) -> None:
    file = tmp_path / "rollout.jsonl"
    rows = [
        {"type": "compacted", "payload": {"message": "first"}},
        {"type": "compacted", "payload": {"message": "second"}},
        {"type": "response_item", "payload": {"text": 'it says "compacted"'}},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"type":"compacted","pay')
    assert compaction_summary(str(file)) == "second"
    assert compaction_summary(str(tmp_path / "none")) == ""
    file.write_text("{}\n")
    assert compaction_summary(str(file)) == ""
