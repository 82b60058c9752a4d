"""The command line: `usechat serve …`, `usechat check …`.

A command is a module with two names: ``HELP``, its line in `usechat --help`, and ``add_arguments(parser)``, which also
sets ``run``, a function from the parsed options to the exit code. Our own commands are in this package; packages bring
further ones through the entry-point group ``usechat.commands``. A module is imported when its command is used.
"""

import argparse
import functools
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NoReturn

from usechat import __version__
from usechat.cli.parser import CommandParser
from usechat.errors import CannotStart, UsechatError

__all__ = ["main"]

_COMMANDS: Final = {
    "new": "write a project to start from: agent, tests, page and container",
    "serve": "serve an agent to a useChat page",
    "worker": "run agents for web processes that were started with --agents external",
    "check": "check a stream as the real clients read it",
    "chat": "talk to an endpoint or an agent, in a terminal or in a pipe",
    "record": "record the requests of a page and the answers of an endpoint",
    "diff": "compare two recordings",
    "types": "write TypeScript types of an agent's tools, data parts and metadata",
    "chats": "list, show, export, import and delete stored chats",
    "docs": "search the documentation, offline",
}
"""The commands of this package, with their help, so that `usechat --help` need not import them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``arguments`` are those of the process unless they are named.

    >>> main(["check", "missing.sse"])
    2
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character shows its number
        argv = sys.argv[1:] if arguments is None else arguments
        options = _make_parser(argv).parse_args(argv)
        code = int(options.run(options))
        sys.stdout.flush()
    except UsechatError as error:
        print(f"usechat: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough (`usechat … | head`); Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def _make_parser(arguments: Sequence[str]) -> CommandParser:
    """Return the parser of all commands; only those that the arguments may name get their options."""
    parser = CommandParser("usechat", "usechat [-h] [--version] COMMAND …", "The Python side of useChat.")
    parser.add_argument(
        "--version", action="version", version=f"usechat {__version__}", help="print the version and exit"
    )
    commands = parser.add_subparsers(
        title="commands", prog="usechat", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for name, text in _COMMANDS.items():
        command = _add_command(commands, name, text)
        if name in arguments:
            import_module(f"usechat.cli.{name}").add_arguments(command)
    if not _COMMANDS.keys() & set(arguments):
        for entry_point in sorted(entry_points(group="usechat.commands"), key=lambda each: each.name):
            _add_installed_command(commands, entry_point)
    return parser


def _add_command(commands: Any, name: str, text: str) -> CommandParser:
    command: CommandParser = commands.add_parser(name, usage=f"usechat {name} [options]", help=text)
    return command


def _add_installed_command(commands: Any, entry_point: EntryPoint) -> None:
    try:
        module = entry_point.load()
        module.add_arguments(_add_command(commands, entry_point.name, module.HELP))
    except Exception as error:  # importing a package of others may raise anything; our own commands continue
        text = f"cannot be loaded: {type(error).__name__}: {error}"
        _add_command(commands, entry_point.name, text).set_defaults(
            run=functools.partial(_refuse, f"{entry_point.name} {text}")
        )


def _refuse(text: str, _options: argparse.Namespace) -> NoReturn:
    raise CannotStart(text)
