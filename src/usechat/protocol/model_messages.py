"""Turn a chat's ``UIMessage`` list into model messages, and repair model messages that a provider would reject.

A UI message is what a person sees: one assistant message holds the whole answer, with every tool call, its result and
its approval in one part each. A model message is what a language model is sent. It has a role and content:

- ``system``: one text.
- ``user``: texts and files.
- ``assistant``: what the model said in one step: text, reasoning, files, tool calls, requests for approval, and the
  results of tools that the provider ran itself.
- ``tool``: the results of the tools that we ran for that step, and the answers to its requests for approval.

So an assistant's UI message is cut at every ``step-start``. Each step becomes one assistant message and, if it called
tools, one tool message directly behind it::

    step-start, text, tool-search (output)    ->  assistant [text, tool-call], tool [tool-result]
    step-start, text                          ->  assistant [text]

``model_messages`` does what ``convertToModelMessages`` of the npm package ``ai`` does, part for part, and the npm
function of the newest 5, 6 and 7 judges it in ``tests/conformance/test_model_messages.py``. It is faithful, so what was
left open in the chat stays open in the result. ``repair_messages`` closes it: afterwards no call lacks a result. An
adapter uses both, and turns the outcome into the input of its framework::

    history = repair_messages(model_messages(turn.messages))

Keys are spelled as in the AI SDK (``toolCallId``). Optional keys are absent, and ``None`` only where the npm function
passes a ``null`` on. Values are shared with the messages they came from, not copied.
"""

import ipaddress
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict, cast
from urllib.parse import unquote_to_bytes

from usechat.errors import InvalidMessages, UnknownRelease
from usechat.protocol.ui_messages import (
    DataUIPart,
    DynamicToolUIPart,
    ProviderMetadata,
    ToolUIPart,
    UIMessage,
    is_dynamic_tool,
    is_provider_executed,
    is_static_tool,
    is_tool,
    tool_name,
)
from usechat.protocol.values import json_kind

__all__ = [
    "AssistantModelMessage",
    "ConvertDataPart",
    "CustomPart",
    "FilePart",
    "ModelMessage",
    "ReasoningFilePart",
    "ReasoningPart",
    "SystemModelMessage",
    "TextPart",
    "ToModelOutput",
    "ToolApprovalRequestPart",
    "ToolApprovalResponsePart",
    "ToolCallPart",
    "ToolModelMessage",
    "ToolResultOutput",
    "ToolResultPart",
    "UserModelMessage",
    "model_messages",
    "repair_messages",
]


# The shapes.


class TextPart(TypedDict):
    """Text of the user or of the model."""

    type: Literal["text"]
    text: str
    providerOptions: NotRequired[ProviderMetadata]


class UrlData(TypedDict):
    """A file by its URL, which may be a data URL."""

    type: Literal["url"]
    url: str


class ReferenceData(TypedDict):
    """A file that was uploaded to a provider: its name for the file, by provider."""

    type: Literal["reference"]
    reference: dict[str, str]


class FilePart(TypedDict):
    """A file. ``data`` is a URL for 5 and 6, and says what it is for 7."""

    type: Literal["file"]
    mediaType: str
    filename: NotRequired[str]
    data: str | UrlData | ReferenceData
    providerOptions: NotRequired[ProviderMetadata]


class ReasoningPart(TypedDict):
    """What the model thought. Providers put a signature into ``providerOptions``, which must go back unchanged."""

    type: Literal["reasoning"]
    text: str
    providerOptions: NotRequired[ProviderMetadata]


class ReasoningFilePart(TypedDict):
    """A file that the model made while thinking (7)."""

    type: Literal["reasoning-file"]
    mediaType: str
    data: UrlData
    providerOptions: NotRequired[ProviderMetadata]


class CustomPart(TypedDict):
    """Provider-specific content (7)."""

    type: Literal["custom"]
    kind: str
    providerOptions: NotRequired[ProviderMetadata]


class ToolCallPart(TypedDict):
    """A call of a tool. ``input`` is absent when the model's arguments could not be read."""

    type: Literal["tool-call"]
    toolCallId: str
    toolName: str
    input: NotRequired[Any]
    providerExecuted: NotRequired[bool]
    providerOptions: NotRequired[ProviderMetadata]


class ToolApprovalRequestPart(TypedDict):
    """A question whether a call may run (6, 7); it stands behind its call."""

    type: Literal["tool-approval-request"]
    approvalId: str
    toolCallId: str
    isAutomatic: NotRequired[bool]
    reason: NotRequired[str]
    inputSchemaInput: NotRequired[Any]
    signature: NotRequired[str]


