"""What a request means. The requests are those that stock clients of AI SDK 5, 6 and 7 were recorded to send."""

from typing import Any

import pytest

from tests.chats.talking import REGENERATE, SUBMIT, answer, answers, ask, asks, user
from usechat.chats.chat import MessageNode, Tree, digest_of
from usechat.chats.meaning import AnswerTo, Continue, Join, Meaning, Running, interpret
from usechat.errors import InvalidRequest, Unprocessable
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage

U1, U2, U3 = user("u1", "Q1"), user("u2", "Q2"), user("u3", "Q3")
A1, A2 = answer("a1", "A1"), answer("a2", "A2")
EDITED = user("u2", "Q2 edited")
RENAMED = user("new", "Q2 edited")
SYSTEM: UIMessage = {"id": "s", "role": "system", "parts": []}


def question(key: int, parent: int | None, message: Any, message_id: str | None = None) -> MessageNode:
    return MessageNode(
        key=key,
        parent=parent,
        id=message_id or message["id"],
        role="user",
        alias=message["id"],
        digest=digest_of(message),
    )


def reply(key: int, parent: int, message_id: str) -> MessageNode:
    return MessageNode(key=key, parent=parent, id=message_id, role="assistant", outcome="finished")


EMPTY = Tree()
UNANSWERED = Tree([question(1, None, U1)], leaf=1)
TWO_TURNS = Tree([question(1, None, U1), reply(2, 1, "a1"), question(3, 2, U2), reply(4, 3, "a2")], leaf=4)
FORKED = Tree([*TWO_TURNS.nodes.values(), question(5, 2, EDITED, "u2-edited"), reply(6, 5, "a3")], leaf=6)
"""The second question was edited; the page still calls it u2."""

Row = tuple[Tree, ChatRequest, Meaning]

