"""What reaches a screen: nothing that a log holds may act on it, and JSON stays JSON."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Message
from onward.core.codec import encode, shown
from onward.core.columns import columns
from onward.core.events import Event, Source
from onward.core.records import Run
from onward.engines.contract import Said
from onward.surfaces.cli import screen, shapes
from onward.surfaces.cli.running import Patience, Watcher

anything = st.text(st.characters(categories=("L", "N", "P", "S", "Z", "C")))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)


@given(text=anything)
def test_printed_text_holds_no_control_character_but_line_ends_and_tabs(text: str) -> None:
    shown = screen.harmless(text)
    assert {c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")} <= {"\n", "\t"}
    reordering = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not {unicodedata.bidirectional(c) for c in shown} & reordering


@given(text=anything)
def test_one_line_is_one_line_within_its_limit(text: str) -> None:
    assert len(screen.one_line(text).splitlines()) <= 1
    assert columns(screen.one_line(text, 10)) <= 10


@given(value=values)
def test_any_value_prints_as_one_document_that_reads_back(value: Any) -> None:
    assert json.loads(screen.as_json(value)) == value


@given(value=values)
def test_a_struct_and_a_ready_piece_survive_lone_surrogates_beside_them(value: Any) -> None:
    source = Source(producer="import", native_id="\ud800")
    piece = msgspec.Raw(b'{"a": 1}')
    read = json.loads(screen.as_json({"source": source, "piece": piece, "value": [value]}))
    assert read == {
        "source": {"producer": "import", "native_id": "\ud800"},
        "piece": {"a": 1},
        "value": [value],
    }


def test_a_document_on_the_screen_has_no_character_that_a_terminal_obeys(capsysbinary: Any) -> None:
    screen.document({"text": "\x1b[31m\x9b31m\u202e\x7f"})
    out = capsysbinary.readouterr().out
    assert json.loads(out) == {"text": "\x1b[31m\x9b31m\u202e\x7f"}
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in out.decode().rstrip("\n"))


def _event(kind: str, body: bytes, salt: bytes = b"s") -> Event:
    return Event(
        id="evt_1", session_id="ses_1", seq=1, at=0, kind=kind, actor="user", run_id=None,
        source=Source(producer="person"), body=body, salt=salt, digest=bytes(32), chain=bytes(32),
    )  # fmt: skip


@pytest.mark.requirement("L4")
def test_a_body_that_cannot_be_read_is_shown_as_such_with_its_text() -> None:
    assert shown(_event("message", b"no json")) == {
        "unreadable": shown(_event("message", b"no json"))["unreadable"],
        "raw": "no json",
    }
    unknown = shown(_event("hologram", b'{"a":1}'))
    assert unknown["raw"] == '{"a":1}'
    assert "hologram" in unknown["unreadable"]


def test_an_erased_body_is_shown_as_such() -> None:
    assert shown(_event("message", b'{"reason":"a key"}', salt=b"")) == {
        "erased": True,
        "reason": "a key",
    }


@given(text=anything)
def test_a_body_is_shown_as_the_json_that_was_logged(text: str) -> None:
    logged = encode(Message(role="user", text=text))
    found = json.loads(screen.as_json(shapes.event(_event("message", logged))))
    assert found["body"] == json.loads(logged)


@pytest.mark.parametrize("number", [b"1e999", b"NaN", b"123456789012345678901234567890"])
def test_a_number_that_only_some_json_has_still_gives_a_document(number: bytes) -> None:
    found = screen.as_json(shapes.event(_event("raw", b'{"n":' + number + b"}")))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(found, parse_constant=refuse)


def test_wrapped_text_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    screen.flow("a sentence that is a good deal longer than this terminal is wide", "  ")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 24


@pytest.mark.parametrize(("said", "told"), [(False, True), (True, False)])
def test_an_engine_that_says_nothing_is_told_about_until_it_speaks(
    capsys: pytest.CaptureFixture[str], said: bool, told: bool
) -> None:
    watcher = Watcher(quiet=False)
    if said:
        watcher(Run(id="run_1", session_id="ses_1", created_at=0), Said(text="Here."))
    Patience(0.0, watcher).tell()
    assert ("said nothing yet" in capsys.readouterr().err) is told


@pytest.mark.parametrize("quiet", [False, True])
def test_nobody_is_told_about_silence_who_wants_quiet_or_who_has_the_answer(quiet: bool) -> None:
    watcher = Watcher(quiet=quiet)
    patience = Patience(3600.0, watcher)
    with patience:
        assert patience.waits is not quiet
    assert not patience.waits
