"""The Genkit chat specification's table of events, row by row, before the real npm clients.

A real Genkit server takes one step at a time, and the page is looked at after each.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.genkit_servers import NodeServer, node_server
from tests.conformance.http_client import NEWEST, Browser, Page, View, said, text_of
from tests.conformance.served import Served, serving
from usechat.cli.plan import Plan, make_app

STEPS = ["text", "start", "input", "complete", "output", "more text"]
"""What the gated model does, one after the other; then it is done."""

every_release = pytest.mark.parametrize("release", NEWEST)


@pytest.fixture(scope="module")
def node() -> Iterator[NodeServer]:
    with node_server() as running:
        yield running


@pytest.fixture(scope="module")
def served(node: NodeServer) -> Iterator[Served]:
    app = make_app(Plan(target=node.url("chatFlow"), kind="genkit"))
    with serving({"genkit": app.app}) as running:
        yield running
        for chats in app.chats:
            running.run(chats.shut_down()).result(30)


def tool(view: View) -> Any:
    parts = view["messages"][-1]["parts"] if view["messages"] else []
    return next((part for part in parts if part["type"] == "tool-gated"), {"state": None, "input": None})


SEEN: dict[str, Callable[[View], bool]] = {
    "text": lambda view: text_of(view) == "Let me look.",
    "start": lambda view: tool(view)["state"] == "input-streaming",
    "input": lambda view: bool(tool(view).get("input") == {"city": "Ro"}),
    "complete": lambda view: tool(view)["state"] == "input-available",
    "output": lambda view: tool(view)["state"] == "output-available",
    "more text": lambda view: text_of(view) == "Let me look.It is warm.",
}


class Row:
    """A page that is looked at after a step of the server, and the rest of the turn."""

    def __init__(self, page: Page, node: NodeServer) -> None:
        self._page = page
        self._node = node
        self._done = 0

    def at(self, step: str) -> View:
        """Let the server go on to this step, and return the page as it looks then."""
        while self._done <= STEPS.index(step):
            self._node.go()
            self._page.until(SEEN[STEPS[self._done]])
            self._done += 1
        return self._page.look()

    def end(self) -> View:
        self.at(STEPS[-1])
        return self._page.settled()


@pytest.fixture
def row(browser: Browser, served: Served, node: NodeServer, release: str, request: Any) -> Iterator[Row]:
    # The page is told the path that the specification names.
    url = f"http://127.0.0.1:{served.port}/genkit/chatFlow/stream"
    page = browser.open(release, url, chat_id=f"{request.node.name}", automatic=["tools"])
    page.send("gated")
    running = Row(page, node)
    yield running
    running.end()


@every_release
def test_row_text_chunk_is_a_text_delta(row: Row) -> None:
    view = row.at("text")
    assert view["status"] == "streaming"
    assert view["messages"][-1]["parts"] == [
        {"type": "step-start"},
        {"type": "text", "text": "Let me look.", "state": "streaming"},
    ]


@every_release
def test_row_tool_call_start_is_a_tool_input_start(row: Row) -> None:
    view = row.at("start")
    assert view["status"] == "streaming"
    assert [part["type"] for part in view["messages"][-1]["parts"]] == ["step-start", "text", "tool-gated"]
    assert (tool(view)["state"], tool(view)["input"]) == ("input-streaming", {"city": "R"})
    assert view["messages"][-1]["parts"][1]["state"] == "done"


@every_release
def test_row_tool_input_streaming_is_a_tool_input_delta(row: Row) -> None:
    view = row.at("input")
    assert view["status"] == "streaming"
    assert (tool(view)["state"], tool(view)["input"]) == ("input-streaming", {"city": "Ro"})


@every_release
def test_row_tool_input_complete_is_a_tool_input_available(row: Row) -> None:
    view = row.at("complete")
    assert view["status"] == "streaming"
    assert (tool(view)["state"], tool(view)["input"]) == ("input-available", {"city": "Rome"})
    assert [call["toolName"] for call in view["toolCalls"]] == ["gated"]


@every_release
def test_row_tool_output_ready_is_a_tool_output_available(row: Row) -> None:
    view = row.at("output")
    assert view["status"] == "streaming"
    assert (tool(view)["state"], tool(view)["output"]) == ("output-available", {"city": "Rome"})


@every_release
def test_row_generation_complete_is_a_finish(row: Row) -> None:
    view = row.end()
    assert (view["status"], view["error"]) == ("ready", None)
    assert [part["type"] for part in view["messages"][-1]["parts"]] == [
        *("step-start", "text", "tool-gated"),
        *("step-start", "text"),
    ]
    assert {part["state"] for part in view["messages"][-1]["parts"] if "text" in part} == {"done"}
    assert view["messages"][-1]["metadata"]["finishReason"] == "stop"
    assert [request["status"] for request in view["requests"]] == [200]


@pytest.mark.parametrize("path", ["chatFlow/stream", "api/chat"])
def test_row_generation_complete_is_a_done(served: Served, path: str) -> None:
    body = json.dumps({"id": path, "messages": [said("user", "hello")]}).encode()
    url = f"http://127.0.0.1:{served.port}/genkit/{path}"
    with urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"})) as response:
        frames = response.read().split(b"\n\n")
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert json.loads(frames[-3].removeprefix(b"data: "))["type"] == "finish"
    assert frames[-2:] == [b"data: [DONE]", b""]