# The page does, in the three ways of sending: everything, the last message with parentId, the last message alone.
NEW_MESSAGE: dict[str, Row] = {
    "everything": (TWO_TURNS, ask(U1, A1, U2, A2, U3), AnswerTo(4, (U3,))),
    "with-its-parent": (TWO_TURNS, ask(U3, parentId="a2"), AnswerTo(4, (U3,))),
    "last-only": (TWO_TURNS, ask(U3), AnswerTo(4, (U3,))),
    "first-everything": (EMPTY, ask(U1), AnswerTo(None, (U1,))),
    "first-with-its-parent": (EMPTY, ask(U1, parentId=None), AnswerTo(None, (U1,))),
    "below-an-older-answer": (TWO_TURNS, ask(U3, parentId="a1"), AnswerTo(2, (U3,))),
    "at-the-root": (TWO_TURNS, ask(U3, parentId=None), AnswerTo(None, (U3,))),
    "on-another-branch": (FORKED, ask(U1, A1, U2, A2, U3), AnswerTo(4, (U3,))),
    "unknown-parent": (TWO_TURNS, ask(U3, parentId="lost"), AnswerTo(4, (U3,))),
    "parent-of-another-kind": (TWO_TURNS, ask(U3, parentId=7), AnswerTo(4, (U3,))),
    "unknown-answer-before-it": (TWO_TURNS, ask(U1, A1, answer("lost", "x"), U3), AnswerTo(2, (U3,))),
    "a-system-message": (EMPTY, ask(SYSTEM), AnswerTo(None, (SYSTEM,))),
    "with-the-id-of-an-answer": (TWO_TURNS, ask(user("a2", "Q3")), AnswerTo(4, (user("a2", "Q3"),))),
    "without-an-id": (TWO_TURNS, ask(user("", "Q3")), AnswerTo(4, (user("", "Q3"),))),
}
EDIT: dict[str, Row] = {
    "everything": (TWO_TURNS, ask(U1, A1, EDITED, message_id="u2"), AnswerTo(2, (EDITED,))),
    "with-its-parent": (TWO_TURNS, ask(EDITED, message_id="u2", parentId="a1"), AnswerTo(2, (EDITED,))),
    "last-only": (TWO_TURNS, ask(EDITED, message_id="u2"), AnswerTo(2, (EDITED,))),
    "of-the-first": (TWO_TURNS, ask(user("u1", "x"), message_id="u1"), AnswerTo(None, (user("u1", "x"),))),
    "without-message-id": (TWO_TURNS, ask(EDITED), AnswerTo(2, (EDITED,))),
    "by-regenerate": (TWO_TURNS, ask(EDITED, trigger=REGENERATE), AnswerTo(2, (EDITED,))),
    "by-regenerate-of-the-answer": (
        TWO_TURNS,
        ask(EDITED, trigger=REGENERATE, message_id="a2"),
        AnswerTo(2, (EDITED,)),
    ),
    "of-the-edited": (FORKED, ask(user("u2", "third"), message_id="u2"), AnswerTo(2, (user("u2", "third"),))),
    "back-to-the-first": (FORKED, ask(U2, message_id="u2"), AnswerTo(3)),
    "of-a-message-that-never-arrived": (TWO_TURNS, ask(U3, message_id="u3"), AnswerTo(4, (U3,))),
    "assistant-ui-cuts-and-renames": (TWO_TURNS, ask(U1, A1, RENAMED), AnswerTo(2, (RENAMED,))),
}
REGENERATED: dict[str, Row] = {
    "everything": (TWO_TURNS, ask(U1, A1, U2, trigger=REGENERATE), AnswerTo(3)),
    "last-only": (TWO_TURNS, ask(U2, trigger=REGENERATE), AnswerTo(3)),
    "an-older-answer": (TWO_TURNS, ask(U1, trigger=REGENERATE, message_id="a1"), AnswerTo(1)),
    "by-its-question": (TWO_TURNS, ask(U1, trigger=REGENERATE, message_id="u1"), AnswerTo(1)),
    "nothing-but-the-answers-id": (TWO_TURNS, ask(trigger=REGENERATE, message_id="a1"), AnswerTo(1)),
    "nothing-but-the-questions-id": (TWO_TURNS, ask(trigger=REGENERATE, message_id="u1"), AnswerTo(1)),
    "nothing": (TWO_TURNS, ask(trigger=REGENERATE), AnswerTo(3)),
    "nothing-and-no-answer-yet": (UNANSWERED, ask(trigger=REGENERATE), AnswerTo(1)),
    "the-edited": (FORKED, ask(EDITED, trigger=REGENERATE), AnswerTo(5)),
    "after-a-5xx": (TWO_TURNS, ask(U3, trigger=REGENERATE, parentId="a2"), AnswerTo(4, (U3,))),
    "after-a-5xx-everything": (TWO_TURNS, ask(U1, A1, U2, A2, U3, trigger=REGENERATE), AnswerTo(4, (U3,))),
    "of-an-answer-that-was-not-stored": (
        UNANSWERED,
        ask(U1, trigger=REGENERATE, message_id="lost"),
        AnswerTo(1),
    ),
    "message-id-wins-over-the-message": (TWO_TURNS, ask(U2, trigger=REGENERATE, message_id="a1"), AnswerTo(1)),
    "the-second-of-two-answers": (TWO_TURNS, ask(U1, A1, trigger=REGENERATE), AnswerTo(2)),
    "an-answer-without-a-question": (
        Tree([MessageNode(key=1, parent=None, id="a1", role="assistant")], leaf=1),
        ask(trigger=REGENERATE, message_id="a1"),
        AnswerTo(None),
    ),
    "the-leaf-without-a-question": (
        Tree([MessageNode(key=1, parent=None, id="a1", role="assistant")], leaf=1),
        ask(trigger=REGENERATE),
        AnswerTo(None),
    ),
}
YES = answer("a2", answers("t1", "p1", True))
OLD_YES = answer("a1", answers("t1", "p1", True))
CONTINUED: dict[str, Row] = {
    "everything": (TWO_TURNS, ask(U1, A1, U2, YES, message_id="a2"), Continue(4, YES)),
    "last-only": (TWO_TURNS, ask(YES, message_id="a2"), Continue(4, YES)),
    "without-message-id": (TWO_TURNS, ask(YES), Continue(4, YES)),
    "late-everything": (TWO_TURNS, ask(U1, OLD_YES, U2, A2, message_id="a1"), Continue(2, OLD_YES)),
    "late-last-only-sends-the-wrong-one": (TWO_TURNS, ask(YES, message_id="a1"), Continue(2)),
    "two-copies": (TWO_TURNS, ask(YES, answer("a2", asks("t1", "p1")), message_id="a2"), Continue(4)),
    "a-user-message-came": (TWO_TURNS, ask(U3, message_id="a2"), Continue(4)),
    "nothing-but-the-id": (TWO_TURNS, ask(message_id="a2"), Continue(4)),
    "nothing": (TWO_TURNS, ask(), Continue(4)),
    "an-unknown-answer-is-ignored": (TWO_TURNS, ask(answer("lost", "x")), Continue(4)),
}
AGAIN: dict[str, Row] = {
    "the-same-message": (TWO_TURNS, ask(U2), AnswerTo(3)),
    "the-same-message-by-id": (TWO_TURNS, ask(U2, message_id="u2"), AnswerTo(3)),
    "nothing-but-its-id": (TWO_TURNS, ask(message_id="u2"), AnswerTo(3)),
    "nothing-and-no-answer-yet": (UNANSWERED, ask(), AnswerTo(1)),
    "an-answer-that-was-not-stored": (UNANSWERED, ask(U1, answer("lost", "x")), AnswerTo(1)),
    "a-failed-message-before-it": (TWO_TURNS, ask(U1, A1, U2, A2, U3, user("u4")), AnswerTo(4, (U3, user("u4")))),
    "failed-messages-first": (EMPTY, ask(U1, U2), AnswerTo(None, (U1, U2))),
    "unknown-before-an-unknown-answer": (EMPTY, ask(U1, A1, U2), AnswerTo(None, (U2,))),
}

