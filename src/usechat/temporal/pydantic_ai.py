"""Agents of Pydantic AI in workflows that answer chats.

Pydantic AI runs each request of a model, and each tool, as an activity. :func:`durable` makes an agent say in these
activities what it would say in a web process: the events of a model's answer are parts when they reach the stream, so
the web process needs neither Pydantic AI nor the agent. :func:`run_agent` runs the agent on a turn, in the workflow.

Requests of a model are retried, and what they say replaces what they had said. A tool gets one attempt, unless its
function is :func:`~usechat.replayable`; if its worker dies, the model reads that nobody knows whether it took effect.

A tool that needs an approval ends the workflow. The page's answer starts the next one.

An agent that a tool runs with ``event_stream_handler=show_sub_agent`` has a separate lane, which begins with
``data-agent`` and its name.
"""

from collections.abc import AsyncIterable
from typing import Any, cast

from usechat.adapters.pydantic_ai import PydanticAIAdapter, ending_of, run_arguments, sub_agent_of
from usechat.chats.recovery import UNKNOWN_OUTCOME
from usechat.errors import MissingDependency, UnknownEvent
from usechat.protocol.parts import Part, ToolError
from usechat.temporal.workflows import ACTIVITY, ATTEMPTS, WorkflowAnswer, failure_text, publish, retries
from usechat.turn import Turn, replayable_tools

try:
    from pydantic_ai import RunContext, ToolFailed
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.capabilities import AbstractCapability, SetToolMetadata
    from pydantic_ai.durable_exec.temporal import TemporalDurability
    from pydantic_ai.messages import PartDeltaEvent, PartEndEvent, PartStartEvent, ToolCallEvent, ToolResultEvent
    from temporalio import activity
    from temporalio.workflow import ActivityConfig
except ImportError:
    raise MissingDependency("pydantic-ai-slim[temporal]", "pydantic-ai,temporal") from None

__all__ = ["durable", "run_agent", "show_sub_agent"]


def durable(**options: Any) -> list[AbstractCapability[Any]]:
    """Return the capabilities of an agent that answers chats in workflows; they do nothing outside of one.

    ``options`` are further ones of Pydantic AI's ``TemporalDurability``. Mark tools with :func:`~usechat.replayable`
    before: they get five attempts, and others one.

    >>> from pydantic_ai import Agent
    >>> agent = Agent("openai:gpt-5.2", name="assistant", defer_model_check=True, capabilities=durable())
    """
    once, again = (_activity(attempts) for attempts in (1, ATTEMPTS))
    options = {"activity_config": once, "model_activity_config": again, **options}
    return [
        TemporalDurability(event_stream_handler=_publish_events, **options),
        SetToolMetadata(tools=sorted(replayable_tools()), temporal=again),
        _ReportedFailures(),
    ]


def _activity(attempts: int) -> ActivityConfig:
    return cast("ActivityConfig", {**ACTIVITY, "retry_policy": retries(attempts)})


async def run_agent(agent: AbstractAgent[Any, Any], turn: Turn, answer: WorkflowAnswer, **options: Any) -> Any:
    """Run an agent on a turn in a workflow, and return its result. ``options`` are further arguments of ``agent.run``.

    >>> from temporalio import workflow
    >>> from usechat.temporal import WorkflowAnswer, turn_of
    >>> async def run(agent, answer: WorkflowAnswer, argument: dict):  # in @workflow.run
    ...     async with answer:
    ...         await run_agent(agent, turn_of(argument), answer)
    """
    arguments = run_arguments(agent, turn, options.pop("output_type", None))
    result = await agent.run(None, **{**arguments, **options})
    for part in ending_of(result):
        answer.send(part)
    return result


async def show_sub_agent(context: RunContext[Any], events: AsyncIterable[Any]) -> None:
    """Show what an agent that a tool runs in its activity says while it works, in a separate lane.

    >>> from pydantic_ai import Agent
    >>> researcher = Agent(name="researcher")
    >>> async def research(topic: str) -> str:
    ...     return (await researcher.run(topic, event_stream_handler=show_sub_agent)).output
    """
    adapter, speaker = sub_agent_of(context)
    async with publish(begins="work") as say:
        async for event in events:
            for part in speaker.parts(_parts_of(adapter, event)):
                say(part)


def _parts_of(adapter: PydanticAIAdapter, event: Any) -> list[Part]:
    try:
        return list(adapter.feed(event))
    except UnknownEvent:
        return []


class _ReportedFailures(AbstractCapability[Any]):
    """Lets a run continue when a tool has failed, or when nobody knows whether it took effect."""

    async def on_tool_execute_error(self, ctx: RunContext[Any], *, error: Exception, **run: Any) -> Any:  # noqa: ARG002
        """Tell the model; what was cancelled stays so."""
        text = failure_text(error)
        if text is None:
            raise error
        raise ToolFailed(text) from error


async def _publish_events(_context: RunContext[Any], events: AsyncIterable[Any]) -> None:
    """Say the events of an activity: a model's answer as a step, outcomes of tools as other work."""
    if not activity.in_activity():
        async for _ in events:
            pass
        return
    iterator, adapter = aiter(events), PydanticAIAdapter()
    first = await anext(iterator, None)
    begins_step = isinstance(first, PartStartEvent | PartDeltaEvent | PartEndEvent)
    async with publish(begins="step" if begins_step else "work") as say:
        event = first
        while event is not None:
            _say(event, adapter, say)
            event = await anext(iterator, None)


def _say(event: Any, adapter: PydanticAIAdapter, say: Any) -> None:
    if isinstance(event, ToolCallEvent):
        return  # the model's answer had it
    if isinstance(event, ToolResultEvent) and event.part.content == UNKNOWN_OUTCOME:
        say(ToolError(event.part.tool_call_id, UNKNOWN_OUTCOME))
        return
    for part in _parts_of(adapter, event):
        say(part)
