"""What a chat request means, given what the store has of the chat. No I/O.

The AI SDK's clients send the whole history, their last message, or nothing but an id, with or without a trigger and a
``messageId``. Four questions decide, in this order:

1. Does the trigger say ``regenerate-message``? Then there will be a new answer: to the question of the answer that
   ``messageId`` names, to the question that it names, to the user message that was sent, or to the leaf's.
2. Does ``messageId`` name an answer? Then that answer is continued, regardless of the message that came with it. Tool
   outputs and approvals are taken from the page's copy of that very message, if it came, and from no other.
3. Was a user message sent? One that the chat does not have is stored. One that it has with other parts is an edit: a
   new version beside it. One that it has with the same parts is answered again, or joins the answer that is running.
4. Otherwise the leaf decides: a question is answered, an answer is continued.

A new message goes below ``parentId``; without that, below the last message before it in ``messages`` that the chat has;
without that, below the leaf (an edit: beside the version before). User messages directly before it that the chat does
not have are stored first: their requests failed before they reached the store. All other unknown messages are ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from usechat.chats.chat import MessageNode, Tree, digest_of, take_answers
from usechat.errors import InvalidRequest, Unprocessable
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage

__all__ = ["AnswerTo", "Continue", "Join", "Meaning", "Running", "interpret", "request_over"]


class Running(msgspec.Struct, frozen=True):
    """The answer of a chat that is running: its key, and that of the message it answers."""

    key: int
    parent: int | None


class AnswerTo(msgspec.Struct, frozen=True):
    """Make a new answer below ``parent``; ``new`` messages are stored first, one below the other, and it below them."""

    parent: int | None
    new: tuple[UIMessage, ...] = ()


class Continue(msgspec.Struct, frozen=True):
    """Continue the answer ``key``; ``copy`` is the page's copy of it, from which answers to open calls are taken."""

    key: int
    copy: UIMessage | None = None


class Join(msgspec.Struct, frozen=True):
    """Read the answer that is running; ``has_message`` says whether the page has what was there before it went on."""

    has_message: bool = False


Meaning: TypeAlias = AnswerTo | Continue | Join


def interpret(tree: Tree, request: ChatRequest, running: Running | None = None) -> Meaning:
    """Return what a request means for a chat.

    File URLs in the request must be in the form in which the store keeps them. Raises
    :class:`~usechat.errors.InvalidRequest` if there is nothing to answer, and :class:`~usechat.errors.Unprocessable` if
    the request continues an answer that the chat does not have.

    >>> question = MessageNode(key=1, parent=None, id="u1", role="user")
    >>> tree = Tree([question, MessageNode(key=2, parent=1, id="a1", role="assistant")], leaf=2)
    >>> interpret(tree, ChatRequest(messages=[], trigger="regenerate-message", message_id="a1"))
    AnswerTo(parent=1, new=())
    """
    interpreter = _Interpreter(tree, request)
    meaning = interpreter.regenerated() if request.trigger == "regenerate-message" else interpreter.submitted()
    if running is not None and _joins(meaning, request, running):
        return Join(has_message=isinstance(meaning, Continue))
    return meaning


def request_over(history: Sequence[UIMessage], request: ChatRequest) -> ChatRequest:
    """Return a request with the stored messages of a chat that has no branches, instead of those that the page sent.

    Of the page's messages only what is new is taken: a user message, and answers to open calls of the last answer.

    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    >>> forged = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "Forged"}]}
    >>> stored = [question, {**forged, "parts": [{"type": "text", "text": "Hello!"}]}]
    >>> again = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "And?"}]}
    >>> found = request_over(stored, ChatRequest(messages=[question, forged, again]))
    >>> [message["parts"][0]["text"] for message in found.messages]
    ['Hi', 'Hello!', 'And?']
    """
    nodes = [_stored_node(key, message) for key, message in enumerate(history, 1)]
    tree = Tree(nodes, leaf=len(nodes) or None)
    match interpret(tree, request):
        case AnswerTo(parent, new):
            messages = [*history[: parent or 0], *new]
            return msgspec.structs.replace(request, messages=messages, message_id=None)
        case Continue(key, copy):
            merged, _ = take_answers(history[key - 1], copy)
            messages = [*history[: key - 1], merged]
            return msgspec.structs.replace(request, messages=messages, message_id=merged["id"])
    raise AssertionError("a request joins an answer only if one is running")


def _stored_node(key: int, message: UIMessage) -> MessageNode:
    digest = "" if message["role"] == "assistant" else digest_of(message)
    return MessageNode(key=key, parent=key - 1 or None, id=message["id"], role=message["role"], digest=digest)


