"""The endpoints: start a run and stream it, resume, stop, tell the state."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from usechat.errors import ChatNotFound, RequestError, Unauthenticated
from usechat.ids import new_id
from usechat.protocol.request import ChatRequest
from usechat.runs.manager import Reading, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.open_calls import Answers, own_secret, secret_of_chat
from usechat.runs.run import RunInfo, RunState, describe_with
from usechat.runs.store import RunStore
from usechat.server.observers.observer import Observer, Unobserved
from usechat.server.requests import (
    Action,
    Authenticates,
    AuthorizeFunction,
    RequestHeaders,
    allow,
    ask,
    chat_key,
    read_request,
    release_of,
)
from usechat.server.response import StreamResponse
from usechat.server.settings import Settings, linger
from usechat.server.uvicorn import hang_up_in_time
from usechat.sources import as_source
from usechat.turn import Identity, TurnContext

__all__ = ["Endpoints", "chat_response"]


class Endpoints:
    """Answers the requests of a chat page, one method per route."""

    def __init__(
        self,
        answer: Any,
        *,
        store: RunStore,
        settings: Settings,
        authorize: AuthorizeFunction,
        observer: Observer,
        keep_log: bool = True,
    ) -> None:
        self._source = as_source(answer)
        self.settings = settings
        self._authorize = authorize
        self.observer = observer
        self.store = store
        self.keep_log = keep_log
        self._secret = settings.approval_secret or own_secret()
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
            coalesce=settings.coalesce_ms / 1000,
            event_names=settings.event_names,
            on_start=observer.run_started,
            on_end=observer.run_ended,
            on_loss=observer.run_lost,
        )

    async def send(self, request: Request) -> Response:
        """Start a run and stream it."""
        return await self._answered(self._send, request)

    async def resume(self, request: Request) -> Response:
        """Stream the run that goes on, from its start; 204 when there is nothing to see."""
        return await self._answered(self._resume, request)

    async def stop(self, request: Request) -> Response:
        """Stop the chat's run, wherever it lives."""
        return await self._answered(self._stop, request)

    async def state(self, request: Request) -> Response:
        """Tell how the chat's last run stands."""
        return await self._answered(self._state, request)

    async def _send(self, request: Request) -> Response:
        received = asyncio.get_running_loop().time()
        rule: Any = self._authorize
        if isinstance(rule, Authenticates):
            await rule.authenticate(request)
        asked = await read_request(request, self.settings.limits)
        return self._stream(await self.begin(request, asked, self.settings.sdk), received)

    async def begin(self, request: Request, asked: ChatRequest, sdk: str) -> Reading:
        """Start a run; a RequestError says why not. ``sdk`` is the release it is for if the request names none."""
        in_path = str(request.path_params.get("chat_id", ""))
        asked = msgspec.structs.replace(asked, chat_id=asked.chat_id or in_path or new_id())
        identity = await self._identify(request, asked.chat_id, "send")
        key = self._key(request, identity, asked.chat_id)
        # A message that is sent twice is answered once; a regenerated answer is wanted anew.
        repeatable = asked.last_user_message if asked.trigger == "submit-message" and not asked.continues else None
        info = RunInfo(
            run_id=new_id(),
            chat_id=key,
            message_id=(asked.continues["id"] if asked.continues else "") or f"msg-{new_id()}",
            sdk=release_of(request, sdk),
            user_message_id=repeatable["id"] if repeatable else "",
            subject=identity.subject,
        )

        def prepare(latest: RunInfo | None) -> tuple[RunInfo, TurnContext]:
            answerable = None if latest is None else latest.answerable
            answers = Answers(asked, key, answerable, secret_of_chat(self._secret, key, identity.subject))
            answers.check_approvals()
            context = TurnContext(
                msgspec.structs.replace(asked, pending_calls=answers.pending()),
                identity=identity,
                headers=RequestHeaders(request.scope),
                path_params=request.path_params,
                query=request.query_params,
                observer=self.observer,
            )
            calls = {"open_calls": answers.unanswered(), "given_calls": answers.given()}
            return msgspec.structs.replace(info, **calls), context

        return await self.manager.start(info, self._source, prepare, continues=asked.continues)

    def _stream(self, reading: Reading, received: float) -> Response:
        hang_up_in_time(self.manager)
        settings = self.settings
        return StreamResponse(
            reading,
            keep_alive=settings.keep_alive,
            observer=self.observer,
            received=received,
            event_names=settings.event_names,
        )

    async def _resume(self, request: Request) -> Response:
        received = asyncio.get_running_loop().time()
        reading = await self.find(request, request.path_params["chat_id"], self.settings.sdk)
        # A 404 would put every fresh useChat({resume: true}) into the state of an error.
        return Response(status_code=204) if reading is None else self._stream(reading, received)

    async def find(self, request: Request, chat_id: str, sdk: str) -> Reading | None:
        """Read the run that goes on, from its start; nothing if the chat is unknown, idle or not theirs."""
        try:
            info = await self._run_of(request, chat_id, "resume")
        except ChatNotFound:
            return None
        if info.state is not RunState.RUNNING:
            return None
        return await self.manager.attach(info, sdk=release_of(request, sdk))

    async def _stop(self, request: Request) -> Response:
        info = await self._run_of(request, request.path_params["chat_id"], "stop")
        if info.state is RunState.RUNNING:
            await self.manager.stop(info)
        return Response(status_code=204)

    async def _state(self, request: Request) -> Response:
        info = await self._run_of(request, request.path_params["chat_id"], "state")
        known: Mapping[str, str] = {"state": info.state, "runId": info.run_id, "messageId": info.message_id}
        return JSONResponse(known)

    async def _run_of(self, request: Request, chat_id: str, action: Action) -> RunInfo:
        identity = await self._identify(request, chat_id, action)
        info = await self.manager.latest(self._key(request, identity, chat_id))
        if info is None or info.subject != identity.subject:
            raise ChatNotFound("No such chat.")
        return info

    async def _answered(self, handle: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        try:
            return await handle(request)
        except RequestError as error:
            # The client shows the body of such an answer as it is (ai, HttpChatTransport).
            self.observer.request_refused(error.status)
            headers = {"www-authenticate": "Bearer"} if isinstance(error, Unauthenticated) else None
            return PlainTextResponse(str(error), error.status, headers)

    async def _identify(self, request: Request, chat_id: str, action: Action) -> Identity:
        identity = await ask(self._authorize, request, chat_id, action)
        if identity is None:
            raise ChatNotFound("No such chat.")
        return identity

    def _key(self, request: Request, identity: Identity, chat_id: str) -> str:  # noqa: ARG002 (for those who keep people apart)
        """Return the name of a chat among the runs: its id, behind what else the route's path names."""
        return chat_key(request.path_params, chat_id)


async def chat_response(
    request: Request,
    answer: Any,
    *,
    settings: Settings | None = None,
    authorize: AuthorizeFunction = allow,
    observer: Observer | None = None,
) -> Response:
    """Answer one chat request in a route of your own: ``return await chat_response(request, agent)``.

    Nothing is kept: a page that goes away stops the run, unless ``settings.disconnect`` says otherwise. For resume and
    stop use :class:`~usechat.server.ChatApp`.
    ``observer`` is told what happens; ``process_metrics()`` of ``usechat.server.observers.prometheus`` counts it.
    """
    endpoints = Endpoints(
        answer,
        store=MemoryRuns(),
        settings=settings or Settings(),
        authorize=authorize,
        observer=observer or Unobserved(),
        keep_log=False,
    )
    return await endpoints.send(request)
