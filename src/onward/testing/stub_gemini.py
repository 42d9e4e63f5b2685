"""Gemini's generateContent and streamGenerateContent, as the stub writes and reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, Literal

from onward.testing.stub_wire import Format, Frame, Heard, Reply, Request, text_pieces, under


def _answer(
    parts: list[dict[str, Any]], reply: Reply, model: str, number: int, *, last: bool
) -> dict[str, Any]:
    read, wrote = reply.usage.input_tokens or 0, reply.usage.output_tokens or 0
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if last:
        candidate["finishReason"] = reply.stop or "STOP"
    usage = {"promptTokenCount": read, "candidatesTokenCount": wrote, "totalTokenCount": read + wrote}
    if reply.usage.cache_read_tokens is not None:
        usage["cachedContentTokenCount"] = reply.usage.cache_read_tokens
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": model,
        "responseId": f"response-{number}",
    }


def _parts(reply: Reply, texts: list[str], number: int) -> list[dict[str, Any]]:
    thought = [{"text": reply.thought, "thought": True}] if reply.thought else []
    calls = [
        {"functionCall": {"id": f"call_{number}_{index}", "name": name, "args": given}}
        for index, (name, given) in enumerate(reply.calls)
    ]
    return [*thought, *({"text": text} for text in texts), *calls]


def _frames(reply: Reply, _request: Request, model: str, number: int) -> Iterator[Frame]:
    parts = _parts(reply, text_pieces(reply), number) or [{"text": ""}]
    for index, part in enumerate(parts):
        said = bool(part.get("text")) and not part.get("thought")
        yield None, _answer([part], reply, model, number, last=index == len(parts) - 1), said


def _whole(reply: Reply, _request: Request, model: str, number: int) -> dict[str, Any]:
    parts = _parts(reply, [reply.text] if reply.text else [], number) or [{"text": ""}]
    return _answer(parts, reply, model, number, last=True)


def _heard(body: dict[str, Any]) -> list[Heard]:
    control = body.get("systemInstruction") or body.get("system_instruction") or {}
    heard = [Heard(who="control", text=part["text"]) for part in control.get("parts") or () if "text" in part]
    for content in body.get("contents") or ():
        who: Literal["agent", "user"] = "agent" if content.get("role") == "model" else "user"
        for part in content.get("parts") or ():
            if "functionResponse" in part:
                heard.append(Heard(who="tool", text=_told(part["functionResponse"].get("response"))))
            elif "text" in part and not part.get("thought"):
                heard.append(Heard(who=who, text=part["text"]))
    return heard


def _told(response: Any) -> str:
    """Return a tool's answer as a text: under its usual key, else all of it as JSON."""
    output = under(response, "output")
    return output if isinstance(output, str) else json.dumps(response)


def _schema(body: dict[str, Any]) -> dict[str, Any] | None:
    config = body.get("generationConfig") or {}
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return schema if isinstance(schema, dict) else None


GEMINI: Final = Format(
    name="gemini",
    paths=(":generateContent", ":streamGenerateContent"),
    base="",
    frames=_frames,
    whole=_whole,
    streamed=lambda request: ":stream" in request.path,
    heard=_heard,
    offered=lambda body: any(tool.get("functionDeclarations") for tool in body.get("tools") or ()),
    schema=_schema,
)
"""Gemini."""
