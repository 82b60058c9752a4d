"""What a workflow's stream says of an answer, and how it is read. No I/O, and nothing of Temporal.

A workflow hosts a stream of items, each with an offset. Activities append to it by signals, the workflow appends
itself, and the items stay readable from any offset while its history is kept. One topic of it is an answer:

- A *part* (:mod:`usechat.parts`), as JSON: ``{"part": ["Text", {"text": "Hel"}]}``.
- A *marker*, which begins the work of an activity: ``{"step": "3", "attempt": 1, "begins": "…"}``.
- A *wait*: the workflow waits for answers of the page, ``{"waits": true}``. The turn ends, and the next one reads on.
- The *end*, behind which nothing follows: ``{"end": true}``.

**Retries.** Temporal runs an activity again whose worker died. What it had said is in the stream already, and the next
attempt says it once more. So everything that an activity says names its step, the id that Temporal gave the activity,
and the attempt. :class:`AnswerReader` lets a later attempt replace what the earlier one said of a model's answer
(``ResetStep``), and drops what an earlier attempt says after a later one has begun: its worker was only slow.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from usechat.adapters.conversation import INCOMPLETE
from usechat.errors import LocalProtocolError, UnknownEvent
from usechat.protocol.parts import Error, Part, ResetStep, Step
from usechat.protocol.values import json_value

__all__ = ["ANSWERS", "END", "TOPIC", "WAITS", "AnswerReader", "Begins", "StreamItem", "item_of", "marker"]

TOPIC: Final = "usechat"
"""The topic of the answer in the workflow's stream."""
Begins: TypeAlias = Literal["step", "work"]
"""What a marker begins: a step of the answer, which a retry replaces, or other work, whose parts stay."""
StreamItem: TypeAlias = Mapping[str, Any]
END: Final[StreamItem] = {"end": True}
WAITS: Final[StreamItem] = {"waits": True}
ANSWERS: Final = "usechat_answers"
"""The signal that brings the answers of the page to a workflow that waits."""
_KINDS: Final[Mapping[str, type[Any]]] = {kind.__name__: kind for kind in get_args(Part)}


def item_of(part: Part, *, step: str = "", attempt: int = 0) -> StreamItem:
    """Return the item that holds a part; ``step`` and ``attempt`` are those of the activity that says it.

    >>> from usechat.parts import Text
    >>> item_of(Text("Hello"))
    {'part': ['Text', {'text': 'Hello'}]}
    """
    kind = type(part).__name__
    if kind not in _KINDS:
        raise LocalProtocolError(f"an answer is published in parts, not as {kind}; see usechat.parts")
    fields = {
        field.name: json_value(value)
        for field in msgspec.structs.fields(part)
        if (value := getattr(part, field.name)) != field.default
    }
    return {"part": [kind, fields], **({"step": step, "attempt": attempt} if step else {})}


def marker(begins: Begins, *, step: str, attempt: int) -> StreamItem:
    """Return the item that begins the work of an activity.

    >>> marker("step", step="3", attempt=1)
    {'begins': 'step', 'step': '3', 'attempt': 1}
    """
    return {"begins": begins, "step": step, "attempt": attempt}


def _part_in(item: StreamItem) -> Part:
    kind, fields = item["part"]
    if kind not in _KINDS:
        raise UnknownEvent(str(kind))
    part: Part = msgspec.convert(fields, _KINDS[kind])
    return part


class AnswerReader:
    """Turns the items of a workflow's stream into parts; the adapter of one turn.

    >>> from usechat.parts import Text
    >>> reader = AnswerReader()
    >>> [part for attempt in (1, 2) for part in reader.feed(marker("step", step="3", attempt=attempt))]
    [Step(leaves_calls=False, lane=''), ResetStep(lane='')]
    >>> reader.feed(item_of(Text("late"), step="3", attempt=1))
    []
    """

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}
        self._last_step = ""
        self._has_ended = False

    def feed(self, item: Any) -> list[Part]:
        """Return the parts of an item. Raises :class:`~usechat.errors.UnknownEvent` for an item of another kind."""
        if not isinstance(item, Mapping):
            raise UnknownEvent(type(item).__name__)
        if item.get("attempt", 0) < self._attempts.get(item.get("step", ""), 0):
            return []  # of an attempt that another has replaced
        match item:
            case {"begins": "step", "step": step, "attempt": attempt}:
                # A step beside which another has begun is not dropped: what that one has said would go with it.
                is_retry = step in self._attempts and step == self._last_step
                self._attempts[step], self._last_step = attempt, step
                return [ResetStep() if is_retry else Step()]
            case {"begins": "work", "step": step, "attempt": attempt}:
                self._attempts[step] = attempt
                return []
            case {"part": _}:
                return [_part_in(item)]
            case {"end": _} | {"waits": _}:
                self._has_ended = True
                return []
        raise UnknownEvent(", ".join(map(str, item)))

    def close(self, error: BaseException | None = None) -> list[Part]:
        """Return the ending of a stream that has none."""
        return [] if self._has_ended or error is not None else [Error(INCOMPLETE)]
