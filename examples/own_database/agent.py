"""An agent that counts."""

from collections.abc import AsyncIterator

from usechat import Turn


async def agent(turn: Turn) -> AsyncIterator[str]:
    """Answer with the number of messages so far."""
    yield f"That was message {len(turn.messages)}: {turn.text}"
