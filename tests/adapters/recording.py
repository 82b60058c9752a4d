"""Recordings of what frameworks did in the scripts, so that `make test` plays them where no framework is installed.

A recording is what happened in each run of a script, in order: the events that the framework gave, the requests that
reached the model, what the tools did, what they sent to the page themselves, and what they asked it. A run that waits
for an answer goes on in the turn that brings it. The replay gives the same events to the same adapter, behind the same
server and the same npm clients, so that the script's own assertions hold for both.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import coroutine
from typing import Any, Final

import msgspec

from tests.adapters.agents import Api, Deeds, Framework
from tests.adapters.recorded_events import decoded, encoded
from tests.adapters.scripts import Chat, Script
from tests.conformance.http_client import Browser
from tests.conformance.served import serving
from usechat import parts
from usechat.adapters.framework import AdapterClass, FrameworkSource
from usechat.errors import PublicError
from usechat.parts import Part
from usechat.server import ChatApp
from usechat.sources import as_source
from usechat.testing import ScriptedModel
from usechat.turn import AgentInfo, Answer, PageQuestion, Turn, TurnContext, current_context

Json = Any
DIRECTORY: Final = Path(__file__).parent / "recordings"
_ABOUT_MACHINE: Final = ("<system-reminder>", "[Image: source:", "x-anthropic-billing-header")


# Recording.


class _Noted(list[str]):
    """A list that tells when something is added."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__()
        self._before = before

    def append(self, entry: str) -> None:
        self._before()
        super().append(entry)


class Recorder(FrameworkSource[Any]):
    """Answers turns with a framework, and writes down what happened."""

    def __init__(self, source: FrameworkSource[Any], model: ScriptedModel, deeds: Deeds) -> None:
        self._source = source
        self._model = model
        self._deeds = deeds
        self._counts = [0, 0, 0]
        self._turn: Turn | None = None
        deeds.done = _Noted(self._note_stop)
        self.adapter = source.adapter
        self.info = source.info
        self.turns: list[list[Json]] = []

    async def events(self, turn: Turn) -> AsyncIterator[Any]:
        self.note()
        self.turns.append([])
        self._turn = turn
        self._note_sent()
        events: Any = None
        try:
            events = self._source.events(turn)
            while True:
                try:
                    event = await _noticing(anext(events), self._note_stop)
                except StopAsyncIteration:
                    return
                self.note()
                self.turns[-1].append({"event": encoded(event)})
                yield event
        except Exception as error:
            self.note()
            self.turns[-1].append({"raises": type(error).__name__, "text": str(error)})
            raise
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    def _note_sent(self) -> None:
        """Write down what code that the framework calls sends and asks; the adapter's parts take another way."""
        context = current_context()

        def write(part: Part) -> bool | None:
            self._add({"sent": {"$type": type(part).__name__, **msgspec.structs.asdict(part)}})
            return context.relay(part)

        def feed(event: Any) -> None:
            self._add({"fed": encoded(event)})
            context.feed(event)

        async def ask(question: PageQuestion) -> Answer:
            def show() -> None:
                begin = len(self.turns[-1])
                question.show()
                shown, self.turns[-1][begin:] = self.turns[-1][begin:], []
                self._add({"asked": question.call_id, "is_apart": question.is_apart, "shown": shown})

            try:
                return await context.ask(msgspec.structs.replace(question, show=show))
            finally:
                self._add({"answered": question.call_id})

        forked = context.fork(write)
        forked.ask, forked.feed = ask, feed
        forked.enter()

    def _add(self, entry: Json) -> None:
        self.note()
        self.turns[-1].append(entry)

    def _note_stop(self) -> None:
        """Note that the turn was stopped, once, before a tool says that it was cancelled.

        Libraries also cancel what waits in them while the turn goes on, so the turn is asked.
        """
        if self._turn is not None and self._turn.stopped and {"stopped": True} not in self.turns[-1]:
            self.note()
            self.turns[-1].append({"stopped": True})

    def note(self) -> None:
        """Write down what happened since the last time."""
        model = self._model
        happened: list[tuple[str, list[Any]]] = [
            ("deed", self._deeds.done),
            ("request", [_without_machine(request) for request in model.requests]),
            ("left", [True] * model.disconnects),
        ]
        for index, (kind, entries) in enumerate(happened):
            if self.turns:
                self.turns[-1] += ({kind: entry} for entry in entries[self._counts[index] :])
            self._counts[index] = len(entries)


def _without_machine(value: Json) -> Json:
    """Return a request without what Claude Code adds about the machine that it runs on."""
    if isinstance(value, dict):
        return {key: _without_machine(each) for key, each in value.items() if key != "metadata"}
    if isinstance(value, list):
        return [_without_machine(each) for each in value if not _is_about_machine(each)]
    return value


def _is_about_machine(block: Json) -> bool:
    return isinstance(block, dict) and str(block.get("text", "")).startswith(_ABOUT_MACHINE)


