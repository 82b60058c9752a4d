"""The errors of usechat that users see, in one tree. The type says whose fault it is, the text what would help.

Those of flows are in :mod:`usechat.open_harness.errors`, those of agent sessions in :mod:`usechat.agent_ops.errors`.

UsechatError
├── ProtocolError                 chunk_type, chunk_id
│   ├── LocalProtocolError        this side asked for something illegal
│   └── RemoteProtocolError       the other side sent something illegal
│       ├── InvalidFrame          bytes that are not server-sent events, or too many of them
│       ├── InvalidJSON           an event whose data no AI SDK client can parse
│       ├── InvalidChunk          JSON that is not a legal chunk (``path`` says where)
│       │   └── UnknownChunkType  a ``type`` that no AI SDK release knows
│       └── UIMessageStreamError  a legal chunk at an illegal moment
├── StreamFailed                  the other side reported a failure (an ``error`` chunk)
├── TransportError                an endpoint gave no answer that a client can read (``url``)
│   ├── ConnectionLost            it cannot be reached, or the connection broke
│   ├── AnswerTimedOut            it sent nothing for too long
│   ├── FileTooLarge              a file exceeds its limits; nothing was sent
│   ├── RequestRefused            it answered with a status that is no success (``status``, ``body``)
│   └── NotAStream                it answered with something that is no UI message stream
├── PublicError                   a failure whose text the user may read
│   └── UnknownOutcome            a process died in a step of an agent function (``step``)
├── RequestError                  status: an HTTP status for the client, and a sentence
│   ├── InvalidRequest            400: not a chat request
│   │   └── AmbiguousLength       400: the request has two lengths
│   ├── Unauthenticated           401: no valid credentials
│   ├── ForeignOrigin             403: a page of another site
│   ├── ChatNotFound              404: no such chat, or somebody else's
│   ├── RequestTimeout            408: the body did not arrive in time
│   ├── ChatBusy                  409: the chat is being answered
│   ├── ChatChanged               409: the chat has another version than the client expects
│   ├── ChatExists                409: an imported chat is there already
│   ├── RequestTooLarge           413: a limit was exceeded
│   ├── Unprocessable             422: contradicts what the server knows
│   ├── TooManyRequests           429: too many answers over one socket, or a quota
│   ├── ClientLeft                499: the client left while its request waited
│   ├── AppRequestFailed          502: the MCP server of an app failed
│   ├── ShuttingDown              503: no new runs
│   ├── StoreUnreachable          503: the run store does not answer
│   ├── AgentUnreachable          503: what runs the agent does not answer
│   ├── TooManyWaiting            503: too many turns wait for an agent process
│   ├── ChatsUnreachable          503: the chat store does not answer
│   └── CannotCheckTokens         503: the token file is broken
├── InvalidMessages               a message history that the AI SDK would refuse
├── UnknownRelease                an ``sdk`` that names no AI SDK release (also a ValueError)
├── InvalidSetting                an argument or option that makes no sense (also a ValueError)
│   ├── InvalidAddress            a URL of the wrong kind
│   ├── UnknownRule               a text that names no ``--auth`` rule
│   └── UnusableKey               a key that cannot check signatures safely
├── CannotAnswer                  an object that cannot answer a chat (also a TypeError)
├── MissingDependency             an optional package is not installed (also an ImportError)
├── UnknownEvent                  an event that its adapter does not know; it is counted and skipped
├── RunLost                       the worker that owned a run has died
├── RunRewritten                  what was read of a run does not hold any more
├── TaskExited                    a task of an agent, or a function such as ``authorize``, called ``sys.exit()``
├── ClaimLost                     a worker may not write to a chat any more: its lease has expired
├── CannotStart                   a command or an app cannot begin; the text says why
│   ├── CannotLoad                the object to serve cannot be imported, or cannot answer
│   ├── CannotServe               options that contradict each other
│   ├── CannotListen              the address is taken or unknown
│   ├── CannotJudge               nothing to check, or it cannot be read
│   ├── UnusableFile              a file that cannot be read, or does not hold what it should
│   ├── UnusableChats             a chat database that cannot be used
│   ├── PageMissing               the chat page was not built
│   └── LibraryMissing            the documentation is not in this installation
├── UnreadableFrame               a WebSocket frame that names no request
└── FalseEncoding                 bytes that are not what ``content-encoding`` says
"""

