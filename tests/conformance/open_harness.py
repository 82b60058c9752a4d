"""Flows for the scenarios of the Open Harness specification, and pages of the real clients that talk to them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.conformance.http_client import Browser, Page, View
from tests.conformance.served import Served, eventually, serving
from tests.open_harness.scripted import Script, ScriptedRuntime, event, flow, recorded
from usechat.open_harness.runtime_protocol import Event
from usechat.open_harness.transport import OpenHarnessChatTransport
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

_numbers = itertools.count(1)
_open_gates: set[tuple[str, str]] = set()


class Stage:
    """Serves scripts: the first word of a message names the one that answers."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.runtimes: dict[str, list[ScriptedRuntime]] = {}
        self._scripts = scripts
        self._stages: dict[str, OpenHarnessChatTransport] = {
            "plain": OpenHarnessChatTransport(self.make),
            "data": OpenHarnessChatTransport(self.make, send_flow_metadata=True, send_node_outputs=True),
            "quiet": OpenHarnessChatTransport(self.make, send_reasoning=False, send_step_markers=False),
            "outputs": OpenHarnessChatTransport(self.make, send_node_outputs=True),
            "named": OpenHarnessChatTransport(self.make, generate_message_id=lambda: f"named-{next(_numbers)}"),
        }
        self.served: Served | None = None

    def make(self, turn: Turn) -> ScriptedRuntime:
        runtime = ScriptedRuntime(self._scripts[turn.text.split()[0]])
        self.runtimes.setdefault(turn.chat_id, []).append(runtime)
        return runtime

    @contextmanager
    def serving(self, **apps: Any) -> Iterator["Stage"]:
        """Serve every variant under its name; a page that leaves stops its flow."""
        settings = Settings(disconnect="cancel")
        chats = {name: ChatApp(transport, settings=settings) for name, transport in self._stages.items()}
        with serving({**chats, **apps}) as served:
            self.served = served
            yield self

    def url(self, app: str) -> str:
        assert self.served is not None
        return self.served.url(app)

    def open(self, browser: Browser, release: str, app: str = "plain", **options: Any) -> "Chat":
        """Open a page with a new chat."""
        chat_id = f"chat-{next(_numbers)}"
        page = browser.open(release, self.url(app), chat_id=chat_id, **options)
        return Chat(self, page, app, chat_id)

    def answer(self, browser: Browser, release: str, script: str, app: str = "plain") -> View:
        """Return how a page looks after a turn."""
        chat = self.open(browser, release, app)
        chat.page.send(script)
        return chat.page.settled()


class Chat:
    """One chat on one page."""

    def __init__(self, stage: Stage, page: Page, app: str, chat_id: str) -> None:
        self.page = page
        self.chat_id = chat_id
        self._stage = stage
        self._app = app

    @property
    def runtime(self) -> ScriptedRuntime:
        """The runtime of the last turn."""
        return self.runtimes[-1]

    @property
    def runtimes(self) -> list[ScriptedRuntime]:
        eventually(lambda: self.chat_id in self._stage.runtimes, "a runtime is made")
        return self._stage.runtimes[self.chat_id]

    def pass_gates(self, *names: str) -> None:
        """Let the script go on behind these."""
        _open_gates.update((self.chat_id, name) for name in names)

    def stop(self) -> None:
        """Stop the answer as a page's stop button does that asks the server."""
        assert self._stage.served is not None
        assert self._stage.served.post(f"/{self._app}/api/chat/{self.chat_id}/stop") == 204


def streamed(*events: Event) -> Script:
    return recorded(*flow(*events))


def gated(*steps: Any) -> Script:
    """Return a script of events, and of gates where there is a name."""

    async def script(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        for step in steps:
            if isinstance(step, str):
                await gate(runtime, step)
            else:
                yield step

    return script


async def gate(runtime: ScriptedRuntime, name: str) -> None:
    """Wait in a script until the test lets it go on."""
    while (runtime.input["chatId"], name) not in _open_gates:  # noqa: ASYNC110 (opened in another thread)
        await asyncio.sleep(0.002)


def shape(message: Any, *keys: str) -> list[Any]:
    """Return what the parts of a message say, without what differs between majors."""
    names = keys or ("type", "text", "state", "input", "output", "errorText", "data")
    return [{key: part[key] for key in names if key in part} for part in message["parts"]]


def last(view: View) -> Any:
    return view["messages"][-1]


def parts_of(view: View, kind: str) -> list[Any]:
    """Return the parts of the last message whose type begins like this."""
    return [part for part in last(view)["parts"] if part["type"].startswith(kind)]


def said_by(view: View) -> list[tuple[str, str]]:
    """Return who said what: the text and reasoning parts with their nodes."""
    return [
        (part["providerMetadata"]["openHarness"]["nodeId"], part["text"])
        for part in last(view)["parts"]
        if part["type"] in ("text", "reasoning")
    ]


def good(view: View) -> bool:
    return (view["status"], view["error"]) == ("ready", None)


def whole_tool(run_id: str, name: str = "search", **fields: Any) -> Event:
    return event("agent:tool", run_id, toolName=name, **{"toolInput": {"q": 1}, "toolOutput": {"hits": 2}, **fields})
