"""Hypothesis strategies for model messages in any order: few ids, so that calls, results and approvals meet."""

from typing import Any

from hypothesis import strategies as st

call_ids = st.sampled_from(["c1", "c2", "c3"])
approval_ids = st.sampled_from(["a1", "a2"])
texts = st.sampled_from(["", " \n", "Hello"])
options = st.sampled_from([{}, {}, {"providerOptions": {"p": {"signature": "s"}}}])
outputs = st.sampled_from(
    [
        {"type": "text", "value": "one"},
        {"type": "json", "value": {"two": 2}},
        {"type": "error-text", "value": "broken"},
        {"type": "content", "value": [{"type": "text", "text": "three"}]},
    ]
)


def part(kind: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda more, **fields: {"type": kind, **fields, **more}, options, **values)


def bare(kind: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **values})


text_parts = part("text", text=texts)
calls = st.builds(
    lambda call, executed, tool_input: call | executed | tool_input,
    part("tool-call", toolCallId=call_ids, toolName=st.just("search")),
    st.sampled_from([{}, {}, {"providerExecuted": True}, {"providerExecuted": False}]),
    st.sampled_from([{}, {"input": None}, {"input": "raw"}, {"input": [1]}, {"input": {"q": "x"}}, {"input": {}}]),
)
results = part("tool-result", toolCallId=call_ids, toolName=st.just("search"), output=outputs)
requests = bare("tool-approval-request", approvalId=approval_ids, toolCallId=call_ids)
responses = st.builds(
    lambda response, reason, executed: response | reason | executed,
    bare("tool-approval-response", approvalId=approval_ids, approved=st.booleans()),
    st.sampled_from([{}, {"reason": "not today"}]),
    st.sampled_from([{}, {"providerExecuted": True}]),
)
assistant_parts = st.one_of(text_parts, part("reasoning", text=texts), calls, calls, calls, results, requests)


def message(role: str, content: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), "content": content})


assistant_messages = message("assistant", st.lists(assistant_parts, max_size=5))
tool_messages = message("tool", st.lists(st.one_of(results, results, responses), max_size=4))
model_histories: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.one_of(
        message("system", texts),
        message("user", st.lists(text_parts, max_size=2)),
        assistant_messages,
        assistant_messages,
        tool_messages,
        tool_messages,
    ),
    max_size=7,
)
"""Histories of AI SDK 5, 6 and 7 alike: without ``execution-denied``, which only 7 knows."""

denials = part(
    "tool-result", toolCallId=call_ids, toolName=st.just("search"), output=st.just({"type": "execution-denied"})
)
model_histories_with_denials = st.lists(
    st.one_of(
        message("user", st.lists(text_parts, min_size=1, max_size=1)),
        assistant_messages,
        message("tool", st.lists(st.one_of(results, responses, denials), max_size=4)),
    ),
    max_size=6,
)
