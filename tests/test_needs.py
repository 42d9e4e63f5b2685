"""Missing optional things skip with a reason, or fail where they are required; the network is out of reach."""

from __future__ import annotations

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
