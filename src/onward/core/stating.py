"""Stating: what a sentence says of what, where it says so plainly.

``The port is 8417``, ``set the timeout of the relay to 45 s``, ``we use NATS instead of Redis for the queue``: a
statement has a subject (the words that name it, by stem), a value, and sometimes the value that was there before. Only
sentences of people and agents are read, one at a time, by a handful of forms; the first that fits decides.

Most sentences state nothing here, and that is meant: questions, quotations, code, what is only supposed, what names its
subject by "it". A statement that was missed costs little, and one that nobody made would hide what is true
(``superseding.py``).

It understands English forms, and the plainest of Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import msgspec

from onward.core import words
from onward.core.bodies import Body, Message
from onward.core.stemming import stem

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


# What can hold a value: a number with its unit, a name, a path, a few words. It ends where the sentence does, or at a comma
# that a blank follows.
_VALUE: Final = r"(?P<value>[^\s,;:!?][^,;!?\n]*?)"
_END: Final = r"(?=$|[,;!?]|\s+(?:because|since|as it|so that|while|and then|which)\b|\.(?:\s|$))"
_IS: Final = (
    r"(?:is called|are called|is named|is set to|are set to|was set to|were set to|has been set to|have been set to|is|are|"
    r"was|were|will be|equals|becomes|became|gets|defaults to|points to|listens on|runs on|lives in|goes to)"
)
_NOW: Final = r"(?:now|currently|actually|instead|in fact|again)"


@cache
def _form(text: str) -> re.Pattern[str]:
    """Compiled when a sentence is first held against it: together they cost as much as starting the interpreter."""
    return re.compile(text.replace("<VALUE>", _VALUE).replace("<END>", _END), re.IGNORECASE)


_FROM_TO: Final = (
    r"^(?P<subject>.*?)\bfrom\s+(?P<former>[^\s,;][^,;\n]*?)\s+to\s+<VALUE>"
    r"(?:\s+(?P<rest>(?:today|yesterday|just now)))?<END>"
)
_CHANGING: Final = (
    r"\b(?:changed?|changing|switch(?:ed|ing)?|mov(?:e|ed|ing)|rais(?:e|ed|ing)|lower(?:ed|ing)?|bump(?:ed|ing)?|"
    r"increas(?:e|ed|ing)|decreas(?:e|ed|ing)|reduc(?:e|ed|ing)|updat(?:e|ed|ing)|migrat(?:e|ed|ing)|renam(?:e|ed|ing)|"
    r"went|goes|set|cut|extend(?:ed|ing)?|shorten(?:ed|ing)?|corrected)\b"
)
_RENAMED: Final = (
    r"^(?:.*?\b)?(?:renamed|renaming|rename)\s+(?P<former>\S+(?: \S+){0,3}?)\s+(?:to|into|as)\s+<VALUE><END>"
    r"|^(?P<former2>\S+(?: \S+){0,3}?)\s+(?:was|is|has been|got|is now|are now)\s+renamed\s+(?:to\s+)?"
    r"(?P<value2>[^\s,;][^,;!?\n]*?)<END>"
)
_INSTEAD: Final = (
    r"^(?P<subject>.*?)\b(?:uses?|using|is|are|takes?|has|have|gets?|to)\s+<VALUE>\s+"
    r"(?:instead of|rather than|in place of)\s+"
    r"(?P<former>[^\s,;][^,;!?\n]*?)(?:\s+(?:as|for)\s+(?P<rest>[^,;!?\n]*?))?<END>"
)
_NO_LONGER: Final = (
    r"^(?P<subject>.*?)\b(?:no longer|not any ?more|not)\s+"
    r"(?:is\s+|uses?\s+|on\s+|at\s+|in\s+|listens?\s+on\s+|runs?\s+on\s+)?"
    r"(?P<former>[^\s,;][^,;!?\n]*?)<END>"
)
_STATED: Final = rf"^(?P<subject>[^=?]*?)\s+(?:{_IS})\s+(?P<now>(?:{_NOW})\s+)?(?:set to\s+)?<VALUE><END>"
_ASSIGNED: Final = r"^(?P<subject>[^=:<>!?]{2,80}?)\s*(?:=|:|->|→)\s+<VALUE><END>"
_IS_WHAT: Final = (
    r"^<VALUE>\s+(?:is|are)\s+what\s+(?P<subject>.*?)\s+(?:gets?|has|have|uses?|needs?)\s+(?:for|as)\s+(?:its|their|the)\s+"
    r"(?P<rest>[^,;!?\n]*?)<END>"
)
_USED: Final = (
    r"^(?P<rest>.*?)\b(?:use|uses|using|take|chose|chosen|picked|pick|set|settled on|go with|went with|put)\s+<VALUE>\s+"
    r"(?:as|for)\s+(?P<subject>[^,;!?\n]*?)<END>"
)
_SET: Final = r"^(?P<rest>.*?)\b(?:set|put)\s+(?P<subject>.*?)\s+to\s+<VALUE><END>"
_HAS: Final = (
    r"^(?P<subject>.*?)\s+(?:uses|has|have|with|gets)\s+<VALUE>\s+"
    r"as\s+(?:its|their|the)\s+(?P<rest>[^,;!?\n]*?)<END>"
)

# What a sentence has to hold for a form to fit, so that most forms are never tried.
_FORMS: Final = (
    (" what ", _IS_WHAT),
    (" as ", _HAS),
    ("", _USED),
    (" to ", _SET),
    (" ", _STATED),
    (" ", _ASSIGNED),
)

_CJK_STATED: Final = (
    r"^(?P<subject>[^\s，。；：？！,;]{2,20}?)(?P<now>现在|目前|改|已|变|調整|変更)?(?:是|为|為|成|は|은|는)"
    r"(?P<value>[^\s，。；？！,;][^，。；？！,;\n]{0,30}?)"
    r"(?:です|でした|に変更しました|입니다|였다)?$"
)
_UNSURE: Final = (
    r"\b(?:if|whether|would|could|might|(?<!of )may(?!\s*\d)|maybe|perhaps|should|shall|"
    r"suppose|assume|imagine|unless|probably|possibly|"
    r"e\.g\.|for example|for instance|what about|how about|try|tried|think|guess|seems?|about to|going to|used to|once|"
    r"never|nothing|nobody|until|unlike)\b|\?|？"
)
_CHANGE: Final = (
    r"\b(?:now|actually|correction|no longer|instead|changed?|updated?|from now on|as of today|anymore|any more|new value|"
    r"switched|renamed|moved|raised|lowered|bumped)\b|现在|改为|改成|変更|이제"
)
# Begins with blanks, so that looking for it leaps from blank to blank.
_SENTENCE: Final = re.compile(r"[ \t\r]*\n\s*|[ \t]+(?<=[.!?][ \t])")
_UNSPACED_END: Final = str.maketrans({mark: f"{mark}\n" for mark in "。！？"})
_ABBREVIATED: Final = r"\b(?:e\.g|i\.e|etc|vs|approx|no)\.$"
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
# "8417 in staging" qualifies the subject, "at 06:40" and "on Sundays" belong to the value.
_qualifying: Final = re.compile(
    r"\s+(?:in|for|when|under|with|during|per|on(?!\s+(?:\d|(?:mon|tues|wednes|thurs|fri|satur|sun)days?))|"
    r"at(?!\s+(?:\d|minute|noon|night|midnight|least|most)))\s+",
    re.IGNORECASE,
)
_UNSAID: Final = frozenset(("a", "an", "the", "now", "again", "today", "instead"))
"""Words that may stand in a value and are no part of it."""
_NOT: Final = r"\b(?:no longer|not)\b"
_NOT_THAT: Final = r"(?:and\s+)?(?:no longer|not)\s+(?P<former>.+)$"
_GIVEN: Final = r"^(?:given that|since|because|as)\s[^,]*,\s+"
# A digit, a sign inside a word, a quotation, or nothing but capitalised words.
_PARTICULAR: Final = re.compile(r"\d|\w[_/.#@-]\w|^[#@/.`\"']|^(?:[A-Z][\w-]*\s?)+$")
_DESCRIBING: Final = re.compile(r"(?:ed|ing|ly|ful|able|ible|done|ready|good|bad|clean|green|red|fine|ok)$")
_POINTING: Final = r"(?:^|[\s:;,])(?:it|that|this|these|those|there|which|who|what)\s*$"
_SPOKEN: Final = r"\b(?:i|it|we|you|they|he|she|that|this|these|those|there|is|are|was|were)\b"


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
    for part in _SENTENCE.split(text if text.isascii() else text.translate(_UNSPACED_END)):
        if parts and _form(_ABBREVIATED).search(parts[-1]):
            parts[-1] += f" {part}"
        elif part:
            parts.append(part)
    kept = []
    for part in parts:
        sentence = _LISTED.sub("", part).strip()
        if not sentence or sentence.startswith((">", "|")) or len(sentence) > SENTENCE_CHARS:
            continue
        if not _form(_UNSURE).search(sentence):
            kept.append(sentence.rstrip(".!。！ "))
    return kept


def _stated(sentence: str) -> list[Statement]:
    """Return the statements of one sentence; the first form that fits decides."""
    sentence = _form(_GIVEN).sub("", sentence)
    low = sentence.lower()
    if "renam" in low and (found := _form(_RENAMED).match(sentence)):
        former, value = found["former"] or found["former2"], found["value"] or found["value2"]
        return [Statement(subject=frozenset(), value=folded(value), former=folded(former), change=True)]
    if (
        " to " in low
        and (found := _form(_FROM_TO).match(sentence))
        and _form(_CHANGING).search(found["subject"])
    ):
        return _made(found["subject"], found["value"], former=found["former"], change=True)
    if (" of " in low or " than " in low) and (found := _form(_INSTEAD).match(sentence)):
        subject = f"{found['subject']} {found['rest'] or ''}"
        return _made(subject, found["value"], former=found["former"], change=True)
    former = None
    if _form(_NOT).search(low):
        head, _, tail = sentence.rpartition(", ")
        if head and (negated := _form(_NOT_THAT).match(tail)):
            sentence, former = head, negated["former"]  # "is B, not A"
        elif "no longer" in low and (negated := _form(_NO_LONGER).match(sentence)):
            return _made(negated["subject"], None, former=negated["former"], change=True)
        else:
            return []
    change = former is not None or _form(_CHANGE).search(sentence) is not None
    for sign, pattern in _FORMS:
        if sign not in low or not (found := _form(pattern).match(sentence)):
            continue
        named = found.groupdict()
        # "I found it in the notes: 8417" and "8417, that is the port" name no subject.
        if _form(_POINTING).search(named["subject"]):
            return []
        if pattern is _ASSIGNED and _form(_SPOKEN).search(named["subject"]):
            return []
        subject = f"{named['subject']} {named.get('rest') or ''}"
        return _made(subject, found["value"], former=former, change=change)
    if not sentence.isascii() and (found := _form(_CJK_STATED).match(sentence)):
        return _made(found["subject"], found["value"], former=None, change=change or bool(found["now"]))
    return []


def _made(subject: str, value: str | None, *, former: str | None, change: bool) -> list[Statement]:
    if value is not None:
        value, *more = _qualifying.split(value, maxsplit=1)
        subject = " ".join([subject, *more])
    terms = tuple(term for term in words.cut(subject) if term not in _FILLING)
    named = frozenset(map(stem, terms))
    now, before = folded(value), folded(former)
    unclear = (value is not None and now is None) or (former is not None and before is None)
    if unclear or not 1 <= len(named) <= SUBJECT_WORDS:
        return []
    return [
        Statement(
            subject=named,
            value=now,
            former=before,
            change=change,
            particular=value is not None and _PARTICULAR.search(value) is not None,
            terms=terms,
        )
    ]


def folded(text: str | None) -> str | None:
    """Return a value in one spelling, or None for what is no value: too long, or nothing but filling words."""
    if text is None:
        return None
    cut = [term for term in words.cut(text) if term not in _UNSAID]
    if len(cut) > VALUE_WORDS or all(term in _FILLING for term in cut):
        return None
    return " ".join(cut)


def is_plain(value: str) -> bool:
    """Whether a value is one word that does not just describe a state."""
    return " " not in value and _DESCRIBING.search(value) is None


def is_telling(value: str) -> bool:
    """Whether a value is hardly meant for another subject: ``parse dates`` or ``8417``, not ``4`` or ``debug``."""
    return len(value) > 3 and (" " in value or any(c.isdigit() for c in value) or len(value) > 10)
