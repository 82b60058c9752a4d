"""kill -9 in an answer of a real framework: the next process goes on, and the strict model refuses nothing."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from tests.adapters.agents import Api, Framework
from tests.adapters.frameworks import FRAMEWORKS
from tests.chats.surviving_frameworks import DEATHS, TEXT, FrameworkServer
from tests.chats.talking import user
from usechat.protocol.ui_messages import text_of, tool_parts_of
from usechat.server import Settings
from usechat.testing import ScriptedModel

pytestmark = pytest.mark.stores

QUESTION: Final = {"id": "c1", "messages": [user("u1", "Go")]}
BY_THEMSELVES: Final = {"OpenAI Agents", "Pydantic AI"}
"""The frameworks whose answers go on without anybody's consent; the others are not tried here yet."""


class Start(Protocol):
    def __call__(
        self, framework: Framework, api: Api, model: ScriptedModel, *, is_deadly: bool = False
    ) -> FrameworkServer: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process; all use one database."""
    servers: list[FrameworkServer] = []

    def start_one(framework: Framework, api: Api, model: ScriptedModel, *, is_deadly: bool = False) -> FrameworkServer:
        database, settings = str(tmp_path / "chats.db"), Settings(sdk="7")
        servers.append(FrameworkServer(database, framework, api, model, settings=settings, is_deadly=is_deadly))
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()


def last_roles(model: ScriptedModel) -> set[str]:
    """Return the roles of the last message of each request; a result of Responses has none."""
    requests: list[Any] = model.requests
    return {(request.get("messages") or request["input"])[-1].get("role", "tool") for request in requests}


def rows() -> Iterator[Any]:
    """Yield each framework with each death; its model APIs take turns."""
    for framework in (each for each in FRAMEWORKS if each.name in BY_THEMSELVES):
        for place, api in zip(DEATHS, cycle(framework.apis), strict=False):
            yield pytest.param(framework, api, place, id=f"{framework.name}, {api}, {place}")


@pytest.mark.parametrize(("framework", "api", "place"), list(rows()))
def test_an_answer_goes_on_after_the_restart_of_its_process(
    start: Start, framework: Framework, api: Api, place: str
) -> None:
    death = DEATHS[place]
    with ScriptedModel(death.script(framework, api)) as model:
        first = start(framework, api, model, is_deadly=not death.until)
        body = first.ask(QUESTION, until=lambda data: bool(death.until) and death.until in data)
        assert not body.complete, body.data
        second = start(framework, api, model)
        outcome, message = second.ended()
    assert (outcome, text_of(message)) == ("finished", TEXT)
    assert model.refusals == []
    assert len(model.requests) == len(death.answers)
    assert "assistant" not in last_roles(model)
    assert second.notes == ["weather", "clock"]
    assert tuple(part["state"] for part in tool_parts_of(message)) == death.states
