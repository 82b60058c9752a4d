"""Turns of an app that stores its chats: in a chat store, or through hooks of the application.

:class:`StoredTurns` stands between the endpoints and the run manager where the server owns the history
(``ChatApp(agent, chats=…)``). It asks the chat store what a request means, gives the agent the stored branch, and
records the answer while it is streamed. The store decides who may answer a chat; the run store follows it.

:class:`Hooks` serves applications with a database of their own (``load=`` and ``on_finish=``).
"""

import asyncio
import contextlib
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import HTTPConnection

from usechat.chats.beginning import Answered, Begun, Busy, Joined
from usechat.chats.blobs import FileUrls
from usechat.chats.chat import Outcome, settled, with_stored_answers
from usechat.chats.history import HistoryFunction
from usechat.chats.meaning import request_over
from usechat.chats.recording import AnswerBuilder, AnswerRecorder
from usechat.chats.store import ChatStore
from usechat.chats.titles import TitleFunction, ask_title
from usechat.chats.transaction import Claim, LostAnswer
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
from usechat.ids import new_id
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.parts import Part
from usechat.protocol.reframing import unseen_parts
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream
from usechat.protocol.tool_calls import tool_parts_of
from usechat.protocol.ui_messages import UIMessage, is_dynamic_tool
from usechat.runs.log import Log
from usechat.runs.manager import PreparedRun, Reading, RunManager, RunRecorder
from usechat.runs.open_calls import OpenCall, input_digest
from usechat.runs.reading import LogReading
from usechat.runs.run import RunInfo, RunState
from usechat.runs.store import LOST
from usechat.runs.transport import RunChatTransport
from usechat.server.requests import chat_key
from usechat.sources import HandsOver, Source, as_source
from usechat.threads import AgentThreads, contained
from usechat.turn import Identity, Turn, TurnContext

