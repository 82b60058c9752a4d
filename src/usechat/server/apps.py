"""The requests of MCP Apps: what the user interface of a tool may ask of the MCP server that brought it.

An app runs in a page and reaches no server. The page passes its requests on to ``POST {path}/{id}/apps`` as
``{method, params}``, in the form of assistant-ui's ``McpAppsRemoteHost``. An app is untrusted, and so is the page:

- It reaches only a server whose tool was called in this chat, by an agent: the stored answers say so, and no request
  changes them. The person must be allowed to read the chat.
- It reads only resources of apps: ``ui://`` with the type ``text/html;profile=mcp-app``.
- It calls only tools whose ``visibility`` has ``app``; a tool that does not say may be called by both (MCP Apps).
- Requests and answers are limited in size, time and number. What a server says of a failure is logged, not shown.
- Each request is reported to the observer, with who made it, also one that is refused.
"""

import asyncio
import base64
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any, Final, Literal, Protocol

import msgspec

from usechat.chats.store import ChatStore
from usechat.errors import AppRequestFailed, InvalidRequest, RequestError, TooManyRequests, Unprocessable
from usechat.protocol.mcp_apps import MIME_TYPE, URI_SCHEME, apps_in, is_visible_to
from usechat.protocol.values import json_text, json_value
from usechat.server.observers.observer import AppRequest, Observer
from usechat.sources import OpenSession
from usechat.turn import Identity

__all__ = ["SECONDS", "AppCall", "AppRequests", "Elsewhere", "ask_server", "server_named", "unreachable"]

