"""The route that people write without a library: the texts of an agent as an AI SDK stream, and no more."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any


def app(agent: Callable[[object], AsyncGenerator[str, None]]) -> Any:
    """Return a FastAPI app that streams what an agent says."""
    from fastapi import FastAPI, Request
    from fastapi.responses import StreamingResponse

    async def chunks() -> AsyncGenerator[dict[str, str], None]:
        yield {"type": "start", "messageId": "message"}
        yield {"type": "text-start", "id": "text"}
        async for text in agent(None):
            yield {"type": "text-delta", "id": "text", "delta": text}
        yield {"type": "text-end", "id": "text"}
        yield {"type": "finish"}

    async def frames() -> AsyncGenerator[str, None]:
        async for chunk in chunks():
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"

    async def chat(request: Request) -> StreamingResponse:
        await request.json()
        headers = {"x-vercel-ai-ui-message-stream": "v1"}
        return StreamingResponse(frames(), media_type="text/event-stream", headers=headers)

    app = FastAPI()
    app.add_api_route("/api/chat", chat, methods=["POST"], response_model=None)
    return app
