"""The title of a chat: its first words at once, then the result of your function."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from usechat.chats.chat import storable
from usechat.protocol.ui_messages import UIMessage, text_of
from usechat.threads import AgentThreads

__all__ = ["LONGEST_TITLE", "TitleFunction", "ask_title", "clean_title", "first_words"]

TitleFunction: TypeAlias = Callable[[list[UIMessage]], Awaitable[str | None] | str | None]
"""Makes a title of the messages of a chat; nothing leaves the title as it is."""

LONGEST_TITLE: Final = 200
_FIRST_WORDS: Final = 60


def first_words(messages: Sequence[UIMessage], limit: int = _FIRST_WORDS) -> str:
    """Return the beginning of the first user text, cut at a word after ``limit`` characters at most.

    >>> question = {"type": "text", "text": "What is the weather in Rome?"}
    >>> first_words([{"id": "u1", "role": "user", "parts": [question]}], 20)
    'What is the weather…'
    """
    texts = (storable(text_of(message, "\n")) for message in messages if message["role"] == "user")
    text = next((text for text in (" ".join(text.split()) for text in texts) if text), "")
    if len(text) <= limit:
        return text
    whole_words = text[: limit + 1].rpartition(" ")[0]
    return f"{whole_words or text[:limit]}…"


def clean_title(title: str) -> str:
    """Return a title as it is stored: on one line, and not too long."""
    text = " ".join(storable(title).split())
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"


async def ask_title(function: TitleFunction, messages: list[UIMessage], threads: AgentThreads) -> str | None:
    """Return what a function says, on one line; nothing if it says nothing. A plain function runs in a thread."""
    title = await threads.call(function, messages)
    return clean_title(title) or None if isinstance(title, str) else None
