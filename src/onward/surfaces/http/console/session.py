"""A session on a page: its timeline, what is known about it, its exact events, and what a person says in it."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from onward.core import lines
from onward.core.codec import body_of
from onward.core.digests import content_digest
from onward.core.events import Event
from onward.errors import EventNotFound, InvalidInput, OnwardError
from onward.runner.desk import in_thread
from onward.service import recalling, running, sessions
from onward.surfaces.http import replying
from onward.surfaces.http.console import about, around, kinds, reading
from onward.surfaces.http.console.visiting import ASK_SECONDS, Moved, Page, Shown, Visit
from onward.surfaces.http.console.window import names_of, result_of, window
from onward.surfaces.http.live import hints

WHOLE: Final = 200_000
"""Characters of an event that its own page shows; the rest is in its raw body."""
SANDBOX: Final = "default-src 'none'; sandbox"
"""What content of a log may do that a browser is given as it is: nothing."""


def show(visit: Visit) -> Shown:
    """Show a session: the newest hundred events, or those that were asked for."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    before, after, at = visit.number("before"), visit.number("after"), visit.number("at")
    if sum(given is not None for given in (before, after, at)) > 1:
        raise InvalidInput(what="the query", why="`before`, `after` and `at` name different pages")
    shown = window(platform, session, before=before, after=after, at=at)
    values = {
        "title": session.title or "Untitled",
        "session": session,
        "window": shown,
        "facts": about.facts(platform, session),
        "newest": before is None and after is None and at is None,
        **around.values(visit, session),
    }
    return Shown(template="session.html", values=values)


def timeline(visit: Visit) -> Shown:
    """Show a part of a timeline: what is before a number, or after one."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    before, after = visit.number("before"), visit.number("after")
    if (before is None) == (after is None):
        raise InvalidInput(what="the query", why="it needs `before` or `after`, and not both")
    shown = window(platform, session, before=before, after=after, least=visit.number("from"))
    values = {"session": session, "window": shown, "forwards": after is not None}
    return Shown(template="timeline.html", values=values)


def facts(visit: Visit) -> Shown:
    """Show what is known about a session as it stands now: the part of its page beside the timeline."""
    session = visit.platform.session(visit.path["session"])
    values = {"session": session, "facts": about.facts(visit.platform, session)}
    return Shown(template="facts.html", values=values)


async def live(visit: Visit) -> Response:
    """Stream hints of what there is to be fetched."""
    if visit.signed is None:
        raise RuntimeError("this page is not open to everybody")
    session_id = visit.path["session"]
    await in_thread(visit.platform.session, session_id)
    return hints(visit.house, visit.platform, visit.signed.token, session_id, visit.request)


def say(visit: Visit) -> Any:
    """Put a message before the session's agent, and go back to where it will stand."""
    name = visit.path["session"]
    text = visit.form.get("text", "")
    try:
        running.submit(
            visit.platform,
            name,
            text,
            engine=visit.form.get("engine") or None,
            options={"ask": ASK_SECONDS},
            key=_key(visit, text),
        )
    except OnwardError as error:
        # What was written is not lost with the refusal.
        session = visit.platform.session(name)
        values = {
            "title": session.title or "Untitled",
            "session": session,
            "window": window(visit.platform, session),
            "facts": about.facts(visit.platform, session),
            "newest": True,
            **around.values(visit, session),
            "written": text,
            "refused": str(error),
        }
        return Shown(template="session.html", values=values, status=about.status_of(error))
    return Moved(to=f"/sessions/{name}#end")


def _key(visit: Visit, text: str) -> str | None:
    """Return what makes a message repeat-safe: sent twice from one page it is one, changed in between it is two."""
    once = visit.form.get("once", "")[:64]
    return f"console {once} {content_digest(text.encode('utf-8', 'surrogatepass'))}" if once else None