class ToolApprovalResponsePart(TypedDict):
    """The answer to a request for approval (6, 7)."""

    type: Literal["tool-approval-response"]
    approvalId: str
    approved: bool
    reason: NotRequired[str]
    providerExecuted: NotRequired[bool]


class ToolResultOutput(TypedDict):
    """What a tool returned: ``text``, ``json``, ``content`` (a list of parts), ``error-text``, ``error-json`` as
    ``value``, or ``execution-denied`` with a ``reason``."""

    type: Literal["text", "json", "content", "error-text", "error-json", "execution-denied"]
    value: NotRequired[Any]
    reason: NotRequired[str]


class ToolResultPart(TypedDict):
    """The result of a call: in a tool message, or in the assistant message if the provider ran the tool."""

    type: Literal["tool-result"]
    toolCallId: str
    toolName: str
    output: ToolResultOutput
    providerOptions: NotRequired[ProviderMetadata]


class SystemModelMessage(TypedDict):
    """Instructions for the model."""

    role: Literal["system"]
    content: str
    providerOptions: NotRequired[ProviderMetadata]


class UserModelMessage(TypedDict):
    """What the user said."""

    role: Literal["user"]
    content: list[TextPart | FilePart]


class AssistantModelMessage(TypedDict):
    """What the model said in one step."""

    role: Literal["assistant"]
    content: list[
        TextPart
        | FilePart
        | ReasoningPart
        | ReasoningFilePart
        | CustomPart
        | ToolCallPart
        | ToolResultPart
        | ToolApprovalRequestPart
    ]


class ToolModelMessage(TypedDict):
    """What became of the calls of the assistant message before it."""

    role: Literal["tool"]
    content: list[ToolResultPart | ToolApprovalResponsePart]


ModelMessage: TypeAlias = SystemModelMessage | UserModelMessage | AssistantModelMessage | ToolModelMessage
ConvertDataPart: TypeAlias = Callable[[DataUIPart], TextPart | FilePart | None]
ToModelOutput: TypeAlias = Callable[[ToolUIPart | DynamicToolUIPart], ToolResultOutput]

_Json: TypeAlias = dict[str, Any]


# The conversion.

_NEWEST: Final = "7"

_SINCE: Final[Mapping[str, int]] = {
    # What the conversion does from which major on. The conversion runs on the server, so it need not be the one of the
    # page's release: of each major only the newest release is mirrored (5.0.277, 6.0.326, 7.0.170), and a row names a
    # major instead of a patch release as in the tables of `usechat.protocol.releases`.
    "approvals": 6,  # requests, responses, and the result of a denied call; before: calls without any of them
    "dynamic-tools-in-full": 6,  # before: they have no `providerExecuted`, and the raw input of a failed one is lost
    "empty-messages-left-out": 6,
    "finished-calls-only": 6,  # `ignoreIncompleteToolCalls`; before: it leaves calls that wait for an approval
    "options-of-assistant-files": 6,
    "options-of-results": 6,  # from `resultProviderMetadata`; before: from the call's
    "approval-details": 7,  # whether a request was automatic, and its reason
    "custom": 7,
    "denials-have-results": 7,
    "file-data-is-typed": 7,  # and a URL must be absolute
    "reasoning-file": 7,
    "steering-message": 7,
    "user-messages-supersede-approvals": 7,  # unanswered requests before the last user message vanish with their calls
}

_DENIED: Final = "Tool call execution denied."
_UNAVAILABLE: Final = "Tool output omitted because the tool is no longer available."
_HAS_OUTPUT: Final = ("output-available", "output-error")
_FINISHED: Final = ("approval-responded", "output-error", "output-denied")
_UNFINISHED: Final = ("input-streaming", "input-available")
_CONTENT: Final = frozenset({"text", "reasoning", "file"})


