"""What a graph without a checkpointer of its own remembers of a stored chat: its checkpoints, kept with the answers.

A thread of LangGraph goes in one direction, but a chat has branches: people edit questions and regenerate answers. So
the state of a graph belongs to an answer. A turn begins with the state that the answer before it has left, and leaves
its own: the files of an agent, or the agent that talks now, follow the branch that the page shows, and are deleted with
the chat.

A turn runs on a checkpointer in memory, which is filled before it and emptied after it through the interface that all
checkpointers have, so that the releases of LangGraph need not agree on tables. Of each graph only the last checkpoint
is kept; those of subgraphs that a node or a tool has run, only while one of them waits.

What a graph remembers across chats is in its store, which LangGraph's own server gives to every graph. One that was
compiled without gets a :class:`PersonalStore`.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from usechat.errors import MissingDependency
from usechat.pauses.states import AnswerMemory
from usechat.turn import Turn, current_context

try:
    from langgraph.channels import DeltaChannel
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.store.base import BaseStore, Op, Result
    from langgraph.store.memory import InMemoryStore
except ImportError:
    raise MissingDependency("langgraph", "langgraph") from None

__all__ = ["AnswerThread", "PersonalStore"]

_logger: Final = logging.getLogger("usechat.adapters")


class AnswerThread:
    """The thread of one turn: a graph runs on its ``checkpointer``, and :meth:`keep` leaves the state to later turns.

    ``is_behind`` tells that the thread ends before the answer that the turn continues, because the process died that
    has begun it.
    """

    def __init__(self, memory: AnswerMemory, graph: Any, config: Any) -> None:
        self.checkpointer = InMemorySaver()
        self.is_behind = False
        self._memory = memory
        self._is_whole = any(isinstance(channel, DeltaChannel) for channel in graph.channels.values())
        self._config: Any = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}

    async def begin(self, turn: Turn) -> None:
        """Fill the thread with what is remembered of the answer that the turn continues, or of the one before it."""
        continued = turn.request.continues
        answers = [message["id"] for message in turn.messages if message["role"] == "assistant"]
        for message_id in reversed(answers[-1:] if continued is None else answers[-2:]):
            if (state := await self._memory.recall(message_id)) is not None:
                self.is_behind = continued is not None and continued["id"] != message_id
                await self._fill(state)
                return

    async def keep(self) -> None:
        """Remember the state of the graph with the answer of this turn."""
        checkpoints = [each async for each in self.checkpointer.alist(self._config)]
        if checkpoints:
            entries = list(map(_entry, reversed(checkpoints if self._is_whole else list(_last(checkpoints)))))
            kind, data = self.checkpointer.serde.dumps_typed(entries)
            await self._memory.remember(kind.encode() + b"\0" + data)

    async def _fill(self, state: bytes) -> None:
        kind, _, data = state.partition(b"\0")
        try:
            entries = self.checkpointer.serde.loads_typed((kind.decode(), data))
            for namespace, parent, checkpoint, metadata, writes in entries:
                await self._put(namespace, parent, checkpoint, metadata, writes)
        except Exception as error:  # of another release, or of a class that the application has no more
            _logger.warning("the state of a graph cannot be read, and its answer begins without: %s", error)
            self.checkpointer = InMemorySaver()

    async def _put(self, namespace: str, parent: str | None, checkpoint: Any, metadata: Any, writes: Any) -> None:
        place = {**self._config["configurable"], "checkpoint_ns": namespace}
        config: Any = {"configurable": {**place, "checkpoint_id": parent}}
        written = await self.checkpointer.aput(config, checkpoint, metadata, checkpoint["channel_versions"])
        for position, (task_id, group) in enumerate(groupby(writes, key=lambda write: write[0])):
            values = [(channel, value) for _task, channel, value in group]
            await self.checkpointer.aput_writes(written, values, task_id, f"{position:06}")


class PersonalStore(BaseStore):
    """The store of a graph that was compiled without: in the memory of this process, for each person one.

    Graphs often name the person only if their context does, so one store would show everybody what others have said.
    """

    def __init__(self, graph_name: str) -> None:
        self._graph_name = graph_name
        self._stores: defaultdict[str, InMemoryStore] = defaultdict(InMemoryStore)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what is asked in the store of the person who asks in this turn."""
        return self._store().batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do the same."""
        return await self._store().abatch(ops)

    def _store(self) -> InMemoryStore:
        if not self._stores:
            _logger.warning(
                "the graph %r has no store, so what it remembers across chats is in the memory of this process; compile"
                " it with a store in a database",
                self._graph_name,
            )
        identity = current_context().turn.identity
        return self._stores["" if identity is None else identity.subject]


def _entry(saved: CheckpointTuple) -> list[Any]:
    parent = None if saved.parent_config is None else saved.parent_config["configurable"]["checkpoint_id"]
    namespace = saved.config["configurable"]["checkpoint_ns"]
    return [namespace, parent, saved.checkpoint, saved.metadata, [list(write) for write in saved.pending_writes or ()]]


def _last(checkpoints: Iterable[CheckpointTuple]) -> Iterable[CheckpointTuple]:
    """Yield the last checkpoint of each graph; they come newest first. A name with a task's id is that of a run."""
    last: dict[str, CheckpointTuple] = {}
    for saved in checkpoints:
        last.setdefault(saved.config["configurable"]["checkpoint_ns"], saved)
    waits = "" in last and bool(last[""].pending_writes)
    return (saved for namespace, saved in last.items() if waits or ":" not in namespace)
