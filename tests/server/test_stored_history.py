"""What an agent gets of a stored chat: the content of files that are stored apart, and a history that models accept."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from tests.chats import talking
from tests.chats.talking import ask, begin, call, texts, user
from usechat.chats import ChatStore, FileUrls, MemoryChats, SqlChats
from usechat.parts import File, Part, ToolCall
from usechat.runs.manager import RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import RunInfo, RunState
from usechat.server import ChatApp, Settings
from usechat.server.hooks import NO_HOOKS
from usechat.server.turns import StoredTurns
from usechat.turn import Turn, TurnContext, TurnInput

pytestmark = [pytest.mark.external_agents, pytest.mark.quick]

PICTURE = b"\x89PNG" + b"x" * 30_000
PICTURE_URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
PICTURE_PART = {"type": "file", "mediaType": "image/png", "url": PICTURE_URL}
Make = Callable[..., httpx2.AsyncClient]


@pytest.fixture(params=["memory", "sqlite"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> ChatStore:
    return MemoryChats() if request.param == "memory" else SqlChats(str(tmp_path / "chats.db"))


@pytest.fixture
async def make(chats: ChatStore) -> AsyncIterator[Make]:
    apps: list[ChatApp] = []

    def make(
        agent: Any, base_url: str = "http://a", hooks: Mapping[str, Any] = {}, **settings: Any
    ) -> httpx2.AsyncClient:
        app = ChatApp(agent, chats=chats, settings=Settings(sdk="7", **settings), metrics=False, **hooks)
        apps.append(app)
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=base_url, timeout=30)

    yield make
    for app in apps:
        await app.shut_down()


async def say(client: httpx2.AsyncClient, *messages: Any, **body: Any) -> None:
    response = await client.post("/api/chat", json={"id": "c1", "messages": list(messages), **body})
    assert response.status_code == 200, response.text


async def loaded(client: httpx2.AsyncClient) -> list[Any]:
    messages: list[Any] = (await client.get("/api/chat/c1/messages")).json()["messages"]
    return messages


class Model:
    """A model of Pydantic AI that remembers what it was given, and calls ``delete`` when it is asked to."""

    def __init__(self) -> None:
        self.inputs: list[list[ModelMessage]] = []

    async def __call__(self, messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        self.inputs.append(messages)
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart) and last.content == "delete":
            yield {0: DeltaToolCall("delete", '{"path": "notes"}', tool_call_id="t1")}
        else:
            yield "Done."

    def agent(self) -> Any:
        agent = Agent(FunctionModel(stream_function=self), output_type=[str, DeferredToolRequests])

        @agent.tool_plain(requires_approval=True)
        def delete(path: str) -> str:
            raise AssertionError(f"{path} must not be deleted")

        return agent


def calls_and_results(messages: list[ModelMessage]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls in a history, and those of the results."""
    parts = [part for message in messages for part in message.parts]
    results = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    return [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)], results


async def test_an_agent_gets_the_content_of_a_file_that_is_stored_apart(make: Make) -> None:
    urls: list[list[str]] = []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        urls.append(
            [str(part.get("url")) for message in turn.messages for part in message["parts"] if part["type"] == "file"]
        )
        yield "Seen."

    client = make(agent)
    await say(client, user("u1", "Look", PICTURE_PART))
    await say(client, user("u2", "And now?"))
    assert urls == [[PICTURE_URL], [PICTURE_URL]]
    address = (await loaded(client))[0]["parts"][0]["url"]
    assert address.startswith("http://a/api/chat/c1/files/"), "the page gets an address"


async def test_what_makes_the_title_gets_the_content_of_a_file_that_is_stored_apart(make: Make) -> None:
    inputs: asyncio.Queue[Any] = asyncio.Queue()
    client = make(lambda _turn: "Seen.", hooks={"titles": inputs.put_nowait})
    await say(client, user("u1", "Look", PICTURE_PART))
    assert await inputs.get() == [user("u1", "Look", PICTURE_PART)]


async def test_on_finish_gets_the_address_of_a_file_that_is_stored_apart(make: Make) -> None:
    saved: list[Any] = []

    async def agent(_turn: Turn) -> AsyncIterator[Part]:
        yield File(PICTURE_URL, "image/png")

    client = make(agent, hooks={"on_finish": lambda message, *_: saved.append(message)})
    await say(client, user("u1", "Paint"))
    assert saved == (await loaded(client))[1:]
    assert (await client.get(saved[0]["parts"][-1]["url"])).content == PICTURE


