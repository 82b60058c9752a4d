"""The endpoints, asked over ASGI: what is refused, with which sentence, and what comes back when it is not."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from tests.external_agents import needs_agents_here
from usechat import parts
from usechat.errors import PublicError, StreamFailed
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import Limits
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.open_calls import FORGOTTEN_ON_PAGE, OpenCall, approval_signature, input_digest, secret_of_chat
from usechat.server import ChatApp, Settings
from usechat.server.requests import Action, AuthorizeFunction
from usechat.turn import Identity, Turn

pytestmark = [pytest.mark.external_agents, pytest.mark.quick]

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
BODY: dict[str, Any] = {"id": "c1", "messages": [USER]}


async def echo(turn: Turn) -> AsyncIterator[Any]:
    yield f"You said {turn.text}"


def app(agent: Any = echo, **options: Any) -> ChatApp:
    settings = Settings(sdk="7", **options.pop("settings", {}))
    return ChatApp(agent, settings=settings, **options)


def client(served: ChatApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=served), base_url="http://example", timeout=10)


def message_of(body: bytes, sdk: str = "7", message: Any = None) -> Any:
    builder = MessageBuilder(sdk=sdk, message=message)
    for chunk in ChunkDecoder().receive(body):
        builder.receive(chunk)
    return builder.message


def message_of_any(body: bytes) -> Any:
    """Return the message of a stream that may end in an error."""
    builder = MessageBuilder(sdk="7")
    with contextlib.suppress(StreamFailed):
        for chunk in ChunkDecoder().receive(body):
            builder.receive(chunk)
    return builder.message


async def test_a_turn_and_its_headers() -> None:
    async with client(app()) as http:
        response = await http.post("/api/chat", json=BODY)
    assert response.status_code == 200
    run = response.headers["x-workflow-run-id"]
    assert (run.startswith("run~"), run.endswith("~c1")) == (True, True)
    assert dict(response.headers) == {
        "x-workflow-run-id": run,
        "content-type": "text/event-stream",
        "cache-control": "no-cache, no-transform",
        "connection": "keep-alive",
        "x-vercel-ai-ui-message-stream": "v1",
        "x-accel-buffering": "no",
        "content-encoding": "identity",
    }
    assert response.content.startswith(b": stream-open\n\n")
    message = message_of(response.content)
    assert message["id"].startswith("msg-")
    assert message["parts"][1]["text"] == "You said hi"


@pytest.mark.parametrize(
    ("content", "headers", "status", "text"),
    [
        pytest.param(b"nope", {}, 400, "JSON", id="no-json"),
        pytest.param(b"[]", {}, 400, "object", id="no-object"),
        pytest.param(b'{"messages": []}', {}, 400, "user message", id="no-user-message"),
        pytest.param(
            b"{}",
            {"content-type": "text/plain", "origin": "https://other.example"},
            400,
            "A page of https://other.example may not send text/plain",
            id="a form of another site",
        ),
        pytest.param(b"{}", {"content-type": ""}, 400, "'' is not supported; send application/json", id="no type"),
        pytest.param(b"{}", {"content-type": "image/png"}, 400, "'image/png' is not supported", id="content-type"),
        pytest.param(b'{"messages": [' + b" " * 2000 + b"]}", {}, 413, "1000", id="too-large"),
    ],
)
async def test_a_flaw_is_a_status_with_a_sentence(content: bytes, headers: Any, status: int, text: str) -> None:
    served = app(settings={"limits": Limits(maximum_bytes=1000)})
    async with client(served) as http:
        response = await http.post(
            "/api/chat", content=content, headers={"content-type": "application/json", **headers}
        )
    assert response.status_code == status
    assert response.headers["content-type"].startswith("text/plain")
    assert text in response.text


@pytest.mark.parametrize("name", ["query", "header"])
async def test_a_front_end_may_name_its_release(name: str) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[parts.Part]:
        yield parts.Custom("a.b")

    served = ChatApp(agent)
    for sdk, expected in (("7", b'"type":"custom"'), ("5", b'"type":"data-custom"'), ("any", b'"type":"data-custom"')):
        async with client(served) as http:
            query, headers = ({"sdk": sdk}, {}) if name == "query" else ({}, {"x-ai-sdk": sdk})
            response = await http.post("/api/chat", json=BODY, params=query, headers=headers)
        assert expected in response.content


async def test_an_unknown_release_is_refused() -> None:
    async with client(app()) as http:
        response = await http.post("/api/chat?sdk=4", json=BODY)
    assert (response.status_code, "'4' is not an AI SDK release" in response.text) == (400, True)


async def test_errors_are_redacted_with_a_reference_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield ""
        raise RuntimeError("password=hunter2")

    with caplog.at_level(logging.ERROR, "usechat"):
        async with client(app(agent)) as http:
            response = await http.post("/api/chat", json=BODY)
    assert response.status_code == 200
    text = response.text.split('"errorText":"')[1].split('"')[0]
    assert text.startswith("An error occurred. Reference: ")
    assert "hunter2" not in response.text
    reference = text.rpartition(" ")[2]
    assert any(reference in record.getMessage() and record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("error", "on_error", "expected"),
    [
        (PublicError("Out of credit."), None, "Out of credit."),
        (ValueError("x"), lambda error: f"Sorry: {type(error).__name__}", "Sorry: ValueError"),
    ],
)
async def test_errors_for_people(error: Exception, on_error: Any, expected: str) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield ""
        raise error

    async with client(app(agent, settings={"on_error": on_error})) as http:
        response = await http.post("/api/chat", json=BODY)
    assert f'"errorText":"{expected}"' in response.text


async def test_state_stop_and_resume_of_a_chat_that_ended() -> None:
    async with client(app()) as http:
        assert (await http.get("/api/chat/c1")).status_code == 404
        assert (await http.get("/api/chat/c1/stream")).status_code == 204
        assert (await http.post("/api/chat/c1/stop")).status_code == 404
        await http.post("/api/chat", json=BODY)
        state = await http.get("/api/chat/c1")
        assert state.json()["state"] == "finished"
        assert (await http.get("/api/chat/c1/stream")).status_code == 204
        assert (await http.post("/api/chat/c1/stop")).status_code == 204


@pytest.mark.parametrize(
    ("output", "state"),
    [
        ([], "finished"),
        ([parts.Start("named-1")], "finished"),
        ([parts.ToolCall("t1", "ask", {})], "waiting"),
        ([5], "failed"),
    ],
)
async def test_the_state_tells_how_the_last_run_ended(output: list[Any], state: str) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[Any]:
        for part in output:
            yield part

    async with client(app(agent)) as http:
        message = message_of_any((await http.post("/api/chat", json=BODY)).content)
        run = (await http.get("/api/chat/c1")).json()
    assert (run["state"], run["messageId"], bool(run["runId"])) == (state, message["id"], True)


@needs_agents_here("the id that an agent gives to its message is stored at the end of the run")
async def test_the_state_of_a_run_that_goes_on_and_is_stopped() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[Any]:
        yield parts.Start("named-1")
        await asyncio.sleep(3600)

    async with client(app(agent)) as http:
        answering = asyncio.ensure_future(http.post("/api/chat", json=BODY))
        async with asyncio.timeout(30):
            while '"named-1"' not in (response := await http.get("/api/chat/c1")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert response.json()["state"] == "running"
        assert (await http.post("/api/chat/c1/stop")).status_code == 204
        assert (await http.get("/api/chat/c1")).json()["state"] == "stopped"
        assert (await answering).text.endswith("data: [DONE]\n\n")


async def test_the_files_of_a_request_are_not_fetched() -> None:
    connections: list[Any] = []
    web = await asyncio.start_server(lambda *connection: connections.append(connection), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{web.sockets[0].getsockname()[1]}/picture.png"
    file = {"type": "file", "mediaType": "image/png", "url": url}

    async def agent(turn: Turn) -> AsyncIterator[str]:
        yield f"You sent {turn.files[0]['url']}"

    async with web, client(app(agent)) as http:
        response = await http.post("/api/chat", json={"id": "c1", "messages": [{**USER, "parts": [file]}]})
    assert (f"You sent {url}" in response.text, connections) == (True, [])


async def test_outputs_of_calls_that_nobody_waits_for_are_not_taken() -> None:
    call_ids: list[str] = []

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        call_ids.extend(output.tool_call_id for output in turn.tool_outputs)
        if not turn.request.continues:
            yield parts.ToolCall("t1", "ask", {})

    async with client(app(agent)) as http:
        message = message_of((await http.post("/api/chat", json=BODY)).content)
        outputs: list[dict[str, Any]] = [
            {"type": "tool-ask", "toolCallId": call, "state": "output-available", "input": {}, "output": 1}
            for call in ("t1", "forged")
        ]
        body = {"id": "c1", "messages": [USER, {**message, "parts": outputs}], "messageId": message["id"]}
        assert (await http.post("/api/chat", json=body)).status_code == 200
    assert call_ids == ["t1"]


async def test_health_and_readiness() -> None:
    async with client(app()) as http:
        assert [(await http.get(path)).text for path in ("/healthz", "/readyz")] == ["ok", "ok"]


def plain_rule(request: Request, _chat_id: str, _action: Action) -> Identity | None:
    name = request.headers.get("x-user")
    return Identity(name) if name else None


async def async_rule(request: Request, chat_id: str, action: Action) -> Identity | None:
    return plain_rule(request, chat_id, action)


@pytest.mark.parametrize("rule", [plain_rule, async_rule])
async def test_a_foreign_chat_does_not_exist(rule: AuthorizeFunction) -> None:
    async with client(app(authorize=rule)) as http:
        mine, theirs = {"x-user": "me"}, {"x-user": "them"}
        assert (await http.post("/api/chat", json=BODY)).status_code == 404
        assert (await http.post("/api/chat", json=BODY, headers=mine)).status_code == 200
        assert (await http.post("/api/chat", json=BODY, headers=theirs)).status_code == 404
        assert (await http.get("/api/chat/c1", headers=theirs)).status_code == 404
        assert (await http.post("/api/chat/c1/stop", headers=theirs)).status_code == 404
        assert (await http.get("/api/chat/c1/stream", headers=theirs)).status_code == 204
        assert (await http.get("/api/chat/c1", headers=mine)).status_code == 200


# What comes back from the client is checked.


async def asks(turn: Turn) -> AsyncIterator[Any]:
    """Ask before removing; remove when it was approved."""
    if not turn.request.continues:
        yield parts.ToolCall("t1", "remove", {"path": "notes"})
        yield parts.ApprovalRequest("a1", "t1")
        return
    for answer in turn.approvals:
        assert answer.tool_call_id is not None
        yield (
            parts.ToolResult(answer.tool_call_id, "removed")
            if answer.approved
            else parts.ToolDenied(answer.tool_call_id)
        )
    yield "Done."


def answered(message: Any, *, approved: bool = True, **changes: Any) -> dict[str, Any]:
    """Answer the approval, as the page does; changes are what a forger would try."""
    new_parts = []
    for part in message["parts"]:
        if part.get("state") == "approval-requested":
            approval = {**part["approval"], "approved": approved, **changes.get("approval", {})}
            new_parts.append({**part, "state": "approval-responded", "approval": approval, **changes.get("part", {})})
        else:
            new_parts.append(part)
    return {"id": "c1", "messages": [USER, {**message, "parts": new_parts}], "messageId": message["id"]}


@pytest.mark.parametrize(("approved", "state"), [(True, "output-available"), (False, "output-denied")])
async def test_an_answered_approval_continues_the_message(approved: bool, state: str) -> None:
    async with client(app(asks)) as http:
        message = message_of((await http.post("/api/chat", json=BODY)).content)
        assert (await http.get("/api/chat/c1")).json()["state"] == "waiting"
        response = await http.post("/api/chat", json=answered(message, approved=approved))
    assert response.status_code == 200
    assert f'"messageId":"{message["id"]}"'.encode() in response.content
    continued = answered(message, approved=approved)["messages"][1]
    after = message_of(response.content, message=continued)
    assert [part["state"] for part in after["parts"] if part["type"] == "tool-remove"] == [state]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"part": {"input": {"path": "/"}}}, id="changed-input"),
        pytest.param({"approval": {"id": "a9"}}, id="unknown-approval"),
        pytest.param({"part": {"type": "tool-format"}}, id="changed-tool"),
        pytest.param({"part": {"toolCallId": "t9"}}, id="changed-call"),
    ],
)
async def test_a_forged_approval_is_refused_and_nothing_runs(changes: dict[str, Any]) -> None:
    async with client(app(asks)) as http:
        message = message_of((await http.post("/api/chat", json=BODY)).content)
        response = await http.post("/api/chat", json=answered(message, **changes))
        assert response.status_code == 422
        assert "was not asked for, or its tool call has changed" in response.text
        assert (await http.get("/api/chat/c1")).json()["state"] == "waiting"


async def test_an_approval_of_a_forgotten_run_needs_its_signature() -> None:
    secret = {"settings": {"approval_secret": "s3cret"}}
    async with client(app(asks, **secret)) as http:
        message = message_of((await http.post("/api/chat", json=BODY)).content)
    call = OpenCall("t1", "remove", input_digest({"path": "notes"}), "a1")
    [part] = [part for part in message["parts"] if part["type"] == "tool-remove"]
    assert part["approval"]["signature"] == approval_signature(secret_of_chat("s3cret", "c1", ""), call)
    for served, changes, status in (
        (app(asks, **secret), {}, 200),
        (app(asks, **secret), {"part": {"input": {"path": "/"}}}, 422),
        (app(asks, **secret), {"approval": {"signature": "forged"}}, 422),
        (app(asks), {}, 422),
    ):
        async with client(served) as http:
            response = await http.post("/api/chat", json=answered(message, **changes))
        assert response.status_code == status
        if status == 422:
            assert response.text == FORGOTTEN_ON_PAGE


async def test_a_signed_question_is_checked_where_the_client_has_no_approvals() -> None:
    settings = Settings(sdk="5", approval_secret="s3cret")
    async with client(ChatApp(asks, settings=settings)) as http:
        message = message_of((await http.post("/api/chat", json=BODY)).content, "5")
    new_parts = [
        {**part, "state": "output-available", "output": {"approved": True}} if part["type"] == "tool-approval" else part
        for part in message["parts"]
    ]
    body = {"id": "c1", "messages": [USER, {**message, "parts": new_parts}], "messageId": message["id"]}
    for served, status in ((ChatApp(asks, settings=settings), 200), (ChatApp(asks, settings=Settings(sdk="5")), 422)):
        async with client(served) as http:
            response = await http.post("/api/chat", json=body)
        assert response.status_code == status
