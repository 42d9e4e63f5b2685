"""What Codex asks during a turn, answered: its approvals, and those of its servers of tools.

Whoever may allow something is asked through ``Turn.permit``, while the turn goes on; where nobody can be asked, the answer
is no. Codex is told *decline*, which refuses the one act and lets the turn go on, never *cancel*. A permission is for the
one act that was asked about: nothing is allowed for later.

A question that is no approval (a form to fill in, a login to refresh) is refused, and kept as a raw record.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from onward.engines.codex_stream import AppServerStream
from onward.engines.contract import Noted, Permission, Permitted, Signal, Turn
from onward.engines.jsonrpc import METHOD_NOT_FOUND, Request
from onward.errors import EngineError

NOBODY: Final = Permitted(
    granted=False, note="Nobody can be asked, and the permission mode does not allow it."
)


class Permissions:
    """The questions of one turn."""

    def __init__(self, turn: Turn, stream: AppServerStream) -> None:
        self._turn, self._stream = turn, stream
        self._asking: set[asyncio.Task[None]] = set()
        self._raised: BaseException | None = None

    def asked(self, request: Request) -> tuple[Signal, ...]:
        """Begin to answer what Codex asks; return what the log gets of it."""
        permission = permission_of(request, self._stream)
        task = asyncio.ensure_future(self._answer(request, permission))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return () if permission is not None else (Noted(kind="raw", body=request.line, actor="system"),)

    def check(self) -> None:
        """Raise what whoever was asked has raised."""
        if self._raised is not None:
            raise self._raised

    async def close(self) -> None:
        """Ask no more."""
        for task in tuple(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _answer(self, request: Request, permission: Permission | None) -> None:
        with contextlib.suppress(EngineError):  # nobody reads it any more: the turn has ended
            if permission is None:
                await _decline(request)
                return
            try:
                permitted = await self._permitted(permission)
            except Exception as raised:  # noqa: BLE001 - it belongs to whoever drives the turn: see `check`
                self._raised = raised
                permitted = Permitted(granted=False)
            await request.reply(answer_to(request, granted=permitted.granted))

    async def _permitted(self, permission: Permission) -> Permitted:
        if permission.tool in self._turn.denied_tools:
            return Permitted(granted=False, note=f"{permission.tool} is denied here.")
        allowed = self._turn.allowed_tools
        if allowed is not None and permission.tool not in allowed:
            return Permitted(granted=False, note=f"{permission.tool} is not among the allowed tools.")
        return NOBODY if self._turn.permit is None else await self._turn.permit(permission)


def permission_of(request: Request, stream: AppServerStream) -> Permission | None:
    """Return what a request of Codex asks permission for; None if it asks for something else."""
    params: dict[str, Any] = request.params if isinstance(request.params, dict) else {}
    call = stream.call_id(params.get("itemId"))
    because = f" ({params['reason']})" if params.get("reason") else ""
    match request.method:
        case "item/commandExecution/requestApproval":
            given = {name: params[name] for name in ("command", "cwd", "reason") if params.get(name)}
            subject = f"run {params.get('command') or 'a command'}{because}"
            return Permission(subject=subject, tool="exec_command", input=given, call=call)
        case "item/fileChange/requestApproval":
            where = f" below {params['grantRoot']}" if params.get("grantRoot") else ""
            subject = f"change files{where}{because}"
            return Permission(subject=subject, tool="apply_patch", input=params, call=call, edits=True)
        case "item/permissions/requestApproval":
            subject = f"get further rights{because}"
            return Permission(subject=subject, tool="permissions", input=params.get("permissions"), call=call)
        case "mcpServer/elicitation/request" if _about_a_call(params):
            meta = params["_meta"]
            name = f"mcp__{params.get('serverName')}__{meta.get('tool_name')}"
            subject = str(params.get("message") or f"call {name}")
            return Permission(subject=subject, tool=name, input=meta.get("tool_params"), call=call)
        case _:
            return None


def answer_to(request: Request, *, granted: bool) -> dict[str, Any]:
    """Return the answer to an approval, in the words that its method has for it."""
    match request.method:
        case "mcpServer/elicitation/request":
            return {"action": "accept", "content": {}} if granted else {"action": "decline", "content": None}
        case "item/permissions/requestApproval":
            asked = request.params.get("permissions") or {}
            return {"permissions": asked if granted else {}, "scope": "turn"}
        case _:
            return {"decision": "accept" if granted else "decline"}


async def _decline(request: Request) -> None:
    """Refuse what nobody here can answer, in the words of its method where it has some."""
    match request.method:
        case "mcpServer/elicitation/request":
            await request.reply({"action": "decline", "content": None})
        case "item/tool/requestUserInput":
            await request.reply({"answers": {}})
        case _:
            await request.refuse(METHOD_NOT_FOUND, f"{request.method} is not offered here")


def _about_a_call(params: dict[str, Any]) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, dict) and meta.get("codex_approval_kind") == "mcp_tool_call"
