"""Waking up: a conversation with one engine is cut off and its memory destroyed, and another engine is asked about the work.

Nothing between the two is simulated: the log was written by runs (``waking_cutting``), every question is a run in a branch
of that conversation, the platform decides the opening and composes what the engine is given, and what is counted as seeded
is what was confirmed. The other engine never saw the work. It is asked three times:

``cold``        in a session of its own, with a clean slate
``transcript``  seeded with messages, which is what the local model gets as it is
``brief``       the same model, passing for an engine that reads text: seeded with the brief, as most other engines are

Then the first engine is opened again in its own conversation, where it must not be taken to remember either.

It measures a reconstruction, and the model only as far as it has to: *in context* says how often the event that answers was
among what was given at all. It has no target and no verdict.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from onward.bench.quality_asking import Instructed
from onward.bench.quality_scenes import SCENES, Fact, Scene
from onward.bench.quality_scoring import declines, mentions, pretends, remembers, right, states
from onward.bench.waking_cutting import MOST_EVENTS, Again, Work, again, cut_off
from onward.core.brief import CHARS, ROWS, Bounds, compose_brief, row_of
from onward.core.budget import MESSAGE_OVERHEAD
from onward.engines.contract import Engine
from onward.engines.local import chat_messages
from onward.errors import EngineError
from onward.library import Onward
from onward.service.counting import counter_by_name

COUNTER: Final = "chars/4"
INSTRUCTION: Final = "Answer the question from the notes, in a few words."
"""The control text of every condition, the same as of the contexts that ``quality`` compares."""
Condition = Literal["cold", "transcript", "brief"]
CONDITIONS: Final[tuple[Condition, ...]] = ("cold", "transcript", "brief")
MOST_CHARS: Final = 1_000_000
"""More than any scene has."""
BOUNDS: Final = (
    Bounds(),
    Bounds(rows=2 * ROWS),
    Bounds(rows=MOST_EVENTS),
    Bounds(chars=2 * CHARS),
    Bounds(rows=MOST_EVENTS, chars=MOST_CHARS),
)
"""Bounds of a brief for which it is counted, without a model, how often what answers would be in it."""
_ROW: Final = re.compile(r"^\[(\d+)\] ", re.MULTILINE)

Progress = Callable[[str], None]


class Woken(msgspec.Struct, frozen=True, kw_only=True):
    """One question to an engine that was not there."""

    scene: str
    question: str
    condition: Condition
    opening: str | None
    """As it was confirmed."""
    branch: str
    reason: str
    rows: int
    """Rows of the brief, or messages of the transcript."""
    reply: str | None = None
    """None where the engine refused what it was given, see ``note``."""
    right: bool = False
    present: bool = False
    """Whether the event that answers was among what was given, with the words that answer."""
    other: bool = False
    """Whether the reply says something else: it is neither right, nor does it say that it cannot tell."""
    mistaken: bool = False
    """Whether the reply names a value that the right one may be mistaken for."""
    remembers: bool = False
    """Whether the reply claims a memory of the conversation."""
    pretends: bool = False
    """Whether the reply says that a tool was used."""
    tokens: int = 0
    """Of what was given and the question, by the counter of the run."""
    read: int | None = None
    """Of the whole prompt, as the model counts."""
    seconds: float = 0.0
    note: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one condition came to."""

    condition: Condition
    asked: int
    openings: dict[str, int]
    """How often each opening was confirmed."""
    reasons: dict[str, int]
    right: int
    present: int
    right_when_present: int
    right_when_absent: int
    other: int
    mistaken: int
    remembers: int
    pretends: int
    tokens: float | None
    read: float | None
    seconds: float | None
    not_put: int = 0
    """Questions for which the engine refused what it was given."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How often what answers would be in a brief within some bounds. No model had a part in it."""

    rows: int
    chars: int
    questions: int
    present: int
    shown: float
    """Mean number of rows that such a brief holds."""
    size: float
    """Mean number of characters of the whole brief."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """How one conversation was cut off."""

    scene: str
    turns: int
    resumed: int
    """Turns in which the first engine confirmed that it went on in its own memory."""
    events: int
    state: str
    reason: str
    forgotten: int
    """Files of its memory that were deleted."""


class Waking(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a whole."""

    model: str | None
    counter: str
    questions: int
    cuts: tuple[Cut, ...]
    rows: tuple[Row, ...]
    from_tools: int
    """Questions whose answer only the output of a successful tool call held: a brief never shows such a one."""
    reaches: tuple[Reach, ...]
    again: tuple[Again, ...]
    seconds: float
    playing_seconds: float
    answers: tuple[Woken, ...]


