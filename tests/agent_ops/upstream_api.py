"""The upstream's own API, as far as a look-up needs it: one real HTTP server on a free port."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class ApiRequest(NamedTuple):
    """A request that the API got."""

    path: str
    authorization: str


class UpstreamApi:
    """Answers with a status and a body by path; 404 for the rest."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        self.answers = dict(answers)
        self.requests: list[ApiRequest] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/sessions/{{id}}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = first.split()[1]
        self.requests.append(ApiRequest(path, headers.get("authorization", "")))
        status, content = self.answers.get(path, (404, {"code": "NOT_FOUND"}))
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        extra = "location: http://127.0.0.1:9/elsewhere\r\n" if 300 <= status < 400 else ""
        response = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{extra}connection: close\r\n\r\n"
        writer.write(response.encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def upstream_api(answers: Mapping[str, tuple[int, Any]]) -> AsyncIterator[UpstreamApi]:
    api = UpstreamApi(answers)
    server = await asyncio.start_server(api.answer, "127.0.0.1", 0)
    api.port = server.sockets[0].getsockname()[1]
    async with server:
        yield api
