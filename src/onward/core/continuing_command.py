"""The command to continue a session: what an agent or a person asks for, read leniently where models err.

Accepted in any spelling: camelCase or snake_case; ``sources``, ``transfer``, ``description``, ``title`` and ``reason`` that
were put inside ``handoff`` are taken out, and parts of the handoff that were put beside it are taken in; an object that came
as JSON text; a single string where a list is meant; facts as objects; headings we do not know are kept under ``extra``.
Everything that was moved, respelled or not understood is listed in ``adjusted``; the original input stays in the log as
it was given. Strict where meaning is at stake: an unknown reason, a title that is missing or too long, a handoff without a
purpose, facts or decisions without any source (check 2 of the design's order, and answer 6).
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, get_args

import msgspec

from onward.core.codec import flat, loads
from onward.core.manifest import Handoff
from onward.core.references import MAX_SOURCES, Source, parse_source
from onward.errors import InvalidContinuation, InvalidInput, LimitExceeded

Reason = Literal["topic_change", "phase_change", "refocus", "context_pressure", "user_request", "other"]
REASONS: Final[tuple[str, ...]] = get_args(Reason)

MAX_TITLE: Final = 120
"""Characters of a title."""
MAX_DESCRIPTION: Final = 1024
"""UTF-8 bytes of a description."""
MAX_ENTRY: Final = 64 * 1024
"""UTF-8 bytes of one entry of a handoff."""
MAX_KEY: Final = 200
"""Characters of an idempotency key."""

MAX_HEADING: Final = 120
"""Characters of a heading that was added to a handoff."""

_BESIDE: Final = ("sources", "transfer", "description", "title", "reason")
_LISTS: Final = ("established_facts", "decisions", "open_questions", "next_actions", "cautions")
_INSIDE: Final = ("purpose", "current_request", *_LISTS, "extra")
_PLANS: Final[tuple[Literal["carry", "close", "omit"], ...]] = ("carry", "close", "omit")
_RESPELLED: Final = {"hand_off": "handoff"}
_OF_A_DRAFT: Final = (
    "session",
    "estimated_tokens",
    "budget",
    "counter",
    "costs",
    "left_out",
    "estimates",
    "claims",
    "warnings",
)
"""What a draft says about itself. A command that is an edited draft has them; they are no part of it."""
MAX_RECOMMENDED: Final = 256


class Transfer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What moves along with the work, by name."""

    plan: Literal["carry", "close", "omit"] | None = None
    """None means: carry if a step is open, else omit."""
    pending_runs: tuple[str, ...] = ()
    """Queued runs and delegated sessions that report to the successor from now on; open calls whose outcome is given up."""
    pinned_tools: tuple[str, ...] = ()
    pinned_resources: tuple[str, ...] = ()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A continuation as it was asked for, in our spelling."""

    reason: str
    title: str
    handoff: Handoff
    description: str = ""
    sources: tuple[Source, ...] = ()
    transfer: Transfer = Transfer()
    recommended: tuple[str, ...] = ()
    """Addresses of the sources that a draft recommended, whether or not they are cited."""
    adjusted: tuple[str, ...] = ()


def parse_command(given: Any) -> Command:
    """Read a command. Raises InvalidContinuation or LimitExceeded, naming the field, the limit and the value found."""
    if not isinstance(given, dict):
        raise InvalidContinuation(why=f"expected an object, found {type(given).__name__}")
    adjusted: list[str] = []
    fields = _fields(given, "", adjusted)
    recommended = _recommended(fields)
    inner = _inside(fields, adjusted)
    for name in _BESIDE:
        if name in inner:
            moved = inner.pop(name)
            if not fields.get(name):
                fields[name] = moved
                adjusted.append(f"handoff.{name}: taken out of the handoff")
            elif moved != fields[name]:
                adjusted.append(f"handoff.{name}: ignored, it is given beside the handoff too")
    reason = _reason(fields.get("reason"), adjusted)
    title = " ".join(_text(fields.get("title"), "title").split())
    if not title:
        raise InvalidContinuation(why="it needs a title")
    if len(title) > MAX_TITLE:
        raise LimitExceeded(
            what="a title", limit=f"{MAX_TITLE} characters", found=f"{len(title):,} characters"
        )
    description = _text(fields.get("description"), "description")
    if (size := _bytes(description)) > MAX_DESCRIPTION:
        raise LimitExceeded(what="a description", limit=f"{MAX_DESCRIPTION:,} bytes", found=f"{size:,} bytes")
    handoff = _handoff(inner, adjusted)
    sources = _sources(fields.get("sources"), adjusted)
    if (handoff.established_facts or handoff.decisions) and not sources:
        raise InvalidContinuation(
            why="the handoff states facts or decisions but cites no source; cite the events they come from, "
            "or move them to open_questions"
        )
    return Command(
        reason=reason,
        title=title,
        description=description,
        handoff=handoff,
        sources=sources,
        transfer=_transfer(fields.get("transfer"), adjusted),
        recommended=recommended,
        adjusted=tuple(adjusted),
    )


def _recommended(fields: dict[str, Any]) -> tuple[str, ...]:
    """Take out what an edited draft says about itself. Return the sources that were recommended."""
    if "estimated_tokens" in fields:
        for name in _OF_A_DRAFT:
            fields.pop(name, None)
    given = fields.pop("recommended", None)
    found = [entry for entry in _listed(given) if isinstance(entry, str) and entry.strip()]
    if len(found) > MAX_RECOMMENDED:
        raise LimitExceeded(
            what="the list of recommended sources",
            limit=f"{MAX_RECOMMENDED} sources",
            found=f"{len(found)} sources",
        )
    return tuple(found)


def _fields(given: dict[Any, Any], prefix: str, adjusted: list[str]) -> dict[str, Any]:
    """Return an object's members under our spelling of their names. Of one that came twice, everything is kept."""
    out: dict[str, Any] = {}
    for key, value in given.items():
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(key)).lower().replace("-", "_").strip()
        name = re.sub(r"\s+", "_", name)
        name = _RESPELLED.get(name, name)
        if name != key:
            adjusted.append(f"{prefix}{_shown(key)}: read as {_shown(name)}")
        if not out.get(name):
            out[name] = value
        elif value and value != out[name]:
            out[name] = [*_listed(out[name]), *_listed(value)]
            adjusted.append(f"{prefix}{_shown(name)}: given twice, put together")
    return out


