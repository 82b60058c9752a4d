"""Whole streams, legal and broken: chunk lists that make sense, and the many ways to spoil them and their bytes."""

import copy
import json
from typing import Any, Final

from hypothesis import strategies as st

from tests.chunk_strategies import JUNK, LEGAL_VALUES, legal_chunk
from usechat.check import Capture

Json = Any

_TEXTS = st.sampled_from(["", "Hello", "é€😀", "line\nbreak", "\ud83d"])
_CALL_IDS = st.sampled_from(["c1", "c2"])
_INPUT_PIECES = st.sampled_from(['{"q":', '"x"', "}", "[1,", "tru", "", "-"])
_VALUES = st.sampled_from([None, 1, "x", [1], {"a": {"b": 1}}, 2**60, 1e300])
_DYNAMIC = st.sampled_from([{}, {}, {}, {"dynamic": True}, {"dynamic": False}])
_METADATA = st.sampled_from([{}, {}, {"providerMetadata": {"p": {"k": 1}}}])
_MESSAGE_METADATA = st.sampled_from([{"a": 1}, {"a": {"b": 2}}, {"a": {"c": [3]}, "d": None}, "text", [1, 2], None, 5])


@st.composite
def _text(draw: st.DrawFn) -> list[Json]:
    kind, block = draw(st.sampled_from(["text", "reasoning"])), draw(st.sampled_from(["b1", "b2"]))
    deltas = draw(st.lists(_TEXTS, max_size=3))
    return [
        {"type": f"{kind}-start", "id": block, **draw(_METADATA)},
        *({"type": f"{kind}-delta", "id": block, "delta": delta, **draw(_METADATA)} for delta in deltas),
        {"type": f"{kind}-end", "id": block, **draw(_METADATA)},
    ]


_ENDINGS: Final = ("output", "output", "preliminary", "error", "approval", "none")
_OPEN_ENDINGS: Final = ("output", "error", "approval", "approval", "none", "none", "none")


@st.composite
def _tool(draw: st.DrawFn, endings: tuple[str, ...] = _ENDINGS) -> list[Json]:
    call = {"toolCallId": draw(_CALL_IDS)}
    dynamic = draw(_DYNAMIC)
    named = call | {"toolName": draw(st.sampled_from(["search", "get-weather"]))} | dynamic
    sequence: list[Json] = []
    if draw(st.booleans()):
        sequence.append({"type": "tool-input-start", **named})
        pieces = draw(st.lists(_INPUT_PIECES, max_size=4))
        sequence += [{"type": "tool-input-delta", **call, "inputTextDelta": piece} for piece in pieces]
    if draw(st.integers(0, 5)) == 0:
        return [*sequence, {"type": "tool-input-error", **named, "input": draw(_VALUES), "errorText": "bad"}]
    sequence.append({"type": "tool-input-available", **named, "input": draw(_VALUES), **draw(_METADATA)})
    ending = draw(st.sampled_from(endings))
    if ending == "preliminary":
        sequence.append({"type": "tool-output-available", **call, **dynamic, "output": 1, "preliminary": True})
    if ending in ("output", "preliminary"):
        sequence.append({"type": "tool-output-available", **call, **dynamic, "output": draw(_VALUES)})
    if ending == "error":
        sequence.append({"type": "tool-output-error", **call, **dynamic, "errorText": "failed"})
    if ending == "approval":
        sequence.append({"type": "tool-approval-request", **call, "approvalId": "a1"})
        sequence += draw(
            st.sampled_from([[], [{"type": "tool-approval-response", "approvalId": "a1", "approved": False}]])
        )
        sequence += draw(st.sampled_from([[], [{"type": "tool-output-denied", **call}]]))
    return sequence