def model_messages(
    messages: Sequence[UIMessage],
    *,
    sdk: Literal["5", "6", "7"] = _NEWEST,
    ignore_incomplete_tool_calls: bool = False,
    convert_data_part: ConvertDataPart | None = None,
    tools: Mapping[str, ToModelOutput | None] | None = None,
) -> list[ModelMessage]:
    """Convert UI messages to model messages as the AI SDK's ``convertToModelMessages`` does.

    Sources and unknown parts are left out, and so are calls whose input is still being streamed. A call without a
    result stays a call; ``ignore_incomplete_tool_calls`` leaves it out.

    ``convert_data_part`` turns a ``data-*`` part into a text or file part, or returns ``None`` to leave it out; without
    it all are left out. ``tools`` maps the name of each tool to its ``toModelOutput``: a function that turns a tool
    part with an output into the result the model sees. ``None`` means the default: a string becomes ``text``, anything
    else ``json``. ``sdk`` is the major release to mirror.

    Raises :class:`~usechat.errors.InvalidMessages` where the npm function throws: for an unknown role and, with 7, for
    a file whose URL is not absolute. There are two differences. A part that ``validateUIMessages`` refuses, because a
    required key is missing or has a value of another type, raises ``InvalidMessages`` if that key is read; the npm
    function passes on what it finds. A URL stays spelled as it is; 7 makes a ``URL`` object of it. Raises
    :class:`~usechat.errors.UnknownRelease` for another ``sdk``.

    >>> call = {"type": "tool-add", "toolCallId": "c1", "state": "output-available", "input": {"a": 1}, "output": 3}
    >>> parts = [{"type": "step-start"}, call, {"type": "step-start"}, {"type": "text", "text": "Three."}]
    >>> assistant, tool, answer = model_messages([{"id": "m1", "role": "assistant", "parts": parts}])
    >>> assistant["content"]
    [{'type': 'tool-call', 'toolCallId': 'c1', 'toolName': 'add', 'input': {'a': 1}}]
    >>> tool["content"]
    [{'type': 'tool-result', 'toolCallId': 'c1', 'toolName': 'add', 'output': {'type': 'json', 'value': 3}}]
    >>> answer
    {'role': 'assistant', 'content': [{'type': 'text', 'text': 'Three.'}]}
    """
    if sdk not in ("5", "6", "7"):
        raise UnknownRelease(f"{sdk!r} is not a major release of the AI SDK; give 5, 6 or 7")
    conversion = _Conversion(int(sdk), ignore_incomplete_tool_calls, convert_data_part, tools or {})
    ui_messages = [_UIPart(message, f"messages[{number}]") for number, message in enumerate(messages)]
    last_user = max(
        (number for number, message in enumerate(ui_messages) if message.string("role") == "user"), default=-1
    )
    converted: list[Any] = []
    for number, message in enumerate(ui_messages):
        converted += conversion.message(message, before_user=number < last_user)
    return converted


@dataclass(frozen=True)
class _UIPart:
    """A UI message, a part of it, or an object within a part, with its path; checks the type of what is read."""

    value: Any
    path: str

    def get(self, key: str) -> Any:
        return self.value.get(key)

    def present(self, *keys: str, **renamed: str) -> _Json:
        """Return the keys that are there; ``new="old"`` gives one another name."""
        names = {key: key for key in keys} | renamed
        return {new: self.value[old] for new, old in names.items() if old in self.value}

    @property
    def is_provider_executed(self) -> bool:
        return is_provider_executed(self.value)

    def executor(self) -> _Json:
        """Return ``providerExecuted``, as it is or as it was before the call waited for its approval."""
        is_true = self.is_provider_executed is (self.get("providerExecuted") is True)
        return self.present("providerExecuted") if is_true else {"providerExecuted": self.is_provider_executed}

    def not_null(self, **renamed: str) -> _Json:
        return {new: value for new, old in renamed.items() if (value := self.value.get(old)) is not None}

    def string(self, key: str) -> str:
        return cast("str", self._checked(key, str, "a string"))

    def object(self, key: str) -> "_UIPart | None":
        if self.value.get(key) is None:
            return None
        return _UIPart(self._checked(key, Mapping, "an object"), f"{self.path}.{key}")

    def options(self, *keys: str) -> _Json:
        """Return the first provider metadata that is there, as the ``providerOptions`` of a model message."""
        metadata = next((metadata for key in keys if (metadata := self.object(key)) is not None), None)
        return {} if metadata is None else {"providerOptions": metadata.value}

    def options_or_null(self) -> _Json:
        """Return the provider metadata as ``providerOptions``; ``None`` is kept, as the npm function does here."""
        return self.options("providerMetadata") or self.present(providerOptions="providerMetadata")

    def parts(self) -> list["_UIPart"]:
        parts: list[Any] = self._checked("parts", list, "a list of parts")
        return [_UIPart(part, f"{self.path}.parts[{number}]") for number, part in enumerate(parts)]

    @cached_property
    def kind(self) -> str:
        return self.string("type")

    @cached_property
    def is_tool(self) -> bool:
        self.string("type")
        return is_tool(self.value)

    @property
    def tool_name(self) -> str:
        if is_dynamic_tool(self.value):
            self.string("toolName")
        return tool_name(self.value)

    def call_identity(self) -> _Json:
        return {"toolCallId": self.string("toolCallId"), "toolName": self.tool_name}

    def _checked(self, key: str, kind: type, expected: str) -> Any:
        value = self.value.get(key) if isinstance(self.value, Mapping) else None
        if not isinstance(value, kind):
            path = f"{self.path}.{key}"
            value_kind = "nothing" if value is None else json_kind(value)
            raise InvalidMessages(f"{path} must be {expected}, not {value_kind}", path=path)
        return value


