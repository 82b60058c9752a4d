"""Pages without a browser: they post to an app, and read what it streams."""

from contextlib import suppress
from typing import Any, NamedTuple

import httpx2

from usechat.errors import StreamFailed
from usechat.protocol.chunks import Chunk, StartChunk, TextDeltaChunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder
from usechat.server import ChatApp


class Said(NamedTuple):
    """What a response streams."""

    status: int
    text: str
    chunks: list[Chunk]

    @property
    def parts(self) -> list[Any]:
        """The parts of the message that the newest release makes of it."""
        builder = MessageBuilder(sdk="7", message_id="m")
        with suppress(StreamFailed):  # the page keeps what came before an error
            for chunk in self.chunks:
                builder.receive(chunk)
        return list(builder.message["parts"])

    @property
    def texts(self) -> list[str]:
        return [part["text"] for part in self.parts if part["type"] == "text"]

    @property
    def written(self) -> str:
        """What this response alone writes."""
        return "".join(chunk.delta for chunk in self.chunks if isinstance(chunk, TextDeltaChunk))

    @property
    def outcomes(self) -> list[Any]:
        """What became of each call."""
        return [part.get("output", part.get("errorText")) for part in self.parts if part["type"].startswith("tool-")]


class Page:
    """A page of an app."""

    def __init__(self, app: ChatApp, chat_id: str) -> None:
        self._client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=120)
        self._chat_id = chat_id

    async def ask(self, text: str, **body: Any) -> Said:
        body = {"id": self._chat_id, "messages": [question(text)], **body}
        return said(await self._client.post("/api/chat", json=body))

    async def decide(self, asked: Said, *, approved: bool) -> Said:
        """Answer every approval request of an answer, as a page does."""
        parts = [_decided(part, approved) for part in asked.parts]
        answer = {**shown(asked), "parts": parts}
        body = {"id": self._chat_id, "messages": [question("?"), answer], "messageId": answer["id"]}
        return said(await self._client.post("/api/chat", json=body))

    async def resume(self) -> Said:
        return said(await self._client.get(f"/api/chat/{self._chat_id}/stream"))

    async def stop(self) -> int:
        return (await self._client.post(f"/api/chat/{self._chat_id}/stop")).status_code


def question(text: str) -> dict[str, Any]:
    return {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}


def shown(answer: Said) -> dict[str, Any]:
    """The message that a page has of an answer."""
    start = next(chunk for chunk in answer.chunks if isinstance(chunk, StartChunk))
    return {"id": start.message_id, "role": "assistant", "parts": answer.parts}


def _decided(part: Any, approved: bool) -> Any:
    if part.get("state") != "approval-requested":
        return part
    return {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": approved}}


def said(response: httpx2.Response) -> Said:
    decoder = ChunkDecoder()
    chunks = decoder.receive(response.content) if response.status_code == 200 else []
    return Said(response.status_code, response.text, chunks)
