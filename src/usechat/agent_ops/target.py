"""The kind `agent-ops` of `usechat serve`: sessions at the address of their WebSocket."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from usechat.agent_ops.errors import UnknownAccess, UnusableDirectory
from usechat.errors import CannotServe, UnusableFile
from usechat.targets import CommonOptions, OptionGroup, ServedApp, rate

if TYPE_CHECKING:
    import ssl

    from starlette.requests import Request

    from usechat.agent_ops.access.lookup import HttpLookup
    from usechat.agent_ops.access.roles import AccessRule
    from usechat.agent_ops.transport import AgentOpsChatTransport
    from usechat.server import Action, Authorize, Identity, TokenRule

__all__ = ["Admission", "AgentOpsOptions", "AgentOpsTarget", "admission_by"]

_FIELDS: Final = ("role", "kind", "owner")
_EXAMPLES: Final = "directory, directory:sqlite:///FILE, lookup:https://HOST/api/sessions/{id},role=PATH or upstream"


class AgentOpsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kind; `usechat serve --help` explains them."""

    access: str = "directory"
    upstream_token: str | None = None
    subprotocol: str | None = None
    questions: Literal["data", "approval"] = "data"
    event: tuple[str, ...] = ()
    max_sockets: int = 256
    session_rate: int | None = None
    audit_log: str | None = None
    upstream_ca: str | None = None
    upstream_cert: str | None = None
    upstream_key: str | None = None


