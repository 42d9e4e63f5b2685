"""Every recorded stream goes through its engine's translator to the same signals, however often.

The translators are pure, so a second reading of the same bytes must say the same, to the byte. And nothing that an engine
ever said may come to nothing: a recording that gives no signal has been read by the wrong translator, or by a deaf one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import needs

from onward.core.codec import loads
from onward.engines.acp_stream import AcpStream
from onward.engines.calling import Numbers
from onward.engines.claude_stream import ClaudeTurn
from onward.engines.codex_exec import ExecStream
from onward.engines.codex_stream import AppServerStream
from onward.engines.contract import Finished, Signal
from onward.engines.pi_stream import PiStream

RUN = "run_replayed"
Read = Callable[[bytes], Iterable[Signal]]


def claude(recorded: bytes) -> Iterator[Signal]:
    """One translator a turn, as the engine has it; what the program adds to its own file comes after the end."""
    numbers = Numbers(RUN)
    lines = recorded.splitlines()
    conversation = next(filter(None, (_of(line).get("session_id") for line in lines)), "")
    turn, ended = ClaudeTurn(conversation, numbers), False
    for line in lines:
        if ended and _of(line).get("type") == "system":
            turn, ended = ClaudeTurn(conversation, numbers), False
        heard = turn.hear(line)
        yield from heard.signals
        if heard.end is not None:
            ended = True
            yield heard.end


def codex_exec(recorded: bytes) -> Iterator[Signal]:
    stream = ExecStream(next_call=Numbers(RUN).next)
    for line in recorded.splitlines():
        yield from stream.line(line)
    if stream.finished is not None:
        yield stream.finished
    elif stream.trouble:
        yield Finished(status="failed", reason=stream.trouble)


def codex_app_server(recorded: bytes) -> Iterator[Signal]:
    """The server's side of an exchange; a turn begins where our side asks for one."""
    numbers, stream = Numbers(RUN), None
    for ours, line in _exchange(recorded):
        record = _of(line)
        if ours and record.get("method") == "turn/start":
            stream = AppServerStream(thread=record["params"]["threadId"], next_call=numbers.next)
        elif not ours and stream is not None and "method" in record:
            yield from stream.line(line)
            if stream.finished is not None:
                yield stream.finished
                stream = None


def acp(recorded: bytes) -> Iterator[Signal]:
    """The agent's side of an exchange; a turn is between a prompt and the answer to it."""
    numbers, stream, prompt = Numbers(RUN), None, None
    for ours, line in _exchange(recorded):
        record = _of(line)
        if ours and record.get("method") == "session/prompt":
            stream, prompt = AcpStream(next_call=numbers.next), record["id"]
        elif ours or stream is None:
            continue
        elif record.get("method") == "session/update":
            yield from stream.update(record.get("params"), line)
        elif record.get("method") == "session/request_permission":
            yield from stream.asked(record.get("params"))[0]
        elif record.get("id") == prompt and "method" not in record:
            yield from stream.answered(record.get("result")) if "result" in record else stream.broken()
            stream = None


def pi(recorded: bytes) -> Iterator[Signal]:
    """One translator a turn, which begins where pi says so: not every recording has our side too."""
    numbers = Numbers(RUN)
    stream = PiStream(next_call=numbers.next)
    for ours, line in _exchange(recorded):
        if ours:
            continue
        if stream.finished is not None and _of(line).get("type") == "agent_start":
            stream = PiStream(next_call=numbers.next)
        ended = stream.finished is not None
        yield from stream.take(line)
        if stream.finished is not None and not ended:
            yield stream.finished


TRANSLATORS: dict[str, Read] = {
    "claude-code/stream/*.jsonl": claude,
    "codex/stream/*.jsonl": codex_exec,
    "codex/app-server-transcript.jsonl": codex_app_server,
    "acp/*.jsonl": acp,
    "pi/stream/*.jsonl": pi,
}
"""Where recordings lie in the folder of samples, and what reads them."""
BY_PROTOCOL = frozenset({"opencode", "gemini", "qwen"})
"""Engines whose one-shot output nothing here reads: they are driven by the Agent Client Protocol (``acp/``)."""


def _of(line: bytes) -> dict[str, Any]:
    try:
        record = loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _exchange(recorded: bytes) -> Iterator[tuple[bool, bytes]]:
    """Each line of an exchange: whether we sent it, and the message. Without marks all of it came to us."""
    for line in recorded.splitlines():
        yield line.startswith(b">"), line.lstrip(b"<> ")


def recordings() -> list[Any]:
    folder = needs.found("samples")
    if folder is None:
        return [pytest.param(None, None, id="no samples")]
    return [
        pytest.param(file, read, id=file.relative_to(folder).as_posix())
        for pattern, read in TRANSLATORS.items()
        for file in sorted(folder.glob(pattern))
        if file.stat().st_size
    ]


EACH = pytest.mark.parametrize(("file", "read"), recordings())


def written(signals: Iterable[Signal]) -> list[bytes]:
    return [type(signal).__name__.encode() + msgspec.json.encode(signal) for signal in signals]


@EACH
def test_a_recorded_stream_gives_the_same_signals_twice(file: Path | None, read: Read) -> None:
    needs.need("samples")
    assert file is not None
    recorded = file.read_bytes()
    first, second = list(read(recorded)), list(read(recorded))
    assert first == second
    assert written(first) == written(second)
    assert first, "something was recorded, and nothing was heard"


@pytest.mark.parametrize("pattern", TRANSLATORS)
def test_there_are_recordings_for_every_translator(pattern: str) -> None:
    assert any(file.stat().st_size for file in needs.need("samples").glob(pattern))


def test_no_folder_of_streams_is_left_unread() -> None:
    folders = {folder.parent.name for folder in needs.need("samples").glob("*/stream")}
    read = {pattern.partition("/")[0] for pattern in TRANSLATORS if "/stream/" in pattern}
    assert folders == read | BY_PROTOCOL


@EACH
def test_a_stream_that_was_cut_off_gives_the_beginning_of_what_it_would_have_given(
    file: Path | None, read: Read
) -> None:
    needs.need("samples")
    assert file is not None
    recorded = file.read_bytes()
    lines = recorded.splitlines(keepends=True)
    whole = [signal for signal in written(read(recorded)) if not signal.startswith(b"Finished")]
    cut = [
        signal
        for signal in written(read(b"".join(lines[: len(lines) // 2])))
        if not signal.startswith(b"Finished")
    ]
    assert cut == whole[: len(cut)]


@EACH
def test_only_what_a_program_says_it_completed_is_completed(file: Path | None, read: Read) -> None:
    """Recordings say in their names what was done to the program: killed, stopped, refused by its provider, cut off."""
    needs.need("samples")
    assert file is not None
    ends = {signal.status for signal in read(file.read_bytes()) if isinstance(signal, Finished)}
    stopped = re.search(r"kill|term|-err|drop|int-stream|missing\.|othercwd", file.name)
    assert ("completed" in ends) == (not stopped and file.name != "cc-text.jsonl")
