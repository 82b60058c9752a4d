"""What providers demand of a history, as predicates over model messages. Each names who rejects what breaks it.

Written apart from `repair_messages`, so that one checks the other.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

Json = Any
Rule = Callable[[Sequence[Json]], bool]


def _parts(message: Json, kind: str) -> list[Json]:
    if message["role"] == "system":
        return []
    return [part for part in message["content"] if part["type"] == kind]


def _our_calls(message: Json) -> list[Json]:
    return [call for call in _parts(message, "tool-call") if call.get("providerExecuted") is not True]


def _provider_calls(message: Json) -> list[Json]:
    return [call for call in _parts(message, "tool-call") if call.get("providerExecuted") is True]


def _ids(parts: Sequence[Json], key: str = "toolCallId") -> Counter[str]:
    return Counter(part[key] for part in parts)


def _with_next(messages: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
    """Yield each message with the one behind it; the last one with an empty user message."""
    return pairwise([*messages, {"role": "user", "content": []}])


def _is_denial(result: Json) -> bool:
    return bool(result["output"]["type"] == "execution-denied")


def every_call_is_answered_directly_behind_it(messages: Sequence[Json]) -> bool:
    """OpenAI: "tool_calls must be followed by tool messages responding to each tool_call_id". Anthropic, Gemini: alike.

    Once each: Gemini counts the function responses.
    """
    for message, following in _with_next(messages):
        results = _parts(following, "tool-result") if following["role"] == "tool" else []
        results = [result for result in results if result["toolCallId"] not in _ids(_provider_calls(message))]
        if _ids(_our_calls(message)) != _ids(results):
            return False
    return True


def every_tool_message_is_behind_an_assistant_message(messages: Sequence[Json]) -> bool:
    """OpenAI: "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"."""
    roles = ["", *(message["role"] for message in messages)]
    return all(before == "assistant" for before, role in pairwise(roles) if role == "tool")


def every_result_of_a_provider_is_behind_its_call(messages: Sequence[Json]) -> bool:
    """Anthropic: a server tool's use and its result are blocks of one message, and none of them is alone."""
    for message, following in _with_next(messages):
        if message["role"] != "assistant":
            continue
        open_calls: set[str] = set()
        for part in message["content"]:
            if part["type"] == "tool-call" and part.get("providerExecuted") is True:
                open_calls.add(part["toolCallId"])
            elif part["type"] == "tool-result":
                if part["toolCallId"] not in open_calls:
                    return False
                open_calls.remove(part["toolCallId"])
        if not all(_goes_on_after_an_approval(call, message, following) for call in open_calls):
            return False
    return True


def _goes_on_after_an_approval(call_id: str, message: Json, following: Json) -> bool:
    requests = {
        part["approvalId"] for part in _parts(message, "tool-approval-request") if part["toolCallId"] == call_id
    }
    responses = _parts(following, "tool-approval-response")
    responded_ids = {part["approvalId"] for part in responses if part.get("providerExecuted") is True}
    denied = [part for part in _parts(following, "tool-result") if part["toolCallId"] == call_id]
    return bool(requests & responded_ids) or (len(denied) == 1 and _is_denial(denied[0]))


def every_result_in_a_tool_message_is_ours(messages: Sequence[Json]) -> bool:
    """Anthropic: "unexpected tool_use_id found in tool_result blocks". AI SDK 7 denies a provider's call there, too."""
    for message, following in _with_next(messages):
        if following["role"] == "tool":
            ours, theirs = _ids(_our_calls(message)), _ids(_provider_calls(message))
            for result in _parts(following, "tool-result"):
                is_known = result["toolCallId"] in ours or (result["toolCallId"] in theirs and _is_denial(result))
                if not is_known:
                    return False
    return True


