"""Mentions: every id has one address, a message reads as it was meant, and what only looks like a mention is named."""

from __future__ import annotations

import base64
import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onward.core.mentions import (
    READ_SCHEMES,
    SCHEME,
    Mentioned,
    SessionReference,
    mention,
    one_line,
    read_mentions,
    session_of_uri,
    session_uri,
)
from onward.errors import ReferenceInvalid

ANY = st.characters(exclude_categories=())
# Of two lone surrogates that make a pair JSON knows only the character that they make.
IDS = st.text(ANY, max_size=30).map(lambda text: json.loads(json.dumps(text)))
PIECES = st.sampled_from(
    ["@[", "]", "](", ")", "\\", "\\]", "@", "[", "(", " ", "x", "😀", "é", "`", SCHEME, "dsh-session:"]
)
LABELS = (st.lists(PIECES, max_size=8).map("".join) | st.text(ANY, max_size=20)).map(one_line)
A = session_uri("ses_A")


def payload(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@given(IDS)
@example("")
@example("\0\n</quoted>\ud800\u2028é😀")
def test_any_text_can_be_an_id_and_comes_back_from_its_address(session: str) -> None:
    uri = session_uri(session)
    assert session_of_uri(uri) == session
    assert uri.isascii()
    assert session_of_uri("dsh-session:" + uri.removeprefix(SCHEME)) == session


@given(IDS, IDS)
def test_two_ids_never_share_an_address(one: str, other: str) -> None:
    assert (session_uri(one) == session_uri(other)) == (one == other)


def test_an_address_is_the_scheme_and_the_json_of_the_id_in_base64url_without_padding() -> None:
    assert session_uri("ses_A") == "onward-session:" + payload('"ses_A"')
    # As JavaScript writes it: short escapes, raw characters beyond ASCII, lone surrogates in lower case.
    assert session_uri("\n\x01é\ud83d") == "onward-session:" + payload('"\\n\\u0001é\\ud83d"')


@pytest.mark.parametrize("scheme", READ_SCHEMES)
@pytest.mark.parametrize(
    "written",
    [
        "",
        payload('"ses_A"') + "=",
        payload('"ses_A"') + "==",
        payload('"ses_A"')[:-1],
        payload(' "ses_A"'),
        payload('"\\u0073es_A"'),
        payload('"\\/"'),
        payload("7"),
        payload('["ses_A"]'),
        payload("null"),
        payload("ses_A"),
        "InNlc19BIh",  # another spelling of the last bits
        "In+/",
        "zz",
        "zzzz",
        "a",
        "é",
        base64.urlsafe_b64encode(b'"\xff"').decode().rstrip("="),
    ],
)
def test_an_address_that_encoding_would_not_give_is_refused(scheme: str, written: str) -> None:
    with pytest.raises(ReferenceInvalid):
        session_of_uri(scheme + written)


@pytest.mark.parametrize("uri", ["ses_A", "http://x", "ONWARD-SESSION:InNlc19BIg", " " + A])
def test_another_scheme_is_no_address(uri: str) -> None:
    with pytest.raises(ReferenceInvalid):
        session_of_uri(uri)


@given(session=IDS, label=LABELS, before=st.sampled_from(["", "see ", "`", "(", "@["]))
@example(session="ses_A", label="a@[b](c", before="@[")
@example(session="ses_A", label="\\]\\", before="")
def test_a_mention_comes_back_with_its_id_and_its_label(session: str, label: str, before: str) -> None:
    # A line break keeps what stands before from being the beginning of a longer label.
    read = read_mentions(f"{before}\n{mention(SessionReference(session=session, label=label))}, please")
    shown = label or one_line(session)
    assert read.references == (SessionReference(session=session, label=shown),)
    assert read.text == f"{before}\n@{shown}, please"


def test_mentions_are_read_in_the_order_of_the_text_repeated_ones_too() -> None:
    b = session_uri("ses_B")
    read = read_mentions(f"Compare @[the second]({b}) with {A} and @[again]({b}).")
    assert read.text == "Compare @the second with @ses_A and @again."
    assert [(r.session, r.label) for r in read.references] == [
        ("ses_B", "the second"),
        ("ses_A", "ses_A"),
        ("ses_B", "again"),
    ]


@pytest.mark.parametrize(
    ("written", "reads"),
    [
        (f"`{A}`", "`@ses_A`"),
        (f"({A}).", "(@ses_A)."),
        (f"{A}, {A}; “{A}”!", "@ses_A, @ses_A; “@ses_A”!"),
        (f"[a link]({A})", "[a link](@ses_A)"),
        (f"@[]({A})", "@ses_A"),
        (f"@[x @[y]({A})", "@x @[y"),
        (f"@[unclosed\n@[y]({A})", "@[unclosed\n@y"),
        (f"@[no] @[y]({A})", "@[no] @y"),
        (f"@[no](http://x) @[y]({A})", "@[no](http://x) @y"),
        (f"C:\\]@[y]({A})", "C:\\]@y"),
        (f"@[two\\\\]({A})", "@two\\"),
        (f"@[a \\b]({A})", "@a \\b"),
    ],
)
def test_what_stands_around_a_mention_stays_as_it_is(written: str, reads: str) -> None:
    assert read_mentions(written).text == reads


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no mention at all",
        "the onward-session: scheme",
        "`onward-session:`, `dsh-session:`",
        "onward-session:… onward-session:<id> onward-session:-- onward-session:_ onward-session:.",
        f"my{A} and a-{A} and x+{A}",
        "Onward-Session:zz",
        "@[label](https://example.com)",
        "@[label] (x)",
    ],
)
def test_talking_about_addresses_is_no_mention(text: str) -> None:
    assert read_mentions(text) == Mentioned(text=text)