def evaluate(
    engine: Engine,
    scenes: Sequence[Scene] = SCENES,
    *,
    counter: str = COUNTER,
    progress: Progress | None = None,
) -> Waking:
    """Play every scene with an engine that loses it, then put every question to this engine.

    Raises EngineError when the first engine does otherwise than it was told, or when this one fails without having been
    given anything.
    """
    began = time.perf_counter()
    answers: list[Woken] = []
    cuts: list[Cut] = []
    opened: list[Again] = []
    reaches: list[tuple[Reach, ...]] = []
    from_tools = 0
    playing, model = 0.0, None
    for scene in scenes:
        with tempfile.TemporaryDirectory(prefix="onward-waking-") as place:
            started = time.perf_counter()
            work = cut_off(scene, Path(place), counter_by_name(counter))
            playing += time.perf_counter() - started
            cuts.append(_cut(scene, work))
            with work.open() as log:
                reaches.append(tuple(_reach(log, work, scene, bounds) for bounds in BOUNDS))
                from_tools += sum(_by_tool(log, work, fact) for fact in scene.facts)
                for condition in CONDITIONS:
                    asking = Instructed(engine, INSTRUCTION, as_text=condition == "brief")
                    done = [_ask(log, work, scene, fact, condition, asking) for fact in scene.facts]
                    model = asking.model or model
                    answers += done
                    if progress is not None:
                        hits = sum(answer.right for answer in done)
                        age = f"{time.perf_counter() - began:.0f} s"
                        progress(f"{scene.name:<10} {condition:<12} {hits} of {len(done)} right, {age}")
            opened += again(scene, work)
    return Waking(
        model=model,
        counter=counter,
        questions=sum(len(scene.facts) for scene in scenes),
        cuts=tuple(cuts),
        rows=tuple(_row(condition, answers) for condition in CONDITIONS),
        from_tools=from_tools,
        reaches=tuple(_together(found) for found in zip(*reaches, strict=True)),
        again=tuple(opened),
        seconds=time.perf_counter() - began,
        playing_seconds=playing,
        answers=tuple(answers),
    )


def _ask(
    log: Onward, work: Work, scene: Scene, fact: Fact, condition: Condition, engine: Instructed
) -> Woken:
    """Put one question, in a branch of the conversation or, cold, in a session of its own."""
    began = time.perf_counter()
    if condition == "cold":
        session, mode = log.start(workspace=work.workspace), "none"
    else:
        session, mode = log.fork(work.session, work.head), "auto"
    result = log.run(session.id, fact.asks, engine=engine, continuation=mode)
    facts = result.opening_facts
    reply: str | None = result.reply
    if result.state != "completed":
        if condition == "cold":
            raise EngineError(engine=engine.name, why=result.reason)
        reply = None
    given = engine.brief or "\n".join(told["content"] for told in chat_messages("", engine.history))
    seqs = {*map(int, _ROW.findall(engine.brief)), *(told.seq for told in engine.history)}
    count = work.counter.count
    return Woken(
        scene=scene.name,
        question=fact.asks,
        condition=condition,
        opening=result.opening,
        branch=facts.branch if facts else "",
        reason=facts.reason if facts else "",
        rows=facts.rows if facts else 0,
        reply=reply,
        right=reply is not None and right(reply, fact),
        present=work.evidence[fact.asks] in seqs and states(given, fact),
        other=reply is not None and not right(reply, fact) and not declines(reply),
        mistaken=reply is not None and mentions(reply, msgspec.structs.replace(fact, answers=fact.wrong)),
        remembers=reply is not None and remembers(reply),
        pretends=reply is not None and pretends(reply),
        tokens=count(given) + count(fact.asks) + MESSAGE_OVERHEAD,
        read=engine.usage.input_tokens if engine.usage else None,
        seconds=time.perf_counter() - began,
        note="" if reply is not None else result.reason,
    )


def _cut(scene: Scene, work: Work) -> Cut:
    return Cut(
        scene=scene.name,
        turns=work.turns,
        resumed=work.resumed,
        events=work.head,
        state=work.state,
        reason=work.reason,
        forgotten=work.forgotten,
    )


def _reach(log: Onward, work: Work, scene: Scene, bounds: Bounds) -> Reach:
    """Return how often what answers would be in a brief within these bounds."""
    events = log.platform.store.events(work.session, upto=work.head, limit=MOST_EVENTS)
    rows = [row for event in events if (row := row_of(event)) is not None]
    brief = compose_brief(rows, now=log.platform.clock(), about=f"“{scene.title}”", bounds=bounds)
    return Reach(
        rows=bounds.rows,
        chars=bounds.chars,
        questions=len(scene.facts),
        present=sum(states(brief.text, fact) for fact in scene.facts),
        shown=brief.rows,
        size=len(brief.text),
    )


