"""Agno agents, teams and workflows as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``, ``Team`` and ``Workflow``;
:class:`AgnoSource` takes the arguments of a run.

**Events** are those of ``agent.arun(…, stream=True, stream_events=True)``. The last one repeats the whole text, and is
read only if nothing was streamed. Results are texts made by ``str``; those that are JSON or a Python literal become
values. Each member of a team has a separate lane, and so has each run of an agent in a workflow.

**Memory.** An agent with a database and ``add_history_to_context`` gets the new message only, in a session of the
caller's own; runs that were regenerated or edited are removed from it. Any other agent gets the whole chat. The agents
of a workflow get the texts of the chat, unless the workflow gives them its own history.

**Pauses.** Tools with ``requires_confirmation`` ask for an approval; ``external_execution`` and ``requires_user_input``
wait for an output of the page. The paused run is kept in the agent's database, or by the run store if it has none. A
workflow that pauses fails the turn.
"""

import copy
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import (
    NO_OPTIONS,
    FrameworkSource,
    Options,
    imported,
    kept_count,
    question_id,
)
from usechat.errors import CannotAnswer, PublicError, StreamFailed, UnknownEvent
from usechat.protocol.model_messages import FilePart, ModelMessage
from usechat.protocol.parts import (
    Abort,
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    File,
    Finish,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
)
from usechat.protocol.values import json_text, json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context, thread_id

__all__ = ["AgnoAdapter", "AgnoSource", "parts", "source_of", "to_agno"]

_FRAMEWORK: Final = "agno"
_OURS: Final = "usechat_message"
"""Under which key a run's metadata names the user message that it answers."""
_ENDINGS: Final = frozenset({"RunCompleted", "RunPaused", "RunCancelled", "RunError"})
_WORKFLOW_ENDINGS: Final = frozenset({"WorkflowCompleted", "WorkflowPaused", "WorkflowCancelled", "WorkflowError"})
_WORKFLOW_EVENTS: Final = ("Workflow", "Step", "Loop", "Parallel", "Condition", "Router")
"""How the events of workflows begin."""
_REVIEWS: Final = (
    "requires_confirmation",
    "requires_user_input",
    "requires_output_review",
    "requires_iteration_review",
)
_IGNORED: Final = frozenset(
    {"RunStarted", "RunContentCompleted", "ToolCallError", "ReasoningStarted", "ReasoningStep",
     "ReasoningCompleted", "PreHookStarted", "PreHookCompleted", "PostHookStarted", "PostHookCompleted",
     "MemoryUpdateStarted", "MemoryUpdateCompleted", "SessionSummaryStarted", "SessionSummaryCompleted",
     "ParserModelResponseStarted", "ParserModelResponseCompleted", "OutputModelResponseStarted",
     "OutputModelResponseCompleted", "CompressionStarted", "CompressionCompleted", "CompactionStarted",
     "CompactionCompleted", "FollowupsStarted", "TaskCreated", "TaskUpdated", "TaskIterationStarted",
     "TaskIterationCompleted", "TaskStateUpdated"}
)  # fmt: skip


