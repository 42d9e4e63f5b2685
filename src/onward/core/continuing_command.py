"""The command to continue a session: what an agent or a person asks for, read leniently where models err.

Accepted in any spelling: camelCase or snake_case; ``sources``, ``transfer`` and ``description`` that were put inside
``handoff`` are taken out; a single string where a list is meant; headings we do not know are kept under ``extra``. What was
moved or respelled is listed in ``adjusted``; the original input stays in the log as it was given. Strict where meaning is
at stake: an unknown reason, a title that is missing or too long, a handoff without a purpose, facts or decisions without
any source (check 2 of the design's order, and answer 6).
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, get_args

import msgspec

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

_LISTS: Final = ("established_facts", "decisions", "open_questions", "next_actions", "cautions")


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
    adjusted: tuple[str, ...] = ()


def parse_command(given: Any) -> Command:
    """Read a command. Raises InvalidContinuation or LimitExceeded, naming the field, the limit and the value found."""
    if not isinstance(given, dict):
        raise InvalidContinuation(why=f"expected an object, found {type(given).__name__}")
    adjusted: list[str] = []
    fields = _fields(given, "", adjusted)
    raw_handoff = fields.get("handoff")
    if isinstance(raw_handoff, str):
        raw_handoff = {"purpose": raw_handoff}
        adjusted.append("handoff: text taken as its purpose")
    if not isinstance(raw_handoff, dict):
        raise InvalidContinuation(why="it needs a handoff with at least a purpose")
    inner = _fields(raw_handoff, "handoff.", adjusted)
    for name in ("sources", "transfer", "description", "title", "reason"):
        if name in inner:
            moved = inner.pop(name)
            if not fields.get(name):
                fields[name] = moved
                adjusted.append(f"handoff.{name}: taken out of the handoff")
            else:
                adjusted.append(f"handoff.{name}: ignored, it is given beside the handoff too")
    reason = _reason(fields.get("reason"))
    title = _text(fields.get("title"), "title")
    if not title.strip():
        raise InvalidContinuation(why="it needs a title")
    if len(title) > MAX_TITLE:
        raise LimitExceeded(
            what="a title", limit=f"{MAX_TITLE} characters", found=f"{len(title):,} characters"
        )
    description = _text(fields.get("description") or "", "description")
    if (size := len(description.encode("utf-8", "surrogatepass"))) > MAX_DESCRIPTION:
        raise LimitExceeded(what="a description", limit=f"{MAX_DESCRIPTION} bytes", found=f"{size:,} bytes")
    handoff = _handoff(inner, adjusted)
    sources = _sources(fields.get("sources"))
    if (handoff.established_facts or handoff.decisions) and not sources:
        raise InvalidContinuation(
            why="the handoff states facts or decisions but cites no source; cite the events they come from, "
            "or move them to open_questions"
        )
    return Command(
        reason=reason,
        title=" ".join(title.split()),
        description=description,
        handoff=handoff,
        sources=sources,
        transfer=_transfer(fields.get("transfer"), adjusted),
        adjusted=tuple(adjusted),
    )


def _fields(given: dict[Any, Any], prefix: str, adjusted: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in given.items():
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(key)).lower().replace("-", "_").strip()
        if name != key:
            adjusted.append(f"{prefix}{key}: read as {name}")
        if name in out and not value:
            continue
        out[name] = value
    return out


def _reason(value: Any) -> str:
    name = str(value or "").strip().lower().replace("-", "_").replace(" ", "_")
    if name not in REASONS:
        raise InvalidContinuation(why=f"reason must be one of {', '.join(REASONS)}; found {value!r}")
    return name


def _text(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidContinuation(why=f"{what} must be text, found {type(value).__name__}")
    return value


def _entries(value: Any, what: str, adjusted: list[str]) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        adjusted.append(f"handoff.{what}: one text taken as a list of one")
        value = [value]
    if not isinstance(value, list | tuple):
        value = [value]
    out = []
    for entry in value:
        if isinstance(entry, dict):  # {"fact": …, "source": …}: keep all of it, in the order given
            entry = "; ".join(str(v) if len(entry) == 1 else f"{k}: {v}" for k, v in entry.items())
            adjusted.append(f"handoff.{what}: an object was written out as text")
        text = str(entry)
        if (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_ENTRY:
            raise LimitExceeded(
                what=f"an entry of handoff.{what}", limit=f"{MAX_ENTRY:,} bytes", found=f"{size:,} bytes"
            )
        if text.strip():
            out.append(text)
    return tuple(out)


def _handoff(inner: dict[str, Any], adjusted: list[str]) -> Handoff:
    lists = {name: _entries(inner.pop(name, None), name, adjusted) for name in _LISTS}
    purpose = " ".join(_entries(inner.pop("purpose", None), "purpose", []))
    request = "\n".join(_entries(inner.pop("current_request", None), "current_request", []))
    if not purpose.strip():
        raise InvalidContinuation(
            why="the handoff needs a purpose: one sentence about what the successor is for"
        )
    extra = inner.pop("extra", None) or {}
    if not isinstance(extra, dict):
        extra = {"notes": extra}
    extra = {**extra, **inner}
    return Handoff(
        purpose=purpose,
        current_request=request,
        extra={
            str(k)[:MAX_TITLE]: found for k, v in extra.items() if (found := _entries(v, str(k), adjusted))
        },
        **lists,
    )


def _sources(value: Any) -> tuple[Source, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        value = [value]
    if len(value) > MAX_SOURCES:
        raise LimitExceeded(
            what="the list of sources", limit=f"{MAX_SOURCES} sources", found=f"{len(value)} sources"
        )
    out = []
    for number, entry in enumerate(value, 1):
        try:
            out.append(entry if isinstance(entry, Source) else parse_source(entry))
        except InvalidInput as error:
            raise InvalidContinuation(why=f"source {number}: {error.message}") from None
    return tuple(out)


def _transfer(value: Any, adjusted: list[str]) -> Transfer:
    if value is None:
        return Transfer()
    if isinstance(value, Transfer):
        return value
    if not isinstance(value, dict):
        raise InvalidContinuation(why=f"transfer must be an object, found {type(value).__name__}")
    fields = _fields(value, "transfer.", adjusted)
    plan = fields.get("plan")
    if plan not in (None, "carry", "close", "omit"):
        raise InvalidContinuation(why=f"transfer.plan must be carry, close or omit; found {plan!r}")
    names = {
        n: _entries(fields.get(n), f"transfer.{n}", [])
        for n in ("pending_runs", "pinned_tools", "pinned_resources")
    }
    unknown = set(fields) - {"plan", *names}
    if unknown:
        raise InvalidContinuation(
            why=f"transfer knows plan, {', '.join(names)}; found {', '.join(sorted(unknown))}"
        )
    return Transfer(plan=plan, **names)
