"""Agents of the OpenAI Agents SDK in workflows that answer chats.

Temporal's plugin (the package ``temporalio-openai-agents``) runs each request of a model as an activity.
:class:`PublishedModels` lets a model say in this activity what it streams, through the adapter of the SDK, so the page
reads it live. :func:`run_agent` runs an agent on a turn, in the workflow, and says what became of its tools.

A request that is retried replaces what it had said. A tool that needs an approval lets the workflow wait.

An agent that takes over (handoff), and one that is a tool (:func:`agent_tool`), has a separate lane, which begins with
``data-agent`` and its name. The next message goes to the agent that took over last.
"""

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

from usechat.adapters import conversation, sub_agents
from usechat.adapters.openai_agents import (
    LANE,
    OpenAIAgentsAdapter,
    agent_for,
    outcome_of,
    result_parts,
    to_openai_agents,
)
from usechat.errors import MissingDependency, UnknownEvent
from usechat.protocol.parts import ToolCall, ToolDenied, ToolError, ToolResult
from usechat.temporal.workflows import (
    Speaker,
    WorkflowAnswer,
    failure_text,
    hand_over,
    publish,
    speaker,
    speaks,
)
from usechat.turn import Turn

try:
    from agents import Agent, FunctionTool, Model, ModelProvider, ModelResponse, RunHooks, Runner, Usage
    from agents.exceptions import ModelBehaviorError
    from agents.stream_events import RawResponsesStreamEvent
    from temporalio.exceptions import ActivityError
except ImportError:
    raise MissingDependency("temporalio-openai-agents", "temporal") from None

__all__ = ["PublishedModels", "agent_tool", "reported", "run_agent"]


class PublishedModels(ModelProvider):
    """The models of a provider, which say on the page what they stream: for the plugin of the worker's client.

    >>> from agents import OpenAIProvider
    >>> models = PublishedModels(OpenAIProvider(api_key="none"))  # OpenAIAgentsPlugin(model_provider=models)
    """

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        """Return a model of the provider."""
        return _PublishedModel(self._provider.get_model(model_name))


