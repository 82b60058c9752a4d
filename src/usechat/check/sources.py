"""Read what is to be checked: a file, standard input, or the answer of a URL to a request as `useChat` sends it."""

import asyncio
import contextlib
import json
import re
import secrets
import sys
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from usechat.certificates import explain_tls
from usechat.check.response import Capture
from usechat.errors import CannotJudge, FalseEncoding

__all__ = [
    "READABLE",
    "ChatQuestion",
    "Decoder",
    "decoder_for",
    "is_url",
    "read_file",
    "read_url",
]

READABLE: Final = "gzip, deflate"
"""The value of accept-encoding: what the standard library decodes on every supported Python."""
_HOST_AND_PORT: Final = re.compile(r"(localhost|[\w.-]+:\d+)(/.*)?")
_PIECE: Final = 256 * 1024
_ONE_ARRIVAL: Final = 0.01
"""Seconds: pieces that arrive within this time are recorded as one, so that a stream of single bytes stays small."""


class ChatQuestion(NamedTuple):
    """The request to send to a URL: the user's text, additional headers, and keys that are merged into the body."""

    message: str = "Hello!"
    headers: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the body of the request, as `useChat` sends it."""
        message = {"parts": [{"type": "text", "text": self.message}], "id": secrets.token_hex(8), "role": "user"}
        request = {"id": secrets.token_hex(8), "messages": [message], "trigger": "submit-message"}
        return {**request, **self.body}


def is_url(name: str) -> bool:
    """Return whether an input is a URL."""
    return name.lower().startswith(("http://", "https://"))


def read_file(name: str) -> Iterator[bytes]:
    """Yield a file, or standard input for ``-``, in pieces. Raises CannotJudge if it cannot be read."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except OSError as error:
        hint = f"; did you mean http://{name}?" if _HOST_AND_PORT.fullmatch(name) else ""
        raise CannotJudge(f"{name} cannot be read: {error.strerror or error}{hint}") from None


def read_url(
    url: str, question: ChatQuestion, *, timeout: float, maximum_bytes: int, insecure: bool = False
) -> Capture:
    """POST a chat request and read the answer to its end, or to a limit. Raises CannotJudge if there is no answer.

    ``insecure`` accepts every certificate.
    """
    received = _Received(url, maximum_bytes, insecure=insecure)
    asyncio.run(received.read(question, timeout))
    return received.capture()


class _Received:
    """The part of an answer that was received so far; it is kept when reading ends early."""

    def __init__(self, url: str, maximum_bytes: int, *, insecure: bool) -> None:
        self._url = url
        self._insecure = insecure
        self._maximum = maximum_bytes
        self._body = bytearray()
        self._headers: dict[str, str] = {}
        self._arrivals: list[tuple[float, int]] = []
        self._status: int | None = None
        self._failure: str | None = None
        self._has_false_encoding = False
        self._unread: str | None = None

    async def read(self, question: ChatQuestion, seconds: float) -> None:
        import httpx2

        fetching = asyncio.ensure_future(self._fetch(question))
        await asyncio.wait([fetching], timeout=seconds)
        if not fetching.done():
            self._unread = f"the server did not end the stream within {seconds:g} s"
            self._failure = f"did not answer within {seconds:g} s"
            fetching.cancel()
        try:
            await fetching
        except asyncio.CancelledError:
            pass
        except (httpx2.InvalidURL, httpx2.HTTPError) as error:
            self._failure = f"did not answer: {explain_tls(str(error) or type(error).__name__)}"
            if "CERTIFICATE_VERIFY_FAILED" in self._failure:
                self._failure += "; --insecure accepts every certificate"

    async def _fetch(self, question: ChatQuestion) -> None:
        import httpx2

        content = json.dumps(question.to_json()).encode()
        headers = httpx2.Headers(
            [
                ("content-type", "application/json"),
                ("accept", "*/*"),
                ("accept-encoding", READABLE),
                ("user-agent", "usechat-check"),
            ]
        )
        headers.update(dict(question.headers))
        # The caller limits the time.
        client = httpx2.AsyncClient(timeout=None, follow_redirects=True, verify=not self._insecure)
        async with client:
            began = time.monotonic()
            async with client.stream("POST", self._url, content=content, headers=headers) as response:
                self._status = response.status_code
                self._headers = {name.lower(): value for name, value in response.headers.items()}
                decoder = decoder_for(self._headers.get("content-encoding", ""))
                if decoder is None:
                    raise CannotJudge(_not_asked_for(self._url, self._headers["content-encoding"]))
                await self._read_body(response.aiter_raw(), decoder, began)

    async def _read_body(self, pieces: AsyncIterator[bytes], decoder: "Decoder", began: float) -> None:
        async for piece in pieces:
            try:
                self._body += decoder.decode(piece, self._maximum + 1 - len(self._body))
            except FalseEncoding:
                self._has_false_encoding = True
                return
            self._note_arrival(time.monotonic() - began)
            if len(self._body) > self._maximum:
                self._unread = f"only the first {self._maximum} bytes were read"
                return

    def _note_arrival(self, seconds: float) -> None:
        if self._arrivals and seconds - self._arrivals[-1][0] < _ONE_ARRIVAL:
            seconds = self._arrivals.pop()[0]
        self._arrivals.append((seconds, len(self._body)))

    def capture(self) -> Capture:
        if self._status is None:
            raise CannotJudge(f"{self._url} {self._failure}")
        return Capture(
            name=self._url,
            body=bytes(self._body[: self._maximum]),
            status=self._status,
            headers=self._headers,
            arrivals=tuple(self._arrivals),
            is_broken=self._failure is not None and self._unread is None,
            has_false_encoding=self._has_false_encoding,
            unread=self._unread,
        )


def _not_asked_for(url: str, encoding: str) -> str:
    return (
        f"{url} compresses its answer with {encoding}, though asked for nothing but {READABLE}; "
        "exempt text/event-stream from compression"
    )


# Content encodings.

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
_ZLIB_METHOD: Final = 8
"""The low half of the first byte of every zlib header (RFC 1950, 2.2); no encoder begins raw deflate with it."""


class Decoder(Protocol):
    """Decodes one content encoding."""

    def decode(self, data: bytes, maximum: int) -> bytes:
        """Take the next bytes and return at most ``maximum`` decoded ones; the rest is dropped."""


def decoder_for(encoding: str) -> Decoder | None:
    """Return a decoder for the value of a content-encoding header; None if it was not requested."""
    match encoding.strip().lower():
        case "" | "identity":
            return _Identity()
        case "gzip" | "x-gzip":
            return _Inflater(_GZIP)
        case "deflate":
            return _Deflate()
        case _:
            return None


class _Identity:
    def decode(self, data: bytes, maximum: int) -> bytes:
        return data[:maximum]


class _Inflater:
    def __init__(self, window_bits: int) -> None:
        self._inflate = zlib.decompressobj(window_bits).decompress

    def decode(self, data: bytes, maximum: int) -> bytes:
        try:
            return self._inflate(data, maximum)
        except zlib.error as error:
            raise FalseEncoding(str(error)) from None


class _Deflate:
    """The encoding `deflate`, with or without the zlib header: some servers leave it out."""

    def __init__(self) -> None:
        self._inflater: _Inflater | None = None

    def decode(self, data: bytes, maximum: int) -> bytes:
        if self._inflater is None and data:
            self._inflater = _Inflater(_ZLIB if data[0] & 0x0F == _ZLIB_METHOD else _RAW_DEFLATE)
        return b"" if self._inflater is None else self._inflater.decode(data, maximum)
