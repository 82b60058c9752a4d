"""The frames of AI SDK 7's ``WebSocketChatTransport``: what a client asks, and what it is told. All of it is pure.

Source: ``ai`` 7.0.135 to 7.0.169, ``ui/websocket-chat-transport.ts``. One JSON text frame per message, both ways.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from usechat.errors import InvalidRequest, RequestTooLarge, UsechatError
from usechat.requests import ChatRequest, Limits
from usechat.values import json_kind, read_json

__all__ = ["Asked", "Told", "UnreadableFrame", "merge_headers"]

Header: TypeAlias = tuple[bytes, bytes]

_LONGEST_REQUEST_ID: Final = 256
"""The id is repeated in every frame of the answer; the client's own has 16 characters."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, 5.5

_NOT_OF_A_FRAME: Final = re.compile(
    r"accept-charset|accept-encoding|access-control-.*|connection|content-length|cookie2?|date|dnt|expect|host"
    r"|keep-alive|origin|referer|set-cookie|te|trailer|transfer-encoding|upgrade|via|proxy-.*|sec-.*"
    r"|forwarded|x-forwarded-.*|x-real-ip"
)
"""What no page can set on a ``fetch`` (Fetch, forbidden request-header), and what a proxy says about the client."""

_DATA: Final = b"data: "
"""It begins a frame, or stands behind the name of the event; a comment of ours never holds it."""


class UnreadableFrame(UsechatError):
    """A frame that cannot even be answered, because the request that it belongs to is not known."""


class Asked(msgspec.Struct, frozen=True):
    """One frame of a client: ``send``, ``resume`` or ``abort``. What else it holds is read, and judged, on use."""

    type: str
    request_id: str
    size: int
    content: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Asked":
        """Read a frame as far as it takes to answer it; UnreadableFrame if that cannot be."""
        try:
            content = read_json(text)
        except (ValueError, RecursionError):
            raise UnreadableFrame("A frame is not JSON.") from None
        if not isinstance(content, dict):
            raise UnreadableFrame("A frame is not a JSON object.")
        kind, request_id = content.get("type"), content.get("requestId")
        if kind not in ("send", "resume", "abort"):
            raise UnreadableFrame("The type of a frame is send, resume or abort.")
        if not isinstance(request_id, str) or len(request_id) > _LONGEST_REQUEST_ID:
            raise UnreadableFrame(f"The requestId of a frame is a string of up to {_LONGEST_REQUEST_ID} characters.")
        return cls(kind, request_id, len(text.encode("utf-8", "surrogatepass")), content)

    @property
    def chat_id(self) -> str:
        """The chat's id."""
        found = self.content.get("id")
        if not isinstance(found, str):
            raise InvalidRequest(f"the chat id must be a string, not {json_kind(found)}")
        return found

    @property
    def headers(self) -> dict[str, str]:
        """The headers that an HTTP request would have, with their names in lower case."""
        headers = {}
        for name, value in _read_object(self.content, "headers").items():
            lower = name.lower()
            if not isinstance(value, str) or not _NAME.fullmatch(lower) or not _VALUE.fullmatch(value):
                raise InvalidRequest(f"headers: {name[:80]!r} is not a header that HTTP could carry")
            headers[lower] = value
        return headers

    def request(self, limits: Limits) -> ChatRequest:
        """Return the chat request of a ``send``: the one that ``DefaultChatTransport`` would have posted."""
        if self.size > limits.maximum_bytes:
            raise RequestTooLarge(f"The request holds more than {limits.maximum_bytes} bytes.")
        own = {key: self.content[key] for key in ("id", "messages", "trigger", "messageId") if key in self.content}
        return ChatRequest.parse({**_read_object(self.content, "body"), **own}, limits=limits)


def merge_headers(handshake: Sequence[Header], frame: Mapping[str, str]) -> list[Header]:
    """Return the headers of a request that came as a frame: those of the handshake, and the frame's.

    Only ``authorization`` replaces what the handshake said: a page cannot set other headers there, so they are the
    browser's or a proxy's word, which a page must not be able to forge.
    """
    settled = {name for name, _ in handshake} - {b"authorization"}
    added = [
        (name.encode(), value.encode("latin-1"))
        for name, value in frame.items()
        if name.encode() not in settled and not _NOT_OF_A_FRAME.fullmatch(name)
    ]
    replaced = {name for name, _ in added}
    return [*(header for header in handshake if header[0] not in replaced), *added]


class Told:
    """Writes the frames that answer one request, and numbers its chunks."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._before = json.dumps({"type": "chunk", "requestId": request_id}, separators=(",", ":"))[:-1]
        self._next = 0

    def start(self) -> str:
        """There is a stream, and it begins."""
        return self._write("start")

    def chunks(self, frames: bytes) -> list[str]:
        """Return the chunks of server-sent events, as they were encoded there; comments and ``[DONE]`` are left out."""
        found = [data for frame in frames.split(b"\n\n") if (data := frame.partition(_DATA)[2]) and data != b"[DONE]"]
        first, self._next = self._next, self._next + len(found)
        return [
            f'{self._before},"sequence":{number},"chunk":{data.decode()}}}' for number, data in enumerate(found, first)
        ]

    def end(self) -> str:
        """The stream is complete."""
        return self._write("end")

    def no_active(self) -> str:
        """There is nothing to resume."""
        return self._write("no-active")

    def error(self, text: str) -> str:
        """The request is refused; the client shows the text."""
        return self._write("error", errorText=text)

    def _write(self, kind: str, **more: str) -> str:
        return json.dumps({"type": kind, "requestId": self._request_id, **more}, separators=(",", ":"))


def _read_object(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise InvalidRequest(f"{key} must be an object, not {json_kind(found)}")
    return found
