"""The fields that the components of AI Elements read are in the parts that the real clients build of our streams.

AI Elements is no npm package, so it cannot be run here. Its Message, Tool, Reasoning and Sources are given parts of
messages; these are the keys that they look at. What it is built of runs in ``tests/browser/test_stock_hooks.py``.
"""

from typing import Any

import pytest

from tests.conformance.judge import RELEASES, Chat, Judge
from usechat import parts as p
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream

NEWEST = {major: releases[-1] for major, releases in RELEASES.items()}


def shown(judge: Judge, major: str, *items: p.Part) -> dict[str, Any]:
    """Return the message that the newest client of a major shows."""
    frames = FrameStream(MessageStream(message_id="m", sdk=major))
    body = b"".join([*map(frames.send, items), frames.close()])
    message: dict[str, Any] = judge.chat(NEWEST[major], [Chat(body)])[0]["message"]
    return message


def part_of(message: dict[str, Any], kind: str) -> dict[str, Any]:
    result: dict[str, Any] = next(part for part in message["parts"] if part["type"] == kind)
    return result


@pytest.mark.parametrize("major", NEWEST)
def test_message_reads_role_id_and_text(judge: Judge, major: str) -> None:
    message = shown(judge, major, p.Text("Hello"))
    assert (message["id"], message["role"]) == ("m", "assistant")
    assert part_of(message, "text")["text"] == "Hello"


@pytest.mark.parametrize("major", NEWEST)
def test_reasoning_reads_text_and_whether_it_streams(judge: Judge, major: str) -> None:
    part = part_of(shown(judge, major, p.Reasoning("Hm."), p.Text("So.")), "reasoning")
    assert (part["text"], part["state"]) == ("Hm.", "done")


@pytest.mark.parametrize("major", NEWEST)
def test_tool_reads_type_state_input_and_output(judge: Judge, major: str) -> None:
    items = (p.ToolCall("c", "look", {"at": "this"}), p.ToolResult("c", {"seen": True}), p.Text("."))
    part = part_of(shown(judge, major, *items), "tool-look")
    assert part["state"] == "output-available"
    assert (part["input"], part["output"], part.get("errorText")) == ({"at": "this"}, {"seen": True}, None)


@pytest.mark.parametrize("major", NEWEST)
def test_tool_reads_the_text_of_an_error(judge: Judge, major: str) -> None:
    items = (p.ToolCall("c", "look", {}), p.ToolError("c", "It is dark."), p.Text("."))
    part = part_of(shown(judge, major, *items), "tool-look")
    assert (part["state"], part["errorText"], part.get("output")) == ("output-error", "It is dark.", None)


@pytest.mark.parametrize("major", NEWEST)
def test_tool_reads_the_name_of_a_dynamic_tool(judge: Judge, major: str) -> None:
    items = (p.ToolCall("c", "look", {}, dynamic=True), p.ToolResult("c", 1), p.Text("."))
    part = part_of(shown(judge, major, *items), "dynamic-tool")
    assert (part["toolName"], part["state"], part["input"], part["output"]) == ("look", "output-available", {}, 1)


@pytest.mark.parametrize("major", ["6", "7"])
def test_confirmation_reads_the_approval(judge: Judge, major: str) -> None:
    part = part_of(shown(judge, major, p.ToolCall("c", "look", {}), p.ApprovalRequest("a", "c")), "tool-look")
    assert part["state"] == "approval-requested"
    assert part["approval"]["id"] == "a"


@pytest.mark.parametrize("major", NEWEST)
def test_sources_read_url_and_title(judge: Judge, major: str) -> None:
    part = part_of(shown(judge, major, p.SourceUrl("s", "https://example.org/", "A page")), "source-url")
    assert (part["url"], part["title"]) == ("https://example.org/", "A page")
