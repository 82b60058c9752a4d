"""Turns of an app that stores its chats in a chat store.

:class:`StoredTurns` stands between the endpoints and the run manager where the server owns the history
(``ChatApp(agent, chats=…)``). It asks the chat store what a request means, gives the agent the stored branch, and
records the answer while it is streamed. The store decides who may answer a chat; the run store follows it.

Applications with their own database have hooks instead (:mod:`usechat.server.hooks`).
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import unquote

import msgspec

from usechat.chats.beginning import Answered, Begun, Busy, Joined
from usechat.chats.blobs import FileUrls, holds_files
from usechat.chats.chat import settled, with_stored_answers
from usechat.chats.recording import AnswerBuilder
from usechat.chats.recovery import as_continued
from usechat.chats.store import ChatStore, LoggedAnswer
from usechat.chats.titles import TitleFunction, ask_title
from usechat.chats.transaction import Claim, ClaimRow, LostAnswer
from usechat.errors import (
    ChatBusy,
    ChatNotFound,
    ChatsUnreachable,
    ClaimLost,
    ClientLeft,
    PublicError,
    StoreUnreachable,
    UnusableChats,
)
from usechat.protocol.reframing import unseen_parts
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage, tool_name, tool_parts_of
from usechat.runs.log import Log
from usechat.runs.manager import Reading, RunManager
from usechat.runs.open_calls import OpenCall, input_digest
from usechat.runs.reading import LogReading
from usechat.runs.run import PreparedRun, RunInfo, RunRecorder, RunState
from usechat.runs.store import LOST
from usechat.runs.turns import FORWARDED_HEADERS, QueuedTurn
from usechat.server.file_urls import files_of
from usechat.server.hooks import Hooks, MakeContext, answerable_calls
from usechat.server.requests import chat_key
from usechat.server.stored_answer import StoredAnswer
from usechat.sources import HandsOver, Source
from usechat.threads import contained
from usechat.turn import TurnContext, TurnInput

__all__ = ["RecordedRun", "StoredTurns", "report_lost", "with_calls"]

ResultT = TypeVar("ResultT")

_logger: Final = logging.getLogger("usechat.chats")
_POLL_ELSEWHERE: Final = 0.25
"""Seconds between two looks at the store while waiting for a run that the run store does not know."""
_REST_SECONDS: Final = 5.0
"""Seconds in which the run store must give the log of a dead worker; after that the answer is lost without it."""
_CLEAN_UP: Final = 3600.0
"""The most seconds between two deletions of chats that are too old."""


async def report_lost(info: RunInfo, manager: RunManager, hooks: Hooks, stored: "StoredTurns | None") -> None:
    """Store and report the answer of a run that was found lost, as far as the log of the run has it."""
    try:
        if stored is not None:
            await stored.lose(info)
        elif hooks.on_finish is not None:
            logged = await _logged_answer(manager, info, info.message_id)
            message = _nothing(info.message_id) if logged is None else logged.message
            answer = settled(message, "lost", answerable_calls(info))
            await hooks.lost(answer, _chat_id_of(info), info.subject)
    except (ChatsUnreachable, StoreUnreachable):
        pass  # the store has logged it; a stored answer is declared lost when its lease has expired
    except Exception:
        _logger.exception("run %s: storing or reporting its lost answer failed", info.run_id)


async def _logged_answer(manager: RunManager, info: RunInfo, message_id: str) -> LoggedAnswer | None:
    """Return the answer of another worker's run as far as its log has it."""
    frames, continued = await manager.lost_answer(info)
    if not frames:
        return None
    answer = AnswerBuilder(sdk=info.sdk, message_id=message_id, continues=cast("UIMessage | None", continued))
    answer.receive(frames)
    return LoggedAnswer(answer.message, answer.chunks)


def _chat_id_of(info: RunInfo) -> str:
    """Return the id of a chat, given the key of its runs; for a path with parameters, return the key unchanged."""
    return unquote(info.chat_id, errors="surrogatepass") if "=" not in info.chat_id else info.chat_id


def _nothing(message_id: str) -> UIMessage:
    return {"id": message_id, "role": "assistant", "parts": []}


