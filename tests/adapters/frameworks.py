"""The frameworks that the scripts run, live. Each is one row; what it cannot do is a sentence of its documentation."""

from typing import Final

from tests.adapters.agents import Framework

_RAISES: Final = (
    "LangGraph does not catch the exception of a tool unless you add `ToolErrorMiddleware`, so the turn ends. The page"
    " shows the call as failed."
)
_NEEDS_MEMORY: Final = "Needs a checkpointer to store the paused state."

FRAMEWORKS: Final = (
    Framework(
        name="LangGraph with a checkpointer",
        page="langgraph",
        factory="langgraph_agent:with_memory",
        apis=("chat", "responses", "anthropic"),
    ),
    Framework(
        name="LangGraph without memory",
        page="langgraph",
        factory="langgraph_agent:without_memory",
        apis=("chat", "responses", "anthropic"),
        limits={
            "tool failure": _RAISES,
            "approval": _NEEDS_MEMORY,
            "denial": _NEEDS_MEMORY,
            "two approvals in reverse order": _NEEDS_MEMORY,
            "a new message while an approval waits": _NEEDS_MEMORY,
        },
    ),
    Framework(
        name="Pydantic AI",
        page="pydantic-ai",
        factory="pydantic_ai_agent:make",
        apis=("chat", "responses", "anthropic"),
    ),
    Framework(
        name="OpenAI Agents",
        page="openai-agents",
        factory="openai_agents_agent:make",
        apis=("responses", "chat"),
        limits={
            "client tool": "The SDK has no client tools.",
            "an answer that is cut off": "With Responses the SDK reports a failure. With Chat Completions the answer"
            " looks complete.",
        },
    ),
)

_NOT_PLAYED: Final = frozenset(
    {
        "approval",
        "denial",
        "two approvals in reverse order",
        "a new message while an approval waits",
        "sub-agent",
    }
)

MODEL_CLIENTS: Final = (
    Framework(
        name="OpenAI client",
        page="model-clients",
        factory="model_client_agents:openai",
        apis=("chat", "responses"),
        not_played=_NOT_PLAYED,
    ),
    Framework(
        name="Anthropic client",
        page="model-clients",
        factory="model_client_agents:anthropic",
        apis=("anthropic",),
        not_played=_NOT_PLAYED,
    ),
)
"""Clients of models, in an agent function that runs the tools itself."""

LITELLM: Final = (
    Framework(
        name="LiteLLM with OpenAI",
        page="model-clients",
        factory="litellm_agent:make",
        apis=("chat",),
        not_played=_NOT_PLAYED,
    ),
    Framework(
        name="LiteLLM with Anthropic",
        page="model-clients",
        factory="litellm_agent:make",
        apis=("anthropic",),
        not_played=_NOT_PLAYED
        | {"a tool that the provider runs", "a tool of an MCP server that the provider calls", "stop in text"},
    ),
)
"""Run live by `make test-frameworks`, since LiteLLM needs an older client of OpenAI."""
