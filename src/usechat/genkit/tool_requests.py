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

_EARLIER: Final = 0
"""The number of the message that the answer continues; the messages of the answer itself count from 1."""

OWN_ID: Final = "genkit-"
"""The prefix of ids that we assign to requests without a ``ref``."""


class ToolRequest(msgspec.Struct):
    """A tool request: ``id`` is its id on the page, ``input_text`` the JSON text of its input so far.

    ``echo``: the page knows its outcome, and Genkit may repeat it. ``has_approval_request``: a person was asked
    to approve it.
    ``has_progress``: the page shows a preliminary output. ``is_ref_late``: the ``ref`` became known after the page had
    got the call. ``by_order``: its response could belong to another open call of the same name.
    """

    id: str
    name: str
    ref: str | None = None
    message: int = _EARLIER
    complete: bool = False
    has_response: bool = False
    echo: bool = False
    has_approval_request: bool = False
    started: bool = False
    input_text: str = ""
    input: Any = None
    has_progress: bool = False
    is_ref_late: bool = False
    by_order: bool = False


class ToolRequests:
    """The tool requests of one answer; ``calls`` are those of the message that the answer continues."""

    def __init__(self, new_id: Callable[[], str], calls: Iterable[ToolRequest] = ()) -> None:
        self.new_id = new_id
        self._calls = list(calls)
        self._message = 1

    def next_message(self) -> None:
        """Note that another model message starts: later requests are new, even under a ``ref`` that was used."""
        self._message += 1

    @property
    def open(self) -> list[ToolRequest]:
        """The requests without a response."""
        return [call for call in self._calls if not call.has_response]

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

    def response(self, response: Mapping[str, Any], *, is_pending: bool = False) -> ToolRequest | None:
        """Return the request of a response: a new one if there was none, ``None`` if the page has the response.

        ``is_pending``: the tool ran before another one was interrupted, so the page has the response.
        """
        name, ref = _name_and_ref(response)
        echo = _pick(name, ref, [call for call in self._calls if call.echo])
        call = None if is_pending and echo else _pick(name, ref, self.open)
        if call is None and echo is not None:
            echo.echo = False
            return None
        self._mark_parallel(call)
        call = call or self.request(response)
        call.complete = call.has_response = True
        return call

    def progress(self, response: Mapping[str, Any]) -> ToolRequest | None:
        """Return the open request of a partial response, if there is one. The request stays open, and gets no ref."""
        call = _pick(*_name_and_ref(response), self.open)
        self._mark_parallel(call)
        return call

    def restated(self, parts: Iterable[Mapping[str, Any]]) -> list[ToolRequest]:
        """Return the requests of content parts that Genkit sends once more, together; new ones are added."""
        calls: list[ToolRequest] = []
        for part in parts:
            name, ref = _name_and_ref(part["toolRequest"])
            call = self._find(part, calls) or self._new(name, ref)
            if call.ref is None and ref is not None:
                call.ref, call.is_ref_late = ref, True
            calls.append(call)
        return calls

    def is_interrupted_again(self, parts: Iterable[Mapping[str, Any]]) -> bool:
        """Tell whether restated requests are those of the message that the answer continues."""
        calls = [self._find(part) for part in parts]
        return any(call is not None and call.message == _EARLIER for call in calls)

    def _restatable(self, *, is_interrupted: bool) -> list[ToolRequest]:
        """Return the calls that a request may restate: an interrupted one is open, of others the answered come first.

        A tool that was restarted may be interrupted again (Go, Python). So until the second message of the answer,
        the calls of the message that it continues may be restated, too.
        """
        earlier = [call for call in self._calls if call.message == _EARLIER]
        is_resumed = self._message == 1 and not all(call.has_response for call in earlier)
        current = [call for call in self._calls if call.message == self._message]
        calls = [*_answered_first(current), *(_answered_first(earlier) if is_resumed else ())]
        return [call for call in calls if not (is_interrupted and call.has_response)]

    def _find(self, part: Mapping[str, Any], matches: Iterable[ToolRequest] = ()) -> ToolRequest | None:
        """Return the call that a request restates; those in ``matches`` belong to other requests.

        Its ref counts, or else its input, if that is complete: what a person approves must be what the page shows.
        """
        request, metadata = part["toolRequest"], part.get("metadata")
        is_interrupted = isinstance(metadata, Mapping) and "interrupt" in metadata
        name, ref = _name_and_ref(request)
        calls = [call for call in self._restatable(is_interrupted=is_interrupted) if call.name == name]
        calls = [call for call in calls if not any(call is each for each in matches)]
        unnamed = [call for call in calls if ref is None or call.ref is None]
        candidates = [
            *(call for call in calls if ref is not None and call.ref == ref and self._may_be(call, request)),
            *(call for call in unnamed if call.complete and _has_input(call, request)),
            *(call for call in unnamed if not call.complete),
        ]
        return next(iter(candidates), None)

    def _may_be(self, call: ToolRequest, request: Mapping[str, Any]) -> bool:
        """Tell whether a call with the ref of a request is the same: some plugins use the refs of one message again."""
        return call.message == self._message or _has_input(call, request)

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


def _answered_first(calls: list[ToolRequest]) -> list[ToolRequest]:
    return sorted(calls, key=lambda call: not call.has_response)


def _has_input(call: ToolRequest, request: Mapping[str, Any]) -> bool:
    return bool((call.input or {}) == (request.get("input") or {}))


def _pick(name: str, ref: str | None, calls: list[ToolRequest]) -> ToolRequest | None:
    by_ref = [call for call in reversed(calls) if ref is not None and ref in (call.ref, call.id)]
    by_name = [call for call in calls if call.name == name and (ref is None or call.ref is None)]
    return next(iter([*by_ref, *by_name]), None)


def _name_and_ref(value: Mapping[str, Any]) -> tuple[str, str | None]:
    name, ref = value.get("name"), value.get("ref")
    return (name if isinstance(name, str) and name else "unknown"), (ref if isinstance(ref, str) and ref else None)
