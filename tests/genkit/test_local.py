"""Flows, prompts and agents of the real package `genkit`, run in this process."""

import asyncio
from typing import Any

import pytest

from tests.genkit import scripted
from tests.genkit.asking import answer, asked, assistant, context, shown, until, user
from usechat import parts as p
from usechat.errors import CannotAnswer, StreamFailed
from usechat.genkit import FlowInput, GenkitChatTransport
from usechat.genkit.transport import _warn_of_denied_tool, source_of
from usechat.protocol.request import ChatRequest
from usechat.sources import as_source
from usechat.turn import Identity

STEP = ("step-start", None)
ROME, PARIS = {"city": "Rome", "celsius": 4}, {"city": "Paris", "celsius": 5}
SPEAKERS: dict[str, Any] = {
    "flow": scripted.chat_flow,
    "agent": scripted.agent,
    "stateless agent": scripted.stateless,
    "prompt": scripted.prompt,
}
speakers = pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=SPEAKERS)


@pytest.fixture(autouse=True)
def nothing_cancelled_yet() -> None:
    scripted.STARTED.clear()
    scripted.CANCELLED.clear()


_numbers = iter(range(1_000_000))


def ask(*messages: Any) -> ChatRequest:
    """Return a request of a new chat, because agents remember chats."""
    return ChatRequest.parse({"id": f"in-process-{next(_numbers)}", "messages": list(messages)})


async def say(speaker: Any, text: str, **options: Any) -> list[tuple[str, Any]]:
    return shown(await answer(GenkitChatTransport(speaker, **options), ask(user(text))))


@speakers
async def test_everyone_says_the_same(speaker: Any) -> None:
    assert await say(speaker, "hello") == [STEP, ("text", "Hello")]
    assert await say(speaker, "think") == [STEP, ("reasoning", "I wonder."), ("text", "Yes.")]
    assert await say(speaker, "weather") == [
        STEP,
        ("text", "Let me look."),
        ("tool-weather", ROME),
        ("tool-weather", PARIS),
        STEP,
        ("text", "It is warm."),
    ]
    assert await say(speaker, "picture") == [STEP, ("file", "data:image/png;base64,AAAA")]


@speakers
async def test_a_failed_tool_is_settled_and_the_turn_fails_without_its_secret(speaker: Any) -> None:
    with pytest.raises(StreamFailed, match=r"^The agent failed while it answered. Try again. Reference: [0-9a-f]{8}$"):
        await say(speaker, "broken")


@speakers
async def test_an_interrupted_tool_waits_for_the_page(speaker: Any) -> None:
    assert await say(speaker, "delete") == [
        STEP,
        ("text", "May I?"),
        ("tool-delete", "input-available"),
        ("tool-weather", {"city": "Oslo", "celsius": 4}),
    ]


@pytest.mark.parametrize(
    ("flow", "parts"),
    [
        (scripted.echo, [STEP, ("text", "You said: hi")]),
        (scripted.words, [STEP, ("text", "You said: hi")]),
        (scripted.statuses, [STEP, ("text", "You said: hi")]),
    ],
)
async def test_a_flow_may_stream_strings_or_nothing(flow: Any, parts: list[Any]) -> None:
    assert await say(flow, "hi") == parts


@pytest.mark.parametrize(
    ("flow", "text"),
    [(scripted.chat_flow, "Hello"), (scripted.strict, "You said: hello"), (scripted.about, "hello, short")],
)
async def test_the_schema_of_a_flow_decides_what_it_gets(flow: Any, text: str) -> None:
    earlier = [user("one"), assistant({"type": "text", "text": "Two."})]
    message = await answer(GenkitChatTransport(flow), ask(*earlier, user("hello", message_id="u2")))
    assert shown(message) == [STEP, ("text", text)]


PICTURE = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA"}


async def test_files_that_a_template_cannot_hold_are_refused() -> None:
    with pytest.raises(StreamFailed, match=r"^This agent accepts no files\. Send the message without them\.$"):
        await answer(GenkitChatTransport(scripted.template), ask(user("hello", PICTURE)))
    assert shown(await answer(GenkitChatTransport(scripted.prompt), ask(user("hello", PICTURE)))) == [
        STEP,
        ("text", "Hello"),
    ]


async def test_a_mapper_shows_chunks_of_another_kind() -> None:
    def mapper(chunk: Any) -> list[p.Part]:
        return [p.Data("status", chunk["status"])]

    parts = await say(scripted.statuses, "hi", map_chunk=mapper)
    assert parts == [("data-status", "looking"), STEP, ("text", "You said: hi")]


