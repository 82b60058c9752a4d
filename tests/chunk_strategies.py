"""Chunks as JSON, legal and broken, of every type there is: what both the checker and the real clients are asked."""

from typing import Any, Final

from hypothesis import strategies as st

Json = Any

JUNK: Final[tuple[Json, ...]] = (
    None, True, False, 0, -1, 1.5, 2**53, 1e300, "", "x", "stop", "unknown", "interrupted", "json",
    [], [None], ["x"], [{}], {}, {"p": None}, {"p": 1}, {"p": []}, {"p": "x"}, {"p": {}}, {"p": {"k": None}},
    {"p": {"k": [1, {"deep": {"er": None}}]}},
)  # fmt: skip
"""Values of every kind, for every key."""

_PROVIDER: Final = {"providerMetadata": {"openai": {"itemId": "i", "nested": [None, {"a": 1}]}}}
_TOOL: Final = {"providerExecuted": True, "dynamic": True}
_TOOL_METADATA: Final = {"toolMetadata": {"client": "mcp", "n": None}}

LEGAL_VALUES: Final[dict[str, dict[str, Json]]] = {
    "start": {"messageId": "m1", "messageMetadata": {"a": 1}},
    "start-step": {},
    "finish-step": {},
    "reset-step": {},
    "finish": {"finishReason": "stop", "messageMetadata": {"a": 1}},
    "abort": {"reason": "stopped"},
    "error": {"errorText": "broken"},
    "text-start": {"id": "t1", **_PROVIDER},
    "text-delta": {"id": "t1", "delta": "Hello", **_PROVIDER},
    "text-end": {
        "id": "t1",
        "citations": [{"source": {"type": "source", "sourceType": "url", "id": "s", "url": "u"}}],
        **_PROVIDER,
    },
    "reasoning-start": {"id": "r1", **_PROVIDER},
    "reasoning-delta": {"id": "r1", "delta": "Hm", **_PROVIDER},
    "reasoning-end": {"id": "r1", **_PROVIDER},
    "tool-input-start": {
        "toolCallId": "c1",
        "toolName": "search",
        "inputEncoding": "json",
        "title": "Search",
        **_PROVIDER,
        **_TOOL,
        **_TOOL_METADATA,
    },
    "tool-input-delta": {"toolCallId": "c1", "inputTextDelta": '{"q'},
    "tool-input-available": {
        "toolCallId": "c1",
        "toolName": "search",
        "input": {"q": "x"},
        "title": "Search",
        **_PROVIDER,
        **_TOOL,
        **_TOOL_METADATA,
    },
    "tool-input-error": {
        "toolCallId": "c1",
        "toolName": "search",
        "input": "{",
        "errorText": "bad input",
        "title": "Search",
        **_PROVIDER,
        **_TOOL,
        **_TOOL_METADATA,
    },
    "tool-output-available": {
        "toolCallId": "c1",
        "output": [1],
        "preliminary": True,
        **_PROVIDER,
        **_TOOL,
        **_TOOL_METADATA,
    },
    "tool-output-error": {"toolCallId": "c1", "errorText": "failed", **_PROVIDER, **_TOOL, **_TOOL_METADATA},
    "tool-output-denied": {"toolCallId": "c1"},
    "tool-approval-request": {
        "approvalId": "a1",
        "toolCallId": "c1",
        "approvalDescriptor": {"x": 1},
        "inputSchemaInput": {"q": 1},
        "reason": "writes",
        "isAutomatic": True,
        "signature": "s",
    },
    "tool-approval-response": {
        "approvalId": "a1",
        "approved": True,
        "reason": "fine",
        "providerExecuted": False,
        **_PROVIDER,
    },
    "source-url": {"sourceId": "s1", "url": "https://a.example", "title": "A", **_PROVIDER},
    "source-document": {"sourceId": "s1", "mediaType": "text/plain", "title": "D", "filename": "d.txt", **_PROVIDER},
    "file": {"url": "data:text/plain,x", "mediaType": "text/plain", **_PROVIDER},
    "reasoning-file": {"url": "data:text/plain,x", "mediaType": "text/plain", **_PROVIDER},
    "custom": {"kind": "openai.compaction", **_PROVIDER},
    "steering-message": {"id": "u2", "parts": [{"type": "text", "text": "wait"}]},
    "message-metadata": {"messageMetadata": {"b": 2}},
    "data-weather": {"data": {"celsius": 20}, "id": "d1", "transient": False},
    "data-": {"data": None, "id": "d2", "transient": True},
    # Relics in the schemas of 5.0.0 to 5.0.51.
    "reasoning": {"text": "Hm", **_PROVIDER},
    "reasoning-part-finish": {},
}
"""A legal value for every key of every chunk type."""

