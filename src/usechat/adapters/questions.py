"""Questions that are asked while an agent runs, by code that the agent calls, such as an MCP server's elicitation.

A question becomes a call of the tool ``interrupt``, whose input is the question and whose output is the answer. The
calls that run meanwhile stay open in the step before. Stock clients post an answer only when the stream has ended, so
the turn ends, while the agent's task waits in this process (:mod:`usechat.waiting_tasks`), and the turn that brings the
answer continues it. What the agent says between the two turns is kept for the second one.

Sources of frameworks answer their turns through :class:`AskingTurns`; :class:`AskingSource` does so for everything
else. Nothing changes for an agent that asks nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, Final

from usechat.adapters import conversation
from usechat.errors import LocalProtocolError
from usechat.forwarded_turns import ForwardedTurns
from usechat.ids import new_id
from usechat.protocol.parts import Data, Step, ToolCall
from usechat.protocol.request import ToolOutput
from usechat.sources import Agent, Source, as_source
from usechat.turn import Turn, TurnContext, current_context
from usechat.waiting_tasks import WAIT_SECONDS, WaitingTask, WaitingTasks

__all__ = ["AskingSource", "ask_page"]

_SETTLE_SECONDS: Final = 0.5
"""How long a turn waits for further questions. Those of parallel calls arrive one after the other; a later one is shown
in the turn that brings the answer to the first."""


async def ask_page(question: Any) -> ToolOutput | None:
    """Show a question to the page, and return its answer; ``None`` if another message came instead, or none in time.

    It works in code that an agent calls, in any thread and any event loop.

    Raises :class:`~usechat.errors.LocalProtocolError` outside of a turn, after its end, and if its source cannot wait.

    >>> async def delete_file() -> str:  # a tool of an agent
    ...     answer = await ask_page({"message": "Which file?"})
    ...     return "Nothing is deleted." if answer is None else f"{answer.output} is deleted."
    """
    context = current_context()
    if context.ask is None:
        raise LocalProtocolError("this agent cannot wait for an answer; serve AskingSource(agent) instead of it")
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(context.ask(question), context.loop))


class AskingTurns:
    """Answers the turns of a source whose agent may ask questions; an answer is waited for for ``wait_seconds``.

    ``drive`` answers one turn. ``name`` tells the questions of this source from those of others in the same chat.
    """

    def __init__(
        self, drive: Callable[[TurnContext], Awaitable[None]], name: str, *, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._drive = drive
        self._name = f"{name}/questions"
        self._tasks: WaitingTasks[ToolCall] = WaitingTasks(
            seconds=wait_seconds, settle_seconds=_SETTLE_SECONDS, keeps_parts=True, is_answer=_is_answer
        )
        self._forwarded = ForwardedTurns(self._drive_here, self._tasks.is_waiting, is_answer=_is_answer)

    async def drive(self, context: TurnContext) -> None:
        """Answer a turn, or continue the one that waits for its answers, in the process where it waits.

        Raises :class:`~usechat.errors.PublicError` if that process is gone.
        """
        await self._forwarded.drive(context, self._handle(context.turn))

    async def _drive_here(self, context: TurnContext) -> None:
        context.enter()
        has_asked = False
        async for call in self._tasks.events(context.turn, self._handle(context.turn), partial(self._run, context)):
            if not has_asked:
                # In a step of its own: the page posts again as soon as every call of the last step is answered.
                context.send(Step(leaves_calls=True))
            has_asked = True
            call_id = call.tool_call_id
            shown = {"id": call_id, "toolCallId": call_id, "value": call.input}
            context.send(Data(conversation.QUESTION, shown, call_id))
            context.send(call)

    async def _run(self, context: TurnContext, task: WaitingTask[ToolCall]) -> AsyncGenerator[ToolCall]:
        context.ask = partial(_ask, task)
        await self._drive(context)
        no_events: tuple[ToolCall, ...] = ()  # parts go to the context; only questions are events
        for event in no_events:
            yield event

    def _handle(self, turn: Turn) -> str:
        return conversation.state_handle(turn, self._name)


async def _ask(task: WaitingTask[ToolCall], question: Any) -> ToolOutput | None:
    if task.is_over:
        raise LocalProtocolError("the turn is over in which this code was started; open MCP sessions in each turn anew")
    call_id = conversation.ASKED + new_id()
    answer = await task.ask(call_id, ToolCall(call_id, conversation.QUESTION, question, dynamic=True))
    return answer if isinstance(answer, ToolOutput) else None


def _is_answer(turn: Turn) -> bool:
    return any(output.tool_call_id.startswith(conversation.ASKED) for output in turn.tool_outputs)


class AskingSource:
    """Answers turns with an agent function, or another source, whose code asks questions with :func:`ask_page`.

    An answer is waited for for ``wait_seconds``.

    >>> async def agent(turn):
    ...     answer = await ask_page({"message": "Which file?"})
    ...     yield "Never mind." if answer is None else f"{answer.output} is gone."
    >>> source = AskingSource(agent)  # for chat_response, ChatApp or `usechat serve`
    """

    def __init__(self, agent: Agent | Source, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._source = as_source(agent)
        self._turns = AskingTurns(self._drive, "agent", wait_seconds=wait_seconds)

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn."""
        await self._turns.drive(context)

    async def _drive(self, context: TurnContext) -> None:
        """Drive the source with a context that writes to the same place in later turns, too."""
        lasting = context.fork(context.relay)
        lasting.ask = context.ask
        lasting.enter()
        try:
            await self._source.drive(lasting)
        finally:
            lasting.stop()
