"""The addresses of files that are stored with chats: those in messages, and those of shared chats."""

from typing import Final
from urllib.parse import quote

from starlette.datastructures import URL
from starlette.requests import HTTPConnection

from usechat.chats.blobs import FileUrls
from usechat.chats.transaction import Claim

__all__ = ["file_urls", "files_of", "shared_file_urls"]

_SCHEMES: Final = {"ws": "http", "wss": "https"}


def files_of(claim: Claim) -> FileUrls:
    """Return what reads the addresses of a chat's files where no request tells the name of this server."""
    return FileUrls(f"/{quote(claim.chat_id, safe='', errors='surrogatepass')}/files/")


def file_urls(request: HTTPConnection, path: str, chat_id: str) -> FileUrls:
    """Return the addresses of a chat's files: absolute, because the page may be on another origin."""
    return FileUrls(f"{_base(request)}{path}/{quote(chat_id, safe='', errors='surrogatepass')}/files/")


def shared_file_urls(request: HTTPConnection, path: str, token: str) -> FileUrls:
    """Return the addresses of the files of a chat that ``token`` shares; ``path`` is where a page posts to."""
    return FileUrls(f"{_base(request)}{path.rpartition('/')[0]}/shared/{quote(token, safe='')}/files/")


def _base(request: HTTPConnection) -> str:
    """Return the address of the app. Starlette's is that of the outermost app; this one may be mounted below it."""
    scope = request.scope
    scheme = _SCHEMES.get(scope["scheme"], scope["scheme"])
    place = {"scheme": scheme, "path": scope.get("root_path", ""), "query_string": b""}
    return str(URL(scope={**scope, **place})).rstrip("/")
