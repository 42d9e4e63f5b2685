"""Transitions: what both ends of a continuation say about it.

The predecessor has a card where it went on: in what, why, when, and what was carried. It is made from the log and the
manifest each time the page is, so it is there for as long as they are. The successor has a banner that leads back. An end
that this account may not read is a breadcrumb: its id and that it is not available, nothing else in its place (A1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from onward.core.bodies import SessionChange
from onward.core.codec import body_of
from onward.core.manifest import Manifest, decode_manifest
from onward.core.records import FINAL_STATES, Link, Session
from onward.service import sessions
from onward.service.platform import Platform
from onward.surfaces.http.console import about, words
from onward.surfaces.http.console.views import Entry, Line, Other, View
from onward.surfaces.http.console.words import When

ACTORS: Final = {"agent": "the agent", "user": "a person", "trigger": "a trigger", "system": "Onward"}
"""Who does things, said to a person."""
BROKEN: Final = ("failed", "interrupted", "cancelled")
"""States of a run after which nothing was answered."""
RUNS: Final = 20
"""Runs of a successor among which one that got somewhere is looked for."""


class Transition(View, frozen=True, kw_only=True):
    """A session went on in another one."""

    successor: Other
    reason: str
    by: str
    carried: tuple[str, ...]
    """What went along, in words."""
    left_out: str
    """What of the sources stayed a link, in words."""
    manifest: str | None
    current: bool
    """Whether this is where the conversation goes on now; an older one is a branch by now."""
    newer: Other | None
    """Where it goes on instead."""
    tone: str = "quiet"


class Banner(View, frozen=True, kw_only=True):
    """Where a session comes from."""

    kind: str
    """``continuation``, ``fork`` or ``child``."""
    source: Other
    back: str | None
    """The place in the source where this one begins."""
    seq: int | None
    reason: str
    when: When | None
    manifest: str | None
    newer: Other | None
    """Where the source was continued again later, so that this one is a branch by now."""
    failed: about.RunView | None
    """The run with which nothing was answered yet."""


def reason_words(reason: str) -> str:
    """Return a reason as a person reads it; one that is not known as it stands."""
    return words.REASONS.get(reason, words.cut(reason.replace("_", " "), 120) or "No reason given")


def other_of(platform: Platform, session_id: str) -> Other:
    """Return a session as far as this account may see it."""
    found = platform.store.session(session_id)
    if found is None or found.account_id != platform.account_id:
        return Other(id=session_id, title="a session that is not available", href=None)
    return Other(id=session_id, title=found.title or "Untitled", href=f"/sessions/{session_id}")


def with_cards(platform: Platform, session: Session, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a timeline with a card for each continuation that leaves the session."""
    out = list(entries)
    ahead: list[Link] | None = None
    for number, entry in enumerate(out):
        if entry.view != "line" or not isinstance(entry.body, Line) or entry.body.change != "continued":
            continue
        if ahead is None:
            ahead = sessions.continuations(platform, session.id)
        link = next((one for one in ahead if one.id == entry.body.link_id), None)
        if link is not None:
            card = transition(platform, link, ahead)
            out[number] = msgspec.structs.replace(entry, view="transition", body=card)
    return out


def transition(platform: Platform, link: Link, ahead: Sequence[Link]) -> Transition:
    """Return the card of a continuation, among those that leave the same session, oldest first."""
    record = manifest_of(platform, link)
    carried, left_out = carried_words(record) if record is not None else ((), "")
    newest = ahead[-1]
    return Transition(
        successor=other_of(platform, link.to_session),
        reason=reason_words(link.reason),
        by=ACTORS.get(link.actor, link.actor),
        carried=carried,
        left_out=left_out,
        manifest=f"/manifests/{link.manifest_id}" if link.manifest_id else None,
        current=newest.id == link.id,
        newer=other_of(platform, newest.to_session) if newest.id != link.id else None,
    )


def manifest_of(platform: Platform, link: Link) -> Manifest | None:
    """Return the manifest of a continuation; None where it is not here."""
    stored = platform.store.manifest(link.manifest_id) if link.manifest_id else None
    return decode_manifest(stored.body) if stored is not None else None


def carried_words(record: Manifest) -> tuple[tuple[str, ...], str]:
    """Return what a continuation carried, each in a few words, and what of its sources it left out."""
    note, state = record.handoff, record.state
    out = ["the current request"]
    for entries, noun in ((note.established_facts, "fact"), (note.decisions, "decision")):
        if entries:
            out.append(words.counted(len(entries), noun))
    if note.open_questions:
        out.append(words.counted(len(note.open_questions), "open question"))
    if note.next_actions:
        out.append(words.counted(len(note.next_actions), "next action"))
    if state.plan.transfer == "carry" and state.plan.steps:
        out.append(f"{words.counted(len(state.plan.steps), 'step')} of the plan")
    if state.children:
        out.append(f"{words.counted(len(state.children), 'delegated session')} still at work")
    if state.runs:
        out.append(f"{words.counted(len(state.runs), 'message')} that waited")
    if state.pins:
        out.append(words.counted(len(state.pins), "pin"))
    loaded = {part.source for part in record.included if part.source is not None}
    loaded |= {content.source for content in record.contents if content.included}
    if record.sources:
        out.append(words.counted(len(record.sources), "source"))
    rest = len(record.sources) - len(loaded)
    if not record.sources or rest <= 0:
        return tuple(out), ""
    if not loaded:
        return tuple(out), "Its sources are links; none is loaded."
    told = f"{len(loaded)} of the sources {'is' if len(loaded) == 1 else 'are'} loaded, {rest} stayed a link."
    return tuple(out), told


def banner(platform: Platform, session: Session) -> Banner | None:
    """Return where a session comes from, and whether its beginning failed; None for one that begins by itself."""
    links = platform.store.links(session.id)
    link = next((one for one in links if one.to_session == session.id), None)
    if link is None:
        return None
    source = other_of(platform, link.from_session)
    seq = link.seq if link.type == "fork" else None
    ahead = (
        sessions.continuations(platform, link.from_session)
        if link.type == "continuation" and source.href
        else []
    )
    if link.type == "continuation" and source.href is not None:
        seq = _left_at(platform, link)
    back = f"{source.href}?at={seq}#e{seq}" if source.href and seq else source.href
    return Banner(
        kind=link.type,
        source=source,
        back=back,
        seq=seq,
        reason=reason_words(link.reason) if link.type == "continuation" else "",
        when=words.when(link.created_at, platform.clock()),
        # A manifest is read through the session that it came from.
        manifest=f"/manifests/{link.manifest_id}" if link.manifest_id and source.href else None,
        newer=other_of(platform, ahead[-1].to_session) if ahead and ahead[-1].id != link.id else None,
        failed=_failed(platform, session) if link.type == "continuation" else None,
    )


def _left_at(platform: Platform, link: Link) -> int | None:
    """Return the event at which a session was left for its successor, near the newest of its changes."""
    for event in platform.store.events(link.from_session, kinds=("session",), limit=30, newest_first=True):
        body = body_of(event)
        if isinstance(body, SessionChange) and body.change == "continued" and body.link == link.id:
            return event.seq
    return None


def _failed(platform: Platform, session: Session) -> about.RunView | None:
    """Return the newest run, if none got anywhere yet and it did not either."""
    runs = platform.store.runs(session.id, limit=RUNS)
    if not runs or any(run.state not in FINAL_STATES or run.state not in BROKEN for run in runs):
        return None
    return about.run_view(platform, runs[0], platform.clock())
