"""Sessions: opening, naming, branching, reading and walking them.

Every verb loads what it needs, decides, and makes one store call; that call is the transaction that makes it right. A
branch is made by reference: it holds no copy of what came before, only the number of the last event it shares with its
source. Whoever reads the history of a session asks ``scope``, and whoever looks around it asks ``reach``: both end at that
number, so what its source said later never leaks into a branch, nor what a branch says into its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onward.core import ids as make
from onward.core.bodies import Body, Message, Pins, Plan, ProjectionContext, SessionChange, ToolResult
from onward.core.codec import Erased, body_of, call_of, encode
from onward.core.events import PERSON, Event
from onward.core.records import Link, Machine, Session
from onward.errors import Conflict, EventNotFound, InvalidInput, LimitExceeded, WorkspaceNotFound
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, DropBlob, DropNative, Erase, SessionPatch, SessionQuery

if TYPE_CHECKING:
    from onward.core.manifest import Scope

MAX_TITLE = 120
"""Characters of a title."""
MAX_KEY = 200
"""Characters of an idempotency key."""
READ_DEFAULT = 200
READ_MAX = 1000
"""Events that one read returns at most."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a session."""

    session: Session
    events: tuple[Event, ...]
    next: int | None
    """The number to read on from, or None at the end."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session comes from and what came of it."""

    session: str
    path: tuple[str, ...]
    """From the origin to the session, over continuations."""
    links: tuple[Link, ...]
    sessions: dict[str, Session | None]
    """Every session of the tree; None for one that this account may not read."""


def checked_title(title: str) -> str:
    """Return a title with its white space folded. Raises LimitExceeded above 120 characters."""
    folded = " ".join(title.split())
    if len(folded) > MAX_TITLE:
        raise LimitExceeded(
            what="a title", limit=f"{MAX_TITLE} characters", found=f"{len(folded):,} characters"
        )
    return folded


def start(
    platform: Platform,
    title: str = "",
    *,
    workspace: str | None = None,
    machine: Machine | None = None,
    engine: str | None = None,
    parent: str | None = None,
    call: str | None = None,
) -> Session:
    """Open a new session. With ``parent`` it is a delegated child, expected to report back.

    ``workspace`` is the folder that it is about, on ``machine``; without one, on the machine that has the store.
    """
    now = platform.clock()
    from onward.service import workspaces  # late: reading and searching name no folder

    place, new_places = workspaces.place(platform, workspace, machine) if workspace else (None, ())
    session = Session(
        id=platform.ids.new(make.SESSION),
        account_id=platform.account_id,
        created_at=now,
        title=checked_title(title),
        workspace_id=place.id if place else None,
        engine=engine,
    )
    opened = SessionChange(change="opened", title=session.title or None, engine=engine, other=parent)
    links: tuple[Link, ...] = ()
    if parent is not None:
        platform.session(parent)
        links = (
            Link(
                id=platform.ids.new(make.LINK),
                type="child",
                from_session=parent,
                to_session=session.id,
                created_at=now,
                reason="delegated",
                event_id=call,
                report_to=parent,
            ),
        )
    event = platform.event("session", opened, "system")
    platform.store.commit(
        Batch(
            workspaces=new_places,
            sessions=(session,),
            links=links,
            appends=(Append(session_id=session.id, events=(event,)),),
        )
    )
    return platform.session(session.id)


def rename(platform: Platform, session_id: str, title: str) -> Session:
    """Give a session another title."""
    platform.session(session_id)
    name = checked_title(title)
    event = platform.event("session", SessionChange(change="renamed", title=name), "user", source=PERSON)
    platform.store.commit(
        Batch(
            appends=(Append(session_id=session_id, events=(event,)),),
            session_patches=(SessionPatch(session_id=session_id, title=name),),
        )
    )
    return platform.session(session_id)


def archive(platform: Platform, session_id: str) -> Session:
    """Put a session away. It stays readable and takes no new messages."""
    platform.session(session_id)
    event = platform.event("session", SessionChange(change="archived"), "user", source=PERSON)
    platform.store.commit(
        Batch(
            appends=(Append(session_id=session_id, events=(event,)),),
            session_patches=(SessionPatch(session_id=session_id, archived=True),),
        )
    )
    return platform.session(session_id)


def set_state(platform: Platform, session_id: str, state: Plan | Pins, *, actor: str = "agent") -> Event:
    """Write the next revision of the plan or the pins."""
    platform.session(session_id)
    kind = "plan" if isinstance(state, Plan) else "pins"
    event = platform.event(kind, state, actor)
    return platform.store.commit(Batch(appends=(Append(session_id=session_id, events=(event,)),))).events[0]


