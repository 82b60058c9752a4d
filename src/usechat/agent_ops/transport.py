"""A session behind a WebSocket as something that answers a chat."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from usechat.agent_ops.adapter import SessionAdapter
from usechat.agent_ops.connection import Conversation, Room, Session, Sockets, prompt_of, url_of
from usechat.agent_ops.prompt_tracker import OwnTurn
from usechat.agent_ops.questions import Questions, QuestionsAs, answer_of
from usechat.agent_ops.wire import Channel, channel_key
from usechat.errors import LocalProtocolError, PublicError, SessionUnreachable, TooManySockets
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.runs.run import Timeouts
from usechat.runs.store import RunStore
from usechat.runs.transport import RunChatTransport
from usechat.turn import Turn, TurnContext

__all__ = ["AgentOpsChatTransport"]

UNREACHABLE: Final = "Connection failed"
TOO_MANY: Final = "Too many connections to this session; please try again later."
NOTHING: Final = "The message is empty."


class AgentOpsChatTransport:
    """Answers a chat by turns of an agent session.

    ``url`` is the address of a session's WebSocket, with ``{id}`` where the session's id stands; the id comes from the
    route (``session_id``), or is the same for all. The upstream is called with the caller's own token, or with
    ``service_token``; as a header, or behind ``subprotocol`` (``agent-ops``). ``questions`` are shown as
    ``data-question`` parts or as tool approvals. ``events`` names further events that become ``data-…`` parts.
    ``idle_timeout`` is how many seconds the session may be silent; ``None`` is for ever.
    """

    def __init__(
        self,
        url: str,
        *,
        session_id: str | None = None,
        service_token: str | None = None,
        subprotocol: str | None = None,
        questions: QuestionsAs = "data",
        events: frozenset[str] = frozenset(),
        idle_timeout: float | None = 120,
        open_timeout: float = 10,
        maximum_sockets: int = 256,
        maximum_frame_bytes: int = 32 * 1024 * 1024,
        runs: RunStore | None = None,
        sdk: str = "any",
        on_error: Callable[[Exception], str] | None = None,
    ) -> None:
        self._url = url
        self._session_id = session_id
        self._service_token = service_token
        self._subprotocol = subprotocol
        self._questions: QuestionsAs = questions
        self._events = events
        self._idle_timeout = idle_timeout
        self._open_timeout = open_timeout
        self._maximum_frame_bytes = maximum_frame_bytes
        self.sockets = Sockets(maximum_sockets)
        """The sockets that are open."""
        self._runs = RunChatTransport(
            self, runs=runs, sdk=sdk, timeouts=Timeouts(first_event=None, idle=None), on_error=on_error
        )

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request. Closing the iterator stops the turn before ``aclose`` returns."""
        return await self._runs.send_messages(request)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the answer that is being given, from its start, or nothing."""
        return await self._runs.reconnect_to_stream(chat_id)

    async def drive(self, context: TurnContext) -> None:
        """Ask the agent, or tell it what a person answered, and pass on its turn."""
        turn = context.turn
        if turn.request.continues is not None and not turn.approvals:
            return  # outputs of tools are of no use to it: its tools run upstream, and no prompt is sent twice
        session_id = self._session_of(turn)
        try:
            with self.sockets.place(session_id) as room:
                await self._converse(context, session_id, room)
        except TooManySockets:
            raise PublicError(TOO_MANY) from None

    def _session_of(self, turn: Turn) -> str:
        session_id = self._session_id or turn.path_params.get("session_id")
        if session_id is None:
            raise LocalProtocolError(
                "the route names no session; serve it with AgentOpsApp, or give AgentOpsChatTransport(session_id=…)"
            )
        return str(session_id)

    async def _converse(self, context: TurnContext, session_id: str, room: Room) -> None:
        turn = context.turn
        conversation = self._asking(context, room) if turn.request.continues is None else self._answering(context)
        token = self._service_token or (turn.identity.token if turn.identity is not None else None)
        try:
            session = await Session.open(
                url_of(self._url, session_id),
                token,
                subprotocol=self._subprotocol,
                open_timeout=self._open_timeout,
                maximum_frame_bytes=self._maximum_frame_bytes,
            )
        except SessionUnreachable:
            context.source_unreachable()
            raise PublicError(UNREACHABLE) from None
        with context.connected():
            try:
                await conversation.hold(session, self._idle_timeout)
            finally:
                await session.close()

    def _asking(self, context: TurnContext, room: Room) -> Conversation:
        turn = context.turn
        if not turn.text.strip() and not turn.files:
            raise PublicError(NOTHING)
        channel = _channel_of(turn)
        # With a service token the upstream takes the gateway for the author, whoever asks.
        author = turn.identity.subject if turn.identity is not None and self._service_token is None else None
        own = OwnTurn(turn.text, _key_of(channel), author=author, claim=room.claim)
        adapter = SessionAdapter(own, Questions(self._questions), events=self._events, on_unknown=context.event_unknown)
        return Conversation(context, adapter, [prompt_of(turn.text, turn.files, channel)], channel)

    def _answering(self, context: TurnContext) -> Conversation:
        turn = context.turn
        shown: Any = turn.request.continues
        answered = frozenset(answer.approval_id for answer in turn.approvals)
        adapter = SessionAdapter(
            OwnTurn.attached(shown["id"], _key_of(_channel_of(turn))),
            Questions(self._questions, answered),
            events=self._events,
            shown=shown,
            on_unknown=context.event_unknown,
        )
        return Conversation(context, adapter, [answer_of(answer) for answer in turn.approvals], _channel_of(turn))


def _channel_of(turn: Turn) -> Channel | None:
    channel_id = turn.query.get("channelId")
    return Channel(turn.query.get("channelType") or "web", channel_id) if channel_id else None


def _key_of(channel: Channel | None) -> str:
    return channel_key(None, None) if channel is None else channel_key(channel.type, channel.id)
