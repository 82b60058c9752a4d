"""What Genkit gets when a person has approved or denied an interrupted tool call.

Genkit resumes an interrupted call in one of two ways. A *restart* runs the tool again with ``metadata.resumed``, which
the tool reads; a *response* is taken as the tool's output, and is validated against its output schema. An approval and
a denial are both restarts with ``{approved: bool, reason?}``: that is what a Go tool with a typed resume value reads,
and a response that we invent would not fit the output schema. Tools that want something else need a mapping.

JavaScript's ``defineInterrupt`` makes a tool that is interrupted each time it runs, so it needs a response. The wire
does not tell it apart from a tool that interrupts itself: ``metadata.interrupt`` is what the author chose (or ``true``)
in both cases. So such tools are named: :func:`respond_to`. A reflection server does tell: it lists them with
``metadata.tool.restartable: false`` and with the schema of the response (``@genkit-ai/ai`` 1.42.0).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import msgspec

__all__ = ["Approval", "MapApproval", "Respond", "Restart", "respond_by_schema", "respond_to", "resume_with"]


class Approval(msgspec.Struct, frozen=True):
    """A person's answer to an interrupted call of the tool ``tool_name``.

    >>> Approval("delete", {"path": "a.txt"}, approved=False, reason="Not today.").approved
    False
    """

    tool_name: str
    input: Any
    approved: bool
    reason: str | None = None


class Restart(msgspec.Struct, frozen=True):
    """Run the tool again; it finds ``resumed`` in its context.

    >>> def map_approval(approval: Approval) -> Restart:
    ...     return Restart({"status": "APPROVED" if approval.approved else "REJECTED"})
    """

    resumed: Any


class Respond(msgspec.Struct, frozen=True):
    """Take ``output`` as the output of the tool, which does not run. JavaScript's ``defineInterrupt`` wants this.

    >>> def map_approval(approval: Approval) -> Respond:
    ...     return Respond({"answer": "yes" if approval.approved else "no"})
    """

    output: Any


MapApproval: TypeAlias = Callable[[Approval], Restart | Respond | None]
"""Says how an interrupted call is resumed; ``None`` means a restart with ``{approved, reason?}``."""


def respond_to(tools: Collection[str]) -> MapApproval:
    """Return a mapping that answers these tools by a response ``{approved, reason?}``, and restarts all others.

    >>> map_approval = respond_to(["confirm"])
    >>> map_approval(Approval("confirm", {}, approved=True))
    Respond(output={'approved': True})
    >>> map_approval(Approval("delete", {}, approved=True)) is None
    True
    """

    def map_approval(approval: Approval) -> Respond | None:
        return Respond(_decision(approval)) if approval.tool_name in tools else None

    return map_approval


def respond_by_schema(schemas: Mapping[str, Mapping[str, Any]], otherwise: MapApproval | None) -> MapApproval:
    """Return a mapping that answers tools by a response that fits their schema, unless ``otherwise`` says something.

    A schema with one boolean gets the decision there; any other gets ``{approved, reason?}``.

    >>> map_approval = respond_by_schema({"confirm": {"properties": {"confirmed": {"type": "boolean"}}}}, None)
    >>> map_approval(Approval("confirm", {}, approved=True))
    Respond(output={'confirmed': True})
    """

    def map_approval(approval: Approval) -> Restart | Respond | None:
        mapped = otherwise(approval) if otherwise is not None else None
        if mapped is not None or approval.tool_name not in schemas:
            return mapped
        return Respond(_fitting(approval, schemas[approval.tool_name]))

    return map_approval


def _fitting(approval: Approval, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "boolean":
        return approval.approved
    properties: Mapping[str, Any] = schema.get("properties", {})
    booleans = [
        name for name, each in properties.items() if isinstance(each, Mapping) and each.get("type") == "boolean"
    ]
    if len(booleans) != 1:
        return _decision(approval)
    reason = {"reason": approval.reason} if approval.reason and "reason" in properties else {}
    return {booleans[0]: approval.approved} | reason


def resume_with(approval: Approval, map_approval: MapApproval | None) -> Restart | Respond:
    """Return how an interrupted call is resumed after a person's answer."""
    mapped = map_approval(approval) if map_approval is not None else None
    return Restart(_decision(approval)) if mapped is None else mapped


def _decision(approval: Approval) -> dict[str, Any]:
    return {"approved": approval.approved} | ({"reason": approval.reason} if approval.reason else {})
