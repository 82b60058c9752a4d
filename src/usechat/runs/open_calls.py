"""Open calls: the tool calls and approvals that wait for the client, and the check of its answers.

The history in a request is untrusted client input. An agent that accepts an output for a call that it never made, or an
approval for a call whose input was changed, does what the client wants. So every answer is compared with what was
asked:

1. If the store still has the chat's last run, the calls in its :class:`~usechat.runs.run.RunInfo` decide alone.
2. Otherwise (another process, a restart, after ``remember`` seconds) a signature decides. Approval requests carry
   their own, if the release knows it. Calls that wait for an output, and other approvals, are named and signed in
   the message's metadata, which clients of all releases send back (``updateMessageMetadata`` of ``ai``).

A call is identified by its id, its tool and a digest of its input; a call that comes back in two versions is ignored.
Signatures are HMACs under a secret derived for one chat and one person: they are valid nowhere else. A wrong approval
is refused (422). A wrong tool output is ignored and logged, since honest clients send old ones again.
"""

import base64
import hashlib
import hmac
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from usechat.errors import Unprocessable
from usechat.protocol.request import ChatRequest
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import UIMessage, tool_name, tool_parts_of
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
    "without_signatures",
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
    """Return the digest of a tool's input: base64url of the SHA-256 of its JSON with sorted keys."""
    return _base64url(hashlib.sha256(json_text(_sorted(json_value(value))).encode()).digest())


def secret_of_chat(secret: str, chat_id: str, subject: str) -> str:
    """Derive the secret of one person's chat: signatures are valid in no other chat and for no other person."""
    return signature_of(secret, [_SECRET_VERSION, chat_id, subject])


def approval_signature(secret: str, call: OpenCall) -> str:
    """Sign an approval request: the fields that AI SDK 7 signs (``experimental_toolApprovalSecret``)."""
    return signature_of(secret, [_VERSION, call.approval_id, call.tool_call_id, call.tool_name, call.input_digest])


def signature_of(secret: str, fields: Sequence[Any]) -> str:
    """Sign plain JSON values: base64url of the HMAC-SHA256 of their JSON."""
    return _base64url(hmac.digest(secret.encode(), json_text(fields).encode(), "sha256"))


def is_signature(claimed: str, expected: str) -> bool:
    """Compare a signature from the client with the right one, in constant time."""
    return hmac.compare_digest(claimed.encode("utf-8", "surrogatepass"), expected.encode())


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, int) and abs(value) > _LARGEST_EXACT:
        return float(value)  # as it comes back from a page: JavaScript numbers are doubles
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# Signed pending calls: outputs of the page are accepted even when their run is forgotten. Before its ``finish`` a run
# that leaves such calls names and signs them in the message's metadata. Pages of all releases keep metadata with the
# message and send it back (``ai``, ``updateMessageMetadata``).

_PENDING_VERSION: Final = "usechat-pending-calls-v1"

NOTHING_PENDING: Final[Mapping[str, Any]] = {"usechat": {"pending": []}}
"""The metadata that withdraws an earlier turn's calls: clients merge objects and replace arrays."""


class Pending(NamedTuple):
    """What a message's metadata claims about its pending calls; untrusted until the signatures are checked."""

    call_ids: list[str]
    signature: str
    approvals: Mapping[str, Any] = {}
    """The signature of each approval request, by its id."""


def pending_metadata(secret: str, calls: Sequence[OpenCall]) -> dict[str, Any]:
    """Return the metadata of a message whose calls wait for the client; ``secret`` is the chat's."""
    waiting = [call for call in calls if call.approval_id is None]
    approvals = {
        str(call.approval_id): approval_signature(secret, call) for call in calls if call.approval_id is not None
    }
    pending = {"pending": [call.tool_call_id for call in waiting], "signature": pending_signature(secret, waiting)}
    return {"usechat": pending | ({"approvals": approvals} if approvals else {})}


def pending_signature(secret: str, calls: Sequence[OpenCall]) -> str:
    """Sign the calls that wait for the client's outputs, with their tools and inputs."""
    signed = [[call.tool_call_id, call.tool_name, call.input_digest] for call in calls]
    return signature_of(secret, [_PENDING_VERSION, signed])


