"""Native files, written by hand a row at a time: a few words make a row that has everything a reader looks at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]

SESSION = "11111111-2222-4333-8444-555555555555"
THREAD = "019a2b3c-4d5e-7f60-8a1b-2c3d4e5f6071"


def stamp(n: int) -> str:
    return f"2026-03-01T10:{n // 60 % 60:02d}:{n % 60:02d}.000Z"


class Claude:
    """A transcript. Rows hang on the row before unless ``on`` says otherwise; names are their ids."""

    def __init__(self, session: str = SESSION, **every: Any) -> None:
        self.rows: list[Row | bytes] = []
        self.every = {
            "sessionId": session,
            "cwd": "/srv/shop",
            "version": "2.1.40",
            "isSidechain": False,
            **every,
        }
        self.last: str | None = None
        self.responses = 0

    def row(self, kind: str, uuid: str | None = None, *, on: str | type | None = ..., **more: Any) -> Claude:  # type: ignore[assignment]
        row: Row = {"type": kind, **self.every, "timestamp": stamp(len(self.rows)), **more}
        if uuid is not None:
            row["uuid"] = uuid
            row["parentUuid"] = self.last if on is ... else on
            self.last = uuid
        self.rows.append(row)
        return self

    def user(self, uuid: str, content: Any, **more: Any) -> Claude:
        return self.row("user", uuid, message={"role": "user", "content": content}, **more)

    def says(self, uuid: str, *blocks: Row | str, response: str | None = None, **more: Any) -> Claude:
        self.responses += 1
        content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        message = {
            "id": response or f"msg_{self.responses}",
            "role": "assistant",
            "model": more.pop("model", "claude-test"),
            "content": content,
        }
        return self.row("assistant", uuid, message=message, **more)

    def calls(self, uuid: str, call: str, name: str = "Bash", args: Row | None = None, **more: Any) -> Claude:
        block = {"type": "tool_use", "id": call, "name": name, "input": args or {"command": "ls"}}
        return self.says(uuid, block, **more)

    def result(
        self, uuid: str, call: str, content: Any = "done", *, error: bool | None = None, **more: Any
    ) -> Claude:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        if error is not None:
            block["is_error"] = error
        return self.user(uuid, [block], **more)

    def side(self, kind: str, **fields: Any) -> Claude:
        self.rows.append({"type": kind, **fields})
        return self

    def line(self, data: bytes) -> Claude:
        self.rows.append(data)
        return self

    def bytes(self) -> bytes:
        return b"".join(
            (r if isinstance(r, bytes) else json.dumps(r, ensure_ascii=False).encode()) + b"\n"
            for r in self.rows
        )

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.bytes())
        return path


class Codex:
    """A rollout in envelopes."""

    def __init__(self, thread: str = THREAD, *, ordinals: int | None = None, **meta: Any) -> None:
        self.rows: list[Row] = []
        self.ordinal = ordinals
        self.row(
            "session_meta", id=thread, timestamp=stamp(0), cwd="C:\\code\\shop", cli_version="0.171.0", **meta
        )

    def row(self, envelope: str, **payload: Any) -> Codex:
        row: Row = {"timestamp": stamp(len(self.rows)), "type": envelope, "payload": payload}
        if self.ordinal is not None:
            row["ordinal"] = self.ordinal
            self.ordinal += 1
        self.rows.append(row)
        return self

    def item(self, kind: str, **payload: Any) -> Codex:
        return self.row("response_item", type=kind, **payload)

    def event(self, kind: str, **payload: Any) -> Codex:
        return self.row("event_msg", type=kind, **payload)

    def user(self, *texts: str, **more: Any) -> Codex:
        content = [{"type": "input_text", "text": text} for text in texts]
        return self.item("message", role="user", content=content, **more)

    def says(self, text: str, **more: Any) -> Codex:
        content = [{"type": "output_text", "text": text}]
        return self.item("message", role="assistant", content=content, **more)

    def calls(self, call: str, name: str = "exec_command", arguments: str = '{"cmd": "ls"}') -> Codex:
        return self.item("function_call", name=name, arguments=arguments, call_id=call)

    def result(self, call: str, output: Any = "README.md", **more: Any) -> Codex:
        return self.item("function_call_output", call_id=call, output=output, **more)

    def bytes(self) -> bytes:
        return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in self.rows)

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.bytes())
        return path
