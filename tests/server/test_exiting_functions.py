"""Functions of the application that call `sys.exit()`, or raise a cancellation of their own: the server goes on."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from tests.server.process import PATIENCE, question
from usechat.runs.run import RunInfo
from usechat.server import ChatApp, Observer, Settings
from usechat.turn import Turn


def agent(turn: Turn) -> str:
    if turn.text == "fail":
        raise ValueError("no")
    return f"You said {turn.text}"


def exits(*_arguments: Any) -> Any:
    sys.exit(3)


async def exits_later(*_arguments: Any) -> Any:
    await asyncio.sleep(0)
    sys.exit(3)


async def is_cancelled(*_arguments: Any) -> Any:
    raise asyncio.CancelledError


class Exiting(Observer):
    def run_started(self, info: RunInfo) -> None:
        exits(info)

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        exits(info, seconds)

    def first_frame(self, seconds: float) -> None:
        exits(seconds)

    def bytes_sent(self, count: int) -> None:
        exits(count)


async def ask(app: ChatApp, text: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=PATIENCE) as client:
        return await client.post("/api/chat", json=question(text, "c1"))


@pytest.mark.parametrize("function", [exits, exits_later, is_cancelled])
@pytest.mark.parametrize("option", ["load", "authorize"])
async def test_a_request_fails_whose_function_exits(option: str, function: Callable[..., Any]) -> None:
    options: dict[str, Any] = {option: function}
    response = await ask(ChatApp(agent, **options), "Hi")
    assert response.status_code == 500


@pytest.mark.parametrize("function", [exits, exits_later, is_cancelled])
async def test_a_chat_is_free_again_whose_on_finish_exits(function: Callable[..., Any]) -> None:
    app = ChatApp(agent, on_finish=function)
    assert [(await ask(app, text)).status_code for text in ("Hi", "Again")] == [200, 200]


async def test_an_observer_that_exits_harms_nobody() -> None:
    app = ChatApp(agent, observer=Exiting())
    answers = [await ask(app, text) for text in ("Hi", "Again")]
    assert [b"You said" in answer.content for answer in answers] == [True, True]


async def test_an_answer_ends_with_a_reference_if_on_error_exits() -> None:
    app = ChatApp(agent, settings=Settings(on_error=exits))
    assert [b"An error occurred. Reference: " in (await ask(app, "fail")).content for _ in range(2)] == [True, True]


@pytest.mark.parametrize("function", [exits_later, is_cancelled])
async def test_a_factory_that_exits_answers_nobody(function: Callable[..., Any]) -> None:
    async def make() -> Any:
        return await function()

    app = ChatApp(make)
    assert [(await ask(app, text)).status_code for text in ("Hi", "Again")] == [500, 500]
    await app.shut_down()


async def test_what_one_factory_raises_at_its_end_does_not_keep_another_open(caplog: pytest.LogCaptureFixture) -> None:
    closed = []

    @contextlib.asynccontextmanager
    async def make_broken() -> AsyncIterator[Any]:
        yield agent
        sys.exit("cannot be closed")

    @contextlib.asynccontextmanager
    async def make_good() -> AsyncIterator[Any]:
        yield agent
        closed.append("good")

    app = ChatApp({"broken": make_broken, "good": make_good})
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=PATIENCE) as client:
        for name in ("broken", "good"):
            await client.post("/api/chat", json={**question("Hi", name), "agent": name})
    await app.shut_down()
    assert closed == ["good"]
    assert "the factory of an agent raised when it was closed" in caplog.text
