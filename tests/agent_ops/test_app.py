"""The route of a session: who is let in, in which order it is asked, and whose runs are whose."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

from tests.server.guarded import Streams
from usechat import ChunkDecoder
from usechat.agent_ops.access.roles import Membership, Role
from usechat.agent_ops.app import SESSION_SETTINGS, TOO_BUSY, AgentOpsApp
from usechat.errors import Unauthenticated
from usechat.parts import Start
from usechat.protocol.chunks import TextDeltaChunk
from usechat.runs.memory import MemoryRuns
from usechat.runs.quotas import Quotas
from usechat.runs.store import RunStore
from usechat.server.requests import Action
from usechat.turn import Identity, Turn

COLLABORATOR = Membership(Role.COLLABORATOR)


class Access:
    """An access rule that writes down what it was asked."""

    def __init__(self, standing: Membership | None = COLLABORATOR) -> None:
        self.standing = standing
        self.calls: list[tuple[str, str]] = []
        self.closed = False

    async def role_of(self, identity: Identity, session_id: str) -> Membership | None:
        self.calls.append((identity.subject, session_id))
        return self.standing

    async def check(self) -> None:
        """It can always be asked."""

    async def close(self) -> None:
        self.closed = True


async def by_header(request: Any, session_id: str, action: Action) -> Identity | None:
    """Know people by a header: the rule of the route says whom it wants to know, and for what."""
    assert (session_id, action in ("send", "resume", "stop", "state")) == (request.path_params["session_id"], True)
    if "user" not in request.headers:
        raise Unauthenticated("The request carries no bearer token.")
    return Identity(request.headers["user"])


class Agent:
    """Answers with the session and the text; those who say `wait` wait until they are let go."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.release = asyncio.Event()

    async def answer(self, turn: Turn) -> AsyncIterator[str]:
        self.turns.append(turn)
        yield f"{turn.path_params['session_id']}: {turn.text}"
        if turn.text == "wait":
            await self.release.wait()
            yield " no more"


class Gateway:
    """The app and its agent, asked without sockets."""

    def __init__(self, *, runs: RunStore | None = None, enabled: bool = True, standing: Any = COLLABORATOR) -> None:
        self.agent = Agent()
        self.access = Access(standing)
        self.streams = Streams()
        self.app: Any = self.serve(self.agent.answer, runs=runs, enabled=enabled)

    def serve(self, agent: Any, *, runs: RunStore | None, enabled: bool = True) -> AgentOpsApp:
        return AgentOpsApp(
            agent, access=self.access, authorize=by_header, runs=runs, enabled=enabled, observer=self.streams
        )

    async def ask(self, method: str, path: str, user: str | None = "carl", content: Any = None) -> httpx2.Response:
        headers = {"content-type": "application/json"} | ({} if user is None else {"user": user})
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://example", timeout=60) as client:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            return await client.request(method, path, headers=headers, content=body)

    async def send(
        self,
        text: str = "hi",
        *,
        session_id: str = "s1",
        user: str | None = "carl",
        chat_id: str = "c1",
        user_id: str = "u",
    ) -> httpx2.Response:
        parts = [{"type": "text", "text": text}]
        body = {"id": chat_id, "messages": [{"id": f"{user_id}-{text}", "role": "user", "parts": parts}]}
        return await self.ask("POST", f"/api/sessions/{session_id}/chat", user, body)

    async def until_streams(self, count: int) -> None:
        """Wait until so many streams have been opened."""
        async with asyncio.timeout(30):
            for _ in range(count):
                await self.streams.opened.acquire()

    async def until_turns(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.agent.turns) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def text_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    chunks = ChunkDecoder().receive(answer.content)
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk))


@pytest.fixture(autouse=True)
def _no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENABLE_AI_SDK_ADAPTER", raising=False)


async def test_a_collaborator_is_answered() -> None:
    gateway = Gateway()
    assert text_of(await gateway.send()) == "s1: hi"
    assert gateway.access.calls == [("carl", "s1")]


async def test_every_frame_is_named() -> None:
    answer = await Gateway().send()
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.headers["content-type"] == "text/event-stream"
    events = [event for event in answer.text.split("\n\n") if event and not event.startswith(":")]
    assert events.pop() == "data: [DONE]"
    names = [event.splitlines()[0] for event in events]
    assert names == [
        "event: message-start",
        "event: start-step",
        "event: text-start",
        "event: text-delta",
        "event: text-end",
        "event: finish-step",
        "event: message-finish",
    ]


