"""Every error that usechat raises on purpose, in one tree. The type says whose fault it is, the text what would help.

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
│   ├── RequestRefused            it answered with a status that is no success (``status``, ``body``)
│   └── NotAStream                it answered with something that is no UI message stream
├── PublicError                   a failure whose text the user may read
│   └── Unreachable               a remote flow cannot be reached
├── RequestError                  status: an HTTP status for the client, and a sentence
│   ├── InvalidRequest            400: not a chat request
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
│   ├── ShuttingDown              503: no new runs
│   ├── StoreUnreachable          503: the run store does not answer
│   ├── TooManyWaiting            503: too many turns wait for an agent process
│   ├── ChatsUnreachable          503: the chat store does not answer
│   ├── CannotCheckTokens         503: the token file is broken
│   └── AccessUnknown             503: the session directory does not answer
├── InvalidMessages               a message history that the AI SDK would refuse
├── UnknownRelease                an ``sdk`` that names no AI SDK release (also a ValueError)
├── InvalidSetting                an argument or option that makes no sense (also a ValueError)
│   ├── InvalidAddress            a URL of the wrong kind
│   ├── UnknownRule               a text that names no ``--auth`` rule
│   ├── UnknownAccess             a text that names no ``--access`` rule
│   └── UnusableKey               a key that cannot check signatures safely
├── CannotAnswer                  an object that cannot answer a chat (also a TypeError)
├── InvalidFlow                   a flow file that cannot run (also a ValueError)
├── MissingDependency             an optional package is not installed (also an ImportError)
├── UnknownEvent                  an event that its adapter does not know; it is counted and skipped
├── RunLost                       the worker that owned a run has died
├── TaskExited                    a task that an agent started called ``sys.exit()``
├── ClaimLost                     a worker may not write to a chat any more: its lease has expired
├── CannotStart                   a command or an app cannot begin; the text says why
│   ├── CannotLoad                the object to serve cannot be imported, or cannot answer
│   ├── CannotServe               options that contradict each other
│   ├── CannotListen              the address is taken or unknown
│   ├── CannotJudge               nothing to check, or it cannot be read
│   ├── CannotUseModel            the demo's model is unknown, or lacks something
│   ├── UnusableFile              a file that cannot be read, or does not hold what it should
│   ├── UnusableDirectory         a session database that cannot be used
│   ├── UnusableChats             a chat database that cannot be used
│   ├── PageMissing               the chat page was not built
│   └── LibraryMissing            the documentation is not in this installation
├── NodeError                     a node of a flow failed
│   ├── NodeFailed                its input, its list or the edge into it is at fault
│   ├── NodeTimedOut              it took longer than its policy allows
│   ├── ToolTimedOut              one of its tools took too long
│   ├── AgentFailed               its agent failed (``error_type``)
│   └── ExpressionFailed          a JSONata expression failed
├── NotResumable                  a flow run that has ended, or is running, cannot be started
├── StoreClosed                   a store of flow runs was used after it was closed
├── SessionUnreachable            an agent session's socket could not be opened
├── SessionClosed                 an agent session's socket was closed
├── TooManySockets                an agent session has as many sockets as it may
├── UnreadableFrame               a WebSocket frame that names no request
└── FalseEncoding                 bytes that are not what ``content-encoding`` says
"""

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AccessUnknown",
    "AgentFailed",
    "AnswerTimedOut",
    "CannotAnswer",
    "CannotCheckTokens",
    "CannotJudge",
    "CannotListen",
    "CannotLoad",
    "CannotServe",
    "CannotStart",
    "CannotUseModel",
    "ChatBusy",
    "ChatChanged",
    "ChatExists",
    "ChatNotFound",
    "ChatsUnreachable",
    "ClaimLost",
    "ClientLeft",
    "ConnectionLost",
    "ExpressionFailed",
    "FalseEncoding",
    "ForeignOrigin",
    "InvalidAddress",
    "InvalidChunk",
    "InvalidFlow",
    "InvalidFrame",
    "InvalidJSON",
    "InvalidMessages",
    "InvalidRequest",
    "InvalidSetting",
    "LibraryMissing",
    "LocalProtocolError",
    "MissingDependency",
    "NodeError",
    "NodeFailed",
    "NodeTimedOut",
    "NotAStream",
    "NotResumable",
    "PageMissing",
    "ProtocolError",
    "PublicError",
    "RemoteProtocolError",
    "RequestError",
    "RequestRefused",
    "RequestTimeout",
    "RequestTooLarge",
    "RunLost",
    "SessionClosed",
    "SessionUnreachable",
    "ShuttingDown",
    "StoreClosed",
    "StoreUnreachable",
    "StreamFailed",
    "TaskExited",
    "TooManyRequests",
    "TooManySockets",
    "TooManyWaiting",
    "ToolTimedOut",
    "TransportError",
    "UIMessageStreamError",
    "Unauthenticated",
    "UnknownAccess",
    "UnknownChunkType",
    "UnknownEvent",
    "UnknownRelease",
    "UnknownRule",
    "Unprocessable",
    "Unreachable",
    "UnreadableFrame",
    "UnusableChats",
    "UnusableDirectory",
    "UnusableFile",
    "UnusableKey",
    "UsechatError",
]


