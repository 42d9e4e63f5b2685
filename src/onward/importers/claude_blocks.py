"""Content blocks of a Claude Code row, as events.

Native JSON inside a block (a tool's input, a result's content) passes through unread wherever it can: it is the largest
part of a transcript, and copying its bytes is what keeps importing close to the speed of decoding.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onward.core.bodies import Part
from onward.core.codec import loads
from onward.importers.calls import open_call, short_digest, take_result
from onward.importers.claude_rows import Block, Row
from onward.importers.contract import Draft, Strand, body, native_json
from onward.importers.harness import is_harness
from onward.importers.parts import part_of_source

DELEGATES: Final = frozenset(("Task", "Agent"))
"""Tools whose call starts a subagent."""

_CALLS: Final = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
_HARNESS_ORIGINS: Final = frozenset(("task-notification", "hook", "system"))


class _ResultBlock(msgspec.Struct):
    type: str = ""
    text: str | None = None
    source: msgspec.Raw = msgspec.Raw(b"")


class _AgentId(msgspec.Struct):
    agent: str | None = msgspec.field(name="agentId", default=None)


class _Prompt(msgspec.Struct):
    prompt: str | None = None


class _Origin(msgspec.Struct):
    kind: str | None = None


_result_blocks: Final = msgspec.json.Decoder(list[_ResultBlock])
_agent: Final = msgspec.json.Decoder(_AgentId)
_prompt: Final = msgspec.json.Decoder(_Prompt)
_origin: Final = msgspec.json.Decoder(_Origin)

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Told:
    """What a row says: its blocks as unfinished events, and what they count as."""

    __slots__ = ("_pieces", "aside", "calls", "results", "text")

    def __init__(self) -> None:
        self._pieces: list[tuple[str, str, dict[str, Any], tuple[tuple[str, bytes], ...]]] = []
        self.text = ""
        self.aside = False
        self.calls = 0
        self.results: list[str] = []
        """The provider's ids of the calls that this row answers."""

    def add(
        self, kind: str, actor: str, fields: dict[str, Any], blobs: tuple[tuple[str, bytes], ...] = ()
    ) -> None:
        """Take one more event."""
        self._pieces.append((kind, actor, fields, blobs))

    def drafts(
        self, strand: Strand, at: int, ident: str, native_id: str | None, *, actor: str | None = None
    ) -> list[Draft]:
        """Return the events, calls and results paired in the strand's book. ``actor`` speaks in place of the user."""
        found = []
        for number, (kind, who, fields, blobs) in enumerate(self._pieces):
            part = f"{ident}\x00{number}"
            if kind == "tool_call":
                provider = fields.pop("id")
                fields = {"call": open_call(strand, provider, fields["name"], part), **fields}
                fields["provider_call"] = provider or None
            elif kind == "tool_result":
                provider = fields.pop("id")
                call, name = take_result(strand, provider)
                fields = {"call": call, **fields, "name": name, "provider_call": provider or None}
            found.append(
                Draft(
                    strand=strand.key,
                    at=at,
                    kind=kind,
                    actor=actor if actor and who == "user" else who,
                    body=fields.pop("record") if kind == "raw" else body(fields),
                    ident=part,
                    native_id=native_id,
                    blobs=blobs,
                )
            )
        return found


