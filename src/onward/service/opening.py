"""Opening a run: what an engine is given of what came before, in which shape, within which limits.

Which memory it should wake up with is decided by ``core.opening``; this module reads what that needs, and puts together what
follows from it. An engine that goes on in its own conversation is given nothing but what is asked now. One that holds
nothing gets our transcript if it reads messages, and otherwise the brief, as text that it puts in front of what is asked.
The brief is composed for every engine that might turn out to hold nothing, a resumed one too: only the engine knows, and
it drops what it does not need (O2). A clean slate reads nothing of what came before (O1).

The transcript ends before the run's own input, so a request is never doubled; snapshots of other sessions that the message
brought along are part of that input, and are given in every mode. Limits keep the most recent; what a history begins with
(a projection, or the brief of the workspace it began in) stays in front of them, however long it grows, because it is all
that the engine is given of what came before.

What is decided here is a wish. ``confirmed`` says what became of it, from the engine's own report and nothing else.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from onward.core import digests
from onward.core.bodies import BriefContext, Message, Notice, OpeningFacts, Relay, SessionChange
from onward.core.brief import CHARS, PREAMBLE, Bounds
from onward.core.codec import body_of, loads
from onward.core.events import Event
from onward.core.opening import (
    MEMORIES,
    Able,
    Asked,
    Decision,
    Held,
    Memory,
    Previous,
    decide_opening,
)
from onward.core.policy import Policy
from onward.core.records import EngineSession, Run, Session
from onward.core.transcript import Limits, Transcript, TranscriptMessage, from_events, limited
from onward.engines.contract import Capabilities, NativeFile, NativeSession, PermissionMode, Started
from onward.errors import ContinuationModeUnavailable, InvalidInput, LimitExceeded
from onward.service import briefing, native_records, running, sessions, workspaces
from onward.service.briefing import Composed
from onward.service.platform import Platform
from onward.service.running import MODES
from onward.store.contract import Batch, RunIs

HISTORY_LIMIT: Final = 1000
"""Events that a transcript is read from, unless asked otherwise."""
HISTORY_MOST: Final = 100_000
"""Events that a transcript can be read from at all."""
WINDOW_SHARE: Final = 0.6
"""The part of an engine's context window that history may fill; the rest is for tools, the request and the answer."""
LOOKED_AT: Final = 50
"""Events about the session itself among which the opening of the turn before is looked for."""
LOOKED_BACK: Final = 50_000
"""Events of any kind that are passed over for that: no turn has more, and a longer log costs no more."""
UNCONFIRMED: Final = "Its own memory was asked for and did not answer."
"""Why an engine did not resume, where it does not say so itself."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may say about a run."""

    continuation: Asked = "auto"
    memory: Memory | UnsetType = UNSET
    """Whose memory comes first; unset for what the platform says."""
    window: float | UnsetType | None = UNSET
    """Seconds for which an engine's own memory is relied on, None for ever; unset for what the platform says."""
    limit: int = HISTORY_LIMIT
    max_messages: int | None = None
    max_chars: int | None = None
    max_tokens_approx: int | None = None
    adapter_opts: dict[str, Any] = {}
    model: str | None = None
    workdir: str | None = None
    permission_mode: PermissionMode = "default"
    ask: float = 0.0
    """Seconds that a question of the engine waits for a person; 0: nobody is asked, the mode decides."""
    policies: tuple[Policy, ...] = ()
    """What the run may use; several are one, see ``core.policy``."""
    allowed_tools: tuple[str, ...] | None = None
    """The engine's own tools that it may use, by its names; None for any that the mode allows."""
    denied_tools: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    """Capabilities without which the run must not begin, ``kind`` or ``kind:name``."""
    wishes: tuple[str, ...] = ()
    """Capabilities whose absence is only said."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of an engine to open a run for it."""

    name: str
    capabilities: Capabilities
    machine: str = ""
    """Where it runs. What it remembers is there, and on no other machine."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is going to be given."""

    options: RunOptions
    decision: Decision
    input: str
    transcript: Transcript
    """What an engine that reads messages is given as history; empty where it is asked to go on by itself."""
    facts: OpeningFacts
    """What is known of the opening before anything was confirmed: the outcome is missing."""
    native: NativeSession | None = None
    brief: str = ""
    """What an engine that reads text is given if it holds nothing."""
    spent: BriefContext | None = None
    """What enters the log together with the opening if the reconstruction was used, so that later turns begin alike."""
    new_id: str | None = None
    """The id of the conversation that the engine is to begin; it is in the log already."""
    recorded: tuple[NativeFile, ...] = ()
    folder: str | None = None
    """The folder that the session is about, as its machine spells it."""
    brought: TranscriptMessage | None = None
    """The snapshots that the message brought along: part of what is asked, in every mode, and no part of the history."""

    @property
    def messages(self) -> tuple[TranscriptMessage, ...]:
        """What an engine reads before the question."""
        return (*self.transcript.messages, *((self.brought,) if self.brought else ()))


