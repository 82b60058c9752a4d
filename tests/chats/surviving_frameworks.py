"""Agents of frameworks in server processes that are killed, and the model that they ask, which outlives them.

Each answer has three steps: text and `weather`, text and `clock`, text. The model is the strict one of the tests: it
refuses open calls, results without calls, and thinking without its signature. :class:`Death` says where the process is
killed, and what the two processes together must ask of the model and do.
"""

import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import uvicorn

from tests.adapters.agents import Api, Deeds, Framework
from tests.chats.surviving import ChatServer
from usechat.chats import SqlChats
from usechat.server import ChatApp, Settings
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

__all__ = ["DEATHS", "TEXT", "Death", "FrameworkServer"]

_FIRST: Final = ModelAnswer(text="First. ", calls=[ModelCall("weather", {"city": "Paris"})])
_SECOND: Final = ModelAnswer(text=["Sec", "ond. "], calls=[ModelCall("clock", {"zone": "CET"})])
_THIRD: Final = ModelAnswer(text=["Thi", "rd."])
_BOTH: Final = ("output-available", "output-available")
TEXT: Final = "First. Second. Third."


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process dies: when the page has ``until``, or in the tool `clock` if that is empty."""

    until: bytes = b""
    answers: tuple[ModelAnswer, ...]
    """What the model answers to both processes together."""
    states: tuple[str, ...] = _BOTH
    """How the calls stand at the end. Each tool has run once."""

    def script(self, framework: Framework, api: Api) -> list[ModelAnswer]:
        """Return the answers as a framework wants them; with thinking where the API signs it."""
        reasoning = "" if api == "chat" else "Let me think."
        return framework.answers([msgspec.structs.replace(answer, reasoning=reasoning) for answer in self.answers])


def _slow(answer: ModelAnswer) -> ModelAnswer:
    """Return an answer that is not over when the process is killed in it."""
    return msgspec.structs.replace(answer, pause=0.3)


DEATHS: Final = {
    "mid-text": Death(until=b'"Sec', answers=(_FIRST, _slow(_SECOND), _SECOND, _THIRD)),
    "last text": Death(until=b'"Thi', answers=(_FIRST, _SECOND, _slow(_THIRD), _THIRD)),
    "mid-tool": Death(answers=(_FIRST, _SECOND, _THIRD), states=("output-available", "output-error")),
}


class _NotedDeeds(Deeds):
    """Tools that write what they do into a file; `clock` kills its process if it is told to."""

    def __init__(self, notes: str, *, is_deadly: bool) -> None:
        super().__init__()
        self._notes = Path(notes)
        self._is_deadly = is_deadly

    def weather(self, city: str) -> dict[str, Any]:
        self._note("weather")
        return super().weather(city)

    def clock(self, zone: str) -> dict[str, Any]:
        self._note("clock")
        if self._is_deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().clock(zone)

    def _note(self, what: str) -> None:
        with self._notes.open("a") as file:
            file.write(f"{what}\n")


def _serve(
    listener: socket.socket,
    database: str,
    notes: str,
    framework: Framework,
    api: Api,
    urls: dict[str, str],
    is_deadly: bool,
    settings: Settings,
) -> None:
    model: Any = SimpleNamespace(**urls)
    agent = framework.make(model, api, _NotedDeeds(notes, is_deadly=is_deadly))
    app = ChatApp(agent, chats=SqlChats(database), settings=settings, metrics=False)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


class FrameworkServer(ChatServer):
    """The process of an agent of a framework; in the tool `clock` it dies if ``is_deadly``."""

    def __init__(
        self,
        database: str,
        framework: Framework,
        api: Api,
        model: ScriptedModel,
        *,
        settings: Settings,
        is_deadly: bool = False,
    ) -> None:
        urls = {"openai_url": model.openai_url, "anthropic_url": model.anthropic_url}
        notes = f"{database}.notes"
        super().__init__(Path(notes), _serve, database, notes, framework, api, urls, is_deadly, settings)
