"""Runs on the network: ASGI endpoints that a stock AI SDK front end talks to."""

from typing import Any

from usechat.server.app import ChatApp
from usechat.server.endpoints import chat_response
from usechat.server.settings import Settings, cancel_after

__all__ = ["ChatApp", "RedisRuns", "Settings", "cancel_after", "chat_response"]


def __getattr__(name: str) -> Any:
    if name == "RedisRuns":  # imported on use: it needs the extra `redis`
        from usechat.runs.redis.store import RedisRuns

        return RedisRuns
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
