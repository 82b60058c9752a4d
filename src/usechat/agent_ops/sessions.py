"""The command `usechat sessions`: manages the session directory, and prints what it holds."""

import argparse
import getpass
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from usechat.errors import UnusableFile
from usechat.targets import count

if TYPE_CHECKING:
    from usechat.agent_ops.access.directory import DirectoryChanges, ListedSession

__all__ = ["HELP", "add_arguments", "run"]

Lines: TypeAlias = AsyncIterator[str]

HELP: Final = "manage the sessions of --as agent-ops, their participants and tokens"
_DESCRIPTION: Final = """\
Manage the session directory that `usechat serve --as agent-ops` uses: the sessions, their owners and participants,
and the tokens. `usechat sessions migrate` creates the database and brings it up to date.
"""
_EPILOG: Final = """\
exit code: 2 if an argument is wrong or the database cannot be used; the error says which.

examples:
  usechat sessions migrate
  usechat sessions add s1 alice interactive
  usechat sessions enable s1
  usechat sessions grant s1 bob collaborator
  usechat sessions token bob --days 30
  usechat sessions import sessions.jsonl
  usechat sessions --audit-log audit.jsonl revoke s1 bob
"""
_HELP_OF_COMMANDS: Final = {
    "migrate": ((), "create the tables, or bring them up to date"),
    "add": (("session", "owner", "kind"), "add a session, disabled"),
    "remove": (("session",), "remove a session and its participants"),
    "enable": (("session",), "allow AI SDK pages to use a session"),
    "disable": (("session",), "forbid AI SDK pages to use a session"),
    "grant": (("session", "subject", "role"), "give a person a role; owner transfers the session"),
    "revoke": (("session", "subject"), "remove a person from a session"),
    "import": (("file",), "add the sessions of a file, all or none: one JSON object per line"),
    "list": ((), "print the sessions and their participants"),
    "token": (("subject",), "create a token and print it; it is not shown again"),
    "tokens": ((), "print the tokens by the first digits of their SHA-256"),
    "revoke-token": (("digest",), "revoke a token, named by the first digits of its SHA-256"),
}
_HELP_OF_ARGUMENTS: Final = {
    "session": "the id of a session, as in the route",
    "owner": "the name of its owner, as in tokens",
    "subject": "the name of a person, as in tokens",
    "file": 'a file with lines such as {"session": "s1", "owner": "alice", "kind": "interactive", "enabled": true,'
    ' "participants": {"bob": "viewer"}}, or - for the standard input; the last two keys may be missing',
    "digest": "8 or more of the digits that `usechat sessions tokens` prints",
}
_AUDIT_LOG: Final = "USECHAT_AUDIT_LOG"
_RECORDED: Final = ("session", "owner", "kind", "role", "file", "digest", "days")
_CHOICES: Final = {
    "kind": ("interactive", "orchestrator", "workflow"),
    "role": ("viewer", "collaborator", "owner"),
}


