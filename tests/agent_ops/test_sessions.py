"""`usechat sessions`: what it does to a directory, what it prints, and what it refuses."""

import asyncio
import json
import re
from pathlib import Path
from shutil import rmtree

import pytest

from tests.agent_ops.directories import directory_at
from usechat.agent_ops.access.roles import Membership, Role, may_prompt
from usechat.cli import main
from usechat.turn import Identity

URL = "sqlite:///usechat-sessions.db"


@pytest.fixture(autouse=True)
def _directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("USECHAT_SESSIONS", raising=False)


@pytest.fixture
def sessions(capsys: pytest.CaptureFixture[str]) -> "Sessions":
    run = Sessions(capsys)
    run("migrate")
    return run


class Sessions:
    """Runs a command and returns what it printed; of one that fails, its complaint."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        code = main(["sessions", *arguments])
        printed = self._capsys.readouterr()
        assert (code == 0) == (printed.err == "")
        return printed.out + printed.err


def standing(subject: str, session_id: str) -> Membership | None:
    async def ask() -> Membership | None:
        async with directory_at(URL) as directory:
            return await directory.role_of(Identity(subject), session_id)

    return asyncio.run(ask())


def identity(token: str) -> Identity | None:
    async def ask() -> Identity | None:
        async with directory_at(URL) as directory:
            return await directory.identify(token)

    return asyncio.run(ask())


def test_a_session_from_its_beginning_to_its_end(sessions: Sessions) -> None:
    assert sessions("add", "s1", "olivia", "interactive") == (
        "s1 is olivia's, and disabled; run: usechat sessions enable s1\n"
    )
    assert not may_prompt(standing("olivia", "s1"))
    assert sessions("enable", "s1") == "AI SDK pages can use s1.\n"
    assert standing("olivia", "s1") == Membership(Role.OWNER)
    assert sessions("grant", "s1", "carl", "collaborator") == "carl is collaborator of s1.\n"
    assert standing("carl", "s1") == Membership(Role.COLLABORATOR)
    assert sessions("revoke", "s1", "carl") == "carl is removed from s1.\n"
    assert standing("carl", "s1") is None
    assert sessions("grant", "s1", "carl", "owner") == "carl is owner of s1.\n"
    assert standing("carl", "s1") == Membership(Role.OWNER)
    assert sessions("disable", "s1") == "AI SDK pages cannot use s1.\n"
    assert standing("carl", "s1") == Membership(Role.OWNER, enabled=False)
    assert sessions("remove", "s1") == "s1 is removed.\n"
    assert sessions("list") == ""


def test_the_list(sessions: Sessions) -> None:
    for arguments in (
        "add s2 olivia workflow",
        "add s1 olivia interactive",
        "enable s1",
        "grant s1 vera viewer",
        "grant s1 carl collaborator",
    ):
        sessions(*arguments.split())
    assert sessions("list") == (
        "s1  interactive  on  olivia (owner)\n"
        "  carl (collaborator)\n"
        "  vera (viewer)\n"
        "s2  workflow  off  olivia (owner)\n"
    )


def test_tokens_are_made_listed_and_revoked(sessions: Sessions) -> None:
    token = sessions("token", "carl").strip()
    brief = sessions("token", "carl", "--days", "30").strip()
    assert identity(token) == Identity("carl", token=token)
    listed = sessions("tokens")
    today, later = r"made \d{4}-\d\d-\d\d", r"until \d{4}-\d\d-\d\d"
    lines = sorted(listed.splitlines(), key=lambda line: "until" in line)
    assert re.fullmatch(rf"[0-9a-f]{{12}}  carl  {today}, without limit", lines[0])
    assert re.fullmatch(rf"[0-9a-f]{{12}}  carl  {today}, {later}", lines[1])
    assert token not in listed
    digest = lines[0].split()[0]
    assert sessions("revoke-token", digest) == f"The token {digest}… is revoked.\n"
    assert identity(token) is None
    assert identity(brief) == Identity("carl", token=brief)
    assert ", revoked " in sessions("tokens")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("enable nothing", "usechat: no session nothing is in the directory\n"),
        ("revoke-token 0000", "usechat: 0000 are not 8 or more digits of a SHA-256\n"),
        ("--database nonsense list", "usechat: a directory is sqlite:///FILE or postgresql://USER@HOST/DATABASE\n"),
        (
            "--database sqlite:///another.db list",
            "usechat: the directory's tables are missing or old; run: usechat sessions migrate\n",
        ),
    ],
)
def test_what_does_not_go_is_one_sentence(sessions: Sessions, arguments: str, complaint: str) -> None:
    assert sessions(*arguments.split()) == complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "usage: usechat sessions [options] COMMAND …"),
        ("grant s1 carl king", "usechat sessions grant: argument ROLE: invalid choice: 'king'"),
        ("add s1 olivia unheard-of", "usechat sessions add: argument KIND: invalid choice: 'unheard-of'"),
        ("token carl --days 0", "usechat sessions token: argument --days: '0' is not a whole number above 0;"),
    ],
)
def test_a_command_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], arguments: str, complaint: str) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["sessions", *arguments.split()])
    assert capsys.readouterr().err.startswith(complaint)


def test_the_environment_names_the_database(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USECHAT_SESSIONS", "sqlite:///elsewhere.db")
    assert sessions("migrate") == "The tables are up to date.\n"
    assert sessions("add", "s1", "olivia", "interactive").startswith("s1 is olivia's")
    monkeypatch.delenv("USECHAT_SESSIONS")
    assert sessions("list") == ""


# Many sessions at once, and who changed what

LINES = """\
{"session": "s1", "owner": "alice", "kind": "interactive", "enabled": true, "participants": {"bob": "collaborator"}}

