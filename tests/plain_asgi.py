"""Tests of the server run twice: with uvicorn's internals, and over plain ASGI (`USECHAT_TEST_PLAIN_ASGI=1`).

The switch reaches every server of ours: those of the test process, `usechat serve` and the workers of the tests. Tests
of what only the internals can do run either way: they name `UvicornServer`, or start `uvicorn` as a process of its own.
"""

import os
from typing import Any, Final

import msgspec

from usechat.runs.settings import Settings
from usechat.server.connection import AsgiServer
from usechat.server.endpoints import Endpoints
from usechat.server.uvicorn import UvicornServer

__all__ = ["PLAIN_ASGI", "new_server", "switch_off_internals"]

PLAIN_ASGI: Final = os.environ.get("USECHAT_TEST_PLAIN_ASGI") == "1"


def new_server() -> AsgiServer:
    """Return the server interface that the endpoints of this run of the tests use."""
    return AsgiServer() if PLAIN_ASGI else UvicornServer()


def switch_off_internals() -> None:
    """Give every app that is made in this process the setting `plain_asgi=True`."""
    make = Endpoints.__init__

    def make_plain(self: Endpoints, agent: Any, *, settings: Settings, **options: Any) -> None:
        make(self, agent, settings=msgspec.structs.replace(settings, plain_asgi=True), **options)

    Endpoints.__init__ = make_plain  # type: ignore[method-assign]
