"""The sentences that people read when Genkit fails; each says what to do next."""

from typing import Final

from usechat.genkit.wire import Failure

__all__ = [
    "BLOCKED",
    "BROKEN_OFF",
    "CANNOT_RESUME",
    "ERROR_PAGE",
    "SENTENCES",
    "STATUSES",
    "TOOL_FAILED",
    "TOO_FAST",
    "UNREACHABLE",
    "sentence_of",
]

BROKEN_OFF: Final = "The connection to the agent broke before the answer was complete. Send the message again."
UNREACHABLE: Final = "The agent cannot be reached right now. Try again in a moment."
ERROR_PAGE: Final = "An error page came instead of an answer. Try again in a moment."
BLOCKED: Final = "The agent's safety rules blocked this answer. Say it in other words and send it again."
TOOL_FAILED: Final = "This tool failed, so the answer could not go on."
TOO_FAST: Final = "The agent said more at once than can be passed on. Ask for a shorter answer."
CANNOT_RESUME: Final = "This agent cannot go on after an answer to its tools. Write it in a message instead."

_AGAIN: Final = "The agent failed while it answered. Try again."
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
"""What people are told by Genkit's name of a failure."""
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
"""What HTTP says when the body does not: of proxies, rate limiters, and handlers that write plain text."""


def sentence_of(failure: Failure) -> str:
    """Return what people are told of a failure."""
    return SENTENCES.get(failure.status, _AGAIN)
