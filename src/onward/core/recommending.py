"""Recommending: which events and resources of a history a successor should be given, for a purpose.

A pure reading of what was loaded: what the purpose's words rank highest, what earlier successors asked for again,
decisions and corrections, what a person said must or must never be, failures that were not mended, the last write of each
file, closing notes. Each recommendation says in plain words why it matters, and the range it cites is never cut between a
call and its result.

Sentences are quoted as they stand, and nothing is concluded from them: there is no statement in a recommendation that the
log does not hold. Cue words decide what is a decision or a constraint, so some will be missed; a missed one is still in
the log, and the person who edits the draft has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from onward.core.bodies import Body, Checkpoint, Message, Plan, ToolCall, ToolResult
from onward.core.claims import Place
from onward.core.codec import body_of, flat
from onward.core.digests import content_digest
from onward.core.events import Event
from onward.core.lines import one_line, said
from onward.core.plans import unfinished
from onward.core.ranking import counted
from onward.core.references import Source

MAX_ASKS: Final = 5
MAX_FILES: Final = 12
MAX_QUOTED: Final = 8
"""Decisions, and constraints, that a draft quotes."""
MAX_HITS: Final = 8
"""Events that are cited because they rank highest for the purpose."""
MAX_FAILURES: Final = 3
MAX_MISSED: Final = 6
MAX_RESOURCES: Final = 6
MAX_RANGE: Final = 60
"""Events of one recommended range; a call whose result is farther away is not recommended."""
MAX_RANKED_CHARS: Final = 6_000
"""Characters behind a range that is recommended for its rank or as a last write: more would crowd out the rest, and the
numbers are told anyway."""
SHORT: Final = 300
"""Characters of a quotation; the source beside it has the whole."""

_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_DECIDED: Final = re.compile(
    r"\b(?:we|i)(?:'ve| have)? (?:decided|agreed|chose|settled on)\b|\b(?:we|i)(?:'ll| will| are going to| am going to) "
    r"(?:use|keep|go with|stick with|switch to)\b|\blet'?s (?:use|go with|keep|do|switch|stick|drop|call)\b|\bdecision:|"
    r"\bgoing with\b|决定|決めました",
    re.IGNORECASE,
)
_CORRECTED: Final = re.compile(
    r"^(?:no[,.! ]|nope\b|actually\b|wrong\b|correction\b|that'?s (?:wrong|not)|not (?:that|like that)\b|i meant\b|"
    r"instead\b|scratch that\b|wait\b)|\binstead of\b|\brather than\b",
    re.IGNORECASE,
)
_CONSTRAINED: Final = re.compile(
    r"\b(?:must(?: not|n't)?|never|don'?t|do not|always|should not|shouldn't|may not|only ever|make sure|at most|at least|"
    r"required to|forbidden)\b|必须|不要|絶対",
    re.IGNORECASE,
)
_URL: Final = re.compile(r"https?://[\w.-]+(?:[/:?#][^\s<>\"'`\\)\]}\x00-\x1f\x7f]{0,400})?")
_COMMIT: Final = re.compile(r"/(?:blob|tree|commit|raw)/([0-9a-f]{40})(?:/|$)")
_PATH: Final = re.compile(
    r"(?<![\w/.:@-])(?:\.{0,2}/)?(?:[\w.-]+/)+[\w-]+\.[A-Za-z]\w{0,7}\b|(?<![\w/.:@-])/(?:[\w.-]+/)+[\w.-]*\w"
)
_GOOD_PATH: Final = re.compile(r"[^\x00-\x1f\x7f]{1,300}")
_PATH_KEYS: Final = ("file_path", "path", "notebook_path", "filename", "file", "target_file")
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_WRITERS: Final = re.compile(r"edit|write|create|patch|replace|insert|update|delete", re.IGNORECASE)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a recommendation is made from."""

    session: str
    """The session that is being continued."""
    initiating: Event
    recent: tuple[Event, ...] = ()
    """The newest events of its history, oldest first."""
    older: tuple[Event, ...] = ()
    """Other events of its history that may matter, oldest first, with those around them."""
    terms: tuple[str, ...] = ()
    """The words of the purpose that were looked for."""
    ranked: tuple[Place, ...] = ()
    """What they find, best first."""
    missed: tuple[tuple[str, str, int, int, int], ...] = ()
    """What earlier successors asked for again: address, session, first, last, and how often; most often first."""
    plan: Plan | None = None


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a handoff that the log can give, and the sources beside them."""

    facts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    next_actions: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


def recommend(material: Material) -> Recommendation:
    """Return what is recommended. The order of sources is the order in which they should fill a budget."""
    return _Reading(material).result()


def unused(recommended: Sequence[str], cited: Sequence[Source]) -> tuple[str, ...]:
    """Return the recommended addresses of which nothing is cited: ranges that share no event with a cited one, and so on."""
    out = []
    for address in recommended:
        name, _, span = address.partition(":")
        first, _, last = span.partition("-")
        low, high = (
            (int(first), int(last or first)) if first.isdigit() and (last or first).isdigit() else (0, -1)
        )
        for source in cited:
            if source.is_events:
                upto = source.to_seq if source.to_seq is not None else source.from_seq
                same = source.session == name and source.from_seq is not None and upto is not None
                used = same and low <= upto and source.from_seq <= high  # type: ignore[operator]
            else:
                place = f"memory:{source.path}" if source.kind == "memory" else source.url or ""
                used = address.startswith(place) and address[len(place) :][:1] in ("", "@", "#")
            if used:
                break
        else:
            out.append(address)
    return tuple(out)


class _Reading:
    """The loaded events, each decoded once, and what was found in them so far."""

    def __init__(self, material: Material) -> None:
        self.material = material
        known = {event.id: event for event in (*material.older, *material.recent)}
        self.all: list[tuple[Event, Body]] = [(event, body_of(event)) for event in known.values()]
        recent = {event.id for event in material.recent}
        self.recent = [(event, body) for event, body in self.all if event.id in recent]
        self.order = {event.id: number for number, (event, _) in enumerate(self.all)}
        self.rank = {place: number for number, place in enumerate(material.ranked)}
        self.pairs = _Pairs(self.all)
        self.sources: list[Source] = []

    def result(self) -> Recommendation:
        asks = self._asks()
        closing = self._closing()
        decisions = list(self._quoted(_DECIDED, _CORRECTED))
        constraints = list(self._quoted(_CONSTRAINED))
        failures = self._failures()
        touched = dict(self._touched())
        told = {event.id for event, _ in (*asks, *decisions, *constraints, *((closing,) if closing else ()))}
        hits = self._hits(told | {self.material.initiating.id})
        facts = [f"Asked before: {self.quote(event, text)}" for event, text in asks]
        facts += [f"On this purpose, {_speaker(event)}: {self.quote(event, text)}" for event, text in hits]
        if closing:
            facts.append(f"The agent's last words: {self.quote(*closing)}")
        if touched:
            shown = list(touched.items())[-MAX_FILES:]
            facts.append("Files written: " + ", ".join(f"“{path}” {self.at(event)}" for path, event in shown))
        for event, result in failures:
            facts.append(f"A tool failed ({result.status}): {self.quote(event, flat(result.output), 160)}")
        self._cite_all(hits, decisions, constraints, closing, failures, touched, asks)
        if not self.sources and (facts or decisions):
            self.cite(self.material.initiating, "the current request")
        return Recommendation(
            facts=tuple(facts),
            decisions=tuple(self.quote(event, text) for event, text in decisions),
            cautions=tuple(
                f"{_speaker(event).capitalize()}: {self.quote(event, text)}" for event, text in constraints
            ),
            next_actions=tuple(
                f"{step.text} (plan step {step.id}, {step.status})" for step in unfinished(self.material.plan)
            ),
            sources=(*self.sources, *self._resources(touched)),
        )

    def at(self, event: Event) -> str:
        """Say where an event stands; those that a branch shares with its source have that one's numbers."""
        own = event.session_id == self.material.session
        return f"[{event.seq}]" if own else f"[{event.session_id}:{event.seq}]"

    def quote(self, event: Event, text: str, limit: int = SHORT) -> str:
        line = " ".join(text.split()).replace("“", "‘").replace("”", "’")
        if len(line) <= limit:
            return f"“{line}” {self.at(event)}"
        return f"“{line[:limit]}” (and {len(line) - limit:,} more characters) {self.at(event)}"

    def cite(self, event: Event, why: str) -> None:
        """Recommend an event, with the rest of its call or result."""
        whole = self.pairs.around((event.session_id, event.seq, event.seq))
        if whole is not None:
            self.add(event.session_id, *whole, why)

    def add(self, session: str, first: int, last: int, why: str) -> None:
        """Recommend a range. One that another range holds already adds its reason to that one."""
        for n, source in enumerate(self.sources):
            if source.session != session or source.from_seq is None or source.to_seq is None:
                continue
            if first >= source.from_seq and last <= source.to_seq:
                if why not in source.relevance:
                    both = f"{source.relevance}; {why}"[:1000]
                    self.sources[n] = msgspec.structs.replace(source, relevance=both)
                return
        one = first == last
        self.sources.append(
            Source(
                kind="session_event" if one else "session_events",
                session=session,
                from_seq=first,
                to_seq=last,
                relevance=why[:1000],
            )
        )

    def _cite_all(
        self,
        hits: Sequence[tuple[Event, str]],
        decisions: Sequence[tuple[Event, str]],
        constraints: Sequence[tuple[Event, str]],
        closing: tuple[Event, str] | None,
        failures: Sequence[tuple[Event, ToolResult]],
        touched: Mapping[str, Event],
        asks: Sequence[tuple[Event, str]],
    ) -> None:
        for _, session, first, last, times in self.material.missed[:MAX_MISSED]:
            whole = self.pairs.around((session, first, last))
            if whole is not None:
                often = "once" if times == 1 else f"{times} times"
                self.add(session, *whole, f"left out before, and asked for again ({often})")
        # How the work stood comes first: a budget that is spent on older excerpts would lose the last exchange.
        if closing:
            self.cite(closing[0], "the agent's closing note")
        if asks:
            self.cite(asks[-1][0], "what was asked before the current request")
        for event, _ in hits:
            self.cite(event, self._why(event))
        for place in self.material.ranked[:MAX_HITS]:
            ranked = self._at(place)
            if ranked and ranked.id != self.material.initiating.id and self._is_small(ranked):
                self.cite(ranked, self._why(ranked))
        for event, _ in decisions:
            self.cite(event, "a decision or correction")
        for event, _ in constraints:
            self.cite(event, f"what {_speaker(event)} said must, or must not, be")
        for event, _ in failures:
            self.cite(event, "a tool failure that was not mended since")
        summary = next((e for e, b in reversed(self.recent) if isinstance(b, Checkpoint)), None)
        if summary is not None:
            self.cite(summary, "a compaction summary that the engine wrote")
        for path, event in list(touched.items())[-3:]:
            if self._is_small(event):
                self.cite(event, f"the last write to {one_line(path)}")

    def _is_small(self, event: Event) -> bool:
        """Whether an event and what belongs to it are short enough to be recommended for their rank."""
        whole = self.pairs.around((event.session_id, event.seq, event.seq))
        if whole is None:
            return False
        size = 0
        for seq in range(whole[0], whole[1] + 1):
            found = self._at((event.session_id, seq))
            size += len(said(found)) if found is not None else 0
        return size <= MAX_RANKED_CHARS

    def _why(self, event: Event) -> str:
        """Say which words of the purpose an event has."""
        found = counted(said(event), self.material.terms)
        named = ", ".join(term for term in self.material.terms if term in found)
        return f"on the purpose: {named}" if named else "on the purpose: next to where its words stand"

    def _at(self, place: Place) -> Event | None:
        return self.pairs.events.get(place)

    def _asks(self) -> list[tuple[Event, str]]:
        found = [
            (event, body.text)
            for event, body in self.recent
            if isinstance(body, Message) and _is_ask(event, body) and event.id != self.material.initiating.id
        ]
        return found[-MAX_ASKS:]

    def _closing(self) -> tuple[Event, str] | None:
        for event, body in reversed(self.recent):
            if (
                isinstance(body, Message)
                and body.role == "assistant"
                and not body.aside
                and body.text.strip()
            ):
                return event, body.text
        return None

    def _quoted(
        self, cue: re.Pattern[str], by_user: re.Pattern[str] | None = None
    ) -> Iterator[tuple[Event, str]]:
        """Yield the sentences with a cue, at most one an event: those on the purpose first, then the newest."""
        found: list[tuple[int, int, Event, str]] = []
        for number, (event, body) in enumerate(self.all):
            if (
                not isinstance(body, Message)
                or body.aside
                or body.interrupted
                or event.id == self.material.initiating.id
            ):
                continue
            user = _is_ask(event, body)
            if body.role == "system" or (cue is _CONSTRAINED and not user):
                continue
            for sentence in _sentences(body.text):
                if cue.search(sentence) or (by_user and user and by_user.search(sentence)):
                    rank = self.rank.get((event.session_id, event.seq), len(self.rank))
                    found.append((rank, -number, event, sentence))
                    break
        chosen = sorted(found, key=lambda item: item[:2])[:MAX_QUOTED]
        for _, _, event, sentence in sorted(chosen, key=lambda item: -item[1]):
            yield event, sentence

    def _failures(self) -> list[tuple[Event, ToolResult]]:
        """Return the newest failed results whose call did not succeed later, the newest last."""
        mended: set[str] = set()
        out: list[tuple[Event, ToolResult]] = []
        for event, body in reversed(self.recent):
            if not isinstance(body, ToolResult) or body.closer:
                continue
            asked = self.pairs.asked(event.session_id, body.call)
            same = f"{asked.name} {flat(asked.input)}" if asked is not None else body.call
            if body.status == "ok":
                mended.add(same)
            elif same not in mended and len(out) < MAX_FAILURES:
                mended.add(same)
                out.append((event, body))
        return out[::-1]

    def _touched(self) -> Iterator[tuple[str, Event]]:
        """Yield the files that tool calls wrote, each with the call, in order of their last write."""
        last: dict[str, Event] = {}
        for event, body in self.recent:
            if isinstance(body, ToolCall):
                for path in written_by(body):
                    last.pop(path, None)
                    last[path] = event
        yield from last.items()

    def _hits(self, told: set[str]) -> list[tuple[Event, str]]:
        """Return the words of the best events for the purpose that are not told elsewhere, oldest first."""
        out: list[tuple[Event, str]] = []
        for place in self.material.ranked:
            event = self._at(place)
            if event is None or event.id in told:
                continue
            body = body_of(event)
            if isinstance(body, Message) and not body.aside and body.text.strip() and len(out) < MAX_ASKS:
                out.append((event, body.text))
        return sorted(out, key=lambda item: self.order[item[0].id])

    def _resources(self, touched: Mapping[str, Event]) -> list[Source]:
        """Return the resources and files that people mentioned or the agent wrote, those on the purpose first."""
        found: dict[str, tuple[tuple[int, int], Source]] = {}
        for number, (event, body) in enumerate(self.all):
            rank = (self.rank.get((event.session_id, event.seq), len(self.rank)), -number)
            for source in self._mentioned(event, body, touched):
                held = found.get(source.address())
                if held is None or rank < held[0]:
                    found[source.address()] = (rank, source)
        best = sorted(found.values(), key=lambda item: item[0])[:MAX_RESOURCES]
        return [source for _, source in best]

    def _mentioned(self, event: Event, body: Body, touched: Mapping[str, Event]) -> Iterator[Source]:
        if isinstance(body, ToolCall):
            for path in written_by(body):
                if touched.get(path) is event and _GOOD_PATH.fullmatch(path):
                    yield Source(
                        kind="memory",
                        path=path,
                        digest=_written(body),
                        relevance=f"written by the agent, last in {self.at(event)}",
                    )
        elif isinstance(body, Message) and _is_ask(event, body):
            for url in _urls(body.text):
                yield _resource(url, f"mentioned by {_speaker(event)} in {self.at(event)}")
            for path in dict.fromkeys(_PATH.findall(_URL.sub(" ", body.text))):
                if path not in touched:
                    why = f"mentioned by {_speaker(event)} in {self.at(event)}"
                    yield Source(kind="memory", path=path, relevance=why)


