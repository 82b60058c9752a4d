"""The calls that a run leaves to the page's tools: signed in the message's metadata, and not on the client's word."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest

from usechat import parts
from usechat.protocol import chunks
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.log import Log
from usechat.runs.open_calls import (
    OpenCall,
    Pending,
    approval_signature,
    input_digest,
    pending_in,
    pending_metadata,
    pending_signature,
    secret_of_chat,
)
from usechat.runs.run import PreparedRun, Run, RunInfo
from usechat.runs.settings import Settings
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
ASK = OpenCall(b"t1".decode(), "ask", input_digest({"a": 1}))  # the id is no constant: another object
LOOK = OpenCall("t2", "look", input_digest(None))
SECRET = secret_of_chat("s3cret", "c1", "ada")
SIGNED: dict[str, Any] = {"usechat": {"pending": ["t1"], "signature": pending_signature(SECRET, [ASK])}}
BOTH: dict[str, Any] = {"usechat": {"pending": ["t1", "t2"], "signature": pending_signature(SECRET, [ASK, LOOK])}}
CALL = parts.ToolCall("t1", "ask", {"a": 1})


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def hmac_of(secret: str, *fields: Any) -> str:
    return base64url(hmac.digest(secret.encode(), json.dumps(fields, separators=(",", ":")).encode(), "sha256"))


def test_the_signature_is_an_hmac_of_each_call_with_the_secret_of_the_chat() -> None:
    empty = base64url(hashlib.sha256(b"null").digest())
    of_chat = hmac_of("s3cret", "usechat-chat-secret-v1", "c1", "ada")
    signature = hmac_of(of_chat, "usechat-pending-calls-v1", [["t2", "look", empty]])
    assert pending_metadata(SECRET, [LOOK]) == {"usechat": {"pending": ["t2"], "signature": signature}}


@pytest.mark.parametrize(
    ("secret", "calls"),
    [
        (secret_of_chat("other", "c1", "ada"), [ASK, LOOK]),
        (secret_of_chat("s3cret", "c2", "ada"), [ASK, LOOK]),
        (secret_of_chat("s3cret", "c1", "bob"), [ASK, LOOK]),
        (secret_of_chat("s3cret", "c1ada", ""), [ASK, LOOK]),
        (SECRET, [LOOK, ASK]),
        (SECRET, [ASK]),
        (SECRET, [OpenCall("t3", "ask", ASK.input_digest), LOOK]),
        (SECRET, [OpenCall("t1", "tell", ASK.input_digest), LOOK]),
        (SECRET, [OpenCall("t1", "ask", LOOK.input_digest), LOOK]),
    ],
)
def test_whatever_differs_has_another_signature(secret: str, calls: list[OpenCall]) -> None:
    assert pending_signature(secret, calls) != BOTH["usechat"]["signature"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"usechat": {"pending": ["t1"], "signature": "x", "more": 1}, "usage": {}}, Pending(["t1"], "x")),
        ({"usechat": {"pending": [], "signature": "x"}}, Pending([], "x")),
        ({"usechat": {"pending": [], "signature": "x", "approvals": {"a1": "y"}}}, Pending([], "x", {"a1": "y"})),
        ({"usechat": {"pending": [], "signature": "x", "approvals": ["a1"]}}, Pending([], "x")),
        ({"usechat": {"pending": [1], "signature": "x"}}, None),
        ({"usechat": {"pending": "t1", "signature": "x"}}, None),
        ({"usechat": {"pending": {"0": "t1"}, "signature": "x"}}, None),
        ({"usechat": {"pending": ["t1"]}}, None),
        ({"usechat": {"pending": ["t1"], "signature": 5}}, None),
        ({"usechat": ["pending"]}, None),
        ({"usechat": None}, None),
        ({}, None),
        ([{"usechat": {}}], None),
        ("usechat", None),
        (7, None),
        (None, None),
    ],
)
def test_metadata_of_another_shape_says_nothing(metadata: Any, expected: Pending | None) -> None:
    assert pending_in(metadata) == expected


async def answered(
    *sent_parts: parts.Part,
    secret: str | None = SECRET,
    continues: Mapping[str, Any] | None = None,
    open_calls: tuple[OpenCall, ...] = (),
    sdk: str = "7",
) -> tuple[Any, tuple[OpenCall, ...]]:
    """Run a source that sends this; return the message metadata that it sent and the calls that it left open."""
    messages = [USER] if continues is None else [USER, continues]
    run = Run(
        PreparedRun(
            RunInfo("r1", "c1", "m1", sdk, subject="ada", open_calls=open_calls),
            TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": messages}))),
            continues,
        ),
        Log(),
        Settings(),
        on_end=lambda _run: None,
        chat_secret=secret,
    )

    class Says:
        async def drive(self, turn: Turn) -> None:
            for part in sent_parts:
                turn.send(part)

    run.start(as_source(Says()))
    await run.wait(10)
    stream = ChunkDecoder().receive(run.log.so_far())
    assert isinstance(stream[-1], chunks.FinishChunk)
    metadata = [chunk.message_metadata for chunk in stream if isinstance(chunk, chunks.MessageMetadataChunk)]
    return _merged([*metadata, stream[-1].message_metadata]), run.info.open_calls


def _merged(updates: list[Any]) -> Any:
    """Return all metadata as a page without any would store it; later keys win."""
    return {key: value for metadata in updates for key, value in (metadata or {}).items()} or None


@pytest.mark.parametrize(
    ("sent_parts", "metadata"),
    [
        pytest.param([CALL], SIGNED, id="the run adds the ending"),
        pytest.param([CALL, parts.Finish("stop")], SIGNED, id="the source has an ending of its own"),
        pytest.param(
            [CALL, parts.Finish(metadata={"usechat": 1, "cost": 2})], {"cost": 2, **SIGNED}, id="and metadata with it"
        ),
        pytest.param([CALL, parts.ToolCall("t2", "look", None)], BOTH, id="two calls"),
        pytest.param(
            [parts.ToolInputStart("t1", "ask"), parts.ToolInputDelta("t1", '{"a":1'), parts.Finish()],
            None,
            id="a call that is cut off",
        ),
        pytest.param(
            [
                parts.ToolCall("t9", "old", {}),
                parts.ToolInputStart("t8", "cut"),
                parts.ToolResult("t9", 1),
                parts.Step(lane="x"),
                parts.ToolCall("t1", "ask", {"a": 1}, lane="x"),
                parts.Finish(),
            ],
            SIGNED,
            id="a call that waited for its step until the end",
        ),
        pytest.param([CALL, parts.ToolResult("t1", 1)], None, id="a call with a result"),
        pytest.param([CALL, parts.ApprovalRequest("a1", "t1")], None, id="a call that waits for an approval"),
        pytest.param([parts.Text("hi")], None, id="no calls"),
    ],
)
async def test_the_calls_that_wait_for_the_page_are_signed_before_the_finish(
    sent_parts: list[parts.Part], metadata: Any
) -> None:
    assert (await answered(*sent_parts))[0] == metadata
    # Nothing but the signature differs from a run that has no secret.
    without = {key: value for key, value in (metadata or {}).items() if key != "usechat"}
    unsigned, _ = await answered(*sent_parts, secret=None)
    assert {key: value for key, value in (unsigned or {}).items() if key != "usechat"} == without


@pytest.mark.parametrize("ending", [parts.Error("Broken."), parts.Abort()])
async def test_a_turn_that_breaks_off_leaves_nothing_to_the_page(ending: parts.Part) -> None:
    metadata, left = await answered(CALL, ending)
    assert (metadata or {}, left) == ({}, ())


def continued(state: str = "input-available", metadata: Any = None, **part: Any) -> dict[str, Any]:
    call = {"type": "tool-ask", "toolCallId": "t1", "state": state, "input": {"a": 1}, **part}
    return {"id": "m1", "role": "assistant", "parts": [call], **({} if metadata is None else {"metadata": metadata})}


@pytest.mark.parametrize(
    ("message", "open_calls", "metadata", "left"),
    [
        pytest.param(continued(), (), None, (), id="a call that only the client tells of"),
        pytest.param(continued(), (ASK,), SIGNED, (ASK,), id="a call that was made"),
        pytest.param(
            continued(), (LOOK, OpenCall("t0", "look", ""), ASK), SIGNED, (ASK,), id="a call that was made among others"
        ),
        pytest.param(continued(input={"a": 2}), (ASK,), SIGNED, (ASK,), id="and came back changed"),
        pytest.param(continued(approval={"id": "a9"}), (ASK,), SIGNED, (ASK,), id="and with an approval of its own"),
        pytest.param(
            continued("approval-requested", approval={"id": "a9"}), (), None, (), id="an approval the client made up"
        ),
        pytest.param(
            continued("output-available", SIGNED, output=1), (), {"usechat": {"pending": []}}, (), id="an answered call"
        ),
        pytest.param(
            continued("output-available", {"usechat": {"pending": [], "signature": "x"}}, output=1),
            (),
            None,
            (),
            id="a call that was answered long ago",
        ),
    ],
)
async def test_the_clients_word_makes_no_call(
    message: dict[str, Any], open_calls: tuple[OpenCall, ...], metadata: Any, left: tuple[OpenCall, ...]
) -> None:
    assert await answered(parts.Text("Well."), continues=message, open_calls=open_calls) == (metadata, left)


async def test_an_approval_asked_again_is_about_the_call_as_it_was_made() -> None:
    open_call = OpenCall("t1", "ask", ASK.input_digest, "a1")
    message = continued("approval-requested", input={"a": 2}, approval={"id": "a1"})
    _, left = await answered(parts.ApprovalRequest("a2", "t1"), continues=message, open_calls=(open_call,))
    assert left == (OpenCall("t1", "ask", ASK.input_digest, "a2"),)


async def test_an_approval_that_was_answered_and_is_asked_again_can_be_answered_again() -> None:
    message = continued("approval-responded", approval={"id": "a1", "approved": True})
    _, left = await answered(parts.ApprovalRequest("a2", "t1"), continues=message)
    assert left == (OpenCall("t1", "ask", ASK.input_digest, "a2"),)


def test_a_number_that_no_page_can_hold_has_the_digest_of_the_one_it_sends_back() -> None:
    assert input_digest({"id": 1234567890123456789}) == input_digest({"id": 1234567890123456800})
    assert input_digest({"id": 2**53 - 1}) != input_digest({"id": 2**53 - 2})


@pytest.mark.parametrize("named", ["t1", "t9"], ids=["an id that is used again", "a new id"])
async def test_the_request_for_a_call_is_signed_whatever_its_id_is_on_the_wire(named: str) -> None:
    done = {"type": "tool-ask", "toolCallId": "t1", "state": "output-available", "input": {"a": 1}, "output": 5}
    message = {"id": "m1", "role": "assistant", "parts": [done]}
    run = Run(
        PreparedRun(
            RunInfo("r1", "c1", "m1", "7", subject="ada"),
            TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": [USER, message]}))),
            message,
        ),
        Log(),
        Settings(),
        on_end=lambda _run: None,
        chat_secret=SECRET,
    )
    run.write(parts.ToolCall(named, "remove", {"b": 2}))
    run.write(parts.ApprovalRequest("a1", named))
    run.write(parts.Finish())
    [request] = [
        chunk
        for chunk in ChunkDecoder().receive(run.log.so_far())
        if isinstance(chunk, chunks.ToolApprovalRequestChunk)
    ]
    call = OpenCall(request.tool_call_id, "remove", input_digest({"b": 2}), "a1")
    assert request.signature == approval_signature(SECRET, call)
    assert request.tool_call_id != "t1"


@pytest.mark.parametrize(("sdk", "is_signed"), [("any", True), ("6.0.201", True), ("6.0.202", False), ("5", False)])
async def test_an_approval_request_that_cannot_carry_its_signature_has_it_in_the_metadata(
    sdk: str, is_signed: bool
) -> None:
    metadata, left = await answered(CALL, parts.ApprovalRequest("a1", "t1"), sdk=sdk)
    open_call = OpenCall("t1", "ask", ASK.input_digest, "a1")
    assert left == (open_call,)
    signed = {"pending": [], "signature": pending_signature(SECRET, [])}
    expected = {"usechat": {**signed, "approvals": {"a1": approval_signature(SECRET, open_call)}}}
    assert {key: value for key, value in (metadata or {}).items() if key == "usechat"} == (
        expected if is_signed else {}
    )


async def test_a_denied_call_that_is_left_for_the_next_turn_stays_answerable() -> None:
    denied = {
        "type": "tool-ask",
        "toolCallId": "t1",
        "state": "approval-responded",
        "input": {"a": 1},
        "approval": {"id": "a1", "approved": False},
    }
    waiting = {"type": "tool-look", "toolCallId": "t2", "state": "input-available", "input": None}
    message = {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, denied, waiting]}
    _, left = await answered(parts.ToolDenied("t1"), continues=message, open_calls=(LOOK,))
    assert left == (OpenCall("t1", "ask", ASK.input_digest, "a1"), LOOK)
