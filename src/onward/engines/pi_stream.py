"""The events of pi, as signals: bytes of one line in, signals out, no I/O.

``PiStream`` follows one turn. It reads the events that pi's RPC and JSON modes share (pi's documentation, json.md), so a
recorded stream of either gives the same signals again. Text is told as it comes and again as a whole with the end of its
message; a message that failed or was cut off has no such end, and its text stays what was streamed.

A turn is over with ``agent_settled`` and not before: after ``agent_end`` pi may try again, compact or go on with what was
queued. Whether it went well is in the last message's ``stopReason``; no exit code is asked.

What is left out is listed in ``NOISE``: beginnings, repetitions of what another event tells, and what pi shows on a screen.
Of a tool's answer, what the model reads is told; ``details`` are for pi's screen. Every other record that is not known here
becomes ``raw``. Calls of our own tools are told by the bridge; here only those that pi answered itself, without asking us.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from onward.core.bodies import Checkpoint, Message, Outcome, Terminal, Usage
from onward.core.codec import loads
from onward.engines.contract import (
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)

NOISE: Final = frozenset(
    {
        "session",  # the header of JSON mode; its id is kept in ``native_id``
        "agent_start",
        "agent_end",  # all messages again
        "turn_start",
        "turn_end",  # the message and its results again
        "message_start",
        "tool_execution_update",  # what a tool has shown so far; its end holds all of it
        "queue_update",
        "session_info_changed",
        "thinking_level_changed",
        "compaction_start",
        "auto_retry_end",  # the next message tells the same
        "summarization_retry_attempt_start",
        "summarization_retry_finished",
        "bash_execution_update",
    }
)
"""Records that say nothing that is not told by another."""
QUIET_UPDATES: Final = frozenset(
    {
        "start",
        "done",
        "error",
        "text_start",
        "text_end",
        "thinking_start",
        "thinking_delta",
        "thinking_end",
        "toolcall_start",
        "toolcall_delta",
        "toolcall_end",
    }
)
"""Parts of a message that its end holds again, or that its call does."""
QUIET_ROLES: Final = frozenset({"system", "user", "toolResult"})
"""Messages that are told elsewhere: what we said, what a tool answered, pi's own instructions."""
SCREEN: Final = frozenset({"setStatus", "setWidget", "setTitle", "set_editor_text"})
"""What extensions put on a screen that is not there."""
DIALOGS: Final = frozenset({"select", "confirm", "input", "editor"})
"""What extensions wait for an answer to; whoever drives pi gives it."""

_STATUS: Final = re.compile(r"^\s*(\d{3})\b")
_GONE: Final = (
    "connection",
    "fetch failed",
    "terminated",
    "timed out",
    "timeout",
    "socket",
    "network",
    "overloaded",
)


