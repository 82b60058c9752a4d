"""The functions that an application provides besides its agent: for its own database, titles and ratings.

An application with a database of its own gives ``load=`` and ``on_finish=``: the server loads the history before a turn
and reports the message after it (:class:`ReportedAnswer`). Apps whose chats are stored have ``on_finish`` too; there
:class:`~usechat.server.stored_answer.StoredAnswer` calls it. A hook that raises or takes too long is logged with a
reference, and harms nothing else.
"""

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import msgspec

from usechat.chats.chat import Outcome, settled
from usechat.chats.history import HistoryFunction
from usechat.chats.meaning import request_over
from usechat.chats.recording import AnswerBuilder
from usechat.chats.titles import TitleFunction
from usechat.ids import new_id
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.run import RunInfo
from usechat.runs.transport import RunChatTransport
from usechat.sources import as_source
from usechat.threads import AgentThreads
from usechat.turn import Identity, Turn, TurnContext, TurnInput

__all__ = [
    "NO_HOOKS",
    "Feedback",
    "FeedbackFunction",
    "FinishFunction",
    "Hooks",
    "LoadFunction",
    "MakeContext",
    "ReportedAnswer",
    "answerable_calls",
    "title_function",
]

FinishFunction: TypeAlias = Callable[[UIMessage, Turn, Outcome], Awaitable[object] | object]
"""Gets the finished message, the turn and how it ended; see ``docs/chats.md``."""
LoadFunction: TypeAlias = Callable[[Turn], Awaitable[list[UIMessage]] | list[UIMessage]]
"""Returns the messages of a chat that the application has stored."""
MakeContext: TypeAlias = Callable[[ChatRequest], TurnContext]


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What a person thinks of a message, as it was stored with it.

    ``value`` is any JSON; the page sends ``{"rating": "good"}`` or ``{"rating": "bad"}``. ``None`` takes it back.

    >>> Feedback(chat_id="c1", message_id="m1", value={"rating": "good"}, identity=Identity("ada")).value["rating"]
    'good'
    """

    chat_id: str
    message_id: str
    value: Any
    identity: Identity


FeedbackFunction: TypeAlias = Callable[[Feedback], Awaitable[object] | object]
"""Gets what a person thinks of a message, once it is stored."""

_logger: Final = logging.getLogger("usechat.chats")
_HOOK_SECONDS: Final = 30.0
"""Seconds that ``on_finish`` and ``on_feedback`` may take before the page sees the end without them."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that the application provides besides its agent.

    Functions that are not async run in ``threads``, except ``history``: it is called in the event loop.
    """

    on_finish: FinishFunction | None = None
    load: LoadFunction | None = None
    titles: TitleFunction | None = None
    history: HistoryFunction | None = None
    on_feedback: FeedbackFunction | None = None
    threads: AgentThreads = msgspec.field(default_factory=AgentThreads)

    async def rated(self, feedback: Feedback) -> None:
        """Call ``on_feedback``. If it raises or takes too long, that is logged with a reference."""
        if self.on_feedback is not None:
            what = f"on_feedback failed for the message {feedback.message_id}"
            await self._report(self.on_feedback, feedback, what=what, chat_id=feedback.chat_id)

    async def finished(self, message: UIMessage, turn: Turn, outcome: Outcome) -> None:
        """Call ``on_finish``. If it raises or takes too long, that is logged with a reference."""
        if self.on_finish is not None:
            what = f"on_finish failed for the answer {message['id']}"
            await self._report(self.on_finish, message, turn, outcome, what=what, chat_id=turn.chat_id)

    async def loaded(self, request: ChatRequest, make_context: MakeContext) -> ChatRequest:
        """Return a request with the history that the application has stored, instead of what the page sent."""
        if self.load is None:
            return request
        stored = await self.threads.call(self.load, make_context(request).turn)
        return request_over(list(stored), request)

    def recorder(self, info: RunInfo, turn: Turn, continues: UIMessage | None) -> "ReportedAnswer | None":
        """Return what reports the answer of a run to ``on_finish``."""
        return None if self.on_finish is None else ReportedAnswer(info, turn, continues, self)

    async def lost(self, message: UIMessage, chat_id: str, owner: str) -> None:
        """Report the answer of a worker that died. Of its turn only the chat and its owner are known."""
        context = TurnContext(TurnInput(ChatRequest(chat_id=chat_id, messages=[]), Identity(owner)))
        await self.finished(message, context.turn, "lost")

    async def _report(self, hook: Callable[..., Any], *arguments: Any, what: str, chat_id: str) -> None:
        """Call a hook of the application; a failure is logged, and harms nothing else."""
        try:
            async with asyncio.timeout(_HOOK_SECONDS):
                await self.threads.call(hook, *arguments)
        except Exception:
            reference = secrets.token_hex(4)
            _logger.exception(
                "%s of chat %s; reference %s",
                what,
                chat_id,
                reference,
                extra={"chat_id": chat_id, "reference": reference},
            )


NO_HOOKS: Final = Hooks()


class ReportedAnswer:
    """Builds the answer of a run and reports it when it ends."""

    states = None
    memory = None
    steps = None

    def __init__(self, info: RunInfo, turn: Turn, continues: UIMessage | None, hooks: Hooks) -> None:
        self._answer = AnswerBuilder(sdk=info.sdk, message_id=info.message_id, continues=continues)
        self._turn = turn
        self._hooks = hooks

    def start(self, fail: Callable[[str], object]) -> None:
        """Do nothing: nothing is recorded before the end."""

    def receive(self, frames: bytes) -> None:
        """Take frames that readers see."""
        self._answer.receive(frames)
        if self._answer.is_crowded:
            _ = self._answer.message

    async def commit(self) -> None:
        """Do nothing: nothing is recorded before the end."""

    def interrupt(self) -> None:
        """Do nothing: an answer that is not stored ends with its process."""

    async def finish(self, info: RunInfo) -> None:
        """Report the answer."""
        outcome = cast("Outcome", str(info.state))
        message = settled(self._answer.message, outcome, answerable_calls(info))
        await self._hooks.finished(message, self._turn, outcome)


def answerable_calls(info: RunInfo) -> list[str]:
    """Return the ids of the calls of a run that the page may still answer."""
    return [call.tool_call_id for call in info.open_calls]


def title_function(titles: Any) -> TitleFunction | None:
    """Return a function that makes titles: ``titles`` itself, or a function that asks it, if it is an agent.

    Raises :class:`~usechat.errors.CannotAnswer` if it is neither.
    """
    is_generator = inspect.isgeneratorfunction(titles) or inspect.isasyncgenfunction(titles)
    if titles is None or (inspect.isroutine(titles) and not is_generator):
        return cast("TitleFunction | None", titles)
    transport = RunChatTransport(as_source(titles))

    async def ask(messages: list[UIMessage]) -> str:
        chunks = await transport.send_messages(ChatRequest(chat_id=new_id(), messages=messages))
        return "".join([chunk.delta async for chunk in chunks if isinstance(chunk, TextDeltaChunk)])

    return ask
