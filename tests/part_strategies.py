"""Hypothesis strategies for parts: few ids and few lanes, so that everything collides."""

from typing import Any

from hypothesis import strategies as st

from usechat import parts
from usechat.parts import Part

LANES = ("", "x", "y", "z")
CALLS = ("c1", "c2", "c3", "")
APPROVALS = ("a1", "a2", "c1")
TOOLS = ("search", "get-time")

lanes = st.sampled_from(LANES)
call_ids = st.sampled_from(CALLS)
approval_ids = st.sampled_from(APPROVALS)
tool_names = st.sampled_from(TOOLS)
texts = st.one_of(st.sampled_from(["", "Hel", "lo", " é\u2028", "😀", "\ud83d", "\x00\x7f\n"]), st.text(max_size=4))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(),
    texts,
)
keys = st.one_of(
    st.sampled_from(["a", "b", "constructor", "__proto__", "prototype", "type", "id"]), st.text(max_size=3)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2), max_leaves=4
)
objects = st.dictionaries(keys, values, max_size=2)
provider_metadata = st.none() | st.dictionaries(st.sampled_from(["openai", "p"]), objects, max_size=2)
flags = st.none() | st.booleans()
dynamic = st.sampled_from([False, False, True])
citations = st.one_of(
    st.none(),
    st.just(({"source": {"type": "source", "sourceType": "url", "id": "s1", "url": "https://example.com"}},)),
    st.just(
        (
            {
                "source": {
                    "type": "source",
                    "sourceType": "document",
                    "id": "s",
                    "mediaType": "text/plain",
                    "title": "t",
                },
                "startIndex": 0,
                "endIndex": 3,
                "citedText": "abc",
            },
        )
    ),
    st.just(({"source": "somewhere"},)),
    st.sampled_from([True, -1, 2**60, 1.5]).map(
        lambda index: ({"source": {"type": "source", "sourceType": "url", "id": "s", "url": "u"}, "startIndex": index},)
    ),
)
steering_parts = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, texts),
        st.just({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==", "filename": "x.png"}),
        st.just({"type": "audio"}),
    ),
    max_size=2,
).map(tuple)


def _build(part: type[Part], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Part]:
    return st.builds(part, lane=lanes, **fields)


apps = st.none() | st.builds(
    parts.McpApp,
    st.sampled_from(["ui://map", "ui://list"]),
    st.none() | texts,
    st.sampled_from([None, (), ("app",), ("model", "app")]),
)
_call_options: dict[str, st.SearchStrategy[Any]] = {
    "dynamic": dynamic,
    "provider_executed": flags,
    "provider_metadata": provider_metadata,
    "tool_metadata": st.none() | objects,
    "title": st.none() | texts,
}
_output_options: dict[str, st.SearchStrategy[Any]] = {
    "tool_name": st.none() | tool_names,
    "dynamic": dynamic,
    "provider_executed": flags,
    "provider_metadata": provider_metadata,
    "tool_metadata": st.none() | objects,
}

