"""Real Genkit servers on free ports: the npm packages in a Node process, the Python packages behind uvicorn."""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from genkit_fastapi import serve_agent, serve_flow
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.conformance.judge import JudgeError, node_binary
from tests.genkit import scripted

DIRECTORY: Final = Path(__file__).parent / "genkit_node"


class NodeServer:
    """The Node process; it tells what it heard."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self._process = process
        self._port = port

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._port}/{name}"

    def heard(self) -> Any:
        """Return which tools started, which paths were left, and the headers of all requests."""
        with urllib.request.urlopen(self.url("heard")) as response:
            return json.load(response)

    def go(self) -> None:
        """Let the gated model take one step."""
        urllib.request.urlopen(urllib.request.Request(self.url("go"), method="POST")).close()

    def kill(self) -> None:
        self._process.kill()


def reflection_url(directory: Path) -> str:
    """Return the address of the reflection server that a Node process names in a file of its directory."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for file in (directory / ".genkit" / "runtimes").glob("*.json"):
            with contextlib.suppress(json.JSONDecodeError):  # it is being written
                return str(json.loads(file.read_text(encoding="utf-8"))["reflectionServerUrl"])
        time.sleep(0.05)
    raise AssertionError("no reflection server has started")


@contextmanager
def node_server(development: Path | None = None) -> Iterator[NodeServer]:
    """Run the server; with a directory for `development`, with the reflection server that Genkit starts there."""
    if not (DIRECTORY / "node_modules").is_dir():
        raise JudgeError("the npm packages are not installed: run `make install`")
    environment = dict(os.environ)
    if development is not None:
        (development / "package.json").write_text("{}", encoding="utf-8")  # the root of a project, for Genkit
        environment["GENKIT_ENV"] = "dev"
    command = [node_binary(), str(DIRECTORY / "server.mjs")]
    process = subprocess.Popen(command, cwd=development or DIRECTORY, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield NodeServer(process, json.loads(process.stdout.readline())["port"])
    finally:
        process.kill()
        process.communicate()


class Watched:
    """An ASGI app that writes down which paths were left before their answer was complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.left: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complete = False

        async def watched_send(message: Message) -> None:
            nonlocal complete
            complete = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        async def watched_receive() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not complete:
                self.left.append(scope["path"])
            return message

        await self._app(scope, watched_receive, watched_send)


def python_app() -> Watched:
    """The scripted application behind genkit-fastapi."""
    app = FastAPI()
    flows: list[Any] = [
        scripted.chat_flow,
        scripted.conversation,
        scripted.echo,
        scripted.words,
        scripted.statuses,
        scripted.refusing,
    ]
    for flow in flows:
        app.include_router(serve_flow(flow))
    for agent in (scripted.agent, scripted.stateless):
        app.include_router(serve_agent(agent))
    return Watched(app)