class QueuedRecording(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent process needs to record an answer that a web process has begun, beside the turn."""

    claim: Claim
    title: str
    is_new: bool
    known_ids: tuple[str, ...]
    files: str


class RecordedRun(NamedTuple):
    """How an agent process drives a run that is recorded: ``source`` answers once the chat was taken over."""

    source: Source
    recorder: RunRecorder | None = None
    taken_ids: Set[str] = frozenset()


class StoredTurns:
    """The turns of an app whose chats are stored.

    ``file_bytes`` is how much of the stored files of a chat an agent gets. ``keep`` is how many seconds a chat that
    nobody changes is kept; ``None`` means without a limit. ``patience`` is how many seconds a turn may wait for an
    agent process, if those answer.
    """

    def __init__(
        self,
        store: ChatStore,
        manager: RunManager,
        hooks: Hooks,
        *,
        file_bytes: int,
        keep: float | None = None,
        patience: float = 0,
    ) -> None:
        self.store = store
        store.rest = self._rest_of if manager.is_shared else None
        store.drives = self._drives
        self._file_bytes = file_bytes
        self._patience = patience
        self._manager = manager
        self.hooks = hooks
        self._keep = keep
        self._upkeep: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._beginning: set[str] = set()
        """The runs that have a claim and may not have begun."""

    async def open(self) -> None:
        """Prepare the store, and begin to look after it. Raises :class:`~usechat.errors.UnusableChats`."""
        if self._upkeep is None:
            await self.store.open()
            self._upkeep = asyncio.get_running_loop().create_task(self._look_after(), name="usechat chats")

    async def close(self) -> None:
        """Stop looking after the store, and close it."""
        tasks = [*self._tasks, *([] if self._upkeep is None else [self._upkeep])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._upkeep = None
        await self.store.close()

    async def begin(
        self,
        request: ChatRequest,
        info: RunInfo,
        source: Source | None,
        make_context: MakeContext,
        *,
        agent: str,
        files: FileUrls,
        check_import: Callable[[ChatRequest], ChatRequest] | None,
        has_left: Callable[[], Awaitable[bool]],
    ) -> Reading:
        """Start a run on the stored branch, or do what the chat's running answer demands; return a reading.

        Without a ``source`` the turn is queued for an agent process. ``agent`` is the name that is kept with the chat.
        """
        await self._opened()
        row: ClaimRow | None = None
        may_continue = source is not None and self.store.outlives_process
        turn = _encoded(info, make_context(request).turn.input, files) if may_continue else ""
        while True:
            beginning = await self.store.begin(
                request,
                owner=info.subject,
                run_id=info.run_id,
                agent=agent,
                files=files,
                check_import=check_import,
                is_queued=source is None,
                turn=turn,
            )
            match beginning:
                case Begun():
                    with self.keeping(info.run_id):
                        return await self._start(beginning, info, source, make_context, files)
                case Answered():
                    return _replayed(beginning, info.sdk)
            active = await self._active(beginning.claim, info.chat_id)
            if active is None:
                # It has not begun yet, or its worker shares no runs: one that lives renews its claim, and the lease of
                # one that does not expires.
                earlier, row = row, await self.store.claimed(request.chat_id)
                if earlier is not None and row is not None and row.is_renewed_since(earlier):
                    raise ChatBusy("This chat is being answered already.")
                await asyncio.sleep(_POLL_ELSEWHERE)
            elif (reading := await self._join(beginning, active, info, source, make_context, request)) is not None:
                return reading
            else:
                await self._manager.has_ended(active)
            if await has_left():
                raise ClientLeft("The client left before its request was answered.")

    async def agents_of(self, request: ChatRequest, owner: str) -> tuple[str, str]:
        """Return the agent that answers a chat, and the one whose answer the request continues; empty if none does."""
        await self._opened()
        try:
            return await self.store.agents_of(request, owner=owner)
        except ChatNotFound:  # not stored yet; a chat of somebody else is refused when the turn begins
            return "", ""

    @contextlib.contextmanager
    def keeping(self, run_id: str) -> Iterator[None]:
        """Keep the claim of a run that may not have begun, although this process may sleep for longer than a lease."""
        self._beginning.add(run_id)
        try:
            yield
        finally:
            self._beginning.discard(run_id)

    def _drives(self, run_id: str) -> bool:
        return run_id in self._beginning or self._manager.drives(run_id)

    async def _opened(self) -> None:
        """Open the store in an app that no lifespan has opened; a database that cannot be used is 503."""
        try:
            await self.open()
        except UnusableChats as error:
            _logger.error("%s", error)
            raise ChatsUnreachable from None

    async def _active(self, claim: Claim, key: str) -> RunInfo | None:
        """Return the run that has a claim; ``None`` if it has not begun yet, or in a worker that shares no runs."""
        latest = await self._manager.latest(key)
        is_it = latest is not None and latest.run_id == claim.run_id and latest.state is RunState.RUNNING
        return latest if is_it else None

    async def _join(
        self,
        beginning: Joined | Busy,
        active: RunInfo,
        info: RunInfo,
        source: Source | None,
        make_context: MakeContext,
        request: ChatRequest,
    ) -> Reading | None:
        if isinstance(beginning, Joined):
            call_ids = {answer.tool_call_id for answer in request.approvals}
            if source is not None and isinstance(source, HandsOver) and not call_ids <= set(beginning.claim.given):
                source.hand_over(make_context(request).turn)
                return None
            return await self._manager.attach(active, sdk=info.sdk, has_message=beginning.has_message, exact=True)
        if beginning.is_edit:  # nobody waits for the answer to a message that is replaced
            await self._manager.stop(active)
            return None

        async def prepare(_latest: RunInfo | None) -> PreparedRun:
            return PreparedRun(info, make_context(request))

        try:
            return await self._manager.resolve_conflict(active, info, source, prepare)
        except ChatBusy:
            if await self.store.is_alive(beginning.claim):
                raise
            return None  # its process has died: soon the chat is free, or its answer goes on

    async def _start(
        self, beginning: Begun, info: RunInfo, source: Source | None, make_context: MakeContext, files: FileUrls
    ) -> Reading:
        recorder, recording = None, None
        try:
            request = await self.for_agent(beginning.request, files)
            if source is not None:
                request = await self.with_files(request, files)
            context = make_context(request)
            info = with_calls(info, beginning.claim, beginning.continues)
            message = None if beginning.continues is None else files.write(beginning.continues)
            continues = None if message is None else _as_shown(message, beginning.claim)
            title = beginning.chat.title if beginning.is_new else ""
            if source is not None:
                recorder = StoredAnswer(
                    self.store,
                    beginning.claim,
                    info,
                    context,
                    self.hooks,
                    continues=continues,
                    files=files,
                )
                recorder.show_title(title)
            else:
                recording = QueuedRecording(
                    claim=beginning.claim,
                    title=title,
                    is_new=beginning.is_new,
                    known_ids=tuple(sorted(beginning.known_ids)),
                    files=files.prefix,
                )
            reading = await self._manager.take_over(
                PreparedRun(
                    info,
                    context,
                    continues,
                    recorder,
                    recording=None if recording is None else msgspec.to_builtins(recording),
                    taken_ids=beginning.known_ids,
                    outcomes=() if message is None or continues is None else unseen_parts(message, continues),
                ),
                source,
            )
        except BaseException as error:
            # A turn may have been queued although its request is gone: then an agent process has the chat.
            if recording is None or not isinstance(error, asyncio.CancelledError):
                await self._give_back(beginning)
            else:
                self.spawn(self._hand_over(beginning.claim, info.chat_id))
            raise
        if recording is not None:
            self.spawn(self._hand_over(beginning.claim, info.chat_id))
        if beginning.is_new and recorder is not None:
            self._entitle(beginning.request, files, recorder)
        return reading

    def recorded(
        self, recording: Mapping[str, Any], info: RunInfo, context: TurnContext, source: Source, *, instead_of: str = ""
    ) -> RecordedRun:
        """Return how to drive a run that a web process has stored and queued, in an agent process.

        ``instead_of`` is a run that had begun to answer, and died.
        """
        entry = msgspec.convert(recording, QueuedRecording)
        request, files = context.turn.request, FileUrls(entry.files)
        recorder = StoredAnswer(
            self.store,
            entry.claim,
            info,
            context,
            self.hooks,
            continues=request.continues,
            files=files,
            takes_over_from=instead_of,
        )
        recorder.show_title(entry.title)

        async def begin() -> None:
            if entry.is_new:
                self._entitle(request, files, recorder)
            turn_input = context.turn.input
            with_files = await self.with_files(request, files)
            context.turn.input = msgspec.structs.replace(turn_input, request=with_files)

        return RecordedRun(_TakingOver(source, recorder, begin), recorder, frozenset(entry.known_ids))

    async def recorder_of(
        self, info: RunInfo, context: TurnContext, continues: Mapping[str, Any] | None
    ) -> RunRecorder | None:
        """Return what stores the end of a run whose turn was queued by any web process, and is withdrawn here."""
        row = await self.store.claimed(_chat_id_of(info))
        if row is None or row.claim.run_id != info.run_id:
            return None
        message = None if continues is None else files_of(row.claim).read(cast("UIMessage", continues))
        return StoredAnswer(self.store, row.claim, info, context, self.hooks, continues=message, takes_over_from="")

    async def _hand_over(self, claim: Claim, key: str) -> None:
        """Keep a chat for the agent process that will take its queued turn.

        Until the turn is queued the claim has the lease of this process: if it dies, the chat is soon free.
        """
        # If the agent process was faster, the claim is gone, or is held longer once.
        with contextlib.suppress(ChatsUnreachable, ClaimLost, StoreUnreachable):
            if await self._active(claim, key) is not None:
                await self.store.hand_over(claim, self._patience + self.store.lease)

    async def _give_back(self, beginning: Begun) -> None:
        """Free a chat whose run did not start. The answers that it was given are given to the next run."""
        message = beginning.continues or _nothing(beginning.claim.message_id)
        with contextlib.suppress(ChatsUnreachable, ClaimLost):  # then its lease expires
            await self.store.finish(beginning.claim, message, "lost")

    async def for_agent(self, request: ChatRequest, files: FileUrls) -> ChatRequest:
        """Return the request that the agent gets: as much of the history as it takes. What is stored stays whole."""
        messages = [files.write(message) for message in request.messages]
        if self.hooks.history is not None:
            with contained():
                selected = self.hooks.history(messages)
                messages = list(await selected if inspect.isawaitable(selected) else selected)
        is_whole = len(messages) == len(request.messages)
        return msgspec.structs.replace(request, messages=messages, has_whole_history=is_whole)

    async def with_files(self, request: ChatRequest, files: FileUrls) -> ChatRequest:
        """Return the request with the content of stored files, in the process that answers: a queue keeps addresses.

        The provider of a model cannot read addresses of this server.
        """
        if not any(map(holds_files, request.messages)):
            return request
        stored = [files.read(message) for message in request.messages]
        loaded = await self.store.load_files(request.chat_id, stored, limit=self._file_bytes)
        return msgspec.structs.replace(request, messages=[files.write(message) for message in loaded])

    # -- Titles.

    def _entitle(self, request: ChatRequest, files: FileUrls, recorder: "StoredAnswer") -> None:
        """Ask for the title of a new chat, without delaying its answer."""
        if self.hooks.titles is not None:
            self.spawn(self._ask_title(request, files, recorder, self.hooks.titles))

    async def _ask_title(
        self, request: ChatRequest, files: FileUrls, recorder: "StoredAnswer", titles: TitleFunction
    ) -> None:
        """Ask for a title, store it and show it, if the answer is still running."""
        chat_id = request.chat_id
        try:
            messages = list((await self.with_files(request, files)).messages)
            title = await ask_title(titles, messages, self.hooks.threads)
            chat = None if title is None else await self.store.suggest_title(chat_id, title)
        except Exception:  # of user code, or the database
            _logger.exception("chat %s: the title could not be created", chat_id, extra={"chat_id": chat_id})
            return
        if chat is not None:
            recorder.show_title(chat.title)

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        """Run a coroutine beside the turns; it is cancelled when the store is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- Periodic work.

    async def _look_after(self) -> None:
        """Declare answers of dead workers lost, and delete chats that are too old."""
        loop = asyncio.get_running_loop()
        cleaned = float("-inf")
        while True:
            try:
                for lost in await self.store.collect_lost():
                    await self._report_lost(lost)
                if self._keep is not None and loop.time() - cleaned >= min(_CLEAN_UP, self._keep / 10):
                    await self.store.delete_unchanged(self._keep)
                    cleaned = loop.time()
            except ChatsUnreachable:
                pass  # the store has logged it
            except Exception:
                _logger.exception("lost answers could not be collected, or old chats deleted; trying again")
            await asyncio.sleep(self.store.lease / 3)

    async def _report_lost(self, lost: LostAnswer) -> None:
        _logger.warning(
            "run %s: its lease has expired, so its answer is lost: its worker died, or could not reach the database",
            lost.claim.run_id,
            extra={"chat_id": lost.chat.id, "run_id": lost.claim.run_id},
        )
        message = lost.message or _nothing(lost.claim.message_id)
        await self.hooks.lost(message, lost.chat.id, lost.chat.owner)

    async def order_stop(self, chat_id: str) -> None:
        """Note that the answer of a chat is to be stopped, in case its process dies before that is done."""
        with contextlib.suppress(ChatsUnreachable):
            await self.store.order_stop(chat_id)

    async def lose(self, info: RunInfo) -> None:
        """End the stored answer of a run that the run store has declared lost, and report it."""
        for lost in await self.store.lose(_chat_id_of(info), info.run_id):
            await self._report_lost(lost)

    async def _rest_of(self, claim: Claim) -> LoggedAnswer | None:
        """Return the answer of a dead worker as far as the log of its run has it."""
        try:
            async with asyncio.timeout(_REST_SECONDS):
                info = await self._manager.latest(chat_key({}, claim.chat_id))
                if info is None or info.run_id != claim.run_id:
                    return None
                logged = await _logged_answer(self._manager, info, claim.message_id)
        except (StoreUnreachable, TimeoutError):
            return None
        return None if logged is None else LoggedAnswer(files_of(claim).read(logged.message), logged.chunks)


class _TakingOver:
    """A source that answers once its recorder has taken over the chat."""

    def __init__(self, source: Source, recorder: "StoredAnswer", on_begin: Callable[[], Awaitable[None]]) -> None:
        self._source = source
        self._recorder = recorder
        self._on_begin = on_begin

    async def drive(self, context: TurnContext) -> None:
        """Take the chat over, and answer. Fails if the turn waited too long, so that another run owns the chat."""
        try:
            await self._recorder.take_over()
        except ClaimLost:
            raise PublicError(LOST) from None
        await self._on_begin()
        await self._source.drive(context)


def _encoded(info: RunInfo, turn_input: TurnInput, files: FileUrls) -> str:
    """Return a turn as a process needs it that continues its answer: without its messages, and without credentials."""
    identity, headers = turn_input.identity, turn_input.headers
    stored = msgspec.structs.replace(
        turn_input,
        request=msgspec.structs.replace(turn_input.request, messages=[]),
        identity=None if identity is None else msgspec.structs.replace(identity, token=None),
        headers={name: headers[name] for name in FORWARDED_HEADERS if name in headers},
    )
    queued = QueuedTurn(info, stored, recording={"files": files.prefix})
    return queued.encode().decode()


def with_calls(info: RunInfo, claim: Claim, continues: UIMessage | None) -> RunInfo:
    """Return a run with the calls of the message that it continues: those that stay open, and those it was given."""
    calls = _calls_of(continues)
    return msgspec.structs.replace(
        info,
        message_id=claim.message_id,
        open_calls=tuple(call for call in calls if call.tool_call_id in claim.answerable),
        given_calls=tuple(call for call in calls if call.tool_call_id in claim.given),
    )


def _as_shown(message: UIMessage, claim: Claim) -> UIMessage:
    """Return the message that a run continues as its page shows it, which has not seen what the answers led to."""
    return as_continued(message, claim.begun, answerable=claim.answerable, given=claim.given)


def _calls_of(message: UIMessage | None) -> Collection[OpenCall]:
    """Return the calls of a continued message as a run knows them."""
    calls = []
    for part in tool_parts_of(message or {}):
        approval = part.get("approval")
        approval_id = str(approval["id"]) if approval and part.get("state") == "approval-requested" else None
        calls.append(OpenCall(part["toolCallId"], tool_name(part), input_digest(part.get("input")), approval_id))
    return calls


def _replayed(answer: Answered, sdk: str) -> Reading:
    """Return a reading of what a page lacks of an answer that has ended."""
    copy = with_stored_answers(answer.copy, answer.message)
    stream = FrameStream(MessageStream(message_id=answer.message["id"], sdk=sdk, continues=copy))
    frames = [stream.send(part) for part in unseen_parts(answer.message, answer.copy)]
    log = Log()
    reader = log.reader()
    log.append(b"".join([*frames, stream.close()]))
    log.end()
    return LogReading(reader, None, on_close=lambda _: None)
