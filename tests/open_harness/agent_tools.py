"""The tools of agents in tests."""

import asyncio
import threading

from usechat.errors import PublicError


def weather(city: str, days: int = 1) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "days": days, "celsius": 21}


async def broken(city: str) -> str:
    """Fail."""
    raise RuntimeError(f"no weather in {city}")


def closed(city: str) -> str:
    """Fail, and tell people why."""
    raise PublicError(f"The station of {city} is closed.")


async def slow(city: str) -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return city


def blocking(city: str) -> str:
    """Never answer, in a thread."""
    threading.Event().wait()
    return city
