"""The chat transport for flows: each turn starts a flow, resumes the paused one, or joins the running one."""

import asyncio
import contextlib
import inspect
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Final, TypeAlias

from usechat import AdapterSource, ChatRequest, Turn
from usechat.errors import PublicError
from usechat.open_harness.chat import FlowChat, FlowChats, FlowTurn, FlowTurns
from usechat.open_harness.engine.agent_sessions import message_id
from usechat.open_harness.engine.other_workers import StoredRun
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.events.metadata import graph_of
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.inputs import FlowInputs
from usechat.open_harness.runtime_protocol import Runtime
from usechat.parts import Start
from usechat.transports import PAUSE_IS_GONE, ApprovalAnswer, Chunk, RunChatTransport, TurnContext
from usechat.values import json_text

__all__ = ["OpenHarnessChatTransport", "RuntimeFactory"]

RuntimeFactory: TypeAlias = Callable[..., Runtime | Awaitable[Runtime]]
"""Makes the runtime of a turn; it may take the turn as its argument. A runtime that is paused is resumed."""

_logger: Final = logging.getLogger("usechat.open_harness")

NOT_READY: Final = "The flow is not ready: its runtime has not been started."
USED_UP: Final = "The flow is not ready: its runtime has already run, and a runtime runs only once."
TOO_LATE: Final = "The flow ended before it could accept the message. Please send it again."
BUSY: Final = "The flow is busy with another chat. Please try again later."


