"""Bodies that say something about how the clients read: one row for each behaviour, with the rule that explains it."""

import json
from typing import Any, Final, NamedTuple

from tests.chunk_strategies import legal_chunk


class Row(NamedTuple):
    """A response, and the first rule that `usechat check --sdk any` reports for it; None if it has no complaint."""

    name: str
    body: bytes
    rule: str | None
    status: int = 200


START: Final = {"type": "start", "messageId": "m"}
FINISH: Final = {"type": "finish"}
TEXT: Final = [
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Hi é"},
    {"type": "text-end", "id": "t"},
]
STEP: Final = {"type": "start-step"}
STEP_END: Final = {"type": "finish-step"}
CALL: Final = {"toolCallId": "c", "toolName": "search"}
INPUT: Final = {"type": "tool-input-available", **CALL, "input": {}}
OUTPUT: Final = {"type": "tool-output-available", "toolCallId": "c", "output": 1}
OUTPUT_ERROR: Final = {"type": "tool-output-error", "toolCallId": "c", "errorText": "x"}


def metadata(value: Any) -> dict[str, Any]:
    return {"type": "message-metadata", "messageMetadata": value}


def event(chunk: Any) -> bytes:
    text = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def turn(*chunks: Any) -> bytes:
    return b"".join(map(event, [START, *chunks, FINISH, "[DONE]"]))


def row(name: str, rule: str | None, *chunks: Any) -> Row:
    return Row(name, turn(*chunks), rule)


PLAIN: Final = turn(*TEXT)

WIRE: Final = [
    Row("plain", PLAIN, None),
    Row("event-names", PLAIN.replace(b"data: {", b"event: error\ndata: {"), None),
    Row("ids-and-retries", b"id: 7\nretry: 5\n" + PLAIN, None),
    Row("unknown-fields", b"foo: bar\n" + PLAIN, "UC111"),
    Row("comments", b": x\n\n:\n" + PLAIN, None),
    Row("several-data-lines-between-tokens", PLAIN.replace(b'{"type": "start"', b'{"type":\ndata: "start"'), None),
    Row("several-data-lines-in-a-string", PLAIN.replace(b"Hi", b"H\ndata: i"), "UC101"),
    Row("crlf", PLAIN.replace(b"\n", b"\r\n"), None),
    Row("cr-alone", PLAIN.replace(b"\n", b"\r"), "UC108"),
    Row("cr-and-lf-mixed", PLAIN.replace(b"\n\n", b"\r\n\n", 2).replace(b"\n\n", b"\n\r", 1), None),
    Row("no-space", PLAIN.replace(b"data: ", b"data:"), None),
    Row("two-spaces", PLAIN.replace(b"data: {", b"data:  {"), None),
    Row("byte-order-mark", b"\xef\xbb\xbf" + PLAIN, None),
    Row("two-byte-order-marks", b"\xef\xbb\xbf" * 2 + PLAIN, "UC111"),
    Row("no-blank-line-at-the-end", PLAIN.removesuffix(b"\n"), "UC107"),
    Row("no-line-end-at-the-end", PLAIN.removesuffix(b"\n\n"), "UC107"),
    Row("one-line-end-between-events", PLAIN.replace(b"\n\n", b"\n") + b"\n", "UC102"),
    Row("empty-data", b"data:\n\n" + PLAIN, "UC103"),
    Row("bare-data", b"data\n\n" + PLAIN, "UC103"),
    Row("end-mark-with-a-space", PLAIN.replace(b"[DONE]", b"[DONE] "), "UC104"),
    Row("end-mark-in-small-letters", PLAIN.replace(b"[DONE]", b"[done]"), "UC104"),
    Row("end-mark-as-json", PLAIN.replace(b"[DONE]", b'"[DONE]"'), "UC201"),
    Row("no-end-mark", PLAIN.replace(b"data: [DONE]\n\n", b""), "UC109"),
    Row("chunks-after-the-end-mark", b"data: [DONE]\n\n" + PLAIN, "UC112"),
    row("chunks-after-finish", "UC408", FINISH, *TEXT),
    Row("invalid-utf-8", PLAIN.replace(b"Hi", b"\xff\xe2\x82"), "UC110"),
    Row("invalid-json", b'data: {"type":\n\n' + PLAIN, "UC101"),
    Row("nan", event('{"type":"data-x","data":NaN}') + PLAIN, "UC105"),
    Row("infinity", event('{"type":"data-x","data":-Infinity}') + PLAIN, "UC105"),
    row("proto", "UC106", '{"type":"data-x","data":[{"__proto__":1}]}'),
    row("escaped-proto-beside-a-plain-one", "UC106", '{"type":"data-x","data":{"\\u005f_proto__":1,"__proto__":2}}'),
    row("constructor-with-prototype", "UC106", '{"type":"data-x","data":{"constructor":{"prototype":1}}}'),
    row("duplicate-keys", None, '{"type":"text-start","id":1,"id":"u"}', '{"type":"text-end","id":"u"}'),
    row("large-integers", "UC113", '{"type":"data-x","data":[12345678901234567890,9007199254740993]}'),
    row("numbers-of-all-kinds", None, '{"type":"data-x","data":[1.0,-0,1e3,1e-7,1e21,123456789012345680000]}'),
    row("infinite-number", None, '{"type":"data-x","data":1e999}'),
    row("infinite-number-in-metadata", "UC207", '{"type":"text-start","id":"u","providerMetadata":{"p":{"k":1e999}}}'),
    Row("empty", b"", "UC003"),
    Row("blank", b"\n\n\n", "UC003"),
    Row("comments-alone", b": x\n\n", "UC003"),
    Row("end-mark-alone", b"data: [DONE]\n\n", "UC003"),
    Row("plain-text", b"Hello", "UC004"),
    Row("html", b"<html></html>", "UC004"),
    Row("json", b'{"detail":"x"}', "UC004"),
    Row("json-lines", b'{"type":"start"}\n{"type":"finish"}\n', "UC004"),
    Row(
        "chat-completions",
        event({"object": "chat.completion.chunk", "choices": [{"delta": {"content": "x"}}]}),
        "UC009",
    ),
    Row("responses", event({"type": "response.output_text.delta", "delta": "x"}), "UC009"),
    Row("anthropic", event({"type": "message_start", "message": {}}), "UC009"),
    Row("ag-ui", event({"type": "RUN_STARTED", "runId": "r"}), "UC009"),
    Row("data-stream-of-4", b'0:"Hello"\ne:{"finishReason":"stop"}\n', "UC005"),
]
"""How bytes become events and values."""

