"""One turn of a chat: the request as the agent sees it, how to answer it, and the interface for runs and sources.

There are two objects. :class:`Turn` is for people who write agents: the question, the identity of the user, and
``send`` and ``emit``, which send a part at once from anywhere. :class:`TurnContext` is for runs and sources: it
connects the turn with the run that writes the stream, stops it, and counts what happens upstream. Agents never see it.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, overload
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from usechat.errors import LocalProtocolError
from usechat.ids import new_id
from usechat.pauses.states import AnswerMemory, MemoryStates, PausedStates
from usechat.protocol.parts import Abort, Data, Error, Finish, Part
from usechat.protocol.request import ApprovalAnswer, ChatRequest, ToolOutput
from usechat.protocol.ui_messages import FileUIPart, UIMessage
from usechat.protocol.values import encodable, read_json
from usechat.threads import AgentThreads

__all__ = [
    "WAIT_SECONDS",
    "AgentInfo",
    "Answer",
    "Identity",
    "PageQuestion",
    "SourceObserver",
    "Steps",
    "Turn",
    "TurnContext",
    "TurnInput",
    "current_context",
    "current_turn",
    "emit",
    "is_replayable",
    "replayable",
    "replayable_tools",
    "thread_id",
    "yield_once",
]

Write: TypeAlias = Callable[[Part], bool | None]
"""Writes a part to the stream, and tells whether the source should yield to the event loop."""
Pause: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Feed: TypeAlias = Callable[[Any], None]
Answer: TypeAlias = ApprovalAnswer | ToolOutput | None
"""What a person answered; ``None`` if there will be no answer."""
WAIT_SECONDS: Final = 3600.0
"""How long a question waits for its answer."""
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_LARGEST_RESULT: Final = 1_000_000
"""How many characters the JSON of a step's result may have."""


class PageQuestion(msgspec.Struct, frozen=True):
    """What the page is asked while a turn runs (:mod:`usechat.pauses`).

    ``call_id`` is the call that the answer settles. ``show`` sends the parts that ask, unless the source has done so;
    it is called when the turn ends. A question that belongs to no call of the agent is shown ``is_apart``, in a step
    that has no other calls: the page posts again as soon as every call of the last step is answered. The turn ends
    ``settle_seconds`` after its last question, so that questions that are asked in parallel reach the page together.
    """

    call_id: str
    show: Callable[[], object] = tuple
    is_apart: bool = False
    settle_seconds: float = 0
    wait_seconds: float = WAIT_SECONDS


Ask: TypeAlias = Callable[[PageQuestion], Coroutine[Any, Any, Answer]]
"""Shows a question to the page, and returns its answer."""


class Identity(msgspec.Struct, frozen=True):
    """Who asks, as ``authorize`` returns it.

    ``subject`` is the name that owns chats, ``claims`` holds what the token says, and ``token`` is the token itself,
    for agents that pass it on upstream. ``repr`` shows the subject alone.

    >>> Identity("ada", {"role": "admin"}, "secret-token")
    Identity('ada')
    """

    subject: str
    claims: Mapping[str, Any] = {}
    token: str | None = None

    def __repr__(self) -> str:
        """Name the subject alone: tokens and claims do not belong in a log."""
        return f"Identity({self.subject!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Do the same for ``rich``, which would show every field."""
        return [("subject", self.subject)]


class TurnInput(msgspec.Struct, frozen=True):
    """What a turn is asked: the chat request, who sent it, and what its HTTP request carried besides the body.

    ``headers`` and ``query`` are those of the HTTP request, ``path_params`` is what the path of its route names.

    >>> from usechat import ChatRequest
    >>> from usechat.server import Identity
    >>> TurnInput(ChatRequest(chat_id="c1", messages=[]), Identity("ada")).identity
    Identity('ada')
    """

    request: ChatRequest
    identity: Identity | None = None
    headers: Mapping[str, str] = {}
    path_params: Mapping[str, Any] = {}
    query: Mapping[str, str] = {}