def event(visit: Visit) -> Shown:
    """Show one exact event: what it says, its raw body, its place in the chain."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    found = _event(visit)
    body = body_of(found)
    read = [(found, body)]
    names = names_of(platform, reading.mentioned(read))
    behind = result_of(platform, session.id, read[0])
    entry = reading.entries(read, platform.clock(), names=names, behind=behind)[0]
    raw = found.body.decode("utf-8", "backslashreplace")
    values = {
        "title": f"Event {found.seq}",
        "session": session,
        "event": found,
        "entry": entry,
        "when": entry.when,
        "digest": f"sha256:{found.digest.hex()}",
        "chain": f"sha256:{found.chain.hex()}",
        "words": kinds.cut(lines.said(found, body), WHOLE, line=WHOLE),
        "raw": kinds.cut(raw, WHOLE, line=WHOLE),
        "bytes": len(found.body),
        "head": session.head_seq,
    }
    return Shown(template="event.html", values=values)


def raw(visit: Visit) -> Response:
    """Return the body of an event, byte for byte, as a file."""
    found = _event(visit)
    name = f"{found.session_id}-{found.seq}.json"
    return _given(visit, found.body, "application/json", f'attachment; filename="{name}"')


def part(visit: Visit) -> Response:
    """Return an image or a file of an event. Only pictures of harmless types are shown, anything else is a download."""
    found = _event(visit)
    number = visit.seq("part")
    parts = getattr(body_of(found), "parts", ())
    if number >= len(parts):
        raise EventNotFound(
            f"Event {found.seq} has no part {number}.", event=f"{found.session_id}:{found.seq}"
        )
    content = visit.platform.store.blob(parts[number].blob)
    if content is None:
        raise EventNotFound(
            f"What event {found.seq} shows there is gone: it was erased, or never came along with an import.",
            event=f"{found.session_id}:{found.seq}",
        )
    media = parts[number].media_type
    if media in kinds.PICTURES:
        return _given(visit, content, media, "inline")
    return _given(visit, content, "application/octet-stream", "attachment")


def recalls(visit: Visit) -> Shown:
    """Show what a session recalled, and what of that its projection had left out."""
    session = visit.platform.session(visit.path["session"])
    report = recalling.recall_report(visit.platform, session.id)
    asked = [(*kinds.addressed(address), count) for address, count in report.asked_again.items()]
    values = {"title": "What was recalled", "session": session, "report": report, "asked": asked[:200]}
    return Shown(template="recalls.html", values={**values, "more": max(0, len(asked) - 200)})


def archive(visit: Visit) -> Moved:
    """Put a session away."""
    sessions.archive(visit.platform, visit.path["session"])
    return Moved(to=f"/sessions/{visit.path['session']}")


def rename(visit: Visit) -> Moved:
    """Give a session another title."""
    sessions.rename(visit.platform, visit.path["session"], visit.form.get("title", ""))
    return Moved(to=f"/sessions/{visit.path['session']}")


def _event(visit: Visit) -> Event:
    """Return the event that a path names. Raises SessionNotFound, EventNotFound, InvalidInput."""
    session = visit.platform.session(visit.path["session"])
    seq = visit.seq()
    found = visit.platform.store.events(session.id, after=max(0, seq - 1), upto=seq, limit=1) if seq else []
    if not found:
        raise EventNotFound(
            f"This session has events 1 to {session.head_seq:,}; {seq} does not exist.",
            event=f"{session.id}:{seq}",
        )
    return found[0]


def _given(visit: Visit, content: bytes, media: str, disposition: str) -> Response:
    """Return content as it is. A browser that keeps it asks again each time: it may be erased by then."""
    tag = replying.tag(content, "strong")
    headers = {"cache-control": "private, no-cache", "etag": tag}
    if replying.has(visit.request, tag):
        return Response(status_code=304, headers=headers)
    headers |= {
        "content-disposition": disposition,
        "content-security-policy": SANDBOX,
        "x-content-type-options": "nosniff",
    }
    return Response(content, media_type=media, headers=headers)


PAGES: Final = (
    Page(method="GET", path="/sessions/{session}", does="Show a session.", scope="read", handler=show),
    Page(
        method="GET",
        path="/sessions/{session}/timeline",
        does="Show a part of a session's timeline.",
        scope="read",
        handler=timeline,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/facts",
        does="Show what is known about a session.",
        scope="read",
        handler=facts,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/live",
        does="Stream what there is to be fetched of a session.",
        scope="read",
        handler=live,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/messages",
        does="Put a message before the session's agent.",
        scope="write",
        handler=say,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/events/{seq}",
        does="Show one exact event.",
        scope="read",
        handler=event,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/events/{seq}/raw",
        does="Return the body of an event as it was logged.",
        scope="read",
        handler=raw,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/events/{seq}/parts/{part}",
        does="Return an image or a file of an event.",
        scope="read",
        handler=part,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/recalls",
        does="Show what a session recalled.",
        scope="read",
        handler=recalls,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/title",
        does="Give a session another title.",
        scope="write",
        handler=rename,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/archive",
        does="Put a session away.",
        scope="write",
        handler=archive,
    ),
)
