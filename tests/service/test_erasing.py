"""What is erased is gone everywhere that Onward kept it, and nothing else is (L5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.conversations import COMMAND, World

from onward.core.bodies import Message, Part, ToolResult
from onward.core.codec import Erased, body_of, decode
from onward.core.digests import content_digest
from onward.core.events import Event
from onward.service import recompiling
from onward.store.contract import Batch


def attached(world: World, session_id: str, content: bytes, kind: str = "message") -> tuple[str, Event]:
    """Append an event with an attachment and return its digest."""
    digest = content_digest(content)
    world.store.commit(Batch(blobs=((digest, content),)))
    parts = (Part(blob=digest, media_type="image/png"),)
    body = (
        Message(role="user", text="See.", parts=parts)
        if kind == "message"
        else ToolResult(call="c1", parts=parts)
    )
    actor = "user" if kind == "message" else "tool"
    return digest, world.tell(session_id, world.platform.event(kind, body, actor))[0]


@pytest.mark.requirement("L5")
@pytest.mark.parametrize("which", ["call", "result"])
def test_the_id_of_an_erased_tool_call_stays_so_that_the_pair_does(world: World, which: str) -> None:
    session = world.log.start("Tools")
    call = world.call(session.id, "c1")
    result = world.answer(session.id, "c1", "the password")
    world.log.erase((call if which == "call" else result).id, reason="a leaked key")
    gone = body_of(world.events(session.id)[1 if which == "call" else 2])
    assert gone == Erased(reason="a leaked key", call="c1")
    assert world.store.open_calls(session.id) == []
    assert world.log.verify().ok


@pytest.mark.requirement("L5")
@pytest.mark.parametrize("kind", ["message", "tool_result"])
def test_an_attachment_goes_with_the_last_event_that_names_it(world: World, kind: str) -> None:
    session = world.log.start("Pictures")
    digest, first = attached(world, session.id, b"picture", kind)
    _, second = attached(world, session.id, b"picture", kind)
    other, _ = attached(world, session.id, b"another", kind)
    world.log.erase(first.id)
    assert world.store.blob(digest) == b"picture"
    world.log.erase(second.id)
    assert world.store.blob(digest) is None
    assert world.store.blob(other) == b"another"


@pytest.mark.requirement("L5", "C4")
def test_an_attachment_that_went_along_to_a_successor_stays_until_its_copy_is_erased_too(
    world: World,
) -> None:
    session_id = world.conversation()
    digest, said = attached(world, session_id, b"picture")
    made = world.log.continue_session(session_id, COMMAND)
    world.log.erase(said.id)
    assert world.store.blob(digest) == b"picture"
    copy = next(e for e in world.events(made.successor) if e.kind == "message")
    assert isinstance(decode("message", copy.body), Message)
    world.log.erase(copy.id)
    assert world.store.blob(digest) is None


@pytest.mark.requirement("L5", "P5")
def test_erasing_a_projection_takes_what_was_read_for_it_and_the_manifest_says_so(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "plan.md").write_text("the password", "utf-8")
    session = world.log.start("Work", workspace=str(tmp_path))
    world.say(session.id, "Go on.")
    made = world.log.continue_session(session.id, {**COMMAND, "sources": [{"path": "plan.md"}]})
    manifest = world.log.manifest(made.manifest)
    (pinned,) = manifest.contents
    assert world.store.blob(pinned.digest) == b"the password"
    projection = next(e for e in world.events(made.successor) if e.kind == "context")
    world.log.erase(projection.id)
    assert world.store.blob(pinned.digest) is None
    view = recompiling.manifest_view(world.platform, manifest)
    assert [(s.source, s.now) for s in view.lost] == [(0, "erased")]
    compared = recompiling.compare(world.platform, manifest)
    assert not compared.same
    assert ("cited", 0) in [(d.section, d.source) for d in compared.differences]
    assert world.log.verify().ok
