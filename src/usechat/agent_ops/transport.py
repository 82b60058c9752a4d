"""A session behind a WebSocket as something that answers a chat.

Each turn opens a socket, sends its commands, and reads frames until :class:`~usechat.agent_ops.adapter.SessionAdapter`
has yielded the ending. :class:`TurnExchange` is that exchange as an async iterator, which
:class:`~usechat.sources.AdapterSource` drives.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Final, cast

from usechat import AdapterSource, ChatRequest, Turn
from usechat.agent_ops.adapter import SessionAdapter, SessionInput
from usechat.agent_ops.audit import AuditLog
from usechat.agent_ops.connection import SessionSocket, SessionStreams, SocketCounter, session_url
from usechat.agent_ops.errors import SessionClosed, SessionUnreachable, TooManySockets
from usechat.agent_ops.prompt_tracker import PromptPhase, PromptTracker
from usechat.agent_ops.questions import QuestionMode, command_from_answer
from usechat.agent_ops.wire import Channel, Frame, abort_command, channel_key, prompt_command
from usechat.errors import InvalidSetting, PublicError, UnknownEvent, UnusableFile
from usechat.server import Identity, RunStore, Settings, Timeouts
from usechat.transports import ApprovalAnswer, Chunk, RunChatTransport, TurnContext, yield_once

__all__ = ["NOTHING", "NOT_RECORDED", "SILENT", "TOO_MANY", "UNREACHABLE", "AgentOpsChatTransport", "TurnExchange"]

_logger: Final = logging.getLogger("usechat.agent_ops")

UNREACHABLE: Final = "Connection failed"
TOO_MANY: Final = "Too many connections to this session; please try again later."
NOTHING: Final = "The message is empty."
NOT_RECORDED: Final = "This cannot be recorded at the moment, so it was not sent. Please try again later."
SILENT: Final = "The session was silent for too long, so the answer was stopped."

_SETTLE_SECONDS: Final = 2.0
"""How long tools may still report their outcome after their turn has ended."""
_WITHDRAW_SECONDS: Final = 1.0
"""How long a cancelled turn waits for the upstream to say whether its prompt runs."""


class AgentOpsChatTransport:
    """Answers a chat by turns of an agent session. It is a source and a chat transport.

    Args:
        url: the address of a session's WebSocket, with ``{id}`` in place of the session's id.
        session_id: one session for all requests; by default the id comes from the route's ``session_id``.
        service_token: the token for the upstream, or a function that returns the current one; by default it is that of
            the caller.
        subprotocol: send the token after this subprotocol (such as ``agent-ops``) instead of in the ``Authorization``
            header.
        questions: show the agent's questions as ``data-question`` parts (``"data"``) or as tool approvals
            (``"approval"``).
        events: the types of further frames that become ``data-…`` parts.
        idle_timeout: how many seconds the session may be silent; ``None`` means without limit.
        open_timeout: how many seconds a socket may take to open.
        maximum_sockets: how many sockets one session may have.
        maximum_frame_bytes: the largest frame that is read.
        tls: the certificates for a ``wss://`` address (:func:`~usechat.agent_ops.upstream_tls`).
        audit: records who prompts and approves, before anything is sent.
        runs, sdk, on_error: for :meth:`send_messages`; a server has its own.

    A turn fails with a :class:`~usechat.errors.PublicError` if the session cannot be reached, is silent for too long or
    has too many sockets.

    >>> from usechat.agent_ops import AgentOpsApp, SessionDirectory
    >>> directory = SessionDirectory("sqlite:///usechat-sessions.db")
    >>> transport = AgentOpsChatTransport("wss://agents.example.com/api/sessions/{id}/ws", idle_timeout=300)
    >>> app = AgentOpsApp(transport, access=directory, authorize=directory.bearer(), enabled=True)
    """

    def __init__(
        self,
        url: str,
        *,
        session_id: str | None = None,
        service_token: str | Callable[[], str] | None = None,
        subprotocol: str | None = None,
        questions: QuestionMode = "data",
        events: frozenset[str] = frozenset(),
        idle_timeout: float | None = 120,
        open_timeout: float = 10,
        maximum_sockets: int = 256,
        maximum_frame_bytes: int = 32 * 1024 * 1024,
        tls: ssl.SSLContext | None = None,
        audit: AuditLog | None = None,
        runs: RunStore | None = None,
        sdk: str = "any",
        on_error: Callable[[Exception], str] | None = None,
    ) -> None:
        self._url = url
        self._session_id = session_id
        self._service_token = service_token
        self._subprotocol = subprotocol
        self._questions: QuestionMode = questions
        self._events = events
        self._idle_timeout = idle_timeout
        self._open_timeout = open_timeout
        self._maximum_frame_bytes = maximum_frame_bytes
        self._tls = tls
        self._audit = audit
        self.sockets = SocketCounter(maximum_sockets)
        """Counts the sockets that are open."""
        settings = Settings(sdk=sdk, timeouts=Timeouts(first_event=None, idle=None), on_error=on_error)
        self._runs = RunChatTransport(self, runs=runs, settings=settings)

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request. Closing the iterator stops the turn before ``aclose`` returns."""
        return await self._runs.send_messages(request)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the running answer of a chat from its start, or ``None``."""
        return await self._runs.reconnect_to_stream(chat_id)

    async def drive(self, context: TurnContext) -> None:
        """Send the prompt, or a person's answers to questions, and write the parts of the turn."""
        turn = context.turn
        if turn.request.continues is not None and not turn.approvals:
            return  # The page's tool outputs are of no use: the session's tools run upstream. No prompt is sent twice.
        session_id = self._session_of(turn)
        try:
            with self.sockets.reserve(session_id) as streams:
                if turn.request.continues is not None:
                    self._record(turn, session_id)
                    await self._exchange(context, session_id, self._continue(turn))
                    return
                _require_content(turn)
                self._record(turn, session_id)
                async with streams.prompting():
                    await self._exchange(context, session_id, self._prompt(turn, streams))
        except TooManySockets:
            raise PublicError(TOO_MANY) from None

    def _record(self, turn: Turn, session_id: str) -> None:
        """Record a prompt, or a person's answers to questions. If that fails, the prompt is refused."""
        if self._audit is None:
            return
        subject = "" if turn.identity is None else turn.identity.subject
        place = {"session": session_id, "chat": turn.chat_id}
        try:
            if turn.request.continues is None:
                last = turn.request.last_user_message
                self._audit.append("prompt", subject, **place, message=None if last is None else last["id"])
            for answer in turn.approvals if turn.request.continues is not None else ():
                event = "approve" if answer.approved else "deny"
                self._audit.append(event, subject, **place, approval=answer.approval_id, call=answer.tool_call_id)
        except UnusableFile as error:
            _logger.error("session %s: %s", session_id, error)
            raise PublicError(NOT_RECORDED) from None

    async def _exchange(self, context: TurnContext, session_id: str, exchange: "TurnExchange") -> None:
        async with self._connect(context, session_id) as socket:
            source = AdapterSource(lambda _turn: exchange.events(socket), lambda: exchange.adapter)
            context.pause = yield_once  # a session is not held back: a page that is too slow is cut off
            await source.drive(context)
        if socket.frame_was_too_large and exchange.adapter.prompt.is_active:
            with suppress(SessionUnreachable):
                await self._abort_anew(context, session_id)

    async def _abort_anew(self, context: TurnContext, session_id: str) -> None:
        """Abort our turn over another socket, after its own was closed because of a frame that is too large."""
        socket = await self._open(context, session_id)
        try:
            await socket.send_last(abort_command(_channel_of(context.turn)))
        finally:
            await socket.close()

    def _session_of(self, turn: Turn) -> str:
        session_id = self._session_id or turn.path_params.get("session_id")
        if session_id is None:
            raise InvalidSetting(
                "the route names no session; serve it with AgentOpsApp, or give AgentOpsChatTransport(session_id=…)"
            )
        return str(session_id)

    def _prompt(self, turn: Turn, streams: SessionStreams) -> "TurnExchange":
        channel = _channel_of(turn)
        # With a service token the gateway is the author of every prompt upstream.
        author = turn.identity.subject if turn.identity is not None and self._service_token is None else None
        prompt = PromptTracker(
            turn.text,
            _key_of(channel),
            author=author,
            claim=streams.claim,
            echoes=streams.habits.echoes,
            reports_queued=streams.habits.reports_queued,
        )
        adapter = SessionAdapter(prompt, questions=self._questions, events=self._events)
        commands = [prompt_command(turn.text, turn.files, channel)]
        return TurnExchange(adapter, commands, streams=streams, channel=channel, idle_timeout=self._idle_timeout)

    def _continue(self, turn: Turn) -> "TurnExchange":
        message: Any = turn.request.continues
        channel = _channel_of(turn)
        adapter = SessionAdapter(
            PromptTracker.attached(message["id"], _key_of(channel)),
            questions=self._questions,
            answered=frozenset(answer.approval_id for answer in turn.approvals),
            events=self._events,
            shown=message,
        )
        commands = [command_from_answer(message, answer) for answer in turn.approvals]
        return TurnExchange(adapter, commands, answers=turn.approvals, channel=channel, idle_timeout=self._idle_timeout)

    @asynccontextmanager
    async def _connect(self, context: TurnContext, session_id: str) -> AsyncIterator[SessionSocket]:
        try:
            socket = await self._open(context, session_id)
        except SessionUnreachable:
            context.source_unreachable()
            raise PublicError(UNREACHABLE) from None
        with context.connected():
            try:
                yield socket
            finally:
                await socket.close()

    async def _open(self, context: TurnContext, session_id: str) -> SessionSocket:
        identity = context.turn.identity
        return await SessionSocket.open(
            session_url(self._url, session_id),
            self._token_of(identity),
            name=session_id,
            subprotocol=self._subprotocol,
            open_timeout=self._open_timeout,
            maximum_frame_bytes=self._maximum_frame_bytes,
            tls=self._tls,
        )

    def _token_of(self, identity: Identity | None) -> str | None:
        if self._service_token is None:
            return None if identity is None else identity.token
        return self._service_token() if callable(self._service_token) else self._service_token