REQUIRED: Final = {
    "id", "delta", "errorText", "toolCallId", "toolName", "inputTextDelta", "input", "output", "approvalId", "approved",
    "sourceId", "url", "mediaType", "kind", "parts", "data", "text",
}  # fmt: skip


def legal_chunk(chunk_type: str, *, optional: bool = True) -> dict[str, Json]:
    """Return a chunk with all its keys, or with the required ones alone."""
    values = LEGAL_VALUES[chunk_type]
    return {"type": chunk_type} | {
        key: value for key, value in values.items() if optional or _is_required(chunk_type, key)
    }


def _is_required(chunk_type: str, key: str) -> bool:
    if chunk_type.startswith("data-"):
        return key == "data"
    return key in REQUIRED or (chunk_type, key) in {
        ("source-document", "title"),
        ("message-metadata", "messageMetadata"),
    }


junk = st.sampled_from(JUNK)


@st.composite
def _mutated_chunk(draw: st.DrawFn) -> Json:
    chunk_type = draw(st.sampled_from(sorted(LEGAL_VALUES)))
    chunk = legal_chunk(chunk_type, optional=False)
    values = LEGAL_VALUES[chunk_type]
    for key in values:
        match draw(st.sampled_from(["keep", "keep", "legal", "junk", "drop"])):
            case "legal":
                chunk[key] = values[key]
            case "junk":
                chunk[key] = draw(junk)
            case "drop":
                chunk.pop(key, None)
    if draw(st.sampled_from([False, False, False, True])):
        chunk[draw(st.sampled_from(["unknown", "error", "id", "title", "toolMetadata", "constructor"]))] = draw(junk)
    return chunk


mutated_chunks = _mutated_chunk()
"""Chunks whose keys are legal, junk, absent or invented, in any mixture."""


def _mostly(legal: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.one_of(legal, legal, legal, junk)


_INDEXES = st.sampled_from([0, 3, 1.0, 2**53 - 1, 2**53, 2**60, 1e300, -1, 0.5, -0.0, True])
_PROVIDERS = _mostly(st.sampled_from([{}, {"p": {}}, {"p": {"k": 1}}]))
_STRINGS = _mostly(st.just("x"))
_SOURCES = st.fixed_dictionaries(
    {"sourceType": _mostly(st.sampled_from(["url", "document"]))},
    optional={
        "type": _mostly(st.just("source")),
        "id": _STRINGS,
        "url": _STRINGS,
        "mediaType": _STRINGS,
        "title": _STRINGS,
        "filename": _STRINGS,
        "providerMetadata": _PROVIDERS,
        "more": junk,
    },
)
CITATIONS = _mostly(
    st.fixed_dictionaries(
        {"source": _mostly(_SOURCES)},
        optional={"startIndex": _INDEXES, "endIndex": _INDEXES, "citedText": _STRINGS, "more": junk},
    )
)
STEERING_PARTS = _mostly(
    st.fixed_dictionaries(
        {"type": _mostly(st.sampled_from(["text", "file"]))},
        optional={
            "text": _STRINGS,
            "mediaType": _STRINGS,
            "url": _STRINGS,
            "filename": _STRINGS,
            "providerReference": _mostly(st.sampled_from([{}, {"p": "x"}, {"p": 1}])),
            "providerMetadata": _PROVIDERS,
            "more": junk,
        },
    )
)
