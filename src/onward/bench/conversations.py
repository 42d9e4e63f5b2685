"""Long conversations, made up, with questions whose evidence is known: what the ranking is measured on.

A lineage is a few sessions that continue one another, with people and agents talking, tools called and answering. Facts are
dropped into it, and everything around a fact is made to resemble it (``conversations_talk.py``):

- the subject of a fact is talked about all the time, mostly about nothing; so are its property and its reason;
- a subject has several facts, so naming the subject alone finds the wrong ones as well;
- ``beside``: some facts are an answer that has none of the words of the question before it;
- ``replaced``: some are replaced by a later value, and both say almost the same;
- ``early``: some lie in the first session, and each of their words stands in many later events.

Questions are asked in other words (``conversations_words.py``): another name for the subject, the property paraphrased or in
another form of its word, the reason in another form, or not mentioned. At least one of the three is recognisable. The same
seed gives the same events, ids and times included.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from typing import Any, Final

import msgspec

from onward.bench import conversations_words as words
from onward.bench.conversations_talk import Subject, Talk
from onward.bench.conversations_words import Property
from onward.core import ids as make
from onward.core.events import NewEvent
from onward.core.records import Link, Session
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, Store

START: Final = 1_767_225_600_000_000
"""The first moment, in microseconds since 1970: the beginning of 2026."""

KINDS: Final = ("told", "early", "beside", "replaced", "why", "code", "tool", "cjk")
"""Classes of questions."""

_STEP: Final = 40_000_000
_CHUNK: Final = 1000
_WAYS: Final = ("told", "told", "beside", "replaced", "early")
_FACTS: Final = 4
"""Properties that each subject has."""
_BUGS: Final = 2
_FILES: Final = 5

Turn = Callable[[], list[NewEvent]]
"""Makes the events of one exchange when it is its turn."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How much is made. A lineage comes with about a hundred questions, however long it is."""

    lineages: int = 4
    sessions: int = 5
    events: int = 1000
    """Events of a session."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the one event that answers it."""

    kind: str
    text: str
    session: str
    """Where it is asked: the last session of a lineage."""
    evidence: str
    """The id of the event."""


