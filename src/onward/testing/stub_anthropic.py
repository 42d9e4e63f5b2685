"""Anthropic Messages, as the stub writes and reads it."""

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


def _message(reply: Reply, model: str, number: int) -> dict[str, Any]:
    usage = reply.usage
    read, wrote = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    counts = {
        "input_tokens": (usage.input_tokens or 0) - read - wrote,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": wrote,
        "output_tokens": 1,
    }
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts,
    }


def _stop(reply: Reply) -> str:
    return reply.stop or ("tool_use" if reply.calls else "end_turn")


def _frames(reply: Reply, _request: Request, model: str, number: int) -> Iterator[Frame]:
    def event(kind: str, *, text: bool = False, **fields: Any) -> Frame:
        return kind, {"type": kind} | fields, text

    def delta(kind: str, field: str, value: str) -> Frame:
        piece = {"type": kind, field: value}
        return event("content_block_delta", index=index, delta=piece, text=kind == "text_delta")

    yield event("message_start", message=_message(reply, model, number))
    yield event("ping")
    index = 0
    if reply.thought:
        yield event("content_block_start", index=index, content_block={"type": "thinking", "thinking": ""})
        yield delta("thinking_delta", "thinking", reply.thought)
        yield delta("signature_delta", "signature", "signed")
        yield event("content_block_stop", index=index)
        index += 1
    if reply.text:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in text_pieces(reply):
            yield delta("text_delta", "text", piece)
        yield event("content_block_stop", index=index)
        index += 1
    for name, given in reply.calls:
        block = {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for piece in halves(arguments(given)):
            yield delta("input_json_delta", "partial_json", piece)
        yield event("content_block_stop", index=index)
        index += 1
    output = {"output_tokens": reply.usage.output_tokens}
    yield event("message_delta", delta={"stop_reason": _stop(reply), "stop_sequence": None}, usage=output)
    yield event("message_stop")


def _whole(reply: Reply, _request: Request, model: str, number: int) -> dict[str, Any]:
    message = _message(reply, model, number)
    content: list[dict[str, Any]] = []
    if reply.thought:
        content.append({"type": "thinking", "thinking": reply.thought, "signature": "signed"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for name, given in reply.calls:
        id = f"toolu_{number}_{len(content)}"
        content.append({"type": "tool_use", "id": id, "name": name, "input": given})
    usage = message["usage"] | {"output_tokens": reply.usage.output_tokens}
    return message | {"content": content, "stop_reason": _stop(reply), "usage": usage}


def _heard(body: dict[str, Any]) -> list[Heard]:
    heard = [Heard(who="control", text=text) for text in texts_in(body.get("system"))]
    for message in body.get("messages") or ():
        content = message.get("content")
        if message.get("role") == "system":
            heard += [Heard(who="control", text=text) for text in texts_in(content)]
            continue
        who: Literal["agent", "user"] = "agent" if message.get("role") == "assistant" else "user"
        for block in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
            if block.get("type") == "tool_result":
                heard.append(Heard(who="tool", text="\n".join(texts_in(block.get("content")))))
            elif block.get("type") == "text":
                heard.append(Heard(who=who, text=block["text"]))
    return heard


ANTHROPIC: Final = Format(
    name="anthropic",
    paths=("/messages",),
    base="/v1",
    frames=_frames,
    whole=_whole,
    streamed=lambda request: bool(request.body.get("stream")),
    heard=_heard,
    offered=lambda body: bool(body.get("tools")),
    schema=lambda body: under(body, "output_config", "format", "schema"),
)
"""Anthropic Messages."""
