"""Retention: what is kept is the most that fits, and what is not is counted to the byte."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.fencing import inert_json
from onward.core.retention import NOTICE, Kept, Piece, Retained, cut, retain, utf8

ALPHABETS = st.sampled_from(
    [
        "abc \n",
        "äöüß",
        "日本語テキスト、",
        "😀👩‍👩‍👧🏽🇨🇭",
        "e\u0301a\u0308\u20dd",
        '\x00\x1b"\\<&#x3C;',
        "\ud800\udc00x",
    ]
)
TEXTS = (
    st.lists(ALPHABETS.flatmap(lambda a: st.text(a, max_size=120)), max_size=4)
    .map("".join)
    .map(lambda text: json.loads(json.dumps(text)))
)
PIECES = st.lists(st.builds(Piece, text=TEXTS, stays=st.booleans()), max_size=8)
NOTICED = re.compile(re.escape(NOTICE).replace(r"\{omitted\}", r"(\d+)"))


def size(index: int, text: str) -> int:
    """What a text costs as JSON, with a comma."""
    return len(utf8(inert_json(text))) + 1


def split(text: str, original: str) -> tuple[str, int, str]:
    """The head, the count and the tail of a text that was cut, such that they are of the original."""
    for found in NOTICED.finditer(text):
        head, tail = text[: found.start()], text[found.end() :]
        for h in {head, head.removesuffix("\n")}:
            for t in {tail, tail.removeprefix("\n")}:
                gone = len(utf8(original)) - len(utf8(h)) - len(utf8(t))
                if original.startswith(h) and original.endswith(t) and gone == int(found[1]):
                    return h, gone, t
    raise AssertionError(f"{text!r} is no cut of {original!r}")


@given(text=TEXTS, keep=st.integers(0, 600))
def test_a_cut_keeps_whole_code_points_of_both_ends_and_counts_every_byte_between(
    text: str, keep: int
) -> None:
    shown, omitted = cut(text, keep)
    if keep >= len(utf8(text)):
        assert (shown, omitted) == (text, 0)
        return
    head, gone, tail = split(shown, text)  # as text: a split code point would be in neither
    assert gone == omitted > 0
    kept = len(utf8(head)) + len(utf8(tail))
    assert keep - 6 <= kept <= keep  # at most three bytes of a code point are given up at each end


@given(text=TEXTS, keep=st.integers(0, 600))
def test_keeping_more_never_omits_more(text: str, keep: int) -> None:
    assert cut(text, keep + 1)[1] <= cut(text, keep)[1]
    if keep + 1 < len(utf8(text)):
        assert size(0, cut(text, keep)[0]) <= size(0, cut(text, keep + 1)[0])


@given(pieces=PIECES, room=st.integers(0, 1500))
def test_what_is_kept_fits_and_what_is_missing_is_counted(pieces: list[Piece], room: int) -> None:
    found = retain(pieces, room, size)
    if isinstance(found, int):
        assert found > room
        must = [p for n, p in enumerate(pieces) if p.stays or n == len(pieces) - 1]
        assert found == sum(min(size(0, p.text), size(0, cut(p.text, 0)[0])) for p in must)
        return
    assert sum(size(k.index, k.text) for k in found.kept) <= room
    missing = 0
    for kept in found.kept:
        original = pieces[kept.index].text
        assert (kept.text == original) == (kept.omitted == 0)
        if kept.omitted:
            assert split(kept.text, original)[1] == kept.omitted
        missing += kept.omitted
    left = {kept.index for kept in found.kept}
    gone = [p for n, p in enumerate(pieces) if n not in left]
    assert found.dropped == len(gone)
    assert found.omitted_bytes == missing + sum(len(utf8(p.text)) for p in gone)


@given(pieces=PIECES, room=st.integers(0, 1500))
def test_checkpoints_and_the_newest_stay_and_the_others_go_oldest_first_and_no_more_than_needed(
    pieces: list[Piece], room: int
) -> None:
    found = retain(pieces, room, size)
    if isinstance(found, int):
        return
    left = [kept.index for kept in found.kept]
    may_go = [n for n, p in enumerate(pieces) if not p.stays and n < len(pieces) - 1]
    gone = [n for n in range(len(pieces)) if n not in left]
    assert left == sorted(left)
    assert gone == may_go[: len(gone)]
    if gone:  # with the newest of them back in its place it would not have fitted
        assert sum(size(n, pieces[n].text) for n in (*left, gone[-1])) > room
    if any(kept.omitted for kept in found.kept):  # nothing is cut while something can still be dropped
        assert gone == may_go


@given(pieces=PIECES, room=st.integers(0, 1500))
def test_the_longest_are_cut_and_as_little_as_possible(pieces: list[Piece], room: int) -> None:
    found = retain(pieces, room, size)
    if isinstance(found, int):
        return
    was_cut = [k for k in found.kept if k.omitted]
    whole = [k for k in found.kept if not k.omitted]
    used = sum(size(k.index, k.text) for k in found.kept)
    for kept in was_cut:
        original = pieces[kept.index].text
        least = size(0, cut(original, 0)[0])
        longest_whole = max((size(0, k.text) for k in whole if size(0, k.text) > least), default=0)
        # What stayed whole is not longer than what was cut is now, but for the code point that did not fit.
        assert longest_whole <= max(size(0, kept.text) + 12, least)
    if len(was_cut) == 1:
        [kept] = was_cut
        original = pieces[kept.index].text
        head, _, tail = split(kept.text, original)
        for keep in range(len(utf8(head)) + len(utf8(tail)) + 1, len(utf8(original))):
            more, omitted = cut(original, keep)
            if omitted < kept.omitted:
                assert used - size(0, kept.text) + size(0, more) > room
                break


@given(pieces=PIECES, room=st.integers(0, 1500))
def test_the_same_gives_the_same_and_what_fits_comes_back_as_it_is(pieces: list[Piece], room: int) -> None:
    found = retain(pieces, room, size)
    assert retain(pieces, room, size) == found
    if isinstance(found, Retained):
        again = retain([Piece(text=k.text, stays=pieces[k.index].stays) for k in found.kept], room, size)
        assert again == Retained(kept=tuple(Kept(index=n, text=k.text) for n, k in enumerate(found.kept)))


def test_a_combining_mark_may_lose_its_letter_but_never_a_byte() -> None:
    text = "e\u0301" * 50
    for keep in range(len(utf8(text))):
        shown, omitted = cut(text, keep)
        assert "\ufffd" not in shown
        assert omitted == len(utf8(text)) - len(utf8(shown)) + len(
            utf8(NOTICE.format(omitted=omitted))
        ) + shown.count("\n")
        assert all(unicodedata.category(c) != "Cn" for c in shown)


def test_a_notice_that_would_be_longer_than_the_text_is_not_written() -> None:
    found = retain([Piece(text="short"), Piece(text="x" * 500)], 120, size)
    assert isinstance(found, Retained)
    both = retain([Piece(text="short", stays=True), Piece(text="x" * 500)], 120, size)
    assert isinstance(both, Retained)
    assert both.kept[0].text == "short"
    assert both.kept[1].omitted > 0


def test_nothing_at_all_fits_anywhere() -> None:
    assert retain([], 0, size) == Retained(kept=())


@pytest.mark.timeout(20)
def test_large_texts_are_cut_without_delay() -> None:
    pieces = [Piece(text="日" * 1_000_000, stays=True), Piece(text="\x00" * 1_000_000)]
    found = retain(pieces, 65_536, size)
    assert isinstance(found, Retained)
    assert 65_500 < sum(size(k.index, k.text) for k in found.kept) <= 65_536
