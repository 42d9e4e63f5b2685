"""What the stub's wire formats have in common: the values between the server and the four ways to write them down.

A format (``Format``) knows which paths are its own, what was said in a request, and how to write a ``Reply``. It decides
nothing: what is answered comes from the script or from the directives (``stub_directives``).

``Heard`` is the common form of a request: every text in it, in order, with who said it, so that a test can say what a
model got to see without knowing how it was sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from onward.core.bodies import Usage


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is answered with."""

    text: str | None = None
    thought: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    """``(name, input)`` each, made side by side. An input that is a string is sent as it is, valid JSON or not."""
    chunks: int = 3
    """In how many pieces the text comes."""
    pause: float = 0.0
    """Seconds between two pieces of the text."""
    usage: Usage = Usage(input_tokens=12, output_tokens=3)
    """As ``bodies.Usage`` counts: input tokens include those read from a cache."""
    stop: str | None = None
    """The stop reason, if it should be another than the usual one."""
    status: int = 200
    error: str = "scripted error"
    """What the error says when ``status`` is not 200."""
    headers: tuple[tuple[str, str], ...] = ()
    drop: int | None = None
    """Close the connection after this many pieces of text, without an end."""
    raw: bytes | None = None
    """Send exactly this as the stream."""
    gate: threading.Event | None = None
    """Wait for this event after the first piece of the text."""
    silent: bool = False
    """While waiting, send nothing at all; otherwise comments show that the connection lives."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes
    body: dict[str, Any]
    """Empty for a request without a JSON object."""
    method: str = "POST"
    api: str = ""
    """The name of its wire format; empty for a request that asks no model for an answer."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One text of a request."""

    who: Literal["control", "user", "agent", "tool"]
    """``control`` is a system or developer message. ``tool`` is what a tool answered."""
    text: str


Frame = tuple[str | None, dict[str, Any] | str, bool]
"""The name of a server-sent event, its data, and whether it is a piece of text."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format."""

    name: str
    paths: tuple[str, ...]
    """How the paths end that ask for an answer."""
    base: str
    """The path of the base URL that its clients take."""
    frames: Callable[[Reply, Request, str, int], Iterator[Frame]]
    """``frames(reply, request, model, number)``: the events of a streamed answer."""
    whole: Callable[[Reply, Request, str, int], dict[str, Any]]
    """The same answer in one object."""
    streamed: Callable[[Request], bool]
    """Whether the client wants a stream."""
    heard: Callable[[dict[str, Any]], list[Heard]]
    """Every text of a request body, in order."""
    offered: Callable[[dict[str, Any]], bool]
    """Whether a request body offers tools."""
    schema: Callable[[dict[str, Any]], dict[str, Any] | None]
    """The JSON Schema that the answer must follow, if one is demanded."""


def text_pieces(reply: Reply) -> list[str]:
    """Return the text of a reply in the pieces in which it is sent."""
    text = reply.text or ""
    size = max(1, -(-len(text) // max(1, reply.chunks)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def arguments(given: Any) -> str:
    """Return the input of a call as it is sent: JSON, or a string as it is."""
    return given if isinstance(given, str) else json.dumps(given)


def halves(text: str) -> tuple[str, str]:
    """Return a text in two parts, for what clients must put together."""
    half = len(text) // 2
    return text[:half], text[half:]


def texts_in(content: Any) -> list[str]:
    """Return the texts of a message's content: a string, or a list of blocks that may hold one."""
    if isinstance(content, str):
        return [content]
    blocks: Sequence[Any] = content if isinstance(content, list) else ()
    texts = (block if isinstance(block, str) else block.get("text") for block in blocks)
    return [text for text in texts if isinstance(text, str)]


def under(value: Any, *names: str) -> Any:
    """Return what lies under these keys, one inside the other; None where one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