async def test_a_withdrawn_turn_keeps_the_files_of_the_message_that_it_continues(chats: ChatStore) -> None:
    await talking.turn(chats, ask(user("u1", "Paint")), PICTURE_PART, call("t1"), outcome="waiting")
    [_, message] = (await chats.load("c1", owner="ada")).messages
    beginning = await begin(chats, ask(message_id=message["id"]))
    info = RunInfo(beginning.claim.run_id, "c1", message["id"], sdk="7", state=RunState.STOPPED)
    manager = RunManager(MemoryRuns(), Settings())
    stored = StoredTurns(chats, manager, NO_HOOKS, file_bytes=0)
    copy = FileUrls("http://a/api/chat/c1/files/").write(message)
    recorder = await stored.recorder_of(info, TurnContext(TurnInput(beginning.request)), copy)
    assert recorder is not None
    await recorder.finish(info)
    [_, again] = (await chats.load("c1", owner="ada")).messages
    assert again["parts"][0] == message["parts"][0]
    await stored.close()


async def test_a_model_gets_the_content_of_a_file_that_is_stored_apart(make: Make) -> None:
    model = Model()
    client = make(model.agent())
    await say(client, user("u1", "Look", PICTURE_PART))
    await say(client, user("u2", "And now?"))
    for messages in model.inputs:
        prompt = messages[0].parts[0]
        assert isinstance(prompt, UserPromptPart)
        assert list(prompt.content) == [BinaryContent(PICTURE, media_type="image/png"), "Look"]


async def test_a_text_names_each_earlier_file_that_is_too_much_for_a_model(make: Make) -> None:
    model = Model()
    client = make(model.agent(), history_file_bytes=50_000)
    other = {**PICTURE_PART, "url": f"data:image/png;base64,{base64.b64encode(PICTURE[::-1]).decode()}"}
    await say(client, user("u1", "Look", {**PICTURE_PART, "filename": "first.png"}))
    await say(client, user("u2", "And this?", other))
    prompts = [
        part.content for message in model.inputs[-1] for part in message.parts if isinstance(part, UserPromptPart)
    ]
    assert [list(content) for content in prompts] == [
        ["[The file first.png (image/png) is not included.]", "Look"],
        [BinaryContent(PICTURE[::-1], media_type="image/png"), "And this?"],
    ]


async def test_a_file_is_the_same_under_two_host_names(make: Make, chats: ChatStore) -> None:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        yield str([part.get("url") == PICTURE_URL for part in turn.messages[0]["parts"] if part["type"] == "file"])

    here, there = make(agent), make(agent, "https://chat.example.com")
    await say(here, user("u1", "Look", PICTURE_PART))
    (question, *_), (elsewhere, *_) = await loaded(here), await loaded(there)
    urls = [message["parts"][0]["url"] for message in (question, elsewhere)]
    assert [url.partition("/api/")[0] for url in urls] == ["http://a", "https://chat.example.com"]
    assert (await there.get(urls[1])).content == PICTURE
    await say(there, question, trigger="regenerate-message")
    stored = await chats.load("c1", owner="")
    assert texts(stored.messages) == ["Look", "[True]"]
    assert [len(ids) for ids in stored.siblings.values()] == [2], "the answer has two versions, the question one"


async def test_a_model_gets_no_call_without_a_result(make: Make) -> None:
    model = Model()
    client = make(model.agent())
    await say(client, user("u1", "delete"))
    assert (await loaded(client))[1]["parts"][-1]["state"] == "approval-requested"
    await say(client, user("u2", "Never mind"))
    calls, results = calls_and_results(model.inputs[-1])
    assert calls == results
    assert "Never mind" in [part.content for part in model.inputs[-1][-1].parts if isinstance(part, UserPromptPart)]


async def test_a_model_gets_a_result_of_a_call_that_a_failure_has_cut_off(make: Make) -> None:
    async def failing(_turn: Turn) -> AsyncIterator[ToolCall]:
        yield ToolCall("t9", "search", {})
        raise ValueError("secret")

    await say(make(failing), user("u1", "Search"))
    model = Model()
    await say(make(model.agent()), user("u2", "Again"))
    assert calls_and_results(model.inputs[-1]) == (["t9"], ["t9"])