class _ImportedSession(msgspec.Struct, forbid_unknown_fields=True):
    session: str
    owner: str
    kind: Literal["interactive", "orchestrator", "workflow"]
    enabled: bool = False
    participants: dict[str, Literal["viewer", "collaborator"]] = {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command, and its own commands."""
    parser.usage = "usechat sessions [options] COMMAND …"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("--database", metavar="URL",
                        help="the database, such as sqlite:///sessions.db or postgresql://localhost/sessions (default:"
                        " USECHAT_SESSIONS, or else sqlite:///usechat-sessions.db)")  # fmt: skip
    parser.add_argument("--audit-log", metavar="FILE",
                        help="append a line of JSON for each change, with the user of this system and the change"
                        " (default: USECHAT_AUDIT_LOG, or else none)")  # fmt: skip
    actions = parser.add_subparsers(title="commands", prog="usechat sessions", metavar="COMMAND", required=True)
    for name, (arguments, sentence) in _HELP_OF_COMMANDS.items():
        places = " ".join(argument.upper() for argument in arguments)
        action = actions.add_parser(
            name, usage=f"usechat sessions {name} [options] {places}".rstrip(), help=sentence, description=sentence
        )
        for argument in arguments:
            choices = _CHOICES.get(argument)
            meaning = f"one of {', '.join(choices)}" if choices else _HELP_OF_ARGUMENTS[argument]
            action.add_argument(argument, metavar=argument.upper(), choices=choices, help=meaning)
        if name == "token":
            action.add_argument("--days", type=count, metavar="N", help="how long it is valid (default: no limit)")
        action.set_defaults(run=run, command=name)


def run(options: Namespace) -> int:
    """Run one command and return its exit code; what is wrong is a ``UsechatError``."""
    import asyncio

    asyncio.run(_run(options))
    return 0


async def _run(options: Namespace) -> None:
    from usechat.agent_ops.access.directory import DirectoryChanges, SessionDirectory, directory_url
    from usechat.agent_ops.audit import AuditLog

    path = options.audit_log or os.environ.get(_AUDIT_LOG)
    audit = AuditLog(path) if path else None
    directory = SessionDirectory(directory_url(options.database))

    def record() -> None:
        if audit is not None:
            for about in _about(options):
                audit.append(options.command, getpass.getuser(), **about)

    changes = DirectoryChanges(directory, record=record)
    try:
        async for line in _COMMANDS[options.command](changes, options):
            sys.stdout.write(f"{line}\n")
    finally:
        await directory.close()


def _about(options: Namespace) -> "Iterator[dict[str, Any]]":
    """Yield what a command was about, for the audit log: an import gives roles in each of its sessions."""
    about = {name: getattr(options, name, None) for name in _RECORDED}
    for session in getattr(options, "imported", ()):
        roles = {"owner": session.owner, "participants": session.participants}
        yield about | roles | {"session": session.session_id, "kind": session.kind, "enabled": session.enabled}
    if options.command != "import":
        yield about | {"person": getattr(options, "subject", None)}


async def _migrate(changes: "DirectoryChanges", _options: Namespace) -> Lines:
    await changes.migrate()
    yield "The tables are up to date."


async def _add(changes: "DirectoryChanges", options: Namespace) -> Lines:
    await changes.add(options.session, options.owner, options.kind)
    yield f"{options.session} is {options.owner}'s, and disabled; run: usechat sessions enable {options.session}"


async def _remove(changes: "DirectoryChanges", options: Namespace) -> Lines:
    await changes.remove(options.session)
    yield f"{options.session} is removed."


async def _enable(changes: "DirectoryChanges", options: Namespace) -> Lines:
    await changes.switch(options.session, enabled=True)
    yield f"AI SDK pages can use {options.session}."


async def _disable(changes: "DirectoryChanges", options: Namespace) -> Lines:
    await changes.switch(options.session, enabled=False)
    yield f"AI SDK pages cannot use {options.session}."


async def _grant(changes: "DirectoryChanges", options: Namespace) -> Lines:
    from usechat.agent_ops.access.roles import Role

    await changes.grant(options.session, options.subject, Role[options.role.upper()])
    yield f"{options.subject} is {options.role} of {options.session}."


async def _revoke(changes: "DirectoryChanges", options: Namespace) -> Lines:
    await changes.revoke(options.session, options.subject)
    yield f"{options.subject} is removed from {options.session}."


async def _import(changes: "DirectoryChanges", options: Namespace) -> Lines:
    content = sys.stdin.buffer.read() if options.file == "-" else _read_file(options.file)
    sessions = list(_read_sessions(content))
    options.imported = sessions
    await changes.import_sessions(sessions)
    yield f"{len(sessions)} sessions are added."


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror}") from None


def _read_sessions(content: bytes) -> "Iterator[ListedSession]":
    """Yield the sessions of a file, line by line."""
    from usechat.agent_ops.access.directory import ListedSession

    decoder = msgspec.json.Decoder(_ImportedSession)
    lines: dict[str, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = decoder.decode(line)
        except msgspec.DecodeError as error:  # of which its ValidationError is one
            raise UnusableFile(f"line {number} is not a session: {error}") from None
        first = lines.setdefault(entry.session, number)
        if first != number:
            raise UnusableFile(f"lines {first} and {number} name the same session: {entry.session}")
        yield ListedSession(entry.session, entry.kind, entry.owner, entry.enabled, dict(entry.participants))


async def _list(changes: "DirectoryChanges", _options: Namespace) -> Lines:
    for session in await changes.sessions():
        state = "on" if session.enabled else "off"
        yield f"{session.session_id}  {session.kind}  {state}  {session.owner} (owner)"
        for subject, role in session.participants.items():
            yield f"  {subject} ({role})"


async def _token(changes: "DirectoryChanges", options: Namespace) -> Lines:
    yield await changes.new_token(options.subject, days=options.days)


async def _tokens(changes: "DirectoryChanges", _options: Namespace) -> Lines:
    for token in await changes.tokens():
        expires = "without limit" if token.expires_at is None else f"until {_day(token.expires_at)}"
        revoked = "" if token.revoked_at is None else f", revoked {_day(token.revoked_at)}"
        yield f"{token.digest[:12]}  {token.subject}  made {_day(token.created_at)}, {expires}{revoked}"


async def _revoke_token(changes: "DirectoryChanges", options: Namespace) -> Lines:
    await changes.revoke_token(options.digest)
    yield f"The token {options.digest}… is revoked."


_COMMANDS: Final[dict[str, "Callable[[DirectoryChanges, Namespace], Lines]"]] = {
    "migrate": _migrate,
    "add": _add,
    "remove": _remove,
    "enable": _enable,
    "disable": _disable,
    "grant": _grant,
    "revoke": _revoke,
    "import": _import,
    "list": _list,
    "token": _token,
    "tokens": _tokens,
    "revoke-token": _revoke_token,
}


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
