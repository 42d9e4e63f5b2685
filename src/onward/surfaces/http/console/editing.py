"""Editing a handoff: a command to continue as fields of a form, and back. Pure.

Everything is in the form: sources that were taken out stand there unchecked, so a person can change their mind and nothing
has to be kept between two requests. Lists are one entry a line, which is how people edit them. What a form sends is read
into the same shape that agents send, and the same checks are applied to it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onward.core.codec import encode, loads
from onward.core.continuing_command import MAX_RECOMMENDED, Command, parse_command
from onward.core.references import MAX_SOURCES, Source, parse_source, parse_spec
from onward.errors import InvalidContinuation, InvalidInput
from onward.surfaces.http.console import ranges
from onward.surfaces.http.console.views import View

LISTS: Final = ("established_facts", "decisions", "open_questions", "next_actions", "cautions")
SINGLE: Final = (
    "purpose",
    "current_request",
    "title",
    "reason",
    "description",
    "text",
    "engine",
    "plan",
    "more",
)
ROWS: Final = MAX_RECOMMENDED
"""Sources that a form can hold, those that are taken out among them."""


class Row(View, frozen=True, kw_only=True):
    """A source in the form."""

    number: int
    address: str
    label: str
    """The same as it is said."""
    spec: str
    """The source without its reason, as the form carries it."""
    why: str
    on: bool
    href: str | None
    recommended: bool
    tokens: int | None = None
    """What it would cost, as it was last weighed."""
    note: str = ""
    """Why it is not loaded, in words."""
    fits: bool = True


class Box(View, frozen=True, kw_only=True):
    """Something that moves along when it is checked."""

    name: str
    """Of the field."""
    value: str
    told: str
    on: bool


class Fields(View, frozen=True, kw_only=True):
    """A form, filled in."""

    key: str
    purpose: str = ""
    current_request: str = ""
    title: str = ""
    reason: str = "user_request"
    description: str = ""
    text: str = ""
    """What a person says with it."""
    engine: str = ""
    budget: str = ""
    plan: str = ""
    established_facts: str = ""
    decisions: str = ""
    open_questions: str = ""
    next_actions: str = ""
    cautions: str = ""
    extra: str = ""
    more: str = ""
    """Sources to add, one a line."""
    rows: tuple[Row, ...] = ()
    moving: tuple[str, ...] = ()
    """What is checked to move along: pending work by id, ``tool:NAME`` and ``resource:NAME`` of pins."""


def from_command(
    command: Command, *, key: str, moving: Sequence[str] = (), budget: int, engine: str = "", text: str = ""
) -> Fields:
    """Return a command as a form."""
    note = command.handoff
    lists = {name: "\n".join(" ".join(entry.split()) for entry in getattr(note, name)) for name in LISTS}
    extra = "\n".join(
        f"{heading}: {' '.join(entry.split())}"
        for heading, entries in note.extra.items()
        for entry in entries
    )
    cited = {source.address() for source in command.sources}
    rows = [
        _row(number, source, on=True, recommended=source.address() in command.recommended)
        for number, source in enumerate(command.sources)
    ]
    for address in command.recommended:
        if address not in cited and len(rows) < ROWS:
            try:
                rows.append(_row(len(rows), parse_spec(address), on=False, recommended=True))
            except InvalidInput:
                continue  # an address whose written form cannot be read again; it was only a recommendation
    return Fields(
        key=key,
        purpose=note.purpose,
        current_request=note.current_request,
        title=command.title,
        reason=command.reason,
        description=command.description,
        text=text,
        engine=engine,
        budget=str(budget),
        plan=command.transfer.plan or "",
        extra=extra,
        rows=tuple(rows),
        moving=tuple(moving),
        **lists,
    )


def from_form(form: Mapping[str, str]) -> Fields:
    """Return what a form sent. Raises InvalidInput for one that is not ours."""
    rows = []
    for number in range(ROWS):
        if f"spec-{number}" not in form:
            break
        source = _source(form[f"spec-{number}"])
        row = _row(number, source, on=f"source-{number}" in form, recommended=f"rec-{number}" in form)
        known = form.get(f"tokens-{number}", "")
        rows.append(
            msgspec.structs.replace(
                row,
                why=form.get(f"why-{number}", ""),
                tokens=int(known) if known.isascii() and known.isdecimal() and len(known) < 10 else None,
            )
        )
    given: dict[str, Any] = {name: form.get(name, "") for name in (*SINGLE, *LISTS, "extra", "budget")}
    moving = tuple(value for name, value in form.items() if name.startswith("move-"))
    return Fields(key=form.get("key", ""), rows=tuple(rows), moving=moving, **given)


def with_added(fields: Fields) -> Fields:
    """Return a form in which the sources that were to be added are rows. Raises InvalidInput for one that is none."""
    rows = list(fields.rows)
    for line in fields.more.splitlines():
        if line.strip():
            if len(rows) >= ROWS:
                raise InvalidInput(what="the sources", why=f"a form holds at most {ROWS}")
            rows.append(_row(len(rows), parse_spec(line), on=True, recommended=False))
    return msgspec.structs.replace(fields, rows=tuple(rows), more="")


def command_of(fields: Fields) -> Command:
    """Return the command that a form asks for. Raises InvalidContinuation, InvalidInput, LimitExceeded."""
    fields = with_added(fields)
    on = [row for row in fields.rows if row.on]
    if len(on) > MAX_SOURCES:
        raise InvalidContinuation(
            why=f"{len(on)} sources are chosen; a handoff cites at most {MAX_SOURCES}. Take {len(on) - MAX_SOURCES} out"
        )
    pins: dict[str, list[str]] = {"tool": [], "resource": []}
    pending = []
    for name in fields.moving:
        kind, colon, pin = name.partition(":")
        if colon and kind in pins:
            pins[kind].append(pin)
        else:
            pending.append(name)
    handoff: dict[str, Any] = {name: _lines(getattr(fields, name)) for name in LISTS}
    return parse_command(
        {
            "reason": fields.reason,
            "title": fields.title,
            "description": fields.description,
            "handoff": {
                "purpose": fields.purpose,
                "current_request": fields.current_request,
                **handoff,
                "extra": _headings(fields.extra),
            },
            "sources": [
                msgspec.structs.replace(_source(row.spec), relevance=" ".join(row.why.split())[:1000])
                for row in on
            ],
            "transfer": {
                "plan": fields.plan or None,
                "pending_runs": pending,
                "pinned_tools": pins["tool"],
                "pinned_resources": pins["resource"],
            },
            "recommended": [row.address for row in fields.rows if row.recommended],
        }
    )


def _row(number: int, source: Source, *, on: bool, recommended: bool) -> Row:
    plain = msgspec.structs.replace(source, relevance="")
    address = source.address()
    return Row(
        number=number,
        address=address,
        label=address,
        # Base64, because a page makes characters visible that act, and what comes back has to be what went out.
        spec=base64.urlsafe_b64encode(encode(msgspec.to_builtins(plain))).decode("ascii"),
        why=source.relevance,
        on=on,
        href=ranges.href_of(address),
        recommended=recommended,
    )


def _source(spec: str) -> Source:
    try:
        return parse_source(loads(base64.urlsafe_b64decode(spec.encode("ascii"))))
    except (ValueError, RecursionError):
        raise InvalidInput(
            what="a source of the form", why="it is not as it was when the form was made"
        ) from None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _headings(text: str) -> dict[str, list[str]]:
    """Return what stands under headings of its own: a line each, the heading before a colon."""
    out: dict[str, list[str]] = {}
    for line in _lines(text):
        heading, colon, entry = line.partition(": ")
        out.setdefault(heading.strip() if colon else "notes", []).append(entry if colon else line)
    return out
