"""Missing optional things skip with a reason, or fail where they are required; the network is out of reach."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests import needs, network


@pytest.fixture
def without_sessions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONWARD_SESSIONS", str(tmp_path / "nowhere"))


@pytest.mark.usefixtures("without_sessions")
def test_a_missing_need_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONWARD_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs sessions: no folder of recorded sessions"):
        needs.need("sessions")
    assert needs.found("sessions") is None


@pytest.mark.usefixtures("without_sessions")
def test_a_missing_need_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONWARD_REQUIRE", "sessions, model")
    with pytest.raises(pytest.fail.Exception, match="sessions is required by ONWARD_REQUIRE"):
        needs.need("sessions")


def test_a_need_that_is_there_gives_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONWARD_SESSIONS", str(tmp_path))
    assert needs.need("sessions") == needs.found("sessions") == tmp_path


def test_requiring_what_is_no_need_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONWARD_REQUIRE", "modle")
    with pytest.raises(pytest.UsageError, match="ONWARD_REQUIRE names modle"):
        needs.required()


def installed(folder: Path, name: str, prints: str) -> Path:
    """A program, in a folder as npm leaves it, that answers `--version` with this shell command."""
    command = folder / "node_modules" / ".bin" / name
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/bin/sh\n{prints}\n")
    command.chmod(0o755)
    return command


@pytest.fixture
def clis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONWARD_CLIS", str(tmp_path))
    monkeypatch.delenv("ONWARD_REQUIRE", raising=False)
    return tmp_path


def test_a_program_is_taken_from_the_named_folder_before_any_other(clis: Path) -> None:
    command = installed(clis, "codex", "echo codex-cli 999.0.0")
    assert needs.need("codex") == command
    assert needs.programs_path().startswith(str(command.parent))


def test_a_program_finds_what_lies_beside_it(clis: Path) -> None:
    installed(clis, "node", "echo 999.1.2")
    installed(clis, "gemini", "exec node")
    assert needs.need("gemini").name == "gemini"


@pytest.mark.parametrize(
    ("prints", "reason"),
    [
        ("echo 0.0.9", "is version 0.0.9, and the tests know"),
        ("echo soon", "does not say its version"),
        ("echo 999.0.0; exit 3", "--version ended with 3"),
    ],
)
def test_a_program_that_is_too_old_or_does_not_run_counts_as_missing(
    clis: Path, prints: str, reason: str
) -> None:
    installed(clis, "pi", prints)
    with pytest.raises(pytest.skip.Exception, match=reason):
        needs.need("pi")


def test_every_program_has_a_pinned_version(clis: Path) -> None:
    for name in needs.PACKAGES:
        installed(clis, name, "echo 999.0.0")
        assert needs.need(name).name == name


def test_the_programs_are_locked_to_what_is_pinned_and_to_no_address() -> None:
    folder = needs.ROOT / "tests" / "clis"
    wanted = json.loads((folder / "package.json").read_bytes())
    pinned = wanted["dependencies"] | wanted["optionalDependencies"]
    packages = json.loads((folder / "package-lock.json").read_bytes())["packages"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in pinned} == pinned
    for path, package in packages.items():
        assert "resolved" not in package, f"{path} names the registry it came from"
        assert not path or package.get("integrity") or not runs_here(package), f"{path} has no digest"


def runs_here(package: dict[str, list[str]]) -> bool:
    """Whether npm would install a package of the lock on the machines that run the tests for us: x64 Linux with glibc."""
    return (
        "linux" in package.get("os", ["linux"])
        and "x64" in package.get("cpu", ["x64"])
        and "glibc" in package.get("libc", ["glibc"])
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", b"localhost", "", None])
def test_this_machine_is_within_reach(host: object) -> None:
    assert network.is_loopback(host)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "10.0.0.1", "2001:db8::1", "example.com", b"example.com", "localhost.example.com"]
)
def test_other_machines_are_not(host: object) -> None:
    assert not network.is_loopback(host)


def test_connecting_to_another_machine_fails_and_is_remembered(network_guard: network.Guard) -> None:
    with network_guard.expected() as attempts, socket.socket() as sock:
        with pytest.raises(network.LeftTheMachine, match=r"192\.0\.2\.1"):
            sock.connect(("192.0.2.1", 9))
        assert len(attempts) == 1


def test_resolving_a_name_fails_and_is_remembered(network_guard: network.Guard) -> None:
    with network_guard.expected() as attempts:
        with pytest.raises(network.LeftTheMachine, match=r"example\.com"):
            socket.getaddrinfo("example.com", 443)
        assert len(attempts) == 1


def test_a_server_on_loopback_can_be_reached() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
    ):
        assert client.getpeername() == server.getsockname()


def test_a_browser_that_is_named_is_taken_and_one_that_is_none_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ONWARD_REQUIRE", raising=False)
    command = tmp_path / "some-chromium"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("ONWARD_CHROMIUM", str(command))
    assert needs.need("browser") == command
    monkeypatch.setenv("ONWARD_CHROMIUM", str(tmp_path / "nothing"))
    with pytest.raises(pytest.skip.Exception, match=r"ONWARD_CHROMIUM names .*nothing, which is no command"):
        needs.need("browser")


def test_without_any_browser_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ONWARD_REQUIRE", raising=False)
    monkeypatch.delenv("ONWARD_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=r"no Chromium: .*make browser"):
        needs.need("browser")
    fetched = tmp_path / "chromium-1200" / "chrome-linux" / "chrome"
    fetched.parent.mkdir(parents=True)
    fetched.touch()
    assert needs.need("browser") == fetched