class UsechatError(Exception):
    """Base of every error raised on purpose by usechat."""


class ProtocolError(UsechatError):
    """A rule of the UI message stream was broken; the fields say by which chunk."""

    def __init__(self, text: str, *, chunk_type: str | None = None, chunk_id: str | None = None) -> None:
        super().__init__(text)
        self.chunk_type = chunk_type
        self.chunk_id = chunk_id


class LocalProtocolError(ProtocolError):
    """This side asked for something the protocol forbids: a bug in an adapter or in the caller."""


class RemoteProtocolError(ProtocolError):
    """The other side sent something the protocol forbids."""


class InvalidFrame(RemoteProtocolError):
    """Bytes that are not server-sent events in UTF-8, or an event over the size limit."""


class InvalidJSON(RemoteProtocolError):
    """An event whose data is not JSON that an AI SDK client accepts."""


class InvalidChunk(RemoteProtocolError):
    """JSON that is not a legal chunk; ``path`` is the offending key, such as ``$.delta``."""

    def __init__(self, text: str, *, chunk_type: str | None = None, path: str = "$") -> None:
        super().__init__(text, chunk_type=chunk_type)
        self.path = path


class UnknownChunkType(InvalidChunk):
    """A chunk whose ``type`` no AI SDK release knows; every client rejects it."""


class UIMessageStreamError(RemoteProtocolError):
    """A chunk that came without its prerequisite; the text is the one that release's client shows."""


class StreamFailed(UsechatError):
    """The other side ended the turn with an ``error`` chunk; the text is its ``errorText``."""


class TransportError(UsechatError):
    """An endpoint gave no answer that a chat client can read; ``url`` is where it was asked."""

    def __init__(self, text: str, *, url: str) -> None:
        super().__init__(text)
        self.url = url


class ConnectionLost(TransportError):
    """The endpoint cannot be reached, or the connection broke before the end of the answer."""


class AnswerTimedOut(TransportError):
    """The endpoint sent nothing for longer than ``idle_timeout`` allows."""


class RequestRefused(TransportError):
    """The endpoint answered with a status that is no success.

    The text is that of the body, as the AI SDK's own client shows it. ``status`` and ``body`` hold what was sent.
    """

    def __init__(self, *, status: int, body: str, url: str) -> None:
        super().__init__(body or "Failed to fetch the chat response.", url=url)
        self.status = status
        self.body = body


class NotAStream(TransportError):
    """The endpoint answered with something that is no UI message stream; the text says what it was."""


