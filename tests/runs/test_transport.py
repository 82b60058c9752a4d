"""A source as a chat transport: what it answers, how it is left, and how it is found again."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from usechat import parts
from usechat.errors import ChatBusy, StreamFailed
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import Run
from usechat.runs.settings import Settings
from usechat.runs.transport import RunChatTransport
from usechat.sources import ChatTransport, as_source
from usechat.turn import Turn, TurnContext, TurnInput

pytestmark = pytest.mark.slow

PATIENCE = 30.0


class Agent:
    """Says a word, waits for the test, says another; takes a moment to stop."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ends: list[str] = []

    async def answer(self, turn: Turn) -> AsyncIterator[Any]:
        try:
            yield f"{turn.text}: one "
            self.waits.set()
            await self.go_on.wait()
            yield "two"
            self.ends.append("finished")
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            self.ends.append("stopped")
            raise


def asked(chat_id: str = "c1", **more: Any) -> ChatRequest:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    return ChatRequest.parse({"id": chat_id, "messages": [message], **more})


def made_of(agent: Agent, **options: Any) -> RunChatTransport:
    return RunChatTransport(as_source(agent.answer), settings=Settings(sdk="7"), **options)


def text_of(answer_chunks: list[Chunk]) -> str:
    builder = MessageBuilder(sdk="7")
    for chunk in answer_chunks:
        builder.receive(chunk)
    message: Any = builder.message
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


async def rest_of(stream: AsyncIterator[Chunk] | None) -> list[Chunk]:
    assert stream is not None
    async with asyncio.timeout(PATIENCE):
        return [chunk async for chunk in stream]


