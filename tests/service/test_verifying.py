"""Verifying finds every change behind Onward's back, and names where it is: the file is edited directly here (L2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.service.conversations import CITING, World

from onward.core import digests
from onward.core.bodies import ProjectionContext
from onward.core.codec import body_of, encode
from onward.core.events import NewEvent, seal
from onward.core.ids import pack_id
from onward.core.manifest import decode_manifest, encode_manifest
from onward.errors import InvalidInput
from onward.service.verifying import Verified
from onward.store.sqlite import SqliteStore

COLUMNS = ("at", "stamp", "id", "chain", "salt", "run", "native_id", "place", "body")


class Filed:
    """A store in a file with one continued conversation, and a way to edit it behind the store's back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = World(opened=lambda: SqliteStore(path, synchronous="NORMAL"))
        self.session = self.world.conversation(4)
        self.world.log.run(self.session, "[[say done]]", engine="script")
        self.other = self.world.conversation(4)
        self.made = self.world.log.continue_session(self.session, CITING)
        self.head = self.world.log.session(self.session).head_seq

    def edit(self, statement: str, *values: object) -> int:
        """Change the file. Return how many rows that touched."""
        self.world.store.close()
        with closing(sqlite3.connect(self.path)) as db, db:
            touched = db.execute(statement, values).rowcount
        self.world.store = self.world.opened()
        return touched

    def value(self, statement: str, *values: object) -> object:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(statement, values).fetchone()[0]

    def verified(self, session_id: str | None = None) -> Verified:
        return self.world.log.verify(session_id)

    def event(self, seq: int, session_id: str | None = None) -> bytes:
        return pack_id(self.world.events(session_id or self.session)[seq - 1].id)


@pytest.fixture
def filed(tmp_path: Path) -> Filed:
    made = Filed(tmp_path / "onward.db")
    assert made.verified().ok
    return made


def flipped(value: object) -> object:
    """The same value with one bit changed."""
    match value:
        case bytes():
            return value[:-1] + bytes([value[-1] ^ 64])
        case int():
            return value ^ 1
        case str():
            return value[:-1] + chr(ord(value[-1]) ^ 1)
        case _:
            return b"\x01" * 16


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seq", [1, 5, "head"])
def test_one_flipped_bit_in_any_column_of_an_event_is_found_at_that_event(
    filed: Filed, column: str, seq: int | str
) -> None:
    place = filed.head if seq == "head" else int(seq)
    event = filed.event(place)
    before = filed.value(f"SELECT {column} FROM events WHERE id = ?", event)
    after = "3:1@0+9" if before is None and column in ("native_id", "place") else flipped(before)
    if column == "stamp":  # a number that stands for actor, kind and source: another one that exists
        after = filed.value("SELECT min(no) FROM stamps WHERE no != ?", before)
    assert filed.edit(f"UPDATE events SET {column} = ? WHERE id = ?", after, event) == 1
    found = filed.verified()
    assert not found.ok
    alone = filed.verified(filed.session)
    assert alone.first_failure is not None
    assert (alone.first_failure.session, alone.first_failure.seq) == (filed.session, place)
    assert filed.verified(filed.other).ok
    assert filed.verified(filed.made.successor).ok


@pytest.mark.requirement("L2")
def test_a_stamp_that_was_rewritten_is_found_at_the_first_event_that_carries_it(filed: Filed) -> None:
    assert filed.edit("UPDATE stamps SET actor = 'system' WHERE actor = 'agent' AND kind = 'message'") >= 1
    found = filed.verified(filed.session)
    assert found.first_failure is not None
    assert found.first_failure.seq == 3


@pytest.mark.requirement("L2", "L1")
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_removed_event_is_found_where_it_was(filed: Filed, place: str) -> None:
    seq = {"first": 1, "middle": 5, "last": filed.head}[place]
    assert filed.edit("DELETE FROM events WHERE id = ?", filed.event(seq)) == 1
    for found in (filed.verified(filed.session), filed.verified()):  # the whole store names it as exactly
        assert found.first_failure is not None
        assert (found.first_failure.session, found.first_failure.seq) == (filed.session, seq)
        assert "removed" in found.first_failure.why


@pytest.mark.requirement("L2", "L1")
def test_a_removed_event_whose_gap_was_closed_is_found_by_the_whole_store_where_it_was(filed: Filed) -> None:
    behind = [filed.event(seq) for seq in range(5, filed.head + 1)]
    assert filed.edit("DELETE FROM events WHERE id = ?", behind[0]) == 1
    for seq, event in enumerate(behind[1:], 5):
        filed.edit("UPDATE events SET seq = ? WHERE id = ?", seq, event)
    filed.edit("UPDATE sessions SET head_seq = head_seq - 1 WHERE id = ?", filed.session)
    found = filed.verified()
    assert found.first_failure is not None
    assert (found.first_failure.session, found.first_failure.seq) == (filed.session, 5)