_logger: Final = logging.getLogger("usechat.server")
SECONDS: Final = 30.0
"""How long an MCP server may take."""
_LARGEST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer, as JSON."""
_AT_ONCE: Final = 8
"""How many requests of one person are answered at the same time."""
_MOST_PAGES: Final = 20
"""How many pages of a list are read."""
_NAMES: Final = 200
"""Characters of a name that are reported."""
_TOOL_FAILED: Final = {"content": [{"type": "text", "text": "The tool failed."}], "isError": True}
_RESULT: Final = ("content", "structuredContent", "isError", "_meta")
_RESOURCE: Final = ("uri", "name", "title", "description", "mimeType")
_UI_META: Final = ("csp", "permissions", "prefersBorder", "domain")

_Json = dict[str, Any]
_ServersOf = Callable[[str], Awaitable[Mapping[str, OpenSession]]]


class AppCall(msgspec.Struct, frozen=True):
    """What an app asks of its MCP server."""

    method: Literal["mcp-apps/read-resource", "tools/call", "resources/read", "resources/list"]
    params: dict[str, Any] = {}


class Elsewhere(Protocol):
    """Other processes, which have the agent and its MCP servers."""

    async def ask(self, call: AppCall, server: str | None, identity: Identity) -> bytes:
        """Return the answer to a request, as JSON; raise a ``RequestError`` for one that is refused or fails."""
        ...


class AppRequests:
    """Answers the requests of apps in stored chats.

    ``servers_of`` returns the MCP servers of an agent, by name; ``elsewhere`` is asked for those of agents that are not
    here.
    """

    def __init__(
        self, store: ChatStore, servers_of: _ServersOf, observer: Observer, elsewhere: Elsewhere | None = None
    ) -> None:
        self._store = store
        self._servers_of = servers_of
        self._elsewhere = elsewhere
        self._observer = observer
        self._running: Counter[str] = Counter()

    async def answer(self, body: Any, *, chat_id: str, identity: Identity) -> bytes:
        """Return the answer to a request as JSON; raise a ``RequestError`` for one that is refused or fails."""
        try:
            call = msgspec.convert(body, AppCall)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"not a request of an app: {error}") from None
        server_id, outcome = _text(call.params, "serverId", is_required=False), "failed"
        try:
            with self._counted(identity.subject):
                result = await self._answer(call, server_id, chat_id, identity)
            outcome = "answered"
        except AppRequestFailed:
            raise
        except RequestError:
            outcome = "refused"
            raise
        finally:
            name = str(call.params.get("name") or call.params.get("uri") or "")
            report = AppRequest(
                chat_id=chat_id,
                subject=identity.subject,
                method=call.method,
                server=(server_id or "")[:_NAMES],
                name=name[:_NAMES],
                outcome=outcome,
            )
            self._observer.app_requested(report)
        return result

    @contextmanager
    def _counted(self, subject: str) -> Iterator[None]:
        """Count the requests of a person; raise TooManyRequests if too many of them are being answered."""
        if self._running[subject] >= _AT_ONCE:
            raise TooManyRequests("The apps of your chats ask too much at once. Please try again in a moment.")
        self._running[subject] += 1
        try:
            yield
        finally:
            self._running[subject] -= 1
            if not self._running[subject]:
                del self._running[subject]

    async def _answer(self, call: AppCall, server_id: str | None, chat_id: str, identity: Identity) -> bytes:
        agent, name = await self._called(server_id, chat_id, identity)
        server = server_named(await self._servers_of(agent), name)
        if server is not None:
            return await ask_server(call, server, identity)
        if self._elsewhere is not None:
            return await self._elsewhere.ask(call, name, identity)
        raise unreachable(name, "give ChatApp(mcp_servers=…) a server of this name")

    async def _called(self, server_id: str | None, chat_id: str, identity: Identity) -> tuple[str, str | None]:
        """Return the agent and the server whose tool was called in the chat."""
        called = {
            (agent, app.get("serverId"))
            for agent, message in await self._store.answers(chat_id, owner=identity.subject)
            for app in apps_in([message])
            if server_id is None or app.get("serverId") == server_id
        }
        if not called:
            raise Unprocessable("No app of this MCP server was shown in this chat.")
        if len(called) > 1 and server_id is None:
            raise Unprocessable("Apps of several MCP servers were shown in this chat; name one with params.serverId.")
        return min(called, key=str)


def server_named(servers: Mapping[str, OpenSession], name: str | None) -> OpenSession | None:
    """Return how to reach a server of an agent; a call that names none is of the only one."""
    if name is None:
        return next(iter(servers.values())) if len(servers) == 1 else None
    return servers.get(name)


def unreachable(name: str | None, remedy: str) -> AppRequestFailed:
    """Log that nobody tells of a server, and return the error for the app."""
    _logger.error("an app needs the MCP server %.100r, which the agent does not tell of; %s", name, remedy)
    return AppRequestFailed("The MCP server of this app cannot be reached.")


async def ask_server(call: AppCall, open_session: OpenSession, identity: Identity) -> bytes:
    """Return the answer of an MCP server as JSON; raise a ``RequestError`` for what an app may not ask."""
    try:
        async with asyncio.timeout(SECONDS), open_session(identity) as session:
            result = await _METHODS[call.method](session, call.params)
    except RequestError:
        raise
    except TimeoutError:
        raise AppRequestFailed(f"The MCP server did not answer within {SECONDS:g} seconds.") from None
    except Exception as error:
        if (refusal := _refusal_in(error)) is not None:
            raise refusal from None
        reference = secrets.token_hex(4)
        _logger.exception("an MCP server failed at %s; reference %s", call.method, reference)
        raise AppRequestFailed(f"The MCP server failed; reference {reference}.") from None
    content = await asyncio.to_thread(_encoded, result)
    if len(content) > _LARGEST_ANSWER:
        raise AppRequestFailed(f"The MCP server's answer is larger than {_LARGEST_ANSWER:,} bytes.")
    return content


async def _call_tool(session: Any, params: _Json) -> _Json:
    name, arguments = _text(params, "name"), params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise InvalidRequest("params.arguments must be an object")
    tools = [tool async for tool in _listed(session.list_tools, "tools") if tool.get("name") == name]
    if not any(is_visible_to(tool.get("_meta"), "app") for tool in tools):
        raise Unprocessable(f"The app may not call the tool {name[:_NAMES]!r}.")
    result = _wire(await session.call_tool(name, arguments))
    if result.get("isError"):
        _logger.warning("the tool %s, called by an app, failed: %.1000s", name, result.get("content"))
        return _TOOL_FAILED
    return _only(result, _RESULT)


async def _read_resource(session: Any, params: _Json) -> _Json:
    contents = await _app_contents(session, _uri(params))
    return {"contents": [{**content, "_meta": {"ui": _ui_meta(content)}} for content in contents]}


async def _read_app(session: Any, params: _Json) -> _Json:
    content = (await _app_contents(session, _uri(params)))[0]
    html = content["text"] if "text" in content else base64.b64decode(content["blob"]).decode()
    return {"uri": content["uri"], "mimeType": MIME_TYPE, "html": html, "meta": _ui_meta(content)}


async def _list_resources(session: Any, _params: _Json) -> _Json:
    resources = [resource async for resource in _listed(session.list_resources, "resources")]
    return {"resources": [_only(resource, _RESOURCE) for resource in filter(_is_app, resources)]}


_METHODS: Final[Mapping[str, Callable[[Any, _Json], Awaitable[_Json]]]] = {
    "mcp-apps/read-resource": _read_app,
    "tools/call": _call_tool,
    "resources/read": _read_resource,
    "resources/list": _list_resources,
}


def _text(params: _Json, key: str, *, is_required: bool = True) -> Any:
    value = params.get(key)
    if not isinstance(value, str) and (is_required or value is not None):
        raise InvalidRequest(f"params.{key} must be a text")
    return value


def _uri(params: _Json) -> str:
    uri: str = _text(params, "uri")
    if not uri.startswith(URI_SCHEME):
        raise Unprocessable(f"An app reads only resources that begin with {URI_SCHEME}, not {uri[:_NAMES]!r}.")
    return uri


async def _app_contents(session: Any, uri: str) -> list[_Json]:
    """Return the content of a resource that is an app's."""
    contents = [content for content in _wire(await session.read_resource(uri))["contents"] if _is_app(content)]
    if not contents:
        raise Unprocessable(f"The resource {uri[:_NAMES]!r} is no app: its type is not {MIME_TYPE}.")
    return contents


