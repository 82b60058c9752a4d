"""The command `usechat chats`, on a real file."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.chats.talking import ask, turn, user
from usechat.chats import SqlChats
from usechat.cli import main


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A file with two chats of two owners."""

    async def fill() -> None:
        store = SqlChats(str(tmp_path / "chats.db"))
        await turn(store, ask(user("u1", "What is it?")), "It is a test.")
        await turn(store, ask(user("u1", "Hello"), chat_id="c2"), "Hi.")
        await store.close()

    asyncio.run(fill())
    return str(tmp_path / "chats.db")


def test_chats_are_listed(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chats", "list", "--chats", database]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == ["c2  ada  Hello", "c1  ada  What is it?"]
    assert main(["chats", "list", "--chats", database, "--query", "a TEST", "--owner", "ada"]) == 0
    assert capsys.readouterr().out.endswith("c1  ada  What is it?\n")


def test_the_database_may_be_named_before_the_command(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chats", "--chats", database, "list", "--owner", "ada"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize("command", [["show"], ["export", "--format", "markdown"]])
def test_a_chat_is_shown(database: str, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main(["chats", *command, "--chats", database, "c1"]) == 0
    assert capsys.readouterr().out == "# What is it?\n\n## User\n\nWhat is it?\n\n## Assistant\n\nIt is a test.\n"


def test_what_is_exported_can_be_imported(database: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["chats", "export", "--chats", database, "c1"]) == 0
    exported = capsys.readouterr().out
    (tmp_path / "c1.json").write_text(exported, encoding="utf-8")
    other = str(tmp_path / "other.db")
    assert main(["chats", "import", "--chats", other, str(tmp_path / "c1.json"), "--owner", "bob"]) == 0
    assert main(["chats", "export", "--chats", other, "c1"]) == 0
    printed = capsys.readouterr().out.split("\n", 1)
    assert printed[0] == "imported c1"
    assert json.loads(printed[1]) == {**json.loads(exported), "owner": "bob"}


@pytest.mark.parametrize(
    ("what", "line", "left"),
    [
        (["c1"], "deleted 1 chat", 1),
        (["--owner", "ada"], "deleted 2 chats", 0),
        (["--owner", "bob"], "deleted 0 chats", 2),
        (["--unchanged", "1d"], "deleted 0 chats", 2),
    ],
)
def test_chats_are_deleted(
    database: str, capsys: pytest.CaptureFixture[str], what: list[str], line: str, left: int
) -> None:
    assert main(["chats", "delete", "--chats", database, *what]) == 0
    assert main(["chats", "list", "--chats", database]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], len(lines[1:])) == (line, left)


def test_tables_are_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["chats", "migrate", "--chats", str(tmp_path / "new.db")]) == 0
    assert capsys.readouterr().out == "the chat tables are up to date\n"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["show", "none"], "usechat: No such chat.\n"),
        (["delete", "none"], "usechat: No such chat.\n"),
        (["import", "/nowhere/at/all"], "usechat: /nowhere/at/all cannot be read: No such file or directory\n"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    database: str, capsys: pytest.CaptureFixture[str], command: list[str], error: str
) -> None:
    assert main(["chats", command[0], "--chats", database, *command[1:]]) == 2
    assert capsys.readouterr().err == error


@pytest.mark.parametrize("command", [["list"], ["show", "c1"], ["export", "c1"], ["delete", "--owner", "ada"]])
def test_a_file_that_is_not_there_is_not_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "chat.db"
    assert main(["chats", command[0], "--chats", str(path), *command[1:]]) == 2
    assert capsys.readouterr().err == f"usechat: there is no file {path}\n"
    assert not path.exists()
