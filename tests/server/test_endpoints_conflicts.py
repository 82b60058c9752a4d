"""A message while the chat is answered, over real connections: which answer it gets, and when it is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conformance.served import PATIENCE, Gates, Served, serving
from tests.server.sockets import Client
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

GATES = Gates()


async def paced(turn: Turn) -> AsyncIterator[str]:
    yield f"{turn.text}: "
    await GATES.passed(turn, turn.text)
    yield "done"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {"attach": ChatApp(paced, settings=Settings(conflict="attach")), "reject": ChatApp(paced)}
    with serving(apps) as running:
        yield running


async def started(served: Served, app: str, chat_id: str) -> Client:
    """Ask the first question, and wait for the first words of its answer."""
    client = await Client.post(served.port, f"/{app}/api/chat", chat_id, "first")
    async with asyncio.timeout(PATIENCE):
        await client.until(b"first: ")
    return client


async def test_attach_lets_another_message_wait_for_its_own_answer(served: Served) -> None:
    first = await started(served, "attach", "waits")
    second = await Client.post(served.port, "/attach/api/chat", "waits", "second")
    GATES.open("waits", "second")
    await asyncio.sleep(0.2)
    GATES.open("waits", "first")
    assert ((await first.rest()).text, (await second.rest()).text) == ("first: done", "second: done")


async def test_attach_answers_another_message_after_a_stop(served: Served) -> None:
    (await started(served, "attach", "stopped")).vanish()
    await asyncio.sleep(0.1)
    GATES.open("stopped", "second")
    assert (
        await (await Client.post(served.port, "/attach/api/chat", "stopped", "second")).rest()
    ).text == "second: done"


async def test_attach_joins_the_same_message(served: Served) -> None:
    first = await started(served, "attach", "same")
    again = await Client.post(served.port, "/attach/api/chat", "same", "first")
    async with asyncio.timeout(PATIENCE):
        await again.until(b"first: ")
    GATES.open("same", "first")
    assert ((await first.rest()).text, (await again.rest()).text) == ("first: done", "first: done")


@pytest.mark.parametrize("late", [0.0, 0.4])
async def test_reject_answers_when_the_connection_before_it_is_closed_a_moment_later(
    served: Served, late: float
) -> None:
    chat_id = f"late-{late}"
    first = await started(served, "reject", chat_id)
    second = await Client.post(served.port, "/reject/api/chat", chat_id, "second")
    GATES.open(chat_id, "second")
    await asyncio.sleep(late)
    first.vanish()
    assert (await second.rest()).text == "second: done"


async def test_reject_refuses_while_the_answer_is_read(served: Served) -> None:
    first = await started(served, "reject", "read")
    second = await Client.post(served.port, "/reject/api/chat", "read", "second")
    async with asyncio.timeout(PATIENCE):
        await second.until(b"HTTP/1.1 409")
    second.vanish()
    GATES.open("read", "first")
    assert (await first.rest()).text == "first: done"