def source_of(agent: Any, *, context: Any = None) -> "AgnoSource | None":
    """Return the source of an agent, a team or a workflow; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it. Raises
    :class:`~usechat.errors.CannotAnswer` for a workflow with a step that waits for a person.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    agent_type = imported("agno.agent", "agno", "agno").Agent
    team_type = imported("agno.team", "agno", "agno").Team
    is_served = isinstance(agent, (agent_type, team_type)) or _is_workflow(agent)
    return AgnoSource(agent, context=context) if is_served else None


def _is_workflow(agent: Any) -> bool:
    # Not imported for an agent: a workflow needs packages that Agno itself does not.
    if not any(base.__module__ == "agno.workflow.workflow" for base in type(agent).__mro__):
        return False
    return isinstance(agent, imported("agno.workflow", "agno", "agno").Workflow)


def _require_no_review(workflow: Any) -> None:
    for step in _steps_in(workflow.steps):
        review = getattr(step, "human_review", None)
        if any(getattr(review, name, False) for name in _REVIEWS):
            raise CannotAnswer(
                f"the step {step.name!r} of the workflow {workflow.name!r} waits for a person (human_review), and a"
                " page cannot answer a workflow; let a tool of an agent ask instead (requires_confirmation), and serve"
                " that agent"
            )


def _steps_in(value: Any) -> Iterator[Any]:
    """Yield the steps of a workflow, at every depth."""
    if isinstance(value, list):
        for each in value:
            yield from _steps_in(each)
        return
    yield value
    for name in ("steps", "else_steps", "choices"):
        yield from _steps_in(getattr(value, name, None) or [])


class AgnoSource(FrameworkSource[Any]):
    """Answers turns with an agent, a team or a workflow; of a workflow each turn gets a copy.

    ``context`` are the ``dependencies`` of a run: a mapping, or a function of the turn, async or not, that returns one.
    ``options`` are further arguments of ``arun``, such as ``session_state``, in the same way. The session and the user
    are set here.

    >>> from typing import Any
    >>> def source(agent: Any) -> AgnoSource:  # for chat_response or ChatApp
    ...     return AgnoSource(agent, context=lambda turn: {"chat": turn.chat_id})
    """

    context_argument = "dependencies"
    continues = False  # a run takes a question: it cannot begin behind the result of a tool

    def __init__(self, agent: Any, *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        super().__init__(options=options, context=context)
        self._agent = agent
        if _is_workflow(agent):
            _require_no_review(agent)
        self.adapter = AgnoAdapter
        self.info = AgentInfo(_FRAMEWORK, agent.name)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the turn, or continue the run that waits for the turn's answers."""
        thread = thread_id(turn)
        arguments = {
            **await self.arguments(turn),
            "stream": True,
            "stream_events": True,
            "session_id": thread,
            "user_id": thread.partition("/")[0] or None,
        }
        run = self._run_workflow if _is_workflow(self._agent) else self._run
        async with aclosing(await run(turn, arguments)) as events:
            async for event in events:
                if _kind(event):
                    yield event
                elif event.is_paused and self._agent.db is None:
                    state = json.dumps(event.to_dict()).encode()
                    await current_context().states.keep_state(conversation.state_handle(turn, _FRAMEWORK), state)

    async def _run(self, turn: Turn, arguments: dict[str, Any]) -> AsyncGenerator[Any]:
        arguments["yield_run_output"] = True
        waiting = await self._kept_pause(turn)  # also if another message supersedes it
        if turn.approvals or turn.tool_outputs:
            run = await self._stored_pause(arguments) if waiting is None else waiting
            if run is None:
                raise PublicError(conversation.PAUSE_IS_GONE)
            _answer(run.requirements or [], turn)
            run_argument = {"run_response": run} if waiting is not None else {"run_id": run.run_id}
            return self._stream(self._agent.acontinue_run(**run_argument, requirements=run.requirements, **arguments))
        arguments["metadata"] = {**(arguments.get("metadata") or {}), _OURS: question_id(turn)}
        *before, last = conversation.history(turn)
        agent = self._agent
        if agent.db is None or not agent.add_history_to_context:
            agent = _with_history(agent, to_agno(before))
        else:
            await self._forget(turn, arguments)
        message = _user(last["content"])
        return self._stream(agent.arun(message.pop("content"), **message, **arguments))

    async def _run_workflow(self, turn: Turn, arguments: dict[str, Any]) -> AsyncGenerator[Any]:
        conversation.refuse_answers(turn)
        *before, last = conversation.without_tools(conversation.history(turn))
        workflow = self._agent.deep_copy()
        if workflow.db is None or not workflow.add_workflow_history_to_steps:
            for agent in _agents_in(workflow.steps):
                agent.additional_input = [*(agent.additional_input or ()), *to_agno(before)]
        message = _user(last["content"])
        return self._stream(workflow.arun(message.pop("content"), **message, **arguments))

    async def _stream(self, run: Any) -> AsyncGenerator[Any]:
        """Yield the events of a run; cancel it if nobody reads on, since a tool may run in another task."""
        run_id, is_over = None, False
        try:
            async for event in run:
                run_id = run_id or event.run_id
                is_over = is_over or (event.run_id == run_id and _kind(event) in _ENDINGS | _WORKFLOW_ENDINGS)
                yield event
        finally:
            if run_id is not None and not is_over:
                await self._agent.acancel_run(run_id)
            await run.aclose()

    async def _kept_pause(self, turn: Turn) -> Any:
        """Return the paused run of an agent without a database, which the run store keeps."""
        state = await current_context().states.take_state(conversation.state_handle(turn, _FRAMEWORK))
        if state is None:
            return None
        is_team = isinstance(self._agent, imported("agno.team", "agno", "agno").Team)
        kind = ("agno.run.team", "TeamRunOutput") if is_team else ("agno.run.agent", "RunOutput")
        run = getattr(imported(kind[0], "agno", "agno"), kind[1]).from_dict(json.loads(state))
        tools = {tool.tool_call_id: tool for tool in run.tools or ()}
        for requirement in run.requirements or ():  # an answer must reach the execution that the run continues
            call_id = requirement.tool_execution.tool_call_id
            requirement.tool_execution = tools.get(call_id, requirement.tool_execution)
        return run

    async def _session(self, arguments: Mapping[str, Any]) -> Any:
        return await self._agent.aget_session(session_id=arguments["session_id"], user_id=arguments["user_id"])

    async def _stored_pause(self, arguments: Mapping[str, Any]) -> Any:
        """Return the last run of the session, if it waits."""
        session = None if self._agent.db is None else await self._session(arguments)
        last = session.runs[-1] if session is not None and session.runs else None
        return last if last is not None and last.is_paused else None

    async def _forget(self, turn: Turn, arguments: Mapping[str, Any]) -> None:
        """Remove the runs that were regenerated or edited away."""
        session = await self._session(arguments)
        if session is None or not session.runs:
            return
        question_ids = [(run.metadata or {}).get(_OURS, "") for run in session.runs]
        run_ids = [run.run_id for run in session.runs[kept_count(question_ids, turn) :]]
        if run_ids:
            deletion = self._agent.db.delete_runs(run_ids)
            if inspect.isawaitable(deletion):  # databases are async or not
                await deletion