block_ids = st.sampled_from([None, None, None, "1", "b", ""])
text_parts = _build(parts.Text, text=texts, provider_metadata=st.none(), id=block_ids)
tool_parts = st.one_of(
    _build(
        parts.ToolInputStart,
        tool_call_id=call_ids,
        tool_name=tool_names,
        input_encoding=st.sampled_from([None, "json", "text"]),
        **_call_options,
    ),
    _build(parts.ToolInputDelta, tool_call_id=call_ids, text=st.sampled_from(['{"a":', "1", "}", "[", '"x', "tru"])),
    _build(parts.ToolCall, tool_call_id=call_ids, tool_name=tool_names, input=values, app=apps, **_call_options),
    _build(
        parts.ToolInputError,
        tool_call_id=call_ids,
        tool_name=tool_names,
        error_text=texts,
        input=values,
        **_call_options,
    ),
    _build(
        parts.ToolResult,
        tool_call_id=call_ids,
        output=values,
        preliminary=st.booleans(),
        app=apps,
        **_output_options,
    ),
    _build(parts.ToolError, tool_call_id=call_ids, error_text=texts, **_output_options),
    _build(
        parts.ToolDenied,
        tool_call_id=call_ids,
        reason=st.none() | texts,
        tool_name=st.none() | tool_names,
        dynamic=dynamic,
    ),
    _build(
        parts.ApprovalRequest,
        approval_id=approval_ids,
        tool_call_id=call_ids,
        reason=st.none() | texts,
        is_automatic=st.booleans(),
        signature=st.none() | texts,
        descriptor=values,
        input_schema_input=values,
        tool_name=st.none() | tool_names,
        dynamic=dynamic,
    ),
    _build(
        parts.ApprovalResponse,
        approval_id=approval_ids,
        approved=st.booleans(),
        reason=st.none() | texts,
        provider_executed=flags,
        provider_metadata=provider_metadata,
    ),
)
other_parts = st.one_of(
    _build(parts.Reasoning, text=texts, provider_metadata=provider_metadata),
    _build(parts.Text, text=texts, provider_metadata=provider_metadata, id=block_ids),
    _build(parts.BlockEnd, provider_metadata=provider_metadata, citations=citations),
    _build(
        parts.SourceUrl,
        source_id=st.just("s1"),
        url=st.just("https://example.com/"),
        title=st.none() | texts,
        provider_metadata=provider_metadata,
    ),
    _build(
        parts.SourceDocument,
        source_id=st.just("s2"),
        media_type=st.just("text/plain"),
        title=texts,
        filename=st.none() | texts,
        provider_metadata=provider_metadata,
    ),
    _build(parts.File, url=st.just("data:,x"), media_type=st.just("text/plain"), provider_metadata=provider_metadata),
    _build(
        parts.ReasoningFile,
        url=st.just("data:,x"),
        media_type=st.just("text/plain"),
        provider_metadata=provider_metadata,
    ),
    _build(parts.Custom, kind=st.just("openai.thing"), provider_metadata=provider_metadata),
    _build(
        parts.Data,
        name=st.sampled_from(["progress", "x", ""]),
        data=values,
        id=st.none() | st.sampled_from(["d1", "d2"]),
        transient=st.booleans(),
    ),
    _build(parts.SteeringMessage, id=st.just("u2"), parts=steering_parts),
    _build(parts.Step),
    _build(parts.Step),
    _build(parts.ResetStep),
    _build(parts.Metadata, metadata=objects),
    _build(parts.Start, message_id=st.none() | st.just("other"), metadata=st.none() | objects),
)
endings = st.one_of(
    st.builds(
        parts.Finish,
        reason=st.none() | st.sampled_from(["stop", "length", "unknown", "interrupted", "tool-calls", "end_turn"]),
        usage=st.none() | st.just({"inputTokens": 3}),
        metadata=st.none() | objects,
    ),
    st.builds(parts.Error, error_text=texts.filter(bool), usage=st.none() | st.just({"inputTokens": 3})),
    st.builds(parts.Abort, reason=st.none() | texts, metadata=st.none() | objects),
)
any_part: st.SearchStrategy[Part] = st.one_of(text_parts, tool_parts, tool_parts, other_parts)
part_lists: st.SearchStrategy[list[Part]] = st.builds(
    lambda body, ending, late: [*body, *ending, *late],
    st.lists(any_part, max_size=14),
    st.lists(endings, max_size=1),
    st.lists(any_part, max_size=1),
)


def _tool_part(state: str, call_id: str, name: str, is_dynamic: bool, approved: bool) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "dynamic-tool", "toolName": name} if is_dynamic else {"type": f"tool-{name}"}
    part |= {"toolCallId": call_id, "state": state, "input": {"q": 1}}
    if state == "output-available":
        part["output"] = {"r": 1}
    if state == "output-error":
        part["errorText"] = "failed"
    if state.startswith("approval-"):
        part["approval"] = {"id": f"a{call_id[1:]}"}
    if state == "approval-responded":
        part["approval"]["approved"] = approved
    return part


COMMON_STATES = ("input-available", "output-available", "output-error")
APPROVAL_STATES = ("approval-requested", "approval-responded")


def continued_messages(*, approvals: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Assistant messages that a client sends back to be continued; an id may occur in several steps."""
    states = st.sampled_from(COMMON_STATES + (APPROVAL_STATES if approvals else ()))
    tool_part = st.builds(_tool_part, states, call_ids, tool_names, st.booleans(), st.booleans())
    tools = st.lists(tool_part, min_size=1, max_size=3, unique_by=lambda part: part["toolCallId"])
    text = {"type": "text", "text": "Let me see.", "state": "done"}
    steps = st.lists(tools.map(lambda calls: [{"type": "step-start"}, text, *calls]), min_size=1, max_size=2)
    return steps.map(
        lambda step_list: {
            "id": "assistant-1",
            "role": "assistant",
            "parts": [part for step in step_list for part in step],
        }
    )
