"""Superseding: whether a later event replaces what an earlier one says.

A search finds what was said, and the oldest saying of it as readily as the newest. Here pairs are judged, by rules that a
person can follow, and each verdict names its rule:

- ``revision``: a newer revision of the plan or of the pins replaces an older one.
- ``file``: a later read or write of the same file, that did not fail, replaces an earlier one.
- ``restated``: the same subject is given another value, ``the port is 8417`` and later ``the port is now 9000``. Without
  a word of change (now, actually, correction …) the subject has to be named by two words at least, and both values have
  to be numbers, names or code.
- ``changed``: a sentence says what became of a value: ``from A to B``, ``B instead of A``, ``no longer A``, ``renamed A
  to B``.

A wrong verdict hides what is true, and a missed one only leaves two hits to compare. So every doubt is decided for
"replaces nothing": a subject has to agree in all its words, questions and what is only supposed do not count, nor does what
tools print or what is quoted. Words are compared by stem. A later event that returns to the same value replaces nothing.

The order of events is the caller's: ``newest`` takes later statements in their order, and never names an earlier one, since
it is given none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from onward.core import words
from onward.core.bodies import Body, Message, Pins, Plan, ToolCall, ToolResult
from onward.core.stemming import stem

Rule = Literal["revision", "file", "restated", "changed"]

READ_CHARS: Final = 4000
"""Characters of a message that are read for statements."""
SENTENCE_CHARS: Final = 300
"""Longer sentences say too much at once to be taken for a statement."""
SUBJECT_WORDS: Final = 8
VALUE_WORDS: Final = 6


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a sentence says: of a subject, its value, and what was its value before."""

    subject: frozenset[str]
    """The stems of the words that name it."""
    value: str | None
    """What it is, folded; None when the sentence only says what it is no longer."""
    former: str | None = None
    """What it was before, where the sentence says so."""
    change: bool = False
    """Whether the sentence speaks of a change."""
    particular: bool = False
    """Whether the value is a number, a name or a piece of code, rather than words that describe something."""

    terms: tuple[str, ...] = ()
    """The words that name the subject, to look for other statements on it."""


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool call did to one file."""

    path: str
    writes: bool
    part: str = ""
    """Which part of the file a read asked for; empty for all of it."""


# What can hold a value: a number with its unit, a name, a path, a few words. It ends where the sentence does, or at a comma
# that a blank follows.
_VALUE: Final = r"(?P<value>[^\s,;:!?][^,;!?\n]*?)"
_END: Final = r"(?=$|[,;!?]|\s+(?:because|since|as it|so that|while|and then|which)\b|\.(?:\s|$))"
_IS: Final = (
    r"(?:is called|are called|is named|is set to|are set to|was set to|were set to|has been set to|have been set to|is|are|"
    r"was|were|will be|equals|becomes|became|gets|defaults to|points to|listens on|runs on|lives in|goes to)"
)
_NOW: Final = r"(?:now|currently|actually|instead|in fact|again)"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("<VALUE>", _VALUE).replace("<END>", _END), re.IGNORECASE)


_FROM_TO: Final = _pattern(
    r"^(?P<subject>.*?)\bfrom\s+(?P<former>[^\s,;][^,;\n]*?)\s+to\s+<VALUE>"
    r"(?:\s+(?P<rest>(?:today|yesterday|just now)))?<END>"
)
_CHANGING: Final = re.compile(
    r"\b(?:changed?|changing|switch(?:ed|ing)?|mov(?:e|ed|ing)|rais(?:e|ed|ing)|lower(?:ed|ing)?|bump(?:ed|ing)?|"
    r"increas(?:e|ed|ing)|decreas(?:e|ed|ing)|reduc(?:e|ed|ing)|updat(?:e|ed|ing)|migrat(?:e|ed|ing)|renam(?:e|ed|ing)|"
    r"went|goes|set|cut|extend(?:ed|ing)?|shorten(?:ed|ing)?|corrected)\b",
    re.IGNORECASE,
)
_RENAMED: Final = _pattern(
    r"^(?:.*?\b)?(?:renamed|renaming|rename)\s+(?P<former>\S+(?: \S+){0,3}?)\s+(?:to|into|as)\s+<VALUE><END>"
    r"|^(?P<former2>\S+(?: \S+){0,3}?)\s+(?:was|is|has been|got|is now|are now)\s+renamed\s+(?:to\s+)?"
    r"(?P<value2>[^\s,;][^,;!?\n]*?)<END>"
)
_INSTEAD: Final = _pattern(
    r"^(?P<subject>.*?)\b(?:uses?|using|is|are|takes?|has|have|gets?|to)\s+<VALUE>\s+"
    r"(?:instead of|rather than|in place of)\s+"
    r"(?P<former>[^\s,;][^,;!?\n]*?)(?:\s+(?:as|for)\s+(?P<rest>[^,;!?\n]*?))?<END>"
)
_NO_LONGER: Final = _pattern(
    r"^(?P<subject>.*?)\b(?:no longer|not any ?more|not)\s+"
    r"(?:is\s+|uses?\s+|on\s+|at\s+|in\s+|listens?\s+on\s+|runs?\s+on\s+)?"
    r"(?P<former>[^\s,;][^,;!?\n]*?)<END>"
)
_STATED: Final = _pattern(
    rf"^(?P<subject>[^=?]*?)\s+(?:{_IS})\s+(?P<now>(?:{_NOW})\s+)?(?:set to\s+)?<VALUE><END>"
)
_ASSIGNED: Final = _pattern(r"^(?P<subject>[^=:<>!?]{2,80}?)\s*(?:=|:|->|→)\s+<VALUE><END>")
_IS_WHAT: Final = _pattern(
    r"^<VALUE>\s+(?:is|are)\s+what\s+(?P<subject>.*?)\s+(?:gets?|has|have|uses?|needs?)\s+(?:for|as)\s+(?:its|their|the)\s+"
    r"(?P<rest>[^,;!?\n]*?)<END>"
)
_USED: Final = _pattern(
    r"^(?P<rest>.*?)\b(?:use|uses|using|take|chose|chosen|picked|pick|set|settled on|go with|went with|put)\s+<VALUE>\s+"
    r"(?:as|for)\s+(?P<subject>[^,;!?\n]*?)<END>"
)
_SET: Final = _pattern(r"^(?P<rest>.*?)\b(?:set|put)\s+(?P<subject>.*?)\s+to\s+<VALUE><END>")
_HAS: Final = _pattern(
    r"^(?P<subject>.*?)\s+(?:uses|has|have|with|gets)\s+<VALUE>\s+as\s+(?:its|their|the)\s+(?P<rest>[^,;!?\n]*?)<END>"
)

_CJK_STATED: Final = re.compile(
    r"^(?P<subject>[^\s，。；：？！,;]{2,20}?)(?P<now>现在|目前|改|已|变|調整|変更)?(?:是|为|為|成|は|은|는)(?P<value>[^\s，。；？！,;][^，。；？！,;\n]{0,30}?)"
    r"(?:です|でした|に変更しました|입니다|였다)?$"
)
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|would|could|might|(?<!of )may(?!\s*\d)|maybe|perhaps|should|shall|"
    r"suppose|assume|imagine|unless|probably|possibly|"
    r"e\.g\.|for example|for instance|what about|how about|try|tried|think|guess|seems?|about to|going to|used to|once|"
    r"never|nothing|nobody|until|unlike)\b|\?|？",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    r"\b(?:now|actually|correction|no longer|instead|changed?|updated?|from now on|as of today|anymore|any more|new value|"
    r"switched|renamed|moved|raised|lowered|bumped)\b|现在|改为|改成|変更|이제",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
_ABBREVIATED: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|approx|no)\.$", re.IGNORECASE)
_LISTED: Final = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_FENCED: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Words that introduce a sentence, or join one, and name nothing.
_FILLING: Final = words.STOP_WORDS | frozenset(
    """
    actually again already as correction currently decided decision final finally fine fix fixed given just later let
    longer moment note ok okay please right set settled so still therefore today update updated well yes yesterday new
    changed change changes changing raised lowered switched moved bumped increased decreased reduced renamed rename gets
    uses use using value know remember that instead anymore sorry thanks went
    """.split()  # noqa: SIM905 (a list of words reads as words)
)
_VAGUE: Final = frozenset(
    stem(word)
    for word in """
    answer case code error file idea it issue line message number one option output plan point problem question reason result
    rest same step test thing time type way word work phase part section item task todo note status summary
    """.split()  # noqa: SIM905
)
"""Subjects that a conversation names anew all the time: alone they tell nothing."""
_PATHS: Final = ("file_path", "path", "notebook_path", "filename", "file", "target_file")
_PARTS: Final = (
    "offset",
    "limit",
    "start",
    "end",
    "range",
    "lines",
    "start_line",
    "end_line",
    "view_range",
    "pages",
)
_WRITES: Final = re.compile(r"edit|write|create|patch|replace|insert|update|delete", re.IGNORECASE)
_READS: Final = re.compile(r"read|view|open|cat|get|show", re.IGNORECASE)
# "8417 in staging" qualifies the subject, "at 06:40" and "on Sundays" belong to the value.
_qualifying: Final = re.compile(
    r"\s+(?:in|for|when|under|with|during|per|on(?!\s+(?:\d|(?:mon|tues|wednes|thurs|fri|satur|sun)days?))|"
    r"at(?!\s+(?:\d|minute|noon|night|midnight|least|most)))\s+",
    re.IGNORECASE,
)
_GIVEN: Final = re.compile(r"^(?:given that|since|because|as)\s[^,]*,\s+", re.IGNORECASE)
# A digit, a sign inside a word, a quotation, or nothing but capitalised words.
_PARTICULAR: Final = re.compile(r"\d|\w[_/.#@-]\w|^[#@/.`\"']|^(?:[A-Z][\w-]*\s?)+$")
_DESCRIBING: Final = re.compile(r"(?:ed|ing|ly|ful|able|ible|done|ready|good|bad|clean|green|red|fine|ok)$")
_POINTING: Final = re.compile(
    r"(?:^|[\s:;,])(?:it|that|this|these|those|there|which|who|what)\s*$", re.IGNORECASE
)
_SPOKEN: Final = re.compile(
    r"\b(?:i|it|we|you|they|he|she|that|this|these|those|there|is|are|was|were)\b", re.IGNORECASE
)


def statements(body: Body) -> tuple[Statement, ...]:
    """Return what a message states, sentence by sentence; nothing for anything but what people and agents said."""
    if not isinstance(body, Message) or body.role == "system" or body.aside or body.interrupted:
        return ()
    text = _FENCED.sub("\n", body.text[:READ_CHARS])
    out: list[Statement] = []
    for sentence in _sentences(text):
        out += _stated(sentence)
    return tuple(out)


def _sentences(text: str) -> list[str]:
    """Return the sentences that may be statements: no questions, quotations, suppositions or long ones."""
    parts: list[str] = []
    for part in _SENTENCE.split(text):
        if parts and _ABBREVIATED.search(parts[-1]):
            parts[-1] += f" {part}"
        elif part:
            parts.append(part)
    kept = []
    for part in parts:
        sentence = _LISTED.sub("", part).strip()
        if not sentence or sentence.startswith((">", "|")) or len(sentence) > SENTENCE_CHARS:
            continue
        if not _UNSURE.search(sentence):
            kept.append(sentence.rstrip(".!。！ "))
    return kept


def _stated(sentence: str) -> list[Statement]:
    """Return the statements of one sentence; the first form that fits decides."""
    sentence = _GIVEN.sub("", sentence)
    if found := _RENAMED.match(sentence):
        former, value = found["former"] or found["former2"], found["value"] or found["value2"]
        return [Statement(subject=frozenset(), value=_value(value), former=_value(former), change=True)]
    if (found := _FROM_TO.match(sentence)) and _CHANGING.search(found["subject"]):
        return _made(found["subject"], found["value"], former=found["former"], change=True)
    if found := _INSTEAD.match(sentence):
        return _made(
            f"{found['subject']} {found['rest'] or ''}", found["value"], former=found["former"], change=True
        )
    former = None
    if re.search(r"\b(?:no longer|not)\b", sentence, re.IGNORECASE):
        head, _, tail = sentence.rpartition(", ")
        if head and (
            negated := re.match(r"(?:and\s+)?(?:no longer|not)\s+(?P<former>.+)$", tail, re.IGNORECASE)
        ):
            sentence, former = head, negated["former"]  # "is B, not A"
        elif (negated := _NO_LONGER.match(sentence)) and "no longer" in sentence.lower():
            return _made(negated["subject"], None, former=negated["former"], change=True)
        else:
            return []
    change = former is not None or _CHANGE.search(sentence) is not None
    for pattern in (_IS_WHAT, _HAS, _USED, _SET, _STATED, _ASSIGNED):
        if found := pattern.match(sentence):
            named = found.groupdict()
            if (pattern is _ASSIGNED and _SPOKEN.search(named["subject"])) or _POINTING.search(
                named["subject"]
            ):
                return []  # "I found it in the notes: 8417" and "8417, that is the port" name no subject
            return _made(
                f"{named['subject']} {named.get('rest') or ''}", found["value"], former=former, change=change
            )
    if not sentence.isascii() and (found := _CJK_STATED.match(sentence)):
        return _made(found["subject"], found["value"], former=None, change=change or bool(found["now"]))
    return []


def _made(subject: str, value: str | None, *, former: str | None, change: bool) -> list[Statement]:
    qualified = subject
    if value is not None:
        value, *more = _qualifying.split(value, maxsplit=1)
        qualified = " ".join([subject, *more])
    terms = tuple(term for term in words.cut(qualified) if term not in _FILLING)
    named = frozenset(stem(term) for term in terms)
    folded = _value(value)
    before = _value(former)
    if (
        not 1 <= len(named) <= SUBJECT_WORDS
        or (value is not None and folded is None)
        or (former and before is None)
    ):
        return []
    if folded is None and before is None:
        return []
    particular = value is not None and _PARTICULAR.search(value) is not None
    return [
        Statement(
            subject=named, value=folded, former=before, change=change, particular=particular, terms=terms
        )
    ]


def _value(text: str | None) -> str | None:
    """Return a value in one spelling, or None for what is no value: too long, or nothing but filling words."""
    if text is None:
        return None
    cut = [term for term in words.cut(text.strip("\"'“”‘’«»().")) if term not in ("a", "an", "the", "now")]
    return (
        " ".join(cut) if 1 <= len(cut) <= VALUE_WORDS and any(term not in _FILLING for term in cut) else None
    )


def can_be_replaced(stated: Statement) -> bool:
    """Whether any later statement could replace this one, so that it is worth looking for one."""
    return stated.value is not None and (
        stated.particular or _plain(stated.value) or is_telling(stated.value)
    )


def restates(earlier: Statement, later: Statement) -> Rule | None:
    """Return the rule by which a later statement replaces an earlier one, or None."""
    if earlier.value is None:
        return None
    if later.former is not None and later.former == earlier.value and later.value != earlier.value:
        # The value that is given up is the one that was stated. The sentence may name less of the subject, but nothing else.
        if later.subject == earlier.subject or (
            later.subject < earlier.subject and not later.subject <= _VAGUE
        ):
            return "changed"
        if (not later.subject or earlier.subject < later.subject) and is_telling(earlier.value):
            return "changed"
        return None
    if later.value is None or later.value == earlier.value or earlier.subject != later.subject:
        return None
    naming = {word for word in earlier.subject if word not in _VAGUE and not word.isdigit()}
    if not naming or not _same_sort(earlier.value, later.value):
        return None
    if earlier.particular and later.particular:
        return "restated" if later.change or len(naming) > 1 else None
    # A word that is no name may be a value too (``debug``, then ``trace``), if the sentence speaks of a change.
    plain = later.change and _plain(earlier.value) and _plain(later.value)
    return "restated" if plain else None


def _plain(value: str) -> bool:
    """Whether a value is one word that does not just describe a state."""
    return " " not in value and _DESCRIBING.search(value) is None


def is_telling(value: str) -> bool:
    """Whether a value is hardly meant for another subject: ``parse dates`` or ``8417``, not ``4`` or ``debug``."""
    return len(value) > 3 and (" " in value or any(c.isdigit() for c in value) or len(value) > 10)


def _same_sort(one: str, other: str) -> bool:
    """Whether two values could stand for each other: both hold a number, or neither does."""
    return any(c.isdigit() for c in one) == any(c.isdigit() for c in other)


def touches(body: Body) -> tuple[Touch, ...]:
    """Return the files that a tool call reads or writes, as far as its input names them."""
    if not isinstance(body, ToolCall) or not isinstance(body.input, dict):
        return ()
    writes = _WRITES.search(body.name) is not None
    if not writes and not _READS.search(body.name):
        return ()
    given: dict[str, Any] = body.input
    part = "" if writes else ",".join(f"{key}={given[key]}" for key in _PARTS if given.get(key) is not None)
    paths = dict.fromkeys(given[key] for key in _PATHS if isinstance(given.get(key), str) and given[key])
    return tuple(Touch(path=path, writes=writes, part=part) for path in paths)


def touched_again(earlier: Sequence[Touch], later: Sequence[Touch], result: ToolResult | None) -> bool:
    """Whether a later tool call replaces an earlier one on the same file; ``result`` is the later one's.

    A call that failed, or whose outcome is not known, replaces nothing. A read of a part replaces a read of the same part.
    """
    if result is None or result.status != "ok" or result.closer:
        return False
    return any(
        one.path == two.path and (two.writes or two.part in ("", one.part))
        for one in earlier
        for two in later
    )


def newer_revision(earlier: Body, later: Body) -> bool:
    """Whether a later plan or set of pins is another revision of an earlier one."""
    return isinstance(earlier, Plan | Pins) and type(later) is type(earlier)


def newest(
    earlier: Sequence[Statement], later: Sequence[tuple[str, Sequence[Statement]]]
) -> tuple[str, Rule] | None:
    """Return the id of the event that replaces what an earlier one stated, with the rule, or None.

    ``later`` holds the later events with what they state, in their order. The newest that speaks about the subject
    decides: when it returns to the earlier value, nothing is replaced.
    """
    for one in earlier:
        replaced: tuple[str, Rule] | None = None
        value = one
        for event, stated in later:
            for other in stated:
                if rule := restates(value, other) or restates(one, other):
                    replaced = (event, rule)
                    if other.value is not None:
                        value = msgspec.structs.replace(value, value=other.value)
                if other.value == one.value and other.subject == one.subject:
                    replaced, value = None, one
        if replaced:
            return replaced
    return None
