"""Tool parts that keep a page waiting: `conformance/test_check.py` compares this with the real clients."""

from typing import Any

import pytest

from tests.check.streams import CALL, FINISH, INPUT, OUTPUT, START, STEP, STEP_END, found, stream, text, turn
from usechat.check import Capture, check_capture
from usechat.check.endings import is_sent_automatically
from usechat.protocol.releases import release

NEXT_STEP = [*STEP_END, *STEP]
BEGIN = {"type": "tool-input-start", **CALL}
DELTA = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}"}
REQUEST = {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a"}
ABORT = {"type": "abort"}
OTHER = {"toolCallId": "d", "toolName": "other"}
OTHER_INPUT = {"type": "tool-input-available", **OTHER, "input": {}}
OTHER_OUTPUT = {"type": "tool-output-available", "toolCallId": "d", "output": 1}
TOOL_CALLS = {"type": "finish", "finishReason": "tool-calls"}


def waiting(body: bytes, *sdks: str) -> list[tuple[str, int | None]]:
    return [(rule, frame) for rule, frame in found(body, *sdks) if rule in ("UC411", "UC424", "UC425")]


class TestGhosts:
    def test_an_input_that_is_complete_in_another_step_leaves_a_part_behind(self) -> None:
        body = turn(*STEP, BEGIN, DELTA, *NEXT_STEP, INPUT, OUTPUT, *NEXT_STEP, *text())
        assert waiting(body) == [("UC424", 3)]
        report = check_capture(Capture(name="-", body=body), ["5.0.0", "7"])
        assert [(one.rule.id, one.sdks) for one in report.problems] == [("UC424", ["7"])]  # 5.0.0 finds the first part

    def test_an_input_that_is_complete_in_its_step_leaves_nothing_behind(self) -> None:
        assert waiting(turn(*STEP, BEGIN, DELTA, INPUT, OUTPUT, *NEXT_STEP, *text())) == []

    @pytest.mark.parametrize(
        ("rule", "chunks"),
        [
            ("UC411", [BEGIN, DELTA]),
            ("UC415", [BEGIN, DELTA, *NEXT_STEP, BEGIN, INPUT, OUTPUT, *NEXT_STEP, *text()]),
            ("UC416", [BEGIN, INPUT | {"dynamic": True}, OUTPUT | {"dynamic": True}, *NEXT_STEP, *text()]),
            ("UC423", [BEGIN, *NEXT_STEP, DELTA, INPUT, OUTPUT, *NEXT_STEP, *text()]),
        ],
    )
    def test_what_another_rule_explains_is_not_said_twice(self, rule: str, chunks: list[Any]) -> None:
        assert [rule for rule, _ in found(turn(*STEP, *chunks))] == [rule]

    def test_a_turn_that_did_not_end_well_may_leave_anything(self) -> None:
        chunks = [*STEP, BEGIN, DELTA, *NEXT_STEP, INPUT, OUTPUT]
        assert waiting(stream(START, *chunks, {"type": "error", "errorText": "x"})) == []
        assert waiting(stream(START, *chunks, ABORT, FINISH)) == []


class TestStalls:
    def test_a_step_after_an_open_approval(self) -> None:
        body = turn(*STEP, INPUT, REQUEST, *NEXT_STEP, OTHER_INPUT, OTHER_OUTPUT, *NEXT_STEP, *text())
        assert waiting(body, "6", "7") == [("UC425", 3)]
        [problem] = check_capture(Capture(name="-", body=body), ["7"]).problems
        assert problem.what == 'the page is asked about the tool call "c", and no client sends its answer'

    def test_a_step_after_a_tool_of_the_page(self) -> None:
        assert waiting(stream(START, *STEP, INPUT, *NEXT_STEP, *text(), *STEP_END, TOOL_CALLS)) == [("UC425", 3)]

    def test_a_tool_that_the_stream_does_not_leave_to_the_page_is_one_that_never_ends(self) -> None:
        assert waiting(turn(*STEP, INPUT, *NEXT_STEP, *text())) == [("UC411", 3)]

    def test_every_call_that_waits_is_named(self) -> None:
        chunks = [*STEP, INPUT, OTHER_INPUT, *NEXT_STEP, *text(), TOOL_CALLS]
        assert waiting(stream(START, *chunks)) == [("UC425", 3), ("UC425", 4)]

    @pytest.mark.parametrize(
        "chunks",
        [
            pytest.param([INPUT, REQUEST], id="approval"),
            pytest.param([INPUT, REQUEST, *text()], id="text-in-the-same-step"),
            pytest.param([INPUT, REQUEST, OTHER_INPUT, OTHER_OUTPUT], id="a-result-beside-it"),
            pytest.param([INPUT, REQUEST, OTHER_INPUT], id="a-tool-of-the-page-beside-it"),
            pytest.param([INPUT], id="tool-of-the-page"),
            pytest.param([OTHER_INPUT, OTHER_OUTPUT, *NEXT_STEP, INPUT], id="an-earlier-step"),
        ],
    )
    def test_a_question_in_the_last_step_is_answered(self, chunks: list[Any]) -> None:
        assert waiting(stream(START, *STEP, *chunks, *STEP_END, TOOL_CALLS), "7") == []

    def test_a_step_that_the_page_has_not_seen_does_not_count(self) -> None:
        assert waiting(stream(START, *STEP, INPUT, REQUEST, *NEXT_STEP, TOOL_CALLS), "7") == []

    def test_an_automatic_approval_waits_for_nobody(self) -> None:
        assert waiting(turn(*STEP, INPUT, REQUEST | {"isAutomatic": True}, *NEXT_STEP, *text()), "7") == []

    def test_a_stop_is_not_undone_by_an_answer(self) -> None:
        assert waiting(stream(START, *STEP, INPUT, REQUEST, *NEXT_STEP, *text(), ABORT, FINISH), "7") == []

    def test_a_call_beside_it_that_never_ends_stalls_it(self) -> None:
        body = turn(*STEP, INPUT, REQUEST, OTHER_INPUT, OTHER_OUTPUT | {"preliminary": True})
        assert waiting(body, "7") == [("UC425", 3)]


def tool(state: str, **options: Any) -> dict[str, Any]:
    return {"type": "tool-x", "toolCallId": "c", "state": state, **options}


@pytest.mark.parametrize(
    ("parts", "sdks"),
    [
        ([], ""),
        ([{"type": "text", "text": "Hi", "state": "done"}], ""),
        ([tool("output-available")], "5 6 7"),
        ([tool("output-error")], "5 6 7"),
        ([tool("output-available", preliminary=True)], "5"),
        ([tool("output-denied")], ""),
        ([tool("output-available", providerExecuted=True)], ""),
        ([tool("output-available"), tool("input-available")], ""),
        ([tool("output-available"), {"type": "text", "text": "Hi", "state": "done"}], "5 6 7"),
        ([tool("output-available"), {"type": "text", "text": "Hi", "state": "streaming"}], ""),
        ([{"type": "text", "text": "Hi", "state": "streaming"}, tool("output-available")], "5 6 7"),
        ([tool("output-available"), {"type": "step-start"}], ""),
        ([{"type": "step-start"}, tool("input-available"), {"type": "step-start"}, tool("output-error")], "5 6 7"),
        ([tool("approval-responded")], "6 7"),
        ([tool("approval-responded", providerExecuted=True)], "6 7"),
        ([tool("approval-responded"), tool("output-denied"), tool("output-available")], "6 7"),
        ([tool("approval-responded"), tool("approval-requested")], ""),
    ],
)
def test_when_a_page_sends_by_itself(parts: list[Any], sdks: str) -> None:
    assert " ".join(sdk for sdk in ("5", "6", "7") if is_sent_automatically(parts, release(sdk))) == sdks


QUESTION = {"type": "tool-input-available", "toolCallId": "q", "toolName": "question", "input": {}, "dynamic": True}
ASKED_BY_TOOL = {
    "type": "tool-input-available",
    "toolCallId": "a",
    "toolName": "approval",
    "input": {"approvalId": "a", "toolCallId": "c"},
}


class TestOvertakenAnswers:
    def overtaken(self, body: bytes, *sdks: str) -> list[tuple[str, int | None]]:
        return [(rule, frame) for rule, frame in found(body, *sdks) if rule in ("UC425", "UC427")]

    def test_an_approval_in_the_step_before_a_question(self) -> None:
        body = stream(START, *STEP, INPUT, REQUEST, *NEXT_STEP, QUESTION, *STEP_END, TOOL_CALLS)
        assert self.overtaken(body, "6", "7") == [("UC427", 3)]

    def test_a_tool_that_runs_on_in_the_step_before_a_question(self) -> None:
        body = stream(START, *STEP, INPUT, *NEXT_STEP, QUESTION, *STEP_END, TOOL_CALLS)
        assert self.overtaken(body, "5", "6", "7") == []

    def test_a_question_in_the_step_of_an_approval(self) -> None:
        body = stream(START, *STEP, INPUT, REQUEST, QUESTION, *STEP_END, TOOL_CALLS)
        assert self.overtaken(body, "6", "7") == []

    def test_a_client_tool_in_the_step_before_the_approval_tool_of_5(self) -> None:
        body = stream(START, *STEP, OTHER_INPUT, INPUT, *NEXT_STEP, ASKED_BY_TOOL, *STEP_END, TOOL_CALLS)
        assert self.overtaken(body, "5") == [("UC427", 3)]

    def test_the_approval_tool_of_5_without_a_client_tool(self) -> None:
        body = stream(START, *STEP, INPUT, *NEXT_STEP, ASKED_BY_TOOL, *STEP_END, TOOL_CALLS)
        assert self.overtaken(body, "5") == []

    def test_a_call_of_the_provider_that_waits_beside_a_result(self) -> None:
        providers = INPUT | {"providerExecuted": True}
        chunks = [providers, REQUEST, OTHER_INPUT, OTHER_OUTPUT]
        assert self.overtaken(stream(START, *STEP, *chunks, *STEP_END, TOOL_CALLS), "6", "7") == [("UC427", 3)]
        alone = stream(START, *STEP, providers, REQUEST, *STEP_END, TOOL_CALLS)
        assert self.overtaken(alone, "6", "7") == []
