"""All routes, with an agent that calls a tool and reports its progress: `usechat serve examples/chat_app.py:app`."""

import asyncio
from collections.abc import AsyncIterator

from usechat import Text, ToolCall, ToolResult, Turn, emit
from usechat.server import ChatApp, Settings, Timeouts


async def weather(city: str) -> dict[str, int]:
    """Return the weather. `emit` works in any function that the agent calls; you need not pass an object to it."""
    for percent in (0, 50, 100):
        emit("progress", {"city": city, "percent": percent}, id="weather")
        await asyncio.sleep(0.2)
    return {"celsius": 21}


async def agent(turn: Turn) -> AsyncIterator[Text | ToolCall | ToolResult]:
    yield Text("Let me look. ")
    yield ToolCall("call-1", "weather", {"city": "Paris"})
    forecast = await weather("Paris")
    yield ToolResult("call-1", forecast)
    for word in f"It is {forecast['celsius']} °C in Paris. You asked: {turn.text}".split():
        yield Text(f"{word} ")
        await asyncio.sleep(0.05)


# For several workers: runs=RedisRuns("redis://localhost:6379"). For authentication: authorize=bearer(...).
app = ChatApp(agent, settings=Settings(conflict="interrupt", timeouts=Timeouts(idle=30)))