@dataclass(frozen=True, slots=True)
class _Conversion:
    """One conversion with its options."""

    major: int
    ignore_incomplete: bool
    convert_data_part: ConvertDataPart | None
    tools: Mapping[str, ToModelOutput | None]

    def has(self, behaviour: str) -> bool:
        return self.major >= _SINCE[behaviour]

    def message(self, message: _UIPart, *, before_user: bool) -> Iterator[_Json]:
        parts = [part for part in message.parts() if not part.is_tool or self.keeps(part, before_user=before_user)]
        match message.string("role"):
            case "system":
                yield _system_message(parts)
            case "user":
                yield self.user_message(parts)
            case "assistant":
                yield from self.assistant_messages(parts)
            case role:
                path = f"{message.path}.role"
                raise InvalidMessages(f"{path} must be 'system', 'user' or 'assistant', not {role!r}", path=path)

    def keeps(self, call: _UIPart, *, before_user: bool) -> bool:
        """Tell whether a tool part is converted at all."""
        state = call.get("state")
        if before_user and state == "approval-requested" and self.has("user-messages-supersede-approvals"):
            return False
        if not self.ignore_incomplete:
            return True
        if state == "output-available":
            return call.get("preliminary") is not True
        return state in _FINISHED if self.has("finished-calls-only") else state not in _UNFINISHED

    def user_message(self, parts: Iterable[_UIPart]) -> _Json:
        return {"role": "user", "content": [item for part in parts for item in self.user_content(part)]}

    def user_content(self, part: _UIPart) -> Iterator[_Json]:
        if part.kind in ("text", "file"):
            yield self.text_or_file(part)
        elif part.kind.startswith("data-"):
            yield from self.data(part)

    def text_or_file(self, part: _UIPart) -> _Json:
        """Return what a user said; in a steering message everything but text counts as a file."""
        return _text(part) if part.kind == "text" else self.file(part) | part.options("providerMetadata")

    def data(self, part: _UIPart) -> Iterator[_Json]:
        model_part = self.convert_data_part(cast("DataUIPart", part.value)) if self.convert_data_part else None
        if model_part is not None:
            yield cast("_Json", model_part)

    def file(self, part: _UIPart) -> _Json:
        described = {"type": "file", "mediaType": part.string("mediaType"), **part.present("filename")}
        if not self.has("file-data-is-typed"):
            return described | {"data": part.string("url")}
        if (reference := part.object("providerReference")) is not None:
            return described | {"data": {"type": "reference", "reference": reference.value}}
        return described | {"data": _url_data(part)}

    def assistant_messages(self, parts: Iterable[_UIPart]) -> Iterator[_Json]:
        step: list[_UIPart] = []
        for part in parts:
            if part.kind == "step-start":
                yield from self.step_messages(step)
                step = []
            elif part.kind == "steering-message" and self.has("steering-message"):
                yield from self.step_messages(step)
                step = []
                yield {"role": "user", "content": [self.text_or_file(child) for child in part.parts()]}
            elif self.is_content(part):
                step.append(part)
        yield from self.step_messages(step)

    def is_content(self, part: _UIPart) -> bool:
        if part.kind in ("custom", "reasoning-file"):
            return self.has(part.kind)
        return part.kind in _CONTENT or part.is_tool or part.kind.startswith("data-")

    def step_messages(self, step: list[_UIPart]) -> Iterator[_Json]:
        if not step:
            return
        keep_empty = not self.has("empty-messages-left-out")
        content = [item for part in step for item in self.assistant_content(part)]
        if content or keep_empty:
            yield {"role": "assistant", "content": content}
        calls = [part for part in step if part.is_tool]
        answers = [item for call in calls for item in self.tool_content(call)]
        if answers or (keep_empty and any(not self.is_provider_executed(call) for call in calls)):
            yield {"role": "tool", "content": answers}

    def assistant_content(self, part: _UIPart) -> Iterator[_Json]:
        match part.kind:
            case "text":
                yield _text(part)
            case "reasoning":
                yield {"type": "reasoning", "text": part.string("text"), **part.options_or_null()}
            case "file":
                options = part.options("providerMetadata") if self.has("options-of-assistant-files") else {}
                yield self.file(part) | options
            case "reasoning-file":
                described = {"mediaType": part.string("mediaType"), "data": _url_data(part)}
                yield {"type": "reasoning-file", **described, **part.options_or_null()}
            case "custom":
                yield {"type": "custom", "kind": part.string("kind"), **part.options("providerMetadata")}
            case _:
                yield from self.call(part) if part.is_tool else self.data(part)

    def is_read_in_full(self, call: _UIPart) -> bool:
        return is_static_tool(call.value) or self.has("dynamic-tools-in-full")

    def is_provider_executed(self, call: _UIPart) -> bool:
        return call.is_provider_executed and self.is_read_in_full(call)

    def call(self, call: _UIPart) -> Iterator[_Json]:
        """Yield what the assistant message has of a call: the call, its approval request, the provider's result."""
        state = call.string("state")
        if state == "input-streaming":
            return
        own = ["callProviderMetadata"]
        results = ["resultProviderMetadata"] if self.has("options-of-results") else []
        yield {
            "type": "tool-call",
            **call.call_identity(),
            **self.input(call),
            **(call.executor() if self.is_read_in_full(call) else {}),
            **call.options(*own, *(results if state == "output-error" else [])),
        }
        if (approval := self.approval(call)) is not None:
            yield self.approval_request(call, approval)
        if self.is_provider_executed(call) and state in _HAS_OUTPUT:
            yield _result(call, self.output(call, "error-json"), *results, *own)

    def input(self, call: _UIPart) -> _Json:
        if call.get("state") != "output-error" or not self.is_read_in_full(call):
            return call.present("input")
        return call.present("input") if call.get("input") is not None else call.present(input="rawInput")

    def approval(self, call: _UIPart) -> _UIPart | None:
        return call.object("approval") if self.has("approvals") else None

    def approval_request(self, call: _UIPart, approval: _UIPart) -> _Json:
        request = {
            "type": "tool-approval-request",
            "approvalId": approval.string("id"),
            "toolCallId": call.string("toolCallId"),
        }
        if self.has("approval-details"):
            request |= approval.present("isAutomatic") | approval.not_null(reason="requestReason")
        return request | approval.present("inputSchemaInput") | approval.not_null(signature="signature")

    def tool_content(self, call: _UIPart) -> Iterator[_Json]:
        """Yield what the tool message has of a call: the approval response and our result."""
        state = call.string("state")
        approval = self.approval(call)
        if approval is not None and approval.get("approved") is not None:
            yield _approval_response(call, approval)
            denied = state == "approval-responded" and approval.get("approved") is False
            if denied and self.has("denials-have-results"):
                yield _result(call, {"type": "execution-denied", **approval.present("reason")}, "callProviderMetadata")
        if self.is_provider_executed(call):
            return
        if state in _HAS_OUTPUT:
            yield _result(call, self.output(call, "error-text"), "callProviderMetadata")
        elif state == "output-denied" and self.has("approvals"):
            reason = None if approval is None else approval.get("reason")
            yield _result(call, _error_text(_DENIED if reason is None else reason), "callProviderMetadata")

    def output(self, call: _UIPart, error_type: Literal["error-text", "error-json"]) -> _Json:
        """Return the output of a tool as the model sees it."""
        if call.get("state") == "output-error":
            return {"type": error_type, "value": call.string("errorText")}
        if (to_model_output := self.tools.get(call.tool_name)) is not None:
            return cast("_Json", to_model_output(cast("ToolUIPart | DynamicToolUIPart", call.value)))
        if call.tool_name not in self.tools and is_dynamic_tool(call.value) and call.get("dynamic") is False:
            # `validateUIMessages` marks a call so when the tool that it called is no longer there.
            return {"type": "text", "value": _UNAVAILABLE}
        output = call.get("output")
        return {"type": "text" if isinstance(output, str) else "json", "value": output}