@coroutine
def _noticing(awaitable: Awaitable[Any], when_cancelled: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Wait for something, and tell of a cancellation before what waits inside knows of it."""
    inner = awaitable.__await__()
    step: Callable[[], Any] = partial(inner.send, None)
    while True:
        try:
            waiting = step()
        except StopIteration as end:
            return end.value
        try:
            value = yield waiting
            step = partial(inner.send, value)
        except asyncio.CancelledError as error:
            when_cancelled()
            step = partial(inner.throw, error)


def path_of(framework: Framework) -> Path:
    return DIRECTORY / f"{framework.name.lower().replace(' ', '-')}.json"


def key_of(script: Script, api: Api) -> str:
    return f"{script.name}, {api}"


@contextmanager
def live_chat(script: Script, framework: Framework, api: Api, release: str, browser: Browser) -> Iterator[Chat]:
    """Open a page that talks to a framework's agent; the recorder is on its side of the seam."""
    with recorded_chat(script, framework, api, release, browser) as (chat, _recorder):
        yield chat


@contextmanager
def recorded_chat(
    script: Script, framework: Framework, api: Api, release: str, browser: Browser
) -> Iterator[tuple[Chat, Recorder]]:
    deeds = Deeds()
    with ScriptedModel(framework.answers(script.answers)) as model, ExitStack() as stack:
        agent = framework.make(model, api, deeds)
        if isinstance(agent, AbstractContextManager):  # an agent that runs its own server
            agent = stack.enter_context(agent)
        source = as_source(agent)
        assert isinstance(source, FrameworkSource)
        recorder = Recorder(source, model, deeds)
        with serving({"agent": ChatApp(recorder)}) as served:
            yield Chat(framework, script.open(release, served, browser), model, served, deeds), recorder
            recorder.note()
        assert model.refusals == []


# Replaying.


class RecordedModel(msgspec.Struct):
    """What a recording knows of the model."""

    requests: list[Json] = []
    disconnects: int = 0


class Replay(FrameworkSource[Any]):
    """Answers turns with the events of a recording, one turn after the other."""

    def __init__(
        self, turns: Sequence[Sequence[Json]], adapter: AdapterClass[Any], model: RecordedModel, deeds: Deeds
    ) -> None:
        self._turns = iter(turns)
        self._model = model
        self._deeds = deeds
        self.adapter = adapter
        self.info = AgentInfo("recording")

    async def events(self, turn: Turn) -> AsyncIterator[Any]:  # noqa: ARG002 (the recording knows what was asked)
        entries = iter(next(self._turns))
        context = current_context()
        questions: dict[str, asyncio.Task[Answer]] = {}
        try:
            for entry in entries:
                match entry:
                    case {"event": event}:
                        await asyncio.sleep(0)
                        yield decoded(event)
                    case {"raises": name, "text": text}:
                        raise PublicError(text) if name == "PublicError" else type(name, (Exception,), {})(text)
                    case {"stopped": True}:
                        await asyncio.Event().wait()
                    case {"asked": call_id, "is_apart": is_apart, "shown": shown}:
                        show = partial(self._tell_all, shown, context)
                        question = PageQuestion(call_id, show, is_apart=is_apart)
                        questions[call_id] = asyncio.create_task(_asking(context, question))
                    case {"answered": call_id}:
                        await questions[call_id]
                    case _:
                        self._tell(entry, context)
        except asyncio.CancelledError:
            for later in entries:
                self._happen(later)
            raise

    def _tell_all(self, entries: Sequence[Json], context: TurnContext) -> None:
        for entry in entries:
            self._tell(entry, context)

    def _tell(self, entry: Json, context: TurnContext) -> None:
        match entry:
            case {"fed": event}:
                context.feed(decoded(event))
            case {"sent": part}:
                fields = {name: value for name, value in part.items() if name != "$type"}
                context.send(getattr(parts, part["$type"])(**fields))
            case _:
                self._happen(entry)

    def _happen(self, entry: Json) -> None:
        match entry:
            case {"deed": deed}:
                self._deeds.done.append(deed)
            case {"request": request}:
                self._model.requests.append(request)
            case {"left": True}:
                self._model.disconnects += 1


async def _asking(context: TurnContext, question: PageQuestion) -> Answer:
    return await context.ask(question)


@contextmanager
def replayed_chat(
    script: Script, framework: Framework, turns: Sequence[Sequence[Json]], release: str, browser: Browser
) -> Iterator[Chat]:
    """Open a page that talks to a recording."""
    model, deeds = RecordedModel(), Deeds()
    replay = Replay(turns, framework.adapter_class(), model, deeds)
    with serving({"agent": ChatApp(replay)}) as served:
        yield Chat(framework, script.open(release, served, browser), model, served, deeds)  # type: ignore[arg-type]


def recordings_of(framework: Framework) -> Mapping[str, Sequence[Sequence[Json]]]:
    if not path_of(framework).exists():
        return {}
    recordings: Mapping[str, Sequence[Sequence[Json]]] = json.loads(path_of(framework).read_text(encoding="utf-8"))
    return recordings


def write_recordings(framework: Framework, recorded: Mapping[str, Collection[Collection[Json]]]) -> None:
    """Write the recordings of a framework, one entry per line so that changes can be read."""
    DIRECTORY.mkdir(exist_ok=True)
    lines = []
    for key, turns in recorded.items():
        listed = ",\n".join(" [\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in turn) + "\n ]" for turn in turns)
        lines.append(f"{json.dumps(key)}: [\n{listed}\n]")
    path_of(framework).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
