"""The gateway on a real uvicorn, in front of real session servers, over a directory with people in it."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from examples.agent_ops_session.server import Sessions
from examples.agent_ops_session.server import serving as serving_sessions
from examples.agent_ops_session.session import Dialect, Release, Session
from tests.agent_ops.directories import KINDS, fill, sqlite
from tests.conformance.served import PATIENCE, Served, eventually, serving
from usechat.agent_ops.access.directory import SessionDirectory
from usechat.agent_ops.access.roles import Role
from usechat.agent_ops.app import SESSION_SETTINGS, AgentOpsApp
from usechat.agent_ops.transport import AgentOpsChatTransport
from usechat.runs.memory import MemoryRuns
from usechat.runs.settings import Settings, cancel_after

__all__ = ["PATIENCE", "Gateway", "Upstream", "eventually", "gateway", "upstream"]

T = TypeVar("T")

PEOPLE: Final = ("olivia", "carl", "vera", "stranger")


class Upstream:
    """Session servers, each in its dialect, in a separate thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._servers = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this where the session servers live."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def start(self, dialect: Dialect = "client", release: Release = "early") -> Sessions:
        return self.run(self._servers.enter_async_context(serving_sessions(dialect=dialect, release=release)))

    def publish(self, session: Session, *events: Mapping[str, Any]) -> None:
        """Let the runner of a session say this."""

        async def say() -> None:
            for event in events:
                session.publish(event)

        self.run(say())

    def speak_in_step(self, session: Session, lines: Iterator[str], mebibytes: int) -> int:
        """Let the turn of a prompt `hang` say so many x and end, no faster than it is read; return how many came.

        Whoever is kept from its processor for a moment cannot follow a flood that waits for nobody, and is cut off.
        """
        chunks = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {"))
        turn_id = next(chunk["messageId"] for chunk in chunks if chunk["type"] == "start")
        delta = {"type": "message.part.text-delta", "turnId": turn_id, "delta": "x" * 16 * 1024}
        came: int = 0
        for step in range(1, 4 * mebibytes + 1):
            self.publish(session, *[delta] * 16)
            while came < step * 256 * 1024:
                came += next(chunks).get("delta", "").count("x")
        self.publish(session, {"type": "message.finalize", "turnId": turn_id, "reason": "end_turn"})
        for chunk in chunks:
            came += chunk.get("delta", "").count("x")
        self.run(session.close())
        return came

    def stop(self) -> None:
        self.run(self._servers.aclose())


@contextmanager
def upstream() -> Iterator[Upstream]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = Upstream(loop)
    try:
        yield running
    finally:
        running.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


class Answer(NamedTuple):
    """What a plain HTTP client got."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The named events, with their data; the last frame has no name and is left out."""
        frames = [frame.split("\n") for frame in self.body.split("\n\n") if frame.startswith("event: ")]
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]


class Gateway:
    """A running gateway: one app per upstream, and a token for everybody."""

    def __init__(self, served: Served, tokens: Mapping[str, str], sessions: Mapping[str, Sessions]) -> None:
        self.served = served
        self.tokens = tokens
        self.sessions = sessions

    def path(self, app: str, session_id: str) -> str:
        return f"/{app}/api/sessions/{session_id}/chat"

    def url(self, app: str, session_id: str = "interactive") -> str:
        return f"http://127.0.0.1:{self.served.port}{self.path(app, session_id)}"

    def headers(self, person: str = "carl") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[person]}"}

    def post(self, app: str, text: str, *, session_id: str = "interactive", person: str = "carl") -> Answer:
        """Ask with nothing but HTTP."""
        body = {"id": "plain", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}]}
        connection = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=PATIENCE)
        with closing(connection):
            headers = {"content-type": "application/json", **self.headers(person)}
            connection.request("POST", self.path(app, session_id), json.dumps(body), headers)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read().decode())


class Variant(NamedTuple):
    """How an app of the gateway, and the upstream behind it, differ from the usual."""

    dialect: Dialect = "client"
    release: Release = "early"
    options: Mapping[str, Any] = {}
    settings: Settings = SESSION_SETTINGS
    has_store: bool = False


VARIANTS: Final = {
    "client": Variant(),
    "runner": Variant("runner"),
    "both": Variant("both"),
    "later": Variant(release="later"),
    "impatient": Variant(options={"idle_timeout": 0.3}),
    "kept": Variant(
        has_store=True, settings=msgspec.structs.replace(SESSION_SETTINGS, disconnect=cancel_after(PATIENCE))
    ),
    "approval": Variant(options={"questions": "approval"}),
}


async def _people(url: str, session_ids: tuple[str, ...]) -> dict[str, str]:
    directory = SessionDirectory(url)
    changes = await fill(directory)
    for session_id in session_ids:
        await changes.add(session_id, "olivia", "interactive")
        await changes.switch(session_id, enabled=True)
        await changes.grant(session_id, "carl", Role.COLLABORATOR)
    tokens = {person: await changes.new_token(person) for person in PEOPLE}
    await directory.close()
    return tokens


@contextmanager
def gateway(directory: Path, behind: Upstream, session_ids: tuple[str, ...] = ()) -> Iterator[Gateway]:
    """Serve an app per variant; `nowhere` leads to no upstream, `mute` to one that says nothing."""
    url = sqlite(directory)
    tokens = asyncio.run(_people(url, tuple(set(session_ids) - set(KINDS))))
    sessions = {name: behind.start(variant.dialect, variant.release) for name, variant in VARIANTS.items()}
    apps = {name: _app(sessions[name].url, variant, url) for name, variant in VARIANTS.items()}
    apps["nowhere"] = _app("ws://127.0.0.1:9/api/sessions/{id}/ws?role=client", Variant(), url)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"ws://127.0.0.1:{mute.getsockname()[1]}/{{id}}"
        apps["mute"] = _app(address, Variant(options={"open_timeout": 0.3}), url)
        with serving(apps) as served:
            yield Gateway(served, tokens, sessions)


def _app(address: str, variant: Variant, url: str) -> AgentOpsApp:
    access = SessionDirectory(url)
    return AgentOpsApp(
        AgentOpsChatTransport(address, **variant.options),
        access=access,
        authorize=access.bearer(),
        runs=MemoryRuns() if variant.has_store else None,
        settings=variant.settings,
        enabled=True,
    )