_DATA = st.fixed_dictionaries(
    {"type": st.sampled_from(["data-x", "data-y"]), "data": _VALUES},
    optional={"id": st.sampled_from(["d1", "d2"]), "transient": st.booleans()},
)
_OTHER = st.sampled_from(
    [
        legal_chunk("source-url", optional=False),
        legal_chunk("source-document", optional=False),
        legal_chunk("file"),
        legal_chunk("message-metadata"),
        legal_chunk("abort", optional=False),
        legal_chunk("custom"),
        legal_chunk("reasoning-file"),
        legal_chunk("reset-step"),
        legal_chunk("steering-message"),
        {"type": "start-step"},
        {"type": "finish-step"},
    ]
)
_METADATA_CHUNK = st.builds(lambda value: {"type": "message-metadata", "messageMetadata": value}, _MESSAGE_METADATA)
_PIECES = st.one_of(
    _text(), _tool(), _text(), _tool(), _DATA.map(lambda chunk: [chunk]), _OTHER.map(lambda chunk: [chunk]),
    _METADATA_CHUNK.map(lambda chunk: [chunk]),
)  # fmt: skip


@st.composite
def _stream(draw: st.DrawFn) -> list[Json]:
    start = draw(st.sampled_from([[{"type": "start", "messageId": "m1"}], [{"type": "start"}], []]))
    pieces = [chunk for piece in draw(st.lists(_PIECES, max_size=5)) for chunk in piece]
    end: list[Json] = draw(
        st.sampled_from(
            [
                [{"type": "finish"}],
                [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}],
                [{"type": "finish", "messageMetadata": {"z": 1}}],
                [{"type": "error", "errorText": "broken"}, {"type": "finish"}],
                [],
            ]
        )
    )
    return copy.deepcopy([*start, *pieces, *end])


chunk_lists = _stream()
"""Streams as a server might send them; not every release knows all of their chunks."""


@st.composite
def _interleaved(draw: st.DrawFn) -> list[Json]:
    steps = [[{"type": "start-step"}] for _ in range(draw(st.integers(1, 3)))]
    waiting = [draw(_tool(_OPEN_ENDINGS)), draw(_tool(_OPEN_ENDINGS)), draw(_text()), *steps]
    chunks: list[Json] = [{"type": "start", "messageId": "m1"}]
    while waiting:
        sequence = draw(st.sampled_from(waiting))
        count = draw(st.integers(1, 3))
        chunks += sequence[:count]
        del sequence[:count]
        waiting = [rest for rest in waiting if rest]
    reason = draw(st.sampled_from(["stop", "tool-calls", "tool-calls"]))
    return copy.deepcopy([*chunks, {"type": "finish", "finishReason": reason}])


interleaved_tools = _interleaved()
"""Streams in which steps begin anywhere between the chunks of two tool calls and a text."""

_JUNK_TYPES: Final = [
    "step-start",
    "message-start",
    "tool-call",
    "data",
    "ping",
    "",
    "reasoning",
    "reasoning-part-finish",
]
_JUNK_CHUNKS: Final = st.one_of(
    st.sampled_from(JUNK),
    st.sampled_from(_JUNK_TYPES).map(lambda chunk_type: {"type": chunk_type, "id": "b1", "data": 1}),
    st.sampled_from(sorted(LEGAL_VALUES)).map(legal_chunk),
)
_CALL: Final = {"toolCallId": "z", "toolName": "t"}
_MISTAKES: Final[list[list[Json]]] = [
    # Orders that a client refuses.
    [{"type": "text-delta", "id": "z", "delta": "x"}],
    [{"type": "text-end", "id": "z"}],
    [{"type": "reasoning-delta", "id": "z", "delta": "x"}],
    [{"type": "reasoning-end", "id": "z"}],
    [
        {"type": "text-start", "id": "z"},
        {"type": "text-end", "id": "z"},
        {"type": "text-delta", "id": "z", "delta": "x"},
    ],
    [{"type": "text-start", "id": "z"}, {"type": "finish-step"}, {"type": "text-delta", "id": "z", "delta": "x"}],
    [{"type": "tool-input-delta", "toolCallId": "z", "inputTextDelta": "x"}],
    [{"type": "tool-output-available", "toolCallId": "z", "output": 1}],
    [{"type": "tool-output-error", "toolCallId": "z", "errorText": "x"}],
    [
        {"type": "tool-input-available", **_CALL, "input": 1, "dynamic": True},
        {"type": "tool-output-available", "toolCallId": "z", "output": 1},
    ],
    [{"type": "tool-approval-request", "toolCallId": "z", "approvalId": "z"}],
    [{"type": "tool-approval-response", "approvalId": "z", "approved": True}],
    [{"type": "tool-output-denied", "toolCallId": "z"}],
    [{"type": "message-metadata", "messageMetadata": "x"}, {"type": "message-metadata", "messageMetadata": {"a": 1}}],
    # Chunks that a client rejects.
    [{"type": "finish", "finishReason": "end_turn"}],
    [{"type": "text-start", "id": "z", "providerMetadata": {"p": 1}}],
    [{"type": "text-start", "id": "z", "providerMetadata": None}],
    [{"type": "start", "messageId": None}],
    [[{"type": "start-step"}]],
    [{"type": "tool-input-available", **_CALL}],
    [{"type": "steering-message", "id": "z", "parts": []}],
    [legal_chunk("tool-approval-request") | {"toolCallId": "z"}],
    [legal_chunk("tool-input-start") | {"toolCallId": "z"}],
    [legal_chunk("text-end") | {"id": "z"}],
]
"""Well-known ones."""

