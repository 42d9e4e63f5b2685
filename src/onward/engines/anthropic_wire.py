"""Anthropic Messages: transcript parts to a request body, stream events to a reply. Pure functions, no I/O.

Source of the format: the Anthropic API reference, Messages and streaming. What the format demands, and how it is
kept: the first message is the user's and roles alternate (neighbours are merged); every ``tool_use`` is answered in
the next user message, before anything else in it; no text block is blank; a request with tool blocks declares tools.

Content is always a list of blocks, never a bare string, so that merging only ever adds blocks at the end and a longer
history extends the shorter one's bytes (invariant T2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onward.core.bodies import Usage
from onward.core.codec import encode
from onward.core.transcript import TranscriptMessage
from onward.engines.contract import Tool
from onward.engines.wire import (
    Part,
    ProviderFault,
    Reply,
    Told,
    WireCall,
    clean,
    event_object,
    number,
    parts,
    split_system,
)

VERSION: Final = "2023-06-01"
"""The value of the ``anthropic-version`` header that this format was written for."""

NOT_SHOWN: Final = "(Earlier messages are not shown.)"
"""What the user says first when a history begins with the agent."""

_NO_TOOLS: Final = {
    "tools": [
        {
            "name": "not_available",
            "description": "Stands for the tools of earlier turns. It cannot be called.",
            "input_schema": {"type": "object", "properties": {}},
        }
    ],
    "tool_choice": {"type": "none"},
}

_STOPS: Final = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "refusal": "refused",
    "model_context_window_exceeded": "window",
}
_RETRYABLE: Final = frozenset(("overloaded_error", "api_error", "rate_limit_error", "timeout_error"))


def request_body(
    *, model: str, system: str, messages: Sequence[TranscriptMessage], tools: Sequence[Tool], **more: Any
) -> bytes:
    """Return the body of a streaming request; ``more`` are further fields, ``max_tokens`` must be among them."""
    control, rest = split_system(system, messages)
    written = payload_messages(rest)
    body: dict[str, Any] = {"model": model, "stream": True}
    if tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in tools
        ]
    elif any(block["type"] == "tool_use" for message in written for block in message["content"]):
        body |= _NO_TOOLS
    if control:
        body["system"] = [{"type": "text", "text": control}]
    body["messages"] = written
    return encode(body | more)


def payload_messages(messages: Sequence[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return the ``messages`` of a request, from a history whose leading system messages were taken off."""
    written: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []

    def add(role: str, block: dict[str, Any]) -> None:
        if not written and role == "assistant":
            add("user", {"type": "text", "text": NOT_SHOWN})
        if not written or written[-1]["role"] != role:
            written.append({"role": role, "content": []})
        written[-1]["content"].append(block)

    def answer() -> None:
        for block in answers:
            add("user", block)
        answers.clear()

    for part in parts(messages):
        if isinstance(part, Told) or not part.joined:
            answer()
        role, block = _block(part)
        add(role, block)
        if not isinstance(part, Told):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.id}
            if part.output.strip():
                result["content"] = [{"type": "text", "text": part.output}]
            if part.failed:
                result["is_error"] = True
            answers.append(result)
    answer()
    return written


def _block(part: Part) -> tuple[str, dict[str, Any]]:
    if not isinstance(part, Told):
        return "assistant", {"type": "tool_use", "id": part.id, "name": part.name, "input": part.input}
    if part.signature is not None:
        return "assistant", {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return part.role, {"type": "text", "text": part.text}


class AnthropicReader:
    """Reads the events of one reply. The end is ``message_stop``, and nothing else is."""

    def __init__(self) -> None:
        self.reply = Reply()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._counts: dict[str, int] = {}

    def feed(self, event: str, data: str) -> str:
        """Take one event; return the text it adds."""
        found = event_object(data)
        reply = self.reply
        match found.get("type") or event:
            case "error":
                raise fault(found.get("error"))
            case "message_start":
                message = found.get("message") or {}
                reply.model = message.get("model") or reply.model
                self._measure(message.get("usage") or {})
            case "content_block_start":
                block = dict(found.get("content_block") or {})
                self._blocks[found["index"]] = block | {"json": ""}
                if block.get("type") == "text" and block.get("text"):
                    reply.text += block["text"]
                    return str(block["text"])
            case "content_block_delta":
                return self._grow(self._blocks[found["index"]], found.get("delta") or {})
            case "message_delta":
                reason = (found.get("delta") or {}).get("stop_reason")
                reply.stop = _STOPS.get(reason, "end") if reason else reply.stop  # type: ignore[assignment]
                self._measure(found.get("usage") or {})
            case "message_stop":
                self._end()
            case _:  # pings, and kinds of event that did not exist when this was written
                pass
        return ""

    def _grow(self, block: dict[str, Any], delta: dict[str, Any]) -> str:
        match delta.get("type"):
            case "text_delta":
                text = str(delta.get("text") or "")
                self.reply.text += text
                return text
            case "input_json_delta":
                block["json"] += delta.get("partial_json") or ""
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + (delta.get("thinking") or "")
            case "signature_delta":
                block["signature"] = block.get("signature", "") + (delta.get("signature") or "")
            case _:
                pass
        return ""

    def _measure(self, usage: dict[str, Any]) -> None:
        # What arrives later is the newer total, not an addition.
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ):
            if (count := number(usage.get(name))) is not None:
                self._counts[name] = count
        read = self._counts.get("cache_read_input_tokens")
        wrote = self._counts.get("cache_creation_input_tokens")
        fresh = self._counts.get("input_tokens")
        self.reply.usage = Usage(
            input_tokens=None if fresh is None else fresh + (read or 0) + (wrote or 0),
            output_tokens=self._counts.get("output_tokens"),
            cache_read_tokens=read,
            cache_write_tokens=wrote,
        )

    def _end(self) -> None:
        reply = self.reply
        reply.ended = True
        for _, block in sorted(self._blocks.items()):
            if block.get("type") == "tool_use":
                arguments = block["json"] or encode(block.get("input") or {}).decode()
                reply.calls.append(
                    WireCall(id=str(block.get("id")), name=str(block.get("name")), arguments=arguments)
                )
            elif block.get("type") == "thinking":
                reply.thoughts.append((block.get("thinking", ""), block.get("signature") or None))
        if reply.stop is None or (reply.calls and reply.stop == "end"):
            reply.stop = "tools" if reply.calls else "end"


def fault(error: Any, *, retryable: bool = False) -> ProviderFault:
    """Return the provider's ``error`` as a fault: its own message, its type in front."""
    if not isinstance(error, dict):
        return ProviderFault(clean(str(error)), retryable=retryable)
    kind, message = str(error.get("type") or ""), clean(str(error.get("message") or "no message"))
    return ProviderFault(f"{kind}: {message}" if kind else message, retryable=retryable or kind in _RETRYABLE)
