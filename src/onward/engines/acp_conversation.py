"""One running agent and the conversation in it: the requests of the Agent Client Protocol, and what comes back in order.

A ``Conversation`` lasts from the start of the program until it is stopped: one turn, or many if it is kept warm. All that
the agent says lands in one ``inbox``, and so does everything else that a turn has to react to (the answer to its prompt,
a decision about a permission, the end of its time), so that whoever takes the turn reads a single ordered queue.

History that an agent replays while it loads a conversation never becomes news: ``load`` throws away everything up to the
answer, and what follows it until the agent has twice answered a question without saying anything in between. Counting
answers instead of seconds is what makes that certain on a slow machine too.

It deliberately offers the agent nothing: no files, no terminals. What it asks for all the same is refused by name.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onward.core.version import VERSION
from onward.engines.acp_agents import AcpAgent, recognised
from onward.engines.acp_words import error_of
from onward.engines.bridge import Bridge
from onward.engines.json_lines import loads
from onward.engines.jsonrpc import METHOD_NOT_FOUND, READ_AHEAD, Notification, Peer, PeerError, Request, Stray
from onward.engines.leases import native_lease
from onward.engines.processes import Child
from onward.errors import EngineError

PROTOCOL: Final = 1
OPEN_SECONDS: Final = 90.0
"""How long an agent may take for each step before the prompt; the first start of some takes half a minute."""
ECHO: Final = "_onward/echo"
"""A method that nobody has (names with an underscore are left to extensions): its refusal is a sign of life."""
ECHO_SECONDS: Final = 2.0
MOST_ECHOES: Final = 2_000
PROMPT_IDS: Final = 1_000_000
"""The ids of prompts begin here, far from those of other requests."""
OTHER_CONVERSATION: Final = 0
"""Our own code for an agent that answers a request to resume with another conversation: that is a refusal too."""
ENDING_SECONDS: Final = 1.0
"""How long the end of the output may come after a prompt has failed for it."""
LIST_PAGES: Final = 20
"""Pages of an agent's list of conversations that are looked through."""
CANCEL_SECONDS: Final = 2.5
"""How long an agent has to answer its prompt once it was told to stop."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the prompt."""

    result: Any = None
    error: PeerError | None = None


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """The agent says no more."""

    why: str = ""
    """What was wrong with its output; empty if it just ended."""


class Offered(msgspec.Struct, kw_only=True):
    """The choices that an agent offers for a conversation."""

    modes: tuple[str, ...] = ()
    mode: str | None = None
    models: tuple[str, ...] = ()
    model: str | None = None
    mode_option: str | None = None
    """The configuration option that sets the mode; None if there is a method for it."""
    model_option: str | None = None


