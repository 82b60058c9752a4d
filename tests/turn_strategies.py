"""Whole turns in which lanes, approvals, questions, client tools, streamed inputs, steps and continuations meet.

Unlike the parts of :mod:`tests.part_strategies`, which collide in every way, these tell a story: each call and each
approval has an id of its own, and each piece of text names its lane, so that it can be found again on the page.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from usechat import parts
from usechat.parts import Part

FEATURES: Final = (
    "approval",
    "approval asked again",
    "approval answered in the turn",
    "approval answered in the next turn",
    "client tool",
    "streamed input",
    "tool of the provider",
    "step",
    "continuation",
)

RUN_BY_SOURCE: Final = "delete"
"""The tool that the source runs, once it is approved: its calls wait for no page unless they ask."""

# Calls of a stored message, as pages, servers and crashes leave them. Only the last step may hold what waits.
_STORED_ANYWHERE: Final[tuple[dict[str, Any], ...]] = (
    {"type": "tool-search", "state": "input-streaming", "input": {"q": "x"}, "rawInput": '{"q":"x'},
    {"type": "dynamic-tool", "toolName": "search", "state": "input-streaming"},
    {"type": "tool-search", "state": "output-available", "input": {}, "output": 1, "preliminary": True},
    {"type": "tool-search", "state": "output-available", "input": {}, "output": 1},
    {"type": "tool-search", "state": "output-error", "input": {}, "errorText": "failed"},
)
_STORED_IN_LAST_STEP: Final[tuple[dict[str, Any], ...]] = (
    {"type": "tool-search", "state": "input-available", "input": {}},
    {"type": "tool-search", "state": "input-available", "input": {}, "providerExecuted": True},
)
_STORED_APPROVALS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "tool-search", "state": "approval-requested", "input": {}},
    {"type": "tool-search", "state": "approval-requested", "input": {}, "providerExecuted": True},
    {"type": "dynamic-tool", "toolName": "search", "state": "approval-requested", "input": {}},
    {"type": "tool-search", "state": "approval-responded", "input": {}, "approval": {"approved": True}},
    {"type": "tool-search", "state": "approval-responded", "input": {}, "approval": {"approved": False}},
)


@dataclass(frozen=True)
class Story:
    """A turn, and perhaps a second one that continues its message after the page answered what waits."""

    first: list[Part]
    second: list[Part] | None = None
    approved: bool = True
    """How the page answers."""
    unanswered: int = 0
    """How many of the open calls the page leaves open, from the last on; a page of AI SDK 5 leaves none."""
    stored: list[dict[str, Any]] | None = None
    """The parts of the message that the first turn continues; a page of AI SDK 5 has none with approvals."""
    features: frozenset[str] = field(default=frozenset(), compare=False)


class _Teller:
    """Draws the actions of lanes, and numbers what must be found again."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.features: set[str] = set()
        self.open_calls: list[tuple[str, str]] = []  # id and lane of calls whose approval is pending
        self._answered: set[str] = set()
        self.running: list[str] = []  # calls that run on over the end of the turn; they ask for no approval any more
        self._number = 0

    def number(self) -> int:
        self._number += 1
        return self._number

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def turn(self, answers: list[list[Part]]) -> list[Part]:
        """Return what 2 to 4 lanes say, interleaved, with what the caller tells in lanes of its own."""
        lanes = self.draw(st.integers(2, 4))
        queues = answers + [self._lane(f"lane{index}") for index in range(lanes)]
        out: list[Part] = []
        while queues := [queue for queue in queues if queue]:
            queue = queues[self.draw(st.integers(0, len(queues) - 1))]
            out.append(queue.pop(0))
        return out

    def _lane(self, lane: str) -> list[Part]:
        actions = st.sampled_from(
            [self._text, self._text, self._server_tool, self._provider_tool, self._client_tool, self._approval,
             self._approval, self._step, self._content, self._provider_approval]
        )  # fmt: skip
        count = self.draw(st.integers(1, 4))
        return [part for _ in range(count) for part in self.draw(actions)(lane)]

    def _text(self, lane: str) -> list[Part]:
        kind = self.draw(st.sampled_from([parts.Text, parts.Text, parts.Text, parts.Reasoning]))
        return [kind(f"<{lane}.{self.number()}>", lane=lane) for _ in range(self.draw(st.integers(1, 2)))]

    def _input(self, call: str, lane: str, *, completed: bool, tool: str = "search") -> list[Part]:
        if self.chance(50):
            return [parts.ToolCall(call, tool, {"q": call}, lane=lane)]
        self.features.add("streamed input")
        pieces: list[Part] = [parts.ToolInputStart(call, tool, lane=lane)]
        pieces += [parts.ToolInputDelta(call, piece, lane=lane) for piece in ('{"q":', f'"{call}"}}')]
        pieces = pieces[: self.draw(st.integers(1, 3))]
        return pieces + ([parts.ToolCall(call, tool, {"q": call}, lane=lane)] if completed else [])

    def _server_tool(self, lane: str) -> list[Part]:
        call = f"call{self.number()}"
        return [*self._input(call, lane, completed=self.chance(90)), *self.outcome(call, lane)]

    def _provider_tool(self, lane: str) -> list[Part]:
        self.features.add("tool of the provider")
        call = f"call{self.number()}"
        tool_call = parts.ToolCall(call, "search", {"q": call}, provider_executed=True, lane=lane)
        return [tool_call, *(self.outcome(call, lane) if self.chance(60) else [])]

    def outcome(self, call: str, lane: str) -> list[Part]:
        """Return what comes of a call."""
        interim = [parts.ToolResult(call, "so far", preliminary=True, lane=lane)] if self.chance(15) else []
        outcomes: list[list[Part]] = [
            [parts.ToolResult(call, "done", lane=lane)],
            [parts.ToolResult(call, "done", lane=lane)],
            [parts.ToolError(call, "failed", lane=lane)],
            [parts.ToolDenied(call, lane=lane)],
        ]
        return [*interim, *self.draw(st.sampled_from(outcomes))]

    def _client_tool(self, lane: str) -> list[Part]:
        self.features.add("client tool")
        return self._input(f"call{self.number()}", lane, completed=True)

    def _approval(self, lane: str) -> list[Part]:
        call = f"call{self.number()}"
        return [*self._input(call, lane, completed=self.chance(60), tool=RUN_BY_SOURCE), *self.asked(call, lane)]

    def asked(self, call: str, lane: str) -> list[Part]:
        """Return the requests for the approval of a call, and what comes of them in this turn."""
        self.features.add("approval")
        interim: list[Part] = []
        if self.chance(15):
            self.features.add("retraction")
            interim = [parts.ToolResult(call, "so far", preliminary=True, lane=lane)]
        approval_ids = [f"ask{self.number()}"]
        if self.chance(35):
            self.features.add("approval asked again")
            approval_ids.append(f"ask{self.number()}")
        requests = [parts.ApprovalRequest(approval, call, lane=lane) for approval in approval_ids]
        answers: list[Part] = [*interim, *requests]
        if self.chance(40):
            self.features.add("approval answered in the turn")
            approval = self.draw(st.sampled_from(approval_ids))
            answers.append(parts.ApprovalResponse(approval, self.draw(st.booleans()), lane=lane))
            self._answered.add(call)
        if self.chance(30):
            return answers + self.outcome(call, lane)
        self.open_calls.append((call, lane))
        return answers

    def _provider_approval(self, lane: str) -> list[Part]:
        self.features |= {"tool of the provider", "approval of a provider's call"}
        call = f"call{self.number()}"
        tool_call = parts.ToolCall(call, RUN_BY_SOURCE, {}, provider_executed=True, lane=lane)
        return [tool_call, *self.asked(call, lane)]

    def question(self) -> list[Part]:
        """Return a question of the agent itself, perhaps while tools of the source run on over the end of the turn."""
        if self.features & {"client tool", "odd stored state"} or not self.chance(30):
            return []  # beside calls that the source does not run itself, it does not ask
        self.features.add("question")
        self.running += [call for call, _ in self.open_calls if call in self._answered]
        self.open_calls = [(call, lane) for call, lane in self.open_calls if call not in self._answered]
        running: list[Part] = []
        for _ in range(self.draw(st.integers(0, 2))):
            self.features.add("tool that runs on")
            call = f"call{self.number()}"
            self.running.append(call)
            running.append(parts.ToolCall(call, RUN_BY_SOURCE, {}))
            if self.chance(20):
                running.append(parts.ToolResult(call, "so far", preliminary=True))
        question = parts.ToolCall(f"call{self.number()}", "question", {}, dynamic=True)
        return [*running, parts.Step(leaves_calls=True), question]

    def retracted(self, call: str, lane: str) -> list[Part]:
        """Return an output that is taken back, and the approval that is asked for instead."""
        self.features.add("retraction")
        return [
            parts.ToolResult(call, "so far", preliminary=True, lane=lane),
            *self.asked(call, lane),
        ]

    def stored(self) -> list[dict[str, Any]]:
        """Return the parts of a stored message."""
        self.features.add("odd stored state")
        last = st.sampled_from((*_STORED_ANYWHERE, *_STORED_IN_LAST_STEP, *_STORED_APPROVALS))
        earlier = self.draw(st.lists(st.sampled_from(_STORED_ANYWHERE), max_size=2))
        steps = [earlier, self.draw(st.lists(last, max_size=3))] if earlier else [self.draw(st.lists(last, max_size=3))]
        return [part for step in steps for part in ({"type": "step-start"}, *map(self._stored_call, step))]

    def _stored_call(self, part: dict[str, Any]) -> dict[str, Any]:
        call = f"call{self.number()}"
        has_approval = part["state"].startswith("approval-")
        approval = {"approval": {"id": f"ask{self.number()}", **part.get("approval", {})}} if has_approval else {}
        return {**part, "toolCallId": call, **approval}

    def _step(self, lane: str) -> list[Part]:
        self.features.add("step")
        return [parts.Step(lane=lane)]

    def _content(self, lane: str) -> list[Part]:
        number = self.number()
        contents: list[Part] = [
            parts.SourceUrl(f"source{number}", "https://example.com/", lane=lane),
            parts.File(f"data:,file{number}", "text/plain", lane=lane),
            parts.Data("note", number, f"data{number}", lane=lane),
        ]
        return [self.draw(st.sampled_from(contents))]


