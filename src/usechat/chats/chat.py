"""The model of a stored chat: a tree of messages, and the form in which a message is stored. No I/O.

**The tree.** A message has a ``key``, a number that grows within its chat, and the key of its parent. A parent always
has a smaller key than its children, so that ordering by key puts parents first; no clock is involved. Siblings are
versions: the children of a user message are its answers, and a user message with siblings was edited. The *leaf* of the
chat is the last message of the branch that the page shows.

**Ids.** The ``id`` of a node is unique in the chat and is what clients are given. The id that a page chose for a user
message is its ``alias``: the AI SDK reuses it when the message is edited, and no chunk can rename a user message, so
two siblings may share one alias. :meth:`Tree.find` resolves an id on the current branch first.

**Open calls.** A tool call that waits for the page is a fact of the stored message: it is open there until
:func:`take_answers` puts the answer in, once. The page's copy of the message is never stored.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from usechat.chats.recovery import is_question_of_recovery, told, with_answers_of_recovery
from usechat.errors import InvalidRequest
from usechat.protocol.states import ToolState
from usechat.protocol.ui_messages import UIMessage, is_provider_executed, is_settled, is_tool, tool_parts_of

__all__ = [
    "ENDED_BADLY",
    "MessageNode",
    "Outcome",
    "Tree",
    "check_id",
    "digest_of",
    "is_behind",
    "is_id",
    "open_calls",
    "read_text",
    "searchable",
    "settled",
    "storable",
    "take_answers",
    "with_stored_answers",
    "without_transient",
    "write_text",
]

Outcome: TypeAlias = Literal["running", "finished", "waiting", "failed", "stopped", "lost"]
"""How an answer stands: the states of a run, by the same names."""

ENDED_BADLY: Final[frozenset[Outcome]] = frozenset({"failed", "stopped", "lost"})

_LONGEST_ID: Final = 1_024
"""Bytes in UTF-8. PostgreSQL indexes at most 2,704 bytes."""

_UNFINISHED: Final = {
    "failed": "The run ended before this tool finished.",
    "stopped": "The run was stopped before this tool finished.",
    "lost": "The run was lost before this tool finished.",
}


class MessageNode(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the tree without its content.

    ``digest`` tells whether two versions of a user message have the same parts. ``outcome`` is ``None`` for messages
    that no run has made. ``given`` are the calls whose answers the last run of an answer was given, if it ended badly:
    the next run is given them again. ``agent`` names what made an answer.
    """

    key: int
    parent: int | None
    id: str
    role: Literal["system", "user", "assistant"]
    alias: str = ""
    digest: str = ""
    outcome: Outcome | None = None
    given: tuple[str, ...] = ()
    agent: str = ""
    created: float = 0
    feedback: Any = None


class Tree:
    """The messages of a chat and the leaf of its current branch.

    >>> question = MessageNode(key=1, parent=None, id="u1", role="user")
    >>> answers = [MessageNode(key=key, parent=1, id=f"a{key}", role="assistant") for key in (2, 3)]
    >>> tree = Tree([question, *answers], leaf=3)
    >>> [node.id for node in tree.branch()], [node.id for node in tree.branch(2)]
    (['u1', 'a3'], ['u1', 'a2'])
    """

    def __init__(self, nodes: Iterable[MessageNode] = (), leaf: int | None = None) -> None:
        self.nodes = {node.key: node for node in sorted(nodes, key=lambda node: node.key)}
        self.leaf = leaf
        self.next_key = max(self.nodes, default=0) + 1
        """The key of the next message."""
        self._ids = {node.id for node in self.nodes.values()}

    def branch(self, key: int | None = None) -> list[MessageNode]:
        """Return the messages from the root to ``key``, or to the leaf."""
        branch = []
        key = self.leaf if key is None else key
        while key is not None:
            branch.append(self.nodes[key])
            key = self.nodes[key].parent
        return branch[::-1]

    def find(self, message_id: str | None, digest: str | None = None) -> MessageNode | None:
        """Return the message that a client means by an id.

        With a ``digest``, a version that has these parts is preferred; then one on the current branch; then the one
        whose own id it is; then the newest.
        """
        if not message_id:
            return None
        named = [node for node in self.nodes.values() if message_id in (node.id, node.alias)]
        current = {node.key for node in self.branch()} if len(named) > 1 else set()
        return max(
            named,
            key=lambda node: (
                digest is not None and node.digest == digest,
                node.key in current,
                node.id == message_id,
                node.key,
            ),
            default=None,
        )

    def version(self, message_id: str) -> MessageNode | None:
        """Return the message that has an id which was given out, even if the current branch has it as an alias."""
        own = next((node for node in self.nodes.values() if node.id == message_id), None)
        return own or self.find(message_id)

    def free_id(self, message_id: str, new_id: Callable[[], str]) -> str:
        """Return ``message_id`` if the chat does not have that id yet, otherwise a new one."""
        while not message_id or message_id in self._ids:
            message_id = new_id()
        return message_id

    def add(self, node: MessageNode) -> None:
        """Add a message, or replace what is known of it."""
        self.nodes[node.key] = node
        self.next_key = max(self.next_key, node.key + 1)
        self._ids.add(node.id)