async def test_who_asks_is_asked_first_then_whether_they_may_and_then_for_what() -> None:
    gateway = Gateway(standing=None)
    nobody = await gateway.ask("POST", "/api/sessions/s1/chat", None, b"not json")
    assert (nobody.status_code, nobody.text, gateway.access.calls) == (401, "The request carries no bearer token.", [])
    assert nobody.headers["www-authenticate"] == "Bearer"
    stranger = await gateway.ask("POST", "/api/sessions/s1/chat", "carl", b"not json")
    assert (stranger.status_code, stranger.text) == (404, "No such session.")
    gateway.access.standing = COLLABORATOR
    assert (await gateway.ask("POST", "/api/sessions/s1/chat", "carl", b"not json")).status_code == 400
    assert gateway.agent.turns == []


@pytest.mark.parametrize(
    "session_id", ["%2e%2e", ".", "a%20b", "a%3Fb", "a%00b", "a%2Fb", "%C3%A9", "x" * 201, "{id}", "a%0Ab", "a\\b"]
)
async def test_what_cannot_be_the_id_of_a_session_is_none(session_id: str) -> None:
    gateway = Gateway()
    assert (await gateway.send(session_id=session_id)).status_code == 404
    assert (gateway.access.calls, gateway.agent.turns) == ([], [])


async def test_concurrent_requests_of_one_chat_stand_beside_each_other() -> None:
    gateway = Gateway()
    first = asyncio.ensure_future(gateway.send("wait"))
    await gateway.until_turns(1)
    assert text_of(await gateway.send("second")) == "s1: second"
    twin = asyncio.ensure_future(gateway.send("wait"))
    await gateway.until_turns(3)
    gateway.agent.release.set()
    assert [text_of(answer) for answer in await asyncio.gather(first, twin)] == ["s1: wait no more"] * 2


async def test_people_who_name_their_chats_alike_do_not_meet() -> None:
    gateway = Gateway(runs=MemoryRuns())
    first = asyncio.ensure_future(gateway.send("wait", user="carl"))
    await gateway.until_turns(1)
    assert text_of(await gateway.send("mine", user="olivia")) == "s1: mine"
    assert (await gateway.ask("POST", "/api/sessions/s1/chat/c1/stop", "olivia")).status_code == 204
    assert (await gateway.ask("GET", "/api/sessions/s1/chat/c1", "carl")).json()["state"] == "running"
    assert (await gateway.ask("GET", "/api/sessions/s1/chat/c1", "olivia")).json()["state"] == "finished"
    assert (await gateway.ask("GET", "/api/sessions/s2/chat/c1", "carl")).status_code == 404
    gateway.agent.release.set()
    assert text_of(await first) == "s1: wait no more"


async def test_with_a_store_a_second_message_of_a_chat_waits_and_is_never_refused() -> None:
    gateway = Gateway(runs=MemoryRuns())
    first = asyncio.ensure_future(gateway.send("wait"))
    await gateway.until_turns(1)
    second = asyncio.ensure_future(gateway.send("second"))
    gateway.agent.release.set()
    assert [text_of(answer) for answer in await asyncio.gather(first, second)] == ["s1: wait no more", "s1: second"]


async def test_with_a_store_a_run_is_resumed_with_names_on_every_frame_and_stopped() -> None:
    gateway = Gateway(runs=MemoryRuns())
    first = asyncio.ensure_future(gateway.send("wait"))
    await gateway.until_turns(1)
    resumed = asyncio.ensure_future(gateway.ask("GET", "/api/sessions/s1/chat/c1/stream"))
    other = asyncio.ensure_future(gateway.ask("GET", "/api/sessions/s1/chat/c1/stream?sdk=7"))
    await gateway.until_streams(3)
    gateway.agent.release.set()
    assert text_of(await first) == "s1: wait no more"
    for answer in await asyncio.gather(resumed, other):
        assert text_of(answer) == "s1: wait no more"
        events = [event for event in answer.text.split("\n\n") if event and not event.startswith(":")]
        assert [event for event in events if not event.startswith("event: ")] == ["data: [DONE]"]
    assert (await gateway.ask("GET", "/api/sessions/s1/chat/c1/stream")).status_code == 204


