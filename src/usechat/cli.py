"""The command line: `usechat check …`. Parse, call, print; every command is imported on use."""

import argparse
import functools
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from usechat import __version__
from usechat.errors import UsechatError

__all__ = ["main"]

_CHECK_DESCRIPTION = """\
Judge a UI message stream as the real clients of AI SDK 5, 6 and 7 would: which chunk breaks which release, what the
user sees of it, and how to mend it. Warns, too, about what no client rejects and people suffer from.
"""
_CHECK_EPILOG = """\
exit code: 0 if every chosen release accepts every input, 1 if one rejects or shows nothing, 2 if an input could not be
judged. A stream that ends with an `error` chunk is legal: it is accepted, with a warning.

examples:
  usechat check capture.sse
  curl -sN -d @request.json localhost:3000/api/chat | usechat check -
  usechat check http://localhost:3000/api/chat --header 'Authorization: Bearer …' --sdk any
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character shows its number
    try:
        options = _make_parser().parse_args(arguments)
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


def _make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser("usechat", "usechat [-h] [--version] COMMAND …", "The Python side of useChat.")
    parser.add_argument(
        "--version", action="version", version=f"usechat {__version__}", help="print the version and exit"
    )
    commands = parser.add_subparsers(
        title="commands", prog="usechat", metavar="COMMAND", required=True, parser_class=_Parser
    )
    _add_check(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence."""

    def __init__(self, prog: str, usage: str, description: str, **options: Any) -> None:
        formatter = functools.partial(argparse.RawDescriptionHelpFormatter, width=100, max_help_position=26)
        super().__init__(
            prog, usage=usage, description=description, formatter_class=formatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _add_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        usage="usechat check [options] INPUT …",
        help="judge a stream as the real clients would",
        description=_CHECK_DESCRIPTION,
        epilog=_CHECK_EPILOG,
    )
    add = parser.add_argument
    add("inputs", nargs="+", metavar="INPUT", help="a file, a URL that is sent a chat request, or - for standard input")
    add(
        "--sdk",
        action="append",
        metavar="RELEASE",
        help="5, 6 or 7 for the newest release of that major, one release such as 6.0.150, or any for the first and the"
        " newest of all three, which means every release; repeatable (default: 5, 6 and 7)",
    )
    add("--format", choices=("text", "json", "sarif", "junit"), default="text", metavar="FORMAT",
        help="text, json (one object per input and line), sarif or junit (default: text)")  # fmt: skip
    add("--max-bytes", type=_count, default=16 * 1024 * 1024, metavar="N",
        help="read no more of an input than this (default: 16777216, 16 MiB)")  # fmt: skip
    url = parser.add_argument_group("for a URL")
    url.add_argument("--message", default="Hello!", metavar="TEXT", help="what the user says (default: Hello!)")
    url.add_argument("--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'",
                     help="send this header, too; repeatable")  # fmt: skip
    url.add_argument("--body", default={}, type=_json_object, metavar="JSON",
                     help="merge this object into the body of the request; its keys win")  # fmt: skip
    url.add_argument("--timeout", default=60.0, type=_seconds, metavar="SECONDS",
                     help="stop reading after this time (default: 60)")  # fmt: skip
    parser.set_defaults(run=_run_check)


def _run_check(options: argparse.Namespace) -> int:
    from usechat.check.command import run

    return run(options, __version__)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 'Name: value'")
    return name.strip(), value.strip()


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value
