"""Replying: what a handler returned, made into a response.

An answer with an entity tag is named by the digest of its own bytes, so the tag is right whatever the answer is made of: an
event keeps its tag until it is erased, a session until anything about it changes. Who has those bytes already is told so
(304) and gets nothing else. What has no tag is not to be kept by anybody; what has one may be kept by whoever asked, and is
to be asked for again.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Send

from onward.core.codec import encode
from onward.surfaces.http.routing import JSON, Reply, Route

_KEPT: Final = "private, no-cache"
SANDBOX: Final = "default-src 'none'; sandbox"
"""For bytes that somebody else wrote: wherever they are shown, nothing in them runs or loads."""


def response(request: Request, route: Route, answer: Any) -> Response:
    """Return the response of a route's answer."""
    status = route.status
    if isinstance(answer, Reply):
        answer, status = answer.answer, answer.status
    if isinstance(answer, Response):
        made = answer
    else:
        made = Response(encode(answer), status, media_type=JSON)
        if route.tag is not None:
            made.headers["etag"] = tag(bytes(made.body), route.tag)
    if "etag" in made.headers:
        made.headers.setdefault("cache-control", _KEPT)
        made.headers.setdefault("vary", "Authorization")
        if made.status_code == 200 and has(request, made.headers["etag"]):
            kept = {name: made.headers[name] for name in ("etag", "cache-control", "vary")}
            return Response(status_code=304, headers=kept)
    made.headers.setdefault("cache-control", "no-store")
    return made


def tag(data: bytes, strength: Literal["strong", "weak"]) -> str:
    """Return the entity tag of these bytes."""
    name = base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:18]).decode()
    return f'W/"{name}"' if strength == "weak" else f'"{name}"'


def exact(data: bytes, media: str, digest: str, *, name: str | None = None) -> Response:
    """Return bytes as they are, under their digest, in a way in which they do nothing where they are shown."""
    headers = {
        "etag": f'"{digest}"',
        "content-security-policy": SANDBOX,
        "x-content-type-options": "nosniff",
    }
    if name is not None:
        headers["content-disposition"] = f'attachment; filename="{name}"'
    return Response(data, headers=headers, media_type=media)


def has(request: Request, current: str) -> bool:
    """Whether a caller has what this tag names (RFC 9110, 13.1.2: compared weakly)."""
    given = request.headers.get("if-none-match", "")
    mine = current.removeprefix("W/")
    return any(one.strip() == "*" or one.strip().removeprefix("W/") == mine for one in given.split(","))


def headers_only(send: Send) -> Send:
    """Return what sends everything but the bytes: the answer to HEAD."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return sending
