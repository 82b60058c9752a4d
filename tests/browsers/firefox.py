"""Debian's Firefox, which speaks WebDriver BiDi itself: a socket, with commands and their results as JSON."""

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.browsers.driver import STAGE, Actions, OpenDriver
from tests.conformance.served import PATIENCE, eventually
from tests.deploy.programs import program

_ADDRESS: Final = re.compile(r"WebDriver BiDi listening on (\S+)")
_CALL: Final = "(text) => Promise.resolve(({})(...JSON.parse(text))).then((value) => JSON.stringify(value ?? null))"
"""Values travel as JSON: those of the protocol are trees of their own."""


class Firefox:
    """The connection to a running Firefox."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        answer: dict[str, Any] = {}
        while answer.get("id") != number:
            answer = json.loads(self._socket.recv(PATIENCE))
        assert answer["type"] == "success", answer
        return answer["result"]


class FirefoxTab:
    """A tab of Firefox."""

    def __init__(self, firefox: Firefox, context: str) -> None:
        self._firefox = firefox
        self._context = context

    def navigate(self, url: str) -> None:
        self._send("browsingContext.navigate", url=url, wait="complete")

    def reload(self) -> None:
        self._send("browsingContext.reload", wait="complete")

    def enter_frame(self) -> None:
        tree = self._firefox.send("browsingContext.getTree", root=self._context)
        self._context = tree["contexts"][0]["children"][0]["context"]

    def resize(self, width: int, height: int) -> None:
        self._send("browsingContext.setViewport", viewport={"width": width, "height": height})

    def evaluate(self, function: str, *arguments: Any) -> Any:
        result = self._firefox.send(
            "script.callFunction",
            functionDeclaration=_CALL.format(function),
            arguments=[{"type": "string", "value": json.dumps(arguments)}],
            awaitPromise=True,
            userActivation=False,
            target={"context": self._context},
        )
        assert result["type"] == "success", result["exceptionDetails"]
        return json.loads(result["result"]["value"])

    def perform(self, actions: Actions) -> None:
        self._send("input.performActions", actions=actions)

    def _send(self, method: str, **parameters: Any) -> None:
        self._firefox.send(method, context=self._context, **parameters)


@contextmanager
def running_firefox(directory: Path) -> Iterator[OpenDriver]:
    """Run Firefox, with its files in a directory, until the block ends."""
    path, log = program("firefox-esr", STAGE), directory / "firefox.log"
    options = ("--headless", "--no-remote", "--remote-debugging-port=0", "--profile", str(directory))
    with log.open("wb") as errors:
        process = subprocess.Popen([path, *options], env=os.environ | {"HOME": str(directory)}, stderr=errors)
    try:
        eventually(lambda: _ADDRESS.search(log.read_text()), "Firefox listens")
        [address] = _ADDRESS.findall(log.read_text())
        with connect(f"{address}/session", max_size=None, proxy=None) as socket:
            firefox = Firefox(socket)
            firefox.send("session.new", capabilities={})
            yield partial(_opened, firefox)
    finally:
        process.kill()  # it would take ten seconds to close
        process.wait(PATIENCE)


@contextmanager
def _opened(firefox: Firefox) -> Iterator[FirefoxTab]:
    user = firefox.send("browser.createUserContext")["userContext"]
    context = firefox.send("browsingContext.create", type="tab", userContext=user)["context"]
    yield FirefoxTab(firefox, context)
    firefox.send("browser.removeUserContext", userContext=user)