__all__ = [
    "AgentUnreachable",
    "AmbiguousLength",
    "AnswerTimedOut",
    "AppRequestFailed",
    "CannotAnswer",
    "CannotCheckTokens",
    "CannotJudge",
    "CannotListen",
    "CannotLoad",
    "CannotServe",
    "CannotStart",
    "ChatBusy",
    "ChatChanged",
    "ChatExists",
    "ChatNotFound",
    "ChatsUnreachable",
    "ClaimLost",
    "ClientLeft",
    "ConnectionLost",
    "FalseEncoding",
    "FileTooLarge",
    "ForeignOrigin",
    "InvalidAddress",
    "InvalidChunk",
    "InvalidFrame",
    "InvalidJSON",
    "InvalidMessages",
    "InvalidRequest",
    "InvalidSetting",
    "LibraryMissing",
    "LocalProtocolError",
    "MissingDependency",
    "NotAStream",
    "PageMissing",
    "ProtocolError",
    "PublicError",
    "RemoteProtocolError",
    "RequestError",
    "RequestRefused",
    "RequestTimeout",
    "RequestTooLarge",
    "RunLost",
    "RunRewritten",
    "ShuttingDown",
    "StoreUnreachable",
    "StreamFailed",
    "TaskExited",
    "TooManyRequests",
    "TooManyWaiting",
    "TransportError",
    "UIMessageStreamError",
    "Unauthenticated",
    "UnknownChunkType",
    "UnknownEvent",
    "UnknownOutcome",
    "UnknownRelease",
    "UnknownRule",
    "Unprocessable",
    "UnreadableFrame",
    "UnusableChats",
    "UnusableFile",
    "UnusableKey",
    "UsechatError",
]


class UsechatError(Exception):
    """Base of every error that usechat raises on purpose.

    Catch it to handle all of them; the module's docstring draws the tree below it.

    >>> from usechat import validate_messages
    >>> try:
    ...     validate_messages([])
    ... except UsechatError as error:
    ...     print(error)
    messages must be an array with at least one message, not an empty array
    """


class ProtocolError(UsechatError):
    """A rule of the UI message stream was broken. The subclasses say by which side.

    ``chunk_type`` and ``chunk_id`` name the chunk, if there is one.
    """

    def __init__(self, text: str, *, chunk_type: str | None = None, chunk_id: str | None = None) -> None:
        super().__init__(text)
        self.chunk_type = chunk_type
        self.chunk_id = chunk_id


class LocalProtocolError(ProtocolError):
    """This side asked for something that the protocol forbids: a bug in an adapter, or in the code that calls usechat.

    Raised by ``MessageStream.send``, ``Turn.send`` and ``current_turn``, among others. The text says what would be
    legal; correct the calling code.
    """


class RemoteProtocolError(ProtocolError):
    """The other side sent something that the protocol forbids.

    Raised by ``ChunkDecoder``, ``MessageBuilder`` and the clients. ``usechat check`` explains such a stream in detail.
    """


class InvalidFrame(RemoteProtocolError):
    """Bytes that are not server-sent events in UTF-8, or an event over the size limit.

    Raised by ``ChunkDecoder``; ``maximum_event_bytes`` is the limit.
    """


class InvalidJSON(RemoteProtocolError):
    """An event whose data is not JSON that an AI SDK client accepts. Raised by ``ChunkDecoder``."""


class InvalidChunk(RemoteProtocolError):
    """JSON that is not a legal chunk. Raised by ``ChunkDecoder``.

    ``path`` is the offending key, such as ``$.delta``.
    """

    def __init__(self, text: str, *, chunk_type: str | None = None, path: str = "$") -> None:
        super().__init__(text, chunk_type=chunk_type)
        self.path = path


class UnknownChunkType(InvalidChunk):
    """A chunk whose ``type`` no AI SDK release knows; every client rejects it.

    An application's own data needs a type that begins with ``data-``.
    """


class UIMessageStreamError(RemoteProtocolError):
    """A chunk without its prerequisite, such as a delta of a block that was not started.

    Raised by ``MessageBuilder.receive``. The text is the one that the client of that release shows.
    """


class StreamFailed(UsechatError):
    """The other side ended the turn with an ``error`` chunk; the text is its ``errorText``.

    Raised by ``MessageBuilder.receive`` and by a client's reply. What arrived before it is in the message.
    """


class TransportError(UsechatError):
    """An endpoint gave no answer that a chat client can read; ``url`` is its address.

    Raised by the transports of ``usechat.client``; the subclasses say what happened.
    """

    def __init__(self, text: str, *, url: str) -> None:
        super().__init__(text)
        self.url = url


class ConnectionLost(TransportError):
    """The endpoint cannot be reached, or the connection broke before the end of the answer.

    ``Chat.resume`` reads on if the server keeps its runs.
    """


class AnswerTimedOut(TransportError):
    """The endpoint sent nothing for longer than the transport's ``idle_timeout``, or a tested answer took too long.

    Give a longer one if the agent is silent for long, or let the server send keep-alive comments.
    """


class FileTooLarge(TransportError):
    """The files of a message exceed the limits of the endpoint, so nothing was sent; the text names the limit.

    Send a smaller file, or raise ``Settings.limits`` of the server.
    """


