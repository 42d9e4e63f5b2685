"""Verifying: re-derive every digest and chain value and name the first that fails (invariant L2).

For each session: every event's digest from its salt and body, every chain value from the one before, numbers without
gaps, the head that the store keeps, and for every erased event the event that says so (L5). For each continuation: that
its predecessor tells of it, the manifest's own digest, the projection in the successor's log against the digest that the
manifest promises, and the message it began with against the original. For each branch: that its point is there. And the
storage itself.

So sessions hold each other in place: a log that was rewritten or cut off consistently still disagrees with those that
were continued from it. What nothing was ever linked to can only be compared with a copy. Nothing is repaired here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from onward.core import digests
from onward.core.bodies import ProjectionContext, SessionChange
from onward.core.codec import body_of
from onward.core.events import Event, fault_in
from onward.core.manifest import Manifest, decode_manifest
from onward.core.records import Link, Session
from onward.service.platform import Platform
from onward.store.contract import SessionQuery


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that does not hold."""

    session: str | None
    seq: int | None
    why: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and the first failure."""

    sessions: int
    events: int
    ok: bool
    first_failure: Failure | None = None


def verify(platform: Platform, session_id: str | None = None) -> Verified:
    """Check one session, or the whole store."""
    count = total = 0
    first: Failure | None = None
    for session in [platform.session(session_id)] if session_id else every_session(platform):
        count += 1
        checked, failure = _session(platform, session)
        total += checked
        # One that names its event says more than one that only shows what follows from it in another session.
        if failure is not None and (first is None or (first.seq is None and failure.seq is not None)):
            first = failure
    if session_id is None and first is None:
        for why in platform.store.check():
            first = first or Failure(session=None, seq=None, why=why)
    return Verified(sessions=count, events=total, ok=first is None, first_failure=first)


def every_session(platform: Platform) -> Iterator[Session]:
    """Yield all sessions of the account, archived ones included."""
    cursor: str | None = None
    while True:
        page, cursor = platform.store.sessions(
            SessionQuery(account_id=platform.account_id, include_archived=True, limit=500, cursor=cursor)
        )
        yield from page
        if cursor is None:
            return


def _session(platform: Platform, session: Session) -> tuple[int, Failure | None]:
    """Return how many events of a session hold, and the first thing that does not."""
    links = platform.store.links(session.id)
    check = _Check(platform, session, links)
    chain, seq = digests.GENESIS, 0
    for event in platform.store.scan(session.id):
        why = fault_in(event, seq + 1, chain) or check.fault_in(event)
        if why is None and event.seq == session.head_seq and event.chain != session.head_chain:
            why = "the session's head has another chain value"
        if why is not None:
            return seq, Failure(session=session.id, seq=seq + 1, why=why)
        seq, chain = event.seq, event.chain
    if seq < session.head_seq:
        why = f"the session has {session.head_seq} events, {seq} are there: the last ones were removed"
        return seq, Failure(session=session.id, seq=seq + 1, why=why)
    for place, why in check.left_over():
        return seq, Failure(session=session.id, seq=place, why=why)
    return seq, None


class _Check:
    """What a session's events must say beside their chain: what links, manifests and erasures promise of them."""

    def __init__(self, platform: Platform, session: Session, links: list[Link]) -> None:
        self.manifests: dict[str, Manifest] = {}
        """The manifest of what began this session, while its projection was not seen."""
        self.faults: list[tuple[int | None, str]] = []
        self.erased: dict[str, int] = {}
        """Events without a body, while no event that erased them was seen."""
        self.points: dict[int, Link] = {}
        """Links that leave this session, by the event they leave from, while it was not seen."""
        self.untold: dict[str, Link] = {}
        """Continuations that this session does not mention yet."""
        for link in links:
            ours = link.type == "continuation" and link.manifest_id is not None
            if ours and link.to_session == session.id:
                self._expect_projection(platform, link)
            if link.from_session != session.id:
                continue
            if ours:
                self.untold[link.id] = link
            if link.type == "fork" and link.seq is not None:
                self.points[link.seq] = link

    def _expect_projection(self, platform: Platform, link: Link) -> None:
        name = f"manifest {link.manifest_id}"
        stored = platform.store.manifest(link.manifest_id or "")
        if stored is None:
            self.faults.append((None, f"{name} is missing"))
            return
        if digests.content_digest(stored.body) != stored.digest:
            self.faults.append((None, f"{name} does not match its digest"))
            return
        try:
            manifest = decode_manifest(stored.body)
        except (msgspec.MsgspecError, ValueError) as error:
            self.faults.append((None, f"{name} cannot be read: {error}"))
            return
        self.manifests[stored.id] = manifest
        original = platform.store.event(manifest.initiating.event)
        if original is None or original.seq != manifest.initiating.seq:
            self.faults.append((None, f"the message that {name} begins with is no longer where it was"))
        elif digests.spell(original.digest) != manifest.initiating.digest:
            self.faults.append((None, f"the message that {name} begins with is no longer what it was"))

    def fault_in(self, event: Event) -> str | None:
        """Look at the next event. Return what is wrong with it in words, or None."""
        self.points.pop(event.seq, None)
        if event.erased:
            self.erased[event.id] = event.seq
            if event.kind == "context":
                self.manifests.clear()  # whatever it showed: that it is gone is accounted for by its erasure
            return None
        if event.kind not in ("session", "context"):
            return None
        body = body_of(event)
        if isinstance(body, SessionChange):
            if body.change == "erased" and body.event is not None:
                self.erased.pop(body.event, None)
            self.untold.pop(body.link or "", None)
        elif isinstance(body, ProjectionContext) and body.manifest in self.manifests:
            manifest = self.manifests.pop(body.manifest)
            if digests.content_digest(body.text.encode("utf-8", "surrogatepass")) != manifest.digest:
                return f"the projection is not the one that manifest {body.manifest} describes"
        return None

    def left_over(self) -> Iterator[tuple[int | None, str]]:
        """Yield what was promised and did not come."""
        yield from self.faults
        for place in self.erased.values():
            yield place, "its body is gone and no event says that it was erased"
        for name in self.manifests:
            yield None, f"the projection of manifest {name} is not in the log"
        for link in self.untold.values():
            yield None, f"it was continued in {link.to_session}, and no event says so"
        for seq, link in self.points.items():
            yield seq, f"{link.to_session} branches from this event, and it is not there"