class RequestError(UsechatError):
    """A chat request that cannot be served; ``status`` is the HTTP status that fits."""

    status = 400


class InvalidRequest(RequestError):
    """The body is not a chat request; the text says what is wrong and what would be right."""


class RequestTooLarge(RequestError):
    """The body exceeds a limit; the text names the limit."""

    status = 413


class InvalidMessages(UsechatError):
    """Messages that ``validateUIMessages`` or ``convertToModelMessages`` refuses; ``path`` is the offending place."""

    def __init__(self, text: str, *, path: str = "messages") -> None:
        super().__init__(text)
        self.path = path


class UnknownRelease(UsechatError, ValueError):
    """An ``sdk`` setting that names no AI SDK release; the text lists what is accepted."""


class MissingDependency(UsechatError, ImportError):
    """An optional package is missing; the text holds the ``pip install`` line that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'usechat[{extra}]'")


class PublicError(UsechatError):
    """A failure whose text is meant for the user. Raise it in an agent; the page shows its text as it is.

    Every other exception is logged with a reference, and the page shows only that reference.

    >>> raise PublicError("The booking system is closed until 8:00.")
    Traceback (most recent call last):
        ...
    usechat.errors.PublicError: The booking system is closed until 8:00.
    """


class Unreachable(PublicError):
    """A remote flow could not be reached."""

    def __init__(self) -> None:
        super().__init__("The flow cannot be reached at the moment. Please try again later.")


class Unauthenticated(RequestError):
    """The request carries no valid credentials."""

    status = 401


class ForeignOrigin(RequestError):
    """A page of another site asks a server that is meant for this machine."""

    status = 403


class ChatNotFound(RequestError):
    """There is no such chat, or it belongs to somebody else; the client is not told which."""

    status = 404


class RequestTimeout(RequestError):
    """The body of the request did not arrive in time."""

    status = 408


class ChatBusy(RequestError):
    """The chat is being answered already."""

    status = 409


class ChatChanged(RequestError):
    """The chat has another version than the one that the client wants to change."""

    status = 409


class ChatExists(RequestError):
    """A chat with the id of the imported one is in the store already."""

    status = 409


class Unprocessable(RequestError):
    """The request contradicts what the server knows."""

    status = 422


class TooManyRequests(RequestError):
    """The socket, or the person, asks more than it may; ``retry_after`` is in how many seconds to try again."""

    status = 429

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ClientLeft(RequestError):
    """The client left while its request waited for another answer of the chat to end."""

    status = 499  # nginx's number: no other says it, and nobody reads the response


class ShuttingDown(RequestError):
    """The server is shutting down and starts no new runs."""

    status = 503


class StoreUnreachable(RequestError):
    """The run store does not answer, so it is unknown which runs exist."""

    status = 503

    def __init__(self) -> None:
        super().__init__("The store of runs cannot be reached.")


class TooManyWaiting(RequestError):
    """As many turns wait for an agent process as may; ``retry_after`` is in how many seconds to try again."""

    status = 503

    def __init__(self, *, retry_after: float) -> None:
        super().__init__("Too many questions are waiting for an answer. Please try again in a moment.")
        self.retry_after = retry_after


class ChatsUnreachable(RequestError):
    """The chat store does not answer; the text names neither its address nor a value."""

    status = 503

    def __init__(self) -> None:
        super().__init__("The store of chats cannot be reached.")


class CannotCheckTokens(RequestError):
    """The token file is broken; every request is refused until it is repaired."""

    status = 503


class AccessUnknown(RequestError):
    """The session directory does not answer, so every request is refused."""

    status = 503


class InvalidSetting(UsechatError, ValueError):
    """An argument or option that makes no sense; the text says which and what would be right."""


class InvalidAddress(InvalidSetting):
    """A URL of the wrong kind; the text says which would be right."""


class UnknownRule(InvalidSetting):
    """A text that names no ``--auth`` rule. Keys are given as files, because command lines are public on a machine."""


class UnknownAccess(InvalidSetting):
    """A text that names no ``--access`` rule."""


class UnusableKey(InvalidSetting):
    """A key that cannot check signatures, or not safely."""


class CannotAnswer(UsechatError, TypeError):
    """An object that cannot answer a chat; the text says what could."""


class InvalidFlow(UsechatError, ValueError):
    """A flow that cannot run; ``problems`` holds everything that is wrong with it, and so does the text."""

    def __init__(self, name: str, problems: Sequence[Any]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n".join([f"{name}: {count}", *(f"  {problem}" for problem in problems)]))
        self.problems = tuple(problems)


class UnknownEvent(UsechatError):
    """An event that its adapter does not know; ``kind`` is the type it names.

    ``Adapter.feed`` raises it. The event is counted and skipped, and the stream goes on.

    >>> UnknownEvent("telepathy").kind
    'telepathy'
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class RunLost(UsechatError):
    """The worker that owned the run has died, or nothing is left of the run."""


