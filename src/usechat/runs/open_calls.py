"""The calls that a run left open for the client, so that what comes back can be checked."""

import base64
import hashlib
import hmac
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from usechat.errors import Unprocessable
from usechat.protocol.request import ChatRequest
from usechat.protocol.tool_calls import APPROVAL_TOOL, tool_parts_of
from usechat.protocol.ui_messages import is_dynamic_tool
from usechat.protocol.values import json_text, json_value

__all__ = [
    "NOTHING_PENDING",
    "Answers",
    "OpenCall",
    "Pending",
    "approval_signature",
    "input_digest",
    "is_signature",
    "own_secret",
    "pending_in",
    "pending_metadata",
    "pending_signature",
    "secret_of_chat",
    "share_secret",
    "signature_of",
]


_VERSION: Final = "ai-sdk-tool-approval-v1"
_SECRET_VERSION: Final = "usechat-chat-secret-v1"
_LARGEST_EXACT: Final = 2**53


class OpenCall(msgspec.Struct, frozen=True):
    """A call that waits for the client: for its output, or for a person's answer to ``approval_id``."""

    tool_call_id: str
    tool_name: str
    input_digest: str
    approval_id: str | None = None


def input_digest(value: Any) -> str:
    """Return a digest of a tool's input: base64url of the SHA-256 of its JSON with sorted keys."""
    return _base64url(hashlib.sha256(json_text(_sorted(json_value(value))).encode()).digest())


def secret_of_chat(secret: str, chat_id: str, subject: str) -> str:
    """Return the secret of one person's chat, so that nothing signed in it is good in another, or for anybody else."""
    return signature_of(secret, [_SECRET_VERSION, chat_id, subject])


def approval_signature(secret: str, call: OpenCall) -> str:
    """Sign an approval request: the fields that AI SDK 7 signs (``experimental_toolApprovalSecret``)."""
    return signature_of(secret, [_VERSION, call.approval_id, call.tool_call_id, call.tool_name, call.input_digest])


def signature_of(secret: str, fields: Sequence[Any]) -> str:
    """Sign plain JSON values: base64url of the HMAC-SHA256 of their JSON."""
    return _base64url(hmac.digest(secret.encode(), json_text(fields).encode(), "sha256"))


def is_signature(claimed: str, expected: str) -> bool:
    """Compare a signature that came back with the right one, in a time that tells nothing about it."""
    return hmac.compare_digest(claimed.encode("utf-8", "surrogatepass"), expected.encode())


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, int) and abs(value) > _LARGEST_EXACT:
        return float(value)  # as it comes back from a page, whose numbers are all doubles
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# Signed pending calls: outputs of the page are accepted even when their run is forgotten. Before its ``finish`` a run
# that leaves such calls names and signs them in the message's metadata. Pages of all releases keep metadata with the
# message and send it back (``ai``, ``updateMessageMetadata``).

_PENDING_VERSION: Final = "usechat-pending-calls-v1"

NOTHING_PENDING: Final[Mapping[str, Any]] = {"usechat": {"pending": []}}
"""Pages merge objects and replace arrays, so this takes back what an earlier turn of the message said."""


class Pending(NamedTuple):
    """What a message says of its pending calls: the client's word until the signature is checked."""

    call_ids: list[str]
    signature: str


def pending_metadata(secret: str, calls: Sequence[OpenCall]) -> dict[str, Any]:
    """Return the metadata of a message whose calls wait for the page's outputs; the secret is the chat's."""
    ids = [call.tool_call_id for call in calls]
    return {"usechat": {"pending": ids, "signature": pending_signature(secret, calls)}}


def pending_signature(secret: str, calls: Sequence[OpenCall]) -> str:
    """Sign which calls wait for the page's outputs, with their tools and inputs."""
    told = [[call.tool_call_id, call.tool_name, call.input_digest] for call in calls]
    return signature_of(secret, [_PENDING_VERSION, told])


def pending_in(metadata: Any) -> Pending | None:
    """Read what a message says of its pending calls; nothing if it does not, or in another shape."""
    match metadata:
        case {"usechat": {"pending": [*ids], "signature": str(signature)}}:
            return Pending(ids, signature) if all(isinstance(each, str) for each in ids) else None
    return None


# -- What a client sends back is not trusted: answers are checked against what was asked.

CHANGED: Final = "a tool output was not taken: its call came back with another tool or input, or with two outputs"
UNSIGNED: Final = (
    "tool outputs were not taken: the last run is not known here, and no valid signature came back; give every worker"
    " the same Settings(approval_secret=…), and let the page send the chat's id and the message's metadata"
)

_logger: Final = logging.getLogger("usechat.server")


class Answers:
    """What a request answers, beside what was asked: by the chat's last run, or once that is forgotten by signature.

    ``chat_id`` is the chat's key in the run store, ``asked_for`` the calls that its last run left open (``None`` if
    that run is forgotten), ``secret`` the chat's own secret.
    """

    def __init__(self, asked: ChatRequest, chat_id: str, asked_for: Sequence[OpenCall] | None, secret: str) -> None:
        self._asked = asked
        self._chat_id = chat_id
        self._is_known = asked_for is not None
        self._message: Mapping[str, Any] = asked.continues or {}
        self._parts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for part in tool_parts_of(self._message):
            self._parts[part["toolCallId"]].append(part)
        self._claims: dict[str, set[tuple[str, str]]] = {}
        self._open: Sequence[OpenCall] = ()
        if self._parts:
            self._open = list(self._signed(secret)) if asked_for is None else asked_for

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


# -- The secret that signs what the client must answer, where the settings name none.

_secret = secrets.token_urlsafe(32)


def own_secret() -> str:
    """Return the secret of this process; nobody else knows it, and it is gone with the process."""
    return _secret


def share_secret(secret: str) -> None:
    """Let this process sign with a secret that all workers have."""
    global _secret  # noqa: PLW0603 (one per process is what it is)
    _secret = secret
