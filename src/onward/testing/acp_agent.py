"""An agent that speaks the Agent Client Protocol and does what the prompt tells it, for tests: no model, no network.

    python -m onward.testing.acp_agent --store FOLDER [--late] [--only load|nothing] [--new-id-on-resume]

It follows the directives of ``onward.engines.script`` in a prompt (``[[call NAME {json}]]`` calls a tool of an MCP server
that it was given), and these, which play agents as they are:

    [[shell WORDS]]  asks for permission, runs a command in a process of its own, reports it as a call
    [[edit PATH]]    the same for a change of a file, which it only reports
    [[recall]]       says how many earlier prompts the conversation holds, and the first of them
    [[plan TEXT]]    reports a plan of one step        [[unknown]]   sends an update of a kind that nobody knows
    [[garbage]]      writes a line that is no JSON     [[huge N]]    says a text of N characters in one line
    [[file PATH]]    asks the client for a file        [[late]]      sends an update after the answer to the prompt
    [[refuse]]       ends the turn as refused          [[die]]       ends the program in the middle of the turn

``--late`` replays the history after the answer to ``session/load``; ``--only`` says how it can go on with a conversation.
A conversation is a file in the folder, so another process can go on with it. It is deliberately not a model of any one
agent: what those do is checked with recordings and with the programs themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import traceback
import uuid
from pathlib import Path
from typing import Any, Final

from onward.engines.script import Call, Fail, Hang, Measure, Say, Step, Stop, Think, directives
from onward.errors import InvalidInput

OWN: Final = re.compile(
    r"\[\[(shell|edit|recall|plan|unknown|garbage|huge|file|late|refuse|die)\b([^\]]*)\]\]"
)
ANSWER_SECONDS: Final = 30.0
METHOD_NOT_FOUND: Final = -32601


class Agent:
    """The agent: reads requests on one thread, takes a prompt on another."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.store = Path(options.store)
        self.writing = threading.Lock()
        self.cancelled = threading.Event()
        self.answers: dict[str, list[Any]] = {}
        self.arrived = threading.Condition()
        self.asked = 0
        self.calls = 0
        self.servers: dict[str, list[dict[str, Any]]] = {}
        self.folders: dict[str, str] = {}

    def serve(self) -> None:
        """Answer until standard input ends."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                with self.arrived:
                    self.answers[str(message["id"])] = [message.get("result"), message.get("error")]
                    self.arrived.notify_all()
            elif message["method"] == "session/cancel":
                self.cancelled.set()
            elif message["method"] == "session/prompt":
                self.cancelled.clear()
                threading.Thread(target=self.prompt, args=(message,), daemon=True).start()
            else:
                self.answer(message)

    def write(self, message: dict[str, Any]) -> None:
        """Write one message."""
        self.raw(json.dumps({"jsonrpc": "2.0", **message}))

    def raw(self, line: str) -> None:
        """Write one line as it is."""
        with self.writing:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def update(self, session: str, what: str, /, **fields: Any) -> None:
        """Tell something about a conversation."""
        params = {"sessionId": session, "update": {"sessionUpdate": what, **fields}}
        self.write({"method": "session/update", "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> list[Any]:
        """Ask the client; return its result and its error."""
        with self.arrived:
            self.asked += 1
            number = f"ask-{self.asked}"
            self.write({"id": number, "method": method, "params": params})
            self.arrived.wait_for(lambda: number in self.answers, ANSWER_SECONDS)
            return self.answers.get(number, [None, {"message": "no answer"}])

    def answer(self, message: dict[str, Any]) -> None:
        """Answer a request that is no prompt."""
        number, params = message.get("id"), message.get("params") or {}
        session = params.get("sessionId", "")
        match message["method"]:
            case "initialize":
                self.write({"id": number, "result": self.abilities()})
            case "session/new":
                session = str(uuid.uuid4())
                self.keep(session, [], params["cwd"])
                self.servers[session] = params["mcpServers"]
                self.write({"id": number, "result": {"sessionId": session, **self.choices()}})
            case "session/load" | "session/resume" as method if self.path(session).exists():
                self.servers[session] = params["mcpServers"]
                session_after = str(uuid.uuid4()) if self.options.new_id_on_resume else session
                if method == "session/load" and not self.options.late:
                    self.replay(session)
                self.write({"id": number, "result": {"sessionId": session_after, **self.choices()}})
                if method == "session/load" and self.options.late:
                    self.replay(session)
            case "session/load" | "session/resume":
                self.write({"id": number, "error": {"code": -32002, "message": "Resource not found"}})
            case "session/list":
                kept = [json.loads(file.read_text()) | {"sessionId": file.stem} for file in self.files()]
                rows = [{"sessionId": row["sessionId"], "cwd": row["cwd"]} for row in kept]
                self.write({"id": number, "result": {"sessions": rows}})
            case "session/set_mode":
                self.update(session, "current_mode_update", currentModeId=params["modeId"])
                self.write({"id": number, "result": {}})
            case method if number is not None:
                error = {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}
                self.write({"id": number, "error": error})

    def abilities(self) -> dict[str, Any]:
        """Return the answer to ``initialize``."""
        sessions: dict[str, Any] = {"list": {}}
        if self.options.only is None:
            sessions["resume"] = {}
        can = {"loadSession": self.options.only != "nothing", "sessionCapabilities": sessions}
        return {"protocolVersion": 1, "agentCapabilities": can, "agentInfo": {"name": "onward-test-agent"}}

    def choices(self) -> dict[str, Any]:
        """Return what can be chosen for a conversation."""
        modes = [{"id": name, "name": name} for name in ("default", "plan")]
        return {"modes": {"currentModeId": "default", "availableModes": modes}}

    def path(self, session: str) -> Path:
        """Return the file of a conversation."""
        return self.store / f"{Path(session).name}.json"

    def files(self) -> list[Path]:
        """Return the files of all conversations."""
        return sorted(self.store.glob("*.json"))

    def keep(self, session: str, prompts: list[str], cwd: str) -> None:
        """Keep what was asked in a conversation."""
        self.folders[session] = cwd
        self.path(session).write_text(json.dumps({"prompts": prompts, "cwd": cwd}))

    def replay(self, session: str) -> None:
        """Tell the history of a conversation again, as ``session/load`` does."""
        for prompt in json.loads(self.path(session).read_text())["prompts"]:
            self.update(session, "user_message_chunk", content=_text(prompt))
            self.update(session, "agent_message_chunk", content=_text("This was said before."))
        self.update(session, "tool_call", toolCallId="old", title="old", kind="execute", status="completed")

    def prompt(self, message: dict[str, Any]) -> None:
        """Take a prompt to its end."""
        session = message["params"]["sessionId"]
        text = "\n".join(block.get("text", "") for block in message["params"]["prompt"])
        kept = json.loads(self.path(session).read_text())
        self.keep(session, [*kept["prompts"], text], kept["cwd"])
        try:
            reason = self.follow(session, text, kept["prompts"])
        except (InvalidInput, _Failed) as fault:
            self.write({"id": message["id"], "error": {"code": -32603, "message": str(fault)}})
            return
        if reason is not None:
            self.write({"id": message["id"], "result": {"stopReason": reason}})
        if "[[late]]" in text:
            self.update(session, "agent_message_chunk", content=_text("This comes too late."))

    def follow(self, session: str, text: str, before: list[str]) -> str | None:
        """Do what a prompt says, in order; return the reason to stop, None to say nothing."""
        steps: list[tuple[int, Any]] = []
        at = 0
        for found in OWN.finditer(text):
            steps += [(at, step) for step in directives(text[at : found.start()])]
            steps.append((found.start(), found))
            at = found.end()
        steps += [(at, step) for step in directives(text[at:])]
        if not steps:
            self.say(session, f"You said: {' '.join(text.split())[:200]}", 3)
        for _, step in steps:
            if self.cancelled.is_set():
                return "cancelled"
            reason = (
                self.own(session, step, before) if isinstance(step, re.Match) else self.step(session, step)
            )
            if reason is not None:
                return reason or None
        return "cancelled" if self.cancelled.is_set() else "end_turn"

    def step(self, session: str, step: Step) -> str | None:
        """Do one step of a script; return a reason to stop, or an empty one to say nothing more."""
        match step:
            case Say():
                self.say(session, step.text, step.deltas)
            case Think():
                self.update(session, "agent_thought_chunk", content=_text(step.text))
            case Call():
                self.tool(session, step.name, step.input)
            case Measure():
                self.update(session, "usage_update", used=step.usage.input_tokens, size=100_000)
            case Fail():
                raise _Failed(step.reason)
            case Hang():
                self.say(session, "I go on for long", 1)
                self.cancelled.wait()
                return "cancelled"
            case Stop():
                os._exit(0)
            case _:
                pass
        return None

    def own(self, session: str, found: re.Match[str], before: list[str]) -> str | None:
        """Follow one of the directives that play an agent."""
        word, given = found[1], found[2].strip()
        match word:
            case "shell" | "edit":
                self.work(session, word, given)
            case "recall":
                first = f", the first: {before[0]}" if before else ""
                self.say(session, f"I hold {len(before)} earlier prompts{first}", 1)
            case "plan":
                self.update(session, "plan", entries=[{"content": given, "status": "in_progress"}])
            case "unknown":
                self.update(session, "weather_report", sky="blue")
            case "garbage":
                self.raw("this is {no JSON")
            case "huge":
                self.say(session, "x" * int(given), 1)
            case "file":
                error = self.ask("fs/read_text_file", {"sessionId": session, "path": given})[1]
                self.say(session, "I was refused" if error else "I was given it", 1)
            case "refuse":
                return "refusal"
            case "die":
                os._exit(3)
            case _:
                pass
        return None

    def say(self, session: str, text: str, pieces: int) -> None:
        """Say a text in about equal pieces."""
        size = max(1, -(-len(text) // max(1, pieces)))
        for at in range(0, len(text), size):
            self.update(session, "agent_message_chunk", content=_text(text[at : at + size]))

    def work(self, session: str, kind: str, given: str) -> None:
        """Make a call of the agent's own: ask whether it may, do it, report how it went."""
        self.calls += 1
        call = f"own-{self.calls}"
        fields: dict[str, Any] = {
            "toolCallId": call,
            "title": kind,
            "kind": "execute" if kind == "shell" else "edit",
            "rawInput": {"command": given} if kind == "shell" else {"path": given},
        }
        options = [
            {"optionId": "always", "name": "Always", "kind": "allow_always"},
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        asked = {"sessionId": session, "toolCall": {**fields, "status": "pending"}, "options": options}
        result = self.ask("session/request_permission", asked)[0]
        if not isinstance(result, dict) or result.get("outcome", {}).get("optionId") != "yes":
            self.update(session, "tool_call_update", toolCallId=call, status="failed")
            return
        self.update(session, "tool_call", **fields, status="in_progress")
        output = ""
        if kind == "shell":
            # In a session of its own, as the agents that people use start their shells.
            child = subprocess.Popen(given.split(), stdout=subprocess.PIPE, text=True, start_new_session=True)
            while child.poll() is None and not self.cancelled.wait(0.02):
                pass
            if child.poll() is None:
                child.kill()
            output = child.communicate()[0]
        self.update(session, "tool_call_update", toolCallId=call, status="completed", rawOutput=output)

    def tool(self, session: str, name: str, given: Any) -> None:
        """Call a tool of the MCP server that the conversation was given, and report it as agents do."""
        self.calls += 1
        call = f"mcp-{self.calls}"
        fields = {"toolCallId": call, "title": f"onward_{name}", "kind": "other", "rawInput": given}
        self.update(session, "tool_call", **fields, status="pending")
        servers = self.servers.get(session) or []
        if not servers:
            gone = f"There is no tool {name!r}."
            self.update(session, "tool_call_update", toolCallId=call, status="failed", rawOutput=gone)
            return
        server = servers[0]
        env = {**os.environ, **{pair["name"]: pair["value"] for pair in server["env"]}}
        process = subprocess.Popen(
            [server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        try:
            greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a"}}
            _rpc(process, 1, "initialize", greeting)
            self.update(session, "tool_call_update", toolCallId=call, status="in_progress")
            answer = _rpc(process, 2, "tools/call", {"name": name, "arguments": given})
        finally:
            process.kill()
            process.communicate()
        failed = "error" in answer or answer.get("result", {}).get("isError")
        status = "failed" if failed else "completed"
        self.update(session, "tool_call_update", toolCallId=call, status=status, rawOutput=answer)


class _Failed(Exception):
    """The model failed."""


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _rpc(process: subprocess.Popen[bytes], number: int, method: str, params: Any) -> dict[str, Any]:
    """Ask an MCP server; return its answer, an error if it ends before."""
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        answer = json.loads(line)
        if answer.get("id") == number:
            return dict(answer)
    return {"error": {"message": "the server ended"}}


def _broke(what: threading.ExceptHookArgs) -> None:
    """End with a fault of our own: a thread that dies alone would leave the client waiting."""
    traceback.print_exception(what.exc_value)
    sys.stderr.flush()
    os._exit(4)


def main() -> None:
    """Run the agent."""
    threading.excepthook = _broke
    parser = argparse.ArgumentParser(description="An agent for tests.")
    parser.add_argument("--store", required=True)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--only", choices=("load", "nothing"))
    parser.add_argument("--new-id-on-resume", action="store_true")
    Agent(parser.parse_args()).serve()


if __name__ == "__main__":
    main()
