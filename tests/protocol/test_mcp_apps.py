"""MCP Apps in a stream: where each release is told that a tool brings a user interface."""

from typing import Any

import pytest

import usechat.parts as p
from tests.protocol.stream.sending import body, send
from usechat import MessageStream, model_messages
from usechat.errors import LocalProtocolError
from usechat.protocol.chunks import (
    Chunk,
    StartStepChunk,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolOutputAvailableChunk,
)
from usechat.protocol.mcp_apps import apps_in, declared_app, is_visible_to, without_apps
from usechat.protocol.message import MessageBuilder
from usechat.protocol.reframing import Reframer
from usechat.protocol.sse import encode_frames

APP = p.McpApp("ui://weather/map", server="weather", visibility=("model", "app"))
NAMED = {
    "resourceUri": "ui://weather/map",
    "mimeType": "text/html;profile=mcp-app",
    "visibility": ["model", "app"],
    "serverId": "weather",
}
CALL = p.ToolCall("c1", "forecast", {}, app=APP)


def message_of(chunks: list[Chunk], sdk: str) -> Any:
    builder = MessageBuilder(sdk=sdk)
    for chunk in chunks:
        builder.receive(chunk)
    return builder.message


@pytest.mark.parametrize(
    ("sdk", "tool_metadata"),
    [("any", None), ("5", None), ("6.0.175", None), ("6", {"app": NAMED}), ("7", {"app": NAMED})],
)
def test_a_call_names_its_app_where_the_release_reads_it(sdk: str, tool_metadata: Any) -> None:
    chunk = ToolInputAvailableChunk(
        "c1", "forecast", {}, provider_metadata={"mcp": {"app": NAMED}}, tool_metadata=tool_metadata
    )
    assert body([CALL], sdk) == [StartStepChunk(), chunk]
    stream = MessageStream(message_id="m1", sdk=sdk)
    stream.send(CALL)
    assert not stream.downgraded  # nothing is lost


@pytest.mark.parametrize("sdk", ["any", "5", "6", "7"])
def test_an_app_that_only_the_result_tells_is_announced_before_it(sdk: str) -> None:
    call = p.ToolCall(
        "c1", "forecast", {"city": "Oslo"}, provider_metadata={"openai": {"id": 1}}, tool_metadata={"a": 1}
    )
    chunks = send([call, p.ToolResult("c1", 21, app=APP)], sdk)
    kinds = [type(chunk) for chunk in chunks]
    assert kinds.count(ToolInputAvailableChunk) == 2
    [part] = [part for part in message_of(chunks, "7" if sdk == "any" else sdk)["parts"] if "toolCallId" in part]
    assert part["callProviderMetadata"] == {"openai": {"id": 1}, "mcp": {"app": NAMED}}
    assert part["input"] == {"city": "Oslo"}
    assert part["output"] == 21
    assert part.get("toolMetadata") == ({"a": 1, "app": NAMED} if sdk in "67" else None)


def test_an_app_that_the_call_has_told_is_not_announced_again() -> None:
    assert body([CALL, p.ToolResult("c1", 21, app=APP)])[2:] == [ToolOutputAvailableChunk("c1", 21)]


def test_a_call_that_was_asked_about_names_its_app_with_the_result() -> None:
    parts: list[p.Part] = [
        p.ToolCall("c1", "forecast", {}),
        p.ApprovalRequest("a1", "c1"),
        p.ApprovalResponse("a1", approved=True),
        p.ToolResult("c1", 21, app=APP),
    ]
    chunks = body(parts, "7")
    assert chunks[2] == ToolApprovalRequestChunk("a1", "c1")
    assert chunks[-1] == ToolOutputAvailableChunk("c1", 21, tool_metadata={"app": NAMED})


@pytest.mark.parametrize("written_for", ["any", "5", "6", "7"])
@pytest.mark.parametrize("is_told_late", [False, True], ids=["with-the-call", "with-the-result"])
def test_a_run_that_is_written_again_for_7_names_the_app_in_both_places(written_for: str, is_told_late: bool) -> None:
    call = p.ToolCall("c1", "forecast", {}, app=None if is_told_late else APP)
    frames = encode_frames(send([call, p.ToolResult("c1", 21, app=APP)], written_for))
    again = Reframer("m1", "7").receive(frames)
    assert again.count(b'"toolMetadata":{"app":{"resourceUri":"ui://weather/map"') == 1
    assert again.count(b'"providerMetadata":{"mcp":{"app":{"resourceUri":"ui://weather/map"') == 1


def test_an_app_of_another_endpoint_is_named_for_every_release() -> None:
    call = p.ToolCall("c1", "forecast", {}, tool_metadata={"app": {"resourceUri": "ui://map"}})
    [chunk] = [chunk for chunk in body([call], "any") if isinstance(chunk, ToolInputAvailableChunk)]
    assert chunk.provider_metadata == {"mcp": {"app": {"resourceUri": "ui://map"}}}


def test_a_stored_call_keeps_its_app_and_the_model_reads_nothing_of_it() -> None:
    message = message_of(send([CALL, p.ToolResult("c1", 21), p.Text("Mild.")]), "7")
    assert list(apps_in([message])) == [NAMED]
    history: Any = model_messages([{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "?"}]}, message])
    content = [
        {key: value for key, value in part.items() if key != "providerOptions"}
        for model_message in history
        for part in model_message["content"]
    ]
    assert "ui://" not in str(content)


@pytest.mark.parametrize("sdk", ["5", "7"])
def test_a_message_that_a_page_brings_names_no_app(sdk: str) -> None:
    message = message_of(send([p.Text("I look."), CALL, p.ToolResult("c1", 21)], sdk), sdk)
    question: Any = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "?"}]}
    without = without_apps(message)
    assert list(apps_in([question, message, without])) == [NAMED]
    assert [part.get("output") for part in without["parts"]] == [part.get("output") for part in message["parts"]]
    assert without_apps(without) is without, "there is nothing to take out"


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        (p.McpApp("https://example.com"), "must name a resource that begins with ui://, not 'https://example.com'"),
        (p.McpApp(7), "is no valid McpApp: Expected `str`, got `int`"),  # type: ignore[arg-type]
        ("ui://map", "must be a McpApp, not str"),
    ],
)
def test_what_is_no_app_is_refused(app: Any, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        MessageStream(sdk="7").send(p.ToolCall("c1", "forecast", {}, app=app))


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"ui": {"resourceUri": "ui://a"}}, p.McpApp("ui://a", "s")),
        ({"ui/resourceUri": "ui://a"}, p.McpApp("ui://a", "s")),
        ({"ui/resourceUri": "ui://a", "ui": {"visibility": ["app", 7]}}, p.McpApp("ui://a", "s", ("app",))),
        ({"ui": {"resourceUri": "https://a"}}, None),
        ({"ui": {"resourceUri": 7}}, None),
        ({"ui": None}, None),
        (None, None),
    ],
)
def test_a_tool_declares_its_app(meta: Any, expected: p.McpApp | None) -> None:
    assert declared_app(meta, "s") == expected


@pytest.mark.parametrize(
    ("meta", "app", "model"),
    [
        (None, True, True),
        ({"ui": {"visibility": ["model"]}}, False, True),
        ({"ui": {"visibility": ["app"]}}, True, False),
        ({"ui": {"visibility": []}}, False, False),
        ({"ui": {"visibility": "app"}}, True, True),
    ],
)
def test_a_tool_says_who_may_call_it(meta: Any, app: bool, model: bool) -> None:
    assert (is_visible_to(meta, "app"), is_visible_to(meta, "model")) == (app, model)
