"""One turn over a socket as an async iterator: who waits for whom, and what closing it does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from examples.agent_ops_session.server import Sessions, serving
from tests.agent_ops.frames import CREATE, adapter, delta, finalize
from tests.agent_ops.talking import PATIENCE, until
from usechat.agent_ops.connection import SessionSocket, session_url
from usechat.agent_ops.prompt_tracker import PromptTracker
from usechat.agent_ops.transport import SILENT, TurnExchange
from usechat.agent_ops.wire import prompt_command
from usechat.errors import PublicError


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with serving() as running:
        yield running


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[SessionSocket]:
    socket = await SessionSocket.open(url, "ada")
    try:
        yield socket
    finally:
        await socket.close()


def exchange(prompt: str, idle_timeout: float | None = None) -> TurnExchange:
    return TurnExchange(
        adapter(prompt=PromptTracker(prompt)), [prompt_command(prompt, [], None)], idle_timeout=idle_timeout
    )


async def test_closing_the_iterator_between_two_frames_aborts_the_turn(sessions: Sessions) -> None:
    async with connected(session_url(sessions.url, "s1")) as socket:
        turn = exchange("slow")
        async with asyncio.timeout(PATIENCE), aclosing(turn.events(socket)) as events:
            async for event in events:
                list(turn.adapter.feed(event))
                if turn.adapter.prompt.has_started:
                    break
        await until(lambda: not sessions["s1"].busy)
        assert [command["type"] for _, command in sessions["s1"].commands] == ["prompt", "abort"]


async def test_an_error_in_the_code_that_handles_a_frame_aborts_the_turn(sessions: Sessions) -> None:
    async with connected(session_url(sessions.url, "s1")) as socket:
        turn = exchange("slow")

        async def handle() -> None:
            async with aclosing(turn.events(socket)) as events:
                async for event in events:
                    list(turn.adapter.feed(event))
                    if turn.adapter.prompt.has_started:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(handle(), PATIENCE)
        await until(lambda: not sessions["s1"].busy)
        assert [command["type"] for _, command in sessions["s1"].commands] == ["prompt", "abort"]


async def test_frames_that_wait_to_be_handled_are_no_silence() -> None:
    frames = [CREATE, *map(delta, "abc"), finalize()]
    sent = asyncio.Event()

    async def session(connection: ServerConnection) -> None:
        await connection.recv()
        for frame in frames:
            await connection.send(json.dumps(frame))
        sent.set()
        await connection.wait_closed()

    async with serve(session, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
        async with connected(url) as socket:
            turn = exchange("hello", idle_timeout=2)
            received = []
            async with aclosing(turn.events(socket)) as events:
                async for event in events:
                    received.append(event)
                    list(turn.adapter.feed(event))
                    if len(received) == 1:
                        await sent.wait()
                        await asyncio.sleep(2.1)  # longer than the session may be silent
            assert (received, turn.adapter.ended) == (frames, True)


async def test_silence_is_an_error_also_after_the_first_frame() -> None:
    async def session(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send('{"type":"toast"}')
        await connection.wait_closed()

    async with serve(session, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
        async with connected(url) as socket, aclosing(exchange("hello", 2).events(socket)) as events:
            assert await anext(events) == {"type": "toast"}
            with pytest.raises(PublicError, match=SILENT):
                await asyncio.wait_for(anext(events), PATIENCE)


async def test_a_cancellation_is_not_taken_for_silence(sessions: Sessions) -> None:
    async with connected(session_url(sessions.url, "s1")) as socket:
        turn = exchange("hang", idle_timeout=60)

        async def listen() -> None:
            async with aclosing(turn.events(socket)) as events:
                async for event in events:
                    list(turn.adapter.feed(event))

        task = asyncio.create_task(listen())
        await until(lambda: turn.adapter.prompt.has_started)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