__all__ = [
    "NO_HOOKS",
    "Feedback",
    "FeedbackFunction",
    "FinishFunction",
    "Hooks",
    "LoadFunction",
    "MakeContext",
    "RecordedRun",
    "StoredTurns",
    "file_urls",
    "report_lost",
    "shared_file_urls",
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
_POLL: Final = 0.05
"""Seconds between two looks at the store while waiting for another run to end."""
_UNREADABLE: Final = 2.0
"""After this many seconds a run that the run store does not know counts as one of a worker with another run store."""
_HOOK_SECONDS: Final = 30.0
"""Seconds that ``on_finish`` and ``on_feedback`` may take before the page sees the end without them."""
_REST_SECONDS: Final = 5.0
"""Seconds in which the run store must give the log of a dead worker; after that the answer is lost without it."""
_CLEAN_UP: Final = 3600.0
"""The most seconds between two deletions of chats that are too old."""
_TITLE: Final = "chat-title"
_SCHEMES: Final = {"ws": "http", "wss": "https"}


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

    async def loaded(self, asked: ChatRequest, make_context: MakeContext) -> ChatRequest:
        """Return a request with the history that the application has stored, instead of what the page sent."""
        if self.load is None:
            return asked
        stored = await self.threads.call(self.load, make_context(asked).turn)
        return request_over(list(stored), asked)

    def recorder(self, info: RunInfo, turn: Turn, continues: UIMessage | None) -> "ReportedAnswer | None":
        """Return what reports the answer of a run to ``on_finish``."""
        return None if self.on_finish is None else ReportedAnswer(info, turn, continues, self)

    async def lost(self, message: UIMessage, chat_id: str, owner: str) -> None:
        """Report the answer of a worker that died. Of its turn only the chat and its owner are known."""
        context = TurnContext(ChatRequest(chat_id=chat_id, messages=[]), identity=Identity(owner))
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


async def report_lost(info: RunInfo, manager: RunManager, hooks: Hooks, stored: "StoredTurns | None") -> None:
    """Store and report the answer of a run that was found lost, as far as the log of the run has it."""
    try:
        if stored is not None:
            await stored.lose(info)
        elif hooks.on_finish is not None:
            message = await _logged_answer(manager, info, info.message_id)
            answer = settled(message or _nothing(info.message_id), "lost", _answerable(info))
            await hooks.lost(answer, _chat_id_of(info), info.subject)
    except (ChatsUnreachable, StoreUnreachable):
        pass  # the store has logged it; a stored answer is declared lost when its lease has expired
    except Exception:
        _logger.exception("run %s: storing or reporting its lost answer failed", info.run_id)


async def _logged_answer(manager: RunManager, info: RunInfo, message_id: str) -> UIMessage | None:
    """Return the answer of another worker's run as far as its log has it."""
    frames, continued = await manager.lost_answer(info)
    if not frames:
        return None
    answer = AnswerBuilder(sdk=info.sdk, message_id=message_id, continues=cast("UIMessage | None", continued))
    answer.receive(frames)
    return answer.message


def _chat_id_of(info: RunInfo) -> str:
    """Return the id of a chat, given the key of its runs; that of a path with parameters stays the key."""
    return unquote(info.chat_id, errors="surrogatepass") if "=" not in info.chat_id else info.chat_id


def _nothing(message_id: str) -> UIMessage:
    return {"id": message_id, "role": "assistant", "parts": []}


def title_function(titles: Any) -> TitleFunction | None:
    """Return a function that makes titles: the one that was given, or one that asks the agent that was given.

    Raises :class:`~usechat.errors.CannotAnswer` if it is neither.
    """
    is_generator = inspect.isgeneratorfunction(titles) or inspect.isasyncgenfunction(titles)
    if titles is None or (inspect.isroutine(titles) and not is_generator):
        return cast("TitleFunction | None", titles)
    transport = RunChatTransport(as_source(titles))

    async def ask(messages: list[UIMessage]) -> str:
        said = await transport.send_messages(ChatRequest(chat_id=new_id(), messages=messages))
        return "".join([chunk.delta async for chunk in said if isinstance(chunk, TextDeltaChunk)])

    return ask


# With hooks alone.


class ReportedAnswer:
    """Builds the answer of a run and reports it when it ends."""

    states = None

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

    async def finish(self, info: RunInfo) -> None:
        """Report the answer."""
        outcome = cast("Outcome", str(info.state))
        message = settled(self._answer.message, outcome, _answerable(info))
        await self._hooks.finished(message, self._turn, outcome)


def _answerable(info: RunInfo) -> list[str]:
    return [call.tool_call_id for call in info.open_calls]


# With a chat store.


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
    nobody changes is kept; ``None`` means for ever. ``patience`` is how many seconds a turn may wait for an agent
    process, if those answer.
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
        self._file_bytes = file_bytes
        self._patience = patience
        self._manager = manager
        self._hooks = hooks
        self._keep = keep
        self._upkeep: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

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
        asked: ChatRequest,
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
        unreadable_since: float | None = None
        while True:
            found = await self.store.begin(
                asked,
                owner=info.subject,
                run_id=info.run_id,
                agent=agent,
                files=files,
                check_import=check_import,
                rest=self._rest_of,
            )
            match found:
                case Begun():
                    return await self._start(found, info, source, make_context, files)
                case Answered():
                    return _replayed(found, info.sdk)
            active = await self._active(found.claim, info.chat_id)
            if active is None:
                now = asyncio.get_running_loop().time()
                unreadable_since = now if unreadable_since is None else unreadable_since
                if now - unreadable_since > _UNREADABLE:
                    raise ChatBusy("This chat is being answered already.")
            elif (reading := await self._join(found, active, info, source, make_context, asked)) is not None:
                return reading
            await asyncio.sleep(_POLL)
            if await has_left():
                raise ClientLeft("The client left before its request was answered.")

    async def agents_of(self, asked: ChatRequest, owner: str) -> tuple[str, str]:
        """Return the agent that answers a chat, and the one whose answer the request continues; empty if none does."""
        await self._opened()
        try:
            return await self.store.agents_of(asked, owner=owner)
        except ChatNotFound:  # not stored yet; a chat of somebody else is refused when the turn begins
            return "", ""

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
        found: Joined | Busy,
        active: RunInfo,
        info: RunInfo,
        source: Source | None,
        make_context: MakeContext,
        asked: ChatRequest,
    ) -> Reading | None:
        if isinstance(found, Joined):
            given = {answer.tool_call_id for answer in asked.approvals}
            if source is not None and isinstance(source, HandsOver) and not given <= set(found.claim.given):
                source.hand_over(make_context(asked).turn)
                return None
            return await self._manager.attach(active, sdk=info.sdk, has_message=found.has_message)
        if found.is_edit:  # nobody waits for the answer to a message that is replaced
            await self._manager.stop(active)
            return None

        async def prepare(_latest: RunInfo | None) -> PreparedRun:
            return PreparedRun(info, make_context(asked))

        return await self._manager.resolve_conflict(active, info, source, prepare)

    async def _start(
        self, begun: Begun, info: RunInfo, source: Source | None, make_context: MakeContext, files: FileUrls
    ) -> Reading:
        recorder, recording = None, None
        try:
            request = await self._for_agent(begun.request, files)
            if source is not None:
                request = await self._with_files(request, files)
            context = make_context(request)
            calls = _calls_of(begun.continues)
            info = msgspec.structs.replace(
                info,
                message_id=begun.claim.message_id,
                open_calls=tuple(call for call in calls if call.tool_call_id in begun.claim.answerable),
                given_calls=tuple(call for call in calls if call.tool_call_id in begun.claim.given),
            )
            continues = None if begun.continues is None else files.write(begun.continues)
            title = begun.chat.title if begun.is_new else ""
            if source is not None:
                recorder = StoredAnswer(
                    self.store, begun.claim, info, context, self._hooks, continues=continues, files=files, title=title
                )
            else:
                recording = QueuedRecording(
                    claim=begun.claim,
                    title=title,
                    is_new=begun.is_new,
                    known_ids=tuple(sorted(begun.known_ids)),
                    files=files.prefix,
                )
            reading = await self._manager.start(
                info,
                source,
                context,
                continues=continues,
                recorder=recorder,
                recording=None if recording is None else msgspec.to_builtins(recording),
                takes_over=True,
                taken_ids=begun.known_ids,
            )
        except BaseException as error:
            # A turn may have been queued although its request is gone: then an agent process has the chat.
            if recording is None or not isinstance(error, asyncio.CancelledError):
                await self._give_back(begun)
            else:
                self._spawn(self._hand_over(begun.claim, info.chat_id))
            raise
        if recording is not None:
            self._spawn(self._hand_over(begun.claim, info.chat_id))
        if begun.is_new and recorder is not None:
            self._entitle(begun.request, files, recorder)
        return reading

    def recorded(
        self, recording: Mapping[str, Any], info: RunInfo, context: TurnContext, source: Source, *, instead_of: str = ""
    ) -> RecordedRun:
        """Return how to drive a run that a web process has stored and queued, in an agent process.

        ``instead_of`` is a run that had begun to answer, and died.
        """
        found = msgspec.convert(recording, QueuedRecording)
        request, files = context.turn.request, FileUrls(found.files)
        recorder = StoredAnswer(
            self.store,
            found.claim,
            info,
            context,
            self._hooks,
            continues=request.continues,
            files=files,
            title=found.title,
            take_over=True,
            instead_of=instead_of,
        )

        async def begin() -> None:
            if found.is_new:
                self._entitle(request, files, recorder)
            context.turn.request = await self._with_files(request, files)

        return RecordedRun(_TakingOver(source, recorder, begin), recorder, frozenset(found.known_ids))

    async def recorder_of(
        self, info: RunInfo, context: TurnContext, continues: Mapping[str, Any] | None
    ) -> RunRecorder | None:
        """Return what stores the end of a run whose turn was queued by any web process, and is withdrawn here."""
        claim = await self.store.claim_of(_chat_id_of(info), info.run_id)
        if claim is None:
            return None
        message = None if continues is None else _files_of(claim).read(cast("UIMessage", continues))
        return StoredAnswer(self.store, claim, info, context, self._hooks, continues=message, take_over=True)

    async def _hand_over(self, claim: Claim, key: str) -> None:
        """Keep a chat for the agent process that will take its queued turn.

        Until the turn is queued the claim has the lease of this process: if it dies, the chat is soon free.
        """
        # If the agent process was faster, the claim is gone, or is held longer once.
        with contextlib.suppress(ChatsUnreachable, ClaimLost, StoreUnreachable):
            if await self._active(claim, key) is not None:
                await self.store.hand_over(claim, self._patience + self.store.lease)

    async def _give_back(self, begun: Begun) -> None:
        """Free a chat whose run did not start. The answers that it was given are given to the next run."""
        message = begun.continues or _nothing(begun.claim.message_id)
        with contextlib.suppress(ChatsUnreachable, ClaimLost):  # then its lease expires
            await self.store.finish(begun.claim, message, "lost")

    async def _for_agent(self, request: ChatRequest, files: FileUrls) -> ChatRequest:
        """Return the request that the agent gets: as much of the history as it takes. What is stored stays whole."""
        messages = [files.write(message) for message in request.messages]
        if self._hooks.history is not None:
            with contained():
                selected = self._hooks.history(messages)
                messages = list(await selected if inspect.isawaitable(selected) else selected)
        is_whole = len(messages) == len(request.messages)
        return msgspec.structs.replace(request, messages=messages, has_whole_history=is_whole)

    async def _with_files(self, request: ChatRequest, files: FileUrls) -> ChatRequest:
        """Return the request with the content of stored files, in the process that answers: a queue keeps addresses.

        The provider of a model cannot read addresses of this server.
        """
        stored = [files.read(message) for message in request.messages]
        loaded = await self.store.load_files(request.chat_id, stored, limit=self._file_bytes)
        return msgspec.structs.replace(request, messages=[files.write(message) for message in loaded])

    # -- Titles.

    def _entitle(self, request: ChatRequest, files: FileUrls, recorder: "StoredAnswer") -> None:
        """Ask for the title of a new chat, without delaying its answer."""
        if self._hooks.titles is not None:
            self._spawn(self._ask_title(request, files, recorder, self._hooks.titles))

    async def _ask_title(
        self, request: ChatRequest, files: FileUrls, recorder: "StoredAnswer", titles: TitleFunction
    ) -> None:
        """Ask for a title, store it and show it, if the answer is still running."""
        chat_id = request.chat_id
        try:
            messages = list((await self._with_files(request, files)).messages)
            title = await ask_title(titles, messages, self._hooks.threads)
            chat = None if title is None else await self.store.suggest_title(chat_id, title)
        except Exception:  # of user code, or the database
            _logger.exception("chat %s: the title could not be created", chat_id, extra={"chat_id": chat_id})
            return
        if chat is not None:
            recorder.show_title(chat.title)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- What is done now and then.

    async def _look_after(self) -> None:
        """Declare answers of dead workers lost, and delete chats that are too old."""
        loop = asyncio.get_running_loop()
        cleaned = float("-inf")
        while True:
            try:
                for lost in await self.store.collect_lost(self._rest_of):
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
            "run %s: its worker is gone, so its answer is lost",
            lost.claim.run_id,
            extra={"chat_id": lost.chat.id, "run_id": lost.claim.run_id},
        )
        message = lost.message or _nothing(lost.claim.message_id)
        await self._hooks.lost(message, lost.chat.id, lost.chat.owner)

    async def lose(self, info: RunInfo) -> None:
        """End the stored answer of a run that the run store has declared lost, and report it."""
        for lost in await self.store.lose(_chat_id_of(info), info.run_id, self._rest_of):
            await self._report_lost(lost)

    async def _rest_of(self, claim: Claim) -> UIMessage | None:
        """Return the answer of a dead worker as far as the log of its run has it."""
        try:
            async with asyncio.timeout(_REST_SECONDS):
                info = await self._manager.latest(chat_key({}, claim.chat_id))
                if info is None or info.run_id != claim.run_id:
                    return None
                message = await _logged_answer(self._manager, info, claim.message_id)
        except (StoreUnreachable, TimeoutError):
            return None
        return None if message is None else _files_of(claim).read(message)