@pytest.mark.requirement("L2", "L4")
def test_an_event_whose_stamp_leads_nowhere_is_shown_as_damaged_and_named(filed: Filed) -> None:
    assert filed.edit("UPDATE events SET stamp = 9999 WHERE id = ?", filed.event(5)) == 1
    found = filed.verified()
    assert found.first_failure is not None
    assert (found.first_failure.session, found.first_failure.seq) == (filed.session, 5)


@pytest.mark.requirement("L2", "L1")
def test_a_tail_that_was_cut_off_is_found_even_when_the_head_was_moved_back(filed: Filed) -> None:
    chain = filed.world.events(filed.session)[4].chain
    for seq in range(6, filed.head + 1):
        assert filed.edit("DELETE FROM events WHERE id = ?", filed.event(6)) == 1, seq
    found = filed.verified(filed.session)
    assert found.first_failure is not None
    assert found.first_failure.seq == 6
    # Who also moves the head back has a sound chain, and a successor that nothing tells of.
    filed.edit("UPDATE sessions SET head_seq = 5, head_chain = ? WHERE id = ?", chain, filed.session)
    found = filed.verified(filed.session)
    assert found.first_failure is not None
    assert filed.made.successor in found.first_failure.why


@pytest.mark.requirement("L2", "C4")
def test_a_predecessor_that_was_rewritten_together_with_its_whole_chain_disagrees_with_its_successor(
    filed: Filed,
) -> None:
    asked = filed.world.log.manifest(filed.made.successor).initiating

    def change(event: NewEvent) -> NewEvent:
        if event.id == asked.event:
            return msgspec.structs.replace(event, body=b'{"role":"user","text":"I never said that."}')
        return event

    reseal(filed, filed.session, change)
    assert filed.verified(filed.session).ok
    found = filed.verified()
    assert found.first_failure is not None
    assert found.first_failure.session == filed.made.successor
    assert "no longer what it was" in found.first_failure.why


@pytest.mark.requirement("L2", "L1")
def test_a_source_that_was_cut_off_before_the_point_of_its_branch_is_found(filed: Filed) -> None:
    branch = filed.world.log.fork(filed.other, 6)
    chain = filed.world.events(filed.other)[3].chain
    session = filed.value("SELECT no FROM sessions WHERE id = ?", filed.other)
    filed.edit("DELETE FROM events WHERE session = ? AND seq > 4", session)
    filed.edit("UPDATE sessions SET head_seq = 4, head_chain = ? WHERE id = ?", chain, filed.other)
    found = filed.verified(filed.other)
    assert found.first_failure is not None
    assert found.first_failure.seq == 6
    assert branch.id in found.first_failure.why


@pytest.mark.requirement("L2", "L1")
def test_two_events_that_changed_places_are_found_at_the_first_of_them(filed: Filed) -> None:
    session = filed.value("SELECT no FROM sessions WHERE id = ?", filed.session)
    for old, new in ((4, -1), (6, 4), (-1, 6)):
        assert filed.edit("UPDATE events SET seq = ? WHERE session = ? AND seq = ?", new, session, old) == 1
    found = filed.verified(filed.session)
    assert found.first_failure is not None
    assert found.first_failure.seq == 4


@pytest.mark.requirement("L2", "L1")
def test_an_event_that_was_moved_to_another_session_is_found(filed: Filed) -> None:
    there = filed.value("SELECT no FROM sessions WHERE id = ?", filed.other)
    assert filed.edit("UPDATE events SET session = ?, seq = 500 WHERE id = ?", there, filed.event(5))
    assert filed.verified(filed.session).first_failure is not None
    assert filed.verified(filed.other).first_failure is not None


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("column", ["head_seq", "head_chain"])
def test_a_head_that_does_not_fit_its_events_is_found(filed: Filed, column: str) -> None:
    before = filed.value(f"SELECT {column} FROM sessions WHERE id = ?", filed.session)
    after = before + 1 if isinstance(before, int) else flipped(before)
    filed.edit(f"UPDATE sessions SET {column} = ? WHERE id = ?", after, filed.session)
    found = filed.verified(filed.session)
    assert found.first_failure is not None
    assert found.first_failure.session == filed.session


def reseal(filed: Filed, session_id: str, change: Callable[[NewEvent], NewEvent]) -> None:
    """Rewrite a whole session consistently, as somebody who knows how digests are made would."""
    chain, sealed = digests.GENESIS, []
    for event in filed.world.events(session_id):
        fields = {name: getattr(event, name) for name in NewEvent.__struct_fields__}
        sealed.append(seal(change(NewEvent(**fields)), session_id, event.seq, chain))
        chain = sealed[-1].chain
    for event in sealed:
        filed.edit(
            "UPDATE events SET body = ?, salt = ?, chain = ? WHERE id = ?",
            event.body,
            event.salt,
            event.chain,
            pack_id(event.id),
        )
    filed.edit("UPDATE sessions SET head_chain = ? WHERE id = ?", chain, session_id)