def listed(
    platform: Platform,
    *,
    text: str | None = None,
    workspace: str | None = None,
    children: bool = True,
    archived: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> tuple[list[Session], str | None]:
    """Return sessions, newest activity first, and the cursor of the next page.

    ``workspace`` is its id or its folder. Without ``children``, delegated sessions are left out: subagents, and those that
    an engine opened to compact itself; with ``archived``, those that were put away are listed too.
    """
    place = None
    if workspace is not None:
        from onward.service import workspaces  # late: reading and searching name no folder

        try:
            place = workspaces.get(platform, workspace).id
        except WorkspaceNotFound:
            return [], None
    if not 1 <= limit <= READ_MAX:
        raise LimitExceeded(what="the number of sessions on a page", limit=f"1 to {READ_MAX}", found=limit)
    return platform.store.sessions(
        SessionQuery(
            account_id=platform.account_id,
            workspace_id=place,
            text=text,
            include_archived=archived,
            include_children=children,
            limit=limit,
            cursor=cursor,
        )
    )


def read(
    platform: Platform, session_id: str, first: int = 1, last: int | None = None, *, limit: int = READ_DEFAULT
) -> Page:
    """Return events ``first`` to ``last`` of a session, at most ``limit`` of them."""
    session = platform.session(session_id)
    if not 1 <= limit <= READ_MAX:
        raise LimitExceeded(what="the number of events in one read", limit=f"1 to {READ_MAX}", found=limit)
    if first < 1 or (last is not None and last < first):
        raise InvalidInput(
            what=f"the range {first}-{last}", why="event numbers start at 1 and a range runs forwards"
        )
    if first > session.head_seq:
        raise EventNotFound(
            f"Session {session_id} has events 1 to {session.head_seq}; {first} does not exist.",
            event=f"{session_id}:{first}",
        )
    events = platform.store.events(session_id, after=first - 1, upto=last, limit=limit)
    end = events[-1].seq if events else first
    more = end < min(last or session.head_seq, session.head_seq)
    return Page(session=session, events=tuple(events), next=end + 1 if more else None)


def fork(
    platform: Platform, session_id: str, seq: int | None = None, *, title: str = "", key: str | None = None
) -> Session:
    """Branch from an earlier point: a new session that shares the log up to ``seq`` by reference.

    ``key`` makes it repeat-safe: asking again with the same one returns the branch that it made.

    Any event may be the point. One that lies between a tool call and its result is allowed, because a log may hold such a
    pair wherever it was cut off: the branch sees the call, and its transcript answers it with what is true there, that no
    result was recorded (invariant T1). The source gains one event, which says where it branched. A branch has no
    predecessor, so it is its own origin.
    """
    source = platform.session(session_id)
    if key is not None:
        if not 1 <= len(key) <= MAX_KEY:
            raise LimitExceeded(what="an idempotency key", limit=f"1 to {MAX_KEY} characters", found=len(key))
        if (made := _branch_by(platform, session_id, key)) is not None:
            return made
    point = source.head_seq if seq is None else seq
    if not 1 <= point <= source.head_seq:
        raise EventNotFound(
            f"Session {session_id} has events 1 to {source.head_seq}; {point} does not exist.",
            event=f"{session_id}:{point}",
        )
    last = platform.store.events(session_id, after=point - 1, upto=point, limit=1)[0]
    now = platform.clock()
    branch = Session(
        id=platform.ids.new(make.SESSION),
        account_id=source.account_id,
        workspace_id=source.workspace_id,
        created_at=now,
        title=checked_title(title or source.title),
        engine=source.engine,
    )
    link = Link(
        id=platform.ids.new(make.LINK),
        type="fork",
        from_session=session_id,
        to_session=branch.id,
        created_at=now,
        key=key,
        event_id=last.id,
        seq=point,
        actor="user",
    )
    forked = SessionChange(change="forked", other=session_id, link=link.id, event=last.id, title=branch.title)
    branched = SessionChange(change="branched", other=branch.id, link=link.id, event=last.id)
    batch = Batch(
        sessions=(branch,),
        links=(link,),
        appends=(
            Append(session_id=branch.id, events=(platform.event("session", forked, "user"),)),
            Append(session_id=session_id, events=(platform.event("session", branched, "user"),)),
        ),
    )
    try:
        platform.store.commit(batch)
    except Conflict:
        if key is not None and (made := _branch_by(platform, session_id, key)) is not None:
            return made
        raise
    return platform.session(branch.id)


def _branch_by(platform: Platform, session_id: str, key: str) -> Session | None:
    """Return the branch that a key made. Raises InvalidInput for a key that made something else."""
    done = platform.store.link_by_key(session_id, key)
    if done is None:
        return None
    if done.type != "fork":
        raise InvalidInput(what="the key", why=f"it was used before, for a {done.type} ({done.id})")
    return platform.session(done.to_session)


def scope(platform: Platform, session: Session) -> tuple[Scope, ...]:
    """Return the stretches of log that a session's history is made of: its sources' first, its own last."""
    from onward.core.manifest import Scope  # late: listing and reading have no use for manifests

    out = [Scope(session=session.id, from_seq=1, to_seq=session.head_seq)]
    seen = {session.id}
    current = session.id
    while True:
        link = _above(platform, current)
        if link is None or link.type != "fork" or link.seq is None or link.from_session in seen:
            return tuple(reversed(out))
        if not platform.may_read(link.from_session):
            return tuple(reversed(out))
        out.append(Scope(session=link.from_session, from_seq=1, to_seq=link.seq))
        seen.add(link.from_session)
        current = link.from_session


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """A session that another one can look back into, or down to."""

    distance: int
    """The number of links between them."""
    upto: int | None = None
    """The last event that is in view; None for all of them, those still to come included."""


def reach(platform: Platform, session_id: str) -> dict[str, Reach]:
    """Return the lineage of a session: where it comes from, and what came of it, each with how far it is in view.

    Upwards: every predecessor, the parent of a delegated child, and the sources of branches up to the point they share.
    Downwards: what the session went on in, and the work that it or a predecessor delegated. Not in it: branches that were
    taken from it, and other successors of its predecessors, which are other conversations. Sessions that this account may
    not read are left out, and so is everything that only they lead to.
    """
    found = {session_id: Reach(distance=0)}
    predecessors: list[str] = []
    current = session_id
    while (above := _above(platform, current)) is not None:
        if above.from_session in found or not platform.may_read(above.from_session):
            break
        distance = found[current].distance + 1
        current = above.from_session
        found[current] = Reach(distance=distance, upto=above.seq if above.type == "fork" else None)
        if above.type == "continuation" and len(predecessors) == distance - 1:
            predecessors.append(current)  # only while nothing but continuations lies between
    waiting = [session_id, *predecessors]
    while waiting:
        name = waiting.pop()
        wanted = ("child",) if name in predecessors else ("child", "continuation")
        for link in platform.store.links(name):
            if link.from_session != name or link.type not in wanted or link.to_session in found:
                continue
            if platform.may_read(link.to_session):
                found[link.to_session] = Reach(distance=found[name].distance + 1)
                waiting.append(link.to_session)
    return found


def _above(platform: Platform, session_id: str) -> Link | None:
    """Return the link into a session; there is at most one."""
    return next((ln for ln in platform.store.links(session_id) if ln.to_session == session_id), None)


def newest(platform: Platform, stretches: tuple[Scope, ...], limit: int) -> list[Event]:
    """Return the newest ``limit`` events of a history, oldest first."""
    out: list[Event] = []
    for stretch in reversed(stretches):
        if len(out) >= limit:
            break
        page = platform.store.events(
            stretch.session, upto=stretch.to_seq, limit=limit - len(out), newest_first=True
        )
        out += page
    out.reverse()
    return out


def state(platform: Platform, session: Session) -> dict[str, Event]:
    """Return the current plan and pins of a session; a branch inherits those of its source at the fork."""
    found = platform.store.state(session.id)
    for stretch in reversed(scope(platform, session)[:-1]):
        for kind in ("plan", "pins"):
            if kind not in found:
                page = platform.store.events(
                    stretch.session, upto=stretch.to_seq, limit=1, kinds=(kind,), newest_first=True
                )
                if page:
                    found[kind] = page[0]
    return found


def current(platform: Platform, workspace: str, *, machine: Machine | None = None) -> Session | None:
    """Return the conversation that goes on in a workspace, so that nobody has to know which one it was; None if none does.

    It is the one with the newest activity that was not put away, is nobody's delegated child, and from there the end of
    what it was continued in. ``workspace`` is its id or its folder, on ``machine`` or here.
    """
    from onward.service import workspaces  # late: reading and searching name no folder

    try:
        place = workspaces.get(platform, workspace, machine)
    except WorkspaceNotFound:
        return None
    asked = SessionQuery(account_id=platform.account_id, workspace_id=place.id, include_children=False)
    page, _ = platform.store.sessions(asked)
    for found in page:
        end = latest(platform, found.id)
        if not end.archived:
            return end
    return None


def latest(platform: Platform, session_id: str) -> Session:
    """Return the session that a conversation goes on in now: the end of what it was continued in, newest first."""
    end = platform.session(session_id)
    seen = {end.id}
    while (ahead := continuations(platform, end.id)) and ahead[-1].to_session not in seen:
        end = platform.session(ahead[-1].to_session)
        seen.add(end.id)
    return end


def continuations(platform: Platform, session_id: str) -> list[Link]:
    """Return the continuations that leave a session, oldest first. The newest is the current one."""
    return [
        ln
        for ln in platform.store.links(session_id)
        if ln.type == "continuation" and ln.from_session == session_id
    ]


def lineage(platform: Platform, session_id: str) -> Lineage:
    """Return the path from the origin to a session and the tree around it."""
    platform.session(session_id)
    links = platform.store.lineage(session_id)
    path = [session_id]
    while (before := predecessor(platform, path[-1])) is not None and before.from_session not in path:
        path.append(before.from_session)
    names = {session_id, *(ln.from_session for ln in links), *(ln.to_session for ln in links)}
    known: dict[str, Session | None] = {}
    for name in sorted(names):
        found = platform.store.session(name)
        known[name] = found if found is not None and found.account_id == platform.account_id else None
    return Lineage(session=session_id, path=tuple(reversed(path)), links=tuple(links), sessions=known)


def predecessor(platform: Platform, session_id: str) -> Link | None:
    """Return the continuation that a session came from."""
    above = _above(platform, session_id)
    return above if above is not None and above.type == "continuation" else None


def erase(platform: Platform, event_id: str, *, reason: str = "") -> Event:
    """Erase what an event says. Its digest stays, so the chain still verifies; the erasure is an event of its own (L5).

    The words leave the search index in the same transaction, and so do the native record that an import kept of them and
    the blobs that nothing else names: attachments and, of a projection, what was read of resources and memories. What is
    kept of engines' own files for this session goes as a whole, since the words may stand anywhere in it (the files on
    the engine's machine are its own: ``Engine.forget`` where there is such a thing). Of a tool call or its result the
    call id stays, so that the pair does. Return the event that records the erasure.
    """
    from onward.service.importing_originals import blanked_originals

    found = platform.store.event(event_id)
    if found is None or not platform.may_read(found.session_id):
        raise EventNotFound(event=event_id)
    gone = body_of(found)
    if isinstance(gone, SessionChange) and gone.change == "erased":
        raise InvalidInput(
            what=f"event {event_id}", why="it records an erasure, which has to stay accounted for"
        )
    note = platform.event(
        "session",
        SessionChange(change="erased", event=event_id, reason=reason or None),
        "user",
        source=PERSON,
    )
    tombstone = encode(Erased(reason=reason or None, call=call_of(found.kind, found.body)[0] or None))
    written = platform.store.commit(
        Batch(
            erasures=(Erase(event_id=event_id, tombstone=tombstone),),
            originals=blanked_originals(platform.store, found),
            drop_blobs=_blobs_of(platform, gone),
            drop_native=(DropNative(session_id=found.session_id),),
            appends=(Append(session_id=found.session_id, events=(note,)),),
        )
    )
    return written.events[0]


def _blobs_of(platform: Platform, body: Body) -> tuple[DropBlob, ...]:
    """Return the blobs that belong to a body that is about to be erased; those that something else names stay."""
    if isinstance(body, ProjectionContext):
        from onward.core.manifest import decode_manifest

        stored = platform.store.manifest(body.manifest)
        pinned = decode_manifest(stored.body).contents if stored is not None else ()
        return tuple(DropBlob(digest=content.digest, but=body.manifest) for content in pinned)
    if isinstance(body, Message | ToolResult):
        return tuple(DropBlob(digest=part.blob) for part in body.parts)
    return ()


def plan_of(found: dict[str, Event]) -> Plan | None:
    """Return the plan among a session's state, if it can be read."""
    body = body_of(found["plan"]) if "plan" in found else None
    return body if isinstance(body, Plan) else None


def listed_in(
    platform: Platform, workspace_id: str, cursor: str | None = None
) -> tuple[list[Session], str | None]:
    """Return a page of all sessions of a workspace, archived ones included."""
    return platform.store.sessions(
        SessionQuery(
            account_id=platform.account_id,
            workspace_id=workspace_id,
            include_archived=True,
            limit=READ_MAX,
            cursor=cursor,
        )
    )
