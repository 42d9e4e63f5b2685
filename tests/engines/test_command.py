"""The command engine: any program answers, and nothing of it is left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onward
from onward.core.bodies import Command, Message, Outcome, Terminal
from onward.core.codec import body_of
from onward.engines.command import CommandEngine, Printed
from onward.engines.contract import (
    Finished,
    NativeSession,
    Noted,
    Said,
    Signal,
    Started,
    TextDelta,
    Turn,
)
from onward.errors import InvalidInput
from onward.testing.engine_contract import Case, EngineContract, run_turn

ECHO = "import os, sys; os.write(1, ('You said: ' + sys.stdin.read()).encode())"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def turn(text: str = "Hello.", **more: object) -> Turn:
    return Turn(session_id="ses_a", run_id="run_a", input=text, **more)  # type: ignore[arg-type]


def run(code: str, given: Turn | None = None, **options: object) -> list[Signal]:
    return run_turn(CommandEngine(command=python(code), **options), given or turn())  # type: ignore[arg-type]


def end(signals: list[Signal]) -> Finished:
    assert isinstance(signals[-1], Finished)
    return signals[-1]


def said(signals: list[Signal]) -> list[str]:
    return [signal.text for signal in signals if isinstance(signal, Said)]


def streamed(signals: list[Signal]) -> str:
    return "".join(signal.text for signal in signals if isinstance(signal, TextDelta))


def noted(signals: list[Signal], kind: str) -> list[object]:
    return [signal.body for signal in signals if isinstance(signal, Noted) and signal.kind == kind]


def gone(pid: int) -> bool:
    """Whether a process has ended, given a moment; a zombie that nobody has fetched has ended too."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False


class TestContract(EngineContract):
    def talking(self) -> Case:
        return Case(engine=CommandEngine(command=python(ECHO)), input="Hello.")

    def lasting(self) -> Case:
        code = "import time; print('well', flush=True); time.sleep(60)"
        return Case(engine=CommandEngine(command=python(code)), input="Wait.")

    def failing(self) -> Case:
        return Case(engine=CommandEngine(command=python("raise SystemExit(3)")), input="Fail.")


def test_it_is_told_everything_on_every_turn_and_by_its_input_alone() -> None:
    given = turn("And now?", brief="<brief>before</brief>", system="Be brief.")
    for _ in range(2):
        signals = run("import sys; print(sys.argv[1:], repr(sys.stdin.read()))", given)
        assert said(signals) == [r"[] 'Be brief.\n\n<brief>before</brief>\n\nAnd now?\n'"]
        assert signals[0] == Started(briefed=True)


def test_what_ran_and_how_it_ended_stand_beside_the_answer() -> None:
    signals = run("import sys; print('yes'); print('a warning', file=sys.stderr)")
    kinds = [type(signal) for signal in signals if not isinstance(signal, TextDelta)]
    assert kinds == [Started, Noted, Said, Noted, Noted, Finished]
    (command,), (terminal,), (outcome,) = (
        noted(signals, kind) for kind in ("command", "terminal", "outcome")
    )
    assert isinstance(command, Command)
    assert command.text.startswith(sys.executable)
    assert terminal == Terminal(text="a warning\n")
    assert outcome == Outcome(text="It ended with exit code 0.", status="completed")


def test_an_exit_code_that_is_no_success_fails_the_turn_with_the_last_words() -> None:
    signals = run("import sys; print('so far'); print('no disk', file=sys.stderr); sys.exit(3)")
    assert said(signals) == ["so far"]
    assert end(signals).status == "failed"
    assert "exit code 3; success is 0" in end(signals).reason
    assert "no disk" in end(signals).reason


def test_codes_that_count_as_success_can_be_named() -> None:
    assert end(run("raise SystemExit(3)", success_codes=(0, 3))).status == "completed"
    assert "It printed nothing." in end(run("raise SystemExit(3)", success_codes=(0, 3))).reason


