"""Answers whose processes are killed at random moments: what happens to them, and what must hold of them in the end.

A :class:`Story` is drawn from a seed: where chats are stored, which agent answers, how many processes serve it, and
what is done to them when. :func:`tell` asks a question, does all that to the processes while a page reads on, and
returns the problems. What must hold:

- every effect happens at most once, and no process calls the model with a history that its API refuses;
- the answer ends, whole where it can go on, and no text of it is doubled;
- a page that has read to the end shows what is stored;
- the chat goes on: the next question is answered;
- no process has logged an exception.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, Self, TypeAlias, cast

import httpx2
import msgspec

from tests.chats.dying import FORKS
from tests.postgres_server import postgres_server
from tests.redis_server import SERVERS, redis_server
from usechat.chats import SqlChats
from usechat.chats.recovery import is_question_of_recovery
from usechat.client import Chat
from usechat.errors import UsechatError
from usechat.protocol.ui_messages import UIMessage, text_of
from usechat.protocol.validation import validate_messages
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

__all__ = ["PREFIX", "STEPS", "STORES", "Fault", "Servers", "Store", "Story", "Told", "draw", "tell"]

Store: TypeAlias = Literal["sqlite", "postgresql", "redis"]
STORES: Final[tuple[Store, ...]] = ("sqlite", "postgresql", "redis")
"""Where chats and runs are: an SQLite file, PostgreSQL, or an SQLite file with the runs in Redis."""
AGENTS: Final = ("loop", "openai-agents", "pydantic", "steps")
PREFIX: Final = "KILLED_"
"""What the names of the environment of a process begin with."""
STEPS: Final = (("First. ", ("one",)), ("Second. ", ("two", "three")), ("Third. ", ("four",)), ("Fourth.", ()))
"""The texts of an answer, and the effects behind each of them."""
_ANSWER_SECONDS: Final = 1.5
"""About how long an answer takes that nobody interrupts."""
_PATIENCE: Final = 300.0
"""Seconds for what must happen at last; a loaded machine is slow."""
_LOOK: Final = 0.05
_PAUSE: Final = 0.02
"""Seconds before each event of the model."""
_SHORT_LEASE, _LONG_LEASE = 10.0, 30.0
_MAY_BE_LOST: Final = 3
"""So many deaths without a finished step between them end an answer."""
_WHOLE: Final = "".join(text for text, _ in STEPS)
_APP: Final = "from tests.chats.killed_app import make_app\n\napp = make_app()\n"
_TROUBLE: Final = "Traceback"
"""What no log may hold."""


class Fault(msgspec.Struct, frozen=True):
    """What happens to one of the processes, so many seconds after the fault before it.

    ``stop`` is SIGSTOP for longer than a lease. ``is_hasty`` says that the seconds count from the start of the process,
    and not from the moment at which it answers.
    """

    kind: Literal["kill", "term", "stop"]
    seconds: float
    process: int
    is_hasty: bool


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, and what happens to its processes."""

    seed: int
    store: Store
    agent: str
    rule: Literal["continue", "ask", ""]
    processes: int
    faults: tuple[Fault, ...]

    @property
    def lease(self) -> float:
        """How long a claim lasts: short if a process is to be stopped for longer."""
        return _SHORT_LEASE if any(fault.kind == "stop" for fault in self.faults) else _LONG_LEASE

    @property
    def outcomes(self) -> set[str]:
        """How the answer may end."""
        if self.store == "redis":  # answers with runs in Redis do not go on
            return {"finished", "lost", "stopped"}
        may_be_lost = len(self.faults) >= _MAY_BE_LOST or self.lease == _SHORT_LEASE
        return {"finished", "lost"} if may_be_lost else {"finished"}


class Told(msgspec.Struct):
    """How a story ended."""

    problems: list[str]
    faults: int = 0
    """How many faults there were before the answer had ended."""
    logs: str = ""


