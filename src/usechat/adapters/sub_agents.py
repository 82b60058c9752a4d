"""Agents that other agents ask: each in a lane of the page, and none in a later history."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import msgspec

from usechat.errors import UnknownEvent
from usechat.protocol.parts import (
    Abort,
    BlockEnd,
    Data,
    Error,
    Finish,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolInputError,
    ToolInputStart,
)
from usechat.protocol.ui_messages import is_tool
from usechat.sources import Adapter
from usechat.turn import current_context

__all__ = [
    "SubAgent",
    "begin_sub_agents",
    "in_tool",
    "is_in_tool",
    "show",
    "sub_agent",
]


AdapterT = TypeVar("AdapterT")


class SubAgent:
    """Puts the parts of an agent that another agent asks into a separate lane, behind a label; it ends no turn.

    With ``is_in_tool`` it works for a tool of the other agent, which reads nothing of it but the result of the tool.

    >>> [part.lane for part in SubAgent("researcher", "call-1").parts([Step(), Finish()])]
    ['call-1', 'call-1']
    """

    def __init__(self, name: str, lane: str, *, is_in_tool: bool = False) -> None:
        self._name = name
        self._lane = lane
        self._is_in_tool = is_in_tool
        self._is_labelled = False

    def parts(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield parts in the lane; ``data-agent`` with the name stands in the first step."""
        for part in parts:
            if isinstance(part, (Finish, Error, Abort)):
                continue
            placed = msgspec.structs.replace(part, lane=self._lane)
            yield in_tool(placed) if self._is_in_tool else placed
            if isinstance(part, Step) and not self._is_labelled:
                self._is_labelled = True
                yield Data("agent", {"name": self._name}, id=self._lane, lane=self._lane)


_IN_TOOL: Final[Mapping[str, Mapping[str, Any]]] = {"usechat": {"inTool": True}}
"""The provider metadata of what an agent says that works for a tool; a page keeps it with the part."""
_MARKED: Final = (Text, Reasoning, BlockEnd, ToolInputStart, ToolCall, ToolInputError)


def in_tool(part: Part) -> Part:
    """Return a part of an agent that works for a tool, marked so that no later history has it.

    >>> in_tool(Text("Hm.")).provider_metadata
    {'usechat': {'inTool': True}}
    """
    if not isinstance(part, _MARKED) or (isinstance(part, BlockEnd) and part.provider_metadata is None):
        return part
    return msgspec.structs.replace(part, provider_metadata={**(part.provider_metadata or {}), **_IN_TOOL})


def is_in_tool(part: Any) -> bool:
    """Tell whether a part of a message is one of :func:`in_tool`."""
    metadata = part.get("callProviderMetadata" if is_tool(part) else "providerMetadata")
    return isinstance(metadata, Mapping) and metadata.get("usechat") == _IN_TOOL["usechat"]


_sub_agents: Final[ContextVar[dict[str, tuple[Any, SubAgent]]]] = ContextVar("usechat.sub_agents")


def begin_sub_agents() -> None:
    """Let the calling task and those that it starts share the sub-agents of one turn."""
    _sub_agents.set({})


def sub_agent(name: str, lane: str, adapter: Callable[[], AdapterT]) -> tuple[AdapterT, SubAgent]:
    """Return the adapter of a sub-agent's run, which is made by its first event, and what puts it into its lane."""
    try:
        running = _sub_agents.get()
    except LookupError:  # an agent function, not a source, runs the framework
        begin_sub_agents()
        running = _sub_agents.get()
    if lane not in running:
        running[lane] = adapter(), SubAgent(name, lane, is_in_tool=True)
    return running[lane]


def show(speaker: SubAgent, adapter: Adapter[Any], event: Any) -> None:
    """Send the parts of an event of a sub-agent; count one that its adapter does not know.

    The adapter is never closed: the ending of a sub-agent is not that of the turn, so it would be dropped.
    """
    context = current_context()
    try:
        for part in speaker.parts(adapter.feed(event)):
            context.send(part)
    except UnknownEvent as unknown:
        context.event_unknown(unknown.kind)
