"""How many statements and transactions a turn takes: they are what a stored turn costs."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.chats.talking import answer, ask, begin, call, turn, user
from usechat.chats import SqlChats

pytestmark = pytest.mark.stores


class Statements:
    """Counts the statements of a store, without BEGIN and COMMIT, and its transactions."""

    def __init__(self, store: SqlChats) -> None:
        self.statements: list[str] = []
        self.transactions = 0
        event.listen(store.engine.sync_engine, "before_cursor_execute", self._note)
        event.listen(store.engine.sync_engine, "commit", self._note_commit)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            self.statements.append(statement)

    def _note_commit(self, _connection: Any) -> None:
        self.transactions += 1

    def take(self) -> tuple[int, int]:
        """Return how many transactions and statements there were since the last time."""
        counts = (self.transactions, len(self.statements))
        self.transactions, self.statements = 0, []
        return counts


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlChats]:
    chats = SqlChats(str(tmp_path / "chats.db"))
    await turn(chats, ask(user("u1", "Q1")), "A1")
    yield chats
    await chats.close()


async def test_a_text_answer_in_a_chat_that_is_there_takes_two_transactions_and_eight_statements(
    store: SqlChats,
) -> None:
    counted = Statements(store)
    start = await begin(store, ask(user("u2", "Q2")))
    assert counted.take() == (1, 5)
    await store.finish(start.claim, answer(start.claim.message_id, "A2"), "finished")
    assert counted.take() == (1, 3)


async def test_a_call_and_its_result_take_one_transaction_each(store: SqlChats) -> None:
    start = await begin(store, ask(user("u2", "Q2")))
    message_id = start.claim.message_id
    await store.save(start.claim, answer(message_id, "Let me see, and then tell you all about it.", call("t1")))
    counted = Statements(store)
    result = call("t1", "output-available", output="sunny")
    await store.save(start.claim, answer(message_id, "Let me see, and then tell you all about it.", result))
    assert counted.take() == (1, 3)


async def test_a_chat_is_opened_with_one_transaction_and_three_statements(store: SqlChats) -> None:
    counted = Statements(store)
    await store.load("c1", owner="ada")
    assert counted.take() == (1, 3)
