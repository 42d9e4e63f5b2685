"""What Onward promises at all times, as data: one entry an invariant, under the id that tests carry.

`test_requirements.py` compares this list with the tags that collection found, and fails both ways: a promise that
is built and has no test, a test that names no promise, a promise that has tests and is still called planned. So the
list cannot run ahead of the code, and the code cannot run ahead of the list.

It says what must hold, never how; the module docstrings in `src/onward` say who keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOG: Final = "design, section 2: log"
CONTINUATION: Final = "design, section 2: continuation"
PROJECTION: Final = "design, section 2: projection"
OPENING: Final = "design, section 2: opening"
TRANSCRIPT: Final = "design, section 2: transcript and model input"
ACCESS: Final = "design, section 2: access"


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One invariant."""

    id: str
    """What tests tag themselves with."""
    says: str
    """The promise, in one sentence."""
    source: str
    """The section of the design that it comes from."""
    planned: int | None = None
    """The milestone that will build it; None once it is built, and from then on it must have a test."""

    @property
    def status(self) -> str:
        """`built`, or `planned` with its milestone."""
        return "built" if self.planned is None else f"planned for milestone {self.planned}"


REQUIREMENTS: Final = (
    Requirement(
        id="L1",
        says=(
            "A session's events stay as they were appended, numbered 1, 2, 3 … by the store and read in "
            "that order."
        ),
        source=LOG,
    ),
    Requirement(
        id="L2",
        says=(
            "A body comes back as the bytes that were given, and verify finds the first event whose "
            "digest or chain is off."
        ),
        source=LOG,
    ),
    Requirement(
        id="L3",
        says="Appending an event a second time under its id stores nothing and returns what is stored.",
        source=LOG,
    ),
    Requirement(
        id="L4",
        says="What this version cannot decode stays in the log and is shown as undecoded, never skipped.",
        source=LOG,
    ),
    Requirement(
        id="L5",
        says=(
            "Erasing leaves a tombstone that the chain still verifies, is an event itself, and empties "
            "the search index of the text."
        ),
        source=LOG,
    ),
    Requirement(
        id="L6",
        says=(
            "An append is never interleaved with another's, and a run that lost its lease can append nothing."
        ),
        source=LOG,
    ),
    Requirement(
        id="C1",
        says=(
            "Continuing leaves every byte of the predecessor and adds only the call, its result and the "
            "fact of the continuation; when a person says something with it, that message instead of the call."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="C2",
        says=(
            "A successor appears with its link, manifest, projection, state, first message and first run, "
            "or not at all."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="C3",
        says=(
            "One idempotency key stands for one successor, whoever retries, from whichever process, after "
            "whatever crash."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="C4",
        says=(
            "The message that asked for the continuation arrives unaltered and names the original by id, "
            "seq and digest."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="C5",
        says=(
            "A successor has one predecessor, the walk back ends at the origin, and a cycle cannot be "
            "written."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="C6",
        says=(
            "Open calls, pending children and queued input move by name, or the continuation is refused "
            "with their list."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="C7",
        says="When a successor's run fails, link and successor stay, and the run can be tried again.",
        source=CONTINUATION,
    ),
    Requirement(
        id="C8",
        says=(
            "A successor starts without a pressure reading, waits for someone to speak, and stays within "
            "count and rate limits."
        ),
        source=CONTINUATION,
    ),
    Requirement(
        id="P1",
        says="Compiling the same inputs gives the same bytes, and a manifest alone is enough to do it again.",
        source=PROJECTION,
    ),
    Requirement(
        id="P2",
        says="Every source that was offered is included, or listed as omitted with the cause.",
        source=PROJECTION,
    ),
    Requirement(
        id="P3",
        says=(
            "The parts that a successor cannot do without are never dropped; if they do not fit, nothing "
            "is written."
        ),
        source=PROJECTION,
    ),
    Requirement(
        id="P4",
        says="A projection stays within its budget by the count of the tokenizer that its manifest names.",
        source=PROJECTION,
    ),
    Requirement(
        id="P5",
        says=(
            "A revoked or changed source shows as unavailable or as its pinned version, never as newer "
            "content."
        ),
        source=PROJECTION,
    ),
    Requirement(
        id="P6",
        says="Plan steps, pins and runs cross over as structured state with their ids, not only as prose.",
        source=PROJECTION,
    ),
    Requirement(
        id="O1",
        says=(
            "Every way to open a session says where its brief comes from; only a clean slate has none, "
            "and it reads nothing."
        ),
        source=OPENING,
    ),
    Requirement(
        id="O2",
        says=(
            "A brief is always composed and spent only on an engine without a conversation; what is "
            "reported was confirmed."
        ),
        source=OPENING,
    ),
    Requirement(
        id="O3",
        says=(
            "No surface calls a reconstructed conversation restored; all of them tell it from the same facts."
        ),
        source=OPENING,
    ),
    Requirement(
        id="O4",
        says="A session opens even when its brief could not be composed.",
        source=OPENING,
    ),
    Requirement(
        id="O5",
        says="An engine that cannot resume is never reported as resumed.",
        source=OPENING,
    ),
    Requirement(
        id="T1",
        says=(
            "However a log was cut, forked, limited or imported, the messages made from it are valid for "
            "the provider, the same each time."
        ),
        source=TRANSCRIPT,
    ),
    Requirement(
        id="T2",
        says="The model input of a later turn begins with the bytes of the earlier one.",
        source=TRANSCRIPT,
    ),
    Requirement(
        id="T3",
        says=(
            "Text from elsewhere is fenced exactly once, cannot close its own fence, and is declared to "
            "be data."
        ),
        source=TRANSCRIPT,
    ),
    Requirement(
        id="A1",
        says=(
            "No account reads another's; grants follow today's policy, and what may not be read leaves a "
            "breadcrumb."
        ),
        source=ACCESS,
    ),
)


def gaps(tagged: dict[str, list[str]]) -> list[str]:
    """The built requirements that no test carries, one line each."""
    return [
        f"{requirement.id} is built and no test carries it: {requirement.says}"
        for requirement in REQUIREMENTS
        if requirement.planned is None and not tagged.get(requirement.id)
    ]


def strays(tagged: dict[str, list[str]]) -> list[str]:
    """The ids that tests carry and that are no requirement, one line each."""
    known = {requirement.id for requirement in REQUIREMENTS}
    return [
        f"{id} is no requirement; it is named by {names[0]}"
        for id, names in sorted(tagged.items())
        if id not in known
    ]


def early(tagged: dict[str, list[str]]) -> list[str]:
    """The requirements that have tests and are still called planned, one line each."""
    return [
        f"{requirement.id} is {requirement.status} and has a test, {tagged[requirement.id][0]}: call it built"
        for requirement in REQUIREMENTS
        if requirement.planned is not None and tagged.get(requirement.id)
    ]
