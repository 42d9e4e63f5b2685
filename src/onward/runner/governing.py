"""Governing a run: what it may do and use, judged while it happens.

``Governor`` holds the policy of one run against what its engine reports, and answers the engine's own questions. A rule
against a tool answers first; then the permission mode; what that leaves open is put before a person, if the run was given
time for one. Whatever is asked, granted, denied or exceeded is in the log.

- ``warn`` leaves a notice and goes on. ``cancel`` stops the engine; the run has failed, whatever the engine may still say.
- ``ask`` stops it too and leaves a request: granting it begins another attempt in which the policy only warns
  (``permitting``), so a person decides with everything in view, and not in the middle of a turn that went too far.

An engine that acts by itself has often begun when it says so. Then the call stays open and is closed as ``outcome_unknown``,
like any call that was cut off.
"""

from __future__ import annotations

from typing import Any

from onward.core.bodies import Approval, Notice, notice_summary
from onward.core.events import NewEvent
from onward.core.policy import Policy, Violation, Watch, merged
from onward.core.records import Run
from onward.engines.contract import Measured, Permission, Permitted, Signal, ToolCalled
from onward.runner.desk import Desk
from onward.service import permitting
from onward.service.opening import RunOptions


class Governor:
    """The policy and the permissions of one run."""

    def __init__(self, desk: Desk, run: Run, options: RunOptions) -> None:
        self.desk, self.run, self.options = desk, run, options
        self.policy: Policy = merged(options.policies) or Policy(name="none", action="warn")
        self._watch = Watch(self.policy)

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """The tools that the engine may use: those that the caller and the policy both allow. None: any."""
        given, ruled = self.options.allowed_tools, self.policy.allowed()
        if given is None or ruled is None:
            return ruled if given is None else given
        return tuple(tool for tool in given if self.policy.permits(tool))

    @property
    def denied(self) -> tuple[str, ...]:
        """The tools that the engine may not use."""
        return tuple(dict.fromkeys((*self.options.denied_tools, *self.policy.denied())))

    @property
    def seconds(self) -> float | None:
        """How long the run may take."""
        return self.policy.max_seconds

    async def heard(self, signal: Signal) -> Violation | None:
        """Judge a signal that is in the log already; return what ends the run, if it does."""
        match signal:
            case ToolCalled(name=name, ours=ours):
                found = self._watch.called(name)
                if ours:  # rules are about the engine's own tools; limits are about all
                    found = tuple(v for v in found if v.rule != "tool")
            case Measured(usage=usage):
                found = self._watch.measured(usage)
            case _:
                return None
        return await self._told(found)

    async def elapsed(self, seconds: float) -> Violation | None:
        """Judge the time that the run took so far; return what ends it, if anything does."""
        return await self._told(self._watch.elapsed(seconds))

    async def permit(self, asked: Permission) -> Permitted:
        """Answer the engine's question."""
        if asked.tool and (asked.tool in self.denied or not self._may(asked.tool)):
            refused = f"Policy “{self.policy.name}” does not allow the tool {asked.tool}."
            return await self._settled(asked, Permitted(granted=False, note=refused))
        mode = self.options.permission_mode
        if mode in ("full_auto", "dangerously_skip_permissions") or (mode == "accept_edits" and asked.edits):
            return await self._settled(asked, Permitted(granted=True))
        if mode == "plan":
            return await self._settled(
                asked, Permitted(granted=False, note="This turn may only plan; it changes nothing.")
            )
        if self.options.ask <= 0:
            nobody = "Nobody is here who could allow it. Say what you would have done, and go on without it."
            return await self._settled(asked, Permitted(granted=False, note=nobody))
        new = self._event(permitting.request(asked), "agent")
        await self.desk.record(self.run, (new,))
        return await self.desk.permit(self.run, new.id, seconds=self.options.ask)

    def _may(self, tool: str) -> bool:
        allowed = self.allowed
        return self.policy.permits(tool) and (allowed is None or tool in allowed)

    async def _settled(self, asked: Permission, answer: Permitted) -> Permitted:
        """Write a question down together with the answer that needed nobody."""
        new = self._event(permitting.request(asked), "agent")
        said = Approval(
            state="granted" if answer.granted else "denied",
            subject=asked.subject,
            call=asked.call,
            note=answer.note or f"permission mode {self.options.permission_mode}",
            answers=new.id,
        )
        await self.desk.record(self.run, (new, self._event(said, "system")))
        return answer

    async def _told(self, found: tuple[Violation, ...]) -> Violation | None:
        """Leave a notice for each, and for ``ask`` a request; return the first that ends the run."""
        ends = None
        for violation in found:
            said = violation.told()
            notice = Notice(summary=notice_summary(said), text=said)
            events = [self.desk.event("context", notice, "system", run_id=self.run.id)]
            if violation.action == "ask":
                over = {"policy": {"name": violation.policy, "rule": violation.rule, "tool": violation.tool}}
                events.append(self._event(Approval(state="requested", subject=said, request=over), "system"))
            await self.desk.record(self.run, events)
            if violation.action != "warn" and ends is None:
                ends = violation
        return ends

    def _event(self, body: Any, actor: str) -> NewEvent:
        return self.desk.event("approval", body, actor, run_id=self.run.id)
