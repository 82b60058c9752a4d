"""What happens in a turn, in words that both dialects share."""

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["Began", "Dialect", "Ended", "Happening", "ToolChanged", "Wrote", "WroteSoFar"]

Dialect: TypeAlias = Literal["runner", "client"]


class Began(msgspec.Struct, frozen=True):
    """A turn began, in this channel."""

    turn_id: str
    channel: str
    dialect: Dialect


class Wrote(msgspec.Struct, frozen=True):
    """More text came."""

    turn_id: str
    text: str
    dialect: Dialect


class WroteSoFar(msgspec.Struct, frozen=True):
    """All text of the turn so far; it fills gaps."""

    turn_id: str
    text: str


class ToolChanged(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call stands like this now, perhaps as before."""

    turn_id: str
    call_id: str
    tool_name: str
    status: str
    args: Any = None
    result: Any = None
    error: str | None = None


class Ended(msgspec.Struct, frozen=True):
    """A turn ended. One that failed before any output may have no id."""

    turn_id: str | None
    reason: str
    final_text: str | None = None
    error: str | None = None


Happening: TypeAlias = Began | Wrote | WroteSoFar | ToolChanged | Ended