async def test_without_a_store_there_is_nothing_to_resume_stop_or_ask_about() -> None:
    gateway = Gateway()
    running = asyncio.ensure_future(gateway.send("wait"))
    await gateway.until_turns(1)
    for method, path, status in [("GET", "/c1/stream", 204), ("POST", "/c1/stop", 404), ("GET", "/c1", 404)]:
        assert (await gateway.ask(method, f"/api/sessions/s1/chat{path}")).status_code == status
    assert (await gateway.ask("GET", "/api/sessions/s1/chat/c1/stream", None)).status_code == 401
    gateway.access.standing = None
    assert (await gateway.ask("GET", "/api/sessions/s1/chat/c1/stream")).status_code == 204
    gateway.agent.release.set()
    assert text_of(await running) == "s1: wait no more"


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/stream", "GET", 204), ("/stop", "POST", 404), ("", "GET", 404)]
)
async def test_runs_are_nothing_to_those_who_may_not_use_the_session(path: str, method: str, status: int) -> None:
    gateway = Gateway(runs=MemoryRuns())
    await gateway.send()
    gateway.access.standing = Membership(Role.VIEWER)
    assert (await gateway.ask(method, f"/api/sessions/s1/chat/c1{path}")).status_code == status
    assert (await gateway.ask(method, f"/api/sessions/s1/chat/c1{path}", None)).status_code == 401


@pytest.mark.parametrize(
    ("switch", "enabled", "status"),
    [(None, False, 404), ("false", False, 404), ("true", False, 200), (None, True, 200), ("false", True, 404)],
)
async def test_the_switch_decides_whether_the_route_is_there(
    monkeypatch: pytest.MonkeyPatch, switch: str | None, enabled: bool, status: int
) -> None:
    if switch is not None:
        monkeypatch.setenv("ENABLE_AI_SDK_ADAPTER", switch)
    gateway = Gateway(enabled=enabled)
    gateway.app = Starlette(routes=[Mount("/", gateway.app)])
    assert (await gateway.send()).status_code == status
    assert (await gateway.send(user=None)).status_code == (401 if status == 200 else 404)


