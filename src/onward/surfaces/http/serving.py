"""Serving: the server as a process, with the runner of this machine in it.

It listens on loopback unless it is told otherwise, and elsewhere only when the store has a token that lets somebody in: a
server that nobody can use is a mistake, and one that anybody can use would be a worse one. An OpenID provider (``oidc``) is
a way in too, where browsers come over https. On loopback without any token, one is made for this start and shown once; it is
nowhere else, and gone when the process is.

Told to stop (SIGTERM, SIGINT), it takes no new run, finishes those that are being executed within ``grace`` seconds, and
answers all the while; told again, it stops at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn

from onward.core import ids as make
from onward.core.records import Token
from onward.core.wording import asleep
from onward.engines.contract import Engine
from onward.errors import InvalidInput, OnwardError
from onward.runner.desk import in_thread
from onward.runner.serving import AT_ONCE, IDLE_SECONDS, LocalOffice, Runner
from onward.service import running, tokens
from onward.service.machines import Slept
from onward.service.platform import Platform
from onward.surfaces.http import oidc
from onward.surfaces.http.app import RATE, application
from onward.surfaces.http.house import House
from onward.surfaces.http.signing_in import is_browser

GRACE: Final = 300.0
"""Seconds in which what is being executed may finish."""
CLOSING: Final = 5
"""Seconds in which open requests may finish."""
EXPIRE_SECONDS: Final = 10.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
SWITCH_SECONDS: Final = 0.0001
"""How long a worker thread keeps the interpreter while the loop wants it. Python's own 5 ms would stall every stream."""
MOST_FILES: Final = 16_384
"""Files that this process opens at most: every connection is one."""
UNREAD_SECONDS: Final = 30
"""How long a connection may stand on which nothing that was sent is taken, even after we have closed it."""


class _Server(uvicorn.Server):
    """The server, with its signals left to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    platform: Platform,
    *,
    ready: Callable[[str, str | None], None],
    inviting: Callable[[str], None] = lambda link: None,  # noqa: ARG005 (nobody listens)
    host: str = "127.0.0.1",
    port: int = 0,
    names: Sequence[str] = (),
    outside: str | None = None,
    provider: Mapping[str, Any] | None = None,
    engines: Mapping[str, Engine] | None = None,
    idle: float = IDLE_SECONDS,
    at_once: int = AT_ONCE,
    grace: float = GRACE,
    rate: float = RATE,
    lease: float | None = None,
    say: Callable[[str], None] = lambda line: None,  # noqa: ARG005 (nobody listens)
) -> None:
    """Serve until told to stop. ``ready`` gets the address, and the token of this start if one was made.

    On loopback ``inviting`` gets a link, right before: it signs in one browser, once (``signing_in``).

    ``engines`` are those that this machine executes runs with; without any, it only serves. ``outside`` is the address
    under which people reach the server, if that is another; ``provider`` is what ``oidc.settings`` takes. Raises
    InvalidInput for a place that is not loopback while there is no way in, OSError for one that cannot be listened at.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    _allow_many_connections()
    house = House(platform) if lease is None else House(platform, lease=lease)
    usable = _usable_tokens(platform)
    secret = None
    house.outside = "" if outside is None else oidc.checked_address(outside)
    chosen = None if provider is None else oidc.settings(**provider)
    if chosen is not None and not is_loopback(host) and not house.outside.startswith("https://"):
        raise InvalidInput(
            what=f"the address {host} with --oidc-issuer",
            why="whoever is signed in would send their cookie in the open: put a proxy that ends TLS in front, and say "
            "under which https:// address people reach it with --url",
        )
    if not is_loopback(host) and not usable and chosen is None:
        raise InvalidInput(
            what=f"the address {host}",
            why="other machines could reach it, and there is no token that lets anybody in: make one with `onward tokens "
            "create`, or serve at 127.0.0.1",
        )
    if not usable and is_loopback(host):
        secret = tokens.secret(platform)
        house.admit(_passing(platform, secret))
    with contextlib.closing(_listening(host, port)) as listener:
        bound = listener.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        url = f"http://{shown}:{bound[1]}"
        own = urlsplit(house.outside).hostname
        if chosen is not None:
            house.oidc = oidc.SignIn(chosen, address=house.outside or url, clock=platform.clock)
        app = application(house, names=(host, *names, *([own] if own else [])), rate=rate)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            loop="asyncio",
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSING,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        runner = _runner(house, engines, idle, at_once, say) if engines else None

        def greet() -> None:
            if is_loopback(host):
                inviting(f"{house.outside or url}/login?code={house.doors.link(platform.account_id)}")
            ready(url, secret)

        asyncio.run(
            _serve(
                house,
                _Server(config),
                listener,
                runner,
                grace=grace,
                ready=greet,
            )
        )


