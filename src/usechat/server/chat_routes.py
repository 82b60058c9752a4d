"""The routes of stored chats: list, load, change, delete, export, share, feedback and files.

All of them ask the same ``authorize`` rule as the other routes. A chat of somebody else is 404, like one that does not
exist. An app without authentication has neither list nor export: everyone would read the chats of everyone. A chat that
its owner shares can be read by anyone who has the token of the link: those two routes ask no rule.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from usechat.chats.blobs import Blob, stored_file_ids
from usechat.chats.documents import document_json
from usechat.chats.store import ChatStore
from usechat.chats.transaction import ChatRow, Claim
from usechat.chats.view import LoadedChat
from usechat.errors import ChatNotFound, InvalidRequest, StoreUnreachable
from usechat.pauses.states import Mailbox
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.values import READABLE_DEPTH, has_finite_numbers, is_deeper, read_json
from usechat.runs.open_calls import without_signatures
from usechat.runs.turns import AgentMailboxes
from usechat.server.apps import AppRequests
from usechat.server.endpoints import Endpoints
from usechat.server.file_urls import file_urls, shared_file_urls
from usechat.server.hooks import Feedback
from usechat.server.remote_apps import RemoteApps
from usechat.server.requests import CHAT_ID, Action, ChatRoute, chat_key, read_body
from usechat.sources import OpenSession

__all__ = ["ChatRoutes"]

_LARGEST_PAGE: Final = 100
_LARGEST_CHANGE: Final = 64 * 1024
"""Bytes of a body that changes or rates a chat."""
_LONGEST_SEARCH: Final = 1000
"""Characters of a search word; SQLite compares with patterns of at most 50,000 bytes."""
_MEDIA_TYPE: Final = re.compile(r"([\w!#$&^.+-]+/[\w!#$&^.+-]+)\s*(;[^,]*)?", re.ASCII)
"""One media type with its parameters; a browser takes the last of several that a comma separates (WHATWG Fetch)."""
_SHOWN_INLINE: Final = re.compile(r"image/(png|jpeg|gif|webp)|(audio|video)/.+", re.IGNORECASE)
"""The types of files that a browser shows without running anything in them."""


class ChatRoutes:
    """The routes of the chats of one store, beside those of their runs.

    ``path`` is where a page posts to; ``lists`` says whether list, search and export are on, ``shares`` whether chats
    can be shared. ``mcp_servers`` are those that the application gives for the apps of tools.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        store: ChatStore,
        path: str,
        *,
        lists: bool,
        shares: bool,
        mcp_servers: Mapping[str, OpenSession],
    ) -> None:
        self._endpoints = endpoints
        self._store = store
        self._path = path
        self._lists = lists
        self._shares = shares
        self._mcp_servers = mcp_servers
        self._apps = AppRequests(store, self._servers_of, endpoints.observer, _remote_apps(endpoints))

    def beside_chat(self) -> list[BaseRoute]:
        """Return the routes whose paths are longer than that of a chat, which takes any text and comes after them."""
        chat = f"{self._path}/{CHAT_ID}"
        listing = [
            Route(f"{self._path}s", self._answering("list"), methods=["GET"]),
            ChatRoute(f"{chat}/export", self._answering("export"), methods=["GET"]),
        ]
        shared = f"{self._path.rpartition('/')[0]}/shared/{{token}}"
        sharing = [
            ChatRoute(f"{chat}/share", self._answering("share"), methods=["PUT"]),
            ChatRoute(f"{chat}/share", self._answering("unshare"), methods=["DELETE"]),
            Route(shared, self._answering("shared"), methods=["GET"]),
            Route(f"{shared}/files/{{blob_id}}", self._answering("shared_file"), methods=["GET"]),
        ]
        return [
            *(listing if self._lists else []),
            *(sharing if self._shares else []),
            ChatRoute(f"{chat}/apps", self._answering("app"), methods=["POST"]),
            ChatRoute(f"{chat}/messages", self._answering("messages"), methods=["GET"]),
            ChatRoute(f"{chat}/messages/{{message_id}}/feedback", self._answering("feedback"), methods=["PUT"]),
            ChatRoute(f"{chat}/files/{{blob_id}}", self._answering("file"), methods=["GET"]),
        ]

    def of_chat(self) -> list[BaseRoute]:
        """Return the routes of a chat itself."""
        methods = {"state": "GET", "change": "PATCH", "delete": "DELETE"}
        return [
            Route(f"{self._path}/{CHAT_ID}", self._answering(name), methods=[method])
            for name, method in methods.items()
        ]

    def _answering(self, name: str) -> Any:
        handle = getattr(self, f"_{name}")

        async def answer(request: Request) -> Response:
            return await self._endpoints.answer(handle, request)

        return answer

    async def _list(self, request: Request) -> Response:
        identity = await self._endpoints.identify(request, "", "list")
        query = request.query_params
        archived = _flag(query.get("archived"), "archived")
        page = await self._store.list_chats(
            identity.subject,
            limit=_limit(query.get("limit")),
            cursor=query.get("cursor"),
            starting_after=query.get("starting_after"),
            query=_search_word(query.get("q", "")),
            archived=archived,
        )
        chats = [_described(listed.chat, running=listed.running) for listed in page.chats]
        more = page.next_cursor is not None
        return JSONResponse({"chats": chats, "nextCursor": page.next_cursor, "hasMore": more})

    async def _state(self, request: Request) -> Response:
        """Return the chat, and beside it the state of its last run, if that is still known."""
        chat_id, owner = await self._chat(request, "state")
        run_state = await self._endpoints.state_of(request, chat_id)
        entry = await self._store.look_up(chat_id, owner=owner)
        return JSONResponse({**_described(entry.chat, running=entry.running), **run_state})

    async def _messages(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "load")
        files = file_urls(request, self._path, chat_id)
        with_tree = _flag(request.query_params.get("tree"), "tree") or False
        loaded = await self._store.load(chat_id, owner=owner, tree=with_tree)
        claim = loaded.running
        running = claim and {"messageId": await self._running_id(claim), "attempt": claim.attempt}
        messages: list[Any] = [files.write(message) for message in loaded.messages]
        if with_tree:
            messages = [{**row, "message": files.write(row["message"])} for row in loaded.tree]
        return _json({**_loaded(loaded, messages), "running": running}, etag=f'"{loaded.version}"')

    async def _running_id(self, claim: Claim) -> str:
        """Return the id that the stream of an answer has: its agent may have named the message."""
        with contextlib.suppress(StoreUnreachable):
            info = await self._endpoints.manager.latest(chat_key({}, claim.chat_id))
            if info is not None and info.run_id == claim.run_id:
                return info.message_id
        return claim.message_id

    async def _change(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "change")
        body = await self._body(request)
        try:
            change = msgspec.convert(body, _Change)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"not a change of a chat: {error}") from None
        chat = await self._store.change(
            chat_id,
            owner=owner,
            title=change.title,
            pinned=change.pinned,
            archived=change.archived,
            head_id=change.head_id,
            version=change.version if change.version is not None else _version(request.headers.get("if-match")),
        )
        return JSONResponse({**_described(chat, running=None), "version": chat.version})

    async def _delete(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "delete")
        await self._endpoints.stop_run(request, chat_id)
        await self._store.delete(chat_id, owner=owner)
        return Response(status_code=204)

    async def _export(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "export")
        match request.query_params.get("format", "json"):
            case "json":
                document = document_json(await self._store.export(chat_id, owner=owner))
                return Response(document, media_type="application/json", headers=_attached("chat.json"))
            case "markdown":
                text = await self._store.export_markdown(chat_id, owner=owner)
                return PlainTextResponse(text, media_type="text/markdown", headers=_attached("chat.md"))
        raise InvalidRequest("format must be json or markdown")

    async def _feedback(self, request: Request) -> Response:
        chat_id, message_id = str(request.path_params["chat_id"]), request.path_params["message_id"]
        identity = await self._endpoints.identify(request, chat_id, "rate")
        value = await self._body(request)
        await self._store.rate(chat_id, message_id, value, owner=identity.subject)
        feedback = Feedback(chat_id=chat_id, message_id=message_id, value=value, identity=identity)
        await self._endpoints.report_feedback(feedback)
        return Response(status_code=204)

    async def _file(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "file")
        return _file_response(await self._store.file(chat_id, request.path_params["blob_id"], owner=owner))

    async def _app(self, request: Request) -> Response:
        """Answer a request of an MCP App."""
        chat_id = str(request.path_params["chat_id"])
        identity = await self._endpoints.identify(request, chat_id, "app")
        answer = await self._apps.answer(await self._body(request), chat_id=chat_id, identity=identity)
        return Response(answer, media_type="application/json", headers={"cache-control": "no-store"})

    async def _servers_of(self, agent: str) -> Mapping[str, OpenSession]:
        """Return the MCP servers of an agent; those that the application gives have the last word."""
        return {**await self._endpoints.mcp_servers(agent), **self._mcp_servers}

    async def _share(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "share")
        return JSONResponse({"token": await self._store.share(chat_id, owner=owner)})

    async def _unshare(self, request: Request) -> Response:
        chat_id, owner = await self._chat(request, "share")
        await self._store.unshare(chat_id, owner=owner)
        return Response(status_code=204)

    async def _shared(self, request: Request) -> Response:
        """Return a shared chat: its title and messages, and nothing about its owner."""
        token = request.path_params["token"]
        loaded = await self._store.load_shared(token)
        files = shared_file_urls(request, self._path, token)
        messages = [files.write(without_signatures(message)) for message in loaded.messages]
        return _json({"title": loaded.chat.title, "messages": messages})

    async def _shared_file(self, request: Request) -> Response:
        loaded = await self._store.load_shared(request.path_params["token"])
        blob_id = request.path_params["blob_id"]
        if not any(blob_id in stored_file_ids(message) for message in loaded.messages):
            raise ChatNotFound("No such file.")  # a file of another branch is not shared
        return _file_response(await self._store.file(loaded.chat.id, blob_id, owner=None))

    async def _chat(self, request: Request, action: Action) -> tuple[str, str]:
        """Return the chat that the path names, and the caller's identity."""
        chat_id = str(request.path_params["chat_id"])
        identity = await self._endpoints.identify(request, chat_id, action)
        return chat_id, identity.subject

    async def _body(self, request: Request) -> Any:
        settings = self._endpoints.settings
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise InvalidRequest("The content type is not supported; send application/json.")
        body = await read_body(request, _LARGEST_CHANGE, timeout=settings.body_timeout)
        try:
            value = read_json(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            raise InvalidRequest("the body is not JSON") from None
        if is_deeper(value, READABLE_DEPTH):
            raise InvalidRequest(f"the body is nested too deeply: more than {READABLE_DEPTH} levels")
        if not has_finite_numbers(value):
            raise InvalidRequest("the body holds a number that is not finite; the largest is about 1.8e308")
        return value


def _remote_apps(endpoints: Endpoints) -> RemoteApps | None:
    """Return what asks agent processes for apps; ``None`` if the agents are here."""
    queue: object = endpoints.queue
    mailbox = endpoints.store
    if not isinstance(queue, AgentMailboxes) or not isinstance(mailbox, Mailbox):
        return None
    return RemoteApps(queue, mailbox)


def _file_response(blob: Blob) -> Response:
    headers = {
        # A file of a page is untrusted: nothing in it may run in the name of this server.
        "content-security-policy": "default-src 'none'; sandbox",
        "x-content-type-options": "nosniff",
        "cache-control": "private, max-age=31536000, immutable",
    }
    media_type = _MEDIA_TYPE.fullmatch(blob.media_type)
    if media_type is None or _SHOWN_INLINE.fullmatch(media_type[1]) is None:
        headers["content-disposition"] = "attachment"
    return Response(blob.data, media_type=media_type[0] if media_type else "application/octet-stream", headers=headers)


class _Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a PATCH may change; ``version`` is that of the chat as the page knows it."""

    title: str | None = None
    head_id: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    version: int | None = None


def _described(chat: ChatRow, *, running: bool | None) -> dict[str, Any]:
    fields = {
        "id": chat.id,
        "title": chat.title,
        "createdAt": _time(chat.created),
        "updatedAt": _time(chat.updated),
        "archived": chat.archived,
        "pinned": chat.pinned,
        "agent": chat.agent,
        "shared": chat.share is not None,
    }
    return fields if running is None else {**fields, "running": running}


def _loaded(loaded: LoadedChat, messages: list[UIMessage]) -> dict[str, Any]:
    return {
        "messages": messages,
        "headId": loaded.head_id,
        "agent": loaded.chat.agent,
        "siblings": loaded.siblings,
        "outcomes": loaded.outcomes,
        "createdAt": {message_id: _time(created) for message_id, created in loaded.created.items()},
        "feedback": loaded.feedback,
        "version": loaded.version,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(value: Mapping[str, Any], *, etag: str = "") -> Response:
    # Half characters are escaped, which Starlette's own JSON response cannot write.
    content = json.dumps(value, separators=(",", ":")).encode()
    headers = {"cache-control": "no-store", **({"etag": etag} if etag else {})}
    return Response(content, media_type="application/json", headers=headers)


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}


def _limit(text: str | None) -> int:
    if text is None:
        return 20
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _LARGEST_PAGE:
        raise InvalidRequest(f"limit must be a number from 1 to {_LARGEST_PAGE}")
    return int(text)


def _search_word(text: str) -> str:
    if len(text) > _LONGEST_SEARCH:
        raise InvalidRequest(f"q must have at most {_LONGEST_SEARCH} characters")
    return text


def _flag(text: str | None, name: str) -> bool | None:
    if text in (None, ""):
        return None
    if text not in ("0", "1", "true", "false"):
        raise InvalidRequest(f"{name} must be 1 or 0")
    return text in ("1", "true")


def _version(if_match: str | None) -> int | None:
    text = (if_match or "").strip().removeprefix("W/").strip('"')
    if not text or text == "*":
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidRequest("If-Match must be the ETag of a loaded chat")
    return int(text)
