"""Answer turns with another AI SDK endpoint: what makes a chat transport of the client a source that can be served.

The page that is served and the endpoint need not know the same release. What the endpoint sends is read back into parts
and framed anew for the page. What the page sends goes to the endpoint as a client of AI SDK 6 or 7 would send it: an
approval that was asked through the tool `approval`, because the page may not know approvals, becomes the answer to an
approval request.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from usechat.errors import ConnectionLost
from usechat.protocol.chunks import Chunk
from usechat.protocol.reframing import ChunkReader
from usechat.protocol.request import ApprovalAnswer, ChatRequest
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import UIMessage
from usechat.sources import AdapterSource
from usechat.turn import Turn, TurnContext

__all__ = ["Relay", "with_native_approvals"]

_ASKED_BY_TOOL = f"tool-{APPROVAL_TOOL}"


class Relay:
    """The part of a chat transport that answers turns; ``pass_on`` are the page's headers that the endpoint gets."""

    pass_on: Sequence[str] = ()

    async def send_messages(self, request: ChatRequest, *, headers: Mapping[str, str] = {}) -> AsyncIterator[Chunk]:
        """Send a chat request and return the chunks of the answer; ``headers`` are sent with this request alone."""
        raise NotImplementedError

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn with the answer of the endpoint."""

        async def chunks(turn: Turn) -> AsyncIterator[Chunk]:
            headers = {name: turn.headers[name] for name in self.pass_on if name in turn.headers}
            try:
                stream = await self.send_messages(with_native_approvals(turn.request), headers=headers)
            except ConnectionLost:
                context.source_unreachable()
                raise
            return _counted(stream, context)

        await AdapterSource(chunks, ChunkReader).drive(context)


async def _counted(stream: AsyncIterator[Chunk], context: TurnContext) -> AsyncIterator[Chunk]:
    """Yield the chunks of a stream, count its connection as open, and close it in the same task."""
    try:
        with context.connected():
            async for chunk in stream:
                yield chunk
    finally:
        await cast("Any", stream).aclose()


def with_native_approvals(request: ChatRequest) -> ChatRequest:
    """Return a request in which approvals that were asked through a tool are answered approval requests."""
    continued = request.continues
    answers = {answer.tool_call_id: answer for answer in request.approvals}
    messages = [
        _with_answers(message, answers if message is continued else {}) if _has_questions(message) else message
        for message in request.messages
    ]
    return msgspec.structs.replace(request, messages=messages)


def _has_questions(message: UIMessage) -> bool:
    return any(map(_is_question, message["parts"]))


def _is_question(part: Any) -> bool:
    return part["type"] == _ASKED_BY_TOOL and isinstance(part.get("input"), Mapping) and "approvalId" in part["input"]


def _with_answers(message: UIMessage, answers: Mapping[str | None, ApprovalAnswer]) -> UIMessage:
    parts = cast("list[dict[str, Any]]", message["parts"])
    signatures = {part["input"]["approvalId"]: part["input"].get("signature") for part in parts if _is_question(part)}
    kept = [
        _answered(part, answers[part.get("toolCallId")], signatures) if part.get("toolCallId") in answers else part
        for part in parts
        if not _is_question(part)
    ]
    return cast("UIMessage", {**message, "parts": kept})


def _answered(part: dict[str, Any], answer: ApprovalAnswer, signatures: Mapping[str, Any]) -> dict[str, Any]:
    given = {"reason": answer.reason, "signature": signatures.get(answer.approval_id)}
    approval = {"id": answer.approval_id, "approved": answer.approved}
    approval |= {key: value for key, value in given.items() if value is not None}
    return {**part, "state": "approval-responded", "approval": approval}