async def _serve(
    house: House,
    server: _Server,
    listener: socket.socket,
    runner: Callable[[], Runner] | None,
    *,
    grace: float,
    ready: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    working = runner() if runner is not None else None

    def stop() -> None:
        if stopping.is_set():
            server.force_exit = True
            if working is not None:
                working.hurry()
        stopping.set()
        if working is not None:
            working.stop()

    expiring = asyncio.create_task(_expire(house))
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        executing: asyncio.Task[Any] = asyncio.create_task(stopping.wait())
        if working is not None:
            await working.register()
            executing.cancel()
            executing = asyncio.create_task(working.run(grace=grace))
        # What is there by now stays: looking through it for garbage again and again would stall every stream.
        gc.collect()
        gc.freeze()
        ready()
        await asyncio.wait((serving, executing), return_when=asyncio.FIRST_COMPLETED)
        stop_all = [task for task in (executing,) if not task.done()]
        if working is not None and stop_all:
            working.stop()
            await asyncio.wait(stop_all)
        house.close()
        server.should_exit = True
        await serving
        if not executing.cancelled() and executing.done():
            executing.result()
        executing.cancel()
    finally:
        expiring.cancel()
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _expire(house: House) -> None:
    """Close runs whose runner has not said anything for as long as its lease, also while no other asks for work."""
    while True:
        with contextlib.suppress(OnwardError):
            await in_thread(running.expire, house.platform)
        await asyncio.sleep(EXPIRE_SECONDS)


def _runner(
    house: House, engines: Mapping[str, Engine], idle: float, at_once: int, say: Callable[[str], None]
) -> Callable[[], Runner]:
    """Return what makes the runner of this machine, inside the loop that it is to work in."""
    platform = house.platform

    def notify(ended: Sequence[Slept]) -> None:
        told = asleep(platform.host or "this machine", len(ended))
        house.notify(platform.account_id, told, [one.session_id for one in ended])
        say(told)

    return lambda: Runner(
        LocalOffice(platform, house.hints), engines, idle=idle, at_once=at_once, say=say, notify=notify
    )


def _usable_tokens(platform: Platform) -> list[Token]:
    now = platform.clock()
    return [
        token
        for token in tokens.listed(platform)
        if token.revoked_at is None
        and (token.expires_at is None or token.expires_at > now)
        and not is_browser(token)  # a browser that is signed in is no way in for anybody else
    ]


def _passing(platform: Platform, secret: str) -> Token:
    """Return a token for this start: everything is allowed to whoever started it."""
    return Token(
        id=platform.ids.new(make.TOKEN),
        account_id=platform.account_id,
        name="this start",
        digest=tokens.digest(secret),
        scopes=("admin",),
        created_at=platform.clock(),
    )


def is_loopback(host: str) -> bool:
    """Whether a host to listen at is this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _allow_many_connections() -> None:
    """Let this process open as many files as it may: every stream is one."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends answers at once; else each would wait 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # what is accepted inherits it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listener.bind((host.strip("[]"), port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{host}:{port} cannot be listened at: {error.strerror}") from None
    return listener
