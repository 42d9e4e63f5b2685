"""Words: how text becomes search terms, in one place for every store.

A full-text index cuts text at spaces and punctuation, which is wrong three times: scripts written without spaces become one
endless word, ``parseHttpRequest`` is found only by those who know all of it, and an accent typed in two ways is two words.
``index_text`` prepares text so that any simple tokenizer gets it right; ``query_terms`` cuts a question the same way, so the
two meet; ``tokens`` is the simple tokenizer itself, for a store that has none.

All three are pure. None of them ranks, stems or knows a query syntax: a term is a word and nothing else, and stores match
documents that have all (or any) of them, in any order.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from operator import add
from typing import Final

VERSION: Final = 1
"""Raised whenever ``index_text`` answers differently for some text. A store whose index has another number rebuilds it."""

TERM_LIMIT: Final = 64
"""Distinct terms taken from one question. A pasted page does not need more to find its source."""

STOP_WORDS: Final = frozenset(
    """
    a about after all also an and any are as at be because been before but by can could did do does for
    from get had has have he her here him his how i if in into is it its just like may me more most my
    no not now of on one only or other our out over please she should so some such than that the their
    them then there these they this those to up us use used very was we were what when where which while
    who why will with would you your
    """.split()  # noqa: SIM905 (a list of words reads as words)
)
"""English words that nearly every event contains. They are left out of questions, never out of the index."""

_LONGEST_IDENTIFIER: Final = 64
_MOST_PARTS: Final = 8

# Han, kana, bopomofo, Hangul, and the scripts of South-East Asia that put no space between words.
_UNSPACED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u3096"
    "\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\u1100-\u11ff\u3131-\u318e\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_word = re.compile(r"[^\W_]+")
# A place where the case or the sort of character changes inside a word. It begins with a set of characters that prose
# seldom has, so that searching prose for it costs next to nothing.
_seam = re.compile(
    r"[A-Z0-9](?:(?<=[a-z].)|(?<=[A-Z][0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Z][A-Z])(?=[a-z]))", re.DOTALL
)
_ALPHANUMERIC: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_identifier_rest = re.compile(r"[A-Za-z0-9]*")
_part = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@cache
def _unspaced_run() -> re.Pattern[str]:
    """Compiled when a text beyond ASCII is first seen: with all its ranges it costs some milliseconds."""
    return re.compile(f"[{_UNSPACED}]+")


class _Fold(dict[int, str | int]):
    """Code point to what is indexed in its place, computed at first sight."""

    def __missing__(self, code: int) -> str | int:
        char = chr(code)
        answer: str | int = code
        # New Tai Lue vowels were marks before Unicode 8, and still are to SQLite.
        if (
            unicodedata.category(char)[0] == "M"
            or code == 0xAD
            or 0x19B0 <= code <= 0x19C9
            or code in (0x1CF2, 0x1CF3)
        ):
            answer = ""
        elif code and code < 0x80:
            pass
        elif not char.isalnum():
            # Also because a tokenizer that knows an older Unicode takes a newer symbol for a letter.
            answer = " "
        elif code == 0x3C2:  # a final sigma is a sigma
            answer = "\u03c3"
        elif 0xC0 <= code <= 0x24F or 0x1E00 <= code <= 0x1EFF:
            answer = "".join(
                c for c in unicodedata.normalize("NFKD", char) if unicodedata.category(c)[0] != "M"
            )
        self[code] = answer
        return answer


_folds: Final = _Fold()


def fold(text: str) -> str:
    """Return ``text`` in one spelling: compatibility forms normalised, accents and vowel signs dropped.

    NUL and whatever is neither ASCII nor a letter or digit becomes a space (lone surrogates and private use among it): no
    store has to fear them, and no two tokenizers can disagree about them.
    """
    if text.isascii():
        return text.replace("\0", " ")
    return unicodedata.normalize("NFKC", text).translate(_folds)


def index_text(text: str) -> str:
    """Return ``text`` as it is given to a full-text index.

    It is folded; runs of an unspaced script become overlapping pairs followed by their last character; identifiers in
    mixed case or with digits get their parts appended. Plain ASCII prose comes back as it is.
    """
    if not text.isascii():
        text = _unspaced_run().sub(_pairs_of, fold(text))
    elif "\0" in text:
        text = fold(text)
    seam = _seam.search(text)
    if seam is None:
        return text
    parts = _parts_in(text, seam)
    return f"{text} {' '.join(parts)}" if parts else text


def cut(text: str) -> list[str]:
    """Return the distinct terms of a text in their order, lower case; cutting a term again gives that term.

    A run of an unspaced script is cut into pairs, an identifier in mixed case into its parts (every spelling has those).
    """
    terms: dict[str, None] = {}
    folded = fold(text)
    if not folded.isascii():
        folded = _unspaced_run().sub(lambda run: f" {run[0]} ", folded)
    for word in _word.findall(folded):
        if not word.isascii() and _unspaced_run().match(word):
            terms.update(dict.fromkeys([word] if len(word) == 1 else _pairs(word)))
        else:
            terms.update(dict.fromkeys(lower(part) for part in (_parts_of(word) or (word,))))
    return list(terms)


def query_terms(text: str) -> list[str]:
    """Return the terms of a question: those of ``cut`` without stop words, unless nothing else is left.

    At most ``TERM_LIMIT``. A question without a single letter or digit has no terms.
    """
    terms = cut(text)
    return ([term for term in terms if term not in STOP_WORDS] or terms)[:TERM_LIMIT]


def tokens(text: str) -> list[str]:
    """Return the tokens of a text that went through ``index_text``: runs of letters and digits, lower case."""
    return _word.findall(lower(text))


def is_prefix(term: str) -> bool:
    """Whether a term stands for every token that begins with it: a single character of an unspaced script does."""
    return len(term) == 1 and not term.isascii() and _unspaced_run().match(term) is not None


def lower(text: str) -> str:
    """Return ``text`` in lower case, as terms and tokens are."""
    # Python makes the sigma at the end of a word in capitals a final one; see _Fold.
    return text.lower() if text.isascii() else text.lower().replace("\u03c2", "\u03c3")


def _pairs(run: str) -> list[str]:
    return list(map(add, run, run[1:]))


def _pairs_of(run: re.Match[str]) -> str:
    word = run[0]
    return f" {' '.join(_pairs(word))} {word[-1]} "


def _parts_in(text: str, seam: re.Match[str] | None) -> dict[str, None]:
    """The parts of all identifiers from the one with this seam on."""
    parts: dict[str, None] = {}
    end = 0
    while seam is not None:
        at = seam.start()
        begin = max(end, at - _LONGEST_IDENTIFIER)
        begin += len(text[begin:at].rstrip(_ALPHANUMERIC))
        end = _identifier_rest.match(text, at).end()  # type: ignore[union-attr]
        if end - begin <= _LONGEST_IDENTIFIER:
            parts.update(dict.fromkeys(_parts_of(text[begin:end])))
        seam = _seam.search(text, end)
    return parts


@lru_cache(maxsize=8192)
def _parts_of(identifier: str) -> tuple[str, ...]:
    """The parts of an identifier in mixed case; none for a plain word and for what is no identifier (hashes, base64)."""
    if len(identifier) > _LONGEST_IDENTIFIER or not identifier.isascii():
        return ()
    parts = tuple(_part.findall(identifier))
    return parts if 1 < len(parts) <= _MOST_PARTS else ()
