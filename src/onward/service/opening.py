"""Opening a run: which history an engine is given, by which mode, within which limits.

``auto`` resumes the engine's own conversation where it has one and replays our transcript otherwise; ``replay`` always
replays; ``native`` only resumes and fails when there is nothing to resume (an engine that cannot resume fails closed,
O5); ``none`` gives nothing. The transcript ends before the run's own input, so a request is never doubled; snapshots of
other sessions that the message brought along are part of that input, and are given in every mode. Limits keep the most
recent; the projection that a successor began with stays in front of them, however long the session grows, because it
is all that the engine is given of what came before.

What is decided here is a wish. What is reported is what the engine confirmed (O2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from onward.core.bodies import ProjectionContext
from onward.core.codec import body_of, loads
from onward.core.events import Event
from onward.core.manifest import Scope
from onward.core.records import EngineSession, Run
from onward.core.transcript import Limits, Transcript, TranscriptMessage, from_events, limited
from onward.engines.contract import Capabilities, NativeSession
from onward.errors import ContinuationModeUnavailable, InvalidInput, LimitExceeded
from onward.service import running, sessions
from onward.service.platform import Platform
from onward.service.running import MODES

HISTORY_LIMIT: Final = 1000
"""Events that a transcript is read from, unless asked otherwise."""
HISTORY_MOST: Final = 100_000
"""Events that a transcript can be read from at all."""
WINDOW_SHARE: Final = 0.6
"""The part of an engine's context window that history may fill; the rest is for tools, the request and the answer."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may say about a run."""

    continuation: str = "auto"
    limit: int = HISTORY_LIMIT
    max_messages: int | None = None
    max_chars: int | None = None
    max_tokens_approx: int | None = None
    adapter_opts: dict[str, Any] = {}
    model: str | None = None
    workdir: str | None = None


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of an engine to open a run for it."""

    name: str
    capabilities: Capabilities


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is going to be given."""

    options: RunOptions
    transcript: Transcript
    input: str
    native: NativeSession | None
    reason: str
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
    unknown = sorted(set(raw) - set(RunOptions.__struct_fields__))
    if unknown:
        raise InvalidInput(
            what=f"run option {', '.join(unknown)}",
            why=f"there are {', '.join(RunOptions.__struct_fields__)}",
        )
    mode = raw.get("continuation", "auto")
    mode = {None: "none", False: "none"}.get(mode, mode)
    if mode not in MODES:
        raise InvalidInput(what=f"continuation mode {mode!r}", why=f"there are {', '.join(MODES)}")
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
    return options


def _limits(options: RunOptions, window: int | None) -> Limits:
    """Return the limits of a run, those of the engine's window included. Raises LimitExceeded for any below one."""
    tokens = options.max_tokens_approx
    if window is not None:
        room = max(int(window * WINDOW_SHARE), 1)
        tokens = room if tokens is None else min(tokens, room)
    return Limits(max_messages=options.max_messages, max_chars=options.max_chars, max_tokens_approx=tokens)


def prepare(platform: Platform, run: Run, engine: EngineFacts) -> Prepared:
    """Return what a claimed run gives its engine. Raises ContinuationModeUnavailable when ``native`` has nothing."""
    options = parse_options(run.options)
    asked = platform.store.event(run.input_event) if run.input_event else None
    if asked is None:
        raise InvalidInput(what=f"run {run.id}", why="its message is not in the log")
    native = _native(platform, run, engine) if options.continuation in ("auto", "native") else None
    if options.continuation == "native" and native is None:
        raise ContinuationModeUnavailable(engine=engine.name)
    context = running.brought_by(platform, asked)
    read = from_events([context], run.session_id).messages if context else ()
    brought = read[0] if read else None
    empty = Transcript(session_id=run.session_id)
    if native is not None:
        reason, transcript = "", empty
    elif options.continuation == "none":
        reason, transcript = "A clean slate was asked for.", empty
    else:
        window = engine.capabilities.window
        reason, transcript = "", history(platform, run.session_id, context or asked, options, window, brought)
    question = from_events([asked], run.session_id).messages
    said = question[0].content if question else ""
    if native is not None and brought is not None:
        # The engine has its own history, to which nothing can be added: both go as one message, in their order.
        said, brought = f"{brought.content}\n\n{said}", None
    return Prepared(
        options=options, transcript=transcript, input=said, native=native, reason=reason, brought=brought
    )


def history(
    platform: Platform,
    session_id: str,
    before: Event,
    options: RunOptions,
    window: int | None,
    beside: TranscriptMessage | None = None,
) -> Transcript:
    """Return the transcript of everything before an event, within the limits and the engine's window.

    The limits apply to what follows the projection, with what it and ``beside`` leave of them: a message that is given too,
    whatever its size.
    """
    session = platform.session(session_id)
    stretches = sessions.scope(platform, session)
    own = msgspec.structs.replace(stretches[-1], to_seq=before.seq - 1)
    stretches = (*stretches[:-1], own) if before.session_id == session_id else stretches
    events = sessions.newest(platform, stretches, options.limit)
    limits = _limits(options, window)
    if beside is not None:
        limits = _less(limits, beside)
    begun = _projection(platform, stretches)
    if begun is None:
        return from_events(events, session_id, limits)
    whole = from_events([begun, *(e for e in events if e.id != begun.id)], session_id)
    first, rest = whole.messages[:1], whole.messages[1:]
    kept = (*first, *limited(rest, _less(limits, first[0]))) if rest else first
    omitted = len(whole.messages) - len(kept)
    return msgspec.structs.replace(whole, messages=kept, metadata={**whole.metadata, "omitted": omitted})


def _projection(platform: Platform, stretches: Sequence[Scope]) -> Event | None:
    """Return what the history began with, if it is that of a continuation."""
    found = platform.store.events(stretches[0].session, upto=stretches[0].to_seq, limit=1, kinds=("context",))
    return found[0] if found and isinstance(body_of(found[0]), ProjectionContext) else None


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


def _native(platform: Platform, run: Run, engine: EngineFacts) -> NativeSession | None:
    """Return the conversation that an engine should still hold, if it can hold one."""
    if not engine.capabilities.memory:
        return None
    found: EngineSession | None = next(
        (s for s in platform.store.engine_sessions(run.session_id) if s.engine == engine.name), None
    )
    return NativeSession(id=found.native_id, model=found.model) if found else None
