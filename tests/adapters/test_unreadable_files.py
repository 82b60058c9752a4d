"""Files that a model cannot take: the person is told which one, and later turns leave it out."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent

from tests.adapters import langgraph_agent, pydantic_ai_agent
from usechat.chats import MemoryChats
from usechat.server import ChatApp
from usechat.testing import AgentClient, ModelAnswer, ScriptedModel

AUDIO: Any = {"type": "file", "mediaType": "audio/mpeg", "filename": "a.mp3", "url": "data:audio/mpeg;base64,AAAA"}
NOTE = "[a.mp3 (audio/mpeg) was left out: it cannot be read.]"
SENTENCE = "The model cannot read a.mp3 (audio/mpeg). Send a text, an image or a PDF file instead."


def pydantic_ai(model: ScriptedModel) -> Any:
    return Agent(pydantic_ai_agent.chat_model(model, "anthropic"))


def graph(model: ScriptedModel, memory: Any = None) -> Any:
    return create_agent(langgraph_agent.chat_model(model, "anthropic"), checkpointer=memory)


def remembering(model: ScriptedModel) -> Any:
    return graph(model, InMemorySaver())


def stored(model: ScriptedModel) -> Any:
    return ChatApp(remembering(model), chats=MemoryChats())


@pytest.mark.parametrize("make", [pydantic_ai, graph, remembering, stored])
def test_a_file_that_the_model_cannot_take_is_named_and_left_out_later(make: Any) -> None:
    with ScriptedModel(["Hello.", "Bye."]) as model, AgentClient(make(model)) as client:
        assert str(client.ask("What is this?", files=[AUDIO]).error) == SENTENCE
        assert client.ask("Hi").text == "Hello."
        assert client.ask("Bye").text == "Bye."
        assert len(model.requests) == 2
        assert all(str(request["messages"]).count(NOTE) == 1 for request in model.requests)


@pytest.mark.parametrize("make", [pydantic_ai, graph, remembering])
def test_a_failure_of_another_kind_blames_no_file(make: Any) -> None:
    failure = ModelAnswer(error="Not now.", status=401)
    with ScriptedModel([failure]) as model, AgentClient(make(model)) as client:
        document: Any = {**AUDIO, "mediaType": "text/plain", "url": "data:text/plain,a"}
        assert "cannot read" not in str(client.ask("What is this?", files=[document]).error)


@pytest.mark.parametrize("make", [pydantic_ai, graph])
def test_a_provider_that_refuses_a_request_with_a_readable_file_refuses_it_once(make: Any) -> None:
    failure = ModelAnswer(error="Too hot.", status=400)
    image: Any = {**AUDIO, "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    with ScriptedModel([failure]) as model, AgentClient(make(model)) as client:
        assert "cannot read" not in str(client.ask("What is this?", files=[image]).error)
        assert len(model.refusals) == 1
