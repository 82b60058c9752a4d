"""The kinds `ai-sdk` and `recording` of `usechat serve`: another AI SDK endpoint, and a recording of one."""

import math
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from usechat.cli import options as read
from usechat.targets import CommonOptions, OptionGroup, ServedApp, TargetAgent

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from usechat.client.relay import Relay

__all__ = ["AiSdkOptions", "AiSdkTarget", "RecordingOptions", "RecordingTarget"]

_SUFFIX: Final = ".usechat.jsonl"
_NOT_FOR_RECORDINGS: Final = (
    "sdk",
    "redis",
    "disconnect",
    "conflict",
    "idle_timeout",
    "coalesce_ms",
    "approval_secret",
    "plain_asgi",
    "rate",
)


class AiSdkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kind; `usechat serve --help` explains them."""

    upstream_token: str | None = None
    header: tuple[str, ...] = ()
    pass_on: tuple[str, ...] = ()
    insecure: bool = False


class AiSdkTarget:
    """Serves another AI SDK endpoint, in any language, over HTTP or a WebSocket."""

    summary = "an AI SDK endpoint in any language: http://HOST/api/chat, or a WebSocket such as ws://HOST/api/chat/ws"
    options = AiSdkOptions

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add how the endpoint is called."""
        add = group.add_argument
        add("--upstream-token", metavar="FILE", help="call the endpoint with the bearer token in this file")
        add("--header", action="append", metavar="'NAME: VALUE'",
            help="add this header to the requests to the endpoint; repeatable")  # fmt: skip
        add("--pass-on", action="append", metavar="NAME",
            help="forward this header of the page's request to the endpoint, such as authorization;"
            " repeatable")  # fmt: skip
        add("--insecure", action="store_true", help="accept every TLS certificate of the endpoint")

    def open(self, target: str, options: AiSdkOptions, common: CommonOptions) -> TargetAgent:
        """Return a factory of the transport to the endpoint, so that it is closed when the server shuts down."""
        transport = _transport(target, options, common.idle_timeout)
        return TargetAgent(lambda: transport)


def _transport(url: str, options: AiSdkOptions, idle_timeout: float | None) -> "Relay":
    from usechat.client.transport import HttpChatTransport
    from usechat.client.websocket import WebSocketChatTransport

    headers = read.upstream_headers(options.header, options.upstream_token)
    if url.lower().startswith(("ws://", "wss://")):
        return WebSocketChatTransport(
            url,
            headers=headers,
            handshake_headers=headers,
            idle_timeout=idle_timeout,
            ssl_context=read.unverified_tls() if options.insecure and url.lower().startswith("wss:") else None,
            pass_on=options.pass_on,
        )
    return HttpChatTransport(
        url, headers=headers, idle_timeout=idle_timeout, verify=not options.insecure, pass_on=options.pass_on
    )


class RecordingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kind; `usechat serve --help` explains them."""

    speed: float | Literal["max"] = 1.0
    step: bool = False


class RecordingTarget:
    """Serves a recording: each chat gets its answers one after the other, byte for byte and with their times."""

    summary = f"a recording of usechat record (*{_SUFFIX}, also without --as), which is played back"
    options = RecordingOptions

    def recognises(self, target: str) -> bool:
        """Tell by the end of the name."""
        return target.endswith(_SUFFIX)

    def add_options(self, group: OptionGroup) -> None:
        """Add how fast the recording is played."""
        add = group.add_argument
        add("--speed", type=read.speed, metavar="N", help="play N times as fast, or max for no pauses (default: 1)")
        add("--step", action="store_true", help="wait for a key press in this terminal before each frame")

    def open(self, target: str, options: RecordingOptions, common: CommonOptions) -> ServedApp:
        """Return a player of the recording."""
        from starlette.applications import Starlette
        from starlette.routing import Route

        from usechat.client.keys import TerminalKeys
        from usechat.client.recording import StreamPlayer, StreamRecording
        from usechat.server.auth.guard import Guarded

        keys = TerminalKeys() if options.step else None
        player = StreamPlayer(
            StreamRecording.read(target),
            speed=math.inf if options.speed == "max" else options.speed,
            step=None if keys is None else keys.release,
            path=common.path,
        )
        app = Starlette(
            routes=[*player.routes, Route("/healthz", _health, methods=["GET"])],
            lifespan=None if keys is None else lambda _app: keys.reading(),
        )
        return ServedApp(
            Guarded(app, common.authorize),
            common.path,
            common.authorize,
            unsupported_options=_NOT_FOR_RECORDINGS,
            requires_auth=bool(common.token_rules),
            routes=app.routes,
        )


async def _health(_request: "Request") -> "Response":
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("ok")
