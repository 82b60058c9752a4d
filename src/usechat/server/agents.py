"""The agents of a chat app, by name: which one answers a request, and what the page shows of each."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from usechat.errors import InvalidRequest, InvalidSetting
from usechat.runs.turns import TurnQueue
from usechat.sources import FactorySource, Source, as_source, continues_after_crash

__all__ = ["AgentEntry", "Agents"]

FIELD: Final = "agent"
"""The field of a request body that names the agent, where there are several."""


class AgentEntry(msgspec.Struct, frozen=True):
    """What a page shows of an agent. ``description`` is the first paragraph of the agent's own, or empty."""

    name: str
    description: str = ""


class Agents:
    """The agents of an app; the first one is the default.

    ``agent`` is one agent, or a mapping of agents by name. Raises :class:`~usechat.errors.CannotAnswer` if one of them
    cannot answer, and :class:`~usechat.errors.InvalidSetting` if the mapping is empty.
    """

    def __init__(self, agent: Any) -> None:
        agents = agent if isinstance(agent, Mapping) else {_name_of(agent): agent}
        if not agents:
            raise InvalidSetting("an app needs an agent; the mapping of agents is empty")
        if len(agents) > 1 and any(isinstance(each, TurnQueue) for each in agents.values()):
            raise InvalidSetting("the queue of agent processes is served alone: one queue, one app")
        self.entries = [AgentEntry(str(name), _description_of(each)) for name, each in agents.items()]
        self.queue = next((each for each in agents.values() if isinstance(each, TurnQueue)), None)
        """Where turns wait for an agent process; ``None`` if runs are driven here."""
        self._sources = {} if self.queue is not None else {str(name): as_source(each) for name, each in agents.items()}

    @property
    def are_several(self) -> bool:
        """Whether a request can choose; if not, the field ``agent`` of its body is for the application."""
        return len(self.entries) > 1

    def choose(self, body: Mapping[str, Any], *, chat_agent: str = "", message_agent: str = "") -> str:
        """Return the name of the agent that answers a request.

        That is ``message_agent``, whose answer the request continues, otherwise the agent that the body names,
        otherwise ``chat_agent``, which is stored with the chat, otherwise the first. Raises ``InvalidRequest`` if the
        body names an agent that is not served.
        """
        names = [entry.name for entry in self.entries]
        if not self.are_several:
            return names[0]
        choice = body.get(FIELD)
        if choice is not None and choice not in names:
            raise InvalidRequest(f"the field agent names none of the agents: {', '.join(names)}")
        return str(next(name for name in (message_agent, choice, chat_agent, names[0]) if name in names))

    async def open(self, name: str) -> Source | None:
        """Return the source of an agent; ``None`` if agent processes answer. A factory is called once per process."""
        source = self._sources.get(name)
        return await source.open() if isinstance(source, FactorySource) else source

    @property
    def unable_to_continue(self) -> list[str]:
        """The names of the agents that cannot go on with an answer whose process died, as far as they are ready."""
        opened = {name: self.opened(name) for name in self._sources}
        return [name for name, source in opened.items() if source and continues_after_crash(source) is False]

    def opened(self, name: str) -> Source | None:
        """Return the source of an agent that is ready; an answer of an earlier release may not name its agent."""
        source = self._sources.get(name or self.entries[0].name)
        return source.opened if isinstance(source, FactorySource) else source

    async def open_all(self) -> None:
        """Make all agents ready."""
        for name in self._sources:
            await self.open(name)

    def warn(self, warn: Callable[[Source], object]) -> None:
        """Call a function that logs what one should know of a source with each one. Call it when they are ready."""
        for name in self._sources:
            if (source := self.opened(name)) is not None:
                warn(source)

    async def close(self) -> None:
        """Close the agents that factories have opened."""
        for source in self._sources.values():
            if isinstance(source, FactorySource):
                await source.close()


def _name_of(agent: Any) -> str:
    return str(getattr(agent, "__name__", "") or type(agent).__name__)


def _description_of(agent: Any) -> str:
    """Return what an agent says about itself: its ``description``, as several frameworks have it, or its docstring."""
    text = getattr(agent, "description", None)
    if not isinstance(text, str):
        text = inspect.getdoc(agent) if inspect.isroutine(agent) else None
    return " ".join((text or "").strip().partition("\n\n")[0].split())
