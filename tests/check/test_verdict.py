"""One release's verdict; `conformance/test_check.py` compares it with the real clients."""

from typing import Any

import pytest

from tests.check.streams import FINISH, INPUT, OUTPUT, START, STEP, STEP_END, found, stream, text, turn
from usechat.check import Verdict
from usechat.check.frames import Body
from usechat.check.verdict import CLIENT_ID, judge
from usechat.protocol.releases import release

HI = {"type": "text", "text": "Hi", "state": "done"}


def verdict(body: bytes, sdk: str = "7") -> Verdict:
    return judge(Body([body]).frames(), release(sdk))


def message(*parts: Any, message_id: str = "m") -> dict[str, Any]:
    return {"id": message_id, "role": "assistant", "parts": list(parts)}


def test_a_stream_to_its_end() -> None:
    assert verdict(turn(*text())) == Verdict(True, "ready", None, message(HI))


def test_an_error_chunk_is_a_legal_end() -> None:
    body = stream(START, *text(), {"type": "error", "errorText": "broken"}, {"type": "nonsense"})
    assert verdict(body) == Verdict(True, "error", "broken", message(HI))


def test_nothing_to_read() -> None:
    assert verdict(b"data: [DONE]\n\n") == Verdict(False, "ready", None, None)


def test_a_chunk_that_is_rejected() -> None:
    error = 'Type validation failed: Value: {"type":"x"}.\nError message: no AI SDK release knows the chunk type "x"'
    assert verdict(stream(START, {"type": "x"}, *text())) == Verdict(False, "error", error, message())


def test_an_event_that_is_not_json() -> None:
    error = "JSON parsing failed: Text: NaN.\nError message: NaN is not JSON"
    assert verdict(stream(START, "NaN", *text())) == Verdict(False, "error", error, message())


def test_an_order_that_is_refused() -> None:
    error = (
        'Received text-end for missing text part with ID "t". '
        'Ensure a "text-start" chunk is sent before any "text-end" chunks.'
    )
    assert verdict(turn(text()[2])) == Verdict(False, "error", error, message())


@pytest.mark.parametrize(("sdk", "ok"), [("5.0.145", False), ("5.0.146", True), ("6.0.114", False), ("6.0.115", True)])
def test_old_releases_stumble_over_a_null_constructor(sdk: str, ok: bool) -> None:
    assert verdict(turn({"type": "data-x", "data": {"constructor": None}}), sdk).ok is ok


def test_no_release_takes_a_prototype() -> None:
    assert not verdict(turn({"type": "data-x", "data": {"__proto__": None}})).ok


def test_relics_are_ignored() -> None:
    body = turn({"type": "reasoning-part-finish"}, *text())
    assert verdict(body, "5.0.0") == Verdict(True, "ready", None, message(HI))
    assert not verdict(body, "5.0.52").ok


def test_a_message_without_a_name_gets_one() -> None:
    assert verdict(stream(*text())) == Verdict(True, "ready", None, message(HI, message_id=CLIENT_ID))


def test_keys_that_a_release_does_not_know_are_not_read() -> None:
    body = turn(INPUT | {"title": 5}, OUTPUT)
    assert (verdict(body, "5").ok, verdict(body, "6").ok) == (True, False)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([*STEP], None),
        ([START, *STEP], message({"type": "step-start"})),
        ([START, *text(), *STEP], message(HI)),
        ([{"type": "data-x", "data": 1, "transient": True}, FINISH, *STEP_END, {"type": "abort"}], None),
        ([{"type": "start"}, {"type": "message-metadata", "messageMetadata": None}], None),
        ([START, {"type": "reset-step"}, *STEP], message({"type": "step-start"})),
        ([START, *text(), {"type": "reset-step"}, *STEP], message()),
        ([START, *text(), *STEP, {"type": "reset-step"}], message(HI)),
        ([*text(), START], message(HI)),
        ([*text(), START, *STEP], message(HI, {"type": "step-start"})),
    ],
)
def test_a_step_is_seen_with_the_next_update_of_the_page(chunks: list[Any], expected: Any) -> None:
    assert verdict(stream(*chunks)).message == expected


def test_a_name_that_fails_to_arrive_is_not_seen() -> None:
    metadata = {"type": "message-metadata", "messageMetadata": "text"}
    body = stream(START, *text(), metadata, {"type": "start", "messageId": "n", "messageMetadata": {"a": 1}})
    assert verdict(body).message["id"] == "m"


def test_metadata_and_keys_that_are_rejected() -> None:
    assert found(turn({"type": "text-start", "id": "t", "providerMetadata": {"p": 1}}, *text()[1:])) == [("UC208", 2)]
    assert found(turn(*text(), {"type": "abort", "reason": "x"}), "5.0.0")[0] == ("UC211", 5)


class TestGoingOn:
    """After the first rejection the client is gone; the judge looks for what else is wrong."""

    def test_a_chunk_is_repaired_by_leaving_keys_out(self) -> None:
        body = turn({"type": "text-start", "id": "t", "providerMetadata": None}, text()[1], text()[2])
        assert found(body) == [("UC206", 2)]

    def test_data_is_repaired_by_leaving_keys_out(self) -> None:
        assert found(turn({"type": "data-x", "data": 1, "id": 5})) == [("UC207", 2)]

    def test_nothing_is_said_about_the_order_after_a_gap(self) -> None:
        assert found(turn({"type": "text-start"}, text()[1], text()[2])) == [("UC205", 2)]
        assert found(turn("{", text()[1], text()[2])) == [("UC101", 2)]

    def test_other_errors_are_found_after_a_gap(self) -> None:
        assert found(turn({"type": "text-start"}, 5, {}, {"type": "x"})) == [
            ("UC205", 2),
            ("UC201", 3),
            ("UC202", 4),
            ("UC203", 5),
        ]

    def test_nothing_is_read_after_an_error_chunk(self) -> None:
        assert found(stream(START, {"type": "error", "errorText": "x"}, 5)) == [("UC401", 2)]
