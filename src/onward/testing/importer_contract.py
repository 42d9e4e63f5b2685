"""The suite that every reader of a native format passes. Inherit, say how to make a reader and give it native files.

    class TestMyFormat(ImporterContract):
        def reader(self, state: bytes = b""):
            return MyReader(state)

        def files(self):
            return {"small": Path("small.jsonl").read_bytes()}

It asks what the platform relies on: every record is accounted for once, nothing that a line holds makes a reader fail, the
same lines give the same drafts, and stopping anywhere and going on with the saved state changes nothing.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from onward.core.bodies import Checkpoint
from onward.core.codec import Unreadable, decode
from onward.core.events import ACTORS, KINDS
from onward.importers.contract import Draft, Line, Outcome, Reader
from onward.importers.lines import lines_of

_NASTY: Final = (
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b"{",
    b"\xff\xfe",
    b"\x00",
    b'{"type":1,"uuid":[],"message":"x","payload":7}',
    b'{"type":"user","uuid":"u","parentUuid":"u","message":{"role":"user","content":"\\ud800"}}',
    b'{"type":"assistant","uuid":"a","parentUuid":"gone","message":{"content":[1,"x",{"type":"tool_use"}]}}',
    b'{"type":"user","uuid":"r","message":{"content":[{"type":"tool_result","tool_use_id":"never"}]}}',
    b'{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text"}]}}',
    b'{"type":"response_item","payload":{"type":"function_call_output","call_id":"never","output":[{}]}}',
    b'{"type":"compacted","payload":{"replacement_history":[null,1,{}]}}',
    b'{"timestamp":"not a time","type":"event_msg","payload":{"type":"user_message","message":"\\u0000"}}',
    b'{"timestamp":1e400,"type":"' + b"x" * 500 + b'"}',
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    # What passes through unread: bytes that are no UTF-8, numbers out of range, a thousand levels.
    *(
        row.replace(b"VALUE", value)
        for value in (b'"\xe4\xff"', b"1e999", b"-" + b"9" * 5000, b"[" * 985 + b"]" * 985)
        for row in (
            b'{"type":"user","uuid":"p","message":{"role":"user","content":VALUE}}',
            b'{"type":"assistant","uuid":"q","message":{"content":[{"type":"odd","x":VALUE}]}}',
            b'{"type":"assistant","uuid":"s","message":{"content":[{"type":"tool_use","id":1,"input":VALUE}]}}',
            b'{"type":"user","uuid":"t","message":{"content":[{"type":"tool_result","content":[{"type":"image","source":VALUE}]}]}}',
            b'{"type":"system","subtype":"api_error","uuid":"v","error":VALUE}',
            b'{"type":"response_item","payload":{"type":"message","role":"user","content":[VALUE]}}',
            b'{"type":"response_item","payload":{"type":"function_call","call_id":2,"input":VALUE}}',
            b'{"type":"response_item","payload":{"type":"function_call_output","call_id":"w","output":[{"image_url":"x","y":VALUE}]}}',
            b'{"type":"compacted","payload":{"replacement_history":[VALUE]}}',
        )
    ),
    b'{"type":"response_item","payload":{"type":"function_call","call_id":"x","arguments":"'
    + b"[" * 3000
    + b"]" * 3000
    + b'"}}',
)
"""Lines that no reader may trip over; each is a record, or blank, or broken, and nothing else."""


class ImporterContract:
    """What ``onward.importers.contract`` promises. Override ``reader`` and ``files``."""

    def reader(self, state: bytes = b"") -> Reader:
        """Make a reader, going on from ``state`` if there is one."""
        raise NotImplementedError

    def files(self) -> Mapping[str, bytes]:
        """Return native files by name; each has at least one message, and no broken line."""
        raise NotImplementedError

    def test_every_record_has_exactly_one_verdict(self) -> None:
        for name, data in self.files().items():
            reader = self.reader()
            verdicts = [outcome.verdict for outcome in _read(reader, data)]
            counts = reader.counts
            assert counts.read == counts.mapped + counts.raw + counts.broken, name
            assert counts.read == len(verdicts) - verdicts.count("blank"), name
            for verdict in ("mapped", "raw", "broken"):
                assert getattr(counts, verdict) == verdicts.count(verdict), (name, verdict)
            assert counts.broken == 0, name
            assert counts.dialogue, name

    def test_the_first_pass_finds_what_the_second_counts(self) -> None:
        for name, data in self.files().items():
            reader = self.reader()
            seen = reader.survey(_lines(data))
            for line in _lines(data):
                reader.read(line)
            assert (seen.dialogue > 0) == (reader.counts.dialogue > 0), name
            assert seen.known, name

    def test_bodies_can_be_read_back_and_kinds_and_actors_are_known(self) -> None:
        for name, data in self.files().items():
            for draft in _drafts(self.reader(), data):
                assert draft.kind in KINDS, name
                assert draft.actor in ACTORS, name
                if isinstance(draft.body, Checkpoint):
                    assert draft.kind == "checkpoint"
                else:
                    assert not isinstance(decode(draft.kind, draft.body), Unreadable), (name, draft.body)

    def test_a_raw_record_is_the_bytes_of_its_line(self) -> None:
        for name, data in self.files().items():
            reader = self.reader()
            reader.survey(_lines(data))
            for line in _lines(data):
                outcome = reader.read(line)
                if outcome.verdict == "raw":
                    assert [draft.body for draft in outcome.drafts] == [line[2]], name

    def test_the_same_lines_give_the_same_drafts(self) -> None:
        for data in self.files().values():
            assert _drafts(self.reader(), data) == _drafts(self.reader(), data)

    def test_no_two_drafts_of_a_file_are_the_same_event(self) -> None:
        for name, data in self.files().items():
            names = [(draft.at, draft.ident) for draft in _drafts(self.reader(), data)]
            assert len(set(names)) == len(names), name

    def test_stopping_after_any_line_and_going_on_changes_nothing(self) -> None:
        for name, data in self.files().items():
            lines = list(_lines(data))
            whole = [draft for outcome in _read(self.reader(), data) for draft in outcome.drafts]
            for stop in range(1, len(lines)):
                reader = self.reader()
                reader.survey(lines)
                drafts = [draft for line in lines[:stop] for draft in reader.read(line).drafts]
                saved = reader.save()
                again = self.reader(saved)
                for strand in again.strands.values():
                    strand.session = "ses_known"  # the writer has stored it
                again.survey(lines)
                drafts += [draft for line in lines[stop:] for draft in again.read(line).drafts]
                assert drafts == whole, (name, stop)

    def test_every_call_ends_with_a_result_and_only_once(self) -> None:
        for name, data in self.files().items():
            reader = self.reader()
            drafts = _drafts(reader, data)
            calls = [_call(draft) for draft in drafts if draft.kind == "tool_call"]
            results = {_call(draft) for draft in drafts if draft.kind == "tool_result"}
            assert len(set(calls)) == len(calls), name
            assert set(calls) <= results, name
            assert reader.finish() == [], name

    def test_whatever_a_line_holds_is_a_record_or_blank_or_broken(self) -> None:
        for at in range(len(_NASTY)):
            self._accounts_for(b"\n".join([*_NASTY[at:], *_NASTY[:at]]) + b"\n")

    def test_nasty_lines_between_good_ones_leave_the_good_ones_alone(self) -> None:
        for name, data in self.files().items():
            good = self.reader()
            _drafts(good, data)
            lines = data.splitlines(keepends=True)
            for seed in range(5):
                chance = random.Random(seed)
                broken = list(lines)
                broken.insert(chance.randrange(1, len(lines) + 1), b"{not json\n")
                reader = self.reader()
                _drafts(reader, b"".join(broken))
                assert reader.counts.broken == 1, name
                assert reader.counts.read == good.counts.read + 1, name
                assert reader.counts.dialogue == good.counts.dialogue, name

    def test_cutting_a_file_anywhere_loses_at_most_the_line_that_was_cut(self) -> None:
        for name, data in self.files().items():
            chance = random.Random(name)
            for _ in range(20):
                cut = chance.randrange(1, len(data))
                reader = self._accounts_for(data[:cut])
                assert reader.counts.broken <= 1, (name, cut)

    def test_a_line_too_long_to_be_read_is_broken_and_says_so(self) -> None:
        reader = self.reader()
        line: Line = (1, 0, None, 10**9)
        reader.survey([line])
        outcome = reader.read(line)
        assert outcome.verdict == "broken"
        assert "1,000,000,000" in (outcome.why or "")

    def _accounts_for(self, data: bytes) -> Reader:
        reader = self.reader()
        for outcome in _read(reader, data):
            if outcome.verdict == "broken":
                assert outcome.why
            elif outcome.verdict == "raw":
                assert outcome.drafts
        reader.finish()
        counts = reader.counts
        assert counts.read == counts.mapped + counts.raw + counts.broken
        assert reader.save()
        return reader


def _lines(data: bytes) -> Iterable[Line]:
    return lines_of(io.BytesIO(data), offset=0, limit=len(data))


def _read(reader: Reader, data: bytes) -> list[Outcome]:
    reader.survey(_lines(data))
    return [reader.read(line) for line in _lines(data)]


def _drafts(reader: Reader, data: bytes) -> list[Draft]:
    return [draft for outcome in _read(reader, data) for draft in outcome.drafts] + reader.finish()


def _call(draft: Draft) -> str:
    assert isinstance(draft.body, bytes)
    body = decode(draft.kind, draft.body)
    call = getattr(body, "call", "")
    if not call:
        pytest.fail(f"{draft.kind} without a call: {body}")
    return str(call)
