"""The endpoints: start a run and stream it, resume, stop, report the state."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from usechat.chats.store import ChatStore
from usechat.errors import (
    CannotAnswer,
    ChatNotFound,
    InvalidRequest,
    RequestError,
    RequestTimeout,
    TooManyRequests,
    TooManyWaiting,
    Unauthenticated,
)
from usechat.ids import new_id
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.manager import PreparedRun, Reading, RunManager, RunRecorder
from usechat.runs.memory import MemoryRuns
from usechat.runs.open_calls import Answers, own_secret, secret_of_chat
from usechat.runs.quotas import Counters, MemoryCounters, QuotaLimiter
from usechat.runs.run import RunInfo, RunState, describe_with, message_digest
from usechat.runs.store import RunStore
from usechat.runs.turns import Dispatcher, TurnQueue
from usechat.server.agents import Agents
from usechat.server.connection import AsgiServer
from usechat.server.observers.observer import Observer, Observers, Unobserved
from usechat.server.requests import (
    AccessPolicy,
    Action,
    AuthorizedChats,
    AuthorizeFunction,
    RequestHeaders,
    allow_all,
    read_request,
    release_of,
)
from usechat.server.response import StreamResponse
from usechat.server.settings import Settings, linger
from usechat.server.turns import (
    NO_HOOKS,
    Feedback,
    FinishFunction,
    Hooks,
    LoadFunction,
    MakeContext,
    StoredTurns,
    file_urls,
    report_lost,
)
from usechat.server.uvicorn import UvicornServer
from usechat.sources import FactorySource, as_source
from usechat.threads import AgentThreads
from usechat.turn import Identity, TurnContext

__all__ = ["Endpoints", "chat_response"]


class Endpoints:
    """Answers the requests of a chat page, one method per route. ``policy`` decides who may do what with which chat."""

    def __init__(
        self,
        answer: Any,
        *,
        store: RunStore,
        settings: Settings,
        policy: AccessPolicy,
        observer: Observer,
        keep_log: bool = True,
        hooks: Hooks = NO_HOOKS,
        chats: ChatStore | None = None,
        path: str = "",
    ) -> None:
        self._agents = Agents(answer)
        self.queue = self._agents.queue
        """Where turns wait for an agent process; ``None`` if runs are driven here."""
        self.settings = settings
        self._path = path
        self._hooks = hooks
        self._policy = policy
        self.server = AsgiServer() if settings.plain_asgi else UvicornServer()
        self.observer = observer
        self.store = store
        self.keep_log = keep_log
        self.threads = AgentThreads(settings.threads, on_waiting=observer.threads_waiting)
        self._quotas = QuotaLimiter(settings.quotas, store if isinstance(store, Counters) else MemoryCounters())
        self.drain = 0.0
        """Seconds that runs get to end when the server shuts down."""
        self.has_lifespan = False
        """Whether the server tells the app that it shuts down, by the lifespan."""
        self._secret = settings.approval_secret or own_secret()
        if self.queue is not None:
            _check_queued(store)
        self.manager = RunManager(
            store,
            timeouts=settings.timeouts,
            unread_timeout=linger(settings.disconnect, kept=keep_log),
            conflict=settings.conflict,
            describe=describe_with(settings.on_error),
            approval_secret=self._secret,
            keep_log=keep_log,
            maximum_behind=settings.maximum_waiting_bytes,
            maximum_run_bytes=settings.maximum_run_bytes,
            log_memory_bytes=settings.log_memory_bytes,
            coalesce=settings.coalesce_ms / 1000,
            event_names=settings.event_names,
            dispatcher=None if self.queue is None else self._dispatcher(self.queue),
            on_start=observer.run_started,
            on_end=observer.run_ended,
            on_loss=observer.run_lost,
            on_done=self._release,
            on_lost_answer=self._report_lost,
            make_recorder=self._make_recorder,
        )
        self.stored = None
        """The turns of stored chats, if chats are stored."""
        if chats is not None:
            patience = 0 if self.queue is None else self.queue.patience
            self.stored = StoredTurns(
                chats,
                self.manager,
                hooks,
                file_bytes=settings.history_file_bytes,
                keep=settings.keep_chats,
                patience=patience,
            )

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
        """Stop the chat's run, in whichever worker it lives. Returns 204 once the run has ended. Idempotent."""
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
            asked = await read_request(
                request,
                self.settings.limits,
                timeout=self.settings.body_timeout,
                is_history_stored=self.is_history_stored,
            )
        except InvalidRequest:
            if not is_known:  # an unknown client does not learn what is wrong with the body
                await self.identify(request, str(request.path_params.get("chat_id", "")))
            raise
        begun = await self.begin(request, asked, self.settings.sdk, has_left=request.is_disconnected)
        return self._stream(begun, received)

    async def authenticate(self, request: Request) -> bool:
        """Return whether the sender is known before the request's content is; raise a ``RequestError`` to refuse it."""
        return await self._policy.authenticate(request)

    async def identify(self, request: Request, chat_id: str, action: Action = "send") -> Identity:
        """Return who does this with a chat; raise a ``RequestError`` if they may not."""
        return await self._policy.identify(request, chat_id, action)

    async def begin(
        self,
        request: Request,
        asked: ChatRequest,
        sdk: str,
        *,
        identity: Identity | None = None,
        has_left: Callable[[], Awaitable[bool]],
    ) -> Reading:
        """Start a run; raise a ``RequestError`` if that cannot be.

        ``sdk`` counts if the request names no release. ``identity`` is the sender, if it was identified before.
        ``has_left`` tells whether the client is gone; it is asked while the request waits for another run to end.
        """
        in_path = str(request.path_params.get("chat_id", ""))
        asked = msgspec.structs.replace(asked, chat_id=asked.chat_id or in_path or new_id())
        if identity is None:
            identity = await self.identify(request, asked.chat_id)
        key = self._policy.key(request, identity, asked.chat_id)
        # A message that is sent twice is answered once; a regenerated answer is wanted again.
        repeatable = asked.last_user_message if asked.trigger == "submit-message" and not asked.continues else None
        info = RunInfo(
            run_id=new_id(),
            chat_id=key,
            message_id=(asked.continues["id"] if asked.continues else "") or f"msg-{new_id()}",
            sdk=release_of(request, sdk),
            user_message_id=repeatable["id"] if repeatable else "",
            user_message_digest=message_digest(repeatable) if repeatable else "",
            subject=identity.subject,
        )

        make_context = partial(self._context, request, identity)
        agent = await self._agent_for(asked, identity)
        source = await self._agents.open(agent)
        await self._admit(info)
        try:
            await self._policy.admit(request)
            if self.stored is None:
                prepare = partial(self._prepare, asked, info, make_context)
                return await self.manager.start(info, source, prepare, has_left=has_left)
            return await self.stored.begin(
                asked,
                info,
                source,
                make_context,
                agent=agent,
                files=file_urls(request, self._path, asked.chat_id),
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

    async def _agent_for(self, asked: ChatRequest, identity: Identity) -> str:
        kept = continued = ""
        if self._agents.are_several and self.stored is not None:
            kept, continued = await self.stored.agents_of(asked, identity.subject)
        return self._agents.choose(asked.body, kept=kept, continued=continued)

    def _context(self, request: Request, identity: Identity, asked: ChatRequest) -> TurnContext:
        return TurnContext(
            asked,
            identity=identity,
            headers=RequestHeaders(request.scope),
            path_params=request.path_params,
            query=request.query_params,
            observer=self.observer,
            threads=self.threads,
        )

    async def _prepare(
        self, asked: ChatRequest, info: RunInfo, make_context: MakeContext, latest: RunInfo | None
    ) -> PreparedRun:
        """Make a run where the page's messages, or those that the application loads, are the history."""
        answers = self._answers(asked, info, latest)
        answers.check_approvals()
        asked = msgspec.structs.replace(asked, pending_calls=answers.pending())
        asked = await self._hooks.loaded(asked, make_context)
        context, continues = make_context(asked), asked.continues
        info = msgspec.structs.replace(info, open_calls=answers.unanswered(), given_calls=answers.given())
        recorder = None if self.queue is not None else self._hooks.recorder(info, context.turn, continues)
        return PreparedRun(info, context, continues, recorder)

    def _answers(self, asked: ChatRequest, info: RunInfo, latest: RunInfo | None) -> Answers:
        answerable = None if latest is None else latest.answerable
        return Answers(asked, info.chat_id, answerable, secret_of_chat(self._secret, info.chat_id, info.subject))

    async def _import_check(self, info: RunInfo) -> Callable[[ChatRequest], ChatRequest]:
        """Return the check of a history that is imported: the answers in it must answer calls that were open."""
        latest = await self.manager.latest(info.chat_id)

        def check(asked: ChatRequest) -> ChatRequest:
            answers = self._answers(asked, info, latest)
            answers.check_approvals()
            return msgspec.structs.replace(asked, pending_calls=answers.pending())

        return check

    async def _release(self, info: RunInfo, size: int) -> None:
        await self._quotas.release(info.subject, info.run_id, size)

    async def start(self) -> None:
        """Open the agents and the chat store. Raises :class:`~usechat.errors.UnusableChats`."""
        await self._agents.open_all()
        if self.stored is not None:
            await self.stored.open()

    def _stream(self, reading: Reading, received: float) -> Response:
        self.server.disconnect_readers_at_exit(self.manager, self._finish)
        settings = self.settings
        return StreamResponse(
            reading,
            server=self.server,
            keep_alive=settings.keep_alive,
            observer=self.observer,
            received=received,
            event_names=settings.event_names,
            # A run that ends with its request ends inside of it: what the framework opened for the request is open yet.
            finish=None if self.keep_log else self.manager.finish_unread,
        )

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
        reading = await self.find(request, request.path_params["chat_id"], self.settings.sdk)
        # A 404 would put every fresh useChat({resume: true}) into the state of an error.
        return Response(status_code=204) if reading is None else self._stream(reading, received)

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
        info = await self._run_of(request, request.path_params["chat_id"], "stop")
        if info.state is RunState.RUNNING:
            await self.manager.stop(info)
        return Response(status_code=204)

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
        with contextlib.suppress(ChatNotFound):
            info = await self._run_of(request, chat_id, "delete")
            if info.state is RunState.RUNNING:
                await self.manager.stop(info)

    async def _run_of(
        self, request: Request, chat_id: str, action: Action, on_identified: Callable[[], None] | None = None
    ) -> RunInfo:
        identity = await self._policy.identify(request, chat_id, action)
        if on_identified is not None:
            on_identified()
        info = await self.manager.latest(self._policy.key(request, identity, chat_id))
        if info is None or info.subject != identity.subject:
            raise ChatNotFound("No such chat.")
        return info

    async def answer(self, handle: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        """Return what a handler answers; if it raises a ``RequestError``, the status and the sentence of that."""
        try:
            return await handle(request)
        except RequestError as error:
            # The client shows the body of such an answer as it is (ai, HttpChatTransport).
            self.observer.request_refused(error.status)
            return PlainTextResponse(str(error), error.status, _headers_of(error))


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
        case RequestTimeout():
            return {"connection": "close"}  # RFC 9110, 15.5.9: the rest of the body would be taken for a request
    return {}


async def chat_response(
    request: Request,
    answer: Any,
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
        answer: what answers the chat: an async generator function, a generator function, a function, a
            ``ChatTransport``, or an object of a framework whose adapter is installed.
        settings: see :class:`~usechat.server.Settings`.
        authorize: returns who sent the request; see ``docs/auth.md``. By default everyone is allowed.
        observer: receives what happens, such as :func:`~usechat.server.process_metrics` for Prometheus.
        on_finish: is given the finished message, its turn and its outcome, before the page sees the end.
        load: returns the messages of the chat that the application has stored.

    Returns:
        The streaming response; or a plain one with a status and a sentence, if the request cannot be served.

    Raises:
        CannotAnswer: ``answer`` cannot answer a chat, or is a factory, which would be called for each request.

    >>> async def agent(turn):
    ...     yield f"You said: {turn.text}"
    >>> async def chat(request):  # @app.post("/api/chat")
    ...     return await chat_response(request, agent)
    """
    source = as_source(answer)
    if isinstance(source, FactorySource):
        raise CannotAnswer("a function without arguments makes an agent; call it once and give what it returns")
    endpoints = Endpoints(
        source,
        store=MemoryRuns(),
        settings=settings or Settings(),
        policy=AuthorizedChats(authorize),
        observer=Unobserved() if observer is None else Observers(observer),
        keep_log=False,
        hooks=Hooks(on_finish=on_finish, load=load),
    )
    return await endpoints.send(request)