_ENDINGS: Final[st.SearchStrategy[list[Part]]] = st.sampled_from(
    [[], [], [], [], [], [], [parts.Error("It broke.")], [parts.Abort()]]
)


@st.composite
def _stories(draw: st.DrawFn) -> Story:
    teller = _Teller(draw)
    stored = teller.stored() if teller.chance(20) else None
    first = [*teller.turn([]), *teller.question(), *draw(_ENDINGS)]
    if not teller.chance(60):
        return Story(first, stored=stored, features=frozenset(teller.features))
    open_calls, teller.open_calls = teller.open_calls, []
    teller.features.add("continuation")
    answers: list[list[Part]] = []
    for call, lane in open_calls:
        teller.features.add("approval answered in the next turn")
        outcomes: list[Any] = [lambda *_: [], teller.outcome, teller.outcome, teller.asked, teller.retracted]
        answers.append(draw(st.sampled_from(outcomes))(call, lane))
    answers += [teller.outcome(call, "") for call in teller.running if teller.chance(80)]
    second = [*teller.turn(answers), *teller.question(), *draw(_ENDINGS)]
    unanswered = draw(st.integers(0, 2)) if teller.chance(20) else 0
    return Story(first, second, draw(st.booleans()), unanswered, stored, frozenset(teller.features))


stories = _stories()
