"""Server processes whose agents go on after kill -9: each effect, and each request of a model, is a line of a file."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import uvicorn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.chats.dying import ServerProcess
from tests.server.process import eventually
from usechat import current_turn, emit, parts, replayable
from usechat.chats import SqlChats
from usechat.errors import UnknownOutcome
from usechat.protocol.ui_messages import UIMessage, tool_parts_of
from usechat.server import ChatApp, Settings
from usechat.turn import Turn, TurnContext

__all__ = ["ChatServer", "SurvivingServer"]

_LOOK_SECONDS: Final = 0.02


def gate_of(notes: Path) -> Path:
    """Return the file that lets agents go on."""
    return Path(f"{notes}.gate")


class _Life:
    """What the agents of all processes have done, and where one of them waits for its death."""

    def __init__(self, notes: Path, waits_at: str) -> None:
        self._notes = notes
        self._waits_at = waits_at
        self._gate = gate_of(notes)

    def note(self, what: str) -> None:
        with self._notes.open("a") as file:
            file.write(f"{what}\n")

    async def reach(self, place: str) -> None:
        """Wait if the test kills the process here, or lets it go on."""
        if place == self._waits_at:
            emit("reached", place, transient=True)
            while not self._gate.exists():  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(_LOOK_SECONDS)


class _Relay:
    """Sends the prompt elsewhere; nobody may send it again."""

    continues = False

    def __init__(self, life: _Life) -> None:
        self._life = life

    async def drive(self, context: TurnContext) -> None:
        """Send the prompt."""
        self._life.note("sent")
        context.send(parts.Text("Sent."))
        await self._life.reach("text 1")


class _Agents:
    """The same turn of three steps by several means: text and `weather`, text and `book`, text."""

    def __init__(self, life: _Life) -> None:
        self._life = life

    async def weather(self) -> str:
        self._life.note("weather")
        return "sunny"

    async def book(self) -> str:
        self._life.note("book")
        await self._life.reach("tool")
        return "booked"

    async def loop(self, turn: Turn) -> AsyncIterator[str | parts.Part]:
        """Answer like a model in a loop, which goes on behind the calls of the history."""
        done = [part["toolCallId"] for part in tool_parts_of(turn.messages[-1])]
        for number, (text, tool) in enumerate((("First. ", self.weather), ("Second. ", self.book)), 1):
            if f"t{number}" in done:
                continue
            self._life.note(f"model {number}")
            yield text
            await self._life.reach(f"text {number}")
            yield parts.ToolCall(f"t{number}", tool.__name__, {})
            yield parts.ToolResult(f"t{number}", await tool())
            await self._life.reach(f"result {number}")
        self._life.note("model 3")
        yield "Third."

    def pydantic(self) -> "Agent[None, str]":
        """Return the same as an agent of Pydantic AI."""
        return self._pydantic(self.book)

    def keyed(self) -> "Agent[None, str]":
        """Return the same with a tool that may run again, and has a key."""

        @replayable
        async def book() -> str:
            self._life.note(current_turn().key("book"))
            return await self.book()

        return self._pydantic(book)

    def _pydantic(self, book: Callable[[], Awaitable[str]]) -> "Agent[None, str]":
        """Return an agent whose model refuses a history that no provider would accept."""

        async def model(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
            all_parts = [part for message in messages for part in message.parts]
            kinds = [part.part_kind for part in all_parts if getattr(part, "tool_name", "") != "approval"]
            calls, returns = kinds.count("tool-call"), kinds.count("tool-return") + kinds.count("retry-prompt")
            assert calls == returns, kinds
            assert kinds[-1] in ("user-prompt", "tool-return", "retry-prompt"), kinds
            number = calls + 1
            self._life.note(f"model {number}")
            yield {1: "First. ", 2: "Second. ", 3: "Third."}[number]
            await self._life.reach(f"text {number}")
            if number < 3:
                yield {0: DeltaToolCall(("weather", "book")[number - 1], "{}", tool_call_id=f"t{number}")}

        return Agent(FunctionModel(stream_function=model), tools=[self.weather, book])

    async def steps(self, turn: Turn) -> AsyncIterator[str]:
        """Answer in steps that are stored."""
        yield f"{await turn.step('weather', self.weather)}. "
        try:
            yield f"{await turn.step('book', self.book)}. "
        except UnknownOutcome as unknown:
            yield f"{unknown.step}? "
        await self._life.reach("end")
        yield "Third."

    async def approved(self, turn: Turn) -> AsyncIterator[str | parts.Part]:
        """Ask before a step."""
        if not turn.approvals:
            yield "May I? "
            yield parts.ToolCall("p1", "pay", {})
            yield parts.ApprovalRequest("a1", "p1")
        for answer in turn.approvals:
            yield f"{await turn.step('weather', self.weather)}, {answer.approved}. "
            yield parts.ToolResult("p1", await turn.step("book", self.book))
            await self._life.reach("end")
            yield "Done."

    async def walk(self, turn: Turn) -> AsyncIterator[str]:
        """Answer in four steps that are stored, and wait behind each."""
        for number in range(1, 5):
            await turn.step(f"step {number}", self.weather)
            self._life.note(f"behind {number}")
            await self._life.reach(f"result {number}")
        yield "There."

    def chosen(self, _turn: Turn) -> "_Relay":
        """Return what answers this one turn, as a function does that chooses among agents."""
        return _Relay(self._life)

    async def again(self, turn: Turn) -> AsyncIterator[str]:
        """Answer with a step that may run again."""

        @replayable
        async def book() -> str:
            self._life.note(turn.key())
            return await self.book()

        yield f"{await turn.step('book', book)}."


def _serve(listener: socket.socket, database: str, notes: Path, agent: str, waits_at: str, settings: Settings) -> None:
    agents = _Agents(_Life(notes, waits_at))
    answer = getattr(agents, agent)
    answer = answer() if agent in ("pydantic", "keyed") else answer
    chats = SqlChats(database, lease=6)
    app = ChatApp(answer, chats=chats, settings=settings, metrics=False, drain=0.1)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


class ChatServer(ServerProcess):
    """A process that answers the chat ``c1`` and stores it; ``notes`` is the file of what its agent has done."""

    def __init__(
        self, notes: Path, serve: Callable[..., None], *arguments: Any, listener: socket.socket | None = None
    ) -> None:
        super().__init__(serve, *arguments, listener=listener)
        self._notes = notes
        self._client = httpx2.Client(base_url=self.url, timeout=60)

    @property
    def notes(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    def kill(self) -> None:
        super().kill()
        self._client.close()

    def stop(self, chat_id: str = "c1") -> int:
        """Stop the answer of a chat as its page does; return the status."""
        return self._client.post(f"/api/chat/{chat_id}/stop").status_code

    def load(self, chat_id: str = "c1") -> Any:
        """What a page loads of a chat."""
        return self._client.get(f"/api/chat/{chat_id}/messages").json()

    def ended(self, chat_id: str = "c1") -> tuple[str, UIMessage]:
        """How an answer ended, and what is stored of it; nobody reads it meanwhile."""
        eventually(lambda: self.load(chat_id)["running"] is None, "the answer has ended")
        loaded = self.load(chat_id)
        message: UIMessage = loaded["messages"][-1]
        return loaded["outcomes"][message["id"]], message


class SurvivingServer(ChatServer):
    """The process of an agent of this module; it waits for its death at ``waits_at``."""

    def __init__(
        self,
        database: str,
        notes: Path,
        agent: str,
        *,
        waits_at: str = "",
        settings: Settings | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        settings = settings or Settings(sdk="7")
        super().__init__(notes, _serve, database, notes, agent, waits_at, settings, listener=listener)
        self._gate = gate_of(notes)

    def open_gate(self) -> None:
        """Let the agent go on that waits."""
        self._gate.touch()