def parse_options(given: bytes | dict[str, Any]) -> RunOptions:
    """Read the options of a run.

    Raises InvalidInput for a mode or a field that does not exist, LimitExceeded for a limit that is none.
    """
    raw = loads(given) if isinstance(given, bytes) else given
    if not isinstance(raw, dict):
        raise InvalidInput(what="the run options", why=f"they are an object, not {type(raw).__name__}")
    unknown = sorted(map(str, set(raw) - set(RunOptions.__struct_fields__)))
    if unknown:
        raise InvalidInput(
            what=f"run option {', '.join(unknown)}",
            why=f"there are {', '.join(RunOptions.__struct_fields__)}",
        )
    mode = raw.get("continuation", "auto")
    mode = "none" if mode is None or mode is False else mode
    if mode not in MODES:
        raise InvalidInput(what=f"continuation mode {mode!r}", why=f"there are {', '.join(MODES)}")
    if (memory := raw.get("memory", "engine")) not in MEMORIES:
        raise InvalidInput(what=f"memory {memory!r}", why=f"there are {', '.join(MEMORIES)}")
    try:
        options = msgspec.convert({**raw, "continuation": mode}, RunOptions)
    except msgspec.ValidationError as error:
        raise InvalidInput(what="the run options", why=str(error)) from None
    if not 1 <= options.limit <= HISTORY_MOST:
        raise LimitExceeded(
            what="the number of events a transcript is read from",
            limit=f"1 to {HISTORY_MOST:,}",
            found=options.limit,
        )
    _limits(options, None)
    if isinstance(options.window, float) and not 0 <= options.window < float("inf"):
        raise LimitExceeded(
            what="the window of an engine's own memory",
            limit="0 seconds or more, null for unlimited",
            found=options.window,
        )
    return options


def _limits(options: RunOptions, window: int | None) -> Limits:
    """Return the limits of a run, those of the engine's window included. Raises LimitExceeded for any below one."""
    tokens = options.max_tokens_approx
    if window is not None:
        room = max(int(window * WINDOW_SHARE), 1)
        tokens = room if tokens is None else min(tokens, room)
    return Limits(max_messages=options.max_messages, max_chars=options.max_chars, max_tokens_approx=tokens)