async def test_the_last_message_is_a_variable_of_a_template() -> None:
    assert await say(scripted.template, "hello") == [STEP, ("text", "Hello")]
    assert scripted.READ[-1] == ["hello"]


async def test_a_prompt_gets_the_history_behind_its_own_messages() -> None:
    earlier = [user("hello"), assistant({"type": "text", "text": "Hello"})]
    await answer(GenkitChatTransport(scripted.prompt), ask(*earlier, user("think", message_id="u2")))
    assert scripted.READ[-1] == ["Be kind.", "hello", "Hello", "think"]


@pytest.mark.parametrize(("interrupts", "outcome"), [("tool", "done by hand"), ("approval", "Rome is gone")])
@pytest.mark.parametrize("name", ["agent", "stateless agent", "prompt"])
async def test_an_answered_interrupt_goes_on(name: str, interrupts: Any, outcome: str) -> None:
    transport = GenkitChatTransport(SPEAKERS[name], interrupts=interrupts, sdk="7")
    first = ask(user("delete"))
    message: Any = await answer(transport, first)
    call = next(part for part in message["parts"] if part["type"] == "tool-delete")
    if interrupts == "tool":
        call |= {"state": "output-available", "output": "done by hand"}
    else:
        assert call["state"] == "approval-requested"
        call |= {"state": "approval-responded", "approval": {"id": call["approval"]["id"], "approved": True}}
    again = ChatRequest.parse({"id": first.chat_id, "messages": [*first.messages, message]})
    parts = shown(await answer(transport, again, message=message))
    assert parts[2:] == [
        ("tool-delete", outcome),
        ("tool-weather", {"city": "Oslo", "celsius": 4}),
        STEP,
        ("text", "Thanks."),
    ]


