"""The parts of a message that is being read, with the indexes that make finding one cheap."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from usechat.ui_messages import is_dynamic_tool, is_static_tool

__all__ = ["Part", "PartList", "is_tool"]

Part: TypeAlias = dict[str, Any]
"""A part in the making: wire keys; a key whose JavaScript value is ``undefined`` is absent."""


class PartList:
    """The parts in order, cut into steps by ``step-start`` parts."""

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts: list[Part] = []
        self.step = 0
        self._step_start = 0
        self._calls: dict[str | None, list[tuple[int, Part]]] = {}
        self._data: dict[tuple[str, str | None], Part] = {}
        for part in parts:
            self.append(part)

    def append(self, part: Part) -> None:
        """Add a part at the end."""
        self.parts.append(part)
        if part["type"] == "step-start":
            self.step += 1
            self._step_start = len(self.parts)
        elif is_tool(part):
            self._calls.setdefault(_key(part, "toolCallId"), []).append((self.step, part))
        else:
            self._data.setdefault((part["type"], _key(part, "id")), part)

    def data(self, part_type: str, part_id: str) -> Part | None:
        """Return the first part with this type and id."""
        return self._data.get((part_type, part_id))

    def current_step(self) -> list[Part]:
        """Return the parts since the last step boundary."""
        return self.parts[self._step_start :]

    def tools(self) -> Iterator[Part]:
        """Yield every tool part in order."""
        return filter(is_tool, self.parts)

    def calls(self, tool_call_id: str) -> list[Part]:
        """Return every part of a tool call in order."""
        return [part for _, part in self._calls.get(tool_call_id, ())]

    def calls_in_step(self, tool_call_id: str) -> list[Part]:
        """Return the parts of a tool call in the current step, in order."""
        found = []
        for step, part in reversed(self._calls.get(tool_call_id, ())):
            if step != self.step:
                break
            found.append(part)
        return found[::-1]

    def reset_step(self) -> bool:
        """Drop the parts since the last step boundary; tell whether there were any."""
        dropped = self.current_step()
        del self.parts[self._step_start :]
        for part in dropped:
            if is_tool(part):
                self._calls[_key(part, "toolCallId")].pop()
            elif self._data.get((part["type"], _key(part, "id"))) is part:
                del self._data[part["type"], _key(part, "id")]
        return bool(dropped)


def is_tool(part: Part) -> bool:
    """Tell whether the part is a tool call of either kind."""
    return is_static_tool(part["type"]) or is_dynamic_tool(part["type"])


def _key(part: Part, name: str) -> str | None:
    """Return an id; None if it is none, as it can be in a message that someone else made."""
    value = part.get(name)
    return value if isinstance(value, str) else None