class OpenHarnessChatTransport:
    """Answers chats with flows. It is a chat transport and a source: give it to ``ChatApp`` or ``chat_response``.

    ``runtime`` is a function that makes a runtime for each turn, or one runtime, which runs once. A function without
    arguments makes the first one at once: the log names what the flow reads and no request has. The flow's input is
    ``message``, ``messages``, ``files``, ``chatId`` and the application's own fields of the request body; ``input``
    names the sources of further keys, as in ``{"topic": "text", "depth": "body.depth"}``. The chat's next message
    resumes a paused flow. A message that comes while the flow runs is sent to the running node, and the answer
    continues in a new message.

    ``send_reasoning`` sends what agents think, ``send_step_markers`` starts a step with each node,
    ``send_flow_metadata`` sends data parts from which a page can draw the flow, ``send_node_outputs`` sends the output
    of each node, and ``generate_message_id`` names the messages.

    >>> from usechat.open_harness import FlowRuntime
    >>> from usechat.server import ChatApp
    >>> flow = {"name": "echo", "nodes": [{"id": "a", "type": "echo", "input": {"text": "{{ flow.input.message }}"}}]}
    >>> app = ChatApp(OpenHarnessChatTransport(lambda: FlowRuntime(flow)))
    """

    def __init__(
        self,
        runtime: Runtime | RuntimeFactory,
        *,
        input: Mapping[str, str] | None = None,  # noqa: A002
        send_reasoning: bool = True,
        send_step_markers: bool = True,
        send_flow_metadata: bool = False,
        send_node_outputs: bool = False,
        generate_message_id: Callable[[], str] | None = None,
    ) -> None:
        self._runtime = runtime
        self._first = _made_ahead(runtime)
        self._inputs = FlowInputs(input)
        if (flow := _flow_of(runtime) or _flow_of(self._first)) is not None:
            self._inputs.prepare(flow)
        self._send_reasoning = send_reasoning
        self._send_step_markers = send_step_markers
        self._send_flow_metadata = send_flow_metadata
        self._send_node_outputs = send_node_outputs
        self._generate_message_id = generate_message_id
        self._chats = FlowChats()
        self._runs = RunChatTransport(self)

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request. Closing the iterator stops the flow before ``aclose`` returns."""
        return await self._runs.send_messages(request)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the running answer of a chat from its start, or ``None``."""
        return await self._runs.reconnect_to_stream(chat_id)

    def hand_over(self, turn: Turn) -> None:
        """End the chat's running turn, because ``turn`` continues its flow or regenerates its answer."""
        chat = self._chats.find(turn)
        if chat is not None and chat.flow is not None:
            chat.flow.end_turn(stop=turn.request.trigger == "regenerate-message")
        elif (release := getattr(self._runtime, "release", None)) is not None:
            release(turn)

    async def drive(self, context: TurnContext) -> None:
        """Answer a turn. A turn that is cancelled stops its flow first.

        Raises :class:`~usechat.errors.PublicError` if the flow ended before it could accept the message.
        """
        turn = context.turn
        if self._generate_message_id is not None or not self._send_step_markers:
            message_id = None if self._generate_message_id is None else self._generate_message_id()
            context.send(Start(message_id, steps=self._send_step_markers))
        chat = await self._open(turn)
        if chat.flow is not None and await self._join(chat, chat.flow, context):
            return
        while True:
            flow, begin = await self._flow(chat, context)
            chat.flow, chat.paused = flow, None
            if await self._answer(chat, flow, context, begin):
                return
            if not isinstance(flow.runtime, StoredRun):  # otherwise a run of this worker answers next
                raise PublicError(TOO_LATE)

    async def _open(self, turn: Turn) -> FlowChat:
        """Return the chat of a turn. A turn that regenerates an answer stops what the chat was doing."""
        now = asyncio.get_running_loop().time()
        for runtime in self._chats.forget(now):
            await _close(runtime)
        chat = self._chats.open(turn, now)
        if turn.request.trigger == "regenerate-message":
            flow, paused = chat.flow, chat.paused
            chat.flow = chat.paused = None
            if flow is not None:
                await flow.stop()
            if paused is not None:
                paused.stop()
                await _close(paused)
        return chat

    async def _join(self, chat: FlowChat, flow: FlowTurns, context: TurnContext) -> bool:
        """Continue the flow that runs; return whether that answered the turn."""
        turn = context.turn
        if flow.is_abandoned or flow.is_released:
            return False
        _require_question(flow, turn)
        return await self._answer(chat, flow, context, lambda: _send(flow, turn))

    async def _answer(
        self, chat: FlowChat, flow: FlowTurns, context: TurnContext, begin: Callable[[], None] | None
    ) -> bool:
        """Drive the turn with its share of a flow; return whether that answered it."""
        share = FlowTurn(flow, context, begin)
        try:
            await AdapterSource(share.events, lambda: share).drive(context)
        finally:
            if flow.is_released and chat.flow is flow:
                chat.flow = None
            if flow.is_over and chat.flow is flow:
                is_paused = flow.runtime.get_snapshot().get("status") == "paused"
                is_kept = is_paused and not getattr(self._runtime, "finds_paused_runs", False)
                chat.flow, chat.paused = None, flow.runtime if is_kept else None
        return share.is_answered

    async def _flow(self, chat: FlowChat, context: TurnContext) -> tuple[FlowTurns, Callable[[], None]]:
        """Return the flow that answers a turn, and what starts it."""
        turn = context.turn
        runtime = chat.paused or await self._make(turn)
        if self._chats.holder(runtime) not in (None, chat):
            raise PublicError(BUSY)
        status = runtime.get_snapshot().get("status")
        if status in ("complete", "aborted"):
            raise PublicError(USED_UP)
        flow_input = {} if status in ("running", "paused") else self._inputs.of(turn, _flow_of(runtime))
        flow = FlowTurns(runtime, self._adapter(runtime))
        if isinstance(runtime, StoredRun):
            flow.replay(runtime.earlier_events)
            _require_question(flow, turn)
            return flow, lambda: _follow(flow, runtime, context)
        if status == "running":
            return flow, lambda: flow.deliver(_text_alone(turn), message_id(turn))
        if status == "idle" and turn.approvals and _flow_of(runtime) is not None:
            raise PublicError(PAUSE_IS_GONE)
        if status == "paused":
            return flow, lambda: flow.start(lambda: runtime.resume(_answer(turn)), context)
        return flow, lambda: flow.start(lambda: runtime.run(flow_input), context)

    async def _make(self, turn: Turn) -> Runtime:
        if isinstance(self._runtime, Runtime) and not isinstance(self._runtime, type):
            return self._runtime
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            instance = self._runtime(turn) if _takes_turn(self._runtime) else self._runtime()
            runtime = await instance if inspect.isawaitable(instance) else instance
        except PublicError:
            raise
        except Exception as error:
            reference = secrets.token_hex(4)
            _logger.exception("chat %s: no runtime could be created; reference %s", turn.chat_id, reference)
            raise PublicError(f"{NOT_READY} Reference: {reference}") from error
        if not isinstance(runtime, Runtime):
            _logger.error("chat %s: %s is not a runtime", turn.chat_id, type(runtime).__name__)
            raise PublicError(NOT_READY)
        return runtime

    def _adapter(self, runtime: Runtime) -> OpenHarnessAdapter:
        return OpenHarnessAdapter(
            send_reasoning=self._send_reasoning,
            send_step_markers=self._send_step_markers,
            send_flow_metadata=self._send_flow_metadata,
            send_node_outputs=self._send_node_outputs,
            ends_at=getattr(runtime, "ends_at", None),
            graph=graph_of(_flow_of(runtime)),
            new_reference=lambda: secrets.token_hex(4),
        )