def _inside(fields: dict[str, Any], adjusted: list[str]) -> dict[str, Any]:
    """Take the handoff out of a command's fields, and with it whatever belongs inside."""
    given = _json(fields.pop("handoff", None), "handoff", adjusted)
    if isinstance(given, str):
        given = {"purpose": given}
        adjusted.append("handoff: text taken as its purpose")
    if given is not None and not isinstance(given, dict):
        raise InvalidContinuation(why=f"handoff must be an object, found {type(given).__name__}")
    inner = _fields(given or {}, "handoff.", adjusted)
    for name in sorted(fields.keys() - set(_BESIDE)):
        value = fields.pop(name)
        if name not in _INSIDE:
            adjusted.append(f"{_shown(name)}: not part of a continuation, ignored")
        elif not inner.get(name):
            inner[name] = value
            adjusted.append(f"{name}: taken into the handoff")
        elif value and value != inner[name]:
            inner[name] = [*_listed(inner[name]), *_listed(value)]
            adjusted.append(f"{name}: given beside the handoff too, put together")
    return inner


def _json(value: Any, what: str, adjusted: list[str]) -> Any:
    """Return what a text holds where an object or a list was meant and came as JSON text; anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        try:
            found = loads(value.strip().encode("utf-8", "surrogatepass"))
        except ValueError:
            return value
        adjusted.append(f"{what}: JSON text read as what it holds")
        return found
    return value


def _reason(value: Any, adjusted: list[str]) -> str:
    name = re.sub(r"[\s-]+", "_", str(value or "").strip())
    name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
    if name not in REASONS:
        raise InvalidContinuation(
            why=f"reason must be one of {', '.join(REASONS)}; found {_shown(repr(value))}"
        )
    if name != value:
        adjusted.append(f"reason: {_shown(value)} read as {name}")
    return name


def _text(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidContinuation(why=f"{what} must be text, found {type(value).__name__}")
    return value


def _listed(value: Any) -> list[Any]:
    """Return a value as the list that was meant."""
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _entries(value: Any, what: str, adjusted: list[str]) -> tuple[str, ...]:
    """Return the entries of a list, each as text. Raises LimitExceeded for one that is too long."""
    value = _json(value, what, adjusted) if isinstance(value, str) and value.strip()[:1] == "[" else value
    if value is not None and value != "" and not isinstance(value, list | tuple):
        adjusted.append(f"{what}: one entry taken as a list of one")
    out = []
    for entry in _listed(value):
        if isinstance(entry, dict):  # {"fact": …, "source": …}: keep all of it, in the order given
            if len(entry) > 1:
                adjusted.append(f"{what}: an object was written out as text")
            entry = "; ".join(flat(v) if len(entry) == 1 else f"{k}: {flat(v)}" for k, v in entry.items())
        text = flat(entry)
        if (size := _bytes(text)) > MAX_ENTRY:
            raise LimitExceeded(
                what=f"an entry of {what}", limit=f"{MAX_ENTRY:,} bytes", found=f"{size:,} bytes"
            )
        if text.strip():
            out.append(text)
    return tuple(out)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _shown(value: Any) -> str:
    """Return what was given, as it may stand in a message."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _handoff(inner: dict[str, Any], adjusted: list[str]) -> Handoff:
    lists = {name: _entries(inner.pop(name, None), f"handoff.{name}", adjusted) for name in _LISTS}
    purpose = " ".join(_said(inner.pop("purpose", None), "handoff.purpose", adjusted))
    request = "\n".join(_said(inner.pop("current_request", None), "handoff.current_request", adjusted))
    if not purpose.strip():
        raise InvalidContinuation(
            why="the handoff needs a purpose: one sentence about what the successor is for"
        )
    return Handoff(purpose=purpose, current_request=request, extra=_extra(inner, adjusted), **lists)


