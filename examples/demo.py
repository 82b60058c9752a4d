"""One turn end to end: an agent, a real HTTP server, a client that rebuilds the message. Nothing leaves this machine.

Run it with `make demo`.
"""

import asyncio
import socket
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from usechat import (
    ChatRequest,
    ChunkDecoder,
    FrameStream,
    MessageBuilder,
    MessageStream,
    Reasoning,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
    chunks,
)
from usechat.parts import Part

PACE = 0.04
"""Seconds between two pieces: about a model's pace."""


async def agent(question: str) -> AsyncIterator[Part]:
    """Answer like an agent with tools would; a real one would ask a model."""
    for word in ["I should ", "look ", "at the ", "weather."]:
        yield Reasoning(word)
    yield ToolCall("call-1", "weather", {"city": "Paris"})
    yield ToolResult("call-1", {"celsius": 21, "sky": "clear"})
    yield ToolCall("call-2", "book_table", {"place": "terrace"})
    yield ToolError("call-2", "The terrace is full.")
    for word in f"You asked: {question} It is 21 °C in Paris, so sit outside; the terrace is full, though.".split(" "):
        yield Text(f"{word} ")


async def chat(request: Request) -> StreamingResponse:
    """What `useChat` posts to: parts become frames as they come."""
    asked = ChatRequest.parse(await request.body())

    async def frames() -> AsyncIterator[bytes]:
        # Every answer needs an id of its own: a page replaces a message whose id it knows.
        stream = FrameStream(MessageStream(message_id=str(uuid.uuid4()), continues=asked.continues))
        async for part in agent(asked.text):
            yield stream.send(part)
            await asyncio.sleep(PACE)
        yield stream.close()

    return StreamingResponse(frames(), media_type="text/event-stream")


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """Serve the app on a free port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def show(chunk: object) -> None:
    """Print one chunk the way a page would show it."""
    match chunk:
        case chunks.ReasoningStart():
            print("\n(thinking) ", end="")
        case chunks.TextStart():
            print("\n", end="")
        case chunks.TextDelta() | chunks.ReasoningDelta():
            print(chunk.delta, end="", flush=True)
        case chunks.ToolInputAvailable():
            print(f"\n[tool] {chunk.tool_name}({chunk.input})", end="")
        case chunks.ToolOutputAvailable():
            print(f"\n[tool] -> {chunk.output}", end="")
        case chunks.ToolOutputError():
            print(f"\n[tool] failed: {chunk.error_text}", end="")


def main() -> None:
    """Ask one question and print the answer while it comes."""
    question = " ".join(sys.argv[1:]) or "Can I have lunch outside?"
    body = ChatRequest.parse(
        {"id": "demo", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": question}]}]}
    ).to_json()
    decoder, builder = ChunkDecoder(), MessageBuilder(sdk="7")
    with (
        served(Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])) as url,
        httpx2.Client(timeout=30) as client,
    ):
        print(f"POST {url}/api/chat  {question}")
        with client.stream("POST", f"{url}/api/chat", json=body) as response:
            for data in response.iter_bytes():
                for chunk in decoder.receive(data):
                    builder.receive(chunk)
                    show(chunk)
    message = builder.message
    kinds = ", ".join(part["type"] for part in message["parts"])
    print(f"\n\nThe page now holds the message {message['id']!r} with {len(message['parts'])} parts: {kinds}.")


if __name__ == "__main__":
    main()