class RequestRefused(TransportError):
    """The endpoint answered with an error status.

    The text is that of the body, as the AI SDK's own client shows it. ``status`` and ``body`` hold what was sent.
    """

    def __init__(self, *, status: int, body: str, url: str) -> None:
        super().__init__(body or "Failed to fetch the chat response.", url=url)
        self.status = status
        self.body = body


class NotAStream(TransportError):
    """The endpoint answered with something that is not a UI message stream; the text says what it was.

    Check the URL: an HTML page, for example, means that it leads to a web page instead of the chat route.
    """


class RequestError(UsechatError):
    """A chat request that cannot be served. The server responds with ``status`` and the text.

    Raise a subclass in ``authorize`` to refuse a request with its status.
    """

    status = 400


class InvalidRequest(RequestError):
    """400: the body is not a chat request. The text says what is wrong and what would be right.

    Raised by ``ChatRequest.parse``.
    """


class AmbiguousLength(InvalidRequest):
    """400: the request has both ``Content-Length`` and ``Transfer-Encoding``, which hides one request in another."""


class RequestTooLarge(RequestError):
    """413: the request exceeds a limit, which the text names. ``Settings.limits`` sets the limits."""

    status = 413


class InvalidMessages(UsechatError):
    """Messages that ``validateUIMessages`` or ``convertToModelMessages`` of the AI SDK rejects.

    Raised by ``validate_messages`` and ``model_messages``. ``path`` is the offending place, such as
    ``messages[0].parts``.
    """

    def __init__(self, text: str, *, path: str = "messages") -> None:
        super().__init__(text)
        self.path = path


class UnknownRelease(UsechatError, ValueError):
    """An ``sdk`` setting that names no AI SDK release; the text lists what is accepted."""


class MissingDependency(UsechatError, ImportError):
    """An optional package is not installed. The text holds the ``pip install`` line that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'usechat[{extra}]'")
        self.name = package


class PublicError(UsechatError):
    """A failure whose text is meant for the user. Raise it in an agent; the page shows its text as it is.

    Every other exception is logged with a reference, and the page shows only that reference.

    >>> raise PublicError("The booking system is closed until 8:00.")
    Traceback (most recent call last):
        ...
    usechat.errors.PublicError: The booking system is closed until 8:00.
    """


class UnknownOutcome(PublicError):
    """A process died while it called the function of a step (``turn.step``); nobody knows whether that took effect.

    ``step`` is the name of the step. Catch it to find out, such as by asking the payment provider.

    >>> raise UnknownOutcome("pay")
    Traceback (most recent call last):
        ...
    usechat.errors.UnknownOutcome: The server was interrupted in the step 'pay'. It is not known whether it took effect.
    """

    def __init__(self, step: str) -> None:
        super().__init__(f"The server was interrupted in the step {step!r}. It is not known whether it took effect.")
        self.step = step


class Unauthenticated(RequestError):
    """401: the request has no valid credentials.

    Raise it in ``authorize`` or in a ``TokenRule``; the client gets the text.
    """

    status = 401


class ForeignOrigin(RequestError):
    """403: a page of another site used a server that is meant for this machine (``LocalPagesOnly``).

    Name the origin (``usechat serve --cors``) if its pages may use the server.
    """

    status = 403


class ChatNotFound(RequestError):
    """404: there is no such chat, or it belongs to somebody else. The client cannot tell the two apart."""

    status = 404


class RequestTimeout(RequestError):
    """408: the body of the request did not arrive within ``Settings.body_timeout``."""

    status = 408


class ChatBusy(RequestError):
    """409: the chat is being answered already, and ``Settings.conflict`` is ``reject``.

    The client can resume the running answer, stop it, or send again when it has ended.
    """

    status = 409


class ChatChanged(RequestError):
    """409: the chat has another version than the one that the client wants to change. Load it and try again."""

    status = 409


class ChatExists(RequestError):
    """409: the store already has a chat with the id of the imported one. Delete that one first, or keep it."""

    status = 409


class Unprocessable(RequestError):
    """422: the request contradicts what the server knows.

    It answers an approval that was not requested, for example, or names a message that is not in the chat.
    """

    status = 422


class TooManyRequests(RequestError):
    """429: too many requests over one WebSocket, or more than ``Settings.quotas`` allows one identity.

    ``retry_after`` is in how many seconds to try again, if that is known.
    """

    status = 429

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ClientLeft(RequestError):
    """499: the client left while its request waited for the chat's running answer to end. Nobody reads the response."""

    status = 499  # nginx's number: no other says it, and nobody reads the response


class ShuttingDown(RequestError):
    """503: the server is shutting down and starts no new runs. Send the request again; another worker answers it."""

    status = 503


class StoreUnreachable(RequestError):
    """503: the run store does not answer, so it is unknown which runs exist.

    The log says why, and what would help.
    """

    status = 503

    def __init__(self) -> None:
        super().__init__("The run store cannot be reached.")


