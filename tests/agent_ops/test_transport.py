"""A session as a chat transport: what is asked upstream, with whose token, and what comes back."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from examples.agent_ops_session.server import Sessions, serving
from tests.agent_ops.talking import DrivenTurn, until
from usechat import parts as p
from usechat.agent_ops import AgentOpsChatTransport
from usechat.agent_ops.adapter import RUNNER_LOST
from usechat.protocol.chunks import Chunk, FinishChunk, FinishStepChunk, StartChunk, StartStepChunk, TextDeltaChunk
from usechat.protocol.request import ChatRequest
from usechat.sources import ChatTransport, Source

DIALECTS = ("client", "runner", "both")
RELEASES = ("early", "later")

Ask = Callable[..., DrivenTurn]


@pytest.fixture(params=DIALECTS)
async def sessions(request: pytest.FixtureRequest) -> AsyncIterator[Sessions]:
    async with serving(dialect=request.param) as running:
        yield running


@pytest.fixture
async def plain() -> AsyncIterator[Sessions]:
    """Sessions that speak as to browsers."""
    async with serving() as running:
        yield running


def commands(sessions: Sessions, session_id: str = "s1") -> list[Any]:
    return [command for _user, command in sessions[session_id].commands]


def user_message(text: str) -> Any:
    return {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}


def test_it_is_a_source_and_a_chat_transport() -> None:
    transport = AgentOpsChatTransport.__new__(AgentOpsChatTransport)
    assert isinstance(transport, Source)
    assert isinstance(transport, ChatTransport)


async def test_a_turn(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "hello there")
    assert await turn.end() == [
        p.Start("turn-2"),
        p.Text("", id="turn-2"),
        p.Text("You said:"),
        p.Text(" hello"),
        p.Text(" there"),
        p.Finish(),
    ]
    assert commands(sessions) == [{"type": "prompt", "content": "hello there"}]
    assert (turn.counted.connected, turn.counted.unknown) == (0, [])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("prompt", "text", "ending"),
    [
        ("tool", "Let me look.It is a title.", p.Finish()),
        ("two tools", "Both read.", p.Finish()),
        ("fail tool", "There is no such file.", p.Finish()),
        ("fail", "I will", p.Error("The model is overloaded.")),
        ("error", "I will", p.Error("The sandbox is gone.")),
        ("empty", "", p.Finish()),
        ("cancel", "I was", p.Finish("other")),
        ("late", "Done.", p.Finish()),
        ("stuck", "Done.", p.Finish()),
        ("final", "All at once.", p.Finish()),
        ("strange", "Still here.", p.Finish()),
        ("die", "I will be", p.Error("Stream interrupted")),
    ],
)
async def test_every_kind_of_turn_in_every_dialect(
    dialect: Any, release: Any, prompt: str, text: str, ending: p.Part
) -> None:
    async with serving(dialect=dialect, release=release) as sessions:
        turn = DrivenTurn(AgentOpsChatTransport(sessions.url), prompt)
        parts = await turn.end()
    assert (turn.text, parts[-1]) == (text, ending)
    assert not any(command["type"] == "abort" for command in commands(sessions))


@pytest.mark.parametrize(("dialect", "text"), [("runner", "No model is set up."), ("client", "Turn failed")])
async def test_a_turn_that_fails_before_it_says_anything(dialect: Any, text: str) -> None:
    async with serving(dialect=dialect) as sessions:
        assert await DrivenTurn(AgentOpsChatTransport(sessions.url), "fail early").end() == [p.Error(text)]


async def test_unknown_events_are_counted_and_chosen_ones_shown(plain: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(plain.url, events=frozenset({"git-state"})), "strange")
    assert p.Data("git-state", {"data": {"branch": "main"}}) in await turn.end()
    assert turn.counted.unknown == ["quantum-state"]


@pytest.mark.parametrize(
    ("options", "users"),
    [({}, ["ada"]), ({"service_token": "gateway"}, ["gateway"]), ({"subprotocol": "agent-ops"}, ["ada"])],
)
async def test_the_upstream_is_called_with_the_callers_own_token_or_that_of_the_service(
    plain: Sessions, options: dict[str, str], users: list[str]
) -> None:
    await DrivenTurn(AgentOpsChatTransport(plain.url, **options), "hello").end()  # type: ignore[arg-type]
    assert [user for user, _command in plain["s1"].commands] == users


async def test_with_the_token_of_the_service_the_author_is_the_service(plain: Sessions) -> None:
    ada = DrivenTurn(AgentOpsChatTransport(plain.url), "ask")
    await until(lambda: any(isinstance(part, p.Data) and part.name == "question" for part in ada.parts))
    service = DrivenTurn(AgentOpsChatTransport(plain.url, service_token="gateway"), "hello")
    await until(lambda: plain["s1"].queue)
    plain["s1"].answer("question-3", "yes")
    await service.end()
    assert (service.text, ada.text) == ("You said: hello", "One moment.You answered: yes")


async def test_a_caller_without_a_token_is_refused_upstream(plain: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(plain.url), "hello", user=None)
    assert await turn.failure() == "PublicError: Connection failed"
    assert turn.counted.unreachable == 1


async def test_the_session_is_that_of_the_route_or_always_the_same(plain: Sessions) -> None:
    await DrivenTurn(AgentOpsChatTransport(plain.url), "one", session_id="s7").end()
    await DrivenTurn(AgentOpsChatTransport(plain.url, session_id="fixed"), "two", session_id="s8").end()
    assert [command["content"] for command in (*commands(plain, "s7"), *commands(plain, "fixed"))] == ["one", "two"]
    assert commands(plain, "s8") == []


async def test_without_a_session_it_is_said_how_to_name_one(plain: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(plain.url), "hello", session_id=None)
    assert await turn.failure() == (
        "InvalidSetting: the route names no session; "
        "serve it with AgentOpsApp, or give AgentOpsChatTransport(session_id=…)"
    )


async def test_a_channel_and_files(plain: Sessions) -> None:
    file = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    query = {"channelId": "slack-123", "channelType": "slack"}
    turn = DrivenTurn(AgentOpsChatTransport(plain.url), "look", files=[file], query=query)
    await turn.end()
    attachment = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
    channel = {"channelType": "slack", "channelId": "slack-123"}
    assert commands(plain) == [{"type": "prompt", "content": "look", "attachments": [attachment], **channel}]
    assert turn.text == "You said: look"


async def test_a_channel_without_a_type_is_one_of_the_web(plain: Sessions) -> None:
    await DrivenTurn(AgentOpsChatTransport(plain.url), "hi", query={"channelId": "7"}).end()
    assert commands(plain) == [{"type": "prompt", "content": "hi", "channelType": "web", "channelId": "7"}]


async def test_an_empty_message_is_refused_before_a_socket_opens(plain: Sessions) -> None:
    assert await DrivenTurn(AgentOpsChatTransport(plain.url), " \n").failure() == "PublicError: The message is empty."
    assert plain.connections == 0


async def test_only_the_latest_user_message_is_sent(plain: Sessions) -> None:
    answer: Any = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Hi there!"}]}
    request = ChatRequest(chat_id="c", messages=[user_message("Hello"), answer, user_message("What's 2+2?")])
    await DrivenTurn(AgentOpsChatTransport(plain.url), request=request).end()
    assert commands(plain) == [{"type": "prompt", "content": "What's 2+2?"}]


async def test_regenerate_sends_the_last_user_message_as_a_new_prompt(plain: Sessions) -> None:
    request = ChatRequest(chat_id="c", messages=[user_message("Again")], trigger="regenerate-message", message_id="m1")
    await DrivenTurn(AgentOpsChatTransport(plain.url), request=request).end()
    assert commands(plain) == [{"type": "prompt", "content": "Again"}]


async def collected(transport: AgentOpsChatTransport, request: ChatRequest) -> list[Chunk]:
    return [chunk async for chunk in await transport.send_messages(request)]


async def test_a_post_that_ends_in_an_assistant_message_sends_nothing_upstream(plain: Sessions) -> None:
    tool: Any = {"type": "tool-location", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "Ulm"}
    answer: Any = {"id": "turn-1", "role": "assistant", "parts": [tool]}
    request = ChatRequest(chat_id="c", messages=[user_message("Where?"), answer])
    chunks = await collected(AgentOpsChatTransport(plain.url, session_id="s1", sdk="7"), request)
    assert chunks == [StartChunk("turn-1"), StartStepChunk(), FinishStepChunk(), FinishChunk("stop", {})]
    assert plain.connections == 0


async def test_chunks_for_whoever_asks_without_a_server(plain: Sessions) -> None:
    transport = AgentOpsChatTransport(plain.url, session_id="s1", service_token="ada")
    chunks = await collected(transport, ChatRequest(chat_id="c", messages=[user_message("hello")]))
    assert "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk)) == "You said: hello"
    assert await transport.reconnect_to_stream("c") is None


async def test_closing_the_iterator_stops_the_turn_before_it_returns(plain: Sessions) -> None:
    transport = AgentOpsChatTransport(plain.url, session_id="s1", service_token="ada")
    stream: Any = await transport.send_messages(ChatRequest(chat_id="c", messages=[user_message("slow")]))
    async for chunk in stream:
        if isinstance(chunk, TextDeltaChunk):
            break
    await stream.aclose()
    await until(lambda: not plain["s1"].busy)
    assert [command["type"] for command in commands(plain)] == ["prompt", "abort"]


async def test_every_delta_is_a_part_of_its_own(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "count 2000")
    await turn.end()
    assert turn.text == "".join(f"{number} " for number in range(2000))
    assert sum(isinstance(part, p.Text) for part in turn.parts) == 2001


async def test_a_runner_that_comes_back_without_its_turn_is_an_error(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "lose runner")
    assert (await turn.end())[-2:] == [p.Text("I will be"), p.Error(RUNNER_LOST)]
    await sessions["s1"].close()
