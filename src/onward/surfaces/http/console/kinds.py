"""Kinds: how each kind of event and each form of context is seen. Pure.

What is erased, unreadable or of an unknown kind has a view too, and is shown as that (invariant L4). A text that is long is
cut with an exact count of what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onward.core import bodies
from onward.core.bodies import Body
from onward.core.codec import Erased, Raw, Unreadable, encode, flat, loads, text_of
from onward.core.events import Event
from onward.core.wording import facts_of, tell
from onward.errors import InvalidInput
from onward.surfaces.http.console import words
from onward.surfaces.http.console.views import Facts, Line, Names, Other, Part, Said, Step, Steps, Text

TEXT: Final = 20_000
"""Characters of what somebody said that an entry shows."""
TRAFFIC: Final = 6_000
"""Characters of what a tool was given or gave, of a terminal and of records."""
LINE: Final = 3_000
"""Characters of one line: what has longer ones was not written to be read here."""
SUMMARY: Final = 120
"""Characters of the one line that stands for something folded."""
PICTURES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"))
"""Types of blobs that are shown as pictures. What could carry script (SVG) is not among them."""


_TELLING: Final = (
    "command",
    "cmd",
    "file_path",
    "path",
    "query",
    "pattern",
    "url",
    "prompt",
    "description",
    "title",
)
"""Names under which tools take what they are about; the first that is there stands for the call."""
STEP_MARKS: Final = {"open": "○", "active": "◐", "done": "●", "dropped": "×"}


def cut(text: str, limit: int, *, line: int = LINE) -> Text:
    """Return a text, cut where it is longer than ``limit`` characters, or inside the first line that has no end in sight."""
    shown = text[:limit]
    if len(shown) > line:
        begun = 0
        while (end := shown.find("\n", begun)) >= 0 and end - begun <= line:
            begun = end + 1
        if end >= 0 or len(shown) - begun > line:
            shown = shown[: begun + line]
    return Text(shown=shown, missing=len(text) - len(shown))


def pretty(value: Any) -> str:
    """Return what a tool was given or gave as a person reads it: a text as it is, anything else as JSON with lines."""
    if value is None or isinstance(value, str):
        return value or ""
    import json

    try:
        return json.dumps(loads(encode(value)), ensure_ascii=False, indent=2)
    except (InvalidInput, ValueError, RecursionError):
        return flat(value)


def parts_of(event: Event, parts: Sequence[bodies.Part]) -> tuple[Part, ...]:
    """Return the images and files of an event. Their addresses name the event, so that who may read it may see them."""
    return tuple(
        Part(
            href=f"/sessions/{event.session_id}/events/{event.seq}/parts/{number}",
            name=part.name or ("picture" if part.media_type in PICTURES else "file"),
            about=", ".join(
                filter(None, (part.media_type, words.size(part.bytes) if part.bytes is not None else ""))
            ),
            picture=part.media_type in PICTURES,
        )
        for number, part in enumerate(parts)
    )


def other(id: str | None, names: Names) -> Other | None:
    """Return a session that something names; one that may not be read is a breadcrumb."""
    if not id:
        return None
    title = names.get(id)
    if id in names and title is None:
        return Other(id=id, title="a session that is not available", href=None)
    return Other(id=id, title=title or "Untitled", href=f"/sessions/{id}")


def summary_of(body: bodies.ToolCall) -> str:
    """Return one line that says what a call is about."""
    given = body.input
    if isinstance(given, dict):
        for name in _TELLING:
            if isinstance(given.get(name), str) and given[name].strip():
                return words.cut(given[name], SUMMARY)
    return words.cut(flat(given), SUMMARY)


def view_of(event: Event, body: Body, names: Names) -> tuple[str, Any, str, str]:
    """Return the view of an event that is no tool traffic: its macro, what that shows, who speaks, and whose words."""
    match body:
        case bodies.Message():
            return _message(event, body, names)
        case bodies.Reasoning():
            facts = Facts(title="Reasoning", summary=words.cut(body.text, SUMMARY), text=cut(body.text, TEXT))
            if not body.text.strip():
                facts = Facts(title="Reasoning", summary="its provider shows nothing of it")
            return "reasoning", facts, "Agent", "agent"
        case bodies.Terminal():
            return "terminal", Facts(title="Terminal", text=cut(body.text, TRAFFIC)), "Terminal", "tool"
        case bodies.Command():
            return "command", Facts(title="Command", text=cut(body.text, TRAFFIC)), "Command", "user"
        case bodies.Outcome():
            return "outcome", Facts(title="Outcome", text=cut(body.text, TRAFFIC)), "Outcome", "tool"
        case bodies.Checkpoint():
            return "checkpoint", _checkpoint(event, body), "Summary", "system"
        case bodies.Plan() | bodies.Pins():
            return "steps", steps_of(body), "Plan" if isinstance(body, bodies.Plan) else "Pins", "system"
        case bodies.RunChange():
            return "line", _run(body), "Run", "system"
        case bodies.Approval():
            return "approval", _approval(body), "Approval", "system"
        case bodies.SessionChange():
            return "line", _session(body, names), "Session", "system"
        case bodies.Recalled():
            return "recalled", _recalled(body), "Recall", "agent"
        case bodies.Context():
            view, facts = _context(event, body, names)
            return view, facts, "Context", "system"
        case Raw():
            told = f"A record of {event.source.engine or 'an engine'} that has no counterpart here"
            return "raw", Facts(title=told, text=cut(pretty(body.record), TRAFFIC)), "Record", "system"
        case Erased():
            told = f"This text was erased{f': {body.reason}' if body.reason else ''}."
            return (
                "erased",
                Facts(title=told, summary="Its digest is still in the chain."),
                "Erased",
                "system",
            )
        case Unreadable():
            return (
                "unreadable",
                Facts(
                    title="This cannot be shown as what it is", summary=body.why, text=cut(body.raw, TRAFFIC)
                ),
                "Unreadable",
                "system",
            )
        case _:
            return (
                "unreadable",
                Facts(title=event.kind, text=cut(text_of(body), TRAFFIC)),
                event.kind,
                "system",
            )


def _message(event: Event, body: bodies.Message, names: Names) -> tuple[str, Said, str, str]:
    who, tone = "Agent", "agent"
    if body.aside:
        who, tone = "Harness", "system"
    elif body.role == "system":
        who, tone = "System", "system"
    elif body.role == "user":
        who, tone = ("Trigger" if event.actor == "trigger" else "You"), "user"
    notes = []
    if body.interrupted:
        notes.append("cut off here")
    if body.steering:
        notes.append("said while the agent was working")
    origin = body.continued_from
    said = Said(
        text=cut(body.text, TEXT),
        parts=parts_of(event, body.parts),
        notes=tuple(notes),
        aside=body.aside,
        from_session=other(origin.session, names) if origin else None,
        from_seq=origin.seq if origin else 0,
        model=body.model,
    )
    return "message", said, who, tone


def _checkpoint(event: Event, body: bodies.Checkpoint) -> Facts:
    if body.first_seq is not None and body.last_seq is not None:
        told = f"Stands for events {body.first_seq:,} to {body.last_seq:,} in the engine's context"
        link = (f"Read events {body.first_seq:,} to {body.last_seq:,}", _at(event, body.first_seq))
        links: tuple[tuple[str, str], ...] = (link,)
    else:
        told, links = "Stands for earlier events in the engine's context; it does not say for which", ()
    rows = [("Kept word for word", words.counted(len(body.kept), "event"))] if body.kept else []
    if body.trigger:
        rows.append(("Begun by", body.trigger))
    return Facts(
        title="Summary, not history",
        summary=f"{told}. They are all still here.",
        text=cut(body.text, TEXT),
        rows=tuple(rows),
        links=links,
        markdown=True,
    )


def _at(event: Event, seq: int) -> str:
    return f"/sessions/{event.session_id}?at={seq}#e{seq}"


def steps_of(body: bodies.Plan | bodies.Pins) -> Steps:
    """Return a revision of the plan or the pins as a list."""
    return _plan(body) if isinstance(body, bodies.Plan) else _pins(body)


def _plan(body: bodies.Plan) -> Steps:
    steps = tuple(
        Step(
            mark=STEP_MARKS[step.status],
            text=step.text,
            about=", ".join(filter(None, (step.status, step.resolution))),
            tone=step.status,
        )
        for step in body.steps
    )
    notes = [f"revision {body.revision}"]
    if body.closed:
        notes.append("closed")
    if body.carried_from:
        notes.append("carried over from the conversation before")
    return Steps(title="Plan", steps=steps, notes=tuple(notes))


def _pins(body: bodies.Pins) -> Steps:
    steps = tuple(
        Step(mark="◆", text=pin.name, about=", ".join(filter(None, (pin.kind, pin.version, pin.scope))))
        for pin in body.pins
    )
    notes = (f"revision {body.revision}", *(("carried over",) if body.carried_from else ()))
    return Steps(title="Pins", steps=steps, notes=notes)


def usage_words(usage: bodies.Usage | None) -> tuple[str, ...]:
    """Return tokens and cost, each in a few words; nothing of what was not measured."""
    if usage is None:
        return ()
    told = []
    if usage.input_tokens is not None:
        told.append(f"{words.tokens(usage.input_tokens)} tokens in")
    if usage.output_tokens is not None:
        told.append(f"{words.tokens(usage.output_tokens)} out")
    if usage.cache_read_tokens:
        told.append(f"{words.tokens(usage.cache_read_tokens)} from cache")
    if usage.cost_usd is not None:
        told.append(words.money(usage.cost_usd))
    return tuple(told)


def _run(body: bodies.RunChange) -> Line:
    state = words.STATES.get(body.state, body.state)
    told = f"Run {state}{f' with {body.engine}' if body.engine else ''}"
    if body.attempt > 1:
        told += f", attempt {body.attempt}"
    if body.reason:
        told += f": {body.reason}"
    tone = {"failed": "bad", "interrupted": "bad", "completed": "good"}.get(body.state, "quiet")
    return Line(
        text=told, tone=tone, about=usage_words(body.usage), links=(("about this run", f"/runs/{body.run}"),)
    )


def _approval(body: bodies.Approval) -> Facts:
    told = {"requested": "Asked for permission", "granted": "Allowed", "denied": "Declined"}[body.state]
    rows = [("Note", body.note)] if body.note else []
    asked = cut(pretty(body.request), TRAFFIC) if body.request is not None else None
    return Facts(title=told, summary=body.subject, text=asked, rows=tuple(rows))


_CHANGES: Final = {
    "opened": "Opened",
    "renamed": "Renamed",
    "continued": "Continued in",
    "forked": "Branched from",
    "branched": "A branch was taken",
    "erased": "An event was erased",
    "archived": "Archived",
    "imported": "Imported",
    "delegated": "Delegated to",
    "reported": "Reported back",
    "signed": "Its manifest was signed",
}


def _session(body: bodies.SessionChange, names: Names) -> Line:
    if body.change == "opening":
        told = tell(facts_of(body), "banner")
        return Line(text=told.text, tone=told.tone, change=body.change)
    text = _CHANGES[body.change]
    if body.title and body.change in ("opened", "renamed", "imported"):
        text += f": “{body.title}”" if body.change != "renamed" else f" to “{body.title}”"
    if body.change == "opened" and body.engine:
        text += f" for {body.engine}"
    if body.change == "imported":
        text += f" from {', '.join(body.files)}" if body.files else ""
        text += f" ({' '.join(filter(None, (body.engine, body.version)))})" if body.engine else ""
    about = tuple(part for part in (words.REASONS.get(body.reason or "", body.reason), body.note) if part)
    return Line(
        text=text,
        tone="quiet",
        about=about,
        other=other(body.other, names),
        change=body.change,
        link_id=body.link,
    )


_HOW: Final = {
    "read": "read",
    "search": "searched for",
    "lineage": "looked along the lineage at",
    "manifest": "read the manifest",
}


def _recalled(body: bodies.Recalled) -> Facts:
    count = words.counted(len(body.returned), "address", "addresses")
    summary = f"{_HOW[body.how]} {words.cut(body.query, SUMMARY)}; {count} returned"
    if body.had_omitted:
        summary += f", {len(body.had_omitted)} of them left out of what this began with"
    return Facts(title="Recalled", summary=summary, links=tuple(addressed(a) for a in body.returned[:50]))


def addressed(address: str) -> tuple[str, str]:
    """Return an address of events, ``ses_…:12-14``, with the page that shows it."""
    session, _, span = address.partition(":")
    first = span.partition("-")[0]
    if first.isdecimal():
        return address, f"/sessions/{session}?at={first}#e{first}"
    return address, f"/sessions/{session}"


def _context(event: Event, body: bodies.Context, names: Names) -> tuple[str, Facts]:
    text = cut(body.text, TRAFFIC)
    match body:
        case bodies.Notice():
            longer = text if body.text.strip() and body.text.strip() != body.summary.strip() else None
            return "notice", Facts(title="Notice", summary=body.summary, text=longer)
        case bodies.Snapshot():
            sections = tuple((section.name, cut(section.text, TRAFFIC)) for section in body.sections)
            told = words.counted(len(sections), "section")
            return "snapshot", Facts(title="State as it was then", summary=told, sections=sections)
        case bodies.Relay():
            sender = other(body.sender, names)
            return "relay", Facts(
                title="From another agent", text=text, others=(sender,) if sender else (), markdown=True
            )
        case bodies.Recall():
            return "recall", _recall(body, text, names)
        case bodies.ProjectionContext():
            return "projection", Facts(
                title="What this conversation began with",
                summary="Compiled from the conversation before; the manifest says what is in it and what is not",
                text=text,
                links=(("Inspect the handoff", f"/sessions/{event.session_id}/handoff"),),
            )
        case bodies.BriefContext():
            return "brief", _brief(body, text)
        case bodies.Instructions():
            first = words.cut(body.text, SUMMARY)
            return "instructions", Facts(title="Standing instructions", summary=first, text=text)
        case _:
            told = "Its producer promises no shape"
            return "opaque", Facts(title="Context", summary=told, text=text)


def _recall(body: bodies.Recall, text: Text, names: Names) -> Facts:
    rows = []
    for ref in body.references:
        told = f"{ref.retained:,} of {words.counted(ref.original, 'message')} quoted, as of event {ref.captured_seq:,}"
        if ref.truncated:
            told += f"; {ref.omitted:,} left out, {words.size(ref.omitted_bytes)} of text missing"
        if ref.checkpoint:
            told += "; a summary stands for earlier parts"
        rows.append((f"@{ref.label}", told))
    sources = [other(ref.source, names) for ref in body.references]
    return Facts(
        title="Quoted from other sessions",
        summary=words.counted(len(rows), "session"),
        rows=tuple(rows),
        others=tuple(source for source in sources if source is not None),
        text=text,
    )


def _brief(body: bodies.BriefContext, text: Text) -> Facts:
    scope = {
        "session": "of this conversation",
        "workspace": "of its workspace",
        "projection": "of what came after its beginning",
    }[body.scope]
    told = f"{words.counted(body.rows, 'row')} {scope}"
    oldest, newest = words.when(body.oldest, body.oldest or 0), words.when(body.newest, body.newest or 0)
    if oldest and newest:
        told += f", {oldest.exact} to {newest.exact}"
    return Facts(title="A reconstruction that the engine was given", summary=told, text=text)
