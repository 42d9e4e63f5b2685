"""``serve``, ``runner``, ``machines``, ``move`` and ``tokens``: who executes runs, where, and who may ask for it.

What these commands are about is in ``onward.runner.serving`` and in the server; here are their options and their words.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onward.core import ids as make
from onward.core.events import iso
from onward.core.records import Machine, Token, Workspace
from onward.core.wording import asleep
from onward.errors import InvalidInput, Unauthorized
from onward.service import machines as registered
from onward.service import tokens as known_tokens
from onward.service import workspaces
from onward.service.platform import Platform
from onward.surfaces import start_of
from onward.surfaces.cli import screen
from onward.surfaces.cli.choosing import engine_options
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import again, opened

if TYPE_CHECKING:
    from onward.engines.contract import Engine
    from onward.service.machines import Slept

PORT: Final = 8421
TOKEN_VARIABLE: Final = "ONWARD_TOKEN"
OIDC_VARIABLE: Final = "ONWARD_OIDC_SECRET"
_DAY: Final = 86_400.0


def serve(call: Call) -> int:
    """Serve the store, and execute runs on this machine."""
    import msgspec

    with opened(call, makes=True) as platform:
        if call["online"] is not None:
            platform = msgspec.structs.replace(platform, online_seconds=float(call["online"]))

        provider = _provider(call)
        if provider is not None and not call.quiet:
            _tell_sign_ins()
        links: list[str] = []

        def ready(url: str, secret: str | None) -> None:
            link = links[0] if links else None
            if call.json:
                screen.document({"url": url, "token": secret, "link": link, "pid": os.getpid()})
                sys.stdout.flush()
                return
            screen.note(f"Onward serves at {url}")
            if link is not None:
                screen.note(f"Open it in a browser (this link works once): {link}")
            if secret is not None:
                screen.note(f"Token for this start: {secret}")
                screen.note(f"One that lasts: {again(call, 'tokens create NAME --scope SCOPE')}")

        start_of("http")(
            platform,
            ready=ready,
            inviting=links.append,
            host=call["host"] or "127.0.0.1",
            port=PORT if call["port"] is None else call["port"],
            names=call["host_name"],
            outside=call["url"],
            provider=provider,
            engines={} if call["no_runner"] else _engines(call),
            say=_nothing if call.quiet or call.json else screen.note,
            **_given(call, "idle", "at_once", "grace", "rate"),
        )
    return 0


def runner(call: Call) -> int:
    """Execute runs on this machine for a server."""
    from onward.runner.connection import Connection
    from onward.runner.remote import RemoteOffice
    from onward.runner.serving import Runner

    if call["server"] is None:
        raise UsageError("--server is missing: say where `onward serve` is")
    url, secret, engines = call["server"], _secret(call), _engines(call)
    say = _nothing if call.quiet or call.json else screen.note
    placed = [_placed(text) for text in call["workspace"]]

    async def work() -> None:
        office = RemoteOffice(Connection(url, secret), call["name"] or socket.gethostname())

        def notify(ended: Sequence[Slept]) -> None:
            say(asleep(office.name, len(ended)))

        made = Runner(office, engines, say=say, notify=notify, **_given(call, "idle", "at_once"))
        try:
            await made.register()
            for workspace, folder in placed:
                await office.place(folder, workspace)
        except BaseException as error:
            await office.aclose()
            if isinstance(error, Unauthorized):
                error.message += (
                    f" Where the server is: {again(call, 'tokens create NAME --scope runner')}; "
                    f"here: {TOKEN_VARIABLE}, or --token-file FILE."
                )
            raise
        if call.json:
            told = {"machine": office.name, "server": url, "engines": sorted(engines), "pid": os.getpid()}
            screen.document(told)
            sys.stdout.flush()
        else:
            say(f"{office.name} executes runs for {url} with {', '.join(engines)}.")
        stopping = 0

        def stop() -> None:
            nonlocal stopping
            stopping += 1
            if stopping == 1:
                say("Told to stop: what is being executed may finish. Once more stops at once.")
                made.stop()
            else:
                made.hurry()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        await made.run(**_given(call, "grace"))

    asyncio.run(work())
    return 0


def _placed(text: str) -> tuple[str | None, str]:
    """Return the workspace and the folder that ``[WORKSPACE=]DIR`` names. Raises InvalidInput for no folder."""
    workspace, equals, folder = text.rpartition("=")
    path = os.path.abspath(os.path.expanduser(folder))
    if not os.path.isdir(path):
        raise InvalidInput(what=f"the workspace {folder!r}", why="there is no such folder")
    return (workspace if equals else None), path


def _secret(call: Call) -> str:
    """Return the token that lets this machine in."""
    return _read(call["token_file"], TOKEN_VARIABLE)


def _read(file: str | None, variable: str) -> str:
    """Return a secret: never an argument, since every user of a machine sees those."""
    if file is not None:
        with open(file, encoding="utf-8") as opened_file:
            return opened_file.read().strip()
    return os.environ.get(variable, "").strip()


def _tell_sign_ins() -> None:
    """Say on standard error who signs in and to which account: `tokens --account` needs it when somebody leaves."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("onward.signing_in")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _provider(call: Call) -> dict[str, Any] | None:
    """Return the OpenID provider that people sign in with, as the server takes it. Raises UsageError for half of one."""
    given = [name for name in ("client", "allow", "account", "secret_file") if call[f"oidc_{name}"]]
    if call["oidc_issuer"] is None:
        if given:
            raise UsageError(f"--oidc-{given[0].replace('_', '-')} goes with --oidc-issuer, which is missing")
        return None
    return {
        "issuer": call["oidc_issuer"],
        "client": call["oidc_client"] or "",
        "allow": call["oidc_allow"],
        "account": call["oidc_account"] or "own",
        "secret": _read(call["oidc_secret_file"], OIDC_VARIABLE),
    }


