"""A prompt that is taken back before the upstream has said what becomes of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.agent_ops.frames import INIT, PROMPT, Frame, message, status, user_says
from tests.agent_ops.talking import PATIENCE, DrivenTurn, until
from usechat.agent_ops import AgentOpsChatTransport
from usechat.agent_ops import transport as session_transport

PENDING: Frame = {"type": "queue.state", "data": {"pending": {"messageId": "u1", "content": PROMPT}}}
WITHDRAWN: Frame = {"type": "queue.withdrawn", "data": {"messageId": "u1", "content": PROMPT}}
QUEUED = [PENDING, status(promptQueued=True)]


class Upstream:
    """Says nothing until it is let go, then what it is told to say; ``withdrawn`` when a prompt is to be withdrawn."""

    def __init__(self, frames: list[Frame], withdrawn: list[Frame], *, closes: bool) -> None:
        self.commands: list[str] = []
        self.go = asyncio.Event()
        self.url = ""
        self._frames = frames
        self._withdrawn = withdrawn
        self._closes = closes

    async def handle(self, connection: ServerConnection) -> None:
        await connection.send(json.dumps(INIT))
        self.commands.append(json.loads(await connection.recv())["type"])
        await self.go.wait()
        await self._say(connection, self._frames)
        if not self._closes:
            async for command in connection:
                self.commands.append(json.loads(command)["type"])
                if self.commands[-1] == "queue.withdraw":
                    await self._say(connection, self._withdrawn)

    async def _say(self, connection: ServerConnection, frames: list[Frame]) -> None:
        for frame in frames:
            await connection.send(json.dumps(frame))


@asynccontextmanager
async def upstream(
    frames: list[Frame], withdrawn: list[Frame] | None = None, *, closes: bool = False
) -> AsyncIterator[Upstream]:
    running = Upstream(frames, withdrawn or [], closes=closes)
    async with serve(running.handle, "127.0.0.1", 0) as server:
        running.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/{{id}}"
        yield running
        running.go.set()


@pytest.mark.parametrize(
    ("frames", "commands"),
    [
        pytest.param([user_says()], ["abort"], id="it-runs"),
        pytest.param([user_says(), message()], ["abort"], id="it-speaks"),
        pytest.param([status(promptQueued=True)], [], id="it-waits"),
        pytest.param([{"type": "error", "message": "Refused"}], [], id="it-is-refused"),
        pytest.param([], [], id="nobody-knows"),
    ],
)
async def test_what_becomes_of_it(frames: list[Frame], commands: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if frames:
        monkeypatch.setattr(session_transport, "_WITHDRAW_SECONDS", PATIENCE)
    async with upstream(frames) as running:
        turn = DrivenTurn(AgentOpsChatTransport(running.url), PROMPT)
        await until(lambda: running.commands)
        turn.task.cancel()
        await asyncio.sleep(0)
        running.go.set()
        await asyncio.wait([turn.task])
    assert (running.commands[1:], turn.task.cancelled(), turn.parts) == (commands, True, [])


@pytest.mark.parametrize(
    ("withdrawn", "commands"),
    [
        pytest.param([WITHDRAWN], ["queue.withdraw"], id="it-is-withdrawn"),
        pytest.param([user_says(), message()], ["queue.withdraw", "abort"], id="it-runs-already"),
    ],
)
async def test_a_queued_prompt_is_withdrawn_or_if_the_runner_was_faster_aborted(
    withdrawn: list[Frame], commands: list[str]
) -> None:
    async with upstream(QUEUED, withdrawn) as running:
        turn = DrivenTurn(AgentOpsChatTransport(running.url), PROMPT)
        await until(lambda: running.commands)
        turn.task.cancel()
        running.go.set()
        await asyncio.wait([turn.task])
    assert (running.commands[1:], turn.parts) == (commands, [])


async def test_an_upstream_that_hangs_up_meanwhile() -> None:
    async with upstream([], closes=True) as running:
        turn = DrivenTurn(AgentOpsChatTransport(running.url), PROMPT)
        await until(lambda: running.commands)
        turn.task.cancel()
        running.go.set()
        await asyncio.wait([turn.task])
    assert turn.task.cancelled()


async def test_a_failure_of_our_own_stops_the_turn_as_well() -> None:
    async with upstream([user_says(), message()]) as running:
        turn = DrivenTurn(AgentOpsChatTransport(running.url), PROMPT)

        def break_down(_part: Any) -> None:
            raise ValueError("broken")

        turn.context.connect(break_down)
        running.go.set()
        assert await turn.failure() == "ValueError: broken"
    assert running.commands == ["prompt", "abort"]