class TaskExited(UsechatError):
    """A task that an agent started raised ``SystemExit`` or ``KeyboardInterrupt``, the cause of this error."""


class ClaimLost(UsechatError):
    """The lease of a worker on a chat has expired, or another worker holds it: nothing was written."""


class CannotStart(UsechatError):
    """A command, or an app under test, cannot begin; the text says why, and what would help."""


class CannotLoad(CannotStart):
    """The object cannot be imported, or it cannot answer; the cause is the exception of the imported code."""


class CannotServe(CannotStart):
    """Options that contradict each other."""


class CannotListen(CannotStart):
    """The address is taken, or it does not exist."""


class CannotJudge(CannotStart):
    """There is nothing to check, or it cannot be read."""


class CannotUseModel(CannotStart):
    """The model is unknown, or something that it needs is missing."""


class UnusableFile(CannotStart):
    """A file that cannot be read, or does not hold what it should; the text names it."""


class UnusableDirectory(CannotStart):
    """The session database cannot be used; the text never repeats a password."""


class UnusableChats(CannotStart):
    """The chat database cannot be used, or its tables are old; the text never repeats a password."""


class PageMissing(CannotStart):
    """The page was not built into this installation."""

    def __init__(self) -> None:
        super().__init__("the page is not built; in a checkout `make page` builds it")


class LibraryMissing(CannotStart):
    """The documentation is not in this installation."""

    def __init__(self) -> None:
        super().__init__("the documentation is not in this installation; install usechat from a wheel or a checkout")


class NodeError(UsechatError):
    """A node of a flow failed."""


class NodeFailed(NodeError):
    """A node cannot run: its input, its list or the edge into it is at fault."""


class NodeTimedOut(NodeError):
    """A node took longer than its policy allows."""


class ToolTimedOut(NodeError):
    """A tool took longer than its agent allows."""


class AgentFailed(NodeError):
    """An agent failed; ``error_type`` is timeout, rate_limit, auth, network, or what else it was."""

    def __init__(self, error_type: str, text: str) -> None:
        super().__init__(text)
        self.error_type = error_type


class ExpressionFailed(NodeError):
    """A JSONata expression that cannot be read, or that failed on these values."""


class NotResumable(UsechatError):
    """A flow run that has ended, or is running, cannot be started."""


class StoreClosed(UsechatError):
    """A store of flow runs was used after it was closed."""


class SessionUnreachable(UsechatError):
    """The socket of an agent session could not be opened."""


class SessionClosed(UsechatError):
    """The socket of an agent session was closed."""


class TooManySockets(UsechatError):
    """An agent session has as many upstream sockets as it may."""


class UnreadableFrame(UsechatError):
    """A WebSocket frame that cannot be answered, because it names no request."""


class FalseEncoding(UsechatError):
    """The bytes are not what the ``content-encoding`` header says."""
