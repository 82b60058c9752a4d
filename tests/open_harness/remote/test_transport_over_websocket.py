"""Chats with a run that everybody shares, as Open Harness serves it: what becomes of a turn."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from tests.open_harness.remote.broadcasting import PATIENCE, BroadcastingServer, broadcasting
from usechat.open_harness import OpenHarnessChatTransport, RemoteRuntime
from usechat.open_harness.remote.flows import LOST, NO_TEXT, NOT_WAITING, SILENT
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest

START = {"type": "node:start", "nodeId": "a", "runId": "a-1"}
END = {"type": "flow:complete", "flowName": "f", "status": "complete"}
PAUSED = {"type": "flow:paused"}


def said(text: Any) -> Mapping[str, Any]:
    return {"type": "agent:text:delta", "nodeId": "a", "runId": "a-1", "content": f"You said {text}."}


def transport_to(server: BroadcastingServer, **options: Any) -> OpenHarnessChatTransport:
    return OpenHarnessChatTransport(partial(RemoteRuntime, server.url, **{"silence": 5, **options}))


def request(text: str, chat_id: str = "c1") -> ChatRequest:
    message = {"id": f"{chat_id}-{text}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return ChatRequest.parse({"id": chat_id, "messages": [message]})


async def answer(transport: OpenHarnessChatTransport, text: str, chat_id: str = "c1") -> list[Chunk]:
    return [chunk async for chunk in await transport.send_messages(request(text, chat_id))]


def text_of(stream: list[Chunk]) -> str:
    return "".join(chunk.delta for chunk in stream if isinstance(chunk, chunks.TextDeltaChunk))


def errors_of(stream: list[Chunk]) -> list[str]:
    return [chunk.error_text for chunk in stream if isinstance(chunk, chunks.ErrorChunk)]


def answer_a_resume(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
    if command["type"] == "resume":
        server.emit({"type": "flow:resumed"}, START, said(command["message"]), PAUSED)


async def test_every_turn_of_every_chat_resumes_the_paused_run() -> None:
    async with broadcasting(answer_a_resume) as server:
        transport = transport_to(server)
        for text in ("one", "two"):
            assert text_of(await answer(transport, text)) == f"You said {text}."
        others = await asyncio.gather(*[answer(transport, chat, chat) for chat in ("c2", "c3", "c4")])
        assert [text_of(other) for other in others] == ["You said c2.", "You said c3.", "You said c4."]
        assert [command["type"] for command in server.commands] == ["resume"] * 5
        await server.until(lambda server: not server.clients)


async def test_a_second_message_of_a_chat_is_sent_to_the_node_that_runs() -> None:
    def take(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        if command["type"] == "resume":
            server.emit({"type": "flow:resumed"}, START, said(command["message"]))
        elif command["type"] == "send":
            server.emit(said(f"{command['message']} to {command['runId']}"), END)

    async with broadcasting(take) as server:
        transport = transport_to(server)
        output: list[Chunk] = []

        async def listen() -> None:
            async for chunk in await transport.send_messages(request("one")):
                output.append(chunk)  # noqa: PERF401 (it is looked at meanwhile)

        first = asyncio.create_task(listen())
        await server.until(lambda _: text_of(output))
        second = await answer(transport, "two")
        await first
        assert text_of(output) == "You said one."
        assert text_of(second) == "You said two to a-1."
        assert errors_of(second) == []


@pytest.mark.parametrize(
    ("text", "events", "error"),
    [("hello", [], SILENT), ("hello", [END], NOT_WAITING), ("", [], NO_TEXT)],
    ids=["silent", "over", "textless"],
)
async def test_a_turn_that_nobody_takes_is_an_error_chunk_that_says_so(
    text: str, events: list[Mapping[str, Any]], error: str
) -> None:
    async with broadcasting() as server:
        # A tenth of it is how long the state of the run is waited for.
        silence = PATIENCE if events else 5
        turn = asyncio.create_task(answer(transport_to(server, silence=silence), text))
        await server.until(lambda server: server.opened)
        server.emit(*events)
        assert errors_of(await turn) == [error]


async def test_a_link_that_is_lost_is_an_error_chunk_behind_what_was_said() -> None:
    def take(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        server.emit(START, said(command["message"]))

    async with broadcasting(take) as server:
        stream = await transport_to(server).send_messages(request("hello"))
        output: list[Chunk] = []
        async for chunk in stream:
            output.append(chunk)
            if isinstance(chunk, chunks.TextDeltaChunk):
                server.cut()
        assert (text_of(output), errors_of(output)) == ("You said hello.", [LOST])


async def test_a_flow_that_others_abort_is_an_error_and_a_stop_of_ones_own_is_none() -> None:
    def take(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        match command["type"]:
            case "resume":
                server.emit(START, said(command["message"]))
            case "abort":
                server.emit(PAUSED)

    async with broadcasting(take) as server:
        aborted = asyncio.create_task(answer(transport_to(server), "one"))
        await server.until(lambda server: server.commands)
        server.emit({"type": "flow:aborted"})
        assert errors_of(await aborted) == ["The flow was stopped before it finished."]
        stream = await transport_to(server).send_messages(request("two"))
        assert isinstance(await anext(stream), chunks.StartChunk)
        await server.until(lambda server: len(server.commands) == 2)
        await stream.aclose()  # type: ignore[attr-defined]
        assert server.commands[2] == {"type": "abort", "resumable": True}
