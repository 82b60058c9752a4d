"""What all adapters need of a turn: its history for a model, its calls and results, and fixed sentences."""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import filterfalse
from typing import Any, Final, NamedTuple, cast

from usechat.adapters.sub_agents import is_in_tool
from usechat.errors import PublicError
from usechat.pauses.handles import state_handle
from usechat.pauses.questions import ASKED, PAUSE_IS_GONE, QUESTION, has_answers
from usechat.protocol.message import MessageBuilder
from usechat.protocol.model_messages import ModelMessage, ToolResultOutput, model_messages, repair_messages
from usechat.protocol.parts import (
    Finish,
    Part,
    ProviderMetadata,
    SourceUrl,
)
from usechat.protocol.reframing import INCOMPLETE
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage, is_dynamic_tool, is_settled, tool_parts_of
from usechat.protocol.values import encodable, json_text, json_value
from usechat.turn import Turn

__all__ = [
    "ASKED",
    "INCOMPLETE",
    "INVALID_INPUT",
    "NOT_COMPLETED",
    "PAUSE_IS_GONE",
    "QUESTION",
    "TOOL_FAILED",
    "Contents",
    "HistoryCall",
    "HistoryResult",
    "calls_of",
    "cited",
    "contents_of",
    "denials",
    "finish",
    "finish_reason",
    "history",
    "is_failure",
    "messages_for_model",
    "messages_of",
    "parsed_result",
    "printed_result",
    "refuse_answers",
    "result_text",
    "settled_calls_of",
    "signature_of",
    "signed",
    "state_handle",
    "usage",
    "without_asked",
    "without_provider_calls",
    "without_questions",
    "without_tools",
]


INVALID_INPUT: Final = "The input is not valid JSON."
NOT_COMPLETED: Final = "The tool call was not completed."
TOOL_FAILED: Final = "The tool failed."
_DENIED: Final = "The user did not allow this call."

_LONGEST_LITERAL: Final = 100_000
"""How long a result may be that is read as a Python literal."""

_REASONS: Final[Mapping[str, str]] = {
    # Of OpenAI, Anthropic and Gemini; to the reasons of the AI SDK.
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "STOP": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "MAX_TOKENS": "length",
    "content_filter": "content-filter",
    "refusal": "content-filter",
    "SAFETY": "content-filter",
    "tool_calls": "tool-calls",
    "tool_call": "tool-calls",
    "tool_use": "tool-calls",
}


def history(turn: Turn) -> list[ModelMessage]:
    """Return the chat so far as model messages that no provider rejects.

    System messages are left out: they come from the page, and the agent has its instructions.
    """
    return messages_for_model(message for message in turn.messages if message["role"] != "system")


def messages_for_model(messages: Iterable[UIMessage]) -> list[ModelMessage]:
    """Return messages of a chat as model messages that no provider rejects.

    Questions that were asked while the agent ran are left out, since no model has made these calls. So is what agents
    said while they worked for a tool: its result tells what they found. Half an emoji (a lone surrogate), which no
    encoder takes, is replaced.
    """
    return repair_messages(model_messages(_without_sub_agents(without_asked(encodable(list(messages))))))


class HistoryCall(NamedTuple):
    """A call in a history; its input is an object."""

    id: str
    name: str
    input: Any

    @property
    def arguments(self) -> str:
        """The input as JSON text."""
        return json_text(json_value(self.input))


class HistoryResult(NamedTuple):
    """The result of a call in a history."""

    call_id: str
    name: str
    output: ToolResultOutput

    @property
    def text(self) -> str:
        """The text that a model reads."""
        return result_text(self.output)

    @property
    def is_failure(self) -> bool:
        """Whether the tool did not do its work."""
        return is_failure(self.output)


class Contents(NamedTuple):
    """What the message of a model or of its tools holds, by kind: all texts as one, the calls, and the results."""

    text: str
    calls: list[HistoryCall]
    results: list[HistoryResult]


