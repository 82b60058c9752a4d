"""`usechat serve --as ag-ui URL`, with an agent that sends the events of AG-UI over HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.cli.common_options import COMMON
from tests.conformance.served import serving, unanswered_port
from usechat.adapters.targets import AgUiTarget, RemoteAgentOptions
from usechat.cli.plan import Plan, make_app
from usechat.errors import InvalidAddress
from usechat.testing import AgentClient

HELLO = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hello"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]


class AgUiAgent:
    """An agent that answers every run with the same body, and remembers what it was asked."""

    def __init__(self, body: str | None = None, status: int = 200) -> None:
        self._body = "".join(f"data: {json.dumps(event)}\n\n" for event in HELLO) if body is None else body
        self._status = status
        self.inputs: list[Any] = []
        self.headers: list[Any] = []

    async def answer(self, request: Request) -> Response:
        self.inputs.append(await request.json())
        self.headers.append(request.headers)
        return PlainTextResponse(self._body, self._status, media_type="text/event-stream")


@contextmanager
def served(agent: AgUiAgent) -> Iterator[str]:
    app = Starlette(routes=[Route("/api/chat", agent.answer, methods=["POST"])])
    with serving({"agent": app}) as running:
        yield running.url("agent")


def asked(plan: Plan, **headers: str) -> Any:
    with AgentClient(make_app(plan).app, path=plan.path, headers={"host": "localhost", **headers}) as client:
        return client.ask("hi")


def test_an_agent_at_an_address_answers_a_page() -> None:
    agent = AgUiAgent()
    with served(agent) as url:
        answer = asked(Plan(target=url, kind="ag-ui"))
    answer.assert_legal("any")
    assert answer.text == "Hello"
    assert [message["content"] for message in agent.inputs[0]["messages"]] == ["hi"]


def test_the_agent_is_called_with_a_token_headers_and_what_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    agent = AgUiAgent()
    options = {"upstream_token": str(tmp_path / "token"), "header": ["x-team: blue"], "pass_on": ["X-Person"]}
    with served(agent) as url:
        asked(Plan(target=url, kind="ag-ui", options=options), **{"x-person": "ada"})
    headers = agent.headers[0]
    assert (headers["authorization"], headers["x-team"], headers["x-person"]) == ("Bearer abc", "blue", "ada")


@pytest.mark.parametrize(
    "agent",
    [AgUiAgent("hunter2", 500), AgUiAgent("data: hunter2\n\n"), AgUiAgent("data: [1]\n\n")],
    ids=["an error", "no JSON", "no object"],
)
def test_an_answer_that_is_no_run_fails_the_turn_and_leaks_nothing(agent: AgUiAgent) -> None:
    with served(agent) as url:
        answer = asked(Plan(target=url, kind="ag-ui"))
    assert answer.error is not None
    assert "hunter2" not in str(answer.error)


def test_an_agent_that_cannot_be_reached_is_a_sentence() -> None:
    with unanswered_port() as port:
        answer = asked(Plan(target=f"http://127.0.0.1:{port}/", kind="ag-ui"))
    assert str(answer.error) == "The agent cannot be reached. Please try again later."


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(InvalidAddress, match="is not the address of an AG-UI agent"):
        AgUiTarget().open("localhost:8000", RemoteAgentOptions(), COMMON)
