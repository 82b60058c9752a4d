"""The flows of the quickstart, run by our runtime with scripted models, on the pages of the newest clients."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.conformance.http_client import NEWEST, Browser, View
from tests.conformance.served import Served, serving
from tests.open_harness.scripted_models import Script, answering, call, spoken, thinking
from usechat.open_harness import FlowRuntime, OpenHarnessChatTransport, load_flow
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.server import ChatApp

FLOWS = Path(__file__).parents[2] / "examples" / "flows"
TOOLS = {
    "name": "tools-flow",
    "nodes": [
        {
            "id": "guide",
            "type": "agent",
            "input": {
                "prompt": "{{ flow.input.message }}",
                "tools": [f"tests.open_harness.agent_tools:{name}" for name in ("weather", "broken", "closed")],
            },
        }
    ],
    "edges": [],
}
FAILING = {
    "name": "failing-flow",
    "nodes": [
        {"id": "first", "type": "agent", "input": {"prompt": "{{ flow.input.message }}"}},
        {"id": "second", "type": "agent", "input": {"prompt": "{{ first.text }}"}},
    ],
    "edges": [{"from": "first", "to": "second"}],
}

_numbers = itertools.count(1)


def editing() -> NodeRegistry:
    """Return models of which the editor is content with the second text."""

    def answer(prompt: str) -> str:
        if prompt.startswith("Write"):
            return "Cats sleep." if "The editor said" in prompt else "Cats."
        if prompt.startswith("Describe"):
            return "A cat."
        return "APPROVED" if "Cats sleep." in prompt else "Say more."

    return default_registry(default_model=answering(answer))


def app(flow: Path | Mapping[str, Any], registry: NodeRegistry | None = None, **options: Any) -> ChatApp:
    loaded = load_flow(flow, registry=registry or default_registry())
    return ChatApp(OpenHarnessChatTransport(partial(FlowRuntime, loaded, registry=registry), **options))


def tools_app() -> ChatApp:
    """Return a flow whose agent uses three tools, two of which fail; each turn has its own script."""

    def make() -> FlowRuntime:
        script = Script(
            [
                thinking("I look it up."),
                call("weather", '{"city": "Rome"}', index=1),
                call("broken", '{"city": "Oslo"}', index=2),
                call("closed", '{"city": "Bern"}', index=3),
            ],
            ["It is 21 °C in Rome."],
        )
        return FlowRuntime(TOOLS, registry=script.registry)

    return ChatApp(OpenHarnessChatTransport(make))


def failing_app() -> ChatApp:
    """Return a flow whose second agent cannot reach its model."""

    def make() -> FlowRuntime:
        return FlowRuntime(FAILING, registry=Script(["So far."], [RuntimeError("the password is hunter2")]).registry)

    return ChatApp(OpenHarnessChatTransport(make))


def remembering() -> NodeRegistry:
    """Return a model that tells how much it was told, and what came first."""

    async def stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        turns = spoken(messages)
        yield "1 thing said" if len(turns) == 1 else f"{len(turns)} things said: {turns[0][1]}"

    return default_registry(default_model=FunctionModel(stream_function=stream))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    echoing = default_registry(default_model=answering(lambda prompt: f"About [{prompt.strip()}]"))
    apps = {
        "chat": app(FLOWS / "chat-flow.yaml", echoing),
        "research": app(FLOWS / "research-flow.yaml", echoing),
        "article": app(FLOWS / "article-flow.yaml", editing(), send_flow_metadata=True),
        "tools": tools_app(),
        "failing": failing_app(),
        "memory": app(FLOWS / "chat-flow.yaml", remembering()),
    }
    with serving(apps) as running:
        yield running


def ask(browser: Browser, served: Served, release: str, name: str, text: str) -> View:
    page = browser.open(release, served.url(name), chat_id=f"chat-{next(_numbers)}")
    page.send(text)
    return page.settled()


def parts_of(view: View) -> list[Any]:
    assert (view["status"], view["error"]) == ("ready", None)
    parts: list[Any] = view["messages"][-1]["parts"]
    return parts


def outline(parts: list[Any]) -> list[str]:
    """Return what a page shows, in its order."""
    return [part.get("text") or part["type"] for part in parts if not part["type"].startswith("data-")]


def speaker(part: Any) -> Any:
    return part["providerMetadata"]["openHarness"]["nodeId"]


@pytest.mark.parametrize("release", NEWEST)
def test_chat_flow_answers_in_one_step(browser: Browser, served: Served, release: str) -> None:
    parts = parts_of(ask(browser, served, release, "chat", "cats"))
    assert outline(parts) == ["step-start", "About [cats]"]
    assert parts[1]["state"] == "done"


@pytest.mark.parametrize("release", NEWEST)
def test_research_flow_shows_the_researcher_and_then_the_summarizer(
    browser: Browser, served: Served, release: str
) -> None:
    parts = parts_of(ask(browser, served, release, "research", "cats"))
    research = "About [Research: cats]"
    assert outline(parts) == [
        "step-start",
        research,
        "step-start",
        f"About [Summarize: {research}]",
    ]
    assert [speaker(part) for part in parts if part["type"] == "text"] == ["researcher", "summarizer"]


@pytest.mark.parametrize("release", NEWEST)
def test_three_nodes_with_parallel_branches_and_a_loop_are_shown_in_their_order(
    browser: Browser, served: Served, release: str
) -> None:
    parts = parts_of(ask(browser, served, release, "article", "cats"))
    texts: dict[str, str] = {}
    for part in parts:
        if part["type"] == "text":
            texts[speaker(part)] = texts.get(speaker(part), "") + part["text"]
    assert texts == {"writer": "Cats.Cats sleep.", "illustrator": "A cat.", "editor": "Say more.APPROVED"}
    lines = outline(parts)
    assert lines[0] == "step-start"
    assert lines[-6:] == ["step-start", "Say more.", "step-start", "Cats sleep.", "step-start", "APPROVED"]
    edges = [(part["data"]["from"], part["data"]["to"]) for part in parts if part["type"] == "data-edge"]
    assert sorted(edges[:2]) == [("illustrator", "editor"), ("writer", "editor")]
    assert edges[2:] == [("editor", "writer"), ("writer", "editor")]
    nodes = [part["data"] for part in parts if part["type"] == "data-node-status"]
    assert [node["nodeId"] for node in nodes] == ["writer", "illustrator", "editor", "writer", "editor"]
    assert {node["status"] for node in nodes} == {"complete"}
    (graph,) = [part["data"] for part in parts if part["type"] == "data-flow-graph"]
    assert [node["id"] for node in graph["nodes"]] == ["writer", "illustrator", "editor"]


@pytest.mark.parametrize("release", NEWEST)
def test_tools_show_input_and_output_and_a_failed_one_its_error(browser: Browser, served: Served, release: str) -> None:
    parts = parts_of(ask(browser, served, release, "tools", "warm?"))
    assert outline(parts) == [
        "step-start",
        "I look it up.",
        "tool-weather",
        "tool-broken",
        "tool-closed",
        "step-start",
        "It is 21 °C in Rome.",
    ]
    weather, broken, closed = [part for part in parts if part["type"].startswith("tool-")]
    assert (weather["state"], weather["input"]) == ("output-available", {"city": "Rome"})
    assert weather["output"] == {"city": "Rome", "days": 1, "celsius": 21}
    assert (broken["state"], broken["input"]) == ("output-error", {"city": "Oslo"})
    assert broken["errorText"].startswith("broken failed. Reference: ")
    assert (closed["state"], closed["errorText"]) == ("output-error", "The station of Bern is closed.")


@pytest.mark.parametrize("release", NEWEST)
def test_a_node_that_fails_is_an_error_in_words_after_what_was_said(
    browser: Browser, served: Served, release: str
) -> None:
    view = ask(browser, served, release, "failing", "go")
    assert view["status"] == "error"
    assert view["error"] is not None
    assert view["error"]["message"].startswith("The step “second” failed. Reference: ")
    assert outline(view["messages"][-1]["parts"])[:2] == ["step-start", "So far."]


@pytest.mark.parametrize("release", NEWEST)
def test_the_second_answer_knows_the_first(browser: Browser, served: Served, release: str) -> None:
    page = browser.open(release, served.url("memory"), chat_id=f"chat-{next(_numbers)}")
    page.send("My name is Ann.")
    assert outline(page.answer()["parts"]) == ["step-start", "1 thing said"]
    page.send("What is my name?")
    assert outline(page.answer()["parts"]) == ["step-start", "3 things said: My name is Ann."]