async def test_what_goes_wrong_here_is_not_for_strangers(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(_turn: Turn) -> str:
        raise LookupError("the secret is 42")

    gateway = Gateway()
    gateway.app = AgentOpsApp(agent, access=gateway.access, authorize=by_header, enabled=True)
    response = await gateway.send()
    assert 'event: error\ndata: {"type":"error","errorText":"An error occurred. Reference: ' in response.text
    assert "secret" not in response.text
    assert "the secret is 42" in caplog.text


async def test_the_app_tells_whether_it_is_well_and_closes_its_access_rule() -> None:
    gateway = Gateway()
    assert [(await gateway.ask("GET", path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
    await gateway.app.shut_down()
    assert gateway.access.closed


async def test_an_ending_that_cannot_be_written_is_named_as_well() -> None:
    def agent(_turn: Turn) -> str:
        raise ValueError("broken")

    gateway = Gateway()
    settings = msgspec.structs.replace(SESSION_SETTINGS, on_error=lambda _error: None)  # not a text
    gateway.app = AgentOpsApp(agent, access=gateway.access, authorize=by_header, enabled=True, settings=settings)
    frames = [frame for frame in (await gateway.send()).text.split("\n\n") if not frame.startswith(":")]
    assert [frame.split("\n")[0] for frame in frames] == ["event: error", "event: message-finish", "data: [DONE]", ""]


async def test_a_stream_that_is_disconnected_behind_middleware_is_told_so_by_name() -> None:
    gateway = Gateway(runs=MemoryRuns())
    app = gateway.app
    gateway.app = BaseHTTPMiddleware(app, dispatch=lambda request, call_next: call_next(request))
    waiting = asyncio.ensure_future(gateway.send("wait"))
    await gateway.until_turns(1)
    closing = asyncio.ensure_future(app.shut_down())
    answer = await waiting
    gateway.agent.release.set()
    await closing
    assert 'event: error\ndata: {"type":"error","errorText":"The server disconnected; ' in answer.text


async def test_the_request_of_the_rfc_is_answered_and_its_history_ignored() -> None:
    gateway = Gateway()
    turns = [("user", "Hello"), ("assistant", "Hi there!"), ("user", "What's 2+2?")]
    body = {"messages": [{"role": role, "content": text} for role, text in turns]}
    assert text_of(await gateway.ask("POST", "/api/sessions/s1/chat", content=body)) == "s1: What's 2+2?"


async def test_the_id_of_the_turn_is_that_of_the_message_wherever_it_is_told() -> None:
    has_started, release = asyncio.Event(), asyncio.Event()

    async def agent(_turn: Turn) -> AsyncIterator[Start | str]:
        yield Start("turn-1")
        yield "Hi"
        has_started.set()
        await release.wait()

    gateway = Gateway()
    gateway.app = gateway.serve(agent, runs=MemoryRuns())
    requests = [asyncio.ensure_future(gateway.send())]
    await has_started.wait()
    state = await gateway.ask("GET", "/api/sessions/s1/chat/c1")
    resuming = [f"/api/sessions/s1/chat/c1/stream{query}" for query in ("", "?sdk=5", "?sdk=7")]
    requests += [asyncio.ensure_future(gateway.ask("GET", path)) for path in resuming]
    await gateway.until_streams(4)
    release.set()
    started = 'data: {"type":"start","messageId":"turn-1"'
    assert [started in response.text for response in await asyncio.gather(*requests)] == [True] * 4
    after = await gateway.ask("GET", "/api/sessions/s1/chat/c1")
    assert [reply.json()["messageId"] for reply in (state, after)] == ["turn-1", "turn-1"]


async def test_a_session_that_gets_too_many_requests_refuses_more_by_anyone() -> None:
    agent, access = Agent(), Access()
    gateway = Gateway()
    gateway.app = AgentOpsApp(
        agent.answer, access=access, authorize=by_header, enabled=True, session_requests_per_minute=2
    )
    statuses = [(await gateway.send(user=user)).status_code for user in ("ann", "bob", "carl")]
    assert statuses == [200, 200, 429]
    refused = await gateway.send(user="ann")
    assert (refused.status_code, 0 < int(refused.headers["retry-after"]) <= 60) == (429, True)
    assert TOO_BUSY in refused.text
    assert (await gateway.send(user="ann", session_id="s2")).status_code == 200


async def test_a_person_who_sends_too_many_requests_is_refused_in_every_session() -> None:
    settings = msgspec.structs.replace(SESSION_SETTINGS, quotas=Quotas(requests_per_minute=2))
    gateway = Gateway()
    gateway.app = AgentOpsApp(
        gateway.agent.answer, access=gateway.access, authorize=by_header, enabled=True, settings=settings
    )
    answers = [await gateway.send(session_id=session_id) for session_id in ("s1", "s2", "s3")]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert (await gateway.send(user="ann", session_id="s3")).status_code == 200


def limited(quotas: Quotas, *, session_requests_per_minute: int) -> Gateway:
    """Return a gateway that limits what a person, and what a session, may get."""
    gateway = Gateway()
    gateway.app = AgentOpsApp(
        gateway.agent.answer,
        access=gateway.access,
        authorize=by_header,
        enabled=True,
        settings=msgspec.structs.replace(SESSION_SETTINGS, quotas=quotas),
        session_requests_per_minute=session_requests_per_minute,
    )
    return gateway


async def test_requests_beyond_the_rate_of_a_person_do_not_use_up_that_of_the_session() -> None:
    gateway = limited(Quotas(requests_per_minute=1), session_requests_per_minute=2)
    refused = [await gateway.send(user="carl") for _ in range(4)]
    assert [answer.status_code for answer in refused] == [200, 429, 429, 429]
    assert "More than 1 requests in a minute. Please wait." in refused[-1].text
    assert (await gateway.send(user="ann")).status_code == 200


async def test_a_request_that_the_session_refuses_is_not_one_of_the_runs_of_its_person() -> None:
    gateway = limited(Quotas(concurrent_runs=1), session_requests_per_minute=1)
    sessions = ("s1", "s1", "s2")
    assert [(await gateway.send(session_id=name)).status_code for name in sessions] == [200, 429, 200]


async def test_strangers_do_not_use_up_the_rate_of_a_session() -> None:
    gateway = Gateway(standing=None)
    gateway.app = AgentOpsApp(
        gateway.agent.answer, access=gateway.access, authorize=by_header, enabled=True, session_requests_per_minute=1
    )
    assert [(await gateway.send()).status_code for _ in range(3)] == [404] * 3
    gateway.access.standing = COLLABORATOR
    assert (await gateway.send()).status_code == 200
