"""The rows of engines' own files: kept in order beside the log, read back whole, gone after an erasure."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conversations import World

from onward.core.bodies import Message
from onward.core.ids import LOCAL_ACCOUNT
from onward.core.records import Run
from onward.engines.contract import Mirrored, NativeFile
from onward.errors import InvalidInput, LeaseLost, SessionNotFound
from onward.service import native_records, running, sessions
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.testing.clock import FakeClock

ENGINE = "claude-code"


@pytest.fixture
def platform(world: World) -> Platform:
    return world.platform


def held(platform: Platform, title: str = "Work") -> Run:
    """A run that is being executed."""
    session = sessions.start(platform, title)
    asked = running.submit(platform, session.id, "Go on.", engine=ENGINE)
    return running.claim(platform, asked.id, "me", engine=ENGINE)


def mirrored(*rows: bytes, path: str = "", id: str = "n1") -> Mirrored:
    return Mirrored(native_id=id, rows=rows, path=path)


def load(platform: Platform, run: Run, id: str = "n1") -> tuple[NativeFile, ...]:
    return native_records.load(platform, run.session_id, ENGINE, id)


def test_rows_come_back_by_file_in_the_order_in_which_they_came(platform: Platform) -> None:
    run = held(platform)
    for one in (mirrored(b"1", b"2"), mirrored(b"a", path="sub/1"), mirrored(b"3"), mirrored()):
        native_records.append(platform, run, ENGINE, one)
    assert load(platform, run) == (
        NativeFile(native_id="n1", rows=(b"1", b"2", b"3")),
        NativeFile(native_id="n1", path="sub/1", rows=(b"a",)),
    )
    assert load(platform, run, "n2") == ()


def test_a_row_that_was_sent_again_is_told_once(platform: Platform) -> None:
    run = held(platform)
    twice = mirrored(b'{"uuid":"a"}', b'{"type":"mode"}')
    native_records.append(platform, run, ENGINE, twice)
    native_records.append(platform, run, ENGINE, twice)
    (file,) = load(platform, run)
    assert file.rows == (b'{"uuid":"a"}', b'{"type":"mode"}', b'{"type":"mode"}')


@pytest.mark.requirement("L6")
def test_a_runner_that_lost_its_lease_keeps_nothing(platform: Platform) -> None:
    run = held(platform)
    stale = msgspec.structs.replace(run, fence=run.fence - 1)
    with pytest.raises(LeaseLost):
        native_records.append(platform, stale, ENGINE, mirrored(b"1"))
    assert load(platform, run) == ()


@pytest.mark.requirement("A1")
def test_another_account_reads_none_of_it(platform: Platform) -> None:
    run = held(platform)
    native_records.append(platform, run, ENGINE, mirrored(b"1"))
    other = msgspec.structs.replace(platform, account_id="acc_other")
    with pytest.raises(SessionNotFound):
        native_records.load(other, run.session_id, ENGINE, "n1")
    assert native_records.kept(other, ENGINE, "n1") == ()
    assert platform.account_id == LOCAL_ACCOUNT


def test_a_conversation_belongs_to_one_session(platform: Platform) -> None:
    mine, theirs = held(platform), held(platform, "Other")
    native_records.append(platform, mine, ENGINE, mirrored(b"mine"))
    native_records.append(platform, theirs, ENGINE, mirrored(b"theirs"))
    assert [file.rows for file in load(platform, mine)] == [(b"mine",)]


@pytest.mark.requirement("L5")
def test_an_erasure_takes_the_rows_of_its_session_and_of_no_other(platform: Platform) -> None:
    run, other = held(platform), held(platform, "Other")
    native_records.append(platform, run, ENGINE, mirrored(b'{"text":"SECRET"}'))
    native_records.append(platform, other, ENGINE, mirrored(b"theirs", id="n2"))
    event = platform.event("message", Message(role="assistant", text="SECRET"), "agent", run_id=run.id)
    running.record(platform, run, (event,))
    sessions.erase(platform, event.id)
    assert load(platform, run) == ()
    assert len(load(platform, other, "n2")) == 1


def test_what_a_client_keeps_is_apart_from_sessions_and_by_scope(platform: Platform) -> None:
    run = held(platform)
    native_records.append(platform, run, ENGINE, mirrored(b"a session's"))
    native_records.keep(platform, ENGINE, "n1", [b"x"], scope="p")
    native_records.keep(platform, ENGINE, "n1", [b"y"], scope="p", path="sub")
    native_records.keep(platform, ENGINE, "n1", [], scope="never")
    assert [file.rows for file in native_records.kept(platform, ENGINE, "n1", scope="p")] == [
        (b"x",),
        (b"y",),
    ]
    assert [one.path for one in native_records.listed(platform, ENGINE, scope="p")] == ["", "sub"]
    assert native_records.listed(platform, ENGINE, scope="never") == []
    native_records.delete(platform, ENGINE, "n1", scope="p", path="sub")
    assert [one.path for one in native_records.listed(platform, ENGINE, scope="p")] == [""]
    native_records.delete(platform, ENGINE, "n1", scope="p")
    native_records.delete(platform, ENGINE, "n1", scope="p")
    assert native_records.kept(platform, ENGINE, "n1", scope="p") == ()
    assert len(load(platform, run)) == 1


def test_a_row_is_one_line(platform: Platform) -> None:
    with pytest.raises(InvalidInput, match="line feed"):
        native_records.keep(platform, ENGINE, "n1", [b"a\nb"])


ROWS = st.lists(st.lists(st.binary(max_size=20).filter(lambda row: b"\n" not in row), min_size=1), max_size=5)


@given(ROWS)
def test_rows_come_back_to_the_byte_however_they_were_sent(batches: list[list[bytes]]) -> None:
    platform = Platform(store=MemoryStore(), clock=FakeClock())
    for batch in batches:
        native_records.keep(platform, ENGINE, "n1", batch)
    found = [row for file in native_records.kept(platform, ENGINE, "n1") for row in file.rows]
    assert found == [row for batch in batches for row in batch]
