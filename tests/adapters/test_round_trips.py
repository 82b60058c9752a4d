"""Whatever a chat holds, its texts, calls and results reach each framework, once and in order."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, ToolMessage
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from tests.model_message_strategies import model_histories
from usechat.adapters.langgraph import to_langchain
from usechat.adapters.openai_agents import to_openai_agents
from usechat.adapters.pydantic_ai import to_pydantic_ai
from usechat.protocol.model_messages import repair_messages

Fact = tuple[str, Any]


def told(history: Any) -> Iterator[Fact]:
    """Yield what model messages say; a provider's own calls are not sent back."""
    calls = [part for message in history for part in message["content"] if part["type"] == "tool-call"]
    provided = {call["toolCallId"] for call in calls if call.get("providerExecuted")}
    for message in history:
        for part in message["content"]:
            if part["type"] == "text":
                if message["role"] == "user" or part["text"].strip():
                    yield "text", part["text"]
            elif part.get("toolCallId") in provided:
                continue
            elif part["type"] == "tool-call":
                yield "call", (part["toolCallId"], part["input"])
            elif part["type"] == "tool-result":
                yield "result", part["toolCallId"]


def of_langchain(history: Any) -> Iterator[Fact]:
    for message in to_langchain(history):
        if isinstance(message, ToolMessage):
            yield "result", message.tool_call_id
            continue
        content = message.content
        is_call = isinstance(message, AIMessage) and content == ""
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) and not is_call else content
        yield from (("text", block["text"]) for block in blocks if block["type"] == "text")  # type: ignore[index]
        if isinstance(message, AIMessage):
            yield from (("call", (call["id"], call["args"])) for call in message.tool_calls)


def of_pydantic_ai(history: Any) -> Iterator[Fact]:
    for part in (part for message in to_pydantic_ai(history) for part in message.parts):
        match part:
            case TextPart():
                yield "text", part.content
            case UserPromptPart():
                yield from (
                    ("text", text) for text in ([part.content] if isinstance(part.content, str) else part.content)
                )
            case ToolCallPart():
                yield "call", (part.tool_call_id, part.args)
            case ToolReturnPart():
                yield "result", part.tool_call_id


def of_openai_agents(history: Any) -> Iterator[Fact]:
    for item in to_openai_agents(history):
        if item.get("type") == "function_call":
            yield "call", item["call_id"]
        elif item.get("type") == "function_call_output":
            yield "result", item["call_id"]
        elif item.get("role") in ("user", "assistant"):
            content = item["content"]
            yield from (
                ("text", text) for text in ([content] if isinstance(content, str) else [c["text"] for c in content])
            )


@given(model_histories)
def test_openai_agents_are_told_everything_in_order(history: Any) -> None:
    history = [message for message in repair_messages(history) if message["role"] != "system"]
    ids = [(kind, fact[0] if kind == "call" else fact) for kind, fact in told(history)]
    assert list(of_openai_agents(history)) == ids


@pytest.mark.parametrize("read", [of_langchain, of_pydantic_ai])
@given(history=model_histories)
def test_the_other_frameworks_are_told_everything(read: Callable[[Any], Iterator[Fact]], history: Any) -> None:
    history = [message for message in repair_messages(history) if message["role"] != "system"]
    expected, facts = list(told(history)), list(read(history))
    for kind in ("text", "call", "result"):
        assert [fact for fact in facts if fact[0] == kind] == [fact for fact in expected if fact[0] == kind]