def _system_message(parts: Iterable[_UIPart]) -> _Json:
    texts = [part for part in parts if part.kind == "text"]
    metadata: _Json = {}
    for text in texts:
        metadata |= text.options("providerMetadata").get("providerOptions", {})
    content = "".join(text.string("text") for text in texts)
    return {"role": "system", "content": content, **({"providerOptions": metadata} if metadata else {})}


def _text(part: _UIPart) -> _Json:
    return {"type": "text", "text": part.string("text"), **part.options("providerMetadata")}


def _url_data(part: _UIPart) -> _Json:
    url = part.string("url")
    if not _is_absolute_url(url):
        path = f"{part.path}.url"
        raise InvalidMessages(f"{path} must be an absolute URL or a data URL, not {url[:80]!r}", path=path)
    return {"type": "url", "url": url}


def _approval_response(call: _UIPart, approval: _UIPart) -> _Json:
    return {
        "type": "tool-approval-response",
        "approvalId": approval.string("id"),
        "approved": approval.get("approved"),
        **approval.present("reason"),
        **call.executor(),
    }


def _result(call: _UIPart, output: _Json, *metadata: str) -> _Json:
    return {"type": "tool-result", **call.call_identity(), "output": output, **call.options(*metadata)}


def _error_text(text: str) -> _Json:
    return {"type": "error-text", "value": text}


