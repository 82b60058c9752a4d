"""An answer is stored while it is streamed, from the frames that the page gets."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from tests.chats.talking import answer, answers, ask, asks, begin, text, turn, user
from usechat import parts
from usechat.chats import Begun, ChatStore, MemoryChats, SqlChats
from usechat.chats.recording import AnswerRecorder
from usechat.errors import ClaimLost
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder, FrameStream
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage

PATIENCE = 30


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChatStore]:
    store = MemoryChats() if request.param == "memory" else SqlChats(str(tmp_path / "chats.db"))
    yield store
    await store.close()


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def frames_of(begun: Begun, said: Iterable[parts.Part]) -> list[bytes]:
    stream = FrameStream(MessageStream(message_id=begun.claim.message_id, continues=begun.continues))
    return [stream.send(part) for part in said]


def page_shows(begun: Begun, frames: Iterable[bytes]) -> UIMessage:
    builder = MessageBuilder(message=begun.continues)
    for chunk in ChunkDecoder().receive(b"".join(frames)):
        builder.receive(chunk)
    return builder.message


async def saved(store: ChatStore) -> list[UIMessage]:
    """What is stored of the running answer."""
    async with store.transaction("c1", writes=False) as transaction:
        nodes = await transaction.nodes()
        found = await transaction.messages([node.key for node in nodes if node.outcome == "running"])
    return list(found.values())


async def test_what_the_page_shows_is_what_is_stored(store: ChatStore) -> None:
    begun = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7")
    recorder.start()
    said: list[parts.Part] = [
        parts.Text("Let me "),
        parts.Text("look."),
        parts.ToolCall("t1", "weather", {}),
        parts.ToolResult("t1", 21),
    ]
    frames = frames_of(begun, [*said, parts.Data("x", 1, transient=True), parts.Text("Warm."), parts.Finish()])
    for each in frames:
        recorder.receive(each)
    stored = await recorder.finish("finished")
    assert stored == page_shows(begun, frames)
    assert (await store.load("c1", owner="ada")).messages[-1] == stored


async def test_a_finished_step_is_saved_at_once(store: ChatStore) -> None:
    begun = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7", interval=10)
    recorder.start()
    frames = frames_of(begun, [parts.Text("One."), parts.Step(), parts.Text("Two.")])
    for each in frames:
        recorder.receive(each)

    async def is_saved() -> bool:
        return bool(await saved(store))

    await eventually(is_saved)
    assert await saved(store) == [page_shows(begun, frames)]
    await recorder.finish("stopped")


async def test_a_long_step_is_saved_now_and_then(store: ChatStore) -> None:
    begun = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7", interval=0.02, pause=0)
    recorder.start()
    first, second = frames_of(begun, [parts.Text("One "), parts.Text("two")])
    for count, frame in enumerate([first, second], 1):
        recorder.receive(frame)
        shown = page_shows(begun, [first, second][:count])

        async def is_saved(shown: UIMessage = shown) -> bool:
            return await saved(store) == [shown]

        await eventually(is_saved)
    await recorder.finish("stopped")
    assert (await store.load("c1", owner="ada")).messages[-1]["parts"][-1] == text("One two", "done")


async def test_a_continued_message_is_recorded_whole(store: ChatStore) -> None:
    message_id = await turn(store, ask(user("u1")), asks("t1", "p1"), outcome="waiting")
    yes = answer(message_id, answers("t1", "p1", True))
    begun = await begin(store, ask(yes, message_id=message_id))
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7")
    frames = frames_of(begun, [parts.ToolResult("t1", 21), parts.Text("Warm."), parts.Finish()])
    for each in frames:
        recorder.receive(each)
    stored = await recorder.finish("finished")
    assert stored is not None
    assert stored == page_shows(begun, frames)
    assert [dict(part)["state"] for part in stored["parts"] if "state" in part] == ["output-available", "done"]


async def test_a_failed_answer_is_stored_up_to_its_error(store: ChatStore) -> None:
    begun = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7")
    for each in frames_of(begun, [parts.Text("Half"), parts.ToolCall("t1", "weather", {}), parts.Error("No luck.")]):
        recorder.receive(each)
    stored = await recorder.finish("failed")
    assert stored is not None
    assert [dict(part).get("state") for part in stored["parts"]] == [None, "done", "output-error"]


async def test_a_silent_answer_keeps_its_chat(store: ChatStore) -> None:
    begun = await begin(store, ask(user("u1")))

    async def expires() -> float:
        async with store.transaction("c1", writes=False) as transaction:
            row = await transaction.claim()
        return 0 if row is None else row.expires

    first = await expires()
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7", interval=0.02)
    recorder.start()

    async def is_renewed() -> bool:
        return await expires() > first

    await eventually(is_renewed)
    await recorder.finish("finished")


async def test_a_run_that_lost_its_chat_is_ended(store: ChatStore) -> None:
    lost: list[str] = []
    begun = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(
        store, begun.claim, continues=begun.continues, sdk="7", interval=0.02, on_lost=lambda: lost.append("lost")
    )
    recorder.start()
    await store.delete("c1", owner="ada")

    async def is_lost() -> bool:
        return bool(lost)

    await eventually(is_lost)
    with pytest.raises(ClaimLost):
        await recorder.finish("finished")
    assert lost == ["lost"]


async def test_a_database_that_comes_back_in_time_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqlChats(str(tmp_path / "chats.db"))
    begun = await begin(store, ask(user("u1")))
    connection = sqlite3.connect(tmp_path / "chats.db")
    connection.execute("ALTER TABLE usechat_claims RENAME TO away")
    recorder = AnswerRecorder(store, begun.claim, continues=begun.continues, sdk="7", interval=0.02, pause=0.02)
    recorder.start()
    frames = frames_of(begun, [parts.Text("All "), parts.Text("of it."), parts.Finish()])
    recorder.receive(frames[0])

    async def is_away() -> bool:
        return "cannot be stored at the moment" in caplog.text

    await eventually(is_away)
    recorder.receive(frames[1])
    recorder.receive(frames[2])
    finishing = asyncio.create_task(recorder.finish("finished"))
    before = caplog.text.count("does not answer")

    async def has_tried() -> bool:
        return caplog.text.count("does not answer") > before + 1

    await eventually(has_tried)
    connection.execute("ALTER TABLE away RENAME TO usechat_claims")
    connection.close()
    assert await finishing == page_shows(begun, frames)
    assert caplog.text.count("cannot be stored at the moment") == 1
    await store.close()
