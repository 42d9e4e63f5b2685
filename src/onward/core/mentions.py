"""Mentions: how a person's message names another session, and how it reads afterwards.

A session's address is a URI, ``onward-session:`` and the base64url (without padding) of its id written as a JSON string;
``dsh-session:``, as DeepSeek's harness writes it, is read too. Any text can be an id, and only the one spelling that
encoding would give is accepted, so that two different addresses never mean one session.

In a message a mention is ``@[label](uri)``; in the label a backslash stands before ``\\`` and ``]``. A label is one line.
The bare URI is a mention as well. Reading a message gives the readable text, ``@label``, and what was mentioned, in order.

What looks like a mention and is none is an error with its place, since the person who wrote it meant a session and would
not get it. Talking about addresses is no mention: the scheme alone, or with nothing behind it but punctuation, stays text.

It is deliberately unaware of which sessions exist; that is asked where the log is.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final

import msgspec

from onward.errors import ReferenceInvalid

SCHEME: Final = "onward-session:"
READ_SCHEMES: Final = (SCHEME, "dsh-session:")
"""The schemes that are read; the first is the one that is written."""

MARK: Final = "-session:"
"""What every mention holds: a text without it has none."""

_SCHEMES: Final = "|".join(READ_SCHEMES)
_BEGIN: Final = re.compile(
    rf"(?P<label>@\[)|(?<![A-Za-z0-9+.\-])(?P<bare>(?:{_SCHEMES})[-_]*[A-Za-z0-9][A-Za-z0-9_-]*=*)"
)
_LABEL: Final = re.compile(r"(?:[^\]\\\r\n]++|\\[\\\]]|\\)*+")
_TARGET: Final = re.compile(rf"\]\((?:{_SCHEMES})")
_PAYLOAD: Final = re.compile(r"[A-Za-z0-9_-]+")
_END: Final = re.compile(r"[)\s]")
_ESCAPED: Final = re.compile(r"\\([\\\]])")
_SHOWN: Final = 120
"""Characters of a malformed mention that an error repeats."""


class SessionReference(msgspec.Struct, frozen=True, kw_only=True):
    """Another session, as a message names it."""

    session: str
    """Its id."""
    label: str = ""
    """What it is called in the message; empty leaves that to whoever knows its title."""


class Mentioned(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it reads, and the sessions that it mentions."""

    text: str
    references: tuple[SessionReference, ...] = ()
    """In the order of the text, repeated ones included."""


def session_uri(session_id: str) -> str:
    """Return the address of a session. Any text can be an id; two ids never share an address."""
    written = _json(session_id).encode("utf-8")
    return SCHEME + base64.urlsafe_b64encode(written).decode("ascii").rstrip("=")


def session_of_uri(uri: str) -> str:
    """Return the id behind an address. Raises ReferenceInvalid unless it is exactly what encoding that id gives."""
    fault, session = _decoded(uri)
    if fault:
        raise ReferenceInvalid(text=_shown(uri), position=1, why=fault)
    return session


def mention(reference: SessionReference) -> str:
    """Return a reference as it is written in a message. Line breaks in its label become spaces."""
    label = one_line(reference.label) or one_line(reference.session)
    escaped = label.replace("\\", "\\\\").replace("]", "\\]")
    return f"@[{escaped}]({session_uri(reference.session)})"


def one_line(label: str) -> str:
    """Return a label as a mention holds it: on one line, white space folded."""
    return " ".join(label.split())


def read_mentions(text: str) -> Mentioned:
    """Return a message with its mentions as ``@label``, and what they name.

    Raises ReferenceInvalid with the text of the first malformed mention and its place, counted in characters from 1.
    """
    if MARK not in text:
        return Mentioned(text=text)
    out: list[str] = []
    references: list[SessionReference] = []
    done = at = no_label_before = 0
    while (found := _BEGIN.search(text, at)) is not None:
        start, at = found.span()
        if found["bare"]:
            session, shown = _resolved(found["bare"], text, start, at), ""
        else:
            if at < no_label_before:
                continue  # it would end where the one around it ends, which is no mention
            closing = label.end() if (label := _LABEL.match(text, at)) else at
            target = _TARGET.match(text, closing)
            if target is None:
                no_label_before = closing
                continue
            end = _END.search(text, target.end())
            stop = end.start() if end else len(text)
            if end is None or end[0] != ")":
                raise _malformed(text, start, stop, "its address is not closed with )")
            at = stop + 1
            session = _resolved(text[closing + 2 : stop], text, start, at)
            shown = one_line(_ESCAPED.sub(r"\1", text[start + 2 : closing]))
        shown = shown or one_line(session)
        out += [text[done:start], f"@{shown}"]
        references.append(SessionReference(session=session, label=shown))
        done = at
    out.append(text[done:])
    return Mentioned(text="".join(out), references=tuple(references))


def _resolved(uri: str, text: str, start: int, end: int) -> str:
    fault, session = _decoded(uri)
    if fault:
        raise _malformed(text, start, end, fault)
    return session


def _malformed(text: str, start: int, end: int, why: str) -> ReferenceInvalid:
    return ReferenceInvalid(text=_shown(text[start:end]), position=start + 1, why=why)


def _decoded(uri: str) -> tuple[str, str]:
    """Return what is wrong with an address and an empty id, or nothing and the id."""
    scheme = next((s for s in READ_SCHEMES if uri.startswith(s)), None)
    if scheme is None:
        return f"an address begins with {' or '.join(READ_SCHEMES)}", ""
    payload = uri[len(scheme) :]
    if not _PAYLOAD.fullmatch(payload):
        return f"after {scheme} comes base64url without padding", ""
    try:
        session = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode("utf-8"))
    except (binascii.Error, ValueError, RecursionError):
        return "what it encodes is no JSON", ""
    if not isinstance(session, str):
        return "what it encodes is no text", ""
    if session_uri(session)[len(SCHEME) :] != payload:
        return "it is not the canonical spelling of its id", ""
    return "", session


def _json(session_id: str) -> str:
    """Return an id as JSON: the shortest spelling, lone surrogates as escapes, as JavaScript writes it."""
    written = json.dumps(session_id, ensure_ascii=False)
    if written.isascii():
        return written
    return re.sub(r"[\ud800-\udfff]", lambda lone: f"\\u{ord(lone[0]):04x}", written)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
