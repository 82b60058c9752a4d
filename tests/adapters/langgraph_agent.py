"""The agent of the scripts as LangChain agents: one that remembers with a checkpointer, and one without memory."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolErrorMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import SecretStr

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel, api: Api) -> Any:
    if api == "anthropic":
        return ChatAnthropic(
            model_name="claude-test",
            base_url=model.anthropic_url,
            api_key=SecretStr("none"),
            max_retries=0,
            timeout=None,
            stop=None,
        )
    return ChatOpenAI(
        model="gpt-4o",
        base_url=model.openai_url,
        api_key=SecretStr("none"),
        max_retries=0,
        stream_usage=True,
        use_responses_api=api == "responses",
    )


@tool
def location(exact: bool) -> str:
    """Say where the user is."""
    return str(interrupt({"exact": exact}))


def tools(model: ScriptedModel, api: Api, deeds: Deeds) -> list[BaseTool]:
    researcher = create_agent(chat_model(model, api), name="researcher")

    async def research(topic: str) -> str:
        """Ask another agent about a topic."""
        answer = await researcher.ainvoke({"messages": [{"role": "user", "content": topic}]})
        return str(answer["messages"][-1].text)

    return [
        StructuredTool.from_function(deeds.weather, description="The weather of a city."),
        StructuredTool.from_function(deeds.clock, description="The time in a zone."),
        StructuredTool.from_function(deeds.broken, description="Fails."),
        StructuredTool.from_function(coroutine=deeds.slow, name="slow", description="Takes long."),
        StructuredTool.from_function(deeds.delete, description="Deletes a file."),
        StructuredTool.from_function(coroutine=research, name="research"),
        location,
    ]


def with_memory(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    return create_agent(
        chat_model(model, api),
        tools(model, api, deeds),
        system_prompt=INSTRUCTIONS,
        middleware=[
            HumanInTheLoopMiddleware(interrupt_on={"delete": True}),
            ToolErrorMiddleware(lambda _error, _request: "It failed."),
        ],
        checkpointer=InMemorySaver(),
    )


def without_memory(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    return create_agent(chat_model(model, api), tools(model, api, deeds), system_prompt=INSTRUCTIONS)


def asking(_model: ScriptedModel, _api: Api, deeds: Deeds) -> Any:
    """Return a graph whose node asks people a question before it works."""

    def work(state: MessagesState) -> Any:  # noqa: ARG001
        answer = interrupt({"question": "Which file?"})
        return {"messages": [AIMessage(deeds.delete(answer))]}

    builder: Any = StateGraph(MessagesState)
    return builder.add_node("work", work).add_edge(START, "work").compile(checkpointer=InMemorySaver())
