"""A store with one of everything that a route can name."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from onward.core.bodies import Message, Part, Plan, PlanStep, SessionChange, ToolCall, ToolResult, Usage
from onward.core.codec import encode
from onward.core.digests import content_digest
from onward.core.records import Machine, Offer, Run
from onward.engines.contract import Permission
from onward.errors import ContinuationParked
from onward.service import (
    continuing,
    machines,
    permitting,
    recalling,
    running,
    sessions,
    tokens,
    workspaces,
)
from onward.service.platform import Platform
from onward.store.contract import Append, Batch

PICTURE = b"\x89PNG\r\n\x1a\n<script>alert(1)</script>"
OTHERS = "acc_0000000000000000000000000B"
HANDOFF = {
    "title": "Write the notes",
    "reason": "phase_change",
    "handoff": {"purpose": "Write the notes", "established_facts": ["It works [2]."]},
    "sources": [{"kind": "session_events", "from_seq": 2, "to_seq": 3, "relevance": "what was said"}],
}


class Seeded:
    """What there is, by the name of the placeholder that it can stand for."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.tower: Machine = machines.register(platform, "tower", [Offer(name="script")])
        self.first = sessions.start(platform, "Fix the parser", workspace="/p", engine="script").id
        place = workspaces.get(platform, "/p")
        self.picture = content_digest(PICTURE)
        self.done = self._turn(self.first, "What fails?", "The tab test fails in parser.py.")
        part = Part(blob=self.picture, media_type="image/png", bytes=len(PICTURE))
        shown = platform.event("message", Message(role="user", text="Look at this", parts=(part,)), "user")
        platform.store.commit(
            Batch(
                blobs=((self.picture, PICTURE),),
                appends=(Append(session_id=self.first, events=(shown,)),),
            )
        )
        self.shown = shown.id
        steps = (PlanStep(id="1", text="Fix it", status="active"),)
        sessions.set_state(platform, self.first, Plan(revision=1, steps=steps))
        made = continuing.continue_session(platform, self.first, HANDOFF, key="seeded", text="Write them.")
        self.second, self.manifest = made.successor, made.manifest
        self.waiting = str(made.run)
        recalling.search(platform, "parser", session_id=self.second, asked_by=self.second)
        self.branch = sessions.fork(platform, self.first, 2).id
        self.child = sessions.start(platform, "A part of it", parent=self.branch, engine="script").id
        self.open = sessions.start(platform, "Go on here", engine="script").id
        failed = self._begun(self.open, "Try this")
        self.failed = running.settle(platform, failed, "failed", reason="it could not").id
        self.asking = self._begun(self.child, "May I?")
        asked = permitting.request(Permission(call="c1", tool="rm", input={"path": "/"}, subject="rm /"))
        request = platform.event("approval", asked, "agent", run_id=self.asking.id)
        self.call = f"{self.asking.id}.1"
        call = ToolCall(call=self.call, name="search", input={"query": "parser"})
        called = platform.event("tool_call", call, "agent", run_id=self.asking.id)
        running.record(platform, self.asking, [called, request])
        self.permission = request.id
        self.parked = self._parked()
        self.token = tokens.create(platform, "an old one", ["read"])[0].id
        self.named: dict[str, list[str]] = {
            "session": [self.first, self.second, self.branch, self.child, self.open],
            "event": [self.shown, self.permission, *(e.id for e in platform.store.events(self.first))],
            "run": [self.done, self.waiting, self.failed, self.asking.id],
            "manifest": [self.manifest, self.second],
            "approval": [self.parked, self.permission],
            "workspace": [place.id],
            "machine": [self.tower.id],
            "token": [self.token],
            "digest": [self.picture],
            "call": [self.call],
        }

    def _begun(self, session: str, text: str) -> Run:
        run = running.submit(self.platform, session, text)
        there = replace(self.platform, machine_id=self.tower.id)
        return running.claim(there, run.id, "tower", engine="script", lease=86_400)

    def _turn(self, session: str, text: str, reply: str) -> str:
        run, event = self._begun(session, text), self.platform.event
        told = SessionChange(change="opening", opening="fresh", engine="script")
        said: list[Any] = [
            event("session", told, "system", run_id=run.id),
            event("tool_call", ToolCall(call="c", name="pytest", input={"k": "tab"}), "agent", run_id=run.id),
            event(
                "tool_result", ToolResult(call="c", name="pytest", output="1 failed"), "tool", run_id=run.id
            ),
            event("message", Message(role="assistant", text=reply), "agent", run_id=run.id),
        ]
        running.record(self.platform, run, said)
        used = Usage(input_tokens=900, output_tokens=20, context_tokens=900, window=1000)
        return running.settle(self.platform, run, "completed", usage=used).id

    def _parked(self) -> str:
        session = sessions.start(self.platform, "Ask first", engine="script").id
        said = self.platform.event("message", encode(Message(role="user", text="Now")), "user")
        self.platform.store.commit(Batch(appends=(Append(session_id=session, events=(said,)),)))
        asking = replace(self.platform, approval="always")
        handoff = {**HANDOFF, "sources": [{"kind": "session_event", "from_seq": 2}]}
        try:
            continuing.continue_session(asking, session, handoff, key="asks")
        except ContinuationParked as parked:
            return str(parked.details["approval"])
        raise AssertionError("it did not wait")
