"""Genkit's chunks, parts and results in short, and what the adapter makes of them."""

import itertools
from typing import Any

from usechat import parts as p
from usechat.genkit.adapter import GenkitAdapter
from usechat.genkit.wire import Event, Message, Result

ROME, PARIS = {"city": "Rome"}, {"city": "Paris"}


def adapter(**options: Any) -> GenkitAdapter:
    return GenkitAdapter(new_id=map(str, itertools.count(1)).__next__, **options)


def fed(*events: Event, **options: Any) -> list[p.Part]:
    made = adapter(**options)
    return [part for event in events for part in made.feed(event)]


def said(*chunks: Any, **options: Any) -> list[p.Part]:
    return fed(*map(Message, chunks), **options)


def chunk(*content: dict[str, Any], role: str = "model", index: float | None = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content), **({} if index is None else {"index": index}), **more}


def request(city: Any = None, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"toolRequest": {"name": name, **({} if city is None else {"input": city}), **more}}


def response(output: Any, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"toolResponse": {"name": name, "output": output, **more}}


def model_response(*content: dict[str, Any], reason: str = "stop", **more: Any) -> Result:
    return Result({"message": {"role": "model", "content": list(content)}, "finishReason": reason, **more})
