"""Questions that are asked while an agent runs, by code that the agent calls, such as an MCP server's elicitation.

A question becomes a call of the tool ``interrupt``, whose input is the question and whose output is the answer. The
calls that run meanwhile stay open in the step before. :mod:`usechat.pauses` tells how the answer reaches the code.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from usechat.ids import new_id
from usechat.protocol.parts import Data, Part, ToolCall
from usechat.protocol.request import ToolOutput
from usechat.turn import WAIT_SECONDS, Answer, PageQuestion, Turn, current_context

__all__ = ["ASKED", "PAUSE_IS_GONE", "QUESTION", "answers_of", "ask_page", "has_answers"]

PAUSE_IS_GONE: Final = "This request is no longer waiting for an answer. Please ask again."
QUESTION: Final = "interrupt"
"""The name of the tool whose output answers a question that belongs to no call."""
ASKED: Final = "asked-"
"""How the id of a call begins that stands for a question of :func:`ask_page`."""
_SETTLE_SECONDS: Final = 0.5
"""How long a turn waits for further questions. Those of parallel calls arrive one after the other; a later one is shown
in the turn that brings the answer to the first."""


async def ask_page(question: Any, *, wait_seconds: float = WAIT_SECONDS) -> ToolOutput | None:
    """Show a question to the page, and return its answer; ``None`` if another message came instead, or none in time.

    It works in code that an agent calls, in any thread and any event loop. Waits up to ``wait_seconds``.

    Raises :class:`~usechat.errors.LocalProtocolError` outside of a turn, after its end, and in a turn that no run owns.

    >>> async def delete_file() -> str:  # a tool of an agent
    ...     answer = await ask_page({"message": "Which file?"})
    ...     return "Nothing is deleted." if answer is None else f"{answer.output} is deleted."
    """
    context = current_context()
    asking = context.ask(_question(question, context.send, wait_seconds))
    answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, context.loop))
    return answer if isinstance(answer, ToolOutput) else None


def _question(value: Any, send: Callable[[Part], None], wait_seconds: float) -> PageQuestion:
    call_id = ASKED + new_id()

    def show() -> None:
        send(Data(QUESTION, {"id": call_id, "toolCallId": call_id, "value": value}, call_id))
        send(ToolCall(call_id, QUESTION, value, dynamic=True))

    return PageQuestion(call_id, show, is_apart=True, settle_seconds=_SETTLE_SECONDS, wait_seconds=wait_seconds)


def has_answers(turn: Turn) -> bool:
    """Tell whether a turn brings any answer of the page."""
    return bool(turn.approvals or turn.tool_outputs)


def answers_of(turn: Turn) -> dict[str | None, Answer]:
    """Return the answers that a turn brings, by the ids of their calls."""
    answers: dict[str | None, Answer] = {answer.tool_call_id: answer for answer in turn.approvals}
    return answers | {output.tool_call_id: output for output in turn.tool_outputs}
