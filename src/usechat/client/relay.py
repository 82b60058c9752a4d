"""Answer turns with another AI SDK endpoint: what makes a chat transport of the client a source that can be served.

The page that is served and the endpoint need not know the same release. What the endpoint sends is read back into parts
and framed again for the page. What the page sends goes to the endpoint as a client of AI SDK 6 or 7 would send it: an
approval that was asked through the tool `approval`, because the page may not know approvals, becomes the answer to an
approval request.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from usechat.errors import ConnectionLost
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.reframing import ChunkReader
from usechat.protocol.request import ApprovalAnswer, ChatRequest
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import UIMessage, is_provider_executed
from usechat.sources import AdapterSource
from usechat.turn import Turn, TurnContext

__all__ = ["Relay", "with_native_approvals"]

_ASKED_BY_TOOL: Final = f"tool-{APPROVAL_TOOL}"
_REMEMBERED: Final = 10_000
"""How many signed approvals a relay remembers."""


class Relay(ABC):
    """The part of a chat transport that answers turns; ``pass_on`` are the page's headers that the endpoint gets."""

    def __init__(self, pass_on: Sequence[str] = ()) -> None:
        self._pass_on = tuple(name.lower() for name in pass_on)
        self.on_data: Callable[[bytes], None] | None = None
        """Called with each piece of an answer as it arrives and before it is parsed; messages of a socket are lines."""
        self._signed: dict[str, None] = {}
        """The approvals that the endpoint itself has signed, oldest first."""

    @abstractmethod
    async def send_messages(self, request: ChatRequest, *, headers: Mapping[str, str] = {}) -> AsyncIterator[Chunk]:
        """Send a chat request and return the chunks of the answer; ``headers`` are sent with this request alone."""

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn with the answer of the endpoint."""

        async def chunks_of(turn: Turn) -> AsyncIterator[Chunk]:
            headers = {name: turn.headers[name] for name in self._pass_on if name in turn.headers}
            try:
                stream = await self.send_messages(with_native_approvals(turn.request, self._signed), headers=headers)
            except ConnectionLost:
                context.source_unreachable()
                raise
            return self._noted(stream, context)

        await AdapterSource(chunks_of, ChunkReader).drive(context)

    async def _noted(self, stream: AsyncIterator[Chunk], context: TurnContext) -> AsyncIterator[Chunk]:
        """Yield the chunks of a stream, count its connection as open, and close it in the same task."""
        try:
            with context.connected():
                async for chunk in stream:
                    if isinstance(chunk, chunks.ToolApprovalRequestChunk) and chunk.signature is not None:
                        self._remember_signed(chunk.approval_id)
                    yield chunk
        finally:
            await cast("Any", stream).aclose()

    def _remember_signed(self, approval_id: str) -> None:
        self._signed[approval_id] = None
        if len(self._signed) > _REMEMBERED:
            del self._signed[next(iter(self._signed))]


def with_native_approvals(request: ChatRequest, signed: Container[str] = ()) -> ChatRequest:
    """Return a request as the endpoint expects it: approvals asked through a tool are answered approval requests.

    The server that drives the relay signs approval requests that have no signature. The endpoint may not know that key,
    so it gets only its own signatures: those of the approvals in ``signed``.
    """
    continued = request.continues
    answers = {answer.tool_call_id: answer for answer in request.approvals}
    messages = [
        _as_expected(message, answers if message is continued else {}, signed)
        if message["role"] == "assistant"
        else message
        for message in request.messages
    ]
    return msgspec.structs.replace(request, messages=messages)


def _as_expected(message: UIMessage, answers: Mapping[str | None, ApprovalAnswer], signed: Container[str]) -> UIMessage:
    parts = cast("list[dict[str, Any]]", message["parts"])
    questions = [part["input"] for part in parts if _is_question(part)]
    signatures = {question["approvalId"]: question.get("signature") for question in questions}
    native_parts = []
    for part in parts:
        if _is_question(part):
            continue
        answer = answers.get(part.get("toolCallId"))
        if answer is not None and answer.approval_id in signatures:
            part = _answered(part, answer, signatures[answer.approval_id])  # noqa: PLW2901
        native_parts.append(_with_executor(_with_known_signature(part, signed)))
    return cast("UIMessage", {**message, "parts": native_parts})


def _is_question(part: Mapping[str, Any]) -> bool:
    return part["type"] == _ASKED_BY_TOOL and isinstance(part.get("input"), Mapping) and "approvalId" in part["input"]


def _answered(part: dict[str, Any], answer: ApprovalAnswer, signature: Any) -> dict[str, Any]:
    details = {"reason": answer.reason, "signature": signature}
    approval = {"id": answer.approval_id, "approved": answer.approved}
    approval |= {key: value for key, value in details.items() if value is not None}
    return {**part, "state": "approval-responded", "approval": approval}


def _with_executor(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part as the endpoint sent it: a call that waits for its approval may say otherwise who runs it."""
    by_provider = is_provider_executed(part)
    return part if by_provider is (part.get("providerExecuted") is True) else {**part, "providerExecuted": by_provider}


def _with_known_signature(part: dict[str, Any], signed: Container[str]) -> dict[str, Any]:
    approval = part.get("approval")
    if not isinstance(approval, Mapping) or "signature" not in approval or approval.get("id") in signed:
        return part
    return {**part, "approval": {key: value for key, value in approval.items() if key != "signature"}}
