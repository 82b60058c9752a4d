"""A function without arguments makes what answers: once, when the server starts."""

import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.external_agents import needs_agents_here
from tests.server.process import question, serve_process
from usechat.errors import CannotAnswer
from usechat.server import ChatApp, chat_response
from usechat.sources import FactorySource, as_source, continues_after_crash, restartable
from usechat.turn import Turn, TurnContext

pytestmark = pytest.mark.external_agents

HAPPENED: list[str] = []


def agent(turn: Turn) -> str:
    return f"You said {turn.text}"


def make() -> Any:
    HAPPENED.append("made")
    return agent


async def make_async() -> Any:
    HAPPENED.append("made")
    return agent


@contextlib.asynccontextmanager
async def make_scoped() -> AsyncIterator[Any]:
    async with anyio.create_task_group():  # must be left in the task that entered it
        HAPPENED.append("made")
        yield agent
        HAPPENED.append("closed")


@pytest.mark.parametrize(
    ("factory", "happened"), [(make, ["made"]), (make_async, ["made"]), (make_scoped, ["made", "closed"])]
)
async def test_a_factory_is_called_once_and_closed_at_the_end(factory: Callable[[], Any], happened: list[str]) -> None:
    HAPPENED.clear()
    app = ChatApp(factory)
    assert HAPPENED == []
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=60) as client:
        for chat_id in ("c1", "c2"):
            response = await client.post("/api/chat", json=question("Hi", chat_id))
            assert b"You said Hi" in response.content
    await app.shut_down()
    assert happened == HAPPENED


async def test_what_a_factory_of_a_factory_makes_is_what_answers() -> None:
    HAPPENED.clear()

    class Relay:
        continues = False

        async def drive(self, context: TurnContext) -> None:
            """Say nothing."""

    @contextlib.asynccontextmanager
    async def make_relay() -> AsyncIterator[Any]:
        yield restartable(Relay())
        HAPPENED.append("closed")

    source = FactorySource(lambda: make_relay)
    assert isinstance(await source.open(), Relay)
    assert source.opened is not None
    assert continues_after_crash(source.opened) is False, "its policy is that of what answers"
    assert source.restartable
    await source.close()
    assert HAPPENED == ["closed"]


async def test_what_a_factory_raises_is_raised_where_it_is_opened() -> None:
    def broken() -> Any:
        raise ValueError("no key")

    source = as_source(broken)
    assert isinstance(source, FactorySource)
    with pytest.raises(ValueError, match="no key"):
        await source.open()
    with pytest.raises(CannotAnswer, match="int cannot answer"):
        await FactorySource(lambda: 1).open()
    await source.close()
    await FactorySource(make).close()


async def test_a_factory_is_not_for_a_single_request() -> None:
    with pytest.raises(CannotAnswer, match="call it once"):
        await chat_response(None, make)  # type: ignore[arg-type]


def test_the_command_serves_a_factory(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(
        "import contextlib\n"
        "@contextlib.asynccontextmanager\n"
        "async def make_agent():\n"
        "    print('opened', flush=True)\n"
        "    yield lambda turn: f'You said {turn.text}'\n"
        "    print('closed', flush=True)\n",
        encoding="utf-8",
    )
    with serve_process(tmp_path, "my_app:make_agent") as served:
        assert "opened" in served.written
        response = httpx2.post(f"{served.url}/api/chat", json=question("Hi"), timeout=60)
        assert b"You said Hi" in response.content
        served.process.terminate()
        served.process.wait(60)
    assert served.written.count("opened") == served.written.count("closed") == 1


def test_a_factory_that_fails_at_the_start_is_told_by_the_place_in_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(
        "def make_agent():\n    return find_key()\n\n\ndef find_key():\n    raise ValueError('There is no key.')\n",
        encoding="utf-8",
    )
    program = "import sys; from usechat.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "serve", "my_app:make_agent", "--port", "0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    places = re.findall(r'File "(.*)", line (\d+), in (.*)', ended.stderr)
    file = str(tmp_path / "my_app.py")
    assert places == [(file, "2", "make_agent"), (file, "6", "find_key")]
    assert "ValueError: There is no key.\nERROR:    Application startup failed." in ended.stderr


async def failed_start(app: ChatApp) -> str:
    """Start an app as a server does, and return why it fails."""
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        messages.append(message)

    with contextlib.suppress(Exception):
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    (message,) = messages
    assert message["type"] == "lifespan.startup.failed"
    return str(message["message"])


@needs_agents_here("the agent is made in the agent's process")
async def test_an_agent_that_cannot_answer_is_told_by_a_sentence() -> None:
    assert await failed_start(ChatApp(lambda: 4)) == await sentence_of(lambda: 4)


async def sentence_of(factory: Callable[[], Any]) -> str:
    with pytest.raises(CannotAnswer) as raised:
        await FactorySource(factory).open()
    return str(raised.value)
