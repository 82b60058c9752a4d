"""MCP Apps: tools of MCP servers that bring a user interface, and where a message names it.

A tool names the resource of its interface (``ui://…``, HTML) in its ``_meta``. Pages look for it in two places: the
renderer of ``@ai-sdk/react`` 4 in ``toolMetadata.app`` of a tool part, which AI SDK 6 and 7 have, and assistant-ui in
``callProviderMetadata.mcp.app``, which every release has. Neither is sent to a model.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from usechat.protocol.parts import McpApp
from usechat.protocol.ui_messages import UIMessage, is_tool, tool_parts_of

__all__ = [
    "MIME_TYPE",
    "URI_SCHEME",
    "app_metadata",
    "apps_in",
    "declared_app",
    "is_visible_to",
    "named_app",
    "with_app",
    "without_apps",
]

MIME_TYPE: Final = "text/html;profile=mcp-app"
"""The type of an app's resource."""
URI_SCHEME: Final = "ui://"
"""How the address of an app's resource begins."""


def declared_app(meta: Any, server: str | None = None) -> McpApp | None:
    """Return the app that a tool of an MCP server declares in its ``_meta``.

    >>> declared_app({"ui": {"resourceUri": "ui://weather/map", "visibility": ["model"]}}, "weather")
    McpApp(resource_uri='ui://weather/map', server='weather', visibility=('model',))
    >>> declared_app({"title": "Weather"}) is None
    True
    """
    match meta:
        case {"ui": {"resourceUri": str(uri)}} | {"ui/resourceUri": str(uri)} if uri.startswith(URI_SCHEME):
            return McpApp(uri, server, _visibility(meta))
    return None


def is_visible_to(meta: Any, audience: Literal["app", "model"]) -> bool:
    """Tell whether the ``_meta`` of a tool lets this audience call it; without a word about it, both may.

    >>> is_visible_to({"ui": {"visibility": ["app"]}}, "model"), is_visible_to(None, "app")
    (False, True)
    """
    visibility = _visibility(meta)
    return visibility is None or audience in visibility


def _visibility(meta: Any) -> tuple[str, ...] | None:
    match meta:
        case {"ui": {"visibility": [*visibility]}}:
            return tuple(audience for audience in visibility if isinstance(audience, str))
    return None


def app_metadata(app: McpApp) -> dict[str, Any]:
    """Return an app as pages read it."""
    values = {"resourceUri": app.resource_uri, "mimeType": MIME_TYPE}
    visibility = {} if app.visibility is None else {"visibility": list(app.visibility)}
    return values | visibility | ({} if app.server is None else {"serverId": app.server})


def named_app(call_metadata: Any, tool_metadata: Any = None) -> dict[str, Any] | None:
    """Return the app that the metadata of a call names, as pages read it."""
    own = call_metadata.get("mcp") if isinstance(call_metadata, Mapping) else None
    return _at(own) or _at(tool_metadata)


def _at(metadata: Any) -> dict[str, Any] | None:
    match metadata:
        case {"app": {"resourceUri": str(uri)} as app} if uri.startswith(URI_SCHEME):
            return dict(app)
    return None


def with_app(call_metadata: Mapping[str, Any] | None, app: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the provider metadata of a call that names its app, too."""
    call_metadata = call_metadata or {}
    own = call_metadata.get("mcp")
    return {**call_metadata, "mcp": {**(own if isinstance(own, Mapping) else {}), "app": dict(app)}}


def without_apps(message: UIMessage) -> UIMessage:
    """Return a message that a page brings without the apps that it names: only an agent's answer may name one."""
    if next(apps_in([message]), None) is None:
        return message
    return {**message, "parts": [_without_app(part) if is_tool(part) else part for part in message["parts"]]}


def _without_app(part: Any) -> Any:
    call = dict(part)
    for key in ("callProviderMetadata", "toolMetadata"):
        if isinstance(part.get(key), Mapping):
            call[key] = {name: value for name, value in part[key].items() if name not in ("mcp", "app")}
    return call


def apps_in(messages: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the apps that the answers of a chat name.

    >>> part = {"type": "tool-map", "toolCallId": "c1", "toolMetadata": {"app": {"resourceUri": "ui://map"}}}
    >>> list(apps_in([{"id": "m1", "role": "assistant", "parts": [part]}]))
    [{'resourceUri': 'ui://map'}]
    """
    for message in messages:
        if message["role"] == "assistant":
            for part in tool_parts_of(message):
                if (app := named_app(part.get("callProviderMetadata"), part.get("toolMetadata"))) is not None:
                    yield app
