"""The real AI SDK chat clients as pages in a browser: they talk to a URL with the real `fetch`, over real sockets."""

import itertools
import json
import selectors
import subprocess
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self, TypedDict, cast

from tests.conformance.judge import (
    NODE_DIRECTORY,
    RELEASES,
    ErrorDescription,
    FinishFlags,
    Json,
    JudgeError,
    node_binary,
)

NEWEST: Final = tuple(releases[-1] for releases in RELEASES.values())
"""The newest release of each major."""
WITH_APPROVALS: Final = NEWEST[1:]
PATIENCE: Final = 60.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class Request(TypedDict):
    method: str
    url: str
    body: Json
    status: int | None
    """Nothing while there is no answer."""


class View(TypedDict):
    """A page as it stands now."""

    status: str
    error: ErrorDescription | None
    messages: list[Json]
    queued: list[Json]
    """Messages that wait until the answer has ended; the newest releases of 7 have a queue."""
    requests: list[Request]
    data: list[Json]
    """What `onData` was told; transient parts are only here."""
    toolCalls: list[Json]
    finishes: list[FinishFlags]
    calls: int
    """Calls that have not returned."""


class Page:
    """One chat on one page. Calls go on by themselves; `until` and `settled` wait."""

    def __init__(self, browser: "Browser", name: str) -> None:
        self._browser = browser
        self._name = name

    def send(self, text: str) -> None:
        self.call("sendMessage", {"text": text})

    def resume(self) -> None:
        self.call("resumeStream")

    def stop(self) -> None:
        self.call("stop")

    def read(self) -> None:
        """Begin to read: for a page that was opened with `reads=False`."""
        self._browser.ask("read", page=self._name)

    def call(self, method: str, *options: Json) -> None:
        """Call a method of the client, and do not wait for it."""
        self._browser.ask("call", page=self._name, method=method, options=options)

    def look(self) -> View:
        return cast("View", self._browser.ask("look", page=self._name))

    def until(self, condition: Callable[[View], bool]) -> View:
        """Wait until the page looks like this."""
        deadline = monotonic() + PATIENCE
        while not condition(view := self.look()):
            assert monotonic() < deadline, f"the page never looked as expected: {view}"
            sleep(0.01)
        return view

    def until_text(self, text: str) -> View:
        """Wait until the answer so far reads like this."""
        return self.until(lambda view: text_of(view) == text)

    def until_resumed(self) -> View:
        """Wait until the answer to the last resume has begun."""
        resumed = [("GET", 200)]
        return self.until(
            lambda view: [(request["method"], request["status"]) for request in view["requests"][-1:]] == resumed
        )

    def settled(self) -> View:
        """Wait until nothing goes on."""
        return self.until(lambda view: view["calls"] == 0 and view["status"] in ("ready", "error"))

    def answer(self) -> Json:
        """Wait for the end of a good turn and return the assistant's message."""
        view = self.settled()
        assert (view["status"], view["error"]) == ("ready", None)
        return view["messages"][-1]


def text_of(view: View) -> str:
    """Return the text of the last message, if it is the assistant's."""
    last = view["messages"][-1] if view["messages"] else None
    if last is None or last["role"] != "assistant":
        return ""
    return "".join(part["text"] for part in last["parts"] if part["type"] == "text")


def said(role: str, text: str, message_id: str = "user-1") -> Json:
    """Return a message that says this."""
    return {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}


class Browser:
    """A running Node process with any number of pages; use it as a context manager."""

    def __init__(self) -> None:
        if not (NODE_DIRECTORY / "node_modules").is_dir():
            raise JudgeError("the npm packages are not installed: run `make install`")
        self._names = map(str, itertools.count(1))
        self._process = subprocess.Popen(
            [node_binary(), "http.mjs"], cwd=NODE_DIRECTORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(cast("Any", self._process.stdout), selectors.EVENT_READ)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        self._process.kill()
        self._process.communicate()

    def open(
        self,
        release: str,
        url: str,
        *,
        chat_id: str,
        messages: Sequence[Json] = (),
        headers: Mapping[str, str] | None = None,
        automatic: Sequence[str] = (),
        socket: str | None = None,
        reads: bool = True,
        sends: str = "all",
        workflow: bool = False,
        start_index: int = 0,
        queues: bool = False,
    ) -> Page:
        """Open a page of this release; `automatic` (`tools`, `approvals`) says when it posts again by itself.

        Chats that name the same `socket` share one WebSocket, to the URL of the first. With `reads=False` nothing of
        an answer is read before `Page.read`. With `sends="one"` the page posts one message instead of all. With
        `workflow` it goes on by itself after a cut, and resumes at `start_index`. With `queues` a message waits while
        an answer arrives.
        """
        name = next(self._names)
        chat = {"release": release, "url": url, "chatId": chat_id, "messages": list(messages)}
        options: dict[str, Json] = {"automatic": automatic, "socket": socket, "reads": reads, "sends": sends}
        options |= {"workflow": workflow, "startIndex": start_index, "queues": queues}
        self.ask("open", page=name, **chat, headers=headers or {}, **options)
        return Page(self, name)

    def frames(self, socket: str) -> list[Json]:
        """Return what went over a WebSocket, both ways."""
        return cast("list[Json]", self.ask("frames", socket=socket))

    def disconnect(self, socket: str) -> None:
        """Close a WebSocket, as a page that is left does."""
        self.ask("disconnect", socket=socket)

    def ask(self, operation: str, **arguments: Json) -> Json:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": operation, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        if "failure" in answer:
            raise JudgeError(answer["failure"])
        return answer["result"]

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._received:
            if not self._selector.select(PATIENCE):
                raise JudgeError(f"no answer within {PATIENCE} s")
            piece = self._process.stdout.read1()  # type: ignore[attr-defined]
            if not piece:
                raise JudgeError(f"Node ended with code {self._process.wait()}; its last words are on stderr")
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return line
