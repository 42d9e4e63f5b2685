"""Claude Code transcripts: ``projects/<folder>/<uuid>.jsonl`` and the agent files beside them.

Rows form a tree (see ``claude_tree``); this module says what each row becomes. A response is written as one row a content
block, and every block is an event of its own, in order. Harness text under the user role becomes an aside. A compaction
is two rows, a boundary and a summary, and one ``checkpoint``. What has no counterpart is ``raw``, whole.

It deliberately does not interpret ``toolUseResult`` (the harness's own rendering of a result) and token usage: both stay
in the original record, which is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from onward.core.bodies import Checkpoint
from onward.importers.calls import closers, short_digest
from onward.importers.claude_blocks import (
    DELEGATES,
    Told,
    agent_in,
    assistant_told,
    compact_facts,
    error_text,
    message_digest,
    prompt_in,
    queued_prompt,
    user_told,
)
from onward.importers.claude_rows import LightRow, NotAnObject, Row, light_blocks_of, light_row_of, row_of
from onward.importers.claude_tree import Tree
from onward.importers.contract import (
    UNTELLABLE,
    Counts,
    Draft,
    Line,
    Outcome,
    Strand,
    Survey,
    body,
    pack,
    unpack,
    why_broken,
)
from onward.importers.harness import command_title, is_harness, title_from
from onward.importers.idents import Idents
from onward.importers.moments import moment_of

ENGINE: Final = "claude-code"

_TIPS: Final = 200
_LIVELY: Final = 16

KNOWN_TYPES: Final = frozenset(
    (
        "user", "assistant", "system", "summary", "attachment", "progress", "file-history-snapshot",
        "file-history-delta", "queue-operation", "last-prompt", "mode", "permission-mode", "custom-title",
        "ai-title", "agent-name", "agent-color", "tools-used", "cost-state", "atis-latch", "api-request-shape",
        "api-request-blob", "api-request", "worktree-state", "frame-link", "pr-link", "started", "result",
        "relocated", "bridge-session", "tool_use", "tool_result", "tag", "saved_hook_context",
    )
)  # fmt: skip
"""Row types seen in transcripts. Others are kept as raw all the same; these only tell what a file is."""


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the reader knows from earlier lines of the file."""

    counts: Counts = msgspec.field(default_factory=Counts)
    strands: dict[str, Strand] = {}
    native_id: str = ""
    version: str | None = None
    at: int = 0
    agent_file: bool = False
    parent_session: str | None = None
    idents: dict[str, int] = {}
    anchor: str = ""
    """The id of the last row that had one."""
    prompts: dict[str, str] = {}
    """The digest of a delegated prompt, to the provider's id of the call that delegated it."""
    agents: dict[str, str] = {}
    """A subagent's id, to the provider's id of the call that delegated it."""
    boundary: dict[str, Any] | None = None
    """What a compaction boundary said, until its summary comes."""


