"""The agent of the scripts, which each framework builds in its own way: the same tools, so that one script fits all.

`weather` and `clock` answer at once, `broken` raises, `slow` waits until it is cancelled, `delete` needs an approval,
`location` is run by the page, `research` asks another agent.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import msgspec

from usechat.testing import ScriptedModel

Api: TypeAlias = Literal["chat", "responses", "anthropic"]
"""Which model API an agent speaks."""

SECRET: Final = "hunter2 at db.internal"
"""What must never reach a page: the text of exceptions and of a provider's errors."""
INSTRUCTIONS: Final = "Be brief."


class Deeds:
    """What the tools really did, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def weather(self, city: str) -> dict[str, Any]:
        self.done.append(f"weather {city}")
        return {"city": city, "celsius": 21}

    def clock(self, zone: str) -> dict[str, Any]:
        self.done.append(f"clock {zone}")
        return {"zone": zone, "hour": 12}

    def broken(self, reason: str) -> str:
        self.done.append(f"broken {reason}")
        raise RuntimeError(SECRET)

    async def slow(self, task: str) -> str:
        self.done.append(f"slow {task}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.done.append("slow cancelled")
            raise
        return "never"

    def delete(self, path: str) -> str:
        self.done.append(f"delete {path}")
        return f"{path} is gone"


class Framework(msgspec.Struct, frozen=True):
    """A framework under test: how the agent is made, which APIs it speaks, and what it cannot do, by script."""

    name: str
    page: str
    """The page of the documentation that has its column."""
    factory: str
    """The function that makes the agent, as ``module:name``: the table of what works is written without frameworks."""
    apis: tuple[Api, ...]
    limits: Mapping[str, str] = {}
    """Sentences of the documentation by the name of the script."""
    failed_tool: str = "output-error"
    """The state of a failed tool's call on the page, if the failure ends the turn."""
    not_played: frozenset[str] = frozenset()
    """The scripts that are not tested with it."""
    tells_reasons: bool = True
    """Whether the model is told why a person denied a call."""
    tool_prefix: str = ""
    """What stands before the names of tools when the model calls them."""
    asks_one_by_one: bool = False
    """Whether it asks for the approval of a call only when the one before has a result."""
    sub_agent: str = "researcher"
    """The name of the agent that a tool asks, as the page shows it."""
    environment: str = "frameworks"
    """The group of packages with which it is run live."""
    adapter: str = ""
    """The adapter of a framework that is replayed from recordings, as ``module:name``."""

    def adapter_class(self) -> Any:
        """Return the class of the adapter; it imports no framework."""
        module, _, name = self.adapter.partition(":")
        return getattr(import_module(f"usechat.adapters.{module}"), name)

    def make(self, model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
        """Return the agent."""
        module, _, name = self.factory.partition(":")
        return getattr(import_module(f"tests.adapters.{module}"), name)(model, api, deeds)
