"""Genkit's chunks, parts and results in short, and what the adapter makes of them."""

import itertools
from typing import Any

from usechat import parts as p
from usechat.errors import UnknownEvent
from usechat.genkit.adapter import GenkitAdapter
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowResult

ROME, PARIS = {"city": "Rome"}, {"city": "Paris"}


def adapter(**options: Any) -> GenkitAdapter:
    return GenkitAdapter(new_id=map(str, itertools.count(1)).__next__, **options)


def fed(*events: FlowEvent, unknown: list[str] | None = None, **options: Any) -> list[p.Part]:
    """Return the parts of these events; the kinds of unknown ones are appended to `unknown`."""
    to = adapter(**options)
    parts: list[p.Part] = []
    for event in events:
        try:
            parts.extend(to.feed(event))
        except UnknownEvent as error:
            if unknown is not None:
                unknown.append(error.kind)
    return parts


def said(*chunks: Any, **options: Any) -> list[p.Part]:
    return fed(*map(FlowChunk, chunks), **options)


def chunk(*content: dict[str, Any], role: str = "model", index: float | None = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content), **({} if index is None else {"index": index}), **more}


def request(city: Any = None, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"toolRequest": {"name": name, **({} if city is None else {"input": city}), **more}}


def response(output: Any, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"toolResponse": {"name": name, "output": output, **more}}


def model_response(*content: dict[str, Any], reason: str = "stop", **more: Any) -> FlowResult:
    return FlowResult({"message": {"role": "model", "content": list(content)}, "finishReason": reason, **more})
