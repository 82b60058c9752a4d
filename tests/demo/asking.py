"""Asks the demo, as a page does, and tells what the message became."""

import json
from functools import cache
from typing import Any, cast

from usechat.demo.app import Guide
from usechat.demo.script import script
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.settings import Settings
from usechat.runs.transport import RunChatTransport


@cache
def guide() -> RunChatTransport:
    return RunChatTransport(Guide(script(pace=0), pace=0), settings=Settings(sdk="7"))


def user(text: str, number: int = 1) -> dict[str, Any]:
    return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}


async def answered(*messages: dict[str, Any], chat: str, by: RunChatTransport | None = None) -> dict[str, Any]:
    """Send the messages of a chat and return the message that the answer makes."""
    request = ChatRequest.parse(json.dumps({"id": chat, "messages": messages}).encode())
    last = messages[-1] if messages[-1]["role"] == "assistant" else None
    builder = MessageBuilder(sdk="7", message=cast("UIMessage | None", last))
    async for chunk in await (by or guide()).send_messages(request):
        builder.receive(chunk)
    return cast("dict[str, Any]", builder.message)


def texts(message: dict[str, Any]) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


def data(message: dict[str, Any]) -> dict[str, Any]:
    return {part["type"]: part["data"] for part in message["parts"] if part["type"].startswith("data-")}


def cited(message: dict[str, Any]) -> list[str]:
    return [part["url"] for part in message["parts"] if part["type"] == "source-url"]


def tools(message: dict[str, Any]) -> dict[str, str]:
    return {part["type"]: part["state"] for part in message["parts"] if part["type"].startswith("tool-")}
