"""Calling tools: the one way in which every engine answers a call to a tool of ours.

The order is the invariant. An engine yields ``ToolCalled``, so that it is in the log before the tool runs; then it
awaits ``answer`` and yields what comes back; and when the tool ended the turn, nothing follows but
``Finished("continued")``. A tool that nobody offers and an input that is no object are answers to the model, with
status ``error``, so that it can correct itself.

An exception from a tool is not an answer. It belongs to whoever offers the tool (a lost lease, a closed store), so it
passes through the engine unchanged.
"""

from __future__ import annotations

from onward.engines.contract import Finished, ToolAnswered, ToolCalled, ToolOutcome, Turn, call_id


class Numbers:
    """Our ids for the calls of one run, in order. Whatever makes calls in a run shares one, so that no id is given twice."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.given = 0
        """How many were given."""

    def next(self) -> str:
        """Return the next id, see ``call_id``."""
        self.given += 1
        return call_id(self.run_id, self.given)


def offers(turn: Turn, name: str) -> bool:
    """Whether a turn offers a tool of this name."""
    return any(tool.name == name for tool in turn.tools)


async def answer(
    turn: Turn, called: ToolCalled, *, invalid: str | None = None
) -> tuple[ToolAnswered, Finished | None]:
    """Run a tool that was called; return its answer and, if it ended the turn, the end.

    ``invalid`` says why the input cannot be used (JSON that does not parse); then the tool does not run and that is
    the answer.
    """
    outcome = await _outcome(turn, called, invalid)
    answered = ToolAnswered(
        call=called.call,
        output=outcome.output,
        status=outcome.status,
        name=called.name,
        recorded=outcome.recorded,
    )
    ended = (
        Finished(status="continued", reason=f"{called.name} ended the turn") if outcome.ends_turn else None
    )
    return answered, ended


async def _outcome(turn: Turn, called: ToolCalled, invalid: str | None) -> ToolOutcome:
    tool = next((tool for tool in turn.tools if tool.name == called.name), None)
    if tool is None:
        offered = ", ".join(tool.name for tool in turn.tools)
        there_are = f"There are: {offered}." if offered else "No tools are offered here."
        return ToolOutcome(output=f"There is no tool {called.name!r}. {there_are}", status="error")
    if invalid is not None:
        return ToolOutcome(output=invalid, status="error")
    if not isinstance(called.input, dict):
        why = (
            f"The input of {called.name!r} must be a JSON object; this one is {type(called.input).__name__}."
        )
        return ToolOutcome(output=why, status="error")
    return await tool.call(called.call, called.input)
