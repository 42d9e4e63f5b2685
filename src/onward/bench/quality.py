"""``onward bench --quality``: how well a model answers questions about earlier work, by what it was given of it.

Every question of every scene is put to the same model with the same instruction under each condition of
``quality_contexts``. What is reported beside the accuracy is what tells selection and the model's own ability apart: how
often the statement that answers was in the context at all. ``waking`` asks the same questions of an engine that takes over
from another one.

It has no target and no verdict: it exits with 0 whatever the figures are. It is deliberately no benchmark of models, and a
figure of it is worth something only beside the other conditions of the same run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from onward.bench.quality_asking import Instructed
from onward.bench.quality_contexts import (
    CONDITIONS,
    SUMMARISE,
    Compiled,
    compiled,
    everything,
    least_room,
    newest,
    rolled,
)
from onward.bench.quality_scenes import SCENES, Fact, Scene
from onward.bench.quality_scoring import mentions, right, states
from onward.bench.quality_talk import opened
from onward.core.budget import MESSAGE_OVERHEAD, Counter
from onward.engines.contract import Engine
from onward.errors import EngineError, EngineUnavailable, InvalidInput
from onward.service.counting import counter_by_name

BUDGET: Final = 1000
"""Tokens of context and question together, under every condition but the full transcript."""
COUNTER: Final = "chars/4"
ANSWER_TOKENS: Final = 40
INSTRUCTION: Final = "Answer the question from the notes, in a few words."
"""The control text of every condition. Without notes there is nothing to answer from, which is what ``cold`` shows."""
SUMMARY_TOKENS: Final = 200
"""Tokens that the model may write for one summary. A model of this size repeats itself long before, and fills any limit."""
BUDGETS: Final = (1000, 1500, 2000, 3000)
"""Tokens for which it is counted, without a model, how often what answers would be in the context."""

PARTS: Final = ("contexts", "waking")
"""What can be measured by name: the contexts that are compared here, and ``waking``."""

MOST_EVENTS: Final = 10_000
"""More than any scene has."""

Progress = Callable[[str], None]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One question under one condition."""

    scene: str
    question: str
    condition: str
    reply: str | None = None
    """None where the question was not put, see ``note``."""
    right: bool = False
    present: bool = False
    """Whether the context held what answers: the statement word for word, or in a summary the value."""
    included: bool | None = None
    """Of a projection: whether its manifest lists the event that answers as included, rather than quoted or left out."""
    tokens: int = 0
    """Of context and question, by the counter of the run."""
    read: int | None = None
    """Of the whole prompt, as the model counts."""
    seconds: float = 0.0
    note: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one condition came to."""

    condition: str
    asked: int
    right: int
    present: int
    right_when_present: int
    included: int | None
    tokens: float | None
    """Mean of those asked."""
    read: float | None
    seconds: float | None
    """Mean of those asked; making a context is part of it, except for summaries, which are made once a scene."""
    not_put: int = 0
    """Questions for which there was no context within the limits."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """How often what answers was in a context of some size. No model had a part in it."""

    budget: int
    questions: int
    last: int
    projection: int
    included: int
    """Projections whose manifest lists the event itself as included."""
    not_compiled: int
    """Projections whose parts that are never left out exceed the budget."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a whole."""

    model: str | None
    budget: int
    counter: str
    questions: int
    rows: tuple[Row, ...]
    fitting: tuple[Row, ...]
    """The same rows for the questions whose full transcript fits the window."""
    selections: tuple[Selection, ...]
    seconds: float
    summary_seconds: float
    answers: tuple[Answer, ...]


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """The same model twice: as it answers, and as it writes summaries."""

    answering: Engine
    summarising: Engine


def local_models() -> Models:
    """Return the local model. Raises EngineUnavailable, with what to do, where there is none."""
    from onward.engines.local import LocalEngine

    # Contexts are shared by the questions of a scene, except projections: what was read of them is kept.
    answering = LocalEngine(max_tokens=ANSWER_TOKENS, stop=["\n\n"], reuse_prompt=True)
    if (why := answering.unavailable()) is not None:
        raise EngineUnavailable(engine="local", why=why)
    return Models(answering=answering, summarising=LocalEngine(max_tokens=SUMMARY_TOKENS))


