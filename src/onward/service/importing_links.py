"""Links between imported sessions: branches to what they left, subagents to the call that started them.

Inside one file both ends are known when it is read. Across files (a subagent's own file, a Codex thread that begins in
another one) the other end may come later, or never: such a session says so in its report, and every later import that
meets its file tries again. Nothing is guessed: a parent without the call that started the child is linked without one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from onward.core import ids as make
from onward.core.bodies import ToolCall
from onward.core.codec import body_of, loads
from onward.core.records import ImportedFile, Link
from onward.errors import Conflict, CycleRefused
from onward.importers import claude_code, codex
from onward.importers.claude_code import ClaudeReader
from onward.importers.codex import CodexReader
from onward.importers.contract import Strand, pack, unpack
from onward.importers.discover import Candidate
from onward.importers.moments import moment_in_uuid7
from onward.service.importing_originals import files_of, original_file
from onward.service.importing_writer import Account, FileWriter, link_between
from onward.store.contract import Batch, Store

_SIBLINGS: Final = 500


class _Ordinal(msgspec.Struct):
    ordinal: int | None = None


_ordinal: Final = msgspec.json.Decoder(_Ordinal)


class Linker:
    """Finds the other ends. One for each import."""

    def __init__(self, store: Store, account_id: str) -> None:
        self._store = store
        self._account_id = account_id
        self._paths: dict[tuple[str, str], str] = {}
        """Engine and native id to the path of the file that has it."""
        self._sessions: dict[tuple[str, str], str] = {}
        self._waiting: dict[str, ImportedFile] = {}

    # Inside one file

    def has_loose_ends(self, reader: ClaudeReader | CodexReader) -> bool:
        """Whether a session of this file is not linked yet to another one of it."""
        strands = reader.strands
        return any(
            s.session and s.parent is not None and not s.linked and strands[s.parent].session
            for s in strands.values()
        )

    def inside(self, writer: FileWriter) -> tuple[Link, ...]:
        """Return the links between the sessions of one file that are not written yet, and mark them as written.

        Where a file was rewritten, its strands may lie otherwise than its sessions did: what hangs somewhere already stays
        there, and nothing is hung below itself (invariant C5).
        """
        above: dict[str, str | None] = {}
        strands = writer.reader.strands
        wanted: dict[str, list[Strand]] = {}
        for strand in strands.values():
            if (
                strand.parent is None
                or strand.linked
                or not strand.session
                or not strands[strand.parent].session
            ):
                continue
            wanted.setdefault(strand.parent, []).append(strand)
        links: list[Link] = []
        for key, children in wanted.items():
            parent = strands[key].session
            natives = {s.hangs_on for s in children if s.hangs_on}
            calls = {s.call for s in children if s.call}
            found = self._events(parent, natives, calls)
            for strand in children:
                strand.linked = True
                event_id, seq = found.get(strand.call or "", (None, None))
                if strand.kind == "fork":
                    event_id, seq = found.get(strand.hangs_on or "", (None, None if strand.hangs_on else 1))
                link = link_between(
                    strand.kind, parent, strand.session, strand.at, event_id=event_id, seq=seq
                )
                if self._above(strand.session, above) is None and not self._is_below(
                    parent, strand.session, above
                ):
                    above[strand.session] = parent
                    links.append(link)
        return tuple(links)

    def _above(self, session: str, known: dict[str, str | None]) -> str | None:
        """Return the session that a session hangs on; ``known`` holds what was found, and what is about to be written."""
        if session not in known:
            links = self._store.links(session)
            known[session] = next((link.from_session for link in links if link.to_session == session), None)
        return known[session]

    def _is_below(self, session: str, other: str, known: dict[str, str | None]) -> bool:
        at: str | None = session
        while at is not None and at != other:
            at = self._above(at, known)
        return at is not None

    def _events(self, session: str, natives: set[str], calls: set[str]) -> dict[str, tuple[str, int]]:
        """Return the last event of each native record, and each call by its provider's id."""
        found: dict[str, tuple[str, int]] = {}
        if not natives and not calls:
            return found
        for event in self._store.scan(session):
            if event.source.native_id in natives:
                found[event.source.native_id or ""] = (event.id, event.seq)
            if calls and event.kind == "tool_call":
                body = body_of(event)
                if isinstance(body, ToolCall) and body.provider_call in calls:
                    found[body.provider_call or ""] = (event.id, event.seq)
        return found

    # Across files

    def is_awaited(self, reader: ClaudeReader | CodexReader) -> bool:
        """Whether the main session of a file hangs on one in another file, and is not linked to it yet."""
        if reader.strands[""].linked:
            return False
        if isinstance(reader, ClaudeReader):
            return reader.parent_session is not None
        return bool(reader.parent_thread or reader.base or reader.forked_from)

    def take(self, candidate: Candidate, reader: ClaudeReader | CodexReader, writer: FileWriter) -> None:
        """Remember what a file brought, and what it waits for."""
        main = reader.strands[""].session
        name = (reader.engine, reader.native_id)
        if main and not candidate.agent_file and not reader.file_key:
            self._paths[name] = candidate.path
            self._sessions[name] = main
        if writer.account.unlinked and (imported := self._file(candidate.path)):
            self._waiting[candidate.path] = imported

    def retry(self, imported: ImportedFile) -> None:
        """Try again to link a file that did not change."""
        self._waiting[imported.path] = imported

    def link_all(self, now: Callable[[], int]) -> dict[str, str]:
        """Link what waits and can be linked. Return, by path, what is still missing, in words."""
        notes: dict[str, str] = {}
        for path, imported in self._waiting.items():
            reader: ClaudeReader | CodexReader
            if imported.engine == claude_code.ENGINE:
                reader = ClaudeReader(imported.state)
                link, missing = self._to_session(path, reader)
            else:
                reader = CodexReader(imported.state)
                link, missing = self._to_thread(reader)
            if link is None:
                notes[path] = missing
                continue
            strand = reader.strands[""]
            strand.linked = True
            account = unpack(imported.account, Account)
            account.unlinked = False
            done = msgspec.structs.replace(
                imported, state=reader.save(), account=pack(account), imported_at=now()
            )
            links = (link,) if self._store.link(link.id) is None else ()
            try:
                self._store.commit(Batch(links=links, imports=(done,)))
            except (Conflict, CycleRefused) as error:
                notes[path] = f"it could not be linked to {link.from_session}: {error.message}"
        return notes

    def _file(self, path: str) -> ImportedFile | None:
        return self._store.imported_file(self._account_id, path)

    def _to_session(self, path: str, reader: ClaudeReader) -> tuple[Link | None, str]:
        """Link a subagent's file to the session that started it, or to the subagent that did."""
        parent_id = reader.parent_session or ""
        folder = os.path.dirname(path)
        above = os.path.dirname(folder)
        guesses = [
            self._paths.get((claude_code.ENGINE, parent_id)),
            f"{above}.jsonl",
            os.path.join(above, f"{parent_id}.jsonl"),
            os.path.join(above, "session.jsonl"),
            os.path.join(folder, f"{parent_id}.jsonl"),
        ]
        strand, meta = reader.strands[""], _meta(path)
        files = [
            f for guess in guesses if guess and guess != path and (f := self._file(guess)) and f.sessions
        ]
        files = [f for f in files if f.engine == claude_code.ENGINE][:1]
        if not files:
            return None, f"the session {parent_id} that started this subagent is not here"
        for file in (*files, *self._siblings(folder, path)):
            parent = ClaudeReader(file.state)
            prompts, agents = parent.delegations
            call = meta.get("toolUseId") or agents.get(reader.native_id) or prompts.get(strand.prompt)
            if not isinstance(call, str):
                continue
            for other in parent.strands.values():
                if other.session and (found := self._events(other.session, set(), {call}).get(call)):
                    return _child(other.session, strand, *found), ""
        return _child(files[0].sessions[0], strand, None, None), ""

    def _siblings(self, folder: str, path: str) -> list[ImportedFile]:
        try:
            names = sorted(os.listdir(folder))[:_SIBLINGS]
        except OSError:
            return []
        others = (
            os.path.join(folder, name)
            for name in names
            if name.startswith("agent-") and name.endswith(".jsonl")
        )
        return [file for other in others if other != path and (file := self._file(other)) and file.sessions]

    def _to_thread(self, reader: CodexReader) -> tuple[Link | None, str]:
        strand = reader.strands[""]
        if reader.parent_thread:
            parent = self._thread(reader.parent_thread)
            if parent is None:
                return None, f"the thread {reader.parent_thread} that started this one is not here"
            call = self._spawned(parent, reader.native_id)
            found = self._events(parent, set(), {call}).get(call) if call else None
            return _child(parent, strand, *(found or (None, None))), ""
        thread = reader.base.thread_id if reader.base else reader.forked_from or ""
        source = self._thread(thread)
        if source is None or source == strand.session:
            what = "its history begins in" if reader.base else "it is a copy of"
            return None, f"{what} thread {thread}, which is not here; it was imported as far as it goes"
        event_id, seq = (None, None)
        if reader.base:
            event_id, seq = self._before_ordinal(source, reader.base.end_ordinal_exclusive)
        return link_between("fork", source, strand.session, strand.at, event_id=event_id, seq=seq), ""

    def _thread(self, thread: str) -> str | None:
        """Return the session of a Codex thread: of this import, or of an earlier one."""
        if found := self._sessions.get((codex.ENGINE, thread)):
            return found
        at = moment_in_uuid7(thread)
        if at is None:
            return None
        session = make.derived_id(make.SESSION, at, self._account_id, codex.ENGINE, thread, "", "")
        return session if self._store.session(session) else None

    def _spawned(self, parent: str, thread: str) -> str | None:
        for path, _ in files_of(self._store, parent):
            file = self._file(path)
            if file is not None and (call := CodexReader(file.state).agents.get(thread)):
                return call
        return None

    def _before_ordinal(self, session: str, ordinal: int) -> tuple[str | None, int | None]:
        """Return the last event of a session whose row has a lower ordinal, read from the originals."""
        files = files_of(self._store, session)
        if not files:
            return None, None
        limit, at, rest = None, 0, b""
        for data in original_file(self._store, files[0][1]):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if limit is None and _ordinal_of(line) >= ordinal:
                    limit = at
                at += len(line) + 1
            if limit is not None:
                break
        last: tuple[str | None, int | None] = (None, None)
        for event in self._store.scan(session):
            index, _, place = (event.source.place or "").partition(":")
            if index != "0":
                continue
            offset = int(place.partition("@")[2].partition("+")[0])
            if limit is not None and offset >= limit:
                break
            last = (event.id, event.seq)
        return last


def _child(parent: str, strand: Strand, event_id: str | None, seq: int | None) -> Link:
    return link_between("child", parent, strand.session, strand.at, event_id=event_id, seq=seq)


def _ordinal_of(line: bytes) -> int:
    try:
        found = _ordinal.decode(line).ordinal
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1
    return -1 if found is None else found


def _meta(path: str) -> dict[str, Any]:
    """Return what the file beside a subagent's says about it; nothing if there is none."""
    try:
        with open(path.removesuffix(".jsonl") + ".meta.json", "rb") as file:
            found = loads(file.read(1 << 20))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
