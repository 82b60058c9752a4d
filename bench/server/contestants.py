"""The servers: each makes an ASGI app that answers every request with the load, the way its library wants it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bench.node_process import node_is_installed
from bench.sample import BLOCK_ID
from bench.server.load import Load, Pace

if TYPE_CHECKING:
    from usechat.runs.redis.turns import RedisTurns
    from usechat.runs.settings import Settings

App: TypeAlias = Any
Make: TypeAlias = Callable[[Load], App]

OURS: Final = "usechat: ChatApp"
OURS_REDIS: Final = "usechat: ChatApp, Redis log"
OURS_EXTERNAL: Final = "usechat: ChatApp, agents in another process"
BARE: Final = "bare ASGI app, prebuilt bytes"
STREAMING_RESPONSE: Final = "Starlette StreamingResponse, prebuilt bytes"
NODE: Final = "Node: ai's createUIMessageStream"
REDIS_VARIABLE: Final = "BENCH_REDIS"


def usechat(load: Load) -> App:
    """Everything on: log, resume, stop, limits, metrics. A run ends with its reader, or the next step would bear it."""
    return _chat_app(load)


def usechat_redis(load: Load) -> App:
    """The same with the log in Redis."""
    from usechat.runs.redis.store import RedisRuns

    return _chat_app(load, runs=RedisRuns(os.environ[REDIS_VARIABLE]))


def usechat_external(load: Load) -> App:
    """The same as a web process, whose turns the agent process of `bench.server.agents` answers."""
    from usechat.server import ChatApp

    queue = turns(load.pace)
    return ChatApp(queue, runs=queue.runs, settings=_settings())


def turns(pace: Pace) -> "RedisTurns":
    """Return the queue of a web process and its agent process."""
    from usechat.runs.redis.store import RedisRuns
    from usechat.runs.redis.turns import RedisTurns

    return RedisTurns(RedisRuns(os.environ[REDIS_VARIABLE]), pace)


def _settings() -> "Settings":
    from usechat.runs.settings import Settings

    return Settings(disconnect="cancel")


def _chat_app(load: Load, **options: Any) -> App:
    from usechat.server import ChatApp

    return ChatApp(load.agent, settings=_settings(), **options)


def bare(load: Load) -> App:
    """The floor: nothing but the protocol between server and app, and one task that notices the client leaving."""
    headers = [(b"content-type", b"text/event-stream")]

    async def stream(send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for frame in load.frames():
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        listener = asyncio.get_running_loop().create_task(_until_gone(receive, asyncio.current_task()))
        with contextlib.suppress(asyncio.CancelledError):
            await stream(send)
        listener.cancel()

    return app


async def _until_gone(receive: Any, task: asyncio.Task[Any] | None) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if task is not None:
        task.cancel()


def _starlette(respond: Callable[[], Any]) -> App:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def chat(_request: Request) -> Response:
        response: Response = respond()
        return response

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


def streaming_response(load: Load) -> App:
    from starlette.responses import StreamingResponse

    return _starlette(lambda: StreamingResponse(load.frames(), media_type="text/event-stream"))


def sse_starlette(load: Load) -> App:
    from sse_starlette.sse import EventSourceResponse

    return _starlette(lambda: EventSourceResponse(load.payloads(), sep="\n"))


def fastapi_ai_sdk(load: Load) -> App:
    from fastapi_ai_sdk import AIStream, create_ai_stream_response
    from fastapi_ai_sdk.models import StartEvent, TextDeltaEvent, TextEndEvent, TextStartEvent

    async def events() -> AsyncGenerator[Any, None]:
        yield StartEvent(message_id="message-1")
        yield TextStartEvent(id=BLOCK_ID)
        async for text in load.texts():
            yield TextDeltaEvent(id=BLOCK_ID, delta=text)
        yield TextEndEvent(id=BLOCK_ID)

    return _starlette(lambda: create_ai_stream_response(AIStream(events())))


def pydantic_ai(load: Load) -> App:
    """Its adapter alone, fed with its own events: no agent loop, no model."""
    from pydantic_ai.messages import PartDeltaEvent, PartEndEvent, PartStartEvent, TextPart, TextPartDelta
    from pydantic_ai.ui.vercel_ai import VercelAIEventStream

    async def events() -> AsyncGenerator[Any, None]:
        yield PartStartEvent(index=0, part=TextPart(""))
        async for text in load.texts():
            yield PartDeltaEvent(index=0, delta=TextPartDelta(text))
        yield PartEndEvent(index=0, part=TextPart(""))

    def respond() -> Any:
        stream = VercelAIEventStream(sdk_version=6)
        return stream.streaming_response(stream.transform_stream(events()))

    return _starlette(respond)


def assistant_stream(load: Load) -> App:
    """It speaks its own protocol, one line per delta."""
    from assistant_stream import RunController, create_run
    from assistant_stream.serialization import DataStreamResponse

    async def answer(controller: RunController) -> None:
        async for text in load.texts():
            controller.append_text(text)

    return _starlette(lambda: DataStreamResponse(create_run(answer)))


_NEEDS: Final[Mapping[str, str]] = {
    "sse-starlette": "sse_starlette",
    "fastapi-ai-sdk": "fastapi_ai_sdk",
    "pydantic-ai: adapter only": "pydantic_ai",
    "assistant-stream": "assistant_stream",
}
APPS: Final[Mapping[str, Make]] = {
    BARE: bare,
    OURS: usechat,
    STREAMING_RESPONSE: streaming_response,
    "sse-starlette": sse_starlette,
    "fastapi-ai-sdk": fastapi_ai_sdk,
    "pydantic-ai: adapter only": pydantic_ai,
    "assistant-stream": assistant_stream,
    OURS_REDIS: usechat_redis,
    OURS_EXTERNAL: usechat_external,
}
_APART: Final = (OURS_REDIS, OURS_EXTERNAL)
"""Measured apart, because they need a Redis."""


def contestants() -> list[str]:
    """Return who is there to be compared; ours with Redis is measured apart."""
    here = [name for name in APPS if name not in _APART and (name not in _NEEDS or find_spec(_NEEDS[name]))]
    return [*here, NODE] if node_is_installed() else here
