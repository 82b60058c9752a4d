"""Failures of Genkit: users get a sentence and a reference, and the log has the details under that reference."""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from usechat.errors import PublicError
from usechat.genkit.wire import STATUS_NAMES, FlowFailure, failure_of

__all__ = [
    "BLOCKED",
    "CANNOT_RESUME",
    "CANNOT_TELL_APART",
    "ERROR_PAGE",
    "FIRST_BYTES",
    "INCOMPLETE",
    "NO_FILES",
    "SENTENCES",
    "STATUSES",
    "TOOL_FAILED",
    "TOO_FAST",
    "UNREACHABLE",
    "cannot_tell_apart",
    "describe",
    "error_page",
    "not_genkit",
    "public_text",
    "sentence_of",
    "unreachable",
    "unreadable",
]

_logger: Final = logging.getLogger("usechat.genkit")

INCOMPLETE: Final = "The connection to the agent broke before the answer was complete. Send the message again."
UNREACHABLE: Final = "The agent cannot be reached right now. Try again in a moment."
ERROR_PAGE: Final = "An error page came instead of an answer. Try again in a moment."
BLOCKED: Final = "The agent's safety rules blocked this answer. Say it in other words and send it again."
TOOL_FAILED: Final = "This tool failed, so the answer was stopped."
TOO_FAST: Final = "The agent sent data faster than it can be forwarded. Ask for a shorter answer."
CANNOT_RESUME: Final = "This agent cannot continue with a tool's output. Write the output in a message."
CANNOT_TELL_APART: Final = "This agent cannot tell your answers to one tool apart. Ask for one thing at a time."
NO_FILES: Final = "This agent accepts no files. Send the message without them."

_DEFAULT_SENTENCE: Final = "The agent failed while it answered. Try again."
SENTENCES: Final = {
    "ABORTED": "The agent broke its answer off. Send the message again.",
    "CANCELLED": "The agent broke its answer off. Send the message again.",
    "DATA_LOSS": "The agent's answer cannot be read. Try again.",
    "DEADLINE_EXCEEDED": "The agent took too long. Try again, or ask for less at once.",
    "FAILED_PRECONDITION": "The agent cannot do this now. Start a new chat and try again.",
    "INVALID_ARGUMENT": "The agent did not accept this message. Say it in another way.",
    "NOT_FOUND": "The agent was not found. Tell its operators.",
    "PERMISSION_DENIED": "You are not allowed to use this agent. Ask its operators for access.",
    "RESOURCE_EXHAUSTED": "The agent gets too many requests right now. Wait a minute and try again.",
    "UNAUTHENTICATED": "The agent does not know who you are. Sign in again.",
    "UNAVAILABLE": "The agent is not available right now. Try again in a moment.",
    "UNIMPLEMENTED": "The agent cannot do this. Ask for something else.",
}
"""The sentence that people read, by Genkit's status."""
STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Genkit's status for an HTTP status whose body names none: of proxies, rate limiters and plain-text handlers."""

_INTERNAL: Final = ("INTERNAL", "UNKNOWN", "DATA_LOSS")
"""Statuses of failures that are not meant for people."""
_MAXIMUM_PUBLIC_TEXT: Final = 500
FIRST_BYTES: Final = 500
"""How much the log has of a body that is not Genkit's."""


def sentence_of(failure: FlowFailure) -> str:
    """Return the sentence that people read of a failure."""
    return SENTENCES.get(failure.status, _DEFAULT_SENTENCE)


