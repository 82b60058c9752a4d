"""Nodes that ask a model."""

import asyncio
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from usechat.errors import MissingDependency
from usechat.open_harness.engine.agent_sessions import AgentSession
from usechat.open_harness.engine.threads import in_thread
from usechat.open_harness.flow.flow import Place
from usechat.open_harness.models.provider import Answer, Execution, Provider, StreamEvent
from usechat.open_harness.nodes.agent_request import AgentRequest, model_name, read_request, request_problems
from usechat.open_harness.nodes.context import NodeContext
from usechat.open_harness.nodes.registry import NodeRegistry

__all__ = ["AgentNode"]

_CLAUDE: Final = "anthropic:claude-sonnet-4-5"
_PROVIDER: Final = "usechat.open_harness.models.pydantic_ai"


class AgentNode:
    """Asks a model through pydantic-ai and streams its text, its thinking and its tools.

    The input holds ``prompt`` or ``messages``, and ``model``, ``instructions``, ``tools``, ``thinking``, ``files``,
    ``toolTimeoutMs`` and ``maxTurns``; any of these may stand below ``options``. With ``claude``, the model is
    Claude by default.
    """

    def __init__(self, registry: NodeRegistry, *, claude: bool = False) -> None:
        self._registry = registry
        self._claude = claude

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield what is wrong with the input."""
        return request_problems(fields, has_model=self._claude or self._registry.default_model is not None)

    def model(self, fields: Mapping[str, Any]) -> Any:
        """Return the model that an input names, or else the one for those that name none."""
        return self._registry.model(model_name(fields, claude=self._claude)) or _CLAUDE

    def require_model_library(self) -> None:
        """Raise a MissingDependency at once, not at the first message, if models cannot be asked."""
        if find_spec("pydantic_ai") is None:
            raise MissingDependency("pydantic-ai-slim", "pydantic-ai")

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        """Ask, and return the answer: ``text``, ``usage``, ``sessionId`` and so on."""
        request = read_request(fields, claude=self._claude)
        session = await context.sessions.open(context.session_name)
        request = _resumed(request, session, context)
        model = self.model(fields)
        context.emit(
            {
                "type": "agent:start",
                "sessionId": session.session_id,
                "model": _name(model),
                "prompt": _told(request),
            }
        )
        execution = Execution(
            request,
            model=model,
            history=[] if request.conversation else session.messages,
            inbox=context.inbox,
            emit=lambda event: context.emit(_runtime_event(event)),
        )
        answer = await self._ask(_Models(), execution, session, context)
        return _output(answer, session)

    async def _ask(
        self, provider: Provider, execution: Execution, session: AgentSession, context: NodeContext
    ) -> Answer:
        try:
            if context.recorder is None:
                answer = await provider.execute(execution)
            else:
                answer = await context.recorder.ask(provider, execution, context)
        except asyncio.CancelledError:
            session.add(execution.halfway)
            context.sessions.save(session)
            _tell_stopped(session, context)
            raise
        session.add(answer.messages)
        context.sessions.save(session)
        told = _plain(answer)
        context.emit({"type": "agent:complete", "result": told.pop("text"), **told})
        return answer


class _Models:
    """Imports what needs pydantic-ai on use, which a replay does not, and in a thread: that takes its time."""

    type = "pydantic-ai"

    async def execute(self, execution: Execution) -> Answer:
        provider: Any = sys.modules.get(_PROVIDER) or await in_thread(lambda: import_module(_PROVIDER))
        answer: Answer = await provider.ask_model(execution)
        return answer


def _resumed(request: AgentRequest, session: AgentSession, context: NodeContext) -> AgentRequest:
    """Return the request of an agent that goes on: what was sent to it is the prompt, if it had begun to answer."""
    if context.resume_message is None:
        return request
    sent = []
    while (command := context.inbox.next()) is not None:
        sent.append(str(command.get("message", command.get("content", ""))))
    if session.messages:
        return msgspec.structs.replace(request, prompt="\n\n".join(sent), conversation=(), files=())
    return msgspec.structs.replace(request, prompt="\n\n".join([request.prompt, *sent]))


def _told(request: AgentRequest) -> str | list[str]:
    return [*(said.text for said in request.conversation), request.prompt] if request.conversation else request.prompt


def _runtime_event(event: StreamEvent) -> dict[str, Any]:
    if event["type"] == "tool":
        told = {"type": "agent:tool", "toolCallId": event["id"], "toolName": event["name"]}
        if event["phase"] == "start":
            return {**told, "toolInput": event["data"]}
        told |= {"toolInput": event.get("input"), "toolOutput": event["data"], "durationMs": event.get("durationMs", 0)}
        return told | {key: event[key] for key in ("error", "errorType") if key in event}
    kind = f"agent:{event['type']}:delta" if event.get("delta") else f"agent:{event['type']}"
    return {"type": kind, "content": event["content"]}


def _tell_stopped(session: AgentSession, context: NodeContext) -> None:
    if context.stop_reason == "pause":
        context.emit({"type": "agent:paused", "sessionId": session.session_id})
    elif context.stop_reason == "abort":
        context.emit({"type": "agent:aborted", "reason": "stopped"})


def _output(answer: Answer, session: AgentSession) -> dict[str, Any]:
    return {**_plain(answer), "sessionId": session.session_id}


def _plain(answer: Answer) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(answer)
    del plain["messages"]
    return plain


def _name(model: Any) -> str:
    return model if isinstance(model, str) else str(getattr(model, "model_name", type(model).__name__))
