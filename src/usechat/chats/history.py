"""Which messages of a long history the agent gets. What is stored stays whole.

A history hook takes the messages of the stored branch and returns those that the agent gets. The ready ones cut off the
oldest messages. A tool call and its result are parts of one message, so that they stay together; the history that is
left begins with a user message, because models refuse an answer without a question; system messages at the beginning
stay. The last user message and everything after it stay, too, however large they are.
"""

from collections.abc import Callable
from typing import TypeAlias

from usechat.chats.chat import write_text
from usechat.errors import InvalidSetting
from usechat.protocol.ui_messages import UIMessage

__all__ = ["HistoryFunction", "last_bytes", "last_messages"]

HistoryFunction: TypeAlias = Callable[[list[UIMessage]], list[UIMessage]]
"""Returns what the agent gets of the stored branch."""


def last_messages(limit: int) -> HistoryFunction:
    """Return a hook that keeps at most ``limit`` messages.

    >>> [message["id"] for message in last_messages(2)([
    ...     {"id": "u1", "role": "user", "parts": []}, {"id": "a1", "role": "assistant", "parts": []},
    ...     {"id": "u2", "role": "user", "parts": []}])]
    ['u2']
    """
    _require_positive(limit, "last_messages")
    return lambda messages: _cut(messages, limit, lambda _message: 1)


def last_bytes(limit: int) -> HistoryFunction:
    """Return a hook that keeps at most ``limit`` bytes of messages, counted as JSON in UTF-8.

    >>> messages = [{"id": id, "role": "user", "parts": [{"type": "text", "text": "Hello"}]} for id in ("a", "b", "c")]
    >>> [message["id"] for message in last_bytes(150)(messages)]
    ['b', 'c']
    """
    _require_positive(limit, "last_bytes")
    return lambda messages: _cut(messages, limit, lambda message: len(write_text(message).encode()))


def _require_positive(limit: int, name: str) -> None:
    if limit < 1:
        raise InvalidSetting(f"{name} takes a number of at least 1, not {limit}")


def _cut(messages: list[UIMessage], limit: int, weigh: Callable[[UIMessage], int]) -> list[UIMessage]:
    first = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    start = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=first)
    left = limit - sum(weigh(message) for message in messages[start:])
    for at in range(start - 1, first - 1, -1):
        left -= weigh(messages[at])
        if left < 0:
            break
        if messages[at]["role"] == "user":
            start = at
    return [*messages[:first], *messages[max(start, first) :]]