def describe(
    failure: FlowFailure, *, retry_after: str = "", error: Exception | None = None, show_public: bool = False
) -> str:
    """Return the sentence that people read of a failure, with a reference; log what the server said under it.

    With ``show_public`` the server's own text is that sentence, if the server reports an error of its caller.
    """
    sentence = public_text(failure) if show_public else ""
    sentence = sentence or sentence_of(failure)
    if retry_after.isdecimal() and failure.status == "RESOURCE_EXHAUSTED":
        sentence = f"The agent gets too many requests right now. Try again in {retry_after} seconds."
    reference = secrets.token_hex(4)
    _logger.warning(
        "Genkit failed: %s: %s %s; reference %s",
        failure.status,
        failure.message,
        failure.details if failure.details is not None else "",
        reference,
        exc_info=error,
        extra={"reference": reference},
    )
    return f"{sentence} Reference: {reference}"


def public_text(failure: FlowFailure) -> str:
    """Return the text of a ``PublicError`` (Python, Go) or ``UserFacingError`` (JavaScript); empty for other failures.

    The wire does not mark them. They have a status other than ``INTERNAL``, and a text that is not just that status:
    Go 1.12 and newer replace the text of all other errors by it.
    """
    text = failure.message.strip().removeprefix(f"{failure.status}: ")
    is_status = text.lower().replace(" ", "_") == failure.status.lower()
    is_public = failure.status in STATUS_NAMES and failure.status not in _INTERNAL
    return text[:_MAXIMUM_PUBLIC_TEXT] if is_public and not is_status else ""


def not_genkit(url: str, code: int, headers: Mapping[str, str], first_bytes: bytes) -> PublicError:
    """Return the error for a response with status 200 that holds nothing of Genkit's; the log has its first bytes."""
    text = f"{url} is not a Genkit flow: {_described(code, headers, first_bytes)}"
    return PublicError(describe(FlowFailure("DATA_LOSS", text)))


def unreadable(url: str, error: Exception) -> PublicError:
    """Return the error for a body that is not encoded as its headers say."""
    return PublicError(describe(FlowFailure("DATA_LOSS", f"the response of {url} cannot be decoded: {error}")))


def error_page(
    url: str, code: int, headers: Mapping[str, str], body: bytes, *, show_public: bool = False
) -> PublicError:
    """Return the error for a response that is not a stream: JSON, plain text or an HTML page of a proxy.

    If it names no status of Genkit, something else may have answered: the log has the address and the first bytes.
    """
    if code == 200:
        _logger.warning("%s answered with an HTML page instead of a stream; it begins with %r", url, body[:FIRST_BYTES])
        return PublicError(ERROR_PAGE)
    report = failure_of(_json_or_text(body.decode("utf-8", "replace")[:10_000]))
    if location := headers.get("location"):
        failure = FlowFailure("NOT_FOUND", f"HTTP {code}: the flow has moved to {location}; give that address")
    elif show_public and public_text(report):
        return PublicError(describe(report, show_public=True))
    elif report.status == "UNKNOWN" or report.status not in STATUS_NAMES:
        text = f"{url} answered with {_described(code, headers, body)}"
        failure = FlowFailure(STATUSES.get(code, "INTERNAL"), text)
    else:
        failure = FlowFailure(report.status, f"HTTP {code}: {report.message}", report.details)
    return PublicError(describe(failure, retry_after=headers.get("retry-after", "")))


def cannot_tell_apart(tool: str) -> PublicError:
    """Return the error for answers that the agent would confuse, because their calls have no ``ref``."""
    _logger.warning(
        "several calls of %s have no ref, so a Genkit agent cannot tell their answers apart; use a model plugin that"
        " sets refs, or set them in a middleware of the model",
        tool,
    )
    return PublicError(CANNOT_TELL_APART)


def unreachable(url: str, error: Exception) -> PublicError:
    """Return the error for a connection that could not be opened."""
    _logger.warning("cannot connect to Genkit at %s: %s", url, str(error) or type(error).__name__)
    return PublicError(UNREACHABLE)


def _described(code: int, headers: Mapping[str, str], body: bytes) -> str:
    """Describe a response for the log."""
    kind = headers.get("content-type", "no content type")
    return f"HTTP {code}, {kind}, it begins with {body[:FIRST_BYTES]!r}"


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
