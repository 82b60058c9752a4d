"""`usechat serve --as agent-ops ADDRESS`: sessions at the address of their WebSocket."""

from pathlib import Path

import msgspec

from usechat.agent_ops.access_option import admission_by
from usechat.agent_ops.app import AgentOpsApp
from usechat.agent_ops.route import PATH
from usechat.agent_ops.settings import SESSION_SETTINGS, SWITCH
from usechat.agent_ops.transport import AgentOpsChatTransport
from usechat.dialects import dialect
from usechat.server.serving import CannotServe, Plan, Served, disconnect_of, limit, served_as, store_of, tell

__all__ = ["make_app"]


def make_app(plan: Plan) -> Served:
    """Return the app of the plan. To name ``--as agent-ops`` is to switch the route on."""
    admission = admission_by(plan.access or "directory", plan.auth)
    runs = store_of(plan)
    settings = msgspec.structs.replace(
        SESSION_SETTINGS,
        sdk=dialect(plan.sdk).name,
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
