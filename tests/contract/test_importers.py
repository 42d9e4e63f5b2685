"""Every reader of a native format passes the importer contract."""

from __future__ import annotations

from collections.abc import Mapping

from tests.importers.natives import Claude, Codex

from onward.importers.claude_code import ClaudeReader
from onward.importers.codex import CodexReader
from onward.importers.contract import Reader
from onward.testing.importer_contract import ImporterContract


class TestClaudeCode(ImporterContract):
    def reader(self, state: bytes = b"") -> Reader:
        return ClaudeReader(state, native_id="file-name")

    def files(self) -> Mapping[str, bytes]:
        plain = (
            Claude().user("u1", "Rename the parser").says("a1", "On it.").calls("a2", "t1").result("r1", "t1")
        )
        plain.says("a3", {"type": "thinking", "thinking": "hm", "signature": "sig"}).says("a4", "Renamed.")
        plain.side("last-prompt", lastPrompt="Rename the parser", leafUuid="a4").side("mode", mode="normal")
        plain.side("mode", mode="normal")

        tree = Claude().user("u1", "Start").says("a1", "Started.").user("u2", "Left").says("a2", "Went left.")
        tree.user("u3", "Right", on="a1").says("a3", "Went right.").calls("a4", "t1").user("u4", "And on?")

        team = Claude().user("u1", "Delegate")
        team.calls("a1", "t1", "Task", {"prompt": "Look into it"})
        team.user("s1", "Look into it", on=None, isSidechain=True).says("s2", "Looked.", isSidechain=True)
        team.result("r1", "t1", on="a1").says("a2", "It looked.")

        compact = Claude().user("u1", "Long story").says("a1", "Yes.")
        compact.row("system", "b1", on=None, subtype="compact_boundary", logicalParentUuid="a1")
        compact.user("k1", "The summary.", isCompactSummary=True).user("u2", "Go on").says("a2", "Going on.")
        return {
            name: made.bytes() for name, made in vars_of(plain=plain, tree=tree, team=team, compact=compact)
        }


class TestCodex(ImporterContract):
    def reader(self, state: bytes = b"") -> Reader:
        return CodexReader(state, native_id="file-name")

    def files(self) -> Mapping[str, bytes]:
        plain = Codex().user("<environment_context>\n</environment_context>").user("Fix the build")
        plain.event("user_message", message="Fix the build").item(
            "reasoning", summary=[], encrypted_content="x"
        )
        plain.calls("c1").result("c1").says("Fixed.").event("agent_message", message="Fixed.")
        plain.event("token_count", info=None).event("token_count", info=None)

        cut = (
            Codex()
            .user("Run it")
            .calls("c1")
            .event("turn_aborted", reason="interrupted")
            .user("Again")
            .calls("c2")
        )

        mirrored = Codex().event("user_message", message="Only here").says("I heard.")

        bare = b"\r\n".join(
            (
                b'{"id":"cf4def41-0000-4000-8000-000000000000","timestamp":"2025-09-10T18:58:38.331Z"}',
                b'{"record_type":"state"}',
                b'{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}',
                b'{"record_type":"state"}',
                b'{"record_type":"state"}',
                b'{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}',
                b'{"type":"function_call_output","call_id":"c1","output":"ok"}',
                b"",
            )
        )
        made = {name: m.bytes() for name, m in vars_of(plain=plain, cut=cut, mirrored=mirrored)}
        return {**made, "bare": bare}


def vars_of(**made: Claude | Codex) -> list[tuple[str, Claude | Codex]]:
    return list(made.items())
