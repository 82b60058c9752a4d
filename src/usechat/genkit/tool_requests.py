"""Which tool requests are open, and which response belongs to which request.

The Go plugin for Gemini sets no ``ref`` (up to 1.12.0); others restart numbering it in every model call. So a response
belongs to the request with its ``ref``, or else to the oldest open one of its name.

Go 1.4 and newer stream a request without a ``ref`` and add one to the result (``ensureToolRequestRefs``). An agent that
stores its session finds the request only by that late ``ref``, so it is kept in :attr:`ToolRequests.late_refs`.
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
    ``is_ref_late``: the ``ref`` became known after the page had got the call. ``by_order``: its response could belong
    to another open call of the same name.
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
    input: Any = None
    is_ref_late: bool = False
    by_order: bool = False


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

    @property
    def late_refs(self) -> dict[str, str]:
        """The refs that became known after the page had got the call, by the call's id on the page."""
        return {call.id: call.ref for call in self._calls if call.is_ref_late and call.ref is not None}

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
        self._mark_parallel(call)
        call = call or self.request(response)
        call.complete = call.answered = True
        return call

    def progress(self, response: Mapping[str, Any]) -> ToolRequest | None:
        """Return the open request of a partial response, if there is one. The request stays open, and gets no ref."""
        call = _pick(*_name_and_ref(response), self.open)
        self._mark_parallel(call)
        return call

    def restated(self, requests: Iterable[Mapping[str, Any]]) -> list[ToolRequest]:
        """Return the requests that Genkit sends once more, together; new ones are added."""
        found: list[ToolRequest] = []
        for request in requests:
            name, ref = _name_and_ref(request)
            calls = [call for call in self._calls if call.name == name and call.message == self._message]
            calls = [call for call in calls if not any(call is each for each in found)]
            same = [call for call in calls if ref is None or call.ref == ref]
            found.append(next(iter(same), None) or self._bind(calls, request) or self._new(name, ref))
        return found

    def _bind(self, calls: list[ToolRequest], request: Mapping[str, Any]) -> ToolRequest | None:
        """Give a late ``ref`` to the call without one that has the same input; the open ones come first."""
        given = request.get("input") or {}
        same = [call for call in calls if call.ref is None and (call.input or {}) == given]
        call = next(iter(sorted(same, key=lambda each: each.answered)), None)
        if call is not None:
            call.ref, call.is_ref_late = _name_and_ref(request)[1], True
        return call

    def _mark_parallel(self, call: ToolRequest | None) -> None:
        """Mark the open calls of one name without a ``ref``, if one of them gets a response by its order alone.

        JavaScript and Go 1.1 send responses in the order in which tools end, so the order may be wrong.
        """
        if call is not None and call.ref is None:
            parallel = [each for each in self.open if each.name == call.name and each.ref is None]
            for each in parallel if len(parallel) > 1 else ():
                each.by_order = True

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
