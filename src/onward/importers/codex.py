"""Codex rollouts: ``sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl``, and the formats before them.

A rollout is a list, not a tree; the items that the model saw (``response_item``) are what is read, and the mirrors of them
for user interfaces (``event_msg``) stay raw. The exception: a text that only a mirror carries is read from the mirror.
A file that begins in the middle (a fork by reference, a segment after a revert) names its base; the writer links it.

It deliberately does not rebuild the model's view after a compaction: ``compacted`` is a ``checkpoint``, and the items
before it stay in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec

from onward.core.bodies import Checkpoint
from onward.importers.calls import closers, short_digest
from onward.importers.codex_items import (
    call_draft,
    is_call,
    is_result,
    message_drafts,
    reasoning_fields,
    result_draft,
    said_in,
    summary_in,
)
from onward.importers.codex_rows import Base, Item, NotAnObject, Row, item_in, row_of, spawned_by
from onward.importers.contract import (
    UNTELLABLE,
    Counts,
    Draft,
    Line,
    Outcome,
    Strand,
    Survey,
    body,
    native_json,
    pack,
    unpack,
    why_broken,
)
from onward.importers.harness import ask_in, title_from
from onward.importers.idents import Idents
from onward.importers.moments import moment_in_uuid7, moment_of

ENGINE: Final = "codex"

ENVELOPES: Final = frozenset(
    (
        "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
        "token_usage_record", "inter_agent_communication_metadata",
    )
)  # fmt: skip

_REMEMBERED: Final = 400
_CONTAINED: Final = 4 * 1024 * 1024


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the reader knows from earlier lines of the file."""

    counts: Counts = msgspec.field(default_factory=Counts)
    strands: dict[str, Strand] = {}
    native_id: str = ""
    named: bool = False
    version: str | None = None
    at: int = 0
    began: int = 0
    base: Base | None = None
    forked_from: str | None = None
    parent_thread: str | None = None
    idents: dict[str, int] = {}
    anchor: str = ""
    """The identity of the line before."""
    agents: dict[str, str] = {}
    """A subagent's thread, to the call that spawned it."""
    said: list[str] = []
    """Digests of what items said lately: a mirror of one of them says nothing new."""
    heard: list[str] = []
    """Digests of what only mirrors had said when they were read."""
    native_of: dict[str, tuple[int, str]] = {}
    """The digest of a user's text, to the time and identity of its event: a compaction names what it keeps by text."""