def pending_in(metadata: Any) -> Pending | None:
    """Return what a message's metadata claims about its pending calls; None if it claims nothing, or is malformed."""
    match metadata:
        case {"usechat": {"pending": [*ids], "signature": str(signature), **others}}:
            approvals = others.get("approvals")
            signed = approvals if isinstance(approvals, Mapping) else {}
            return Pending(ids, signature, signed) if all(isinstance(each, str) for each in ids) else None
    return None


def without_signatures(message: UIMessage) -> UIMessage:
    """Return a message for those who may read it but not answer: without the signatures of its open calls."""
    metadata, parts = message.get("metadata"), [_unsigned(part) for part in message["parts"]]
    if isinstance(metadata, Mapping):
        metadata = {key: value for key, value in metadata.items() if key not in NOTHING_PENDING}
    return cast("UIMessage", {**message, "parts": parts} | ({"metadata": metadata} if "metadata" in message else {}))


def _unsigned(part: Any) -> Any:
    # AI SDK 5 has no approvals: there a call of another tool asks for one, and has the signature in its input.
    field = "input" if part.get("type") == f"tool-{APPROVAL_TOOL}" else "approval"
    signed = part.get(field)
    if not isinstance(signed, Mapping):
        return part
    return {**part, field: {key: value for key, value in signed.items() if key != "signature"}}


# The check of a request's answers.

CHANGED: Final = (
    "ignored a tool output: its call came back with another tool or input, or with two outputs; let the page send the"
    " message back as it received it, with one output per call"
)
UNSIGNED: Final = (
    "ignored tool outputs: this worker does not know the chat's last run, and the message has no valid signature; give"
    " every worker the same Settings(approval_secret=…), and let the page send the chat's id and the message's metadata"
)
FORGOTTEN: Final = (
    "refused an approval: the server does not know the chat's last run, as after a restart, and there is no valid"
    " signature; to keep approvals, store chats (--chats, ChatApp(chats=…)), or give a secret that stays"
    " (--approval-secret FILE, Settings(approval_secret=…))"
)
FORGOTTEN_ON_PAGE: Final = "The server does not know this question any more, and has done nothing. Please ask again."

_logger: Final = logging.getLogger("usechat.server")
_NO_CALLS: Final[frozenset[str]] = frozenset()


