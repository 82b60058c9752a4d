"""What every client accepts although users notice it: blocks, tool calls, beginnings and endings."""

from typing import Any

import pytest

from tests.check.streams import (
    CALL,
    FINISH,
    INPUT,
    OUTPUT,
    START,
    STEP,
    STEP_END,
    found,
    stream,
    text,
    turn,
)
from usechat.check.frames import Frame
from usechat.check.order import Order
from usechat.errors import CannotJudge
from usechat.protocol.chunks import (
    Chunk,
    FinishStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolInputAvailableChunk,
)

NEXT_STEP = [*STEP_END, *STEP]
ERROR = {"type": "error", "errorText": "broken"}
OTHER_INPUT = INPUT | {"toolCallId": "d"}
OTHER_OUTPUT = OUTPUT | {"toolCallId": "d"}
DELTA = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "x"}
TOOL_CALLS = {"type": "finish", "finishReason": "tool-calls"}
DENIED = {"type": "tool-output-denied", "toolCallId": "c"}
REQUEST = {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a"}
RESPONSE = {"type": "tool-approval-response", "approvalId": "a", "approved": False}


def case(name: str, expected: list[tuple[str, int | None]], *chunks: Any) -> Any:
    return pytest.param(list(chunks), expected, id=name)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        case(
            "text-behind-a-result-while-a-call-of-an-earlier-step-goes-on",
            [("UC412", 9)],
            START,
            *STEP,
            INPUT,
            *NEXT_STEP,
            OTHER_INPUT,
            OTHER_OUTPUT,
            OUTPUT | {"preliminary": True},
            *text(),
            OUTPUT,
            *STEP_END,
            FINISH,
        ),
        case("plain", [], START, *text(), FINISH),
        case("no-start", [("UC403", 1)], *text(), FINISH),
        case("start-without-id", [("UC404", 1)], {"type": "start"}, *text(), FINISH),
        case("late-start", [("UC405", 4)], *text(), START, FINISH),
        case("second-start", [("UC406", 5)], START, *text(), START, FINISH),
        case("no-finish", [("UC407", None)], START, *text()),
        case("aborted", [("UC422", 5)], START, *text(), {"type": "abort"}),
        case("after-finish", [("UC408", 3)], START, FINISH, *text()),
        case("empty", [("UC420", None)], START, FINISH),
        case("only-transient", [("UC420", None)], START, {"type": "data-x", "data": 1, "transient": True}, FINISH),
        case("error", [("UC401", 5)], START, *text(), ERROR, *STEP_END, FINISH),
        case("after-error", [("UC401", 2), ("UC409", 3)], START, ERROR, *text(), FINISH),
    ],
)
def test_beginnings_and_endings(chunks: list[Any], expected: list[tuple[str, int | None]]) -> None:
    assert found(stream(*chunks)) == expected


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        case("never-ended", [("UC410", 2)], *text()[:2]),
        case("opened-twice", [("UC414", 3)], text()[0], *text()),
        case("same-id-in-text-and-reasoning", [], *text("a", kind="reasoning"), *text("a")),
        case("id-used-again", [], *text("a"), *text("a")),
    ],
)
def test_blocks(chunks: list[Any], expected: list[tuple[str, int | None]]) -> None:
    assert found(turn(*chunks)) == expected