_ACTIONS: Final = ["drop", "duplicate", "swap", "key", "key", "unknown key", "drop key", "inject", "mistake"]


@st.composite
def _mutated(draw: st.DrawFn) -> list[Json]:
    chunks = draw(chunk_lists)
    for _ in range(draw(st.integers(1, 3))):
        if not chunks:
            break
        index = draw(st.integers(0, len(chunks) - 1))
        chunk = chunks[index]
        action = draw(st.sampled_from(_ACTIONS))
        if action == "drop":
            del chunks[index]
        elif action == "duplicate":
            chunks.insert(draw(st.integers(0, len(chunks))), copy.deepcopy(chunk))
        elif action == "swap":
            other = draw(st.integers(0, len(chunks) - 1))
            chunks[index], chunks[other] = chunks[other], chunk
        elif action == "inject":
            chunks.insert(index, copy.deepcopy(draw(_JUNK_CHUNKS)))
        elif action == "mistake":
            chunks[index:index] = copy.deepcopy(draw(st.sampled_from(_MISTAKES)))
        elif isinstance(chunk, dict) and chunk:
            _spoil_key(draw, chunk, action)
    return chunks


def _spoil_key(draw: st.DrawFn, chunk: dict[str, Json], action: str) -> None:
    key = draw(st.sampled_from(sorted(chunk)))
    if action == "unknown key":
        chunk[draw(st.sampled_from(["extra", "error", "title", "toolMetadata", "reason", "providerMetadata"]))] = draw(
            st.sampled_from(JUNK)
        )
    elif action == "drop key":
        del chunk[key]
    else:
        chunk[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))


mutated_chunk_lists = _mutated()
"""Streams with one to three things spoilt."""


@st.composite
def _mistaken(draw: st.DrawFn, mistake: list[Json]) -> list[Json]:
    chunks = draw(chunk_lists)
    index = draw(st.integers(0, len(chunks)))
    chunks[index:index] = copy.deepcopy(mistake)
    return chunks


one_of_each_mistake = st.tuples(*map(_mistaken, _MISTAKES))
"""For each well-known mistake a stream that has it: drawn one by one, some would hardly ever come."""


def body_of(chunks: list[Json]) -> bytes:
    """Return the chunks as an event stream; lone surrogates are escaped."""
    frames = [json.dumps(chunk, ensure_ascii=True, separators=(",", ":")) for chunk in chunks]
    return b"".join(f"data: {frame}\n\n".encode() for frame in frames) + b"data: [DONE]\n\n"


