"""The events of A2A to parts, and messages to its parts: lists in, lists out. No package of A2A is needed."""

from typing import Any

import pytest

from tests.adapters.turns import assistant, said_by, tool, turn_of, user
from tests.cli.common_options import COMMON
from usechat.adapters import conversation
from usechat.adapters.a2a import A2aAdapter, A2aEndpoint, A2aSource, parts, to_a2a
from usechat.adapters.targets import A2aTarget, RemoteAgentOptions
from usechat.errors import InvalidAddress, PublicError, StreamFailed, UnknownEvent
from usechat.parts import Abort, BlockEnd, Data, Error, File, Finish, Part, Text, ToolCall
from usechat.protocol.request import ChatRequest
from usechat.turn import TurnContext, TurnInput

STOPPED = conversation.finish("stop", None)


def message(*content: Any, message_id: str = "m1") -> Any:
    return {"messageId": message_id, "role": "ROLE_AGENT", "parts": list(content)}


def status(state: str, *content: Any, message_id: str = "m1") -> Any:
    body: dict[str, Any] = {"state": f"TASK_STATE_{state}", "timestamp": "2026-01-01T00:00:00Z"}
    if content:
        body["message"] = message(*content, message_id=message_id)
    return {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": body}}


def task(state: str, *artifacts: Any) -> Any:
    return {"task": {"id": "t1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, "artifacts": artifacts}}


def artifact(*content: Any, artifact_id: str = "a1") -> Any:
    return {"artifactId": artifact_id, "parts": list(content)}


def update(*content: Any, artifact_id: str = "a1", **more: Any) -> Any:
    body = artifact(*content, artifact_id=artifact_id)
    return {"artifactUpdate": {"taskId": "t1", "contextId": "c1", "artifact": body, **more}}


def said(*events: Any) -> list[Part]:
    return said_by(A2aAdapter(), events)


def test_an_artifact_is_streamed_as_one_block() -> None:
    events = [
        task("SUBMITTED"),
        status("WORKING"),
        update({"text": "Hel"}),
        update({"text": "lo"}, append=True),
        update({"text": "."}, append=True, lastChunk=True),
        status("COMPLETED"),
    ]
    texts = [Text("Hel", lane="a1"), Text("lo", lane="a1"), Text(".", lane="a1")]
    assert said(*events) == [*texts, BlockEnd(lane="a1"), STOPPED]


def test_a_message_is_the_whole_answer() -> None:
    assert said({"message": message({"text": "Hello"})}) == [Text("Hello", lane="m1"), BlockEnd(lane="m1"), STOPPED]


def test_a_task_that_is_complete_at_once_is_shown() -> None:
    assert said(task("COMPLETED", artifact({"text": "Hello"}))) == [
        Text("Hello", lane="a1"),
        BlockEnd(lane="a1"),
        STOPPED,
    ]


def test_messages_of_a_task_that_works_are_blocks_of_their_own() -> None:
    events = [
        status("WORKING", {"text": "Looking."}, message_id="m1"),
        status("WORKING", {"text": "Found it."}, message_id="m2"),
        status("COMPLETED"),
    ]
    assert [part for part in said(*events) if isinstance(part, Text)] == [
        Text("Looking.", lane="m1"),
        Text("Found it.", lane="m2"),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [update({"text": "Hel"}), update({"text": "lo"}, append=True), status("COMPLETED", {"text": "Hello"})],
        [update({"text": "Hel"}), update({"text": "lo"}, append=True), task("COMPLETED", artifact({"text": "Hello"}))],
        [status("WORKING", {"text": "Hello"}), update({"text": "Hello"}), status("COMPLETED")],
        [
            status("WORKING", {"text": "Hel"}, message_id="m1"),
            status("WORKING", {"text": "lo"}, message_id="m2"),
            update({"text": "Hello"}, lastChunk=True),
            status("COMPLETED"),
        ],
        [update({"text": "Hel"}), task("WORKING", artifact({"text": "Hello"})), status("COMPLETED")],
    ],
    ids=["as a message", "in the task", "as an artifact", "in one artifact", "with more text"],
)
def test_what_repeats_a_whole_text_is_left_out(events: list[Any]) -> None:
    assert "".join(part.text for part in said(*events) if isinstance(part, Text)) == "Hello"


def test_an_artifact_that_is_replaced_is_a_new_block() -> None:
    assert said(update({"text": "One."}), update({"text": "Two."}), status("COMPLETED")) == [
        Text("One.", lane="a1"),
        BlockEnd(lane="a1"),
        Text("Two.", lane="a1"),
        STOPPED,
    ]


def test_data_and_files_are_parts() -> None:
    content = [
        {"data": {"city": "Paris"}},
        {"raw": "aGk=", "mediaType": "image/png"},
        {"url": "https://example.org/a"},
        {"metadata": {}},
    ]
    parts = [
        Data("output", {"city": "Paris"}),
        File("data:image/png;base64,aGk=", "image/png"),
        File("https://example.org/a", "application/octet-stream"),
    ]
    assert said(update(*content), status("COMPLETED")) == [*parts, STOPPED]
    assert said(update(*content, append=True), status("COMPLETED")) == [*parts, STOPPED]


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
def test_a_task_that_needs_input_asks_the_page(state: str) -> None:
    event = status(state, {"text": "Which "}, {"text": "city?"}, {"data": {"type": "string"}})
    question = {"message": "Which city?", "data": [{"type": "string"}]}
    assert said(event) == [ToolCall("m1", "interrupt", question, dynamic=True), Finish()]


def test_a_question_without_a_message_has_an_id() -> None:
    assert said(status("INPUT_REQUIRED"))[0] == ToolCall(
        "2026-01-01T00:00:00Z", "interrupt", {"message": ""}, dynamic=True
    )
    assert said(task("INPUT_REQUIRED"))[0] == ToolCall("interrupt", "interrupt", {"message": ""}, dynamic=True)


@pytest.mark.parametrize("state", ["FAILED", "REJECTED"])
def test_a_task_that_failed_fails_the_turn(state: str) -> None:
    with pytest.raises(StreamFailed, match=f"{state}.*hunter2"):
        said(status(state, {"text": "hunter2"}))


def test_endings_are_told_apart() -> None:
    assert said(status("CANCELED")) == [Abort()]
    assert said(update({"text": "Hel"}))[-1] == Error(conversation.INCOMPLETE)
    assert list(A2aAdapter().close(RuntimeError("secret"))) == []
    with pytest.raises(UnknownEvent, match="TASK_STATE_PONDERING"):
        said(status("PONDERING"))
    with pytest.raises(UnknownEvent, match="telepathy"):
        said({"telepathy": {}})


async def test_the_parts_of_an_answer_are_yielded_in_an_agent_function() -> None:
    async def events() -> Any:
        yield {"message": message({"text": "Hello"})}

    assert [part async for part in parts(events())] == [Text("Hello", lane="m1"), BlockEnd(lane="m1"), STOPPED]


async def test_an_answer_to_a_task_that_no_longer_waits_is_refused() -> None:
    part = tool("interrupt", "m1", "output-available", output="Paris")
    context = TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": [user("Where?"), assistant(part)]})))
    context.enter()
    with pytest.raises(PublicError, match="no longer waiting"):
        await anext(A2aSource(None).events(context.turn))


async def test_a_message_becomes_parts_of_a2a() -> None:
    files = [
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf"},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"},
    ]
    [question] = conversation.history(turn_of(user("Look.", "u1", *files)))
    assert to_a2a(question["content"]) == [
        {"text": "Look."},
        {"raw": "aGk=", "mediaType": "image/png", "filename": "a.png"},
        {"url": "https://example.org/a.pdf", "mediaType": "application/pdf"},
        {"text": "a.txt:\nhi"},
    ]


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(InvalidAddress, match="is not the address of an A2A agent"):
        A2aEndpoint("localhost:9999")
    with pytest.raises(InvalidAddress, match="is not the address of an A2A agent"):
        A2aTarget().open("localhost:9999", RemoteAgentOptions(), COMMON)
    assert not A2aTarget().recognises("http://localhost:9999")
