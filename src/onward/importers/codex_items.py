"""Response items of Codex, as events: messages, calls, results and reasoning in the shape of the provider's API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from onward.core.bodies import Part
from onward.core.codec import loads
from onward.importers.calls import open_call, take_result
from onward.importers.codex_rows import ContentBlock, Item, blocks_of, kinds_of, text_of
from onward.importers.contract import Draft, Strand, body
from onward.importers.harness import is_harness, parted
from onward.importers.parts import part_of_url

_TEXT_KINDS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "")

_SELF_ANSWERED: Final = frozenset(("web_search_call", "image_generation_call"))
"""Calls that the provider runs itself: the item is the call and what is known of its end."""


def is_call(kind: str | None) -> bool:
    """Whether an item of this type is a tool call."""
    return kind is not None and kind.endswith("_call")


def is_result(kind: str | None) -> bool:
    """Whether an item of this type is the result of a tool call."""
    return kind is not None and kind.endswith("_output")


def said_in(item: Item) -> str:
    """Return all text of a message."""
    return "\n\n".join(b.text for b in blocks_of(item.content) or () if b.text is not None)


def message_drafts(
    strand: Strand, item: Item, at: int, ident: str, *, child: bool, images: Iterable[str] = ()
) -> list[Draft]:
    """Return a message as events: harness text and what was said apart. ``child``: another agent speaks as the user."""
    kinds = kinds_of(item)
    said: list[str] = []
    asides: list[str] = []
    editor: list[str] = []
    """What a client put in front of a request."""
    parts: list[Part] = []
    blobs: list[tuple[str, bytes]] = []
    blocks = [
        *(blocks_of(item.content) or ()),
        *(ContentBlock(type="input_image", image_url=url) for url in images),
    ]
    for number, block in enumerate(blocks):
        if block.type in _TEXT_KINDS and block.text is not None:
            kind = kinds[number] if number < len(kinds) else ""
            harness = item.role != "assistant" and (is_harness(block.text) or _is_harness_kind(kind))
            if harness or item.role != "user":
                (asides if harness else said).append(block.text)
                continue
            before, ask = parted(block.text)
            if before:
                editor.append(before)
            said.append(ask)
        elif block.image_url and (found := part_of_url(block.image_url)):
            parts.append(found[0])
            blobs.append((found[0].blob, found[1]))
        elif block.text:
            said.append(block.text)
        elif block.image_url:
            said.append(f"[image: {block.image_url[:200]}]")
    role, actor, aside = "assistant", "agent", False
    if item.role == "user":
        role, actor = "user", "trigger" if child else "user"
    elif item.role != "assistant":
        role, actor, aside = "system", "system", True
    drafts: list[Draft] = []
    for texts, of_harness in ((asides, True), (editor, True), (said, False)):
        if not texts and (of_harness or not parts):
            continue
        # The editor's context is named by itself: what was said has the same identity with and without it.
        place = "editor" if texts is editor else f"{sum(not d.ident.endswith('editor') for d in drafts)}"
        fields = {
            "role": role,
            "text": "\n\n".join(texts),
            "parts": None if of_harness else tuple(parts) or None,
            "aside": aside or of_harness,
            "model": strand.model if role == "assistant" else None,
        }
        drafts.append(
            Draft(
                strand=strand.key,
                at=at,
                kind="message",
                actor=actor,
                body=body(fields),
                ident=f"{ident}\x00{place}",
                native_id=item.id,
                blobs=() if of_harness else tuple(blobs),
            )
        )
    return drafts


def _is_harness_kind(kind: str) -> bool:
    return "." in kind and not kind.startswith("user.")


def call_draft(strand: Strand, item: Item, at: int, ident: str) -> list[Draft]:
    """Return a call as an event, and its end where the item says that too."""
    provider = item.call_id or item.id or ""
    name = item.name or (item.type or "call").removesuffix("_call")
    if item.namespace:
        name = f"{item.namespace}__{name}"
    ours = open_call(strand, provider, name, ident)
    fields = {"call": ours, "name": name, "input": _input_of(item), "provider_call": provider or None}
    drafts = [_tool(strand, at, "tool_call", "agent", fields, f"{ident}\x00call", item.id or provider)]
    if item.type in _SELF_ANSWERED:
        strand.open.pop(provider, None)
        ended = {"completed": None, "failed": "error"}.get(item.status or "", "outcome_unknown")
        parts: list[Part] = []
        blobs: list[tuple[str, bytes]] = []
        output: Any = item.result or None
        image = text_of(item.result)
        if image is not None and (found := part_of_url(f"data:image/png;base64,{image}")):
            parts, blobs, output = [found[0]], [(found[0].blob, found[1])], None
        fields = {
            "call": ours,
            "output": output,
            "status": ended,
            "name": name,
            "provider_call": provider or None,
            "parts": tuple(parts) or None,
        }
        end = _tool(strand, at, "tool_result", "tool", fields, f"{ident}\x00end", item.id or provider)
        end.blobs = tuple(blobs)
        drafts.append(end)
    return drafts


def result_draft(strand: Strand, item: Item, at: int, ident: str) -> Draft:
    """Return a result as an event."""
    provider = item.call_id or item.id or ""
    call, name = take_result(strand, provider)
    output, parts, blobs = _output_of(item)
    failed = item.success is False or item.status == "failed"
    fields = {
        "call": call,
        "output": output,
        "status": "error" if failed else None,
        "name": name,
        "provider_call": provider or None,
        "parts": tuple(parts) or None,
    }
    draft = _tool(strand, at, "tool_result", "tool", fields, ident, item.id or provider)
    draft.blobs = tuple(blobs)
    return draft


def reasoning_fields(item: Item) -> dict[str, Any]:
    """Return the body of a reasoning item: its summary, or its text where the provider shows that."""
    shown = [b.text for b in blocks_of(item.summary) or () if b.text]
    shown = shown or [b.text for b in blocks_of(item.content) or () if b.text]
    return {"text": "\n\n".join(shown), "signature": item.encrypted_content}


def summary_in(item: Item, history: list[Item]) -> str:
    """Return the summary of a compaction: its own text, or the last thing that the new history says as the user."""
    if item.message:
        return item.message
    users = [said_in(entry) for entry in history if entry.role == "user"]
    return users[-1] if users else ""


def _tool(
    strand: Strand, at: int, kind: str, actor: str, fields: dict[str, Any], ident: str, native: str | None
) -> Draft:
    return Draft(
        strand=strand.key,
        at=at,
        kind=kind,
        actor=actor,
        body=body(fields),
        ident=ident,
        native_id=native or None,
    )


def _input_of(item: Item) -> Any:
    """Return a call's input. Arguments are JSON inside a string; what is no JSON stays the string it is."""
    text = text_of(item.arguments)
    if text is None:
        return item.arguments or item.input or item.action or None
    data = text.encode("utf-8", "surrogatepass")
    if not data.lstrip().startswith((b"{", b"[")):
        return text
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        loads(data)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return text
    return msgspec.Raw(data)


def _output_of(item: Item) -> tuple[Any, list[Part], list[tuple[str, bytes]]]:
    output = item.output or item.tools
    data = bytes(output)
    if not data.startswith(b"["):
        return output or None, [], []
    blocks = blocks_of(output) or []
    if len(blocks) == 1 and blocks[0].text is not None and blocks[0].image_url is None:
        return blocks[0].text, [], []
    parts: list[Part] = []
    blobs: list[tuple[str, bytes]] = []
    rest: list[Any] = []
    if not any(b.image_url for b in blocks):
        return output, [], []
    for native in loads(data):
        url = native.get("image_url") if isinstance(native, dict) else None
        found = part_of_url(url) if isinstance(url, str) else None
        if found is None:
            rest.append(native)
        else:
            parts.append(found[0])
            blobs.append((found[0].blob, found[1]))
    return rest or None, parts, blobs
