"""Files that are sent as they are: compressed once, with validators for the caches of browsers."""

import gzip
import hashlib
import mimetypes
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

__all__ = ["SAFE_HEADERS", "StaticFile", "files_in", "respond_with", "static_file"]

SAFE_HEADERS: Final = {"referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}


class StaticFile(msgspec.Struct, frozen=True):
    """The content of a file, and the same content compressed."""

    content: bytes
    compressed: bytes
    media_type: str
    etag: str


def static_file(content: bytes, name: str) -> StaticFile:
    """Return a file; its name tells the media type."""
    # mimetypes uses tables of the operating system, where JavaScript may be text/plain.
    media_type = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content, gzip.compress(content, mtime=0), media_type or "application/octet-stream", etag)


def files_in(directory: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield path and file of everything below a directory, such as ``/assets/index.js``; nothing if it is not there."""
    for entry in directory.iterdir() if directory.is_dir() else ():
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from files_in(entry, path)
        else:
            yield path, entry


def respond_with(file: StaticFile, request: Request, headers: Mapping[str, str], *, is_hashed: bool) -> Response:
    """Respond with a file, or with 304 if the browser has it. A file with a hash in its name is cached for a year."""
    response_headers = {
        **SAFE_HEADERS,
        **headers,
        "cache-control": "public, max-age=31536000, immutable" if is_hashed else "no-cache",
        "etag": file.etag,
        "vary": "accept-encoding",
    }
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=response_headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            file.compressed, headers={**response_headers, "content-encoding": "gzip"}, media_type=file.media_type
        )
    return Response(file.content, headers=response_headers, media_type=file.media_type)