def prepare(platform: Platform, run: Run, engine: EngineFacts) -> Prepared:
    """Return what a claimed run gives its engine; the id of a conversation that is to begin is stored before that.

    Raises ContinuationModeUnavailable when ``native`` has nothing to go on with.
    """
    options = parse_options(run.options)
    asked = platform.store.event(run.input_event) if run.input_event else None
    if asked is None:
        raise InvalidInput(what=f"run {run.id}", why="its message is not in the log")
    session = platform.session(run.session_id)
    if options.workdir is not None and workspaces.has_moved(platform, session):
        options = msgspec.structs.replace(
            options, workdir=None
        )  # it was a folder of where the work was before
    row, recorded, decision = _decided(platform, run, engine, options)
    if options.continuation == "native" and decision.mode != "resume":
        raise ContinuationModeUnavailable(engine=engine.name)
    context = running.brought_by(platform, asked)
    read = from_events([context], run.session_id).messages if context else ()
    brought = read[0] if read else None
    question = from_events([asked], run.session_id).messages
    said = question[0].content if question else ""
    as_text = engine.capabilities.reads == "text" or decision.mode != "fresh"
    if as_text and brought is not None:
        # Nothing can be added to a history that is the engine's own, nor to a brief: both go as one message, in order.
        said, brought = f"{brought.content}\n\n{said}", None
    if decision.native_id is not None:
        said = "\n\n".join([*_missed(platform, run, context or asked), said])
    transcript = Transcript(session_id=run.session_id)
    facts = OpeningFacts(
        reason=decision.reason, engine=engine.name, branch=decision.branch, asked=decision.mode
    )
    text, spent = "", None
    if decision.seed is None or decision.instead == "fail":
        pass
    elif as_text:
        composed = _composed(platform, run, engine, asked, options)
        text, spent, facts = composed.text, _spent(composed, engine), _told(facts, composed, "brief")
    else:
        transcript = history(
            platform, run.session_id, context or asked, options, engine.capabilities.window, brought
        )
        if transcript.messages:
            facts = msgspec.structs.replace(facts, given="messages", rows=len(transcript.messages))
        else:
            composed = _composed(platform, run, engine, asked, options)
            spent = _spent(composed, engine) if composed.scope == "workspace" else None
            facts = _told(facts, composed if spent else Composed(fault=composed.fault), "messages")
            if spent is not None:
                lead = TranscriptMessage(role="user", content=spent.text)
                transcript = msgspec.structs.replace(transcript, messages=(lead,))
    return Prepared(
        options=options,
        decision=decision,
        input=said,
        transcript=msgspec.structs.replace(transcript, items=()),
        facts=facts,
        native=NativeSession(id=row.native_id, model=row.model) if row and decision.native_id else None,
        brief=text,
        spent=spent,
        new_id=_chosen_id(platform, run, engine) if decision.mode == "fresh" else None,
        recorded=recorded if decision.native_id else (),
        folder=_folder(platform, session),
        brought=brought,
    )


def _decided(
    platform: Platform, run: Run, engine: EngineFacts, options: RunOptions
) -> tuple[EngineSession | None, tuple[NativeFile, ...], Decision]:
    """Return what the engine calls this session, what we hold of that, and what to wake up with."""
    able = Able(name=engine.name, memory=engine.capabilities.memory)
    machine, now = named(platform, engine.machine or platform.host), platform.clock()
    row: EngineSession | None = None
    recorded: tuple[NativeFile, ...] = ()
    previous: Previous | None = None
    if able.memory and options.continuation in ("auto", "native"):
        known = platform.store.engine_sessions(run.session_id)
        row = next((found for found in known if found.engine == engine.name), None)
        if row is not None and row.native_id == _id_for(run, engine):
            row = None  # this run chose it a moment ago, and the answer was lost: no engine has heard of it
    if row is not None:
        previous = previous_turn(platform, run)
        recorded = _recorded(platform, row) if engine.capabilities.restore else ()
        able = msgspec.structs.replace(able, restorable=bool(recorded))
    held = None
    if row is not None:
        at = named(platform, row.machine_id) if row.machine_id else None
        held = Held(native_id=row.native_id, machine=at)
    policy = platform.opening
    if options.memory is not UNSET:
        policy = msgspec.structs.replace(policy, memory=options.memory)
    if options.window is not UNSET:
        policy = msgspec.structs.replace(policy, window=options.window)
    decision = decide_opening(able, held, previous, machine, policy, now, asked=options.continuation)
    return row, recorded, decision


def named(platform: Platform, machine: str) -> str:
    """Return a machine as people know it: the name under which its id is registered, or what was written down itself."""
    found = platform.store.machine(machine)
    return found.name if found is not None else machine


def previous_turn(platform: Platform, run: Run) -> Previous | None:
    """Return the turn before this one that an engine took up, if there was one.

    A run that ended before its engine began changed nothing that any engine holds, so it is passed over.
    """
    found = _opening_before(platform, run)
    if found is None:
        return None
    event, body = found
    before = platform.store.run(event.run_id or "")
    times = (event.at, before.started_at or 0, before.ended_at or 0) if before else (event.at,)
    return Previous(
        engine=body.engine or "", state=before.state if before else "completed", active_at=max(times) or None
    )


