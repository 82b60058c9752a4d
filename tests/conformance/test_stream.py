"""Whatever parts a source sends, no release that the stream was made for rejects it, and both readers agree on it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.judge import RELEASES, Chat, ChatResult, Judge
from tests.conformance.test_message_builder import same
from tests.part_strategies import continued_messages, part_lists
from usechat import parts
from usechat.errors import StreamFailed
from usechat.parts import Part
from usechat.protocol.chunks import Chunk, type_of
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import CHUNKS, releases_for
from usechat.protocol.sse import DONE, ChunkDecoder, encode_frame
from usechat.protocol.states import ToolState
from usechat.protocol.stream import MessageStream

USER = {"id": "user-1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
AT_LEAST = 20
"""How often everything must occur in the cases of one major."""


def stream_chunks(items: Sequence[Part], sdk: str, continues: Any = None) -> list[Chunk]:
    """Return the chunks of a stream, ended well unless the parts end it."""
    stream = MessageStream(message_id="message-1", sdk=sdk, continues=continues)
    return [chunk for part in items for chunk in stream.send(part)] + stream.close()


def frames(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(map(encode_frame, chunks)) + DONE


def error_of(items: Sequence[Part]) -> str | None:
    ending = next((part for part in items if isinstance(part, parts.Finish | parts.Error | parts.Abort)), None)
    return ending.error_text if isinstance(ending, parts.Error) else None


def read_by_us(body: bytes, release: str, continues: Any) -> Any:
    builder = MessageBuilder(sdk=release, message=continues)
    try:
        for chunk in ChunkDecoder().receive(body):
            builder.receive(chunk)
    except StreamFailed:
        pass
    return builder.message


def check_result(result: ChatResult, body: bytes, release: str, error: str | None, continues: Any) -> None:
    assert result["status"] == ("error" if error else "ready"), (release, result["error"], body)
    if error is not None:
        assert result["error"] is not None
        assert result["error"]["message"] == error
    assert same(read_by_us(body, release, continues), result["live"]), (release, body)


@pytest.mark.parametrize("major", RELEASES)
def test_any_parts_make_a_stream_that_no_client_rejects(judge: Judge, major: str) -> None:
    reach: Counter[str] = Counter()

    @settings(max_examples=2000, suppress_health_check=list(HealthCheck))
    @given(part_lists, st.none() | continued_messages(approvals=major != "5"))
    def check(items: list[Part], continues: dict[str, Any] | None) -> None:
        error = error_of(items)
        history = [USER, continues] if continues else [USER]
        streams = {sdk: stream_chunks(items, sdk, continues) for sdk in ("any", major, *RELEASES[major])}
        asks = major == "5" and any(type_of(chunk) == "tool-approval-request" for chunk in streams["any"])
        for release in RELEASES[major]:
            fitting = ([] if asks else ["any"]) + [release] + ([major] if release == RELEASES[major][-1] else [])
            bodies = [frames(streams[sdk]) for sdk in fitting]
            for body, result in zip(
                bodies, judge.chat(release, [Chat(body, messages=history) for body in bodies]), strict=True
            ):
                check_result(result, body, release, error, continues)
        message = read_by_us(frames(streams[major]), major, continues)
        note_reach(reach, items, streams[major], continues, message)

    check()
    assert {name: reach[name] for name in expected_reach(major) if reach[name] < AT_LEAST} == {}


def note_reach(reach: Counter[str], items: list[Part], chunks: list[Chunk], continues: Any, message: Any) -> None:
    """Count what one case reached, each thing once."""
    reach.update({"data" if type_of(chunk).startswith("data-") else type_of(chunk) for chunk in chunks})
    reach.update({part["state"] for part in message["parts"] if "toolCallId" in part})
    reach["three lanes"] += len({part.lane for part in items}) >= 3
    reach["continuation"] += continues is not None


def expected_reach(major: str) -> set[str]:
    """Return all that the streams of a major must contain often enough."""
    states = {str(state) for state in ToolState} - {ToolState.ABSENT, ToolState.INPUT_STREAMING}
    if major == "5":
        states -= {ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED, ToolState.OUTPUT_DENIED}
    if major == "6":
        states -= {ToolState.APPROVAL_RESPONDED}
    # Streams of ours leave no input half written and no given answer without an outcome: these states pass by.
    states -= {ToolState.APPROVAL_RESPONDED}
    return {name for name in CHUNKS if releases_for(major).knows(name)} | states | {"three lanes", "continuation"}


CALL = parts.ToolCall("c1", "remove", {"path": "notes"})
ASK = parts.ApprovalRequest("a1", "c1")
DONE_PART = parts.ToolResult("c1", "done")


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([CALL, ASK], id="asked"),
        pytest.param([CALL, ASK, DONE_PART, parts.Text("ok")], id="answered-by-the-result"),
        pytest.param([CALL, ASK, parts.ToolError("c1", "no")], id="answered-by-a-failure"),
        pytest.param([CALL, ASK, parts.ToolDenied("c1", "no"), parts.Text("ok")], id="denied"),
        pytest.param([CALL, parts.ToolDenied("c1", "no")], id="denied-unasked"),
        pytest.param([CALL, ASK, parts.ApprovalResponse("a1", True), DONE_PART], id="approved"),
        pytest.param([CALL, ASK, parts.ApprovalResponse("a1", False)], id="refused"),
        pytest.param([CALL, ASK, parts.Error("broken")], id="disconnected-while-asking"),
        pytest.param([CALL, parts.Error("broken")], id="disconnected-while-running"),
        pytest.param([CALL, parts.Abort()], id="stopped-while-running"),
        pytest.param([parts.ToolInputStart("c1", "t"), parts.ToolInputDelta("c1", '{"a'), parts.Abort()], id="cut-off"),
        pytest.param([CALL, parts.ToolResult("c1", 1, preliminary=True)], id="interim-result-alone"),
        pytest.param([parts.ToolInputError("c1", "t", "bad", {})], id="input-error"),
    ],
)
def test_the_message_that_remains_passes_the_clients_own_validation(judge: Judge, items: list[Part]) -> None:
    release = RELEASES["7"][-1]
    [result] = judge.chat(release, [Chat(frames(stream_chunks(items, "7")))])
    [validated] = judge.validate(release, [result["messages"]])
    assert validated["ok"], (result["message"], validated["error"])


@pytest.mark.parametrize("release", [release for releases in RELEASES.values() for release in releases])
@pytest.mark.parametrize(
    "items",
    [
        pytest.param([CALL, DONE_PART, parts.Text("ok")], id="text-after-a-result"),
        pytest.param([CALL, parts.Abort()], id="stop-while-a-tool-runs"),
        pytest.param([CALL, DONE_PART, parts.Abort()], id="stop-after-a-result"),
        pytest.param([CALL, DONE_PART, parts.Step()], id="a-step-behind-the-last-tool"),
        pytest.param(
            [CALL, parts.ToolResult("c1", 1, preliminary=True), parts.Text("ok")], id="interim-result-and-text"
        ),
        pytest.param(
            [parts.ToolInputStart("c1", "t"), parts.Text("ok"), parts.BlockEnd()], id="input-cut-off-beside-text"
        ),
        pytest.param(
            [
                CALL,
                parts.ApprovalRequest("a1", "c1", is_automatic=True),
                parts.ApprovalResponse("a1", True),
                parts.Text("ok"),
            ],
            id="approved-without-a-result",
        ),
        pytest.param(
            [
                parts.ToolCall("c1", "t", lane="x"),
                parts.Text("ok", lane="y"),
                parts.BlockEnd(lane="y"),
                parts.ToolResult("c1", 1, lane="x"),
            ],
            id="text-of-another-lane-before-the-result",
        ),
        pytest.param(
            [
                parts.Text("a", lane="x"),
                parts.ToolCall("c1", "t", lane="y"),
                parts.ToolResult("c1", 1, lane="y"),
                parts.Text("b", lane="x"),
            ],
            id="text-beside-a-finished-tool",
        ),
    ],
)
@pytest.mark.parametrize("sdk", ["any", "own"])
def test_no_client_posts_again_by_itself(judge: Judge, release: str, items: list[Part], sdk: str) -> None:
    body = frames(stream_chunks(items, release if sdk == "own" else "any"))
    [result] = judge.chat(release, [Chat(body)])
    [complete] = judge.complete(release, [result["messages"]])
    assert (result["status"], complete["toolCalls"], bool(complete["approvals"])) == ("ready", False, False)


@pytest.mark.parametrize(
    ("release", "sdk"),
    [
        (release, sdk)
        for major, releases in RELEASES.items()
        for release in releases
        for sdk in (["own"] if major == "5" else ["any", "own"])
    ],
)
def test_an_answered_client_tool_or_approval_makes_the_client_post_again(judge: Judge, release: str, sdk: str) -> None:
    chunks = stream_chunks([CALL, ASK], release if sdk == "own" else "any")
    [result] = judge.chat(release, [Chat(frames(chunks))])
    answers = [answer(part) for part in result["message"]["parts"]]
    [complete] = judge.complete(release, [[USER, result["message"] | {"parts": answers}]])
    assert complete["toolCalls"] or complete["approvals"]


def answer(part: Any) -> Any:
    """Answer like `addToolApprovalResponse`, or `addToolOutput` where the question is a client-side tool."""
    if part.get("state") == "approval-requested":
        return part | {"state": "approval-responded", "approval": {**part["approval"], "approved": True}}
    if part["type"] == "tool-approval":
        return part | {"state": "output-available", "output": {"approved": True}}
    return part
