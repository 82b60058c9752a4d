"""Where streams come from: files, standard input, and URLs that are asked as `useChat` would ask them."""

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from usechat.check.problems import CannotJudge
from usechat.check.response import Capture

__all__ = ["ChatQuestion", "is_url", "read_file", "read_url"]


class ChatQuestion(NamedTuple):
    """What to ask a URL: the user's text, further headers, and keys that are merged into the body."""

    message: str = "Hello!"
    headers: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the body of the request, as `useChat` sends it."""
        message = {"parts": [{"type": "text", "text": self.message}], "id": secrets.token_hex(8), "role": "user"}
        request = {"id": secrets.token_hex(8), "messages": [message], "trigger": "submit-message"}
        return {**request, **self.body}


def is_url(name: str) -> bool:
    """Tell whether an input is to be fetched."""
    return name.startswith(("http://", "https://"))


def read_file(name: str, *, maximum_bytes: int) -> Capture:
    """Read a file, or standard input for ``-``."""
    try:
        if name == "-":
            body = sys.stdin.buffer.read(maximum_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                body = file.read(maximum_bytes + 1)
    except OSError as error:
        raise CannotJudge(f"{name} cannot be read: {error.strerror or error}") from None
    unread = f"only the first {maximum_bytes} bytes were read" if len(body) > maximum_bytes else None
    return Capture(name=name, body=body[:maximum_bytes], unread=unread)


def read_url(url: str, question: ChatQuestion, *, timeout: float, maximum_bytes: int) -> Capture:
    """POST a chat request and read the answer until it ends, or until a limit is reached."""
    answer = _Answer(url, maximum_bytes)
    asyncio.run(answer.read(question, timeout))
    return answer.capture()


class _Answer:
    """What has come of an answer so far: it is still there when reading is cut short."""

    def __init__(self, url: str, maximum_bytes: int) -> None:
        self._url = url
        self._maximum = maximum_bytes
        self._body = bytearray()
        self._headers: dict[str, str] = {}
        self._arrivals: list[float] = []
        self._status: int | None = None
        self._failure: str | None = None
        self._unread: str | None = None

    async def read(self, question: ChatQuestion, seconds: float) -> None:
        import httpx2

        fetching = asyncio.ensure_future(self._fetch(question))
        await asyncio.wait([fetching], timeout=seconds)
        if not fetching.done():
            self._unread = f"the stream had not ended after {seconds:g} s"
            fetching.cancel()
        try:
            await fetching
        except asyncio.CancelledError:
            pass
        except httpx2.InvalidURL as error:
            self._failure = str(error)
        except httpx2.HTTPError as error:
            self._failure = str(error) or type(error).__name__

    async def _fetch(self, question: ChatQuestion) -> None:
        import httpx2

        content = json.dumps(question.to_json()).encode()
        headers = httpx2.Headers(
            [("content-type", "application/json"), ("accept", "*/*"), ("user-agent", "usechat-check")]
        )
        headers.update(dict(question.headers))
        async with httpx2.AsyncClient(timeout=None, follow_redirects=True) as client:  # the caller has the clock
            began = time.monotonic()
            async with client.stream("POST", self._url, content=content, headers=headers) as response:
                self._status = response.status_code
                self._headers = {name.lower(): value for name, value in response.headers.items()}
                async for piece in response.aiter_bytes():
                    self._arrivals.append(time.monotonic() - began)
                    self._body += piece
                    if len(self._body) > self._maximum:
                        self._unread = f"only the first {self._maximum} bytes were read"
                        return

    def capture(self) -> Capture:
        if self._status is None:
            raise CannotJudge(f"{self._url} did not answer: {self._failure or self._unread}")
        return Capture(
            name=self._url,
            body=bytes(self._body[: self._maximum]),
            status=self._status,
            headers=self._headers,
            arrivals=tuple(self._arrivals),
            is_broken=self._failure is not None,
            unread=self._unread,
        )
