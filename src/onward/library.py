"""``Onward``: a store opened for use, with every verb as a method.

Library use is five lines:

    with onward.open("sqlite:///work.db") as log:
        session = log.start("Fix the parser")
        print(log.run(session.id, "What fails?", engine="script").reply)
        made = log.continue_session(session.id, log.draft(session.id, "Write the release notes"))
        print([event.kind for event in log.read(made.successor).events])

Methods only pass on to the verbs in ``onward.service`` and to the runner; what they promise is written there.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from onward.core.bodies import Pins, Plan
from onward.core.continuing_command import Command, parse_command
from onward.core.events import Event
from onward.core.manifest import Manifest
from onward.core.records import Run, Session
from onward.core.transcript import Limits, Transcript, from_events
from onward.service import (
    continuing,
    drafting,
    opening,
    recalling,
    referencing,
    running,
    sessions,
    verifying,
)
from onward.service.platform import Platform, approval_policy, opening_policy
from onward.service.sessions import Lineage, Page

if TYPE_CHECKING:
    from onward.core.pressure import Pressure
    from onward.core.routing import Router
    from onward.engines.contract import Engine
    from onward.runner import Listener, RunResult
    from onward.service import approving, briefing
    from onward.service.importing import ImportReport
    from onward.service.recompiling import Comparison, View
    from onward.service.resolving import Resolver
    from onward.service.signing import Signer


class Onward:
    """Everything Onward does, on one store and for one account."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    def __enter__(self) -> Self:
        """Use as a context manager to close the store in the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Finish what is queued and close the store."""
        self.platform.store.close()

    # Sessions

    def start(self, title: str = "", **options: Any) -> Session:
        """Open a new session, see ``sessions.start``."""
        return sessions.start(self.platform, title, **options)

    def open(self, workspace: str, title: str = "", *, engine: str | None = None) -> Session:
        """Return the conversation that goes on in a folder, or a new one there, see ``sessions.current``."""
        found = sessions.current(self.platform, workspace)
        return found or self.start(title, workspace=workspace, engine=engine)

    def session(self, session_id: str) -> Session:
        """Return a session as it stands."""
        return self.platform.session(session_id)

    def sessions(self, **query: Any) -> tuple[list[Session], str | None]:
        """Return a page of sessions, newest activity first, see ``sessions.listed``."""
        return sessions.listed(self.platform, **query)

    def rename(self, session_id: str, title: str) -> Session:
        """Give a session another title."""
        return sessions.rename(self.platform, session_id, title)

    def archive(self, session_id: str) -> Session:
        """Put a session away."""
        return sessions.archive(self.platform, session_id)

    def set_state(self, session_id: str, state: Plan | Pins, *, actor: str = "agent") -> Event:
        """Write the next revision of the plan or the pins."""
        return sessions.set_state(self.platform, session_id, state, actor=actor)

    def read(self, session_id: str, first: int = 1, last: int | None = None, *, limit: int = 200) -> Page:
        """Return exact events of a session."""
        return sessions.read(self.platform, session_id, first, last, limit=limit)

    def fork(self, session_id: str, seq: int | None = None, *, title: str = "") -> Session:
        """Branch from an earlier point, by reference."""
        return sessions.fork(self.platform, session_id, seq, title=title)

    def lineage(self, session_id: str) -> Lineage:
        """Return the path from the origin and the tree around a session."""
        return sessions.lineage(self.platform, session_id)

    def erase(self, event_id: str, *, reason: str = "") -> Event:
        """Erase what an event says; its digest stays."""
        return sessions.erase(self.platform, event_id, reason=reason)

    # Continuing

    def draft(self, session_id: str, purpose: str, **options: Any) -> drafting.Draft:
        """Draft a handoff without a model, see ``drafting.draft_handoff``."""
        return drafting.draft_handoff(self.platform, session_id, purpose, **options)

    def review(
        self, session_id: str, command: Command | drafting.Draft | dict[str, Any], **options: Any
    ) -> drafting.Draft:
        """Weigh a handoff that was edited or written: its cost, and what to look at, see ``drafting.review``."""
        if isinstance(command, drafting.Draft):
            command = command.command()
        parsed = parse_command(command) if isinstance(command, dict) else command
        return drafting.review(self.platform, session_id, parsed, **options)

    def continue_session(
        self,
        session_id: str,
        command: Command | drafting.Draft | dict[str, Any],
        text: str | None = None,
        **options: Any,
    ) -> continuing.Continuation:
        """Continue a session in a fresh, linked one, see ``continuing.continue_session``.

        ``text`` is what you say now, and what the successor answers; without it, that is the newest ask.
        """
        if isinstance(command, drafting.Draft):
            command = command.command()
        return continuing.continue_session(self.platform, session_id, command, text=text, **options)

    def approvals(self, session_id: str | None = None, *, answered: bool = False) -> list[approving.Parked]:
        """Return the continuations that wait for a person, see ``approving.approvals``."""
        from onward.service import approving

        return approving.approvals(self.platform, session_id, answered=answered)

    def approve(
        self, approval: str, changed: Command | dict[str, Any] | None = None, **options: Any
    ) -> continuing.Continuation:
        """Carry out a continuation that waits, as it is or changed, see ``approving.accept``."""
        from onward.service import approving

        return approving.accept(self.platform, approval, changed, **options)

    def decline(self, approval: str, *, note: str = "") -> approving.Parked:
        """Decline a continuation that waits, see ``approving.decline``."""
        from onward.service import approving

        return approving.decline(self.platform, approval, note=note)

    def manifest(self, name: str) -> Manifest:
        """Return a manifest by its id, or that of the session it began."""
        return continuing.manifest(self.platform, name)

    def recompile(self, manifest: Manifest) -> str:
        """Compile a projection again and return its digest."""
        from onward.service import recompiling

        return recompiling.recompile(self.platform, manifest)

    def compare(self, manifest: Manifest) -> Comparison:
        """Compile a projection again and name every part that does not come out as it was."""
        from onward.service import recompiling

        return recompiling.compare(self.platform, manifest)

    def manifest_view(self, manifest: Manifest) -> View:
        """Return what can still be shown of the sources of a projection."""
        from onward.service import recompiling

        return recompiling.manifest_view(self.platform, manifest)

    # Runs

    def run(
        self,
        session_id: str,
        text: str | None = None,
        *,
        engine: str | Engine | Router | None = None,
        continuation: str | None = "auto",
        continuation_opts: dict[str, Any] | None = None,
        adapter_opts: dict[str, Any] | None = None,
        engine_opts: dict[str, Any] | None = None,
        listener: Listener | None = None,
        follow: bool = True,
        waiting: str | None = None,
    ) -> RunResult:
        """Say something in a session, let an engine answer, and return how the turn ended. Synchronous.

        Without ``text`` it takes up the run that waits, for instance that of a fresh successor, or the one that ``waiting``
        names. Messages that wait before this one are worked on first. Inside an event loop, await ``arun`` instead.
        """
        from onward.runner import run_blocking

        result: RunResult = run_blocking(
            self.arun(
                session_id,
                text,
                engine=engine,
                continuation=continuation,
                continuation_opts=continuation_opts,
                adapter_opts=adapter_opts,
                engine_opts=engine_opts,
                listener=listener,
                follow=follow,
                waiting=waiting,
            )
        )
        return result

    async def arun(
        self,
        session_id: str,
        text: str | None = None,
        *,
        engine: str | Engine | Router | None = None,
        continuation: str | None = "auto",
        continuation_opts: dict[str, Any] | None = None,
        adapter_opts: dict[str, Any] | None = None,
        engine_opts: dict[str, Any] | None = None,
        listener: Listener | None = None,
        follow: bool = True,
        waiting: str | None = None,
    ) -> RunResult:
        """Do what ``run`` does, inside an event loop."""
        from onward import runner

        return await runner.run_session(
            self.platform,
            session_id,
            text,
            engine=engine,
            options={
                "continuation": continuation,
                **(continuation_opts or {}),
                **({"adapter_opts": adapter_opts} if adapter_opts else {}),
            },
            engine_opts=engine_opts or {},
            listener=listener,
            follow=follow,
            waiting=waiting,
        )

    def run_once(
        self, text: str, *, title: str = "", workspace: str | None = None, **options: Any
    ) -> RunResult:
        """Open a session for one message and run it; options are those of ``run``."""
        session = self.start(title or " ".join(text.split())[:60], workspace=workspace)
        return self.run(session.id, text, **options)

    def submit(self, session_id: str, text: str, **options: Any) -> Run:
        """Put a message before a session's agent without waiting, see ``running.submit``."""
        return running.submit(self.platform, session_id, text, **options)

    def cancel(self, run_id: str, **options: Any) -> Run:
        """Cancel a run."""
        return running.cancel(self.platform, run_id, **options)

    def retry(self, run_id: str) -> Run:
        """Queue a run again that failed or was cut off."""
        return running.retry(self.platform, run_id)

    def expire(self) -> list[Run]:
        """Close runs whose runner stopped answering."""
        return running.expire(self.platform)

    def pressure(self, session_id: str) -> Pressure | None:
        """Return how full the model's window was when it was last asked, or None before that was measured."""
        from onward.service import pressure

        return pressure.meter(self.platform, session_id)

    def transcript(self, session_id: str, *, limit: int = 1000, limits: Limits | None = None) -> Transcript:
        """Return provider-neutral messages of a session and of what it branched from."""
        session = self.platform.session(session_id)
        stretches = sessions.scope(self.platform, session)
        return from_events(sessions.newest(self.platform, stretches, limit), session_id, limits)

    def provider_sessions(self, session_id: str) -> dict[str, dict[str, str | None]]:
        """Return what each engine calls a session."""
        self.platform.session(session_id)
        return opening.provider_sessions(self.platform, session_id)

    # Recall

    def search(self, query: str, **options: Any) -> recalling.Found:
        """Search the log, see ``recalling.search``."""
        return recalling.search(self.platform, query, **options)

    def timeline(self, workspace: str, **options: Any) -> briefing.Timeline:
        """Return what was said and done in a workspace, over all its sessions, see ``briefing.timeline``."""
        from onward.service import briefing

        return briefing.timeline(self.platform, workspace, **options)

    def recalls(self, session_id: str) -> recalling.RecallReport:
        """Return what a session recalled, and what of that its projection had left out."""
        return recalling.recall_report(self.platform, session_id)

    # Referring to other sessions

    def candidates(
        self, session_id: str, query: str = "", limit: int = referencing.CANDIDATES
    ) -> list[referencing.Candidate]:
        """Return sessions that a message in this one could refer to, see ``referencing.list_candidates``."""
        return referencing.list_candidates(self.platform, session_id, query, limit)

    def prepare_references(
        self, session_id: str, text: str, references: Sequence[referencing.Named] = ()
    ) -> referencing.Prepared:
        """Return how a message will read and what it brings along; nothing is stored, see ``referencing.prepare``."""
        return referencing.prepare(self.platform, session_id, text, references)

    def reference(self, source_id: str, to: str, text: str, **options: Any) -> Run:
        """Put a message before a session's agent, with a snapshot of another session, without waiting."""
        return referencing.reference(self.platform, source_id, to, text, **options)

    # The store as a whole

    def import_files(
        self, paths: Sequence[str | Path], *, engine: str | None = None, progress: Any = None
    ) -> ImportReport:
        """Import native session files, see ``importing.import_paths``."""
        from onward.service import importing

        return importing.import_paths(
            self.platform.store,
            self.platform.account_id,
            [Path(p) for p in paths],
            engine,
            now=self.platform.clock,
            ids=self.platform.ids,
            progress=progress,
        )

    def verify(self, session_id: str | None = None) -> verifying.Verified:
        """Re-derive every digest of a session, or of the whole store."""
        return verifying.verify(self.platform, session_id)


