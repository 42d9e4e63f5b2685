"""Digests: what makes a changed byte, a removed event and a swapped pair visible.

``digest = sha256(salt ‖ body)`` and ``chain = sha256(previous chain ‖ header ‖ digest)`` (invariant L2). The header is a
length-prefixed encoding of every envelope field, so no two different envelopes share one. The salt is random for each
event: it goes away with an erased body, and then the digest that stays cannot be used to guess a short secret.

Nothing here stores or reads events; ``onward verify`` and the stores call these same functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import hashlib

GENESIS: Final = bytes(32)
"""The chain value before the first event of a session."""

SALT_BYTES: Final = 16

_SHORT: Final = 8192
"""Bytes up to which copying them beside the salt costs less than a second call."""


def sha256(data: Any = b"") -> hashlib._Hash:
    """Return a SHA-256 of bytes.

    The first call takes this name over for ``hashlib.sha256`` itself: commands that read no event start without the library
    of ciphers behind it, which would cost them a fifth of a start of the interpreter.
    """
    import hashlib

    globals()["sha256"] = hashlib.sha256
    return hashlib.sha256(data)


def body_digest(salt: bytes, body: bytes) -> bytes:
    """Return the 32-byte digest of a body under its salt."""
    if len(body) <= _SHORT:
        return sha256(salt + body).digest()
    h = sha256(salt)
    h.update(body)
    return h.digest()


def header_bytes(
    id: str, session_id: str, seq: int, at: int, kind: str, actor: str, run_id: str | None, source: bytes
) -> bytes:
    """Encode an envelope: fields in this order, UTF-8, each with its length in front; a missing run is empty."""
    run = run_id or ""
    head = (
        f"{len(id)}:{id}{len(session_id)}:{session_id}{seq}:{at}:"
        f"{len(kind)}:{kind}{len(actor)}:{actor}{len(run)}:{run}{len(source)}:"
    )
    # ASCII needs no error handler, and is several times faster without one.
    return (head.encode() if head.isascii() else head.encode("utf-8", "surrogatepass")) + source


def chain_digest(previous: bytes, header: bytes, digest: bytes) -> bytes:
    """Return the 32-byte chain value of one event, given the value of the event before it."""
    return sha256(previous + header + digest).digest()


def content_digest(data: bytes) -> str:
    """Return the public form of a content digest, ``sha256:<hex>``: blobs, projections, manifests."""
    return "sha256:" + sha256(data).hexdigest()


def spell(digest: bytes) -> str:
    """Return the public form of a raw 32-byte digest."""
    return "sha256:" + digest.hex()
