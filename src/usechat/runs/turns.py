"""Turns that a web process hands to agent processes: what a queued turn holds, and what a queue of turns does.

**The idea.** A web process that has no agent accepts a request as usual: it checks the answers in it, claims the chat
and follows the run's log. Instead of driving the run it puts the turn into a queue. An agent process takes the turn,
becomes the owner of the run, and drives it (:mod:`usechat.server.worker`). For everything else, that is reading,
resuming, stopping and open calls, the run is one of another worker, as if a load balancer had chosen that worker.

The one implementation is :class:`~usechat.runs.redis.turns.RedisTurns`.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from usechat.encoded_turns import decode_json, encode_json, turn_fields, turn_input_of
from usechat.runs.open_calls import secret_of_chat
from usechat.runs.quotas import Quotas
from usechat.runs.run import RunInfo
from usechat.turn import TurnInput

__all__ = ["FORWARDED_HEADERS", "AgentMailboxes", "Dispatcher", "QueuedTurn", "TurnQueue", "TurnStatistics"]


FORWARDED_HEADERS: Final = ("accept-language", "traceparent", "tracestate", "x-request-id")
"""The request headers that agents in other processes see by default: none that may hold a credential."""


class QueuedTurn(msgspec.Struct, frozen=True):
    """Everything that an agent process needs for a turn.

    The headers of ``input`` are those that the queue forwards, with lower-case names. ``secret`` is the chat's own
    secret, with which approval requests are signed. ``quotas`` are those that were counted when the turn was accepted.
    ``recording`` is what the agent process needs to record the answer in a chat store, if the web process has begun to.
    """

    info: RunInfo
    input: TurnInput
    secret: str | None = None
    quotas: Quotas = Quotas()
    recording: Mapping[str, Any] | None = None

    def encode(self) -> bytes:
        """Return the turn as JSON. What is not JSON in claims and path parameters is converted (``docs/values.md``)."""
        fields = {
            "info": msgspec.to_builtins(self.info),
            **turn_fields(self.input),
            "secret": self.secret,
            "quotas": msgspec.to_builtins(self.quotas),
            "recording": self.recording,
        }
        return encode_json(fields)

    @classmethod
    def decode(cls, data: bytes) -> "QueuedTurn":
        """Read what :meth:`encode` returned, perhaps in a process with another release of usechat.

        Messages keep keys that no type names. Raises ``ValueError`` or ``KeyError`` for anything else.
        """
        fields = decode_json(data)
        return cls(
            info=msgspec.convert(fields["info"], RunInfo),
            input=turn_input_of(fields),
            secret=fields["secret"],
            quotas=msgspec.convert(fields["quotas"], Quotas),
            recording=fields.get("recording"),
        )


class TurnStatistics(msgspec.Struct, frozen=True):
    """How busy the agent processes are: turns that wait, seconds that the oldest waits, running turns by process."""

    waiting: int = 0
    oldest_seconds: float = 0.0
    running: Mapping[str, int] = {}


@runtime_checkable
class TurnQueue(Protocol):
    """What a web process does with a queue of turns. Coroutines raise ``StoreUnreachable`` if it does not answer."""

    forwarded_headers: tuple[str, ...]
    """The request headers that agents see, in lower case; all others stay in the web process."""

    patience: float
    """Seconds that a turn waits for an agent process before it counts as lost."""

    async def admit(self) -> None:
        """Raise :class:`~usechat.errors.TooManyWaiting` if no further turn may wait."""
        ...

    async def offer(self, turn: QueuedTurn, *, after: str) -> RunInfo | None:
        """Claim the turn's chat, as ``RunStore.claim`` does, and queue the turn; return the run that prevents it."""
        ...

    async def withdraw(self, info: RunInfo) -> bool:
        """Make this process the owner of a run whose turn still waits; return False if it does not wait any more."""
        ...

    async def statistics(self) -> TurnStatistics:
        """Return how busy the agent processes are."""
        ...


@runtime_checkable
class AgentMailboxes(Protocol):
    """A queue whose agent processes take messages, too."""

    address: str
    """Where each of them gets its messages."""

    async def agent_process(self) -> str | None:
        """Return the id of an agent process that lives, to which others post; ``None`` if there is none."""
        ...


class Dispatcher:
    """Queues the turns of one application, with its secret and its quotas."""

    def __init__(self, queue: TurnQueue, *, approval_secret: str, quotas: Quotas) -> None:
        self._approval_secret = approval_secret
        self._quotas = quotas
        self._queue = queue
        self.patience = queue.patience
        self.admit = queue.admit
        self.withdraw = queue.withdraw

    async def offer(
        self, info: RunInfo, turn_input: TurnInput, *, after: str, recording: Mapping[str, Any] | None = None
    ) -> RunInfo | None:
        """Claim the chat and queue the turn; return the run that prevents it."""
        headers = turn_input.headers
        forwarded = {name: headers[name] for name in self._queue.forwarded_headers if name in headers}
        queued = QueuedTurn(
            info=info,
            input=msgspec.structs.replace(turn_input, headers=forwarded),
            secret=secret_of_chat(self._approval_secret, info.chat_id, info.subject),
            quotas=self._quotas,
            recording=recording,
        )
        return await self._queue.offer(queued, after=after)
