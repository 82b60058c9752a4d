"""The settings of runs and of the server around them."""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from usechat.errors import InvalidSetting
from usechat.protocol.request import Limits
from usechat.runs.quotas import Quotas
from usechat.runs.replay import IN_MEMORY

__all__ = [
    "RELOADS",
    "AfterCrash",
    "CancelAfter",
    "Conflict",
    "Disconnect",
    "Settings",
    "Timeouts",
    "cancel_after",
    "linger",
]

Conflict: TypeAlias = Literal["reject", "attach", "queue", "interrupt"]
"""What a request does while the chat has a running run."""


AfterCrash: TypeAlias = Literal["continue", "ask", "lose"]
"""What happens to a stored answer whose process died."""


class CancelAfter(msgspec.Struct, frozen=True):
    """Cancel a run after this many seconds without a reader; made by :func:`cancel_after`."""

    seconds: float


RELOADS: Final = CancelAfter(15)
"""The policy where clients can resume: a page has this time to come back when it is reloaded."""

Disconnect: TypeAlias = Literal["cancel", "continue"] | CancelAfter
"""``"cancel"`` stops a run when its last reader leaves, ``"continue"`` lets it finish; or :func:`cancel_after`."""


def cancel_after(seconds: float) -> CancelAfter:
    """Return the ``disconnect`` policy that cancels a run after ``seconds`` without a reader.

    A page that is reloaded comes back sooner and finds its answer.

    >>> Settings(disconnect=cancel_after(60)).disconnect
    CancelAfter(seconds=60)
    """
    return CancelAfter(seconds)


def linger(policy: Disconnect | None, *, keeps_log: bool) -> float | None:
    """Return how many seconds a run continues without a reader; ``None`` means to its end.

    Without a policy, a run that ``keeps_log`` waits for a page that is reloaded. Others stop: no page can come back.
    Raises :class:`~usechat.errors.InvalidSetting` for any other policy.
    """
    match policy:
        case None:
            return RELOADS.seconds if keeps_log else 0
        case "cancel":
            return 0
        case "continue":
            return None
        case CancelAfter(int() | float() as seconds) if seconds >= 0:
            return seconds
    raise InvalidSetting(f"disconnect is 'cancel', 'continue' or cancel_after(seconds), not {policy!r}")


class Timeouts(msgspec.Struct, frozen=True):
    """Limit how long an agent may take, in seconds; ``None`` means no limit.

    ``first_event`` runs from the start of the run to the first part, ``idle`` between two parts, and ``total`` from the
    start of the run to its end. ``stop`` is what a cancelled agent may take to clean up; after that the stream ends
    without it. An agent that exceeds a limit is cancelled, and the answer ends with an error that says so.

    >>> Timeouts(first_event=30, total=600)
    Timeouts(first_event=30, idle=120, total=600, stop=5)
    """

    first_event: float | None = 120
    idle: float | None = 120
    total: float | None = None
    stop: float = 5

    @property
    def shortest(self) -> float | None:
        """The shortest of the limits on a running agent."""
        limits = (self.first_event, self.idle, self.total)
        return min((limit for limit in limits if limit is not None), default=None)


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
        conflict: what a second request does while a chat is being answered: ``"reject"`` (409), ``"queue"`` (it
            waits), ``"attach"`` (it waits, except that a repeated continuation reads the running answer) or
            ``"interrupt"`` (the running answer is stopped).
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
        websocket_origins: origins (``https://example.org``) whose pages may open a WebSocket, and post requests as
            ``text/plain``, besides those of the server's own host.
        websocket_requests: how many requests one WebSocket may carry at once.
        event_names: write an ``event:`` line with the type of the chunk before each; the AI SDK's readers ignore it.
        import_history: store the messages that a page has of a chat which the store does not know. They are untrusted
            input. By default only the new message is stored.
        history_file_bytes: how many bytes of stored files an agent gets with the history of a chat, the newest first. A
            short text names each of the others in its place. Providers of models limit the size of a request.
        after_crash: what happens to a stored answer whose process died: ``"continue"`` (another process, or the same
            one after its restart, goes on with it), ``"ask"`` (the same, but a person is asked about each tool that may
            have run) or ``"lose"`` (it ends with what was stored). By default answers go on whose agent reports every
            effect as a tool call, and those of functions that use ``turn.step``. See ``docs/survive.md``.
        recover: how many such answers one process continues at once; the others wait.
        keep_chats: seconds without a new message after which a stored chat is deleted; by default chats are kept.
        plain_asgi: use nothing but ASGI, and nothing of uvicorn's internals (see ``docs/deploy.md``).

    ``ChatApp`` and ``chat_response`` raise :class:`~usechat.errors.InvalidSetting` or
    :class:`~usechat.errors.UnknownRelease` for a value that makes no sense; ``after_crash`` and ``recover`` are checked
    here.

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
    after_crash: AfterCrash | None = None
    recover: int = 8
    keep_chats: float | None = None
    plain_asgi: bool = False

    def __post_init__(self) -> None:
        """Raise ``InvalidSetting`` for values that would be noticed only when a process has died."""
        if self.after_crash is not None and self.after_crash not in get_args(AfterCrash):
            raise InvalidSetting(f"after_crash is 'continue', 'ask' or 'lose', not {self.after_crash!r}")
        if type(self.recover) is not int or self.recover < 1:
            raise InvalidSetting(f"recover is a whole number above 0, not {self.recover!r}")
