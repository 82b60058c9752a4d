"""The command `usechat record`: a proxy between a page and an endpoint that writes what it passes on to a file."""

import argparse
import contextlib
import io
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

from usechat.cli import options as read
from usechat.errors import InvalidSetting, PageMissing, UnusableFile

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Forward the requests of a page to an AI SDK endpoint, and record requests, frames and their times in a file. Let your
page post to the address that is printed, or open the page at that address. Headers that may hold secrets are
forwarded but not recorded. The text of messages is recorded.
"""
_EPILOG: Final = """\
exit code: 2 if the address, the file or the port cannot be used; the error names it.

examples:
  usechat record http://localhost:3000/api/chat -o tour.usechat.jsonl
  usechat serve tour.usechat.jsonl --speed 4
  usechat check tour.usechat.jsonl
"""
_HOST: Final = "127.0.0.1"
_GRACE: Final = 5.0
"""Seconds that answers get to end when the command is interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat record [options] URL -o FILE"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add("url", metavar="URL", help="the endpoint, such as http://localhost:3000/api/chat")
    add("-o", dest="output", required=True, metavar="FILE",
        help="the file to write, such as tour.usechat.jsonl; an existing file is replaced")  # fmt: skip
    add("--port", default=8001, type=read.port, help="the port to listen on; 0 for any free port (default: 8001)")
    add("--path", default="/api/chat", type=read.path, help="the path that the page posts to (default: /api/chat)")
    add("--header", action="append", default=[], metavar="'NAME: VALUE'",
        help="add this header to the requests to the endpoint; repeatable")  # fmt: skip
    add("--cors", action="append", default=[], metavar="ORIGIN",
        help="allow requests of pages from this origin, such as http://localhost:3000; repeatable")  # fmt: skip
    add("--insecure", action="store_true", help="accept every TLS certificate of the endpoint")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Record until the process is interrupted; return the exit code."""
    from usechat.server import uvicorn
    from usechat.server.listening import listen

    _app(options, io.StringIO())  # raises what is wrong with the options before an existing recording is replaced
    [listening] = listen(_HOST, options.port)
    with listening, _opened(options.output) as file:
        app = _app(options, file)
        address = f"http://{_HOST}:{listening.getsockname()[1]}"
        sys.stdout.write(f"usechat records {options.url} at {address}{options.path} in {options.output}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
            uvicorn.run(lambda: app, [listening], uvicorn.ServerOptions(grace=_GRACE))
    return 0


def _opened(path: str) -> IO[str]:
    try:
        return Path(path).open("w", encoding="utf-8")
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror}") from None


def _app(options: Namespace, file: IO[str]) -> Any:
    """Return the recording proxy together with the chat page; only pages of this machine may use it."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    from usechat.client.recording import RecordingProxy, StreamRecorder
    from usechat.client.transport import require_endpoint
    from usechat.server.auth.guard import Guarded
    from usechat.server.auth.origin import LocalPagesOnly
    from usechat.server.cors import with_cors
    from usechat.server.page import PageSettings, WithPage

    require_endpoint(options.url)
    proxy = RecordingProxy(
        options.url,
        StreamRecorder(file, options.url),
        path=options.path,
        headers=read.upstream_headers(options.header, None),
        verify=not options.insecure,
    )

    @contextlib.asynccontextmanager
    async def closing(_app: Starlette) -> AsyncIterator[None]:
        yield
        await proxy.aclose()

    health = Route("/healthz", lambda _request: PlainTextResponse("ok"), methods=["GET"])
    authorize = LocalPagesOnly(options.cors)
    app: Any = Guarded(Starlette(routes=[health, Mount("/", proxy)], lifespan=closing), authorize)
    with contextlib.suppress(PageMissing):
        app = WithPage(
            app, settings=PageSettings(title=options.url, api=options.path, inspector=True), authorize=authorize
        )
    try:
        return with_cors(app, options.cors)
    except InvalidSetting as error:
        raise InvalidSetting(f"--cors: {error}") from None