class Conversation:
    """A running agent. Construct it with ``start``; end it with ``stop``."""

    def __init__(self, child: Child, agent: AcpAgent, *, cwd: str, model: str | None) -> None:
        self.child, self.agent, self.cwd = child, agent, cwd
        self.flag_model = model
        """The model that was chosen when the program was started."""
        self.native_id = ""
        self.offered = Offered()
        self.first_mode: str | None = None
        """The mode that it began in, to which ``default`` returns."""
        self.bridge: Bridge | None = None
        self.cost: float | None = 0.0
        """What the conversation had cost, as far as it is known."""
        self.idle_since = 0.0
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        """Read by ``take``. During a prompt the agent waits once ``READ_AHEAD`` bytes are in it."""
        self._unread = 0
        self._room = asyncio.Event()
        self.dropped: Counter[str] = Counter()
        """What was thrown away, by reason."""
        self.loop = asyncio.get_running_loop()
        self._peer = Peer(child)
        self._pump = asyncio.ensure_future(self._pour())
        self._prompts = 0
        self._unanswered: int | None = None
        """The id of the prompt that has no answer yet."""
        self._quiet = asyncio.Event()
        """No prompt waits for its answer, or there will be none."""
        self._quiet.set()
        self._can: dict[str, Any] = {}
        self._methods: tuple[str, ...] = ()
        self._held = contextlib.ExitStack()

    @classmethod
    async def start(
        cls,
        argv: list[str],
        agent: AcpAgent,
        *,
        cwd: str,
        env: Mapping[str, str | None],
        model: str | None,
        auth: str | None,
    ) -> Conversation:
        """Start an agent and get acquainted. Raises EngineError (and its kinds), PeerError."""
        child = await Child.start(argv, cwd=cwd, env=env, name=agent.name)
        made = cls(child, agent, cwd=cwd, model=model)
        try:
            await made._meet(auth)
        except BaseException:
            await made.stop()
            raise
        return made

    async def _meet(self, auth: str | None) -> None:
        nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        who = {"name": "onward", "title": "Onward", "version": VERSION}
        asking = {"protocolVersion": PROTOCOL, "clientCapabilities": nothing, "clientInfo": who}
        try:
            met = await self._ask("initialize", asking)
        except EngineError as error:
            if "initialize" in error.message:
                raise
            # It had ended before it was even asked.
            why = f"it did not take `initialize`: {error.details.get('why', error.message)}"
            raise EngineError(engine=self.agent.name, why=why) from error
        if not isinstance(met, dict) or met.get("protocolVersion") != PROTOCOL:
            speaks = met.get("protocolVersion") if isinstance(met, dict) else met
            why = f"it speaks version {speaks!r} of the Agent Client Protocol; Onward speaks {PROTOCOL}"
            raise EngineError(engine=self.agent.name, why=why)
        self.agent = recognised(self.agent, met.get("agentInfo"))
        can = met.get("agentCapabilities")
        self._can = can if isinstance(can, dict) else {}
        methods = met.get("authMethods")
        self._methods = tuple(
            str(method["id"])
            for method in (methods if isinstance(methods, list) else ())
            if isinstance(method, dict) and "id" in method
        )
        if auth is not None:
            await self._ask("authenticate", {"methodId": auth})

    @property
    def sign_in(self) -> tuple[str, ...]:
        """The ways to sign in that the agent offers."""
        return self._methods

    @property
    def can_resume(self) -> bool:
        """Whether it can go on with a conversation of an earlier process."""
        return self._resumes or self._can.get("loadSession") is True

    @property
    def _resumes(self) -> bool:
        sessions = self._can.get("sessionCapabilities")
        return isinstance(sessions, dict) and isinstance(sessions.get("resume"), dict)

    async def folder_of(self, native_id: str) -> str | None:
        """Return the folder that a conversation belongs to, where the agent lists it.

        Some agents accept another folder when they resume, report that one, and go on working in their own.
        """
        sessions = self._can.get("sessionCapabilities")
        if not isinstance(sessions, dict) or not isinstance(sessions.get("list"), dict):
            return None
        cursor: str | None = None
        for _ in range(LIST_PAGES):
            try:
                listed = await self._ask("session/list", {"cursor": cursor} if cursor else {})
            except PeerError:
                return None
            rows = listed.get("sessions") if isinstance(listed, dict) else None
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict) and row.get("sessionId") == native_id:
                    return _text(row.get("cwd"))
            cursor = _text(listed.get("nextCursor")) if isinstance(listed, dict) else None
            if cursor is None:
                return None
        return None

    async def new(self) -> None:
        """Begin a new conversation. Raises PeerError, EngineError."""
        result = await self._ask("session/new", {"cwd": self.cwd, "mcpServers": self._servers()})
        native = result.get("sessionId") if isinstance(result, dict) else None
        if not isinstance(native, str) or not native:
            raise EngineError(engine=self.agent.name, why="it answered session/new without an id")
        self._held.enter_context(native_lease(self.agent.name, native))
        self.native_id, self.cost = native, 0.0
        self._took(result)

    async def resume(self, native_id: str) -> None:
        """Go on with a conversation. Raises PeerError when it does not know it, NativeSessionBusy, EngineError."""
        self._held.enter_context(native_lease(self.agent.name, native_id))
        given = {"sessionId": native_id, "cwd": self.cwd, "mcpServers": self._servers()}
        try:
            method = "session/resume" if self._resumes else "session/load"
            result = await self._ask(method, given)
            answered = result.get("sessionId", native_id) if isinstance(result, dict) else native_id
            if answered != native_id:
                raise PeerError(OTHER_CONVERSATION, f"asked for {native_id}, it opened {answered}")
            self._throw_away("replayed history")
            if method == "session/load":
                await self._until_quiet()
        except BaseException:
            self._held.close()
            self._throw_away("replayed history")
            raise
        self.native_id, self.cost = native_id, None
        self._took(result)

    async def _until_quiet(self) -> None:
        """Throw away the rest of a history that is replayed after the answer."""
        silent = 0
        for _ in range(MOST_ECHOES):
            try:
                await self._peer.request(ECHO, {}, timeout=ECHO_SECONDS)
            except PeerError:
                pass  # the answer that was expected
            except EngineError:
                return  # it does not answer what it does not know, or it died, which the prompt will show
            silent = 0 if self._throw_away("replayed history") else silent + 1
            if silent == 2:
                return

    async def choose_mode(self, mode: str) -> None:
        """Set a mode that is offered. Raises PeerError, EngineError."""
        if mode == self.offered.mode:
            return
        if self.offered.mode_option is None:
            await self._ask("session/set_mode", {"sessionId": self.native_id, "modeId": mode})
        else:
            await self._configure(self.offered.mode_option, mode)
        self.offered.mode = mode

    async def choose_model(self, model: str) -> bool:
        """Set the model; return whether it is offered. Raises PeerError, EngineError."""
        ends = [known for known in self.offered.models if known.endswith(f"/{model}")]
        found = model if model in self.offered.models else ends[0] if len(ends) == 1 else None
        if found is None:
            return False
        if found != self.offered.model:
            if self.offered.model_option is None:
                await self._ask("session/set_model", {"sessionId": self.native_id, "modelId": found})
            else:
                await self._configure(self.offered.model_option, found)
            self.offered.model = found
        return True

    async def _configure(self, option: str, value: str) -> None:
        given = {"sessionId": self.native_id, "configId": option, "value": value}
        await self._ask("session/set_config_option", given)

    async def prompt(self, text: str) -> None:
        """Send a prompt; its answer comes into the inbox, in its place among what the agent says."""
        self._throw_away("said between turns")
        self._prompts += 1
        self._unanswered = PROMPT_IDS + self._prompts
        self._quiet.clear()
        content = [{"type": "text", "text": text}]
        # Not as a request that is waited for: where its answer stands among the updates is what separates this turn
        # from what comes too late.
        request = {
            "jsonrpc": "2.0",
            "id": self._unanswered,
            "method": "session/prompt",
            "params": {"sessionId": self.native_id, "prompt": content},
        }
        try:
            await self._peer.write(request)
        except EngineError as gone:
            # If it ended, the pump has its own word for that, with what was wrong if its output was.
            await asyncio.wait({self._pump}, timeout=ENDING_SECONDS)
            if not self._pump.done():
                self.inbox.put_nowait(Over(why=gone.message))

    async def cancel(self) -> bool:
        """Tell the agent to stop, and wait a little until it has; return whether it can take another prompt."""
        if not self._quiet.is_set():
            declining = asyncio.ensure_future(self._decline_all())
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    with contextlib.suppress(EngineError):  # it may read no more, or nothing at all
                        await self._peer.notify("session/cancel", {"sessionId": self.native_id})
                    await self._quiet.wait()
            except TimeoutError:
                return False
            finally:
                declining.cancel()
        return self.child.exit_code is None and not self._pump.done()

    async def _decline_all(self) -> None:
        """Answer questions that are open as cancelled, or the agent would wait for somebody."""
        with contextlib.suppress(EngineError):
            while True:
                await self.decline(await self.take())

    async def decline(self, item: Any) -> None:
        """Answer a request that nobody looks at any more. Raises EngineError if the agent does not listen."""
        if not isinstance(item, Request):
            return
        if item.method == "session/request_permission":
            await item.reply({"outcome": {"outcome": "cancelled"}})
        else:
            await self.refuse(item)

    async def refuse(self, request: Request) -> None:
        """Refuse what was not offered."""
        self.dropped[f"asked for {request.method}"] += 1
        await request.refuse(METHOD_NOT_FOUND, f"{request.method} is not offered by this client")

    async def stop(self) -> None:
        """End the agent and everything it started, and give the conversation free. Safe to call twice."""
        try:
            await self.child.stop()
        finally:
            self._pump.cancel()
            self._peer.close()
            if self.bridge is not None:
                bridge, self.bridge = self.bridge, None
                await bridge.__aexit__(None, None, None)
            self._held.close()

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        return await self._peer.request(method, params, timeout=OPEN_SECONDS)

    def _servers(self) -> list[dict[str, Any]]:
        """Return our MCP server in the words of the protocol."""
        if self.bridge is None:
            return []
        command, *arguments = self.bridge.command
        env = [{"name": name, "value": value} for name, value in self.bridge.env.items()]
        return [{"name": self.bridge.server, "command": command, "args": arguments, "env": env}]

    def _took(self, result: Any) -> None:
        """Read which choices are offered."""
        self.offered = offered(result)
        self.first_mode = self.offered.mode

    def _throw_away(self, why: str) -> int:
        """Empty the inbox; return how many updates of the conversation were in it."""
        count = 0
        while not self.inbox.empty():
            item = self._taken(self.inbox.get_nowait())
            if isinstance(item, Over):
                self.inbox.put_nowait(item)
                break
            if isinstance(item, Request):
                refusing = asyncio.ensure_future(self._declined(item))
                refusing.add_done_callback(lambda _: None)
                continue
            count += isinstance(item, Notification)
            self.dropped[why] += 1
        return count

    async def take(self) -> Any:
        """Return the next thing that came into the inbox, waiting for it."""
        return self._taken(await self.inbox.get())

    def _taken(self, item: Any) -> Any:
        self._unread -= _size(item)
        if self._unread <= READ_AHEAD:
            self._room.set()
        return item

    async def _declined(self, item: Request) -> None:
        with contextlib.suppress(EngineError):
            await self.decline(item)

    async def _pour(self) -> None:
        why = ""
        try:
            async for message in self._peer.incoming():
                answer = self._answer_in(message) if isinstance(message, Stray) else None
                self._unread += _size(message if answer is None else answer)
                self.inbox.put_nowait(message if answer is None else answer)
                while self._unread > READ_AHEAD and not self._quiet.is_set():
                    self._room.clear()
                    await self._room.wait()
        except EngineError as fault:
            why = fault.message
        finally:
            self._quiet.set()
        self.inbox.put_nowait(Over(why=why))

    def _answer_in(self, stray: Stray) -> Answered | None:
        """Return the answer to the prompt, if that is what a line is that answers no request."""
        if self._unanswered is None:
            return None
        try:
            message = loads(stray.line)
        except ValueError:
            return None
        if not isinstance(message, dict) or message.get("id") != self._unanswered:
            return None
        self._unanswered = None
        self._quiet.set()
        if message.get("error") is not None:
            return Answered(error=error_of(message["error"]))
        return Answered(result=message.get("result"))


