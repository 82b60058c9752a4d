"""The input of a flow: what a request holds, under the keys that the flow reads.

A flow finds the user's text at ``flow.input.message``. Most flows that were not written for a chat read another key,
such as ``flow.input.topic``. The expressions of a flow show which keys it reads, so:

- The application's own fields of the request body are keys of the input.
- ``input`` says where further keys come from: ``text`` is the text of the message, ``body.depth`` a field of the body.
- If the flow reads exactly one key that has no source, that key gets the text; also one that may be missing, if the
  flow reads nothing else of the message.
- A key that is still missing when a request comes fails the turn. A key whose existence the flow asks for
  (``$exists(flow.input.depth)``, ``flow.input.depth ?? 3``, ``flow.input.depth ?: 3``) may be missing.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from usechat.errors import InvalidSetting, PublicError
from usechat.input_mapping import mapped_values, require_sources
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.flow.expressions import expressions_in, expressions_of_condition, read_syntax
from usechat.turn import Turn

__all__ = ["FlowInputs"]

_logger: Final = logging.getLogger("usechat.open_harness")

_OURS: Final = ("message", "messages", "files", "chatId")


class FlowInputs:
    """Makes the inputs of flows from turns. ``mapping`` holds the source of each key: ``text`` or ``body.FIELD``.

    Raises :class:`~usechat.errors.InvalidSetting` for a mapping that cannot be one.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._mapping = dict(mapping or {})
        self._latest: tuple[FlowDefinition, _InputKeys] | None = None
        self._logged: set[str] = set()
        for key in self._mapping.keys() & {*_OURS}:
            raise InvalidSetting(f"input: {key!r} always comes from the chat; map another key")
        require_sources(self._mapping)

    def prepare(self, flow: FlowDefinition) -> "_InputKeys":
        """Find the keys that a flow reads. The first time, log those for which no source is named."""
        if self._latest is None or self._latest[0] is not flow:
            self._latest = flow, _InputKeys(flow, self._mapping)
        keys = self._latest[1]
        if (text := keys.notice(flow.name)) and text not in self._logged:
            self._logged.add(text)
            _logger.warning("%s", text)
        return keys

    def of(self, turn: Turn, flow: FlowDefinition | None) -> dict[str, Any]:
        """Return the input for a turn; ``flow`` is ``None`` if it runs elsewhere.

        Raises :class:`~usechat.errors.PublicError` that names the keys which the flow reads and which have no value.
        """
        given = {**turn.body, **mapped_values(self._mapping, turn)}
        if flow is not None:
            given = self._complete(flow, given, turn.text)
        return {
            **given,
            "message": turn.text,
            "messages": turn.messages,
            "files": turn.files,
            "chatId": turn.chat_id,
        }

    def with_text(self, flow: FlowDefinition, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input that another process gave for a flow; the one key that has no source gets its message.

        Raises :class:`~usechat.errors.PublicError` as :meth:`of` does.
        """
        return self._complete(flow, given, given.get("message"))

    def _complete(self, flow: FlowDefinition, given: Mapping[str, Any], text: Any) -> dict[str, Any]:
        keys = self.prepare(flow)
        completed = dict(given)
        if keys.guessed is not None and isinstance(text, str):
            completed.setdefault(keys.guessed, text)
        if missing := sorted(keys.required - completed.keys()):
            names = ", ".join(f"“{name}”" for name in missing)
            raise PublicError(f"The flow needs {names}, and the request does not have it.")
        return completed


class _InputKeys:
    """The keys of ``flow.input`` that one flow reads: those it cannot do without, and the one that gets the text."""

    def __init__(self, flow: FlowDefinition, mapping: Mapping[str, str]) -> None:
        syntaxes = [read_syntax(text) for text in _expressions(flow)]
        read = {key for syntax in syntaxes for key in syntax.input_keys}
        optional = {key for syntax in syntaxes for key in syntax.optional_keys}
        self.required = frozenset(read - optional - {*_OURS})
        self._unmapped = sorted(self.required - mapping.keys())
        hears_nothing = not mapping and not read & {"message", "messages"}
        candidates = self._unmapped or (sorted(optional - {*_OURS}) if hears_nothing else [])
        self.guessed = candidates[0] if len(candidates) == 1 else None

    def notice(self, flow_name: str) -> str:
        """Return what the log should say about keys without a source; empty if there are none."""
        if self.guessed is not None:
            return (
                f'flow "{flow_name}" reads flow.input.{self.guessed}: it gets the text of the message, unless the '
                f"request body has that field; --input {self.guessed}=body.FIELD names another source"
            )
        if self._unmapped:
            read = ", ".join(f"flow.input.{key}" for key in self._unmapped)
            return (
                f'flow "{flow_name}" reads {read}: a request needs these fields in its body; '
                f"--input {self._unmapped[0]}=text, or input= in code, names another source"
            )
        return ""


def _expressions(flow: FlowDefinition) -> Iterator[str]:
    for node in flow.nodes:
        yield from expressions_in(node.input)
        yield from expressions_of_condition(node.when)
    for edge in flow.edges:
        yield from expressions_of_condition(edge.when)
        if edge.for_each is not None:
            yield from expressions_in(edge.for_each.in_)
