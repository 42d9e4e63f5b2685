"""What makes messages valid for any provider, checked without the code that makes them so.

It knows only the rules that chat interfaces state: an assistant message with calls is followed at once by one tool message a
call, in the same order; ids are unique and spelled in letters, digits, ``_`` and ``-``, at most 64; nothing is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from onward.core.transcript import TranscriptMessage

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def faults(messages: Sequence[TranscriptMessage]) -> list[str]:
    """Return what a provider would refuse, one line each; nothing when the messages are valid."""
    found: list[str] = []
    seen: set[str] = set()
    waiting: list[str] = []
    answering = False
    for n, message in enumerate(messages):
        is_call = message.role == "assistant" and message.tool_call_id is not None
        if message.role == "tool":
            answering = True
            if not waiting:
                found.append(f"{n}: an answer without a call before it")
            elif waiting.pop(0) != message.tool_call_id:
                found.append(f"{n}: answers do not follow the order of the calls")
            if not (message.tool_output or "").strip():
                found.append(f"{n}: an empty answer")
        elif is_call:
            if answering and waiting:
                found.append(f"{n}: a call before {waiting} were answered")
            answering = False
            if message.tool_call_id in seen:
                found.append(f"{n}: call id {message.tool_call_id!r} came before")
            seen.add(message.tool_call_id or "")
            waiting.append(message.tool_call_id or "")
        else:
            if waiting:
                found.append(f"{n}: {message.role} speaks before {waiting} were answered")
                waiting = []
            answering = False
            if not message.content.strip():
                found.append(f"{n}: an empty {message.role} message")
            if message.tool_name or message.tool_output:
                found.append(f"{n}: a {message.role} message with a tool in it")
        if is_call or message.role == "tool":
            if not NAME.match(message.tool_call_id or ""):
                found.append(f"{n}: call id {message.tool_call_id!r} is not spelled as providers take it")
            if not NAME.match(message.tool_name or ""):
                found.append(f"{n}: tool name {message.tool_name!r} is not spelled as providers take it")
    if waiting:
        found.append(f"at the end {waiting} are not answered")
    return found
