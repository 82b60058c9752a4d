"""Apps that are not ours, tested with the client: pydantic-ai's own adapter; and our examples, tested like a user's."""

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest
from fastapi import FastAPI, Request
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from starlette.responses import Response

from scripts.generate_docs import ROOT
from usechat.cli.targets import load_object
from usechat.client import HttpChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.server import ChatApp, Settings
from usechat.testing import AgentClient

Clients = Callable[..., AgentClient]


async def script(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """A model that calls the tool that the user names, and says what it returned."""
    last = messages[-1].parts[-1]
    text = str(getattr(last, "content", ""))
    if isinstance(last, ToolReturnPart):
        yield "It is "
        yield text
    elif text in ("weather", "remove"):
        yield {0: DeltaToolCall(text, '{"name":"Paris"}', tool_call_id=f"call-{text}")}
    else:
        yield f"You said {text}"


def pydantic_ai_app(sdk: Literal[5, 6, 7]) -> FastAPI:
    """A FastAPI app as pydantic-ai's documentation writes it."""
    agent = Agent(FunctionModel(stream_function=script), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def weather(name: str) -> dict[str, int]:
        return {"celsius": len(name)}

    @agent.tool_plain(requires_approval=True)
    def remove(name: str) -> str:
        return f"{name} removed"

    app = FastAPI()

    @app.post("/api/chat")
    async def chat(request: Request) -> Response:
        return await VercelAIAdapter.dispatch_request(request, agent=agent, sdk_version=sdk)

    return app


@pytest.mark.parametrize("sdk", [5, 6, 7])
def test_the_adapter_of_pydantic_ai_is_legal_for_the_release_that_it_is_told(
    usechat_client: Clients, sdk: Literal[5, 6, 7]
) -> None:
    client = usechat_client(pydantic_ai_app(sdk), sdk=str(sdk))
    answer = client.ask("hello")
    answer.assert_legal(str(sdk))
    assert answer.text == "You said hello"
    answer = client.ask("weather")
    answer.assert_legal(str(sdk))
    assert (answer.tools[0].output, answer.deltas[0]) == ({"celsius": 5}, "It is ")


@pytest.mark.parametrize("sdk", [6, 7])
def test_approvals_of_pydantic_ai_are_answered(usechat_client: Clients, sdk: Literal[6, 7]) -> None:
    answer = usechat_client(pydantic_ai_app(sdk), sdk=str(sdk), approve=True).ask("remove")
    answer.assert_legal(str(sdk))
    assert (answer.error, answer.text) == (None, "It is Paris removed")


@pytest.mark.parametrize("sdk", ["5", "any"])
def test_the_adapter_of_pydantic_ai_is_served_to_every_release(usechat_client: Clients, sdk: str) -> None:
    inner = InProcessTransport(pydantic_ai_app(6))
    app = ChatApp(lambda: HttpChatTransport("http://inner/api/chat", http=inner), settings=Settings(sdk=sdk))
    client = usechat_client(app, sdk="5" if sdk == "5" else "7", approve=True)
    for question, text in {"hello": "You said hello", "remove": "It is Paris removed"}.items():
        answer = client.ask(question)
        answer.assert_legal(sdk)
        assert (answer.error, answer.text) == (None, text)


@pytest.mark.parametrize("name", ["chat_app", "fastapi_route"])
def test_our_examples_are_legal_for_every_release(
    usechat_client: Clients, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    app: Any = load_object(f"{ROOT / 'examples' / name}.py:app")
    answer = usechat_client(app).ask("hi")
    answer.assert_legal("any")
    assert "hi" in answer.text
    assert len(answer.deltas) > 1
    sys.modules.pop(name)
