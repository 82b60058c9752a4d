"""Hypothesis strategies for streams of chunks, as JSON: few ids, so that everything meets everything.

Most streams are legal; some have been cut, doubled, swapped or given a chunk whose prerequisite is missing. They are
made for no release: :func:`for_release` takes away what one of them would not let through.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from usechat.errors import UIMessageStreamError
from usechat.protocol.chunks import chunk_from_json
from usechat.protocol.releases import CHUNKS, FINISH_REASONS, STRICT_UNTIL, Release
from usechat.protocol.states import ToolState, tool_state_set_by

Json = Any


class Case(NamedTuple):
    """A stream, and the assistant message that it continues."""

    chunks: list[Json]
    message: Json | None


# Values. Pools instead of deep strategies: a stream takes dozens of them.

VALUES: Final[tuple[Json, ...]] = (
    None, True, 0, -1.5, 1e21, 2**53, "", "text", "é😀\u2028", "\ud83d", [], [1, [None]], {}, {"a": {"b": [False]}},
    {"q": "x", "n": 1.0},
)  # fmt: skip
METADATA: Final[tuple[Json, ...]] = (
    None, {}, {"a": 1}, {"a": {"b": 1}}, {"a": {"c": [1, 2]}, "d": None}, {"a": {"b": {"e": True}}}, {"a": [3]},
    {"constructor": 1, "prototype": {"x": 1}, "z": 0}, {"10": 1, "9": {"y": 2}}, [1, {"a": 1}], [2], [], "text", "😀",
    7, False,
)  # fmt: skip
"""Mostly objects, as it should be; the others show what merging does to them."""

PROVIDER_METADATA: Final[tuple[Json, ...]] = ({}, {"openai": {"itemId": "i1"}}, {"openai": {}, "p": {"k": [None]}})
INPUT_PIECES: Final = (
    "", "{", '{"a', '":', '"x', '\\u00', "e9", '"', ",", "1", ".", "5e-", "tr", "ue", "[", "[-", "-", "]", "}", " ",
    "{}x", "\\",
)  # fmt: skip
TEXTS: Final = ("", "Hel", "lo ", "é😀", "\ud83d", "\ude00")
CITATIONS: Final[tuple[Json, ...]] = (
    [],
    [{"source": {"type": "source", "sourceType": "url", "id": "s", "url": "u"}, "startIndex": 0, "citedText": "c"}],
)

_PROVIDER: Final = {"providerMetadata": PROVIDER_METADATA}
_TOOL_METADATA: Final[dict[str, tuple[Json, ...]]] = {"toolMetadata": ({}, {"client": "mcp"}, {"n": None})}
_CALL: Final = {
    "providerExecuted": (True, False),
    "title": ("Search", "Suche"),
    **_PROVIDER,
    **_TOOL_METADATA,
}
_OUTPUT: Final = {"providerExecuted": (True, False), "dynamic": (True, False), **_PROVIDER, **_TOOL_METADATA}

REQUIRED: Final[Mapping[str, Mapping[str, Sequence[Json]]]] = {
    "error": {"errorText": ("broken", "")},
    "text-delta": {"delta": TEXTS},
    "reasoning-delta": {"delta": TEXTS},
    "tool-input-start": {"toolName": ("search", "get-time")},
    "tool-input-delta": {"inputTextDelta": INPUT_PIECES},
    "tool-input-available": {"toolName": ("search", "get-time"), "input": VALUES},
    "tool-input-error": {"toolName": ("search", "get-time"), "input": VALUES, "errorText": ("bad input",)},
    "tool-output-available": {"output": VALUES},
    "tool-output-error": {"errorText": ("failed", "")},
    "tool-approval-request": {"approvalId": ("a1", "a2")},
    "tool-approval-response": {"approved": (True, False)},
    "source-url": {"sourceId": ("s1", "s2"), "url": ("https://a.example",)},
    "source-document": {"sourceId": ("s1",), "mediaType": ("text/plain",), "title": ("D",)},
    "file": {"url": ("data:,x",), "mediaType": ("text/plain",)},
    "reasoning-file": {"url": ("data:,x",), "mediaType": ("image/png",)},
    "custom": {"kind": ("openai.compaction", "any")},
    "steering-message": {
        "id": ("u2",),
        "parts": ([], [{"type": "text", "text": "wait"}, {"type": "file", "mediaType": "a/b", "url": "data:,y"}]),
    },
    "message-metadata": {"messageMetadata": METADATA},
    "data-weather": {"data": VALUES},
    "data-": {"data": VALUES},
}
OPTIONAL: Final[Mapping[str, Mapping[str, Sequence[Json]]]] = {
    "start": {"messageId": ("m1", "m2"), "messageMetadata": METADATA},
    "finish": {
        "finishReason": ("stop", "length", "content-filter", "tool-calls", "error", "other", "unknown", "interrupted"),
        "messageMetadata": METADATA,
    },
    "abort": {"reason": ("stopped",)},
    "text-start": _PROVIDER,
    "text-delta": _PROVIDER,
    "text-end": {"citations": CITATIONS, **_PROVIDER},
    "reasoning-start": _PROVIDER,
    "reasoning-delta": _PROVIDER,
    "reasoning-end": _PROVIDER,
    "tool-input-start": {"inputEncoding": ("json", "text"), "dynamic": (True, False), **_CALL},
    "tool-input-available": {"dynamic": (True, False), **_CALL},
    "tool-input-error": {"dynamic": (True, False), **_CALL},
    "tool-output-available": {"preliminary": (True, False), **_OUTPUT},
    "tool-output-error": _OUTPUT,
    "tool-approval-request": {
        "approvalDescriptor": (None, {"x": 1}),
        "inputSchemaInput": (None, {"q": 1}),
        "reason": ("writes",),
        "isAutomatic": (True, False),
        "signature": ("s1",),
    },
    "tool-approval-response": {"reason": ("fine",), "providerExecuted": (True, False), **_PROVIDER},
    "source-url": {"title": ("A",), **_PROVIDER},
    "source-document": {"filename": ("d.txt",), **_PROVIDER},
    "file": _PROVIDER,
    "reasoning-file": _PROVIDER,
    "custom": _PROVIDER,
    "data-weather": {"id": ("d1", "d2"), "transient": (True, False), "unit": ("C",), "toolCallId": ("c1",)},
    "data-": {"id": ("d1",)},
}

_ANYWHERE: Final = (
    "start", "start-step", "start-step", "finish-step", "finish-step", "reset-step", "finish", "abort", "text-start",
    "reasoning-start", "tool-input-start", "tool-input-start", "tool-input-available", "tool-input-error", "source-url",
    "source-document", "file", "reasoning-file", "custom", "steering-message", "message-metadata", "message-metadata",
    "data-weather", "data-weather", "data-",
)  # fmt: skip
_NEEDS: Final[Mapping[str, str]] = {
    "text-delta": "text",
    "text-end": "text",
    "reasoning-delta": "reasoning",
    "reasoning-end": "reasoning",
    "tool-input-delta": "input",
    "tool-output-available": "call",
    "tool-output-error": "call",
    "tool-output-denied": "call",
    "tool-approval-request": "call",
    "tool-approval-response": "approval",
}
"""Chunks with a prerequisite, and what it is: the failures of the state machine."""

_ID_KEYS: Final = {
    "text": "id",
    "reasoning": "id",
    "input": "toolCallId",
    "call": "toolCallId",
    "approval": "approvalId",
}
_OPENS: Final[Mapping[str, Sequence[str]]] = {
    "text-start": ("text",),
    "reasoning-start": ("reasoning",),
    "tool-input-start": ("input", "call"),
    "tool-input-available": ("call",),
    "tool-input-error": ("call",),
    "tool-approval-request": ("approval",),
}
FAILING_TYPES: Final = tuple(_NEEDS)


def _choose(
    draw: st.DrawFn, required: Mapping[str, Sequence[Json]], optional: Mapping[str, Sequence[Json]]
) -> dict[str, Json]:
    """Return a value for every required key and for some optional ones, out of two draws: they are what takes time."""
    bits = draw(st.integers(0, 2 ** len(optional) - 1)) if optional else 0
    pools = dict(required) | {key: pool for bit, (key, pool) in enumerate(optional.items()) if bits >> bit & 1}
    number = draw(st.integers(0, 2**24 - 1)) if pools else 0
    values = {}
    for key, pool in pools.items():
        number, index = divmod(number, len(pool))
        values[key] = pool[index]
    return values


def _fill(draw: st.DrawFn, chunk: dict[str, Json]) -> dict[str, Json]:
    required, optional = REQUIRED.get(chunk["type"], {}), OPTIONAL.get(chunk["type"], {})
    return _choose(draw, required, optional) | chunk


def _id_key(chunk_type: str, opened: str) -> str:
    return "approvalId" if opened == "approval" else "toolCallId" if chunk_type.startswith("tool-") else "id"


def _settle_dynamic(chunk: dict[str, Json], dynamic: set[str], *, keep: bool) -> None:
    """Let most outputs say what their call said: 5 takes no other."""
    if chunk["type"] in ("tool-output-available", "tool-output-error") and not keep:
        chunk.pop("dynamic", None)
        if chunk["toolCallId"] in dynamic:
            chunk["dynamic"] = True


@st.composite
def _streams(draw: st.DrawFn, open_ids: Mapping[str, Sequence[str]]) -> list[Json]:
    """Streams in which every chunk has its prerequisite, in a reader that forgets nothing."""
    ids_by_kind = {kind: set(ids) for kind, ids in open_ids.items()}
    dynamic: set[str] = set(open_ids.get("dynamic", ()))
    stream: list[Json] = []
    for _ in range(draw(st.integers(0, 14))):
        possible = [chunk_type for chunk_type, need in _NEEDS.items() if ids_by_kind.get(need)]
        chunk: dict[str, Json] = {"type": draw(st.sampled_from(possible * 5 + list(_ANYWHERE)))}
        need = _NEEDS.get(chunk["type"])
        if need is not None:
            chunk[_ID_KEYS[need]] = draw(st.sampled_from(sorted(ids_by_kind[need])))
        elif chunk["type"] in _OPENS:
            ids = ("c1", "c2", "c3") if chunk["type"].startswith("tool-") else ("t1", "t2")
            chunk[_id_key(chunk["type"], "")] = draw(st.sampled_from(ids))
        chunk = _fill(draw, chunk)
        _settle_dynamic(chunk, dynamic, keep=draw(st.integers(0, 5)) == 0)
        if chunk.get("dynamic") and chunk["type"].startswith("tool-input-"):
            dynamic.add(chunk["toolCallId"])
        for opened in _OPENS.get(chunk["type"], ()):
            ids_by_kind.setdefault(opened, set()).add(chunk[_id_key(chunk["type"], opened)])
        if chunk["type"] in ("text-end", "reasoning-end"):
            ids_by_kind[_NEEDS[chunk["type"]]].discard(chunk["id"])
        if chunk["type"] == "finish-step" and len(stream) % 3:  # sometimes a block goes on: 7.0.79 allows it
            ids_by_kind["text"] = ids_by_kind["reasoning"] = set()
        if chunk["type"] == "reset-step":
            ids_by_kind = {}
        stream.append(chunk)
    return stream


def _damage(draw: st.DrawFn, stream: list[Json]) -> list[Json]:
    """Return the stream with one thing wrong, or merely odd."""
    where = draw(st.integers(0, len(stream)))
    match draw(st.sampled_from(["missing"] * 5 + ["cut", "double", "swap", "error"])):
        case "missing":
            chunk_type = draw(st.sampled_from(FAILING_TYPES))
            ids = {_ID_KEYS[_NEEDS[chunk_type]]: draw(st.sampled_from(["nothing", 'a "b" {c}']))}
            return [*stream[:where], _fill(draw, {"type": chunk_type, **ids}), *stream[where:]]
        case "cut":
            return stream[:where] + stream[where + 1 :]
        case "double":
            return stream[: where + 1] + stream[where:]
        case "swap":
            return stream[:where] + stream[where : where + 2][::-1] + stream[where + 2 :]
        case _:
            return [*stream[:where], _fill(draw, {"type": "error"}), *stream[where:]]


# Messages to continue.

_STATE_KEYS: Final[Mapping[ToolState, Mapping[str, Sequence[Json]]]] = {
    ToolState.INPUT_STREAMING: {"rawInput": ('{"a":"x', "", "[1")},
    ToolState.INPUT_AVAILABLE: {"input": VALUES},
    ToolState.APPROVAL_REQUESTED: {
        "input": VALUES,
        "approval": ({"id": "a1"}, {"id": "a2", "isAutomatic": True, "signature": "s", "requestReason": "r"}),
    },
    ToolState.APPROVAL_RESPONDED: {"input": VALUES, "approval": ({"id": "a1", "approved": True, "reason": "ok"},)},
    ToolState.OUTPUT_AVAILABLE: {"input": VALUES, "output": VALUES},
    ToolState.OUTPUT_ERROR: {"rawInput": VALUES, "errorText": ("failed",)},
    ToolState.OUTPUT_DENIED: {"input": VALUES, "approval": ({"id": "a2", "approved": False},)},
}
_TOOL_EXTRAS: Final[Mapping[str, Sequence[Json]]] = {
    "title": ("Search",),
    "toolMetadata": ({"client": "mcp"},),
    "providerExecuted": (True, False),
    "callProviderMetadata": PROVIDER_METADATA,
    "preliminary": (True,),
    "inputEncoding": ("text", "json"),
}
_OTHER_PARTS: Final[tuple[Json, ...]] = (
    {"type": "step-start"},
    {"type": "text", "text": "Let me see.", "state": "done"},
    {"type": "text", "text": "unfinished", "state": "streaming"},
    {"type": "reasoning", "id": "t1", "text": "Hm", "state": "done"},
    {"type": "data-weather", "id": "d1", "data": {"celsius": 20}},
)


@st.composite
def _tool_parts(draw: st.DrawFn) -> Json:
    state = draw(st.sampled_from([state for state in ToolState if state in _STATE_KEYS]))
    name = draw(st.sampled_from(["search", "get-time"]))
    is_dynamic = draw(st.booleans())
    part: dict[str, Json] = {"type": "dynamic-tool", "toolName": name} if is_dynamic else {"type": f"tool-{name}"}
    part |= {"toolCallId": draw(st.sampled_from(["c1", "c2", "c3"])), "state": state.value}
    return part | _choose(draw, _STATE_KEYS[state], _TOOL_EXTRAS)


@st.composite
def _messages(draw: st.DrawFn) -> Json:
    """Assistant messages as a page sends them back."""
    parts = draw(st.lists(st.one_of(_tool_parts(), _tool_parts(), st.sampled_from(_OTHER_PARTS)), max_size=5))
    message: dict[str, Json] = {"id": "m1", "role": "assistant", "parts": [dict(part) for part in parts]}
    metadata = draw(st.sampled_from(METADATA))
    return message if metadata is None else message | {"metadata": metadata}


def _open_in(message: Json) -> dict[str, list[str]]:
    tools = [part for part in message["parts"] if "toolCallId" in part]
    return {
        "call": [part["toolCallId"] for part in tools],
        "dynamic": [part["toolCallId"] for part in tools if part["type"] == "dynamic-tool"],
        "input": [part["toolCallId"] for part in tools if part["state"] == "input-streaming"],
        "approval": [part["approval"]["id"] for part in tools if "approval" in part],
    }


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    message = draw(_messages()) if draw(st.integers(0, 3)) == 0 else None
    stream = draw(_streams({} if message is None else _open_in(message)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 1, 2]))):
        stream = _damage(draw, stream)
    return Case(stream, message)


cases: st.SearchStrategy[Case] = _cases()
"""Streams of every chunk, legal and not, some of which continue a message."""


# What a release lets through, and what occurred.


def row_of(chunk_type: str) -> str:
    """Return the name of a chunk type in the table of releases."""
    return "data" if chunk_type.startswith("data-") else chunk_type


def known_types(stream: Sequence[Json], candidate: Release) -> list[Json]:
    """Return the chunks whose type the release knows."""
    return [chunk for chunk in stream if CHUNKS[row_of(chunk["type"])].since.includes(candidate)]


def for_release(stream: Sequence[Json], candidate: Release) -> list[Json]:
    """Return the stream without the chunks and keys that the release's schema refuses."""
    strict = candidate <= STRICT_UNTIL[candidate.major]
    return [_known_keys(chunk, candidate, strict=strict) for chunk in known_types(stream, candidate)]


