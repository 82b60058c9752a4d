"""A site of built pages beside the chat page: the documentation to which the demo's answers link."""

import asyncio
import base64
import hashlib
import re
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from usechat.server.static_files import SAFE_HEADERS, StaticFile, files_in, respond_with, static_file

__all__ = ["Site"]

_PATH: Final = "/docs"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'{}; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
"""The policy of a page. The scripts in it are named by their hashes; mermaid writes styles into its diagrams."""
_INLINE_SCRIPT: Final = re.compile(
    rb"<script(?![^>]*\b(?:src=|type=\"?application/json))[^>]*>(.*?)</script>", re.DOTALL
)
_HASHED: Final = re.compile(r"\.[0-9a-f]{8}\.min\.(?:js|css)$")


class Site:
    """The files of a built site, served below ``/docs``.

    A browser that opens the source of a page, such as ``/docs/resume.md``, is sent to the page itself.

    Args:
        directory: the built site: a directory per version, and ``versions.json``, whose first version is shown.
    """

    def __init__(self, directory: Traversable) -> None:
        self._files = {f"{_PATH}{path}": file for path, file in files_in(directory)}
        versions = msgspec.json.decode((directory / "versions.json").read_bytes())
        self._pages = f"{_PATH}/{versions[0]['version']}/"
        self._read = lru_cache(maxsize=len(self._files) or 1)(self._read_once)

    async def respond(self, request: Request, path: str) -> Response | None:
        """Respond to a request for a file of the site, or return ``None`` if it has no such file."""
        if path != _PATH and not path.startswith(f"{_PATH}/"):
            return None
        page = self._page_at(path)
        if path != page and page in self._files and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"{request.scope.get('root_path', '')}{page}", 303, SAFE_HEADERS)
        if path not in self._files:
            return None
        file, policy = await asyncio.to_thread(self._read, path)
        is_hashed = _HASHED.search(path) is not None
        return respond_with(file, request, {"content-security-policy": policy}, is_hashed=is_hashed)

    def _page_at(self, path: str) -> str:
        """Return the page to which a path leads: ``/docs`` to the first, a source to its page."""
        name = path.removeprefix(_PATH).removeprefix("/")
        if name in ("", "README.md"):
            return f"{self._pages}index.html"
        return f"{self._pages}{name.removesuffix('.md')}.html" if name.endswith(".md") else path

    def _read_once(self, path: str) -> tuple[StaticFile, str]:
        content = self._files[path].read_bytes()
        hashes = dict.fromkeys(map(_hash, _INLINE_SCRIPT.findall(content))) if path.endswith(".html") else ()
        return static_file(content, path), _POLICY.format("".join(f" '{each}'" for each in hashes))


def _hash(script: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}"
