"""The part of the catalogue about servers, runners, machines and tokens. See ``catalogue``."""

from __future__ import annotations

from typing import Final

from onward.surfaces.cli.grammar import Argument, Command, Option

_ENGINES: Final = Option(
    "--engine", "An engine to execute runs with. Default: all that can run here.", "ENGINE", many=True
)
_ENGINE_OPTION: Final = Option(
    "--engine-option",
    "An option of an engine; the value is JSON where it reads as JSON, else text.",
    "ENGINE.KEY=VALUE",
    many=True,
)
_IDLE: Final = Option(
    "--idle",
    "Put an engine's waiting process to sleep after so many seconds (default 21600, six hours; 0: at once).",
    "SECONDS",
    kind="number",
)
_AT_ONCE: Final = Option("--at-once", "Runs at the same time (default 4).", "N", kind="number")
_GRACE: Final = Option(
    "--grace",
    "When told to stop, let runs finish for so many seconds (default 300).",
    "SECONDS",
    kind="number",
)

SERVING: Final = (
    Command(
        "serve",
        "serving:serve",
        "Serve the store over HTTP, and execute runs on this machine.",
        "Listens at 127.0.0.1, and elsewhere only when there is a token (`onward tokens create`). Without any token, one is "
        "made for this start and printed. SIGTERM or Ctrl-C lets runs finish; a second one stops at once.\n\n"
        "With --oidc-issuer, people sign in with an OpenID provider (docs/signing-in.md); nobody may who is not named by "
        "--oidc-allow. The client's secret is read from ONWARD_OIDC_SECRET.\n\n"
        "JSON: {url, token, link, pid}, once it listens; token is null where there are tokens, link (for a browser, once) "
        "where others could reach the server.",
        options=(
            Option("--host", "The address to listen at (default 127.0.0.1).", "HOST"),
            Option("--port", "The port (default 8421; 0: any that is free).", "PORT", kind="number"),
            Option("--host-name", "A name under which this server is reached.", "NAME", many=True),
            Option("--url", "The address under which people reach it, if a proxy stands in front.", "URL"),
            Option("--oidc-issuer", "An OpenID provider that people sign in with.", "URL"),
            Option("--oidc-client", "The id that the provider gave this server.", "ID"),
            Option(
                "--oidc-allow",
                "Who may sign in: an address that the provider has verified (ada@example.com), all of a domain "
                "(@example.com), or a subject (sub:24400320).",
                "WHO",
                many=True,
            ),
            Option(
                "--oidc-account",
                "An account for each person (own, the default), or that of the store for all of them (shared).",
                "WHICH",
                choices=("own", "shared"),
            ),
            Option(
                "--oidc-secret-file",
                "The client's secret. Default: what ONWARD_OIDC_SECRET holds; none where the client has none.",
                "FILE",
                kind="path",
            ),
            _ENGINES,
            _ENGINE_OPTION,
            Option("--no-runner", "Only serve; runs wait for other machines."),
            _IDLE,
            _AT_ONCE,
            _GRACE,
            Option("--rate", "Requests a second from one address (default 300; 0: any).", "N", kind="number"),
            Option(
                "--online",
                "A machine that was silent for so many seconds is offline (default 60).",
                "SECONDS",
                kind="number",
            ),
        ),
        examples=(
            "onward serve",
            "onward serve --host 0.0.0.0 --host-name onward.lan --no-runner",
            "onward serve --url https://on.example --oidc-issuer https://id.example --oidc-client on --oidc-allow @a.org",
        ),
    ),
    Command(
        "runner",
        "serving:runner",
        "Execute runs on this machine for a server.",
        "Registers this machine and waits for runs; needs no store. A lost network or a restarted server is waited for. "
        "SIGTERM or Ctrl-C lets runs finish; a second one stops at once.\n\n"
        "JSON: {machine, server, engines, pid}, once it is registered.",
        usage="--server URL",
        options=(
            Option("--server", "Where `onward serve` is (required).", "URL"),
            Option("--name", "This machine's name. Default: its host name.", "NAME"),
            Option("--token-file", "The token. Default: what ONWARD_TOKEN holds.", "FILE", kind="path"),
            _ENGINES,
            _ENGINE_OPTION,
            Option(
                "--workspace",
                "A folder of this machine that sessions may be about; WORKSPACE=DIR says that a workspace, by id or by the "
                "path that it had, is here now.",
                "[WORKSPACE=]DIR",
                many=True,
            ),
            _IDLE,
            _AT_ONCE,
            _GRACE,
        ),
        examples=("ONWARD_TOKEN=onw_… onward runner --server http://tower:8421 --engine codex",),
    ),
    Command(
        "machines",
        "serving:machines",
        "List the machines that execute runs, and the workspaces on them.",
        "JSON: {machines: [{id, name, home, online, seen_at, engines: [{name, version, unavailable}]}], workspaces: [{id, "
        "path, machine, machine_id, created_at, moved_at}]}.",
        examples=("onward machines",),
    ),
    Command(
        "move",
        "serving:move",
        "Say that a workspace is on another machine, or in another folder, now.",
        "Its files are moved by you; this says where they are. The next runs of its sessions are executed there, where "
        "their engines get the conversation back from the log. JSON: {id, path, machine, machine_id, created_at, moved_at}.",
        arguments=(
            Argument("WORKSPACE", "The workspace: its id or its folder.", kind="path"),
            Argument("MACHINE", "The machine, by name or id."),
            Argument("DIR", "The folder there.", kind="path"),
        ),
        examples=("onward move ~/code/app tower /srv/app",),
    ),
    Command(
        "tokens",
        "serving:tokens",
        "Make, list and revoke tokens, which let programs use the server.",
        "create prints the token once; only its digest is kept. Scopes: read, write, runner, admin (all of them). `revoke "
        "all` ends all that are good, those of browsers included.\n\n"
        "JSON: {token: {id, name, scopes, created_at, expires_at, revoked_at}, secret}; list and revoke all: {tokens}; "
        "revoke: the token.",
        usage="create NAME --scope SCOPE… | list | revoke ID|all",
        arguments=(
            Argument("ACTION", "create, list or revoke."),
            Argument("NAME", "What the token is for; to revoke one, its id, or all.", required=False),
        ),
        options=(
            Option("--scope", "What it allows: read, write, runner or admin.", "SCOPE", many=True),
            Option("--days", "Days after which it expires. Default: never.", "N", kind="number"),
            Option(
                "--account",
                "Whose: the account of somebody who signs in with a provider, as the server's log names it. Default: the "
                "store's own.",
                "ACC",
            ),
        ),
        examples=("onward tokens create laptop --scope runner", "onward tokens revoke tok_01J8…"),
    ),
)
"""In the order in which help shows them."""
