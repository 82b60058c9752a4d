"""Agents as people write them, in a file of their own: served by the command, and read by the real clients."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

ENTRYPOINT: Final = """
from typing import TypedDict

from langchain_core.messages import AnyMessage
from langchain_openai import ChatOpenAI
from langgraph.func import entrypoint

model = ChatOpenAI(model="gpt-4o", use_responses_api=True)


class State(TypedDict):
    messages: list[AnyMessage]


@entrypoint()
async def agent(state: State) -> dict[str, list[AnyMessage]]:
    return {"messages": [await model.ainvoke(state["messages"])]}
"""

SERVERS: Final = """
import sys

from agents import Agent, set_tracing_disabled
from agents.mcp import MCPServerStdio

set_tracing_disabled(True)


def agent(turn):
    parameters = {"command": sys.executable, "args": ["weather_server.py"]}
    return Agent(name="clerk", mcp_servers=[MCPServerStdio(parameters, client_session_timeout_seconds=60)])
"""

WEATHER_SERVER: Final = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")


@server.tool()
def weather(city: str) -> str:
    return f"sunny in {city}"


server.run()
"""

CONTEXT: Final = """
from pydantic_ai import Agent, RunContext


class Visitor:
    def __init__(self, turn):
        self.name = turn.headers["host"]


agent = Agent("openai:gpt-4o", deps_type=Visitor)


@agent.tool(requires_approval=True)
def greet(context: RunContext[Visitor]) -> str:
    return f"Hello, {context.deps.name.partition(':')[0]}"


@agent.output_validator
def polite(output: str) -> str:
    return output
"""

REFUSAL: Final = ModelAnswer(text="I cannot help with that.", is_refused=True)


@contextmanager
def served(directory: Path, app: str, model: ScriptedModel, *options: str) -> Iterator[str]:
    """Yield the address to post to of a server of the file's agent."""
    (directory / "my_app.py").write_text(app, encoding="utf-8")
    (directory / "weather_server.py").write_text(WEATHER_SERVER, encoding="utf-8")
    usechat = str(Path(sys.executable).with_name("usechat"))
    command = [usechat, "serve", "my_app:agent", "--port", "0", "--no-page", *options]
    environment = {"PYTHONUNBUFFERED": "1", "OPENAI_BASE_URL": model.openai_url, "OPENAI_API_KEY": "none"}
    with subprocess.Popen(
        command, cwd=directory, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield next(
                f"{address}/api/chat" for line in process.stdout for address in re.findall(r"http://[\d.]+:\d+", line)
            )
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def shown(message: dict[str, object]) -> list[object]:
    """Return the outputs and texts of a message."""
    parts: list[dict[str, object]] = message["parts"]  # type: ignore[assignment]
    return [part.get("output") or part.get("text") for part in parts if part["type"] != "step-start"]


@pytest.mark.parametrize(
    ("app", "answers", "first"),
    [
        pytest.param(ENTRYPOINT, ["Hello."], ["Hello."], id="an entrypoint of LangGraph"),
        pytest.param(
            SERVERS,
            [ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})]), "Sunny."],
            ["sunny in Paris", "Sunny."],
            id="an OpenAI agent of one turn",
        ),
    ],
)
def test_an_agent_of_somebody_else_answers_and_refuses(
    app: str, answers: list[ModelAnswer | str], first: list[str], browser: Browser, tmp_path: Path
) -> None:
    with ScriptedModel([*answers, REFUSAL] * len(NEWEST)) as model, served(tmp_path, app, model) as url:
        for release in NEWEST:
            page = browser.open(release, url, chat_id=f"stranger-{release}")
            page.send("Hi")
            assert shown(page.answer()) == first
            page.send("Help me.")
            refusal = page.answer()
            assert shown(refusal) == ["I cannot help with that."]
            assert refusal["metadata"]["finishReason"] == "content-filter"
        assert model.refusals == []


def test_an_agent_of_pydantic_ai_asks_for_an_approval_and_knows_its_visitor(browser: Browser, tmp_path: Path) -> None:
    answers: list[ModelAnswer | str] = [ModelAnswer(calls=[ModelCall("greet", {})]), "Done.", REFUSAL]
    with (
        ScriptedModel(answers * len(WITH_APPROVALS)) as model,
        served(tmp_path, CONTEXT, model, "--context", "my_app:Visitor") as url,
    ):
        for release in WITH_APPROVALS:
            page = browser.open(release, url, chat_id=f"visitor-{release}", automatic=["approvals"])
            page.send("Greet me.")
            [call] = [part for part in page.answer()["parts"] if part["type"] == "tool-greet"]
            page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": True})
            assert shown(page.answer()) == ["Hello, 127.0.0.1", "Done."]
            page.send("Help me.")
            assert shown(page.answer()) == ["I cannot help with that."]
        assert model.refusals == []
