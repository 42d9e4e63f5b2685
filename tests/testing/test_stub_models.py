"""The model server for tests: alike in every wire format, deaf to quotations, unmoved by a program's own questions."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.fencing import fence
from onward.testing import stub_directives
from onward.testing.stub_models import FORMATS, Reply, StubModels
from onward.testing.stub_wire import Heard

PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages?beta=true",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse",
}
WHOLE = PATHS | {"gemini": "/v1beta/models/m:generateContent"}
APIS = pytest.mark.parametrize("api", FORMATS)


@pytest.fixture
def stub() -> Iterator[StubModels]:
    with StubModels() as server:
        yield server


def send(
    stub: StubModels, path: str, body: Any = None, *, method: str = "POST", program: str = "a test"
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(stub.url.removeprefix("http://"), timeout=10)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"user-agent": program})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def written(api: str, said: list[Heard], *, tools: bool = True, stream: bool = True) -> dict[str, Any]:
    """A request body in one of the formats, as a client of it would write it."""
    tool = {"name": "look", "description": "Looks."}
    match api:
        case "gemini":
            body: dict[str, Any] = {"contents": [_gemini(one) for one in said]}
            return body | ({"tools": [{"functionDeclarations": [tool]}]} if tools else {})
        case "responses":
            body = {"input": [_responses(one) for one in said]}
        case "anthropic":
            body = {"messages": [_anthropic(one) for one in said]}
        case _:
            roles = {"user": "user", "agent": "assistant", "tool": "tool", "control": "system"}
            body = {"messages": [{"role": roles[one.who], "content": one.text} for one in said]}
    return body | {"stream": stream} | ({"tools": [tool]} if tools else {})


def _gemini(one: Heard) -> dict[str, Any]:
    if one.who == "tool":
        response = {"name": "look", "response": {"output": one.text}}
        return {"role": "user", "parts": [{"functionResponse": response}]}
    return {"role": "model" if one.who == "agent" else "user", "parts": [{"text": one.text}]}


def _responses(one: Heard) -> dict[str, Any]:
    if one.who == "tool":
        return {"type": "function_call_output", "call_id": "call_1_0", "output": one.text}
    roles = {"user": "user", "agent": "assistant", "control": "developer"}
    return {
        "type": "message",
        "role": roles[one.who],
        "content": [{"type": "input_text", "text": one.text}],
    }


def _anthropic(one: Heard) -> dict[str, Any]:
    if one.who == "tool":
        result = {"type": "tool_result", "tool_use_id": "toolu_1_0", "content": one.text}
        return {"role": "user", "content": [result]}
    roles = {"user": "user", "agent": "assistant", "control": "system"}
    return {"role": roles[one.who], "content": [{"type": "text", "text": one.text}]}


def user(text: str) -> Heard:
    return Heard(who="user", text=text)


def agent(text: str) -> Heard:
    return Heard(who="agent", text=text)


def tool(text: str) -> Heard:
    return Heard(who="tool", text=text)


@APIS
def test_a_request_is_heard_the_same_in_every_format(api: str, stub: StubModels) -> None:
    said = [user("Look."), agent("I did."), tool("nothing there"), user("Look again.")]
    assert send(stub, PATHS[api], written(api, said))[0] == 200
    assert stub.heard() == tuple(said)
    assert stub.asked() == ("Look.", "Look again.")


@APIS
@pytest.mark.parametrize("paths", [PATHS, WHOLE], ids=["streamed", "whole"])
def test_calls_come_one_a_request_and_then_the_text(
    api: str, paths: dict[str, str], stub: StubModels
) -> None:
    text = (
        '[[call look {"at": "first"}]] [[call look {"at": "second"}]] [[slow 1 0]] [[say Seen]] [[say both.]]'
    )
    said, found = [user(text)], []
    for _ in range(3):
        found.append(send(stub, paths[api], written(api, said, stream=paths is PATHS))[1])
        said.append(tool("something"))
    assert [("first" in it, "second" in it, "Seen both." in it) for it in found] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


@APIS
def test_thoughts_and_measured_tokens_are_sent(api: str, stub: StubModels) -> None:
    _, answer = send(stub, PATHS[api], written(api, [user("[[think Hmm.]] [[usage 4711]] [[say Yes.]]")]))
    assert "Hmm." in answer
    assert "4711" in answer


@APIS
def test_a_status_that_is_asked_for_is_answered(api: str, stub: StubModels) -> None:
    status, answer = send(stub, PATHS[api], written(api, [user("[[status 529]] [[say never]]")]))
    assert status == json.loads(answer)["error"]["code"] == 529


@APIS
def test_a_dropped_answer_ends_without_its_end(api: str, stub: StubModels) -> None:
    whole = send(stub, PATHS[api], written(api, [user("[[say abcdef]]")]))[1]
    cut = send(stub, PATHS[api], written(api, [user("[[say abcdef]] [[drop 1]]")]))[1]
    assert "ab" in cut
    assert "cd" not in cut
    assert "cd" in whole


@APIS
def test_only_the_newest_words_of_the_user_are_obeyed(api: str, stub: StubModels) -> None:
    said = [user("[[call look {}]] [[say old]]"), agent("Stopped."), user("[[slow 1 0]] [[say new]]")]
    answer = send(stub, PATHS[api], written(api, said))[1]
    assert "new" in answer
    assert "look" not in answer


@APIS
@pytest.mark.parametrize(
    "added",
    [
        "<system-reminder>\n[[say never]]\n</system-reminder>",
        "<environment_context>\n  <cwd>/</cwd>\n</environment_context>",
    ],
)
def test_what_a_program_adds_is_neither_obeyed_nor_taken_for_the_users_words(
    api: str, added: str, stub: StubModels
) -> None:
    said = [user(f"{added}\n[[slow 1 0]] [[say Yes.]]"), user(added)]
    answer = send(stub, PATHS[api], written(api, said))[1]
    assert "Yes." in answer
    assert stub.asked() == ("[[slow 1 0]] [[say Yes.]]",)


@given(st.text(max_size=40), st.sampled_from(["quoted", "handoff", "sources", "state"]))
def test_what_stands_in_a_brief_is_never_obeyed(noise: str, frame: str) -> None:
    inside = f"</{frame}>{noise}[[say quoted]]<{frame}>"
    brief = fence(inside, "recent exchange", frames=(frame,), session="ses_1")
    framed = f'<session_continuation version="1">\n<state>\n[[fail framed]]\n</state>\n{brief}\n</session_continuation>'
    for before in (brief, framed):
        reply = stub_directives.reply_to([user(f"{before}\n\n[[say now]]")], size=0)
        assert reply.text == "now"
        assert reply.status == 200


@APIS
def test_a_programs_own_question_takes_nothing_from_the_script(api: str) -> None:
    with StubModels([Reply(text="The answer.", chunks=1)]) as stub:
        aside = written(api, [user("[[say never]] A title, please.")], tools=False)
        assert "A conversation" in _text(
            send(stub, WHOLE[api], aside | {"stream": False}, program="codex_exec/1")[1]
        )
        assert "The answer." in send(stub, PATHS[api], written(api, [user("Go.")]), program="codex_exec/1")[1]
    assert [len(stub.side_requests), len(stub.requests)] == [1, 1]


def _text(answer: str) -> str:
    assert isinstance(json.loads(answer), dict), "one object, no stream"
    return answer


def test_a_question_with_a_schema_gets_an_answer_that_follows_it(stub: StubModels) -> None:
    schema = {
        "type": "object",
        "properties": {"model": {"type": "string", "enum": ["fast", "slow"]}, "why": {"type": "string"}},
        "required": ["model"],
    }
    body = written("gemini", [user("Which?")], tools=False)
    body["generationConfig"] = {"responseJsonSchema": schema}
    _, answer = send(stub, WHOLE["gemini"], body, program="GeminiCLI/1")
    parts = json.loads(answer)["candidates"][0]["content"]["parts"]
    assert json.loads(parts[0]["text"]) == {"model": "fast"}


def test_whoever_is_no_agent_program_may_ask_without_tools(stub: StubModels) -> None:
    send(stub, PATHS["openai"], written("openai", [user("Hello.")], tools=False))
    assert [len(stub.side_requests), len(stub.requests)] == [0, 1]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 200),
        ("HEAD", "/", 200),
        ("POST", "/v1/messages/count_tokens?beta=true", 200),
        ("POST", "/v1beta/models/m:countTokens", 200),
        ("GET", "/elsewhere", 404),
        ("POST", "/elsewhere", 404),
    ],
)
def test_whatever_asks_no_model_is_answered_and_kept_aside(
    method: str, path: str, status: int, stub: StubModels
) -> None:
    assert send(stub, path, {} if method == "POST" else None, method=method)[0] == status
    assert [(request.method, request.path) for request in stub.side_requests] == [(method, path)]
    assert stub.requests == []


@pytest.mark.parametrize("name", ["mcp__onward/recall", "mcp__onward__recall"])
def test_a_tool_of_a_namespace_is_called_in_it(name: str, stub: StubModels) -> None:
    body = written("responses", [user(f"[[call {name} {{}}]]")])
    body["tools"] = [{"type": "namespace", "name": "mcp__onward", "tools": [{"name": "recall"}]}]
    _, answer = send(stub, PATHS["responses"], body | {"stream": False})
    (call,) = json.loads(answer)["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "mcp__onward", "recall")


def test_a_tool_with_free_input_is_called_with_its_text(stub: StubModels) -> None:
    body = written("responses", [user("Patch it.")])
    body["tools"] = [{"type": "custom", "name": "apply_patch"}]
    with StubModels([Reply(calls=(("apply_patch", "*** Begin Patch"),))]) as scripted:
        _, answer = send(scripted, PATHS["responses"], body | {"stream": False})
    (call,) = json.loads(answer)["output"]
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin Patch")


def test_waiting_for_a_request_that_does_not_come_says_what_came(stub: StubModels) -> None:
    send(stub, "/v1/models", method="GET")
    send(stub, PATHS["openai"], written("openai", [user("Hello.")]))
    stub.wait_for(1)
    with pytest.raises(TimeoutError, match=r"1 of 2 requests arrived .*'GET /v1/models'"):
        stub.wait_for(2, seconds=0.01)
