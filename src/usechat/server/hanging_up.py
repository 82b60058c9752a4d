"""Hanging up: when the server goes, readers are broken off first, so that no open stream keeps the process alive.

uvicorn closes its listening sockets, tells every connection to finish, waits until all have, and only then tells the
app (0.54, ``Server.shutdown``). A stream would hold it up for as long as the agent speaks. The moment between is the
one in which connections are told, so that is where the app is told, too: in every worker, without a signal handler.
"""

from collections.abc import Sequence
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from usechat.server.app import ChatApp

__all__ = ["HangUp", "HangUpProtocol"]

_KEY: Final = "usechat.chats"


class HangUp:
    """An ASGI app that leaves word, in the state that its server keeps for it, whose readers to break off."""

    def __init__(self, app: Any, chats: Sequence[ChatApp]) -> None:
        self._app = app
        self._chats = chats

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan" and "state" in scope:
            scope["state"][_KEY] = self._chats
        await self._app(scope, receive, send)


class HangUpProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # h11 or httptools, as uvicorn chooses
    """uvicorn's HTTP protocol, which breaks off the readers when the server shuts down."""

    def shutdown(self) -> None:
        """Finish; of all connections the first to hear of it hangs up for all."""
        for chats in self.app_state.pop(_KEY, ()):
            chats.break_off()
        super().shutdown()
