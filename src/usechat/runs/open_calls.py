"""The calls that a run left open for the client, so that what comes back can be checked."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from usechat.values import json_text, json_value

__all__ = ["OpenCall", "approval_signature", "input_digest", "is_signature", "secret_of_chat", "signature_of"]

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
