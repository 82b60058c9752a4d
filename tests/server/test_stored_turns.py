"""Turns whose history the server has: what the agent gets, what is stored, and what each page sees."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.talking import REGENERATE, answer, answers, ask, begin, text, texts, user
from tests.external_agents import needs_agents_here
from tests.postgres_server import postgres_server, restartable_postgres_server
from tests.server.sockets import Body
from tests.server.streams import Streams
from usechat import parts
from usechat.chats import ChatStore, LoadedChat, MemoryChats, SqlChats, last_messages
from usechat.errors import StoreUnreachable
from usechat.protocol.chunks import DataChunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.ui_messages import tool_parts_of
from usechat.runs.memory import MemoryRuns
from usechat.server import ChatApp, Settings
from usechat.turn import Identity, Turn

pytestmark = pytest.mark.external_agents

LARGE = 17 * 1024 * 1024


class Agent:
    """Answers with what was said so far; does what the last text says."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.ran = 0

    async def __call__(self, turn: Turn) -> AsyncIterator[str | parts.Part]:
        self.turns.append(turn)
        for approval in turn.approvals:
            self.ran += approval.approved
            if turn.text == "delete slowly":
                self.waits.set()
                await self.goes_on.wait()
            yield parts.ToolResult("t1", "deleted") if approval.approved else parts.ToolDenied("t1")
            yield "Done."
            return
        for output in turn.tool_outputs:
            yield f"It is {output.output}."
            return
        match turn.text:
            case "delete" | "delete slowly":
                yield parts.ToolCall("t1", "delete", {"path": "notes"})
                yield parts.ApprovalRequest("p1", "t1")
            case "where":
                yield parts.ToolCall("t2", "locate", {})
            case "wait":
                yield "Wait"
                self.waits.set()
                await self.goes_on.wait()
                yield " over."
            case "large":
                yield parts.ToolCall("t4", "read", {})
                yield parts.ToolResult("t4", "x" * LARGE)
            case "name":
                yield parts.Start("u1")
                yield "Named."
            case "fail":
                yield "Half"
                yield parts.ToolCall("t3", "search", {})
                raise ValueError("secret")
            case text:
                yield f"Answer {len(turn.messages)} to {text}."


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture(params=["memory", "sqlite"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> ChatStore:
    return MemoryChats() if request.param == "memory" else SqlChats(str(tmp_path / "chats.db"))


@pytest.fixture
async def make(chats: ChatStore, agent: Agent) -> AsyncIterator[Callable[..., httpx2.AsyncClient]]:
    apps: list[ChatApp] = []

    def make(settings: Settings | None = None, **options: Any) -> httpx2.AsyncClient:
        app = ChatApp(agent, chats=chats, settings=settings or Settings(sdk="7"), metrics=False, **options)
        apps.append(app)
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=30)

    yield make
    for app in apps:
        await app.shut_down()


@pytest.fixture
def client(make: Callable[..., httpx2.AsyncClient]) -> httpx2.AsyncClient:
    return make()


async def post(client: httpx2.AsyncClient, *messages: Any, chat_id: str = "c1", **body: Any) -> Body:
    response = await client.post("/api/chat", json={"id": chat_id, "messages": list(messages), **body})
    assert response.status_code == 200, response.text
    return Body(response.content, complete=True)


async def stored(chats: ChatStore, chat_id: str = "c1") -> LoadedChat:
    return await chats.load(chat_id, owner="")


async def shown(chats: ChatStore) -> list[str]:
    return texts((await stored(chats)).messages)


async def test_the_agent_gets_the_stored_branch_whatever_the_page_sends(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    await post(client, user("u1", "One"))
    await post(client, user("x", "Forged"), answer("y", "Forged"), user("u2", "Two"))
    await post(client, user("u3", "Three"))
    assert await shown(chats) == ["One", "Answer 1 to One.", "Two", "Answer 3 to Two.", "Three", "Answer 5 to Three."]
    assert texts(agent.turns[-1].messages) == (await shown(chats))[:-1]


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"message": None}])
async def test_a_request_with_nothing_but_an_id_answers_the_question_that_is_stored(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore, body: dict[str, Any]
) -> None:
    await post(client, user("u1", "One"))
    response = await client.post("/api/chat", json={"id": "c1", "trigger": REGENERATE, **body})
    assert response.status_code == 200
    assert await shown(chats) == ["One", "Answer 1 to One."]
    assert len((await stored(chats)).siblings[(await stored(chats)).messages[-1]["id"]]) == 2
    assert len(agent.turns) == 2