HTTP: Final = [
    Row("created", PLAIN, None, 201),
    Row("failure", b"over capacity", "UC001", 503),
    Row("failure-without-text", b"", "UC001", 500),
    Row("failure-with-json", b'{"error":"x"}', "UC001", 400),
    Row("failure-with-a-stream", PLAIN, "UC001", 404),
    Row("failure-with-a-mark", b"\xef\xbb\xbfx\xff", "UC001", 418),
    Row("no-content", b"", "UC002", 204),
]
"""Statuses."""

CHUNKS: Final = [
    row("unknown-key", "UC210", {**TEXT[0], "x": 1}, *TEXT[1:]),
    row("unknown-type", "UC203", {"type": "usage", "tokens": 1}, *TEXT),
    row("null-for-an-optional-key", "UC206", {**TEXT[0], "providerMetadata": None}, *TEXT[1:]),
    row("null-where-anything-goes", None, {"type": "data-x", "data": None}, *TEXT),
    row("number-for-an-id", "UC207", {"type": "text-start", "id": 1}),
    row("flat-provider-metadata", "UC208", {**TEXT[0], "providerMetadata": {"p": 1}}, *TEXT[1:]),
    row("null-in-provider-metadata", None, {**TEXT[0], "providerMetadata": {"p": {"k": None}}}, *TEXT[1:]),
    row("array", "UC201", [TEXT[0]]),
    row("null", "UC201", "null"),
    row("no-type", "UC202", {"id": "t"}),
    row("missing-input", "UC205", {"type": "tool-input-available", **CALL}),
    row("missing-output", "UC205", INPUT, {"type": "tool-output-available", "toolCallId": "c"}, STEP, *TEXT),
    row("missing-data", "UC205", {"type": "data-x", "status": "x"}),
    row("missing-metadata", "UC205", {"type": "message-metadata"}),
    row("finish-reason-of-a-model", "UC211", {"type": "finish", "finishReason": "end_turn"}),
    row("step-start", "UC203", {"type": "step-start"}),
    row("message-start", "UC203", {"type": "message-start"}),
    row("error-under-the-wrong-key", "UC205", {"type": "error", "error": "x"}),
    row("error-chunk", "UC401", *TEXT, {"type": "error", "errorText": "x"}, {"type": "text-start", "id": "u"}),
    row("error-chunk-for-a-tool", "UC401", INPUT, {"type": "error", "errorText": "x"}),
    row("abort", "UC422", *TEXT, {"type": "abort"}),
    *(row(f"new-{name}", "UC204", legal_chunk(name, optional=False)) for name in
      ("tool-input-error", "tool-approval-request", "tool-approval-response", "tool-output-denied", "custom",
       "reasoning-file", "reset-step", "steering-message")),
    *(row(f"relic-{name}", "UC203", legal_chunk(name)) for name in ("reasoning", "reasoning-part-finish")),
]  # fmt: skip
"""What is a chunk."""