def _opening_before(platform: Platform, run: Run) -> tuple[Event, SessionChange] | None:
    """Return the event of the newest opening before this run, and what it says; nearly always among the first looked at."""
    oldest = max(0, platform.session(run.session_id).head_seq - LOOKED_BACK)
    for many in (4, LOOKED_AT):
        about = platform.store.events(
            run.session_id, after=oldest, limit=many, kinds=("session",), newest_first=True
        )
        for event in about:
            body = body_of(event)
            if event.run_id in (None, run.id) or not isinstance(body, SessionChange):
                continue
            if body.change == "opening":
                return event, body
        if len(about) < many:
            break
    return None


def _missed(platform: Platform, run: Run, asked: Event) -> list[str]:
    """Return what entered the log since the engine was last asked, and what it therefore cannot hold itself.

    A child's report and a notice stand in the transcript of an engine that reads one; an engine that goes on in its own
    memory is told of them with the next message. So it is of messages that were withdrawn before anybody answered.
    """
    before = _opening_before(platform, run)
    if before is None:
        return []
    since = platform.store.events(
        run.session_id,
        after=before[0].seq,
        upto=asked.seq - 1,
        limit=LOOKED_AT,
        kinds=("context", "message"),
        newest_first=True,
    )
    new = [event for event in reversed(since) if _is_news(event)]
    return [m.content for event in new for m in from_events([event], run.session_id).messages]


def _is_news(event: Event) -> bool:
    body = body_of(event)
    return isinstance(body, Relay | Notice) or (isinstance(body, Message) and body.role == "user")


def _composed(
    platform: Platform, run: Run, engine: EngineFacts, asked: Event, options: RunOptions
) -> Composed:
    window = platform.opening.window if options.window is UNSET else options.window
    room = _limits(options, engine.capabilities.window).chars
    bounds = Bounds(chars=CHARS if room is None else max(min(CHARS, room - len(PREAMBLE)), 0))
    return briefing.brief_for(
        platform, run.session_id, asked, window=window, bounds=bounds, tools=engine.capabilities.tools
    )


def _spent(composed: Composed, engine: EngineFacts) -> BriefContext | None:
    """Return what enters the log when this brief was used, if anything does.

    An engine without any memory is told the same again at every turn. That is in the log as an opening, with its figures;
    its text is not, or a conversation would grow with the square of its length. A workspace's brief is kept whoever was
    told it, because it becomes what the conversation begins with. A projection stands in the log already, so only what
    was added to it is kept.
    """
    if composed.scope is None or composed.brief.rows == 0:
        return None
    if composed.scope != "workspace" and not engine.capabilities.memory:
        return None
    return BriefContext(
        text=composed.brief.text,
        rows=composed.brief.rows,
        scope=composed.scope,
        oldest=composed.brief.oldest,
        newest=composed.brief.newest,
    )


def _told(facts: OpeningFacts, composed: Composed, given: Literal["brief", "messages"]) -> OpeningFacts:
    """Return the facts with those of the reconstruction that was put together."""
    return msgspec.structs.replace(
        facts,
        given=given if composed.scope else None,
        scope=composed.scope,
        rows=composed.brief.rows,
        oldest=composed.brief.oldest,
        newest=composed.brief.newest,
        fault=composed.fault,
    )


def confirmed(prepared: Prepared, engine: EngineFacts, started: Started) -> OpeningFacts:
    """Return what became of an opening, as the engine reports it and never as it was asked (O2, O5).

    A claim counts only where it can be true: an engine without a memory resumes nothing, nor does one that works in another
    conversation than it was asked for, and what was not there to be given back was not restored. Where several claims are
    made, a brief that was used says most: an engine that needed it held nothing. So no two are ever reported.
    """
    facts, native = prepared.facts, prepared.native
    same = native is not None and started.native_id in (None, native.id) and engine.capabilities.memory
    outcome: Literal["resumed", "restored", "seeded", "fresh"] = "fresh"
    if started.briefed and prepared.brief:
        outcome = "seeded"
    elif started.restored and same and prepared.recorded:
        outcome = "restored"
    elif started.resumed and same:
        outcome = "resumed"
    elif prepared.transcript.messages:
        outcome = "seeded"
    asked_for = {"resume": "resumed", "restore": "restored", "fresh": outcome}[prepared.decision.mode]
    reason = facts.reason if outcome == asked_for else started.why or UNCONFIRMED
    works_in = native.id if native is not None and outcome in ("resumed", "restored") else started.native_id
    told = msgspec.structs.replace(facts, outcome=outcome, reason=reason, native=works_in)
    if outcome == "seeded":
        return told
    return msgspec.structs.replace(told, given=None, scope=None, rows=0, oldest=None, newest=None)


