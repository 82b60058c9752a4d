"""What `usechat serve` prints, and the page that it opens, when its server is up.

A server is up when the app in one of its workers has started: a factory may still fail then. So the worker announces
it, not the process that started it. Of several workers, and of those that are restarted, the one that removes a file
announces it.
"""

import sys
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Announcement", "announced"]


class Announcement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text to print, the file that the first worker removes, and the address to open in a browser, if any."""

    text: str
    marker: str
    url: str | None = None

    def make(self) -> None:
        """Print the text and open the page, unless another worker has done so."""
        try:
            Path(self.marker).unlink()
        except FileNotFoundError:
            return
        sys.stdout.write(self.text)
        sys.stdout.flush()
        if self.url is not None:
            webbrowser.open(self.url)


def announced(app: Any, announcement: Announcement) -> Callable[..., Awaitable[None]]:
    """Return an ASGI app that announces its start."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await (app(scope, receive, send) if scope["type"] != "lifespan" else start(scope, receive, send))

    async def start(scope: Any, receive: Any, send: Any) -> None:
        answers: list[str] = []

        async def note(message: Any) -> None:
            answers.append(message["type"])
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                announcement.make()

        try:
            await app(scope, receive, note)
        except Exception:
            if not answers:  # an app without a lifespan: servers serve it nevertheless
                announcement.make()
            raise

    return call
