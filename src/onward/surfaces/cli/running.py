"""``run``: say something, and watch the answer come.

On a terminal and in a pipe alike, standard output gets the agent's words as they are produced and nothing else; what is
said about them goes to standard error. A run that failed is an error, with everything that is known about it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import msgspec

from onward.core.mentions import MARK
from onward.core.opening import parse_window
from onward.core.pressure import ACT, LOOK, notice
from onward.core.records import Run, Session
from onward.core.routing import Router
from onward.core.wording import document
from onward.core.wording import tell as tell_opening
from onward.engines.contract import Engine, Said, Signal, TextDelta, ToolAnswered, ToolCalled
from onward.errors import EngineError, InvalidInput, LimitExceeded
from onward.library import Onward
from onward.runner import RunResult
from onward.service import referencing, running, sessions
from onward.service.platform import Platform
from onward.surfaces.cli import addresses, choosing, elsewhere, governing, screen
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import opened


def run(call: Call) -> int:
    """Say something in a session and print the answer."""
    given, text = said(call)
    if text is not None:
        text = stdin() if text == "-" else text
        if not text.strip():
            raise InvalidInput(what="the message", why="it is empty")
    # What cannot be meant is refused before anything is made.
    mode(call), governing.options(call), call["window"] and parse_window(call["window"])
    folder = workspace(call["workspace"])
    title = None if call["new"] is None else sessions.checked_title(call["new"])
    with opened(call, makes=given is None) as platform:
        session = None if given is None else addresses.session(platform, given)
        if given is None and title is None and folder is not None:
            session = sessions.current(platform, folder)
            title = None if session or text is None else " ".join(text.split())[:TITLE]
        if session is not None and (there := elsewhere.machine_for(platform, session)) is not None:
            left = elsewhere.leave(call, platform, session, text, there, run_options(call, None))
            if call.json:
                screen.document(shape(left))
            elif not call.quiet:
                tell(left, session.id)
            return 0
        queued = running.next_queued(platform, session.id) if session and text is None else None
        if text is None and queued is None:
            raise InvalidInput(what="the message", why="no text was given and nothing waits in this session")
        engine = choosing.engine_or_router(
            call["engine"],
            call["engine_option"],
            queued.engine if queued else None,
            session.engine if session else None,
            model=call["model"],
        )
        if session is None:
            if text is not None and MARK in text:  # before anything is made, everything it mentions is found
                referencing.prepare(platform, None, text)
            session = sessions.start(platform, title or "", workspace=folder, engine=engine_of(engine))
        folder = folder or folder_of(platform, session)
        platform = elsewhere.here(platform, None if isinstance(engine, Router) else engine)
        result = answer(call, platform, session.id, text, engine, folder=folder)
        if call.json:
            screen.document(shape(result))
        elif not call.quiet:
            tell(result, session.id)
    return 0


def said(call: Call) -> tuple[str | None, str | None]:
    """Return the session that is named, if one is, and what to say. Raises UsageError where neither can be told.

    With a folder alone, the conversation that goes on there is meant, and the one argument is what to say in it.
    """
    first, second = call["ses"], call["text"]
    if call["new"] is not None:
        if second is not None:
            raise UsageError("with --new, the one argument is what to say")
        return None, first
    if first is None:
        if call["workspace"] is None:
            raise UsageError(
                "SES is missing: name a session, a folder with --workspace DIR, or open a session with --new TITLE"
            )
        return None, None
    if call["workspace"] is not None and second is None and not first.startswith(("ses_", addresses.LAST)):
        return None, first
    return first, second


def folder_of(platform: Platform, session: Session) -> str | None:
    """Return the folder that a session is about, if it is on this machine."""
    place = platform.store.workspace_by_id(session.workspace_id) if session.workspace_id else None
    return place.path if place and place.machine_id is None and os.path.isdir(place.path) else None


def answer(
    call: Call,
    platform: Platform,
    session_id: str,
    text: str | None,
    engine: Engine | Router,
    *,
    folder: str | None,
    waiting: str | None = None,
) -> RunResult:
    """Run a session's turn, or the run that waits, and show it as it happens.

    Raises EngineError for one that did not complete.
    """
    options = run_options(call, folder)
    watcher = None if call.json else Watcher(quiet=call.quiet)
    with Patience(SILENCE, watcher):
        result = Onward(platform).run(
            session_id,
            text,
            engine=engine,
            continuation=mode(call),
            continuation_opts=options,
            listener=watcher,
            waiting=waiting,
        )
    if watcher is not None:
        watcher.finish()
    if result.state in ("failed", "cancelled", "interrupted"):
        raise EngineError(
            f"Run {result.run} in {result.session} {ENDED[result.state]}: {result.reason or 'no reason was given'}",
            engine=platform_engine(platform, result, engine),
            state=result.state,
            **shape(result),
        )
    return result


def run_options(call: Call, folder: str | None) -> dict[str, Any]:
    """Return what the options of a command say about its run."""
    options: dict[str, Any] = {"workdir": folder, "model": call["model"], "memory": call.values.get("memory")}
    options = {key: value for key, value in options.items() if value is not None} | governing.options(call)
    if call.values.get("window"):
        options["window"] = parse_window(call["window"])
    return options


def platform_engine(platform: Platform, result: RunResult, engine: Engine | Router) -> str:
    """Return the name of the engine that a run had: of several, the one that was tried last."""
    return running.get(platform, result.run).engine if isinstance(engine, Router) else engine.name


def mode(call: Call) -> str:
    """Return how the engine is to get what was said before. Raises UsageError for two answers to that."""
    named = call.values.get("continuation")
    if not call.values.get("clean_slate"):
        return named or "auto"
    if named not in (None, "none"):
        raise UsageError(f"--clean-slate gives nothing of what was said, --continuation {named} does")
    return "none"


TITLE = 60
"""Characters of a message that a conversation is named after, where nobody named it."""

SILENCE = 30.0
"""Seconds after which an engine that has said nothing is told about. Codex waits for a network without end and without a
word, and whoever looks at an empty screen should know that it is the engine that they are waiting for."""

ENDED = {"failed": "failed", "cancelled": "was cancelled", "interrupted": "was interrupted"}


def shape(result: RunResult) -> dict[str, Any]:
    """Return a run's result as JSON shows it."""
    return {
        "session": result.session,
        "run": result.run,
        "opening": result.opening,
        "opening_facts": document(result.opening_facts) if result.opening_facts else None,
        "reply": result.reply or None,
        "usage": msgspec.to_builtins(result.usage) if result.usage else None,
        "pressure": msgspec.to_builtins(result.pressure) if result.pressure else None,
        "approval": result.approval,
        "code": result.code or None,
        "retryable": result.retryable,
        "warnings": list(result.warnings),
    }


