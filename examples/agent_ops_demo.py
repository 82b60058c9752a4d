"""Runs an agent session, the gateway in front of it, and the page: `make demo-agent-ops`.

Session, directory and token are temporary.
"""

import argparse
import asyncio
import contextlib
import shlex
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn

sys.path.insert(0, str(Path(__file__).parent.parent))  # the session server is also an example and not installed

from examples.agent_ops_session.scripts import SCRIPTS
from examples.agent_ops_session.server import serving
from usechat.agent_ops import AgentOpsApp, AgentOpsChatTransport, DirectoryChanges, SessionDirectory
from usechat.errors import PageMissing
from usechat.server import MemoryRuns, PageSettings, WithPage

PATH = "/api/sessions/{session_id}/chat"
BODY = '{"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"tool"}]}]}'


async def make_token(directory: SessionDirectory) -> str:
    changes = DirectoryChanges(directory)
    await changes.migrate()
    await changes.add("demo", "you", "interactive")
    await changes.switch("demo", enabled=True)
    return await changes.new_token("you", days=1)


def gateway_to(address: str, directory: SessionDirectory) -> Any:
    authorize = directory.bearer()
    upstream = AgentOpsChatTransport(address, questions="approval")
    app = AgentOpsApp(upstream, access=directory, authorize=authorize, runs=MemoryRuns(), enabled=True)
    page = PageSettings(
        title="Agent Ops", api=PATH, auth=True, inspector=True, suggestions=("tool", "two tools", "slow", "ask")
    )
    try:
        return WithPage(app, settings=page, authorize=authorize)
    except PageMissing:
        return app


def print_addresses(session: str, url: str, token: str) -> None:
    gateway = f"{url}{PATH.replace('{session_id}', 'demo')}"
    print(f"The session:  {session}")
    print(f"The gateway:  POST {gateway}")
    print(f"The page:     {url}/?session_id=demo")
    print(f"Your token:   {token}")
    print("Without the page:")
    print(f"  curl -N {gateway} -H 'authorization: Bearer {token}' \\")
    print(f"    -H 'content-type: application/json' -d {shlex.quote(BODY)}")
    print(f"Prompts with a script: {', '.join(SCRIPTS)}. Ctrl-C ends the demo.", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Run an agent session and the gateway in front of it.")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    try:
        listener = socket.create_server(("127.0.0.1", options.port))
    except OSError as error:
        parser.error(f"port {options.port} cannot be used: {error.strerror}")
    with listener, TemporaryDirectory() as place:
        directory = SessionDirectory(f"sqlite:///{place}/sessions.db")
        token = await make_token(directory)
        async with serving() as sessions:
            app = gateway_to(sessions.url, directory)
            print_addresses(
                sessions.url.replace("{id}", "demo"), f"http://127.0.0.1:{listener.getsockname()[1]}", token
            )
            await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listener])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