class Conversations(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and what is known about it."""

    questions: tuple[Question, ...]
    lineages: tuple[tuple[str, ...], ...]
    """The sessions of each lineage, oldest first."""
    replaced: dict[str, str]
    """The id of each event whose value a later event replaced, to that one's."""
    events: int


class Ticking:
    """A clock that moves by itself and ids that follow it: the same ones on every run."""

    def __init__(self, space: int) -> None:
        self._now = START
        self._number = count(space << 40)

    def __call__(self) -> int:
        """Return the next moment, forty seconds after the last."""
        self._now += _STEP
        return self._now

    def new(self, prefix: str) -> str:
        """Return the next id."""
        return make.make_id(prefix, self._now, next(self._number).to_bytes(10, "big"))

    def salt(self) -> bytes:
        """Return the next salt; nothing here is secret."""
        return next(self._number).to_bytes(16, "big")


def written(store: Store, *, seed: int, half: int, shape: Shape | None = None) -> Conversations:
    """Write the conversations of a seed and a half (0 or 1) of the tables into a store."""
    shape = shape or Shape()
    ticking = Ticking(seed * 2 + half)
    platform = Platform(store=store, clock=ticking, ids=ticking)
    rng = random.Random(seed * 2 + half)
    made = [_Lineage(platform, Talk(platform, rng, half, number), shape) for number in range(shape.lineages)]
    return Conversations(
        questions=tuple(question for lineage in made for question in lineage.questions),
        lineages=tuple(tuple(lineage.sessions) for lineage in made),
        replaced={old: new for lineage in made for old, new in lineage.replaced.items()},
        events=sum(lineage.events for lineage in made),
    )


class _Lineage:
    """One lineage: what happens in which session is planned first, then written in order."""

    def __init__(self, platform: Platform, talk: Talk, shape: Shape) -> None:
        self._platform = platform
        self._talk = talk
        self._rng = talk.rng
        self._shape = shape
        self._plan: list[list[Turn]] = [[] for _ in range(shape.sessions)]
        self._asked: list[tuple[str, str, str]] = []
        self.sessions: list[str] = []
        self.replaced: dict[str, str] = {}
        self.events = 0
        self._plan_facts()
        self._plan_choices()
        self._plan_code()
        self._plan_errors()
        self._plan_cjk()
        for turns in self._plan:
            self._write_session(turns)
        self._link()
        self.questions = [
            Question(kind=kind, text=text, session=self.sessions[-1], evidence=event)
            for kind, text, event in self._asked
        ]

    # What is planned.

    def _sometime(self, turn: Turn) -> None:
        self._rng.choice(self._plan).append(turn)

    def _plan_facts(self) -> None:
        facts = [(s, p) for s in self._talk.subjects for p in self._rng.sample(words.PROPERTIES, _FACTS)]
        self._rng.shuffle(facts)
        for n, (subject, prop) in enumerate(facts):
            value, other = self._rng.sample(prop.values, 2)
            match _WAYS[n % len(_WAYS)]:
                case "beside":
                    self._sometime(partial(self._beside, subject, prop, value))
                case "replaced":
                    # Within one session turns keep their order, so the later one is behind the earlier one.
                    first = self._rng.randrange(len(self._plan))
                    then = self._rng.randrange(first, len(self._plan))
                    old: list[str] = []
                    self._plan[first].append(partial(self._outdated, subject, prop, other, old))
                    self._plan[then].append(partial(self._updated, subject, prop, value, other, old))
                case "early":
                    self._plan[0].append(partial(self._told, "early", subject, prop, value))
                case way:
                    self._sometime(partial(self._told, way, subject, prop, value))

    def _plan_choices(self) -> None:
        for choice in self._talk.choices:
            self._sometime(partial(self._chosen, choice))

    def _plan_code(self) -> None:
        for function in self._talk.functions:
            for told, asks in self._rng.sample(self._talk.mine(words.BUGS), _BUGS):
                self._sometime(partial(self._bug, function, told, asks))
        for _ in range(_FILES):
            self._sometime(self._file)

    def _plan_errors(self) -> None:
        for modifier in self._talk.modifiers:
            for error, asks in self._rng.sample(self._talk.mine(words.ERRORS), 2):
                self._sometime(partial(self._failed, modifier, error, asks))

    def _plan_cjk(self) -> None:
        for script in words.CJK:
            for subject in self._rng.sample(self._talk.mine(script.subjects), 3):
                for prop in self._rng.sample(script.properties, 2):
                    self._sometime(partial(self._told_in, script, subject, prop))
            for _ in range(script.chatter_each * self._shape.sessions):
                self._sometime(partial(self._chatter_in, script))

    # How it is told.

    def _told(self, way: str, subject: Subject, prop: Property, value: str) -> list[NewEvent]:
        said, reason = self._statement(subject, prop, value)
        self._ask(way, self._question(subject, prop, reason), said)
        return [self._talk.chatter(), said]

    def _beside(self, subject: Subject, prop: Property, value: str) -> list[NewEvent]:
        """Make a question that has the words, and an answer that has none; a tool may have worked in between."""
        cause, reason = self._talk.drawn(words.CAUSES)
        prompt = self._talk.drawn(words.PROMPTS).format(p=prop.name, s=" ".join(subject), c=cause)
        said = self._talk.say(self._talk.drawn(words.SHORT_ANSWERS).format(v=value))
        self._ask("beside", self._question(subject, prop, reason), said)
        between = self._talk.work() if self._rng.random() < 0.4 else []
        return [self._talk.say(prompt, "user"), *between, said]

    def _outdated(self, subject: Subject, prop: Property, value: str, old: list[str]) -> list[NewEvent]:
        said, _ = self._statement(subject, prop, value)
        old.append(said.id)
        return [self._talk.chatter(), said]

    def _updated(
        self, subject: Subject, prop: Property, value: str, other: str, old: list[str]
    ) -> list[NewEvent]:
        text = self._talk.drawn(words.UPDATES).format(p=prop.name, s=" ".join(subject), v=value, o=other)
        said = self._talk.say(self._talk.padded(text), self._talk.somebody())
        self.replaced[old[0]] = said.id
        name = self._talk.called(subject, exactly=self._rng.random() < 0.5)
        self._ask("replaced", self._talk.drawn(words.NOW_ASKS).format(p=prop.name, s=name), said)
        return [self._talk.chatter(), said]

    def _statement(self, subject: Subject, prop: Property, value: str) -> tuple[NewEvent, tuple[str, ...]]:
        """Return a statement, and how its reason may be mentioned."""
        cause, reason = self._talk.drawn(words.CAUSES)
        text = self._talk.drawn(words.STATEMENTS).format(p=prop.name, s=" ".join(subject), v=value, c=cause)
        return self._talk.say(self._talk.padded(text), self._talk.somebody()), reason

    def _question(self, subject: Subject, prop: Property, reason: tuple[str, ...]) -> str:
        """Ask for a property in other words, one of subject, property and reason being recognisable at least."""
        exactly, plainly, reasoned = (self._rng.random() < share for share in (0.5, 0.5, 0.5))
        if not exactly and not plainly:
            reasoned = True
        asks = prop.asks[2:] if plainly else prop.asks[:2]
        text = self._talk.drawn(asks).format(s=self._talk.called(subject, exactly=exactly))
        if reasoned:
            mention = self._talk.drawn(reason)
            text = f"{text}, {mention}" if self._rng.random() < 0.5 else f"{mention}: {text}"
        return text

    def _chosen(self, choice: tuple[str, str, str, str, str]) -> list[NewEvent]:
        what, chosen, rejected, reason, topic = choice
        said = self._talk.say(self._talk.drawn(words.CHOSEN).format(w=what, a=chosen, b=rejected, r=reason))
        self._ask("why", self._talk.drawn(words.WHY_ASKS).format(w=what, a=chosen, b=rejected, r=topic), said)
        return [self._talk.chatter(), said]

    def _bug(self, function: tuple[str, ...], told: str, asks: tuple[str, ...]) -> list[NewEvent]:
        said = self._talk.say(self._talk.padded(told.format(f=self._talk.spelled(function))))
        self._ask("code", self._rng.choice(asks).format(w=" ".join(function).lower()), said)
        return [*self._talk.work(), said]

    def _file(self) -> list[NewEvent]:
        folder, module = self._talk.drawn(words.NOUNS).lower(), self._talk.drawn(words.PARTS).lower()
        given = {
            "path": f"src/{self._rng.choice(self._talk.modifiers)}/{folder}_{module}.py",
            "content": "x = 1\n",
        }
        call, result = self._talk.tool("write_file", given, "written")
        self._ask("code", f"writing the {folder} {module} module", call)
        return [call, result]

    def _failed(self, modifier: str, error: str, asks: tuple[str, ...]) -> list[NewEvent]:
        number = self._rng.randrange(100, 999)
        output = f"{self._talk.listing()}\n{modifier}: {error.format(n=number)}\nmake: *** stopped"
        call, result = self._talk.tool("shell", {"command": f"make {modifier}-check"}, output)
        self._ask("tool", self._rng.choice(asks).format(m=modifier, n=number), result)
        return [self._talk.chatter(), call, result]

    def _told_in(self, script: words.Script, subject: str, prop: words.NativeProperty) -> list[NewEvent]:
        text = self._talk.drawn(script.statements).format(
            s=subject, p=prop.name, v=self._rng.choice(prop.values)
        )
        said = self._talk.say(text)
        self._ask("cjk", self._talk.drawn(prop.asks).format(s=subject), said)
        return [said]

    def _chatter_in(self, script: words.Script) -> list[NewEvent]:
        subject, prop = self._talk.drawn(script.subjects), self._rng.choice(script.properties)
        return [self._talk.say(self._rng.choice(script.chatter).format(s=subject, p=prop.name))]

    def _ask(self, kind: str, text: str, about: NewEvent) -> None:
        self._asked.append((kind, text, about.id))

    # How it is written.

    def _write_session(self, turns: list[Turn]) -> None:
        platform = self._platform
        session = Session(
            id=platform.ids.new(make.SESSION),
            account_id=platform.account_id,
            created_at=platform.clock(),
            title=f"Conversation {len(self.sessions) + 1}",
            origin_id=self.sessions[0] if self.sessions else None,
        )
        self.sessions.append(session.id)
        platform.store.commit(Batch(sessions=(session,)))
        # Planned turns keep their order; where they fall among the others is drawn.
        waiting = list(
            zip(sorted(self._rng.randrange(self._shape.events) for _ in turns), turns, strict=True)
        )
        events: list[NewEvent] = []
        while len(events) < self._shape.events or waiting:
            while waiting and waiting[0][0] <= len(events):
                events += waiting.pop(0)[1]()
            events += [self._talk.chatter()] if self._rng.random() < 0.55 else self._talk.work()
        for first in range(0, len(events), _CHUNK):
            chunk = tuple(events[first : first + _CHUNK])
            platform.store.commit(Batch(appends=(Append(session_id=session.id, events=chunk),)))
        self.events += len(events)

    def _link(self) -> None:
        platform = self._platform
        links: list[Any] = [
            Link(
                id=platform.ids.new(make.LINK),
                type="continuation",
                from_session=before,
                to_session=after,
                created_at=platform.clock(),
                reason="phase_change",
            )
            for before, after in pairwise(self.sessions)
        ]
        platform.store.commit(Batch(links=tuple(links)))