class AgentOpsTarget:
    """Serves sessions at the route ``/api/sessions/{session_id}/chat``.

    To name ``--as agent-ops`` is to enable the route, unless ``ENABLE_AI_SDK_ADAPTER`` says otherwise.
    """

    summary = "the address of a session's WebSocket: wss://HOST/api/sessions/{id}/ws?role=client"
    options = AgentOpsOptions

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add who may use a session, and how the session is called."""
        add = group.add_argument
        add("--access", metavar="RULE",
            help="the rule that says who may use a session: directory (of usechat sessions), directory:URL,"
            " lookup:URL,role=PATH,kind=PATH,owner=PATH (ask the upstream with the caller's token), or upstream (the"
            " session server decides, when it gets the caller's token) (default: directory). Several workers share the"
            " directory, and need --redis only for resume and stop. Use one worker if the upstream does not send"
            " prompts as user messages, because answers could be mixed up; the log warns of such an"
            " upstream")  # fmt: skip
        add("--upstream-token", metavar="FILE",
            help="call the upstream with the token in this file instead of the caller's own; the file is read again"
            " when it changes")  # fmt: skip
        add("--max-sockets", type=int, metavar="N",
            help="how many requests of one session may run at a time in one worker (default: 256)")  # fmt: skip
        add("--session-rate", type=rate, metavar="N/min",
            help="how many requests one session may get in a minute, from all users; more are refused with 429. --rate"
            " limits the requests of one user (default: no limit)")  # fmt: skip
        add("--audit-log", metavar="FILE",
            help="append a line of JSON for each prompt and each approval: user, time and session; what cannot be"
            " recorded is not sent to the upstream")  # fmt: skip
        add("--upstream-ca", metavar="FILE",
            help="check the upstream's certificate against the authorities in this PEM file (default: those of the"
            " system)")  # fmt: skip
        add("--upstream-cert", metavar="FILE",
            help="send the upstream the client certificate in this PEM file; the file also holds the key, unless"
            " --upstream-key names another file")  # fmt: skip
        add("--upstream-key", metavar="FILE", help="the key of --upstream-cert")
        add("--subprotocol", metavar="NAME",
            help="send the token as a second WebSocket subprotocol after this one, such as agent-ops, instead of in a"
            " header")  # fmt: skip
        add("--questions", choices=("data", "approval"), metavar="SHAPE",
            help="send the agent's questions as data-question parts (data), or as approvals that a page can answer"
            " (approval) (default: data)")  # fmt: skip
        add("--event", action="append", metavar="NAME",
            help="send this event of the session to the page as a data- part, such as git-state; repeatable"
            " (default: none)")  # fmt: skip

    def open(self, target: str, options: AgentOpsOptions, common: CommonOptions) -> ServedApp:
        """Return the app of the route."""
        from usechat.agent_ops.app import PATH, SESSION_SETTINGS, SWITCH, AgentOpsApp

        tls = _tls(target, options)
        if options.access == "upstream" and options.upstream_token is not None:
            raise CannotServe(
                "--access upstream lets the session server decide by the caller's own token; leave out"
                " --upstream-token, or name another rule"
            )
        admission = admission_by(options.access, common.token_rules, tls)
        app = AgentOpsApp(
            _upstream(target, options, common.idle_timeout, tls),
            access=admission.access,
            authorize=admission.authorize,
            runs=common.runs,
            settings=msgspec.structs.replace(
                common.settings, event_names=SESSION_SETTINGS.event_names, timeouts=SESSION_SETTINGS.timeouts
            ),
            enabled=True,
            drain=common.drain,
            session_requests_per_minute=options.session_rate,
        )
        if app.enabled:
            _require_migrated(options)
        unsupported = ("path", "conflict") if common.runs is not None else ("path", "conflict", "disconnect")
        disabled_by = "" if app.enabled else SWITCH
        return ServedApp(app, PATH, admission.authorize, unsupported_options=unsupported, disabled_by=disabled_by)


class Admission(NamedTuple):
    """Who sends a request, and what they may do."""

    authorize: "Authorize"
    access: "AccessRule"


def admission_by(text: str, token_rules: "Sequence[TokenRule]", tls: "ssl.SSLContext | None" = None) -> Admission:
    """Return the rules that ``--access`` and ``--auth`` name together. A look-up calls the upstream with ``tls``.

    A directory accepts its tokens besides those of ``--auth``. Without ``--auth``, and with no directory, the upstream
    decides whether a token is valid. Raises ``UnknownAccess`` for a text that names no rule.
    """
    kind, _, rest = text.partition(":")
    if kind == "directory":
        from usechat.agent_ops.access.directory import SessionDirectory, directory_url

        directory = SessionDirectory(directory_url(rest or None))
        return Admission(directory.bearer(*token_rules), directory)
    from usechat.server import bearer

    authorize = bearer(*token_rules) if token_rules else _accept_for_upstream
    if kind == "lookup" and rest:
        return Admission(authorize, _lookup(text, rest, tls))
    if text == "upstream":
        from usechat.agent_ops.access.upstream import UpstreamAccess

        return Admission(authorize, UpstreamAccess())
    raise UnknownAccess(f"--access {text!r} is not a rule; give {_EXAMPLES}")


def _require_migrated(options: AgentOpsOptions) -> None:
    """Raise ``UnusableDirectory`` if the directory of ``--access``, if it names one, has no tables yet, or old ones."""
    kind, _, rest = options.access.partition(":")
    if kind != "directory":
        return
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from usechat.agent_ops.access.directory import SessionDirectory, directory_url

    async def check() -> None:
        directory = SessionDirectory(directory_url(rest or None))
        try:
            await directory.require_migrated()
        finally:
            await directory.close()

    # In a separate thread, because the caller may have an event loop and this function is not async.
    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            thread.submit(lambda: asyncio.run(check())).result()
        except UnusableDirectory as error:
            other = "; or let the session server decide who may use a session: --access upstream"
            raise UnusableDirectory(f"{error}{other if options.upstream_token is None else ''}") from None


def _lookup(text: str, rest: str, tls: "ssl.SSLContext | None") -> "HttpLookup":
    from usechat.agent_ops.access.lookup import HttpLookup

    url, *items = rest.split(",")
    paths = dict(_field(text, item) for item in items)
    if not url.startswith(("http://", "https://")) or "{id}" not in url:
        raise UnknownAccess(f"--access {text!r} is not a rule: its URL begins with https:// and has {{id}} in it")
    return HttpLookup(url, **paths, tls=tls)


def _field(text: str, item: str) -> tuple[str, str]:
    name, _, path = item.partition("=")
    if name not in _FIELDS or not path:
        raise UnknownAccess(f"--access {text!r} is not a rule: {item!r} is none of {', '.join(_FIELDS)} with a path")
    return name, path


async def _accept_for_upstream(request: "Request", session_id: str, action: "Action") -> "Identity | None":
    """Accept every token for a chat, because the upstream is asked about it next; for nothing else."""
    from usechat.server import bearer

    identity = await bearer(_EveryToken())(request, session_id, action)
    return None if action == "check" else identity


class _EveryToken:
    def identify(self, token: str) -> "Identity | None":
        from usechat.server import Identity

        return Identity(f"token {hashlib.sha256(token.encode()).hexdigest()}", token=token)


def _tls(target: str, options: AgentOpsOptions) -> "ssl.SSLContext | None":
    """Return the TLS settings that the options name; ``None`` for the usual ones."""
    if options.upstream_key is not None and options.upstream_cert is None:
        raise CannotServe("--upstream-key is the key of a certificate; give --upstream-cert, too")
    if options.upstream_ca is None and options.upstream_cert is None:
        return None
    if not target.startswith("wss://"):
        raise CannotServe(f"--upstream-ca and --upstream-cert are for an upstream with TLS: wss://, not {target}")
    from usechat.agent_ops.tls import upstream_tls

    return upstream_tls(ca=options.upstream_ca, certificate=options.upstream_cert, key=options.upstream_key)


def _upstream(
    target: str, options: AgentOpsOptions, idle_timeout: float | None, tls: "ssl.SSLContext | None"
) -> "AgentOpsChatTransport":
    from usechat.agent_ops.audit import AuditLog
    from usechat.agent_ops.transport import AgentOpsChatTransport

    if options.max_sockets < 1:
        raise CannotServe(f"--max-sockets takes a number from 1 on, not {options.max_sockets}")
    if not target.startswith(("ws://", "wss://")) or "{id}" not in target:
        raise CannotServe(f"{target} is not an address such as wss://HOST/api/sessions/{{id}}/ws?role=client")
    return AgentOpsChatTransport(
        target,
        service_token=None if options.upstream_token is None else _service_token(options.upstream_token),
        maximum_sockets=options.max_sockets,
        subprotocol=options.subprotocol,
        questions=options.questions,
        events=frozenset(options.event),
        idle_timeout=idle_timeout,
        tls=tls,
        audit=None if options.audit_log is None else AuditLog(options.audit_log),
    )


def _service_token(path: str) -> "Callable[[], str]":
    """Return a function that returns the current token in a file."""
    from usechat.server import WatchedFile

    try:
        return WatchedFile(path, lambda content: content.decode("latin-1").strip()).read
    except UnusableFile as error:
        raise CannotServe(f"--upstream-token: {error}") from None
