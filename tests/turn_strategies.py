"""Whole turns in which lanes, approvals, client tools, streamed inputs, steps and continuations meet.

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


@dataclass(frozen=True)
class Story:
    """A turn, and perhaps a second one that continues its message after the page answered what waits."""

    first: list[Part]
    second: list[Part] | None = None
    approved: bool = True
    """How the page answers."""
    unanswered: int = 0
    """How many of the open calls the page leaves open, from the last on; a page of AI SDK 5 leaves none."""
    features: frozenset[str] = field(default=frozenset(), compare=False)


class _Teller:
    """Draws the actions of lanes, and numbers what must be found again."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.features: set[str] = set()
        self.open_calls: list[tuple[str, str]] = []  # id and lane of calls whose approval is pending
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
             self._approval, self._step, self._content]
        )  # fmt: skip
        count = self.draw(st.integers(1, 4))
        return [part for _ in range(count) for part in self.draw(actions)(lane)]

    def _text(self, lane: str) -> list[Part]:
        kind = self.draw(st.sampled_from([parts.Text, parts.Text, parts.Text, parts.Reasoning]))
        return [kind(f"<{lane}.{self.number()}>", lane=lane) for _ in range(self.draw(st.integers(1, 2)))]

    def _input(self, call: str, lane: str, *, completed: bool) -> list[Part]:
        if self.chance(50):
            return [parts.ToolCall(call, "search", {"q": call}, lane=lane)]
        self.features.add("streamed input")
        pieces: list[Part] = [parts.ToolInputStart(call, "search", lane=lane)]
        pieces += [parts.ToolInputDelta(call, piece, lane=lane) for piece in ('{"q":', f'"{call}"}}')]
        pieces = pieces[: self.draw(st.integers(1, 3))]
        return pieces + ([parts.ToolCall(call, "search", {"q": call}, lane=lane)] if completed else [])

    def _server_tool(self, lane: str) -> list[Part]:
        call = f"call{self.number()}"
        return [*self._input(call, lane, completed=self.chance(90)), *self.outcome(call, lane)]

    def _provider_tool(self, lane: str) -> list[Part]:
        self.features.add("tool of the provider")
        call = f"call{self.number()}"
        made = parts.ToolCall(call, "search", {"q": call}, provider_executed=True, lane=lane)
        return [made, *(self.outcome(call, lane) if self.chance(60) else [])]

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
        return [*self._input(call, lane, completed=self.chance(60)), *self.asked(call, lane)]

    def asked(self, call: str, lane: str) -> list[Part]:
        """Return the requests for the approval of a call, and what comes of them in this turn."""
        self.features.add("approval")
        asked = [f"ask{self.number()}"]
        if self.chance(35):
            self.features.add("approval asked again")
            asked.append(f"ask{self.number()}")
        answers: list[Part] = [parts.ApprovalRequest(approval, call, lane=lane) for approval in asked]
        if self.chance(40):
            self.features.add("approval answered in the turn")
            approval = self.draw(st.sampled_from(asked))
            answers.append(parts.ApprovalResponse(approval, self.draw(st.booleans()), lane=lane))
        if self.chance(30):
            return answers + self.outcome(call, lane)
        self.open_calls.append((call, lane))
        return answers

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
    first = [*teller.turn([]), *draw(_ENDINGS)]
    if not teller.chance(60):
        return Story(first, features=frozenset(teller.features))
    open_calls, teller.open_calls = teller.open_calls, []
    teller.features.add("continuation")
    answers: list[list[Part]] = []
    for call, lane in open_calls:
        teller.features.add("approval answered in the next turn")
        outcomes: list[Any] = [lambda *_: [], teller.outcome, teller.outcome, teller.asked]
        answers.append(draw(st.sampled_from(outcomes))(call, lane))
    second = [*teller.turn(answers), *draw(_ENDINGS)]
    unanswered = draw(st.integers(0, 2)) if teller.chance(20) else 0
    return Story(first, second, draw(st.booleans()), unanswered, frozenset(teller.features))


stories = _stories()
