"""The engine that gets cut off: a program of its own that speaks the Agent Client Protocol and keeps its memory on disk.

    python waking_agent.py --memory FOLDER [--turns FILE]

It plays the agent's side of a conversation that was written before: turn after turn from a JSON file, a list of steps each
(``say``, ``call`` with its output, ``begin``: a call that never ends, ``mutter``: the beginning of a sentence, ``hang``).
Without the file it answers by how much it remembers. What it remembers is one file a conversation, with every prompt that it
was given; when that file is gone, it knows nothing, and says so to whoever asks for that conversation. It is started as a
file and imports only the standard library: what it knows of the work can only come over its input.

It is deliberately no part of what is measured, and does nothing but talk: its calls are reports, no command is run.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from pathlib import Path
from typing import Any, Final

NOT_FOUND: Final = -32002
NO_METHOD: Final = -32601


class Agent:
    """The program: one request after the other."""

    def __init__(self, memory: Path, turns: list[list[dict[str, Any]]]) -> None:
        self.memory, self.turns = memory, turns
        self.calls = 0
        self.said = 0
        self.hanging: Any = None
        """The id of a prompt that is never going to be answered."""

    def serve(self) -> None:
        """Answer until the input ends."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
            if method == "session/cancel" and self.hanging is not None:
                self._write(id=self.hanging, result={"stopReason": "cancelled"})
            elif number is not None:
                self._answer(number, method, params)

    def _answer(self, number: Any, method: str, params: dict[str, Any]) -> None:
        session = str(params.get("sessionId", ""))
        match method:
            case "initialize":
                can = {"loadSession": False, "sessionCapabilities": {"resume": {}}}
                self._write(id=number, result={"protocolVersion": 1, "agentCapabilities": can})
            case "session/new":
                session = str(uuid.uuid4())
                self._file(session).touch()
                self._write(id=number, result={"sessionId": session})
            case "session/resume" if self._file(session).exists():
                self._write(id=number, result={"sessionId": session})
            case "session/resume":
                self._write(id=number, error={"code": NOT_FOUND, "message": "no such conversation"})
            case "session/prompt":
                text = "\n".join(block.get("text", "") for block in params["prompt"])
                self._take(number, session, text)
            case _:
                self._write(id=number, error={"code": NO_METHOD, "message": f"no method {method}"})

    def _take(self, number: Any, session: str, text: str) -> None:
        file = self._file(session)
        held = len(file.read_text("utf-8").splitlines())
        with file.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps({"prompt": text}) + "\n")
        remembers = [{"say": f"I hold {held} earlier prompts."}]
        for step in self.turns[held] if held < len(self.turns) else remembers:
            if step.get("hang"):
                self.hanging = number
                return
            self._do(session, step)
        self._write(id=number, result={"stopReason": "end_turn"})

    def _do(self, session: str, step: dict[str, Any]) -> None:
        if "mutter" in step:
            self._say(session, step["mutter"])
            return
        if "say" in step:
            self.said += 1
            half = -(-len(step["say"]) // 2)
            self._say(session, step["say"][:half])
            self._say(session, step["say"][half:])
            return
        self.calls += 1
        call = {"toolCallId": f"t{self.calls}", "title": step.get("call") or step["begin"]}
        self._tell(session, "tool_call", **call, kind="execute", rawInput=step["input"], status="in_progress")
        if "call" in step:
            self._tell(session, "tool_call_update", **call, status="completed", rawOutput=step["output"])

    def _say(self, session: str, text: str) -> None:
        content = {"type": "text", "text": text}
        self._tell(session, "agent_message_chunk", content=content, messageId=f"m{self.said}")

    def _file(self, session: str) -> Path:
        return self.memory / f"{Path(session).name}.jsonl"

    def _tell(self, session: str, what: str, /, **fields: Any) -> None:
        update = {"sessionUpdate": what, **fields}
        self._write(method="session/update", params={"sessionId": session, "update": update})

    def _write(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Run the agent."""
    parser = argparse.ArgumentParser(description="Plays one side of a conversation.")
    parser.add_argument("--memory", type=Path, required=True)
    parser.add_argument("--turns", type=Path)
    given = parser.parse_args()
    Agent(given.memory, json.loads(given.turns.read_text("utf-8")) if given.turns else []).serve()


if __name__ == "__main__":
    main()
