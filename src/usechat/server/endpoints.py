"""The endpoints: start a run and stream it, resume, stop, report the state.

:class:`Endpoints` is where the rooms meet. It owns one run manager and lends it what a server has: a policy that knows
people, a store of chats or the application's hooks, a queue of turns if other processes run the agents, and observers.
The routes (:mod:`usechat.server.app`), the WebSocket (:mod:`usechat.server.websocket`) and ``chat_response`` hold an
``Endpoints`` each, and add nothing but their way to send.

**A message takes five steps**, and each can refuse it with a :class:`~usechat.errors.RequestError`:

1. *Authenticate*: is the sender known at all? This comes before the body is read, so that strangers send none.
2. *Read* the body: an AI SDK request within the limits (:mod:`usechat.server.requests`).
3. *Identify*: may this person write to this chat? The answer is an identity, and the key under which runs of the chat
   are found. People who name their chats alike get different keys.
4. *Begin*: the run manager claims the chat, or applies the rule for conflicts. Under that claim the history is loaded
   and the answers of the page are checked (``_prepare``), so that what is decided is decided about the last run.
5. *Stream*: the reading of the run becomes the response (:mod:`usechat.server.response`).

Resume, stop and state do 1, 3, and one call of the run manager. What is refused is a response with a sentence; the
method ``answer`` makes it, and nothing else in the package does.

**Who may see what.** The run manager knows keys and no people; the policy knows people and no runs. Every method asks
the policy first, and passes only the key on: a chat of somebody else and a chat that is not there look the same.
"""

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from usechat.chats.memory import MemoryChats
from usechat.chats.store import ChatStore
from usechat.errors import (
    AmbiguousLength,
    CannotAnswer,
    ChatNotFound,
    InvalidRequest,
    InvalidSetting,
    RequestError,
    RequestTimeout,
    TooManyRequests,
    TooManyWaiting,
    Unauthenticated,
)
from usechat.ids import new_id
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.manager import Reading, RunCallbacks, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.open_calls import Answers, own_secret, secret_of_chat
from usechat.runs.quotas import QuotaLimiter
from usechat.runs.run import PreparedRun, RunInfo, RunRecorder, RunState, message_digest
from usechat.runs.settings import Settings
from usechat.runs.store import RunStore
from usechat.runs.turns import Dispatcher, QueuedTurn, TurnQueue
from usechat.runs.views import NOTHING_MORE, ViewName, failure
from usechat.server.agents import Agents
from usechat.server.connection import AsgiServer
from usechat.server.file_urls import file_urls
from usechat.server.hooks import NO_HOOKS, Feedback, FinishFunction, Hooks, LoadFunction, MakeContext
from usechat.server.observers.observer import Observer, Observers, report_start
from usechat.server.recovering import Recovering
from usechat.server.requests import (
    CLOSING,
    AccessPolicy,
    Action,
    AuthorizedChats,
    AuthorizeFunction,
    RequestHeaders,
    allow_all,
    check_framing,
    check_release,
    read_request,
    release_of,
)
from usechat.server.response import ShortStream, StreamResponse
from usechat.server.turns import StoredTurns, report_lost
from usechat.server.uvicorn import UvicornServer
from usechat.sources import (
    FactorySource,
    FunctionSource,
    HasMcpServers,
    OpenSession,
    Reachable,
    Servable,
    as_source,
    is_factory,
    warn_of_forgetting,
    warn_of_process_memory,
)
from usechat.threads import AgentThreads
from usechat.turn import Identity, Turn, TurnContext, TurnInput

__all__ = ["Endpoints", "ServedChats", "chat_response"]


_logger: Final = logging.getLogger("usechat.server")
_RUN_ID: Final = "x-workflow-run-id"
"""The header that names what is streamed, so that ``WorkflowChatTransport`` can go on behind a cut."""
_TAIL_INDEX: Final = "x-workflow-stream-tail-index"
"""The header with the index of the last chunk, for a client that counts from there."""
_INDEX: Final = re.compile(r"-?[0-9]{1,12}")
_NOT_KEPT: Final = "The server does not have this answer any more. Reload the page to see what it has stored."
_NO_HEADERS: Final[Mapping[str, str]] = {}