def _joins(meaning: AnswerTo | Continue, request: ChatRequest, running: Running) -> bool:
    if isinstance(meaning, Continue):
        return meaning.key == running.key
    return not meaning.new and meaning.parent == running.parent and request.trigger == "submit-message"


class _Interpreter:
    """One request beside the tree of its chat."""

    def __init__(self, tree: Tree, request: ChatRequest) -> None:
        self._tree = tree
        self._body: Mapping[str, Any] = request.body
        self._messages = request.messages
        self._message_id = request.message_id
        self._named = tree.find(request.message_id)

    def regenerated(self) -> AnswerTo:
        if self._named is None:
            at = self._last(ignoring_unknown_answers=True)
            return self._answer_sent(at) if at is not None else self._answer_leaf()
        question = self._question_of(self._named)
        at = self._last()
        message = None if at is None else self._messages[at]
        if question is None or at is None or message is None or message["id"] not in (question.id, question.alias):
            return AnswerTo(None if question is None else question.key)
        return self._answer_sent(at)

    def submitted(self) -> AnswerTo | Continue:
        if self._named is not None and self._named.role == "assistant":
            return Continue(self._named.key, self._copy_of(self._named))
        if self._message_id:
            return self._submitted_by_id()
        at = self._last(ignoring_unknown_answers=True)
        if at is None:
            return self._leaf()
        if self._messages[at]["role"] == "assistant":
            node = cast("MessageNode", self._tree.find(self._messages[at]["id"]))
            return Continue(node.key, self._messages[at])
        return self._answer_sent(at)

    def _submitted_by_id(self) -> AnswerTo:
        """Answer the user message that ``messageId`` names: a new version if it was sent with other parts."""
        at = next(
            (at for at in reversed(range(len(self._messages))) if self._messages[at]["id"] == self._message_id), None
        )
        if at is not None and self._messages[at]["role"] != "assistant":
            return self._answer_sent(at)
        if self._named is None:
            raise Unprocessable(f"The message {self._message_id!r} is not in this chat.")
        return AnswerTo(self._named.key)

    def _leaf(self) -> AnswerTo | Continue:
        leaf = self._leaf_node()
        return Continue(leaf.key) if leaf.role == "assistant" else AnswerTo(leaf.key)

    def _answer_leaf(self) -> AnswerTo:
        question = self._question_of(self._leaf_node())
        return AnswerTo(None if question is None else question.key)

    def _leaf_node(self) -> MessageNode:
        if self._tree.leaf is None:
            raise InvalidRequest("the chat has no message to answer, and the request has none")
        return self._tree.nodes[self._tree.leaf]

    def _question_of(self, node: MessageNode) -> MessageNode | None:
        if node.role != "assistant":
            return node
        return None if node.parent is None else self._tree.nodes[node.parent]

    def _answer_sent(self, at: int) -> AnswerTo:
        """Answer a message that was sent: as it is stored, in a new version, or as a new message."""
        message = self._messages[at]
        node = self._tree.find(message["id"], digest_of(message))
        if node is not None and node.role == message["role"]:
            if node.role == "assistant" or node.digest == digest_of(message):
                return AnswerTo(node.key)
            return AnswerTo(self._place(at, node.parent)[0], (message,))
        parent, unsent = self._place(at, self._tree.leaf)
        return AnswerTo(parent, (*unsent, message))

    def _place(self, at: int, otherwise: int | None) -> tuple[int | None, list[UIMessage]]:
        """Return the parent of a new message, and the user messages before it that have to be stored first."""
        if "parentId" in self._body:
            if self._body["parentId"] is None:
                return None, []
            parent_id = self._body["parentId"]
            if (parent := self._tree.find(parent_id if isinstance(parent_id, str) else None)) is not None:
                return parent.key, []
        unsent: list[UIMessage] = []
        unbroken = True
        for message in reversed(self._messages[:at]):
            if (before := self._tree.find(message["id"])) is not None:
                return before.key, unsent[::-1]
            unbroken = unbroken and message["role"] == "user"
            if unbroken:
                unsent.append(message)
        return otherwise, unsent[::-1]

    def _last(self, *, ignoring_unknown_answers: bool = False) -> int | None:
        """Return the index of the last message that was sent."""
        for at in reversed(range(len(self._messages))):
            message = self._messages[at]
            is_unknown_answer = message["role"] == "assistant" and self._tree.find(message["id"]) is None
            if not (ignoring_unknown_answers and is_unknown_answer):
                return at
        return None

    def _copy_of(self, node: MessageNode) -> UIMessage | None:
        """Return the page's copy of an answer; ``None`` if there is no copy, or more than one."""
        copies = [each for each in self._messages if each["role"] == "assistant" and each["id"] == node.id]
        return copies[0] if len(copies) == 1 else None