def _is_app(resource: _Json) -> bool:
    mime_type = str(resource.get("mimeType", "")).replace(" ", "").lower()
    return str(resource.get("uri", "")).startswith(URI_SCHEME) and mime_type == MIME_TYPE


def _ui_meta(content: _Json) -> _Json:
    """Return what a page needs to know of an app: nothing else that the server keeps with it."""
    meta = content.get("_meta")
    ui = meta.get("ui") if isinstance(meta, dict) else None
    if not isinstance(ui, dict):
        return {}
    policy = ui.get("csp")
    safe_policy = {"csp": {key: _sources(value) for key, value in policy.items()}} if isinstance(policy, dict) else {}
    return {**_only(ui, [key for key in _UI_META if key != "csp"]), **safe_policy}


def _sources(value: Any) -> list[str]:
    """Return the sources of a directive, without those that would begin another one."""
    texts = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return [text for text in texts if not any(character in ";,'\"" or character.isspace() for character in text)]


def _only(value: _Json, keys: Iterable[str]) -> _Json:
    return {key: value[key] for key in keys if key in value}


def _wire(result: Any) -> _Json:
    """Return an answer of an MCP client as it is on the wire."""
    value: _Json = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _encoded(result: _Json) -> bytes:
    return json_text(json_value(result)).encode()


async def _listed(listing: Any, key: str) -> AsyncIterator[_Json]:
    """Yield what a server lists, page by page."""
    page = _wire(await listing())
    for _ in range(_MOST_PAGES):
        for entry in page[key]:
            yield entry
        if not page.get("nextCursor"):
            return
        page = _wire(await listing(**_next_page(listing, page["nextCursor"])))


def _next_page(listing: Any, cursor: str) -> _Json:
    """Return the arguments that ask for the next page: a session of ``mcp`` 2 takes parameters, others the cursor."""
    if "params" not in signature(listing).parameters:
        return {"cursor": cursor}
    return {"params": import_module("mcp.types").PaginatedRequestParams(cursor=cursor)}


def _refusal_in(error: BaseException) -> RequestError | None:
    """Return our own refusal, which a session that closes may have put into a group."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_refusal_in, error.exceptions)), None)
    return error if isinstance(error, RequestError) else None