def _by_tool(log: Onward, work: Work, fact: Fact) -> bool:
    seq = work.evidence[fact.asks]
    return log.platform.store.events(work.session, after=seq - 1, limit=1)[0].kind == "tool_result"


def _together(found: Sequence[Reach]) -> Reach:
    return msgspec.structs.replace(
        found[0],
        questions=sum(reach.questions for reach in found),
        present=sum(reach.present for reach in found),
        shown=statistics.fmean(reach.shown for reach in found),
        size=statistics.fmean(reach.size for reach in found),
    )


def _row(condition: Condition, answers: Iterable[Woken]) -> Row:
    of = [answer for answer in answers if answer.condition == condition]
    put = [answer for answer in of if answer.reply is not None]
    return Row(
        condition=condition,
        asked=len(of),
        openings=_counted(answer.opening or "not confirmed" for answer in of),
        reasons=_counted(f"{answer.branch}: {answer.reason}" for answer in of),
        right=sum(answer.right for answer in put),
        present=sum(answer.present for answer in put),
        right_when_present=sum(answer.right for answer in put if answer.present),
        right_when_absent=sum(answer.right for answer in put if not answer.present),
        other=sum(answer.other for answer in put),
        mistaken=sum(answer.mistaken for answer in put),
        remembers=sum(answer.remembers for answer in put),
        pretends=sum(answer.pretends for answer in put),
        tokens=_mean([answer.tokens for answer in put]),
        read=_mean([answer.read for answer in put if answer.read is not None]),
        seconds=_mean([answer.seconds for answer in put]),
        not_put=len(of) - len(put),
    )


def _counted(values: Iterable[str]) -> dict[str, int]:
    out: dict[str, int] = {}
    for value in values:
        out[value] = out.get(value, 0) + 1
    return out


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def table(waking: Waking) -> str:
    """Return a report as text."""
    return "".join(_lines(waking))


def _lines(waking: Waking) -> Iterator[str]:
    turns = sum(cut.turns for cut in waking.cuts)
    resumed = sum(cut.resumed for cut in waking.cuts)
    yield (
        f"waking up: {len(waking.cuts)} conversations of {turns} turns with an engine that went on in its own memory in "
        f"{resumed} of them,\ncut off in the last and its memory deleted; {waking.questions} questions to another engine, "
        f"model {waking.model}, {waking.seconds:.0f} s\n"
    )
    yield (
        f"  {'given':<11}{'seeded':>9}{'right':>10}{'share':>7}{'in context':>12}{'right if in':>13}"
        f"{'else':>6}{'mixed':>7}{'recalls':>9}{'acts':>6}{'tokens':>8}{'read':>7}{'seconds':>9}\n"
    )
    for row in waking.rows:
        read = "" if row.read is None else f"{row.read:,.0f}"
        cost = f"{row.tokens or 0:>8,.0f}{read:>7}{row.seconds or 0:>9.1f}"
        note = f"  {row.not_put} not put" if row.not_put else ""
        yield (
            f"  {row.condition:<11}{row.openings.get('seeded', 0):>9}{f'{row.right} of {row.asked}':>10}"
            f"{row.right / row.asked:>7.0%}{row.present:>12}{f'{row.right_when_present} of {row.present}':>13}"
            f"{row.other:>6}{row.mistaken:>7}{row.remembers:>9}{row.pretends:>6}{cost}{note}\n"
        )
    yield (
        "  else: says something else, mixed: of these, a value like it; recalls: claims to remember; acts: claims to have\n"
        "  used a tool. As opened:\n"
    )
    for row in waking.rows:
        told = "; ".join(f"{reason} ({count})" for reason, count in row.reasons.items())
        yield f"    {row.condition:<11}{', '.join(f'{name} {n}' for name, n in row.openings.items())}: {told}\n"
    yield "the first engine again, its memory being gone\n"
    for way in dict.fromkeys(opened.way for opened in waking.again):
        of = [opened for opened in waking.again if opened.way == way]
        openings = _counted(opened.opening or f"not opened, {opened.state}" for opened in of)
        told = ", ".join(f"{name} {count} of {len(of)}" for name, count in openings.items())
        once = sum(opened.told_once for opened in of)
        yield f"  {way:<15} {told}; the brief once in its new memory: {once}\n    {of[0].reason}\n"
    yield (
        "what answers would be in a brief, by its bounds "
        f"({waking.from_tools} answers are output of tools, which no brief shows)\n"
    )
    for reach in waking.reaches:
        rows = f"{reach.rows:>4} rows" if reach.rows < MOST_EVENTS else " all rows"
        yield (
            f"  {rows}, {reach.chars:>9,} characters: {reach.present} of {reach.questions}"
            f" (holds {reach.shown:.0f} rows, {reach.size:,.0f} characters)\n"
        )
