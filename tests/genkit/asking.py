"""Turns as a page makes them, and what a transport answers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from usechat import MessageBuilder, UIMessage
from usechat.protocol.request import ChatRequest
from usechat.sources import ChatTransport
from usechat.turn import Identity, Turn, TurnContext, TurnInput

Wire = dict[str, Any]


def user(text: str, *more: Wire, message_id: str = "u1") -> Wire:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}, *more]}


def assistant(*parts: Wire, **more: Any) -> Wire:
    return {"id": "a1", "role": "assistant", "parts": list(parts), **more}


def asked(*messages: Wire, **more: Any) -> ChatRequest:
    return ChatRequest.parse({"id": "c1", "messages": list(messages), **more})


def turn(
    *messages: Wire,
    identity: Identity | None = None,
    headers: Mapping[str, str] | None = None,
    pending_calls: frozenset[str] | None = None,
    **more: Any,
) -> Turn:
    return context(*messages, identity=identity, headers=headers, pending_calls=pending_calls, **more).turn


def context(
    *messages: Wire,
    identity: Identity | None = None,
    headers: Mapping[str, str] | None = None,
    pending_calls: frozenset[str] | None = None,
    **more: Any,
) -> TurnContext:
    request = msgspec.structs.replace(asked(*messages, **more), pending_calls=pending_calls)
    return TurnContext(TurnInput(request, identity, headers or {}))


async def answer(transport: ChatTransport, request: ChatRequest, *, message: UIMessage | None = None) -> UIMessage:
    """Return the message that a page would show; an error ends it with StreamFailed."""
    builder = MessageBuilder(sdk="7", message=message)
    async for chunk in await transport.send_messages(request):
        builder.receive(chunk)
    return builder.message


async def until(condition: Callable[[], object]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (what a flow does to a list tells nobody)
            await asyncio.sleep(0.005)


def text_of(message: UIMessage) -> str:
    """Return the text of a message."""
    return "".join(text for kind, text in shown(message) if kind == "text")


def shown(message: UIMessage) -> list[tuple[str, Any]]:
    """Return the parts in short: their kinds, and text, or the tool's state and outcome."""
    short: list[tuple[str, Any]] = []
    for part in message["parts"]:
        wire: Any = part
        if "state" in wire and wire["type"].startswith("tool-"):
            short.append((wire["type"], wire.get("output", wire.get("errorText", wire["state"]))))
        else:
            short.append((wire["type"], wire.get("text", wire.get("data", wire.get("url")))))
    return short