def run(names: Sequence[str] = (), *, json: bool, quick: bool) -> int:
    """Measure with the local model and print the tables, or one JSON document. Progress goes to standard error.

    ``names`` are of ``PARTS``; all of them without one. Raises InvalidInput for another name.
    """
    if unknown := [name for name in names if name not in PARTS]:
        raise InvalidInput(
            what=f"the name {unknown[0]!r} beside --quality", why=f"there are {', '.join(PARTS)}"
        )
    from onward.bench import waking

    models = local_models()
    scenes = SCENES[:1] if quick else SCENES
    found: dict[str, Report | waking.Waking] = {}
    tables: list[str] = []
    if not names or "contexts" in names:
        found["quality"] = report = evaluate(models, scenes, progress=_told)
        tables.append(table(report))
    if not names or "waking" in names:
        found["waking"] = woken = waking.evaluate(models.answering, scenes, progress=_told)
        tables.append(waking.table(woken))
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        sys.stdout.write("\n".join(tables))
    return 0


def evaluate(
    models: Models,
    scenes: Sequence[Scene] = SCENES,
    *,
    budget: int = BUDGET,
    counter: str = COUNTER,
    sizes: Sequence[int] = BUDGETS,
    progress: Progress | None = None,
) -> Report:
    """Put every question of these scenes under every condition. Raises EngineError when the model fails at one."""
    began = time.perf_counter()
    trial = _Trial(models, counter_by_name(counter), budget)
    answers: list[Answer] = []
    for scene in scenes:
        for condition in CONDITIONS:
            done = list(trial.put(scene, condition))
            answers += done
            hits = sum(answer.right for answer in done)
            if progress is not None:
                progress(f"{scene.name:<10} {condition:<12} {hits} of {len(done)} right, {_age(began)}")
    fits = {answer.question for answer in answers if answer.condition == "full" and answer.reply is not None}
    return Report(
        model=trial.model,
        budget=budget,
        counter=counter,
        questions=sum(len(scene.facts) for scene in scenes),
        rows=tuple(_row(condition, answers) for condition in CONDITIONS),
        fitting=tuple(_row(c, [a for a in answers if a.question in fits]) for c in CONDITIONS),
        selections=tuple(selected(scenes, trial.counter, size) for size in sizes),
        seconds=time.perf_counter() - began,
        summary_seconds=trial.summary_seconds,
        answers=tuple(answers),
    )


def selected(scenes: Sequence[Scene], counter: Counter, budget: int) -> Selection:
    """Count what contexts of this size would hold of what answers, over all questions of these scenes."""
    asked = last = projection = included = not_compiled = 0
    for scene in scenes:
        log, written = opened(scene, counter)
        with log:
            events = log.platform.store.events(written.session, limit=MOST_EVENTS)
        tail = newest(events, counter, least_room(counter, budget, scene))
        for fact in scene.facts:
            asked += 1
            last += states(tail, fact)
            made = compiled(scene, fact, counter, budget)
            if made is None:
                not_compiled += 1
                continue
            made.log.close()
            projection += states(made.text, fact)
            included += made.included
    return Selection(
        budget=budget,
        questions=asked,
        last=last,
        projection=projection,
        included=included,
        not_compiled=not_compiled,
    )