def engine_of(engine: Engine | Router) -> str:
    """Return the engine that a new session is filed under: of several, the first."""
    return engine.routing.routes[0].engine if isinstance(engine, Router) else engine.name


def tell(result: RunResult, asked_in: str) -> None:
    """Say on standard error how a run went."""
    if result.state == "queued":
        screen.note(f"{result.run} waits in {result.session}. {result.reason}")
        return
    if result.session != asked_in:
        screen.note(f"The conversation went on in {result.session}.")
    used = ""
    if result.usage is not None and result.usage.output_tokens is not None:
        used = f" · {result.usage.input_tokens or 0} tokens in, {result.usage.output_tokens} out"
    known = tell_opening(result.opening_facts) if result.opening_facts else None
    went_on = f" · {result.opening}" if known and known.tone == "quiet" else ""
    screen.note(f"{result.session} · {result.run} {result.state}{went_on}{used}")
    if known and known.tone == "warning":
        screen.note(known.text)
    for warning in result.warnings:
        screen.note(warning)
    if result.approval is not None:
        screen.note(result.reason)
    if result.pressure is not None and result.pressure.share >= LOOK:
        screen.note(notice(result.pressure, LOOK if result.pressure.share < ACT else ACT).summary)


class Watcher:
    """Prints what an engine says while it says it."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._middle = False
        """The cursor is in the middle of a line of the answer."""
        self._streamed = False
        """The message that is being said has been seen in pieces."""
        self.heard = False
        """Something that is shown was said."""

    def __call__(self, _run: Run, signal: Signal) -> None:
        """Take one signal."""
        self.heard = self.heard or isinstance(signal, TextDelta | Said | ToolCalled)
        match signal:
            case TextDelta():
                screen.piece(signal.text)
                self._streamed, self._middle = True, not signal.text.endswith("\n")
            case Said():
                if not self._streamed:
                    screen.piece(signal.text)
                    self._middle = not signal.text.endswith("\n")
                self.finish()
                self._streamed = False
            case ToolCalled() if not self.quiet:
                self.finish()
                screen.note(f"[calls {screen.one_line(signal.name, 80)}]")
            case ToolAnswered(status="error") if not self.quiet:
                self.finish()
                screen.note("[the tool answered with an error]")
            case _:
                pass

    def finish(self) -> None:
        """End the line that is being printed."""
        if self._middle:
            screen.piece("\n")
            self._middle = False


class Patience:
    """Says once, on standard error, that nothing was said for a while; never, when quiet."""

    def __init__(self, seconds: float, watcher: Watcher | None) -> None:
        self._watcher = watcher
        self._timer = threading.Timer(seconds, self.tell)
        self._timer.daemon = True

    def __enter__(self) -> None:
        if self._watcher is not None and not self._watcher.quiet:
            self._timer.start()

    def __exit__(self, *_failure: object) -> None:
        self._timer.cancel()

    @property
    def waits(self) -> bool:
        """Whether something would still be said."""
        return self._timer.is_alive() and not self._timer.finished.is_set()

    def tell(self) -> None:
        """Say it, if it is so."""
        if self._watcher is not None and not self._watcher.heard:
            screen.note("The engine has said nothing yet. It goes on waiting; Ctrl-C cancels the run.")


def stdin() -> str:
    """Return standard input as text. Raises InvalidInput when it is not UTF-8, LimitExceeded beyond a message's size."""
    data = sys.stdin.buffer.read(running.MAX_MESSAGE + 1)
    if len(data) > running.MAX_MESSAGE:
        raise LimitExceeded(what="a message", limit=f"{running.MAX_MESSAGE:,} bytes", found="more")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            what="standard input", why=f"it is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
        ) from None


def workspace(given: str | None) -> str | None:
    """Return a folder as an absolute path. Raises InvalidInput when there is none."""
    if given is None:
        return None
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isdir(path):
        raise InvalidInput(what=f"the workspace {given!r}", why="there is no such folder")
    return path
