"""The engine for agents that speak the Agent Client Protocol: opencode, Gemini CLI, Qwen Code, adapters, any command.

A turn is: start the program (or take the one that was kept warm), go on with the conversation or begin one, say
``Started``, send one prompt, and pass on what comes until the prompt is answered. That answer alone ends a turn well.
What the messages mean is in ``acp_stream``, the requests are in ``acp_conversation``, what is special about an agent is
data in ``acp_agents``; this module decides in which order things happen and what is true when one of them fails.

The order that it keeps: a conversation is leased before it is touched; ``Started`` says ``resumed`` only after the agent
accepted exactly the id that was asked for, in the folder of this turn; the brief and the input travel in one text, once,
and only to a conversation that is new; our tools run only after their call is logged; and however a turn ends, the agent
was told to stop first and nothing that it started is left, unless it waits warm for the next turn.

It deliberately offers the agent no files and no terminal. An agent that works by itself is held to a permission mode only
as far as it asks; what it does without asking is in the log, not in our power (``docs/engines.md`` says what each asks).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from onward.engines.acp_agents import PLAIN, AcpAgent
from onward.engines.acp_conversation import OTHER_CONVERSATION, Answered, Conversation, Over
from onward.engines.acp_permissions import Answer, by_rule
from onward.engines.acp_stream import AcpStream, Asked
from onward.engines.acp_words import chosen, failure
from onward.engines.bridge import Bridge
from onward.engines.calling import Numbers
from onward.engines.contract import (
    Awake,
    Capabilities,
    Finished,
    Signal,
    Started,
    ToolAnswered,
    ToolCalled,
    Turn,
)
from onward.engines.jsonrpc import Notification, PeerError, Request, Stray
from onward.engines.processes import program
from onward.errors import EngineError, NativeSessionBusy, ProgramMissing

SERVER: Final = "onward"
"""The name of our MCP server in the agent's eyes."""
NEVER_TOLD: Final = 1.0
"""Seconds in which a program that has ended may still be heard."""


class _TimeUp(msgspec.Struct, frozen=True):
    """The turn has taken as long as it may."""


class _Decided(msgspec.Struct, frozen=True):
    """Somebody answered a question for permission."""

    request: Request
    asked: Asked
    answer: Answer


class _Raised(msgspec.Struct, frozen=True):
    """Whoever was asked for permission raised this: it belongs to whoever drives the turn (a lost lease)."""

    error: Exception


class _Refused(Exception):
    """The turn cannot begin; the value is its end."""

    def __init__(self, end: Finished) -> None:
        super().__init__(end.reason)
        self.end = end