{"session": "s2", "owner": "carl", "kind": "workflow"}
"""


def test_sessions_are_imported_from_a_file_with_their_participants(sessions: Sessions) -> None:
    Path("sessions.jsonl").write_text(LINES)
    assert sessions("import", "sessions.jsonl") == "2 sessions are added.\n"
    assert sessions("list").splitlines() == [
        "s1  interactive  on  alice (owner)",
        "  bob (collaborator)",
        "s2  workflow  off  carl (owner)",
    ]
    assert standing("bob", "s1") == Membership(Role.COLLABORATOR, "interactive", True)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "line 4 is not a session: "),
        ('{"session": "s3", "owner": "alice"}', "line 4 is not a session: Object missing required field `kind`"),
        ('{"session": "s3", "owner": "alice", "kind": "odd"}', "line 4 is not a session: Invalid enum value 'odd'"),
        (
            '{"session": "s3", "owner": "a", "kind": "workflow", "x": 1}',
            "line 4 is not a session: Object contains unknown",
        ),
        ('{"session": "s 3", "owner": "a", "kind": "workflow"}', "'s 3' cannot be the id of a session"),
        ('{"session": "s1", "owner": "a", "kind": "workflow"}', "lines 1 and 4 name the same session: s1"),
        (
            '{"session": "s3", "owner": "a", "kind": "workflow", "participants": {"a": "viewer"}}',
            "a owns the session s3 and has no second role",
        ),
    ],
)
def test_a_file_with_one_bad_line_adds_nothing(sessions: Sessions, line: str, error: str) -> None:
    Path("sessions.jsonl").write_text(f"{LINES}{line}\n")
    assert error in sessions("import", "sessions.jsonl")
    assert sessions("list") == ""


def test_a_file_with_a_session_of_the_directory_adds_nothing(sessions: Sessions) -> None:
    sessions("add", "s2", "olivia", "interactive")
    Path("sessions.jsonl").write_text(LINES)
    assert sessions("import", "sessions.jsonl") == "usechat: the session s2 is in the directory already\n"
    assert sessions("list") == "s2  interactive  off  olivia (owner)\n"


def test_a_file_that_is_not_there_is_named(sessions: Sessions) -> None:
    assert sessions("import", "nothing.jsonl") == "usechat: nothing.jsonl cannot be read: No such file or directory\n"


def test_changes_are_recorded_with_who_made_them(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "operator")
    sessions("--audit-log", "audit.jsonl", "add", "s1", "alice", "interactive")
    monkeypatch.setenv("USECHAT_AUDIT_LOG", "audit.jsonl")
    sessions("grant", "s1", "bob", "viewer")
    sessions("list")
    sessions("revoke", "s1", "bob")
    sessions("revoke", "s1", "bob")  # it fails: there is nothing to record
    sessions("token", "bob", "--days", "3")
    entries = [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]
    assert [{key: value for key, value in entry.items() if key != "time"} for entry in entries] == [
        {"event": "add", "subject": "operator", "session": "s1", "owner": "alice", "kind": "interactive"},
        {"event": "grant", "subject": "operator", "session": "s1", "role": "viewer", "person": "bob"},
        {"event": "revoke", "subject": "operator", "session": "s1", "person": "bob"},
        {"event": "token", "subject": "operator", "days": 3, "person": "bob"},
    ]


def test_an_import_is_recorded_with_the_roles_that_it_gives(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "operator")
    Path("sessions.jsonl").write_text(LINES)
    sessions("--audit-log", "audit.jsonl", "import", "sessions.jsonl")
    entries = [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]
    done = {"event": "import", "subject": "operator", "file": "sessions.jsonl"}
    first = {"session": "s1", "owner": "alice", "kind": "interactive", "enabled": True}
    second = {"session": "s2", "owner": "carl", "kind": "workflow", "enabled": False}
    assert [{key: value for key, value in entry.items() if key != "time"} for entry in entries] == [
        {**done, **first, "participants": {"bob": "collaborator"}},
        {**done, **second, "participants": {}},
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        "add s3 alice interactive",
        "remove s1",
        "disable s1",
        "enable s2",
        "grant s2 bob viewer",
        "grant s1 bob owner",
        "revoke s1 bob",
        "import more.jsonl",
        "token bob",
        "revoke-token DIGEST",
    ],
)
def test_a_change_whose_line_cannot_be_written_is_not_made(
    sessions: Sessions, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("sessions.jsonl").write_text(LINES)
    Path("more.jsonl").write_text('{"session": "s3", "owner": "alice", "kind": "workflow"}')
    sessions("import", "sessions.jsonl")
    sessions("token", "bob")
    before = (sessions("list"), sessions("tokens"))
    lose_the_log_after_it_was_opened(monkeypatch)
    output = sessions("--audit-log", "logs/audit.jsonl", *arguments.replace("DIGEST", before[1][:12]).split())
    assert output == "usechat: the audit log logs/audit.jsonl cannot be written: No such file or directory\n"
    assert (sessions("list"), sessions("tokens")) == before


def test_tables_are_not_made_if_the_line_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_the_log_after_it_was_opened(monkeypatch)
    sessions = Sessions(capsys)
    assert "cannot be written" in sessions("--audit-log", "logs/audit.jsonl", "migrate")
    assert "the directory's tables are missing or old" in sessions("list")
    assert sessions("migrate") == "The tables are up to date.\n"  # none is there already


def lose_the_log_after_it_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("logs").mkdir()

    def lose() -> str:
        rmtree("logs")
        return "operator"

    monkeypatch.setattr("getpass.getuser", lose)


def test_a_change_that_cannot_be_recorded_is_not_made(sessions: Sessions) -> None:
    output = sessions("--audit-log", "missing/audit.jsonl", "add", "s1", "alice", "interactive")
    assert "cannot be written" in output
    assert sessions("list") == ""