def test_a_block_that_is_reset_needs_no_end() -> None:
    assert found(turn(*text()[:2], {"type": "reset-step"}, *text("u")), "7") == []


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        case("server-side-tool", [], *STEP, INPUT, OUTPUT, *NEXT_STEP, *text()),
        case("text-in-the-same-step", [("UC412", 5)], *STEP, INPUT, OUTPUT, *text()),
        case("text-in-a-step-that-is-not-the-last", [], *STEP, INPUT, OUTPUT, *text(), *NEXT_STEP, *text()),
        case("text-before-a-call-that-waits", [("UC411", 8)], *STEP, INPUT, OUTPUT, *text(), OTHER_INPUT, *STEP_END),
        case(
            "announced-again-after-a-preliminary-result",
            [("UC421", 6)],
            *STEP,
            INPUT,
            OUTPUT | {"preliminary": True},
            INPUT,
            OUTPUT,
        ),
        case(
            "text-after-a-preliminary-result",
            [],
            *STEP,
            INPUT,
            OUTPUT | {"preliminary": True},
            *text(),
            *NEXT_STEP,
            OUTPUT,
        ),
        case("text-beside-a-call-that-waits", [("UC411", 3)], *STEP, OTHER_INPUT, INPUT, OUTPUT, *text()),
        case("text-before-the-last-result", [("UC421", 9)], *STEP, OTHER_INPUT, INPUT, OUTPUT, *text(), OTHER_OUTPUT),
        case(
            "text-beside-a-call-that-the-provider-runs",
            [("UC411", 3), ("UC412", 6)],
            *STEP,
            OTHER_INPUT | {"providerExecuted": True},
            INPUT,
            OUTPUT,
            *text(),
        ),
        case("nothing-after-the-result", [("UC421", 4)], *STEP, INPUT, OUTPUT, *STEP_END),
        case("only-an-empty-step-after-it", [("UC421", 4)], *STEP, INPUT, OUTPUT, *NEXT_STEP),
        case("provider-ran-the-tool", [], *STEP, INPUT | {"providerExecuted": True}, OUTPUT, *text()),
        case(
            "text-goes-on-after-the-tool",
            [("UC413", 5)],
            *text()[:2],
            INPUT,
            text()[1],
            text()[2],
            OUTPUT,
            *STEP,
            *text("u"),
        ),
        case(
            "an-empty-delta-is-nothing", [], *text()[:2], INPUT, text(delta="")[1], text()[2], OUTPUT, *STEP, *text("u")
        ),
        case("never-settled", [("UC411", 2)], INPUT),
        case("input-goes-on", [("UC411", 2), ("UC423", 4)], {"type": "tool-input-start", **CALL}, INPUT, DELTA),
        case(
            "input-goes-on-in-the-next-step",
            [("UC411", 2), ("UC423", 4)],
            {"type": "tool-input-start", **CALL},
            *STEP,
            DELTA,
        ),
        case("input-never-whole", [("UC411", 2)], {"type": "tool-input-start", **CALL}),
        case("last-result-preliminary", [("UC418", 2)], INPUT, OUTPUT | {"preliminary": True}),
        case("settled-twice", [("UC417", 4)], INPUT, OUTPUT, OUTPUT, *STEP, *text()),
        case("id-used-again", [("UC415", 4)], INPUT, OUTPUT, INPUT, OUTPUT, *STEP, *text()),
        case(
            "started-twice", [("UC415", 3)], *[{"type": "tool-input-start", **CALL}] * 2, INPUT, OUTPUT, *STEP, *text()
        ),
        case("input-repeated", [], INPUT, INPUT, OUTPUT, *STEP, *text()),
        case("refused", [], {**INPUT, "type": "tool-input-error", "errorText": "x"}, *STEP, *text()),
        case(
            "refused-and-failed",
            [],
            {**INPUT, "type": "tool-input-error", "errorText": "x"},
            {"type": "tool-output-error", "toolCallId": "c", "errorText": "x"},
            *STEP,
            *text(),
        ),
        case(
            "dynamic-and-static",
            [("UC416", 3)],
            {"type": "tool-input-start", **CALL},
            INPUT | {"dynamic": True},
            OUTPUT | {"dynamic": True},
            *STEP,
            *text(),
        ),
    ],
)
def test_tool_calls(chunks: list[Any], expected: list[tuple[str, int | None]]) -> None:
    assert found(turn(*chunks)) == expected


def test_a_call_that_the_page_settles() -> None:
    assert found(stream(START, INPUT, TOOL_CALLS)) == []
    assert found(stream(START, INPUT, {"type": "finish", "messageMetadata": {"finishReason": "tool-calls"}})) == []
    assert found(stream(START, INPUT, {"type": "finish", "messageMetadata": "tool-calls"})) == [("UC411", 2)]
    assert found(stream(START, INPUT | {"providerExecuted": True}, TOOL_CALLS)) == [("UC411", 2)]


