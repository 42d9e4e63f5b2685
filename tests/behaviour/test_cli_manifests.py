"""A manifest on the command line: to read, to compile again, to sign and to check."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
from tests.behaviour.cli import Program

import onward as library


@pytest.fixture
def successor(onward: Program) -> str:
    """The successor of a short conversation."""
    session = onward.new()
    made = onward(
        "continue", session, "--reason", "refocus", "--title", "Next", "--purpose", "The purpose", "--no-run", "--json"
    )  # fmt: skip
    assert made.status == 0, made.told
    name: str = made.document["successor"]
    return name


def erase_what_is_in(onward: Program, successor: str) -> int:
    """Erase an event that the projection holds; return its number."""
    with library.open(f"sqlite:///{onward.store}") as log:
        manifest = log.manifest(successor)
        part = manifest.included[0]
        event = log.read(part.session, part.from_seq, part.from_seq).events[0]
        log.erase(event.id, reason="a leaked key")
        return event.seq


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("columns", ["60", "140"])
def test_a_manifest_is_shown_within_the_terminal_with_all_of_its_parts(
    onward: Program, successor: str, columns: str
) -> None:
    shown = onward("manifest", successor, env={"COLUMNS": columns}).text
    for words in (
        "Handoff",
        "purpose: The purpose",
        "Cost:",
        "Included",
        "Left out",
        "State that moved along",
    ):
        assert words in shown
    # A digest is one word: it stays whole, to be copied.
    assert all(len(line) <= int(columns) or " " not in line for line in shown.splitlines())
    assert any("│" in line for line in shown.splitlines()) == (columns == "140")


@pytest.mark.requirement("L5", "P1")
def test_after_an_erasure_verifying_names_what_differs_and_showing_what_is_gone(
    onward: Program, successor: str
) -> None:
    assert onward("manifest", successor, "--verify").status == 0
    seq = erase_what_is_in(onward, successor)
    told = onward("manifest", successor, "--verify")
    assert told.status == 1
    assert f"erased since: event {seq}" in " ".join(told.text.split())
    document = onward("manifest", successor, "--verify", "--json").document
    assert document["ok"] is False
    assert document["differences"][0]["why"] == f"erased since: event {seq}"
    assert "What can no longer be shown" in onward("manifest", successor).text
    document = onward("manifest", successor, "--json").document
    assert [s["erased"] for s in document["lost"]] == [[seq]]
    assert onward("verify").status == 0


def test_a_manifest_is_signed_with_a_key_of_ones_own_and_checked_with_its_public_half(
    onward: Program, successor: str, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    file = tmp_path / "key.pem"
    public = onward("key", "new", str(file)).text.strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert onward("key", "new", str(file)).code == "invalid_input"
    assert onward("key", "public", str(file)).text.strip() == public
    assert "BEGIN PUBLIC KEY" in onward("key", "pem", str(file)).text
    unsigned = onward("manifest", successor, "--verify", "--public-key", public)
    assert unsigned.status == 1
    assert "it is not signed" in unsigned.text
    signed = onward("manifest", successor, "--sign", "--key", str(file), "--json").document
    assert signed["public_key"] == public
    raw = onward("manifest", successor, "--raw").out
    assert signed["manifest_digest"] == "sha256:" + hashlib.sha256(raw).hexdigest()
    checked = onward("manifest", successor, "--verify", "--public-key", str(file), "--json")
    assert checked.status == 0
    assert checked.document["signature"]["ok"] is True
    (signature,) = onward("manifest", successor, "--json").document["signatures"]
    assert (signature["public_key"], signature["algorithm"]) == (public, "ed25519")


def test_a_key_in_the_environment_signs_when_the_manifest_is_made(onward: Program, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    file = tmp_path / "key.pem"
    public = onward("key", "new", str(file)).text.strip()
    session = onward.new()
    asked = ("continue", session, "--reason", "other", "--title", "T", "--purpose", "p", "--no-run", "--json")
    made = onward(*asked, env={"ONWARD_SIGNING_KEY": str(file)})
    assert onward("manifest", made.document["successor"], "--verify", "--public-key", public).status == 0
    gone = onward(*asked, env={"ONWARD_SIGNING_KEY": str(tmp_path / "gone.pem")})
    assert gone.document["error"]["code"] == "invalid_input"


@pytest.mark.parametrize(
    "options",
    [("--verify", "--sign"), ("--key", "x"), ("--public-key", "x"), ("--sign", "--raw"), ("--sign",)],
)
def test_options_that_do_not_belong_together_are_told(
    onward: Program, successor: str, options: tuple[str, ...]
) -> None:
    answer = onward("manifest", successor, *options)
    assert (answer.status, answer.code) == (2, "usage")
