"""Which tool requests are open, and which response belongs to which request.

The Go plugin for Gemini sets no ``ref`` (up to 1.12.0); others restart numbering it in every model call. So a response
belongs to the request with its ``ref``, or else to the oldest open one of its name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["OWN_ID", "ToolRequest", "ToolRequests"]

OWN_ID: Final = "genkit-"
"""The prefix of ids that we assign to requests without a ``ref``."""


class ToolRequest(msgspec.Struct):
    """A tool request: ``id`` is its id on the page, ``written`` is the JSON text of its input so far.

    ``echo``: the page knows its outcome, and Genkit may repeat it. ``asked``: a person was asked to approve it.
    """

    id: str
    name: str
    ref: str | None = None
    message: int = 0
    complete: bool = False
    answered: bool = False
    echo: bool = False
    asked: bool = False
    started: bool = False
    written: str = ""


class ToolRequests:
    """The tool requests of one answer; ``known`` are those of the message that the answer continues."""

    def __init__(self, new_id: Callable[[], str], known: Iterable[ToolRequest] = ()) -> None:
        self.new_id = new_id
        self._calls = list(known)
        self._message = 1

    def next_message(self) -> None:
        """Note that another model message starts: later requests are new, even under a ``ref`` that was used."""
        self._message += 1

    @property
    def open(self) -> list[ToolRequest]:
        """The requests without a response."""
        return [call for call in self._calls if not call.answered]

    def request(self, request: Mapping[str, Any]) -> ToolRequest:
        """Return the tracked request: one that is being streamed or repeated, or a new one."""
        name, ref = _name_and_ref(request)
        for call in self._calls:
            same = call.ref == ref if ref is not None else not call.complete and call.ref is None
            if same and call.name == name and call.message == self._message:
                return call
        return self._new(name, ref)

    def response(self, response: Mapping[str, Any]) -> ToolRequest | None:
        """Return the request of a response: a new one if there was none, ``None`` if the page has the response."""
        name, ref = _name_and_ref(response)
        call = _pick(name, ref, self.open)
        if call is None and (echo := _pick(name, ref, [call for call in self._calls if call.echo])):
            echo.echo = False
            return None
        call = call or self.request(response)
        call.complete = call.answered = True
        return call

    def restated(self, requests: Iterable[Mapping[str, Any]]) -> list[ToolRequest]:
        """Return the requests that Genkit sends once more, together; new ones are added."""
        found: list[ToolRequest] = []
        for request in requests:
            name, ref = _name_and_ref(request)
            known = (call for call in self._calls if call.message == self._message and call not in found)
            same = (call for call in known if call.name == name and (ref is None or call.ref == ref))
            found.append(next(same, None) or self._new(name, ref))
        return found

    def _new(self, name: str, ref: str | None) -> ToolRequest:
        own = ref is None or any(call.id == ref for call in self._calls)
        call = ToolRequest(f"{OWN_ID}{self.new_id()}" if own else str(ref), name, ref, self._message)
        self._calls.append(call)
        return call


def _pick(name: str, ref: str | None, calls: list[ToolRequest]) -> ToolRequest | None:
    by_ref = [call for call in reversed(calls) if ref is not None and call.ref == ref]
    by_name = [call for call in calls if call.name == name and (ref is None or call.ref is None)]
    return next(iter([*by_ref, *by_name]), None)


def _name_and_ref(value: Mapping[str, Any]) -> tuple[str, str | None]:
    name, ref = value.get("name"), value.get("ref")
    return (name if isinstance(name, str) and name else "unknown"), (ref if isinstance(ref, str) and ref else None)
