"""How what a request holds becomes the input of a flow."""

import logging
from functools import partial
from typing import Any

import pytest

from tests.open_harness.flow_runs import FLOWS, constant, echo, edge, flow
from tests.open_harness.scripted_models import Script
from tests.open_harness.test_transport import chunks_of, errors
from usechat import Turn
from usechat.errors import InvalidSetting
from usechat.open_harness.engine.runtime import FlowRuntime, FlowRuntimes
from usechat.open_harness.runtime_protocol import Event
from usechat.open_harness.transport import OpenHarnessChatTransport
from usechat.protocol.request import ChatRequest
from usechat.turn import current_context


def reading(*keys: str, name: str = "test") -> dict[str, Any]:
    """Return a flow that reads these keys of its input. A line about a flow is logged once per process, by its name."""
    return flow(echo("a", " ".join(f"{key}={{{{ flow.input.{key} }}}}" for key in keys)), name=name)


async def outcome(definition: Any, body: dict[str, Any] | None = None, **options: Any) -> str:
    """Ask “bees” with further fields in the body; return the text of the last node, or the error on the page."""
    events: list[Event] = []

    def runtime() -> FlowRuntime:
        instance = FlowRuntime(definition)
        instance.on_event(events.append)
        return instance

    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
    request = ChatRequest.parse({"id": "c", "messages": [message], **(body or {})})
    chunks = await chunks_of(OpenHarnessChatTransport(runtime, **options), request)
    outputs = [event["output"]["text"] for event in events if event["type"] == "node:complete"]
    return "".join(outputs[-1:] or errors(chunks))


@pytest.mark.parametrize(
    ("keys", "body", "mapping", "expected"),
    [
        ("message", {}, None, "message=bees"),
        ("topic", {}, None, "topic=bees"),
        ("topic chatId", {}, None, "topic=bees chatId=c"),
        ("topic", {"topic": "cats"}, None, "topic=cats"),
        ("topic depth", {"topic": "cats", "depth": 2}, None, "topic=cats depth=2"),
        ("topic depth", {"depth": 2}, {"topic": "text"}, "topic=bees depth=2"),
        ("topic depth", {"deep": {"n": 3}}, {"topic": "text", "depth": "body.deep.n"}, "topic=bees depth=3"),
        ("topic depth", {}, {"depth": "text"}, "topic=bees depth=bees"),
        ("message depth", {"depth": 2}, None, "message=bees depth=2"),
        ("message topic", {}, None, "message=bees topic=bees"),
        ("messages[0].id topic", {}, None, "messages[0].id=m topic=bees"),
        ("message chatId", {"message": "mine", "chatId": "other"}, None, "message=bees chatId=c"),
        ("files", {"files": ["mine"]}, None, "files=[]"),
    ],
)
async def test_the_keys_of_the_input_come_from_the_message_the_body_and_the_mapping(
    keys: str, body: dict[str, Any], mapping: dict[str, str] | None, expected: str
) -> None:
    assert await outcome(reading(*keys.split()), body, input=mapping) == expected


@pytest.mark.parametrize(
    ("keys", "body", "mapping", "named"),
    [
        ("topic depth", {}, None, "“depth”, “topic”"),
        ("topic depth", {"depth": 1}, None, "“topic”"),
        ("depth", {"deep": 1}, {"depth": "body.deep.er"}, "“depth”"),
    ],
)
async def test_a_key_that_is_missing_fails_the_turn_and_is_named(
    keys: str, body: dict[str, Any], mapping: dict[str, str] | None, named: str
) -> None:
    sentence = f"The flow needs {named}, and the request does not have it."
    assert await outcome(reading(*keys.split()), body, input=mapping) == sentence


@pytest.mark.parametrize(
    "text",
    [
        "{{ $exists(flow.input.depth) ? 'deep' : 'flat' }}",
        "{{ flow.input.depth ?? 'flat' }}",
        "{{ flow.input.depth ?: 'flat' }}",
        "{{ flow.input.depth ? flow.input.depth : 'flat' }}",
    ],
)
async def test_a_key_whose_existence_the_flow_asks_for_may_be_missing(text: str) -> None:
    assert await outcome(flow(echo("a", "{{ flow.input.message }}"), echo("b", text))) == "flat"