# The repair.

_NOT_COMPLETED: Final = "The tool call was not completed."
_CUT_OFF: Final = "(Earlier messages are not included.)"
_ABOUT_CALLS: Final = frozenset({"tool-call", "tool-result", "tool-approval-request", "tool-approval-response"})

_Position: TypeAlias = tuple[int, ...]
"""The index of a message and of a part in it; a third number stands for a place directly behind that part."""

_Entry: TypeAlias = tuple[_Position, _Json]
_LAST: Final = (sys.maxsize,)


def repair_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a history that no provider rejects; one that is right already is returned as it is.

    | what is rejected | by | what becomes of it |
    |---|---|---|
    | a call without a result | OpenAI, Anthropic, Gemini | gets an error result: not completed, or denied |
    | a result or an approval response without its call | OpenAI, Anthropic, the AI SDK | is dropped |
    | two calls, results or approvals with one id | Anthropic, Gemini | the last one stays |
    | a result that is not directly behind the assistant message that called | OpenAI, Anthropic, Gemini | is moved |
    | a provider's own result that is not in the message of its call | Anthropic | is moved |
    | input that is no object | Anthropic, Gemini | becomes ``{"input": …}``; if there is none, ``{}`` |
    | empty text, reasoning, content | Anthropic, Gemini | is dropped; but what carries ``providerOptions`` stays |
    | ``providerOptions`` that are ``None`` | AI SDK 5, 6 | are dropped |
    | a system message behind others | Anthropic, Gemini | is moved to the front |
    | a call behind another assistant message | Gemini | consecutive assistant messages become one |
    | a call as the first message | Gemini | gets a user message in front, which says that the history was cut |

    A call and what became of it stay together. If two calls have the same id, the last one with a result is kept
    with its result; the other call and its result are dropped. A result without an earlier call belongs to the next
    call with its id.

    An approved call that has not run yet has no result either: run it, and add its result, before the repair.

    What depends on the model is not looked at, such as accepted media types and the characters of an id. The history
    may end with an assistant message; some models reject that unless a user message is added.

    >>> call = {"type": "tool-call", "toolCallId": "c1", "toolName": "add", "input": {"a": 1}}
    >>> question = {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}]}
    >>> _, _, tool = repair_messages([question, {"role": "assistant", "content": [call]}])
    >>> tool["content"][0]["output"]
    {'type': 'error-text', 'value': 'The tool call was not completed.'}
    """
    calls = _calls_by_message(messages)
    systems: list[Any] = []
    others: list[Any] = []
    for number, message in enumerate(cast("Sequence[_Json]", messages)):
        match message["role"]:
            case "system":
                systems += [message] if message["content"].strip() else []
            case "user":
                _append(others, message, [part for part in message["content"] if not _is_blank(part)])
            case "assistant":
                _append_step(others, message, number, calls.get(number, []))
    if others and any(part["type"] == "tool-call" and not _is_provider_executed(part) for part in others[0]["content"]):
        others.insert(0, {"role": "user", "content": [{"type": "text", "text": _CUT_OFF}]})
    return systems + others


@dataclass(slots=True)
class _CallPair:
    """A tool call and all that became of it."""

    position: _Position
    part: _Json
    requests: dict[str, _Entry] = field(default_factory=dict)
    responses: dict[str, _Entry] = field(default_factory=dict)
    result: _Entry | None = None

    @property
    def id(self) -> str:
        return cast("str", self.part["toolCallId"])

    @property
    def is_answered(self) -> bool:
        """Whether nothing is missing. A provider continues a call that it runs once it has the approval response."""
        has_response = any(_is_provider_executed(response) for _, response in self.responses.values())
        return self.result is not None or (_is_provider_executed(self.part) and has_response)

    @property
    def provider_result(self) -> _Entry | None:
        """The result, if it belongs into the assistant message: the provider's own, other than a denial (AI SDK 7)."""
        if self.result is None or not _is_provider_executed(self.part):
            return None
        return None if self.result[1]["output"]["type"] == "execution-denied" else self.result

    def answer(self) -> None:
        """Add the error result of a call that was never answered."""
        denial = next((response for _, response in self.responses.values() if not response["approved"]), None)
        text = _NOT_COMPLETED if denial is None else denial.get("reason", _DENIED)
        identity = {"toolCallId": self.id, "toolName": self.part["toolName"]}
        self.result = _LAST, {"type": "tool-result", **identity, "output": _error_text(text)}

    def assistant_entries(self) -> Iterator[_Entry]:
        """Yield what belongs into the assistant message; what is not behind the call yet is put there."""
        yield self.position, self.part | {"input": _as_object(self.part.get("input"))}
        result = self.provider_result
        for number, (position, part) in enumerate([*self.requests.values(), *([] if result is None else [result])]):
            in_place = position[0] == self.position[0] and position > self.position
            yield position if in_place else (*self.position, number), part

    def tool_entries(self) -> Iterator[_Entry]:
        """Yield what belongs into the tool message."""
        yield from self.responses.values()
        if self.result is not None and self.provider_result is None:
            yield self.result


