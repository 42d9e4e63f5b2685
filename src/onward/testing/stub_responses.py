"""OpenAI Responses, as the stub writes and reads it.

A call names its tool as the request offers it. A tool of a namespace (Codex makes one of each MCP server) can be called
``NAMESPACE/TOOL`` or ``NAMESPACE__TOOL``, so that the name that other programs show for it works here too.
"""

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
    text_pieces,
    texts_in,
    under,
)

_WHO: Final[dict[str, Literal["user", "agent"]]] = {"user": "user", "assistant": "agent"}


def _items(reply: Reply, request: Request, number: int) -> list[dict[str, Any]]:
    """Return what the model puts out, in order."""
    items: list[dict[str, Any]] = []
    if reply.thought:
        summary = [{"type": "summary_text", "text": reply.thought}]
        items.append(
            {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "c2VhbGVk"}
        )
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        items.append(message | {"content": content})
    for index, (name, given) in enumerate(reply.calls):
        tool = _tool(name, request.body)
        call = {"status": "completed", "call_id": f"call_{number}_{index}"} | tool
        if tool["type"] == "custom_tool_call":
            items.append(call | {"id": f"ctc_{number}_{index}", "input": arguments(given)})
        else:
            items.append(call | {"id": f"fc_{number}_{index}", "arguments": arguments(given)})
    return items


def _tool(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that name a tool in a call of it."""
    for tool in body.get("tools") or ():
        if tool.get("type") == "custom" and tool.get("name") == name:
            return {"type": "custom_tool_call", "name": name}
        if tool.get("type") == "namespace":
            space = tool.get("name", "")
            for inner in tool.get("tools") or ():
                if name in (f"{space}/{inner.get('name')}", f"{space}__{inner.get('name')}"):
                    return {"type": "function_call", "name": inner["name"], "namespace": space}
    return {"type": "function_call", "name": name}


def _response(reply: Reply, items: list[dict[str, Any]], model: str, number: int) -> dict[str, Any]:
    read, wrote = reply.usage.input_tokens or 0, reply.usage.output_tokens or 0
    usage = {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": reply.usage.cache_read_tokens or 0},
        "output_tokens": wrote,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + wrote,
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": model,
        "output": items,
        "usage": usage,
    }


def _frames(reply: Reply, request: Request, model: str, number: int) -> Iterator[Frame]:
    def event(kind: str, *, text: bool = False, **fields: Any) -> Frame:
        return kind, {"type": kind} | fields, text

    items = _items(reply, request, number)
    response = _response(reply, items, model, number)
    begun = {name: response[name] for name in ("id", "object", "created_at", "model")}
    yield event("response.created", response=begun | {"status": "in_progress", "output": []})
    for index, item in enumerate(items):
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            yield event(
                "response.output_item.added",
                output_index=index,
                item=item | {"content": [], "status": "in_progress"},
            )
            for piece in text_pieces(reply):
                yield event("response.output_text.delta", **place, content_index=0, delta=piece, text=True)
        elif item["type"] == "reasoning":
            yield event("response.output_item.added", output_index=index, item=item | {"summary": []})
            yield event("response.reasoning_summary_part.added", **place, summary_index=0)
            yield event(
                "response.reasoning_summary_text.delta", **place, summary_index=0, delta=reply.thought
            )
        else:
            yield event("response.output_item.added", output_index=index, item=item)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)


def _whole(reply: Reply, request: Request, model: str, number: int) -> dict[str, Any]:
    return _response(reply, _items(reply, request, number), model, number)


def _heard(body: dict[str, Any]) -> list[Heard]:
    heard = [Heard(who="control", text=text) for text in texts_in(body.get("instructions"))]
    items = body.get("input")
    if isinstance(items, str):
        return [*heard, Heard(who="user", text=items)]
    for item in items or ():
        kind = item.get("type", "message")
        if kind == "message":
            role = item.get("role", "")
            heard += [
                Heard(who=_WHO.get(role, "control"), text=text) for text in texts_in(item.get("content"))
            ]
        elif kind.endswith("_output"):
            heard.append(Heard(who="tool", text="\n".join(texts_in(item.get("output")))))
    return heard


RESPONSES: Final = Format(
    name="responses",
    paths=("/responses",),
    base="/v1",
    frames=_frames,
    whole=_whole,
    streamed=lambda request: bool(request.body.get("stream")),
    heard=_heard,
    offered=lambda body: bool(body.get("tools")),
    schema=lambda body: under(body, "text", "format", "schema"),
)
"""OpenAI Responses."""
