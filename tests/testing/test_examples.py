"""Our examples, tested as a user would test an agent: in a few lines, with the client."""

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from scripts.generate_docs import ROOT
from tests.conformance.served import serving
from tests.open_harness.scripted_models import Script, answering, call
from usechat.open_harness import FlowRuntime, OpenHarnessChatTransport, default_registry, load_flow
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.targets import load_object
from usechat.testing import AgentClient

Clients = Callable[..., AgentClient]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    def load(target: str) -> Any:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, target.partition(".")[0], raising=False)
        return load_object(f"{ROOT / 'examples'}/{target}")

    return load


@pytest.mark.parametrize("name", ["chat_app", "fastapi_route"])
def test_an_app_is_legal_for_every_release(usechat_client: Clients, example: Callable[[str], Any], name: str) -> None:
    answer = usechat_client(example(f"{name}.py:app")).ask("hi")
    answer.assert_legal("any")
    assert "hi" in answer.text
    assert len(answer.deltas) > 1


def test_a_route_mints_a_token_for_a_page_that_talks_by_voice(
    example: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []

    async def mint(request: Request) -> JSONResponse:
        asked.append((request.headers["authorization"], await request.json()))
        return JSONResponse({"value": "ek_1", "expires_at": 1_800_000_000}, 200 if len(asked) == 1 else 429)

    app = example("realtime_token.py:app")
    provider = Starlette(routes=[Route("/realtime/client_secrets", mint, methods=["POST"])])
    with serving({"v1": provider}) as served, TestClient(app) as page:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{served.port}/v1")
        answer, refusal = [page.post("/api/realtime/token", json={"sessionConfig": {}}) for _ in range(2)]
    assert answer.json() == {
        "token": "ek_1",
        "url": f"ws://127.0.0.1:{served.port}/v1/realtime?model=gpt-realtime",
        "expiresAt": 1_800_000_000,
    }
    assert asked[0] == ("Bearer sk-1", {"session": {"type": "realtime", "model": "gpt-realtime"}})
    assert (refusal.status_code, "sk-1" in refusal.text) == (502, False)


def test_the_agent_for_a_worker_can_be_resumed_and_stopped(
    usechat_client: Clients, example: Callable[[str], Any]
) -> None:
    answer = usechat_client(example("worker_agent.py:agent")).ask("deploys")
    answer.assert_legal("any")
    assert answer.text == f"Process {os.getpid()} thinks about 'deploys'. 1 2 3 4 5 6 7 8 9 10 Done."
    assert len(answer.deltas) > 5
    answer.assert_resumes()
    answer.assert_stops()


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar"])
def test_an_application_with_a_database_of_its_own_owns_the_history(
    usechat_client: Clients, framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite+aiosqlite:///{tmp_path}/messages.db")
    for name in [name for name in sys.modules if name.startswith("examples.own_database")]:
        monkeypatch.delitem(sys.modules, name)
    client = usechat_client(import_module(f"examples.own_database.{framework}_app").app)
    answers = [client.ask("One"), client.ask("Two"), client.regenerate()]
    for answer in answers:
        answer.assert_legal("any")
    assert [answer.text for answer in answers] == [
        f"That was message {text}" for text in ("1: One", "3: Two", "3: Two")
    ]


def served_flow(name: str, registry: NodeRegistry) -> OpenHarnessChatTransport:
    flow = load_flow(ROOT / "examples" / "flows" / name)
    return OpenHarnessChatTransport(lambda: FlowRuntime(flow, registry=registry))


def structured(value: Any) -> list[Any]:
    """Return how a model gives a structured output: as the call of a tool."""
    return [call("final_result", json.dumps(value))]


def edited() -> NodeRegistry:
    reviews = iter(["Shorter, please.", "APPROVED"])

    def answer(prompt: str) -> str:
        if prompt.startswith("Answer APPROVED"):
            return next(reviews)
        return "A picture." if prompt.startswith("Describe") else f"An article{' again' * ('Shorter' in prompt)}."

    return default_registry(default_model=answering(answer))


TASKS = {"tasks": [{"id": "t1", "title": "T", "description": "a form"}]}


@pytest.mark.parametrize(
    ("name", "models", "texts"),
    [
        ("chat-flow.yaml", lambda: Script(["Good ", "day."]).registry, ["Good day."]),
        (
            "research-flow.yaml",
            lambda: Script(["Bees dance."], ["They dance."]).registry,
            ["Bees dance.", "They dance."],
        ),
        (
            "article-flow.yaml",
            edited,
            ["An article.", "A picture.", "Shorter, please.", "An article again.", "APPROVED"],
        ),
        (
            "feature-flow.yaml",
            lambda: Script(structured(TASKS), ["A form."], structured({"passed": True})).registry,
            ["A form."],
        ),
    ],
)
def test_a_flow_is_legal_for_every_release(
    usechat_client: Clients, name: str, models: Callable[[], NodeRegistry], texts: list[str]
) -> None:
    answer = usechat_client(served_flow(name, models())).ask("bees")
    answer.assert_legal("any")
    assert answer.error is None
    assert all(text in answer.text for text in texts), answer.text
