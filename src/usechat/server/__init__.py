"""Runs on the network: ASGI endpoints that a stock AI SDK front end talks to."""

from usechat.server.app import ChatApp
from usechat.server.endpoint import chat_response
from usechat.server.settings import Settings

__all__ = ["ChatApp", "Settings", "chat_response"]
