"""What can answer a chat, and how a turn is spoken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from usechat import parts
from usechat.errors import LocalProtocolError
from usechat.parts import Part
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.runs.transport import RunChatTransport
from usechat.sources import AgentChatTransport, ChatTransport, TransportSource, as_source, part_of
from usechat.turn import Identity, Turn, current_turn, emit

ASKED = ChatRequest.parse(
    {
        "id": "c1",
        "model": "fast",
        "messages": [
            {
                "id": "u1",
                "role": "user",
                "parts": [
                    {"type": "text", "text": "hi"},
                    {"type": "file", "mediaType": "text/plain", "url": "data:,x"},
                ],
            }
        ],
    }
)


class Remote:
    """A chat transport that says what it was given."""

    def __init__(self, *said: Chunk) -> None:
        self._said = said
        self.closed = False

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        assert request.chat_id == "c1"
        return self._stream()

    async def _stream(self) -> AsyncIterator[Chunk]:
        try:
            for chunk in self._said:
                yield chunk
            await asyncio.sleep(0)
        finally:
            self.closed = True

    async def reconnect_to_stream(self, _chat_id: str) -> AsyncIterator[Chunk] | None:
        return None


async def heard(answer: Any) -> list[Part]:
    said: list[Part] = []
    turn = Turn(ASKED)
    turn.bind(said.append)
    turn.enter()
    await as_source(answer).drive(turn)
    return said


async def test_a_transport_is_read_back_into_parts_and_closed() -> None:
    remote = Remote(chunks.StartChunk("m1"), chunks.TextDeltaChunk("1", "a"), chunks.FinishChunk("stop"))
    assert isinstance(remote, ChatTransport)
    assert await heard(remote) == [parts.Start("m1"), parts.Text("a", lane="text 1"), parts.Finish("stop")]
    assert remote.closed


async def test_a_source_is_taken_as_it_is() -> None:
    source = AgentChatTransport(lambda _turn: "a")
    assert as_source(source) is source
    assert isinstance(as_source(Remote()), TransportSource)


async def test_what_cannot_answer_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="int cannot answer a chat; give an async generator function"):
        as_source(5)


def test_what_an_agent_may_say() -> None:
    assert part_of("a") == parts.Text("a")
    assert part_of(parts.Step()) == parts.Step()
    with pytest.raises(LocalProtocolError, match="texts and parts, not int"):
        part_of(5)


async def test_emit_speaks_for_the_running_turn_also_from_threads() -> None:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        emit("progress", 1, id="p", transient=True)
        await asyncio.to_thread(emit, "progress", 2)
        assert current_turn() is turn
        yield "done"

    assert await heard(agent) == [
        parts.Data("progress", 1, "p", True),
        parts.Data("progress", 2),
        parts.Text("done"),
    ]


async def test_a_generator_of_a_thread_is_stopped_by_the_flag() -> None:
    said: list[Part] = []
    turn = Turn(ASKED)
    turn.bind(said.append)
    closed: list[bool] = []

    def agent(_turn: Turn) -> Any:
        try:
            yield "one"
            turn.stop()
            yield "two"
            yield "three"
        finally:
            closed.append(True)

    await as_source(agent).drive(turn)
    await asyncio.sleep(0)
    assert (said, closed, turn.stopped) == ([parts.Text("one")], [True], True)


def test_nothing_can_be_emitted_outside_a_turn() -> None:
    with pytest.raises(LocalProtocolError, match="no turn is running here"):
        emit("progress", 1)


async def test_a_turn_that_has_not_begun_cannot_speak() -> None:
    with pytest.raises(LocalProtocolError, match="has not begun"):
        Turn(ASKED).emit("progress", 1)


async def test_a_turn_tells_what_is_asked() -> None:
    turn = Turn(ASKED, identity=Identity("me"), headers={"x": "y"})
    assert (turn.chat_id, turn.text, turn.body, turn.headers) == ("c1", "hi", {"model": "fast"}, {"x": "y"})
    assert (turn.files[0]["url"], len(turn.messages), turn.identity) == ("data:,x", 1, Identity("me"))
    assert (turn.tool_outputs, turn.approvals) == ([], [])


def test_the_text_of_an_identity_shows_no_secret() -> None:
    identity = Identity("me", {"email": "me@example.org"}, "s3cret")
    assert (repr(identity), f"{identity}") == ("Identity('me')", "Identity('me')")
    assert identity.__rich_repr__() == [("subject", "me")]


async def test_every_kind_of_answer_gets_the_outputs_of_calls_that_wait_and_no_others() -> None:
    tools: list[dict[str, Any]] = [
        {"type": "tool-t", "toolCallId": call, "state": "output-available", "input": {}, "output": call}
        for call in ("c1", "c2")
    ]
    asked = ChatRequest.parse({"id": "c1", "messages": [{"id": "a1", "role": "assistant", "parts": tools}]})
    taken: list[Any] = []

    async def agent(turn: Turn) -> str:
        taken.append([output.output for output in turn.tool_outputs])
        return ""

    for answer in (agent, RunChatTransport(as_source(agent))):
        for pending in (None, frozenset({"c2"}), frozenset[str]()):
            turn = Turn(msgspec.structs.replace(asked, pending_calls=pending))
            turn.bind(lambda _part: None)
            await as_source(answer).drive(turn)
    assert taken == [["c1", "c2"], ["c2"], []] * 2
