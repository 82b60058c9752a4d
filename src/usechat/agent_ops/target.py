"""`usechat serve --as agent-ops ADDRESS`: sessions at the address of their WebSocket."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from starlette.requests import HTTPConnection

from usechat.agent_ops.access.lookup import HttpLookup
from usechat.agent_ops.access.roles import AccessRule
from usechat.agent_ops.app import PATH, SESSION_SETTINGS, SWITCH, AgentOpsApp
from usechat.agent_ops.transport import AgentOpsChatTransport
from usechat.cli.auth import rules_of
from usechat.cli.serve import Plan, Served, disconnect_of, limit, served_as, store_of, tell
from usechat.errors import CannotServe, UnknownAccess
from usechat.protocol.releases import releases_for
from usechat.server.auth.bearer import bearer, identify
from usechat.server.requests import Action, Authorize
from usechat.turn import Identity

__all__ = [
    "Admission",
    "admission_by",
    "make_app",
]


_PLACES: Final = ("role", "kind", "owner")
_EXAMPLES: Final = "directory, directory:sqlite:///FILE or lookup:https://HOST/api/sessions/{id},role=PATH"


class Admission(NamedTuple):
    """Who asks, and what they may."""

    authorize: Authorize
    access: AccessRule


def admission_by(text: str, auth: Sequence[str]) -> Admission:
    """Return the rules that `--access` and `--auth` name together.

    A directory knows tokens of its own besides those of `--auth`. A look-up without `--auth` leaves it to the upstream
    whether a token is good.
    """
    kind, _, rest = text.partition(":")
    if kind == "directory":
        from usechat.agent_ops.access.directory import SessionDirectory, directory_url

        directory = SessionDirectory(directory_url(rest or None))
        return Admission(directory.bearer(*rules_of(auth)), directory)
    if kind == "lookup" and rest:
        return Admission(bearer(*rules_of(auth)) if auth else _ask_the_upstream, _lookup(text, rest))
    raise UnknownAccess(f"--access {text!r} is no rule; give {_EXAMPLES}")


def _lookup(text: str, rest: str) -> HttpLookup:
    url, *items = rest.split(",")
    places = dict(_place(text, item) for item in items)
    if not url.startswith(("http://", "https://")) or "{id}" not in url:
        raise UnknownAccess(f"--access {text!r} is no rule: its URL begins with https:// and has {{id}} in it")
    return HttpLookup(url, **places)


def _place(text: str, item: str) -> tuple[str, str]:
    name, _, path = item.partition("=")
    if name not in _PLACES or not path:
        raise UnknownAccess(f"--access {text!r} is no rule: {item!r} is none of {', '.join(_PLACES)} with a path")
    return name, path


async def _ask_the_upstream(request: HTTPConnection, _session_id: str, action: Action) -> Identity | None:
    """Take every token for a chat, because the look-up that follows asks the upstream about it; for nothing else."""
    identity = identify(request.headers, [_EveryToken()])
    return None if action == "check" else identity


class _EveryToken:
    def identify(self, token: str) -> Identity | None:
        return Identity(f"token {hashlib.sha256(token.encode()).hexdigest()}", token=token)


# -- `usechat serve --as agent-ops ADDRESS`: sessions at the address of their WebSocket.


def make_app(plan: Plan) -> Served:
    """Return the app of the plan. To name ``--as agent-ops`` is to switch the route on."""
    admission = admission_by(plan.access or "directory", plan.auth)
    runs = store_of(plan)
    settings = msgspec.structs.replace(
        SESSION_SETTINGS,
        sdk=releases_for(plan.sdk).name,
        disconnect=disconnect_of(plan),
        coalesce_ms=plan.coalesce_ms,
        on_error=tell if plan.debug else None,
        approval_secret=plan.approval_secret,
    )
    app = AgentOpsApp(
        _upstream(plan),
        access=admission.access,
        authorize=admission.authorize,
        runs=runs,
        settings=settings,
        enabled=True,
        drain=plan.drain,
    )
    deaf_to = ("path", "conflict") if runs is not None else ("path", "conflict", "disconnect")
    served = served_as(plan, app, path=PATH, asks=True, deaf_to=deaf_to, authorize=admission.authorize)
    return served if app.enabled else served._replace(switched_off_by=SWITCH)


def _upstream(plan: Plan) -> AgentOpsChatTransport:
    if not plan.target.startswith(("ws://", "wss://")) or "{id}" not in plan.target:
        raise CannotServe(f"{plan.target} is no address such as wss://HOST/api/sessions/{{id}}/ws?role=client")
    return AgentOpsChatTransport(
        plan.target,
        service_token=None if plan.upstream_token is None else _service_token(plan.upstream_token),
        subprotocol=plan.subprotocol,
        questions=plan.questions,
        events=frozenset(plan.event),
        idle_timeout=limit(plan.idle_timeout),
    )


def _service_token(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("latin-1").strip()
    except OSError as error:
        raise CannotServe(f"--upstream-token: {path} cannot be read: {error.strerror}") from None