class ServedChats(NamedTuple):
    """The chats that a server stores: where they are, and the path that pages post to."""

    store: ChatStore
    path: str


class Endpoints:
    """Answers the requests of a chat page, one method per route. ``policy`` decides who may do what with which chat."""

    def __init__(
        self,
        agent: Any,
        *,
        store: RunStore,
        settings: Settings,
        policy: AccessPolicy,
        observer: Observer,
        keep_log: bool = True,
        hooks: Hooks = NO_HOOKS,
        chats: ServedChats | None = None,
    ) -> None:
        self._agents = Agents(agent)
        self.queue = self._agents.queue
        """Where turns wait for an agent process; ``None`` if runs are driven here."""
        self.settings = settings
        self._path = "" if chats is None else chats.path
        self._hooks = hooks
        self._policy = policy
        self.server = AsgiServer() if settings.plain_asgi else UvicornServer()
        self.observer = observer
        self.store = store
        self.keep_log = keep_log
        self.threads = AgentThreads(settings.threads, on_waiting=observer.threads_waiting)
        self._quotas = QuotaLimiter(settings.quotas, store)
        self.drain = 0.0
        """Seconds that runs get to end when the server shuts down."""
        self.has_lifespan = False
        """Whether the server tells the app that it shuts down, by the lifespan."""
        self._secret = settings.approval_secret or own_secret()
        if self.queue is not None:
            _check_queued(store)
        self.manager = RunManager(
            store,
            msgspec.structs.replace(settings, approval_secret=self._secret),
            keep_log=keep_log,
            dispatcher=None if self.queue is None else self._dispatcher(self.queue),
            callbacks=RunCallbacks(
                on_start=partial(report_start, observer),
                on_failure=observer.run_failed,
                on_end=observer.run_ended,
                on_loss=observer.run_lost,
                on_done=self._release,
                on_lost_answer=self._report_lost,
                make_recorder=self._make_recorder,
            ),
        )
        self._recovering: Recovering | None = None
        self.stored = None
        """The turns of stored chats, if chats are stored."""
        if chats is not None:
            patience = 0 if self.queue is None else self.queue.patience
            self.stored = StoredTurns(
                chats.store,
                self.manager,
                hooks,
                file_bytes=settings.history_file_bytes,
                keep=settings.keep_chats,
                patience=patience,
            )
            if self.queue is None and not store.is_shared:
                self._recovering = Recovering(
                    self.stored, self.manager, settings, self._agents.opened, self._context_of
                )
        self._check_consent(None if chats is None else chats.store)

    def _check_consent(self, chats: ChatStore | None) -> None:
        """Refuse the consent to go on after a crash where no answer could. Raises ``InvalidSetting``."""
        rule = self.settings.after_crash
        if rule is None or rule == "lose":
            return
        if chats is None or isinstance(chats, MemoryChats):
            raise InvalidSetting(
                f"after_crash={rule!r} needs chats in a database; give chats=SqlChats(...), or --chats"
            )
        if self._recovering is None:
            where = type(self.store if self.queue is None else self.queue).__name__
            raise InvalidSetting(f"after_crash={rule!r} has no effect with {where}; leave it out")
        self._check_agents(rule)

    def _check_agents(self, rule: str) -> None:
        names = self._agents.unable_to_continue
        if len(names) == len(self._agents.entries):
            raise InvalidSetting(
                "none of the agents can go on with an answer whose process died:"
                f" {', '.join(names)}; leave after_crash={rule!r} out"
            )
        if names:
            _logger.warning("after_crash=%r has no effect on these agents: %s", rule, ", ".join(names))

    async def mcp_servers(self, agent: str) -> Mapping[str, OpenSession]:
        """Return the MCP servers of an agent that is served here, as far as it tells them."""
        source: object = await self._agents.open(agent or self._agents.entries[0].name)
        return source.mcp_servers() if isinstance(source, HasMcpServers) else {}

    async def report_feedback(self, feedback: Feedback) -> None:
        """Pass a person's rating of a message to the application."""
        await self._hooks.rated(feedback)

    @property
    def is_history_stored(self) -> bool:
        """Whether the server has the history, so that a request may bring none."""
        return self.stored is not None or self._hooks.load is not None

    async def _report_lost(self, info: RunInfo) -> None:
        await self._quotas.release(info.subject, info.origin or info.run_id)
        await report_lost(info, self.manager, self._hooks, self.stored)

    async def _make_recorder(
        self, info: RunInfo, context: TurnContext, continues: Mapping[str, Any] | None
    ) -> RunRecorder | None:
        """Return what records the end of a queued turn that is withdrawn."""
        if self.stored is not None:
            return await self.stored.recorder_of(info, context, continues)
        return self._hooks.recorder(info, context.turn, cast("UIMessage | None", continues))

    def _dispatcher(self, queue: TurnQueue) -> Dispatcher:
        return Dispatcher(queue, approval_secret=self._secret, quotas=self.settings.quotas)

    async def send(self, request: Request) -> Response:
        """Start a run and stream it."""
        return await self.answer(self._send, request)

    async def resume(self, request: Request) -> Response:
        """Stream the chat's running answer from its start; 204 when there is none."""
        return await self.answer(self._resume, request)

    async def stop(self, request: Request) -> Response:
        """Stop the chat's run, in any worker. Returns 204 once the run has ended. Idempotent."""
        return await self.answer(self._stop, request)

    async def state(self, request: Request) -> Response:
        """Return the state of the chat's last run."""
        return await self.answer(self._state, request)

    async def agents(self, request: Request) -> Response:
        """List the agents that a request can choose with the field ``agent`` of its body; the first is the default."""
        return await self.answer(self._list_agents, request)

    async def limits(self, request: Request) -> Response:
        """Return how much one request may hold, so that a client refuses a file before it sends it."""
        return await self.answer(self._describe_limits, request)

    async def _list_agents(self, request: Request) -> Response:
        await self.identify(request, "", "describe")
        return JSONResponse({"agents": msgspec.to_builtins(self._agents.entries)})

    async def _describe_limits(self, request: Request) -> Response:
        await self.identify(request, "", "describe")
        limits = self.settings.limits
        return JSONResponse(
            {
                "maximumBytes": limits.maximum_bytes,
                "maximumFileBytes": limits.maximum_file_bytes,
                "maximumFiles": limits.maximum_files,
            }
        )

    async def _send(self, request: Request) -> Response:
        received = asyncio.get_running_loop().time()
        is_known = await self.authenticate(request)
        try:
            chat_request = await read_request(
                request,
                self.settings.limits,
                timeout=self.settings.body_timeout,
                is_history_stored=self.is_history_stored,
                origins=self.settings.websocket_origins,
            )
        except InvalidRequest:
            if not is_known:  # an unknown client does not learn what is wrong with the body
                await self.identify(request, str(request.path_params.get("chat_id", "")))
            raise
        chat_request = _with_id(request, chat_request)
        reading = await self.begin(request, chat_request, self.settings.sdk, has_left=request.is_disconnected)
        return self._stream(reading, received, {_RUN_ID: str(ViewName(reading.view, chat_request.chat_id))})

    async def authenticate(self, request: Request) -> bool:
        """Return whether the sender is known before the request's content is; raise a ``RequestError`` to refuse it."""
        return await self._policy.authenticate(request)

    async def identify(self, request: Request, chat_id: str, action: Action = "send") -> Identity:
        """Return who does this with a chat; raise a ``RequestError`` if they may not."""
        return await self._policy.identify(request, chat_id, action)

    async def begin(
        self,
        request: Request,
        chat_request: ChatRequest,
        sdk: str,
        *,
        identity: Identity | None = None,
        has_left: Callable[[], Awaitable[bool]],
    ) -> Reading:
        """Start a run; raise a ``RequestError`` if that cannot be.

        ``sdk`` counts if the request names no release. ``identity`` is the sender, if it was identified before.
        ``has_left`` tells whether the client is gone; it is asked while the request waits for another run to end.
        """
        chat_request = _with_id(request, chat_request)
        if identity is None:
            identity = await self.identify(request, chat_request.chat_id)
        key = self._policy.key(request, identity, chat_request.chat_id)
        continues = chat_request.continues
        # A message that is sent twice is answered once; a regenerated answer is wanted again.
        repeatable = (
            chat_request.last_user_message if chat_request.trigger == "submit-message" and not continues else None
        )
        identifying = continues or repeatable
        info = RunInfo(
            run_id=new_id(),
            chat_id=key,
            message_id=(continues["id"] if continues else "") or f"msg-{new_id()}",
            sdk=release_of(request, sdk),
            user_message_id=repeatable["id"] if repeatable else "",
            user_message_digest=message_digest(identifying) if identifying else "",
            subject=identity.subject,
        )

        turn_input = TurnInput(
            chat_request, identity, RequestHeaders(request.scope), request.path_params, request.query_params
        )
        make_context = partial(self._context, turn_input)
        agent = await self._agent_for(chat_request, identity)
        source = await self._agents.open(agent)
        if source is not None and _is_reachable(type(source)):
            await cast("Reachable", source).require_reachable()
        await self._admit(info)
        try:
            await self._policy.admit(request)
            if self.stored is None:
                prepare = partial(self._prepare, chat_request, info, make_context)
                return await self.manager.start(info, source, prepare, has_left=has_left)
            return await self.stored.begin(
                chat_request,
                info,
                source,
                make_context,
                agent=agent,
                files=file_urls(request, self._path, chat_request.chat_id),
                check_import=await self._import_check(info) if self.settings.import_history else None,
                has_left=has_left,
            )
        finally:
            if not self.manager.has(info.run_id):  # refused, or it reads the answer of another run
                await self._quotas.release(info.subject, info.run_id)

    async def _admit(self, info: RunInfo) -> None:
        """Count a new run against the quotas of its person. Raises :class:`~usechat.errors.TooManyRequests`."""
        latest = await self.manager.latest(info.chat_id) if self._quotas.limits_runs else None
        is_answered = False
        if latest is not None and latest.subject == info.subject:
            is_answered = latest.state is RunState.RUNNING
            if not is_answered:  # its end may still be on its way from an agent process
                await self._quotas.release(info.subject, latest.run_id)
        await self._quotas.admit(info.subject, info.run_id, is_answered=is_answered)

    async def _agent_for(self, chat_request: ChatRequest, identity: Identity) -> str:
        chat_agent = message_agent = ""
        if self._agents.are_several and self.stored is not None:
            chat_agent, message_agent = await self.stored.agents_of(chat_request, identity.subject)
        return self._agents.choose(chat_request.body, chat_agent=chat_agent, message_agent=message_agent)

    def _context(self, turn_input: TurnInput, chat_request: ChatRequest) -> TurnContext:
        turn_input = msgspec.structs.replace(turn_input, request=chat_request)
        return TurnContext(turn_input, observer=self.observer, threads=self.threads)

    def _context_of(self, turn: QueuedTurn, chat_request: ChatRequest) -> TurnContext:
        """Return the context of a turn that a process has begun which died."""
        turn_input = msgspec.structs.replace(turn.input, headers=RequestHeaders.of(turn.input.headers))
        return self._context(turn_input, chat_request)

    async def _prepare(
        self, chat_request: ChatRequest, info: RunInfo, make_context: MakeContext, latest: RunInfo | None
    ) -> PreparedRun:
        """Make a run where the page's messages, or those that the application loads, are the history."""
        answers = self._answers(chat_request, info, latest)
        answers.check_approvals()
        chat_request = msgspec.structs.replace(chat_request, pending_calls=answers.pending())
        chat_request = await self._hooks.loaded(chat_request, make_context)
        context, continues = make_context(chat_request), chat_request.continues
        info = msgspec.structs.replace(info, open_calls=answers.unanswered(), given_calls=answers.given())
        recorder = None if self.queue is not None else self._hooks.recorder(info, context.turn, continues)
        return PreparedRun(info, context, continues, recorder)

    def _answers(self, chat_request: ChatRequest, info: RunInfo, latest: RunInfo | None) -> Answers:
        answerable = None if latest is None else latest.answerable
        return Answers(chat_request, info.chat_id, answerable, secret_of_chat(self._secret, info.chat_id, info.subject))

    async def _import_check(self, info: RunInfo) -> Callable[[ChatRequest], ChatRequest]:
        """Return the check of a history that is imported: the answers in it must answer calls that were open."""
        latest = await self.manager.latest(info.chat_id)

        def check(chat_request: ChatRequest) -> ChatRequest:
            answers = self._answers(chat_request, info, latest)
            answers.check_approvals()
            return msgspec.structs.replace(chat_request, pending_calls=answers.pending())

        return check

    async def _release(self, info: RunInfo, size: int) -> None:
        await self._quotas.release(info.subject, info.run_id, size)

    async def start(self) -> None:
        """Open the agents and the chat store. Raises :class:`~usechat.errors.UnusableChats`."""
        unable = self._agents.unable_to_continue
        await self._agents.open_all()
        if self.settings.after_crash in ("continue", "ask") and self._agents.unable_to_continue != unable:
            self._check_agents(self.settings.after_crash)
        if self.store.is_shared:
            self._agents.warn(warn_of_process_memory)
        if self.stored is None or not self.stored.store.outlives_process:
            self._agents.warn(warn_of_forgetting)
        if self.stored is not None:
            await self.stored.open()

    def _stream(self, reading: Reading, received: float, headers: Mapping[str, str] = _NO_HEADERS) -> Response:
        self.server.disconnect_readers_at_exit(self.manager, self._finish)
        settings = self.settings
        response = StreamResponse(
            reading,
            server=self.server,
            keep_alive=settings.keep_alive,
            observer=self.observer,
            received=received,
            event_names=settings.event_names,
            # A run that ends with its request ends inside of it: what the framework opened for the request is open yet.
            finish=None if self.keep_log else self.manager.finish_unread,
        )
        response.raw_headers += [(name.encode(), value.encode()) for name, value in headers.items()]
        return response

    async def shut_down(self, drain: float) -> None:
        """Disconnect readers, let runs finish for ``drain`` seconds, stop the others and wait for their threads."""
        await self.manager.shut_down(drain=drain)
        await self.threads.finish(self.settings.timeouts.stop)
        if self.stored is not None:
            await self.stored.close()
        await self._agents.close()

    async def _finish(self, seconds: float | None) -> None:
        """Shut down an app whose server does not announce its exit; runs get half of the time to end by themselves."""
        if not self.has_lifespan:
            await self.shut_down(self.drain if seconds is None else min(self.drain, seconds / 2))

    async def _resume(self, request: Request) -> Response:
        received = asyncio.get_running_loop().time()
        if (start := _start_index(request)) is not None:
            return await self._go_on(request, start, received)
        reading = await self.find(request, request.path_params["chat_id"], self.settings.sdk)
        # A 404 would put every fresh useChat({resume: true}) into the state of an error.
        return Response(status_code=204) if reading is None else self._stream(reading, received)

    async def _go_on(self, request: Request, start: int, received: float) -> Response:
        """Stream a view of a run, or the chat's running answer, from a chunk on; always to an ending.

        A client that goes on at an index asks again at once if there is none, and gives up for any status but 200.
        """
        text = request.path_params["chat_id"]
        name = ViewName.parse(text)
        view = release_of(request, self.settings.sdk) if name is None else name.view
        if name is not None and name.view.sdk:
            check_release(name.view.sdk)
        try:
            info = await self._run_of(request, text if name is None else name.chat_id, "resume")
        except ChatNotFound:
            info = None
        is_idle = name is None and (info is None or (info.state is not RunState.RUNNING and start == 0))
        tail = None if info is None or is_idle or not self.keep_log else await self.manager.tail(info, view, start)
        if tail is None:
            return ShortStream(NOTHING_MORE if is_idle else failure(_NOT_KEPT))
        reading, count = tail
        return self._stream(reading, received, {_TAIL_INDEX: str(count - 1)} if start < 0 else _NO_HEADERS)

    async def find(
        self, request: Request, chat_id: str, sdk: str, *, on_identified: Callable[[], None] | None = None
    ) -> Reading | None:
        """Return a reading of the chat's running answer from its start.

        ``None`` if there is none, if nothing of it is kept, or if the chat is unknown or somebody else's.
        ``on_identified`` is called if the sender may read the chat.
        """
        try:
            info = await self._run_of(request, chat_id, "resume", on_identified)
        except ChatNotFound:
            return None
        if info.state is not RunState.RUNNING or not self.keep_log:
            return None
        return await self.manager.attach(info, sdk=release_of(request, sdk))

    async def _stop(self, request: Request) -> Response:
        chat_id = request.path_params["chat_id"]
        identity = await self.identify(request, chat_id, "stop")
        if not await self._stop_waiting(identity, chat_id):
            info = await self._latest(request, identity, chat_id)
            if info.state is RunState.RUNNING:
                if self.stored is not None:
                    await self.stored.order_stop(chat_id)
                await self.manager.stop(info)
        return Response(status_code=204)

    async def _stop_waiting(self, identity: Identity, chat_id: str) -> bool:
        """End an answer of a dead process that waits to be continued here; return whether there was one."""
        return self._recovering is not None and await self._recovering.stop(chat_id, identity.subject)

    async def _state(self, request: Request) -> Response:
        return JSONResponse(_described(await self._run_of(request, request.path_params["chat_id"], "state")))

    async def state_of(self, request: Request, chat_id: str) -> Mapping[str, str]:
        """Return the state of a chat's last run; empty if that is not known any more."""
        try:
            return _described(await self._run_of(request, chat_id, "state"))
        except ChatNotFound:
            return {}

    async def stop_run(self, request: Request, chat_id: str) -> None:
        """Stop a chat's run, if there is one."""
        identity = await self.identify(request, chat_id, "delete")
        await self._stop_waiting(identity, chat_id)
        with contextlib.suppress(ChatNotFound):
            info = await self._latest(request, identity, chat_id)
            if info.state is RunState.RUNNING:
                await self.manager.stop(info)
            self.manager.forget(info.chat_id)

    async def _run_of(
        self, request: Request, chat_id: str, action: Action, on_identified: Callable[[], None] | None = None
    ) -> RunInfo:
        identity = await self.identify(request, chat_id, action)
        if on_identified is not None:
            on_identified()
        return await self._latest(request, identity, chat_id)

    async def _latest(self, request: Request, identity: Identity, chat_id: str) -> RunInfo:
        """Return the last run of a chat. Raises ``ChatNotFound`` if there is none, or it is somebody else's."""
        key = self._policy.key(request, identity, chat_id)
        info = await self.manager.latest(key)
        if self._recovering is not None and (info is None or info.state is not RunState.RUNNING):
            await self._recovering.look(chat_id, identity.subject)
            info = await self.manager.latest(key)
        if info is None or info.subject != identity.subject:
            raise ChatNotFound("No such chat.")
        return info

    async def answer(self, handle: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        """Return what a handler answers; if it raises a ``RequestError``, the status and the sentence of that."""
        try:
            check_framing(request)
            return await handle(request)
        except RequestError as error:
            # The client shows the body of such an answer as it is (ai, HttpChatTransport).
            self.observer.request_refused(error.status)
            return PlainTextResponse(str(error), error.status, _headers_of(error))


@lru_cache(maxsize=64)
def _is_reachable(kind: type) -> bool:
    """Tell whether sources of a class are ``Reachable``; to ask a protocol costs more than a turn should."""
    return issubclass(kind, Reachable)


def _with_id(request: Request, chat_request: ChatRequest) -> ChatRequest:
    """Return a request that names its chat: in its body, in its path, or a new one."""
    in_path = str(request.path_params.get("chat_id", ""))
    return msgspec.structs.replace(chat_request, chat_id=chat_request.chat_id or in_path or new_id())


def _start_index(request: Request) -> int | None:
    """Return the chunk at which a client goes on; ``None`` if it names none."""
    text = request.query_params.get("startIndex")
    if text is None:
        return None
    if not _INDEX.fullmatch(text):
        raise InvalidRequest(f"startIndex is a whole number, such as 0, 12 or -5, not {text[:80]!r}.")
    return int(text)


def _check_queued(store: RunStore) -> None:
    if not store.is_shared:
        raise CannotAnswer("agent processes need a run store that is shared, such as RedisRuns")


def _described(info: RunInfo) -> Mapping[str, str]:
    return {"state": info.state, "runId": info.run_id, "messageId": info.message_id}


def _headers_of(error: RequestError) -> Mapping[str, str]:
    match error:
        case Unauthenticated():
            return {"www-authenticate": "Bearer"}
        case TooManyRequests(retry_after=float(seconds)) | TooManyWaiting(retry_after=float(seconds)):
            return {"retry-after": str(math.ceil(seconds))}
        case RequestTimeout() | AmbiguousLength():
            return CLOSING
    return {}


def _opened_per_turn(agent: Any) -> FunctionSource:
    """Return the source of a framework's object that opens connections: they are closed with the turn."""

    async def agent_of_turn(_turn: Turn) -> Any:
        return agent

    return FunctionSource(agent_of_turn)


async def chat_response(
    request: Request,
    agent: Servable,
    *,
    settings: Settings | None = None,
    authorize: AuthorizeFunction = allow_all,
    observer: Observer | None = None,
    on_finish: FinishFunction | None = None,
    load: LoadFunction | None = None,
) -> Response:
    """Answer one chat request in a route of your own.

    Nothing is kept: a page that leaves stops the run, unless ``settings.disconnect`` says otherwise. For resume and
    stop use :class:`~usechat.server.ChatApp`. Call it in the event loop of the server, once per request.

    Args:
        request: the request of the route, of Starlette or FastAPI.
        agent: what answers the chat: an async generator function, a generator function, a function, a
            ``ChatTransport``, or an object of a framework whose adapter is installed.
        settings: see :class:`~usechat.server.Settings`.
        authorize: returns who sent the request; see ``docs/auth.md``. By default everyone is allowed.
        observer: receives what happens, such as :func:`~usechat.server.process_metrics` for Prometheus.
        on_finish: is given the finished message, its turn and its outcome, before the page sees the end.
        load: returns the messages of the chat that the application has stored.

    Returns:
        The streaming response; or a plain one with a status and a sentence, if the request cannot be served.

    Raises:
        CannotAnswer: ``agent`` cannot answer a chat, or is a factory, which would be called for each request.

    >>> async def agent(turn):
    ...     yield f"You said: {turn.text}"
    >>> async def chat(request):  # @app.post("/api/chat")
    ...     return await chat_response(request, agent)
    """
    source = as_source(agent)
    if isinstance(source, FactorySource):
        if source is agent or is_factory(agent):
            raise CannotAnswer("a function without arguments makes an agent; call it once and give what it returns")
        source = _opened_per_turn(agent)
    endpoints = Endpoints(
        source,
        store=MemoryRuns(),
        settings=settings or Settings(),
        policy=AuthorizedChats(authorize),
        observer=Observer() if observer is None else Observers(observer),
        keep_log=False,
        hooks=Hooks(on_finish=on_finish, load=load),
    )
    return await endpoints.send(request)
