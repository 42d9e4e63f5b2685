"""Recompiling: a projection compiled again from its manifest and the log, and what can still be shown of its sources.

The manifest and the log hold every input (invariant P1), so the same bytes come out as long as the same words are there.
When they are not (an event was erased, a blob is gone), another digest comes out, and that is the truth about them:
``compare`` names each section and source that differs, and ``manifest_view`` says of each what became of it.

Resources and memories are compiled from the bytes that were read then, which are kept by digest. Looking at what stands
there today only ever adds a remark: newer content is never put in the place of what was read (invariant P5).
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core.bodies import ProjectionContext
from onward.core.codec import body_of
from onward.core.digests import content_digest
from onward.core.events import Event
from onward.core.manifest import COMPILER, Content, Included, Manifest, Now, Shown
from onward.core.manifest_text import spelled
from onward.core.projection import GONE, Inputs, Offer, Projection, compile_projection
from onward.core.references import Source
from onward.errors import EventNotFound, OnwardError
from onward.service import resolving
from onward.service.counting import counter_by_name
from onward.service.platform import Platform

PAGE: Final = 1000


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest with what can still be shown of its sources today."""

    manifest: Manifest
    sources: tuple[Shown, ...]

    @property
    def lost(self) -> tuple[Shown, ...]:
        """The parts of the projection that can no longer be shown."""
        return tuple(s for s in self.sources if s.included and s.now != "available" and not s.kept)


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a projection that does not come out as it was."""

    section: str
    address: str = ""
    source: int | None = None
    why: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A projection compiled again, beside what its manifest says."""

    manifest: str
    digest: str
    recompiled: str | None
    """None when it could not be compiled at all."""
    differences: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the same bytes came out."""
        return self.recompiled == self.digest


def recompile(platform: Platform, record: Manifest) -> str:
    """Compile a projection again from the log and its manifest. Return the digest of what comes out (P1).

    Events whose text was erased since then give another digest; that is the truth about them. Raises EventNotFound,
    SessionNotFound when the log that it was compiled from may not be read any more.
    """
    return _compiled(platform, record).digest


def _compiled(platform: Platform, record: Manifest) -> Projection:
    return compile_projection(inputs_of(platform, record), counter_by_name(record.tokenizer))


def inputs_of(platform: Platform, record: Manifest) -> Inputs:
    """Return what a projection was compiled from: the manifest's own facts, and the events and blobs that it names."""
    store = platform.store

    def exactly(session: str, first: int, last: int) -> list[Event]:
        platform.session(session)
        return store.events(session, after=first - 1, upto=last, limit=max(last - first + 1, 1))

    initiating = store.event(record.initiating.event)
    if initiating is None or not platform.may_read(initiating.session_id):
        raise EventNotFound(event=record.initiating.event)
    causes = {o.source: o for o in record.omitted if o.source is not None}
    contents = {c.source: c for c in record.contents}
    offers = []
    for number, source in enumerate(record.sources):
        left = causes.get(number)
        cause = left.cause if left else None
        if not source.is_events:
            offers.append(_offer(platform, source, contents.get(number), cause))
        elif cause in ("other_session", "revoked", "missing"):
            offers.append(Offer(source=source, cause=cause))
        else:
            assert source.session
            assert source.from_seq
            assert source.to_seq
            events = exactly(source.session, source.from_seq, source.to_seq)
            offers.append(Offer(source=source, events=tuple(events)))
    return Inputs(
        manifest=record.id,
        link=record.link,
        predecessor=record.predecessor,
        predecessor_title=record.predecessor_title,
        successor=record.successor,
        origin=record.origin,
        reason=record.reason,
        created_at=record.created_at,
        initiating=initiating,
        handoff=record.handoff,
        written_by=record.actor,
        offers=tuple(offers),
        state=record.state,
        identity=record.identity,
        scope=record.scope,
        recent=tuple(e for s in record.recent for e in exactly(s.session, s.from_seq, s.to_seq)),
        relevant=tuple(
            e
            for i in record.relevant
            if (e := store.event(i)) is not None and platform.may_read(e.session_id)
        ),
        budget=record.budget,
    )


