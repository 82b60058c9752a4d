"""A source as a chat transport, with the two methods of the AI SDK's ``ChatTransport``."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self

import msgspec

from usechat.ids import new_id
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import own_chunks
from usechat.runs.manager import Reading, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import PreparedRun, RunInfo, RunState, message_digest
from usechat.runs.settings import Settings
from usechat.runs.store import RunStore
from usechat.sources import Source
from usechat.turn import TurnContext, TurnInput

__all__ = ["RunChatTransport"]


class RunChatTransport:
    """Answers with runs of a source, so that a stream whose reader was lost can be read again from its start.

    ``settings.sdk`` is the AI SDK release that the chunks are encoded for. A run continues without a reader; ``runs``
    keeps it, by default in memory.

    >>> import asyncio
    >>> from usechat import ChatRequest
    >>> from usechat.transports import FunctionSource
    >>> async def ask():
    ...     transport = RunChatTransport(FunctionSource(lambda turn: "Hello"))
    ...     chunks = await transport.send_messages(ChatRequest(chat_id="c1", messages=[]))
    ...     return [type(chunk).__name__ async for chunk in chunks]
    >>> asyncio.run(ask())[:3]
    ['StartChunk', 'StartStepChunk', 'TextStartChunk']
    """

    def __init__(
        self,
        source: Source,
        *,
        runs: RunStore | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._source = source
        settings = settings or Settings()
        self._sdk = settings.sdk
        self._manager = RunManager(runs or MemoryRuns(), msgspec.structs.replace(settings, disconnect="continue"))

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Start a run and return its chunks. Closing the iterator stops the source before ``aclose`` returns."""
        continues = request.continues
        message = request.last_user_message if request.trigger == "submit-message" and not continues else None
        info = RunInfo(
            run_id=new_id(),
            chat_id=request.chat_id or new_id(),
            message_id=(continues["id"] if continues else "") or f"msg-{new_id()}",
            sdk=self._sdk,
            user_message_id=message["id"] if message else "",
            user_message_digest=message_digest(message) if message else "",
        )
        # The caller is trusted, as a page that calls the AI SDK's transports is: its tool outputs and approvals are
        # taken as they are. A server has checked those of its clients before, and put what is valid into the request.
        prepared = PreparedRun(info, TurnContext(TurnInput(request)), continues)
        reading = await self._manager.start(info, self._source, prepared)
        return _Chunks(reading, lambda: self._manager.stop(info))

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the chunks of the running answer from its start, or None. Closing the iterator does not stop it."""
        info = await self._manager.latest(chat_id)
        if info is None or info.state is not RunState.RUNNING:
            return None
        reading = await self._manager.attach(info, sdk=self._sdk)
        return None if reading is None else _Chunks(reading, _keep_running)


class _Chunks:
    """The chunks of a reading. Not a generator: ``aclose`` of one that was never started would do nothing."""

    def __init__(self, reading: Reading, on_close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._reading = reading
        self._on_close = on_close
        self._chunks: deque[Chunk] = deque()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._closed:
                raise StopAsyncIteration
            await self._read()
        return self._chunks.popleft()

    async def aclose(self) -> None:
        self._chunks.clear()
        if not self._closed:
            self._close()
            await self._on_close()

    async def _read(self) -> None:
        try:
            frames = await self._reading.read()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if isinstance(frames, bytes):
            self._chunks.extend(own_chunks(frames))
        else:
            self._close()

    def _close(self) -> None:
        self._closed = True
        self._reading.close()


async def _keep_running() -> None:
    """Do nothing: the run continues for its other readers."""
