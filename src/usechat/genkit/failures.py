"""Failures of Genkit as exceptions: people read a sentence and a reference, the log keeps what the server said."""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from usechat.genkit.sentences import ERROR_PAGE, STATUSES, UNREACHABLE, sentence_of
from usechat.genkit.wire import Failure, failure_of
from usechat.runs.failures import PublicError

__all__ = ["describe", "error_page", "unreachable"]

_logger: Final = logging.getLogger("usechat.genkit")


def describe(failure: Failure, *, retry_after: str = "", error: Exception | None = None) -> str:
    """Return what people are told of a failure; what the server said goes to the log, under a reference."""
    sentence = sentence_of(failure)
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


def error_page(code: int, headers: Mapping[str, str], body: bytes) -> PublicError:
    """Return the failure that an answer other than a stream tells of: JSON, plain text or a page of a proxy."""
    text = body.decode("utf-8", "replace").strip()
    if "html" in headers.get("content-type", "") or text.startswith("<"):
        said = Failure("UNKNOWN", text[:500])
    else:
        said = failure_of(_json_or_text(text[:10_000]))
    status = STATUSES.get(code, "INTERNAL") if said.status == "UNKNOWN" else said.status
    if code == 200:
        _logger.warning("Genkit answered with a page instead of a stream: %s", said.message)
        return PublicError(ERROR_PAGE)
    if location := headers.get("location"):
        status, said = "NOT_FOUND", Failure(message=f"the flow has moved to {location}; give that address")
    failure = Failure(status, f"HTTP {code}: {said.message}", said.details)
    return PublicError(describe(failure, retry_after=headers.get("retry-after", "")))


def unreachable(url: str, error: Exception) -> PublicError:
    """Return the failure of a connection that could not be opened."""
    _logger.warning("Genkit cannot be reached at %s: %s", url, str(error) or type(error).__name__)
    return PublicError(UNREACHABLE)


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
