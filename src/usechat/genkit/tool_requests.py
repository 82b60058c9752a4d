"""Which tool requests are open, and which response belongs to which request.

The Go plugin for Gemini gives a request no ``ref`` (up to 1.12.0), others count it anew in every model call. So a
response belongs to the request with its ``ref``, or else to the oldest open one of its name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["OWN_ID", "CallBook", "OpenCall"]

OWN_ID: Final = "genkit-"
"""How the ids of calls begin that Genkit gave no ``ref``."""


class OpenCall(msgspec.Struct):
    """A request: ``id`` is what the page knows it by, ``written`` is the JSON text of its input so far.

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


class CallBook:
    """The requests of one answer; ``known`` are those of the message that the answer goes on with."""

    def __init__(self, new_id: Callable[[], str], known: Iterable[OpenCall] = ()) -> None:
        self.new_id = new_id
        self._calls = list(known)
        self._message = 1

    def next_message(self) -> None:
        """Another model message begins: requests from now on are new ones, even under a ``ref`` that was used."""
        self._message += 1

    @property
    def open(self) -> list[OpenCall]:
        """The requests without a response."""
        return [call for call in self._calls if not call.answered]

    def request(self, request: Mapping[str, Any]) -> OpenCall:
        """Return the call of a request: one that is being written or repeated, or a new one."""
        name, ref = _name_and_ref(request)
        for call in self._calls:
            same = call.ref == ref if ref is not None else not call.complete and call.ref is None
            if same and call.name == name and call.message == self._message:
                return call
        return self._new(name, ref)

    def response(self, response: Mapping[str, Any]) -> OpenCall | None:
        """Return the call that a response belongs to: a new one if nobody asked, none if the page knows the answer."""
        name, ref = _name_and_ref(response)
        call = _pick(name, ref, self.open)
        if call is None and (echo := _pick(name, ref, [call for call in self._calls if call.echo])):
            echo.echo = False
            return None
        call = call or self.request(response)
        call.complete = call.answered = True
        return call

    def restated(self, requests: Iterable[Mapping[str, Any]]) -> list[OpenCall]:
        """Return the calls of requests that are told once more, all together; those that are new are taken in."""
        found: list[OpenCall] = []
        for request in requests:
            name, ref = _name_and_ref(request)
            known = (call for call in self._calls if call.message == self._message and call not in found)
            same = (call for call in known if call.name == name and (ref is None or call.ref == ref))
            found.append(next(same, None) or self._new(name, ref))
        return found

    def _new(self, name: str, ref: str | None) -> OpenCall:
        own = ref is None or any(call.id == ref for call in self._calls)
        call = OpenCall(f"{OWN_ID}{self.new_id()}" if own else str(ref), name, ref, self._message)
        self._calls.append(call)
        return call


def _pick(name: str, ref: str | None, calls: list[OpenCall]) -> OpenCall | None:
    by_ref = [call for call in reversed(calls) if ref is not None and call.ref == ref]
    by_name = [call for call in calls if call.name == name and (ref is None or call.ref is None)]
    return next(iter([*by_ref, *by_name]), None)


def _name_and_ref(value: Mapping[str, Any]) -> tuple[str, str | None]:
    name, ref = value.get("name"), value.get("ref")
    return (name if isinstance(name, str) and name else "unknown"), (ref if isinstance(ref, str) and ref else None)
