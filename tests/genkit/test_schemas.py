"""Which input of a chat fits the schema of a flow."""

from typing import Any

import pytest

from tests.genkit.asking import assistant, turn, user
from usechat.errors import CannotAnswer, PublicError
from usechat.genkit.schemas import input_for

TEXT = {"type": "string"}
MESSAGES = [{"role": "user", "content": [{"text": "two"}]}]


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of a Go struct, or of a pydantic model that forbids other properties."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "string"}, "two"),
        ({}, "two"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "two"),
        ({"type": ["string", "null"]}, "two"),
        ({"type": "array"}, MESSAGES),
        ({"properties": {"messages": {}}}, {"messages": MESSAGES}),
        ({"properties": {"message": {}}}, {"message": "two", "conversationHistory": []}),
        ({"properties": {"question": {"type": "string"}, "limit": {"type": "integer"}}}, {"question": "two"}),
        ({"properties": {"question": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"question": "two"}),
        (
            {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "$defs": {"A": {"properties": {"message": {}}}}},
            {"message": "two", "conversationHistory": []},
        ),
    ],
)
async def test_a_schema_tells_what_a_flow_takes(schema: dict[str, Any], data: Any) -> None:
    assert input_for("flow", schema)(turn(user("two"))).data == data


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, "a"),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, "a, b"),
        ({"type": "integer"}, "a value of type integer"),
        ({"type": "array", "items": {"type": "string"}}, "a value of type array"),
    ],
)
def test_a_flow_that_is_no_chat_needs_a_builder(schema: dict[str, Any], takes: str) -> None:
    with pytest.raises(CannotAnswer, match=f"^the flow add takes {takes}, which a chat does not have; name the "):
        input_for("add", schema)


HISTORY = [{"role": "user", "content": "one"}, {"role": "model", "content": "Warm."}]


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (closed(("message",), message=TEXT), {"message": "two"}),
        (
            closed(("message",), message=TEXT, conversationHistory={}),
            {"message": "two", "conversationHistory": HISTORY},
        ),
        (closed(("question",), question=TEXT), {"question": "two"}),
    ],
)
async def test_a_flow_that_forbids_other_keys_gets_those_that_it_names(schema: dict[str, Any], data: Any) -> None:
    message = assistant({"type": "text", "text": "Warm."})
    assert input_for("flow", schema)(turn(user("one"), message, user("two"))).data == data


@pytest.mark.parametrize(
    "schema",
    [
        closed(("question",), question=TEXT, lang=TEXT),
        closed(("question", "lang"), question=TEXT, lang={**TEXT, "default": "en"}),
        closed((), question=TEXT, lang={**TEXT, "default": "en"}, limit={"type": "integer"}),
        closed(("question", "limit"), question=TEXT, limit={"type": "integer", "default": 3}),
    ],
)
async def test_a_key_with_a_default_need_not_be_given(schema: dict[str, Any]) -> None:
    assert input_for("flow", schema)(turn(user("two"))).data == {"question": "two"}


@pytest.mark.parametrize(
    "schema",
    [
        closed(("message", "user"), message=TEXT, user=TEXT),
        closed(("message",), message={"type": "object", "properties": {}}),
        closed(("messages", "user"), messages={}, user=TEXT),
        closed(("question", "limit"), question=TEXT, limit={"type": "integer"}),
    ],
)
def test_a_flow_that_requires_more_than_a_chat_has_is_refused_at_the_start(schema: dict[str, Any]) -> None:
    with pytest.raises(CannotAnswer, match="which a chat does not have; name the sources with --input KEY=text"):
        input_for("flow", schema)


ANSWERED = {"type": "tool-ask", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "blue"}


@pytest.mark.parametrize("schema", [closed(("messages",), messages={}), {"type": "array"}])
async def test_a_flow_that_takes_no_resume_gets_an_answered_call_as_messages(schema: dict[str, Any]) -> None:
    data = input_for("flow", schema)(turn(user("one"), assistant({"type": "step-start"}, ANSWERED))).data
    messages = data if isinstance(data, list) else data["messages"]
    assert [message["role"] for message in messages] == ["user", "model", "tool"]
    assert messages[-1]["content"] == [{"toolResponse": {"name": "ask", "ref": "c1", "output": "blue"}}]


async def test_the_only_text_of_a_flow_holds_no_files() -> None:
    picture = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA"}
    with pytest.raises(PublicError, match="accepts no files"):
        input_for("flow", closed(("question",), question=TEXT))(turn(user("two", picture)))
