"""A worker process for the tests: asks questions in many chats, and answers those that it could claim."""

import asyncio
import sys

from tests.chats.talking import answer, ask, user
from usechat.chats import Begun, SqlChats

CHATS = 5
ROUNDS = 6


async def work(path: str, name: str) -> None:
    """Print how many answers were begun and finished."""
    store = SqlChats(path)
    finished = 0
    for number in range(ROUNDS):
        for chat in range(CHATS):
            request = ask(user(f"{name}-{number}", f"{name} {number}"), chat_id=f"c{chat}")
            beginning = await store.begin(request, owner="ada", run_id=f"{name}-{number}-{chat}")
            if isinstance(beginning, Begun):
                message_id = beginning.claim.message_id
                await store.save(beginning.claim, answer(message_id, "Half"))
                await store.save(beginning.claim, answer(message_id, "Half of it"))
                await store.finish(beginning.claim, answer(message_id, "All of it"), "finished")
                finished += 1
    await store.close()
    print(finished)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
