"""The command `usechat worker`: an agent process behind web processes, see `usechat serve --agents external`."""

import asyncio
import logging.config
import signal
import sys
import traceback
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Final

from usechat.cli import options as read
from usechat.cli.parser import CommandParser
from usechat.cli.serve import add_kinds, listed, plan_of
from usechat.errors import CannotListen, CannotLoad
from usechat.targets import installed_targets

if TYPE_CHECKING:
    from usechat.cli.plan import Plan

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Answer the messages that web processes accept (usechat serve OBJECT --agents external). So you can start, stop and
deploy web processes and agent processes independently. OBJECT is the same as for usechat serve, except that ASGI apps
and kinds with their own routes are not possible. It is also the name of the queue, so write it the same way in both
commands. Start as many agent processes as you need.

On SIGTERM or Ctrl-C the process takes no more messages, and running answers get --drain seconds. A second signal stops
them at once.
"""
_EPILOG: Final = """\
exit code: 2 if the object or an option is wrong; the error names it.

examples:
  usechat worker my_app:agent --redis redis://localhost:6379
  usechat worker my_app:agent --redis redis://localhost:6379 --drain 3600
"""
_EVERYDAY: Final = ("--redis", "--chats", "--as", "--concurrency", "--drain", "--debug")
"""The options that `usechat worker --help` shows; `--help-all` shows all."""


def add_arguments(parser: CommandParser) -> None:
    """Add the options of the command, and those of every installed kind."""
    parser.usage = "usechat worker [options] --redis URL OBJECT"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.show_first(_EVERYDAY)
    kinds = installed_targets()
    add = parser.add_argument
    add("target", metavar="OBJECT",
        help="MODULE:NAME, path/to/file.py:NAME, or the target of a kind, see --as")  # fmt: skip
    add("--redis", metavar="URL", required=True, help="the Redis of the web processes")
    add("--chats", metavar="DATABASE",
        help="the database in which the web processes store chats, if they do (default: none)")  # fmt: skip
    add("--as", dest="kind", choices=tuple(kinds), metavar="KIND", help=f"the kind of OBJECT: {listed(kinds)}")
    add("--context", metavar="MODULE:NAME",
        help="what the agent needs per request, which its framework calls context, deps, dependencies or state: a"
        " value, or a function of the turn, async or not, that returns it")  # fmt: skip
    add("--concurrency", type=read.count, metavar="N",
        help="how many messages this process answers at once (default: 50)")  # fmt: skip
    add("--drain", type=read.seconds, metavar="SECONDS",
        help="how long running answers may continue after SIGTERM (default: 10)")  # fmt: skip
    add("--code-version", metavar="NAME",
        help="the version of the agent's code; if a process dies, only a process of the same version restarts its"
        " answers (default: a digest of the object's files)")  # fmt: skip
    add("--disconnect", type=read.disconnect, metavar="POLICY",
        help="as for usechat serve; give both commands the same policy")  # fmt: skip
    add("--idle-timeout", type=read.seconds_or_never, metavar="SECONDS",
        help="stop an agent that sends nothing for this long; never for no limit (default: 120)")  # fmt: skip
    add("--coalesce-ms", type=read.milliseconds, metavar="MS",
        help="collect text for this long, so that several deltas share a write; 0 to write at once"
        " (default: 0)")  # fmt: skip
    add("--host", default="127.0.0.1", help="the address to listen on for --metrics-port (default: 127.0.0.1)")
    add("--metrics-port", type=read.port, metavar="PORT",
        help="serve metrics for Prometheus on this port: how answers ended, and how long they took (default:"
        " none)")  # fmt: skip
    add("--log-format", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json (default: text)")
    add("--debug", action="store_true", default=None,
        help="print the traceback of a failed import, and show the text of errors on the page; not for"
        " production")  # fmt: skip
    parser.set_defaults(run=run, kind_flags=dict(add_kinds(parser)))


def run(options: Namespace) -> int:
    """Answer until the process gets a signal to exit; return the exit code."""
    from usechat.server.uvicorn import log_config

    logging.config.dictConfig(log_config(options.log_format))
    if options.metrics_port is not None:
        _serve_metrics(options.host, options.metrics_port)
    asyncio.run(_work(plan_of(options)))
    return 0


def _serve_metrics(host: str, port: int) -> None:
    from usechat.server.observers.prometheus import process_metrics

    try:
        process_metrics().serve(host, port)
    except OSError as error:
        raise CannotListen(f"port {port} of {host} cannot be used: {error.strerror}") from None


async def _work(plan: "Plan") -> None:
    from usechat.cli.plan import make_worker
    from usechat.runs.containment import contain_exits

    try:
        worker = make_worker(plan)
    except CannotLoad as error:
        if plan.debug and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise
    loop = asyncio.get_running_loop()
    contain_exits(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    await worker.work(drain=plan.drain, on_start=partial(_announce, plan))


def _announce(plan: "Plan") -> None:
    sys.stdout.write(f"usechat worker answers for {plan.target}: up to {plan.concurrency} at once\n")
    sys.stdout.flush()
