"""The events of a flow's run: which there are, and what each must carry."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from usechat.open_harness.runtime_protocol import Event

__all__ = ["REQUIRED", "EndsAt", "lacking", "moment"]

EndsAt: TypeAlias = Literal["flow", "agent"]
"""Whose events end a stream: those of the whole flow, or those of a bare agent."""

_RUN: Final = ("nodeId", "runId")

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "flow:start": (),
    "flow:complete": (),
    "flow:paused": (),
    "flow:resumed": (),
    "flow:aborted": (),
    "flow:waiting": (),  # ours: nothing happens before a person has answered
    "node:start": _RUN,
    "node:complete": _RUN,
    "node:error": _RUN,
    "node:retry": _RUN,
    "node:skipped": ("nodeId",),
    "edge:fire": ("from", "to"),
    "loop:iterate": (),
    "state:patch": (),
    "command:received": (),
    "agent:start": _RUN,
    "agent:thinking:delta": (*_RUN, "content"),
    "agent:thinking": (*_RUN, "content"),
    "agent:text:delta": (*_RUN, "content"),
    "agent:text": (*_RUN, "content"),
    "agent:tool": _RUN,
    "agent:error": _RUN,
    "agent:complete": _RUN,
    "agent:paused": _RUN,
    "agent:aborted": _RUN,
    "recording:linked": (),
    "input:requested": ("id",),
    "input:received": (),
}
"""Every type of event, and the fields that it must have."""


def lacking(event: Event) -> str | None:
    """Return the first required field that an event of a known type lacks."""
    for key in REQUIRED[event["type"]]:
        value = event.get(key)
        if not isinstance(value, str) or not (value or key == "content"):
            return key
    return None


def moment(event: Event) -> float | None:
    """Return when the event happened, in milliseconds."""
    timestamp = event.get("timestamp")
    is_number = isinstance(timestamp, int | float) and not isinstance(timestamp, bool)
    return timestamp if is_number else None