def assistant_told(row: Row, data: bytes) -> Told:
    """Return the events of an assistant row, one a content block."""
    told = Told()
    message = row.message
    if message is None or message.content is None:
        return told
    synthetic = bool(row.api_error) or message.model == "<synthetic>"
    blocks = (
        [Block(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    )
    for number, block in enumerate(blocks):
        if block.type == "text":
            fields = {
                "role": "assistant",
                "text": block.text,
                "interrupted": bool(row.aborted),
                "aside": synthetic,
                "model": message.model,
            }
            told.add("message", "agent", fields)
        elif block.type == "thinking":
            told.add("reasoning", "agent", {"text": block.thinking, "signature": block.signature or None})
        elif block.type == "redacted_thinking":
            told.add("reasoning", "agent", {"text": "", "signature": block.data})
        elif block.type in _CALLS:
            told.calls += block.type == "tool_use"
            told.add("tool_call", "agent", {"id": block.id, "name": block.name, "input": block.input or None})
        elif block.type.endswith("_tool_result"):
            _tell_result(told, block)
        elif block.type == "image" and (found := _image(block)):
            part, content = found
            told.add(
                "message",
                "agent",
                {"role": "assistant", "text": "", "parts": (part,)},
                ((part.blob, content),),
            )
        else:
            told.add("raw", "system", {"record": _native_block(data, number)})
    return told


def user_told(row: Row, data: bytes) -> Told:
    """Return the events of a user row: what was said, what was an aside, and results."""
    told = Told()
    content = row.message.content if row.message else None
    if content is None:
        return told
    blocks = [Block(type="text", text=content)] if isinstance(content, str) else content
    always_aside = bool(row.meta) or bool(row.transcript_only) or _is_harness_origin(row.origin)
    said: list[str] = []
    asides: list[str] = []
    parts: list[Part] = []
    blobs: list[tuple[str, bytes]] = []
    for number, block in enumerate(blocks):
        if block.type == "tool_result":
            told.results.append(block.tool_use_id)
            _tell_result(told, block)
        elif block.type == "text":
            (asides if always_aside or is_harness(block.text) else said).append(block.text)
        elif block.type in ("image", "document") and (found := _image(block)):
            parts.append(found[0])
            blobs.append((found[0].blob, found[1]))
        else:
            told.add("raw", "system", {"record": _native_block(data, number)})
    if asides:
        told.text, told.aside = "\n\n".join(asides), True
        _tell_message(told, [], [])
    if said or parts:
        told.text, told.aside = "\n\n".join(said), always_aside
        _tell_message(told, parts, blobs)
    return told


def _native_block(data: bytes, number: int) -> bytes:
    """Return one content block as native JSON: it has no counterpart, so none of it may be lost."""
    return bytes(native_json(loads(data)["message"]["content"][number]))


def _tell_message(told: Told, parts: list[Part], blobs: list[tuple[str, bytes]]) -> None:
    fields = {"role": "user", "text": told.text, "parts": tuple(parts) or None, "aside": told.aside}
    told.add("message", "user", fields, tuple(blobs))


def _tell_result(told: Told, block: Block) -> None:
    output, parts, blobs = result_of(block.content)
    fields = {
        "id": block.tool_use_id,
        "output": output,
        "status": "error" if block.is_error else None,
        "parts": tuple(parts) or None,
    }
    told.add("tool_result", "tool", fields, tuple(blobs))


def result_of(content: msgspec.Raw) -> tuple[Any, list[Part], list[tuple[str, bytes]]]:
    """Return a result's output and its images. One block of text is that text; anything else stays as it was given."""
    data = bytes(content)
    if not data:
        return None, [], []
    if not data.startswith(b"["):
        return content, [], []
    try:
        blocks = _result_blocks.decode(data)
    except _UNREADABLE:
        return content, [], []
    if len(blocks) == 1 and blocks[0].type == "text" and blocks[0].text is not None:
        return blocks[0].text, [], []
    if not any(b.type in ("image", "document") for b in blocks):
        return content, [], []
    parts: list[Part] = []
    blobs: list[tuple[str, bytes]] = []
    rest: list[Any] = []
    for block, native in zip(blocks, loads(data), strict=True):
        found = (
            part_of_source(loads(bytes(block.source)))
            if block.type in ("image", "document") and block.source
            else None
        )
        if found is None:
            rest.append(native)
        else:
            parts.append(found[0])
            blobs.append((found[0].blob, found[1]))
    texts = [b.get("text") for b in rest if isinstance(b, dict) and b.get("type") == "text"]
    return (texts[0] if len(rest) == len(texts) == 1 else rest or None), parts, blobs


def _image(block: Block) -> tuple[Part, bytes] | None:
    try:
        return part_of_source(loads(bytes(block.source)), block.title) if block.source else None
    except ValueError:
        return None


def _is_harness_origin(origin: msgspec.Raw) -> bool:
    data = bytes(origin)
    if not data.startswith(b"{"):
        return False
    try:
        return _origin.decode(data).kind in _HARNESS_ORIGINS
    except _UNREADABLE:
        return False


def agent_in(result: msgspec.Raw) -> str | None:
    """Return the subagent's id in the harness's rendering of a result, if it is that of a delegated call."""
    data = bytes(result)
    if not data.startswith(b"{") or b'"agentId"' not in data:
        return None
    try:
        return _agent.decode(data).agent
    except _UNREADABLE:
        return None


def prompt_in(call_input: msgspec.Raw) -> str | None:
    """Return the prompt that a delegating call gives to its subagent."""
    try:
        return _prompt.decode(bytes(call_input)).prompt
    except _UNREADABLE:
        return None


def compact_facts(metadata: msgspec.Raw) -> dict[str, Any]:
    """Return what a compaction boundary says: ``trigger`` and, as ``kept``, the ids of rows kept verbatim."""
    found = loads(bytes(metadata)) if metadata else {}
    if not isinstance(found, dict):
        return {}
    preserved = found.get("preservedMessages")
    uuids = preserved.get("uuids") if isinstance(preserved, dict) else None
    trigger = found.get("trigger")
    return {
        "trigger": trigger if isinstance(trigger, str) else None,
        "kept": [u for u in uuids if isinstance(u, str)] if isinstance(uuids, list) else [],
    }


def error_text(error: msgspec.Raw) -> str | None:
    """Return the words of an API error, which versions nest differently."""
    found = loads(bytes(error)) if error else None
    for _ in range(4):
        if isinstance(found, str):
            return found
        if not isinstance(found, dict):
            return None
        for name in ("formatted", "message"):
            if isinstance(words := found.get(name), str) and words:
                return words
        status = found.get("status")
        found = found.get("error") or found.get("cause") or (f"HTTP status {status}" if status else None)
    return None


def queued_prompt(attachment: msgspec.Raw) -> str | None:
    """Return the text of a prompt that was queued while the agent worked, or None for any other attachment."""
    data = bytes(attachment)
    if b'"queued_command"' not in data:
        return None
    try:
        found = loads(data)
    except ValueError:
        return None
    prompt = (
        found.get("prompt") if isinstance(found, dict) and found.get("type") == "queued_command" else None
    )
    return prompt if isinstance(prompt, str) and prompt else None


def message_digest(row: Row, data: bytes) -> str:
    """Return a digest of what a row says, without the envelope that a copy gets anew."""
    try:
        said = msgspec.json.encode(row.message) if row.message else data
    except UnicodeEncodeError:
        said = data
    return short_digest(said.decode("utf-8", "backslashreplace"))