def _with_history(agent: Any, messages: list[Any]) -> Any:
    """Return an agent whose model reads these messages before the question.

    They are not the input of a run: guardrails take a text alone, and a team joins a list to one message of the user.
    """
    if not messages:
        return agent
    copied = copy.copy(agent)
    copied.additional_input = [*(agent.additional_input or ()), *messages]
    return copied


def _agents_in(step: Any) -> Iterator[Any]:
    """Yield the agents and teams of the steps of a workflow, and of the workflows in them."""
    if hasattr(step, "additional_input"):
        yield step
        return
    for each in step if isinstance(step, (list, tuple)) else ():
        yield from _agents_in(each)
    for name in ("agent", "team", "workflow", "steps", "else_steps", "choices"):
        inner = getattr(step, name, None)
        if inner is not None and not callable(inner):
            yield from _agents_in(inner)


def _answer(requirements: Iterable[Any], turn: Turn) -> None:
    """Give a paused run the answers of a turn. A confirmation that was not answered is rejected."""
    approvals = {answer.tool_call_id: answer for answer in turn.approvals}
    outputs = {output.tool_call_id: output for output in turn.tool_outputs}
    for requirement in requirements:
        call_id = requirement.tool_execution.tool_call_id
        answer, output = approvals.get(call_id), outputs.get(call_id)
        if requirement.needs_confirmation:
            if answer is not None and answer.approved:
                requirement.confirm()
            else:
                requirement.reject(None if answer is None else answer.reason)
        elif output is not None and requirement.needs_user_input:
            requirement.provide_user_input(output.output if isinstance(output.output, Mapping) else {})
        elif output is not None and requirement.needs_external_execution:
            value = output.output if output.error_text is None else output.error_text
            requirement.set_external_execution_result(value if isinstance(value, str) else json_text(json_value(value)))