def thread_id(turn: "Turn") -> str:
    """Return the id under which a framework remembers the chat.

    Clients choose the ids of chats, so the caller's identity is part of it: a caller cannot open another's thread.
    """
    subject = "" if turn.identity is None else turn.identity.subject
    return "/".join(quote(text, safe="", errors="surrogatepass") for text in (subject, turn.chat_id or new_id()))


class AgentInfo(msgspec.Struct, frozen=True):
    """The agent of a framework that answers a turn, for spans and metrics; see :class:`~usechat.AdapterSource`.

    ``framework`` is the name of its adapter, ``name`` that of the agent if it has one.

    >>> AgentInfo("langgraph", "assistant").framework
    'langgraph'
    """

    framework: str
    name: str | None = None


class _Outlet:
    """Where the parts of a turn go. The turn and its context share it, so that neither keeps the other alive."""

    __slots__ = ("loop", "run_id", "should_yield", "step_counts", "steps", "stopped", "thread", "threads", "write")

    def __init__(self, threads: AgentThreads) -> None:
        self.run_id = ""
        self.write: Write = _not_begun
        self.threads = threads
        self.steps: Steps | None = None
        self.step_counts: dict[str, int] = {}
        self.stopped = False
        self.should_yield = False
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()

    def send(self, part: Part) -> None:
        """Send a part at once, from any thread."""
        if threading.get_ident() == self.thread:
            self.should_yield = self.write(part) or self.should_yield
        else:
            self.loop.call_soon_threadsafe(self.write, part)


def _not_begun(_part: Part) -> bool:
    raise LocalProtocolError("the turn has not begun")


def _over(_part: Part) -> bool:
    return False


def _no_adapter(_event: Any) -> None:
    raise LocalProtocolError("no adapter reads the events of this turn")


async def _cannot_ask(_question: PageQuestion) -> Answer:
    raise LocalProtocolError("no run drives this turn, so nobody can wait for an answer of the page")


async def _too_late(_question: PageQuestion) -> Answer:
    raise LocalProtocolError("the turn is over in which this code was started; open MCP sessions in each turn anew")


async def yield_once() -> None:
    """Yield to the event loop: the pause of a source that no reader holds back.

    >>> import asyncio
    >>> asyncio.run(yield_once())
    """
    await asyncio.sleep(0)


