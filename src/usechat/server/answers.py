"""What a client sends back is not trusted: answers are checked against what was asked."""

import hmac
from collections.abc import Mapping
from typing import Any

from usechat.errors import RequestError
from usechat.requests import ApprovalAnswer, ChatRequest
from usechat.runs.open_calls import OpenCall, approval_signature, input_digest
from usechat.runs.run import RunInfo
from usechat.toolbook import APPROVAL_TOOL
from usechat.ui_messages import is_dynamic_tool, is_static_tool

__all__ = ["Unprocessable", "check_approvals", "open_call_ids"]


class Unprocessable(RequestError):
    """The request contradicts what the server knows."""

    status = 422


def check_approvals(asked: ChatRequest, latest: RunInfo | None, secret: str | None) -> None:
    """Refuse an answer to an approval that was not asked for, or whose call has another input now."""
    for answer in asked.approvals:
        claimed = _claimed_call(asked, answer)
        if claimed is None or not (_was_asked(claimed, latest) or _is_signed(asked, claimed, secret)):
            raise Unprocessable(f"The approval {answer.approval_id!r} was not asked for, or its tool call has changed.")


def open_call_ids(latest: RunInfo | None) -> frozenset[str] | None:
    """Return the ids of the calls that wait for the client, or nothing if no run of this chat is known."""
    return None if latest is None else frozenset(call.tool_call_id for call in latest.open_calls)


def _claimed_call(asked: ChatRequest, answer: ApprovalAnswer) -> OpenCall | None:
    part = _part_of(asked, answer.tool_call_id)
    if part is None:
        return None
    name = str(part.get("toolName") or str(part["type"]).removeprefix("tool-"))
    return OpenCall(str(answer.tool_call_id), name, input_digest(part.get("input")), answer.approval_id)


def _was_asked(claimed: OpenCall, latest: RunInfo | None) -> bool:
    return latest is not None and claimed in latest.open_calls


def _is_signed(asked: ChatRequest, claimed: OpenCall, secret: str | None) -> bool:
    if secret is None:
        return False
    expected = approval_signature(secret, claimed).encode()
    return any(hmac.compare_digest(signature.encode(), expected) for signature in _signatures(asked, claimed))


def _signatures(asked: ChatRequest, claimed: OpenCall) -> list[str]:
    """Return the signatures that came back: in the approval itself, or in the tool that asks where there is none."""
    continued: Mapping[str, Any] = asked.continues or {}
    holders = [
        *[
            part.get("approval")
            for part in continued.get("parts", ())
            if part.get("toolCallId") == claimed.tool_call_id
        ],
        *[part.get("input") for part in continued.get("parts", ()) if part.get("type") == f"tool-{APPROVAL_TOOL}"],
    ]
    found = [holder.get("signature") for holder in holders if isinstance(holder, Mapping)]
    return [signature for signature in found if isinstance(signature, str)]


def _part_of(asked: ChatRequest, tool_call_id: str | None) -> Mapping[str, Any] | None:
    continued: Mapping[str, Any] = asked.continues or {}
    for part in continued.get("parts", ()):
        kind = str(part.get("type"))
        if part.get("toolCallId") == tool_call_id and (is_static_tool(kind) or is_dynamic_tool(kind)):
            return part  # type: ignore[no-any-return]
    return None
