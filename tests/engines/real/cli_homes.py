"""Throwaway homes for the real programs: their settings, their environment and where their native files come to lie.

Each function makes a home under a test's own folder for one program, pointed at a ``StubModels``, with updates, usage
reports, model catalogues and everything else that asks the outside switched off. What still tries meets a proxy that
refuses at once; only this machine is reached without it. The programs are the test's to start: by hand, or by an engine
with ``env=home.env``.

``home.env`` is added to the environment. It sets everything that decides where a program looks and keeps things;
variables of whoever runs the tests are taken away by the fixtures in ``conftest.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests import needs

from onward.testing.stub_models import StubModels

MODEL: Final = "stub-model"
KEY: Final = "not-a-key"


@dataclass(frozen=True, kw_only=True)
class Home:
    """The home of one program, and a folder for it to work in."""

    program: Path
    env: dict[str, str]
    workdir: Path
    natives: Path
    """The folder under which it keeps its conversations."""
    pattern: str
    """What their names look like, for ``natives.rglob``."""

    def native_files(self) -> list[Path]:
        """Its files of conversations, in the order of their paths; empty before the first."""
        return sorted(path for path in self.natives.rglob(self.pattern) if path.is_file())

    def with_env(self, **more: str) -> dict[str, str]:
        """The environment, with more in it."""
        return self.env | more


def _common(folder: Path) -> tuple[Path, dict[str, str]]:
    """A home folder, and the part of the environment that is the same for all."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    refusing = "http://127.0.0.1:9"
    env = {
        "HOME": str(home),
        "PATH": needs.programs_path(),
        "TERM": "dumb",
        "NO_COLOR": "1",
        "HTTP_PROXY": refusing,
        "HTTPS_PROXY": refusing,
        "http_proxy": refusing,
        "https_proxy": refusing,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "DO_NOT_TRACK": "1",
    }
    for kind in ("data", "config", "cache", "state"):
        env[f"XDG_{kind.upper()}_HOME"] = str(home / f"xdg-{kind}")
    return home, env


def _workdir(folder: Path) -> Path:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return work


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def claude_home(folder: Path, stub: StubModels) -> Home:
    """A home for Claude Code."""
    home, env = _common(folder)
    config = home / "claude"
    config.mkdir(exist_ok=True)
    env |= {
        "CLAUDE_CONFIG_DIR": str(config),
        "ANTHROPIC_BASE_URL": stub.url,
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        # Without it, root may not skip the permission questions.
        "IS_SANDBOX": "1",
    }
    return Home(
        program=needs.need("claude"),
        env=env,
        workdir=_workdir(folder),
        natives=config / "projects",
        pattern="*.jsonl",
    )


def codex_home(folder: Path, stub: StubModels) -> Home:
    """A home for Codex."""
    home, env = _common(folder)
    config = home / "codex"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text(
        f"""\
model = "{MODEL}"
model_provider = "stub"
check_for_update_on_startup = false

[model_providers.stub]
name = "stub"
base_url = "{stub.base_url("responses")}"
env_key = "STUB_API_KEY"
wire_api = "responses"
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[feedback]
enabled = false
"""
    )
    env |= {"CODEX_HOME": str(config), "STUB_API_KEY": KEY}
    return Home(
        program=needs.need("codex"),
        env=env,
        workdir=_workdir(folder),
        natives=config / "sessions",
        pattern="rollout-*.jsonl",
    )


def opencode_home(folder: Path, stub: StubModels) -> Home:
    """A home for opencode."""
    home, env = _common(folder)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stub",
        "options": {"baseURL": stub.base_url("openai"), "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "limit": {"context": 128_000, "output": 8_000}}},
    }
    config = home / "opencode.json"
    _write(
        config,
        {
            "model": f"stub/{MODEL}",
            "small_model": f"stub/{MODEL}",
            "enabled_providers": ["stub"],
            "provider": {"stub": provider},
            "autoupdate": False,
            "snapshot": False,
            "share": "disabled",
        },
    )
    env |= {
        "OPENCODE_CONFIG": str(config),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }
    return Home(
        program=needs.need("opencode"),
        env=env,
        workdir=_workdir(folder),
        natives=Path(env["XDG_DATA_HOME"]) / "opencode",
        pattern="opencode.db*",
    )


def gemini_home(folder: Path, stub: StubModels) -> Home:
    """A home for Gemini CLI."""
    home, env = _common(folder)
    _write(
        home / ".gemini" / "settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        },
    )
    env |= {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": stub.base_url("gemini"),
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    return Home(
        program=needs.need("gemini"),
        env=env,
        workdir=_workdir(folder),
        natives=home / ".gemini" / "tmp",
        pattern="session-*.jsonl",
    )


def pi_home(folder: Path, stub: StubModels) -> Home:
    """A home for pi."""
    home, env = _common(folder)
    model = {
        "id": MODEL,
        "name": MODEL,
        "reasoning": False,
        "input": ["text"],
        "contextWindow": 128_000,
        "maxTokens": 8_000,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    provider = {
        "baseUrl": stub.base_url("openai"),
        "api": "openai-completions",
        "apiKey": KEY,
        "models": [model],
    }
    _write(home / ".pi" / "agent" / "models.json", {"providers": {"stub": provider}})
    env |= {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
    return Home(
        program=needs.need("pi"),
        env=env,
        workdir=_workdir(folder),
        natives=home / ".pi" / "agent" / "sessions",
        pattern="*.jsonl",
    )