def _engines(call: Call) -> dict[str, Engine]:
    """Return the engines that this machine executes runs with. Raises InvalidInput, UsageError."""
    from onward.runner.serving import engines_here

    options: dict[str, dict[str, Any]] = {}
    for text in call["engine_option"]:
        name, dot, setting = text.partition(".")
        if not dot:
            raise UsageError(f"--engine-option takes ENGINE.KEY=VALUE, found {text!r}")
        options.setdefault(name, {}).update(engine_options([setting]))
    return engines_here(call["engine"], options)


def _given(call: Call, *names: str) -> dict[str, Any]:
    """Return the options that were given, as keywords."""
    return {name: call[name] for name in names if call[name] is not None}


def _nothing(line: str) -> None:
    del line


def machines(call: Call) -> int:
    """List machines and workspaces."""
    with opened(call) as platform:
        found, places = registered.listed(platform), workspaces.listed(platform)
        if call.json:
            screen.document(
                {
                    "machines": [_machine(m, platform) for m in found],
                    "workspaces": [_workspace(w, platform) for w in places],
                }
            )
            return 0
        for machine in found:
            screen.say(screen.headline(machine.name))
            screen.flow(_about(machine, platform), "  ")
            for place in places:
                on = workspaces.machine_of(platform, place)
                if on is not None and on.id == machine.id:
                    screen.say(f"  {place.path}")
        if not found and not call.quiet:
            screen.note(
                "No machine is registered. `onward serve` registers this one, `onward runner` any other."
            )
    return 0


def _about(machine: Machine, platform: Platform) -> str:
    offers = registered.offers(machine)
    able = ", ".join(offer.name for offer in offers if offer.unavailable is None) or "no engine"
    state = "online" if registered.online(platform, machine) else "offline"
    seen = f"last seen {screen.moment(iso(machine.seen_at))}" if machine.seen_at else "no runner yet"
    home = "has the store" if machine.home else ""
    return " · ".join(part for part in (machine.id, state, seen, able, home) if part)


def move(call: Call) -> int:
    """Say where a workspace is now."""
    with opened(call) as platform:
        machine = registered.get(platform, call["machine"])
        named = call["workspace"]
        if not named.startswith("wsp_"):
            absolute = os.path.abspath(os.path.expanduser(named))
            here = platform.store.workspace(platform.account_id, absolute)
            named = absolute if here is not None else named
        moved = workspaces.move(platform, named, machine, call["dir"])
        if call.json:
            screen.document(_workspace(moved, platform))
        elif not call.quiet:
            screen.note(f"{moved.id} is at {moved.path} on {machine.name}.")
    return 0