def test_a_program_that_a_signal_ended_has_crashed() -> None:
    signals = run("import os, signal; print('half', flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    assert end(signals).code == "crashed"
    assert "SIGKILL" in end(signals).reason
    assert streamed(signals) == "half\n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_ceiling_ends_the_whole_tree_and_says_so() -> None:
    # The grandchild is in a session of its own, ignores SIGTERM and holds the output open.
    inner = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(90)"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(90)\n"
    )
    began = time.monotonic()
    signals = run(code, timeout=1.5)
    assert time.monotonic() - began < 10
    assert end(signals).status == "failed"
    assert end(signals).code == "timeout"
    assert "1.5 s" in end(signals).reason
    assert not said(signals), "a text that was cut off is no finished message"
    assert gone(int(streamed(signals)))
    (outcome,) = noted(signals, "outcome")
    assert isinstance(outcome, Outcome)
    assert outcome.status == "timeout"
    assert "had to be killed" in outcome.text


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_what_a_program_leaves_running_ends_with_its_turn() -> None:
    signals = run(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(90)'], start_new_session=True)\n"
        "print(child.pid)"
    )
    assert end(signals).status == "completed"
    assert gone(int(said(signals)[0]))


def test_a_program_that_ignores_being_asked_to_end_is_ended() -> None:
    began = time.monotonic()
    signals = run(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(90)",
        timeout=0.7,
    )
    assert time.monotonic() - began < 10
    assert end(signals).code == "timeout"


def test_output_beyond_the_limit_is_counted_and_told() -> None:
    signals = run("import sys; sys.stdout.write('x' * 10_000_000)", max_output=100_000)
    assert said(signals) == ["x" * 100_000]
    assert end(signals).status == "completed"
    assert (
        "printed 10,000,000 bytes; the first 100,000 are kept (max_output), 9,900,000 are not"
        in end(signals).reason
    )
    (outcome,) = noted(signals, "outcome")
    assert "10,000,000" in outcome.text  # type: ignore[attr-defined]


def test_bytes_that_are_no_text_show_as_replacements() -> None:
    signals = run(r"import sys; sys.stdout.buffer.write(b'a\xff\x00\xe2\x82\xac')")
    assert said(signals) == ["a\ufffd\x00€"]


def test_a_program_may_close_its_output_and_go_on() -> None:
    signals = run(
        "import os, sys, time; print('first', flush=True); os.close(1); time.sleep(0.3); os._exit(4)"
    )
    assert said(signals) == ["first"]
    assert "exit code 4" in end(signals).reason


@pytest.mark.parametrize("code", ["print('done')", "import os; os.close(0); print('done')"])
def test_a_prompt_that_is_never_read_does_not_matter(code: str) -> None:
    signals = run(code, turn("x" * 5_000_000))
    assert said(signals) == ["done"]
    assert end(signals).status == "completed"


def test_a_prompt_of_any_length_arrives_whole() -> None:
    signals = run("import sys; print(len(sys.stdin.read()))", turn("x" * 5_000_000))
    assert said(signals) == ["5000001"]


def test_places_in_the_command_are_filled_in() -> None:
    engine = CommandEngine(
        command=[
            *python("import sys; print(sys.argv[1:])"),
            "{session}",
            "--in={workdir}",
            "{model}",
            "{other}",
        ]
    )
    signals = run_turn(engine, turn(workdir="/", model="m-1"))
    assert said(signals) == ["['ses_a', '--in=/', 'm-1', '{other}']"]
    assert signals[0] == Started(model="m-1")


def test_it_works_in_the_folder_of_the_turn(tmp_path: Path) -> None:
    assert said(run("import os; print(os.getcwd())", turn(workdir=str(tmp_path)))) == [str(tmp_path)]


def test_the_environment_can_be_added_to_and_taken_from() -> None:
    signals = run("import os; print(os.environ['ONE'], 'HOME' in os.environ)", env={"ONE": "1", "HOME": None})
    assert said(signals) == ["1 False"]


def test_a_text_is_split_into_words_without_a_shell() -> None:
    engine = CommandEngine(command=f"{sys.executable} -c 'import sys; print(sys.argv[1])' '$HOME; x'")
    assert said(run_turn(engine, turn())) == ["$HOME; x"]


@pytest.mark.parametrize(
    "command",
    [
        "claude --resume 1234 -p",
        "claude --resume=1234",
        "claude --continue",
        "codex exec resume 1234",
        ["sh", "-c", "exec claude -p --continue"],
    ],
)
@pytest.mark.requirement("O5")
def test_a_command_that_resumes_a_conversation_of_its_own_is_refused(command: str | list[str]) -> None:
    with pytest.raises(InvalidInput, match=r"would resume a conversation .* leave it out"):
        CommandEngine(command=command)


