"""Apps that are not ours, tested with the client: pydantic-ai's own adapter, and assistant-stream."""

from collections.abc import AsyncIterator, Callable
from typing import Literal

import pytest
from assistant_stream import AssistantStreamResponse, RunController, create_run, serialization
from assistant_stream.serialization import AssistantTransportEncoder, DataStreamEncoder, OpenAIStreamEncoder
from assistant_stream.serialization.stream_encoder import StreamEncoder
from fastapi import FastAPI, Request
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from starlette.responses import Response

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
    elif text in ("weather", "remove", "forget"):
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

    @agent.tool_plain
    def forget(name: str) -> None:
        pass

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


def test_a_tool_of_pydantic_ai_that_returns_none_fails_with_the_name_of_the_rule(usechat_client: Clients) -> None:
    answer = usechat_client(pydantic_ai_app(7)).ask("forget")
    with pytest.raises(AssertionError) as failure:
        answer.assert_legal("any")
    _, rule, frame, releases = str(failure.value).splitlines()
    assert "UC205 A key is missing: frame " in rule
    assert "\"tool-output-available\": the key 'output' is missing" in rule
    assert '"toolCallId": "call-forget"' in frame
    assert "To fix it: Send the key." in releases


def assistant_stream_app(encoder: StreamEncoder) -> FastAPI:
    """A FastAPI app as assistant-stream's documentation writes it."""
    app = FastAPI()

    async def run(controller: RunController) -> None:
        controller.append_text("It is ")
        call = await controller.add_tool_call("weather")
        call.append_args_text('{"city":"Paris"}')
        call.set_response({"celsius": 21})
        controller.append_text("21.")

    @app.post("/api/chat")
    async def chat() -> Response:
        response: Response = AssistantStreamResponse(create_run(run), encoder)
        return response

    return app


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        (
            DataStreamEncoder(),
            "UC005 The body is the data stream of AI SDK 4: the response: the body is the data stream of AI SDK 4",
        ),
        (
            AssistantTransportEncoder(),
            "UC009 The stream speaks another protocol: frame 1: the events are those of assist",
        ),
        (
            OpenAIStreamEncoder(),
            "UC009 The stream speaks another protocol: frame 1: the events are those of OpenAI's Chat",
        ),
    ],
)
def test_the_formats_of_assistant_stream_are_named(
    usechat_client: Clients, encoder: StreamEncoder, problem: str
) -> None:
    answer = usechat_client(assistant_stream_app(encoder)).ask("hi")
    assert answer.error is not None
    with pytest.raises(AssertionError) as failure:
        answer.assert_legal("any")
    assert problem in str(failure.value)


def test_assistant_stream_has_no_other_format_and_none_is_this_one() -> None:
    encoders = {name for name in serialization.__all__ if name.endswith("Encoder")}
    assert encoders == {"AssistantTransportEncoder", "DataStreamEncoder", "OpenAIStreamEncoder"}
