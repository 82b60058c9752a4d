"""A source as a chat transport: the same two methods that the AI SDK's own transports have."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self

from usechat.ids import new_id
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.manager import Reading, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import RunInfo, RunState, Timeouts, describe_with
from usechat.runs.store import RunStore
from usechat.sources import Source
from usechat.turn import TurnContext

__all__ = ["RunChatTransport"]


class RunChatTransport:
    """Answers by runs of a source, so that a stream that was lost can be read again from its start.

    ``sdk`` is the AI SDK release that the chunks are made for.
    """

    def __init__(
        self,
        source: Source,
        *,
        runs: RunStore | None = None,
        sdk: str = "any",
        timeouts: Timeouts | None = None,
        on_error: Callable[[Exception], str] | None = None,
    ) -> None:
        self._source = source
        self._sdk = sdk
        self._manager = RunManager(
            runs or MemoryRuns(),
            timeouts=timeouts or Timeouts(),
            linger=None,
            conflict="reject",
            describe=describe_with(on_error),
        )

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request. Closing the iterator stops the source before ``aclose`` returns."""
        continues = request.continues
        message = request.last_user_message if request.trigger == "submit-message" and not continues else None
        info = RunInfo(
            run_id=new_id(),
            chat_id=request.chat_id or new_id(),
            message_id=(continues["id"] if continues else "") or f"msg-{new_id()}",
            sdk=self._sdk,
            user_message_id=message["id"] if message else "",
        )
        # Called in its own process, as a page calls the AI SDK's transports: what the request answers is the caller's
        # own word. A server that lets strangers in has checked theirs, and said in the request what may be taken.
        reading = await self._manager.start(info, self._source, TurnContext(request), continues=continues)
        return _Chunks(reading, lambda: self._manager.stop(info))

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the answer that is being given, from its start, or nothing. Closing the iterator stops nothing."""
        info = await self._manager.latest(chat_id)
        if info is None or info.state is not RunState.RUNNING:
            return None
        reading = await self._manager.attach(info, sdk=self._sdk)
        return None if reading is None else _Chunks(reading, _leave_it)


class _Chunks:
    """The chunks of a reading. No generator: closing one that was never asked for anything does nothing."""

    def __init__(self, reading: Reading, leave: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._reading = reading
        self._leave = leave
        self._decoder = ChunkDecoder()
        self._found: deque[Chunk] = deque()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._found:
            if self._closed:
                raise StopAsyncIteration
            await self._read()
        return self._found.popleft()

    async def aclose(self) -> None:
        self._found.clear()
        if not self._closed:
            self._close()
            await self._leave()

    async def _read(self) -> None:
        try:
            frames = await self._reading.read()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if isinstance(frames, bytes):
            self._found.extend(self._decoder.receive(frames))
        else:
            self._close()

    def _close(self) -> None:
        self._closed = True
        self._reading.close()


async def _leave_it() -> None:
    """Another reader went; the answer is still being given."""
