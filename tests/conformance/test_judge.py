"""The judge judges: facts about the real clients, stated with raw bytes and none of our own code."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, ChatResult, Judge, JudgeError, Read

every_release = pytest.mark.parametrize("release", ALL_RELEASES)
STRICT = {"5.0.0", "5.0.216", "6.0.0", "6.0.230", "7.0.0", "7.0.31"}
USER = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
PLAIN_TURN = (
    b'data: {"type":"start","messageId":"m"}\n\n'
    b'data: {"type":"start-step"}\n\n'
    b'data: {"type":"text-start","id":"t"}\n\n'
    b'data: {"type":"text-delta","id":"t","delta":"H\xc3\xa9"}\n\n'
    b'data: {"type":"text-delta","id":"t","delta":"llo"}\n\n'
    b'data: {"type":"text-end","id":"t"}\n\n'
    b'data: {"type":"finish-step"}\n\n'
    b'data: {"type":"finish"}\n\n'
    b"data: [DONE]\n\n"
)
PLAIN_MESSAGE = {
    "id": "m",
    "role": "assistant",
    "parts": [{"type": "step-start"}, {"type": "text", "text": "Héllo", "state": "done"}],
}


def turn(judge: Judge, release: str, body: bytes, **options: Any) -> ChatResult:
    return judge.chat(release, [Chat(body, **options)])[0]


def test_the_packages_are_the_pinned_ones(judge: Judge) -> None:
    versions = judge.versions()
    assert int(versions["node"].split(".")[0]) >= 22
    clients = {f"ai-{release}": release for release in ALL_RELEASES}
    transports = {"@ai-sdk/workflow": "2.0.43", "@workflow/ai": "6.0.0", "ai": "6.0.326"}  # the second imports `ai`
    assert versions["packages"] == clients | transports | {"zod": "4.6.7"}


@every_release
def test_a_plain_turn_is_accepted(judge: Judge, release: str) -> None:
    result = turn(judge, release, PLAIN_TURN)
    assert (result["status"], result["error"]) == ("ready", None)
    assert result["message"] == result["live"] == PLAIN_MESSAGE


@every_release
def test_network_chunks_may_be_cut_anywhere(judge: Judge, release: str) -> None:
    results = judge.chat(release, [Chat(PLAIN_TURN, splits=[offset]) for offset in range(1, len(PLAIN_TURN), 7)])
    assert all(result["message"] == PLAIN_MESSAGE for result in results)


@every_release
def test_an_unknown_type_ends_the_turn(judge: Judge, release: str) -> None:
    result = turn(judge, release, b'data: {"type":"step-start"}\n\n')
    assert result["status"] == "error"
    assert result["error"] is not None
    assert result["error"]["name"] == "AI_TypeValidationError"


@every_release
def test_event_names_ids_and_comments_are_ignored(judge: Judge, release: str) -> None:
    body = PLAIN_TURN.replace(b"data: {", b": comment\nevent: error\nid: 7\nretry: 1\ndata: {")
    assert turn(judge, release, body)["message"] == PLAIN_MESSAGE


@every_release
def test_an_unknown_key_is_fatal_in_strict_releases_only(judge: Judge, release: str) -> None:
    chunk = {"type": "text-start", "id": "t", "unknown": 1}
    assert judge.schema(release, [chunk])[0]["accepted"] is (release not in STRICT)


@every_release
def test_nan_is_not_json(judge: Judge, release: str) -> None:
    result = turn(judge, release, b'data: {"type":"data-x","data":NaN}\n\n')
    assert result["status"] == "error"
    assert result["error"] is not None
    assert result["error"]["name"] == "AI_JSONParseError"


@every_release
@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "tool-output-available", "toolCallId": "c"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t"},
        {"type": "data-x"},
        {"type": "message-metadata"},
        {"type": "error", "error": "x"},
        {"type": "text-start", "id": None},
    ],
)
def test_a_missing_key_is_fatal(judge: Judge, release: str, chunk: dict[str, object]) -> None:
    assert judge.schema(release, [chunk])[0]["accepted"] is False


@every_release
def test_a_body_without_events_is_an_empty_turn(judge: Judge, release: str) -> None:
    results = judge.chat(release, [Chat(b""), Chat(b"<html></html>"), Chat(b'0:"hello"\n')])
    assert [(result["status"], result["message"]) for result in results] == [("ready", None)] * 3


@every_release
def test_the_body_of_a_failed_request_is_the_error(judge: Judge, release: str) -> None:
    result = turn(judge, release, b"over capacity", status=503)
    assert (result["status"], result["error"] and result["error"]["message"]) == ("error", "over capacity")


@every_release
def test_data_and_tool_calls_reach_their_callbacks(judge: Judge, release: str) -> None:
    body = (
        b'data: {"type":"data-x","data":1,"transient":true}\n\n'
        b'data: {"type":"tool-input-available","toolCallId":"c","toolName":"t","input":{}}\n\n'
    )
    result = turn(judge, release, body)
    assert result["data"] == [{"type": "data-x", "data": 1, "transient": True}]
    assert [call["toolCallId"] for call in result["toolCalls"]] == ["c"]
    assert result["message"]["id"] == "client-1"


@every_release
def test_a_history_that_ends_in_an_assistant_message_is_continued(judge: Judge, release: str) -> None:
    call = {"type": "tool-t", "toolCallId": "c", "state": "input-available", "input": {}}
    assistant = {"id": "m", "role": "assistant", "parts": [call]}
    body = b'data: {"type":"tool-output-available","toolCallId":"c","output":null}\n\n'
    result = turn(judge, release, body, messages=[USER, assistant])
    assert result["error"] is None
    assert [message["id"] for message in result["messages"]] == ["u", "m"]
    assert result["message"]["parts"][0].items() >= {"state": "output-available", "output": None}.items()


@every_release
def test_a_regenerated_message_is_replaced(judge: Judge, release: str) -> None:
    old = {"id": "old", "role": "assistant", "parts": [{"type": "text", "text": "old"}]}
    result = turn(judge, release, PLAIN_TURN, messages=[USER, old], trigger="regenerate-message", message_id="old")
    assert result["messages"] == [USER, PLAIN_MESSAGE]


@every_release
def test_a_resumed_stream_is_read(judge: Judge, release: str) -> None:
    cases = [Chat(PLAIN_TURN, messages=[USER], trigger="resume-stream", status=status) for status in (200, 204)]
    replayed, nothing = judge.chat(release, cases)
    assert replayed["messages"] == [USER, PLAIN_MESSAGE]
    assert nothing["messages"] == [USER]


@every_release
def test_the_reader_reports_the_message_and_the_error(judge: Judge, release: str) -> None:
    started = {"type": "text-start", "id": "t"}
    good, bad = judge.read(release, [Read([started]), Read([started, {"type": "text-delta", "id": "x", "delta": ""}])])
    assert good["error"] is None
    assert good["message"]["parts"] == bad["message"]["parts"] == [{"type": "text", "text": "", "state": "streaming"}]
    assert bad["error"] is not None
    unguarded = release in {*RELEASES["5"], "6.0.0"}
    assert bad["error"]["name"] == ("TypeError" if unguarded else "AI_UIMessageStreamError")


@every_release
def test_messages_are_validated(judge: Judge, release: str) -> None:
    results = judge.validate(release, [[USER], [], [{"id": "u", "role": "user", "parts": []}], None])
    verdicts = [None] * 4 if release == "5.0.0" else [True, False, False, False]
    assert [result["ok"] for result in results] == verdicts


@every_release
def test_partial_json_is_repaired(judge: Judge, release: str) -> None:
    assert judge.partial_json(release, ['{"a":tr', "null", "abc"]) == [
        {"value": {"a": True}, "state": "repaired-parse"},
        {"value": None, "state": "successful-parse"},
        {"state": "failed-parse"},
    ]


@every_release
def test_messages_are_converted_for_the_model(judge: Judge, release: str) -> None:
    good, bad = judge.convert(release, [[USER], [{"id": "x", "role": "tool", "parts": []}]])
    assert good["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert bad["error"] is not None
    assert bad["error"]["name"] == "AI_MessageConversionError"


@every_release
def test_a_finished_tool_call_is_sent_again(judge: Judge, release: str) -> None:
    settled = {"type": "tool-t", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}
    history = [USER, {"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, settled]}]
    done, not_called = judge.complete(release, [history, [USER]])
    assert (done["toolCalls"], not_called["toolCalls"]) == (True, False)
    assert done["approvals"] is (None if release in RELEASES["5"] else False)


def test_a_case_that_makes_no_sense_does_not_end_the_judge(judge: Judge) -> None:
    with pytest.raises(JudgeError, match="no such release"):
        judge.schema("4.0.0", [{}])
    with pytest.raises(JudgeError, match="complete on 7"):
        judge.complete("7.0.170", [None])  # type: ignore[list-item]
    assert judge.schema("7.0.170", [{"type": "start"}])[0]["accepted"]


def test_a_judge_that_does_not_answer_or_is_dead_says_so() -> None:
    with Judge(timeout=0) as judge:
        judge.suspend()
        with pytest.raises(JudgeError, match="no answer within 0 s"):
            judge.versions()
        with pytest.raises(JudgeError, match="Node ended with code"):
            judge.versions()


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise in the middle of the block, as the time limit of a test does; the limit of this test is switched off."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    earlier = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def test_the_answer_to_a_request_that_was_interrupted_is_not_taken_for_the_next_one() -> None:
    with Judge() as judge:
        judge.suspend()
        with interrupted_after(0.2), pytest.raises(TimeoutError):
            judge.schema("7.0.170", [{"type": "start"}, {"type": "step-start"}])
        judge.resume()
        assert [result["accepted"] for result in judge.schema("7.0.170", [{"type": "step-start"}])] == [False]
