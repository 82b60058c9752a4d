"""The settings of a server."""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from usechat.errors import InvalidSetting
from usechat.protocol.request import Limits
from usechat.runs.manager import Conflict
from usechat.runs.quotas import Quotas
from usechat.runs.replay import IN_MEMORY
from usechat.runs.run import Timeouts

__all__ = [
    "CancelAfter",
    "Disconnect",
    "Settings",
    "cancel_after",
    "linger",
]


_TIME_TO_RELOAD: Final = 15
"""Seconds that a page has to come back when it is reloaded."""


class CancelAfter(msgspec.Struct, frozen=True):
    """Cancel a run after this many seconds without a reader; made by :func:`cancel_after`."""

    seconds: float


Disconnect: TypeAlias = Literal["cancel", "continue"] | CancelAfter
"""``"cancel"`` stops a run when its last reader leaves, ``"continue"`` lets it finish; or :func:`cancel_after`."""


def cancel_after(seconds: float) -> CancelAfter:
    """Return the ``disconnect`` policy that cancels a run after ``seconds`` without a reader.

    A page that is reloaded comes back sooner and finds its answer.

    >>> Settings(disconnect=cancel_after(60)).disconnect
    CancelAfter(seconds=60)
    """
    return CancelAfter(seconds)


def linger(policy: Disconnect | None, *, kept: bool) -> float | None:
    """Return how many seconds a run continues without a reader; ``None`` means to its end.

    Without a policy, a run whose log is ``kept`` waits for a page that is reloaded. Others stop: no page can come back.
    Raises :class:`~usechat.errors.InvalidSetting` for any other policy.
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
    raise InvalidSetting(f"disconnect is 'cancel', 'continue' or cancel_after(seconds), not {policy!r}")


_DEFAULT_TIMEOUTS: Final = Timeouts()
_DEFAULT_LIMITS: Final = Limits()
_NO_QUOTAS: Final = Quotas()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are made and served. Every field has a default, and all are keyword-only.

    Args:
        sdk: the AI SDK release that streams are made for, if a request names none: ``"7"``, ``"6.0.150"`` or ``"any"``.
        disconnect: what happens to a run when its last client has left: ``"cancel"``, ``"continue"`` or
            :func:`cancel_after`. The default is ``cancel_after(15)`` where clients can resume, and ``"cancel"`` where
            they cannot (``chat_response``).
        conflict: what a second request does while a chat is being answered: ``"reject"`` (409), ``"attach"`` (it reads
            the running answer), ``"queue"`` (it waits) or ``"interrupt"`` (the running answer is stopped).
        timeouts: how long an agent may send nothing, and how long a run may take.
        threads: how many plain functions and generators may run at the same time, each in a thread. Further ones wait;
            after 30 seconds they fail with an error that says so.
        limits: the largest request that is accepted.
        quotas: what one identity may use (:class:`~usechat.server.Quotas`); by default there is no limit.
        body_timeout: seconds in which the body of a request must arrive; after that it is refused (408).
        keep_alive: seconds of silence after which a comment is sent, so that proxies keep the connection open.
        maximum_waiting_bytes: how many unread bytes a client may fall behind before it is disconnected.
        maximum_run_bytes: the largest answer.
        log_memory_bytes: how much of the log of an answer is held in memory, in the compact form that resuming readers
            get; the rest of a very long answer is in a temporary file until the answer has ended.
        coalesce_ms: how many milliseconds frames may wait for others to share a write; endings never wait.
        on_error: returns the text that users see for an exception; by default that is a reference to the log.
        approval_secret: signs approval requests and calls of client-side tools, so that their answers can be checked
            after the run is forgotten. By default each process has a random one; processes that share chats must share
            it.
        websocket_origins: origins (``https://example.org``) whose pages may open a WebSocket, besides those of the
            server's own host.
        websocket_requests: how many requests one WebSocket may carry at once.
        event_names: write an ``event:`` line with the type of the chunk before each; the AI SDK's readers ignore it.
        import_history: store the messages that a page has of a chat which the store does not know. They are untrusted
            input. By default only the new message is stored.
        history_file_bytes: how many bytes of stored files an agent gets with the history of a chat, the newest first. A
            short text names each of the others in its place. Providers of models limit the size of a request.
        keep_chats: seconds without a new message after which a stored chat is deleted; by default chats are kept.
        plain_asgi: use nothing but ASGI, and nothing of uvicorn's internals (see ``docs/deploy.md``).

    ``ChatApp`` and ``chat_response`` raise :class:`~usechat.errors.InvalidSetting` or
    :class:`~usechat.errors.UnknownRelease` for a value that makes no sense.

    >>> Settings(sdk="7", conflict="interrupt").keep_alive
    15
    """

    sdk: str = "any"
    disconnect: Disconnect | None = None
    conflict: Conflict = "reject"
    timeouts: Timeouts = _DEFAULT_TIMEOUTS
    threads: int = 64
    limits: Limits = _DEFAULT_LIMITS
    quotas: Quotas = _NO_QUOTAS
    body_timeout: float = 60
    keep_alive: float = 15
    maximum_waiting_bytes: int = 1024 * 1024
    maximum_run_bytes: int = 64 * 1024 * 1024
    log_memory_bytes: int = IN_MEMORY
    coalesce_ms: float = 0
    on_error: Callable[[Exception], str] | None = None
    approval_secret: str | None = None
    websocket_origins: tuple[str, ...] = ()
    websocket_requests: int = 32
    event_names: bool = False
    import_history: bool = False
    history_file_bytes: int = 64 * 1024 * 1024
    keep_chats: float | None = None
    plain_asgi: bool = False
