"""The suite of the server runs twice: with uvicorn's internals, and over plain ASGI (`USECHAT_TEST_PLAIN_ASGI=1`)."""

import os
from typing import Any, Final

import msgspec
import pytest

from usechat.server.connection import AsgiServer
from usechat.server.endpoints import Endpoints
from usechat.server.settings import Settings
from usechat.server.uvicorn import UvicornServer

__all__ = ["PLAIN_ASGI", "needs_uvicorn_internals", "new_server", "switch_off_internals"]

PLAIN_ASGI: Final = os.environ.get("USECHAT_TEST_PLAIN_ASGI") == "1"

needs_uvicorn_internals: Final = pytest.mark.skipif(
    PLAIN_ASGI, reason="tests what only uvicorn's internals allow; the suite runs over plain ASGI"
)


def new_server() -> AsgiServer:
    """Return what the endpoints of this run of the suite use of the server."""
    return AsgiServer() if PLAIN_ASGI else UvicornServer()


def switch_off_internals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `plain_asgi=True` the default of the setting in this process."""
    make = Endpoints.__init__

    def make_plain(self: Endpoints, answer: Any, *, settings: Settings, **options: Any) -> None:
        make(self, answer, settings=msgspec.structs.replace(settings, plain_asgi=True), **options)

    monkeypatch.setattr(Endpoints, "__init__", make_plain)