class AcpEngine:
    """Any agent that speaks the protocol on its standard streams.

    ``command`` is what starts it, as words. ``env`` is added to its environment (None removes a variable). ``warm`` keeps
    its process for the next turn of the session. ``timeout`` is in seconds for a whole turn. ``auth`` is the id of a way to
    sign in that the agent offers, for agents that ask for one.
    """

    _agent: AcpAgent = PLAIN

    def __init__(
        self,
        *,
        command: str | Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        warm: bool = False,
        timeout: float | None = None,
        auth: str | None = None,
    ) -> None:
        self._command: str | Sequence[str] | None = command
        self._env = dict(env or {})
        self._warm, self._timeout, self._auth = warm, timeout, auth
        self._waiting: dict[str, Conversation] = {}
        self.dropped: Counter[str] = Counter()
        """What was left out on purpose in all turns so far, by reason: replayed history, menus, requests refused."""

    @property
    def name(self) -> str:
        return self._agent.name

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            memory=True, reads="text", tools=True, streaming=True, acts=True, permissions=True
        )

    def unavailable(self) -> str | None:
        if not self._command and not self._agent.program:
            return "no command was given; say which agent answers with the engine option `command`: ['my-agent', '--acp']"
        if self._argv(None) is None:
            given = self._command if isinstance(self._command, str) else (*(self._command or ()), "")[0]
            wanted = given or self._agent.program
            package = f"install it (npm install -g {self._agent.package}), or " if self._agent.package else ""
            option = "program" if self._agent.program else "command"
            return f"there is no program {wanted!r} here; {package}say where it is with the engine option `{option}`"
        return None

    def _argv(self, model: str | None) -> list[str] | None:
        """Return the words that start the agent; None if it is not there."""
        words = program(self._agent.program, self._command or None)
        if words is None:
            return None
        chosen_model = [self._agent.model_flag, model] if self._agent.model_flag and model else []
        return [*words, *self._agent.arguments, *chosen_model]

    async def before_resuming(self, native_id: str) -> None:
        """Get ready to resume a conversation in a new process; for agents that need some care (see ``acp_presets``)."""

    def after_stopping(self, native_id: str) -> None:
        """Do what is due once the process of a conversation has ended."""

    async def run(self, turn: Turn) -> AsyncGenerator[Signal, None]:
        """Take a turn, see the module."""
        numbers = Numbers(turn.run_id)
        talk: Conversation | None = None
        keep = False
        loop = asyncio.get_running_loop()
        ends_at = None if self._timeout is None else loop.time() + self._timeout
        try:
            try:
                async with asyncio.timeout_at(ends_at):
                    talk, started = await self._open(turn, numbers)
            except TimeoutError:
                raise _Refused(self._too_long()) from None
            except PeerError as error:
                raise _Refused(failure(error, did_nothing=True)) from None
            except NativeSessionBusy as busy:
                end = Finished(status="failed", reason=busy.message, code="busy", retryable=True)
                raise _Refused(end) from None
            except ProgramMissing as missing:
                raise _Refused(
                    Finished(status="failed", reason=missing.message, code="not_installed")
                ) from None
            except EngineError as fault:
                raise _Refused(Finished(status="failed", reason=fault.message, code="crashed")) from None
            yield started
            try:
                async with asyncio.timeout_at(ends_at):
                    await talk.prompt(_in_front(turn, new=not started.resumed))
            except TimeoutError:
                raise _Refused(self._too_long()) from None
            stream = AcpStream(
                next_call=numbers.next,
                agent=talk.agent,
                server=SERVER,
                tools=() if talk.bridge is None else talk.bridge.names,
                native_id=talk.native_id,
                model=talk.offered.model or talk.flag_model,
                cost_before=talk.cost,
            )
            timer = loop.call_at(ends_at, talk.inbox.put_nowait, _TimeUp()) if ends_at is not None else None
            try:
                async for signal in self._take(turn, talk, stream):
                    if not isinstance(signal, Finished):
                        yield signal
                        continue
                    self.dropped += stream.dropped
                    talk.cost = stream.cost
                    keep = await self._quiet(talk) and self._warm
                    if not keep:
                        await self._stop(talk)  # the end is said when it is one
                    yield signal
            finally:
                if timer is not None:
                    timer.cancel()
        except _Refused as refused:
            yield refused.end
        finally:
            if talk is not None:
                await self._let_go(turn, talk, keep=keep)

    async def _quiet(self, talk: Conversation) -> bool:
        """Return whether the agent can take another turn, telling it to stop this one if it has not ended."""
        if not await talk.cancel():
            return False
        if talk.bridge is not None:
            await talk.bridge.rest()
        return True

    async def _let_go(self, turn: Turn, talk: Conversation, *, keep: bool) -> None:
        """Keep the agent for the next turn, or end it; stopped in the middle of a turn, it is told so first."""
        if not keep:
            try:
                keep = await self._quiet(talk) and self._warm
            finally:
                if not keep:
                    await self._stop(talk)
        if keep and talk.child.exit_code is None:
            talk.idle_since = time.monotonic()
            other = self._waiting.pop(turn.session_id, None)
            self._waiting[turn.session_id] = talk
            if other is not None:  # two turns of one session at once, each in a conversation of its own
                await self._stop(other)

    async def _stop(self, talk: Conversation) -> None:
        self.dropped += talk.dropped
        talk.dropped.clear()
        try:
            await talk.stop()
        finally:
            if talk.native_id:
                self.after_stopping(talk.native_id)

    async def _take(self, turn: Turn, talk: Conversation, stream: AcpStream) -> AsyncGenerator[Signal, None]:
        """Yield the signals of the prompt that was sent, the last of them its end."""
        asking: set[asyncio.Task[None]] = set()
        bridge, messages = talk.bridge, _messages(talk)
        along: AsyncIterator[Any] = messages if bridge is None else bridge.along(messages)
        try:
            async for item in along:
                if isinstance(item, ToolCalled | ToolAnswered):
                    if isinstance(item, ToolCalled):
                        for signal in stream.flush():
                            yield signal
                    yield item
                    continue
                for signal in await self._heard(turn, talk, stream, item, asking):
                    yield signal
                    if isinstance(signal, Finished):
                        return
                while stream.coming and bridge is not None:
                    bridge.saw(stream.coming.pop(0))
            # Only a tool that ended the turn ends the stream before the prompt is answered.
            for signal in (*stream.broken(), Finished(status="continued", reason="a tool ended the turn")):
                yield signal
        finally:
            for task in asking:
                task.cancel()
            if bridge is not None:
                await along.aclose()  # type: ignore[attr-defined]
            await messages.aclose()

    async def _heard(
        self,
        turn: Turn,
        talk: Conversation,
        stream: AcpStream,
        item: Any,
        asking: set[asyncio.Task[None]],
    ) -> tuple[Signal, ...]:
        """Return what follows from one thing that came into the inbox."""
        match item:
            case Notification(method="session/update"):
                return stream.update(item.params, item.line)
            case Notification() if item.method.startswith("_"):
                talk.dropped[f"told {item.method}"] += 1
            case Notification() | Stray():
                return stream.stray(item.line)
            case Request(method="session/request_permission"):
                signals, asked = stream.asked(item.params)
                await self._question(turn, talk, item, asked, asking)
                return signals
            case Request():
                with contextlib.suppress(EngineError):
                    await talk.refuse(item)
            case _Raised():
                raise item.error
            case _Decided():
                return await self._decided(stream, item)
            case Answered(error=None):
                return stream.answered(item.result)
            case Answered(error=PeerError() as error):
                nothing = not stream.effects
                return (*stream.broken(), failure(error, did_nothing=nothing))
            case _TimeUp():
                return (*stream.broken(), self._too_long())
            case Over():
                return (*stream.broken(), await self._crashed(talk, item))
        return ()

    async def _question(
        self,
        turn: Turn,
        talk: Conversation,
        request: Request,
        asked: Asked,
        asking: set[asyncio.Task[None]],
    ) -> None:
        """Have a question answered: by rule at once, or by somebody, which may take its time."""
        answer = by_rule(turn, asked)
        if answer is not None:
            talk.inbox.put_nowait(_Decided(request, asked, answer))
            return
        assert turn.permit is not None
        permit = turn.permit

        async def ask() -> None:
            try:
                permitted = await permit(asked.permission)
            except Exception as raised:  # noqa: BLE001 - see `_Raised`
                talk.inbox.put_nowait(_Raised(raised))
                return
            talk.inbox.put_nowait(
                _Decided(request, asked, Answer(granted=permitted.granted, why=permitted.note))
            )

        task = asyncio.ensure_future(ask())
        asking.add(task)
        task.add_done_callback(asking.discard)

    async def _decided(self, stream: AcpStream, item: _Decided) -> tuple[Signal, ...]:
        option = chosen(item.asked.options, granted=item.answer.granted)
        if not item.answer.granted or option is None:
            stream.refused(item.request.params, item.answer.why or "It was not permitted.")
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        with contextlib.suppress(EngineError):
            await item.request.reply({"outcome": outcome})
        return ()

    async def _crashed(self, talk: Conversation, over: Over) -> Finished:
        if over.why:
            return Finished(status="failed", reason=over.why, code="protocol")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEVER_TOLD):
                await talk.child.wait()
        code = talk.child.exit_code
        how = "closed its output" if code is None else f"ended ({_ending(code)})"
        tail = talk.child.stderr_tail().strip()
        last = f" The last it wrote to standard error: {tail.splitlines()[-1][:500]}" if tail else ""
        reason = f"The agent {how} before it answered the prompt.{last}"
        return Finished(status="failed", reason=reason, code="crashed")

    def _too_long(self) -> Finished:
        reason = f"The turn took longer than its {self._timeout:g} seconds and was stopped."
        return Finished(status="failed", reason=reason, code="timeout")

    async def _open(self, turn: Turn, numbers: Numbers) -> tuple[Conversation, Started]:
        """Return the agent in the conversation of this turn, and how it came into it."""
        cwd = _folder(turn.workdir)
        talk = self._waiting.pop(turn.session_id, None)
        if talk is not None:
            if self._still_fits(talk, turn, cwd):
                assert talk.bridge is not None
                try:
                    talk.bridge.renew(turn, numbers=numbers)
                    await self._settle(talk, turn)
                except BaseException:
                    await self._stop(talk)
                    raise
                model = talk.offered.model or talk.flag_model
                return talk, Started(model=model, native_id=talk.native_id, resumed=True)
            await self._stop(talk)
        if turn.native is not None:
            await self.before_resuming(turn.native.id)
        argv = self._argv(turn.model)
        if argv is None:
            why = self.unavailable() or "it is not there"
            raise _Refused(Finished(status="failed", reason=why, code="not_installed"))
        model = turn.model if self._agent.model_flag else None
        env = {**self._agent.environment_here(os.environ), **self._env}
        talk = await Conversation.start(argv, self._agent, cwd=cwd, env=env, model=model, auth=self._auth)
        try:
            if turn.tools or self._warm:
                talk.bridge = await Bridge(turn, server=SERVER, numbers=numbers).__aenter__()
            started = await self._into_conversation(talk, turn)
            await self._settle(talk, turn)
        except BaseException:
            await self._stop(talk)
            raise
        return talk, msgspec.structs.replace(started, model=talk.offered.model or talk.flag_model)

    def _still_fits(self, talk: Conversation, turn: Turn, cwd: str) -> bool:
        """Return whether the agent that waits is the one for this turn."""
        return (
            talk.loop is asyncio.get_running_loop()
            and talk.child.exit_code is None
            and turn.native is not None
            and turn.native.id == talk.native_id
            and cwd == talk.cwd
            and (turn.model is None or not self._agent.model_flag or turn.model == talk.flag_model)
        )

    async def _into_conversation(self, talk: Conversation, turn: Turn) -> Started:
        """Go on with the conversation that was asked for, or begin one."""
        why = ""
        if turn.native is not None:
            why = await self._resume(talk, turn.native.id)
            if not why:
                return Started(native_id=talk.native_id, resumed=True)
            if turn.native_only:
                raise _Refused(Finished(status="failed", reason=why, code="resume_refused"))
        try:
            await talk.new()
        except PeerError as error:
            end = failure(error, did_nothing=True)
            if end.code == "authentication" and talk.sign_in:
                ways = ", ".join(talk.sign_in)
                reason = f"{end.reason} It offers to sign in by {ways}: name one with the option auth."
                end = msgspec.structs.replace(end, reason=reason)
            raise _Refused(end) from None
        return Started(native_id=talk.native_id, briefed=bool(turn.brief.strip()), why=why)

    async def _resume(self, talk: Conversation, native_id: str) -> str:
        """Go on with a conversation; return why that was not possible, or nothing."""
        if not talk.can_resume:
            return "This agent cannot go on with an earlier conversation."
        folder = await talk.folder_of(native_id)
        if folder is not None and not _same_folder(folder, talk.cwd):
            return f"Its own conversation belongs to another folder, {folder}, and would go on working there."
        try:
            await talk.resume(native_id)
        except PeerError as error:
            if error.code == OTHER_CONVERSATION:
                return "The agent opened another conversation than the one that it was asked for."
            # Its own words may tell another story than ours, so they are not quoted.
            return f"The agent does not know its own conversation any more (it answered with error {error.code})."
        return ""

    async def _settle(self, talk: Conversation, turn: Turn) -> None:
        """Set the mode and the model that the turn asks for."""
        wanted = talk.agent.modes.get(turn.permission_mode, ())
        mode = next((mode for mode in wanted if mode in talk.offered.modes), None)
        if mode is None and turn.permission_mode == "plan":
            modes = ", ".join(talk.offered.modes) or "none"
            reason = f"This agent has no mode in which it only plans; it offers: {modes}."
            raise _Refused(Finished(status="failed", reason=reason, code="invalid_request"))
        if mode is None:
            mode = talk.first_mode
        if mode is not None:
            await talk.choose_mode(mode)
        if turn.model is None or turn.model == talk.flag_model:
            return
        if not await talk.choose_model(turn.model):
            models = ", ".join(talk.offered.models) or "no choice of models"
            reason = f"This agent does not offer the model {turn.model}; it offers: {models}."
            raise _Refused(Finished(status="failed", reason=reason[:2_000], code="invalid_request"))

    def awake(self) -> tuple[Awake, ...]:
        return tuple(
            Awake(session_id=session, idle_since=talk.idle_since, pid=talk.child.pid)
            for session, talk in self._waiting.items()
        )

    async def sleep(self, session_id: str) -> bool:
        talk = self._waiting.pop(session_id, None)
        if talk is None:
            return False
        await self._stop(talk)
        return True

    async def aclose(self) -> None:
        for session in tuple(self._waiting):
            await self.sleep(session)


async def _messages(talk: Conversation) -> AsyncGenerator[Any, None]:
    """Yield what comes into the inbox."""
    while True:
        yield await talk.take()


def _in_front(turn: Turn, *, new: bool) -> str:
    """Return the prompt: to a new conversation with the control text and the brief in front of the input."""
    parts = (turn.system, turn.brief, turn.input) if new else (turn.input,)
    return "\n\n".join(part for part in parts if part.strip())


def _folder(workdir: str | None) -> str:
    return os.path.abspath(workdir or os.getcwd())


def _same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
