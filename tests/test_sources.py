"""What can answer a chat, and how a turn is spoken."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest

from usechat import parts
from usechat.errors import CannotAnswer, LocalProtocolError, PublicError
from usechat.parts import Part
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.runs.transport import RunChatTransport
from usechat.sources import AdapterSource, ChatTransport, FunctionSource, as_source, part_of
from usechat.turn import Identity, Turn, TurnContext, TurnInput, current_turn, emit

pytestmark = pytest.mark.quick

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

    def __init__(self, *stream_chunks: Chunk) -> None:
        self._chunks = stream_chunks
        self.closed = False

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        assert request.chat_id == "c1"
        return self._stream()

    async def _stream(self) -> AsyncIterator[Chunk]:
        try:
            for chunk in self._chunks:
                yield chunk
            await asyncio.sleep(0)
        finally:
            self.closed = True

    async def reconnect_to_stream(self, _chat_id: str) -> AsyncIterator[Chunk] | None:
        return None


async def heard(agent: Any) -> list[Part]:
    output: list[Part] = []
    turn = TurnContext(TurnInput(ASKED))
    turn.connect(output.append)
    turn.enter()
    await as_source(agent).drive(turn)
    return output


async def test_a_transport_is_read_back_into_parts_and_closed() -> None:
    remote = Remote(chunks.StartChunk("m1"), chunks.TextDeltaChunk("1", "a"), chunks.FinishChunk("stop"))
    assert isinstance(remote, ChatTransport)
    assert await heard(remote) == [parts.Start("m1"), parts.Text("a", lane="text 1"), parts.Finish("stop")]
    assert remote.closed


async def test_a_source_is_taken_as_it_is() -> None:
    source = FunctionSource(lambda _turn: "a")
    assert as_source(source) is source
    assert isinstance(as_source(Remote()), AdapterSource)


async def test_what_cannot_answer_is_refused() -> None:
    with pytest.raises(CannotAnswer, match="int cannot answer a chat; give a function"):
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
    output: list[Part] = []
    turn = TurnContext(TurnInput(ASKED))
    turn.connect(output.append)
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
    assert (output, closed, turn.stopped) == ([parts.Text("one")], [True], True)


async def effects_of_a_thread(pause: Callable[[TurnContext], Coroutine[Any, Any, None]]) -> list[str]:
    """Return what a generator did behind a call, whose commit waits for ``pause``."""
    context, effects = TurnContext(TurnInput(ASKED)), list[str]()
    context.connect(lambda _part: None)
    context.pause = functools.partial(pause, context)

    def agent(_turn: Turn) -> Iterator[Part]:
        yield parts.ToolCall("t1", "pay", {})
        effects.append("paid")

    with contextlib.suppress(PublicError):
        await as_source(agent).drive(context)
    return effects


async def test_a_thread_whose_chat_is_lost_starts_no_tool() -> None:
    async def lose(_context: TurnContext) -> None:
        raise PublicError("The run was lost.")

    assert await effects_of_a_thread(lose) == []


async def test_a_thread_that_is_stopped_while_its_call_is_stored_starts_no_tool() -> None:
    async def stop(context: TurnContext) -> None:
        context.stop()
        await asyncio.Event().wait()

    assert await effects_of_a_thread(stop) == []


def test_nothing_can_be_emitted_outside_a_turn() -> None:
    with pytest.raises(LocalProtocolError, match="no turn is running here"):
        emit("progress", 1)


async def test_a_turn_that_has_not_begun_cannot_speak() -> None:
    with pytest.raises(LocalProtocolError, match="has not begun"):
        TurnContext(TurnInput(ASKED)).turn.emit("progress", 1)


async def test_a_turn_tells_what_is_asked() -> None:
    turn = TurnContext(TurnInput(ASKED, identity=Identity("me"), headers={"x": "y"})).turn
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
    request = ChatRequest.parse({"id": "c1", "messages": [{"id": "a1", "role": "assistant", "parts": tools}]})
    outputs: list[Any] = []

    async def agent(turn: Turn) -> str:
        outputs.append([output.output for output in turn.tool_outputs])
        return ""

    for each in (agent, RunChatTransport(as_source(agent))):
        for pending in (None, frozenset({"c2"}), frozenset[str]()):
            turn = TurnContext(TurnInput(msgspec.structs.replace(request, pending_calls=pending)))
            turn.connect(lambda _part: None)
            await as_source(each).drive(turn)
    assert outputs == [["c1", "c2"], ["c2"], []] * 2


# Functions as people write them: what a call returns decides how it is driven.


async def words(turn: Turn) -> AsyncIterator[str]:
    yield "You said "
    yield turn.text


async def sentence(turn: Turn) -> str:
    return f"You said {turn.text}"


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(turn: Turn) -> Any:
        return function(turn)

    return wrapper


class Words:
    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        yield "You said "
        yield turn.text


class Sentence:
    async def __call__(self, turn: Turn) -> str:
        return f"You said {turn.text}"


class Blocking:
    def __call__(self, turn: Turn) -> str:
        return f"You said {turn.text}"


async def later(turn: Turn) -> AsyncIterator[str]:
    return words(turn)


async def later_in_a_thread(turn: Turn) -> Iterator[str]:
    return iter(["You said ", turn.text])


async def later_as_tuple(turn: Turn) -> tuple[str, ...]:
    return "You said ", turn.text


async def no_words() -> AsyncIterator[str]:
    yield "nobody asked"


@functools.wraps(no_words)
def wrapped_no_words() -> AsyncIterator[str]:
    return no_words()


class Car:
    def drive(self, context: TurnContext) -> None:
        """A car is no source."""


class Train:
    async def drive(self) -> None:
        """It takes no context."""


class BlockingTransport:
    def send_messages(self, request: ChatRequest) -> list[Chunk]:
        """Return chunks now."""
        raise NotImplementedError

    async def reconnect_to_stream(self, chat_id: str) -> None: ...


class DeafTransport:
    async def send_messages(self) -> AsyncIterator[Chunk]:
        """Take no request."""
        raise NotImplementedError

    async def reconnect_to_stream(self, chat_id: str) -> None: ...


def greeting(prefix: str, turn: Turn) -> str:
    return f"{prefix}{turn.text}"


async def greeting_words(prefix: str, turn: Turn) -> AsyncIterator[str]:
    yield prefix
    yield turn.text


async def silent(turn: Turn) -> None:
    turn.send(parts.Text(f"You said {turn.text}"))


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(words, id="async generator"),
        pytest.param(sentence, id="coroutine"),
        pytest.param(Words(), id="object with an async generator"),
        pytest.param(Sentence(), id="object with a coroutine"),
        pytest.param(Blocking(), id="callable object"),
        pytest.param(Words().__call__, id="bound method"),
        pytest.param(logged(words), id="wrapped async generator"),
        pytest.param(logged(sentence), id="wrapped coroutine"),
        pytest.param(functools.partial(greeting, "You said "), id="partial"),
        pytest.param(functools.partial(greeting_words, "You said "), id="partial of an async generator"),
        pytest.param(lambda turn: f"You said {turn.text}", id="lambda"),
        pytest.param(lambda turn: words(turn), id="lambda with an async generator"),  # noqa: PLW0108
        pytest.param(lambda turn: sentence(turn), id="lambda with a coroutine"),  # noqa: PLW0108
        pytest.param(lambda turn: iter(["You said ", turn.text]), id="iterator"),
        pytest.param(lambda turn: ["You said ", parts.Text(turn.text)], id="list"),
        pytest.param(later_as_tuple, id="coroutine that returns a tuple"),
        pytest.param(later, id="coroutine that returns an async generator"),
        pytest.param(later_in_a_thread, id="coroutine that returns an iterator"),
        pytest.param(silent, id="coroutine that sends and returns nothing"),
    ],
)
async def test_whatever_is_accepted_answers(agent: Any) -> None:
    output = await heard(agent)
    assert "".join(part.text for part in output if isinstance(part, parts.Text)) == "You said hi"


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (Words, "Words is a class; create an instance and serve that"),
        (iter([]).__class__, "list_iterator is a class"),
        ((word for word in "ab"), "this generator is the result of a call; give the function itself"),
        (lambda a, b: a + b, "must take one argument, the turn that it answers"),
        (wrapped_no_words, "no_words must take one argument, the turn that it answers"),
        (Car(), "Car.drive must be an async function"),
        (Train(), "Train.drive must take one argument, the context of the turn"),
        (BlockingTransport(), "BlockingTransport.send_messages must be an async function"),
        (DeafTransport(), "DeafTransport.send_messages must take one argument, the request"),
        (None, "NoneType cannot answer a chat"),
    ],
)
def test_what_cannot_answer_is_told_at_the_start(agent: Any, text: str) -> None:
    with pytest.raises(CannotAnswer, match=text):
        as_source(agent)


async def test_an_item_that_is_neither_text_nor_part_is_an_error_of_the_agent() -> None:
    async def numbers(_turn: Turn) -> AsyncIterator[int]:
        yield 1

    with pytest.raises(LocalProtocolError, match="an agent yields texts and parts, not int"):
        await heard(numbers)