class Answers:
    """Compares the answers in a request with the calls that are open.

    ``chat_id`` is the chat's key in the run store, ``open_calls`` the calls that its last run left open (``None`` if
    the store does not have that run: then signatures decide), ``secret`` the chat's own secret.
    """

    def __init__(self, request: ChatRequest, chat_id: str, open_calls: Sequence[OpenCall] | None, secret: str) -> None:
        self._request = request
        self._chat_id = chat_id
        self._is_known = open_calls is not None
        self._message: Mapping[str, Any] = request.continues or {}
        self._parts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for part in tool_parts_of(self._message):
            self._parts[part["toolCallId"]].append(part)
        self._claims: dict[str, set[tuple[str, str]]] = {}
        self._open: Sequence[OpenCall] = ()
        if self._parts:
            self._open = list(self._signed(secret)) if open_calls is None else open_calls

    def check_approvals(self) -> None:
        """Raise :class:`Unprocessable` for an approval that was not requested, or whose call was changed.

        If the run is not known, nobody can tell whether it was requested: the server may have forgotten it.
        """
        for answer in self._request.approvals:
            if self._is_open(self._claimed(answer.tool_call_id, answer.approval_id)):
                continue
            if self._is_known:
                raise Unprocessable(
                    f"The approval {answer.approval_id!r} was not asked for, or its tool call has changed."
                )
            self._log(FORGOTTEN)
            raise Unprocessable(FORGOTTEN_ON_PAGE)

    def pending(self) -> frozenset[str]:
        """Return the ids of the open calls that came back unchanged and with at most one output."""
        waiting = [call for call in self._open if call.approval_id is None]
        outputs = Counter(output.tool_call_id for output in self._request.tool_outputs)
        call_ids = frozenset(
            call.tool_call_id
            for call in waiting
            if outputs[call.tool_call_id] <= 1 and self._claimed(call.tool_call_id) == call
        )
        # The outputs of the server's own tools come back, too: no reason to warn beside a valid answer.
        if outputs and not outputs.keys() & call_ids and not self._request.approvals:
            self._warn(changed=any(call.tool_call_id in outputs for call in waiting))
        return call_ids or _NO_CALLS  # mostly empty, and kept by every open stream

    def unanswered(self) -> tuple[OpenCall, ...]:
        """Return the open calls that this request does not answer."""
        call_ids = self._answered_ids()
        return tuple(call for call in self._open if call.tool_call_id not in call_ids)

    def given(self) -> tuple[OpenCall, ...]:
        """Return the open calls whose outputs this request brings."""
        call_ids = self._answered_ids()
        return tuple(call for call in self._open if call.approval_id is None and call.tool_call_id in call_ids)

    def _answered_ids(self) -> set[str | None]:
        call_ids = {answer.tool_call_id for answer in self._request.approvals}
        return call_ids | {output.tool_call_id for output in self._request.tool_outputs}

    def _is_open(self, claimed: OpenCall | None) -> bool:
        return claimed is not None and claimed in self._open

    def _claimed(self, tool_call_id: str | None, approval_id: str | None = None) -> OpenCall | None:
        """Return a call as the message claims it was made; None if it has no such call, or two that differ."""
        if tool_call_id not in self._parts:
            return None
        if tool_call_id not in self._claims:  # a request may name one call, with a large input, thousands of times
            parts = self._parts[tool_call_id]
            self._claims[tool_call_id] = {(tool_name(part), input_digest(part.get("input"))) for part in parts}
        claims = self._claims[tool_call_id]
        return OpenCall(tool_call_id, *next(iter(claims)), approval_id) if len(claims) == 1 else None

    def _signed(self, secret: str) -> Iterator[OpenCall]:
        """Yield the calls that the message claims are open, with a valid signature."""
        for tool_call_id, approval_id, signature in self._requests():
            call = self._claimed(tool_call_id, approval_id)
            if call is not None and is_signature(signature, approval_signature(secret, call)):
                yield call
        pending = pending_in(self._message.get("metadata"))
        claims = [] if pending is None else [self._claimed(call_id) for call_id in pending.call_ids]
        calls = [claim for claim in claims if claim is not None]
        if pending is not None and len(calls) == len(claims):
            expected = pending_signature(secret, calls)
            yield from calls if is_signature(pending.signature, expected) else ()

    def _requests(self) -> Iterator[tuple[str, str, str]]:
        """Yield call id, approval id and signature of each approval request: of a call, or of the approval tool."""
        pending = pending_in(self._message.get("metadata"))
        approvals = {} if pending is None else pending.approvals
        for tool_call_id, parts in self._parts.items():
            for part in parts:
                by_tool = part["type"] == f"tool-{APPROVAL_TOOL}"
                match part.get("input") if by_tool else part.get("approval"):
                    case {"approvalId": str(approval_id), "toolCallId": str(call_id), "signature": str(signature)} if (
                        by_tool
                    ):
                        yield call_id, approval_id, signature
                    case {"id": str(approval_id), "signature": str(signature)} if not by_tool:
                        yield tool_call_id, approval_id, signature
                    case {"id": str(approval_id)} if not by_tool and isinstance(approvals.get(approval_id), str):
                        yield tool_call_id, approval_id, approvals[approval_id]

    def _warn(self, *, changed: bool) -> None:
        """Log why an output was ignored, unless the call is known not to be open."""
        if changed or not self._is_known:
            self._log(CHANGED if changed else UNSIGNED)

    def _log(self, why: str) -> None:
        _logger.warning("chat %s: %s", self._chat_id, why, extra={"chat_id": self._chat_id})


# The secret for signatures where the settings name none.

_secret = secrets.token_urlsafe(32)


def own_secret() -> str:
    """Return the secret of this process: random, and gone when the process ends."""
    return _secret


def share_secret(secret: str) -> None:
    """Replace this process's secret with one that all workers share."""
    global _secret  # noqa: PLW0603 (one per process is what it is)
    _secret = secret
