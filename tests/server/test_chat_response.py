"""A route of one's own, over real sockets: what becomes of a run when its page has gone."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from tests.conformance.served import PATIENCE, Gates, Served, eventually, serving
from tests.server.process import question
from usechat.server import Settings, cancel_after, chat_response
from usechat.turn import Turn

pytestmark = pytest.mark.quick

GATES = Gates()
ENDED: dict[str, tuple[str, float]] = {}
SETTINGS = {
    "default": None,
    "other": Settings(sdk="7"),
    "cancel": Settings(disconnect="cancel"),
    "continue": Settings(disconnect="continue"),
    "short": Settings(disconnect=cancel_after(0.5)),
    "long": Settings(disconnect=cancel_after(60)),
}


async def saving(turn: Turn) -> AsyncIterator[str]:
    """Answer, and save the whole answer at its end."""
    saved = "one "
    yield saved
    try:
        await GATES.passed(turn)
    except asyncio.CancelledError:
        ENDED[turn.chat_id] = ("cancelled", monotonic())
        raise
    yield "two"
    ENDED[turn.chat_id] = (saved + "two", monotonic())


def route(settings: Settings | None) -> Starlette:
    async def chat(request: Request) -> Any:
        return await chat_response(request, saving, settings=settings)

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({name: route(settings) for name, settings in SETTINGS.items()}) as running:
        yield running


def ask_and_go(served: Served, name: str) -> None:
    """Ask, read the beginning of the answer, and close the connection."""
    with httpx2.stream("POST", served.url(name), json=question(chat_id=name), timeout=PATIENCE) as response:
        content = b""
        pieces = response.iter_bytes()
        while b"one " not in content:
            content += next(pieces)


@pytest.mark.parametrize("name", ["default", "other", "cancel"])
def test_a_page_that_goes_stops_the_run(served: Served, name: str) -> None:
    ask_and_go(served, name)
    eventually(lambda: name in ENDED, "the agent is stopped")
    assert ENDED[name][0] == "cancelled"


@pytest.mark.parametrize("name", ["continue", "long"])
def test_a_run_goes_on_without_its_page_and_saves_the_answer(served: Served, name: str) -> None:
    ask_and_go(served, name)
    eventually(lambda: served.connections() == 0, "the page has gone")
    gc.collect()  # nothing but the run itself knows of it any more
    GATES.open(name)
    eventually(lambda: name in ENDED, "the agent comes to its end")
    assert ENDED[name][0] == "one two"
    eventually(lambda: not any("usechat" in task for task in served.tasks()), "no run is left")


def test_a_run_waits_as_long_as_it_is_told(served: Served) -> None:
    start = monotonic()
    ask_and_go(served, "short")
    eventually(lambda: "short" in ENDED, "the agent is stopped")
    outcome, when = ENDED["short"]
    assert (outcome, when - start >= 0.5) == ("cancelled", True)
