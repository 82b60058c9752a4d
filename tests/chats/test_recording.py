"""An answer is stored while it is streamed, from the frames that the page gets."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from sqlalchemy import event

from tests.chats.talking import answer, answers, ask, asks, begin, text, turn, user
from usechat import parts
from usechat.chats import Begun, ChatStore, Claim, MemoryChats, SqlChats
from usechat.chats.recording import AnswerRecorder
from usechat.errors import ChatsUnreachable, ClaimLost
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


def frames_of(beginning: Begun, sent_parts: Iterable[parts.Part]) -> list[bytes]:
    stream = FrameStream(MessageStream(message_id=beginning.claim.message_id, continues=beginning.continues))
    return [stream.send(part) for part in sent_parts]


def page_shows(beginning: Begun, frames: Iterable[bytes]) -> UIMessage:
    builder = MessageBuilder(message=beginning.continues)
    for chunk in ChunkDecoder().receive(b"".join(frames)):
        builder.receive(chunk)
    return builder.message


async def saved(store: ChatStore) -> list[UIMessage]:
    """What is stored of the running answer."""
    async with store.transaction("c1", writes=False) as transaction:
        nodes = await transaction.nodes()
        messages = await transaction.messages([node.key for node in nodes if node.outcome == "running"])
    return list(messages.values())


async def test_what_the_page_shows_is_what_is_stored(store: ChatStore) -> None:
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7")
    recorder.start()
    sent_parts: list[parts.Part] = [
        parts.Text("Let me "),
        parts.Text("look."),
        parts.ToolCall("t1", "weather", {}),
        parts.ToolResult("t1", 21),
    ]
    frames = frames_of(
        beginning, [*sent_parts, parts.Data("x", 1, transient=True), parts.Text("Warm."), parts.Finish()]
    )
    for each in frames:
        recorder.receive(each)
    stored = await recorder.finish("finished")
    assert stored == page_shows(beginning, frames)
    assert (await store.load("c1", owner="ada")).messages[-1] == stored


async def test_a_finished_step_is_saved_at_once(store: ChatStore) -> None:
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7", interval=10)
    recorder.start()
    frames = frames_of(beginning, [parts.Text("One."), parts.Step(), parts.Text("Two.")])
    for each in frames:
        recorder.receive(each)

    async def is_saved() -> bool:
        return bool(await saved(store))

    await eventually(is_saved)
    assert await saved(store) == [page_shows(beginning, frames)]
    await recorder.finish("stopped")


async def test_a_short_answer_is_stored_once_at_its_end(store: ChatStore) -> None:
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7", interval=10, pause=0)
    recorder.start()
    frames = frames_of(beginning, [parts.Text("Yes."), parts.Finish()])
    recorder.receive(b"".join(frames))
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert await saved(store) == []
    assert await recorder.finish("finished") == page_shows(beginning, frames)


async def test_a_long_step_is_saved_now_and_then(store: ChatStore) -> None:
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7", interval=0.02, pause=0)
    recorder.start()
    first, second = frames_of(beginning, [parts.Text("One "), parts.Text("two")])
    for count, frame in enumerate([first, second], 1):
        recorder.receive(frame)
        message = page_shows(beginning, [first, second][:count])

        async def is_saved(message: UIMessage = message) -> bool:
            return await saved(store) == [message]

        await eventually(is_saved)
    await recorder.finish("stopped")
    assert (await store.load("c1", owner="ada")).messages[-1]["parts"][-1] == text("One two", "done")


async def test_a_continued_message_is_recorded_whole(store: ChatStore) -> None:
    message_id = await turn(store, ask(user("u1")), asks("t1", "p1"), outcome="waiting")
    yes = answer(message_id, answers("t1", "p1", True))
    beginning = await begin(store, ask(yes, message_id=message_id))
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7")
    frames = frames_of(beginning, [parts.ToolResult("t1", 21), parts.Text("Warm."), parts.Finish()])
    for each in frames:
        recorder.receive(each)
    stored = await recorder.finish("finished")
    assert stored is not None
    assert stored == page_shows(beginning, frames)
    assert [dict(part)["state"] for part in stored["parts"] if "state" in part] == ["output-available", "done"]


async def test_a_failed_answer_is_stored_up_to_its_error(store: ChatStore) -> None:
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7")
    for each in frames_of(
        beginning, [parts.Text("Half"), parts.ToolCall("t1", "weather", {}), parts.Error("No luck.")]
    ):
        recorder.receive(each)
    stored = await recorder.finish("failed")
    assert stored is not None
    assert [dict(part).get("state") for part in stored["parts"]] == [None, "done", "output-error"]


async def test_a_silent_answer_keeps_its_chat(store: ChatStore) -> None:
    beginning = await begin(store, ask(user("u1")))

    async def expires() -> float:
        async with store.transaction("c1", writes=False) as transaction:
            row = await transaction.claim()
        return 0 if row is None else row.expires

    first = await expires()
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7", interval=0.02)
    recorder.start()

    async def is_renewed() -> bool:
        return await expires() > first

    await eventually(is_renewed)
    await recorder.finish("finished")


async def test_a_run_that_lost_its_chat_is_ended(store: ChatStore) -> None:
    lost: list[str] = []
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(
        store,
        beginning.claim,
        continues=beginning.continues,
        sdk="7",
        interval=0.02,
        on_lost=lambda: lost.append("lost"),
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
    beginning = await begin(store, ask(user("u1")))
    connection = sqlite3.connect(tmp_path / "chats.db")
    connection.execute("ALTER TABLE usechat_claims RENAME TO away")
    recorder = AnswerRecorder(store, beginning.claim, continues=beginning.continues, sdk="7", interval=0.02, pause=0.02)
    recorder.start()
    frames = frames_of(beginning, [parts.Text("All "), parts.Text("of it."), parts.Finish()])
    recorder.receive(frames[0])

    async def is_away() -> bool:
        return "cannot be stored at the moment" in caplog.text

    await eventually(is_away)
    recorder.receive(frames[1])
    recorder.receive(frames[2])
    finishing = asyncio.create_task(recorder.finish("finished"))
    attempts: list[object] = []
    event.listen(store.engine.sync_engine, "begin", attempts.append)

    async def has_tried_again() -> bool:
        return len(attempts) > 2

    await eventually(has_tried_again)
    with pytest.raises(ChatsUnreachable):
        await store.renew(beginning.claim)
    assert caplog.text.count("the chat database cannot be written: no such table: usechat_claims") == 1
    connection.execute("ALTER TABLE away RENAME TO usechat_claims")
    connection.close()
    assert await finishing == page_shows(beginning, frames)
    assert caplog.text.count("cannot be stored at the moment") == 1
    await store.close()


async def test_frames_that_cannot_be_read_free_the_chat_with_what_was_read(
    store: ChatStore, caplog: pytest.LogCaptureFixture
) -> None:
    beginning = await begin(store, ask(user("u1")))
    recorder = AnswerRecorder(store, beginning.claim, sdk="7")
    recorder.start()
    for each in frames_of(beginning, [parts.Text("Half")]):
        recorder.receive(each)
    recorder.receive(b'data: {"type":"no-such-chunk"}\n\n')
    await recorder.finish("failed")
    assert (await store.load("c1", owner="ada")).messages[-1]["parts"] == [
        {"type": "step-start"},
        {"type": "text", "text": "Half", "state": "done"},
    ]
    assert [record.message for record in caplog.records if record.exc_info] == [
        f"message {beginning.claim.message_id}: the rest of the answer cannot be read, nor stored"
    ]
    assert isinstance(await begin(store, ask(user("u2"))), Begun)


class BrokenChats(MemoryChats):
    """A store with a fault in its own code."""

    async def save(self, claim: Claim, message: UIMessage, *, chunks: int = 0, finished: int | None = None) -> None:
        raise ValueError(f"a fault: {claim.run_id}, {message['id']}, {chunks}, {finished}")


async def test_an_answer_that_cannot_be_stored_is_ended_and_renewed_by_nobody() -> None:
    store = BrokenChats()
    beginning = await begin(store, ask(user("u1")))
    ended = asyncio.Event()
    recorder = AnswerRecorder(store, beginning.claim, sdk="7", interval=0.01, on_lost=ended.set)
    recorder.start()
    for each in frames_of(beginning, [parts.Text("Half")]):
        recorder.receive(each)
    async with asyncio.timeout(PATIENCE):
        await ended.wait()
    await recorder.finish("failed")
    assert isinstance(await begin(store, ask(user("u2"))), Begun)