def _calls_by_message(messages: Sequence[ModelMessage]) -> Mapping[int, list[_CallPair]]:
    """Return the calls that are kept, each with a result, by the index of their message."""
    by_id: dict[str, _CallPair] = {}
    for call in _find_calls(messages):
        if call.id not in by_id or call.is_answered or not by_id[call.id].is_answered:
            by_id[call.id] = call
    by_message: dict[int, list[_CallPair]] = {}
    for call in by_id.values():
        if not call.is_answered:
            call.answer()
        by_message.setdefault(call.position[0], []).append(call)
    return by_message


def _find_calls(messages: Sequence[ModelMessage]) -> list[_CallPair]:
    calls: list[_CallPair] = []
    latest: dict[str, _CallPair] = {}
    approvals: dict[str, _CallPair] = {}
    early_results: dict[str, _Entry] = {}
    for position, part in _parts_about_calls(messages):
        match part["type"]:
            case "tool-call":
                call = _CallPair(position, part, result=early_results.pop(part["toolCallId"], None))
                latest[call.id] = call
                calls.append(call)
            case "tool-result":
                if (pair := latest.get(part["toolCallId"])) is not None:
                    pair.result = position, part
                else:
                    early_results[part["toolCallId"]] = position, part
            case "tool-approval-request":
                _ask(approvals, latest.get(part["toolCallId"]), position, part)
            case _:
                if (pair := approvals.get(part["approvalId"])) is not None:
                    pair.responses[part["approvalId"]] = position, part
    return calls


def _parts_about_calls(messages: Sequence[ModelMessage]) -> Iterator[_Entry]:
    for number, message in enumerate(messages):
        if message["role"] in ("assistant", "tool"):
            for index, part in enumerate(cast("list[_Json]", message["content"])):
                if part["type"] in _ABOUT_CALLS:
                    yield (number, index), part


def _ask(approvals: dict[str, _CallPair], call: _CallPair | None, position: _Position, request: _Json) -> None:
    """Add a request for approval to its call; an earlier one with the same id, and its response, go."""
    approval_id = request["approvalId"]
    if (earlier := approvals.pop(approval_id, None)) is not None:
        del earlier.requests[approval_id]
        earlier.responses.pop(approval_id, None)
    if call is not None:
        call.requests[approval_id] = position, request
        approvals[approval_id] = call


def _append_step(messages: list[_Json], message: _Json, number: int, calls: Sequence[_CallPair]) -> None:
    """Append an assistant message with its calls, and a tool message with what became of them."""
    entries = [((number, index), part) for index, part in enumerate(message["content"]) if not _is_blank(part)]
    entries = [(place, _without_null_options(part)) for place, part in entries if part["type"] not in _ABOUT_CALLS]
    _append(messages, message, _in_order([*entries, *(entry for call in calls for entry in call.assistant_entries())]))
    _append(messages, {"role": "tool"}, _in_order([entry for call in calls for entry in call.tool_entries()]))


def _append(messages: list[_Json], message: _Json, content: list[_Json]) -> None:
    """Append the message with this content, unless it is empty; an assistant message joins the one before it."""
    if not content:
        return
    if message["role"] == "assistant" and messages and messages[-1]["role"] == "assistant":
        message, content = {**messages[-1], **message}, [*messages.pop()["content"], *content]
    messages.append({**message, "content": content})


def _in_order(entries: list[_Entry]) -> list[_Json]:
    return [part for _, part in sorted(entries, key=lambda entry: entry[0])]


