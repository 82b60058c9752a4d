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
from usechat.errors import CannotStart, UsechatError

__all__ = ["CommandParser", "main"]

_COMMANDS: Final = {
    "serve": "serve an agent to a useChat page",
    "worker": "run agents for web processes that were started with --agents external",
    "check": "check a stream as the real clients read it",
    "chat": "talk to an endpoint or an agent, in a terminal or in a pipe",
    "record": "record the requests of a page and the answers of an endpoint",
    "diff": "compare two recordings",
    "types": "write TypeScript types of an agent's tools, data parts and metadata",
    "chats": "list, show, export, import and delete stored chats",
    "demo": "serve a tour of what a chat can show, and answers about usechat",
}
"""The commands of this package, with their help, so that `usechat --help` need not import them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character shows its number
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = _make_parser(given).parse_args(given)
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


class CommandParser(argparse.ArgumentParser):
    """A parser that reports errors in one sentence."""

    def __init__(self, prog: str, usage: str, description: str = "", **options: Any) -> None:
        formatter = functools.partial(argparse.RawDescriptionHelpFormatter, width=100, max_help_position=26)
        super().__init__(
            prog, usage=usage, description=description, formatter_class=formatter, allow_abbrev=False, **options
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what this command knows; refuse the rest here, so that the error names this command and its help."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


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
        for found in sorted(entry_points(group="usechat.commands"), key=lambda each: each.name):
            _add_installed_command(commands, found)
    return parser


def _add_command(commands: Any, name: str, text: str) -> CommandParser:
    command: CommandParser = commands.add_parser(name, usage=f"usechat {name} [options]", help=text)
    return command


def _add_installed_command(commands: Any, found: EntryPoint) -> None:
    try:
        module = found.load()
        module.add_arguments(_add_command(commands, found.name, module.HELP))
    except Exception as error:  # whatever a package of others does when it is imported; our own commands continue
        text = f"cannot be loaded: {type(error).__name__}: {error}"
        _add_command(commands, found.name, text).set_defaults(run=functools.partial(_refuse, f"{found.name} {text}"))


def _refuse(text: str, _options: argparse.Namespace) -> NoReturn:
    raise CannotStart(text)
