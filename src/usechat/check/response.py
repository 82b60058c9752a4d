"""Check a response apart from its chunks: status, headers, timing, and lines that belong to no event."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from usechat.check.frames import Body, Place
from usechat.check.problems import Finding
from usechat.protocol.ui_messages import UIMessage

__all__ = ["Capture", "body_findings", "header_findings", "pace_findings", "refused"]

_MANY_CHUNKS: Final = 10
_LONG_WAIT: Final = 1.0
_ONE_MOMENT: Final = 0.1
_WRONG_ADDRESS: Final = "Check the address: there is no chat route at this path. The usual path is /api/chat."
_NO_CREDENTIALS: Final = "Send valid credentials, such as the header `Authorization: Bearer …`."
_STATUS_FIXES: Final = {
    401: _NO_CREDENTIALS,
    403: _NO_CREDENTIALS,
    404: _WRONG_ADDRESS,
    405: _WRONG_ADDRESS,
}


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded response, for :func:`check_capture`. Of a file only ``name`` and ``body`` are known.

    ``headers`` have lower-case names; ``None`` means that they are not known, and then they are not checked.
    ``arrivals`` says when pieces of the body arrived: seconds after the request, and the size of the body then.
    ``is_broken`` says that the connection broke before the end of the body, ``has_false_encoding`` that the body is not
    compressed as its header says (``body`` is what could be decoded), and ``unread`` why reading stopped before the
    end, if it did. ``continues`` is the last message of the request: an assistant's message is continued, and its tool
    calls are known.

    >>> Capture(name="a.sse", body=b"data: [DONE]\\n\\n").status
    200
    """

    name: str
    body: bytes
    status: int = 200
    headers: Mapping[str, str] | None = None
    arrivals: tuple[tuple[float, int], ...] = ()
    is_broken: bool = False
    has_false_encoding: bool = False
    unread: str | None = None
    continues: UIMessage | None = None


def refused(capture: Capture) -> Finding | None:
    """Return why clients do not read the body of this response at all; None if they do."""
    if not 200 <= capture.status < 300:
        return Finding("UC001", "", f"the server answers {capture.status}", _STATUS_FIXES.get(capture.status))
    if capture.status in (204, 205):
        return Finding("UC002", "", f"the server answers {capture.status}, which has no body")
    return None


def body_findings(body: Body, *, is_whole: bool) -> Iterator[tuple[Finding, Place]]:
    """Yield the problems of the lines of a stream, each with the line's number and text."""
    if body.ignored_lines:
        number, text = body.ignored_lines[0]
        more = f" (and so do {body.ignored_count - 1} others)" if body.ignored_count > 1 else ""
        yield Finding("UC111", "", f"a line begins with no field of an event{more}"), Place(line=number, chunk=text)
    if body.invalid_lines:
        yield Finding("UC110", "", "there are bytes that are not UTF-8"), Place(line=body.invalid_lines[0])
    if body.has_carriage_returns_alone:
        yield Finding("UC108", "", "lines end with a carriage return alone"), Place(chunk=body.lost)
    elif body.lost and is_whole:
        yield Finding("UC107", "", "no blank line follows the last event"), Place(chunk=body.lost)


def header_findings(headers: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the problems of the headers of a stream."""
    content_type = headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "text/event-stream":
        yield Finding(
            "UC010", "", f'the content type is "{content_type}"' if content_type else "there is no content type"
        )
    if headers.get("x-vercel-ai-ui-message-stream") != "v1":
        yield Finding("UC011", "", "the header x-vercel-ai-ui-message-stream: v1 is missing")
    if not re.search(r"no-cache|no-store", headers.get("cache-control", ""), re.IGNORECASE):
        yield Finding("UC012", "", "no cache-control header tells caches not to store the stream")
    if headers.get("x-accel-buffering", "").strip().lower() != "no":
        yield Finding("UC013", "", "the header x-accel-buffering: no is missing")
    encoding = headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        yield Finding("UC014", "", f"the response is compressed with {encoding}")


def pace_findings(
    arrivals: Sequence[tuple[float, int]], chunk_count: int, first_end: int, last_end: int
) -> Iterator[Finding]:
    """Yield the problems of the timing of a stream whose first and last chunk end at these bytes of the body."""
    if not arrivals or chunk_count < _MANY_CHUNKS:
        return
    first, last = _arrival(arrivals, first_end), _arrival(arrivals, last_end)
    if first >= _LONG_WAIT and last - first <= _ONE_MOMENT:
        text = f"all {chunk_count} chunks came within {last - first:.2f} s, {first:.1f} s after the request"
        yield Finding("UC015", "", text)


def _arrival(arrivals: Sequence[tuple[float, int]], end: int) -> float:
    """Return when the body had reached a size."""
    return next(seconds for seconds, received in arrivals if received >= end)