class AgnoAdapter:
    """Turns the events of one run into parts.

    ``known_calls`` are the calls that the page has already, when a run is continued; ``denied`` are those that a person
    has denied, with the reasons.

    >>> from types import SimpleNamespace
    >>> event = SimpleNamespace(event="RunContent", run_id="r1", content="Hello", reasoning_content=None, image=None)
    >>> list(AgnoAdapter().feed(event))
    [Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._known_calls = set(known_calls)
        self._denied = denied
        self._top: str | None = None
        self._members: dict[str, sub_agents.SubAgent] = {}
        self._has_text = False
        self._output: Any = None
        self._is_over = False
        self._signature: str | None = None
        self._workflow = _WorkflowOutputs()

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes."""
        kind = _kind(event)
        self._top = self._top or event.run_id
        self._workflow.note(kind, event)
        if event.run_id is not None and event.run_id != self._top:
            if kind not in _ENDINGS | _WORKFLOW_ENDINGS | _IGNORED and not kind.startswith(_WORKFLOW_EVENTS):
                yield from self._member(event).parts(self._parts(kind, event, event.run_id))
        elif kind in _ENDINGS:
            yield from self._end(kind, event)
        elif kind in _WORKFLOW_ENDINGS or kind.endswith("Paused"):
            yield from self._end_workflow(kind, event)
        elif kind not in _IGNORED and not kind.startswith(_WORKFLOW_EVENTS):
            yield from self._parts(kind, event, "")

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a last event."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _member(self, event: Any) -> sub_agents.SubAgent:
        """Return what puts the parts of a team's member into a lane; it is named in its first step."""
        if event.run_id not in self._members:
            name = getattr(event, "agent_name", None) or getattr(event, "team_name", None) or ""
            self._members[event.run_id] = sub_agents.SubAgent(name, event.run_id)
        return self._members[event.run_id]

    def _parts(self, kind: str, event: Any, lane: str) -> Iterator[Part]:
        match kind:
            case "RunContent":
                yield from self._content(event, lane)
            case "ReasoningContentDelta":
                yield Reasoning(event.reasoning_content, lane=lane)
            case "RunContinued":
                yield from (ToolDenied(call_id, reason) for call_id, reason in self._denied.items())
            case "ModelRequestStarted":
                yield Step(lane=lane)
            case "ModelRequestCompleted":
                yield from self._end_block(lane)
            case "ToolCallStarted" | "ToolCallCompleted":
                yield from self._tool(kind, event.tool, lane)
            case "FollowupsCompleted":
                yield Data("followups", event.followups)
            case "CustomEvent":
                yield Data("custom", _custom(event))
            case _:
                raise UnknownEvent(kind)

    def _content(self, event: Any, lane: str) -> Iterator[Part]:
        if event.reasoning_content:
            yield Reasoning(event.reasoning_content, lane=lane)
        self._signature = (getattr(event, "model_provider_data", None) or {}).get("signature") or self._signature
        if self._signature and event.content:
            yield from self._end_block(lane)
        if isinstance(event.content, str):
            if event.content:
                self._has_text = self._has_text or not lane
                yield Text(event.content, lane=lane)
        elif event.content is not None:
            self._output = _json(event.content)
            yield Data("output", self._output)
        if event.image is not None:
            yield from _image(event.image)

    def _end_block(self, lane: str) -> Iterator[Part]:
        """End the reasoning of a model call with its signature."""
        if self._signature is not None:
            yield BlockEnd(conversation.signed(self._signature), lane=lane)
            self._signature = None

    def _call(self, tool: Any, lane: str = "") -> Iterator[Part]:
        if tool.tool_call_id not in self._known_calls:
            self._known_calls.add(tool.tool_call_id)
            yield ToolCall(tool.tool_call_id, tool.tool_name or "", tool.tool_args or {}, lane=lane)

    def _tool(self, kind: str, tool: Any, lane: str) -> Iterator[Part]:
        yield from self._call(tool, lane)
        if kind == "ToolCallStarted":
            return
        if tool.tool_call_error:
            yield ToolError(
                tool.tool_call_id, conversation.TOOL_FAILED, lane=lane
            )  # the result is the exception's text
        else:
            yield ToolResult(tool.tool_call_id, conversation.printed_result(tool.result), lane=lane)

    def _end(self, kind: str, event: Any) -> Iterator[Part]:
        self._is_over = True
        if kind == "RunError":
            raise StreamFailed(f"the Agno run failed: {event.content}")
        if kind == "RunCancelled":
            yield Abort()
        elif kind == "RunPaused":
            for requirement in event.requirements or ():
                tool = requirement.tool_execution
                yield from self._call(tool)
                if tool.requires_confirmation:
                    yield ApprovalRequest(f"approval-{tool.tool_call_id}", tool.tool_call_id)
            yield Finish()
        else:
            if isinstance(event.content, str):
                if event.content and not self._has_text:
                    yield Text(event.content)
            elif event.content is not None and (output := _json(event.content)) != self._output:
                yield Data("output", output)
            used = event.metrics
            usage = None if used is None else conversation.usage(used.input_tokens, used.output_tokens)
            yield conversation.finish("stop", usage)  # Agno does not tell why a model ended

    def _end_workflow(self, kind: str, event: Any) -> Iterator[Part]:
        self._is_over = True
        if kind == "WorkflowError":
            raise StreamFailed(f"the Agno workflow failed: {event.error}")
        last = event.step_results[-1] if kind == "WorkflowCompleted" and event.step_results else None
        if last is not None and not getattr(last, "success", True):  # its content is the exception's text
            raise StreamFailed(f"the last step of the Agno workflow failed: {last.error or last.content}")
        if kind.endswith("Paused"):
            raise StreamFailed(
                f"the step {getattr(event, 'step_name', '')} of the Agno workflow waits for a person, and a page cannot"
                " answer it; serve the agent whose tool asks"
            )
        if kind == "WorkflowCancelled":
            yield Abort()
            return
        if (output := self._workflow.unread(_json(event.content))) is not None:
            yield Step()
            yield Text(output) if isinstance(output, str) else Data("output", output)
        tokens = self._workflow.tokens
        yield conversation.finish("stop", conversation.usage(*tokens) if any(tokens) else None)


