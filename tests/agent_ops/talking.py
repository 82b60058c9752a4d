"""Turns that are driven without a server, and a session to talk to."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from usechat import parts as p
from usechat.agent_ops import AgentOpsChatTransport
from usechat.protocol.request import ChatRequest
from usechat.server.observers.observer import Observer
from usechat.turn import Identity, TurnContext, TurnInput

PATIENCE = 30.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class Counted(Observer):
    """Counts what a source tells beside its answer."""

    def __init__(self) -> None:
        self.unreachable = 0
        self.connected = 0
        self.unknown: list[str] = []

    def source_unreachable(self) -> None:
        self.unreachable += 1

    def source_connected(self) -> None:
        self.connected += 1

    def source_disconnected(self) -> None:
        self.connected -= 1

    def event_unknown(self, kind: str) -> None:
        self.unknown.append(kind)


class DrivenTurn:
    """A turn that a transport drives, and its parts so far."""

    def __init__(
        self,
        transport: AgentOpsChatTransport,
        text: str = "",
        *,
        user: str | None = "ada",
        session_id: str | None = "s1",
        files: Sequence[Mapping[str, Any]] = (),
        query: Mapping[str, str] | None = None,
        request: ChatRequest | None = None,
    ) -> None:
        self.parts: list[p.Part] = []
        self.counted = Counted()
        parts: Any = [{"type": "text", "text": text}, *files]
        request = request or ChatRequest(chat_id="c1", messages=[{"id": "u1", "role": "user", "parts": parts}])
        turn_input = TurnInput(
            request,
            identity=None if user is None else Identity(user, token=user),
            path_params={} if session_id is None else {"session_id": session_id},
            query=query or {},
        )
        self.context = TurnContext(turn_input, observer=self.counted)
        self.context.connect(self.parts.append)
        self.task = asyncio.get_running_loop().create_task(transport.drive(self.context))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, p.Text))

    async def end(self) -> list[p.Part]:
        """Wait for the end, and return all parts except the states of the agent."""
        async with asyncio.timeout(PATIENCE):
            await self.task
        return [part for part in self.parts if not (isinstance(part, p.Data) and part.name == "agent-status")]

    async def failure(self) -> str:
        """Wait for the failure, and return what people see of it."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([self.task])
        error = self.task.exception()
        assert error is not None
        return f"{type(error).__name__}: {error}"

    async def stop(self) -> None:
        """Stop it, as a page that goes away does, and wait until it has gone."""
        self.task.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([self.task])


async def until(condition: Callable[[], object]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
