"""What every store promises about the rows of engines' own files, which are kept beside the log (L5)."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest

from onward.core import ids
from onward.core.records import NativeKept, NativeRows
from onward.errors import SessionNotFound
from onward.store.contract import Batch, DropNative
from onward.testing.store_cases import ACCOUNT, OTHER_ACCOUNT, World


class NativeRowsContract:
    """The part of the suite about rows that engines wrote."""

    def test_rows_of_an_engines_own_file_come_back_in_the_order_of_adding(self, world: World) -> None:
        session = world.session()
        added = [
            _native("a", session_id=session, at=1),
            _native("b", path="sub/agent-1", session_id=session, at=2),
            _native("c", session_id=session, at=3),
        ]
        world.store.commit(Batch(native_rows=tuple(added[:2])))
        world.store.commit(Batch(native_rows=(added[2],)))
        found = world.store.native_rows(ACCOUNT, "claude-code", "n1")
        assert found == [
            added[0],
            msgspec.structs.replace(added[2], part=1),
            added[1],
        ]
        assert world.store.native_kept(ACCOUNT, "claude-code") == [
            NativeKept(native_id="n1", path="", at=3),
            NativeKept(native_id="n1", path="sub/agent-1", at=2),
        ]

    def test_rows_of_other_accounts_engines_conversations_and_scopes_are_not_mixed_in(
        self, world: World
    ) -> None:
        mine = _native("mine")
        others = (
            _native("account", account_id=OTHER_ACCOUNT),
            _native("engine", engine="other"),
            _native("conversation", native_id="n2"),
            _native("scope", scope="elsewhere"),
        )
        world.store.commit(Batch(native_rows=(mine, *others)))
        assert world.store.native_rows(ACCOUNT, "claude-code", "n1") == [mine]
        assert world.store.native_rows(ACCOUNT, "claude-code", "n1", scope="elsewhere") == [others[3]]
        assert [kept.native_id for kept in world.store.native_kept(ACCOUNT, "claude-code")] == ["n1", "n2"]
        gone = DropNative(account_id=ACCOUNT, engine="claude-code", native_id="n1")
        world.store.commit(Batch(drop_native=(gone,)))
        assert world.store.native_rows(ACCOUNT, "claude-code", "n1") == []
        for other in others:
            key = (other.account_id, other.engine, other.native_id)
            assert world.store.native_rows(*key, scope=other.scope) == [other]

    @pytest.mark.requirement("L5")
    def test_rows_of_an_engines_own_file_are_taken_away_by_file_conversation_or_session(
        self, world: World
    ) -> None:
        session, other = world.session(), world.session()
        rows = (
            _native("a", session_id=session),
            _native("b", path="sub", session_id=session),
            _native("c", native_id="n2", session_id=session),
            _native("d", native_id="n3", session_id=other),
        )
        world.store.commit(Batch(native_rows=rows))
        file = DropNative(account_id=ACCOUNT, engine="claude-code", native_id="n1", path="sub")
        world.store.commit(Batch(drop_native=(file,)))
        assert world.store.native_rows(ACCOUNT, "claude-code", "n1") == [rows[0]]
        again = _native("anew", session_id=session)
        world.store.commit(Batch(drop_native=(DropNative(session_id=session),), native_rows=(again,)))
        assert world.store.native_rows(ACCOUNT, "claude-code", "n1") == [again]
        assert world.store.native_rows(ACCOUNT, "claude-code", "n2") == []
        assert world.store.native_rows(ACCOUNT, "claude-code", "n3") == [rows[3]]

    def test_rows_for_a_session_that_is_not_there_are_refused_with_the_batch(self, world: World) -> None:
        lost = _native("a", session_id=world.ids.new(ids.SESSION))
        with pytest.raises(SessionNotFound):
            world.store.commit(Batch(native_rows=(_native("b"), lost)))
        assert world.store.native_kept(ACCOUNT, "claude-code") == []


def _native(text: str, **fields: Any) -> NativeRows:
    given = {"account_id": ACCOUNT, "engine": "claude-code", "native_id": "n1", "count": 1, **fields}
    return NativeRows(data=zlib.compress(text.encode()), **given)
