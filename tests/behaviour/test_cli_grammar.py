"""How arguments are read: any order, any value, and never anything but a value or a usage error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.surfaces.cli import grammar
from onward.surfaces.cli.catalogue import COMMANDS
from onward.surfaces.cli.grammar import Argument, Command, Option, UsageError

COMMAND = Command(
    "try",
    "nowhere:nothing",
    "Try it.",
    arguments=(Argument("SES", "one"), Argument("TEXT", "two", required=False)),
    options=(
        Option("--title", "a title", "TITLE"),
        Option("--source", "a source", "SPEC", many=True),
        Option("--limit", "a number", "N", kind="number"),
        Option("--plan", "a choice", "WAY", choices=("carry", "omit")),
        Option("--yes", "a flag"),
    ),
)
utf8 = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))


@given(
    title=utf8,
    sources=st.lists(utf8, max_size=3),
    limit=st.integers(0, 10**15 - 1),
    yes=st.booleans(),
    data=st.data(),
)
def test_what_is_written_as_options_in_any_order_and_spelling_comes_back(
    title: str, sources: list[str], limit: int, yes: bool, data: st.DataObject
) -> None:
    pairs = [("--title", title), ("--limit", str(limit)), *(("--source", s) for s in sources)]
    groups = [[f"{n}={v}"] if data.draw(st.booleans()) else [n, v] for n, v in pairs]
    groups += [["--yes"]] if yes else []
    groups += [["ses_1"]]
    order = data.draw(st.permutations(range(len(groups))))
    tokens = [token for number in order for token in groups[number]]
    values = grammar.read(COMMAND, tokens)
    assert (values["ses"], values["title"], values["limit"], values["yes"]) == ("ses_1", title, limit, yes)
    assert sorted(values["source"]) == sorted(sources)


@given(text=utf8)
def test_after_two_dashes_everything_is_an_argument(text: str) -> None:
    assert grammar.read(COMMAND, ["ses_1", "--", text])["text"] == text


def test_a_dash_and_a_sentence_are_a_text() -> None:
    assert grammar.read(COMMAND, ["ses_1", "- the first point"])["text"] == "- the first point"
    assert grammar.read(COMMAND, ["ses_1", "-"])["text"] == "-"


options = st.sampled_from(["--title", "--yes", "--limit=3", "--", "-q", "--store"])


@given(tokens=st.lists(utf8 | options, max_size=6))
def test_any_arguments_are_read_or_refused_in_words(tokens: list[str]) -> None:
    for command in (COMMAND, *COMMANDS.values()):
        with contextlib.suppress(UsageError):
            values = grammar.read(command, tokens)
            assert values["help"] or all(values[a.key] for a in command.arguments if a.required)


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([], "SES is missing"),
        (["a", "b", "c"], "'c' is one argument too many"),
        (["a", "--titel", "x"], "did you mean --title?"),
        (["a", "--title"], "--title needs its TITLE"),
        (["a", "--title", "x", "--title", "y"], "--title is given twice"),
        (["a", "--yes=1"], "--yes takes no value"),
        (["a", "--limit", "-1"], "found '-1'"),
        (["a", "--limit", "9" * 16], "at most 15 digits"),
        (["a", "--limit", "٣"], "whole number"),
        (["a", "--plan", "keep"], "one of carry, omit"),
        (["a\0b"], "NUL"),
        (["a", "--title", "\udcff"], "not UTF-8"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(tokens: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        grammar.read(COMMAND, tokens)
    assert told in str(error.value)


def test_global_options_stand_before_or_after_the_command() -> None:
    before, name, rest = grammar.split(["--store", "x.db", "--json", "show", "@last"])
    assert name == "show"
    one = grammar.read(COMMANDS["show"], rest, before)
    other = grammar.read(COMMANDS["show"], ["@last", "--json", "--store=x.db"])
    assert one == other


def test_an_empty_path_is_a_usage_error_and_not_this_folder() -> None:
    for name, command in COMMANDS.items():
        for argument in command.arguments:
            if argument.kind == "path":
                with pytest.raises(UsageError, match="is empty"):
                    grammar.read(command, [""])
        for option in command.options:
            if option.kind == "path":
                with pytest.raises(UsageError, match="is empty"):
                    grammar.read(
                        command, [*("x" for a in command.arguments if a.required), f"{option.name}="]
                    )
        assert name == command.name