def draw(seed: int, store: Store, *, most_faults: int = 4, kinds: Sequence[str] = ("kill", "term", "stop")) -> Story:
    """Draw a story."""
    chance = random.Random(f"{store} {seed}")
    agent = chance.choice(AGENTS)
    weights = {"kill": 8, "term": 2, "stop": 1}
    processes = 1 if store == "sqlite" and chance.random() < 0.6 else 2
    faults = []
    for _ in range(chance.randint(1, most_faults)):
        [kind] = chance.choices(kinds, [weights[kind] for kind in kinds])
        is_hasty = chance.random() < 0.25
        faults.append(
            Fault(
                cast("Any", kind if processes > 1 or kind != "stop" else "kill"),
                round(chance.uniform(0, _ANSWER_SECONDS), 3),
                chance.randrange(processes),
                is_hasty,
            )
        )
    rules = {"loop": ("continue", "ask"), "pydantic": ("", "ask"), "openai-agents": ("",), "steps": ("",)}
    rule = "" if store == "redis" else chance.choice(rules[agent])
    return Story(seed=seed, store=store, agent=agent, rule=cast("Any", rule), processes=processes, faults=tuple(faults))


# -- The model.


class _ReadingModel(ScriptedModel):
    """Answers by what its history says: the next text, with calls of the effects that have no outcome yet."""

    def __init__(self) -> None:
        super().__init__([])

    def _next(self, body: dict[str, Any]) -> ModelAnswer:
        items = body.get("messages") or body["input"]
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        begin = max(index for index, item in enumerate(items) if item.get("role") == "user")
        if "Next" in json.dumps(items[begin]):
            return ModelAnswer(text=["Mo", "re."])
        known = set(_effects_in(items[begin:]))
        for text, effects in STEPS:
            calls = [ModelCall("act", {"what": effect}, self._new_id()) for effect in effects if effect not in known]
            if calls or not effects:  # a text comes before its calls: if there is one of them, it was said
                words = text.partition("i") if len(calls) == len(effects) else ""
                return ModelAnswer(text=words, calls=calls, pause=_PAUSE)
        raise AssertionError("the last step has no effects")