class PiStream:
    """Follows one turn. ``take`` is given every line that pi writes; ``finished`` is set when it says that it is done.

    ``next_call`` gives our ids of calls; ``ours`` maps pi's names of our own tools to ours; ``window`` is the size of
    the model's context, if it is known.
    """

    def __init__(
        self,
        *,
        next_call: Callable[[], str],
        ours: Mapping[str, str] | None = None,
        window: int | None = None,
    ) -> None:
        self.finished: Finished | None = None
        self.native_id: str | None = None
        self.calls: dict[str, str] = {}
        """Calls that are at work: pi's ids to ours."""
        self._next_call, self._ours, self._window = next_call, ours or {}, window
        self._inputs: dict[str, Any] = {}
        """What our tools were called with, by pi's ids of the calls."""
        self._bridged: Counter[str] = Counter()
        """Calls of our tools that the bridge has told and pi has not ended yet, by our names of the tools."""
        self._shown: list[str] = []
        self._partial = ""
        """Text of a message that has not ended yet, or did not end well."""
        self._last: dict[str, Any] = {}
        """The newest message of the agent."""
        self._usage = Usage(window=window)

    def take(self, line: bytes) -> tuple[Signal, ...]:
        """Return what a line says. A line that is no record is ``raw`` too."""
        if not line.strip():
            return ()
        try:
            record = loads(line)
        except ValueError:
            return (_raw(line),)
        if not isinstance(record, dict):
            return (_raw(line),)
        try:
            return self._told(record, line)
        except (KeyError, TypeError, AttributeError, ValueError):
            return (_raw(line),)  # known by its name, but of another shape than it is known in

    def shown(self) -> tuple[str, ...]:
        """Return which of our tools were seen to be called since this was asked last, by our names, in order."""
        shown, self._shown = tuple(self._shown), []
        return shown

    def _told(self, record: dict[str, Any], line: bytes) -> tuple[Signal, ...]:
        match record.get("type"):
            case "message_update":
                return self._update(record["assistantMessageEvent"], line)
            case "message_end":
                return self._message(record["message"], line)
            case "tool_execution_start":
                return self._called(record)
            case "tool_execution_end":
                return self._answered(record)
            case "agent_settled":
                self.finished = self._end(aborted=bool(record.get("aborted")))
                return ()
            case "compaction_end":
                return self._compacted(record)
            case "auto_retry_start" | "summarization_retry_scheduled":
                return self._again(record)
            case "extension_error":
                told = f"An extension of pi failed ({record.get('extensionPath')}): {record.get('error')}"
                return (Noted(kind="outcome", body=Outcome(text=told, status="failed"), actor="system"),)
            case "extension_ui_request":
                return self._screen(record, line)
            case "response":
                return () if record["success"] else (_raw(line),)
            case "session":
                self.native_id = str(record["id"])
                return ()
            case kind if kind in NOISE:
                return ()
            case _:
                return (_raw(line),)

    def _update(self, update: dict[str, Any], line: bytes) -> tuple[Signal, ...]:
        kind = update["type"]
        if kind == "text_delta":
            text = str(update["delta"])
            self._partial += text
            return (TextDelta(text=text),) if text else ()
        return () if kind in QUIET_UPDATES else (_raw(line),)

    def _message(self, message: dict[str, Any], line: bytes) -> tuple[Signal, ...]:
        role = message["role"]
        if role != "assistant":
            return () if role in QUIET_ROLES else (_raw(line),)
        self._last = message
        told: list[Signal] = []
        if message["stopReason"] not in ("error", "aborted"):
            self._partial = ""
            for block in message["content"]:
                told += _block(block, message.get("model"), line)
        told += self._measured(message.get("usage"), newest=True)
        return tuple(told)

    def bridged(self, name: str) -> None:
        """Say that the bridge has told a call of this tool of ours, with its answer."""
        self._bridged[name] += 1

    def _called(self, record: dict[str, Any]) -> tuple[Signal, ...]:
        name, provider = str(record["toolName"]), str(record["toolCallId"])
        if name in self._ours:
            self._inputs[provider] = record.get("args")
            self._shown.append(self._ours[name])
            return ()
        return (self._call(name, provider, record.get("args")),)

    def _call(self, name: str, provider: str, given: Any) -> ToolCalled:
        call = self.calls[provider] = self._next_call()
        return ToolCalled(call=call, name=name, input=given, provider_call=provider)

    def _answered(self, record: dict[str, Any]) -> tuple[Signal, ...]:
        name, provider = str(record["toolName"]), str(record["toolCallId"])
        given = self._inputs.pop(provider, record.get("args"))
        if name in self._ours:
            name = self._ours[name]
            if self._bridged[name] > 0:
                self._bridged[name] -= 1
                return ()
        # A call that never ran, because there is no such tool or its input is wrong, may have had no beginning.
        called = () if provider in self.calls else (self._call(name, provider, given),)
        answered = ToolAnswered(
            call=self.calls.pop(provider),
            output=_output(record.get("result")),
            status="error" if record.get("isError") else "ok",
            name=name,
        )
        return (*called, answered)

    def _compacted(self, record: dict[str, Any]) -> tuple[Signal, ...]:
        result = record.get("result")
        if result:
            checkpoint = Checkpoint(text=str(result["summary"]), trigger=record.get("reason"))
            return (
                Noted(kind="checkpoint", body=checkpoint),
                *self._measured(result.get("usage"), newest=False),
            )
        why = record.get("errorMessage") or "The compaction was broken off."
        return (Noted(kind="outcome", body=Outcome(text=str(why), status="failed"), actor="system"),)

    def _again(self, record: dict[str, Any]) -> tuple[Signal, ...]:
        """Tell that pi tries again, and keep what had been said: the next message takes its place."""
        told: list[Signal] = []
        if self._partial.strip():
            cut = Message(
                role="assistant", text=self._partial, interrupted=True, model=self._last.get("model")
            )
            told.append(Noted(kind="message", body=cut))
        self._partial = ""
        text = (
            f"{record.get('errorMessage')}. pi tries again in {record['delayMs'] / 1000:g} s "
            f"({record['attempt']} of {record['maxAttempts']})."
        )
        told.append(Noted(kind="outcome", body=Outcome(text=text, status="retrying"), actor="system"))
        return tuple(told)

    def _screen(self, record: dict[str, Any], line: bytes) -> tuple[Signal, ...]:
        method = record["method"]
        if method == "notify":
            return (Noted(kind="terminal", body=Terminal(text=str(record["message"])), actor="system"),)
        return () if method in SCREEN or method in DIALOGS else (_raw(line),)

    def _measured(self, used: dict[str, Any] | None, *, newest: bool) -> tuple[Signal, ...]:
        """Add what a request used. ``newest`` is false for a summary, which says nothing about the context."""
        if not used or not used.get("totalTokens"):
            return ()
        before = self._usage
        read, written = used.get("cacheRead") or 0, used.get("cacheWrite") or 0
        prompt = (used.get("input") or 0) + read + written
        cost = (used.get("cost") or {}).get("total") or 0
        self._usage = Usage(
            input_tokens=(before.input_tokens or 0) + prompt,
            output_tokens=(before.output_tokens or 0) + (used.get("output") or 0),
            cache_read_tokens=(before.cache_read_tokens or 0) + read,
            cache_write_tokens=(before.cache_write_tokens or 0) + written,
            # A model without prices costs 0 in pi's files, which says nothing.
            cost_usd=(before.cost_usd or 0) + cost if cost else before.cost_usd,
            window=self._window,
            context_tokens=prompt if newest else before.context_tokens,
        )
        return (Measured(usage=self._usage),)

    def _end(self, *, aborted: bool) -> Finished:
        last, reason = self._last, self._last.get("stopReason")
        if aborted or reason == "aborted":
            return Finished(status="cancelled", reason=str(last.get("errorMessage") or "pi was told to stop"))
        match reason:
            case "stop" | "toolUse":
                return Finished(status="completed")
            case "length":
                return Finished(
                    status="completed", reason="The answer was cut off at the model's limit of tokens."
                )
            case "error":
                return failure_of(str(last.get("errorMessage") or "pi gave no reason"))
            case None:
                return Finished(
                    status="failed", reason="pi ended its work without an answer", code="protocol"
                )
            case _:
                why = f"pi ended its work with the stop reason {reason!r}, which is no end"
                return Finished(status="failed", reason=why, code="protocol")


