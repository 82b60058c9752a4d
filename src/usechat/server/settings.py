"""What a server lets its users set."""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from usechat.errors import LocalProtocolError
from usechat.protocol.request import Limits
from usechat.runs.manager import Conflict
from usechat.runs.run import Timeouts

__all__ = [
    "CancelAfter",
    "Disconnect",
    "Settings",
    "cancel_after",
    "linger",
]


_TIME_TO_RELOAD: Final = 15
"""Seconds that a page which is reloaded has to come back."""


class CancelAfter(msgspec.Struct, frozen=True):
    """Cancel the run after so many seconds without any reader."""

    seconds: float


Disconnect: TypeAlias = Literal["cancel", "continue"] | CancelAfter
"""``cancel`` stops the run at once, ``continue`` lets it go on to its end; or :func:`cancel_after`."""


def cancel_after(seconds: float) -> CancelAfter:
    """Cancel a run that had no reader for so many seconds: a page that is reloaded comes back sooner."""
    return CancelAfter(seconds)


def linger(policy: Disconnect | None, *, kept: bool) -> float | None:
    """Return how many seconds a run goes on without any reader; nothing means to its end.

    Without a policy, a run whose log is ``kept`` waits for a page that is reloaded. Nobody can come back to another.
    """
    match policy:
        case None:
            return _TIME_TO_RELOAD if kept else 0
        case "cancel":
            return 0
        case "continue":
            return None
        case CancelAfter(int() | float() as seconds) if seconds >= 0:
            return seconds
    raise LocalProtocolError(f"disconnect is 'cancel', 'continue' or cancel_after(seconds), not {policy!r}")


# -- What a server lets its users set.

_DEFAULT_TIMEOUTS: Final = Timeouts()
_DEFAULT_LIMITS: Final = Limits()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are made and served.

    ``sdk`` is the AI SDK release that streams are made for. ``disconnect`` says what becomes of a run that nobody reads
    any more: by default ``cancel_after(15)`` where readers may come back, ``"cancel"`` where nothing is kept
    (``chat_response``). ``conflict`` is what a second request does while a chat is answered.
    ``on_error`` turns an exception into the text that people see; by default it is a reference to the log.
    ``approval_secret`` signs approval requests and the calls that wait for the page's tools, so that answers can be
    checked when the run is forgotten; by default it is a secret of this process. Workers must share one.
    ``websocket_origins`` are the origins (``https://example.org``) whose pages may open a WebSocket besides those of
    the server's own host; ``websocket_requests`` is how many requests one socket may carry at once.
    ``coalesce_ms`` is how many milliseconds frames may wait for others to share a write; endings never wait.
    ``event_names`` writes an ``event:`` line with the type of the chunk before each; the AI SDK's readers ignore it.
    """

    sdk: str = "any"
    disconnect: Disconnect | None = None
    conflict: Conflict = "reject"
    timeouts: Timeouts = _DEFAULT_TIMEOUTS
    limits: Limits = _DEFAULT_LIMITS
    keep_alive: float = 15
    maximum_waiting_bytes: int = 1024 * 1024
    maximum_run_bytes: int = 64 * 1024 * 1024
    coalesce_ms: float = 0
    on_error: Callable[[Exception], str] | None = None
    approval_secret: str | None = None
    websocket_origins: tuple[str, ...] = ()
    websocket_requests: int = 32
    event_names: bool = False