def contents_of(message: ModelMessage) -> Contents:
    """Return what the message of a model or of its tools holds, for frameworks that keep it by kind.

    >>> call = {"type": "tool-call", "toolCallId": "c1", "toolName": "clock", "input": {"zone": "UTC"}}
    >>> contents = contents_of({"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})
    >>> contents.text, contents.calls[0].arguments, contents.results
    ('I look.', '{"zone":"UTC"}', [])
    """
    parts: Any = message["content"]
    contents = Contents("".join(part["text"] for part in parts if part["type"] == "text"), [], [])
    for part in parts:
        if part["type"] == "tool-call":
            contents.calls.append(HistoryCall(part["toolCallId"], part["toolName"], part.get("input") or {}))
        elif part["type"] == "tool-result":
            contents.results.append(HistoryResult(part["toolCallId"], part["toolName"], part["output"]))
    return contents


def messages_of(parts: Iterable[Part]) -> list[ModelMessage]:
    """Return what was sent in a turn so far as model messages: a loop that runs tools adds them to the history.

    Read them with the client's converter, such as ``to_anthropic``. Calls need their results among the parts.

    >>> from usechat.parts import ToolCall, ToolResult
    >>> [message["role"] for message in messages_of([ToolCall("c1", "clock"), ToolResult("c1", 12)])]
    ['assistant', 'tool']
    """
    stream, builder = MessageStream(message_id="said", sdk="7"), MessageBuilder(sdk="7")
    for part in parts:
        for chunk in stream.send(part):
            builder.receive(chunk)
    for chunk in stream.close():
        builder.receive(chunk)
    return model_messages([builder.message])


