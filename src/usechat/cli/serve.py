"""The command `usechat serve`: its options, the sockets, and the process."""

import argparse
import logging
import re
import secrets
import shlex
import socket
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from usechat.cli import options as read
from usechat.cli.parser import CommandParser
from usechat.cli.targets import kind_of, targets_in
from usechat.errors import CannotLoad, CannotServe
from usechat.targets import OptionGroup, directory_of, installed_targets

if TYPE_CHECKING:
    from usechat.cli.plan import Plan, Served
    from usechat.runs.settings import Settings
    from usechat.server.app import EndpointsApp

__all__ = ["add_arguments", "add_kinds", "listed", "plan_of", "run"]

_DESCRIPTION: Final = """\
Serve an agent to a stock useChat page, with routes to resume an answer, stop it and read its state. OBJECT is one of:

- an async generator function, a generator function, a function, or a ChatTransport
- an agent of LangGraph, OpenAI Agents, Pydantic AI, Agno, Claude Agent SDK, Google ADK, Strands, LlamaIndex, Microsoft
  Agent Framework, CrewAI, Haystack, smolagents, DSPy, or of another framework whose adapter is installed
- what one of the kinds of --as names
- a function without arguments that returns one of these; it is called once per process
- an ASGI app, such as a ChatApp; it is served unchanged
"""
_EPILOG: Final = """\
exit code: 2 if the object or an option is wrong; the error names it. 3 if a factory fails at the start; the log has
the reason.

examples:
  usechat serve my_app:agent
  usechat serve path/to/file.py:agent --reload --debug
  usechat serve app.py:writer app.py:coder
  usechat serve my_app:agent --chats chats.db
  usechat serve my_app:agent --host 0.0.0.0 --auth tokens:tokens.txt
  usechat serve my_app:agent --workers 4 --chats postgresql+asyncpg:///chats
  usechat serve my_app:agent --workers 4 --redis redis://localhost:6379
  usechat serve my_app:agent --redis redis://localhost:6379 --agents external
"""
_EVERYDAY: Final = (
    "--port",
    "--host",
    "--reload",
    "--debug",
    "--open",
    "--title",
    "--chats",
    "--auth",
    "--cors",
    "--workers",
    "--redis",
    "--as",
)
"""The options that `usechat serve --help` shows; `--help-all` shows all."""
_SHORTEST_SECRET: Final = 32
_HELLO: Final = '{"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"Hello!"}]}]}'


