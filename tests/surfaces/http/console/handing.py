"""What tests of handing over begin with: sessions that were continued, branched and delegated."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec
from tests.surfaces.http.console.visiting import Visitor

from onward.core import bodies
from onward.core.records import Session
from onward.service import continuing, drafting, running, sessions
from onward.service.continuing import Continuation


def told(visitor: Visitor, title: str = "Rethink compaction") -> Session:
    """Return a session in which something was said and decided, a tool was used, and there is a plan."""
    session = visitor.session(title, engine="script")
    visitor.say(
        session,
        "How does it compact? The port must be 8421.",
        "By rolling summaries.",
        "We decided: no rolling summaries. Never delete history.",
        "Agreed.",
    )
    step = bodies.PlanStep(id="s1", text="Write the proposal", status="open")
    sessions.set_state(visitor.platform, session.id, bodies.Plan(revision=1, steps=(step,)))
    visitor.say(session, "Now write the proposal.")
    return visitor.platform.session(session.id)


def continued(
    visitor: Visitor, session: Session, title: str = "The proposal", **options: Any
) -> Continuation:
    """Continue a session with the draft for a purpose, as an agent would."""
    reason = options.pop("reason", "topic_change")
    draft = drafting.draft_handoff(visitor.platform, session.id, title, title=title, reason=reason)
    command = draft.command()
    if handoff := options.pop("handoff", None):
        command = msgspec.structs.replace(command, handoff=handoff)
    return continuing.continue_session(
        visitor.platform, session.id, command, **{"actor": "agent", "engine": "script", **options}
    )


def ended(visitor: Visitor, session_id: str, state: Any = "completed", reason: str = "") -> str:
    """End the run that waits in a session; return it."""
    platform = visitor.platform
    run = running.claim(platform, platform.store.unfinished(session_id)[0].id, "w", engine="script")
    running.settle(platform, run, state, reason=reason)
    return run.id


def fields(page: str) -> dict[str, str]:
    """Return what the form of a page in which something is written would send as it stands."""
    forms = re.findall(r"<form\b[^>]*method=\"post\".*?</form>", page.partition("<main")[2], re.DOTALL)
    form = max(forms, key=lambda one: ("<textarea" in one, len(one)))
    out: dict[str, str] = {}
    for tag in re.findall(r"<input\b[^>]*>", form):
        given = dict(re.findall(r'([a-z-]+)="([^"]*)"', tag))
        if given.get("type") == "checkbox" and not re.search(r"\schecked[\s>]", tag):
            continue
        if "name" in given:
            out[given["name"]] = html.unescape(given.get("value", ""))
    for attributes, text in re.findall(r"<textarea\b([^>]*)>(.*?)</textarea>", form, re.DOTALL):
        name = re.search(r'name="([^"]*)"', attributes)
        out[name[1] if name else ""] = html.unescape(text)
    for name, choices in re.findall(r'<select\b[^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)"[^>]*\bselected', choices)
        first = re.search(r'<option value="([^"]*)"', choices)
        found = chosen or first
        out[name] = html.unescape(found[1]) if found else ""
    return out


def parts(page: str) -> str:
    """Return the main part of a page as text, its markup and white space folded."""
    main = page.partition("<main")[2].partition(">")[2].partition("</main>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())