ORDER: Final = [
    row("text-delta-without-start", "UC301", TEXT[1]),
    row("text-end-without-start", "UC301", TEXT[2]),
    row("reasoning-delta-without-start", "UC301", {"type": "reasoning-delta", "id": "t", "delta": "x"}),
    row("reasoning-end-without-start", "UC301", {"type": "reasoning-end", "id": "t"}),
    row("reasoning-end-with-metadata", "UC301", {"type": "reasoning-end", "id": "t", "providerMetadata": {"p": {}}}),
    row("reasoning-for-text", "UC301", TEXT[0], {"type": "reasoning-delta", "id": "t", "delta": "x"}),
    row("delta-after-end", "UC302", *TEXT, TEXT[1]),
    row("delta-after-the-step", "UC303", *TEXT[:2], STEP_END, TEXT[1], TEXT[2]),
    row("tool-delta-without-start", "UC304", {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "x"}),
    row("output-without-input", "UC305", OUTPUT),
    row("error-without-input", "UC305", OUTPUT_ERROR),
    row("approval-without-input", "UC204", {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a"}),
    row("denial-without-input", "UC204", {"type": "tool-output-denied", "toolCallId": "c"}),
    row("answer-without-request", "UC204", {"type": "tool-approval-response", "approvalId": "a", "approved": True}),
    row("output-not-dynamic", "UC306", INPUT | {"dynamic": True}, OUTPUT, STEP, *TEXT),
    row("output-dynamic", "UC306", INPUT, OUTPUT | {"dynamic": True}, STEP, *TEXT),
    row("metadata-text-then-object", "UC308", metadata("x"), metadata({"a": 1})),
    row("metadata-arrays", None, metadata([1]), metadata([2, 3]), *TEXT),
    row("metadata-deep", None, metadata({"a": {"b": 1}}), metadata({"a": {"c": 2}}), *TEXT),
    Row("no-start", b"".join(map(event, [*TEXT, FINISH, "[DONE]"])), "UC403"),
    row("second-start", "UC406", *TEXT, START),
    Row("late-start", b"".join(map(event, [*TEXT, START, FINISH, "[DONE]"])), "UC405"),
    row("text-never-ended", "UC410", *TEXT[:2]),
    row("text-started-twice", "UC414", TEXT[0], *TEXT),
    row("output-in-a-later-step", None, STEP, INPUT, STEP_END, STEP, OUTPUT, *TEXT),
    row("output-after-input-start", "UC421", {"type": "tool-input-start", **CALL}, OUTPUT),
    row("second-output", "UC417", INPUT, OUTPUT, OUTPUT | {"output": 2}, STEP, *TEXT),
    row("error-over-output", "UC417", INPUT, OUTPUT, OUTPUT_ERROR, STEP, *TEXT),
    row("same-call-in-a-later-step", "UC415", STEP, INPUT, OUTPUT, STEP_END, STEP, INPUT, OUTPUT, STEP, *TEXT),
    row("tool-delta-in-a-later-step", "UC411", {"type": "tool-input-start", **CALL}, STEP,
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a'}),
    row("input-complete-in-a-later-step", "UC424", STEP, {"type": "tool-input-start", **CALL}, STEP_END, STEP, INPUT,
        OUTPUT, STEP_END, STEP, *TEXT),
    row("step-after-a-tool-of-the-page", "UC425", STEP, INPUT, STEP_END, STEP, *TEXT, STEP_END,
        {"type": "finish", "messageMetadata": {"finishReason": "tool-calls"}}),
    row("static-then-dynamic", "UC416", {"type": "tool-input-start", **CALL}, INPUT | {"dynamic": True},
        OUTPUT | {"dynamic": True}, STEP, *TEXT),
    row("text-of-the-same-id-after-a-tool", "UC413", *TEXT[:2], INPUT, OUTPUT, TEXT[1], TEXT[2], STEP, *TEXT),
    row("text-after-a-tool-in-the-same-step", "UC412", STEP, INPUT, OUTPUT, *TEXT),
    row("step-at-the-end", None, *TEXT, STEP),
    row("step-alone", "UC420", STEP),
]  # fmt: skip
"""What may follow what."""

ROWS: Final = [*WIRE, *HTTP, *CHUNKS, *ORDER]