def test_a_failure_while_a_tool_runs() -> None:
    assert found(stream(START, INPUT, ERROR)) == [("UC401", 3), ("UC402", 3)]
    assert found(stream(START, INPUT, OUTPUT, ERROR)) == [("UC401", 4)]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        case("asked", [], REQUEST),
        case("denied-without-answer", [("UC419", 4)], REQUEST, DENIED, *STEP, *text()),
        case("denied", [], REQUEST, RESPONSE, DENIED, *STEP, *text()),
        case("answered", [], REQUEST, RESPONSE | {"approved": True}, OUTPUT, *STEP, *text()),
    ],
)
def test_approvals(chunks: list[Any], expected: list[tuple[str, int | None]]) -> None:
    assert found(turn(INPUT, *chunks), "7") == expected


def test_a_step_that_is_reset_holds_no_call() -> None:
    assert found(turn(*STEP, INPUT, {"type": "reset-step"}, *text()), "7") == []


def test_chunks_about_calls_that_are_not_there_are_left_to_the_clients() -> None:
    strangers = [REQUEST | {"toolCallId": "x"}, RESPONSE | {"approvalId": "x"}, DENIED | {"toolCallId": "x"}]
    for stranger in strangers:
        assert [rule for rule, _ in found(turn(*text(), stranger), "7")] in (["UC305"], ["UC307"])


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        case("never-opened", [("UC301", 2)], text()[1], text()[2]),
        case("ended", [("UC302", 5)], *text(), text()[1]),
        case("closed-by-the-step", [("UC303", 5)], *text()[:2], *STEP_END, text()[1], text()[2]),
        case("reasoning-is-not-text", [("UC301", 3)], text()[0], text(kind="reasoning")[1], text()[2]),
        case(
            "no-tool-input-start",
            [("UC304", 2)],
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "x"},
        ),
        case("no-tool-input", [("UC305", 2)], OUTPUT),
        case("other-dynamic", [("UC306", 3)], INPUT | {"dynamic": True}, OUTPUT, *STEP, *text()),
        case(
            "metadata-of-two-kinds",
            [("UC308", 3)],
            {"type": "message-metadata", "messageMetadata": "x"},
            {"type": "message-metadata", "messageMetadata": {"a": 1}},
        ),
    ],
)
def test_orders_that_release_5_refuses(chunks: list[Any], expected: list[tuple[str, int | None]]) -> None:
    refused = [pair for pair in found(turn(*chunks), "5") if pair[0].startswith("UC3")]
    assert refused == expected


class TestLimits:
    """What is kept of a stream is bounded, however long it is. The limits are lowered: filling them takes minutes."""

    LIMIT = 1_000

    @pytest.fixture(autouse=True)
    def _lower(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("order._MAXIMUM_OPEN", "order._MAXIMUM_CLOSED", "tool_calls._MAXIMUM_CALLS"):
            monkeypatch.setattr(f"usechat.check.{name}", self.LIMIT)

    def send(self, order: Order, number: int, *received: Chunk) -> None:
        for chunk in received:
            assert list(order.receive(chunk, Frame(number, number, ""))) == []

    def test_more_calls_than_memory_is_good_for(self) -> None:
        order = Order()
        for number in range(self.LIMIT):
            self.send(order, number, ToolInputAvailableChunk(f"c{number}", "search", 1))
        with pytest.raises(CannotJudge, match="there are more than 1000 tool calls up to frame 1001"):
            self.send(order, 1_001, ToolInputAvailableChunk("late", "search", 1))

    def test_more_open_blocks_than_memory_is_good_for(self) -> None:
        order = Order()
        for number in range(self.LIMIT):
            self.send(order, number, TextStartChunk(f"t{number}"), FinishStepChunk())
        with pytest.raises(CannotJudge, match="more than 1000 blocks are open at frame 1001"):
            self.send(order, 1_001, TextStartChunk("late"))

    def test_blocks_that_ended_long_ago_count_as_never_opened(self) -> None:
        order = Order()
        for number in range(self.LIMIT + 1):
            self.send(order, number, TextStartChunk(f"t{number}"), TextEndChunk(f"t{number}"))
        missing = [order.rule_for_missing(TextDeltaChunk(f"t{number}", "x")) for number in (0, 1, 1_000, 1_001)]
        assert missing == ["UC301", "UC302", "UC302", "UC301"]
