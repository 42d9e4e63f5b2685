"""The demo: the main job from beginning to end, on real input, in a minute or two.

A conversation that Claude Code left behind is imported. Its engine hit a usage limit before it could answer, so the work is
continued in a fresh, linked session, where a small real model on this machine answers from the projection alone. The same
question goes to a session that knows nothing, so that the difference can be seen. Nothing is scripted on our side of the
model: if it answers badly, the demo says so and ends with status 1.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any, Final

import msgspec

import onward
from onward.core.bodies import Message
from onward.core.codec import body_of
from onward.core.lines import said, who
from onward.engines import engine_by_name
from onward.errors import EngineUnavailable, OnwardError
from onward.service.drafting import Draft

RECORDED: Final = Path(__file__).parent / "recorded" / "tidewatch.jsonl"
"""A session written by the real program, see the README beside it."""
FACT: Final = "8417"
"""The answer to the last question. It stands in the predecessor and nowhere else."""
PURPOSE: Final = "Answer the open question and prepare the release."
BUDGET: Final = 1000
"""Tokens for the projection: the model of the demo has a window of four thousand."""
ANSWER: Final[dict[str, Any]] = {"stop": ["\n\n"], "max_tokens": 80}
"""One paragraph: a model of this size is at its best in its first."""
WIDTH: Final = 88


def demo(as_json: bool = False) -> int:
    """Run the demo. Return 0 when the seeded model knew the answer and the cold one did not."""
    told = _Teller(quiet=as_json)
    engine = engine_by_name("local")
    if (why := engine.unavailable()) is not None:
        raise EngineUnavailable(engine="local", why=why)
    folder = Path(tempfile.mkdtemp(prefix="onward-demo-"))
    store = f"sqlite:///{folder / 'demo.db'}"
    began = time.monotonic()
    with onward.open(store) as log:
        result = _story(log, told, folder)
    result["seconds"] = round(time.monotonic() - began, 1)
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return 0 if result["ok"] else 1
    told.title("Look around")
    told.text(f"The demo's store stays in {folder} until you delete the folder. Try:")
    program = "onward" if shutil.which("onward") else sys.argv[0]
    option = f"--store {folder / 'demo.db'}"
    for command in ("list", f"read {result['predecessor']}", f"manifest {result['successor']}", "verify"):
        told.plain(f"  {program} {option} {command}")
    told.text(f"Finished in {result['seconds']} seconds.")
    return 0 if result["ok"] else 1


def _story(log: onward.Onward, told: _Teller, folder: Path) -> dict[str, Any]:
    told.title("1  Import a conversation that an engine left behind")
    report = log.import_files([RECORDED])
    file = report.files[0]
    if file.status != "imported":
        raise OnwardError(f"The recorded session could not be imported: {file.reason}")
    counts = file.records
    told.text(
        f"{RECORDED.name}, written by Claude Code {file.version}: {counts.read} records read, {counts.mapped} became "
        f"events, {counts.raw} were kept as they are, {counts.broken} were broken."
    )
    before = file.sessions[0]
    page = log.read(before, limit=1000)
    for event in page.events:
        body = body_of(event)
        if isinstance(body, Message) and (not body.aside or "limit" in body.text):
            told.quote(f"[{event.seq}] {who(event, body)}", said(event, body))
    told.text("Its engine has reached its usage limit: nobody answered the last question.")

    told.title("2  Continue in a fresh, linked session")
    draft = edited(log.draft(before, PURPOSE, title="Tidewatch release", budget=BUDGET))
    told.text(
        "The draft is edited as a person would for so small a model: it keeps one source and no statements."
    )
    made = log.continue_session(before, draft, key="demo", budget=BUDGET, engine="local")
    again = log.continue_session(before, draft, key="demo", budget=BUDGET, engine="local")
    record = log.manifest(made.successor)
    told.text(
        f"{made.successor} continues {made.predecessor}. Asking twice with one key gave the same session: "
        f"{'yes' if again.successor == made.successor else 'NO'}."
    )
    told.text(
        f"Its first context, the projection, costs {record.tokens} of {record.budget} tokens ({record.tokenizer}). The "
        f"manifest lists {len(record.included)} included ranges and {len(record.omitted)} that stay linked:"
    )
    for cost in record.costs:
        told.plain(f"  {cost.section:<20} {cost.tokens:>5}  {'█' * (cost.tokens // 12)}")

    told.title("3  A real model answers there (SmolLM2-135M, on this machine, no network)")
    question = str(_text(log, made.predecessor, record.initiating.seq))
    told.quote("question", question)
    seeded = log.run(made.successor, engine="local", engine_opts=ANSWER)
    told.quote("continued", seeded.reply or f"({seeded.reason})")
    told.text(seeded.opening_told)

    told.title("4  The same question to a session that knows nothing")
    cold_session = log.start("A cold start")
    cold = log.run(cold_session.id, question, engine="local", engine_opts=ANSWER)
    told.quote("cold", cold.reply or f"({cold.reason})")
    knew, guessed = FACT in seeded.reply, FACT in cold.reply
    ok = knew and not guessed
    told.text(
        f"The answer ({FACT}) stands in the predecessor only. The continued session "
        f"{'knew it' if knew else 'DID NOT know it'}, the cold one {'DID' if guessed else 'did not'}."
    )

    told.title("5  Nothing was lost, and every step can be inspected")
    found = log.search("release called", session_id=made.successor, limit=1)
    if found.hits:
        hit = found.hits[0]
        told.quote(f"search “release called” → {hit.session[:8]}…[{hit.seq}]", hit.text)
    checked = log.verify()
    told.text(
        f"{checked.events} events in {checked.sessions} sessions: every digest and the whole chain "
        f"{'verify' if checked.ok else 'DO NOT verify'}."
    )
    same = log.recompile(record) == record.digest
    told.text(f"Compiling the projection again gives the same bytes: {'yes' if same else 'NO'}.")
    return {
        "ok": ok and checked.ok and same,
        "store": str(folder / "demo.db"),
        "predecessor": made.predecessor,
        "successor": made.successor,
        "manifest": made.manifest,
        "question": question,
        "continued": seeded.reply,
        "cold": cold.reply,
        "opening": seeded.opening,
        "verified": checked.ok,
    }


def edited(draft: Draft) -> Draft:
    """Return a draft as it is sent: the agent's last answer as its source, and nothing for a small model to repeat."""
    handoff = msgspec.structs.replace(draft.handoff, established_facts=(), decisions=(), cautions=())
    closing = tuple(source for source in draft.sources if "closing note" in source.relevance)
    return msgspec.structs.replace(draft, handoff=handoff, sources=closing)


def _text(log: onward.Onward, session: str, seq: int) -> str:
    body = body_of(log.read(session, seq, seq).events[0])
    return body.text if isinstance(body, Message) else ""


class _Teller:
    """Prints the story, or keeps quiet when a program asked."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def plain(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)

    def title(self, line: str) -> None:
        self.plain(f"\n{line}\n{'─' * len(line)}")

    def text(self, line: str) -> None:
        self.plain(textwrap.fill(line, WIDTH))

    def quote(self, name: str, text: str) -> None:
        shown = text if len(text) <= 600 else f"{text[:600]} … ({len(text) - 600:,} more characters)"
        lines = [part for line in shown.splitlines() for part in (textwrap.wrap(line, WIDTH - 4) or [""])]
        self.plain(f"  {name}")
        for line in lines:
            self.plain(f"  │ {line}")