async def close(stream: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        await stream.aclose()


async def test_it_is_a_chat_transport_that_answers_from_start_to_finish() -> None:
    agent = Agent()
    agent.go_on.set()
    transport = made_of(agent)
    assert isinstance(transport, ChatTransport)
    answer_chunks = await rest_of(await transport.send_messages(asked()))
    assert isinstance(answer_chunks[0], chunks.StartChunk)
    assert isinstance(answer_chunks[-1], chunks.FinishChunk)
    assert (text_of(answer_chunks), agent.ends) == ("hi: one two", ["finished"])


@pytest.mark.parametrize("read", [0, 1, 4])
async def test_the_source_has_stopped_when_the_iterator_is_closed(read: int) -> None:
    agent = Agent()
    stream = await made_of(agent).send_messages(asked())
    for _ in range(read):
        await anext(stream)
    await agent.waits.wait()
    await close(stream)
    assert agent.ends == ["stopped"]
    await close(stream)


async def test_an_iterator_that_is_cancelled_while_it_waits_stops_the_source() -> None:
    agent = Agent()
    stream = await made_of(agent).send_messages(asked())
    reading = asyncio.ensure_future(rest_of(stream))
    await agent.waits.wait()
    await asyncio.sleep(0.05)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await close(stream)
    assert agent.ends == ["stopped"]


async def test_a_closed_answer_leaves_the_chat_free() -> None:
    agent = Agent()
    transport = made_of(agent)
    first = await transport.send_messages(asked())
    await anext(first)
    with pytest.raises(ChatBusy):
        await transport.send_messages(asked(messages=[{"id": "u2", "role": "user", "parts": []}]))
    await close(first)
    agent.go_on.set()
    assert text_of(await rest_of(await transport.send_messages(asked()))) == "hi: one two"


async def test_a_stream_that_was_lost_is_given_again_from_its_start() -> None:
    agent = Agent()
    transport = made_of(agent)
    first = await transport.send_messages(asked())
    start = await anext(first)
    again = await transport.reconnect_to_stream("c1")
    assert again is not None
    assert await anext(again) == start
    other = await transport.reconnect_to_stream("c1")
    agent.go_on.set()
    assert text_of([start, *await rest_of(again)]) == text_of(await rest_of(other)) == "hi: one two"
    assert text_of([start, *await rest_of(first)]) == "hi: one two"


async def test_leaving_a_stream_that_was_given_again_stops_nothing() -> None:
    agent = Agent()
    transport = made_of(agent)
    first = await transport.send_messages(asked())
    again = await transport.reconnect_to_stream("c1")
    await close(again)
    agent.go_on.set()
    assert text_of(await rest_of(first)) == "hi: one two"


async def test_there_is_nothing_to_reconnect_to_when_nothing_runs() -> None:
    agent = Agent()
    agent.go_on.set()
    transport = made_of(agent)
    assert await transport.reconnect_to_stream("c1") is None
    await rest_of(await transport.send_messages(asked()))
    assert await transport.reconnect_to_stream("c1") is None


async def test_a_continuation_goes_on_with_its_message() -> None:
    agent = Agent()
    agent.go_on.set()
    tool = {"type": "tool-t", "toolCallId": "t1", "state": "output-available", "input": {}, "output": 1}
    message = {"id": "m1", "role": "assistant", "parts": [tool]}
    request = asked(messages=[{"id": "u1", "role": "user", "parts": []}, message], messageId="m1")
    answer_chunks = await rest_of(await made_of(agent).send_messages(request))
    assert answer_chunks[0] == chunks.StartChunk("m1")
    assert [type(chunk) for chunk in answer_chunks[1:3]] == [chunks.StartStepChunk, chunks.TextStartChunk]


@pytest.mark.parametrize(("trigger", "user_message_id"), [("submit-message", "u1"), ("regenerate-message", "")])
async def test_only_a_message_that_was_sent_can_be_sent_again(trigger: str, user_message_id: str) -> None:
    agent, store = Agent(), MemoryRuns()
    agent.go_on.set()
    await rest_of(await made_of(agent, runs=store).send_messages(asked(trigger=trigger)))
    latest = await store.latest("c1")
    assert latest is not None
    assert latest.user_message_id == user_message_id
    assert (latest.user_message_digest != "") is (user_message_id != "")


async def test_a_failure_shows_a_reference_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "So far, "
        raise ValueError("the password is hunter2")

    with caplog.at_level(logging.ERROR):
        answer_chunks = await rest_of(await RunChatTransport(as_source(agent)).send_messages(asked()))
    [error] = [chunk for chunk in answer_chunks if isinstance(chunk, chunks.ErrorChunk)]
    assert error.error_text.startswith("An error occurred. Reference: ")
    assert error.error_text.rpartition(" ")[2] in caplog.text
    with pytest.raises(StreamFailed):
        text_of(answer_chunks)


async def test_the_text_of_a_failure_can_be_chosen() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield ""
        raise ValueError("secret")

    transport = RunChatTransport(
        as_source(agent), settings=Settings(on_error=lambda error: f"Sorry: {type(error).__name__}")
    )
    answer_chunks = await rest_of(await transport.send_messages(asked()))
    assert [chunk.error_text for chunk in answer_chunks if isinstance(chunk, chunks.ErrorChunk)] == [
        "Sorry: ValueError"
    ]


async def test_what_it_says_can_be_read_back_into_parts() -> None:
    agent = Agent()
    agent.go_on.set()
    answer_parts: list[parts.Part] = []
    turn = TurnContext(TurnInput(asked()))
    turn.connect(answer_parts.append)
    await as_source(made_of(agent)).drive(turn)
    assert "".join(part.text for part in answer_parts if isinstance(part, parts.Text)) == "hi: one two"


async def test_an_iterator_that_is_dropped_unclosed_keeps_nothing_of_its_run() -> None:
    agent = Agent()
    agent.go_on.set()
    transport = made_of(agent)
    answer = await transport.send_messages(asked("dropped"))
    assert runs("dropped") == 1
    async with asyncio.timeout(PATIENCE):
        while not agent.ends:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    del answer
    async with asyncio.timeout(PATIENCE):
        while runs("dropped"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def runs(chat_id: str) -> int:
    """How many runs of a chat are kept by somebody."""
    gc.collect()
    return sum(type(item) is Run and item.info.chat_id == chat_id for item in gc.get_objects())
