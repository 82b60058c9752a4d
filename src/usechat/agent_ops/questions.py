"""The questions that an agent asks people, and what the page shows of them.

A question is shown in one of two ways. As ``data`` it is a ``data-question`` part, and the stream continues; the
application answers by its own means. As ``approval`` it is a tool call that needs approval: the stream ends, the
turn upstream waits, and the person's answer arrives with the next request, which continues the same message.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from usechat.agent_ops.wire import Frame, InteractivePrompt, PromptObject, Question, answer_command, answer_value
from usechat.parts import ApprovalRequest, Data, Finish, Part, Step, ToolCall, ToolDenied, ToolResult
from usechat.transports import ApprovalAnswer
from usechat.ui_messages import APPROVAL_TOOL

__all__ = ["QuestionMode", "Questions", "command_from_answer", "parts_from_answer", "without_questions"]

QuestionMode: TypeAlias = Literal["data", "approval"]
"""How a question is shown: as a ``data-question`` part, or as the approval of a tool call."""

_TOOL: Final = "question"
_PREFIX: Final = "question-"


class Questions:
    """The questions of one turn. ``answer_ids`` are the ids of those that this request answers."""

    def __init__(self, mode: QuestionMode, answer_ids: frozenset[str] = frozenset()) -> None:
        self.end_stream = mode == "approval"
        """Whether a question ends the stream, because its answer comes with the next request."""
        self._answer_ids = answer_ids
        self._open: set[str] = set()

    @property
    def are_open(self) -> bool:
        """Whether the agent waits for a person."""
        return bool(self._open)

    def ask(self, question: Question | InteractivePrompt, frame: Frame) -> Iterator[Part]:
        """Yield the parts of a question, unless it was asked or answered already."""
        question_id, text = _id_and_text(question)
        if question_id in self._open or question_id in self._answer_ids:
            return
        self._open.add(question_id)
        payload = {key: value for key, value in frame.items() if key != "type"}
        if not self.end_stream:
            yield Data("question", payload, id=question_id)
            return
        # In a separate step: the page posts again as soon as every call of the last step is answered. Tools that the
        # agent runs meanwhile continue.
        yield Step(leaves_calls=True)
        yield ToolCall(_call_id(question_id), _TOOL, payload, dynamic=True)
        yield ApprovalRequest(question_id, _call_id(question_id), text or None)
        yield Finish()

    def close(self, question_id: object) -> None:
        """Note that a question was answered or has expired; without an id, that all of them were."""
        if isinstance(question_id, str):
            self._open.discard(question_id)
        else:
            self._open.clear()


def command_from_answer(message: Mapping[str, Any], approval: ApprovalAnswer) -> Frame:
    """Return the command for an answer to a question in the page's ``message``.

    The server has compared that question with the one that was asked: :mod:`usechat.runs.open_calls`.
    """
    for part in message["parts"]:
        if part.get("toolCallId") == _call_id(approval.approval_id):
            return answer_command(approval, _prompt_in(part.get("input")))
    return answer_command(approval)


def _prompt_in(payload: Any) -> PromptObject | None:
    try:
        return msgspec.convert(payload, InteractivePrompt).prompt
    except msgspec.ValidationError:
        return None


def parts_from_answer(approval: ApprovalAnswer) -> Iterator[Part]:
    """Yield the outcome of the tool call that asked a question."""
    call_id = _call_id(approval.approval_id)
    if approval.approved:
        yield ToolResult(call_id, {"answer": answer_value(approval)})
    else:
        yield ToolDenied(call_id, approval.reason)


def without_questions(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a message without the tool calls of questions: no tool of the agent settles those."""
    return [
        part
        for part in message["parts"]
        if part.get("type") != f"tool-{APPROVAL_TOOL}" and not str(part.get("toolCallId")).startswith(_PREFIX)
    ]


def _id_and_text(question: Question | InteractivePrompt) -> tuple[str, str]:
    if isinstance(question, Question):
        return question.question_id, question.text
    return question.prompt.id, question.prompt.title


def _call_id(question_id: str) -> str:
    return f"{_PREFIX}{question_id}"
