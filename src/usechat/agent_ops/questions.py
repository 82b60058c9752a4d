"""What the agent asks people, and what they answer."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from usechat.agent_ops.wire import Frame, InteractivePrompt, Question
from usechat.protocol.parts import ApprovalRequest, Data, Finish, Part, Step, ToolCall, ToolDenied, ToolResult
from usechat.protocol.request import ApprovalAnswer
from usechat.protocol.tool_calls import APPROVAL_TOOL

__all__ = ["Questions", "QuestionsAs", "answer_of", "answered_parts", "without_questions"]

QuestionsAs: TypeAlias = Literal["data", "approval"]
"""How the page is asked: with a ``data-question`` part, or with the approval of a tool call."""

_TOOL: Final = "question"
_PREFIX: Final = "question-"


class Questions:
    """The questions of one turn. ``answered`` are those whose answer is under way: they are not asked again."""

    def __init__(self, shown_as: QuestionsAs, answered: frozenset[str] = frozenset()) -> None:
        self.end_the_stream = shown_as == "approval"
        """Whether the answer comes with another request."""
        self._answered = answered
        self._open: set[str] = set()

    @property
    def are_open(self) -> bool:
        """Whether the agent waits for a person."""
        return bool(self._open)

    def ask(self, question: Question | InteractivePrompt, frame: Frame) -> Iterator[Part]:
        """Yield the question, once."""
        question_id, text = _named(question)
        if question_id in self._open or question_id in self._answered:
            return
        self._open.add(question_id)
        payload = {key: value for key, value in frame.items() if key != "type"}
        if not self.end_the_stream:
            yield Data("question", payload, id=question_id)
            return
        # A step of its own: the page posts again as soon as every call of the last step is answered.
        yield Step()
        yield ToolCall(_call_id(question_id), _TOOL, payload, dynamic=True)
        yield ApprovalRequest(question_id, _call_id(question_id), text or None)
        yield Finish()

    def close(self, question_id: object) -> None:
        """Note that a question was answered or has expired; all of them, if it is not said which."""
        if isinstance(question_id, str) and question_id in self._open:
            self._open.discard(question_id)
        elif not isinstance(question_id, str):
            self._open.clear()


def answer_of(approval: ApprovalAnswer) -> Mapping[str, Any]:
    """Return the command that tells the agent what a person answered: their words if they gave any, else yes or no."""
    answer = approval.reason if approval.approved and approval.reason else approval.approved
    return {"type": "answer", "questionId": approval.approval_id, "answer": answer}


def answered_parts(approval: ApprovalAnswer) -> Iterator[Part]:
    """Yield what becomes of the call that asked."""
    call_id = _call_id(approval.approval_id)
    if approval.approved:
        yield ToolResult(call_id, {"answer": answer_of(approval)["answer"]})
    else:
        yield ToolDenied(call_id, approval.reason)


def without_questions(shown: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a message that are not there to ask: no tool of the agent will ever settle those."""
    return [
        part
        for part in shown["parts"]
        if part.get("type") != f"tool-{APPROVAL_TOOL}" and not str(part.get("toolCallId")).startswith(_PREFIX)
    ]


def _named(question: Question | InteractivePrompt) -> tuple[str, str]:
    if isinstance(question, Question):
        return question.question_id, question.text
    return question.prompt.id, question.prompt.title


def _call_id(question_id: str) -> str:
    return f"{_PREFIX}{question_id}"