class _WorkflowOutputs:
    """What the agents of a workflow have shown. The result of the workflow repeats it, or is that of a function."""

    def __init__(self) -> None:
        self.tokens = [0, 0]
        self._outputs: list[Any] = []

    def note(self, kind: str, event: Any) -> None:
        """Note what an agent has shown; a function that returns something else makes it old."""
        if kind == "RunCompleted" and getattr(event, "parent_run_id", None) is None:
            self._outputs.append(_json(event.content))
            if event.metrics is not None:
                self.tokens[0] += event.metrics.input_tokens
                self.tokens[1] += event.metrics.output_tokens
        elif kind == "StepOutput" and _json(event.content) not in self._outputs:
            self._outputs.clear()

    def unread(self, result: Any) -> Any:
        """Return the result of the workflow; ``None`` if it is made of what agents have shown."""
        is_shown = result in self._outputs or (isinstance(result, str) and bool(self._outputs))
        return None if is_shown else result


def _kind(event: Any) -> str:
    """Return the name of an event, the same for agents and teams; nothing for the output of a run."""
    return str(getattr(event, "event", "")).removeprefix("Team")


def _json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _custom(event: Any) -> Any:
    to_dict = getattr(event, "to_dict", None)
    return to_dict() if callable(to_dict) else vars(event)


