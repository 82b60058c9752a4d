"""The reasons why a model could not answer, independent of the library that called it."""

import re
from typing import Final

from usechat.open_harness.errors import AgentFailed
from usechat.open_harness.nodes.context import text_of

__all__ = ["STATUSES", "agent_failure"]

# By name: which of these classes there are depends on the library that asks the model, and on its release.
_TYPES: Final = (
    ("rate_limit", re.compile("RateLimit|QuotaExceeded|Overloaded|UsageLimitExceeded")),
    ("auth", re.compile("Authentication|PermissionDenied|Unauthorized|Forbidden")),
    ("timeout", re.compile("Time(d)?Out|Timeout")),
    ("network", re.compile("Connection|ConnectError|NetworkError|gaierror|Unavailable")),
)
STATUSES: Final = {401: "auth", 403: "auth", 408: "timeout", 429: "rate_limit", 503: "network", 504: "timeout"}
_API_KEY: Final = re.compile(r"_API_KEY|api[ _-]key", re.IGNORECASE)


def agent_failure(error: BaseException) -> AgentFailed:
    """Return the AgentFailed for an error of a model; its causes are considered, too."""
    text = text_of(error)
    visited_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited_ids:
        visited_ids.add(id(cause))
        if (error_type := _error_type(cause)) is not None:
            return AgentFailed(error_type, text)
        cause = cause.__cause__ or cause.__context__
    return AgentFailed("auth" if _API_KEY.search(text) else "execution_error", text)


def _error_type(error: BaseException) -> str | None:
    status = _status(error)
    if (error_type := STATUSES.get(status)) is not None:
        return error_type
    if status >= 500:  # the provider's own failure; another attempt may succeed
        return "network"
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    return next((name for name, pattern in _TYPES if pattern.search(names)), None)


def _status(error: BaseException) -> int:
    """Return the HTTP status of an error, or 0. Libraries have it at the error or, as httpx, at its response."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else 0