def _said(value: Any, what: str, adjusted: list[str]) -> tuple[str, ...]:
    """Return the pieces of what should be one text."""
    if isinstance(value, str):
        return _entries([value], what, adjusted)
    if value is not None:
        adjusted.append(f"{what}: put together as one text")
    return _entries(_listed(value), what, adjusted)


def _extra(inner: dict[str, Any], adjusted: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the headings that we do not know, each with its entries; those of ``extra`` first."""
    given = _json(inner.pop("extra", None), "handoff.extra", adjusted) or {}
    if not isinstance(given, dict):
        given = {"notes": given}
        adjusted.append("handoff.extra: kept as notes")
    headings: list[tuple[str, Any]] = [*given.items(), *inner.items()]
    adjusted += [f"handoff.{_shown(name)}: kept under extra" for name in inner]
    out: dict[str, tuple[str, ...]] = {}
    for name, value in headings:
        heading = str(name)
        if len(heading) > MAX_HEADING:
            raise LimitExceeded(
                what="a heading of the handoff",
                limit=f"{MAX_HEADING} characters",
                found=f"{len(heading):,} characters",
            )
        if found := _entries(value, f"handoff.{heading}", adjusted):
            out[heading] = (*out.get(heading, ()), *found)
    return out


def _sources(value: Any, adjusted: list[str]) -> tuple[Source, ...]:
    value = _json(value, "sources", adjusted)
    if value is not None and not isinstance(value, list | tuple):
        adjusted.append("sources: one source taken as a list of one")
    given = _listed(value)
    if len(given) > MAX_SOURCES:
        raise LimitExceeded(
            what="the list of sources", limit=f"{MAX_SOURCES} sources", found=f"{len(given)} sources"
        )
    out = []
    for number, entry in enumerate(given, 1):
        try:
            out.append(entry if isinstance(entry, Source) else parse_source(entry))
        except InvalidInput as error:
            raise InvalidContinuation(why=f"source {number}: {error.message.rstrip('.')}") from None
    return tuple(out)


def _transfer(value: Any, adjusted: list[str]) -> Transfer:
    value = _json(value, "transfer", adjusted)
    if value is None or value == "":
        return Transfer()
    if isinstance(value, Transfer):
        return value
    if isinstance(value, str):
        value = {"plan": value}
        adjusted.append("transfer: text taken as what becomes of the plan")
    if not isinstance(value, dict):
        raise InvalidContinuation(why=f"transfer must be an object, found {type(value).__name__}")
    fields = _fields(value, "transfer.", adjusted)
    names = ("pending_runs", "pinned_tools", "pinned_resources")
    if unknown := sorted(fields.keys() - {"plan", *names}):
        raise InvalidContinuation(
            why=f"transfer knows plan, {', '.join(names)}; found {_shown(', '.join(unknown))}"
        )
    return Transfer(
        plan=_plan(fields.get("plan"), adjusted),
        **{name: _entries(fields.get(name), f"transfer.{name}", adjusted) for name in names},
    )


def _plan(value: Any, adjusted: list[str]) -> Literal["carry", "close", "omit"] | None:
    if value is None or value == "":
        return None
    name = value.strip().lower() if isinstance(value, str) else value
    for known in _PLANS:
        if name == known:
            if name != value:
                adjusted.append(f"transfer.plan: {_shown(value)} read as {known}")
            return known
    raise InvalidContinuation(why=f"transfer.plan must be carry, close or omit; found {_shown(repr(value))}")