class AgentUnreachable(RequestError):
    """503: what runs the agent does not answer, such as a Temporal server. The log says why."""

    status = 503

    def __init__(self) -> None:
        super().__init__("The agent cannot be reached. Please try again later.")


class TooManyWaiting(RequestError):
    """503: ``RedisTurns.maximum_waiting`` turns wait for an agent process already.

    ``retry_after`` is in how many seconds to try again. More agent processes (``usechat worker``) answer more turns.
    """

    status = 503

    def __init__(self, *, retry_after: float) -> None:
        super().__init__("Too many messages are waiting for an answer. Please try again in a moment.")
        self.retry_after = retry_after


class AppRequestFailed(RequestError):
    """502: the MCP server of an app failed, answered too late or too much, or cannot be reached. The log says why."""

    status = 502


class ChatsUnreachable(RequestError):
    """503: the chat store does not answer. The text names neither its address nor a value; the log says why."""

    status = 503

    def __init__(self) -> None:
        super().__init__("The chat database cannot be reached.")


class CannotCheckTokens(RequestError):
    """503: the file of tokens or keys is broken; the log names it. Every request is refused until it is repaired."""

    status = 503


class InvalidSetting(UsechatError, ValueError):
    """An argument or option that makes no sense. The text says which, and what would be right."""


class InvalidAddress(InvalidSetting):
    """A URL of the wrong kind. The text says which kind would be right."""


class UnknownRule(InvalidSetting):
    """A text that names no ``--auth`` rule.

    Keys are given as files, because every user of a machine can read command lines.
    """


class UnusableKey(InvalidSetting):
    """A key that cannot check signatures, or not safely: too short, private, or of an unknown kind.

    Raised by ``JsonWebTokens``.
    """


class CannotAnswer(UsechatError, TypeError):
    """An object that cannot answer a chat. The text says what could.

    Raised by ``ChatApp``, ``chat_response`` and ``AgentClient`` when they get the object, before any request.
    """


class UnknownEvent(UsechatError):
    """An event that its adapter does not know; ``kind`` is the type it names.

    ``Adapter.feed`` raises it. The event is counted and skipped, and the stream continues.

    >>> UnknownEvent("telepathy").kind
    'telepathy'
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class RunLost(UsechatError):
    """The worker that owned the run has died, or nothing is left of the run. Raised by ``RunStore.read``."""


class RunRewritten(UsechatError):
    """What was read of a run does not hold any more: who reads it must begin again. Raised by ``RunStore.read``."""


class TaskExited(UsechatError):
    """A task of an agent, or a function of the application, raised ``SystemExit`` or ``KeyboardInterrupt``: the cause.

    It is raised in their place, because asyncio would end the whole server. Let tools raise ordinary exceptions. It
    also stands for a ``CancelledError`` of such a function, if nobody cancelled its task.
    """


class ClaimLost(UsechatError):
    """The lease of a worker on a chat has expired, or another worker holds it. Nothing was written.

    ``ChatStore.save``, ``renew`` and ``finish`` raise it: the run must not write to this chat any more.
    """


class CannotStart(UsechatError):
    """A command, or an app under test, cannot start. The text says why, and what would help.

    A command prints the text and exits with code 2.
    """


class CannotLoad(CannotStart):
    """The object to serve cannot be imported, or cannot answer. The cause is the exception of the imported code."""


class CannotServe(CannotStart):
    """Options of a command that contradict each other. The text names them."""


class CannotListen(CannotStart):
    """The address is in use, or does not exist. Choose another one; port 0 takes any that is free."""


class CannotJudge(CannotStart):
    """There is nothing to check, or it cannot be read, or it is too large to check. The text says which."""


class UnusableFile(CannotStart):
    """A file that cannot be read or written, or does not hold what it should. The text names file and line."""


class UnusableChats(CannotStart):
    """The chat database cannot be used, or its tables are old. The text never repeats a password.

    ``usechat chats migrate`` upgrades the tables.
    """


class PageMissing(CannotStart):
    """The chat page was not built into this installation. A wheel has it; in a checkout ``make page`` builds it."""

    def __init__(self) -> None:
        super().__init__("the page is not built; in a checkout `make page` builds it")


class LibraryMissing(CannotStart):
    """The documentation, which the demo searches, is not in this installation. A wheel and a checkout have it."""

    def __init__(self) -> None:
        super().__init__("the documentation is not in this installation; install usechat from a wheel or a checkout")


class UnreadableFrame(UsechatError):
    """A WebSocket frame that cannot be answered, because it names no request. The server closes the socket."""


class FalseEncoding(UsechatError):
    """The bytes of a response are not what its ``content-encoding`` header says. ``usechat check`` reports it."""
