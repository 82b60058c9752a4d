"""Workers that drive turns of one chat as runs do, without streams: nothing reaches a turn that is over."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.adapters.turns import request
from usechat.parts import Part
from usechat.pauses.states import MemoryStates, PausedStates
from usechat.pauses.tasks import WaitingTasks
from usechat.pauses.waiting import WaitingTask
from usechat.sources import as_source
from usechat.turn import Identity, TurnContext, TurnInput

PATIENCE = 30.0


class SharedStates(MemoryStates):
    """The states of a worker, which all workers have, and messages from one to another."""

    def __init__(self, others: "SharedStates | None" = None) -> None:
        super().__init__()
        self._addresses: dict[tuple[str, str], Callable[[bytes], None]] = {}
        self.worker = "first"
        self.is_connected = True
        if others is not None:
            self.__dict__ |= {**others.__dict__, "worker": "second"}

    async def post(self, worker: str, address: str, message: bytes) -> None:
        if self.is_connected and (worker, address) in self._addresses:
            asyncio.get_running_loop().call_soon(self._addresses[worker, address], message)

    def receive(self, address: str, on_message: Callable[[bytes], None]) -> None:
        self._addresses[self.worker, address] = on_message


class OwnedTurn:
    """Owns the task of one turn, and collects its parts."""

    def __init__(self, tasks: WaitingTasks, agent: Any, context: TurnContext) -> None:
        self.parts: list[Part] = []
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context = context
        context.connect(self.parts.append)
        self._write = context.write
        self.task: WaitingTask = tasks.begin(as_source(agent), context, self, None)

    def task_paused(self) -> None:
        self._context.disconnect(self._write)
        self.ending.set_result(None)

    def task_ended(self, error: BaseException | None) -> None:
        self._context.disconnect(self._write)
        if error is None:
            self.ending.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            self.ending.cancel()
        else:
            self.ending.set_exception(error)


class Worker:
    """A process that answers the turns of a chat: nothing but the store is shared with others."""

    def __init__(self, agent: Any, states: PausedStates | None = None, *, tasks: WaitingTasks | None = None) -> None:
        self._agent = agent
        self._states = states or MemoryStates()
        self.tasks = tasks or WaitingTasks()

    def begin(self, *messages: Any, identity: str = "ada", chat_id: str = "c1") -> OwnedTurn:
        context = TurnContext(TurnInput(request(*messages, chat_id=chat_id), identity=Identity(identity)))
        context.states = self._states
        return OwnedTurn(self.tasks, self._agent, context)

    async def turn(self, *messages: Any, identity: str = "ada", chat_id: str = "c1") -> list[Part]:
        """Drive one turn; return what it said, or raise what ended it."""
        turn = self.begin(*messages, identity=identity, chat_id=chat_id)
        async with asyncio.timeout(PATIENCE):
            await turn.ending
        return turn.parts