TABLE = {
    f"{name}-{row_name}": row
    for name, rows in {
        "new": NEW_MESSAGE,
        "edit": EDIT,
        "regenerate": REGENERATED,
        "continue": CONTINUED,
        "again": AGAIN,
    }.items()
    for row_name, row in rows.items()
}


@pytest.mark.parametrize(("tree", "request_", "meaning"), TABLE.values(), ids=TABLE)
def test_a_request_means(tree: Tree, request_: ChatRequest, meaning: Meaning) -> None:
    assert interpret(tree, request_) == meaning


@pytest.mark.parametrize(
    ("request_", "running", "joins"),
    [
        pytest.param(ask(U2), Running(5, 3), True, id="the-same-message"),
        pytest.param(ask(), Running(4, 3), True, id="nothing-while-the-leaf-is-continued"),
        pytest.param(ask(U2), Running(4, 3), True, id="the-same-message-while-its-answer-is-continued"),
        pytest.param(ask(YES, message_id="a2"), Running(4, 3), True, id="the-same-answer"),
        pytest.param(ask(OLD_YES, message_id="a1"), Running(4, 3), False, id="another-answer"),
        pytest.param(ask(U3), Running(5, 3), False, id="a-new-message"),
        pytest.param(ask(EDITED), Running(5, 3), False, id="an-edit"),
        pytest.param(ask(U1), Running(5, 3), False, id="another-message"),
        pytest.param(ask(U2, trigger=REGENERATE), Running(5, 3), False, id="a-regenerate"),
    ],
)
def test_while_an_answer_runs_a_request_joins_it(request_: ChatRequest, running: Running, joins: bool) -> None:
    assert isinstance(interpret(TWO_TURNS, request_, running), Join) is joins


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        pytest.param(ask(), InvalidRequest, id="nothing"),
        pytest.param(ask(trigger=REGENERATE), InvalidRequest, id="regenerate-nothing"),
        pytest.param(ask(A1), InvalidRequest, id="an-unknown-answer"),
        pytest.param(ask(A1, message_id="a1"), Unprocessable, id="an-unknown-answer-by-id"),
        pytest.param(ask(message_id="a1", trigger=SUBMIT), Unprocessable, id="nothing-but-an-unknown-id"),
    ],
)
def test_a_request_without_anything_to_answer_is_refused(request_: ChatRequest, error: type[Exception]) -> None:
    with pytest.raises(error):
        interpret(EMPTY, request_)
