"""The chat's state with a transport that says what the test says; `tests/conformance/test_client.py` has the rest."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.client.endpoints import HELLO, Endpoint, frame, served
from usechat.client import Chat, SyncChat, ToolView, is_complete_with_tool_calls
from usechat.client.chat import transport_for
from usechat.client.transport import HttpChatTransport
from usechat.client.websocket import WebSocketChatTransport
from usechat.errors import InvalidSetting, RequestRefused, StreamFailed
from usechat.protocol.chunks import Chunk, chunk_from_json
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage

pytestmark = pytest.mark.quick

QUESTION: Any = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


class Scripted:
    """A transport that answers each request with the next list of chunks; ``None`` in a list waits without end."""

    def __init__(self, *answers: Sequence[Any], resumed: Sequence[Any] | None = None) -> None:
        self._answers = list(answers)
        self._resumed = resumed
        self.requests: list[ChatRequest] = []
        self.closed = 0
        self.stopped: list[str] = []

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        return self._stream(self._answers.pop(0))

    async def reconnect_to_stream(self, _chat_id: str) -> AsyncIterator[Chunk] | None:
        return None if self._resumed is None else self._stream(self._resumed)

    async def stop(self, chat_id: str) -> bool:
        self.stopped.append(chat_id)
        return True

    async def _stream(self, answer: Sequence[Any]) -> AsyncIterator[Chunk]:
        try:
            for chunk in answer:
                if chunk is None:
                    await asyncio.Event().wait()
                yield chunk_from_json(chunk)
                await asyncio.sleep(0)
        finally:
            self.closed += 1


def text_of(chat: Chat) -> str:
    assert chat.last is not None
    return chat.last.text


async def test_the_example_of_the_documentation() -> None:
    tool = {"toolCallId": "c1", "toolName": "weather"}
    answer = [
        *HELLO[:1],
        {"type": "tool-input-available", **tool, "input": {"city": "Paris"}},
        {"type": "tool-output-available", "toolCallId": "c1", "output": {"celsius": 21}},
        *HELLO[1:],
    ]
    with served(Endpoint(b"".join(map(frame, answer)))) as url:
        printed = ""
        async with Chat(url) as chat:
            async for update in chat.send("What is the weather in Paris?"):
                printed += update.text_delta
            assert chat.last is not None
            assert chat.last.tools[0].output == {"celsius": 21}
    assert printed == "Hello"


async def test_the_status_follows_the_answer() -> None:
    async with Chat(Scripted(HELLO)) as chat:
        statuses: list[str] = [chat.status]
        reply = chat.send("hi")
        statuses.append(chat.status)
        pairs = [(update.chunk.__class__.__name__, chat.status) async for update in reply]
        statuses.append(chat.status)
        assert statuses == ["ready", "submitted", "ready"]
    assert ("StartChunk", "submitted") in pairs
    assert ("TextDeltaChunk", "streaming") in pairs


async def test_a_failure_is_raised_and_kept_and_can_be_cleared() -> None:
    failing = [*HELLO[:4], {"type": "error", "errorText": "No luck."}]
    async with Chat(Scripted(failing, failing, HELLO)) as chat:
        with pytest.raises(StreamFailed, match=r"No luck\."):
            await chat.send("hi")
        assert (chat.status, str(chat.error), text_of(chat)) == ("error", "No luck.", "Hel")
        with pytest.raises(StreamFailed):
            async for _ in chat.regenerate():
                pass
        chat.clear_error()
        assert (chat.status, chat.error) == ("ready", None)
        await chat.regenerate()
        assert text_of(chat) == "Hello"


async def test_a_reply_that_nobody_awaits_goes_on() -> None:
    async with Chat(Scripted(HELLO)) as chat:
        chat.send("hi")
        while chat.status != "ready":  # noqa: ASYNC110 (there is nothing to await)
            await asyncio.sleep(0)
        assert text_of(chat) == "Hello"


async def test_stop_keeps_what_has_arrived() -> None:
    transport = Scripted([*HELLO[:4], None])
    async with Chat(transport, id="c1") as chat:
        async for update in chat.send("hi"):
            if update.text_delta:
                break
        await chat.stop()
        assert (chat.status, chat.error, text_of(chat)) == ("ready", None, "Hel")
        assert transport.closed == 1
        assert transport.stopped == []  # closing the stream did it


async def test_stop_also_stops_a_resumed_answer_on_the_server() -> None:
    transport = Scripted(resumed=[*HELLO[:4], None])
    async with Chat(transport, id="c1", messages=[QUESTION]) as chat:
        async for update in chat.resume():
            if update.text_delta:
                break
        await chat.stop()
        assert text_of(chat) == "Hel"
    assert transport.stopped == ["c1"]


async def test_a_second_resume_replaces_the_first() -> None:
    transport = Scripted(resumed=[*HELLO[:4], None])
    async with Chat(transport, messages=[QUESTION]) as chat:
        first = chat.resume()
        async for update in first:
            if update.text_delta:
                break
        second = chat.resume()
        await first
        async for update in second:
            if update.text_delta:
                break
        assert (len(chat.messages), text_of(chat), chat.status) == (2, "Hel", "streaming")


async def test_nothing_to_resume_changes_nothing() -> None:
    async with Chat(Scripted(), messages=[QUESTION]) as chat:
        await chat.resume()
        assert (chat.messages, chat.status) == ([QUESTION], "ready")


async def test_closing_a_chat_stops_its_requests() -> None:
    transport = Scripted([*HELLO[:4], None])
    async with Chat(transport) as chat:
        async for update in chat.send("hi"):
            if update.text_delta:
                break
    assert transport.closed == 1


async def test_a_tool_may_be_answered_while_the_answer_is_streamed() -> None:
    call = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "location", "input": {}}
    transport = Scripted([HELLO[0], HELLO[1], call, {"type": "finish-step"}, {"type": "finish"}], HELLO)
    tools: list[ToolView] = []

    async def called(tool: ToolView) -> None:
        tools.append(tool)
        chat.add_tool_output(tool.call_id, "Paris")

    async with Chat(transport, send_automatically_when=is_complete_with_tool_calls, on_tool_call=called) as chat:
        await chat.send("hi")
        assert [(tool.name, tool.input) for tool in tools] == [("location", {})]
        assert [request.message_id for request in transport.requests] == [None, "m1"]
        assert chat.last is not None
        assert (chat.last.tools[0].output, chat.last.text, len(chat.messages)) == ("Paris", "Hello", 2)


async def test_a_tool_that_raises_ends_the_answer() -> None:
    call = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "location", "input": {}}

    def broken(_tool: ToolView) -> None:
        raise ZeroDivisionError("no city")

    async with Chat(Scripted([HELLO[0], call]), on_tool_call=broken) as chat:
        with pytest.raises(ZeroDivisionError):
            await chat.send("hi")
        assert chat.status == "error"


async def test_two_outputs_in_a_row_are_sent_once() -> None:
    calls: list[Any] = [
        {"type": "tool-input-available", "toolCallId": call, "toolName": "location", "input": {}}
        for call in ("c1", "c2")
    ]
    transport = Scripted([HELLO[0], HELLO[1], *calls], HELLO)
    async with Chat(transport, send_automatically_when=is_complete_with_tool_calls) as chat:
        await chat.send("hi")
        first = chat.add_tool_output("c1", 1)
        second = chat.add_tool_output("c2", 2)
        third = chat.add_tool_output("c2", 3)
        for reply in (first, second, third):
            await reply
        assert len(transport.requests) == 2
        assert [part.get("output") for part in transport.requests[1].messages[-1]["parts"]][-2:] == [1, 2]


async def test_an_interrupted_answer_does_not_go_on_by_itself() -> None:
    done = {"type": "tool-output-available", "toolCallId": "c1", "output": 1}
    call = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "location", "input": {}}
    answer = [HELLO[0], HELLO[1], call, done, {"type": "finish", "finishReason": "interrupted"}]
    transport = Scripted(answer)
    async with Chat(transport, send_automatically_when=is_complete_with_tool_calls) as chat:
        await chat.send("hi")
        await chat.add_tool_output("c1", 2)
    assert len(transport.requests) == 1


async def test_files_are_sent_before_the_text(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("hi")
    transport = Scripted(HELLO)
    async with Chat(transport) as chat:
        await chat.send("see", files=[path], metadata={"from": "form"})
    file = {"type": "file", "mediaType": "text/plain", "filename": "note.txt", "url": "data:text/plain;base64,aGk="}
    message = transport.requests[0].messages[0]
    assert message["parts"] == [file, {"type": "text", "text": "see"}]
    assert message["metadata"] == {"from": "form"}


async def test_arguments_that_make_no_sense_change_nothing() -> None:
    async with Chat(Scripted(), sdk="5") as chat:
        with pytest.raises(InvalidSetting, match="there is no message to regenerate"):
            chat.regenerate()
        chat.messages = [QUESTION, {"id": "m1", "role": "assistant", "parts": []}]
        with pytest.raises(InvalidSetting, match="message with id nobody not found"):
            chat.send("hi", message_id="nobody")
        with pytest.raises(InvalidSetting, match="message with id m1 is not a user message"):
            chat.send("hi", message_id="m1")
        with pytest.raises(InvalidSetting, match="AI SDK 5 has no approvals"):
            chat.add_approval_response("a1", True)
        assert len(chat.messages) == 2


async def test_a_long_answer_takes_linear_time() -> None:
    deltas = [{"type": "text-delta", "id": "1", "delta": "word "}] * 20_000
    async with Chat(Scripted([*HELLO[:3], *deltas, *HELLO[5:]])) as chat:
        async with asyncio.timeout(30):
            await chat.send("hi")
        assert len(text_of(chat)) == 100_000


async def test_messages_can_be_replaced_while_an_answer_arrives() -> None:
    async with Chat(Scripted(HELLO)) as chat:
        async for update in chat.send("hi"):
            if update.text_delta == "Hel":
                chat.messages = []
        assert [message["id"] for message in chat.messages] == ["m1"]
        assert text_of(chat) == "Hello"


def test_an_address_finds_its_transport() -> None:
    assert isinstance(transport_for("http://h/api/chat"), HttpChatTransport)
    assert isinstance(transport_for("wss://h/api/chat/ws"), WebSocketChatTransport)


def test_the_sync_chat_does_the_same() -> None:
    with served(Endpoint()) as url, SyncChat(url, id="c1") as chat:
        assert [update.text_delta for update in chat.send("hi") if update.text_delta] == ["Hel", "lo"]
        assert chat.last is not None
        assert (chat.id, chat.status, chat.error, chat.last.text) == ("c1", "ready", None, "Hello")
        answer = chat.regenerate().wait()
        assert answer is not None
        assert answer.text == "Hello"
        chat.resume().wait()
        chat.stop()
        chat.add_tool_output("nobody", 1).wait()
        chat.add_approval_response("nobody", True).wait()
        chat.messages = []
        assert chat.messages == []


def test_the_sync_chat_raises_what_went_wrong() -> None:
    with served(Endpoint(b"No.", status=403)) as url, SyncChat(url) as chat:
        with pytest.raises(RequestRefused, match="No"):
            chat.send("hi").wait()
        assert isinstance(chat.error, RequestRefused)
        chat.clear_error()
        assert chat.status == "ready"
        with pytest.raises(RequestRefused):
            list(chat.send("hi"))


def test_the_sync_chat_refuses_what_the_chat_refuses() -> None:
    with pytest.raises(InvalidSetting):
        SyncChat("nowhere")


CALLING: tuple[Any, ...] = (
    {"type": "start", "messageId": "m1"},
    {"type": "tool-input-available", "toolCallId": "t1", "toolName": "where", "input": {}},
    {"type": "finish"},
)


def test_a_callback_of_the_sync_chat_gives_the_output_of_a_tool() -> None:
    def called(tool: ToolView) -> None:
        chat.add_tool_output(tool.call_id, "Paris")

    transport = Scripted(CALLING, HELLO)
    with SyncChat(transport, on_tool_call=called, send_automatically_when=is_complete_with_tool_calls) as chat:
        chat.send("Where am I?").wait()
    assert transport.requests[1].messages[-1]["parts"] == [
        {"type": "tool-where", "toolCallId": "t1", "state": "output-available", "input": {}, "output": "Paris"}
    ]


def test_a_callback_of_the_sync_chat_that_waits_is_an_error_and_not_a_deadlock() -> None:
    def called(_tool: ToolView) -> None:
        chat.send("And now?").wait()

    with (
        SyncChat(Scripted(CALLING, HELLO), on_tool_call=called) as chat,
        pytest.raises(InvalidSetting, match="a callback cannot wait for an answer"),
    ):
        chat.send("Where am I?").wait()


def test_a_sync_chat_that_is_closed_can_be_read_and_closed_again_but_sends_nothing() -> None:
    with SyncChat(Scripted(HELLO)) as chat:
        chat.send("hi").wait()
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]
    assert (chat.last and chat.last.text, chat.status) == ("Hello", "ready")
    chat.stop()
    chat.close()
    with pytest.raises(InvalidSetting, match="this chat is closed; make a new one, with its messages"):
        chat.send("hi")
    assert len(chat.messages) == 2


def test_the_sync_chat_closes_the_transport_that_it_was_given() -> None:
    class Closable(Scripted):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True

    transport = Closable(HELLO)
    with SyncChat(transport) as chat:
        chat.send("hi").wait()
        assert not transport.is_closed
    assert transport.is_closed


async def test_what_a_function_of_the_user_raises_is_raised_by_the_reply() -> None:
    def failing(_messages: Sequence[UIMessage]) -> bool:
        raise LookupError("mine")

    async with Chat(Scripted(HELLO, HELLO), send_automatically_when=failing) as chat:
        with pytest.raises(LookupError, match="mine"):
            await chat.send("hi")
        assert (chat.status, text_of(chat)) == ("ready", "Hello")  # as in JavaScript: the answer itself is fine
        with pytest.raises(LookupError, match="mine"):
            async for _ in chat.send("hi"):
                pass


async def test_a_chat_that_always_sends_again_can_be_stopped() -> None:
    transport = Scripted(*[HELLO] * 5, [*HELLO[:3], None])
    async with asyncio.timeout(10), Chat(transport, send_automatically_when=lambda _messages: True) as chat:
        reply = chat.send("hi")
        async for _ in reply:
            if len(transport.requests) == 6:
                await chat.stop()
        assert (len(transport.requests), chat.status) == (6, "ready")


async def test_a_coroutine_function_cannot_decide_what_is_sent() -> None:
    async def always(_messages: Sequence[UIMessage]) -> bool:
        return True

    with pytest.raises(InvalidSetting, match="send_automatically_when is a plain function that returns a bool"):
        Chat(Scripted(), send_automatically_when=always)  # type: ignore[arg-type]
