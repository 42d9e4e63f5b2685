"""``verify`` and ``erase``: that nothing was changed, and the one way in which something may be."""

from __future__ import annotations

from onward.service import sessions, verifying
from onward.surfaces.cli import addresses, screen
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import opened


def verify(call: Call) -> int:
    """Re-derive every digest and say which is the first that fails."""
    with opened(call) as platform:
        one = addresses.session(platform, call["ses"]).id if call["ses"] else None
        found = verifying.verify(platform, one)
    if call.json:
        screen.document(found)
    elif found.ok:
        screen.say(f"{found.events} events in {found.sessions} sessions: every digest and chain value holds.")
    else:
        screen.say(f"{found.events} events in {found.sessions} sessions were checked.")
    failure = found.first_failure
    if failure is not None:
        where = [f"session {failure.session}"] if failure.session else ["the store"]
        where += [f"event {failure.seq}"] if failure.seq else []
        screen.complain("verification_failed", f"{', '.join(where)}: {failure.why}")
    return 0 if found.ok else 1


def erase(call: Call) -> int:
    """Erase what one event says."""
    if not call["yes"]:
        raise UsageError("erasing cannot be undone; add --yes to erase this event for good")
    with opened(call) as platform:
        event = addresses.event(platform, call["ses"])
        note = sessions.erase(platform, event.id, reason=call["reason"] or "")
        successors = [link.to_session for link in sessions.continuations(platform, event.session_id)]
    if call.json:
        screen.document(
            {"session": event.session_id, "seq": event.seq, "event": event.id, "erasure": note.id}
        )
    else:
        screen.say(f"Event {event.seq} of {event.session_id} is erased; event {note.seq} records it.")
        if successors:
            screen.say(
                f"It may have been quoted in what this went on in ({', '.join(successors)}): in the projection, which "
                "can be erased there, and in the handoff of the manifest, which cannot yet."
            )
    return 0