class ClaudeReader:
    """Reads one transcript file. ``state`` is what ``save`` returned at the last import of it."""

    def __init__(self, state: bytes = b"", *, native_id: str = "", agent_file: bool = False) -> None:
        self._state = unpack(state, State) if state else State()
        if not state:
            self._state.native_id = native_id
            self._state.agent_file = agent_file
            self._state.strands[""] = Strand(key="", kind="child" if agent_file else "main")
        self._tree: Tree | None = None
        self._first_line = 1
        self._unanswered: set[str] = set()
        self._early: set[str] = set()
        self._tip_knots: dict[str, int] = {}
        self._summarized: set[int] = set()
        self._leaves: set[str] = set()
        self._copies: set[int] = set()
        self._copied: set[str] = set()
        self._said: dict[str, str] = {}
        self._idents = Idents(self._state.idents)

    @property
    def engine(self) -> str:
        return ENGINE

    @property
    def counts(self) -> Counts:
        return self._state.counts

    @property
    def strands(self) -> dict[str, Strand]:
        return self._state.strands

    @property
    def native_id(self) -> str:
        return self._state.native_id

    @property
    def version(self) -> str | None:
        return self._state.version

    @property
    def delegations(self) -> tuple[dict[str, str], dict[str, str]]:
        """Calls that delegated, by the digest of their prompt and by the subagent's id."""
        return self._state.prompts, self._state.agents

    @property
    def file_key(self) -> str:
        """What tells this file from others of the same native session: the subagent of an agent file."""
        return f"agent:{self._state.native_id}" if self._state.agent_file else ""

    @property
    def parent_session(self) -> str | None:
        """For an agent file, the engine's id of the session that started the subagent."""
        return self._state.parent_session

    def save(self) -> bytes:
        strands = self._state.strands
        if len(strands) > _LIVELY:
            # Only the newest can well go on. The others need the whole file surveyed if they do.
            latest = sorted(strands, key=lambda key: self._tip_knots.get(key, -1))[:-_LIVELY]
            for key in latest:
                if key:
                    del strands[key].tips[:-1]
        self._state.idents = self._idents.latest()
        return pack(self._state)

    def restart(self) -> None:
        state = self._state
        state.counts, state.at, state.boundary, state.anchor = Counts(), 0, None, ""
        for strand in state.strands.values():
            strand.open, strand.closed, strand.used, strand.early = {}, {}, set(), set()
        self._idents = Idents()

    # The first pass

    def survey(self, lines: Iterable[Line], *, whole: bool = True, fallback_at: int = 0) -> Survey:
        state, seen = self._state, Survey()
        known = {key: strand for key, strand in state.strands.items() if strand.session}
        tree = Tree(known, whole=whole, agent_file=state.agent_file)
        unanswered = dict.fromkeys(p for strand in state.strands.values() for p in strand.open)
        sessions: dict[str, None] = {}
        wanted_leaves: set[str] = set()
        boundary = first = agent = at = None
        for number, _, data, _ in lines:
            first = number if first is None else first
            row = _light_or_none(data, seen)
            if row is None:
                tree.skip()
                continue
            at = at or moment_of(row.timestamp)
            agent = agent or row.agent
            if row.session and row.session not in sessions:
                sessions[row.session] = None
            seen.known += row.type in KNOWN_TYPES
            if row.type == "summary" and row.leaf:
                wanted_leaves.add(row.leaf)
            elif row.subtype == "compact_boundary":
                boundary = number
            elif row.compact_summary and boundary is not None:
                self._summarized.add(boundary)
                boundary = None
            answers_only, spoken = self._look_at(row, unanswered, seen)
            tree.add(row, answers_only=answers_only, spoken=spoken)
        new = tree.finish()
        self._tree, self._first_line = tree, first or 1
        self._unanswered = set(unanswered)
        self._copies, self._copied = tree.copies, tree.copied
        self._leaves = {leaf for leaf in wanted_leaves if tree.holds(leaf)}
        state.at = state.at or at or fallback_at
        if not state.counts.read and sessions:
            if state.agent_file:
                state.parent_session = next(iter(sessions))
                state.native_id = agent or state.native_id
            elif state.native_id not in sessions:
                state.native_id = next(iter(sessions))
        main = state.strands[""]
        main.at = main.at or state.at
        for key, strand in new.items():
            if key not in state.strands:
                strand.native_id = key.partition(":")[2]
                state.strands[key] = strand
        return seen

    def _look_at(self, row: LightRow, unanswered: dict[str, None], seen: Survey) -> tuple[bool, bool]:
        if row.type == "assistant":
            seen.dialogue += 1
            for block in light_blocks_of(row.message) or ():
                if block.type == "tool_use" and block.id not in self._early:
                    unanswered[block.id] = None
            return False, False
        if row.type != "user":
            return False, False
        seen.dialogue += 1
        blocks = light_blocks_of(row.message)
        results = [b.tool_use_id for b in blocks or () if b.type == "tool_result"]
        for provider in results:
            if unanswered.pop(provider, provider) is not None:
                self._early.add(provider)
        answers_only = bool(results) and len(results) == len(blocks or ())
        return answers_only, not results and not row.meta and not row.compact_summary

    # The second pass

    def read(self, line: Line) -> Outcome:
        number, _, data, length = line
        counts = self._state.counts
        if data is not None and not data.strip():
            return Outcome(verdict="blank")
        counts.read += 1
        if data is None:
            counts.broken += 1
            return Outcome(verdict="broken", why=f"{length:,} bytes long, more than is read")
        try:
            row = row_of(data)
        except NotAnObject:
            counts.raw += 1
            ident = self._idents.of(data, self._state.anchor)
            return Outcome(verdict="raw", drafts=[self._raw(self._strand(number), data, None, ident)])
        except ValueError as error:
            return self._broken(error, data, number)
        before = msgspec.structs.replace(counts)
        try:
            return self._read_row(row, data, number)
        except UNTELLABLE as error:
            self._state.counts = before
            return self._broken(error, data, number)

    def _broken(self, error: Exception, data: bytes, number: int) -> Outcome:
        self._state.counts.broken += 1
        kept = {"broken": why_broken(error), "text": data.decode("utf-8", "backslashreplace")}
        ident = self._idents.of(data, self._state.anchor)
        draft = self._raw(self._strand(number), body(kept), None, ident)
        return Outcome(verdict="broken", why=why_broken(error), drafts=[draft])

    def _strand(self, number: int) -> Strand:
        tree = self._tree
        place = number - self._first_line
        key = tree.strand_of(place) if tree is not None and 0 <= place < len(tree.rows) else ""
        return self._state.strands[key]

    def _read_row(self, row: Row, data: bytes, number: int) -> Outcome:
        state = self._state
        strand = self._strand(number)
        state.at = moment_of(row.timestamp) or state.at
        self._learn(row, strand)
        self._move_tips(row, strand, number)
        ident, copy = self._identity(row, data, number)
        if copy:
            self._count(row, user_told(row, data) if row.type == "user" else None)
            state.counts.mapped += 1
            return Outcome(verdict="mapped")
        drafts = self._tell(row, strand, ident, number, data)
        if drafts is None:
            state.counts.raw += 1
            return Outcome(verdict="raw", drafts=[self._raw(strand, data, row.uuid, ident)])
        state.counts.mapped += 1
        return Outcome(verdict="mapped", drafts=drafts)

    def _identity(self, row: Row, data: bytes, number: int) -> tuple[str, bool]:
        """Return what makes this record itself, and whether it is an exact copy of one that came before."""
        if row.uuid is None:
            return self._idents.of(data, self._state.anchor), False
        self._state.anchor = row.uuid
        if number - self._first_line not in self._copies:
            if row.uuid in self._copied:
                self._said[row.uuid] = message_digest(row, data)
            return row.uuid, False
        digest = message_digest(row, data)
        return f"{row.uuid}\x00{digest}", self._said.get(row.uuid) == digest

    def _tell(self, row: Row, strand: Strand, ident: str, number: int, data: bytes) -> list[Draft] | None:
        """Return the events of a row; None when it has no counterpart, an empty list when another row speaks for it."""
        at = self._state.at
        match row.type:
            case "assistant":
                told = assistant_told(row, data)
                self._count(row, told)
                return told.drafts(strand, at, ident, row.uuid) or None
            case "user":
                return self._tell_user(row, strand, ident, data)
            case "system" if row.subtype == "compact_boundary" and number in self._summarized:
                self._state.boundary = compact_facts(row.compact)
                return []
            case "system" if row.subtype in ("api_error", "error"):
                fields = {"text": error_text(row.error) or "The provider's API failed.", "status": "error"}
                return [self._draft(strand, "outcome", "system", body(fields), ident, row.uuid)]
            case "attachment":
                return self._tell_attachment(row, strand, ident)
            case _:
                return None

    def _tell_user(self, row: Row, strand: Strand, ident: str, data: bytes) -> list[Draft] | None:
        state = self._state
        told = user_told(row, data)
        self._count(row, told)
        if row.compact_summary:
            facts, state.boundary = state.boundary or {}, None
            point = Checkpoint(text=told.text, trigger=facts.get("trigger"))
            draft = self._draft(strand, "checkpoint", "system", point, ident, row.uuid)
            draft.kept = tuple(facts.get("kept", ()))
            return [draft]
        actor = "trigger" if strand.kind == "child" else "user"
        drafts = told.drafts(strand, state.at, ident, row.uuid, actor=actor)
        if told.text and not told.aside:
            self._ask(strand, told.text)
            if strand.open and self._unanswered:
                drafts = [*closers(strand, state.at, only=self._unanswered), *drafts]
        elif told.text and strand.title_rank == 0 and not row.meta:
            strand.title = strand.title or command_title(told.text)
        if (agent := agent_in(row.tool_use_result)) and told.results:
            state.agents[agent] = told.results[0]
        return drafts or None

    def _tell_attachment(self, row: Row, strand: Strand, ident: str) -> list[Draft] | None:
        """A prompt that was queued while the agent worked reached it as an attachment: someone said that."""
        text = queued_prompt(row.attachment)
        if text is None:
            return None
        fields = {"role": "user", "text": text, "steering": True, "aside": is_harness(text)}
        return [self._draft(strand, "message", "user", body(fields), ident, row.uuid)]

    def _ask(self, strand: Strand, text: str) -> None:
        if strand.kind == "child" and not strand.prompt:
            strand.prompt = short_digest(text.strip())
            strand.call = self._state.prompts.get(strand.prompt) if strand.key else None
        if strand.title_rank == 0 and (title := title_from(text)):
            strand.title, strand.title_rank = title, 1

    def _count(self, row: Row, told: Told | None) -> None:
        counts = self._state.counts
        if told is None:
            return
        counts.user += row.type == "user" and not told.results
        counts.assistant += row.type == "assistant"
        counts.tool_calls += told.calls
        counts.tool_results += len(told.results)

    def _learn(self, row: Row, strand: Strand) -> None:
        """Keep what a row says about its file: versions, folders, titles, who delegated what."""
        state = self._state
        state.version = row.version or state.version
        strand.at = strand.at or state.at
        if row.version and strand.version is None:
            strand.version = row.version
        if row.cwd and strand.cwd is None:
            strand.cwd = row.cwd
        if row.message and row.message.model and row.message.model != "<synthetic>":
            strand.model = row.message.model
        main = state.strands[""]
        if row.type == "custom-title" and row.custom_title:
            main.title, main.title_rank = row.custom_title, 4
        elif row.type == "ai-title" and row.ai_title and main.title_rank <= 3:
            main.title, main.title_rank = row.ai_title, 3
        elif row.type == "summary" and row.summary and row.leaf in self._leaves and main.title_rank <= 2:
            main.title, main.title_rank = row.summary, 2
        if row.type == "assistant" and row.message and isinstance(row.message.content, list):
            for block in row.message.content:
                if (
                    block.type == "tool_use"
                    and block.name in DELEGATES
                    and (prompt := prompt_in(block.input))
                ):
                    state.prompts[short_digest(prompt.strip())] = block.id

    def _move_tips(self, row: Row, strand: Strand, number: int) -> None:
        """Remember what the next row may hang on, so that a grown file is read from its end on."""
        if row.uuid is None or self._tree is None:
            return
        knot = self._tree.knot_of(number - self._first_line)
        current = self._tip_knots.get(strand.key, -1)
        if knot < current:
            return
        if knot > current:
            self._tip_knots[strand.key] = knot
            strand.tips = []
        if len(strand.tips) >= _TIPS:
            del strand.tips[1]
        strand.tips.append(row.uuid)
        if row.type == "assistant" and row.message:
            strand.tip_message = row.message.id

    def _draft(
        self,
        strand: Strand,
        kind: str,
        actor: str,
        content: bytes | Checkpoint,
        ident: str,
        native: str | None,
    ) -> Draft:
        return Draft(
            strand=strand.key,
            at=self._state.at,
            kind=kind,
            actor=actor,
            body=content,
            ident=ident,
            native_id=native,
        )

    def _raw(self, strand: Strand, data: bytes, native: str | None, ident: str) -> Draft:
        strand.at = strand.at or self._state.at
        return self._draft(strand, "raw", "system", data, ident, native)

    def finish(self) -> list[Draft]:
        return [draft for strand in self._state.strands.values() for draft in closers(strand, self._state.at)]


def _light_or_none(data: bytes | None, seen: Survey) -> LightRow | None:
    if data is None or not data.strip():
        return None
    try:
        row = light_row_of(data)
    except NotAnObject:
        return None
    except ValueError:
        seen.broken += 1
        return None
    seen.objects += 1
    return row
