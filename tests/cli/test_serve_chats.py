"""`usechat serve --chats`: what was said is there after a restart, and without it what the page shows."""

import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.talking import answer, user
from tests.postgres_server import postgres_server
from tests.server.process import PATIENCE, ServeProcess, eventually, serve_process
from tests.server.sockets import Body
from usechat.chats import MemoryChats, SqlChats
from usechat.cli import main
from usechat.cli.plan import Plan, make_app

AGENT = """
async def agent(turn):
    yield f"{len(turn.messages)}: {turn.text}"
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "counting.py").write_text(AGENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("counting", None)


def say(served: ServeProcess, *messages: Any) -> str:
    body = {"id": "c1", "messages": list(messages)}
    response = httpx2.post(f"{served.url}/api/chat", json=body, timeout=PATIENCE)
    return Body(response.content, complete=True).text


def get(served: ServeProcess, path: str) -> Any:
    return httpx2.get(f"{served.url}{path}", timeout=PATIENCE).json()


def test_stored_chats_are_there_after_the_server_was_killed(tmp_path: Path) -> None:
    with serve_process(tmp_path, "counting.py:agent", "--chats", "chats.db", "--keep", "90d") as served:
        assert say(served, user("u1", "One")) == "1: One"
        served.process.kill()
    with serve_process(tmp_path, "counting.py:agent", "--chats", "chats.db") as served:
        assert [chat["id"] for chat in get(served, "/api/chats")["chats"]] == ["c1"], "loopback has a list"
        assert len(get(served, "/api/chat/c1/messages")["messages"]) == 2
        assert say(served, user("x", "Forged"), answer("y", "Forged"), user("u2", "Two")) == "3: Two"


ASKING = """
from usechat.parts import ApprovalRequest, ToolCall, ToolResult


async def agent(turn):
    for approval in turn.approvals:
        yield ToolResult(approval.tool_call_id, "deleted")
        yield "VERSION: deleted"
        return
    if turn.text == "delete":
        yield ToolCall("t1", "delete", {"path": "notes"})
        yield ApprovalRequest("p1", "t1")
    else:
        yield "VERSION"