class _TakingOver:
    """A source that answers once its recorder has taken over the chat."""

    def __init__(self, source: Source, recorder: "StoredAnswer", on_begin: Callable[[], Awaitable[None]]) -> None:
        self._source = source
        self._recorder = recorder
        self._on_begin = on_begin

    async def drive(self, context: TurnContext) -> None:
        """Take the chat over, and answer; the chat of a turn that has waited for too long is another run's."""
        try:
            await self._recorder.take_over()
        except ClaimLost:
            raise PublicError(LOST) from None
        await self._on_begin()
        await self._source.drive(context)


class StoredAnswer:
    """Records the answer of a run in the chat store, and tells the page the title of a new chat.

    With ``take_over`` another process has begun the answer, and nothing is stored before ``take_over`` has returned.
    """

    def __init__(
        self,
        store: ChatStore,
        claim: Claim,
        info: RunInfo,
        context: TurnContext,
        hooks: Hooks,
        *,
        continues: UIMessage | None,
        files: FileUrls | None = None,
        title: str = "",
        take_over: bool = False,
        instead_of: str = "",
    ) -> None:
        self.states = store.states_of(claim.chat_id)
        self._store = store
        self._run_id = info.run_id
        self._recorder = AnswerRecorder(
            store, claim, sdk=info.sdk, continues=continues, files=files, on_lost=self._lose
        )
        self._context = context
        self._files = files
        self._hooks = hooks
        self._title = title
        self._must_take_over = take_over
        self._instead_of = instead_of
        self._has_begun = False
        self._fail: Callable[[str], object] = _ignore

    def start(self, fail: Callable[[str], object]) -> None:
        """Begin to save now and then."""
        self._fail = fail
        if not self._must_take_over:
            self._recorder.start()
        if self._title:
            self._send_title_after_first_part()

    async def take_over(self) -> None:
        """Take over an answer that another process has begun, and begin to save it.

        A database that is away is asked again for as long as the chat is claimed. Raises ``ClaimLost``.
        """
        await self._take_over()
        self._recorder.start()

    async def _take_over(self) -> None:
        claim, loop = self._recorder.claim, asyncio.get_running_loop()
        deadline = loop.time() + self._store.lease
        while self._must_take_over:
            try:
                taken = await self._store.take_over(claim, run_id=self._run_id, instead_of=self._instead_of)
                self._recorder.claim, self._must_take_over = taken, False
            except ChatsUnreachable:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_POLL)

    def receive(self, frames: bytes) -> None:
        """Take frames that readers see."""
        self._recorder.receive(frames)

    def show_title(self, title: str) -> None:
        """Send another title to the page, as data that is not stored, as soon as the answer has begun."""
        self._title = title
        if self._has_begun:
            self._send_title()

    def _send_title_after_first_part(self) -> None:
        """Wait for the first part of the source: its first part may name the message."""
        write = self._context.write

        def write_and_send_title(part: Part) -> bool | None:
            should_yield = write(part)
            if not self._has_begun:
                self._has_begun = True
                self._send_title()
            return should_yield

        self._context.connect(write_and_send_title)

    def _send_title(self) -> None:
        title, self._title = self._title, ""
        self._context.turn.emit(_TITLE, title, transient=True)

    async def finish(self, info: RunInfo) -> None:
        """Store the end of the answer; a database that is away is asked again for as long as the chat is claimed."""
        self._fail = _ignore
        outcome = cast("Outcome", str(info.state))
        message = self._recorder.message
        try:
            await self._take_over()  # if the run was stopped before it began
            stored = await self._recorder.finish(outcome, answerable=_answerable(info))
        except (ChatsUnreachable, ClaimLost) as error:
            _logger.error(
                "run %s: the end of its answer could not be stored: %s",
                info.run_id,
                error,
                extra={"chat_id": info.chat_id, "run_id": info.run_id},
            )
            stored = None
        answer = stored or settled(message, outcome, _answerable(info))
        shown = answer if self._files is None else self._files.write(answer)
        await self._hooks.finished(shown, self._context.turn, outcome)

    def _lose(self) -> None:
        self._fail(LOST)