@pytest.mark.requirement("L2", "P1")
def test_a_projection_that_was_changed_together_with_its_whole_chain_is_found_by_its_manifest(
    filed: Filed,
) -> None:
    def change(event: NewEvent) -> NewEvent:
        body = body_of(seal(event, filed.made.successor, 1, digests.GENESIS))
        if isinstance(body, ProjectionContext):
            body = msgspec.structs.replace(body, text=body.text.replace("leap days", "Mondays"))
            return msgspec.structs.replace(event, body=encode(body))
        return event

    reseal(filed, filed.made.successor, change)
    found = filed.verified()
    assert found.first_failure is not None
    assert found.first_failure.session == filed.made.successor
    assert f"manifest {filed.made.manifest} describes" in found.first_failure.why


@pytest.mark.requirement("L2", "P1")
def test_a_projection_that_was_taken_out_together_with_its_whole_chain_is_missed(filed: Filed) -> None:
    def change(event: NewEvent) -> NewEvent:
        if event.kind == "context":
            return msgspec.structs.replace(event, body=b'{"form":"opaque","text":"nothing to see"}')
        return event

    reseal(filed, filed.made.successor, change)
    found = filed.verified()
    assert found.first_failure is not None
    assert "is not in the log" in found.first_failure.why


@pytest.mark.requirement("L2", "P1")
@pytest.mark.parametrize("how", ["bytes", "digest", "gone", "unreadable", "consistent"])
def test_a_manifest_that_was_changed_is_found_and_named(filed: Filed, how: str) -> None:
    body = filed.value("SELECT body FROM manifests WHERE id = ?", filed.made.manifest)
    assert isinstance(body, bytes)
    if how == "gone":
        filed.edit("DELETE FROM manifests WHERE id = ?", filed.made.manifest)
    elif how == "digest":
        filed.edit("UPDATE manifests SET digest = 'sha256:00' WHERE id = ?", filed.made.manifest)
    else:
        manifest = msgspec.structs.replace(decode_manifest(body), digest="sha256:00")
        new = {"bytes": flipped(body), "unreadable": b"{", "consistent": encode_manifest(manifest)}[how]
        filed.edit("UPDATE manifests SET body = ? WHERE id = ?", new, filed.made.manifest)
        if how != "bytes":
            assert isinstance(new, bytes)
            filed.edit(
                "UPDATE manifests SET digest = ? WHERE id = ?",
                digests.content_digest(new),
                filed.made.manifest,
            )
    found = filed.verified()
    assert found.first_failure is not None
    assert found.first_failure.session == filed.made.successor
    assert filed.made.manifest in found.first_failure.why


@pytest.mark.requirement("L5", "L2")
def test_an_erasure_that_is_told_verifies_and_one_behind_the_logs_back_does_not(filed: Filed) -> None:
    erased = filed.world.events(filed.session)[1]
    filed.world.log.erase(erased.id, reason="a leaked key")
    assert filed.verified().ok
    silent = filed.world.events(filed.session)[2]
    filed.edit(
        "UPDATE events SET body = '{}', salt = NULL, digest = ? WHERE id = ?",
        silent.digest,
        pack_id(silent.id),
    )
    found = filed.verified(filed.session)
    assert found.first_failure is not None
    assert found.first_failure.seq == silent.seq
    assert "no event says that it was erased" in found.first_failure.why


@pytest.mark.requirement("L5")
def test_the_record_of_an_erasure_cannot_be_erased(filed: Filed) -> None:
    note = filed.world.log.erase(filed.world.events(filed.session)[1].id)
    with pytest.raises(InvalidInput):
        filed.world.log.erase(note.id)
    assert filed.verified().ok


@pytest.mark.requirement("L2")
def test_the_first_failure_is_told_and_everything_is_counted(filed: Filed) -> None:
    assert filed.verified() == Verified(
        sessions=3,
        events=sum(len(filed.world.events(s)) for s in (filed.session, filed.other, filed.made.successor)),
        ok=True,
    )


@pytest.mark.requirement("L2")
def test_a_session_that_is_written_while_it_is_verified_is_sound(world: World) -> None:
    session_id = world.conversation()

    class Writing:
        def __getattr__(self, name: str) -> object:
            return getattr(world.store, name)

        def scan(self, name: str, *, after: int = 0) -> object:
            world.say(session_id, "In between.")
            return world.store.scan(name, after=after)

    assert world.acting(store=Writing()).verify(session_id).ok  # type: ignore[arg-type]
