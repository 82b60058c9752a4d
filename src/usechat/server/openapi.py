"""An OpenAPI description of the routes of a chat app, for gateways, client generators and tests."""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from usechat.protocol.releases import NEWEST
from usechat.runs.run import RunState

__all__ = ["openapi"]

Json: TypeAlias = dict[str, Any]

_SENTENCES: Final = {
    400: "The request is not a chat request, or names an unknown release; the text says what is wrong.",
    401: "The request carries no valid credentials.",
    403: "A page of another site uses a server without authentication.",
    404: "There is no such chat, or it belongs to somebody else.",
    408: "The body of the request did not arrive in time.",
    409: "The chat is being answered already, or was changed by somebody else.",
    413: "The request exceeds a limit.",
    422: "The approval was never requested, or for another input, or the chat does not have the message.",
    429: "The sender has exceeded a quota; `Retry-After` says when to try again.",
    502: "The MCP server of an app failed, answered too late or too much, or cannot be reached.",
    503: "The run store, the chat database or the file of tokens cannot be used, or the server is shutting down.",
}
_RUN_ID: Final = {
    "description": "Names the answer: WorkflowChatTransport puts it into the path of its next request after a cut.",
    "schema": {"type": "string"},
}
_START_INDEX: Final = {
    "name": "startIndex",
    "in": "query",
    "description": (
        "The chunk to begin with, where `id` is the `x-workflow-run-id` of an answer, until a minute after its end;"
        " a negative one counts from the last chunk. Such a stream always has an ending: a lone `finish` if there is"
        " nothing to read, an `error` if the answer is not known."
    ),
    "schema": {"type": "integer"},
}
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_STREAM: Final[Json] = {
    "description": "The UI message stream of the AI SDK, one chunk per event.",
    "headers": {"x-vercel-ai-ui-message-stream": {"schema": {"type": "string", "const": "v1"}}},
    "content": {"text/event-stream": {}},
}
_RELEASE: Final = {"type": "string", "examples": ["any", "7", str(NEWEST[7])]}
_NAMES_RELEASE: Final = [
    {"name": "sdk", "in": "query", "description": "The page's AI SDK release.", "schema": _RELEASE},
    {"name": "x-ai-sdk", "in": "header", "description": "The same, as a header.", "schema": _RELEASE},
]
_CHAT: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The chat's id: any text, escaped as a URL needs it.",
    "schema": {"type": "string", "minLength": 1},
}
_REQUEST: Final = {
    "type": "object",
    "description": "What `DefaultChatTransport` posts, with any further keys of the application.",
    "properties": {
        "id": {"type": "string", "description": "The chat's id."},
        "messages": {
            "type": "array",
            "description": "All messages, or the last ones. Only where chats are stored there may be none.",
            "items": {"$ref": "#/components/schemas/UIMessage"},
        },
        "message": {
            "$ref": "#/components/schemas/UIMessage",
            "description": "The last message, instead of `messages`.",
        },
        "trigger": {"type": "string", "enum": ["submit-message", "regenerate-message"]},
        "messageId": {"type": "string"},
        "parentId": {
            "type": ["string", "null"],
            "description": "Where chats are stored: the message before the one that is sent; null if it is the first.",
        },
        "agent": {"type": "string", "description": "Which agent answers, where several are served."},
    },
}
_MESSAGE: Final = {
    "type": "object",
    "required": ["id", "role", "parts"],
    "properties": {
        "id": {"type": "string"},
        "role": {"type": "string", "enum": ["system", "user", "assistant"]},
        "metadata": {},
        "parts": {
            "type": "array",
            "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}},
        },
    },
}
_STATE: Final = {
    "type": "object",
    "required": ["state", "runId", "messageId"],
    "properties": {
        "state": {"type": "string", "enum": [str(state) for state in RunState]},
        "runId": {"type": "string"},
        "messageId": {"type": "string"},
    },
}
_IS_STORED: Final = "With stored chats: "
_IS_SHARED: Final = "With shared chats: "
_TIME: Final = {"type": "string", "format": "date-time"}
_STORED_CHAT: Final = {
    "type": "object",
    "description": "A stored chat.",
    "required": ["id", "title", "createdAt", "updatedAt", "archived", "pinned"],
    "properties": {
        "id": {"type": "string"},
        "title": {"type": "string"},
        "createdAt": _TIME,
        "updatedAt": _TIME,
        "archived": {"type": "boolean"},
        "pinned": {"type": "boolean"},
        "agent": {"type": "string", "description": "The name of the agent that answered last."},
        "shared": {"type": "boolean", "description": "Whether a link lets others read it."},
        "running": {"type": "boolean", "description": "Whether it is being answered."},
        "version": {"type": "integer"},
    },
}
_CHAT_LIST: Final = {
    "type": "object",
    "required": ["chats", "nextCursor", "hasMore"],
    "properties": {
        "chats": {"type": "array", "items": {"$ref": "#/components/schemas/StoredChat"}},
        "nextCursor": {"type": ["string", "null"]},
        "hasMore": {"type": "boolean"},
    },
}
_CHAT_MESSAGES: Final = {
    "type": "object",
    "required": ["messages", "headId", "siblings", "running", "version"],
    "properties": {
        "messages": {
            "type": "array",
            "description": "The current branch; with `tree`, all messages as `{parentId, message}`, parents first.",
            "items": {"type": "object"},
        },
        "headId": {"type": ["string", "null"], "description": "The last message of the branch."},
        "agent": {"type": "string", "description": "The name of the agent that answered last."},
        "siblings": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
        "running": {
            "type": ["object", "null"],
            "description": "The answer that is running: resume to read it. It is not among the messages.",
            "properties": {
                "messageId": {"type": "string"},
                "attempt": {"type": "integer", "description": "More than 1: a process died, another one goes on."},
            },
        },
        "outcomes": {"type": "object", "additionalProperties": {"type": "string"}},
        "createdAt": {"type": "object", "additionalProperties": _TIME},
        "feedback": {"type": "object"},
        "version": {"type": "integer", "description": "That of the chat; the ETag says the same."},
    },
}
_AGENT_LIST: Final = {
    "type": "object",
    "required": ["agents"],
    "properties": {
        "agents": {
            "type": "array",
            "minItems": 1,
            "description": "The first one is the default.",
            "items": {
                "type": "object",
                "required": ["name", "description"],
                "properties": {"name": {"type": "string"}, "description": {"type": "string"}},
            },
        }
    },
}
_COUNT: Final = {"type": "integer", "minimum": 0}
_LIMITS: Final = {
    "type": "object",
    "description": "How much one request may hold. Files are sent as `data:` URLs, a third larger than they are.",
    "required": ["maximumBytes", "maximumFileBytes", "maximumFiles"],
    "properties": {"maximumBytes": _COUNT, "maximumFileBytes": _COUNT, "maximumFiles": _COUNT},
}
_APP_REQUEST: Final = {
    "type": "object",
    "required": ["method"],
    "properties": {
        "method": {
            "type": "string",
            "enum": ["mcp-apps/read-resource", "tools/call", "resources/read", "resources/list"],
        },
        "params": {
            "type": "object",
            "description": "`uri`, or `name` and `arguments`; `serverId` as the app's metadata has it.",
        },
    },
}
_CHANGE: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string"},
        "headId": {"type": "string", "description": "The last message of the branch to show."},
        "archived": {"type": "boolean"},
        "pinned": {"type": "boolean"},
        "version": {"type": "integer", "description": "The version that the page knows; another one is 409."},
    },
}


