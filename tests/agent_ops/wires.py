"""A session without sockets: prompts in, the frames of every dialect and release out, to every adapter at once."""

import itertools
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tests.agent_ops.frames import (
    COMPLETE,
    CREATE,
    IDLE,
    Frame,
    chunk,
    delta,
    finalize,
    finish_part,
    message,
    status,
    updated,
)
from usechat import parts as p
from usechat.agent_ops.adapter import SessionAdapter
from usechat.agent_ops.connection import SessionHabits, SessionStreams, SocketCounter
from usechat.agent_ops.prompt_tracker import PromptTracker

Dialect: TypeAlias = Literal["client", "runner", "both"]
Echo: TypeAlias = Literal["enqueue", "dispatch"]


class Wire(NamedTuple):
    """Which frames an upstream sends."""

    dialect: Dialect
    echo: Echo | None = "enqueue"
    queued: bool = True
    """Whether it reports `promptQueued`."""
    busy: bool = False
    """Whether it reports `runnerBusy: true`."""
    freed: bool = True
    """Whether it reports the end of a prompt as a status."""
    completes: bool = True
    """Whether it reports the end of a prompt as `complete`."""
    init: bool = True
    """Whether it sends the state of the queue when a socket opens."""


_FLAGS: Final = (False, True)

_WITH_INIT: Final = [
    *(Wire("client", echo, busy=busy, completes=False) for echo in ("enqueue", "dispatch") for busy in _FLAGS),
    *(Wire("both", echo, busy=busy) for echo in ("enqueue", "dispatch") for busy in _FLAGS),
    *(Wire("client", queued=False, busy=busy, completes=False) for busy in _FLAGS),
    *(Wire("both", queued=False, busy=busy) for busy in _FLAGS),
    *(
        Wire("runner", echo, queued=queued, freed=freed)
        for echo in ("enqueue", "dispatch", None)
        for queued in _FLAGS
        for freed in _FLAGS
        if queued or echo != "dispatch"  # later releases always report it
    ),
]

WIRES: Final = [*_WITH_INIT, *(wire._replace(init=False) for wire in _WITH_INIT)]
"""The wires of upstreams as they are, and without the parts of which some may be missing."""

EVERY_WIRE: Final = [
    Wire(dialect, echo, *flags)
    for dialect in get_args(Dialect)
    for echo in (*get_args(Echo), None)
    for flags in itertools.product(_FLAGS, repeat=5)
    if flags[2] or flags[3]  # the end of a prompt is reported in some way
]
"""Every combination of frames, most of which no upstream sends. On some of them a prompt never gets its turn."""


class Prompt(NamedTuple):
    """A prompt. Its text decides how it is answered, so that prompts with the same text are interchangeable."""

    number: int
    text: str

    @property
    def fails(self) -> bool:
        return self.text.endswith("!")

    @property
    def echo(self) -> Frame:
        return {"type": "message", "data": {"id": f"u{self.number}", "role": "user", "content": self.text}}


class Stream:
    """A person's stream through the gateway."""

    def __init__(self, prompt: Prompt, session: "WireSession") -> None:
        self.prompt = prompt
        self.tracker = PromptTracker(
            prompt.text,
            claim=session.streams.claim,
            echoes=session.streams.habits.echoes,
            reports_queued=session.streams.habits.reports_queued,
        )
        self.adapter = SessionAdapter(self.tracker)
        self.parts: list[p.Part] = []

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, p.Text))

    @property
    def ending(self) -> p.Part | None:
        return self.parts[-1] if self.adapter.ended else None