def _known_keys(chunk: Json, candidate: Release, *, strict: bool) -> Json:
    fields = CHUNKS[row_of(chunk["type"])].fields
    content = {key: value for key, value in chunk.items() if key not in fields or fields[key].includes(candidate)}
    if strict and row_of(chunk["type"]) == "data":
        content = {key: value for key, value in content.items() if key in ("type", "data", "id", "transient")}
    reason = content.get("finishReason")
    if reason is not None and not FINISH_REASONS[reason].includes(candidate):
        del content["finishReason"]
    return content


def reach(case: Case, received: Sequence[Json], error: Exception | None) -> Counter[str]:
    """Count what occurred in one case: chunk types, tool states, failures and continuations.

    ``received`` is what was read before ``error``, if there was one.
    """
    counted: Counter[str] = Counter({f"chunk {row_of(chunk['type'])}" for chunk in received})
    for chunk in received:
        if chunk["type"].startswith("tool-"):
            counted[f"state {tool_state_set_by(chunk_from_json(chunk))}"] += 1
    if isinstance(error, UIMessageStreamError):
        counted[f"failure {error.chunk_type}"] += 1
    if case.message is not None:
        counted["continuation"] += 1
        counted["continuation with an open call"] += bool(_open_in(case.message)["input"])
    return counted
