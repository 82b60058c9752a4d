"""The agent of the scripts, which each framework builds in its own way: the same tools, so that one script fits all.

`weather` and `clock` answer at once, `broken` raises, `slow` waits until it is cancelled, `delete` needs an approval,
`location` is run by the page, `research` asks another agent.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tests.adapters import dialects
from usechat.testing import ModelAnswer, ScriptedModel

Api: TypeAlias = Literal["chat", "responses", "anthropic"]
"""Which model API an agent speaks."""

SECRET: Final = "hunter2 at db.internal"
"""What must never reach a page: the text of exceptions and of a provider's errors."""
INSTRUCTIONS: Final = "Be brief."


class Deeds:
    """What the tools really did, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.released = threading.Event()
        """Lets a tool go on that blocks its thread."""

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

    def slow_in_a_thread(self, task: str) -> str:
        self.done.append(f"slow {task}")
        self.released.wait(60)
        return "done"

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
    """The scripts that are not tested with it; a sentence of `limits` may say why."""
    tells_reasons: bool = True
    """Whether the model is told why a person denied a call."""
    tool_prefix: str = ""
    """What stands before the names of tools when the model calls them."""
    asks_one_by_one: bool = False
    """Whether it asks for the approval of a call only when the one before has a result."""
    sub_agent: str = "researcher"
    """The name of the agent that a tool asks, as the page shows it."""
    sub_agent_tool: str = "research"
    """The tool that asks it, as the page shows it."""
    shows_tools: bool = True
    """Whether it tells which tools the agent calls."""
    keeps_order: bool = True
    """Whether it tells parallel calls in the order of the model, and not as their threads start."""
    tells_usage: bool = True
    """Whether it tells how many tokens were used."""
    question: str = ""
    """The name of the tool whose call asks the page, if the agent's own tools are not shown."""
    dialect: str = ""
    """The function of `dialects.py` that says how the framework wants its model to answer."""
    environment: str = "frameworks"
    """The group of packages with which it is run live."""
    adapter: str = ""
    """The adapter of a framework that is replayed from recordings, as ``module:name``."""

    def adapter_class(self) -> Any:
        """Return the class of the adapter; it imports no framework."""
        module, _, name = self.adapter.partition(":")
        return getattr(import_module(f"usechat.adapters.{module}"), name)

    def answers(self, answers: Sequence[ModelAnswer | str]) -> list[ModelAnswer]:
        """Return a script of the model as this framework wants it."""
        read = [ModelAnswer(text=answer) if isinstance(answer, str) else answer for answer in answers]
        named = [
            msgspec.structs.replace(
                answer,
                calls=[msgspec.structs.replace(call, name=f"{self.tool_prefix}{call.name}") for call in answer.calls],
            )
            for answer in read
        ]
        return list(getattr(dialects, self.dialect)(named)) if self.dialect else named

    def make(self, model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
        """Return the agent."""
        module, _, name = self.factory.partition(":")
        return getattr(import_module(f"tests.adapters.{module}"), name)(model, api, deeds)
