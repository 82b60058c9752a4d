"""The command `usechat chats`: manages stored chats."""

import argparse
import asyncio
import functools
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from usechat.cli import options as read
from usechat.errors import CannotStart, RequestError, UnusableFile

if TYPE_CHECKING:
    from usechat.chats.sql import SqlChats

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Manage the chats that `usechat serve --chats` stores, of all owners. Files that an application keeps in a store of its
own (`SqlChats(blobs=...)`) are neither exported nor deleted.
"""
_EPILOG: Final = """\
exit code: 2 if the database cannot be used, or there is no such chat; the error says which.

examples:
  usechat chats list --chats chats.db
  usechat chats export --chats chats.db CHAT --format markdown
  usechat chats delete --chats chats.db --owner ada
  usechat chats migrate --chats postgresql+asyncpg://user@host/database
"""

_PAGE: Final = 100

_Command: TypeAlias = Callable[["SqlChats", Namespace], Awaitable[None]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands and their options."""
    parser.usage = "usechat chats COMMAND [options]"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("--chats", metavar="DATABASE", help="a file, or the URL of a database")
    commands = parser.add_subparsers(title="commands", prog="usechat chats", metavar="COMMAND", required=True)

    def add(name: str, text: str, command: _Command) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = commands.add_parser(
            name, usage=f"usechat chats {name} [options]", description=text, help=text
        )
        subparser.add_argument(
            "--chats",
            default=argparse.SUPPRESS,  # one before the command stays
            metavar="DATABASE",
            help="a file, or the URL of a database",
        )
        subparser.set_defaults(run=functools.partial(_run, subparser), command=command)
        return subparser

    listing = add("list", "list chats, the last changed ones first", _list)
    listing.add_argument("--owner", metavar="NAME", help="only chats of this owner")
    listing.add_argument("--query", default="", metavar="TEXT", help="only chats with this text in a title or message")
    add("show", "print a chat as Markdown", _show).add_argument("chat", metavar="CHAT", help="the id of the chat")
    exporting = add("export", "print a chat as JSON or Markdown", _export)
    exporting.add_argument("chat", metavar="CHAT", help="the id of the chat")
    exporting.add_argument("--format", choices=("json", "markdown"), default="json", help="(default: json)")
    importing = add("import", "store chats that were exported as JSON", _import)
    importing.add_argument("files", nargs="+", metavar="FILE", help="the output of `export`; - for standard input")
    importing.add_argument("--owner", metavar="NAME", help="make them chats of this owner")
    deleting = add("delete", "delete chats with their files", _delete)
    what = deleting.add_mutually_exclusive_group(required=True)
    what.add_argument("chat", nargs="?", metavar="CHAT", help="the id of a chat")
    what.add_argument("--owner", metavar="NAME", help="all chats of this owner")
    what.add_argument("--unchanged", type=read.days, metavar="TIME", help="chats unchanged for this long, such as 90d")
    add("migrate", "create or upgrade the tables", _migrate)


def _run(parser: argparse.ArgumentParser, options: Namespace) -> int:
    if options.chats is None:
        parser.error("the following arguments are required: --chats")
    return run(options)


def run(options: Namespace) -> int:
    """Run one of the commands; return the exit code."""
    from usechat.chats.sql import SqlChats

    async def work() -> None:
        store = SqlChats(options.chats)
        try:
            if options.command not in (_import, _migrate):
                _require_file(store)
            await options.command(store, options)
        except RequestError as error:
            raise CannotStart(str(error)) from None
        finally:
            await store.close()

    asyncio.run(work())
    return 0


def _require_file(store: "SqlChats") -> None:
    """Raise ``UnusableFile`` if there is no such SQLite file: opening it would make an empty one."""
    url = store.engine.url
    path = str(url.database)
    if url.get_backend_name() == "sqlite" and not path.startswith("file:") and not Path(path).exists():
        raise UnusableFile(f"there is no file {path}")


async def _list(store: "SqlChats", options: Namespace) -> None:
    cursor = None
    while True:
        page = await store.list_chats(options.owner, limit=_PAGE, cursor=cursor, query=options.query)
        for listed in page.chats:
            chat = listed.chat
            changed = datetime.fromtimestamp(chat.updated, UTC).isoformat(sep=" ", timespec="seconds")[:19]
            print(f"{changed}  {chat.id}  {chat.owner or '-'}  {chat.title}{'  (running)' if listed.running else ''}")
        if (cursor := page.next_cursor) is None:
            return


async def _show(store: "SqlChats", options: Namespace) -> None:
    print(await store.export_markdown(options.chat, owner=None), end="")


async def _export(store: "SqlChats", options: Namespace) -> None:
    from usechat.chats.documents import document_json

    if options.format == "markdown":
        await _show(store, options)
    else:
        print(document_json(await store.export(options.chat, owner=None)).decode())


async def _import(store: "SqlChats", options: Namespace) -> None:
    for name in options.files:
        try:
            content = sys.stdin.buffer.read() if name == "-" else await asyncio.to_thread(Path(name).read_bytes)
        except OSError as error:
            raise UnusableFile(f"{name} cannot be read: {error.strerror}") from None
        chat = await store.restore(content, owner=options.owner)
        print(f"imported {chat.id}")


async def _delete(store: "SqlChats", options: Namespace) -> None:
    if options.chat is not None:
        await store.delete(options.chat, owner=None)
        count = 1
    elif options.owner is not None:
        count = await store.delete_owner(options.owner)
    else:
        count = await store.delete_unchanged(options.unchanged)
    print(f"deleted {count} chat{'' if count == 1 else 's'}")


async def _migrate(store: "SqlChats", _options: Namespace) -> None:
    await store.migrate()
    print("the chat tables are up to date")