class _Pairs:
    """Which calls and results of the loaded events belong together."""

    def __init__(self, found: Iterable[tuple[Event, Body]]) -> None:
        self.events: dict[Place, Event] = {}
        self._calls: dict[tuple[str, str], tuple[int, ToolCall]] = {}
        self._partner: dict[Place, int] = {}
        for event, body in sorted(found, key=lambda item: (item[0].session_id, item[0].seq)):
            self.events[event.session_id, event.seq] = event
            if isinstance(body, ToolCall):
                self._calls[event.session_id, body.call] = (event.seq, body)
                self._partner[event.session_id, event.seq] = 0  # open, as far as is known
            elif isinstance(body, ToolResult):
                call = self._calls.get((event.session_id, body.call))
                self._partner[event.session_id, event.seq] = call[0] if call else 0
                if call:
                    self._partner[event.session_id, call[0]] = event.seq

    def asked(self, session: str, call: str) -> ToolCall | None:
        """Return the call of an id."""
        found = self._calls.get((session, call))
        return found[1] if found else None

    def around(self, place: tuple[str, int, int]) -> tuple[int, int] | None:
        """Return the smallest range around a range that cuts no call from its result, or None where there is none.

        There is none when a partner was not loaded, or when the range would be longer than ``MAX_RANGE``.
        """
        session, first, last = place
        if last - first >= MAX_RANGE or (session, first) not in self.events:
            # Of what was not loaded nothing is known; a range that somebody named is left as they named it.
            return (first, last) if (session, first) not in self.events and last - first < MAX_RANGE else None
        seq = first
        while seq <= last:
            partner = self._partner.get((session, seq))
            if partner == 0:
                return None
            if partner is not None and partner < first:
                first = seq = partner
                continue
            if partner is not None and partner > last:
                last = partner
            if last - first >= MAX_RANGE:
                return None
            seq += 1
        return first, last