class _Trial:
    """One model, one budget, and the clock of what it took."""

    def __init__(self, models: Models, counter: Counter, budget: int) -> None:
        self._answering = Instructed(models.answering, INSTRUCTION)
        self._summarising = Instructed(models.summarising, SUMMARISE)
        self.counter, self._budget = counter, budget
        self.summary_seconds = 0.0

    @property
    def model(self) -> str | None:
        """What the engine says it runs."""
        return self._answering.model

    def put(self, scene: Scene, condition: str) -> Iterator[Answer]:
        """Put the questions of a scene under a condition."""
        if condition == "projection":
            yield from (self._projected(scene, fact) for fact in scene.facts)
            return
        log, written = opened(scene, self.counter)
        with log:
            events = log.platform.store.events(written.session, limit=MOST_EVENTS)
        least = least_room(self.counter, self._budget, scene)
        match condition:
            case "last":
                context = newest(events, self.counter, least)
            case "summary":
                began = time.perf_counter()
                context = rolled(events, self.counter, least, self._write)
                self.summary_seconds += time.perf_counter() - began
            case "full":
                context = everything(events)
            case _:
                context = ""
        for fact in scene.facts:
            yield self._asked(scene, fact, condition, context)

    def _write(self, text: str) -> str:
        reply, failed = self._summarising.say(text)
        if failed:
            raise EngineError(engine=self._summarising.name, why=failed)
        return reply

    def _asked(self, scene: Scene, fact: Fact, condition: str, context: str) -> Answer:
        began = time.perf_counter()
        reply, failed = self._answering.say(fact.asks, context)
        if failed:
            if condition != "full":
                raise EngineError(engine=self._answering.name, why=failed)
            return Answer(scene=scene.name, question=fact.asks, condition=condition, note=failed)
        return self._scored(scene, fact, condition, context, reply, began)

    def _projected(self, scene: Scene, fact: Fact) -> Answer:
        began = time.perf_counter()
        made: Compiled | None = compiled(scene, fact, self.counter, self._budget)
        if made is None:
            note = f"what a projection never leaves out does not fit {self._budget} tokens"
            return Answer(scene=scene.name, question=fact.asks, condition="projection", note=note)
        with made.log as log:
            result = log.run(made.successor, engine=self._answering)
        if result.state != "completed":
            raise EngineError(engine=self._answering.name, why=result.reason)
        context = "\n".join(message.content for message in self._answering.history)
        answer = self._scored(scene, fact, "projection", context, result.reply, began)
        return msgspec.structs.replace(answer, included=made.included)

    def _scored(
        self, scene: Scene, fact: Fact, condition: str, context: str, reply: str, began: float
    ) -> Answer:
        usage = self._answering.usage
        count = self.counter.count
        return Answer(
            scene=scene.name,
            question=fact.asks,
            condition=condition,
            reply=reply,
            right=right(reply, fact),
            present=(mentions if condition == "summary" else states)(context, fact),
            tokens=count(context) + count(fact.asks) + MESSAGE_OVERHEAD,
            read=usage.input_tokens if usage else None,
            seconds=time.perf_counter() - began,
        )


def table(report: Report) -> str:
    """Return a report as text."""
    head = (
        f"{report.questions} questions, {report.budget} tokens each ({report.counter}), model {report.model}, "
        f"{report.seconds:.0f} s, of which {report.summary_seconds:.0f} s writing summaries\n"
    )
    out = [head, *_lines("all questions", report.rows)]
    count = max((row.asked for row in report.fitting), default=0)
    if count and count < report.questions:
        out += ["\n", *_lines(f"the {count} whose full transcript fits the window", report.fitting)]
    out.append("\nwhat answers was in the context, by its size\n")
    for found in report.selections:
        lost = f", {found.not_compiled} could not be compiled" if found.not_compiled else ""
        out.append(
            f"  {found.budget:>5} tokens: last {found.last} of {found.questions}, projection {found.projection} of "
            f"{found.questions} (the event itself in {found.included}{lost})\n"
        )
    return "".join(out)


def _lines(title: str, rows: Iterable[Row]) -> Iterator[str]:
    yield f"{title}\n"
    yield (
        f"  {'context':<11}{'right':>9}{'share':>7}{'in context':>12}{'right if in':>13}"
        f"{'tokens':>8}{'read':>7}{'seconds':>9}\n"
    )
    for row in rows:
        if not row.asked:
            yield f"  {row.condition:<11}{'n/a':>9}  does not fit the window\n"
            continue
        share = f"{row.right / row.asked:.0%}"
        read = "" if row.read is None else f"{row.read:,.0f}"
        note = f"  {row.not_put} not put" if row.not_put else ""
        if row.included is not None:
            note += f"  the event itself in {row.included}"
        yield (
            f"  {row.condition:<11}{f'{row.right} of {row.asked}':>9}{share:>7}{row.present:>12}"
            f"{f'{row.right_when_present} of {row.present}':>13}{row.tokens or 0:>8,.0f}{read:>7}"
            f"{row.seconds or 0:>9.1f}{note}\n"
        )


def _row(condition: str, answers: Iterable[Answer]) -> Row:
    of = [answer for answer in answers if answer.condition == condition]
    put = [answer for answer in of if answer.reply is not None]
    present = [answer for answer in put if answer.present]
    included = [answer.included for answer in put if answer.included is not None]
    return Row(
        condition=condition,
        # Full transcripts that do not fit were never asked; a projection that does not fit has failed its question.
        asked=len(put) if condition == "full" else len(of),
        right=sum(answer.right for answer in put),
        present=len(present),
        right_when_present=sum(answer.right for answer in present),
        included=sum(included) if included else None,
        tokens=_mean([answer.tokens for answer in put]),
        read=_mean([answer.read for answer in put if answer.read is not None]),
        seconds=_mean([answer.seconds for answer in put]),
        not_put=len(of) - len(put),
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _age(began: float) -> str:
    return f"{time.perf_counter() - began:.0f} s"


def _told(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