def _follow(flow: FlowTurns, run: StoredRun, context: TurnContext) -> None:
    """Show a run that another worker runs, and send it the message."""
    flow.start(run.follow, context)
    _send(flow, context.turn)


def _require_question(flow: FlowTurns, turn: Turn) -> None:
    """Raise PublicError for a turn that answers a question which no node waits for."""
    if turn.approvals and not flow.has_asked([approval.tool_call_id for approval in turn.approvals]):
        raise PublicError(PAUSE_IS_GONE)


def _send(flow: FlowTurns, turn: Turn) -> None:
    """Send the answers of a person, or a message, to a flow that runs."""
    if turn.request.continues:
        flow.reply({approval.tool_call_id: _decision(approval) for approval in turn.approvals})
    else:
        flow.deliver(_text_alone(turn), message_id(turn))


async def _close(runtime: Runtime) -> None:
    """Close the resources of a paused runtime, such as a connection."""
    close = getattr(runtime, "close", None)
    closing = close() if callable(close) else None
    if inspect.isawaitable(closing):
        await closing


def _takes_turn(factory: RuntimeFactory) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(factory).parameters.values()
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def _made_ahead(factory: Runtime | RuntimeFactory) -> Runtime | None:
    """Return the runtime of the first turn, so that the log names at the start what the flow lacks.

    ``None`` for a factory of flows, which tells its flow itself, and for a function that needs a turn or fails: the
    first turn reports it.
    """
    if not isinstance(factory, FunctionType | partial) or inspect.iscoroutinefunction(factory):
        return None
    with contextlib.suppress(Exception):
        if not _takes_turn(factory):
            instance = factory()
            if inspect.iscoroutine(instance):
                instance.close()
            return instance if isinstance(instance, Runtime) else None
    return None


def _flow_of(runtime: object) -> FlowDefinition | None:
    """Return the flow that a runtime runs, or that a factory makes runtimes for, if it runs in this process."""
    flow = getattr(runtime, "flow", None)
    return flow if isinstance(flow, FlowDefinition) else None


def _decision(approval: ApprovalAnswer) -> str:
    """Return an answer for Open Harness: it takes what begins with "y" as an approval, everything else as a refusal."""
    return "yes" if approval.approved else f"no: {approval.reason}" if approval.reason else "no"


def _answer(turn: Turn) -> str:
    """Return what resumes a paused flow: the user's approval or choice if it asked for one, or the message's text."""
    if turn.request.continues:
        for approval in turn.approvals:
            return _decision(approval)
        for output in turn.tool_outputs:
            return output.output if isinstance(output.output, str) else json_text(output.output)
    return _text_alone(turn)


def _text_alone(turn: Turn) -> str:
    """Return the text of a message to a flow that has begun: the commands of Open Harness have no field for files."""
    if turn.files:
        _logger.warning("chat %s: the files of a message to a flow that has begun are not passed on", turn.chat_id)
    return turn.text