@pytest.mark.parametrize(
    ("text", "position", "shown"),
    [
        ("@[x](onward-session:)", 1, "@[x](onward-session:)"),
        ("see @[x](onward-session:zz) there", 5, "@[x](onward-session:zz)"),
        (f"see @[x]({A} there", 5, f"@[x]({A}"),
        (f"see @[x]({A}", 5, f"@[x]({A}"),
        ("see @[x](dsh-session:In+/)", 5, "@[x](dsh-session:In+/)"),
        ("see onward-session:zz.", 5, "onward-session:zz"),
        (f"{A}=", 1, f"{A}="),
        (f"@[ok]({A}) onward-session:a", len(f"@[ok]({A}) ") + 1, "onward-session:a"),
    ],
)
def test_a_malformed_mention_is_shown_with_its_place(text: str, position: int, shown: str) -> None:
    with pytest.raises(ReferenceInvalid) as refused:
        read_mentions(text)
    assert refused.value.code == "reference_invalid"
    assert (refused.value.details["position"], refused.value.details["text"]) == (position, shown)
    assert str(position) in refused.value.message


def test_an_error_repeats_only_so_much_of_a_malformed_mention() -> None:
    with pytest.raises(ReferenceInvalid) as refused:
        read_mentions("onward-session:" + "z" * 100_000)
    assert len(refused.value.message) < 400


@given(
    st.lists(PIECES | st.just(A) | st.just(f"@[x]({A})") | st.text(ANY, max_size=3), max_size=12).map("".join)
)
def test_any_text_reads_as_something_or_is_refused_for_one_mention(text: str) -> None:
    places = []
    try:
        read = read_mentions(text)
    except ReferenceInvalid as refused:
        places.append(refused.details["position"])
    else:
        assert all(f"@{one.label}" in read.text for one in read.references)
    assert all(1 <= place <= len(text) for place in places)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["@[", "@[a](b", "\\", "@[\\", f"@[{A} ", "](onward-session:", "@[a\\]"])
def test_a_long_hostile_text_is_read_in_proportion_to_its_length(part: str) -> None:
    text = part * (400_000 // len(part)) + " onward-session: "
    with contextlib.suppress(ReferenceInvalid):
        read_mentions(text)