def _effects_in(items: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the effects that were called in a history of Chat Completions or Responses."""
    for item in items:
        calls = [call["function"] for call in item.get("tool_calls") or ()]
        calls += [item] if item.get("type") == "function_call" else []
        yield from (json.loads(call["arguments"])["what"] for call in calls)


# -- The processes.


class Servers:
    """The databases of all stories; use it as a context manager."""

    def __init__(self, stores: Sequence[Store] = STORES) -> None:
        self._stack = ExitStack()
        self._stores = stores
        self._made = 0

    def __enter__(self) -> Self:
        self._directory = Path(self._stack.enter_context(TemporaryDirectory()))
        asyncio.run(_migrate(str(self._directory / "chats.db")))
        if "postgresql" in self._stores:
            self._postgres = self._stack.enter_context(postgres_server())
            asyncio.run(self._make_template())
        if "redis" in self._stores:
            self._redis = self._stack.enter_context(redis_server(next(iter(SERVERS)), "--databases", "10000"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def _make_template(self) -> None:
        await self._execute("CREATE DATABASE template")
        await _migrate(self._url("template"))

    def _url(self, database: str) -> str:
        return self._postgres.replace("/postgres?", f"/{database}?")

    async def _execute(self, statement: str) -> None:
        engine = SqlChats(self._postgres).engine.execution_options(isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            await connection.exec_driver_sql(statement)
        await engine.dispose()

    async def urls(self, store: Store, directory: Path) -> tuple[str, str]:
        """Return the database of a story, and its Redis."""
        self._made += 1
        number = self._made
        if store == "postgresql":
            await self._execute(f"CREATE DATABASE story{number} TEMPLATE template")
            return self._url(f"story{number}"), ""
        file = shutil.copy(self._directory / "chats.db", directory)
        return str(file), f"{self._redis.url}/{number}" if store == "redis" else ""

    async def drop(self, database: str) -> None:
        """Remove the database of a story."""
        if "://" in database:
            name = database.partition("?")[0].rpartition("/")[2]
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")


async def _migrate(url: str) -> None:
    chats = SqlChats(url)
    await chats.migrate()
    await chats.close()


def _serve(app: str, log: str, environment: Mapping[str, str], port: int) -> None:
    """Run the command in a process that has imported it already."""
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    from usechat.cli import main

    sys.exit(main(["serve", f"{app}:app", "--port", str(port)]))


class _Place:
    """Where one process after the other serves: its port is kept for it while none does."""

    def __init__(self, app: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._app, self._log, self._environment = app, log, environment
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))  # it does not listen
        self._port = self._holder.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/api/chat"
        self.is_stopped = False
        self.start()

    def start(self) -> None:
        arguments = (str(self._app), str(self._log), self._environment, self._port)
        self._process = FORKS.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()

    async def end(self, number: signal.Signals) -> None:
        """Send the process a signal that ends it, and wait for its end."""
        self._send(number)
        await asyncio.to_thread(self._process.join, _PATIENCE)
        assert not self._process.is_alive(), f"it survives {number.name}"

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(int(self._process.pid or 0), number)

    async def pause(self, seconds: float) -> None:
        """Stop it for some seconds."""
        self.is_stopped = True
        self._send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._send(signal.SIGCONT)
        self.is_stopped = False

    async def until_it_answers(self) -> None:
        """Wait until it serves."""
        async with httpx2.AsyncClient(timeout=5) as client:
            while True:
                assert self._process.is_alive(), f"it has ended: {self._log.read_text()}"
                with suppress(httpx2.TransportError):
                    await client.get(self.url)
                    return
                await asyncio.sleep(_LOOK)

    def close(self) -> None:
        self._send(signal.SIGCONT)
        self._process.kill()
        self._process.join(_PATIENCE)
        self._holder.close()


class _Page:
    """A page that asks, and reads on wherever a process lives."""

    def __init__(self, places: Sequence[_Place], chance: random.Random) -> None:
        self._places = places
        self._chance = chance
        self._http = httpx2.AsyncClient(timeout=_PATIENCE)
        self._last_url = places[0].url
        self._chat = Chat(self._last_url, id="c1", sdk="7")
        self.has_read_all = False
        self.is_done = asyncio.Event()

    async def load(self) -> Any:
        """Return what a page loads of the chat, from any process that lives; ``None`` if it is not known."""
        while True:
            place = self._chance.choice(self._places)
            try:
                response = await self._http.get(f"{place.url}/c1/messages", timeout=_LOOK if place.is_stopped else 30)
            except httpx2.TransportError:
                await asyncio.sleep(_LOOK)
                continue
            if response.status_code in (200, 404):
                self._last_url = place.url
                return response.json() if response.status_code == 200 else None
            assert response.status_code == 503, (response.status_code, response.text)
            await asyncio.sleep(_LOOK)

    async def ask(self, text: str) -> None:
        """Ask, answer what a person is asked, and read until the answer has ended."""
        self.is_done.clear()
        reply = self._chat.send(text)
        while True:
            updates = 0
            self.has_read_all = False
            with suppress(UsechatError):
                async for _ in reply:
                    updates += 1
                self.has_read_all = updates > 0
            loaded = await self.load()
            if loaded is not None and loaded["running"] is not None:
                await self._move()
                reply = self._chat.resume()
            elif loaded is None or not self._is_answered(loaded):  # it came to nothing: a person tries again
                await self._move(self._chat.messages[: self._last_question + 1])
                reply = self._chat.send()
            elif questions := _questions_in(loaded["messages"][-1]):
                await self._move(loaded["messages"])
                for question in questions:
                    self._chat.add_approval_response(question, approved=False)
                reply = self._chat.send()
            else:
                break
        self.loaded = loaded
        self.is_done.set()

    def _is_answered(self, loaded: Any) -> bool:
        """Tell whether the last question is stored, with an answer."""
        question = self._chat.messages[self._last_question]["id"]
        ids = [message["id"] for message in loaded["messages"]]
        return question in ids and ids[-1] != question

    @property
    def _last_question(self) -> int:
        return max(index for index, message in enumerate(self._chat.messages) if message["role"] == "user")

    async def go_on(self, text: str) -> None:
        """Ask the next question, from a page that has loaded the chat."""
        await self._move(self.loaded["messages"])
        await self.ask(text)

    async def _move(self, messages: list[UIMessage] | None = None) -> None:
        """Go on at the process that has answered last, as behind a proxy; the page keeps its messages."""
        await asyncio.sleep(_LOOK)
        chat, self._chat = self._chat, Chat(self._last_url, id="c1", sdk="7", messages=messages or self._chat.messages)
        await chat.aclose()

    @property
    def shown(self) -> Sequence[Any]:
        return self._chat.messages

    async def close(self) -> None:
        await self._chat.aclose()
        await self._http.aclose()


def _questions_in(message: Any) -> list[str]:
    """Return the ids of the approvals that a message waits for."""
    return [part["approval"]["id"] for part in message["parts"] if part.get("state") == "approval-requested"]


# -- A story.


class _Stage:
    """What belongs to one story while it is told."""

    def __init__(self, story: Story, directory: Path, model: str, database: str, redis: str) -> None:
        self._story = story
        self.effects = directory / "effects"
        self._logs = [directory / f"log{number}" for number in range(story.processes)]
        environment = {
            "AFTER_CRASH": story.rule,
            "AGENT": story.agent,
            "DATABASE": database,
            "EFFECTS": str(self.effects),
            "LEASE": str(story.lease),
            "MODEL": model,
            "REDIS": redis,
        }
        named = {f"{PREFIX}{name}": value for name, value in environment.items()}
        app = directory / "app.py"
        app.write_text(_APP)
        self.places = [_Place(app, log, named) for log in self._logs]
        self.page = _Page(self.places, random.Random(story.seed))
        self.faults = 0

    async def play(self) -> None:
        """Ask, let everything happen, and ask again."""
        await self._until_all_answer()
        asking = asyncio.create_task(self.page.ask("Go"))
        try:
            async with asyncio.timeout(_PATIENCE):
                for fault in self._story.faults:
                    await self._happen(fault)
                await asking
        finally:
            asking.cancel()
        self.first = self.page.loaded
        self.shown, self.has_read_all = list(self.page.shown), self.page.has_read_all
        async with asyncio.timeout(_PATIENCE):
            await self.page.go_on("Next")

    async def _happen(self, fault: Fault) -> None:
        place = self.places[fault.process]
        if not fault.is_hasty:
            await place.until_it_answers()
        await asyncio.sleep(fault.seconds)
        self.faults += not self.page.is_done.is_set()
        match fault.kind:
            case "stop":
                await place.pause(self._story.lease * 1.5)
            case kind:
                await place.end(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
                place.start()

    async def _until_all_answer(self) -> None:
        for place in self.places:
            await place.until_it_answers()

    @property
    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in self._logs if log.exists())

    async def close(self) -> None:
        await self.page.close()
        for place in self.places:
            await asyncio.to_thread(place.close)


async def tell(story: Story, servers: Servers) -> Told:
    """Let a story happen, and return what is wrong with its end."""
    with TemporaryDirectory() as name, _ReadingModel() as model:
        directory = Path(name)
        database, redis = await servers.urls(story.store, directory)
        stage = _Stage(story, directory, model.openai_url, database, redis)
        try:
            await stage.play()
            problems = list(_problems(story, stage, model))
        except Exception as error:  # the logs of the processes tell more, and other stories go on
            problems = [f"it does not end: {error!r}; the page has {stage.page.shown}"]
        finally:
            await stage.close()
            await servers.drop(database)
        return Told(problems, stage.faults, logs=stage.logs)


def _problems(story: Story, stage: _Stage, model: ScriptedModel) -> Iterator[str]:
    """Yield what is wrong with the end of a story."""
    answer: UIMessage = stage.first["messages"][-1]
    outcome, text = stage.first["outcomes"].get(answer["id"]), text_of(answer)
    effects = stage.effects.read_text().splitlines() if stage.effects.exists() else []
    twice = [effect for effect, count in Counter(effects).items() if count > 1]
    if twice:
        yield f"happened twice: {twice}"
    if model.refusals:
        yield f"the model has refused a history: {model.refusals}"
    began = bool(effects) or story.agent != "steps"  # nobody knows that a function has steps before the first one
    if outcome not in story.outcomes and began:
        yield f"the answer is {outcome}: {text!r}"
    if not (text == _WHOLE if outcome == "finished" else _WHOLE.startswith(text)):
        yield f"the text is {text!r}"
    if stage.has_read_all and _content(stage.shown) != _content(stage.first["messages"]):
        yield f"the page shows {stage.shown}, stored is {stage.first['messages']}"
    if text_of(stage.page.loaded["messages"][-1]) != "More.":
        yield f"the chat does not go on: {stage.page.loaded}"
    if _TROUBLE in stage.logs:
        yield "a process has logged an exception"
    validate_messages(stage.page.loaded["messages"], sdk="7")


def _content(messages: Sequence[Any]) -> list[Any]:
    return [(message["id"], message["role"], list(map(_without_question, message["parts"]))) for message in messages]


def _without_question(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part without a question about a crash: the page keeps it beside what the call came to, the store not."""
    is_asked_about = is_question_of_recovery(part.get("approval") or {})
    return {key: value for key, value in part.items() if key != "approval" or not is_asked_about}