class CodexReader:
    """Reads one rollout file. ``state`` is what ``save`` returned at the last import of it."""

    def __init__(self, state: bytes = b"", *, native_id: str = "") -> None:
        self._state = unpack(state, State) if state else State()
        if not state:
            self._state.native_id = native_id
            self._state.strands[""] = Strand(key="")
        self._unanswered: set[str] = set()
        self._texts: set[str] = set()
        self._endings: list[str] = []
        """What items say, spelled backwards and sorted: texts with the same end stand together."""
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
    def base(self) -> Base | None:
        """The point in another file where this file's history begins, if it holds only what came after."""
        return self._state.base

    @property
    def forked_from(self) -> str | None:
        """The thread that this one is a copy of."""
        return self._state.forked_from

    @property
    def parent_thread(self) -> str | None:
        """The thread that started this one as its subagent."""
        return self._state.parent_thread

    @property
    def agents(self) -> dict[str, str]:
        """Threads that this one started, to the call that did."""
        return self._state.agents

    @property
    def file_key(self) -> str:
        """What tells this file from others of the same thread: a segment after a revert begins where it was cut."""
        state = self._state
        return f"segment:{state.began}" if state.base and state.base.thread_id == state.native_id else ""

    def save(self) -> bytes:
        self._state.idents = self._idents.latest()
        return pack(self._state)

    def restart(self) -> None:
        state, strand = self._state, self.strands[""]
        state.counts, state.at, state.named, state.anchor = Counts(), 0, False, ""
        state.said, state.heard, state.native_of = [], [], {}
        strand.open, strand.closed, strand.used, strand.early = {}, {}, set(), set()
        self._idents = Idents()

    def head(self, session: bytes) -> None:
        """Take the ``session`` object of a single-document file: it names the thread and its folder."""
        try:
            _, item = row_of(session)
        except ValueError:
            return
        self._meet(item, moment_of(item.timestamp))

    # The first pass

    def survey(self, lines: Iterable[Line], *, whole: bool = True, fallback_at: int = 0) -> Survey:  # noqa: ARG002 (a list needs no whole)
        seen = Survey()
        unanswered = dict.fromkeys(self.strands[""].open)
        early: set[str] = set()
        texts, contained, at = set(self._state.said), 0, None
        for _, _, data, _ in lines:
            if data is None or not data.strip():
                continue
            try:
                row, item = row_of(data)
            except NotAnObject:
                continue
            except ValueError:
                seen.broken += 1
                continue
            at = at or moment_of(row.timestamp) or moment_of(item.timestamp)
            seen.objects += 1
            seen.known += _is_known(row, item)
            if row.type == "session_meta" or (row.type is None and _is_head(item)):
                self._meet(item, moment_of(item.timestamp) or moment_of(row.timestamp))
            if row.type not in (None, "response_item"):
                if (
                    row.type == "event_msg"
                    and item.type in ("user_message", "agent_message")
                    and item.message
                ):
                    seen.dialogue += 1
                continue
            if _is_message(item):
                seen.dialogue += 1
                text = said_in(item).strip()
                texts.add(short_digest(text))
                if contained < _CONTAINED:
                    contained += len(text)
                    self._endings.append(text[::-1])
            elif item.call_id and is_result(item.type):
                seen.dialogue += 1
                if unanswered.pop(item.call_id, item.call_id) is not None:
                    early.add(item.call_id)
            elif is_call(item.type):
                seen.dialogue += 1
                if item.call_id and item.call_id not in early:
                    unanswered[item.call_id] = None
        self._endings.sort()
        self._texts, self._unanswered = texts, set(unanswered)
        self._state.at = self._state.at or at or fallback_at
        self.strands[""].at = self.strands[""].at or self._state.at
        return seen

    # The second pass

    def read(self, line: Line) -> Outcome:
        _, _, data, length = line
        counts = self._state.counts
        if data is not None and not data.strip():
            return Outcome(verdict="blank")
        counts.read += 1
        if data is None:
            counts.broken += 1
            return Outcome(verdict="broken", why=f"{length:,} bytes long, more than is read")
        try:
            row, item = row_of(data)
            # A line with its time is itself; bare items repeat, and are told apart by the line before.
            ident = self._idents.of(data, "" if row.timestamp is not None else self._state.anchor)
        except NotAnObject:
            counts.raw += 1
            ident = self._idents.of(data, self._state.anchor)
            return Outcome(verdict="raw", drafts=[self._draft("raw", "system", data, ident, None)])
        except ValueError as error:
            return self._broken(error, data)
        state, strand = self._state, self.strands[""]
        state.anchor = ident[:12]
        state.at = moment_of(row.timestamp) or moment_of(item.timestamp) or state.at
        strand.at = strand.at or state.at
        before = msgspec.structs.replace(counts)
        try:
            drafts = self._tell(row, item, ident)
        except UNTELLABLE as error:
            self._state.counts = before
            return self._broken(error, data)
        if drafts is None:
            counts.raw += 1
            return Outcome(
                verdict="raw", drafts=[self._draft("raw", "system", data, ident, item.id or item.call_id)]
            )
        counts.mapped += 1
        return Outcome(verdict="mapped", drafts=drafts)

    def _broken(self, error: Exception, data: bytes) -> Outcome:
        self._state.counts.broken += 1
        ident = self._idents.of(data, self._state.anchor)
        kept = body({"broken": why_broken(error), "text": data.decode("utf-8", "backslashreplace")})
        draft = self._draft("raw", "system", kept, ident, None)
        return Outcome(verdict="broken", why=why_broken(error), drafts=[draft])

    def _tell(self, row: Row, item: Item, ident: str) -> list[Draft] | None:
        match row.type:
            case "response_item" | None:
                return self._tell_item(item, ident)
            case "event_msg":
                return self._tell_event(item, ident)
            case "compacted":
                return [self._checkpoint(item, ident)]
            case "turn_context":
                strand = self.strands[""]
                strand.model = item.model or strand.model
                strand.cwd = strand.cwd or item.cwd
                return None
            case _:
                return None

    def _tell_item(self, item: Item, ident: str) -> list[Draft] | None:
        counts, strand, at = self._state.counts, self.strands[""], self._state.at
        if _is_message(item):
            counts.user += item.role == "user"
            counts.assistant += item.role == "assistant"
            text = said_in(item)
            digest = short_digest(text.strip())
            self._remember(self._state.said, digest)
            if (ask := ask_in(text)) != text.strip():
                self._remember(self._state.said, short_digest(ask))
            if heard := {digest, short_digest(ask_in(text))} & set(self._state.heard):
                self._state.heard = [known for known in self._state.heard if known not in heard]
                return None  # its mirror was read before it was written
            drafts = message_drafts(strand, item, at, ident, child=self._state.parent_thread is not None)
            spoken = next((d for d in drafts if item.role == "user" and not _is_aside(d)), None)
            if spoken is not None:
                self._ask(text)
                self._state.native_of[digest] = at, spoken.ident
                if len(self._state.native_of) > _REMEMBERED:
                    del self._state.native_of[next(iter(self._state.native_of))]
                drafts = [*closers(strand, at, only=self._unanswered), *drafts]
            return drafts or None
        if item.type == "reasoning":
            return [self._draft("reasoning", "agent", body(reasoning_fields(item)), ident, item.id)]
        if is_call(item.type):
            counts.tool_calls += 1
            return call_draft(strand, item, at, ident)
        if is_result(item.type):
            counts.tool_results += 1
            return [result_draft(strand, item, at, ident)]
        if item.type == "agent_message":
            text = said_in(item)
            return [self._draft("context", "agent", body({"form": "opaque", "text": text}), ident, item.id)]
        return None

    def _tell_event(self, item: Item, ident: str) -> list[Draft] | None:
        strand, at = self.strands[""], self._state.at
        match item.type:
            case "user_message" | "agent_message" if item.message and not self._is_mirror(item.message):
                user = item.type == "user_message"
                self._remember(self._state.heard, short_digest(item.message.strip()))
                spoken = Item(
                    role="user" if user else "assistant",
                    content=native_json(item.message),
                )
                if user:
                    self._ask(item.message)
                return message_drafts(
                    strand,
                    spoken,
                    at,
                    ident,
                    child=self._state.parent_thread is not None,
                    images=item.images or (),
                )
            case "turn_aborted":
                fields = {
                    "text": f"The turn was aborted: {item.reason or 'no reason was recorded'}.",
                    "status": "interrupted",
                }
                end = self._draft("outcome", "system", body(fields), ident, None)
                return [*closers(strand, at, only=self._unanswered), end]
            case "error" if item.message:
                fields = {"text": item.message, "status": "error"}
                return [self._draft("outcome", "system", body(fields), ident, None)]
            case "thread_name_updated" if item.thread_name and strand.title_rank <= 3:
                strand.title, strand.title_rank = item.thread_name, 3
            case "collab_agent_spawn_end" if item.new_thread_id and item.call_id:
                self._state.agents[item.new_thread_id] = item.call_id
        return None

    def _is_mirror(self, text: str) -> bool:
        text = text.strip()
        if short_digest(text) in self._texts:
            return True
        # Clients put editor context in front of what was typed: then the item ends with what the mirror says.
        backwards = text[::-1]
        place = bisect_left(self._endings, backwards)
        return place < len(self._endings) and self._endings[place].startswith(backwards)

    def _checkpoint(self, item: Item, ident: str) -> Draft:
        history = [item_in(entry) for entry in item.replacement_history or ()]
        kept = (
            self._state.native_of.get(short_digest(said_in(i).strip())) for i in history if i.role == "user"
        )
        draft = self._draft("checkpoint", "system", Checkpoint(text=summary_in(item, history)), ident, None)
        draft.kept_idents = tuple(k for k in kept if k)
        return draft

    def _meet(self, item: Item, at: int | None) -> None:
        """Take what a file says about itself. Its first word counts: a fork by copy holds its parent's too."""
        state, strand = self._state, self.strands[""]
        strand.cwd = strand.cwd or item.cwd
        state.version = state.version or item.cli_version
        strand.version = state.version
        if state.named or not item.id:
            return
        state.named = True
        if strand.session:
            return  # what it is called was settled by an earlier import
        state.native_id = item.id
        state.began = at or state.at
        strand.at = moment_in_uuid7(item.id) or at or state.at
        state.base = item.history_base if item.history_base and item.history_base.thread_id else None
        state.forked_from = item.forked_from_id
        state.parent_thread = spawned_by(item)
        if state.parent_thread:
            strand.kind = "child"
        elif state.base or state.forked_from:
            strand.kind = "fork"

    def _ask(self, text: str) -> None:
        strand = self.strands[""]
        if strand.title_rank == 0 and (title := title_from(text)):
            strand.title, strand.title_rank = title, 1

    def _remember(self, digests: list[str], digest: str) -> None:
        digests.append(digest)
        if len(digests) > _REMEMBERED:
            del digests[0]

    def _draft(
        self, kind: str, actor: str, content: bytes | Checkpoint, ident: str, native: str | None
    ) -> Draft:
        return Draft(
            strand="", at=self._state.at, kind=kind, actor=actor, body=content, ident=ident, native_id=native
        )

    def finish(self) -> list[Draft]:
        return closers(self.strands[""], self._state.at)


def _is_aside(draft: Draft) -> bool:
    return isinstance(draft.body, bytes) and b'"aside":true' in draft.body


def _is_head(item: Item) -> bool:
    """Whether a bare line is the first of its file, which names the thread."""
    return item.type is None and item.role is None and item.record_type is None


def _is_message(item: Item) -> bool:
    return item.role is not None and item.type in (None, "message")


def _is_known(row: Row, item: Item) -> bool:
    if row.type is not None:
        return row.type in ENVELOPES
    return (
        item.record_type is not None
        or is_call(item.type)
        or is_result(item.type)
        or item.type in ("reasoning", "message")
    )
