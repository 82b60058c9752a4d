"""Model streams that are cut before their final event, as the clients of the providers read them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.open_harness.flow_runs import EventLog, flow, run
from tests.open_harness.nodes.test_agent import agent, tool
from usechat.open_harness.errors import AgentFailed
from usechat.open_harness.models.pydantic_ai import require_complete
from usechat.open_harness.nodes.builtin import default_registry

_ENVELOPE = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_RESPONSE = {"id": "1", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": []}
_ITEM = {"type": "message", "id": "i", "role": "assistant", "status": "in_progress", "content": []}
_PLACE = {"item_id": "i", "output_index": 0, "content_index": 0}
_CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


def chat_chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {**_ENVELOPE, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


CHAT = [chat_chunk({"role": "assistant", "content": "Hello"}), chat_chunk({}, "stop")]
CHAT_CALL = [chat_chunk({"role": "assistant", "tool_calls": [_CALL]}), chat_chunk({}, "tool_calls")]
RESPONSES = [
    {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}, "sequence_number": 0},
    {"type": "response.output_item.added", "output_index": 0, "item": _ITEM, "sequence_number": 1},
    {"type": "response.output_text.delta", **_PLACE, "delta": "Hello", "logprobs": [], "sequence_number": 2},
    {"type": "response.completed", "response": {**_RESPONSE, "status": "completed"}, "sequence_number": 3},
]
_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {"id": "1", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": _USAGE}
MESSAGES = [
    {"type": "message_start", "message": {**_MESSAGE, "stop_reason": None, "stop_sequence": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
]


@asynccontextmanager
async def provider(events: list[dict[str, Any]]) -> AsyncIterator[str]:
    """Answer every request with these events and a clean end of the connection; yield the URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        frames = [f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events]
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write((head + "".join(frames)).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def model(kind: str, url: str) -> Model:
    if kind == "anthropic":
        return AnthropicModel("m", provider=AnthropicProvider(api_key="none", base_url=url))
    openai = OpenAIProvider(api_key="none", base_url=url)
    return OpenAIResponsesModel("m", provider=openai) if kind == "responses" else OpenAIChatModel("m", provider=openai)


async def log_of(kind: str, events: list[dict[str, Any]]) -> EventLog:
    async with provider(events) as url:
        registry = default_registry(default_model=model(kind, url))
        log, _ = await run(flow(agent(tools=[tool("weather")])), {"message": "?"}, registry=registry)
    return log


STREAMS = [("chat", CHAT, 1), ("responses", RESPONSES, 1), ("anthropic", MESSAGES, 2)]


@pytest.mark.parametrize(("kind", "events", "final"), STREAMS)
async def test_a_stream_that_is_cut_before_its_final_event_is_an_error(
    kind: str, events: list[dict[str, Any]], final: int
) -> None:
    log = await log_of(kind, events[:-final])
    assert log.of("agent:text:delta")[0]["content"] == "Hello"
    errors = [(event["errorType"], event["message"]) for event in log.of("agent:error")]
    assert errors == [("network", "the stream of m ended before its final event")]
    assert log.events[-1]["status"] == "failed"


@pytest.mark.parametrize(("kind", "events", "final"), STREAMS)
async def test_a_stream_with_its_final_event_is_an_answer(kind: str, events: list[dict[str, Any]], final: int) -> None:
    log = await log_of(kind, events)
    assert (log.of("agent:complete")[0]["result"], log.events[-1]["status"]) == ("Hello", "complete"), final


async def test_a_tool_is_not_called_by_a_stream_that_is_cut() -> None:
    log = await log_of("chat", CHAT_CALL[:-1])
    assert (log.of("agent:tool"), log.events[-1]["status"]) == ([], "failed")


# What pydantic-ai keeps of the reason, for providers whose clients are not installed here


@pytest.mark.parametrize("name", ["google", "groq", "mistral", "bedrock", "huggingface", "cohere"])
def test_the_providers_own_word_for_the_reason_marks_a_complete_response(name: str) -> None:
    complete = ModelResponse([TextPart("Hi")], provider_name=name, provider_details={"finish_reason": "odd"})
    cut = ModelResponse([TextPart("Hi")], model_name="m", provider_name=name)
    require_complete(complete)
    with pytest.raises(AgentFailed, match="ended before its final event"):
        require_complete(cut)


@pytest.mark.parametrize("name", [None, "test", "mine"])
def test_models_that_reach_no_provider_need_give_no_reason(name: str | None) -> None:
    require_complete(ModelResponse([TextPart("Hi")], provider_name=name))


def test_xai_gives_its_reason_without_details() -> None:
    require_complete(ModelResponse([TextPart("Hi")], provider_name="xai", finish_reason="stop"))
    with pytest.raises(AgentFailed, match="ended before its final event"):
        require_complete(ModelResponse([TextPart("Hi")], provider_name="xai"))


def test_an_answer_that_a_filter_ended_is_complete() -> None:
    require_complete(ModelResponse([TextPart("Hi")], provider_name="openai", finish_reason="content_filter"))
