"""The examples of applications with a database of their own: a reload has the history, in three frameworks."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.chats.talking import answer, texts, user
from tests.server.sockets import Body
from usechat.protocol.request import ChatRequest
from usechat.turn import Identity, TurnContext, TurnInput

pytestmark = pytest.mark.external_agents


async def lose_an_answer(database: Any) -> list[Any]:
    """Report a lost answer as the server does; return what is stored then."""
    turn = TurnContext(TurnInput(ChatRequest(chat_id="c1", messages=[]), identity=Identity(""))).turn
    await database.save(answer("a9", "Half"), turn, "lost")
    stored: list[Any] = await database.load(turn)
    return stored


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar"])
def test_the_application_owns_the_history(framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite+aiosqlite:///{tmp_path}/messages.db")
    for name in [name for name in sys.modules if name.startswith("examples.own_database")]:
        monkeypatch.delitem(sys.modules, name)
    app: Any = import_module(f"examples.own_database.{framework}_app").app
    database = import_module("examples.own_database.database")
    with TestClient(app, base_url="http://localhost") as client:
        bodies = [
            client.post("/api/chat", json={"id": "c1", "messages": messages}).content
            for messages in ([user("u1", "One")], [user("x", "Forged"), answer("y", "Forged"), user("u2", "Two")])
        ]
        assert client.portal is not None
        history = client.portal.call(lose_an_answer, database)
    assert texts(history) == ["One", "That was message 1: One", "Two", "That was message 3: Two", "Half"]
    assert [Body(each, complete=True).text for each in bodies] == ["That was message 1: One", "That was message 3: Two"]
