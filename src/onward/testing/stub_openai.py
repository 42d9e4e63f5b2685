"""OpenAI chat completions, as the stub writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from onward.testing.stub_wire import (
    Format,
    Frame,
    Heard,
    Reply,
    Request,
    arguments,
    halves,
    text_pieces,
    texts_in,
    under,
)

_WHO: Final[dict[str, Literal["user", "agent", "tool"]]] = {
    "user": "user",
    "assistant": "agent",
    "tool": "tool",
}


def _usage(reply: Reply) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": reply.usage.input_tokens,
        "completion_tokens": reply.usage.output_tokens,
        "total_tokens": (reply.usage.input_tokens or 0) + (reply.usage.output_tokens or 0),
    }
    if reply.usage.cache_read_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.usage.cache_read_tokens}
    return usage


def _stop(reply: Reply) -> str:
    return reply.stop or ("tool_calls" if reply.calls else "stop")


def _frames(reply: Reply, _request: Request, model: str, number: int) -> Iterator[Frame]:
    def chunk(delta: dict[str, Any], *, stop: str | None = None, text: bool = False) -> Frame:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return None, head | {"choices": [choice]}, text

    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}
    yield chunk({"role": "assistant", "content": ""})
    if reply.thought:
        yield chunk({"reasoning_content": reply.thought})
    for piece in text_pieces(reply):
        yield chunk({"content": piece}, text=True)
    for index, (name, given) in enumerate(reply.calls):
        first, second = halves(arguments(given))
        function = {"name": name, "arguments": first}
        call = {"index": index, "id": f"call_{number}_{index}", "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
    yield chunk({}, stop=_stop(reply))
    yield None, head | {"choices": [], "usage": _usage(reply)}, False
    yield None, "[DONE]", False


def _whole(reply: Reply, _request: Request, model: str, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.thought:
        message["reasoning_content"] = reply.thought
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments(given)},
            }
            for index, (name, given) in enumerate(reply.calls)
        ]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _stop(reply)}],
        "usage": _usage(reply),
    }


def _heard(body: dict[str, Any]) -> list[Heard]:
    return [
        Heard(who=_WHO.get(message.get("role", ""), "control"), text=text)
        for message in body.get("messages") or ()
        for text in _of_one(message)
    ]


def _of_one(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message; a tool's answer is one, however many blocks it has, even if it is empty."""
    texts = texts_in(message.get("content"))
    return ["\n".join(texts)] if message.get("role") == "tool" else texts


OPENAI: Final = Format(
    name="openai",
    paths=("/chat/completions",),
    base="/v1",
    frames=_frames,
    whole=_whole,
    streamed=lambda request: bool(request.body.get("stream")),
    heard=_heard,
    offered=lambda body: bool(body.get("tools")),
    schema=lambda body: under(body, "response_format", "json_schema", "schema"),
)
"""OpenAI chat completions."""