@pytest.mark.requirement("O5")
def test_it_never_says_that_it_resumed() -> None:
    native = NativeSession(id="something")
    started = run(ECHO, turn(native=native))[0]
    assert isinstance(started, Started)
    assert not started.resumed
    assert "keeps no conversation" in started.why
    signals = run(ECHO, turn(native=native, native_only=True))
    assert [type(signal) for signal in signals] == [Finished]
    assert end(signals).code == "resume_refused"


def test_the_prompt_has_no_place_in_the_arguments() -> None:
    with pytest.raises(InvalidInput, match="standard input"):
        CommandEngine(command="ask {prompt}")


def test_a_denied_program_is_refused_even_if_it_is_allowed_too(tmp_path: Path) -> None:
    link = tmp_path / "innocent"
    link.symlink_to(sys.executable)
    real = os.path.basename(os.path.realpath(sys.executable))
    for word in (sys.executable, str(link)):
        with pytest.raises(InvalidInput, match="denied"):
            CommandEngine(command=[word], deny=[real], allow=[real, "innocent"])


def test_only_allowed_programs_are_started_where_there_is_such_a_list() -> None:
    with pytest.raises(InvalidInput, match="allowed programs: cat, sort"):
        CommandEngine(command="ls -l", allow=["sort", "cat"])
    CommandEngine(command="/usr/bin/sort", allow=["sort"])


@pytest.mark.parametrize(
    "more", [{"permission_mode": "plan"}, {"allowed_tools": ("read",)}, {"denied_tools": ("bash",)}]
)
def test_limits_that_it_cannot_keep_are_refused(more: dict[str, object]) -> None:
    signals = run(ECHO, turn(**more))
    assert [type(signal) for signal in signals] == [Finished]
    assert end(signals).code == "invalid_request"


def test_a_program_that_is_not_here_is_named() -> None:
    engine = CommandEngine(command="no-such-program --now")
    assert "no-such-program" in (engine.unavailable() or "")
    assert end(run_turn(engine, turn())).code == "not_installed"
    assert "command" in (CommandEngine().unavailable() or "")


def test_a_folder_that_is_not_here_fails_the_turn_by_name() -> None:
    signals = run(ECHO, turn(workdir="/no/such/folder"))
    assert "/no/such/folder" in end(signals).reason


@given(text=st.text(), cuts=st.lists(st.integers(0, 60), max_size=8), limit=st.integers(0, 60))
def test_however_output_is_cut_into_pieces_its_text_is_the_same(
    text: str, cuts: list[int], limit: int
) -> None:
    whole = text.encode("utf-8", "replace")
    printed = Printed(limit)
    at = 0
    for cut in [*sorted(cuts), len(whole)]:
        printed.take(whole[at:cut])
        at = max(at, cut)
    printed.end()
    assert printed.text == whole[:limit].decode("utf-8", "ignore" if len(whole) > limit else "replace")
    assert bool(printed.left_out()) == (len(whole) > limit)


def test_what_was_printed_before_the_ceiling_is_in_the_log_as_interrupted() -> None:
    engine = CommandEngine(
        command=python("import time; print('so far', flush=True); time.sleep(60)"), timeout=1.0
    )
    with onward.open("memory://") as log:
        session = log.start("A question")
        result = log.run(session.id, "Hello.", engine=engine)
        assert result.state == "failed"
        assert "1 s" in result.reason
        answers = [
            body_of(event)
            for event in log.read(session.id).events
            if event.kind == "message" and event.actor == "agent"
        ]
    (message,) = answers
    assert isinstance(message, Message)
    assert (message.text.strip(), message.interrupted) == ("so far", True)


@pytest.mark.requirement("O2")
def test_a_second_turn_is_told_the_first_in_front_of_its_input() -> None:
    engine = CommandEngine(command=python("import os, sys; os.write(1, sys.stdin.read().encode())"))
    with onward.open("memory://") as log:
        session = log.start("A question")
        log.run(session.id, "The word is heron.", engine=engine)
        result = log.run(session.id, "Which word?", engine=engine)
    assert result.opening == "seeded"
    assert result.reply.index("heron") < result.reply.rindex("Which word?")
    assert result.reply.endswith("Which word?")
