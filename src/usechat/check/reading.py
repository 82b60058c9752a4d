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


def read_url(
    url: str,
    question: ChatQuestion,
    *,
    timeout: float,
    maximum_bytes: int,
) -> Capture:
    """POST a chat request and read the answer until it ends, or until a limit is reached."""
    import httpx2

    answer = _Answer(url, maximum_bytes)
    try:
        asyncio.run(asyncio.wait_for(answer.fetch(question), timeout))
    except TimeoutError:
        answer.unread = f"the stream had not ended after {timeout:g} s"
    except httpx2.InvalidURL as error:
        raise CannotJudge(f"{url} is not a URL: {error}") from None
    except httpx2.HTTPError as error:
        answer.is_broken = True
        answer.failure = str(error) or type(error).__name__
    if answer.status is None:
        raise CannotJudge(f"{url} did not answer: {answer.failure or answer.unread}")
    return answer.capture()


class _Answer:
    """What has come of an answer so far: it is still there when reading is cut short."""

    def __init__(self, url: str, maximum_bytes: int) -> None:
        self._url = url
        self._maximum = maximum_bytes
        self._body = bytearray()
        self._headers: dict[str, str] = {}
        self._arrivals: list[float] = []
        self.status: int | None = None
        self.is_broken = False
        self.unread: str | None = None
        self.failure = ""

    async def fetch(self, question: ChatQuestion) -> None:
        import httpx2

        content = json.dumps(question.to_json()).encode()
        headers = httpx2.Headers(
            [("content-type", "application/json"), ("accept", "*/*"), ("user-agent", "usechat-check")]
        )
        headers.update(dict(question.headers))
        async with httpx2.AsyncClient(timeout=None, follow_redirects=True) as client:  # the caller has the clock
            began = time.monotonic()
            async with client.stream("POST", self._url, content=content, headers=headers) as response:
                self.status = response.status_code
                self._headers = {name.lower(): value for name, value in response.headers.items()}
                async for piece in response.aiter_bytes():
                    self._arrivals.append(time.monotonic() - began)
                    self._body += piece
                    if len(self._body) > self._maximum:
                        self.unread = f"only the first {self._maximum} bytes were read"
                        return

    def capture(self) -> Capture:
        assert self.status is not None
        return Capture(
            name=self._url,
            body=bytes(self._body[: self._maximum]),
            status=self.status,
            headers=self._headers,
            arrivals=tuple(self._arrivals),
            is_broken=self.is_broken,
            unread=self.unread,
        )
