"""An observer that tells a test when streams were opened."""

import asyncio

from usechat.server import Observer


class Streams(Observer):
    """Counts the streams that were opened and that nobody has waited for."""

    def __init__(self) -> None:
        self._opened = asyncio.Semaphore(0)

    def stream_opened(self) -> None:
        self._opened.release()

    async def wait_for(self, count: int) -> None:
        """Wait until so many further streams were opened."""
        async with asyncio.timeout(60):
            for _ in range(count):
                await self._opened.acquire()