def without_provider_calls(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """Yield the messages without the calls that a provider ran itself, and without their results.

    Each provider has its own format for them, which a chat does not hold.
    """
    listed: list[Any] = list(messages)
    calls = (part for message in listed if message["role"] == "assistant" for part in message["content"])
    provided = {call["toolCallId"] for call in calls if call["type"] == "tool-call" and call.get("providerExecuted")}
    for message in listed:
        if message["role"] in ("assistant", "tool"):
            parts = [part for part in message["content"] if part.get("toolCallId") not in provided]
            if parts:
                yield cast("ModelMessage", {**message, "content": parts})
        else:
            yield message


def without_tools(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the messages without calls, their results and reasoning, for agents that have other tools, or none.

    >>> call = {"type": "tool-call", "toolCallId": "c1", "toolName": "clock", "input": {}}
    >>> content = [{"type": "text", "text": "I look."}, call, {"type": "text", "text": "Noon."}]
    >>> without_tools([{"role": "assistant", "content": content}])
    [{'role': 'assistant', 'content': [{'type': 'text', 'text': 'I look.\\n\\nNoon.'}]}]
    """
    listed: list[Any] = []
    for message in messages:
        if message["role"] != "assistant":
            listed += [] if message["role"] == "tool" else [message]
            continue
        texts = [part["text"] for part in message["content"] if part["type"] == "text"]
        if listed and listed[-1]["role"] == "assistant":
            texts.insert(0, listed.pop()["content"][0]["text"])
        if any(texts):
            listed.append(
                {"role": "assistant", "content": [{"type": "text", "text": "\n\n".join(filter(None, texts))}]}
            )
    return listed


def without_questions(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """Yield the messages without the calls that stand for questions (``QUESTION``): no model has made them."""
    for message in messages:
        if message["role"] in ("user", "system"):
            yield message
            continue
        content: Any = message["content"]
        parts = [part for part in content if part.get("toolName") != QUESTION]
        if parts:
            yield cast("ModelMessage", {**message, "content": parts})


def without_asked(messages: Iterable[UIMessage]) -> list[UIMessage]:
    """Return the messages without the questions that were asked while an agent ran (``ASKED``)."""
    return [
        message if message["role"] != "assistant" else {**message, "parts": [*filterfalse(_is_asked, message["parts"])]}
        for message in messages
    ]


def _without_sub_agents(messages: Iterable[UIMessage]) -> list[UIMessage]:
    return [{**message, "parts": [*filterfalse(is_in_tool, message["parts"])]} for message in messages]


def _is_asked(part: Any) -> bool:
    return is_dynamic_tool(part) and str(part.get("toolCallId", "")).startswith(ASKED)


def calls_of(turn: Turn) -> frozenset[str]:
    """Return the ids of the calls in the message that this turn continues: the page knows them already."""
    return frozenset(part["toolCallId"] for part in tool_parts_of(turn.request.continues or {}))


def settled_calls_of(turn: Turn) -> frozenset[str]:
    """Return the ids of those calls that have an outcome on the page."""
    return frozenset(part["toolCallId"] for part in tool_parts_of(turn.request.continues or {}) if is_settled(part))


def denials(turn: Turn) -> dict[str, str | None]:
    """Return the calls that a person denied, with the reasons."""
    return {
        answer.tool_call_id: answer.reason for answer in turn.approvals if answer.tool_call_id and not answer.approved
    }


def refuse_answers(turn: Turn) -> None:
    """Raise ``PublicError`` if a turn brings answers: for frameworks whose runs wait in their process, and are gone."""
    if has_answers(turn):
        raise PublicError(PAUSE_IS_GONE)


def signed(signature: str) -> ProviderMetadata:
    """Return the metadata of reasoning that has a signature of Anthropic; :func:`signature_of` finds it again."""
    return {"anthropic": {"signature": signature}}


def signature_of(part: Mapping[str, Any]) -> str | None:
    """Return the signature with which Anthropic takes its reasoning back; ``None`` for other parts, and without one."""
    signature: str | None = part.get("providerOptions", {}).get("anthropic", {}).get("signature")
    return signature if part["type"] == "reasoning" else None


def result_text(output: ToolResultOutput) -> str:
    """Return the result of a tool as the text that a model reads."""
    if output["type"] == "execution-denied":
        return output.get("reason") or _DENIED
    value = output.get("value")
    return value if isinstance(value, str) else json_text(json_value(value))


def is_failure(output: ToolResultOutput) -> bool:
    """Tell whether a result says that the tool did not do its work."""
    return output["type"] in ("error-text", "error-json", "execution-denied")


def parsed_result(text: str) -> Any:
    """Return the object or list that a result holds as JSON text; any other text as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def printed_result(result: Any) -> Any:
    """Return the value of a result of which a framework tells the text that ``str`` makes of it."""
    if not isinstance(result, str):
        return result
    value = parsed_result(result)
    if isinstance(value, str) and result[:1] in ("{", "[") and len(result) < _LONGEST_LITERAL:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return json_value(ast.literal_eval(result))
    return value


def cited(annotations: Iterable[Any], known: set[str], lane: str = "") -> Iterator[SourceUrl]:
    """Yield the pages that a model cites, each once; ``known`` has those that were yielded.

    >>> [page.url for page in cited([{"type": "url_citation", "url": "https://example.com"}], set())]
    ['https://example.com']
    """
    for annotation in annotations:
        fields = annotation if isinstance(annotation, Mapping) else vars(annotation)
        url = fields.get("url")
        if isinstance(url, str) and url not in known:
            known.add(url)
            yield SourceUrl(url, url, fields.get("title"), lane=lane)


def usage(input_tokens: int | None, output_tokens: int | None) -> dict[str, int]:
    """Return token counts under the names of the AI SDK."""
    input_count, output_count = input_tokens or 0, output_tokens or 0
    return {"inputTokens": input_count, "outputTokens": output_count, "totalTokens": input_count + output_count}


def finish(reason: str | None, used: Mapping[str, int] | None) -> Finish:
    """Return the good ending of a turn, with the usage and the reason in the metadata of the message."""
    return Finish(reason, usage=used, metadata=None if reason is None else {"finishReason": reason})


def finish_reason(reason: object) -> str | None:
    """Return a provider's finish reason under the name of the AI SDK; ``other`` for one that is not known."""
    return None if not isinstance(reason, str) else _REASONS.get(reason, "other")
