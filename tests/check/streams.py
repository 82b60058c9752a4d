"""Streams for the checker, and its answers in short."""

import json
from typing import Any

from usechat.check import Capture, check_capture

Json = Any
START = {"type": "start", "messageId": "m"}
FINISH = {"type": "finish"}
STEP = [{"type": "start-step"}]
STEP_END = [{"type": "finish-step"}]
CALL = {"toolCallId": "c", "toolName": "search"}
INPUT = {"type": "tool-input-available", **CALL, "input": {}}
OUTPUT = {"type": "tool-output-available", "toolCallId": "c", "output": 1}


def text(block_id: str = "t", delta: str = "Hi", kind: str = "text") -> list[Json]:
    return [
        {"type": f"{kind}-start", "id": block_id},
        {"type": f"{kind}-delta", "id": block_id, "delta": delta},
        {"type": f"{kind}-end", "id": block_id},
    ]


def stream(*chunks: Json, done: bool = True) -> bytes:
    """Return an event stream; texts are written as they are, everything else as JSON."""
    events = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks] + ["[DONE]"] * done
    return b"".join(f"data: {event}\n\n".encode() for event in events)


def turn(*chunks: Json) -> bytes:
    """Return a stream that begins and ends as it should."""
    return stream(START, *chunks, FINISH)


def found(body: bytes, *sdks: str) -> list[tuple[str, int | None]]:
    """Return the rules that are broken, and in which frames."""
    report = check_capture(Capture(name="-", body=body), sdks or ("5", "6", "7"))
    return [(problem.rule.id, problem.frame) for problem in report.problems]