def failure_of(message: str) -> Finished:
    """Return the end of a turn that failed with this message, which often begins with the provider's HTTP status."""
    status = int(found[1]) if (found := _STATUS.match(message)) else 0
    code = {
        401: "authentication",
        403: "authentication",
        402: "quota",
        408: "unavailable",
        429: "rate_limited",
    }.get(status)
    if code is None:
        lower = message.lower()
        if status >= 500 or (not status and any(word in lower for word in _GONE)):
            code = "unavailable"
        elif "api key" in lower or "/login" in lower:
            code = "authentication"
        else:
            code = "invalid_request" if 400 <= status < 500 else "unknown"
    return Finished(
        status="failed", reason=message, code=code, retryable=code in ("unavailable", "rate_limited")
    )


def _block(block: dict[str, Any], model: str | None, line: bytes) -> tuple[Signal, ...]:
    match block["type"]:
        case "text":
            text = str(block["text"])
            return (Said(text=text, model=model),) if text.strip() else ()
        case "thinking":
            text, signature = str(block.get("thinking") or ""), block.get("thinkingSignature")
            return (Thought(text=text, signature=signature),) if text.strip() or signature else ()
        case "toolCall":
            return ()
        case _:
            return (_raw(line),)


def _output(result: Any) -> Any:
    """Return what the model reads of a result: text as text, anything else as pi's blocks."""
    content = result.get("content") if isinstance(result, dict) else result
    if isinstance(content, list) and all(
        isinstance(one, dict) and one.get("type") == "text" for one in content
    ):
        return "\n".join(str(one.get("text", "")) for one in content)
    return content


def _raw(line: bytes) -> Noted:
    return Noted(kind="raw", body=line, actor="system")