def _is_blank(part: _Json) -> bool:
    return part["type"] in ("text", "reasoning") and not part["text"].strip() and part.get("providerOptions") is None


def _without_null_options(part: _Json) -> _Json:
    return {key: value for key, value in part.items() if key != "providerOptions" or value is not None}


def _is_provider_executed(call_or_response: _Json) -> bool:
    return call_or_response.get("providerExecuted") is True


def _as_object(value: Any) -> _Json:
    if isinstance(value, Mapping):
        return cast("_Json", value)
    return {} if value is None else {"input": value}


# Which texts JavaScript's `new URL(text)` takes for an absolute URL: https://url.spec.whatwg.org/#url-parsing.
# Of internationalized host names only the characters are looked at, not the rules for whole labels (UTS 46).

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_SPECIAL_SCHEMES: Final = frozenset({"http", "https", "ws", "wss", "ftp", "file"})
_C0_AND_SPACE: Final = "".join(map(chr, range(0x21)))
_AUTHORITY: Final = re.compile(r"//([^/?#]*)")
_SPECIAL_AUTHORITY: Final = re.compile(r"[/\\]*([^/\\?#]*)")
_FILE_AUTHORITY: Final = re.compile(r"[/\\]{2}(?![a-zA-Z][:|](?:[/\\?#]|$))([^/\\?#]*)")
_HOST_AND_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:\[]*)(?::([0-9]*))?")
_FORBIDDEN_IN_HOST: Final = frozenset("\0 #/:<>?@[\\]^|")
_FORBIDDEN_IN_DOMAIN: Final = _FORBIDDEN_IN_HOST | {*map(chr, range(0x20)), "%", "\x7f", "\N{REPLACEMENT CHARACTER}"}
_IGNORED_IN_DOMAIN: Final = dict.fromkeys(map(ord, "\xad\u200b\u2060\ufeff"))
_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")


def _is_absolute_url(text: str) -> bool:
    text = re.sub(r"[\t\n\r]", "", text.strip(_C0_AND_SPACE))
    if not (match := _SCHEME.match(text)):
        return False
    scheme = match[1].lower()
    if scheme == "file":
        authority = _FILE_AUTHORITY.match(text, match.end())
        return authority is None or not authority[1] or _is_domain(authority[1])
    if scheme in _SPECIAL_SCHEMES:
        authority = _SPECIAL_AUTHORITY.match(text, match.end())
        return authority is not None and _is_authority(authority[1], _is_domain)
    authority = _AUTHORITY.match(text, match.end())
    return authority is None or not authority[1] or _is_authority(authority[1], _is_opaque_host)


def _is_authority(authority: str, is_host: Callable[[str], bool]) -> bool:
    match = _HOST_AND_PORT.fullmatch(authority.rpartition("@")[2])
    # A float, since Python refuses to read an integer of thousands of digits.
    return match is not None and is_host(match[1]) and float(match[2] or 0) <= 0xFFFF


def _is_domain(host: str) -> bool:
    if host.startswith("["):
        return _is_ipv6(host)
    domain = unquote_to_bytes(host).decode("utf-8", "replace").translate(_IGNORED_IN_DOMAIN)
    domain = unicodedata.normalize("NFKC", domain).replace("\N{IDEOGRAPHIC FULL STOP}", ".").lower()
    return bool(domain) and _FORBIDDEN_IN_DOMAIN.isdisjoint(domain) and _is_ipv4_if_it_ends_in_a_number(domain)


def _is_opaque_host(host: str) -> bool:
    return _is_ipv6(host) if host.startswith("[") else bool(host) and _FORBIDDEN_IN_HOST.isdisjoint(host)


def _is_ipv6(host: str) -> bool:
    try:
        return "%" not in host and bool(ipaddress.IPv6Address(host[1:-1]))
    except ValueError:
        return False


def _is_ipv4_if_it_ends_in_a_number(domain: str) -> bool:
    labels = domain.removesuffix(".").split(".")
    if not _NUMBER.fullmatch(labels[-1]):
        return True
    numbers = [_ipv4_number(label) for label in labels]
    rest = 256 ** (5 - len(labels)) if len(labels) <= 4 else 0
    return all(0 <= number < 256 for number in numbers[:-1]) and 0 <= numbers[-1] < rest


def _ipv4_number(label: str) -> int:
    """Return the value of a label that is decimal, octal or hexadecimal, or -1 if it is no number."""
    base = 16 if label.startswith("0x") else 8 if label.startswith("0") and label != "0" else 10
    try:
        return int(label.removeprefix("0x") or "0", base) if _NUMBER.fullmatch(label) else -1
    except ValueError:
        return -1