class _PublishedModel(Model):
    def __init__(self, model: Model) -> None:
        self._model = model

    def stream_response(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        return self._model.stream_response(*arguments, **options)

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        """Stream the response, and return the whole."""
        adapter, response, agent = OpenAIAgentsAdapter(), None, speaker()
        lane = None if agent is None else sub_agents.SubAgent(agent.name, agent.lane, is_in_tool=agent.is_in_tool)
        # The step of an agent that is a tool is that of the agent which called it: a retry must not replace it.
        async with publish(begins="work" if agent is not None and agent.is_in_tool else "step") as say:
            async for event in self.stream_response(*arguments, **options):
                parts = _parts_of(adapter, event)
                for part in parts if lane is None else lane.parts(parts):
                    say(part)
                if event.type in ("response.completed", "response.incomplete"):
                    response = event.response
        if response is None:
            raise ModelBehaviorError("the stream of the model ended without a response")
        return ModelResponse(output=response.output, usage=_usage_of(response), response_id=response.id)


def _parts_of(adapter: OpenAIAgentsAdapter, event: Any) -> Iterable[Any]:
    try:
        return list(adapter.feed(RawResponsesStreamEvent(data=event)))
    except UnknownEvent:
        return []


def _usage_of(response: Any) -> Usage:
    used = response.usage
    if used is None:
        return Usage(requests=1)
    details = {"input_tokens_details": used.input_tokens_details, "output_tokens_details": used.output_tokens_details}
    return Usage(1, used.input_tokens, output_tokens=used.output_tokens, total_tokens=used.total_tokens, **details)


async def run_agent(agent: "Agent[Any]", turn: Turn, answer: WorkflowAnswer, **options: Any) -> Any:
    """Run an agent on a turn in a workflow, and return its result. ``options`` are further arguments of ``Runner.run``.

    If tools need approvals, the turn of the page ends, and the workflow waits for the answers.

    >>> from usechat.temporal import WorkflowAnswer, turn_of
    >>> async def run(agent, answer: WorkflowAnswer, argument: dict):  # in @workflow.run
    ...     async with answer:
    ...         await run_agent(agent, turn_of(argument), answer)
    """
    options["hooks"] = _Outcomes(answer, options.get("hooks"))
    first = agent_for(agent, turn)
    with speaks(None if first is agent else _after_handoff(first)):
        result = await Runner.run(first, to_openai_agents(conversation.history(turn)), **options)
        while result.interruptions:
            result = await Runner.run(first, await _answered(result, answer), **options)
    for part in result_parts(result, conversation.finish_reason("stop")):
        answer.send(part)
    return result


def _after_handoff(agent: "Agent[Any]") -> Speaker:
    return Speaker(agent.name, f"{LANE}{agent.name}")


async def _answered(result: Any, answer: WorkflowAnswer) -> Any:
    """Let a person answer what a run waits for, and return its state."""
    state, items = result.to_state(), result.interruptions
    calls = [ToolCall(item.call_id, item.name or "", json.loads(item.arguments or "{}")) for item in items]
    for item, approval in zip(items, await answer.ask(*calls), strict=True):
        if approval.approved:
            state.approve(item)
        else:
            state.reject(item, rejection_message=approval.reason)
            answer.send(ToolDenied(item.call_id, approval.reason))
    return state


class _Failure(str):
    """What the model reads of a tool that failed."""

    __slots__ = ()


def reported(tool: FunctionTool) -> FunctionTool:
    """Return a tool of an activity whose failure does not end the run: the model reads of it, and continues.

    If the worker of the activity died, the model reads that nobody knows whether the tool took effect.

    >>> from agents import function_tool
    >>> @function_tool
    ... def weather(city: str) -> str:  # of activity_as_tool(…), which lets failures end the run
    ...     return "sunny"
    >>> reported(weather).name
    'weather'
    """

    async def invoke(context: Any, arguments: str) -> Any:
        try:
            return await tool.on_invoke_tool(context, arguments)
        except ActivityError as error:
            if (text := failure_text(error)) is None:
                raise
            return _Failure(text)

    return replace(tool, on_invoke_tool=invoke)


def agent_tool(
    agent: "Agent[Any]", answer: WorkflowAnswer, name: str, description: str, **options: Any
) -> FunctionTool:
    """Return an agent as a tool of another one, for a run in a workflow; what it says has a separate lane.

    ``options`` are further arguments of ``Agent.as_tool``.

    >>> from agents import Agent
    >>> from usechat.temporal import WorkflowAnswer
    >>> def assistant(answer: WorkflowAnswer) -> Agent:  # in @workflow.run
    ...     research = agent_tool(Agent(name="researcher"), answer, "research", "Asks a researcher.")
    ...     return Agent(name="assistant", tools=[research])
    """
    tool = agent.as_tool(name, description, hooks=_Outcomes(answer, options.pop("hooks", None)), **options)
    invoke = tool.on_invoke_tool

    async def invoke_in_lane(context: Any, arguments: str) -> Any:
        with speaks(Speaker(agent.name, f"{agent.name}-{context.tool_call_id}", is_in_tool=True)):
            return await invoke(context, arguments)

    tool.on_invoke_tool = invoke_in_lane
    return tool


class _Outcomes(RunHooks[Any]):
    """Hooks that say what became of the calls of a model, and then do what other ``hooks`` do."""

    def __init__(self, answer: WorkflowAnswer, hooks: Any) -> None:
        self._answer = answer
        self._hooks: Any = RunHooks() if hooks is None else hooks
        self._open: dict[str, None] = {}
        for name in dir(RunHooks):
            if name.startswith("on_") and name not in ("on_llm_end", "on_tool_end", "on_handoff"):
                setattr(self, name, getattr(self._hooks, name))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._open = dict.fromkeys(item.call_id for item in response.output if item.type == "function_call")
        await self._hooks.on_llm_end(context, agent, response)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._open.pop(context.tool_call_id, None)
        call_id = context.tool_call_id
        is_failure = isinstance(result, _Failure)
        self._answer.send(ToolError(call_id, str(result)) if is_failure else outcome_of(call_id, result))
        await self._hooks.on_tool_end(context, agent, tool, result)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Answer the call that handed over: it is the only one whose tool does not run."""
        for call_id in self._open:
            self._answer.send(ToolResult(call_id, {"assistant": to_agent.name}))
        self._open = {}
        hand_over(_after_handoff(to_agent))
        await self._hooks.on_handoff(context, from_agent, to_agent)
