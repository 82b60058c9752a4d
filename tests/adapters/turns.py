"""Turns as a server makes them, for tests that start no server."""

from collections.abc import Sequence
from typing import Any

import msgspec

from usechat.parts import Part
from usechat.protocol.request import ChatRequest
from usechat.sources import Adapter
from usechat.turn import Identity, Turn, TurnContext, TurnInput

Json = Any


def user(text: str, message_id: str = "u1", *more: Json) -> Json:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}, *more]}


def assistant(*parts: Json, message_id: str = "a1") -> Json:
    return {"id": message_id, "role": "assistant", "parts": list(parts)}


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def tool(name: str, call_id: str, state: str, **more: Json) -> Json:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, "input": {}, **more}


def request(*messages: Json, chat_id: str = "c1") -> ChatRequest:
    return ChatRequest.parse({"id": chat_id, "messages": list(messages)})


def turn_of(*messages: Json, identity: str | None = None, chat_id: str = "c1", has_whole_history: bool = False) -> Turn:
    """Return a turn; call it in a running event loop."""
    asker = None if identity is None else Identity(identity)
    chat_request = msgspec.structs.replace(request(*messages, chat_id=chat_id), has_whole_history=has_whole_history)
    return TurnContext(TurnInput(chat_request, identity=asker)).turn


def said_by(adapter: Adapter[Any], events: Sequence[Any]) -> list[Part]:
    """Return the parts of a whole run."""
    return [part for event in events for part in adapter.feed(event)] + list(adapter.close())
