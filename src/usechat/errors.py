"""Every error usechat raises on purpose, in one tree; blame is in the type.

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
├── RequestError                  status
│   ├── InvalidRequest            400: not a chat request
│   └── RequestTooLarge           413: a limit was exceeded
├── InvalidMessages               a message history that the AI SDK would refuse
├── UnknownRelease                an ``sdk`` that names no AI SDK release
└── MissingDependency             an optional package is not installed (also an ImportError)
"""

__all__ = [
    "InvalidChunk",
    "InvalidFrame",
    "InvalidJSON",
    "InvalidMessages",
    "InvalidRequest",
    "LocalProtocolError",
    "MissingDependency",
    "ProtocolError",
    "RemoteProtocolError",
    "RequestError",
    "RequestTooLarge",
    "StreamFailed",
    "UIMessageStreamError",
    "UnknownChunkType",
    "UnknownRelease",
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


class RequestError(UsechatError):
    """A chat request that cannot be served; ``status`` is the HTTP status that fits."""

    status = 400


class InvalidRequest(RequestError):
    """The body is not a chat request; the text says what is wrong and what would be right."""


class RequestTooLarge(RequestError):
    """The body exceeds a limit; the text names the limit."""

    status = 413


class InvalidMessages(UsechatError):
    """Messages that ``validateUIMessages`` refuses; ``path`` is the offending place."""

    def __init__(self, text: str, *, path: str = "messages") -> None:
        super().__init__(text)
        self.path = path


class UnknownRelease(UsechatError, ValueError):
    """An ``sdk`` setting that names no AI SDK release; the text lists what is accepted."""


class MissingDependency(UsechatError, ImportError):
    """An optional package is missing; the text holds the ``pip install`` line that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'usechat[{extra}]'")