def tokens(call: Call) -> int:
    """Make, list or revoke tokens."""
    match call["action"]:
        case "create":
            return _create(call)
        case "list":
            return _list(call)
        case "revoke":
            return _revoke(call)
        case other:
            raise UsageError(f"there is no action {other!r}; there are create, list and revoke")


def _create(call: Call) -> int:
    if call["name"] is None:
        raise UsageError("NAME is missing: say what the token is for")
    lifetime = None if call["days"] is None else call["days"] * _DAY
    with opened(call, makes=True) as platform:
        made, secret = known_tokens.create(
            _whose(call, platform), call["name"], call["scope"], lifetime=lifetime
        )
    if call.json:
        screen.document({"token": _token(made), "secret": secret})
    else:
        screen.say(secret)
        if not call.quiet:
            screen.note(f"{made.id} allows {', '.join(made.scopes)}. It is not shown again.")
    return 0


def _list(call: Call) -> int:
    with opened(call) as platform:
        found = known_tokens.listed(_whose(call, platform))
    if call.json:
        screen.document({"tokens": [_token(token) for token in found]})
        return 0
    now = time.time_ns() // 1000
    for token in found:
        ended = ""
        if token.revoked_at is not None:
            ended = "revoked"
        elif token.expires_at is not None:
            ended = "expired" if token.expires_at <= now else f"until {screen.moment(iso(token.expires_at))}"
        screen.say(screen.headline(token.name))
        screen.flow(" · ".join(filter(None, (token.id, ", ".join(token.scopes), ended))), "  ")
    return 0


def _revoke(call: Call) -> int:
    if call["name"] is None:
        raise UsageError("ID is missing: `onward tokens list` shows those there are")
    with opened(call) as platform:
        whose = _whose(call, platform)
        if call["name"] == "all":
            return _revoke_all(call, whose)
        revoked = known_tokens.revoke(whose, call["name"])
    if call.json:
        screen.document(_token(revoked))
    elif not call.quiet:
        screen.note(f"{revoked.id} lets nobody in any more.")
    return 0


def _revoke_all(call: Call, platform: Platform) -> int:
    good = [token for token in known_tokens.listed(platform) if token.revoked_at is None]
    ended = [known_tokens.revoke(platform, token.id) for token in good]
    if call.json:
        screen.document({"tokens": [_token(token) for token in ended]})
    elif not call.quiet:
        screen.note(f"{len(ended)} revoked. No token of {platform.account_id} lets anybody in any more.")
    return 0


def _whose(call: Call, platform: Platform) -> Platform:
    """Return the platform of the account whose tokens are meant. Raises InvalidId."""
    import msgspec

    if call["account"] is None:
        return platform
    return msgspec.structs.replace(platform, account_id=make.check_id(call["account"], make.ACCOUNT))


def _machine(machine: Machine, platform: Platform) -> dict[str, Any]:
    return {
        "id": machine.id,
        "name": machine.name,
        "home": machine.home,
        "online": registered.online(platform, machine),
        "seen_at": iso(machine.seen_at) if machine.seen_at else None,
        "engines": [
            {"name": offer.name, "version": offer.version, "unavailable": offer.unavailable}
            for offer in registered.offers(machine)
        ],
    }


def _workspace(record: Workspace, platform: Platform) -> dict[str, Any]:
    on = workspaces.machine_of(platform, record)
    return {
        "id": record.id,
        "path": record.path,
        "machine": on.name if on else None,
        "machine_id": on.id if on else None,
        "created_at": iso(record.created_at),
        "moved_at": None if record.moved_at is None else iso(record.moved_at),
    }


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "created_at": iso(token.created_at),
        "expires_at": None if token.expires_at is None else iso(token.expires_at),
        "revoked_at": None if token.revoked_at is None else iso(token.revoked_at),
    }