def open_log(url: str | None = None) -> Onward:
    """Open a store: ``sqlite:///path``, ``memory://``; without a URL the one in the user's data folder."""
    from onward.store import open_store

    store = open_store(url or default_url())
    return Onward(
        Platform(
            store=store,
            host=socket.gethostname(),
            signer=environment_signer(),
            resolvers=environment_resolvers(),
            approval=approval_policy(),
            opening=opening_policy(),
        )
    )


def environment_resolvers() -> tuple[Resolver, ...] | None:
    """Return what reads the sources of handoffs, as ``ONWARD_SOURCES`` says; None when it is not set."""
    import os

    if not os.environ.get("ONWARD_SOURCES"):
        return None
    from onward.service import resolving

    return resolving.from_environment()


def environment_signer() -> Signer | None:
    """Return who signs manifests as ``ONWARD_SIGNING_KEY`` says, which names a key file; None when it is not set."""
    import os

    if not os.environ.get("ONWARD_SIGNING_KEY"):
        return None
    from onward.service import signing

    return signing.from_environment()


def default_url() -> str:
    """Return the URL of the user's own store: ``ONWARD_STORE``, else a file in the data folder."""
    import os

    if found := os.environ.get("ONWARD_STORE"):
        return found if "://" in found else f"sqlite:///{Path(found).expanduser().absolute()}"
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return f"sqlite:///{Path(base) / 'onward' / 'onward.db'}"
