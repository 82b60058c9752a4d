"""The input of a flow: what a request holds, under the keys that the flow reads.

A flow finds the user's text at ``flow.input.message``. Most flows that were not written for a chat read another key,
such as ``flow.input.topic``. The expressions of a flow show which keys it reads, so:

- The application's own fields of the request body are keys of the input.
- ``input`` says where further keys come from: ``text`` is the text of the message, ``body.depth`` a field of the body.
- If the flow reads exactly one key that has no source, that key gets the text; also one that may be missing, if the
  flow reads nothing else of the message.
- A key that is still missing when a request comes fails the turn. A key whose existence the flow asks for
  (``$exists(flow.input.depth)``, ``flow.input.depth ?? 3``, ``flow.input.depth ?: 3``) may be missing.
- An agent with an empty prompt takes the message itself. A flow in which nothing takes the user's words is served all
  the same, with a warning.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from usechat import Turn
from usechat.errors import InvalidSetting, PublicError
from usechat.input_mapping import mapped_values, require_sources
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.flow.expressions import Syntax, expressions_in, expressions_of_condition, read_syntax
from usechat.open_harness.nodes.agent import takes_message

__all__ = ["FlowInputs"]

_logger: Final = logging.getLogger("usechat.open_harness")

_OURS: Final = ("message", "messages", "files", "chatId")
_AGENTS: Final = ("agent", "claude.agent")
_WITHOUT_CODE: Final = (*_AGENTS, "constant", "echo")
"""The types of nodes that know nothing but their input; code may read the message in its context."""


class FlowInputs:
    """Makes the inputs of flows from turns. ``mapping`` holds the source of each key: ``text`` or ``body.FIELD``.

    Raises :class:`~usechat.errors.InvalidSetting` for a key that always comes from the chat, or for an unknown source.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._mapping = dict(mapping or {})
        self._latest: tuple[FlowDefinition, _InputKeys] | None = None
        for key in self._mapping.keys() & {*_OURS}:
            raise InvalidSetting(f"input: {key!r} always comes from the chat; map another key")
        require_sources(self._mapping)

    def prepare(self, flow: FlowDefinition) -> "_InputKeys":
        """Find the keys that a flow reads. Log, once per process, those for which no source is named."""
        if self._latest is None or self._latest[0] is not flow:
            self._latest = flow, _InputKeys(flow, self._mapping)
        keys = self._latest[1]
        _warn(keys.notice(flow.name))
        return keys

    def of(self, turn: Turn, flow: FlowDefinition | None) -> dict[str, Any]:
        """Return the input for a turn; ``flow`` is ``None`` if it runs elsewhere.

        Raises :class:`~usechat.errors.PublicError` that names the keys which the flow reads and which have no value.
        """
        values = {**turn.body, **mapped_values(self._mapping, turn)}
        if flow is not None:
            values = self._complete(flow, values, turn.text)
        return {
            **values,
            "message": turn.text,
            "messages": turn.messages,
            "files": turn.files,
            "chatId": turn.chat_id,
        }

    def with_text(self, flow: FlowDefinition, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input that another process gave for a flow; the one key that has no source gets its message.

        Raises :class:`~usechat.errors.PublicError` as :meth:`of` does.
        """
        return self._complete(flow, values, values.get("message"))

    def _complete(self, flow: FlowDefinition, values: Mapping[str, Any], text: Any) -> dict[str, Any]:
        keys = self.prepare(flow)
        completed = dict(values)
        if keys.guessed is not None and isinstance(text, str):
            completed.setdefault(keys.guessed, text)
        if missing := sorted(keys.required - completed.keys()):
            names = ", ".join(f"“{name}”" for name in missing)
            raise PublicError(f"The flow needs {names}, and the request does not have it.")
        return completed


@cache
def _warn(notice: str) -> None:
    """Log a notice, once: ``usechat serve`` makes more than one transport of a flow, and a factory one per turn."""
    if notice:
        _logger.warning("%s", notice)


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
        self._is_heard = (
            self.guessed is not None
            or "text" in mapping.values()
            or not read.isdisjoint(("message", "messages"))
            or any(map(_reads_whole_input, syntaxes))
            or any(node.type not in _WITHOUT_CODE for node in flow.nodes)
            or any(node.type in _AGENTS and takes_message(node.input) for node in flow.nodes)
        )

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
        if not self._is_heard:
            return (
                f'flow "{flow_name}" reads nothing of what the user writes; write {{{{ flow.input.message }}}} into '
                "the input of a node, or leave the prompt of an agent empty"
            )
        return ""


def _reads_whole_input(syntax: Syntax) -> bool:
    """Return whether an expression may read any key: all values, ``flow`` or ``flow.input`` as a whole."""
    return syntax.names is None or ("flow" in syntax.names and not syntax.input_keys)


def _expressions(flow: FlowDefinition) -> Iterator[str]:
    for node in flow.nodes:
        yield from expressions_in(node.input)
        yield from expressions_of_condition(node.when)
    for edge in flow.edges:
        yield from expressions_of_condition(edge.when)
        if edge.for_each is not None:
            yield from expressions_in(edge.for_each.in_)