def openapi(version: str, path: str = "/api/chat") -> Json:
    """Return the OpenAPI 3.1 description of a :class:`~usechat.server.ChatApp` whose page posts to ``path``.

    ``version`` is that of the service, for the field ``info.version``.

    >>> sorted(openapi("1.0")["paths"])[0]
    '/api/agents'
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "usechat", "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": dict(_paths(path)),
        "components": {
            "schemas": {
                "ChatRequest": _REQUEST,
                "UIMessage": _MESSAGE,
                "RunState": _STATE,
                "StoredChat": _STORED_CHAT,
                "ChatList": _CHAT_LIST,
                "ChatMessages": _CHAT_MESSAGES,
                "ChatChange": _CHANGE,
                "AgentList": _AGENT_LIST,
                "Limits": _LIMITS,
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _paths(path: str) -> Iterator[tuple[str, Json]]:
    named = {**_STREAM, "headers": {**_STREAM["headers"], "x-workflow-run-id": _RUN_ID}}
    send = _operation(
        "send", "Start a run and stream it.", {"200": named}, 400, 401, 403, 404, 408, 409, 413, 422, 429, 503
    )
    send["parameters"] = _NAMES_RELEASE
    send["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference("ChatRequest")}}}
    yield path, {"post": send}
    nothing = {"description": "There is no running answer that the caller may see."}
    resume = _operation(
        "resume", "Stream the run from its start.", {"200": _STREAM, "204": nothing}, 400, 401, 403, 503
    )
    yield f"{path}/{{id}}/stream", {"parameters": [_CHAT, *_NAMES_RELEASE, _START_INDEX], "get": resume}
    stop = _operation(
        "stop", "Stop the run. Idempotent.", {"204": {"description": "The run has ended."}}, 401, 403, 404, 503
    )
    yield f"{path}/{{id}}/stop", {"parameters": [_CHAT], "post": stop}
    either = {"anyOf": [_reference("RunState"), _reference("StoredChat")]}
    response = {
        "description": "The last run; where chats are stored, the chat, and beside it the last run, if it is known.",
        "content": {"application/json": {"schema": either}},
    }
    state = _operation("state", "Return the state of the last run.", {"200": response}, 401, 403, 404, 503)
    yield f"{path}/{{id}}", {"parameters": [_CHAT], "get": state, **_changes()}
    yield from _stored_paths(path)
    yield from _describing_paths(path.rpartition("/")[0])
    yield "/healthz", {"get": _open("health", "Report whether the process is alive.")}
    yield (
        "/readyz",
        {"get": _open("readiness", "Report whether the run store and the chat database can be reached.", 503)},
    )
    summary = "Metrics for Prometheus."
    pages = {str(status): {"description": summary, "content": _TEXT} for status in (200, 501)}
    yield "/metrics", {"get": _operation("metrics", summary, pages, 401, 403)}


def _changes() -> Json:
    """Return the operations that change a stored chat."""
    changed = {"description": "The chat.", "content": {"application/json": {"schema": _reference("StoredChat")}}}
    change = _operation(
        "change",
        f"{_IS_STORED}rename, pin or archive the chat, or show another branch.",
        {"200": changed},
        400,
        401,
        403,
        404,
        409,
        422,
        503,
    )
    change["parameters"] = [
        {
            "name": "if-match",
            "in": "header",
            "description": "The ETag of the chat as the page has loaded it, in place of `version`.",
            "schema": {"type": "string"},
        }
    ]
    change["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference("ChatChange")}}}
    responses = {"204": {"description": "The chat and its files are deleted."}}
    return {
        "patch": change,
        "delete": _operation("delete", f"{_IS_STORED}delete the chat.", responses, 401, 403, 404, 503),
    }


def _stored_paths(path: str) -> Iterator[tuple[str, Json]]:
    """Yield the paths that are there where chats are stored."""
    listed = {"description": "A page of the list.", "content": {"application/json": {"schema": _reference("ChatList")}}}
    listing = _operation("list", f"{_IS_STORED}list the user's chats.", {"200": listed}, 400, 401, 403, 404, 503)
    listing["parameters"] = [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
        _query("cursor", {"type": "string"}),
        _query("starting_after", {"type": "string"}),
        _query("q", {"type": "string"}),
        _query("archived", {"type": "string", "enum": ["0", "1", "true", "false"]}),
    ]
    yield f"{path}s", {"get": listing}
    loaded = {
        "description": "The chat.",
        "headers": {"etag": {"description": "The version of the chat.", "schema": {"type": "string"}}},
        "content": {"application/json": {"schema": _reference("ChatMessages")}},
    }
    load = _operation("load", f"{_IS_STORED}load the messages of the chat.", {"200": loaded}, 400, 401, 403, 404, 503)
    load["parameters"] = [_query("tree", {"type": "string", "enum": ["0", "1", "true", "false"]})]
    yield f"{path}/{{id}}/messages", {"parameters": [_CHAT], "get": load}
    document = {"description": "The chat.", "content": {"application/json": {}, "text/markdown": {}}}
    export = _operation("export", f"{_IS_STORED}export the chat.", {"200": document}, 400, 401, 403, 404, 503)
    export["parameters"] = [_query("format", {"type": "string", "enum": ["json", "markdown"]})]
    yield f"{path}/{{id}}/export", {"parameters": [_CHAT], "get": export}
    rate = _operation(
        "rate",
        f"{_IS_STORED}store feedback on a message, any JSON; `null` removes it.",
        {"204": {"description": "It is stored."}},
        400,
        401,
        403,
        404,
        422,
        503,
    )
    rate["requestBody"] = {"required": True, "content": {"application/json": {}}}
    yield (
        f"{path}/{{id}}/messages/{{messageId}}/feedback",
        {"parameters": [_CHAT, {**_CHAT, "name": "messageId", "description": "The message's id."}], "put": rate},
    )
    yield f"{path}/{{id}}/apps", {"parameters": [_CHAT], "post": _app()}
    yield from _shared_paths(path)
    content = {"200": {"description": "The file.", "content": {"*/*": {}}}}
    file = _operation("file", f"{_IS_STORED}return a file of the chat.", content, 401, 403, 404, 503)
    yield (
        f"{path}/{{id}}/files/{{fileId}}",
        {"parameters": [_CHAT, {**_CHAT, "name": "fileId", "description": "The file's id."}], "get": file},
    )


def _app() -> Json:
    """Return the operation of an MCP App."""
    answered = {"description": "What the MCP server answers.", "content": {"application/json": {}}}
    app = _operation(
        "app",
        f"{_IS_STORED}ask the MCP server whose tool has shown an app in the chat, for the app.",
        {"200": answered},
        400,
        401,
        403,
        404,
        413,
        422,
        429,
        502,
        503,
    )
    app["requestBody"] = {"required": True, "content": {"application/json": {"schema": _APP_REQUEST}}}
    return app


def _shared_paths(path: str) -> Iterator[tuple[str, Json]]:
    """Yield the paths that are there where stored chats can be shared."""
    token = {"type": "object", "required": ["token"], "properties": {"token": {"type": "string"}}}
    token_responses = {
        "200": {"description": "The token of the link.", "content": {"application/json": {"schema": token}}}
    }
    revoked = {"204": {"description": "The link no longer works."}}
    share = _operation(
        "share",
        f"{_IS_SHARED}return a token with which everyone can read the chat.",
        token_responses,
        401,
        403,
        404,
        503,
    )
    unshare = _operation("unshare", f"{_IS_SHARED}revoke the token.", revoked, 401, 403, 404, 503)
    yield f"{path}/{{id}}/share", {"parameters": [_CHAT], "put": share, "delete": unshare}
    chat = {
        "type": "object",
        "required": ["title", "messages"],
        "properties": {
            "title": {"type": "string"},
            "messages": {"type": "array", "items": _reference("UIMessage")},
        },
    }
    chat_responses = {"200": {"description": "The chat.", "content": {"application/json": {"schema": chat}}}}
    parameter = {**_CHAT, "name": "token", "description": "The token of the link."}
    beside = path.rpartition("/")[0]
    shared = _operation("shared", f"{_IS_SHARED}read a shared chat.", chat_responses, 404, 503) | {"security": []}
    yield f"{beside}/shared/{{token}}", {"parameters": [parameter], "get": shared}
    content = {"200": {"description": "The file.", "content": {"*/*": {}}}}
    file = _operation("sharedFile", f"{_IS_SHARED}return a file of a shared chat.", content, 404, 503)
    yield (
        f"{beside}/shared/{{token}}/files/{{fileId}}",
        {
            "parameters": [parameter, {**_CHAT, "name": "fileId", "description": "The file's id."}],
            "get": file | {"security": []},
        },
    )


def _describing_paths(beside: str) -> Iterator[tuple[str, Json]]:
    """Yield the paths that describe the server itself."""
    listed = {"description": "The agents.", "content": {"application/json": {"schema": _reference("AgentList")}}}
    yield (
        f"{beside}/agents",
        {"get": _operation("agents", "List the agents that can answer.", {"200": listed}, 401, 403, 404, 503)},
    )
    limits = {"description": "The limits.", "content": {"application/json": {"schema": _reference("Limits")}}}
    yield (
        f"{beside}/limits",
        {"get": _operation("limits", "Return how much one request may hold.", {"200": limits}, 401, 403, 404, 503)},
    )


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "schema": schema}


def _operation(name: str, summary: str, responses: Json, *statuses: int) -> Json:
    refused = {str(status): {"description": _SENTENCES[status], "content": _TEXT} for status in statuses}
    return {"operationId": name, "summary": summary, "responses": responses | refused}


def _open(name: str, summary: str, *statuses: int) -> Json:
    """Return an operation without authentication."""
    responses = {str(status): {"description": summary, "content": _TEXT} for status in (200, *statuses)}
    return {"operationId": name, "summary": summary, "responses": responses, "security": []}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
