"""The agent of the scripts behind A2A: an agent of Pydantic AI in a server of `a2a-sdk`, at an address."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from pydantic_ai import Agent, BinaryContent, CallDeferred, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.run import AgentRunResultEvent
from starlette.applications import Starlette

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from tests.adapters.pydantic_ai_agent import chat_model
from tests.conformance.served import serving
from usechat.adapters.a2a import A2aEndpoint
from usechat.testing import ScriptedModel


class Assistant(AgentExecutor):  # type: ignore[misc]
    """Runs an agent for each message; it remembers what was said in each context."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._remembered: dict[str, list[Any]] = {}
        self._open_calls: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        running = self._running[context.task_id] = asyncio.ensure_future(self._run(context, updater))
        await asyncio.wait([running])
        if running.cancelled():
            return
        output = running.result()
        if isinstance(output, DeferredToolRequests):
            [call] = output.calls
            self._open_calls[context.task_id] = call.tool_call_id
            await updater.requires_input(updater.new_agent_message([new_text_part("Where are you?")]))
        else:
            await updater.complete()

    async def _run(self, context: RequestContext, updater: TaskUpdater) -> Any:
        call_id = self._open_calls.pop(context.task_id, None)
        results = DeferredToolResults(calls={call_id: context.get_user_input()}) if call_id else None
        prompt = None if call_id else [_content(part) for part in context.message.parts]
        remembered = self._remembered.get(context.context_id)
        artifact, output = 0, None
        async with self._agent.run_stream_events(
            prompt, message_history=remembered, deferred_tool_results=results
        ) as events:
            async for event in events:
                match event:
                    case PartStartEvent(part=TextPart(content=text)):
                        artifact += 1
                        await _say(updater, artifact, text, append=False)
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                        await _say(updater, artifact, text, append=True)
                    case AgentRunResultEvent(result=result):
                        self._remembered[context.context_id] = result.all_messages()
                        output = result.output
        return output

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self._running[context.task_id].cancel()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def _say(updater: TaskUpdater, artifact: int, text: str, *, append: bool) -> None:
    artifact_id = f"{updater.task_id}-{artifact}"
    await updater.add_artifact([new_text_part(text)], artifact_id=artifact_id, append=append)


def _content(part: Any) -> Any:
    return BinaryContent(part.raw, media_type=part.media_type) if part.HasField("raw") else part.text


def location(exact: bool) -> str:  # noqa: ARG001 (it is the page's)
    """Say where the user is."""
    raise CallDeferred


def assistant(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    tools: Sequence[Any] = [deeds.weather, deeds.clock, deeds.broken, deeds.slow, deeds.delete, location]
    output_type = [str, DeferredToolRequests]
    return Agent(chat_model(model, api), instructions=INSTRUCTIONS, tools=tools, output_type=output_type)


@contextmanager
def served_executor(executor: Any, *, streaming: bool = True, binding: str = "JSONRPC") -> Iterator[str]:
    """Serve an agent at an address, which is yielded."""
    card = AgentCard(
        name="assistant",
        description="The agent of the scripts.",
        version="1.0",
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[AgentInterface(protocol_binding=binding, protocol_version="1.0")],
    )
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
    calls = create_jsonrpc_routes(handler, "/") if binding == "JSONRPC" else create_rest_routes(handler)
    with serving({"remote": Starlette(routes=[*create_agent_card_routes(card), *calls])}) as served:
        url = served.url("remote").removesuffix("/api/chat")
        card.supported_interfaces[0].url = f"{url}/" if binding == "JSONRPC" else url
        yield url


@contextmanager
def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Iterator[Any]:
    with served_executor(Assistant(assistant(model, api, deeds))) as url:
        yield A2aEndpoint(url)
