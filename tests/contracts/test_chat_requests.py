"""Any requests in any order: memory and an SQLite file agree, nothing forged is stored, no answer is taken twice."""

import asyncio
import functools
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.chats.talking import REGENERATE, SUBMIT, answer, answers, ask, asks, call, text, user
from usechat.chats import Answered, Begun, Busy, ChatStore, Joined, MemoryChats, SqlChats
from usechat.errors import RequestError
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.validation import validate_messages

_Found = TypeVar("_Found")

FORGED: Final = "forged"
NOBODY: Final = 99
"""The place of a message that the chat does not have."""

places = strategies.integers(0, 12) | strategies.just(NOBODY)
words = strategies.sampled_from(["one", "two", "three"])
answers_given = strategies.sampled_from(
    [
        (text("plain", "done"),),
        (asks("t1", "p1"), asks("t2", "p2")),
        (call("t3"), text("and", "done")),
        (asks("t1", "p1"), call("t3")),
        (),
    ]
)
outcomes = strategies.sampled_from(["finished", "waiting", "failed", "stopped", "lost"])


def copy_of(message: UIMessage, approved: bool) -> UIMessage:
    """Return what a page makes of a message: every open call answered, and everything else made up."""
    parts: list[dict[str, Any]] = []
    for part in cast("list[dict[str, Any]]", message["parts"]):
        match part.get("state"):
            case "approval-requested":
                parts.append(answers(part["toolCallId"], part["approval"]["id"], approved) | {"input": FORGED})
            case "input-available":
                parts.append({**part, "state": "output-available", "output": "given", "input": FORGED})
            case _:
                parts.append(text(FORGED) if part["type"] == "text" else part)
    return cast("UIMessage", {**message, "parts": [*parts, text(FORGED)] if parts else parts})


class Side:
    """One store, and the ids by which it knows the messages of the chat."""

    def __init__(self, store: ChatStore) -> None:
        self.store = store
        self.tree: list[dict[str, Any]] = []
        self.start: Begun | None = None

    def id_at(self, place: int) -> str:
        return str(self.tree[place]["message"]["id"]) if place < len(self.tree) else f"nobody{place}"

    def place_of(self, message_id: str | None) -> int | None:
        ids = [row["message"]["id"] for row in self.tree]
        return ids.index(message_id) if message_id in ids else None

    async def look(self) -> dict[str, Any]:
        """Return everything that a page can see, with places instead of ids."""
        try:
            loaded = await self.store.load("c1", owner="ada", tree=True)
        except RequestError as error:
            self.tree = []
            return {"error": type(error).__name__}
        self.tree = loaded.tree
        validate_messages([row["message"] for row in loaded.tree]) if loaded.tree else None
        exported = await self.store.export("c1", owner="ada")
        return {
            "messages": [self.place_of(message["id"]) for message in loaded.messages],
            "head": self.place_of(loaded.head_id),
            "exported head": self.place_of(exported.head_id),
            "siblings": {
                self.place_of(key): [self.place_of(each) for each in ids] for key, ids in loaded.siblings.items()
            },
            "outcomes": {self.place_of(key): outcome for key, outcome in loaded.outcomes.items()},
            "running": loaded.running is not None,
            "version": loaded.version,
            "tree": [
                (self.place_of(row["parentId"]), row["message"]["role"], row["message"]["parts"]) for row in loaded.tree
            ],
            "exported": [listed.outcome for listed in exported.messages],
        }


