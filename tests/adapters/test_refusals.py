"""What the page shows if a model refuses to answer: its words, and the finish reason of the AI SDK."""

from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import set_tracing_disabled
from langchain.agents import create_agent
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ContentFilterError

from tests.adapters import langgraph_agent, openai_agents_agent, pydantic_ai_agent
from tests.adapters.agents import Api
from usechat.adapters.pydantic_ai import PydanticAIAdapter
from usechat.parts import Finish, Text
from usechat.protocol.chunks import FinishChunk
from usechat.testing import AgentClient, ModelAnswer, ScriptedModel

WORDS = "I cannot help with that."
V7 = {"x-ai-sdk": "7"}

Make = Callable[[ScriptedModel, Api, Any], Any]


class City(BaseModel):
    name: str


def graph(model: ScriptedModel, api: Api, output: Any) -> Any:
    return create_agent(langgraph_agent.chat_model(model, api), response_format=output)


def pydantic_ai(model: ScriptedModel, api: Api, output: Any) -> Any:
    return Agent(pydantic_ai_agent.chat_model(model, api), output_type=output or str)


def openai_agents(model: ScriptedModel, api: Api, output: Any) -> Any:
    set_tracing_disabled(True)
    return OpenAIAgent(name="clerk", model=openai_agents_agent.chat_model(model, api), output_type=output)


ROWS = [
    (make, api, output)
    for make in (graph, pydantic_ai, openai_agents)
    for api in ("chat", "responses")
    for output in (None, City)
    if (make, api, output) != (graph, "chat", None)  # LangChain drops what the model says then
]


@pytest.mark.parametrize(("make", "api", "output"), ROWS)
def test_a_refusal_is_shown_with_its_reason(make: Make, api: Api, output: Any) -> None:
    refusal = ModelAnswer(text=["I cannot ", "help with that."], is_refused=True)
    with ScriptedModel([refusal, "Hello."]) as model, AgentClient(make(model, api, output), headers=V7) as client:
        answer = client.ask("Help me.")
        assert (answer.error, answer.text) == (None, WORDS)
        assert [chunk.finish_reason for chunk in answer.chunks if isinstance(chunk, FinishChunk)] == ["content-filter"]
        assert client.ask("Hi").error is None or output is not None  # that is not the output which it must have


def test_an_answer_that_the_provider_withholds_says_so() -> None:
    error = ContentFilterError("Content filter triggered.", body="[]")
    [sentence, finish] = PydanticAIAdapter().close(error)
    assert sentence == Text("The provider of the model has withheld this answer.")
    assert isinstance(finish, Finish)
    assert finish.reason == "content-filter"
