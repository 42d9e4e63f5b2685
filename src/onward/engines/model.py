"""The model engine: a raw model behind an API, with a tool loop around it.

It speaks two formats, OpenAI chat completions and Anthropic Messages, with any server that speaks one of them. It
holds no conversation of its own: every turn sends the history that it was given. The formats are pure functions in
``openai_wire.py`` and ``anthropic_wire.py``; here is what sends, waits and calls tools.

A model may ask for several tools at once. They run one after the other, each called and answered before the next, and
they are told to the model in that same form, within this turn and from the log in every later one. So a later request
extends an earlier one (invariant T2), and a tool that ends the turn leaves no call behind that was announced but not
run.

The key is read from the environment when a request is sent. It is never kept, logged or shown; whatever text a
provider sends back is searched for it before it is passed on. Nothing retries by itself: ``Finished.retryable`` says
that trying again may help, and whoever runs the turn decides.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onward.core.bodies import Usage
from onward.core.codec import loads
from onward.core.transcript import TranscriptMessage
from onward.engines import anthropic_wire, openai_wire
from onward.engines.calling import answer, offers
from onward.engines.contract import (
    Capabilities,
    Finished,
    Measured,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolCalled,
    Turn,
    call_id,
)
from onward.engines.wire import EMPTY, ProviderFault, Reader, Reply, answer_text, clean, total
from onward.errors import InvalidInput

if TYPE_CHECKING:
    import httpx2

Api = Literal["openai", "anthropic"]

KEY_VARIABLE: Final = "ONWARD_MODEL_KEY"
RETRYABLE_STATUSES: Final = frozenset((408, 409, 429))
ERROR_BODY_LIMIT: Final = 65_536
"""Bytes of an error answer that are read."""

_BASES: Final[dict[str, str]] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
_PATHS: Final[dict[str, str]] = {"openai": "/chat/completions", "anthropic": "/messages"}
_FIXED: Final = frozenset(("messages", "stream", "tools", "model"))
"""Fields of a request that options may not replace, because the log says what they are."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds."""

    connect: float = 10.0
    idle: float = 120.0
    """For the next piece of an answer."""
    total: float = 900.0
    """For one request, from its start to the end of its answer."""