class WireSession:
    """One session of an upstream, and the gateway's streams to it."""

    def __init__(self, wire: Wire) -> None:
        self.streams = SessionStreams(SocketCounter(1000), SessionHabits())
        self.all: list[Stream] = []
        self.stopped: set[str] = set()
        """The texts of the prompts that were aborted, or deleted by an abort."""
        self.lost: set[str] = set()
        """The texts of the prompts whose runner was lost."""
        self._wire = wire
        self._waiting: deque[Prompt] = deque()
        self._commands: deque[Stream] = deque()
        self._under_way: dict[int, AbstractAsyncContextManager[None]] = {}
        self._queue: deque[Prompt] = deque()
        self._running: Prompt | None = None
        self._steps: Iterator[None] = iter(())
        self._turn_is_over = False
        self._runner_is_lost = False
        self._numbers = iter(range(1, 10_000))

    # What people do

    def ask(self, text: str) -> None:
        """Let a person of the gateway send a prompt; its stream opens as soon as the gateway lets it."""
        self._waiting.append(Prompt(next(self._numbers), text))
        self._open_streams()

    def deliver(self) -> None:
        """Let the oldest command arrive at the session."""
        if self._commands:
            self._accept(self._commands.popleft().prompt)

    def ask_elsewhere(self, text: str) -> None:
        """Let somebody send a prompt over another socket.

        A wire with an `init` and no echoes gives no sign of such a prompt before its turn. There it is sent only while
        no prompt of the gateway waits for its turn, as the docs demand.
        """
        hidden = self._wire.init and self._wire.echo is None
        if not hidden or all(stream.tracker.has_started for stream in self.all):
            self._accept(Prompt(next(self._numbers), text))

    def step(self) -> None:
        """Let the runner take its next step."""
        next(self._steps, None)
        self._close_streams()
        self._open_streams()

    def abort(self) -> None:
        """Let somebody abort the running turn. Early releases also delete the queued prompts, and do not say so.

        It is known only of upstreams with echoes and statuses what they send then.
        """
        is_known = self._wire.echo is not None and self._wire.freed and not self._wire.busy
        if is_known and self._running is not None and not self._turn_is_over:
            self._broadcast(IDLE)
            self.stopped.add(self._running.text)
            if self._wire.echo != "dispatch":
                self.stopped |= {prompt.text for prompt in self._queue}
                self._queue.clear()
            self._turn_is_over = True
            self._steps = self._aborted()

    def lose_runner(self) -> None:
        """Let the runner disconnect in its turn. Early releases put its prompt back, and dispatch it again later."""
        is_known = self._wire.echo == "enqueue" and self._wire.freed
        if is_known and self._running is not None and not self._turn_is_over:
            self.lost.add(self._running.text)
            self._queue.appendleft(self._running)
            self._running, self._runner_is_lost, self._turn_is_over = None, True, True
            self._broadcast(status(runnerConnected=False, queuedPrompts=len(self._queue), runnerDisconnected=True))
            self._steps = self._reconnected()

    def run_to_end(self) -> None:
        for _ in range(1000):
            self.deliver()
            self.step()

    def aborts_only_itself(self) -> bool:
        """Return whether every stream that would send an abort now would stop a turn for its own words, or none."""
        active = [each for each in self.all if each.tracker.is_active and not each.adapter.ended]
        running = None if self._running is None else self._running.text
        return all(running == each.prompt.text or self._turn_is_over for each in active)

    def _open_streams(self) -> None:
        while self._waiting and not self.streams.must_wait:
            stream = Stream(self._waiting.popleft(), self)
            context = self.streams.prompting()
            _finish(context.__aenter__())
            self._under_way[stream.prompt.number] = context
            self.all.append(stream)
            self._commands.append(stream)
            if self._wire.init:
                self._feed(stream, self._init())

    def _close_streams(self) -> None:
        for stream in self.all:
            if stream.adapter.ended and stream.prompt.number in self._under_way:
                _finish(self._under_way.pop(stream.prompt.number).__aexit__(None, None, None))

    # What the session does

    def _init(self) -> Frame:
        data: dict[str, Any] = {"runnerBusy": self._running is not None, "promptsQueued": len(self._queue)}
        pending = {"pendingPrompt": self._pending()} if self._wire.echo == "dispatch" else {}
        return {"type": "init", "session": {}, "data": {**data, **pending}}

    def _pending(self) -> Frame | None:
        return {"messageId": f"u{self._queue[0].number}", "content": self._queue[0].text} if self._queue else None

    def _feed(self, stream: Stream, frame: Frame) -> None:
        stream.parts += stream.adapter.feed(frame)
        if stream.tracker.echoes:
            self.streams.note_echo()
        if stream.tracker.reports_queued:
            self.streams.note_queued()

    def _broadcast(self, *frames: Frame) -> None:
        for frame in frames:
            for stream in self.all:
                self._feed(stream, frame)

    def _accept(self, prompt: Prompt) -> None:
        if self._wire.echo == "enqueue":
            self._broadcast(prompt.echo)
        if self._running is None and not self._runner_is_lost:
            self._dispatch(prompt)
            return
        if self._wire.echo == "dispatch" and self._queue:
            old = self._queue.popleft()
            data = {"messageId": f"u{old.number}", "content": old.text}
            self._broadcast({"type": "queue.withdrawn", "data": data})
        self._queue.append(prompt)
        if self._wire.echo == "dispatch":
            self._broadcast({"type": "queue.state", "data": {"pending": self._pending()}})
        if self._wire.queued:
            self._broadcast(status(promptQueued=True, queuePosition=len(self._queue)))

    def _dispatch(self, prompt: Prompt, *, from_queue: bool = False) -> None:
        self._running = prompt
        self._turn_is_over = False
        if self._wire.echo == "dispatch":
            self._broadcast(prompt.echo)
        if from_queue and self._wire.echo == "dispatch":
            self._broadcast({"type": "queue.state", "data": {"pending": self._pending()}})
        if from_queue and self._wire.freed:
            self._broadcast(status(promptDequeued=True, remaining=len(self._queue)))
        if self._wire.busy:
            self._broadcast(status(runnerBusy=True))
        self._steps = self._turn(prompt)

    def _turn(self, prompt: Prompt) -> Iterator[None]:
        for frames in self._fail() if prompt.fails else self._answer(prompt):
            self._broadcast(*frames)
            yield
        self._turn_is_over = True
        if self._wire.completes:
            self._broadcast(COMPLETE)
            if self._wire.freed:
                yield  # a prompt that comes now is queued behind the one that has ended
        self._next()

    def _reconnected(self) -> Iterator[None]:
        yield
        self._runner_is_lost = False
        self._broadcast(status(runnerConnected=True))
        self._next()

    def _aborted(self) -> Iterator[None]:
        """Wait for the runner, which confirms the abort."""
        yield
        self._broadcast(IDLE)
        if self._wire.echo != "dispatch":
            self._broadcast(status(runnerBusy=False, aborted=True))
        self._next()

    def _next(self) -> None:
        self._running = None
        if self._queue:
            self._dispatch(self._queue.popleft(), from_queue=True)
        elif self._wire.freed:
            self._broadcast(status(runnerBusy=False))

    def _fail(self) -> Iterator[list[Frame]]:
        yield [] if self._wire.dialect == "client" else [finalize("error", None, error="No model")]

    def _answer(self, prompt: Prompt) -> Iterator[list[Frame]]:
        turn_id, text = f"t{next(self._numbers)}", f"answer to {prompt.text}"
        yield self._spoken({**CREATE, "turnId": turn_id}, message(turn_id))
        yield self._spoken(delta(text, turn_id), chunk(text, turn_id))
        finish = updated(text, finish_part(), turn_id=turn_id)
        yield self._spoken(finalize(turn_id=turn_id), finish)
        self._turn_is_over = True
        if self._wire.dialect != "runner":
            yield [finish]  # it is repeated when a tool reports late

    def _spoken(self, by_runner: Frame, to_browsers: Frame) -> list[Frame]:
        return {"runner": [by_runner], "client": [to_browsers], "both": [by_runner, to_browsers]}[self._wire.dialect]


def _finish(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