class Turn:
    """What an agent is asked, and how it sends parts besides yielding them.

    The server makes it and gives it to the agent. ``identity`` is what ``authorize`` returned: without authentication
    an ``Identity`` whose subject is empty. It is ``None`` only if no server made the turn. ``request`` is the parsed
    :class:`~usechat.ChatRequest`, ``headers`` and ``query`` are those of the HTTP request, and ``path_params`` what the
    path of the route names.

    ``messages``, ``body``, ``headers`` and ``query`` are untrusted client input. ``tool_outputs`` and ``approvals``
    were checked: each answers a call that was open. ``send`` and ``emit`` may be called from any thread; everything
    else is read-only.

    >>> async def agent(turn):
    ...     turn.emit("progress", {"percent": 10}, id="progress")
    ...     yield f"You said: {turn.text}"
    >>> from usechat.testing import AgentClient
    >>> with AgentClient(agent) as client:
    ...     client.ask("hi").text
    'You said: hi'
    """

    __slots__ = ("_outlet", "input")

    def __init__(self, turn_input: TurnInput, outlet: _Outlet) -> None:
        self.input = turn_input
        """All of what the turn is asked, as one value."""
        self._outlet = outlet

    @property
    def request(self) -> ChatRequest:
        """The chat request as it was parsed."""
        return self.input.request

    @property
    def identity(self) -> Identity | None:
        """Who asks, as ``authorize`` returned it; without authentication the subject is empty."""
        return self.input.identity

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request; their names are found in any case."""
        return self.input.headers

    @property
    def path_params(self) -> Mapping[str, Any]:
        """What the path of the route names."""
        return self.input.path_params

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters of the request."""
        return self.input.query

    @property
    def chat_id(self) -> str:
        """The chat's id."""
        return self.request.chat_id

    @property
    def text(self) -> str:
        """The text of the user's last message."""
        return self.request.text

    @property
    def files(self) -> list[FileUIPart]:
        """The files of the user's last message. The server never fetches their URLs."""
        return self.request.files

    @property
    def messages(self) -> list[UIMessage]:
        """The history: the stored one where the server has it, otherwise as the client sent it."""
        return self.request.messages

    @property
    def body(self) -> Mapping[str, Any]:
        """The application's own keys of the request body."""
        return self.request.body

    @property
    def tool_outputs(self) -> list[ToolOutput]:
        """The outputs of client-side tools, for calls that were open.

        A server takes an output only for a call that waits for one. Code that creates turns itself gets all of them.
        Half an emoji (a lone surrogate), which no model takes, is replaced.
        """
        return [msgspec.structs.replace(each, output=encodable(each.output)) for each in self.request.tool_outputs]

    @property
    def approvals(self) -> list[ApprovalAnswer]:
        """The user's answers to approval requests; each was asked for, and its call has not changed.

        Half an emoji (a lone surrogate) in a reason or an edited input, which no model takes, is replaced.
        """
        return [
            msgspec.structs.replace(each, reason=encodable(each.reason), edited_input=encodable(each.edited_input))
            for each in self.request.approvals
        ]

    @property
    def stopped(self) -> bool:
        """Whether the turn was stopped. Code in threads checks it regularly, and returns."""
        return self._outlet.stopped

    def send(self, part: Part) -> None:
        """Send a part at once, from any thread. After the end of the turn it is dropped.

        Raises :class:`~usechat.errors.LocalProtocolError` if the turn has not begun.
        """
        self._outlet.send(part)

    @overload
    def emit(self, name: str, data: Any, *, id: str | None = None, transient: bool = False) -> None: ...
    @overload
    def emit(self, data: Any, /, *, id: str | None = None, transient: bool = False) -> None: ...
    def emit(
        self,
        name: Any,
        data: Any = UNSET,
        *,
        id: str | None = None,  # noqa: A002
        transient: bool = False,
    ) -> None:
        """Send a ``data-<name>`` part at once, from any thread.

        A dataclass, a msgspec Struct or a pydantic model needs no name: ``emit(Progress(percent=50))`` sends
        ``data-progress``.

        A part with the same name and ``id`` replaces the earlier one on the page. A ``transient`` part reaches the
        page's ``onData`` and is not kept in the message.
        """
        self._outlet.send(Data.of(name, id, transient) if data is UNSET else Data(name, data, id, transient))

    async def step(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, async or not, once in the life of this answer, and return its result.

        Where chats are stored the result is stored before this returns. If the process dies later, the agent function
        starts again in another one, and gets the stored result without a call. If the process dies in the function,
        the next attempt raises :class:`~usechat.errors.UnknownOutcome`, unless the function is :func:`replayable`.

        A step is known by its name, and by how often the name was used before in this answer. The result must be JSON,
        of at most a million characters; it is returned as JSON gives it back, so that a tuple becomes a list. Raises
        :class:`~usechat.errors.LocalProtocolError` for any other result, and what the function raises.

        >>> async def agent(turn):
        ...     yield f"The plan: {await turn.step('plan', len, turn.text)}"
        >>> from usechat.testing import AgentClient
        >>> with AgentClient(agent) as client:
        ...     client.ask("hi").text
        'The plan: 2'
        """
        outlet = self._outlet
        ordinal = outlet.step_counts[name] = outlet.step_counts.get(name, 0) + 1
        steps = outlet.steps
        if steps is not None:
            stored = await steps.begin(name, ordinal, is_replayable=is_replayable(function))
            if stored is not None:
                return read_json(stored)
        with _in_step(name, ordinal):
            result = _step_result(name, await outlet.threads.call(function, *arguments))
        if steps is not None:
            await steps.end(name, ordinal, result)
        return read_json(result)

    def key(self, *values: Any) -> str:
        """Return an idempotency key: a service that gets it twice does a thing once.

        It is the same in every process that goes on with this answer, and no other answer has it. Each :meth:`step` has
        its own. A tool names itself and its input, ``current_turn().key("pay", order)``: the same values are the same
        call. They must be JSON; :class:`~usechat.errors.LocalProtocolError` for others, and where nothing answers.

        >>> async def agent(turn):
        ...     orders = [turn.key("pay", "A1"), turn.key("pay", "A1"), turn.key("pay", "A2")]
        ...     yield f"{len(orders)} payments, {len(set(orders))} keys"
        >>> from usechat.testing import AgentClient
        >>> with AgentClient(agent) as client:
        ...     client.ask("hi").text
        '3 payments, 2 keys'
        """
        if not self._outlet.run_id:
            raise LocalProtocolError("the turn has not begun, so it has no key")
        try:
            text = json.dumps([self._outlet.run_id, _current_step.get(), values], allow_nan=False, sort_keys=True)
        except (TypeError, ValueError):
            kinds = ", ".join(type(value).__name__ for value in values)
            raise LocalProtocolError(f"a key is made of JSON values, not of these: {kinds}") from None
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_current_step: Final[ContextVar[tuple[str, int] | None]] = ContextVar("usechat.step", default=None)


@contextmanager
def _in_step(name: str, ordinal: int) -> Iterator[None]:
    token = _current_step.set((name, ordinal))
    try:
        yield
    finally:
        _current_step.reset(token)


def _step_result(name: str, value: Any) -> str:
    try:
        result = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise LocalProtocolError(f"the result of the step {name!r} is no JSON, but {type(value).__name__}") from None
    if len(result) > _LARGEST_RESULT:
        raise LocalProtocolError(
            f"the result of the step {name!r} has {len(result)} characters; at most {_LARGEST_RESULT} are stored"
        )
    return result


class Steps(Protocol):
    """Stores the steps of one answer."""

    async def begin(self, name: str, ordinal: int, *, is_replayable: bool) -> str | None:
        """Store that a step begins; return its result, as JSON, if it has returned before.

        Raises :class:`~usechat.errors.UnknownOutcome` if a process died in it, unless it ``is_replayable``, and a
        ``PublicError`` if the run must end instead.
        """
        ...

    async def end(self, name: str, ordinal: int, result: str) -> None:
        """Store the result of a step."""
        ...


_replayable_tools: Final[set[str]] = set()


def replayable(function: FunctionT) -> FunctionT:
    """Mark a function that may run again after its process died in it: a step (``Turn.step``), or a tool of an agent.

    Calling it twice must do no harm. A tool is known by the name of its function. Returns the function.

    >>> @replayable
    ... def look_up(city: str) -> str:
    ...     return f"Sunny in {city}"
    >>> look_up("Berlin")
    'Sunny in Berlin'
    """
    cast("Any", function).usechat_replayable = True
    _replayable_tools.add(function.__name__)
    return function


def is_replayable(function: Callable[..., Any]) -> bool:
    """Tell whether a function was marked with :func:`replayable`."""
    return getattr(function, "usechat_replayable", False) is True


def replayable_tools() -> frozenset[str]:
    """Return the names of the functions that were marked with :func:`replayable`."""
    return frozenset(_replayable_tools)


class SourceObserver:
    """Hears what a source reports besides its answer; override what you need."""

    def source_unreachable(self) -> None:
        """Called when an upstream connection could not be opened."""

    def source_connected(self) -> None:
        """Called when an upstream connection was opened."""

    def source_disconnected(self) -> None:
        """Called when an upstream connection was closed."""

    def event_unknown(self, kind: str) -> None:
        """Called when a source sent an event that its adapter does not know."""

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:
        """Called when an agent of a framework starts to answer, in the task of the turn: it sees variables set here."""

    def agent_ended(self, agent: AgentInfo, ending: Finish | Error | Abort | None, error: BaseException | None) -> None:
        """Called when an agent of a framework has ended, in the same task: with its last part, or with an exception."""


class TurnContext:
    """A turn as runs and sources see it; ``turn`` is the agent's side of it.

    Create it in a running event loop. ``send`` and ``call_soon`` may be called from any thread, everything else from
    the loop's thread. ``observer`` hears of the source's connections and events, ``threads`` run plain functions.

    >>> import asyncio
    >>> from usechat import ChatRequest
    >>> async def ask(drive):
    ...     context, parts = TurnContext(TurnInput(ChatRequest(chat_id="c1", messages=[]))), []
    ...     context.connect(parts.append)
    ...     await drive(context)
    ...     return parts
    >>> from usechat.parts import Text
    >>> async def drive(context):
    ...     context.send(Text(f"This is {context.turn.chat_id}."))
    >>> asyncio.run(ask(drive))[0].text
    'This is c1.'
    """

    __slots__ = (
        "_observer",
        "ask",
        "feed",
        "has_begun_before",
        "memory",
        "outlet",
        "pause",
        "send",
        "states",
        "threads",
        "turn",
    )

    def __init__(
        self,
        turn_input: TurnInput,
        *,
        observer: SourceObserver | None = None,
        threads: AgentThreads | None = None,
    ) -> None:
        self.has_begun_before = False
        """Whether a process has begun to answer the turn which died."""
        self.threads = threads or AgentThreads()
        """Where plain functions and generators answer."""
        self.states: PausedStates = MemoryStates()
        """Where agents that pause keep their states; a run puts its store here."""
        self.memory: AnswerMemory | None = None
        """What keeps the state of a framework with the answers; ``None`` if chats do not outlive the process."""
        self.ask: Ask = _cannot_ask
        """Asks the page while the turn runs; call it in ``loop``. The run that drives the turn sets it."""
        self.feed: Feed = _no_adapter
        """Sends the parts of an event that the framework tells outside of its events, such as in a callback."""
        self.pause: Pause = yield_once
        """Yields to the event loop when much was sent without a pause; a run may wait longer, for its readers."""
        self.outlet = outlet = _Outlet(self.threads)
        """Where the parts go; a waiting task writes to other places in later turns."""
        self.turn = Turn(turn_input, outlet)
        self.send = outlet.send
        """Send a part at once, from any thread."""
        self._observer = observer

    @property
    def run_id(self) -> str:
        """The id of the run that drives the turn, which sets it; runs that answer the same turn again have the same."""
        return self.outlet.run_id

    @run_id.setter
    def run_id(self, run_id: str) -> None:
        self.outlet.run_id = run_id

    @property
    def write(self) -> Write:
        """The function that writes a part at once, for the loop's own thread; it tells whether to yield to the loop."""
        return self.outlet.write

    def relay(self, part: Part) -> bool | None:
        """Write a part wherever the parts of this turn go now. For other contexts, which may outlive a connection."""
        return self.outlet.write(part)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the turn."""
        return self.outlet.loop

    @property
    def stopped(self) -> bool:
        """Whether the turn was stopped."""
        return self.outlet.stopped

    def connect(self, write: Write) -> None:
        """Let ``write`` take the parts of this turn from now on."""
        self.outlet.write = write

    def disconnect(self, write: Write) -> None:
        """Drop further parts, unless another function than ``write`` takes them by now."""
        self.pause = yield_once  # that of a run would keep the run
        if self.outlet.write == write:
            self.outlet.write = _over

    @contextmanager
    def fed_by(self, feed: Feed) -> Iterator[None]:
        """Let ``feed`` take events that are told outside of the framework's events."""
        self.feed = feed
        try:
            yield
        finally:
            self.feed = _no_adapter

    def withdraw_ask(self) -> None:
        """Refuse further questions: nobody can wait for their answers any more."""
        self.ask = _too_late

    def fork(self, write: Write) -> "TurnContext":
        """Return a context of the same request for work that may outlive the turn; ``write`` takes its parts."""
        forked = TurnContext(self.turn.input, observer=self._observer, threads=self.threads)
        forked.connect(write)
        forked.run_id = self.run_id
        forked.states = self.states
        forked.memory = self.memory
        forked.outlet.steps = self.outlet.steps
        forked.outlet.step_counts = self.outlet.step_counts
        return forked

    def enter(self) -> None:
        """Make this the turn that :func:`emit` sends to, in the calling context from here on."""
        _current.set(self)

    def stop(self) -> None:
        """Raise the flag that code in threads looks at."""
        self.outlet.stopped = True

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop's thread, after everything that was sent before. From any thread."""
        self.outlet.loop.call_soon_threadsafe(callback, *arguments)

    async def yield_to_loop(self) -> None:
        """Pause if much was sent without a pause. A source calls it between two events."""
        if self.outlet.should_yield:
            self.outlet.should_yield = False
            await self.pause()

    def source_unreachable(self) -> None:
        """Count an upstream connection that could not be opened."""
        if self._observer is not None:
            self._observer.source_unreachable()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Count an upstream connection as open."""
        if self._observer is None:
            yield
            return
        self._observer.source_connected()
        try:
            yield
        finally:
            self._observer.source_disconnected()

    def event_unknown(self, kind: str) -> None:
        """Count an event that the adapter does not know."""
        if self._observer is not None:
            self._observer.event_unknown(kind)

    def agent_invoked(self, agent: AgentInfo) -> None:
        """Report that an agent begins to answer this turn; call it in the task of the turn."""
        if self._observer is not None:
            self._observer.agent_invoked(agent, self.turn.chat_id)

    def agent_ended(
        self, agent: AgentInfo, ending: Finish | Error | Abort | None, error: BaseException | None = None
    ) -> None:
        """Report that the agent has ended; call it in the task that reported its beginning."""
        if self._observer is not None:
            self._observer.agent_ended(agent, ending, error)


_current: Final[ContextVar[TurnContext]] = ContextVar("usechat.turn")


def current_context() -> TurnContext:
    """Return the context of the turn that the calling code runs in. For sources; agents use :func:`current_turn`.

    Raises :class:`~usechat.errors.LocalProtocolError` outside of a turn.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(current_context().turn is turn)) as client:
    ...     client.ask("hi").text
    'True'
    """
    try:
        return _current.get()
    except LookupError:
        raise LocalProtocolError("no turn is running here; emit() works in code that an agent calls") from None


def current_turn() -> Turn:
    """Return the turn that the calling code runs in, such as that of a tool's caller.

    Raises :class:`~usechat.errors.LocalProtocolError` outside of a turn.

    >>> def who_asks():
    ...     return current_turn().identity
    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(who_asks())) as client:
    ...     client.ask("hi").text
    "Identity('')"
    """
    return current_context().turn


@overload
def emit(name: str, data: Any, *, id: str | None = None, transient: bool = False) -> None: ...
@overload
def emit(data: Any, /, *, id: str | None = None, transient: bool = False) -> None: ...
def emit(name: Any, data: Any = UNSET, *, id: str | None = None, transient: bool = False) -> None:  # noqa: A002
    """Send a ``data-<name>`` part of the turn that the calling code runs in, from any thread.

    It works anywhere in the agent's call tree, such as in a tool that knows nothing of the turn:

    >>> def search(query):
    ...     emit("progress", {"query": query}, id="search")
    ...     return f"Nothing was found for {query}."
    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: search(turn.text)) as client:
    ...     client.ask("owls").message.data
    {'progress': [{'query': 'owls'}]}

    A dataclass, a msgspec Struct or a pydantic model needs no name: ``emit(Progress(percent=50))`` sends
    ``data-progress``. A part with the same name and ``id`` replaces the earlier one on the page; a ``transient`` part
    reaches the page's ``onData`` and is not kept in the message.

    Raises :class:`~usechat.errors.LocalProtocolError` outside of a turn.
    """
    current_context().turn.emit(name, data, id=id, transient=transient)
