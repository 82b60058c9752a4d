"""Why a model could not answer, in the words that people are told."""

import re
from typing import Final

from usechat.open_harness.node_failures import AgentFailed, text_of

__all__ = ["agent_failure"]

# By name: which of these classes there are depends on the release of pydantic-ai and on the provider's own library.
_TYPES: Final = (
    ("rate_limit", re.compile("RateLimit|QuotaExceeded|Overloaded|UsageLimitExceeded")),
    ("auth", re.compile("Authentication|PermissionDenied|Unauthorized|Forbidden")),
    ("timeout", re.compile("Time(d)?Out|Timeout")),
    ("network", re.compile("Connection|ConnectError|NetworkError|gaierror|Unavailable")),
)
_STATUSES: Final = {401: "auth", 403: "auth", 408: "timeout", 429: "rate_limit", 503: "network", 504: "timeout"}
_API_KEY: Final = re.compile(r"_API_KEY|api[ _-]key", re.IGNORECASE)


def agent_failure(error: BaseException) -> AgentFailed:
    """Return the failure of an agent whose model raised ``error``; its causes are looked at, too."""
    text = text_of(error)
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if (found := _error_type(cause)) is not None:
            return AgentFailed(found, text)
        cause = cause.__cause__ or cause.__context__
    return AgentFailed("auth" if _API_KEY.search(text) else "execution_error", text)


def _error_type(error: BaseException) -> str | None:
    if (found := _STATUSES.get(getattr(error, "status_code", 0) or 0)) is not None:
        return found
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    return next((name for name, pattern in _TYPES if pattern.search(names)), None)