class ModelEngine:
    """Any model behind an OpenAI-compatible or Anthropic API.

    What is not given is read from the environment: ``ONWARD_MODEL_URL``, ``ONWARD_MODEL_API``, ``ONWARD_MODEL``.
    ``base_url`` ends before ``/chat/completions`` or ``/messages``. ``key_variable`` names the environment variable
    that holds the key. ``max_tokens`` bounds one answer; ``max_rounds`` is how often a turn may ask for tools.
    ``cache`` asks Anthropic to cache prompts. ``turn.options`` are further fields of the request body (temperature,
    reasoning effort).
    """

    name: Final = "model"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api: Api | None = None,
        model: str | None = None,
        key_variable: str = KEY_VARIABLE,
        timeouts: Timeouts | None = None,
        max_tokens: int | None = None,
        max_rounds: int = 32,
        window: int | None = None,
        cache: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        env = os.environ if environment is None else environment
        chosen = api or env.get("ONWARD_MODEL_API") or "openai"
        if chosen not in _BASES:
            raise InvalidInput(what=f"api {chosen!r}", why=f"known formats are {', '.join(_BASES)}")
        if max_rounds < 1:
            raise InvalidInput(what=f"max_rounds {max_rounds}", why="a turn needs at least one request")
        self._api = chosen
        self._base = (base_url or env.get("ONWARD_MODEL_URL") or _BASES[chosen]).rstrip("/")
        self._model = model or env.get("ONWARD_MODEL")
        self._key_variable = key_variable
        self._timeouts = timeouts or Timeouts()
        self._max_tokens = max_tokens
        self._max_rounds = max_rounds
        self._window = window
        self._cache = cache
        self._env = env

    def __repr__(self) -> str:
        return f"ModelEngine(api={self._api!r}, base_url={self._shown_base()!r}, model={self._model!r})"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tools=True, streaming=True, window=self._window)

    def unavailable(self) -> str | None:
        if not self._model:
            return "no model is chosen: give the option `model`, or set ONWARD_MODEL"
        return self._key_missing()

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Ask the model, run the tools it calls, and ask again until it answers."""
        model = turn.model or self._model
        yield Started(model=model)
        why = self._key_missing() if model else self.unavailable()
        if why is not None or model is None:
            yield Finished(status="failed", reason=why or "no model is chosen")
            return
        if clash := sorted(_FIXED & set(turn.options)):
            yield Finished(
                status="failed", reason=f"turn options may not replace {', '.join(clash)} of the request"
            )
            return
        question = TranscriptMessage(role="user", content=turn.input if turn.input.strip() else EMPTY)
        messages = [*turn.history, question]
        usage: Usage | None = None
        calls = 0
        async with self._client() as client:
            for _ in range(self._max_rounds):
                reader = _reader(self._api)
                exchange = _Exchange(client, self._request(client, turn, model, messages), self._timeouts)
                try:
                    async with AsyncExitStack() as stack:
                        stack.push_async_callback(exchange.close)
                        await exchange.open(_error_reader(self._api))
                        while (piece := await exchange.next(reader)) is not None:
                            if piece:
                                yield TextDelta(text=piece)
                except ProviderFault as fault:
                    usage = total(usage, reader.reply.usage)
                    if usage is not None:
                        yield Measured(usage=self._sized(usage, reader.reply.usage))
                    yield Finished(
                        status="failed", reason=self._masked(fault.message), retryable=fault.retryable
                    )
                    return
                reply = reader.reply
                usage = total(usage, reply.usage)
                if usage is not None:
                    yield Measured(usage=self._sized(usage, reply.usage))
                for text, signature in reply.thoughts:
                    yield Thought(text=clean(text), signature=signature)
                    if signature:
                        messages.append(
                            TranscriptMessage(role="assistant", content=text, signature=signature)
                        )
                if reply.text.strip():
                    said = clean(reply.text)
                    yield Said(text=said, model=reply.model or model)
                    messages.append(TranscriptMessage(role="assistant", content=said))
                if reply.stop != "tools" or not reply.calls:
                    yield self._finished(reply)
                    return
                for call in reply.calls:
                    calls += 1
                    given, invalid = call.parsed()
                    called = ToolCalled(
                        call=call_id(turn.run_id, calls),
                        name=call.name,
                        input=given,
                        provider_call=call.id or None,
                        ours=offers(turn, call.name),
                    )
                    yield called
                    answered, ended = await answer(turn, called, invalid=invalid)
                    yield answered
                    if ended:
                        yield ended
                        return
                    messages.append(
                        TranscriptMessage(
                            role="assistant",
                            tool_call_id=called.call,
                            tool_name=called.name,
                            tool_input=given,
                        )
                    )
                    messages.append(
                        TranscriptMessage(
                            role="tool",
                            tool_call_id=called.call,
                            tool_name=called.name,
                            tool_output=answer_text(answered.output),
                            status=answered.status,
                        )
                    )
        yield Finished(
            status="failed",
            reason=f"the model still asked for tools after {self._max_rounds} requests, the limit (max_rounds) of a turn",
        )

    def _finished(self, reply: Reply) -> Finished:
        match reply.stop:
            case "refused":
                return Finished(
                    status="failed", reason="the provider withheld the answer (refusal or content filter)"
                )
            case "window":
                return Finished(
                    status="failed", reason="the model's context window was full before the answer ended"
                )
            case "length" if reply.calls:
                return Finished(
                    status="failed", reason="the answer was cut off inside a tool call; nothing was called"
                )
            case "length":
                limit = f"max_tokens={self._max_tokens}" if self._max_tokens else "the provider's limit"
                return Finished(status="completed", reason=f"the answer was cut off at {limit}")
            case _:
                said = reply.text.strip()
                return Finished(status="completed", reason="" if said else "the model answered without text")

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        wait = self._timeouts
        timeout = httpx2.Timeout(connect=wait.connect, read=wait.idle, write=wait.idle, pool=wait.connect)
        # A proxy is for what lies outside; it would see the requests to a server of this machine.
        return httpx2.AsyncClient(timeout=timeout, trust_env=not self._is_loopback())

    def _request(
        self, client: httpx2.AsyncClient, turn: Turn, model: str, messages: list[TranscriptMessage]
    ) -> httpx2.Request:
        more: dict[str, Any] = {}
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        key = self._env.get(self._key_variable, "")
        write: Callable[..., bytes]
        if self._api == "anthropic":
            more["max_tokens"] = self._max_tokens or 8192
            if self._cache:
                more["cache_control"] = {"type": "ephemeral"}
            headers["anthropic-version"] = anthropic_wire.VERSION
            if key:
                headers["x-api-key"] = key
            write = anthropic_wire.request_body
        else:
            if self._max_tokens:
                # OpenAI itself has renamed the field; the servers that speak its format mostly have not.
                renamed = self._host().endswith("openai.com")
                more["max_completion_tokens" if renamed else "max_tokens"] = self._max_tokens
            if key:
                headers["authorization"] = f"Bearer {key}"
            write = openai_wire.request_body
        body = write(
            model=model, system=turn.system, messages=messages, tools=turn.tools, **(more | turn.options)
        )
        return client.build_request("POST", self._base + _PATHS[self._api], content=body, headers=headers)

    def _key_missing(self) -> str | None:
        if self._env.get(self._key_variable) or self._is_loopback():
            return None
        return f"{self._shown_base()} needs a key: set the environment variable {self._key_variable}"

    def _sized(self, usage: Usage, newest: Usage | None) -> Usage:
        """Return the usage of the turn with the window, and with what the newest request alone had as its prompt."""
        context = newest.input_tokens if newest is not None else None
        return msgspec.structs.replace(usage, window=self._window, context_tokens=context)

    def _masked(self, text: str) -> str:
        key = self._env.get(self._key_variable)
        return text.replace(key, "***") if key else text

    def _host(self) -> str:
        from urllib.parse import urlsplit

        return urlsplit(self._base).hostname or ""

    def _is_loopback(self) -> bool:
        host = self._host()
        return host in ("localhost", "::1") or host.startswith("127.")

    def _shown_base(self) -> str:
        """The base URL without a user or password that it may carry."""
        scheme, _, rest = self._base.rpartition("://")
        place, slash, path = rest.partition("/")
        return f"{scheme}://{place.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


class _Exchange:
    """One request and the events of its answer. Every wait ends by the same deadline, whoever holds the iterator."""

    def __init__(self, client: httpx2.AsyncClient, request: httpx2.Request, timeouts: Timeouts) -> None:
        self._client = client
        self._request = request
        self._timeouts = timeouts
        self._deadline = asyncio.get_running_loop().time() + timeouts.total
        self._response: httpx2.Response | None = None
        self._events: AsyncIterator[Any] | None = None

    async def open(self, read_error: Callable[..., ProviderFault]) -> None:
        """Send the request. Raises ProviderFault for anything but an answer with status 2xx."""
        import httpx2

        async with self._watched():
            response = self._response = await self._client.send(self._request, stream=True)
            if not response.is_success:
                raise await _status_fault(response, read_error)
            self._events = aiter(httpx2.EventSource(response))

    async def next(self, reader: Reader) -> str | None:
        """Return the text of the next event, empty if it has none, or None at the end that the provider announced."""
        if self._events is None:
            raise ProviderFault("the exchange is not open")
        async with self._watched():
            event = await anext(self._events, None)
        if event is None:
            if reader.reply.ended:
                return None
            raise ProviderFault("the stream stopped before the answer was complete", retryable=True)
        try:
            return reader.feed(event.event, event.data)
        except (AttributeError, IndexError, KeyError, TypeError) as strange:
            # The formats read only what they know; this is the one place where their surprise has a name.
            why = f"the stream holds an event of an unknown shape ({type(strange).__name__}): {clean(event.data[:80])!r}"
            raise ProviderFault(why) from None

    async def close(self) -> None:
        """Let go of the connection."""
        if self._events is not None:
            await self._events.aclose()  # type: ignore[attr-defined]
        if self._response is not None:
            await self._response.aclose()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Turn the ways in which a connection fails into faults that name the limit. Never held across a signal."""
        import httpx2

        wait = self._timeouts
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError:
            raise ProviderFault(
                f"no complete answer within {wait.total:g} seconds (total)", retryable=True
            ) from None
        except httpx2.ConnectTimeout:
            raise ProviderFault(
                f"no connection within {wait.connect:g} seconds (connect)", retryable=True
            ) from None
        except httpx2.TimeoutException:
            raise ProviderFault(f"nothing came for {wait.idle:g} seconds (idle)", retryable=True) from None
        except httpx2.ConnectError as refused:
            raise ProviderFault(f"no connection: {refused}", retryable=True) from None
        except httpx2.UnsupportedProtocol as wrong:
            raise ProviderFault(f"the address cannot be used: {wrong}") from None
        except UnicodeError as wrong:
            raise ProviderFault(f"the answer is not in the encoding that it names: {wrong}") from None
        except httpx2.RequestError as broken:
            why = f"the connection failed ({type(broken).__name__}): {broken}"
            raise ProviderFault(why, retryable=True) from None


async def _status_fault(response: httpx2.Response, read_error: Callable[..., ProviderFault]) -> ProviderFault:
    status = response.status_code
    retryable = status in RETRYABLE_STATUSES or status >= 500
    raw = b""
    async for chunk in response.aiter_bytes():
        raw += chunk
        if len(raw) >= ERROR_BODY_LIMIT:
            break
    try:
        found = loads(raw)
    except ValueError:
        found = None
    error = (
        found.get("error", found) if isinstance(found, dict) else raw[:200].decode("utf-8", "replace").strip()
    )
    said = read_error(error) if error else ProviderFault("no message")
    after = clean(response.headers.get("retry-after", ""))[:40]  # seconds, or a date
    wait = f" (retry after {after}{' s' if after.isdigit() else ''})" if after else ""
    return ProviderFault(f"HTTP {status}: {said.message}{wait}", retryable=retryable)


def _reader(api: str) -> Reader:
    return anthropic_wire.AnthropicReader() if api == "anthropic" else openai_wire.OpenAIReader()


def _error_reader(api: str) -> Callable[..., ProviderFault]:
    return anthropic_wire.fault if api == "anthropic" else openai_wire.fault
