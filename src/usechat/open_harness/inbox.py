"""The messages that are sent to a node while it runs."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from usechat.open_harness.runtime_protocol import Command

__all__ = ["Inbox"]


class Inbox:
    """The commands sent to one invocation of a node: ``send`` with a ``message``, ``reply`` with ``content``.

    A ``reply`` whose ``promptId`` names a question of the node is the answer to it, and is not read as a command.

    ``put`` is called in the loop's thread, ``next`` from any thread.

    >>> inbox = Inbox()
    >>> inbox.put({"type": "send", "message": "Faster, please."})
    >>> len(inbox)
    1
    """

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._arrived = asyncio.Event()
        self._questions: dict[Any, asyncio.Future[Command]] = {}

    def __len__(self) -> int:
        return len(self._commands)

    def put(self, command: Command) -> None:
        """Add a command, or pass an answer to the question that it belongs to."""
        question = self._questions.pop(command.get("promptId"), None) if command.get("type") == "reply" else None
        if question is not None:
            if not question.done():
                question.set_result(command)
            return
        self._commands.append(command)
        self._arrived.set()

    def ask(self, question_id: str) -> asyncio.Future[Command]:
        """Return a future that gets the ``reply`` to a question. Register it before the question is sent."""
        question: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._questions[question_id] = question
        return question

    def put_back(self, command: Command) -> None:
        """Put back a command that could not be used; it is the next one again."""
        self._commands.appendleft(command)

    def next(self) -> Command | None:
        """Remove and return the oldest command; ``None`` if there is none."""
        try:
            return self._commands.popleft()
        except IndexError:
            return None

    async def receive(self) -> Command:
        """Wait for the next command; remove and return it."""
        while (command := self.next()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return command

    async def __aiter__(self) -> AsyncIterator[Command]:
        while True:
            yield await self.receive()

    def waiting(self) -> list[Command]:
        """Return the unread commands without removing them."""
        return list(self._commands)