def _id_for(run: Run, engine: EngineFacts) -> str:
    """Return the id of a conversation that a run begins: the same one, however often its runner has to ask for it."""
    named = f"{run.id} {run.fence} {engine.name}".encode()
    return str(uuid.UUID(bytes=digests.sha256(named).digest()[:16], version=4))


def _chosen_id(platform: Platform, run: Run, engine: EngineFacts) -> str | None:
    """Choose the id of a conversation that the engine is to begin, and write it down before the engine knows of it.

    So a first turn that is cut off does not lose it. Raises Conflict when the run is no longer held.
    """
    if not engine.capabilities.chooses_id:
        return None
    new = _id_for(run, engine)
    begun = EngineSession(
        session_id=run.session_id,
        engine=engine.name,
        native_id=new,
        machine_id=engine.machine or platform.host or None,
        updated_at=platform.clock(),
    )
    platform.store.commit(Batch(guards=(RunIs(run.id, "running", run.fence),), engine_sessions=(begun,)))
    return new


def _recorded(platform: Platform, row: EngineSession) -> tuple[NativeFile, ...]:
    """Return what we hold of the engine's own files of a conversation."""
    return native_records.load(platform, row.session_id, row.engine, row.native_id)


def _folder(platform: Platform, session: Session) -> str | None:
    """Return the folder that a session is about. Whether it is there, only the machine of the engine can tell."""
    place = platform.store.workspace_by_id(session.workspace_id) if session.workspace_id else None
    return place.path if place else None


def history(
    platform: Platform,
    session_id: str,
    before: Event,
    options: RunOptions,
    window: int | None,
    beside: TranscriptMessage | None = None,
) -> Transcript:
    """Return the transcript of everything before an event, within the limits and the engine's window.

    The limits apply to what follows the beginning, with what it and ``beside`` leave of them: a message that is given too,
    whatever its size.
    """
    session = platform.session(session_id)
    stretches = sessions.scope(platform, session)
    begun = briefing.begun_with(
        platform, stretches
    )  # it may stand behind the message that is answered once more
    own = msgspec.structs.replace(stretches[-1], to_seq=before.seq - 1)
    stretches = (*stretches[:-1], own) if before.session_id == session_id else stretches
    events = sessions.newest(platform, stretches, options.limit)
    limits = _limits(options, window)
    if beside is not None:
        limits = _less(limits, beside)
    if begun is None:
        return from_events(events, session_id, limits)
    rest = [event for event in events if event.id != begun.id]
    if isinstance(body_of(begun), BriefContext):
        # It was written down after the message that it was given with, and was read before it.
        first, whole = from_events([begun], session_id).messages, from_events(rest, session_id)
        after = whole.messages
    else:
        whole = from_events([begun, *rest], session_id)
        first, after = whole.messages[:1], whole.messages[1:]
    kept = (*first, *limited(after, _less(limits, first[0]))) if first and after else (*first, *after)
    omitted = len(first) + len(after) - len(kept)
    return msgspec.structs.replace(whole, messages=kept, metadata={**whole.metadata, "omitted": omitted})


def _less(limits: Limits, first: TranscriptMessage) -> Limits:
    """Return what one message leaves of the limits; at least one, so that they stay limits."""
    return Limits(
        max_messages=limits.max_messages and max(limits.max_messages - 1, 1),
        max_chars=limits.chars and max(limits.chars - first.chars(), 1),
    )


def provider_sessions(platform: Platform, session_id: str) -> dict[str, dict[str, str | None]]:
    """Return what each engine calls this session, ``{engine: {provider_session_id, model}}``."""
    return {
        found.engine: {"provider_session_id": found.native_id, "model": found.model}
        for found in platform.store.engine_sessions(session_id)
    }