def _ignore(_text: str) -> None:
    """Do nothing: the run has not begun, or has ended."""


def _calls_of(message: UIMessage | None) -> Collection[OpenCall]:
    """Return the calls of a continued message as a run knows them."""
    found = []
    for part in tool_parts_of(message or {}):
        kind = str(part["type"])
        name = str(part.get("toolName")) if is_dynamic_tool(kind) else kind.removeprefix("tool-")
        approval = part.get("approval")
        asked = str(approval["id"]) if approval and part.get("state") == "approval-requested" else None
        found.append(OpenCall(part["toolCallId"], name, input_digest(part.get("input")), asked))
    return found


def _replayed(answered: Answered, sdk: str) -> Reading:
    """Return a reading of what a page lacks of an answer that has ended."""
    copy = with_stored_answers(answered.copy, answered.message)
    stream = FrameStream(MessageStream(message_id=answered.message["id"], sdk=sdk, continues=copy))
    frames = [stream.send(part) for part in unseen_parts(answered.message, answered.copy)]
    log = Log()
    reader = log.reader()
    log.append(b"".join([*frames, stream.close()]))
    log.end()
    return LogReading(reader, None, on_close=lambda _: None)


def _files_of(claim: Claim) -> FileUrls:
    """Return what reads the addresses of a chat's files where no request tells the name of this server."""
    return FileUrls(f"/{quote(claim.chat_id, safe='', errors='surrogatepass')}/files/")


def file_urls(request: HTTPConnection, path: str, chat_id: str) -> FileUrls:
    """Return the addresses of a chat's files: absolute, because the page may be on another origin."""
    return FileUrls(f"{_base(request)}{path}/{quote(chat_id, safe='', errors='surrogatepass')}/files/")


def shared_file_urls(request: HTTPConnection, path: str, token: str) -> FileUrls:
    """Return the addresses of the files of a chat that ``token`` shares; ``path`` is where a page posts to."""
    return FileUrls(f"{_base(request)}{path.rpartition('/')[0]}/shared/{quote(token, safe='')}/files/")


def _base(request: HTTPConnection) -> str:
    """Return the address of the app. Starlette's is that of the outermost app; this one may be mounted below it."""
    scheme = _SCHEMES.get(request.url.scheme, request.url.scheme)
    return str(request.base_url.replace(scheme=scheme, path=request.scope.get("root_path", ""))).rstrip("/")