def ids_are_unique(messages: Sequence[Json]) -> bool:
    """Anthropic: "tool_use ids must be unique"."""
    calls = _ids([call for message in messages for call in _parts(message, "tool-call")])
    requests = [part for message in messages for part in _parts(message, "tool-approval-request")]
    responses = [part for message in messages for part in _parts(message, "tool-approval-response")]
    return all(
        count == 1
        for ids in (calls, _ids(requests, "approvalId"), _ids(responses, "approvalId"))
        for count in ids.values()
    )


def every_approval_belongs_to_a_call(messages: Sequence[Json]) -> bool:
    """AI SDK: ToolCallNotFoundForApprovalError and InvalidToolApprovalError."""
    for message, following in _with_next(messages):
        call_ids: set[str] = set()
        for part in message["content"] if message["role"] == "assistant" else []:
            if part["type"] == "tool-call":
                call_ids.add(part["toolCallId"])
            elif part["type"] == "tool-approval-request" and part["toolCallId"] not in call_ids:
                return False
        requested = _ids(_parts(message, "tool-approval-request"), "approvalId")
        if any(part["approvalId"] not in requested for part in _parts(following, "tool-approval-response")):
            return False
    return True


def every_input_is_an_object(messages: Sequence[Json]) -> bool:
    """Anthropic: "tool_use.input: Input should be a valid dictionary". Gemini: `args` is a Struct."""
    return all(isinstance(call.get("input"), dict) for message in messages for call in _parts(message, "tool-call"))


def nothing_is_empty(messages: Sequence[Json]) -> bool:
    """Anthropic: "text content blocks must contain non-whitespace text". Gemini: "contents.parts must not be empty"."""
    texts = [part for message in messages for kind in ("text", "reasoning") for part in _parts(message, kind)]
    systems = [message["content"] for message in messages if message["role"] == "system"]
    return (
        all(message["content"] for message in messages)
        and all(part["text"].strip() or "providerOptions" in part for part in texts)
        and all(text.strip() for text in systems)
    )


def reasoning_has_no_null_options(messages: Sequence[Json]) -> bool:
    """AI SDK 5 and 6 refuse a prompt in which `providerOptions` are null, and `convertToModelMessages` writes such."""
    parts = [part for message in messages for kind in ("reasoning", "reasoning-file") for part in _parts(message, kind)]
    return all("providerOptions" not in part or part["providerOptions"] is not None for part in parts)


def system_messages_come_first(messages: Sequence[Json]) -> bool:
    """Anthropic and Gemini have one place for instructions, before the conversation."""
    roles = [message["role"] != "system" for message in messages]
    return roles == sorted(roles)


def assistant_messages_are_not_consecutive(messages: Sequence[Json]) -> bool:
    """Gemini rejects a function call behind a model turn, Mistral and Bedrock any second one."""
    return ("assistant", "assistant") not in pairwise(message["role"] for message in messages)


def a_call_is_behind_a_user_or_tool_message(messages: Sequence[Json]) -> bool:
    """Gemini: "function call turn comes immediately after a user turn or after a function response turn"."""
    before = [{"role": ""}, *messages]
    return all(first["role"] in ("user", "tool") for first, second in pairwise(before) if _our_calls(second))


RULES: Final[Mapping[str, Rule]] = {
    rule.__name__: rule
    for rule in (
        every_call_is_answered_directly_behind_it,
        every_tool_message_is_behind_an_assistant_message,
        every_result_of_a_provider_is_behind_its_call,
        every_result_in_a_tool_message_is_ours,
        ids_are_unique,
        every_approval_belongs_to_a_call,
        every_input_is_an_object,
        nothing_is_empty,
        reasoning_has_no_null_options,
        system_messages_come_first,
        assistant_messages_are_not_consecutive,
        a_call_is_behind_a_user_or_tool_message,
    )
}


def broken_rules(messages: Sequence[Json]) -> set[str]:
    """Return the names of the rules that the history breaks."""
    return {name for name, rule in RULES.items() if not rule(messages)}