def _offer(platform: Platform, source: Source, pinned: Content | None, cause: str | None) -> Offer:
    """Return a resource or memory as it was offered: from the bytes that were kept, never from what is there now."""
    if pinned is None or cause == "external":
        return Offer(source=source, pinned=pinned, cause=cause)  # type: ignore[arg-type]
    kept = platform.store.blob(pinned.digest)
    if kept is None:
        return Offer(source=source, pinned=pinned, cause="missing")
    return Offer(source=source, pinned=pinned, text=kept.decode("utf-8", "replace"))


def compare(platform: Platform, record: Manifest) -> Comparison:
    """Compile a projection again and name every part of it that does not come out as it was.

    Besides what is compiled, the copy that the successor's log holds is compared: it is what the successor really read.
    """
    found: list[Difference] = []
    if record.compiler != COMPILER:
        why = f"it was compiled by the rules {record.compiler}; this version has {COMPILER}"
        found.append(Difference(section="compiler", why=why))
    again: Projection | None = None
    try:
        again = _compiled(platform, record)
    except OnwardError as error:
        found.append(Difference(section="all", why=error.message))
    if again is not None and again.digest != record.digest:
        found += _differences(platform, record, again)
    found += _stored_copy(platform, record)
    return Comparison(
        manifest=record.id,
        digest=record.digest,
        recompiled=again.digest if again else None,
        differences=tuple(found),
    )


def _differences(platform: Platform, record: Manifest, again: Projection) -> list[Difference]:
    """Name the sections whose text is another one and, in those made of sources, which of them."""
    then = {c.section: c for c in record.costs}
    now = {c.section: c for c in again.costs}
    lost = manifest_view(platform, record, look=False).lost
    out: list[Difference] = []
    for section in dict.fromkeys((*then, *now)):
        if section in then and section in now and then[section].digest == now[section].digest:
            continue
        named = [
            Difference(section=section, address=s.address, source=s.source, why=_told(s))
            for s in lost
            if s.section == section
        ]
        if not named:
            named = _moved(record, again, section)
        out += named or [Difference(section=section, why=_resized(then.get(section), now.get(section)))]
    return out or [Difference(section="all", why="the parts are the same and stand in another order")]


def _told(source: Shown) -> str:
    if source.erased:
        numbers = ", ".join(map(str, source.erased[:8])) + (", …" if len(source.erased) > 8 else "")
        return (
            f"erased since: event {numbers}" if len(source.erased) == 1 else f"erased since: events {numbers}"
        )
    return source.note or f"it is {source.now}"


def _moved(record: Manifest, again: Projection, section: str) -> list[Difference]:
    """Name the ranges that are in one of the two and not in the other."""

    def ranges(included: tuple[Included, ...]) -> dict[tuple[str, int, int], Included]:
        return {(i.session, i.from_seq, i.to_seq): i for i in included if i.section == section}

    then, now = ranges(record.included), ranges(again.included)
    out = []
    for place in dict.fromkeys((*then, *now)):
        part = then.get(place) or now[place]
        if place not in now:
            why = "it was in and does not fit now"
        elif place not in then:
            why = "it is in now and was left out"
        elif then[place].text != now[place].text or then[place].digest != now[place].digest:
            why = "its lines read otherwise now"
        else:
            continue
        out.append(Difference(section=section, address=spelled(part), source=part.source, why=why))
    return out


def _resized(then: object, now: object) -> str:
    if then is None or now is None:
        return "it was not in" if then is None else "it is not in now"
    return "its text is another one"


def _stored_copy(platform: Platform, record: Manifest) -> list[Difference]:
    """Compare the projection in the successor's log with the digest in the manifest."""
    if not platform.may_read(record.successor):
        return []
    for event in platform.store.events(record.successor, limit=20, kinds=("context",)):
        body = body_of(event)
        if isinstance(body, ProjectionContext) and body.manifest == record.id:
            if content_digest(body.text.encode("utf-8", "surrogatepass")) == record.digest:
                return []
            return [
                Difference(section="stored copy", why=f"event {event.seq} of the successor says otherwise")
            ]
    return []  # erased: then there is nothing that could differ


