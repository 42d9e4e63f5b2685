"""What every store promises about search: which words find which events, within which sessions, and how many."""

from __future__ import annotations

import pytest

from onward.core import ids
from onward.core.words import query_terms
from onward.errors import EventNotFound
from onward.store.contract import Append, Batch, Erase
from onward.testing.store_cases import ACCOUNT, OTHER_ACCOUNT, World

_SPITEFUL = (
    '"',
    "''",
    'NEAR("a" "b")',
    "a AND",
    "NOT",
    "said : a",
    "{said} : a",
    "^a",
    "a*",
    "-",
    "()",
    "\0",
    "a\0b",
    "\ud800",
    "\ue000s1",
    "x" * 100_000,
    "'; DROP TABLE events; --",
    "",
    " ",
    "😀",
    "e\u0301\u0301\u0301",
)


class SearchContract:
    """The part of the suite about full text."""

    def found(self, world: World, question: str, **options: object) -> list[tuple[str, int]]:
        """What a question finds, newest first."""
        matches = world.store.search(query_terms(question), account_id=ACCOUNT, **options)  # type: ignore[arg-type]
        return [(match.session_id, match.seq) for match in matches.found]

    def test_all_terms_must_be_there_unless_any_will_do(self, world: World) -> None:
        session = world.session()
        world.append(session, "alpha", "beta", "alpha and beta", "gamma")
        assert self.found(world, "alpha beta") == [(session, 3)]
        assert self.found(world, "alpha beta", any_term=True) == [(session, 3), (session, 2), (session, 1)]
        assert self.found(world, "alpha missing") == []
        assert self.found(world, "ALPHA Beta!") == [(session, 3)]

    def test_matches_come_newest_first_and_say_when_there_are_more(self, world: World) -> None:
        first, second = world.session(), world.session()
        for n in range(3):
            world.append(first, f"word {n}")
            world.append(second, f"word {n}")
        everything = [(session, seq) for seq in (3, 2, 1) for session in (second, first)]
        assert self.found(world, "word") == everything
        assert self.found(world, "word", limit=4) == everything[:4]
        store = world.store
        assert not store.search(["word"], account_id=ACCOUNT, limit=4).complete
        assert store.search(["word"], account_id=ACCOUNT, limit=6).complete

    @pytest.mark.requirement("A1")
    def test_nothing_is_found_across_accounts(self, world: World) -> None:
        mine, theirs = world.session(), world.session(account=OTHER_ACCOUNT)
        world.append(mine, "shared secret")
        world.append(theirs, "shared secret")
        assert self.found(world, "secret") == [(mine, 1)]
        assert self.found(world, "secret", sessions=[theirs]) == []
        assert self.found(world, "secret", sessions=[mine, theirs]) == [(mine, 1)]
        assert [m.session_id for m in world.store.search(["secret"], account_id=OTHER_ACCOUNT).found] == [
            theirs
        ]

    def test_a_search_can_be_kept_to_some_sessions(self, world: World) -> None:
        sessions = [world.session() for _ in range(12)]
        for session in sessions:
            world.append(session, "common word")
        assert self.found(world, "word", sessions=[sessions[10], sessions[1]]) == [
            (sessions[10], 1),
            (sessions[1], 1),
        ]
        assert self.found(world, "word", sessions=[]) == []
        assert self.found(world, "word", sessions=["ses_unknown"]) == []
        assert len(self.found(world, "word", sessions=[*sessions, *(f"ses_{n}" for n in range(2000))])) == 12

    @pytest.mark.parametrize(
        ("text", "question"),
        [
            ("版本需求必须满足", "版本需求"),
            ("版本需求必须满足", "需求"),
            ("版本需求必须满足", "足"),
            ("参见 Field用法 一节", "Field用法"),
            ("参见 Field用法 一节", "用法"),
            ("カタカナとひらがな", "ひらがな"),
            ("한국어 검색입니다", "검색"),
            ("สวัสดีครับ", "สวัสดี"),
            ("calls parseHttpRequest here", "parseHttpRequest"),
            ("calls parseHttpRequest here", "parsehttprequest"),
            ("calls parseHttpRequest here", "http request"),
            ("calls parseHttpRequest here", "HttpRequest"),
            ("see src/core/words_index.py", "core/words_index.py"),
            ("see src/core/words_index.py", "words index"),
            ("uses utf8 and gpt-4", "UTF-8"),
            ("uses utf8 and gpt-4", "gpt4"),
            ("ein schöner Café-Besuch", "cafe"),
            ("ein scho\u0308ner Cafe\u0301-Besuch", "schöner café"),
            ("ｆｕｌｌｗｉｄｔｈ letters", "fullwidth"),
            ("ΟΔΟΣ", "οδος"),
            ("sha a3f9b2cc0d1e57aa", "a3f9b2cc0d1e57aa"),
            ("glued\U0001fae0emoji", "glued"),
        ],
    )
    def test_words_are_found_however_they_were_written(self, world: World, text: str, question: str) -> None:
        session = world.session()
        world.append(session, "something else 别的 outro", text)
        assert self.found(world, question) == [(session, 2)]

    def test_words_of_tools_and_thoughts_are_found_and_records_are_not(self, world: World) -> None:
        session = world.session()
        world.append(
            session,
            world.event(
                kind="tool_call", actor="agent", body={"call": "c", "name": "grep", "input": {"q": "needle"}}
            ),
            world.event(kind="tool_result", actor="tool", body={"call": "c", "output": ["a needle"]}),
            world.event(kind="reasoning", actor="agent", body={"text": "the needle it is"}),
            world.event(kind="raw", actor="system", body={"text": "needle"}),
        )
        assert self.found(world, "needle") == [(session, 3), (session, 2), (session, 1)]

    @pytest.mark.requirement("L4")
    def test_a_body_that_cannot_be_read_is_still_searched(self, world: World) -> None:
        session = world.session()
        world.append(
            session,
            world.event(body=b"not json: \xff needle \xed\xa0\x80"),
            world.event(body=b'"\\ud800 needle"'),
        )
        assert self.found(world, "needle") == [(session, 2), (session, 1)]

    @pytest.mark.parametrize(
        "spite", _SPITEFUL, ids=lambda spite: repr(spite)[:24].encode("ascii", "replace").decode()
    )
    def test_no_question_and_no_text_can_break_a_search(self, world: World, spite: str) -> None:
        session = world.session()
        world.append(session, world.event(spite), "plain")
        world.store.search([spite], account_id=ACCOUNT)
        world.store.search([spite, "plain"], account_id=ACCOUNT, any_term=True)
        assert self.found(world, "plain") == [(session, 2)]
        self.found(world, spite)

    def test_a_text_cannot_pretend_to_be_of_another_session(self, world: World) -> None:
        one, two = world.session(), world.session()
        world.append(one, "word \ue000s1 \ue000s2 \ue000a61")
        assert self.found(world, "word", sessions=[two]) == []
        assert self.found(world, "word", sessions=[one]) == [(one, 1)]

    def test_no_terms_find_nothing(self, world: World) -> None:
        world.append(world.session(), "text")
        matches = world.store.search([], account_id=ACCOUNT)
        assert (matches.found, matches.complete) == ((), True)

    def test_the_index_follows_the_log_within_two_hundred_events(self, world: World) -> None:
        session = world.session()
        for n in range(30):
            world.append(session, *(f"word{n * 25 + i} common" for i in range(25)))
            assert world.store.index_lag() <= 200
        assert len(self.found(world, "common", limit=1000)) == 750
        assert world.store.index_lag() == 0
        world.append(session, *(f"bulk{i}" for i in range(1500)))
        assert world.store.index_lag() <= 200
        assert self.found(world, "bulk1499") == [(session, 2250)]

    def test_an_index_built_anew_finds_the_same(self, world: World) -> None:
        session = world.session()
        world.append(session, *(f"word{n} common" for n in range(250)))
        before = self.found(world, "common")
        assert world.store.reindex() == 250
        assert self.found(world, "common") == before
        assert world.store.check() == []

    def test_events_refused_with_their_batch_are_not_found(self, world: World) -> None:
        session = world.session()
        lost = Append(session_id=session, events=(world.event("word"),))
        with pytest.raises(EventNotFound):
            world.store.commit(
                Batch(appends=(lost,), erasures=(Erase(event_id=world.ids.new(ids.EVENT), tombstone=b"{}"),))
            )
        world.append(session, "word")
        assert self.found(world, "word") == [(session, 1)]
