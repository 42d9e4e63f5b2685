"""OpenAI chat completions: transcript parts to a request body, stream chunks to a reply. Pure functions, no I/O.

Source of the format: the OpenAI API reference, chat completions, as many other servers speak it too. What the format
demands, and how it is kept: every ``tool`` message follows the assistant message with its ``tool_calls`` entry; calls
made side by side are in one message; arguments are JSON in a string; ids are unique in a request.

The bytes are stable: the same history gives the same bytes, keys in a fixed order, and a longer history extends the
shorter one's messages (invariant T2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onward.core.bodies import Usage
from onward.core.codec import encode
from onward.core.transcript import TranscriptMessage
from onward.engines.contract import Tool
from onward.engines.wire import (
    Asked,
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

DONE: Final = "[DONE]"

_STOPS: Final = {"stop": "end", "tool_calls": "tools", "function_call": "tools", "length": "length"}
_RETRYABLE_CODES: Final = frozenset(
    ("408", "409", "429", "500", "502", "503", "504", "rate_limit_exceeded", "server_error")
)


def request_body(
    *, model: str, system: str, messages: Sequence[TranscriptMessage], tools: Sequence[Tool], **more: Any
) -> bytes:
    """Return the body of a streaming request; ``more`` are further fields, which come last."""
    body: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in tools
        ]
    body["messages"] = payload_messages(system, messages)
    return encode(body | more)


def payload_messages(system: str, messages: Sequence[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return the ``messages`` of a request."""
    control, rest = split_system(system, messages)
    written: list[dict[str, Any]] = [{"role": "system", "content": control}] if control else []
    pending: list[dict[str, Any]] = []
    for part in parts(rest):
        if isinstance(part, Told):
            written += pending
            pending = []
            if part.signature is None:
                written.append({"role": part.role, "content": part.text})
            continue
        if not part.joined:
            written += pending
            pending = []
            # The words before a call belong to the message that calls.
            if not (written and written[-1]["role"] == "assistant" and "tool_calls" not in written[-1]):
                written.append({"role": "assistant"})
            written[-1]["tool_calls"] = []
        written[-1]["tool_calls"].append(_call(part))
        content = f"Error: {part.output}" if part.failed else part.output
        pending.append({"role": "tool", "tool_call_id": part.id, "content": content})
    return written + pending


def _call(part: Asked) -> dict[str, Any]:
    arguments = encode(part.input).decode()
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments}}


class OpenAIReader:
    """Reads the chunks of one reply. The end is a ``finish_reason`` or ``[DONE]``; usage may come between the two."""

    def __init__(self) -> None:
        self.reply = Reply()
        self._calls: dict[int, dict[str, str]] = {}
        self._thought = ""

    def feed(self, event: str, data: str) -> str:  # noqa: ARG002 (this format does not name its events)
        """Take one event; return the text it adds."""
        if data.strip() == DONE:
            self._end()
            return ""
        chunk = event_object(data)
        if error := chunk.get("error"):
            raise fault(error)
        reply = self.reply
        reply.model = chunk.get("model") or reply.model
        if isinstance(usage := chunk.get("usage"), dict):
            reply.usage = _usage(usage)
        choices = chunk.get("choices") or []
        if not choices:
            return ""
        choice = choices[0]
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        reply.text += text
        self._thought += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for place, piece in enumerate(delta.get("tool_calls") or []):
            self._take_call(place, piece)
        if reason := choice.get("finish_reason"):
            reply.stop = _STOPS.get(reason, "refused" if reason == "content_filter" else "end")  # type: ignore[assignment]
            self._end()
        return text

    def _take_call(self, place: int, piece: dict[str, Any]) -> None:
        index = piece.get("index")
        call = self._calls.setdefault(
            index if isinstance(index, int) else place, {"id": "", "name": "", "arguments": ""}
        )
        function = piece.get("function") or {}
        call["id"] = piece.get("id") or call["id"]
        call["name"] = function.get("name") or call["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            arguments = encode(arguments).decode()
        call["arguments"] += arguments or ""

    def _end(self) -> None:
        reply = self.reply
        if reply.ended:
            return
        reply.ended = True
        reply.calls = [WireCall(**call) for _, call in sorted(self._calls.items())]
        if self._thought:
            reply.thoughts.append((self._thought, None))
        if reply.stop is None or (reply.calls and reply.stop == "end"):
            reply.stop = "tools" if reply.calls else "end"


def fault(error: Any, *, retryable: bool = False) -> ProviderFault:
    """Return the provider's ``error`` as a fault: its own message, its code or type in front."""
    if not isinstance(error, dict):
        return ProviderFault(clean(str(error)), retryable=retryable)
    named = [str(name) for name in (error.get("code"), error.get("type")) if name]
    code = named[0] if named else ""
    message = clean(str(error.get("message") or "no message"))
    again = retryable or not _RETRYABLE_CODES.isdisjoint(named)
    return ProviderFault(f"{code}: {message}" if code else message, retryable=again)


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=number(usage.get("prompt_tokens")),
        output_tokens=number(usage.get("completion_tokens")),
        cache_read_tokens=number(details.get("cached_tokens")),
    )