def _size(item: Any) -> int:
    """Return how many bytes the agent wrote for this."""
    return len(item.line) if isinstance(item, Notification | Request | Stray) else 0


def offered(result: Any) -> Offered:
    """Return the choices in the answer to ``session/new``, ``load`` or ``resume``, in either form of the protocol."""
    given = result if isinstance(result, dict) else {}
    made = Offered()
    modes, models = given.get("modes"), given.get("models")
    if isinstance(modes, dict):
        made.modes, made.mode = _ids(modes.get("availableModes"), "id"), _text(modes.get("currentModeId"))
    if isinstance(models, dict):
        made.models = _ids(models.get("availableModels"), "modelId")
        made.model = _text(models.get("currentModelId"))
    options = given.get("configOptions")
    for option in options if isinstance(options, list) else ():
        if not isinstance(option, dict) or not isinstance(option.get("id"), str):
            continue
        values, current = _values(option.get("options")), _text(option.get("currentValue"))
        if option.get("category") == "mode" and not made.modes:
            made.modes, made.mode, made.mode_option = values, current, option["id"]
        if option.get("category") == "model" and not made.models:
            made.models, made.model, made.model_option = values, current, option["id"]
    return made


def _values(options: Any) -> tuple[str, ...]:
    """Return the values of a list of options, which may be in groups."""
    found: list[str] = []
    for option in options if isinstance(options, list) else ():
        if isinstance(option, dict):
            found += _values(option["options"]) if "options" in option else _ids([option], "value")
    return tuple(found)


def _ids(rows: Any, name: str) -> tuple[str, ...]:
    found = [row.get(name) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return tuple(value for value in found if isinstance(value, str))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