@pytest.mark.parametrize(
    "text",
    [
        "{{ flow.input.topic ?? 'nothing' }}",
        "{{ $exists(flow.input.topic) ? flow.input.topic : 'nothing' }}",
        "{{ $$.flow.input.topic }}",
        "{{ $uppercase($.flow.input.topic) }}",
    ],
)
async def test_the_only_key_gets_the_text_however_it_is_read(text: str) -> None:
    assert (await outcome(flow(echo("a", text)))).lower() == "bees"


@pytest.mark.parametrize(
    "text",
    [
        "{{ $$.flow.input.topic & flow.input.depth }}",
        "{{ flow.input.depth & $.flow.input.topic }}",
        "{{ flow.input.(topic.title & depth) }}",
        "{{ flow.input.(topic ? depth.(name & size) : depth) }}",
        "{{ flow.input.{'a': topic, 'b': depth} }}",
        "{{ $lookup(flow.input, 'topic') & $lookup($$.flow.input, 'depth') }}",
    ],
)
async def test_keys_are_found_behind_the_root_and_in_blocks_too(text: str) -> None:
    assert await outcome(flow(echo("a", text))) == (
        "The flow needs “depth”, “topic”, and the request does not have it."
    )


async def test_keys_are_found_in_conditions_and_lists_too() -> None:
    listed = flow(
        constant("a", 1, when="flow.input.kind = 'x'"),
        echo("b", "{{ it }}", when={"equals": {"var": "flow.input.other", "value": 1}}),
        edges=(edge("a->b", when="flow.input.third", forEach={"in": "{{ flow.input.items }}", "as": "it"}),),
    )
    assert await outcome(listed) == (
        "The flow needs “items”, “kind”, “other”, “third”, and the request does not have it."
    )