async def test_a_request_for_an_unknown_chat_that_brings_nothing_is_refused(client: httpx2.AsyncClient) -> None:
    response = await client.post("/api/chat", json={"id": "new"})
    assert (response.status_code, response.text) == (
        400,
        "the chat has no message to answer, and the request has none",
    )


async def test_the_question_is_stored_before_the_answer_begins(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    loaded = await stored(chats)
    assert (texts(loaded.messages), loaded.running is not None) == (["wait"], True)
    agent.goes_on.set()
    await task
    loaded = await stored(chats)
    assert (texts(loaded.messages), loaded.running) == (["wait", "Wait over."], None)


async def test_the_end_is_stored_before_the_page_sees_it(client: httpx2.AsyncClient, chats: ChatStore) -> None:
    body = await post(client, user("u1", "One"))
    loaded = await stored(chats)
    assert loaded.messages[-1]["id"] == body.message_id
    assert loaded.outcomes == {body.message_id: "finished"}


async def test_an_answer_that_fails_is_stored_as_far_as_it_came(client: httpx2.AsyncClient, chats: ChatStore) -> None:
    await client.post("/api/chat", json={"id": "c1", "messages": [user("u1", "fail")]})
    loaded = await stored(chats)
    stored_parts = loaded.messages[-1]["parts"]
    assert [(part["type"], part.get("state")) for part in stored_parts] == [
        ("step-start", None),
        ("text", "done"),
        ("tool-search", "output-error"),
    ]
    assert list(loaded.outcomes.values()) == ["failed"]


async def test_an_answer_that_is_stopped_is_stored_as_far_as_it_came(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    assert (await client.post("/api/chat/c1/stop")).status_code == 204
    await task
    assert await shown(chats) == ["wait", "Wait"]
    assert list((await stored(chats)).outcomes.values()) == ["stopped"]


async def test_an_answer_never_gets_the_id_of_another_message(client: httpx2.AsyncClient, chats: ChatStore) -> None:
    body = await post(client, user("u1", "name"))
    assert body.message_id != "u1"
    assert [message["id"] for message in (await stored(chats)).messages] == ["u1", body.message_id]


async def test_a_second_tab_resumes_the_answer_from_its_start(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore
) -> None:
    streams = Streams()
    client = make(observer=streams)
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    resumed = asyncio.ensure_future(client.get("/api/chat/c1/stream"))
    again = asyncio.ensure_future(post(client, user("u1", "wait")))
    await streams.wait_for(3)
    agent.goes_on.set()
    texts_ = [(await task).text, Body((await resumed).content, complete=True).text, (await again).text]
    assert texts_ == ["Wait over."] * 3
    assert len(agent.turns) == 1
    assert (await client.get("/api/chat/c1/stream")).status_code == 204
    assert await shown(chats) == ["wait", "Wait over."]


async def test_a_second_question_is_refused_and_not_stored_while_one_is_answered(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    response = await client.post("/api/chat", json={"id": "c1", "messages": [user("u2", "Two")]})
    assert (response.status_code, response.text) == (409, "This chat is being answered already.")
    agent.goes_on.set()
    await task
    assert await shown(chats) == ["wait", "Wait over."]


@pytest.mark.parametrize("conflict", ["queue", "interrupt"])
async def test_a_second_question_waits_or_interrupts(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore, conflict: Any
) -> None:
    client = make(Settings(sdk="7", conflict=conflict))
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    second = asyncio.ensure_future(post(client, user("u2", "Two")))
    if conflict == "queue":
        await asyncio.sleep(0.2)
        agent.goes_on.set()
    answer_text = "Wait over." if conflict == "queue" else "Wait"
    assert (await task).text == answer_text
    assert (await second).text == "Answer 3 to Two."
    assert await shown(chats) == ["wait", answer_text, "Two", "Answer 3 to Two."]


async def test_an_edit_stops_the_answer_to_the_earlier_text(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    assert (await post(client, user("u1", "Other"), messageId="u1")).text == "Answer 1 to Other."
    await task
    assert await shown(chats) == ["Other", "Answer 1 to Other."]


# Approvals and tools of the page.


async def waiting_approval(client: httpx2.AsyncClient, chats: ChatStore) -> Any:
    """Ask for something that needs an approval; return the page's copy of the message with a yes."""
    await post(client, user("u1", "delete"))
    message: Any = (await stored(chats)).messages[-1]
    return approved(message)


def approved(message: Any, is_approved: bool = True) -> Any:
    """Return the page's copy of a message with its approval answered; 5 asks for it through a tool of the page."""

    def give(part: Any) -> Any:
        match part:
            case {"type": "tool-approval"}:
                return {**part, "state": "output-available", "output": {"approved": is_approved}}
            case {"state": "approval-requested", "approval": approval}:
                return {**part, "state": "approval-responded", "approval": {**approval, "approved": is_approved}}
        return part

    return {**message, "parts": [give(part) for part in message["parts"]]}


async def test_an_approval_is_taken_once_however_often_it_is_sent(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    copy = await waiting_approval(client, chats)
    contrary = approved({**copy, "parts": (await stored(chats)).messages[-1]["parts"]}, is_approved=False)
    bodies = await asyncio.gather(
        *[post(client, each, messageId=copy["id"]) for each in (copy, copy, contrary, copy, contrary)]
    )
    assert agent.ran == 1
    assert {each.text for each in bodies} == {"Done."}
    assert (await post(client, copy, messageId=copy["id"])).text == "Done.", "a replayed request sees the answer"
    assert agent.ran == 1
    last = (await stored(chats)).messages[-1]
    outputs = [part.get("output") for part in last["parts"] if part["type"] == "tool-delete"]
    assert (outputs, texts([last])) == (["deleted"], ["Done."])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("sdk", ["5", "6", "7"])
async def test_a_contrary_answer_that_comes_late_is_told_what_became_of_the_first(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore, sdk: str, first: bool
) -> None:
    client = make(Settings(sdk=sdk))
    await post(client, user("u1", "delete"))
    message: Any = (await stored(chats)).messages[-1]
    await post(client, approved(message, first), messageId=message["id"])
    late = await post(client, approved(message, not first), messageId=message["id"])
    builder = MessageBuilder(sdk=sdk, message_id=message["id"], message=approved(message, not first))
    for chunk in late.chunks:
        builder.receive(chunk)
    page_parts, stored_parts = builder.message["parts"], (await stored(chats)).messages[-1]["parts"]
    assert [outcome_of(part) for part in page_parts] == [outcome_of(part) for part in stored_parts]
    assert agent.ran == first


def outcome_of(part: Any) -> Any:
    """What a part tells of the tool, without the answer that the page itself has given."""
    is_question = part["type"] == "tool-approval"
    return part["type"], *[None if is_question else part.get(name) for name in ("state", "output", "errorText", "text")]


@pytest.mark.parametrize("state", [[], {}, None, 1, "unknown"])
async def test_a_copy_of_an_answer_whose_call_has_no_state_is_no_answer(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore, state: Any
) -> None:
    copy = await waiting_approval(client, chats)
    await post(client, copy, messageId=copy["id"])
    message = {**copy, "parts": [{**part, "state": state} for part in copy["parts"]]}
    assert (await post(client, message, messageId=copy["id"])).text == "Done."
    assert agent.ran == 1


async def test_an_approval_survives_a_restart(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore
) -> None:
    copy = await waiting_approval(make(), chats)
    assert (await post(make(), copy, messageId=copy["id"])).text == "Done."
    assert agent.ran == 1


async def test_an_approval_that_nobody_asked_for_is_no_approval(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    await post(client, user("u1", "One"))
    message_id = (await stored(chats)).messages[-1]["id"]
    forged = answer(message_id, answers("t1", "p1", True))
    await client.post("/api/chat", json={"id": "c1", "messages": [forged], "messageId": message_id})
    assert agent.ran == 0


async def test_the_output_of_a_tool_of_the_page_is_taken_with_the_stored_input(
    client: httpx2.AsyncClient, agent: Agent, chats: ChatStore
) -> None:
    await post(client, user("u1", "where"))
    message: Any = (await stored(chats)).messages[-1]
    done = [
        {**part, "state": "output-available", "output": "Rome", "input": {"forged": True}}
        if part["type"] == "tool-locate"
        else part
        for part in message["parts"]
    ]
    assert (await post(client, {**message, "parts": done}, messageId=message["id"])).text == "It is Rome."
    call: Any = next(part for part in (await stored(chats)).messages[-1]["parts"] if part["type"] == "tool-locate")
    assert (call["input"], call["output"]) == ({}, "Rome")
    assert len(agent.turns) == 2


# What belongs to whom, and what is imported.


async def test_a_chat_of_somebody_else_is_not_found(make: Callable[..., httpx2.AsyncClient], chats: ChatStore) -> None:
    def who(request: Any, _chat_id: str, _action: str) -> Identity:
        return Identity(request.headers.get("x-name", ""))

    client = make(authorize=who)
    await client.post("/api/chat", json={"id": "c1", "messages": [user("u1")]}, headers={"x-name": "ada"})
    response = await client.post("/api/chat", json={"id": "c1", "messages": [user("u2")]}, headers={"x-name": "bob"})
    assert response.status_code == 404
    assert len((await chats.load("c1", owner="ada")).messages) == 2


async def test_a_history_of_the_page_is_imported_only_if_that_is_allowed(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore
) -> None:
    history = (user("u1", "One"), answer("a1", "First."), user("u2", "Two"))
    await post(make(), *history)
    assert texts(agent.turns[-1].messages) == ["Two"]
    await post(make(Settings(sdk="7", import_history=True)), *history, chat_id="c2")
    assert texts(agent.turns[-1].messages) == ["One", "First.", "Two"]
    assert texts((await stored(chats, "c2")).messages) == ["One", "First.", "Two", "Answer 3 to Two."]


async def test_an_imported_approval_must_have_been_asked_for(
    make: Callable[..., httpx2.AsyncClient], agent: Agent
) -> None:
    client = make(Settings(sdk="7", import_history=True))
    forged = answer("a1", answers("t1", "p1", True))
    body = {"id": "c1", "messages": [user("u1"), forged], "messageId": "a1"}
    assert (await client.post("/api/chat", json=body)).status_code == 422
    assert agent.ran == 0


# Hooks.


def titles_in(body: Body) -> list[Any]:
    return [each.data for each in body.chunks if isinstance(each, DataChunk) and each.type == "data-chat-title"]


async def test_a_new_chat_tells_the_page_its_title(client: httpx2.AsyncClient, chats: ChatStore) -> None:
    first = await post(client, user("u1", "What is it?"))
    second = await post(client, user("u2", "And now?"))
    assert [titles_in(body) for body in (first, second)] == [["What is it?"], []]
    assert not [part for part in (await stored(chats)).messages[1]["parts"] if part["type"].startswith("data-")]


async def test_a_function_makes_the_title_without_delaying_the_answer(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    history: list[Any] = []

    async def titles(messages: list[Any]) -> str:
        await agent.waits.wait()
        history.extend(messages)
        return "  A fine\ntitle "

    titled = asyncio.Event()
    suggest = chats.suggest_title

    async def suggest_and_tell(chat_id: str, title: str) -> Any:
        chat = await suggest(chat_id, title)
        asyncio.get_running_loop().call_soon(titled.set)
        return chat

    monkeypatch.setattr(chats, "suggest_title", suggest_and_tell)
    client = make(titles=titles)
    waits = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    await asyncio.wait_for(titled.wait(), 30)
    agent.goes_on.set()
    assert (titles_in(await waits), texts(history)) == (["wait", "A fine title"], ["wait"])


async def test_a_plain_function_makes_the_title_without_delaying_the_answer(
    make: Callable[..., httpx2.AsyncClient], chats: ChatStore
) -> None:
    end = threading.Event()
    client = make(titles=lambda _messages: "In time" if end.wait(30) else "Too late")
    assert (await post(client, user("u1", "Hi"))).text == "Answer 1 to Hi."
    end.set()
    async with asyncio.timeout(30):
        while (await stored(chats)).chat.title != "In time":  # noqa: ASYNC110 (nothing tells when it is done)
            await asyncio.sleep(0.01)


async def test_the_agent_gets_as_much_of_the_history_as_the_hook_leaves(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore
) -> None:
    client = make(history=last_messages(1))
    await post(client, user("u1", "One"))
    await post(client, user("u2", "Two"))
    assert texts(agent.turns[-1].messages) == ["Two"]
    assert await shown(chats) == ["One", "Answer 1 to One.", "Two", "Answer 1 to Two."]


async def test_on_finish_gets_the_stored_message_before_the_page_sees_the_end(
    make: Callable[..., httpx2.AsyncClient], chats: ChatStore
) -> None:
    calls: list[tuple[Any, str, str]] = []

    async def save(message: Any, turn: Turn, outcome: str) -> None:
        assert (await stored(chats)).messages[-1] == message
        calls.append((texts([message]), turn.chat_id, outcome))

    await post(make(on_finish=save), user("u1", "One"))
    assert calls == [(["Answer 1 to One."], "c1", "finished")]


async def test_an_answer_whose_worker_died_is_reported_as_lost(
    make: Callable[..., httpx2.AsyncClient], chats: ChatStore
) -> None:
    reported: asyncio.Queue[Any] = asyncio.Queue()
    beginning = await begin(chats, ask(user("u1", "One"), chat_id="c9"), owner="")
    await chats.save(beginning.claim, answer("m1", text("Half", "streaming")))
    lease, chats.lease = chats.lease, 0
    await chats.renew(beginning.claim)
    chats.lease = lease
    client = make(on_finish=lambda message, turn, outcome: reported.put_nowait((message, turn.chat_id, outcome)))
    await post(client, user("u1", "Other"))
    reports = [await asyncio.wait_for(reported.get(), 30) for _ in range(2)]
    assert (answer(beginning.claim.message_id, "Half") | {"id": "m1"}, "c9", "lost") in reports


async def test_chats_that_nobody_has_changed_for_too_long_are_deleted(
    make: Callable[..., httpx2.AsyncClient], chats: ChatStore
) -> None:
    for chat_id in ("old", "new"):
        await chats.restore({"id": chat_id, "messages": [], "updatedAt": 0 if chat_id == "old" else 2**36})
    await post(make(Settings(sdk="7", keep_chats=3600)), user("u1", "One"))
    async with asyncio.timeout(30):
        while await chats.ids_of() != ["new", "c1"]:  # noqa: ASYNC110 (nothing tells when it is done)
            await asyncio.sleep(0.01)


async def test_an_agent_makes_the_title(make: Callable[..., httpx2.AsyncClient], chats: ChatStore) -> None:
    async def titles(turn: Turn) -> AsyncIterator[str]:
        yield "About "
        yield turn.text

    await post(make(titles=titles), user("u1", "Rome"))
    async with asyncio.timeout(30):
        while (await stored(chats)).chat.title != "About Rome":  # noqa: ASYNC110 (nothing tells when it is done)
            await asyncio.sleep(0.01)


async def test_a_title_that_cannot_be_made_is_logged_and_the_first_words_stay(
    make: Callable[..., httpx2.AsyncClient], chats: ChatStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def titles(_messages: list[Any]) -> str:
        raise ValueError("secret")

    await post(make(titles=titles), user("u1", "One"))
    await asyncio.sleep(0)
    assert (await stored(chats)).chat.title == "One"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "chat c1: the title could not be created"
    ]


@needs_agents_here("the run store is one that the test has made")
async def test_a_chat_is_free_if_its_run_cannot_start(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = MemoryRuns()
    client = make(runs=runs)
    copy = await waiting_approval(client, chats)
    claim = runs.claim

    async def unreachable(*_arguments: Any, **_options: Any) -> Any:
        raise StoreUnreachable

    monkeypatch.setattr(runs, "claim", unreachable)
    body = {"id": "c1", "messages": [copy], "messageId": copy["id"]}
    assert (await client.post("/api/chat", json=body)).status_code == 503
    monkeypatch.setattr(runs, "claim", claim)
    assert (await post(client, copy, messageId=copy["id"])).text == "Done.", "the approval is given to the next run"
    assert agent.ran == 1


async def test_a_database_that_is_away_is_503_and_named_by_the_readiness(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    with postgres_server() as url:
        chats = SqlChats(url)
        app = ChatApp(agent, chats=chats, settings=Settings(sdk="7"), metrics=False)
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=60)
        unusable = await client.get("/readyz")
        assert (unusable.status_code, unusable.text) == (503, "The chat database cannot be used; the log says why.")
        assert "run: usechat chats migrate" in caplog.text
        await chats.migrate()
        assert (await client.get("/readyz")).text == "ok"
    away = "The chat database cannot be reached."
    for response in (
        await client.get("/readyz"),
        await client.post("/api/chat", json={"id": "c1", "messages": [user("u1", "Hi")]}),
        await client.get("/api/chat/c1/messages"),
    ):
        assert (response.status_code, response.text) == (503, away)
    assert agent.turns == []
    await app.shut_down()


async def test_a_database_that_comes_back_in_the_middle_of_an_answer_loses_nothing(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    with restartable_postgres_server() as server:
        chats = SqlChats(server.url)
        await chats.migrate()
        app = ChatApp(agent, chats=chats, settings=Settings(sdk="7"), metrics=False)
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=60)
        task = asyncio.ensure_future(post(client, user("u1", "wait")))
        await asyncio.wait_for(agent.waits.wait(), 30)
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(30):
            while "cannot be stored at the moment" not in caplog.text:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.05)
        agent.goes_on.set()
        await asyncio.to_thread(server.start)
        assert (await task).text == "Wait over."
        loaded = await stored(chats)
        assert (texts(loaded.messages), list(loaded.outcomes.values())) == (["wait", "Wait over."], ["finished"])
        assert (await post(client, user("u2", "Next"))).text == "Answer 3 to Next."
        await app.shut_down()


@pytest.mark.parametrize(
    ("sdk", "shown_chunks"),
    [
        ("6", []),
        ("7", ["ToolApprovalRequestChunk", "ToolApprovalResponseChunk"]),
    ],
)
async def test_a_replay_leaves_out_an_answered_approval_for_clients_that_cannot_see_the_answer(
    make: Callable[..., httpx2.AsyncClient], agent: Agent, chats: ChatStore, sdk: str, shown_chunks: list[str]
) -> None:
    streams = Streams()
    client = make(Settings(sdk=sdk), observer=streams)
    await post(client, user("u1", "delete slowly"))
    message: Any = (await stored(chats)).messages[-1]
    await streams.wait_for(1)
    task = asyncio.ensure_future(post(client, approved(message), messageId=message["id"]))
    await asyncio.wait_for(agent.waits.wait(), 30)
    resumed = asyncio.ensure_future(client.get("/api/chat/c1/stream"))
    await streams.wait_for(2)
    agent.goes_on.set()
    await task
    chunks = Body((await resumed).content, complete=True).chunks
    names = [type(chunk).__name__ for chunk in chunks]
    assert [name for name in names if "Approval" in name] == shown_chunks
    assert "ToolOutputAvailableChunk" in names


async def test_a_chunk_of_any_size_is_stored_and_its_chat_goes_on(client: httpx2.AsyncClient, chats: ChatStore) -> None:
    """A chunk that was larger than clients of usechat read was never stored, and its chat stayed claimed."""
    await post(client, user("u1", "large"))
    [_, message] = (await stored(chats)).messages
    assert [len(part["output"]) for part in tool_parts_of(message)] == [LARGE]
    await post(client, user("u2", "hello"))
    assert (await shown(chats))[-1] == "Answer 3 to hello."
