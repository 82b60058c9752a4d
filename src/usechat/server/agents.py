"""The agents of a chat app, by name: which one answers a request, and what the page shows of each."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from usechat.errors import InvalidRequest, InvalidSetting
from usechat.runs.turns import TurnQueue
from usechat.sources import FactorySource, Source, as_source

__all__ = ["AgentEntry", "Agents"]

FIELD: Final = "agent"
"""The field of a request body that names the agent, where there are several."""


class AgentEntry(msgspec.Struct, frozen=True):
    """What a page shows of an agent. ``description`` is the first paragraph of what it says about itself, or empty."""

    name: str
    description: str = ""


class Agents:
    """The agents of an app; the first one is the default.

    ``answer`` is what answers a chat, or several of these by name. Raises :class:`~usechat.errors.CannotAnswer` if one
    of them cannot answer, and :class:`~usechat.errors.InvalidSetting` if there is none.
    """

    def __init__(self, answer: Any) -> None:
        given = answer if isinstance(answer, Mapping) else {_name_of(answer): answer}
        if not given:
            raise InvalidSetting("an app needs an agent; the mapping of agents is empty")
        if len(given) > 1 and any(isinstance(each, TurnQueue) for each in given.values()):
            raise InvalidSetting("the queue of agent processes is served alone: one queue, one app")
        self.entries = [AgentEntry(str(name), _description_of(each)) for name, each in given.items()]
        self.queue = next((each for each in given.values() if isinstance(each, TurnQueue)), None)
        """Where turns wait for an agent process; ``None`` if runs are driven here."""
        self._sources = {} if self.queue is not None else {str(name): as_source(each) for name, each in given.items()}

    @property
    def are_several(self) -> bool:
        """Whether a request can choose; if not, the field ``agent`` of its body is the application's own."""
        return len(self.entries) > 1

    def choose(self, body: Mapping[str, Any], *, kept: str = "", continued: str = "") -> str:
        """Return the name of the agent that answers a request.

        That is the one whose answer is ``continued``, otherwise the one that the body names, otherwise the one that is
        ``kept`` with the chat, otherwise the first. Raises ``InvalidRequest`` if the body names another one.
        """
        names = [entry.name for entry in self.entries]
        if not self.are_several:
            return names[0]
        wanted = body.get(FIELD)
        if wanted is not None and wanted not in names:
            raise InvalidRequest(f"the field agent names none of the agents: {', '.join(names)}")
        return str(next(name for name in (continued, wanted, kept, names[0]) if name in names))

    async def open(self, name: str) -> Source | None:
        """Return what answers under a name, ``None`` if other processes do; a factory is called once per process."""
        source = self._sources.get(name)
        return await source.open() if isinstance(source, FactorySource) else source

    async def open_all(self) -> None:
        """Make all agents ready."""
        for name in self._sources:
            await self.open(name)

    async def close(self) -> None:
        """Close what factories have opened."""
        for source in self._sources.values():
            if isinstance(source, FactorySource):
                await source.close()


def _name_of(answer: Any) -> str:
    return str(getattr(answer, "__name__", "") or type(answer).__name__)


def _description_of(answer: Any) -> str:
    """Return what an agent says about itself: its ``description``, as several frameworks have it, or its docstring."""
    text = getattr(answer, "description", None)
    if not isinstance(text, str):
        text = inspect.getdoc(answer) if inspect.isroutine(answer) else None
    return " ".join((text or "").strip().partition("\n\n")[0].split())
