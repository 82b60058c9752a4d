"""Sources whose running turn takes further messages: the new turn waits for the old one, and no request is refused."""

import asyncio
from typing import Any

import pytest

from usechat.parts import Text
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.manager import Reading, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import PreparedRun, RunInfo
from usechat.runs.settings import Conflict, Settings
from usechat.sources import HandsOver
from usechat.turn import Turn, TurnContext, TurnInput


class Session:
    """Answers a message until another is handed over, then continues with that one."""

    def __init__(self) -> None:
        self.handed_over: list[str] = []
        self._more = asyncio.Event()

    async def drive(self, context: TurnContext) -> None:
        turn = context.turn
        turn.send(Text(f"about {turn.text}"))
        if turn.text == "first":
            await self._more.wait()

    def hand_over(self, turn: Turn) -> None:
        self.handed_over.append(turn.text)
        self._more.set()


def manager(conflict: Conflict = "reject") -> RunManager:
    return RunManager(MemoryRuns(), Settings(disconnect="continue", conflict=conflict))


async def ask(runs: RunManager, session: Session, text: str, user_id: str | None = None) -> Reading:
    message = {"id": user_id or text, "role": "user", "parts": [{"type": "text", "text": text}]}
    turn = TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": [message]})))
    info = RunInfo(f"run {text}", "c1", f"answer to {text}", "7", user_id or text)
    return await runs.start(info, session, PreparedRun(info, turn))


async def said(reading: Reading) -> str:
    decoder, text = ChunkDecoder(), ""
    async with asyncio.timeout(30):
        while isinstance(frames := await reading.read(), bytes):
            chunks: list[Any] = decoder.receive(frames)
            text += "".join(getattr(chunk, "delta", "") for chunk in chunks)
    return text


@pytest.mark.parametrize("conflict", ["reject", "queue", "interrupt"])
async def test_a_further_message_is_handed_over_and_answered_next(conflict: Conflict) -> None:
    runs, session = manager(conflict), Session()
    assert isinstance(session, HandsOver)
    first = await ask(runs, session, "first")
    async with asyncio.timeout(30):
        second = await ask(runs, session, "second")
    assert [await said(first), await said(second)] == ["about first", "about second"]
    assert set(session.handed_over) == {"second"}


async def test_the_same_message_again_joins_the_answer_instead() -> None:
    runs, session = manager(), Session()
    first = await ask(runs, session, "first", "u1")
    again = await ask(runs, session, "first", "u1")
    assert session.handed_over == []
    request = ChatRequest.parse({"id": "c1", "messages": [{"id": "u", "role": "user", "parts": []}]})
    session.hand_over(TurnContext(TurnInput(request)).turn)
    assert [await said(first), await said(again)] == ["about first", "about first"]