@functools.cache
def empty_database() -> bytes:
    """Return a file with the tables: migrations are slow, so they run once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chats.db"

        async def prepare() -> None:
            store = SqlChats(str(path))
            await store.open()
            await store.close()

        asyncio.run(prepare())
        return path.read_bytes()


class StoredChat(RuleBasedStateMachine):
    """A person with many tabs, and a server; each request is sent to both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "chats.db"
        path.write_bytes(empty_database())
        self.sql = SqlChats(str(path))
        self.sides = [Side(MemoryChats()), Side(self.sql)]
        self.call_states: dict[tuple[int, str], str] = {}
        self.runs = 0

    def teardown(self) -> None:
        self.run(self.sql.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, _Found]) -> _Found:
        return self.runner.run(work)

    def both(self, results: Sequence[Any]) -> Any:
        assert results[0] == results[1], results
        return results[0]

    @property
    def is_running(self) -> bool:
        return self.sides[0].start is not None

    def message(self, side: Side, place: int, word: str, kind: str, approved: bool) -> list[UIMessage]:
        message = side.tree[place]["message"] if place < len(side.tree) else None
        match kind:
            case "none":
                return []
            case "new":
                return [user(f"u{place}-{word}", word)]
            case "same" if message is not None and message["role"] == "user":
                return [message]
            case "edit" if message is not None and message["role"] == "user":
                return [user(message["id"], word)]
            case "copy" if message is not None and message["role"] == "assistant":
                return [copy_of(message, approved)]
        return [answer(f"unknown{place}", FORGED), user(f"u{place}-{word}", word)]

    @rule(
        place=places,
        word=words,
        kind=strategies.sampled_from(["none", "new", "same", "edit", "copy", "history"]),
        trigger=strategies.sampled_from([SUBMIT, REGENERATE]),
        named=strategies.none() | places,
        parent=strategies.none() | places,
        has_parent=strategies.booleans(),
        approved=strategies.booleans(),
        owner=strategies.sampled_from(["ada", "ada", "ada", "eve"]),
    )
    def request(
        self,
        place: int,
        word: str,
        kind: str,
        trigger: Any,
        named: int | None,
        parent: int | None,
        has_parent: bool,
        approved: bool,
        owner: str,
    ) -> None:
        self.runs += 1
        owner = owner if self.sides[0].tree else "ada"  # who asks first owns the chat
        results = []
        for side in self.sides:
            messages = self.message(side, place, word, kind, approved)
            if kind == "history":
                messages = [copy_of(row["message"], approved) for row in side.tree if row["message"]["role"] != "user"]
                messages += [user(f"u{place}-{word}", word)]
            body: dict[str, Any] = {"parentId": None if parent is None else side.id_at(parent)} if has_parent else {}
            message_id = None if named is None else side.id_at(named)
            chat_request = ask(*messages, trigger=trigger, message_id=message_id, **body)
            results.append(self.run(self.begin(side, chat_request, owner)))
        self.both([kind for kind, _ in results])
        starts = [each for _, each in results]
        if isinstance(starts[0], Begun):
            assert owner == "ada"
            for side, each in zip(self.sides, starts, strict=True):
                side.start = each
            self.take(starts[0])

    async def begin(self, side: Side, chat_request: ChatRequest, owner: str) -> tuple[Any, Any]:
        try:
            start = await side.store.begin(chat_request, owner=owner, run_id=f"r{self.runs}")
        except RequestError as error:
            return (type(error).__name__, owner), None
        match start:
            case Begun(claim=claim, request=request):
                assert FORGED not in str(request.messages)
                earlier = [(message["role"], message["parts"]) for message in request.messages]
                summary = (claim.key, claim.parent, claim.given, claim.answerable, earlier, request.message_id is None)
                return ("begun", *summary), start
            case Joined(has_message=has_message):
                return ("joined", has_message), start
            case Busy(is_edit=is_edit):
                return ("busy", is_edit), start
            case Answered(message=message):
                return ("answered", message["parts"]), start

    def take(self, start: Begun) -> None:
        """Note the answers that a run was given: nobody may be given them again, unless that run ended badly."""
        for call_id in start.claim.given:
            assert self.call_states.get((start.claim.key, call_id)) in (None, "badly"), (call_id, self.call_states)
            self.call_states[start.claim.key, call_id] = "running"

    @precondition(lambda self: self.is_running)
    @rule(parts=answers_given, outcome=outcomes, saves=strategies.booleans(), ends=strategies.booleans())
    def answer(self, parts: Any, outcome: Any, saves: bool, ends: bool) -> None:
        claim = None
        for side in self.sides:
            assert side.start is not None
            claim = side.start.claim
            earlier = [] if side.start.continues is None else side.start.continues["parts"]
            message = answer(claim.message_id, *parts)
            message["parts"] = [*earlier, *message["parts"]]
            if saves or not ends:
                self.run(side.store.save(claim, message))
            if ends:
                self.run(side.store.finish(claim, message, outcome))
                side.start = None
        assert claim is not None
        if ends:
            state = "badly" if outcome in ("failed", "stopped", "lost") else "well"
            self.call_states.update({(claim.key, call_id): state for call_id in claim.given})

    @rule(place=places, title=strategies.none() | words)
    def change(self, place: int, title: str | None) -> None:
        async def change(side: Side) -> Any:
            try:
                await side.store.change("c1", owner="ada", head_id=side.id_at(place), title=title)
            except RequestError as error:
                return type(error).__name__
            return None

        self.both([self.run(change(side)) for side in self.sides])

    @precondition(lambda self: bool(self.sides[0].tree))
    @rule()
    def delete(self) -> None:
        for side in self.sides:
            self.run(side.store.delete("c1", owner="ada"))
            side.start = None
        self.call_states.clear()

    @precondition(lambda self: bool(self.sides[0].tree) and not self.is_running)
    @rule()
    def move(self) -> None:
        """Export, delete and restore the chat: nothing that a page sees is lost, but the version begins again."""
        for side in self.sides:
            before = self.run(side.look())
            document = self.run(side.store.export("c1", owner="ada"))
            self.run(side.store.delete("c1", owner="ada"))
            self.run(side.store.restore(document))
            assert self.run(side.look()) | {"version": before["version"]} == before
        self.call_states = dict.fromkeys(self.call_states, "well")

    @invariant()
    def both_show_the_same(self) -> None:
        view = self.both([self.run(side.look()) for side in self.sides])
        assert FORGED not in str(view)
        if "error" not in view:
            assert view["running"] <= self.is_running
            assert view["exported head"] == view["head"]


TestStoredChat = StoredChat.TestCase
TestStoredChat.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