def check_id(value: str, what: str) -> str:
    """Return an id that every database can keep, or raise :class:`~usechat.errors.InvalidRequest`."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds an unpaired surrogate; an id must be valid text") from None
    if size > _LONGEST_ID or "\0" in value:
        raise InvalidRequest(f"{what} has {size} bytes; an id has at most {_LONGEST_ID}, and no NUL")
    return value


def is_id(value: str) -> bool:
    """Tell whether every database can keep an id."""
    with contextlib.suppress(InvalidRequest):
        return bool(check_id(value, "the id"))
    return False


_WRITER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII_WRITER: Final = json.JSONEncoder(separators=(",", ":"))
_SORTED_WRITER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def write_text(value: Any) -> str:
    """Write JSON that every database can keep: unpaired surrogates and NUL are escaped."""
    text = _WRITER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ASCII_WRITER.encode(value)
    return text


def read_text(text: str) -> Any:
    """Read what :func:`write_text` wrote."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:  # an unpaired surrogate, or a number that JSON does not have
        return json.loads(text)


def digest_of(message: Mapping[str, Any]) -> str:
    """Return a digest of the parts of a message; the order of keys does not matter."""
    text = _SORTED_WRITER.encode(message["parts"])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def storable(text: str) -> str:
    """Return a text that every database can keep: without NUL and unpaired surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def searchable(text: str) -> str:
    """Return a text to look for another one in, in any case; databases fold ASCII alone, if at all."""
    return storable(text).casefold()


def without_transient(message: UIMessage) -> UIMessage:
    """Return a message without transient data."""
    parts = [part for part in message["parts"] if not (part["type"].startswith("data-") and part.get("transient"))]
    return message if len(parts) == len(message["parts"]) else {**message, "parts": parts}


# Open calls.


def open_calls(message: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of the calls of a stored message that wait for the page."""
    return frozenset(part["toolCallId"] for part in tool_parts_of(message) if _waits_for_client(part))


def take_answers(stored: UIMessage, copy: Mapping[str, Any] | None) -> tuple[UIMessage, frozenset[str]]:
    """Return the stored message with the answers that the page's copy brings, and the ids of the answered calls.

    Only the outcome of an open call is taken: ``output`` or ``errorText``, or ``approved`` and ``reason`` of the
    approval that was asked for. A call that the copy tells of twice is not answered. The calls of a message that was
    answered before are not open any more, so that a second answer, contrary or not, changes nothing.
    """
    copies_by_id: dict[str, list[Mapping[str, Any]]] = {}
    for part in tool_parts_of(copy or {}):
        copies_by_id.setdefault(part["toolCallId"], []).append(part)
    parts: list[Any] = []
    call_ids = set()
    for part in cast("list[dict[str, Any]]", stored["parts"]):
        copies = copies_by_id.get(part["toolCallId"], []) if _is_call(part) and _waits_for_client(part) else []
        answered = _answered(part, copies[0]) if len(copies) == 1 else None
        parts.append(part if answered is None else answered)
        if answered is not None:
            call_ids.add(part["toolCallId"])
    if not call_ids:
        return stored, frozenset()
    return with_answers_of_recovery({**stored, "parts": parts}), frozenset(call_ids)