def test_what_gets_the_text_is_said_when_the_transport_is_made(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # the command line makes a transport, and the server another one
            OpenHarnessChatTransport(FlowRuntimes(reading("topic", name="guessing")))
    [line] = caplog.messages
    assert line.startswith('flow "guessing" reads flow.input.topic: it gets the text of the message')


def test_several_keys_without_a_source_are_a_warning_that_names_them(caplog: pytest.LogCaptureFixture) -> None:
    OpenHarnessChatTransport(FlowRuntimes(reading("topic", "depth", name="demanding")))
    [line] = caplog.messages
    assert line.startswith('flow "demanding" reads flow.input.depth, flow.input.topic: a request needs these fields')


def test_nothing_is_said_of_keys_that_have_a_source(caplog: pytest.LogCaptureFixture) -> None:
    OpenHarnessChatTransport(FlowRuntimes(reading("topic", "depth")), input={"topic": "text", "depth": "body.depth"})
    OpenHarnessChatTransport(FlowRuntimes(reading("message", "files")))
    assert caplog.messages == []


DEAF = 'flow "{}" reads nothing of what the user writes; write {{{{ flow.input.message }}}} into the input of a node'


@pytest.mark.parametrize(
    ("name", "node", "mapping"),
    [
        ("fixed", {"type": "agent", "input": {"prompt": "Tell a joke."}}, None),
        ("mapped", {"type": "echo", "input": {"text": "{{ flow.input.topic }}"}}, {"topic": "body.topic"}),
        ("constant", {"type": "constant", "input": {"value": 1}}, None),
    ],
)
def test_a_flow_that_hears_nothing_of_the_user_is_a_warning(
    name: str, node: dict[str, Any], mapping: dict[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    described = flow({"id": "a", **node}, name=name)
    for _ in range(2):
        OpenHarnessChatTransport(FlowRuntimes(described, registry=Script().registry), input=mapping)
    [line] = caplog.messages
    assert line.startswith(DEAF.format(name))


@pytest.mark.parametrize(
    "node",
    [
        {"type": "agent", "input": {"prompt": ""}},
        {"type": "claude.agent", "input": {}},
        {"type": "agent", "input": {"messages": "{{ flow.input.messages }}"}},
        {"type": "echo", "input": {"text": "{{ $string(flow.input) }}"}},
        {"type": "echo", "input": {"text": "{{ $string($) }}"}},
        {"type": "python", "input": {"function": "tests.open_harness.flow_functions:plain"}},
    ],
)
def test_nothing_is_said_of_a_flow_that_hears_the_user(node: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    OpenHarnessChatTransport(FlowRuntimes(flow({"id": "a", **node}), registry=Script().registry))
    assert caplog.messages == []


async def test_a_line_is_logged_once_if_each_turn_reads_the_flow_anew(caplog: pytest.LogCaptureFixture) -> None:
    transport = OpenHarnessChatTransport(lambda: FlowRuntime(reading("topic", name="anew")))
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
    for chat_id in ("c", "d"):
        await chunks_of(transport, ChatRequest.parse({"id": chat_id, "messages": [message]}))
    assert len([line for line in caplog.messages if "flow.input.topic" in line]) == 1


async def test_a_function_that_makes_runtimes_is_asked_for_the_first_one_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    described = flow({"id": "a", "type": "constant", "input": {"value": 1}}, name="made ahead")
    made: list[FlowRuntime] = []

    def runtime() -> FlowRuntime:
        made.append(FlowRuntime(described))
        return made[-1]

    transport = OpenHarnessChatTransport(runtime)
    [line] = caplog.messages
    assert line.startswith(DEAF.format("made ahead"))
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
    for chat_id in ("c", "d"):
        await chunks_of(transport, ChatRequest.parse({"id": chat_id, "messages": [message]}))
    assert [each.get_snapshot()["status"] for each in made] == ["complete", "complete"]
    assert caplog.messages == [line]


@pytest.mark.parametrize("kind", ["of a turn", "async", "partial"])
async def test_a_flow_that_is_first_seen_in_a_turn_is_a_warning_then(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"first seen {kind}"
    described = flow({"id": "a", "type": "constant", "input": {"value": 1}}, name=name)

    def of_turn(_turn: Turn) -> FlowRuntime:
        return FlowRuntime(described)

    async def later() -> FlowRuntime:
        return FlowRuntime(described)

    factories: dict[str, Any] = {"of a turn": of_turn, "async": later, "partial": partial(later)}
    transport = OpenHarnessChatTransport(factories[kind])
    assert caplog.messages == []
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
    for chat_id in ("c", "d"):
        await chunks_of(transport, ChatRequest.parse({"id": chat_id, "messages": [message]}))
    [line] = caplog.messages
    assert line.startswith(DEAF.format(name))


async def test_a_function_that_cannot_be_called_at_the_start_makes_the_runtime_of_each_turn() -> None:
    turns: list[str] = []

    def of_turn(turn: Turn) -> FlowRuntime:
        turns.append(turn.chat_id)
        return FlowRuntime(reading("message"))

    async def later() -> FlowRuntime:
        return of_turn(current_context().turn)

    def in_a_turn() -> FlowRuntime:
        return of_turn(current_context().turn)

    factories: list[Any] = [of_turn, later, in_a_turn, partial(later)]
    for factory in factories:
        transport = OpenHarnessChatTransport(factory)
        assert turns == []
        message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
        await chunks_of(transport, ChatRequest.parse({"id": "c", "messages": [message]}))
        assert turns == ["c"]
        turns.clear()


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        ({"message": "text"}, "'message' always comes from the chat"),
        ({"messages": "body.said"}, "'messages' always comes from the chat"),
        ({"files": "body.files"}, "'files' always comes from the chat"),
        ({"chatId": "body.chat"}, "'chatId' always comes from the chat"),
        ({"topic": "messages"}, "'topic' can come from text or from body.FIELD, not from 'messages'"),
        ({"topic": "body"}, "not from 'body'"),
        ({"topic": "body..x"}, "not from 'body..x'"),
    ],
)
def test_a_mapping_that_cannot_be_one_is_refused(mapping: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        OpenHarnessChatTransport(FlowRuntimes(reading("topic")), input=mapping)


async def test_the_research_flow_asks_about_the_message() -> None:
    script = Script(["Bees dance."], ["They dance."])
    transport = OpenHarnessChatTransport(FlowRuntimes(FLOWS / "research-flow.yaml", registry=script.registry))
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
    await chunks_of(transport, ChatRequest.parse({"id": "c", "messages": [message]}))
    assert script.requests == [[("user-prompt", "Research: bees")], [("user-prompt", "Summarize: Bees dance.")]]
