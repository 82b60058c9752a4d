"""Rounds of tools as Genkit servers run and stream them, in all ways that were seen; and the page that answers them.

A scripted upstream: it repeats the wire facts of Go 1.1 to 1.12, npm 1.42 and Python 0.12. A model calls tools once.
Some are interrupted, and the page answers them; then the model speaks.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from tests.genkit.asking import turn, user
from usechat import MessageBuilder, MessageStream, UIMessage
from usechat.genkit.adapter import GenkitAdapter
from usechat.genkit.history import known_calls, resume_of
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowResult
from usechat.turn import Turn

Wire = dict[str, Any]
INTERRUPTED = "interrupted"


class ToolRun(msgspec.Struct, frozen=True):
    """A tool that the model calls; ``output`` is what it returns, unless it is interrupted."""

    name: str
    city: str
    output: Any
    progress: int = 0

    @property
    def input(self) -> Wire:
        return {"city": self.city}


class Upstream(msgspec.Struct, frozen=True):
    """How a server streams.

    - ``refs``: given by the model plugin, added to the result (late: Go 1.4 and newer), or none
    - ``by_completion``: responses come in the order in which tools end (JavaScript, Go 1.1)
    - ``restates``: a tool message restates interrupted requests (agents of JavaScript)
    - ``aggregated``: each chunk holds the whole message so far
    - ``omits``: a pending output ``null`` is left out (JavaScript)
    - ``ignores_falsy``: a pending output such as ``false`` is ignored (JavaScript)
    - ``streams``: the flow streams its requests, and does not only return them
    - ``indexed``: chunks have the index of their message
    """

    refs: Literal["given", "late", "none"]
    by_completion: bool
    restates: bool
    aggregated: bool
    omits: bool
    ignores_falsy: bool
    streams: bool
    indexed: bool


tools = st.builds(
    ToolRun,
    st.sampled_from(["delete", "weather"]),
    st.sampled_from(["Rome", "Paris"]),
    st.sampled_from([INTERRUPTED, INTERRUPTED, None, False, "gone", {"celsius": 4}]),
    st.integers(0, 2),
)
upstreams = st.builds(Upstream, st.sampled_from(["given", "late", "none"]), *[st.booleans()] * 7)


class Round:
    """One round of tools on one server, and what the page shows of it."""

    def __init__(self, runs: list[ToolRun], upstream: Upstream, interrupts: Literal["tool", "approval"]) -> None:
        self.runs = runs
        self.upstream = upstream
        self.interrupts = interrupts
        self.endings = 0
        self.waiting: list[str] = []
        self._ids = map(str, itertools.count(1))
        self._requests = [self._request(index, run) for index, run in enumerate(runs)]

    def _request(self, index: int, run: ToolRun) -> Wire:
        ref = {} if self.upstream.refs == "none" else {"ref": f"uuid-{index}"}
        return {"name": run.name, "input": run.input, **ref}

    @property
    def is_interrupted(self) -> bool:
        return any(run.output == INTERRUPTED for run in self.runs)

    def __repr__(self) -> str:
        return f"Round({self.runs}, {self.upstream}, {self.interrupts!r})"

    # The first answer

    def first(self, order: list[int]) -> UIMessage:
        """Return the message of the first answer; tools end in this order."""
        return self._shown(self._first(order), calls=[], denied=(), message=None)

    def _first(self, order: list[int]) -> Iterator[FlowEvent]:
        streamed = [{"toolRequest": self._as_streamed(request)} for request in self._requests]
        if self.upstream.streams or not self.is_interrupted:
            yield from self._model(0, {"text": "May I?"}, *streamed)
            for index in order:
                for percent in range(self.runs[index].progress):
                    partial = self._response(index, {"percent": percent})
                    yield self._chunk("tool", 1, {**partial, "metadata": {"partial": True}})
        if self.is_interrupted:
            yield from self._interrupted()
            return
        order = order if self.upstream.by_completion else sorted(order)
        yield self._chunk("tool", 1, *(self._response(index, self.runs[index].output) for index in order))
        yield from self._model(2, {"text": "Done."})
        yield _result("stop", {"text": "Done."})

    def _interrupted(self) -> Iterator[FlowEvent]:
        outcomes = [self._outcome(request, run) for request, run in zip(self._requests, self.runs, strict=True)]
        if self.upstream.restates and self.upstream.refs != "late":
            yield FlowChunk({"role": "tool", "content": outcomes})
        yield _result("interrupted", {"text": "May I?"}, *outcomes)

    def _outcome(self, request: Wire, run: ToolRun) -> Wire:
        if run.output == INTERRUPTED:
            return {"toolRequest": request, "metadata": {"interrupt": {"reason": "Sure?"}}}
        is_omitted = run.output is None and self.upstream.omits
        return {"toolRequest": request, "metadata": {} if is_omitted else {"pendingOutput": run.output}}

    def _as_streamed(self, request: Wire) -> Wire:
        return {key: value for key, value in request.items() if key != "ref" or self.upstream.refs == "given"}

    def _response(self, index: int, output: Any) -> Wire:
        request = self._requests[index]
        return {"toolResponse": {key: request[key] for key in ("name", "ref") if key in request} | {"output": output}}

    # The answer of the page, and the rest

    def resumed(self, message: UIMessage, answers: list[Any], order: list[int], *, pending: list[Wire]) -> UIMessage:
        """Return the message after the server resumed; `pending` are its requests as the server finds them."""
        asking = self.turn(message)
        resume = resume_of(asking)
        events = self._rest(answers, order, pending)
        return self._shown(events, known_calls(asking), resume.denied if resume else (), message)

    def _rest(self, answers: list[Any], order: list[int], pending: list[Wire]) -> Iterator[FlowEvent]:
        responses = []
        for index in order if self.upstream.by_completion else sorted(order):
            request = pending[index]["toolRequest"]
            named = {key: request[key] for key in ("name", "ref") if key in request}
            is_pending = "pendingOutput" in pending[index].get("metadata", {})
            metadata = {"metadata": {"source": "pending"}} if is_pending else {}
            responses.append({"toolResponse": {**named, "output": answers[index]}, **metadata})
        yield self._chunk("tool", 0, *responses)
        yield from self._model(1, {"text": "Thanks."})
        yield _result("stop", {"text": "Thanks."})

    def turn(self, message: UIMessage) -> Turn:
        """Return the turn in which the page answers."""
        return turn(user("Do it."), dict(message), pending_calls=frozenset(self.waiting))

    def stored(self) -> list[Wire]:
        """Return the requests of the session, as an agent with a store keeps them."""
        return [self._outcome(request, run) for request, run in zip(self._requests, self.runs, strict=True)]

    def resolve(self, pending: list[Wire], resume: Mapping[str, list[Wire]]) -> list[Any]:
        """Return the answer that Genkit finds for each pending request: the first of its name and ref, if any."""
        return [self._resolved(part, resume) for part in pending]

    def _resolved(self, part: Wire, resume: Mapping[str, list[Wire]]) -> Any:
        metadata, request = part.get("metadata", {}), part["toolRequest"]
        if "pendingOutput" in metadata and (metadata["pendingOutput"] or not self.upstream.ignores_falsy):
            return metadata["pendingOutput"]
        for respond in resume.get("respond", ()):
            if _is_same(respond["toolResponse"], request):
                return respond["toolResponse"]["output"]
        for restart in resume.get("restart", ()):
            if _is_same(restart["toolRequest"], request):
                return f"{restart['toolRequest']['input']['city']}: {restart['metadata']['resumed']['approved']}"
        return "unresolved"

    def _shown(self, events: Iterator[FlowEvent], calls: Any, denied: Any, message: UIMessage | None) -> UIMessage:
        adapter = GenkitAdapter(
            new_id=self._ids.__next__, interrupts=self.interrupts, known=calls, denied=denied, describe=str
        )
        stream, builder = (
            MessageStream(message_id="m", sdk="7", continues=message),
            MessageBuilder(sdk="7", message=message),
        )
        for event in events:
            for part in adapter.feed(event):
                for chunk in stream.send(part):
                    builder.receive(chunk)
        assert adapter.ended
        self.endings += stream.close() == []
        self.waiting = [call.wire_id for call in stream.waiting_calls if call.approval_id is None]
        return builder.message

    def _model(self, index: int, *content: Wire) -> Iterator[FlowEvent]:
        for number in range(len(content)):
            aggregated = self.upstream.aggregated
            pieces = content[: number + 1] if aggregated else content[number : number + 1]
            yield self._chunk("model", index, *pieces, **({"aggregated": True} if aggregated else {}))

    def _chunk(self, role: str, index: int, *content: Wire, **more: Any) -> FlowChunk:
        return FlowChunk(
            {"role": role, "content": list(content), **({"index": index} if self.upstream.indexed else {}), **more}
        )


def _is_same(answer: Wire, request: Wire) -> bool:
    return bool(answer["name"] == request["name"] and answer.get("ref") == request.get("ref"))


def _result(reason: str, *content: Wire) -> FlowResult:
    return FlowResult({"message": {"role": "model", "content": list(content)}, "finishReason": reason})
