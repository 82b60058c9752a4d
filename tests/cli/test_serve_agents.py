"""`usechat serve` with several agents: both are offered, and what cannot be served together is refused."""

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.chats.talking import user
from tests.server.process import PATIENCE, serve_process
from tests.server.sockets import Body
from usechat.cli import main

AGENTS = '''
from usechat.server import ChatApp

async def writer(turn):
    """Writes."""
    yield f"writer: {turn.text}"

async def coder(turn):
    yield f"coder: {turn.text}"

app = ChatApp(coder)
'''


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("many", "others"):
        (tmp_path / f"{name}.py").write_text(AGENTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("many", "others"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("many", "others"):
        sys.modules.pop(name, None)


def test_both_agents_are_offered_and_answer(tmp_path: Path) -> None:
    with serve_process(tmp_path, "many.py:writer", "many.py:coder", "others.py:coder") as served:
        listed = httpx2.get(f"{served.url}/api/agents", timeout=PATIENCE).json()["agents"]
        assert [(agent["name"], agent["description"]) for agent in listed] == [
            ("writer", "Writes."),
            ("many.py:coder", ""),
            ("others.py:coder", ""),
        ]
        body = {"id": "c1", "messages": [user("u1", "Hi")], "agent": "others.py:coder"}
        response = httpx2.post(f"{served.url}/api/chat", json=body, timeout=PATIENCE)
        assert Body(response.content, complete=True).text == "coder: Hi"


CONTEXT = """
from dataclasses import dataclass

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime


@dataclass
class Visitor:
    name: str


def answer(state: MessagesState, runtime: Runtime[Visitor]):
    return {"messages": [AIMessage(f"Hello {runtime.context.name}")]}


graph = StateGraph(MessagesState, context_schema=Visitor).add_node(answer).add_edge(START, "answer").compile()


async def visitor(turn):
    return Visitor(turn.headers["x-name"])
"""


def test_an_agent_gets_the_context_that_the_command_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("langgraph", reason="the environments of other Pythons have no frameworks")
    (tmp_path / "many.py").write_text(CONTEXT, encoding="utf-8")
    assert main(["serve", "many.py:graph"]) == 2
    assert "needs a context with name" in capsys.readouterr().err
    with serve_process(tmp_path, "many.py:graph", "--context", "many.py:visitor") as served:
        body = {"id": "c1", "messages": [user("u1", "Hi")]}
        response = httpx2.post(f"{served.url}/api/chat", json=body, headers={"x-name": "Ada"}, timeout=PATIENCE)
        assert Body(response.content, complete=True).text == "Hello Ada"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["many.py:writer", "many.py:app"], "many.py:app is served alone"),
        (["many.py:writer", "flow.yaml"], "flow.yaml is served alone"),
        (["many.py:writer", "many.py:nobody"], "nobody"),
        (["many.py:writer", "--context", "many.py:coder"], "writer gets the turn itself; a context is for"),
        (["many.py:app", "--context", "many.py:coder"], "set --context in its code"),
        (["http://h/chat", "--as", "ai-sdk", "--context", "many.py:coder"], "--context is for an agent in Python"),
        (["http://localhost/api/chat", "many.py:writer", "--as", "ai-sdk"], "--as ai-sdk takes one OBJECT"),
        (
            ["many.py:writer", "many.py:coder", "--agents", "external", "--redis", "redis://localhost"],
            "takes one OBJECT",
        ),
    ],
)
def test_what_cannot_be_served_together_is_refused(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    assert error in capsys.readouterr().err
