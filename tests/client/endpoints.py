"""Endpoints that answer as the test says, on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

from tests.conformance.served import serving


def frame(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


HELLO: tuple[Any, ...] = (
    {"type": "start", "messageId": "m1"},
    {"type": "start-step"},
    {"type": "text-start", "id": "1"},
    {"type": "text-delta", "id": "1", "delta": "Hel"},
    {"type": "text-delta", "id": "1", "delta": "lo"},
    {"type": "text-end", "id": "1"},
    {"type": "finish-step"},
    {"type": "finish"},
)
HELLO_BYTES = b"".join(map(frame, HELLO)) + b"data: [DONE]\n\n"


class Endpoint:
    """An endpoint with one answer; it keeps what it was asked."""

    def __init__(
        self,
        body: bytes | Sequence[bytes] = HELLO_BYTES,
        *,
        status: int = 200,
        content_type: str = "text/event-stream",
        holds: bool = False,
        resumed: Response | None = None,
        has_stop: bool = True,
    ) -> None:
        self._pieces = [body] if isinstance(body, bytes) else list(body)
        self._status = status
        self._content_type = content_type
        self._holds = holds
        self._resumed = resumed or Response(status_code=204)
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        routes = [
            Route("/api/chat", self._answer, methods=["POST"]),
            Route("/api/chat/{chat_id}/stream", self._resume, methods=["GET"]),
        ]
        stop = Route("/api/chat/{chat_id}/stop", self._stop, methods=["POST"])
        self.app = Router(routes=[*routes, *([stop] if has_stop else [])])

    async def _note(self, request: Request) -> None:
        body = await request.body()
        path = request.url.path.partition("/api/chat")[2]
        self.requests.append((request.method, path, json.loads(body) if body else None))
        self.headers.append(dict(request.headers))

    async def _answer(self, request: Request) -> Response:
        await self._note(request)
        if self._status == 204:
            return Response(status_code=204)
        return StreamingResponse(self._stream(), self._status, media_type=self._content_type)

    async def _stream(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._holds:
            await asyncio.Event().wait()

    async def _resume(self, request: Request) -> Response:
        await self._note(request)
        return self._resumed

    async def _stop(self, request: Request) -> Response:
        await self._note(request)
        return Response(status_code=204)


@contextmanager
def served(endpoint: Endpoint) -> Iterator[str]:
    with serving({"app": endpoint.app}) as running:
        yield running.url("app")