"""


@pytest.mark.parametrize("options", [["--chats", "chats.db"], []], ids=["stored", "in memory"])
def test_an_open_approval_is_taken_after_a_reload(tmp_path: Path, options: list[str]) -> None:
    file = tmp_path / "asking.py"
    file.write_text(ASKING.replace("VERSION", "old"), encoding="utf-8")
    with serve_process(tmp_path, "asking.py:agent", "--reload", "--drain", "0.2", *options) as served:
        say(served, user("u1", "delete"))
        question, waiting = get(served, "/api/chat/c1/messages")["messages"]
        file.write_text(ASKING.replace("VERSION", "the new version"), encoding="utf-8")
        eventually(lambda: version(served) == "the new version", "the change is served")
        *earlier, call = waiting["parts"]
        decision = {**call, "state": "approval-responded", "approval": {**call["approval"], "approved": True}}
        body = {
            "id": "c1",
            "messages": [question, {**waiting, "parts": [*earlier, decision]}],
            "messageId": waiting["id"],
        }
        response = httpx2.post(f"{served.url}/api/chat", json=body, timeout=PATIENCE)
        assert Body(response.content, complete=True).text == "the new version: deleted"


def version(served: ServeProcess) -> str:
    """Ask in a new chat what the agent is; nothing while it is being replaced."""
    try:
        response = httpx2.post(f"{served.url}/api/chat", json={"messages": [user("u1", "version")]}, timeout=PATIENCE)
    except httpx2.TransportError:
        return ""
    return Body(response.content, complete=True).text


def test_without_a_database_a_restart_forgets_nothing_that_the_page_shows(tmp_path: Path) -> None:
    with serve_process(tmp_path, "counting.py:agent") as served:
        assert say(served, user("u1", "One")) == "1: One"
        assert say(served, user("u2", "Two")) == "3: Two", "the server remembers what the page did not send"
    with serve_process(tmp_path, "counting.py:agent") as served:
        assert say(served, user("u1", "One"), answer("a1", "1: One"), user("u2", "Two")) == "3: Two"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, MemoryChats),
        ({"chats": "chats.db"}, SqlChats),
        ({"remembers": False}, type(None)),
        ({"agents": "external", "redis": "redis://localhost:1"}, type(None)),
    ],
)
def test_where_chats_are_kept(options: dict[str, Any], kind: type) -> None:
    [app] = make_app(Plan(target="counting.py:agent", **options)).chats
    assert type(app.stored_chats) is kind


def leave(_factory: str, sockets: list[socket.socket], _options: object) -> None:
    """Serve nobody."""
    for each in sockets:
        each.close()


@pytest.mark.parametrize(
    "option",
    [
        "--workers 2 --redis redis://localhost:1",
        "--redis redis://localhost:1",
        "--redis redis://localhost:1 --agents external",
    ],
)
def test_processes_that_share_chats_do_not_keep_them_in_memory(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr("usechat.cli.plan.hand_to_workers", lambda plan, _served: plans.append(plan))
    monkeypatch.setattr("usechat.server.uvicorn.run", leave)
    assert main(["serve", "counting.py:agent", "--port", "0", *option.split()]) == 0
    assert [plan.remembers for plan in plans] == [False]


@pytest.mark.parametrize("command", [["serve", "counting.py:agent"], ["chats", "migrate"]])
def test_a_database_that_cannot_be_used_is_one_sentence(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--chats", "nowhere/at/all/chats.db"]) == 2
    folder = Path("nowhere/at/all").absolute()
    assert capsys.readouterr().err == (
        f"usechat: the chat database nowhere/at/all/chats.db cannot be used: there is no folder {folder}; create it"
        " first\n"
    )


@pytest.mark.parametrize("text", ["90", "d", "0d", "x", "-1d"])
def test_a_time_that_is_none_is_one_sentence(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "counting.py:agent", f"--keep={text}"])
    assert raised.value.code == 2
    assert f"{text!r} is not a time such as 90d, 12h or 30m" in capsys.readouterr().err


def test_a_postgresql_is_served_once_its_tables_were_made_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with postgres_server() as url:
        assert main(["serve", "counting.py:agent", "--chats", url, "--port", "0"]) == 2
        text, _, command = capsys.readouterr().err.partition("run: ")
        assert text == "usechat: the chat tables are missing or old; "
        program, *arguments = shlex.split(command)
        assert (program, main(arguments)) == ("usechat", 0)
        with serve_process(tmp_path, "counting.py:agent", "--chats", url) as served:
            assert say(served, user("u1", "One")) == "1: One"
            assert httpx2.get(f"{served.url}/readyz", timeout=PATIENCE).text == "ok"


WAITING = """
import asyncio


async def agent(turn):
    yield "word "
    await asyncio.Event().wait()
"""


def test_workers_share_the_runs_of_a_postgresql_without_redis(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING, encoding="utf-8")
    with postgres_server() as url:
        assert main(["chats", "migrate", "--chats", url]) == 0
        with serve_process(tmp_path, "waiting.py:agent", "--chats", url, "--workers", "2", "--drain", "0.5") as served:
            body = {"id": "c1", "messages": [user("u1", "One")]}
            with httpx2.stream("POST", f"{served.url}/api/chat", json=body, timeout=PATIENCE) as response:
                pieces = response.iter_bytes()
                while b"word" not in next(pieces):
                    pass
                states = {get(served, "/api/chat/c1")["state"] for _ in range(8)}
                assert states == {"running"}, "every worker knows of the run"
                assert httpx2.post(f"{served.url}/api/chat/c1/stop", timeout=PATIENCE).status_code == 204
                assert b'"type":"abort"' in b"".join(pieces)
            served.process.terminate()
            assert served.process.wait(PATIENCE) == 0


def test_workers_that_share_a_file_of_chats_need_redis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "counting.py:agent", "--chats", "chats.db", "--workers", "2", "--port", "0"]) == 2
    assert "give --redis URL, or store the chats in a PostgreSQL" in capsys.readouterr().err