def _image(image: Any) -> Iterator[Part]:
    if image.url:
        yield File(image.url, image.mime_type or "image/png")


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from types import SimpleNamespace
    >>> from usechat.testing import AgentClient
    >>> async def run(text):  # instead of agent.arun(text, stream=True, stream_events=True)
    ...     yield SimpleNamespace(event="RunContent", run_id="r1", content=text, reasoning_content=None, image=None)
    ...     yield SimpleNamespace(event="RunCompleted", run_id="r1", content=text, metrics=None)
    >>> async def answer(turn):
    ...     async for part in parts(run(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'Hello'
    """
    return parts_of(events, AgnoAdapter())


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and the input schema of each tool of an agent, for `usechat types`."""
    new = imported("agno.tools.function", "agno", "agno").Function
    for tool in agent.tools if isinstance(agent.tools, list) else ():
        if hasattr(tool, "functions"):  # a toolkit
            functions = [*tool.functions.values(), *tool.async_functions.values()]
        else:
            functions = [tool] if isinstance(tool, new) else [new.from_callable(tool)] if callable(tool) else []
        for function in functions:
            described = function.model_copy(deep=True)
            described.process_entrypoint()
            yield described.name, described.parameters, None


# History.


def to_agno(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as Agno's. Call ``repair_messages`` first.

    Reasoning is kept if Anthropic signed it, since only then may it be sent back. System messages, calls that a
    provider ran itself and their results are left out.

    >>> from usechat import model_messages, repair_messages
    >>> def history(turn):
    ...     return to_agno(repair_messages(model_messages(turn.messages)))
    """
    return [each for message in conversation.without_provider_calls(messages) for each in _converted(message)]


def _converted(message: ModelMessage) -> Iterator[Any]:
    new = imported("agno.models.message", "agno", "agno").Message
    if message["role"] == "user":
        yield new(role="user", **_user(message["content"]))
    elif message["role"] == "assistant":
        text, model_calls, _ = conversation.contents_of(message)
        calls = [_function_call(call) for call in model_calls]
        if text.strip() or calls:
            reasoning = _reasoning(message["content"])
            yield new(role="assistant", content=text or None, tool_calls=calls or None, **reasoning)
    elif message["role"] == "tool":
        for result in conversation.contents_of(message).results:
            call = {"tool_call_id": result.call_id, "tool_name": result.name}
            yield new(role="tool", content=result.text, tool_call_error=result.is_failure, **call)


def _function_call(call: conversation.HistoryCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _reasoning(content: Iterable[Any]) -> dict[str, Any]:
    for part in content:
        if signature := conversation.signature_of(part):
            return {"reasoning_content": part["text"], "provider_data": {"signature": signature}}
    return {}


def _user(content: Iterable[Any]) -> dict[str, Any]:
    media = imported("agno.media", "agno", "agno")
    texts: list[str] = []
    attachments: dict[str, list[Any]] = {}
    for part in content:
        if part["type"] == "text":
            texts.append(part["text"])
        elif (text := (file := model_files.model_file(_file_part(part))).text) is not None:
            texts.append(text)
        else:
            where = {"url": file.url} if file.data is None else {"content": file.data}
            kind = file.media_type.partition("/")[0]
            field, medium = {"image": ("images", media.Image), "audio": ("audio", media.Audio)}.get(
                kind, ("files", media.File)
            )
            name = {"filename": file.name} if field == "files" and file.name else {}
            attachments.setdefault(field, []).append(medium(**where, mime_type=file.media_type, **name))
    return {"content": "\n\n".join(texts), **attachments}


def _file_part(part: Any) -> FilePart:
    file: FilePart = part
    return file