_SPLICES: Final = st.sampled_from(
    [b"\n", b"\r", b"\n\n", b"\r\n", b":", b" ", b"data:", b"data: ", b"event: x\n", b"\xff", b"\xef\xbb\xbf", b"{",
     b'"', b"[DONE]", b"data: [DONE]\n\n", b"\\u0041", b"null", b"NaN", b"\x00", b"\t", b"1e999", b"\xe2\x80\xa8"]
)  # fmt: skip


@st.composite
def _mutated_body(draw: st.DrawFn) -> bytes:
    body = bytearray(body_of(draw(st.one_of(chunk_lists, mutated_chunk_lists))))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.sampled_from([0, 0, 1, 2, 20])))
        body[start:end] = draw(_SPLICES)
    return bytes(body)


mutated_bodies = _mutated_body()
"""Bytes of streams with one to three splices."""

_UNREADABLE_EVENTS: Final = [
    b"data:", b"data: hello", b"data: [done]", b"data: [DONE] ", b"data: NaN", b'data: {"type":"data-x","data":[NaN]}',
    b'data: {"type":"data-x","data":{"__proto__":1}}',
    b'data: {"type":"data-x","data":{"constructor":{"prototype":1}}}',
    b'data: {"type":"finish"}\ndata: [DONE]', b'data: {"type":"abort"}\ndata: {"type":"finish"}',
]  # fmt: skip


@st.composite
def _unreadable(draw: st.DrawFn, event: bytes) -> bytes:
    events = body_of(draw(chunk_lists)).split(b"\n\n")
    events.insert(draw(st.integers(0, len(events) - 1)), event)
    return b"\n\n".join(events)


one_of_each_unreadable_event = st.tuples(*map(_unreadable, _UNREADABLE_EVENTS))
"""For each event that no client can read a body that has it."""

_FAILED_STATUSES: Final = st.sampled_from([400, 401, 404, 429, 500, 503])
_TEXTS_OF_FAILURES: Final = st.sampled_from([b"", b"over capacity", b'{"error":"x"}', b"<html></html>", b"\xff"])
_NO_STREAMS: Final = [
    st.sampled_from([b"", b"\n\n", b": x\n\n", b"data: [DONE]\n\n"]),
    st.sampled_from([b"Hello", b"<html></html>", b'{"detail":1}', b"{}\n{}\n"]),
    st.sampled_from([b'0:"Hello"\n', b'f:{"messageId":"m"}\n0:"x"\n', b'2:[{"a":1}]\n']),
    st.sampled_from(
        [
            b'data: {"object":"chat.completion.chunk","choices":[]}\n\ndata: [DONE]\n\n',
            b'event: response.created\ndata: {"type":"response.created"}\n\n',
            b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n',
            b'data: {"type":"RUN_STARTED"}\n\n',
        ]
    ),
]
"""Empty bodies, bodies of another format, the data stream of AI SDK 4, events of another protocol."""


@st.composite
def _cut_response(draw: st.DrawFn, by: str) -> Capture:
    """A stream of which a client, or the checker, sees the beginning alone."""
    body = body_of(draw(chunk_lists | mutated_chunk_lists))
    body = body[: draw(st.integers(0, len(body)))]
    match by:
        case "connection":
            return Capture(name="", body=body, is_broken=True)
        case "encoding":
            return Capture(name="", body=body, has_false_encoding=True, headers={"content-encoding": "gzip"})
        case _:
            return Capture(name="", body=body, unread="only the first bytes were read")


_EVERYTHING_BUT_STREAMS: Final = [
    st.builds(lambda status, body: Capture(name="", body=body, status=status), _FAILED_STATUSES, _TEXTS_OF_FAILURES),
    st.sampled_from([204, 205]).map(lambda status: Capture(name="", body=b"", status=status)),
    *(bodies.map(lambda body: Capture(name="", body=body)) for bodies in _NO_STREAMS),
    *map(_cut_response, ("connection", "encoding", "limit")),
]

one_of_each_response = st.tuples(*_EVERYTHING_BUT_STREAMS).map(list)
"""Responses that are no stream, and streams that are cut."""