def manifest_view(platform: Platform, record: Manifest, *, look: bool = True) -> View:
    """Return what can still be shown of the sources of a projection: of each that is in it, and of each that was cited.

    With ``look``, resources and memories are looked at where they stand; nothing that is found there is shown.
    """
    asked = record.initiating
    session = asked.session or record.predecessor
    out = [
        msgspec.structs.replace(
            _events(platform, session, asked.seq, asked.seq, None),
            section="initiating message",
            included=True,
        )
    ]
    cited: set[int] = set()
    for part in record.included:
        state = _events(platform, part.session, part.from_seq, part.to_seq, part.digest)
        out.append(msgspec.structs.replace(state, section=part.section, source=part.source, included=True))
        if part.source is not None:
            cited.add(part.source)
    contents = {c.source: c for c in record.contents}
    causes = {o.source: o for o in record.omitted if o.source is not None}
    for number, source in enumerate(record.sources):
        if source.is_events:
            if number not in cited:
                out.append(msgspec.structs.replace(_cited(platform, source), source=number))
            continue
        left = causes.get(number)
        cause = left.cause if left else None
        out.append(_outside(platform, record, number, source, contents.get(number), cause, look))
    return View(manifest=record, sources=tuple(out))


def _cited(platform: Platform, source: Source) -> Shown:
    """Return how a range stands that was cited and is not in the projection."""
    if source.session is None or source.from_seq is None:
        return Shown(address=source.address(), section="cited", now="missing", note="it was not found then")
    return _events(platform, source.session, source.from_seq, source.to_seq or source.from_seq, None)


def _events(platform: Platform, session: str, first: int, last: int, digest: str | None) -> Shown:
    span = str(first) if first == last else f"{first}-{last}"
    address = f"{session}:{span}"
    if platform.store.session(session) is None:
        return Shown(address=address, section="cited", now="missing", note="there is no such session")
    if not platform.may_read(session):
        return Shown(address=address, section="cited", now="revoked", note="it may not be read any more")
    erased: list[int] = []
    digests: list[bytes] = []
    at = first
    while at <= last:
        page = platform.store.events(session, after=at - 1, upto=last, limit=PAGE)
        if not page:
            return Shown(address=address, section="cited", now="missing", note=f"event {at} is not there")
        erased += [e.seq for e in page if e.erased]
        digests += [e.digest for e in page]
        at = page[-1].seq + 1
    if digest is not None and content_digest(b"".join(digests)) != digest:
        return Shown(address=address, section="cited", now="changed", note="its digests are others")
    now: Now = "erased" if erased else "available"
    return Shown(address=address, section="cited", now=now, erased=tuple(erased))


def _outside(
    platform: Platform,
    record: Manifest,
    number: int,
    source: Source,
    pinned: Content | None,
    cause: str | None,
    look: bool,
) -> Shown:
    """Return how a resource or memory stands: what was read of it then, and what is there now."""
    kept = pinned is not None and platform.store.blob(pinned.digest) is not None
    now: Now = "available"
    note = ""
    if pinned is None:
        now = cause if cause in GONE else "external"  # type: ignore[assignment]
    elif not kept and cause != "external":
        now, note = "erased", "what was read of it is not kept any more"
    elif look and platform.may_read(record.predecessor):
        now, note = _there(platform, record, source, pinned)
    return Shown(
        address=source.address(),
        section="cited",
        source=number,
        now=now,
        included=pinned is not None and pinned.included,
        pinned=pinned.digest if pinned else None,
        kept=kept,
        note=note,
    )


def _there(platform: Platform, record: Manifest, source: Source, pinned: Content) -> tuple[Now, str]:
    """Compare what stands at an address now with what was read."""
    found = resolving.look_up(platform, platform.session(record.predecessor), source)
    if found is None:
        return "revoked", "nothing reads such addresses here now"
    resolved, _ = found
    if resolved.content is None:
        now: Now = resolved.cause if resolved.cause in GONE else "changed"  # type: ignore[assignment]
        return now, resolved.note
    if content_digest(resolved.content) != pinned.digest:
        return "changed", "something else is there now; what was read then is shown"
    return "available", ""