def _answered(part: Mapping[str, Any], copy: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an open call with the answer that the page's copy brings; nothing if it brings none."""
    match part["state"], copy.get("state"):
        case ToolState.INPUT_AVAILABLE, ToolState.OUTPUT_AVAILABLE if not copy.get("preliminary"):
            # `output: undefined` is not written by JSON.stringify; the key is required in the stored part.
            return {**part, "state": "output-available", "output": copy.get("output")}
        case ToolState.INPUT_AVAILABLE, ToolState.OUTPUT_ERROR:
            text = copy.get("errorText")
            return {**part, "state": "output-error", "errorText": text if isinstance(text, str) else "The tool failed."}
        case ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED:
            return _with_approval(part, copy.get("approval"))
    return None


def _with_approval(part: Mapping[str, Any], copy: Any) -> dict[str, Any] | None:
    approval = part["approval"]
    if not isinstance(copy, Mapping) or copy.get("id") != approval["id"] or not isinstance(copy.get("approved"), bool):
        return None
    reason = {"reason": copy["reason"]} if isinstance(copy.get("reason"), str) else {}
    if is_question_of_recovery(approval):  # no framework knows this question: its model is told the answer
        return told(part, copy["approved"])
    return {**part, "state": "approval-responded", "approval": {**approval, "approved": copy["approved"], **reason}}


def is_behind(copy: Mapping[str, Any], stored: UIMessage) -> bool:
    """Tell whether the page has not seen all of a stored message: it has fewer parts, or an older state of a call."""
    open_in_copy = {part["toolCallId"] for part in tool_parts_of(copy) if not is_settled(part)}
    return len(copy["parts"]) < len(stored["parts"]) or any(
        is_settled(part) and part["toolCallId"] in open_in_copy for part in tool_parts_of(stored)
    )


def with_stored_answers(copy: UIMessage, stored: UIMessage) -> UIMessage:
    """Return the page's copy of a message as if the page had given the answers that were taken.

    What follows is written for them: a page that has denied a tool is told its output if somebody else was faster.
    """
    stored_parts = {part["toolCallId"]: part for part in tool_parts_of(stored)}

    def agree(part: dict[str, Any]) -> dict[str, Any]:
        stored_part = stored_parts.get(part["toolCallId"]) if _is_call(part) else None
        if stored_part is None:
            return part
        if is_settled(part):
            return dict(stored_part)
        approval = part.get("approval")
        if isinstance(approval, Mapping) and is_question_of_recovery(approval):  # what the call came to follows
            return {**{key: part[key] for key in part if key != "approval"}, "state": "input-available"}
        return {**part, "approval": stored_part["approval"]} if "approval" in stored_part else part

    return cast("UIMessage", {**copy, "parts": [agree(cast("dict[str, Any]", part)) for part in copy["parts"]]})


# The end of a run.


def settled(message: UIMessage, outcome: Outcome, answerable: Collection[str] = ()) -> UIMessage:
    """Return a message as it is stored after its run ended other than well.

    Texts are ``done``. Calls that are still open become ``output-error``, because a page takes an open call for one
    that it must answer itself, and would wait without end; those that it can answer (``answerable``) stay open. An
    approval whose run was lost stays approved.
    """
    if outcome not in ENDED_BADLY:
        return message
    parts = [_settled_part(part, outcome, answerable) for part in cast("list[dict[str, Any]]", message["parts"])]
    return cast("UIMessage", {**message, "parts": parts})


def _settled_part(part: dict[str, Any], outcome: Outcome, answerable: Collection[str]) -> dict[str, Any]:
    if part["type"] in ("text", "reasoning") and part.get("state") == "streaming":
        return {**part, "state": "done"}
    if not _is_call(part) or is_settled(part):
        return part
    if part["toolCallId"] in answerable and _waits_for_client(part):
        return part
    approval = part.get("approval", {})
    if approval.get("approved") is False:
        return {**part, "state": "output-denied"}
    if approval.get("approved") and outcome == "lost":
        return part
    fields = {key: value for key, value in part.items() if key != "approval" or approval.get("approved")}
    # Releases before 5.0.250 and 6.0.182 require the key, even of a call whose input was cut off.
    return {"input": {}, **fields, "state": "output-error", "errorText": _UNFINISHED[outcome]}


def _is_call(part: Mapping[str, Any]) -> bool:
    return is_tool(part) and isinstance(part.get("toolCallId"), str)


def _waits_for_client(part: Mapping[str, Any]) -> bool:
    state = part.get("state")
    is_for_client = state == ToolState.INPUT_AVAILABLE and not is_provider_executed(part)
    return is_for_client or state == ToolState.APPROVAL_REQUESTED