class TurnExchange:
    """One turn over a socket: the commands that are sent, the frames that come back, and how the turn is left.

    The exchange ends when the adapter has yielded an ending, when the socket closes, or when the time for late tool
    outcomes is over. Leaving it earlier, by cancelling or closing the iterator, stops the turn upstream.
    """

    def __init__(
        self,
        adapter: SessionAdapter,
        commands: Sequence[Frame],
        *,
        answers: Sequence[ApprovalAnswer] = (),
        streams: SessionStreams | None = None,
        channel: Channel | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        self.adapter = adapter
        self._commands = commands
        self._answers = answers
        self._streams = streams
        self._channel = channel
        self._idle_timeout = idle_timeout

    async def events(self, socket: SessionSocket) -> AsyncGenerator[SessionInput, None]:
        """Send the commands; yield the answers that were sent and all frames until the turn is over.

        Raises :class:`~usechat.errors.PublicError` if the session is silent for too long.
        """
        adapter = self.adapter
        try:
            for command in self._commands:
                await socket.send(command)
            for answer in self._answers:
                yield answer
            with closing(_FrameDeadline(adapter, self._idle_timeout)) as deadline:
                while not adapter.ended:
                    yield await deadline.receive(socket)
                    self._note_habits()
        except SessionClosed:
            return  # the adapter's `close` knows whether the turn was complete
        except TimeoutError:
            if adapter.settling:
                return
            await self._leave(socket)
            raise PublicError(SILENT) from None
        except BaseException:  # cancelled, closed or failed
            await self._leave(socket)
            raise

    def _note_habits(self) -> None:
        """Note for later prompts what this one has shown of the upstream."""
        if self._streams is None:
            return
        prompt = self.adapter.prompt
        if prompt.reports_queued:
            self._streams.note_queued()
        if prompt.echoes:
            self._streams.note_echo()
        elif prompt.has_started:
            self._streams.note_missing_echo()
        if prompt.echoes and prompt.reports_queued:
            self._streams = None  # nothing is left to find out

    async def _leave(self, socket: SessionSocket) -> None:
        """Stop our turn and no other: on an abort, some upstreams also empty the whole queue."""
        adapter = self.adapter
        await self._read_while(socket, lambda: adapter.prompt.phase is PromptPhase.SENT)
        if adapter.withdrawable and not adapter.prompt.is_active and not adapter.ended:
            await socket.send_last({"type": "queue.withdraw"})
            await self._read_while(socket, lambda: not adapter.prompt.is_active)  # the runner may have been faster
        if adapter.prompt.is_active and not adapter.ended:
            await socket.send_last(abort_command(self._channel))

    async def _read_while(self, socket: SessionSocket, is_unknown: Callable[[], bool]) -> None:
        """Read on for a moment until the upstream says what became of the prompt; drop the parts."""
        with suppress(TimeoutError, SessionClosed):
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                while is_unknown() and not self.adapter.ended:
                    with suppress(UnknownEvent):
                        list(self.adapter.feed(await socket.receive()))


class _FrameDeadline:
    """Limits how long a frame may take, with one timer for the whole turn.

    ``asyncio.timeout`` does not fit. Around the loop it would also cancel the code that handles a frame, which runs
    while the generator is suspended at its ``yield``; around each frame it costs several microseconds. This is the same
    mechanism (cancel the task, then turn the ``CancelledError`` into a ``TimeoutError``), active only while a frame is
    awaited, with a timer that is moved only when it would fire too early.
    """

    def __init__(self, adapter: SessionAdapter, idle_timeout: float | None) -> None:
        self._adapter = adapter
        self._idle_timeout = idle_timeout
        self._tolerance = (idle_timeout or 0) / 50
        self._loop = asyncio.get_running_loop()
        self._last_frame = self._loop.time()
        self._settled_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._expired = False

    async def receive(self, socket: SessionSocket) -> Frame:
        """Return the next frame; raise ``TimeoutError`` if it does not come in time."""
        self._set_timer(self._deadline())
        task = self._waiting = cast("asyncio.Task[Any]", asyncio.current_task())
        cancelling = task.cancelling()
        try:
            frame = await socket.receive()
        except asyncio.CancelledError:
            if self._expired and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            self._waiting = None
        if frame.get("type") != "pong":  # an answer to our own ping is no sign of life
            self._last_frame = self._loop.time()
        return frame

    def _deadline(self) -> float | None:
        if self._adapter.settling:
            self._settled_at = self._settled_at or self._loop.time() + _SETTLE_SECONDS
            return self._settled_at
        self._settled_at = None
        if self._adapter.is_asking or self._idle_timeout is None:
            return None  # people take their time
        return self._last_frame + self._idle_timeout

    def _set_timer(self, deadline: float | None) -> None:
        timer = self._timer
        if deadline is not None and timer is not None and 0 <= deadline - timer.when() <= self._tolerance:
            return
        self.close()
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self._waiting is not None:
            self._expired = True
            self._waiting.cancel()


def _require_content(turn: Turn) -> None:
    if not turn.text.strip() and not turn.files:
        raise PublicError(NOTHING)


def _channel_of(turn: Turn) -> Channel | None:
    channel_id = turn.query.get("channelId")
    return Channel(turn.query.get("channelType") or "web", channel_id) if channel_id else None


def _key_of(channel: Channel | None) -> str:
    return channel_key(None, None) if channel is None else channel_key(channel.type, channel.id)