@pytest.mark.parametrize("name", ["agent", "stateless agent", "prompt"])
async def test_the_output_of_a_denied_tool_is_shown_and_the_log_says_what_the_tool_must_test(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    _warn_of_denied_tool.cache_clear()  # it is logged once per process
    transport = GenkitChatTransport(SPEAKERS[name], interrupts="approval", sdk="7")
    first = ask(user("delete"))
    message: Any = await answer(transport, first)
    call = next(part for part in message["parts"] if part["type"] == "tool-delete")
    call |= {"state": "approval-responded", "approval": {"id": call["approval"]["id"], "approved": False}}
    again = ChatRequest.parse({"id": first.chat_id, "messages": [*first.messages, message]})
    done: Any = await answer(transport, again, message=message)
    denied, ran = (part for part in done["parts"] if part["type"] == "tool-delete")
    assert (denied["state"], ran["output"]) == ("output-denied", "Rome is still there")
    assert ran["toolMetadata"] == {"genkit": {"outputAfterDenial": True}}
    [line] = [line for line in caplog.messages if "resumed.approved" in line]
    assert line.startswith("the tool delete was denied and returned an output")


async def test_an_agent_remembers_its_session() -> None:
    transport = GenkitChatTransport(scripted.agent)
    first = await answer(transport, asked(user("hello")))
    second: Any = await answer(transport, asked(user("hello"), assistant(), user("think", message_id="u2")))
    answer_message: Any = first
    assert answer_message["metadata"]["genkit"]["sessionId"] == second["metadata"]["genkit"]["sessionId"]
    snapshot = await scripted.agent.get_snapshot_data(session_id=second["metadata"]["genkit"]["sessionId"])
    assert snapshot is not None
    assert snapshot.state is not None
    assert [message.role for message in snapshot.state.messages or []] == ["user", "model", "user", "model"]


async def test_a_flow_finds_who_asks_and_its_turn() -> None:
    def said(context: dict[str, Any]) -> p.Part:
        return p.Data("genkit-result", {"context": context, "chat": "c1"})

    async def told(identity: Identity | None) -> list[p.Part]:
        parts: list[p.Part] = []
        asking = context(user("hi"), identity=identity)
        asking.connect(parts.append)
        asking.enter()
        await GenkitChatTransport(scripted.who, send_data=True).drive(asking)
        return parts[:-1]

    claims = {"role": "guest"}
    assert await told(Identity("ada", claims)) == [said({"auth": {"uid": "ada", "claims": claims}})]
    assert await told(None) == [said({})]


# Stopping


async def test_a_stop_cancels_the_flow() -> None:
    chunks = await GenkitChatTransport(scripted.endless).send_messages(ask(user("hi")))
    async for chunk in chunks:
        if getattr(chunk, "delta", None) == "Wait":
            break
    await chunks.aclose()  # type: ignore[attr-defined]
    assert scripted.CANCELLED == ["flow True"]


@speakers
async def test_a_stop_in_the_middle_of_a_tool_cancels_the_tool(speaker: Any) -> None:
    chunks = await GenkitChatTransport(speaker).send_messages(ask(user("wait")))
    async for chunk in chunks:
        if getattr(chunk, "tool_name", None) == "wait":
            break
    await until(lambda: scripted.STARTED == ["tool"])
    await chunks.aclose()  # type: ignore[attr-defined]
    assert scripted.CANCELLED == ["tool"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_flow_that_goes_on_regardless_is_cancelled_again() -> None:
    chunks = await GenkitChatTransport(scripted.reluctant).send_messages(ask(user("hi")))
    await until(lambda: scripted.STARTED == ["first"])
    await chunks.aclose()  # type: ignore[attr-defined]
    assert scripted.CANCELLED == ["first", "second"]


@speakers
async def test_a_stop_leaves_the_other_chats_alone(speaker: Any) -> None:
    transport = GenkitChatTransport(speaker)
    stopped, other = [await transport.send_messages(ask(user("wait"))) for _ in range(2)]
    await until(lambda: scripted.STARTED == ["tool", "tool"])
    await stopped.aclose()  # type: ignore[attr-defined]
    assert scripted.CANCELLED == ["tool"]
    await other.aclose()  # type: ignore[attr-defined]
    assert scripted.CANCELLED == ["tool", "tool"]


# Failing


async def test_a_mapper_that_fails_stops_the_flow() -> None:
    def mapper(_chunk: Any) -> list[p.Part]:
        raise KeyError

    with pytest.raises(StreamFailed, match="An error occurred"):
        await say(scripted.endless, "hi", map_chunk=mapper)
    assert scripted.CANCELLED == ["flow True"]


@pytest.mark.parametrize("flow", [scripted.flood, scripted.stubborn])
async def test_a_flow_that_floods_fails_instead_of_filling_the_memory(flow: Any) -> None:
    with pytest.raises(StreamFailed, match="sent data faster than it can be forwarded"):
        await say(flow, "hi")


async def test_a_flow_that_pauses_may_say_as_much_as_it_likes() -> None:
    assert await say(scripted.steady, "hi") == [STEP, ("text", "x" * 20_000)]


async def test_a_public_error_is_shown_as_it_is() -> None:
    with pytest.raises(StreamFailed, match=r"^Name a city\.$"):
        await say(scripted.refusing, "public")
    with pytest.raises(StreamFailed, match=r"^Name a town\.$"):
        await say(scripted.refusing, "public here")


@pytest.mark.parametrize(
    "speaker", [scripted.chat_flow, scripted.agent, scripted.prompt], ids=["flow", "agent", "prompt"]
)
async def test_a_public_error_of_genkit_inside_a_model_is_shown_when_asked_for(speaker: Any) -> None:
    """The response of the model has its text and its status, as that of every GenkitError."""
    for expected, is_shown in (("The agent gets too many requests", False), ("The quota of today is used up.", True)):
        transport = GenkitChatTransport(speaker, show_public_errors=is_shown)
        with pytest.raises(StreamFailed, match=f"^{expected}.* Reference: "):
            await answer(transport, ask(user("refuse")))


async def test_any_other_error_is_a_reference() -> None:
    with pytest.raises(StreamFailed, match=r"^An error occurred\. Reference: "):
        await say(scripted.refusing, "secret")


async def test_an_error_with_a_status_is_a_sentence_and_its_traceback_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StreamFailed, match=r"^The agent gets too many requests right now\. .* Reference: \w{8}$"):
        await say(scripted.refusing, "limited")
    assert "RESOURCE_EXHAUSTED: a secret of the server" in caplog.text
    assert "in refusing" in caplog.text


async def test_input_that_the_flow_refuses_is_an_error() -> None:
    with pytest.raises(StreamFailed, match="The agent did not accept this message"):
        await say(scripted.chat_flow, "hi", build_input=lambda _turn: FlowInput(4))


def test_what_is_no_chat_is_refused_at_once() -> None:
    with pytest.raises(CannotAnswer, match="the flow add takes first, second, which a chat does not have; name the"):
        GenkitChatTransport(scripted.add)
    with pytest.raises(CannotAnswer, match="int is not a Genkit flow; give a URL, or a flow"):
        GenkitChatTransport(4)


@pytest.mark.parametrize("flow", [*SPEAKERS.values(), scripted.echo])
def test_genkit_s_objects_are_recognised(flow: Any) -> None:
    assert isinstance(as_source(flow), GenkitChatTransport)


@pytest.mark.parametrize("action", [scripted.ai, scripted.weather])
def test_other_objects_of_genkit_do_not_answer(action: Any) -> None:
    assert source_of(action) is None
