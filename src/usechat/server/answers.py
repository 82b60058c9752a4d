"""What a client sends back is not trusted: answers are checked against what was asked."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from usechat.calls import tool_parts_of
from usechat.errors import RequestError
from usechat.requests import ChatRequest
from usechat.runs.open_calls import OpenCall, approval_signature, input_digest, is_signature
from usechat.runs.pending import pending_in, pending_signature
from usechat.runs.run import RunInfo
from usechat.toolbook import APPROVAL_TOOL
from usechat.ui_messages import is_dynamic_tool

__all__ = ["Answers", "Unprocessable"]

CHANGED: Final = "a tool output was not taken: its call came back with another tool or input, or with two outputs"
UNSIGNED: Final = (
    "tool outputs were not taken: the last run is not known here, and no valid signature came back; give every worker"
    " the same Settings(approval_secret=…), and let the page send the chat's id and the message's metadata"
)

_logger: Final = logging.getLogger("usechat.server")


class Unprocessable(RequestError):
    """The request contradicts what the server knows."""

    status = 422


class Answers:
    """What a request answers, beside what was asked: by the chat's last run, or once that is forgotten by signature.

    ``chat_id`` is the name of the chat among the runs, ``latest`` its last run if that is known, ``secret`` its own.
    """

    def __init__(self, asked: ChatRequest, chat_id: str, latest: RunInfo | None, secret: str) -> None:
        self._asked = asked
        self._chat_id = chat_id
        self._is_known = latest is not None
        self._message: Mapping[str, Any] = asked.continues or {}
        self._parts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for part in tool_parts_of(self._message):
            self._parts[part["toolCallId"]].append(part)
        self._claims: dict[str, set[tuple[str, str]]] = {}
        self._open: Sequence[OpenCall] = ()
        if self._parts:
            self._open = latest.answerable if latest is not None else list(self._signed(secret))

    def check_approvals(self) -> None:
        """Refuse an answer to an approval that was not asked for, or whose call has another input now."""
        for answer in self._asked.approvals:
            if not self._is_open(self._told(answer.tool_call_id, answer.approval_id)):
                raise Unprocessable(
                    f"The approval {answer.approval_id!r} was not asked for, or its tool call has changed."
                )

    def pending(self) -> frozenset[str]:
        """Return the ids of calls that wait for an output, are told of as they were made, and not answered twice."""
        waiting = [call for call in self._open if call.approval_id is None]
        outputs = Counter(output.tool_call_id for output in self._asked.tool_outputs)
        found = frozenset(
            call.tool_call_id
            for call in waiting
            if outputs[call.tool_call_id] <= 1 and self._told(call.tool_call_id) == call
        )
        # The outcomes of the server's own tools come back, too: they are nothing to speak of beside an answer.
        if outputs and not outputs.keys() & found and not self._asked.approvals:
            self._warn(changed=any(call.tool_call_id in outputs for call in waiting))
        return found

    def unanswered(self) -> tuple[OpenCall, ...]:
        """Return the open calls of which this request says nothing."""
        answered = self._answered()
        return tuple(call for call in self._open if call.tool_call_id not in answered)

    def given(self) -> tuple[OpenCall, ...]:
        """Return the open calls whose outputs this request brings."""
        answered = self._answered()
        return tuple(call for call in self._open if call.approval_id is None and call.tool_call_id in answered)

    def _answered(self) -> set[str | None]:
        answered = {answer.tool_call_id for answer in self._asked.approvals}
        return answered | {output.tool_call_id for output in self._asked.tool_outputs}

    def _is_open(self, told: OpenCall | None) -> bool:
        return told is not None and told in self._open

    def _told(self, tool_call_id: str | None, approval_id: str | None = None) -> OpenCall | None:
        """Return a call as the message tells of it; nothing if it tells of none, or differently in two places."""
        if tool_call_id not in self._parts:
            return None
        if tool_call_id not in self._claims:  # a request may name one call, with a large input, thousands of times
            parts = self._parts[tool_call_id]
            self._claims[tool_call_id] = {(_name_of(part), input_digest(part.get("input"))) for part in parts}
        claims = self._claims[tool_call_id]
        return OpenCall(tool_call_id, *next(iter(claims)), approval_id) if len(claims) == 1 else None

    def _signed(self, secret: str) -> Iterator[OpenCall]:
        """Yield the calls that the message tells of as open, and that are signed."""
        for tool_call_id, approval_id, signature in self._requests():
            call = self._told(tool_call_id, approval_id)
            if call is not None and is_signature(signature, approval_signature(secret, call)):
                yield call
        pending = pending_in(self._message.get("metadata"))
        calls = [] if pending is None else [self._told(call_id) for call_id in pending.call_ids]
        known = [call for call in calls if call is not None]
        if pending is not None and len(known) == len(calls):
            expected = pending_signature(secret, known)
            yield from known if is_signature(pending.signature, expected) else ()

    def _requests(self) -> Iterator[tuple[str, str, str]]:
        """Yield the call, the id and the signature of each approval request: in its call, or in the tool that asks."""
        for tool_call_id, parts in self._parts.items():
            for part in parts:
                by_tool = part["type"] == f"tool-{APPROVAL_TOOL}"
                match part.get("input") if by_tool else part.get("approval"):
                    case {"approvalId": str(asked), "toolCallId": str(about), "signature": str(signature)} if by_tool:
                        yield about, asked, signature
                    case {"id": str(asked), "signature": str(signature)} if not by_tool:
                        yield tool_call_id, asked, signature

    def _warn(self, *, changed: bool) -> None:
        """Tell why an output was not taken, if the server itself may have asked for it."""
        if changed or not self._is_known:
            why = CHANGED if changed else UNSIGNED
            _logger.warning("chat %s: %s", self._chat_id, why, extra={"chat_id": self._chat_id})


def _name_of(part: Mapping[str, Any]) -> str:
    kind: str = part["type"]
    return str(part.get("toolName")) if is_dynamic_tool(kind) else kind.removeprefix("tool-")
