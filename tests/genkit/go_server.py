"""A scripted server that repeats what Genkit Go servers send; Go Genkit itself cannot be installed here.

The facts were seen on real servers (Go 1.4 to 1.12): tool requests are streamed without a ``ref``; the result has one
that the server made afterwards; a stored session is resumed by that ``ref`` alone; a restarted tool reads
``{approved: bool}``; a response must fit the tool's output schema (here: a string); ``tool.SendPartial`` is a
``toolResponse`` with ``metadata.partial``.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

Wire = dict[str, Any]


def app() -> Starlette:
    """Return the server. Its agent is at ``/agent``; the last message names what it does."""
    return Starlette(routes=[Route("/agent", _Agent().answer, methods=["POST"])])


class _Agent:
    """An agent that stores its sessions: the calls of each that wait for an answer, by their refs."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Wire]] = {}

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        session = body["init"]["sessionId"]
        data = body["data"]
        script = self._resume(session, data["resume"]) if "resume" in data else self._start(session, data["message"])
        frames = (f"data: {json.dumps(frame)}\n\n" for frame in script)
        return StreamingResponse(frames, media_type="text/event-stream")

    def _start(self, session: str, message: Wire) -> Iterator[Wire]:
        text = message["content"][0]["text"]
        if text == "delete":
            return self._interrupted(session, "delete", "Rome", "Paris")
        if text == "check and delete":
            return self._interrupted(session, "delete", "Rome", progress=True)
        return _with_progress(session)

    def _interrupted(self, session: str, name: str, *cities: str, progress: bool = False) -> Iterator[Wire]:
        requests = [{"name": name, "input": {"city": city}} for city in cities]
        yield _chunk("model", 0, {"text": "May I?"})
        yield _chunk("model", 0, *({"toolRequest": request} for request in requests))
        waiting = {str(uuid.uuid4()): request for request in requests}
        self._waiting[session] = waiting
        for ref in waiting if progress else ():
            yield _chunk("tool", 1, _partial({"name": name, "output": {"percent": 50}, "ref": ref}))
        restated = [
            {"toolRequest": {**request, "ref": ref}, "metadata": {"interrupt": {"reason": "Sure?"}}}
            for ref, request in waiting.items()
        ]
        yield {"message": {"turnEnd": {"snapshotId": "s1", "finishReason": "interrupted"}}}
        yield _result(session, "interrupted", {"text": "May I?"}, *restated)

    def _resume(self, session: str, resume: Wire) -> Iterator[Wire]:
        waiting = self._waiting.pop(session)
        outputs: dict[str, Any] = {}
        for part in resume.get("respond", ()):
            outputs[part["toolResponse"].get("ref")] = part["toolResponse"]["output"]
        for part in resume.get("restart", ()):
            approved = part["metadata"]["resumed"]["approved"]
            city = part["toolRequest"]["input"]["city"]
            outputs[part["toolRequest"].get("ref")] = f"{city} is gone" if approved else f"{city} is still there"
        if outputs.keys() != waiting.keys():
            yield _error(f"resume.respond references tool {outputs.keys() ^ waiting.keys()} not found")
        elif not all(isinstance(output, str) for output in outputs.values()):
            yield _error("data did not match expected schema: type: expected string")
        else:
            responses = [
                {"toolResponse": {"name": request["name"], "ref": ref, "output": outputs[ref]}}
                for ref, request in waiting.items()
            ]
            yield _chunk("tool", 0, *responses)
            yield _chunk("model", 1, {"text": "Thanks."})
            yield _result(session, "stop", {"text": "Thanks."})


def _with_progress(session: str) -> Iterator[Wire]:
    response = {"name": "weather", "output": {"celsius": 4}}
    yield _chunk("model", 0, {"toolRequest": {"name": "weather", "input": {"city": "Rome"}}})
    for percent in (10, 90):
        yield _chunk("tool", 1, _partial({"name": "weather", "output": {"percent": percent}, "ref": "of the server"}))
    yield _chunk("tool", 1, {"toolResponse": response})
    yield _chunk("model", 2, {"text": "Warm."})
    yield _result(session, "stop", {"text": "Warm."})


def _partial(response: Wire) -> Wire:
    return {"toolResponse": response, "metadata": {"partial": True}}


def _chunk(role: str, index: int, *content: Wire) -> Wire:
    return {"message": {"modelChunk": {"role": role, "index": index, "content": list(content)}}}


def _result(session: str, reason: str, *content: Wire) -> Wire:
    message = {"role": "model", "content": list(content)}
    return {"result": {"sessionId": session, "snapshotId": "s1", "finishReason": reason, "message": message}}


def _error(text: str) -> Wire:
    return {"error": {"status": "INVALID_ARGUMENT", "message": text}}