def written_by(call: ToolCall) -> list[str]:
    """Return the files that a tool call writes, as far as its input names them."""
    given = call.input
    out: dict[str, None] = {}
    if isinstance(given, dict) and _WRITERS.search(call.name):
        out.update((given[key], None) for key in _PATH_KEYS if isinstance(given.get(key), str))
    text = given if isinstance(given, str) else _patch_text(given)
    out.update((path.strip(), None) for path in _PATCHED.findall(text))
    return [path for path in out if path.strip()]


def _patch_text(given: Any) -> str:
    if not isinstance(given, dict):
        return ""
    return "\n".join(
        value if isinstance(value, str) else "\n".join(str(v) for v in value)
        for value in given.values()
        if isinstance(value, str | list)
    )


def _written(call: ToolCall) -> str | None:
    """Return the digest of a file that a call wrote as a whole: then its version is known."""
    given = call.input
    content = given.get("content") if isinstance(given, dict) else None
    if isinstance(content, str) and re.fullmatch(r"write|write_file|create_file", call.name, re.IGNORECASE):
        return content_digest(content.encode("utf-8", "surrogatepass"))
    return None


def _resource(url: str, why: str) -> Source:
    commit = _COMMIT.search(url)
    return Source(kind="resource", url=url, version=commit[1] if commit else None, relevance=why)


def _urls(text: str) -> list[str]:
    return list(dict.fromkeys(found.rstrip(".,;:!?") for found in _URL.findall(text)))


def _is_ask(event: Event, body: Message) -> bool:
    """Whether a person or a trigger said it. Harness text that was filed under the user does not count."""
    return body.role == "user" and not body.aside and event.actor in ("user", "trigger")


def _speaker(event: Event) -> str:
    return {"user": "the user", "trigger": "a trigger"}.get(event.actor, "the agent")


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text that state something: no questions, no quotations, nothing in a code fence."""
    plain = re.sub(r"```.*?(?:```|\Z)", "\n", text[:20_000], flags=re.DOTALL)
    for sentence in _SENTENCE.split(plain):
        line = sentence.strip(" \t-*•")
        if line and not line.startswith((">", "|", "<")) and not line.endswith(("?", "？")):
            yield line
