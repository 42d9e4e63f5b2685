"""The other way to drive Codex, one process a turn: ``codex exec --json``, where app-server does not start.

``ExecStream`` is pure and translates its lines; ``exec_turn`` starts the process. Against app-server it gives less: no
pieces of text as they are produced, nobody is asked for permission (what the sandbox of the mode does not allow, fails),
an interruption is a signal to the process, and the prompt goes out together with the question for a thread, so that
``Started`` can come only after it.

Two traps decide what is here. ``resume`` with anything but the id of a thread, or with a name, begins a new thread and
ends with code 0: so only ids are passed, and what ``thread.started`` reports is compared with what was asked for; another
thread is stopped at once and never reported as resumed. And the usage that is told counts from the thread's beginning:
what a turn used is known only where the count before it is (a new thread, or a turn that this engine drove).

Source: ``codex exec --help`` and streams of versions 0.128 and 0.171.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from onward.core.bodies import Usage
from onward.core.codec import loads
from onward.engines.bridge import Bridge
from onward.engines.calling import Numbers
from onward.engines.codex_calls import (
    Item,
    answer_of,
    call_of,
    failure_of,
    ident,
    kind_of,
    plan_of,
    says_what,
)
from onward.engines.codex_server import MODES, OutOfTime, Setup, left_out, timed, tools_server
from onward.engines.contract import (
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    Started,
    Thought,
    ToolAnswered,
    ToolCalled,
    Turn,
)
from onward.engines.leases import native_lease
from onward.engines.processes import Child
from onward.errors import EngineError

EXIT_SECONDS: Final = 5.0
"""How long the process has to write its files and end, once it has said how its turn ended."""
NOISE: Final = frozenset(("turn.started",))
"""Records that are not kept: the first says only that there will be others."""
Counts = dict[str, int]


class ExecStream:
    """The lines of one process, translated as they come.

    ``asked`` is the thread that is to be resumed; ``before`` what that thread had used, where that is known (a new thread
    has used nothing).
    """

    def __init__(
        self,
        *,
        next_call: Callable[[], str],
        asked: str | None = None,
        before: Counts | None = None,
        model: str | None = None,
        ours: str = "onward",
    ) -> None:
        self.thread: str | None = None
        """The thread it works in, once it has said so."""
        self.finished: Finished | None = None
        self.total: Counts | None = None
        """What the thread has used, with this turn."""
        self.acted = False
        self.asked_for: str | None = None
        """The tool of ours that the last line says is being called."""
        self.trouble = ""
        self._asked, self._model, self._ours = asked, model, ours
        self._before: Counts | None = before if asked is not None else {}
        self._next_call = next_call
        self._calls: dict[str, str] = {}
        self._revision = 0

    @property
    def elsewhere(self) -> bool:
        """It works in another thread than the one that was asked for."""
        return self._asked is not None and self.thread not in (None, self._asked)

    def line(self, data: bytes) -> tuple[Signal, ...]:
        """Translate one line. What is not known is kept as a raw record."""
        self.asked_for = None
        if not data.strip():
            return ()
        kept = Noted(kind="raw", body=data, actor="system")
        try:
            record = loads(data)
        except ValueError:
            return (kept,)
        if not isinstance(record, dict):
            return (kept,)
        kind, item = record.get("type"), record.get("item")
        match kind:
            case "thread.started":
                self.thread = str(record.get("thread_id"))
                return ()
            case "item.started" | "item.updated" | "item.completed" if isinstance(item, dict):
                return self._item(str(kind), item, kept)
            case "turn.completed":
                self.finished = Finished(status="completed")
                return self._measured(record.get("usage"))
            case "turn.failed":
                failure = failure_of(record.get("error"))
                retryable = failure.passes and not self.acted
                self.finished = Finished(
                    status="failed", reason=failure.reason, code=failure.code, retryable=retryable
                )
                return ()
            case "error":
                # A reconnection, or the failure that turn.failed says again.
                self.trouble = str(record.get("message", ""))
                return (kept,)
            case _:
                return () if isinstance(kind, str) and kind in NOISE else (kept,)

    def _item(self, kind: str, item: Item, kept: Noted) -> tuple[Signal, ...]:
        done, native = kind == "item.completed", str(item.get("id"))
        match kind_of(item):
            case "agentMessage":
                text = str(item.get("text") or "")
                return (Said(text=text, model=self._model),) if done and text else ()
            case "reasoning":
                text = str(item.get("text") or "")
                return (Thought(text=text),) if done and text else ()
            case "todoList":
                self._revision += 1
                return (Noted(kind="plan", body=plan_of(self._revision, item.get("items"))),)
        asked = call_of(item)
        if asked is None:
            return (kept,)
        if kind_of(item) == "mcpToolCall" and item.get("server") == self._ours:
            self.asked_for = str(item.get("tool")) if kind == "item.started" else None
            return ()
        signals: list[Signal] = []
        if native not in self._calls and (done or says_what(item)):
            self.acted = True
            self._calls[native] = self._next_call()
            signals.append(
                ToolCalled(call=self._calls[native], name=asked.name, input=asked.input, provider_call=native)
            )
        if done:
            ended = answer_of(item)
            call = self._calls.pop(native)
            signals.append(ToolAnswered(call=call, output=ended.output, status=ended.status, name=asked.name))
        return tuple(signals)

    def _measured(self, usage: Any) -> tuple[Signal, ...]:
        if not isinstance(usage, dict):
            return ()
        total = self.total = {name: count for name, count in usage.items() if isinstance(count, int)}
        if self._before is None:
            return ()
        before = self._before
        turn = {name: max(0, count - before.get(name, 0)) for name, count in total.items()}
        used = Usage(
            input_tokens=turn.get("input_tokens"),
            output_tokens=turn.get("output_tokens"),
            cache_read_tokens=turn.get("cached_input_tokens"),
            cache_write_tokens=turn.get("cache_write_input_tokens"),
        )
        return (Measured(usage=used),)


async def exec_turn(
    turn: Turn, setup: Setup, *, seconds: float | None = None, spent: dict[str, Counts] | None = None
) -> AsyncGenerator[Signal, None]:
    """Take a turn with ``codex exec``, in at most so many seconds. ``spent`` holds what threads had used, and is kept up."""
    spent = {} if spent is None else spent
    if turn.options:
        reason = f"codex exec takes no options of a turn; these were given: {', '.join(sorted(turn.options))}"
        yield Finished(status="failed", reason=reason, code="invalid_request")
        return
    if turn.history and not turn.brief:
        reason = (
            "codex exec can be told what came before as a brief only, and there are messages and no brief"
        )
        yield Finished(status="failed", reason=reason, code="invalid_request")
        return
    numbers = Numbers(turn.run_id)
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    native, why = (turn.native.id if turn.native else None), ""
    if native is not None and not ident(native):
        native, why = None, f"Codex could not open {native}: it is no id of a thread."
    try:
        if native is not None:
            with native_lease("codex", native, who=turn.run_id):
                taken = _Taken(turn, setup, numbers, resume=native, spent=spent)
                async with aclosing(taken.signals(until)) as signals:
                    async for signal in signals:
                        yield signal
            why = taken.why
        if turn.native is None or why:
            if turn.native_only:
                yield Finished(status="failed", reason=why, code="resume_refused")
                return
            taken = _Taken(turn, setup, numbers, why=why, spent=spent)
            async with aclosing(taken.signals(until)) as signals:
                async for signal in signals:
                    yield signal
    except EngineError as failed:
        code = "busy" if failed.code == "busy" else "crashed"
        yield Finished(status="failed", reason=failed.message, code=code, retryable=code == "busy")


class _Taken:
    """One process."""

    def __init__(
        self,
        turn: Turn,
        setup: Setup,
        numbers: Numbers,
        *,
        spent: dict[str, Counts],
        resume: str | None = None,
        why: str = "",
    ) -> None:
        self.turn, self.why = turn, why
        """``why``: why it did not resume what it was asked to."""
        self._setup, self._resume, self._spent = setup, resume, spent
        self._numbers = numbers
        self._model = turn.model or setup.config.get("model")
        """As far as we know: this mode does not tell."""
        self._stream = ExecStream(
            next_call=numbers.next,
            asked=resume,
            before=spent.get(resume) if resume else None,
            model=self._model,
        )

    async def signals(self, until: float | None) -> AsyncGenerator[Signal, None]:
        """Tell what happens. Ends without ``Finished``, and with a ``why``, where it could not resume."""
        turn, stream = self.turn, self._stream
        end: Finished | None = None
        async with Bridge(turn, numbers=self._numbers) as bridge, contextlib.AsyncExitStack() as stack:
            child = await Child.start(
                self._arguments(bridge), cwd=turn.workdir, env=self._setup.env, name="codex"
            )
            stack.push_async_callback(child.stop)
            await child.send(self._prompt().encode("utf-8", "replace"), end=b"")
            await child.close_stdin()
            try:
                together = cast(AsyncGenerator[Any, None], bridge.along(timed(child.lines(), until)))
                async with aclosing(together) as along:
                    async for heard in along:
                        if isinstance(heard, Signal):
                            stream.acted = stream.acted or isinstance(heard, ToolCalled)
                            yield heard
                            continue
                        known = stream.thread
                        signals = stream.line(heard)
                        if stream.elsewhere:
                            self.why = f"Codex began {stream.thread} in the place of {self._resume}."
                            return
                        if known is None and stream.thread is not None:
                            lease = native_lease("codex", stream.thread, who=turn.run_id)
                            if self._resume is None:
                                stack.enter_context(lease)
                            yield self._started(stream.thread)
                        for signal in signals:
                            yield signal
                        if stream.asked_for is not None:
                            bridge.saw(stream.asked_for)
                        if stream.finished is not None:
                            break
            except OutOfTime:
                end = Finished(
                    status="failed", reason="the turn took too long, and was stopped", code="timeout"
                )
            if end is None and bridge.ended.is_set():
                end = Finished(status="continued", reason="a tool ended the turn")
            if end is None and stream.finished is not None:
                if stream.total is not None and stream.thread is not None:
                    self._spent[stream.thread] = stream.total
                end = stream.finished
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.wait(), EXIT_SECONDS)
            if end is None:
                end = await self._unsaid(child)
        if end is not None:
            yield end

    async def _unsaid(self, child: Child) -> Finished | None:
        """Return the end of a process that did not say how its turn ended; None if it could not resume."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), EXIT_SECONDS)
        said = child.stderr_tail().strip().splitlines()
        last = next((line for line in reversed(said) if line.startswith("Error:")), said[-1] if said else "")
        if self._stream.thread is None:
            failure = failure_of(_plain(last) or "it gave no reason")
            if failure.code == "busy":
                return Finished(status="failed", reason=failure.reason, code="busy", retryable=True)
            if self._resume is not None:
                self.why = f"Codex could not open {self._resume}: {failure.reason}."
                return None
        trouble = f"; before that: {self._stream.trouble}" if self._stream.trouble else ""
        reason = f"codex exec ended (exit code {child.exit_code}) without saying how its turn did"
        return Finished(status="failed", reason=f"{reason}{child.last_words()}{trouble}", code="crashed")

    def _started(self, thread: str) -> Started:
        resumed = self._resume is not None
        return Started(
            model=self._model,
            native_id=thread,
            resumed=resumed,
            briefed=bool(self.turn.brief) and not resumed,
            why=self.why,
        )

    def _prompt(self) -> str:
        turn = self.turn
        return turn.input if self._resume or not turn.brief else f"{turn.brief}\n\n{turn.input}"

    def _arguments(self, bridge: Bridge) -> list[str]:
        """Return the words of the command. ``resume`` takes no sandbox option, so all of it is configuration."""
        turn = self.turn
        more: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": MODES[turn.permission_mode][1]}
        more |= left_out(turn)
        if turn.model:
            more["model"] = turn.model
        if turn.tools:
            # Not in the arguments, which everybody on this machine can read: the secret goes by the environment.
            more["mcp_servers.onward"] = _by_environment(tools_server(bridge.command, bridge.env))
            self._setup = _with(self._setup, bridge.env)
        if turn.system and self._resume is None:
            more["developer_instructions"] = turn.system
        words = ["resume", "--json"] if self._resume else ["--json"]
        ends = [self._resume, "-"] if self._resume else ["-"]
        return [
            *self._setup.words,
            "exec",
            *words,
            "--skip-git-repo-check",
            *self._setup.overrides(more),
            *ends,
        ]


def _by_environment(server: dict[str, Any]) -> dict[str, Any]:
    names = [*server["env_vars"], *server["env"]]
    return {**server, "env": {}, "env_vars": names}


def _with(setup: Setup, env: Mapping[str, str]) -> Setup:
    return Setup(words=setup.words, env={**setup.env, **env}, config=setup.config)


def _plain(line: str) -> str:
    """Return an error of the command without the names of the requests that it went through."""
    return line.removeprefix("Error:").rpartition(" failed: ")[2].strip()