def add_arguments(parser: CommandParser) -> None:
    """Add the options of the command, and those of every installed kind."""
    parser.usage = "usechat serve [options] OBJECT [OBJECT …]"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.show_first(_EVERYDAY)
    kinds = installed_targets()
    add = parser.add_argument
    add("target", metavar="OBJECT",
        help="MODULE:NAME, path/to/file.py:NAME, a directory with a langgraph.json or an ADK package, or the target of"
        " a kind, see --as")  # fmt: skip
    add("further", nargs="*", default=[], metavar="OBJECT",
        help="more agents in Python; users choose on the page, and the first is the default")  # fmt: skip
    add("--as", dest="kind", choices=tuple(kinds), metavar="KIND",
        help=f"the kind of OBJECT: {listed(kinds)}")  # fmt: skip
    add("--context", metavar="MODULE:NAME",
        help="what the agent needs per request, which its framework calls context, deps, dependencies or state: a"
        " value, or a function of the turn, async or not, that returns it")  # fmt: skip
    add("--host", default="127.0.0.1",
        help="the address to listen on; any other than loopback needs --auth (default: 127.0.0.1)")  # fmt: skip
    add("--port", default=8000, type=read.port, help="the port to listen on; 0 for any free port (default: 8000)")
    add("--uds", metavar="PATH",
        help="listen on a Unix socket at this path, for a proxy on this machine, instead of --host and"
        " --port")  # fmt: skip
    add("--root-path", type=read.path, metavar="PATH",
        help="the path below which a proxy serves this server; the proxy removes it from requests")  # fmt: skip
    add("--forwarded-allow-ips", type=read.addresses, metavar="ADDRESSES",
        help="the addresses or networks of the proxies whose X-Forwarded-For and X-Forwarded-Proto headers are"
        " believed, separated by commas, or * for all (default: 127.0.0.1; with --uds: *)")  # fmt: skip
    add("--workers", default=1, type=read.count, metavar="N",
        help="the number of processes; more than one need --redis, or --chats in a PostgreSQL"
        " (default: 1)")  # fmt: skip
    add("--reload", action="store_true", help="restart when a Python file in the object's directory changes")
    add("--log-format", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json (default: text)")
    add("--drain", type=read.seconds, metavar="SECONDS",
        help="how long runs may continue after SIGTERM; clients are disconnected at once (default: 10)")  # fmt: skip
    add("--debug", action="store_true", default=None,
        help="print the traceback of a failed import, and show the text of errors on the page; not for"
        " production")  # fmt: skip
    add("--no-page", dest="page", action="store_false", default=None, help="serve no chat page at /")
    add("--title", help="the title of the page (default: OBJECT)")
    add("--description", metavar="TEXT", help="a sentence below the title: what the agent does")
    add("--logo", metavar="FILE", help="an image for the page and its icon: SVG, PNG, JPEG, WebP, GIF or ICO")
    add("--accent", metavar="COLOUR",
        help="the colour of buttons and links, as #rrggbb; each theme gets a shade of it that can be read")  # fmt: skip
    add("--suggestion", action="append", default=[], metavar="TEXT",
        help="an example question on the empty page: 'Question' or 'Title | Question'; an emoji in front is its icon;"
        " repeatable")  # fmt: skip
    add("--inspector", action="store_true", default=None,
        help="let the page show every frame of an answer, for developers; --reload turns it on, too")  # fmt: skip
    add("--open", action="store_true", help="open the page in a browser")
    add("--plain-asgi", action="store_true", default=None,
        help="do not use uvicorn's internals: writes are slower, and clients are not disconnected at a"
        " shutdown")  # fmt: skip
    _add_chat_options(parser.add_argument_group("for chats").add_argument)
    _add_access_options(parser.add_argument_group("for access").add_argument)
    parser.set_defaults(run=run, kind_flags=dict(add_kinds(parser)))


def add_kinds(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Add a group of options for each kind; yield the kinds and how their options are written."""
    settings_by_flag: dict[str, dict[str, Any]] = {}
    for name, kind in installed_targets().items():
        group = parser.add_argument_group(f"for --as {name}", f"OBJECT is {kind.summary}")
        options = OptionGroup(group, settings_by_flag)
        try:
            kind.add_options(options)
        except Exception as error:  # a package of others may raise anything; other kinds continue
            group.description = f"its options cannot be used: {error}"
        yield name, options.flags


def _add_chat_options(add: Any) -> None:
    add("--path", type=read.path, help="the path of the chat routes (default: /api/chat)")
    add("--sdk", metavar="RELEASE",
        help="the AI SDK release of the page: 5, 6, 7, one release such as 6.0.150, or any (default: any)")  # fmt: skip
    add("--conflict", choices=("reject", "attach", "queue", "interrupt"), metavar="POLICY",
        help="what happens to a second message while the chat is being answered: reject (409), queue (wait),"
        " attach (wait, except that a repeated answer to a tool call streams the running answer) or interrupt (stop the"
        " running answer) (default: reject)")  # fmt: skip
    add("--disconnect", type=read.disconnect, metavar="POLICY",
        help="what happens to an answer when its last client has disconnected: cancel, continue, or a number of"
        " seconds after which it is cancelled (default: 15)")  # fmt: skip
    add("--idle-timeout", type=read.seconds_or_never, metavar="SECONDS",
        help="stop an agent that sends nothing for this long; never for no limit (default: 120)")  # fmt: skip
    add("--keep-alive", type=read.seconds, metavar="SECONDS",
        help="send a comment when an answer is silent for this long; it must be shorter than the timeouts of your"
        " proxies (default: 15)")  # fmt: skip
    add("--coalesce-ms", type=read.milliseconds, metavar="MS",
        help="collect text for this long, so that several deltas share a write; 0 to write at once"
        " (default: 0)")  # fmt: skip
    add("--redis", metavar="URL", help="keep runs in Redis, so that every worker can resume and stop them")
    add("--chats", metavar="DATABASE",
        help="store chats in this file, or in the database at a URL, so that the server owns the history (default: in"
        " memory; with --redis the page's messages are the history)")  # fmt: skip
    add("--keep", type=read.days, metavar="TIME",
        help="delete stored chats that were not changed for this long, such as 90d (default: keep them)")  # fmt: skip
    add("--after-crash", choices=("continue", "ask", "lose"), metavar="RULE",
        help="what happens to a stored answer whose process died: continue, ask (a person is asked about each tool that"
        " may have run) or lose (default: agents that report every effect as a tool call continue)")  # fmt: skip
    add("--recover", type=read.count, metavar="N",
        help="how many answers of dead processes continue at once (default: 8)")  # fmt: skip
    add("--share", action="store_true", default=None,
        help="let users share a stored chat by a link; everyone who has the link and can reach the server can read"
        " it")  # fmt: skip
    add("--agents", choices=("here", "external"), metavar="WHERE",
        help="external: do not import OBJECT; it is the name of a queue in Redis, and `usechat worker OBJECT` answers"
        " (default: here)")  # fmt: skip
    add("--max-waiting", type=read.count, metavar="N",
        help="with --agents external: refuse messages (503) while N wait for an agent process"
        " (default: 1000)")  # fmt: skip
    add("--forward-header", action="append", type=read.header_name, metavar="NAME",
        help="with --agents external: send this request header to the agent, besides accept-language, traceparent,"
        " tracestate and x-request-id; repeatable")  # fmt: skip
    add("--approval-secret", metavar="FILE",
        help="sign approval requests and client tool calls with the text in this file, so that answers to them are"
        " accepted after a restart (default: a random secret until the restart)")  # fmt: skip


def _add_access_options(add: Any) -> None:
    add("--auth", action="append", metavar="RULE",
        help="require a bearer token: tokens:FILE (lines of name:sha256), or jwt: with one of jwks=FILE,"
        " public-key=FILE and secret=FILE, and then ,audience=NAME ,issuer=URL; repeatable")  # fmt: skip
    add("--login-url", metavar="URL",
        help="let the page's sign-in lead to this address instead of asking for a token; it returns with a cookie, or"
        " with the token in the fragment: #token=…")  # fmt: skip
    add("--embed", action="append", metavar="ORIGIN",
        help="allow pages of this origin, such as https://www.example.com, to show the page in a frame, and serve"
        " /widget.js, a script that puts it behind a button there; repeatable (default: none)")  # fmt: skip
    add("--apps-origin", metavar="ORIGIN",
        help="the origin from which the page shows the apps of MCP servers, such as https://apps.example.com: another"
        " one than the page's, which a proxy passes on to this server with its Host header (default: a second port"
        " where only this machine can reach the server, none elsewhere)")  # fmt: skip
    add("--rate", type=read.rate, metavar="N/min",
        help="how many messages one user may send in a minute, such as 30/min (default: no limit)")  # fmt: skip
    add("--metrics-listen", type=read.address, metavar="HOST:PORT",
        help="serve /metrics at this address, without a token, and nowhere else (default: beside the chat, where it"
        " needs a token if --auth is set)")  # fmt: skip
    add("--cors", action="append", metavar="ORIGIN",
        help="allow requests of pages from this origin, such as http://localhost:3000, whose useChat sets api: to this"
        " server; repeatable (default: none)")  # fmt: skip


def listed(names: Iterable[str]) -> str:
    """Return names as a sentence lists alternatives."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def run(options: Namespace) -> int:
    """Serve what the options name; return the exit code."""
    if options.kind is None and options.agents != "external":
        named = [target for each in (options.target, *options.further) for target in targets_in(each)]
        options.target, *options.further = named
    _validate_agents(options)
    _validate_further(options)
    with _second_port(options) as apps_sockets:
        return _serve(options, apps_sockets)


def _serve(options: Namespace, apps_sockets: list[socket.socket]) -> int:
    from usechat.cli.announcement import Announcement
    from usechat.cli.plan import FACTORY, hand_to_workers
    from usechat.server import uvicorn

    plan = plan_of(options)
    if metrics_sockets := _listen_for_metrics(options):
        plan = msgspec.structs.replace(plan, metrics_port=metrics_sockets[0].getsockname()[1])
    if apps_sockets:
        plan = msgspec.structs.replace(plan, apps_origin=_url("localhost", apps_sockets[0].getsockname()[1]))
    served = _make_app(plan)
    _validate_options(plan, served, options)
    if plan.chats is not None:
        _check_chats(plan.chats)
    sockets = _listen(options, served)
    address = _address(options, sockets[0])
    sockets += metrics_sockets
    if served.shows_apps:
        sockets += apps_sockets
    else:
        _close(apps_sockets)
    with tempfile.NamedTemporaryFile(prefix="usechat-", delete=False) as marker:
        greeting = _greeting_text(plan, served, address, options.log_format)
    announcement = Announcement(greeting, marker.name, address.url if options.open and served.shows_page else None)
    hand_to_workers(msgspec.structs.replace(plan, announcement=announcement), served)
    server_options = uvicorn.ServerOptions(
        grace=plan.drain,
        workers=options.workers,
        reload_directory=directory_of(plan.target) if options.reload else None,
        log_format=options.log_format,
        root_path=options.root_path or "",
        # Only processes of this machine can connect to a Unix socket, and they have no address.
        proxies=options.forwarded_allow_ips or ("*" if options.uds else None),
        keep_alive=plan.settings.keep_alive,
    )
    try:
        uvicorn.run(FACTORY, sockets, server_options)
    except KeyboardInterrupt:  # the usual way to end it
        return 0
    finally:
        Path(marker.name).unlink(missing_ok=True)
    return 0


def _listen(options: Namespace, served: "Served") -> list[socket.socket]:
    """Return the sockets of the server; raise ``CannotServe`` if other machines could reach it unauthenticated."""
    from usechat.server.listening import is_loopback, listen_at, listen_at_path, resolve

    if options.uds:
        return [listen_at_path(options.uds)]
    addresses = resolve(options.host, options.port)
    if not served.requires_auth and not all(map(is_loopback, addresses)):
        raise CannotServe(f"--host {options.host} accepts other machines; set --auth to say who is allowed")
    return listen_at(addresses)


def _listen_for_metrics(options: Namespace) -> list[socket.socket]:
    """Return the sockets of ``--metrics-listen``."""
    from usechat.server.listening import listen

    address = getattr(options, "metrics_listen", None)
    if address is None:
        return []
    if address[1] and address[1] == options.port:
        raise CannotServe(f"--metrics-listen needs another port than the chat, which has {options.port}")
    return listen(*address)


@contextmanager
def _second_port(options: Namespace) -> Iterator[list[socket.socket]]:
    """Listen at a second port, from which apps are shown, where only this machine can reach the server.

    A person may look at the page at 127.0.0.1, which is another site than localhost: their frames share no process.
    """
    from usechat.server.listening import is_loopback, listen_at, resolve

    has_none = options.apps_origin or options.auth or options.uds or options.root_path or options.page is False
    is_local = not has_none and all(map(is_loopback, resolve(options.host, options.port)))
    # At one address: a free port of one may be in use at the other, and browsers try both.
    sockets = listen_at(resolve("localhost", 0)[:1]) if is_local else []
    try:
        yield sockets
    finally:
        _close(sockets)


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


class _Address(NamedTuple):
    """Where the server listens, for people and for curl."""

    url: str
    curl: str


def _address(options: Namespace, listening: socket.socket) -> _Address:
    if options.uds:
        return _Address(f"unix:{options.uds}", f"--unix-socket {shlex.quote(options.uds)} http://localhost")
    url = _url(options.host, listening.getsockname()[1])
    return _Address(url, url)


def _greeting_text(plan: "Plan", served: "Served", address: _Address, log_format: str) -> str:
    """Return what is served where: for a person, or for a program that reads one JSON object per line."""
    lines = list(_greeting(plan, served, address))
    if log_format == "json":
        from usechat.server.observers.logs import JsonFormatter

        fields = {"name": "usechat.server", "levelname": "INFO", "msg": lines[0].rstrip()}
        lines = [f"{JsonFormatter().format(logging.makeLogRecord(fields))}\n"]
    return "".join(lines)


def plan_of(options: Namespace) -> "Plan":
    """Return the plan that the options of a command make."""
    from usechat.cli.plan import Plan

    fields = {name: getattr(options, name, None) for name in Plan.__struct_fields__}
    fields |= {
        "settings": _settings_of(options),
        "options": _kind_options(options),
        # What another process has answered, this one would not know.
        "remembers": options.redis is None and options.workers == 1,
        "further": tuple(getattr(options, "further", ())),
        "suggestions": tuple(getattr(options, "suggestion", ())),
        "inspector": getattr(options, "inspector", None) or getattr(options, "reload", None),
    }
    return Plan(**{name: value for name, value in fields.items() if value is not None})


_SETTINGS: Final = ("conflict", "coalesce_ms", "keep_alive", "plain_asgi", "after_crash", "recover")
"""The settings that are called like their options, and have their values."""
_DISCONNECT: Final = 15.0
"""Seconds after which an answer without a reader is cancelled, unless the options say otherwise."""


def _settings_of(options: Namespace) -> "Settings":
    """Return the settings that the options of a command make; what is not given has the value of the settings."""
    from usechat.protocol.releases import releases_for
    from usechat.runs.quotas import Quotas
    from usechat.runs.settings import Settings, Timeouts, cancel_after

    values = {name: value for name, value in vars(options).items() if value is not None}
    settings: dict[str, Any] = {name: values[name] for name in _SETTINGS if name in values}
    settings["approval_secret"] = _approval_secret(values.get("approval_secret"))
    policy = values.get("disconnect", _DISCONNECT)
    settings["disconnect"] = policy if isinstance(policy, str) else cancel_after(policy)
    if "sdk" in values:
        settings["sdk"] = releases_for(values["sdk"]).name
    if "idle_timeout" in values:
        limit = None if values["idle_timeout"] == "never" else values["idle_timeout"]
        settings["timeouts"] = Timeouts(first_event=limit, idle=limit)
    if "rate" in values:
        settings["quotas"] = Quotas(requests_per_minute=values["rate"])
    if "keep" in values:
        settings["keep_chats"] = values["keep"]
    return Settings(**settings)


def _check_chats(database: str) -> None:
    """Raise ``UnusableChats`` now, in one sentence, if the workers could not use the database."""
    import asyncio

    from usechat.chats.sql import SqlChats

    async def check() -> None:
        store = SqlChats(database)
        try:
            await store.open()
        finally:
            await store.close()

    asyncio.run(check())


def _kind_options(options: Namespace) -> dict[str, Any]:
    """Return the options of the target's kind; raise ``CannotServe`` if one of another kind was given."""
    kind = options.kind or kind_of(options.target)
    kind_options = {
        name.removeprefix(OptionGroup.PREFIX): value
        for name, value in vars(options).items()
        if name.startswith(OptionGroup.PREFIX) and name != "kind_flags"
    }
    for name in kind_options:
        having = [other for other, flags in options.kind_flags.items() if name in flags]
        if kind not in having:
            flag = options.kind_flags[having[0]][name]
            what = f"served as {kind}" if kind else "a Python object"
            raise CannotServe(f"{flag} is an option of --as {', --as '.join(having)}, but {options.target} is {what}")
    return kind_options


def _make_app(plan: "Plan") -> "Served":
    from usechat.cli.plan import make_app

    try:
        return make_app(plan)
    except CannotLoad as error:
        if plan.debug and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise


def _validate_agents(options: Namespace) -> None:
    """Raise ``CannotServe`` unless the options about agent processes make sense together."""
    if getattr(options, "agents", None) != "external":
        for name in ("max_waiting", "forward_header"):
            if getattr(options, name, None) is not None:
                raise CannotServe(f"--{name.replace('_', '-')} is for --agents external")
        return
    for value, option in ((options.kind, "--as"), (options.context, "--context"), (options.reload, "--reload")):
        if value:
            raise CannotServe(f"with --agents external nothing is imported here: give {option} to usechat worker")
    if options.redis is None:
        raise CannotServe("--agents external needs --redis URL, the same for web and agent processes")


def _validate_further(options: Namespace) -> None:
    """Raise ``CannotServe`` if several objects are given where there can be one."""
    if options.further and options.kind:
        raise CannotServe(f"--as {options.kind} takes one OBJECT; several are agents in Python, each MODULE:NAME")
    if options.further and options.agents == "external":
        raise CannotServe("--agents external takes one OBJECT, the name of the queue; start a server for each")


def _approval_secret(path: str | None) -> str:
    """Return the secret in a file, or else one for all workers that lasts as long as they do."""
    if path is None:
        return secrets.token_hex(32)
    try:
        secret = Path(path).read_text(encoding="utf-8").rstrip("\r\n")  # editors end a file with a line break
    except OSError as error:
        raise CannotServe(f"--approval-secret: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotServe(f"--approval-secret: {path} is not a text file") from None
    if len(secret) < _SHORTEST_SECRET:
        raise CannotServe(f"--approval-secret: {path} holds fewer than {_SHORTEST_SECRET} characters")
    return secret


def _validate_options(plan: "Plan", served: "Served", options: Namespace) -> None:
    """Raise ``CannotServe`` unless the options make sense together."""
    for name in served.unsupported_options:
        if getattr(options, name) is not None:
            option = "--" + name.replace("_", "-")
            if not served.built_here:
                raise CannotServe(f"{plan.target} is an ASGI app and served as it is: set {option} in its code")
            raise CannotServe(f"{option} has no effect on {plan.target}{f' as {plan.kind}' if plan.kind else ''}")
    if options.reload and options.workers > 1:
        raise CannotServe("--reload is for one worker, so leave --workers out")
    if options.workers > 1 and served.built_here and not served.chats:
        raise CannotServe(f"--workers is 1 for {plan.target}: its app keeps its chats in one process")
    if options.workers > 1 and any(map(_is_alone, served.chats)):
        remedy = "give --redis URL" if served.built_here else "give the app RedisRuns"
        remedy += ", or store the chats in a PostgreSQL"
        raise CannotServe(
            f"--workers {options.workers} needs a store that they share: a run lives in one worker, and without Redis"
            f" the others can neither resume nor stop it; {remedy}"
        )
    _validate_metrics(plan, served, options)
    if options.apps_origin and not served.shows_apps:
        raise CannotServe(f"--apps-origin has no effect on {plan.target}: it is for the page of chats that are stored")
    if "*" in plan.cors and not served.requires_auth:
        raise CannotServe("--cors '*' would allow every page on the web to use the agent; name origins, or give --auth")


def _validate_metrics(plan: "Plan", served: "Served", options: Namespace) -> None:
    """Raise ``CannotServe`` unless there are metrics to serve."""
    address = getattr(options, "metrics_listen", None)
    if address is None:
        return
    if not served.chats:
        raise CannotServe(f"--metrics-listen has no effect on {plan.target}, whose app counts nothing")


def _is_alone(chats: "EndpointsApp") -> bool:
    """Tell whether other workers could not resume or stop the runs of this one."""
    from usechat.runs.chats import ChatRuns
    from usechat.runs.memory import MemoryRuns

    return chats.is_resumable and isinstance(chats.runs, MemoryRuns) and not isinstance(chats.runs, ChatRuns)


def _greeting(plan: "Plan", served: "Served", address: _Address) -> Iterator[str]:
    yield f"usechat serves {plan.title or ', '.join((plan.target, *plan.further))} at {address.url}\n"
    if plan.agents == "external":
        chats = " --chats DATABASE" if plan.chats is not None else ""
        yield f"Agent processes answer: usechat worker {plan.target} --redis URL{chats}\n"
    if not served.built_here:
        yield "It is an ASGI app and decides itself who is allowed.\n"
        return
    if served.shows_page:
        names = [name for name in re.findall(r"\{(\w+)\}", served.path) if name != "chat_id"]
        query = "&".join(f"{name}={_placeholder(name)}" for name in names)
        yield f"  GET  /{query and f'?{query}'} (the chat page)\n"
    elif plan.page:
        yield "The page is not built, so there is none; `make page` builds it in a checkout.\n"
    yield from _routes(served, without=() if plan.metrics_port is None else ("/metrics",))
    if plan.metrics_port is not None:
        yield f"Metrics are at port {plan.metrics_port}: GET /metrics\n"
    if served.shows_apps and plan.apps_origin:
        yield f"The page shows the apps of MCP servers from {plan.apps_origin}\n"
    if not served.requires_auth:
        yield "Only this machine can reach it, because there is no --auth.\n"
    if served.disabled_by:
        yield f"{served.disabled_by} is set, but not to true: pages get 404.\n"
        return
    path = re.sub(r"\{(\w+)\}", lambda match: _placeholder(match[1]), served.path)
    token = " -H 'authorization: Bearer …'" if served.requires_auth else ""
    body = f"-H 'content-type: application/json' -d {shlex.quote(_HELLO)}"
    yield f"Try it:\n  curl -N {address.curl}{path}{token} {body}\n"


def _placeholder(name: str) -> str:
    """Return what stands for a parameter of the path: ``SESSION`` for ``session_id``."""
    return name.removesuffix("_id").upper()


def _routes(served: "Served", *, without: Iterable[str]) -> Iterator[str]:
    from starlette.routing import Route, WebSocketRoute

    for route in served.routes:
        path = getattr(route, "path", "")
        if path in without or path.endswith("/"):  # the same with a slash
            continue
        if isinstance(route, Route):
            method = next(iter((route.methods or {"GET"}) - {"HEAD"}))
            yield f"  {method:4} {route.path_format}\n"
        elif isinstance(route, WebSocketRoute):
            yield f"  WS   {route.path}\n"


def _url(host: str, port: int) -> str:
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
