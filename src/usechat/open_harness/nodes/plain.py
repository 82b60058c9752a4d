"""Nodes that do nothing but say what they were given."""

from collections.abc import Iterable, Mapping
from typing import Any

from usechat.open_harness.flow.flow import Place
from usechat.open_harness.nodes.context import NodeContext

__all__ = ["ConstantNode", "EchoNode"]


class ConstantNode:
    """Returns its ``value``."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield whether the value is missing."""
        if "value" not in fields:
            yield ("value",), "is missing"

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:  # noqa: ARG002 (as the protocol has it)
        """Return the value."""
        return {"value": fields["value"]}


class EchoNode:
    """Returns its ``text``."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield whether the text is none."""
        if not isinstance(fields.get("text"), str):
            yield ("text",), "must be a text"

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:  # noqa: ARG002 (as the protocol has it)
        """Return the text."""
        return {"text": fields["text"]}
